"""`patience figures tables`: how well Patience Poker is played for scoring tables that nobody trained for beforehand.

The tables are drawn as `scoring="random"` draws them (nine whole numbers from -128 to 127, the range of the
Parameterized Poker Squares challenge), from a seed of their own. Each is played by

* `line`: a line table trained for it alone (the challenge gives a player five minutes to prepare);
* `any table`: the value network that is told the table and had no time to prepare;
* `greedy` and `random`, for the scale.

For some of the tables line tables are trained for other times too, to see what a short training misses.
Times are those of one core, whatever else the machine does. Every trained line table and every table's part is written
when it is done, and a command that was killed goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.board_values import ValuePolicy
from patience_env.agents.line_table import MODEL, LinePolicy, load_table
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
CHALLENGE = 300.0  # the seconds that the challenge gives a player to prepare
TABLES, DEALS, LONG_TABLES, LONG = 20, 2000, 3, 1800.0
SMALL = 0.02  # by what share of its mean a line table trained for that time may be short of a long-trained one


def held_out_tables(count: int) -> list[dict[str, float]]:
    """Return so many scoring tables, the same every time: nine whole numbers each, from -128 to 127."""
    drawn = np.random.default_rng(HELD_OUT).integers(LOW, HIGH + 1, (count, len(SCORED)))
    return [dict(zip(SCORED, map(float, row), strict=True)) for row in drawn.tolist()]


def file_name(placement: str) -> str:
    """Return what the files of the figures are called, without their endings: each placement has its own."""
    return "tables" if placement == "fixed" else f"tables-{placement}"


def _told(result: Evaluation, base: Evaluation | None = None) -> dict[str, float]:
    facts = {**mean_of(result.returns), "seconds_per_move": result.seconds_per_move}
    if base is not None:
        difference = paired(result, base)
        facts |= {"minus_line": difference.difference, "low": difference.low, "high": difference.high}
    return facts


def line_for(folder: Path, number: int, placement: str, seconds: float, show: Show) -> tuple[LinePolicy, int]:
    """Return the player by a line table trained for one of the tables, and in how many games.

    The line table is trained unless the folder holds it.
    """
    path = folder / f"line-{number}-{seconds:g}"
    if not (path / MODEL).is_file():
        told = partial(_tell, show, f"table {number + 1}: {seconds:g} s")
        table = held_out_tables(number + 1)[number]
        train_lines(table, placement, seconds=seconds, seed=number, progress=told).save(path)
    return LinePolicy(str(path)), int(load_table(path)[1]["training"]["games"])


def play_table(
    folder: Path, number: int, placement: str, deals: int, seconds: float, value: str | None, show: Show
) -> dict[str, Any]:
    """Train for one table and let all play it."""
    table = held_out_tables(number + 1)[number]
    options = {"placement": placement, "scoring": table}
    played = named_deals("test", deals)
    player, games = line_for(folder, number, placement, seconds, show)
    line = evaluate(player, GAME.id, played, options=options)
    results = {"line": _told(line)}
    for name, policy in (("any table", ValuePolicy(value)), ("greedy", "greedy"), ("random", "random")):
        results[name] = _told(evaluate(policy, GAME.id, played, options=options), line)
    return {"points": table, "games": games, "results": results}


def play_course(
    folder: Path, number: int, placement: str, deals: int, times: Sequence[float], show: Show
) -> list[dict[str, float]]:
    """Train for one table for several times (seconds); return by what share each is short of the longest's mean."""
    options = {"placement": placement, "scoring": held_out_tables(number + 1)[number]}
    games, results = {}, {}
    for seconds in sorted(times):
        player, games[seconds] = line_for(folder, number, placement, seconds, show)
        results[seconds] = evaluate(player, GAME.id, named_deals("test", deals), options=options)
    longest = results[max(times)]
    told = []
    for seconds, result in results.items():
        missed = paired(longest, result)
        share = {"short": missed.difference / abs(longest.mean), "short_stderr": missed.stderr / abs(longest.mean)}
        told.append({"seconds": seconds, "games": games[seconds], **mean_of(result.returns), **share})
    return told


def _tell(show: Show, name: str, share: float, games: int, score: float) -> None:
    del games, score
    show(name, min(1.0, share))


Courses = dict[int, list[dict[str, float]]]  # by the number of the table, from 1 on


def markdown(head: dict[str, Any], tables: list[dict[str, Any]], courses: Courses) -> str:
    """Return the figures as Markdown."""
    gains = np.array([one["results"]["any table"]["minus_line"] for one in tables])
    ahead = sum(one["results"]["any table"]["low"] > 0 for one in tables)
    behind = sum(one["results"]["any table"]["high"] < 0 for one in tables)
    out = [
        "# Patience Poker for any table",
        "",
        f"Made by `patience figures tables --placement {head['placement']}` (version {head['version']}): {len(tables)} "
        f"scoring tables of nine random whole numbers from {LOW} to {HIGH}, {head['placement']} placement, the first "
        f"{head['deals']:,} test deals. "
        f"`line` was trained for {head['seconds']:g} seconds of one core for its table alone; `any table` is the value "
        "network that is told the table; +- is a standard error, brackets are the 95% interval of the paired "
        "difference.",
        "",
        f"The network that was never trained for the table is significantly ahead on {ahead} tables and behind on "
        f"{behind} of {len(tables)}; on average it differs by {gains.mean():+.1f} points, "
        f"{above_greedy(tables).mean():+.1%} of what the line table is above greedy play.",
        "",
        f"![How far the network is ahead, and what training time does]({file_name(head['placement'])}.png)",
    ]
    if courses:
        out += ["", "## What training time does", ""]
        for part in next(iter(courses.values()))[:-1]:
            time = part["seconds"]
            short = [one["short"] for course in courses.values() for one in course if one["seconds"] == time]
            out += [
                f"Trained for {time:g} seconds, the line table comes within {SMALL:.0%} of the mean of the one trained "
                f"longest on {sum(share <= SMALL for share in short)} of {len(short)} tables.",
                "",
            ]
        out += ["Mean, and by what share of the mean of the longest training it is short of that, by seconds:", ""]
        times = [part["seconds"] for part in next(iter(courses.values()))]
        out += [f"| table | {' | '.join(f'{time:g} s' for time in times)} |", "|---" * (len(times) + 1) + "|"]
        for number, one in courses.items():
            cells = [
                f"{part['mean']:.1f}, short {part['short']:.1%} +- {part['short_stderr']:.1%}" for part in one[:-1]
            ]
            out.append(f"| {number} | {' | '.join(cells)} | {one[-1]['mean']:.1f} |")
    out += [
        "",
        "## All tables",
        "",
        f"| | {', '.join(SCORED)} | line | any table | minus line | greedy | random |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, table in enumerate(tables, 1):
        results = table["results"]
        cells = [str(number), ", ".join(f"{points:.0f}" for points in table["points"].values())]
        cells += [f"{results[name]['mean']:.1f} +- {results[name]['stderr']:.1f}" for name in ("line", "any table")]
        told = results["any table"]
        cells.append(f"{told['minus_line']:+.1f} [{told['low']:+.1f}, {told['high']:+.1f}]")
        cells += [f"{results[name]['mean']:.1f}" for name in ("greedy", "random")]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def above_greedy(tables: list[dict[str, Any]], name: str = "minus_line") -> NDArray[np.float64]:
    """Return what the network is ahead of the line table, in shares of what that one is above greedy play."""
    scales = [one["results"]["line"]["mean"] - one["results"]["greedy"]["mean"] for one in tables]
    ahead = [one["results"]["any table"][name] for one in tables]
    return np.array(ahead, np.float64) / np.array(scales, np.float64)


def draw(tables: list[dict[str, Any]], courses: Courses, path: Path) -> None:
    """Draw how far the network is ahead on each table, and what training time does."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(1, 2 if courses else 1, figsize=(11, 4), layout="constrained", squeeze=False)
    left = axes[0, 0]
    shares, low, high = (100 * above_greedy(tables, name) for name in ("minus_line", "low", "high"))
    left.bar(range(1, len(tables) + 1), shares, yerr=[shares - low, high - shares], capsize=2)
    left.axhline(0, color="black", linewidth=0.8)
    left.set(xlabel="table", ylabel="% of line minus greedy", title="The network for any table, minus the line table")
    left.set_xticks(range(1, len(tables) + 1))
    if courses:
        right = axes[0, 1]
        for number, one in courses.items():
            told = ([part["seconds"] for part in one], [100 * part["short"] for part in one])
            right.errorbar(*told, [100 * part["short_stderr"] for part in one], capsize=3, label=f"table {number}")
        right.axhline(100 * SMALL, color="black", linestyle="--", linewidth=0.8)
        right.set(xscale="log", xlabel="seconds of training", ylabel="% short of the longest", title="The line table")
        times = [part["seconds"] for part in next(iter(courses.values()))]
        right.set_xticks(times, [f"{time:g}" for time in times])
        right.minorticks_off()
        right.legend()
    picture.savefig(path, dpi=100)
    pyplot.close(picture)


def table_figures(
    folder: Path,
    *,
    tables: int,
    placement: str,
    deals: int,
    seconds: float,
    long_tables: int,
    others: Sequence[float],
    value: str | None,
    show: Show,
) -> dict[str, Any]:
    """Make the figures in a folder, or what is missing of them; return them.

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
    times = [seconds, *others]
    if not all(0 < time <= 1e6 for time in times) or len(set(times)) < len(times):
        raise ValueError(
            f"{' '.join([f'--seconds {seconds:g}', *(f'--long {time:g}' for time in others)])} is not allowed: give "
            "different times above 0, up to 1,000,000"
        )
    # Before long trainings, not after: a model for one table does not play the first of these.
    first = GAME.check_options({"placement": placement, "scoring": held_out_tables(1)[0]})
    ValuePolicy(value).check(GAME, first)
    head = {"version": __version__, "placement": placement, "deals": deals, "seconds": seconds, "value": value}
    name = file_name(placement)
    store = Store(folder / f"{name}-parts", head)
    trained = store.path.parent
    parts = []
    for number in range(tables):
        make = partial(play_table, trained, number, placement, deals, seconds, value, show)
        parts.append(store.get(f"table {number}", make))
    courses = {}
    for number in range(long_tables):
        longer = partial(play_course, trained, number, placement, deals, times, show)
        courses[number + 1] = store.get(f"course {number}: {' '.join(f'{time:g}' for time in sorted(times))}", longer)
    found = {"head": head, "tables": parts, "courses": courses}
    replace_file(folder / f"{name}.md", markdown(head, parts, courses).encode())
    replace_file(folder / f"{name}.json", (json.dumps(found, indent=1) + "\n").encode())
    draw(parts, courses, folder / f"{name}.png")
    return found


def command(
    out: Annotated[Path, typer.Option(help="Folder for JSON, Markdown and a plot.")] = Path("docs/figures"),
    tables: Annotated[int, typer.Option(help="How many scoring tables.")] = TABLES,
    placement: Annotated[str, typer.Option(help="fixed, or touching (tables-touching.md and so on).")] = "fixed",
    deals: Annotated[int, typer.Option(help="The first so many test deals.")] = DEALS,
    seconds: Annotated[float, typer.Option(help="Training of a line table, in seconds of one core.")] = CHALLENGE,
    long_tables: Annotated[int, typer.Option(help="How many tables are trained for other times too.")] = LONG_TABLES,
    long: Annotated[
        list[float] | None,
        typer.Option(
            help=f"How long those are, in seconds: {LONG:g} by default; may be given several times.", show_default=False
        ),
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Folder of a value model for any table; by default the one in the package.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Compare players on scoring tables that nobody trained for beforehand, and write a table of them.

    A command that was killed goes on where it was.

    Example: patience figures tables --seconds 60 --long 300 --long 900
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
                others=long or [LONG],
                value=value,
                show=show,
            )
    except (OSError, ValueError) as error:
        fail(error)
    name = file_name(placement)
    typer.echo(f"written to {out}: {name}.md, {name}.json and {name}.png")
