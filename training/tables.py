"""`patience figures tables`: how well Patience Poker is played for scoring tables that nobody trained for beforehand.

The tables are drawn as `scoring="random"` draws them (nine whole numbers from -128 to 127, the range of the
Parameterized Poker Squares challenge), from a seed of their own. Each is played by

* `line`: a line table trained for it alone, for as long as the challenge gives a player to prepare (five minutes);
* `any table`: the value network that is told the table and had no time to prepare;
* `long`: for some of the tables, a line table trained for longer, to see what the five minutes miss;
* `greedy` and `random`, for the scale.

Every table's part is written when it is done, and a command that was killed goes on from there.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from patience_env import __version__
from patience_env.agents.board_values import ValuePolicy
from patience_env.agents.line_table import LinePolicy
from patience_env.deals import named_deals
from patience_env.games.patience_poker import GAME
from patience_env.games.poker_hands import SCORED
from patience_env.training.console import fail
from patience_env.training.evaluate import Evaluation, evaluate, paired
from patience_env.training.figures import Show, Store, mean_of, progress
from patience_env.training.line_training import PLACEMENTS, train_lines
from patience_env.training.models import replace_file

LOW, HIGH = -128, 127
HELD_OUT = 2017  # the seed of the tables
TABLES, DEALS, SECONDS, LONG_TABLES, LONG = 20, 2000, 300.0, 3, 1800.0
SMALL = 0.02  # what a table trained for five minutes may fall short of a long-trained one


def held_out_tables(count: int) -> list[dict[str, float]]:
    """Return so many scoring tables, the same every time: nine whole numbers each, from -128 to 127."""
    drawn = np.random.default_rng(HELD_OUT).integers(LOW, HIGH + 1, (count, len(SCORED)))
    return [dict(zip(SCORED, map(float, row), strict=True)) for row in drawn.tolist()]


def _told(result: Evaluation, base: Evaluation | None = None) -> dict[str, float]:
    facts = {**mean_of(result.returns), "seconds_per_move": result.seconds_per_move}
    if base is not None:
        difference = paired(result, base)
        facts |= {"minus_line": difference.difference, "low": difference.low, "high": difference.high}
    return facts


def play_table(
    folder: Path, number: int, placement: str, deals: int, seconds: float, long: float, value: str | None, show: Show
) -> dict[str, Any]:
    """Train for one table and let all play it; `long` seconds of a second training (0: none)."""
    table = held_out_tables(number + 1)[number]
    options = {"placement": placement, "scoring": table}
    played = named_deals("test", deals)
    trained = {}
    for name, length in (("line", seconds), ("long", long)):
        if length:
            told = partial(_tell, show, f"table {number + 1}: {name}")
            trained[name] = train_lines(table, placement, seconds=length, seed=number, progress=told)
            trained[name].save(folder / f"{name}-{number}")
    found = {
        name: evaluate(LinePolicy(str(folder / f"{name}-{number}")), GAME.id, played, options=options)
        for name in trained
    }
    found["any table"] = evaluate(ValuePolicy(value), GAME.id, played, options=options)
    for name in ("greedy", "random"):
        found[name] = evaluate(name, GAME.id, played, options=options)
    line = found["line"]
    return {
        "points": table,
        "games": {name: one.made["games"] for name, one in trained.items()},
        "results": {name: _told(result, None if result is line else line) for name, result in found.items()},
    }


def _tell(show: Show, name: str, share: float, games: int, score: float) -> None:
    del games, score
    show(name, min(1.0, share))


def markdown(head: dict[str, Any], tables: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown."""
    losses = [
        (one["results"]["long"]["mean"] - one["results"]["line"]["mean"]) / abs(one["results"]["long"]["mean"])
        for one in tables
        if "long" in one["results"]
    ]
    gains = np.array([one["results"]["any table"]["minus_line"] for one in tables])
    shares = np.array([
        one["results"]["any table"]["minus_line"] / (one["results"]["line"]["mean"] - one["results"]["greedy"]["mean"])
        for one in tables
    ])  # fmt: skip
    ahead = sum(one["results"]["any table"]["low"] > 0 for one in tables)
    behind = sum(one["results"]["any table"]["high"] < 0 for one in tables)
    out = [
        "# Patience Poker for any table",
        "",
        f"Made by `patience figures tables` (version {head['version']}): {len(tables)} scoring tables of nine random "
        f"whole numbers from {LOW} to {HIGH}, {head['placement']} placement, the first {head['deals']:,} test deals. "
        f"`line` was trained for {head['seconds']:.0f} seconds for its table alone; `any table` is the value network "
        "that is told the table; +- is a standard error, brackets are the 95% interval of the paired difference.",
        "",
        f"The network that was never trained for the table is significantly ahead on {ahead} tables and behind on "
        f"{behind} of {len(tables)}; on average it differs by {gains.mean():+.1f} points, {shares.mean():+.1%} of what "
        "the line table is above greedy play.",
    ]
    if losses:
        within = sum(loss <= SMALL for loss in losses)
        out += [
            "",
            f"Of the {len(losses)} tables that a line table was also trained for {head['long']:.0f} seconds for, the "
            f"short training came within {SMALL:.0%} of the long one's mean on {within} (it fell short by "
            f"{', '.join(f'{loss:.1%}' for loss in losses)}).",
        ]
    out += [
        "",
        f"| {', '.join(SCORED)} | line | any table | minus line | long | greedy | random |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in tables:
        results = one["results"]
        cells = [", ".join(f"{points:.0f}" for points in one["points"].values())]
        cells += [f"{results[name]['mean']:.1f} +- {results[name]['stderr']:.1f}" for name in ("line", "any table")]
        told = results["any table"]
        cells.append(f"{told['minus_line']:+.1f} [{told['low']:+.1f}, {told['high']:+.1f}]")
        cells += [f"{results[name]['mean']:.1f}" if name in results else "" for name in ("long", "greedy", "random")]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def table_figures(
    folder: Path,
    *,
    tables: int,
    placement: str,
    deals: int,
    seconds: float,
    long_tables: int,
    long: float,
    value: str | None,
    show: Show,
) -> list[dict[str, Any]]:
    """Make the figures in a folder, or what is missing of them; return the tables' parts.

    Raises:
        ValueError: an argument that is not allowed, no value model for these tables, or a folder with other figures.
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"placement={placement!r} is not allowed: choose fixed or touching")
    if tables < 1 or deals < 2 or not 0 <= long_tables <= tables:
        raise ValueError(
            f"--tables {tables} --deals {deals} --long-tables {long_tables} is not allowed: at least one table, two "
            "deals, and no more long trainings than tables"
        )
    if not seconds > 0 or not long > 0:
        raise ValueError(f"--seconds {seconds} --long {long} is not allowed: give times above 0")
    # Before long trainings, not after: a model for one table does not play the first of these.
    first = GAME.check_options({"placement": placement, "scoring": held_out_tables(1)[0]})
    ValuePolicy(value).check(GAME, first)
    head = {
        "version": __version__, "placement": placement, "deals": deals, "seconds": seconds, "long": long,
        "long_tables": long_tables, "value": value,
    }  # fmt: skip
    store = Store(folder / "tables-parts", head)
    parts = []
    for number in range(tables):
        extra = long if number < long_tables else 0.0
        make = partial(play_table, store.path.parent, number, placement, deals, seconds, extra, value, show)
        parts.append(store.get(f"table {number}", make))
    replace_file(folder / "tables.md", markdown(head, parts).encode())
    replace_file(folder / "tables.json", (json.dumps({"head": head, "tables": parts}, indent=1) + "\n").encode())
    return parts


def command(
    out: Annotated[Path, typer.Option(help="Folder for JSON and Markdown.")] = Path("docs/figures"),
    tables: Annotated[int, typer.Option(help="How many scoring tables.")] = TABLES,
    placement: Annotated[str, typer.Option(help="fixed or touching.")] = "fixed",
    deals: Annotated[int, typer.Option(help="The first so many test deals.")] = DEALS,
    seconds: Annotated[float, typer.Option(help="Training of a line table, in seconds of one core.")] = SECONDS,
    long_tables: Annotated[int, typer.Option(help="How many tables are trained for longer too.")] = LONG_TABLES,
    long: Annotated[float, typer.Option(help="How long those are, in seconds.")] = LONG,
    value: Annotated[
        str | None, typer.Option(help="Folder of a value model for any table; until one comes with the package.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Compare players on scoring tables that nobody trained for beforehand, and write a table of them.

    A command that was killed goes on where it was.

    Example: patience train-value PatiencePoker-v0 --scoring random --placement fixed --teacher '' --out any, then
    patience figures tables --value any
    """
    try:
        with progress(quiet) as show:
            table_figures(
                out,
                tables=tables,
                placement=placement,
                deals=deals,
                seconds=seconds,
                long_tables=long_tables,
                long=long,
                value=value,
                show=show,
            )
    except (OSError, ValueError) as error:
        fail(error)
    typer.echo(f"written to {out}: tables.md and tables.json")
