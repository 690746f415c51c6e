"""`patience figures`: what strong play of Patience Poker looks like in figures, as JSON, Markdown and plots.

Everything is played by the value networks that come with the package, and the first of the deals by the search too, on
deals that no training plays and no comparison uses (from `FIRST_DEAL` on, below 2**32). Each part is written when it is
done, and a command that was killed goes on from there (the search after its last `SEARCHED` deals). What other
networks played than those of now is played again.

The *settled table* answers what points "in proportion to difficulty" would be: points are made inversely proportional
to how often a hand comes, a player is trained for these points, the hands of his tableaus are counted, and so on until
points and frequencies no longer change.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.board_values import ValuePolicy, room_for, tally_values
from patience_env.agents.line_table import LinePolicy, new_boards, play_tally, points_of
from patience_env.agents.policy import Policy, make_policy, parse_policy, see
from patience_env.agents.search import SearchPolicy
from patience_env.deals import deck, named_deals
from patience_env.game import get_game
from patience_env.games.patience_poker import CANVAS, GAME, lines
from patience_env.games.poker_hands import CATEGORIES, SCORED, TABLES, category
from patience_env.table import Rows
from patience_env.training.console import fail
from patience_env.training.evaluate import Z_95, evaluate, standard_error, tableaus_to, wilson
from patience_env.training.line_training import train_lines
from patience_env.training.models import replace_file

FIRST_DEAL = 100_000_000
DEALS, PART = 100_000, 5_000
FEWEST = 50  # deals, of which every figure can be told with its error
PLACEMENTS = ("fixed", "touching")
TARGET = 500
GREAT = {"american": 200, "american-alternate": 100, "english": 70}
# The search: deals played between two files, simulated games for a move, and the budgets whose growth is shown.
SEARCHED, SIMULATIONS = 250, 20
# One card ahead; further ahead chance spoils as much as there is to find.
BUDGETS, DEPTH = (50, 200, 400), 1
SETTLING_GAMES, SETTLING_DEALS, SETTLING_ROUNDS, SETTLED = 100_000, 20_000, 14, 0.03
PAIR = 1  # points of a pair in the settled table


def mean_of(values: NDArray[Any]) -> dict[str, float]:
    """Return mean and standard error."""
    return {"mean": float(values.mean()), "stderr": standard_error(values)}


class Store:
    """Parts of the figures in one JSON file, written whole after each.

    Beside a part stands who played it (`played_by`): what another network played is made anew.
    """

    def __init__(self, folder: Path, head: dict[str, Any]) -> None:
        self.path = folder / "parts.json"
        self.parts: dict[str, Any] = {"head": head}
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.is_file():
            try:
                known = json.loads(self.path.read_text("utf-8"))
            except ValueError as error:
                raise ValueError(f"{str(self.path)!r} is damaged ({error}): remove it to begin anew") from error
            if known.get("head") != head:
                raise ValueError(
                    f"{str(self.path)!r} belongs to other figures ({known.get('head')}): choose another folder, or "
                    "remove it to begin anew"
                )
            self.parts = known

    def get(self, name: str, make: Callable[[], Any], *players: str) -> Any:
        """Return a part, made and saved if it is not there yet, or was played by others."""
        known = self.parts.get("players", {})
        if name not in self.parts or known.get(name, []) != list(players):
            self.parts[name] = make()
            if players:
                self.parts["players"] = {**known, name: list(players)}
            replace_file(self.path, (json.dumps(self.parts, indent=1, allow_nan=False) + "\n").encode())
        return self.parts[name]


Show = Callable[[str, float], None]


def play_all(placement: str, scoring: str, deals: int, show: Show) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the score of each deal, and how many rows and columns became each hand, (deals, 2, 10)."""
    options = GAME.check_options({"placement": placement, "scoring": scoring})
    net, _, _ = ValuePolicy().model(options)
    points, space, worths = points_of(scoring), room_for(net), np.zeros(CANVAS * CANVAS)
    numbers = np.arange(FIRST_DEAL, FIRST_DEAL + deals, dtype=np.uint64)
    scores, hands = np.zeros(deals), np.zeros((deals, 2, 10), np.int64)
    boards = new_boards(2)
    for first in range(0, deals, PART):
        some = slice(first, first + PART)
        touching = int(placement == "touching")
        tally_values(numbers[some], boards, net, space, points, touching, worths, scores[some], hands[some])
        show(f"{placement} {scoring}", min(1.0, (first + PART) / deals))
    return scores, hands


def searcher(simulations: int) -> str:
    """Return the search with a budget, written as text."""
    return f"search:simulations={simulations},depth={DEPTH}"


def played_by(placement: str, scoring: str, search: str = "") -> str:
    """Return who plays: a network, by how the digest of its weights begins, and perhaps a search with it."""
    facts = ValuePolicy().model(GAME.check_options({"placement": placement, "scoring": scoring}))[2]
    network = f"value {ValuePolicy.version} {facts['sha256'][:8]}"
    return f"{search} {SearchPolicy.version} {network}" if search else network


def play_searching(
    placement: str, scoring: str, deals: int, simulations: int, folder: Path, show: Show
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the same of the search; what is played is kept in `folder`, and not played again."""
    options = GAME.check_options({"placement": placement, "scoring": scoring})
    player = searcher(simulations)
    name, given = parse_policy(player)
    policy = make_policy(name, GAME.id, **given)
    label = as_name(played_by(placement, scoring, player))
    parts = []
    for first in range(0, deals, SEARCHED):
        last = min(first + SEARCHED, deals)
        file = folder / f"{placement}-{scoring}-{label}-{first}-{last}.npz"
        if not file.is_file():
            played = _search_deals(policy, options, np.arange(FIRST_DEAL + first, FIRST_DEAL + last, dtype=np.uint64))
            room = io.BytesIO()
            np.savez_compressed(room, scores=played[0], hands=played[1])
            replace_file(file, room.getvalue())
        with np.load(file) as known:
            parts.append((known["scores"], known["hands"]))
        show(f"search {placement} {scoring}", last / deals)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def as_name(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub("[^a-z0-9.]", "-", text)


def _search_deals(
    policy: Policy, options: dict[str, Any], numbers: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Play deals by the search; return their scores, and the hands of rows and columns."""
    rows = Rows(get_game(GAME.id), options, len(numbers), "cards", False)
    rows.reset(rows.all_rows, numbers)
    scores, hands = np.zeros(len(numbers)), np.zeros((len(numbers), 2, len(CATEGORIES)), np.int64)
    keys, idle = np.random.default_rng(int(numbers[0])), np.zeros(len(numbers), np.bool_)
    policy.start(0)
    policy.check(GAME, options)
    while rows.masks.any():
        turn = see(GAME, options, rows.states, rows.masks, int(keys.integers(2**63)))
        rows.step(policy.act(turn), idle)
        scores += rows.rewards
    for i in range(len(numbers)):
        for name, cards in lines(rows.states[i]):
            hands[i, int(name.startswith("column")), category(*cards)] += 1
    return scores.round().astype(np.int64), hands


def describe(placement: str, scoring: str, scores: NDArray[Any], hands: NDArray[Any]) -> dict[str, Any]:
    """Return the figures of one placement and scoring table."""
    deals = len(scores)
    by_axis = hands.sum(0)
    lines = {}
    for number, name in enumerate(CATEGORIES):
        hits = int(by_axis[:, number].sum())
        low, high = wilson(hits, 10 * deals)
        with_one = int((hands[:, :, number].sum(1) > 0).sum())
        lines[name] = {
            "share_of_lines": hits / (10 * deals),
            "low": low,
            "high": high,
            "share_of_rows": int(by_axis[0, number]) / (5 * deals),
            "share_of_columns": int(by_axis[1, number]) / (5 * deals),
            "per_tableau": hits / deals,
            "tableaus_with_one": with_one / deals,
            "tableaus_with_one_interval": wilson(with_one, deals),
        }
    series = np.array(tableaus_to(scores, TARGET))
    great = int((scores >= GREAT[scoring]).sum())
    ranks = np.array([(deck(FIRST_DEAL + i)[0] - 1) % 13 for i in range(min(deals, 20_000))])
    counts, edges = np.histogram(scores, bins=np.arange(-0.5, scores.max() + 10, 10 if scoring == "american" else 5))
    return {
        "placement": placement,
        "scoring": scoring,
        "deals": deals,
        "score": mean_of(scores),
        "percentiles": {str(p): float(np.percentile(scores, p)) for p in (1, 5, 25, 50, 75, 95, 99)},
        "best": float(scores.max()),
        "lines": lines,
        "great": {"points": GREAT[scoring], "share": great / deals, "interval": wilson(great, deals)},
        "tableaus_to_500": {
            **mean_of(series),
            "distribution": {str(k): int((series == k).sum()) for k in range(int(series.min()), int(series.max()) + 1)},
        },
        "first_card": {
            "A23456789TJQK"[rank]: mean_of(scores[: len(ranks)][ranks == rank])
            for rank in range(13)
            if (ranks == rank).sum() > 1
        },
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def settle(placement: str, seed: int, show: Show) -> dict[str, Any]:
    """Return the table whose points are inversely proportional to how often each hand comes when played for it."""
    points = np.array(TABLES["american"], float)
    points *= PAIR / points[0]
    course = []
    boards = new_boards(1)
    deals = np.arange(FIRST_DEAL, FIRST_DEAL + SETTLING_DEALS, dtype=np.uint64)
    change = math.inf
    for number in range(SETTLING_ROUNDS):
        table = dict(zip(SCORED, points.tolist(), strict=True))
        trained = train_lines(table, placement, games=SETTLING_GAMES, seed=seed + number)
        hands = np.zeros((2, 10), np.int64)
        play_tally(
            deals, boards, trained.values, trained.points, int(placement == "touching"), np.zeros(len(deals)), hands
        )
        counts = hands.sum(0)[1:] + 0.5
        wanted = counts[0] / counts
        # Half the way at first, on the scale of ratios (the whole way swings to and fro), then ever less, so that the
        # chance in how often the rare hands come is averaged out.
        step = 1 / (2 + number / 2)
        following = points ** (1 - step) * (wanted * PAIR) ** step
        following *= PAIR / following[0]
        course.append({"points": points.tolist(), "counts": hands.sum(0).tolist()})
        change = float(np.abs(np.log(following / points)).max())
        points = following
        show(f"settling {placement}", (number + 1) / SETTLING_ROUNDS)
        if change < SETTLED:
            break
    return {"points": dict(zip(SCORED, points.tolist(), strict=True)), "last_change": change, "course": course}


def search_growth(placement: str, scoring: str, first: int, folder: Path, show: Show) -> list[dict[str, Any]]:
    """Return mean scores of the search by simulations on the first test deals, each beside the network's own.

    What each budget came to is kept in `folder`, and not played again.
    """
    base, seconds = _play_test("value", placement, scoring, first, folder)
    found = [
        {"simulations": 0, "deals": first, **mean_of(base), "gain": 0.0, "gain_stderr": 0.0, "seconds": seconds},
    ]
    for number, simulations in enumerate(BUDGETS):
        scores, seconds = _play_test(searcher(simulations), placement, scoring, first, folder)
        gain = mean_of(scores - base)
        found.append(
            {
                "simulations": simulations,
                "deals": first,
                **mean_of(scores),
                "gain": gain["mean"],
                "gain_stderr": gain["stderr"],
                "seconds": seconds,
            }
        )
        show(f"growth {placement} {scoring}", (number + 1) / len(BUDGETS))
    return found


def _play_test(policy: str, placement: str, scoring: str, count: int, folder: Path) -> tuple[NDArray[Any], float]:
    """Return a policy's scores on the first test deals, and its CPU seconds a move."""
    player = played_by(placement, scoring, "" if policy == "value" else policy)
    file = folder / f"test-{placement}-{scoring}-{as_name(player)}-{count}.npz"
    if not file.is_file():
        options = {"placement": placement, "scoring": scoring}
        result = evaluate(policy, GAME.id, named_deals("test")[:count], options=options)
        room = io.BytesIO()
        np.savez_compressed(room, scores=result.returns, seconds=result.seconds_per_move)
        replace_file(file, room.getvalue())
    with np.load(file) as known:
        scores: NDArray[Any] = known["scores"]
        return scores, float(known["seconds"])


# -- text and pictures ---------------------------------------------------------------------------------------------


def markdown(figures: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    head = figures["head"]
    out = [
        "# Patience Poker in figures",
        "",
        f"Made by `patience figures poker` (version {head['version']}): {head['deals']:,} deals from number "
        f"{head['first_deal']:,} on, played by the policy `value`, and the first of them by `search`, which looks "
        "ahead. Intervals are 95%, +- is a standard error.",
        "",
    ]
    settings = [value for name, value in figures.items() if name.startswith("play ")]
    searched = [value for name, value in figures.items() if name.startswith("searched ")]
    out += ["## Scores", *scores_table(settings)]
    if searched:
        out += ["", "## Scores of the search", ""]
        out += [
            f"{searched[0]['simulations']} simulated games for a move; the gain is that over `value` on the same deals."
        ]
        out += scores_table(searched)
    out += ["", "## What the touching rule costs, on the same deals", "", "| table | player | points a tableau |"]
    out += ["|---|---|---|"]
    for name, cost in figures.items():
        if "touching costs " in name:
            table = name.rpartition("touching costs ")[2]
            player = "search" if name.startswith("search") else "value"
            out.append(f"| {table} | {player} | {cost['mean']:.2f} +- {cost['stderr']:.2f} |")
    for one in settings + searched:
        player = ", search" if "simulations" in one else ""
        out += ["", f"## Hands: {one['placement']}, {one['scoring']}{player}", ""]
        out += [
            "| hand | of all lines | of rows | of columns | a tableau | tableaus with one |",
            "|---|---|---|---|---|---|",
        ]
        for name, line in one["lines"].items():
            out.append(
                f"| {name} | {100 * line['share_of_lines']:.3f}% ({100 * line['low']:.3f} to {100 * line['high']:.3f}) "
                f"| {100 * line['share_of_rows']:.3f}% | {100 * line['share_of_columns']:.3f}% "
                f"| {line['per_tableau']:.4f} | {100 * line['tableaus_with_one']:.2f}% |"
            )
        firsts = ", ".join(f"{card} {part['mean']:.1f}" for card, part in one["first_card"].items())
        error = max(part["stderr"] for part in one["first_card"].values())
        out += ["", f"Mean score by the rank of the first card (+- {error:.1f}): {firsts}.", ""]
        out += [f"![Hands and scores: {one['placement']}, {one['scoring']}{player}]({picture_of(one)})"]
    for name, one in figures.items():
        if name.startswith("settled "):
            table = ", ".join(f"{hand} {value:.3g}" for hand, value in one["points"].items())
            out += ["", f"## The {name.removeprefix('settled ')} table that settles", ""]
            out += [f"Points inversely proportional to how often a hand comes when played for them: {table}."]
            rounds, change = len(one["course"]), 100 * one["last_change"]
            out += [f"({rounds} rounds; the last changed no entry by more than {change:.1f}%.)"]
        if name.startswith("growth "):
            out += ["", f"## Thinking time: {name.removeprefix('growth ')}", ""]
            look = f"`{searcher(one[-1]['simulations'])}` and less"
            out += [f"The first test deals, {look}. Gains are over the network alone on the same deals.", ""]
            out += ["| simulations a move | deals | mean | gain over the network | seconds a move |"]
            out += ["|---|---|---|---|---|"]
            out += [
                f"| {part['simulations']:,} | {part['deals']:,} | {part['mean']:.2f} +- {part['stderr']:.2f} | "
                f"{part['gain']:.2f} +- {part['gain_stderr']:.2f} | {part['seconds']:.5f} |"
                for part in one
            ]
    if any(name.startswith("growth ") for name in figures):
        out += ["", "![What looking ahead gains](poker-growth.png)"]
    return "\n".join(out) + "\n"


def scores_table(settings: list[dict[str, Any]]) -> list[str]:
    """Return a table of what each setting scored."""
    gains = any("gain" in one for one in settings)
    out = ["", "| placement | table | deals | mean | median | 5% to 95% | best | great tableaus | to 500 |"]
    out.append("|---|---|---|---|---|---|---|---|---|")
    if gains:
        out[1:] = [out[1] + " gain |", out[2] + "---|"]
    for one in settings:
        great, wins, spread = one["great"], one["tableaus_to_500"], one["percentiles"]
        low, high = great["interval"]
        row = (
            f"| {one['placement']} | {one['scoring']} | {one['deals']:,} | {one['score']['mean']:.2f} +- "
            f"{one['score']['stderr']:.2f} | {spread['50']:.0f} | {spread['5']:.0f} to {spread['95']:.0f} | "
            f"{one['best']:.0f} | {great['points']}+: {100 * great['share']:.2f}% ({100 * low:.2f} to "
            f"{100 * high:.2f}) | {wins['mean']:.3f} +- {wins['stderr']:.3f} |"
        )
        out.append(row + (f" {one['gain']['mean']:.2f} +- {one['gain']['stderr']:.2f} |" if gains else ""))
    return out


def picture_of(one: dict[str, Any]) -> str:
    """Return the name of the file of a setting's plot."""
    return f"poker-{one['placement']}-{one['scoring']}{'-search' if 'simulations' in one else ''}.png"


def draw(figures: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the plots; return their files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made = []
    settings = [value for name, value in figures.items() if name.startswith(("play ", "searched "))]
    for one in settings:
        picture, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
        names = list(one["lines"])
        places = np.arange(len(names))
        rows = [line["share_of_rows"] for line in one["lines"].values()]
        columns = [line["share_of_columns"] for line in one["lines"].values()]
        left.barh(places - 0.2, rows, 0.4, label="rows")
        left.barh(places + 0.2, columns, 0.4, label="columns")
        left.set(yticks=places, yticklabels=names, xscale="log", xlabel="share of lines", title="Hands")
        left.legend()
        edges = np.array(one["histogram"]["edges"])
        right.bar(edges[:-1], one["histogram"]["counts"], np.diff(edges), align="edge")
        right.axvline(one["score"]["mean"], color="black", linestyle="--")
        right.set(xlabel="score", ylabel="tableaus", title=f"Scores: mean {one['score']['mean']:.1f}")
        player = f"search, {one['simulations']} simulations" if "simulations" in one else "value"
        picture.suptitle(f"{one['placement']}, {one['scoring']} ({player})")
        path = folder / picture_of(one)
        picture.savefig(path, dpi=100)
        pyplot.close(picture)
        made.append(path)
    growth = {name.removeprefix("growth "): one for name, one in figures.items() if name.startswith("growth ")}
    if growth:
        picture, axes = pyplot.subplots(
            1, len(growth), figsize=(5.5 * len(growth), 4), layout="constrained", squeeze=False
        )
        for place, (name, parts) in zip(axes[0], growth.items(), strict=True):
            some = [part for part in parts if part["simulations"]]
            times = [1000 * part["seconds"] for part in some]
            errors = [Z_95 * part["gain_stderr"] for part in some]
            place.errorbar(times, [part["gain"] for part in some], errors, marker="o", capsize=3)
            for part, at in zip(some, times, strict=True):
                place.annotate(f"{part['simulations']:,}", (at, part["gain"]), (4, 4), textcoords="offset points")
            place.set(xlabel="milliseconds a move", ylabel="points above the network", title=name)
            place.set_xlim(0, 1.15 * max(times))
            place.axhline(0, color="black", linewidth=0.8)
        picture.suptitle("What looking ahead gains, by simulated games for a move (95% intervals)")
        made.append(folder / "poker-growth.png")
        picture.savefig(made[-1], dpi=100)
        pyplot.close(picture)
    return made


@contextmanager
def progress(quiet: bool) -> Iterator[Show]:
    """Show a progress bar on stderr while it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=1.0)
            bar.update(tasks[name], completed=share)

        yield show


def _play(placement: str, scoring: str, deals: int, file: Path, show: Show) -> dict[str, Any]:
    scores, hands = play_all(placement, scoring, deals, show)
    np.save(file, scores.astype(np.int32))
    return describe(placement, scoring, scores, hands)


def _search(
    placement: str, scoring: str, deals: int, simulations: int, base: NDArray[Any], file: Path, show: Show
) -> dict[str, Any]:
    scores, hands = play_searching(placement, scoring, deals, simulations, file.parent, show)
    np.save(file, scores.astype(np.int32))
    found = describe(placement, scoring, scores, hands)
    return {**found, "simulations": simulations, "gain": mean_of(scores - base[:deals])}


def _cost(scores: dict[str, NDArray[Any]]) -> dict[str, float]:
    return mean_of(scores["fixed"] - scores["touching"])


def poker_figures(
    folder: Path,
    deals: int,
    search_deals: int,
    seed: int,
    show: Show,
    *,
    searched: int = 0,
    simulations: int = SIMULATIONS,
) -> dict[str, Any]:
    """Make all figures in a folder, or what is missing of them; return them.

    Args:
        folder: where they go.
        deals: for each placement and table, played by the network.
        search_deals: test deals for the growth with thinking time; 0: that is left out.
        seed: of the trainings of the settled table.
        show: is told what is done, and which share of it.
        searched: how many of the deals the search plays too; 0: none.
        simulations: its budget for a move.
    """
    store = Store(folder, {"version": __version__, "deals": deals, "first_deal": FIRST_DEAL})
    scores = folder / "scores"
    scores.mkdir(exist_ok=True)
    costs: dict[str, dict[str, NDArray[Any]]] = {}
    for scoring in TABLES:
        for placement in PLACEMENTS:
            file = scores / f"{placement}-{scoring}.npy"
            player = played_by(placement, scoring)
            store.get(f"play {placement} {scoring}", partial(_play, placement, scoring, deals, file, show), player)
            costs.setdefault(scoring, {})[placement] = np.load(file)
        players = [played_by(placement, scoring) for placement in PLACEMENTS]
        store.get(f"touching costs {scoring}", partial(_cost, costs[scoring]), *players)
    for scoring in TABLES if searched else ():
        found = {}
        for placement in PLACEMENTS:
            file = scores / f"search-{placement}-{scoring}-{simulations}-{searched}.npy"
            make = partial(_search, placement, scoring, searched, simulations, costs[scoring][placement], file, show)
            player = played_by(placement, scoring, searcher(simulations))
            store.get(f"searched {placement} {scoring} {simulations} {searched}", make, player)
            found[placement] = np.load(file)
        players = [played_by(placement, scoring, searcher(simulations)) for placement in PLACEMENTS]
        store.get(f"search {simulations} {searched}, touching costs {scoring}", partial(_cost, found), *players)
    for placement in PLACEMENTS:
        store.get(f"settled {placement}", partial(settle, placement, seed, show), f"line {LinePolicy.version}")
    if search_deals:
        for scoring in ("american", "english"):
            players = [searcher(simulations) for simulations in BUDGETS]
            players = [played_by("fixed", scoring, player) for player in ("", *players)]
            grow = partial(search_growth, "fixed", scoring, search_deals, scores, show)
            store.get(f"growth fixed {scoring}", grow, *players)
    replace_file(folder / "poker.md", markdown(store.parts).encode())
    replace_file(folder / "poker.json", (json.dumps(store.parts, indent=1) + "\n").encode())
    draw(store.parts, folder)
    return store.parts


def command(
    subject: Annotated[
        str, typer.Argument(help="What of: poker; the others are tables and winnability (figures winnability --help).")
    ],
    out: Annotated[Path, typer.Option(help="Folder for JSON, Markdown and plots.")] = Path("docs/figures"),
    deals: Annotated[int, typer.Option(help="Deals for each placement and table.")] = DEALS,
    search_deals: Annotated[
        int, typer.Option(help="Test deals for the growth with thinking time; 0: leave out.")
    ] = 200,
    searched: Annotated[int, typer.Option(help="How many of the deals the search plays too; 0: none.")] = 0,
    simulations: Annotated[int, typer.Option(help="Simulated games of the search for a move.")] = SIMULATIONS,
    seed: Annotated[int, typer.Option(help="Seed of the trainings of the settled table.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Play many deals of Patience Poker by the value networks and write figures: hands, scores, the settled table.

    A command that was killed goes on where it was; what another network played is played again.

    Example: patience figures poker --out docs/figures
    """
    try:
        if subject != "poker":
            raise ValueError(f"there are no figures of {subject!r}: choose poker, tables or winnability")
        if deals < FEWEST or search_deals < 0 or search_deals == 1:
            raise ValueError(
                f"--deals {deals} --search-deals {search_deals} is not allowed: give at least {FEWEST}, and at least 2 "
                "(or 0)"
            )
        if (searched and not FEWEST <= searched <= deals) or simulations < 1:
            raise ValueError(
                f"--searched {searched} --simulations {simulations} is not allowed: give from {FEWEST} up to --deals "
                "(or 0), and at least 1"
            )
        with progress(quiet) as show:
            poker_figures(out, deals, search_deals, seed, show, searched=searched, simulations=simulations)
    except (OSError, ValueError) as error:
        fail(error)
    typer.echo(f"written to {out}: poker.md, poker.json and plots")
