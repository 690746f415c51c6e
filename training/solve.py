"""Is a deal won or lost when every card is known? `patience solve`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from patience_env import __version__
from patience_env.agents.solver import Solution, deal_states, solve_states
from patience_env.game import Game, get_game
from patience_env.kernels import STEP
from patience_env.table import Rows
from patience_env.training.console import fail
from patience_env.training.evaluate import check_writable, write_atomically


def told(game: Game, options: dict[str, Any], deal: int, moves: tuple[int, ...]) -> list[str]:
    """Replay moves from a deal on and return what each does.

    Raises:
        ValueError: they do not win: an error of the solver, never passed over.
    """
    import numpy as np

    rows = Rows(game, options, 1, "cards", False)
    rows.reset(rows.all_rows, np.array([deal], np.uint64))
    lines: list[str] = []
    for move in moves:
        if not rows.masks[0, move]:
            raise ValueError(f"the line of play for {game.id} deal {deal} is wrong at move {len(lines) + 1}")
        lines.append(game.describe(rows.states[0], move))
        rows.advance(np.full(1, STEP, np.uint8), np.zeros(1, np.uint64), np.array([move], np.int64))
    from patience_env.kernels import won_rows

    won = np.zeros(1, np.bool_)
    won_rows(rows.states, won)
    if not won[0]:
        raise ValueError(f"the line of play for {game.id} deal {deal} does not win")
    return lines


def said(solution: Solution) -> str:
    """Return a solution in words."""
    effort = f"{solution.positions:,} positions, {solution.seconds:.1f} s"
    if solution.status == "won":
        return f"won in {len(solution.moves)} moves ({effort})"
    if solution.status == "lost":
        return f"lost: no line of play wins ({effort})"
    limit = {
        "time": "the time is up",
        "memory": "the memory is full",
        "positions": "the positions are used up",
        "moves": "some lines of play were left out",
    }[solution.limit]
    return f"unknown: {limit} ({effort})"


def command(
    game: Annotated[str, typer.Argument(help="The game, such as Fortress-v0.", show_default=False)],
    deal: Annotated[int, typer.Option(metavar="N", help="The number of the deal.", show_default=False)],
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the game, such as redeals=1.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Limit of CPU seconds.")] = 60.0,
    memory: Annotated[float, typer.Option(help="Limit of memory, GiB.")] = 4.0,
    positions: Annotated[
        int | None, typer.Option(help="Limit of different positions looked at.", show_default=False)
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print the answer without the line of play.")] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="Write the answer as JSON; '-': to the standard output.", show_default=False
        ),
    ] = None,
) -> None:
    """Tell whether a deal can be won when every card is known, the hidden ones and later shuffles too, and how.

    Exit code 0: an answer (won, or lost with proof); 3: unknown at the limit.

    Examples: patience solve Fortress-v0 --deal 1000005;
    patience solve Sultan-v0 --deal 7 --option redeals=1 --seconds 300
    """
    from patience_env.training.cli import read_options

    try:
        facts = get_game(game)
        options = facts.check_options(read_options(option or []))
        states = deal_states(facts, options, deal)
        if json_file not in (None, "-"):
            check_writable(str(json_file))
        from rich.console import Console
        from rich.status import Status

        console = Console(stderr=True)
        with Status(f"{game} deal {deal}", console=console) as status:

            def progress(met: int, spent: float) -> None:
                if console.is_terminal:
                    status.update(f"{game} deal {deal}: {met:,} positions, {spent:.0f} s")

            solution = solve_states(
                facts, states, options, seconds=seconds, memory=memory, positions=positions, progress=progress
            )
        lines = told(facts, options, deal, solution.moves) if solution.status == "won" else []
        if json_file is not None:
            report = {
                "game": game,
                "options": options,
                "deal": deal,
                "status": solution.status,
                "moves": list(solution.moves),
                "positions": solution.positions,
                "seconds": solution.seconds,
                "limit": solution.limit,
                "version": __version__,
            }
            text = json.dumps(report) + "\n"
            if json_file == "-":
                typer.echo(text, nl=False)
            else:
                write_atomically(json_file, text)
    except (TypeError, ValueError, OSError) as error:
        fail(error)
    if json_file != "-":
        typer.echo(f"{game} deal {deal}: {said(solution)}")
        if not brief:
            for i, line in enumerate(lines, start=1):
                typer.echo(f"{i:4}. {line}")
    if solution.status == "unknown":
        raise typer.Exit(3)
