"""`patience figures winnability`: which share of the deals can be won at all, beside what policies win.

The solver (`patience_env.agents.solver`) sees every card, the hidden ones and later shuffles too: the share of deals
that it wins bounds what any player can win, from above. The results are one JSON file, which is written again and
again as deals are solved; a command that was killed goes on from there, and so does one with more deals, more time or
more memory (deals that are won, or proven lost, stay so). Policies play the same deals. A deal that a policy won is
won, whatever the solver made of it; if that proved it lost, it would be an error of either: that is checked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from patience_env import __version__
from patience_env.agents.solver import SOLVER, deal_states, solve_states
from patience_env.deals import named_deals
from patience_env.game import get_game
from patience_env.training.console import fail
from patience_env.training.evaluate import evaluate, wilson
from patience_env.training.leaderboard import VARIANTS
from patience_env.training.models import replace_file
from patience_env.training.solve import told

GAMES = (
    "Paganini-v0",
    "RobinPost-v0",
    "Fourteenth-v0",
    "Sultan-v0",
    "Calculation-v0",
    "Nivernaise-v0",
    "Fortress-v0",
    "EmpressOfIndia-v0",
)
POLICIES = ("random", "greedy", "thumb")
LETTERS = {"won": "W", "lost": "L", "unknown": "u"}
OLDER_SOLVERS = (1,)  # whose answers hold
SAVE_SECONDS = 5.0
Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Case:
    """A game under some options."""

    game: str
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """What tables call it."""
        return " ".join([self.game, *(f"{key}={json.dumps(value)}" for key, value in self.options.items())])


def all_cases() -> dict[str, Case]:
    """Return the games that are won or lost, and their variants, by name."""
    cases = [Case(game, options) for game in GAMES for options in ({}, *VARIANTS.get(game, ()))]
    return {case.name: case for case in cases}


def chosen_cases(names: Sequence[str] | None) -> list[Case]:
    """Return the cases of these names; a game's id alone means all its variants.

    Raises:
        ValueError: no such case.
    """
    known = all_cases()
    if not names:
        return list(known.values())
    found = []
    for name in names:
        some = [case for case in known.values() if name in (case.name, case.game)]
        if not some:
            raise ValueError(f"there is no winnability of {name!r}: choose among {', '.join(known)}")
        found += [case for case in some if case not in found]
    return found


def _hold(folder: Path) -> int | None:
    """Hold a folder against other commands that would write the same file; return what lets it go when closed.

    Raises:
        ValueError: another one is at work there.
    """
    try:
        import fcntl
    except ImportError:  # where there is no flock, nobody is warned
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ValueError(f"another command writes figures into {str(folder)!r}: wait until it ends") from error
    return handle


class Store:
    """The results in one JSON file: for each case a letter, the positions and the CPU seconds of each deal."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "winnability.json"
        head = {"version": __version__, "solver": SOLVER, "deals": "test"}
        self.content: dict[str, Any] = {"head": head, "cases": {}}
        self.saved = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        self._held = _hold(folder)
        try:
            if self.path.is_file():
                self.content = {**self._read(), "head": head}
        except BaseException:
            self.close()
            raise

    def _read(self) -> dict[str, Any]:
        try:
            known: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{str(self.path)!r} is damaged ({error}): remove it to begin anew") from error
        before = known.get("head", {}).get("solver")
        if before in OLDER_SOLVERS:  # what it won or proved stays; what it left open is tried again
            for results in known["cases"].values():
                results["tried"] = {number: [0, 0] for number in results["tried"]}
        elif before != SOLVER:
            raise ValueError(
                f"{str(self.path)!r} was made by another solver ({known.get('head')}): choose another folder, or "
                "remove it to begin anew"
            )
        return known

    def close(self) -> None:
        """Let the folder go."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def case(self, case: Case) -> dict[str, Any]:
        """Return the results of a case, begun if need be."""
        fresh = {"status": "", "positions": [], "seconds": [], "moves": [], "tried": {}, "policies": {}}
        found: dict[str, Any] = self.content["cases"].setdefault(case.name, fresh)
        return found

    def save(self, now: bool = True) -> None:
        """Write all, unless it was done a moment ago and is not wanted `now`."""
        if now or time.monotonic() - self.saved > SAVE_SECONDS:
            replace_file(self.path, (json.dumps(self.content, allow_nan=False) + "\n").encode())
            self.saved = time.monotonic()


def solve_deals(case: Case, store: Store, first: int, seconds: float, memory: float, show: Show) -> None:
    """Solve the first test deals of a case: those not solved yet, and unknown ones that had less time or memory."""
    game = get_game(case.game)
    options = game.check_options(case.options)
    results = store.case(case)
    for number, deal in enumerate(named_deals("test", first).tolist()):
        show(case.name, number, first)
        known = number < len(results["status"])
        if known:
            before = results["tried"].get(str(number))
            if before is None or (before[0] >= seconds and before[1] >= memory):
                continue
        states = deal_states(game, options, deal)
        solution = solve_states(game, states, options, seconds=seconds, memory=memory)
        if solution.status == "won":
            told(game, options, deal, solution.moves)  # replayed, move by move, before it counts
        entry = {
            "status": LETTERS[solution.status],
            "positions": solution.positions,
            "seconds": round(solution.seconds, 4),
            "moves": len(solution.moves),
        }
        results["tried"].pop(str(number), None)
        if solution.status == "unknown":
            results["tried"][str(number)] = [seconds, memory]
        for key, value in entry.items():
            kept = list(results[key])
            kept[number : number + 1] = [value]
            results[key] = "".join(kept) if key == "status" else kept
        store.save(now=False)
    show(case.name, first, first)
    store.save()


def play_deals(case: Case, store: Store, first: int, policies: Sequence[str]) -> None:
    """Let policies play the same deals; note a letter a deal, `+` for a win.

    Raises:
        ValueError: a policy won a deal that the solver proved lost.
    """
    results = store.case(case)
    for name in policies:
        known = results["policies"].get(name)
        if known is None or len(known) < first:
            result = evaluate(name, case.game, named_deals("test", first), options=case.options)
            won = [] if result.won is None else result.won.tolist()
            results["policies"][name] = "".join("+" if each else "-" for each in won)
            store.save()
        for number, (status, mark) in enumerate(zip(results["status"], results["policies"][name], strict=False)):
            if status == LETTERS["lost"] and mark == "+":
                raise ValueError(f"{name} won test deal {number} of {case.name}, which the solver proved lost")


def known_status(results: Mapping[str, Any]) -> str:
    """Return a letter a deal: what the solver found, or that a policy won where it found nothing."""
    won = {i for marks in results["policies"].values() for i, mark in enumerate(marks) if mark == "+"}
    return "".join(
        LETTERS["won"] if letter == LETTERS["unknown"] and i in won else letter
        for i, letter in enumerate(results["status"])
    )


def summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shares of a case with their Wilson intervals."""
    status = results["status"]
    count = len(status)
    shares: dict[str, Any] = {"deals": count, "resolved": 1 - status.count(LETTERS["unknown"]) / count}
    known = known_status(results)
    for name, letter in LETTERS.items():
        hits = known.count(letter)
        shares[name] = {"count": hits, "share": hits / count, "interval": wilson(hits, count)}
    won, unknown = shares["won"]["count"], shares["unknown"]["count"]
    shares["winnable"] = [wilson(won, count)[0], wilson(won + unknown, count)[1]]
    solved = sorted(s for s, letter in zip(results["seconds"], status, strict=True) if letter != LETTERS["unknown"])
    shares["seconds"] = {
        "median": solved[len(solved) // 2] if solved else None,
        "95%": solved[int(0.95 * len(solved))] if solved else None,
        "all": sum(results["seconds"]),
    }
    moves = sorted(n for n, letter in zip(results["moves"], status, strict=True) if letter == LETTERS["won"])
    shares["median moves of a win"] = moves[len(moves) // 2] if moves else None
    limits = list(results["tried"].values())
    shares["limits of unknown"] = [min(t[0] for t in limits), min(t[1] for t in limits)] if limits else None
    shares["policies"] = {}
    for name, marks in results["policies"].items():
        wins = marks[:count].count("+")
        games = len(marks[:count])
        shares["policies"][name] = {
            "wins": wins,
            "games": games,
            "share": wins / games,
            "interval": wilson(wins, games),
        }
    return shares


def _percent(part: Mapping[str, Any]) -> str:
    low, high = part["interval"]
    return f"{part['share']:.1%} [{low:.1%}, {high:.1%}]"


def markdown(content: Mapping[str, Any]) -> str:
    """Return the results as Markdown."""
    cases = {name: summary(results) for name, results in content["cases"].items() if results["status"]}
    names = list(dict.fromkeys(policy for part in cases.values() for policy in part["policies"]))
    head = content["head"]
    out = [
        "# Which deals can be won",
        "",
        f"Made by `patience figures winnability` (version {head['version']}, solver {head['solver']}) on the first "
        "test deals of each game. The solver sees every card, hidden ones and later shuffles included (in Calculation "
        "what `open_stock` shows). *Won* was replayed move by move or was won by a policy, *lost* is proven by "
        "exhaustion, *unknown* is what the limits left open. Intervals are Wilson's, 95%; *winnable* runs from the low "
        "end of *won* to the high end of *won* and *unknown* together. The policies played the same deals without "
        "seeing hidden cards.",
        "",
        f"| game | deals | won | proven lost | unknown | winnable | {' | '.join(names)} |",
        f"|---|---|---|---|---|---|{'---|' * len(names)}",
    ]
    for name, part in cases.items():
        low, high = part["winnable"]
        cells = [f"`{name}`", f"{part['deals']:,}"]
        cells += [_percent(part[key]) for key in LETTERS]
        cells += [f"{low:.1%} to {high:.1%}"]
        cells += [_percent(part["policies"][policy]) if policy in part["policies"] else "" for policy in names]
        out.append(f"| {' | '.join(cells)} |")
    out += [
        "",
        "| game | resolved by the solver | CPU seconds a resolved deal: median, 95% | all deals together | "
        "moves of a win, median | limits of the unknown |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in cases.items():
        times, limits = part["seconds"], part["limits of unknown"]
        spread = "" if times["median"] is None else f"{times['median']:.3f}, {times['95%']:.3f}"
        bound = "" if limits is None else f"{limits[0]:g} s, {limits[1]:g} GiB"
        moves = "" if part["median moves of a win"] is None else str(part["median moves of a win"])
        out.append(f"| `{name}` | {part['resolved']:.1%} | {spread} | {times['all']:.0f} s | {moves} | {bound} |")
    out += ["", "![Which deals can be won](winnability.png)"]
    return "\n".join(out) + "\n"


def draw(content: Mapping[str, Any], path: Path) -> None:
    """Draw the shares of all cases, with a mark for each policy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = {name: summary(results) for name, results in content["cases"].items() if results["status"]}
    picture, axes = pyplot.subplots(figsize=(10, 1.2 + 0.5 * len(cases)), layout="constrained")
    labels = [f"{name} ({part['deals']:,})" for name, part in cases.items()]
    left = [0.0] * len(cases)
    for key, colour in (("won", "#4c956c"), ("unknown", "#d9d9d9"), ("lost", "#bc4749")):
        shares = [part[key]["share"] for part in cases.values()]
        axes.barh(labels, shares, left=left, color=colour, label="proven lost" if key == "lost" else key)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    names = list(dict.fromkeys(policy for part in cases.values() for policy in part["policies"]))
    for name, mark in zip(names, "ox^sDv<>*P" * len(names), strict=False):
        points = [
            (part["policies"][name]["share"], i) for i, part in enumerate(cases.values()) if name in part["policies"]
        ]
        axes.plot(*zip(*points, strict=True), mark, color="black", markersize=5, label=name, clip_on=False)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of the deals (number of deals in brackets)")
    picture.legend(loc="outside lower center", ncols=6)
    picture.savefig(path, dpi=100)
    pyplot.close(picture)


def write_all(store: Store, folder: Path) -> None:
    """Write JSON with the summaries, Markdown and the plot."""
    cases = store.content["cases"]
    store.content["summary"] = {name: summary(results) for name, results in cases.items() if results["status"]}
    store.save()
    replace_file(folder / "winnability.md", markdown(store.content).encode())
    draw(store.content, folder / "winnability.png")


def command(
    out: Annotated[Path, typer.Option(help="Folder for JSON, Markdown and the plot.")] = Path("docs/figures"),
    first: Annotated[int, typer.Option(metavar="N", help="Solve the first N test deals of each game.")] = 1000,
    game: Annotated[
        list[str] | None,
        typer.Option(help="Only this game (with all variants), or this case. May be repeated.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Limit of CPU seconds a deal.")] = 60.0,
    memory: Annotated[float, typer.Option(help="Limit of memory a deal, GiB.")] = 4.0,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy that plays the same deals. May be repeated.", show_default="random, greedy, thumb"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Solve deals of every game that is won or lost, and write which share can be won beside what policies win.

    A command that was killed, or is given more deals, seconds or memory, goes on where it was.

    Example: patience figures winnability --first 100 --seconds 10 --game Fortress-v0
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    try:
        cases = chosen_cases(game)
        named_deals("test", first)
        if not seconds > 0 or not memory > 0:
            raise ValueError(f"--seconds {seconds} --memory {memory} is not allowed: give more than 0")
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        with closing(Store(out)) as store, bar:
            tasks: dict[str, Any] = {}

            def show(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = bar.add_task(name, total=total)
                bar.update(tasks[name], completed=done)

            for case in cases:
                solve_deals(case, store, first, seconds, memory, show)
                play_deals(case, store, first, policy or POLICIES)
                write_all(store, out)
    except (TypeError, OSError, ValueError) as error:
        fail(error)
    typer.echo(f"written to {out}: winnability.md, winnability.json and winnability.png")
