"""How well the baselines play every game: `python -m patience_env.training.levels` prints a Markdown table.

`--json docs/figures/levels.json` also writes the results as JSON, from which the documentation's pages take them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

import patience_env
from patience_env.deals import named_deals
from patience_env.encoding import planes_shape
from patience_env.game import game_ids, get_game, max_episode_steps
from patience_env.training.evaluate import Evaluation, check_writable, evaluate, write_atomically

BASELINES = ("random", "greedy", "thumb")
# Options besides the defaults whose levels are worth knowing.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "PatiencePoker-v0": ({"placement": "fixed"}, {"scoring": "english"}, {"placement": "fixed", "scoring": "english"}),
    "Sultan-v0": ({"redeals": 1},),
    "Fourteenth-v0": ({"exchanges": 1, "close_gaps": True}, {"exchanges": 0, "close_gaps": True}),
}


def entry(result: Evaluation) -> dict[str, Any]:
    """Return a result as it goes into JSON."""
    low, high = result.win_interval or (None, None)
    return {
        "env": result.env,
        "options": result.options,
        "policy": result.policy,
        "policy_version": result.policy_version,
        "deals": len(result.deals),
        "mean": result.mean,
        "stderr": None if math.isnan(result.stderr) else result.stderr,
        "win_rate": result.win_rate,
        "wilson_low": low,
        "wilson_high": high,
        "moves": result.moves,
    }


def level(result: Mapping[str, Any]) -> str:
    """Return the win rate with its interval, or the mean score with its standard error, and the mean return."""
    if result["win_rate"] is None:
        error = "" if result["stderr"] is None else f" +- {result['stderr']:.2f}"
        return f"{result['mean']:.2f}{error}"
    return f"{result['win_rate']:.1%} [{result['wilson_low']:.1%}, {result['wilson_high']:.1%}], {result['mean']:.3f}"


def facts(game_id: str, options: dict[str, Any]) -> list[str]:
    """Return the first cells of a game's line."""
    game = get_game(game_id)
    layout = game.layout(game.check_options(options))
    shape = " x ".join(map(str, planes_shape(layout)))
    named = ", ".join(f"{name}={value}" for name, value in options.items())
    limit = max_episode_steps(game_id)
    return [f"`{game_id}` {named}".strip(), str(layout.actions), shape, "" if limit is None else f"{limit:,}"]


def main(
    deals: Annotated[str, typer.Option(help="The standard deals: test, validation or smoke.")] = "test",
    first: Annotated[int | None, typer.Option(help="Play only so many of them.", show_default=False)] = None,
    game: Annotated[list[str] | None, typer.Option(help="Only this game; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the policies' own random choices.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the results as JSON.", show_default=False)
    ] = None,
) -> None:
    """Let the baselines play standard deals of every game and print a Markdown table.

    Games that are won or lost: win rate with its 95% Wilson interval, then the mean return (share of cards played).
    Patience Poker: mean score and its standard error.
    """
    try:
        numbers = named_deals(deals, first)
        cases = [(get_game(name).id, given) for name in game or game_ids() for given in ({}, *VARIANTS.get(name, ()))]
        if json_file is not None:
            check_writable(json_file)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    entries, lines = [], []
    with Progress(transient=True) as progress:
        task = progress.add_task("levels", total=len(cases) * len(BASELINES))
        for name, given in cases:
            cells = facts(name, given)
            for policy in BASELINES:
                entries.append(entry(evaluate(policy, name, numbers, options=given, seed=seed)))
                cells.append(level(entries[-1]))
                progress.advance(task)
            lines.append(f"| {' | '.join(cells)} |")
    typer.echo(f"| game | actions | planes | step limit | {' | '.join(BASELINES)} |\n|---|---|---|---|---|---|---|")
    typer.echo("\n".join(lines))
    words = ["python -m patience_env.training.levels"]
    words += [f"--deals {deals}"] * (deals != "test") + [f"--first {first}"] * (first is not None)
    words += [f"--game {name}" for name in game or ()] + [f"--seed {seed}"] * (seed != 0)
    words += [f"--json {json_file}"] * (json_file is not None)
    report = {
        "command": " ".join(words),
        "version": patience_env.__version__,
        "deals": deals,
        "first_deal": int(numbers[0]),
        "seed": seed,
        "entries": entries,
    }
    if json_file is not None:
        write_atomically(json_file, json.dumps(report, indent=1, allow_nan=False) + "\n")
        typer.echo(f"wrote {json_file}", err=True)


if __name__ == "__main__":
    typer.run(main)
