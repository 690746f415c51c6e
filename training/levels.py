"""How well the baselines play every game: `python -m patience_env.training.levels` prints a Markdown table."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.progress import Progress

from patience_env.deals import named_deals
from patience_env.encoding import planes_shape
from patience_env.game import game_ids, get_game, max_episode_steps
from patience_env.training.evaluate import Evaluation, evaluate

BASELINES = ("random", "greedy", "thumb")
# Options besides the defaults whose levels are worth knowing.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "PatiencePoker-v0": ({"placement": "fixed"}, {"scoring": "english"}, {"placement": "fixed", "scoring": "english"}),
    "Sultan-v0": ({"redeals": 1},),
    "Fourteenth-v0": ({"exchanges": 1, "close_gaps": True}, {"exchanges": 0, "close_gaps": True}),
}


def level(result: Evaluation) -> str:
    """Return the win rate with its interval, or the mean score with its standard error, and the mean return."""
    if result.win_rate is None or result.win_interval is None:
        return f"{result.mean:.2f} +- {result.stderr:.2f}"
    low, high = result.win_interval
    return f"{result.win_rate:.1%} [{low:.1%}, {high:.1%}], {result.mean:.3f}"


def facts(game_id: str, options: dict[str, Any]) -> list[str]:
    """Return the first cells of a game's line."""
    game = get_game(game_id)
    layout = game.layout(game.check_options(options))
    shape = " x ".join(map(str, planes_shape(layout)))
    named = ", ".join(f"{name}={value}" for name, value in options.items())
    limit = max_episode_steps(game_id)
    return [f"`{game_id}` {named}".strip(), str(layout.actions), shape, "" if limit is None else f"{limit:,}"]


def main(
    first: Annotated[int, typer.Option(help="How many of the 10,000 test deals to play.")] = 10_000,
    game: Annotated[list[str] | None, typer.Option(help="Only this game; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the policies' own random choices.")] = 0,
) -> None:
    """Let the baselines play the test deals of every game and print a Markdown table.

    Games that are won or lost: win rate with its 95% Wilson interval, then the mean return (share of cards played).
    Patience Poker: mean score and its standard error.
    """
    deals = named_deals("test", first)
    cases = [(name, options) for name in game or game_ids() for options in ({}, *VARIANTS.get(name, ()))]
    lines = []
    with Progress(transient=True) as progress:
        task = progress.add_task("levels", total=len(cases) * len(BASELINES))
        for name, options in cases:
            cells = facts(name, options)
            for policy in BASELINES:
                cells.append(level(evaluate(policy, name, deals, options=options, seed=seed)))
                progress.advance(task)
            lines.append(f"| {' | '.join(cells)} |")
    typer.echo(f"| game | actions | planes | step limit | {' | '.join(BASELINES)} |\n|---|---|---|---|---|---|---|")
    typer.echo("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
