"""`patience leaderboard`: every game's policies on the standard deals, as JSON, a Markdown table and a plot.

What has been played is kept in a cache folder, share by share, under names that tell all it depends on: the policy with
its version, options, sources and model files, the game with its options and sources, the package's version, the deals
and the seed. A command that was killed therefore goes on where it was, and only what has changed is played again.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from zipfile import ZipFile

import numpy as np
import typer
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.policy import GENERAL, Policy, make_policy, parse_policy, policy_names
from patience_env.deals import named_deals
from patience_env.game import game_ids, get_game
from patience_env.training.console import FAILED, fail
from patience_env.training.engine_options import AddressOption, EngineOption, WorkersOption
from patience_env.training.engines import Engine, LocalEngine, WorkerError, check_engine, open_engine
from patience_env.training.evaluate import (
    Evaluation,
    IllegalChoiceError,
    check_writable,
    gather,
    paired,
    shares_of,
    write_atomically,
)
from patience_env.training.models import replace_file
from patience_env.training.shares import PROTOCOL, Played, Share

REFERENCE = "thumb"
# Options besides the defaults whose levels are worth knowing.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "PatiencePoker-v0": ({"placement": "fixed"}, {"scoring": "english"}, {"placement": "fixed", "scoring": "english"}),
    "Sultan-v0": ({"redeals": 1},),
    "Fourteenth-v0": ({"exchanges": 1, "close_gaps": True}, {"exchanges": 0, "close_gaps": True}),
}
# Policies that think long play fewer deals unless told otherwise, and those of every game think less.
SLOW = {"search": 100, "flat": 20, "uct": 20, "plan": 20}
BRIEF = {"flat": "flat:simulations=100", "uct": "uct:simulations=100"}
# These need a model's path.
WITH_PATH = ("sb3", "model")
# Win rates below this are not drawn: the mean returns tell more.
SELDOM = 0.02
_DEALS = re.compile(r"(.+)@(\d+)")


@dataclass(frozen=True, eq=False)
class Case:
    """One line of the leaderboard: what plays what, and the shares that it is played in."""

    policy: Policy
    text: str
    env: str
    options: dict[str, Any]
    deals: NDArray[np.uint64]
    seed: int
    shares: tuple[Share, ...]


# -- what is played ----------------------------------------------------------------------------------------------


def read_game(text: str) -> tuple[str, dict[str, Any]]:
    """Return a game and its checked options, written as `ENV` or `ENV:key=value,...`.

    Raises:
        TypeError, ValueError: no such game or option.
    """
    env, given = parse_policy(text)  # the same form
    return env, get_game(env).check_options(given)


def read_policy(text: str) -> tuple[str, int | None]:
    """Return a policy as text and how many deals it plays (None: all), written as `POLICY` or `POLICY@deals`.

    Raises:
        ValueError: the number of deals is 0.
    """
    found = _DEALS.fullmatch(text)
    if not found or os.path.exists(text):
        return text, SLOW.get(parse_policy(text)[0])
    if int(found[2]) < 1:
        raise ValueError(f"policy {text!r} plays no deal: give at least 1 after the @")
    return found[1], int(found[2])


def standard_policies(env: str) -> list[str]:
    """Return the policies of a game that need no path, each under one name."""
    places: dict[str, str] = {}
    for name, place in policy_names(env).items():
        # One policy may have a name of its own and be the game's thumb too, under which games compare.
        if name not in WITH_PATH and (place not in places or name == REFERENCE):
            places[place] = name
    known = list(places.values())
    return [BRIEF.get(name, name) for name in dict.fromkeys([*GENERAL, REFERENCE, *known]) if name in known]


def plan(
    games: Sequence[tuple[str, dict[str, Any]]],
    policies: Sequence[str],
    only: bool,
    deals: str,
    first: int | None,
    seed: int,
) -> list[Case]:
    """Return all that is played.

    Policies that do not play a game (under these options) are left out there.

    Raises:
        ValueError: there are no such deals, or a policy of `policies` cannot be made or plays none of the games.
    """
    numbers = named_deals(deals, first)
    cases: list[Case] = []
    refusals: dict[str, list[str]] = {text: [] for text in policies}
    for env, options in games:
        own = [] if only else standard_policies(env)
        for text in dict.fromkeys([*own, *policies]):
            written, count = read_policy(text)
            name, given = parse_policy(written)
            try:
                policy = make_policy(name, env, **given)
                policy.check(get_game(env), options)
            except ValueError as error:
                refusals.get(text, []).append(str(error))
                continue
            some = numbers[: min(count or len(numbers), len(numbers))]
            shares = tuple(shares_of(written, policy, env, options, some, seed))
            cases.append(Case(policy, written, env, options, some, seed, shares))
    for said in refusals.values():
        if len(said) == len(games):
            raise ValueError(said[0])
    return cases


# -- the cache ---------------------------------------------------------------------------------------------------


def cache_home() -> Path:
    """Return the folder that the leaderboard keeps what it has played in, unless told otherwise."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path(os.path.expanduser("~")) / ".cache") / "patience-env" / "leaderboard"


class Cache:
    """Played shares on disk, one file each, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, share: Share) -> Path:
        facts = {
            "protocol": PROTOCOL,
            "version": __version__,
            "fingerprint": share.fingerprint,
            "policy": share.policy,
            "env": share.env,
            "options": share.options,
            "seed": share.seed,
        }
        text = json.dumps(facts, sort_keys=True, default=repr)
        name = re.sub(r"[^\w.=-]+", "_", f"{share.env}-{share.policy}")[:60]
        folder = self._folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return folder / f"{share.number}-{share.deals[0]}-{len(share.deals)}.npz"

    def read(self, share: Share) -> Played | None:
        """Return how a share was played, or None where that is not known or cannot be read."""
        file = self._file(share)
        most = MOST_OF_A_SHARE + 64 * len(share.deals)
        try:
            with open(file, "rb") as opened:
                content = opened.read(most + 1)
            with ZipFile(io.BytesIO(content)) as parts:
                if len(content) > most or sum(part.file_size for part in parts.infolist()) > most:
                    return None
            with np.load(io.BytesIO(content), allow_pickle=False) as held:
                deals, seconds = held["deals"], float(held["seconds"])
                returns, lengths, won = (held[name] for name in _ARRAYS)
        except Exception:
            # A damaged archive raises nearly anything: zlib's own error, or one for a compression that there is not.
            return None
        kinds = [(array.shape, array.dtype.kind) for array in (returns, lengths, won)]
        if not np.array_equal(deals, share.deals) or kinds != [(deals.shape, kind) for kind in "fib"]:
            return None
        played = Played(returns, lengths, won, seconds)
        # An archive's sums do not cover all of it: what would be written otherwise is not what was written.
        return played if self._content(share, played) == content else None

    def write(self, share: Share, played: Played) -> None:
        """Keep how a share was played."""
        file = self._file(share)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, self._content(share, played))

    def _content(self, share: Share, played: Played) -> bytes:
        content = io.BytesIO()
        arrays: dict[str, Any] = {name: getattr(played, name) for name in _ARRAYS}
        np.savez_compressed(content, deals=share.deals, seconds=played.seconds, **arrays)
        return content.getvalue()


_ARRAYS = ("returns", "lengths", "won")
MOST_OF_A_SHARE = 10_000  # bytes beside its deals': heads of arrays
Show = Callable[[str, int, int], None]


def play(
    cases: Sequence[Case], cache: Cache, opened: Callable[[], AbstractContextManager[Engine]], show: Show
) -> list[Evaluation]:
    """Return how each case was played; what the cache does not hold is played now, by the engine that `opened` gives.

    `show` is told what was played last, and how many deals are done of how many.
    """
    parts: dict[int, Played] = {}
    missing: list[Share] = []
    total = sum(len(case.deals) for case in cases)
    done = 0
    for share in (share for case in cases for share in case.shares):
        held = cache.read(share)
        if held is None:
            missing.append(share)
        else:
            parts[id(share)] = held
            done += len(share.deals)
    show("", done, total)
    with opened() if missing else nullcontext(LocalEngine()) as engine:
        for share, played in engine.play(missing):
            cache.write(share, played)
            parts[id(share)] = played
            done += len(share.deals)
            show(f"{share.env} {share.policy}", done, total)
    return [
        gather(
            case.text,
            case.policy,
            case.env,
            case.options,
            case.deals,
            case.seed,
            [parts[id(share)] for share in case.shares],
        )
        for case in cases
    ]


# -- what is written ---------------------------------------------------------------------------------------------


def head_of(result: Evaluation, count: int) -> Evaluation:
    """Return the evaluation of the first `count` deals."""
    won = None if result.won is None else result.won[:count]
    return replace(
        result, deals=result.deals[:count], returns=result.returns[:count], lengths=result.lengths[:count], won=won
    )


def facts_of(result: Evaluation, reference: Evaluation | None) -> dict[str, Any]:
    """Return a line of the leaderboard as JSON holds it, with its difference to the reference on the same deals."""
    low, high = result.win_interval or (None, None)
    tableaus = result.tableaus
    facts: dict[str, Any] = {
        "env": result.env,
        "options": result.options,
        "policy": result.policy,
        "policy_version": result.policy_version,
        "deals": len(result.deals),
        "mean": result.mean,
        "stderr": _or_null(result.stderr),
        "win_rate": result.win_rate,
        "wilson_low": low,
        "wilson_high": high,
        "tableaus_to_500": tableaus and {"mean": tableaus.mean, "stderr": _or_null(tableaus.stderr)},
        "moves": result.moves,
        "paired": None,
        "seconds_per_move": result.seconds_per_move,
    }
    if reference is not None and reference is not result:
        count = min(len(result.deals), len(reference.deals))
        difference = paired(head_of(result, count), head_of(reference, count))
        facts["paired"] = {
            "minus": reference.policy,
            "deals": count,
            "difference": difference.difference,
            "low": _or_null(difference.low),
            "high": _or_null(difference.high),
        }
    return facts


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value


def report(results: Sequence[Evaluation], deals: str, reference: str) -> dict[str, Any]:
    """Return the leaderboard as JSON holds it."""
    references = {game_text(one.env, one.options): one for one in results if one.policy == reference}
    return {
        "version": __version__,
        "deals": deals,
        "first_deal": int(results[0].deals[0]),
        "seed": results[0].seed,
        "reference": reference,
        "cores": os.cpu_count() or 1,
        "entries": [facts_of(one, references.get(game_text(one.env, one.options))) for one in results],
    }


def game_text(env: str, options: Mapping[str, Any]) -> str:
    """Return a game with those of its options that are not the defaults."""
    defaults = {option.name: option.default for option in get_game(env).options}
    named = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in options.items()
        if value != defaults[name]
    ]
    return f"`{env}` {', '.join(named)}".strip()


def level(entry: Mapping[str, Any]) -> str:
    """Return the win rate with its interval and the mean return, or the mean score with its standard error."""
    if entry["win_rate"] is None:
        error = "" if entry["stderr"] is None else f" +- {entry['stderr']:.2f}"
        return f"{entry['mean']:.2f}{error}"
    return f"{entry['win_rate']:.1%} [{entry['wilson_low']:.1%}, {entry['wilson_high']:.1%}], {entry['mean']:.3f}"


def cell(entry: Mapping[str, Any], most: int) -> str:
    """Return how a policy fared, and on how many deals if not on the `most` that any played."""
    return level(entry) if entry["deals"] == most else f"{level(entry)} ({entry['deals']:,})"


def command_text(
    game: Sequence[str] | None,
    policy: Sequence[str] | None,
    only: bool,
    deals: str,
    first: int | None,
    seed: int,
    reference: str,
) -> str:
    """Return the command that makes a leaderboard, without what changes nothing in it (such as the engine)."""
    words = ["patience", "leaderboard"]
    for name, given in (("--game", game), ("--policy", policy)):
        for text in given or ():
            words += [name, text]
    words += ["--only"] if only else []
    for name, value, default in (
        ("--deals", deals, "test"),
        ("--first", first, None),
        ("--seed", seed, 0),
        ("--reference", reference, REFERENCE),
    ):
        words += [name, str(value)] if value != default else []
    return shlex.join(words)


def markdown(board: Mapping[str, Any]) -> str:
    """Return the leaderboard as a Markdown page: the plot, and a table with a line a game and a column a policy."""
    entries = board["entries"]
    policies = list(dict.fromkeys(entry["policy"] for entry in entries))
    most = max(entry["deals"] for entry in entries)
    games: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        games.setdefault(game_text(entry["env"], entry["options"]), []).append(entry)
    lines = [
        "# Leaderboard",
        "",
        f"Made by `{board['command']}` (version {board['version']}): {most:,} {board['deals']} deals from "
        f"{board['first_deal']} on, or as many as the cell says in brackets. Win rate with its 95% Wilson interval, "
        "then the mean share of cards played; Patience Poker: mean score +- standard error. Best mean in bold.",
        "",
        f"| game | {' | '.join(policies)} |",
        f"|{'---|' * (1 + len(policies))}",
    ]
    for text, found in games.items():
        best = max(entry["mean"] for entry in found)
        cells = {entry["policy"]: cell(entry, most) for entry in found}
        bold = {entry["policy"] for entry in found if entry["mean"] == best}
        shown = [f"**{cells[name]}**" if name in bold else cells.get(name, "") for name in policies]
        lines.append(f"| {' | '.join([text, *shown])} |")
    lines += ["", "![The leaderboard as bars with their 95% intervals](leaderboard.png)"]
    return "\n".join(lines) + "\n"


def check_plot() -> None:
    """Raise ValueError, naming the pip command, unless matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError(f"the plot needs matplotlib, pip install 'patience-env[train]' ({error})") from error


def draw(board: Mapping[str, Any]) -> bytes:
    """Return a plot of the leaderboard as PNG: for each game a bar for each policy, with its 95% interval.

    Bars are win rates; mean returns in games that have none, and where the best policy wins fewer than `SELDOM`.

    Raises:
        ValueError: matplotlib is not installed.
    """
    check_plot()
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    games: dict[str, list[Mapping[str, Any]]] = {}
    for entry in board["entries"]:
        games.setdefault(game_text(entry["env"], entry["options"]).replace("`", ""), []).append(entry)
    columns = 3 if len(games) > 2 else len(games)
    rows = -(-len(games) // columns)
    height = sum(0.28 * max(map(len, games.values())) + 0.9 for _ in range(rows))
    picture = Figure(figsize=(4.6 * columns, height), layout="constrained")
    for number, (title, found) in enumerate(games.items()):
        axes = picture.add_subplot(rows, columns, number + 1)
        rates = [entry["win_rate"] for entry in found if entry["win_rate"] is not None]
        scored = max(rates, default=0.0) < SELDOM
        values = [entry["mean"] if scored else entry["win_rate"] for entry in found]
        lows = [
            1.96 * (entry["stderr"] or 0.0) if scored else entry["win_rate"] - entry["wilson_low"] for entry in found
        ]
        highs = [
            1.96 * (entry["stderr"] or 0.0) if scored else entry["wilson_high"] - entry["win_rate"] for entry in found
        ]
        places = np.arange(len(found))
        axes.barh(places, values, xerr=np.maximum([lows, highs], 0.0), color="#6f8fb3", ecolor="black", capsize=2)
        axes.set(yticks=places, yticklabels=[entry["policy"][:30] for entry in found])
        axes.set_xlabel("win rate" if not scored else "mean return (few are won)" if rates else "mean score")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_title(title, fontsize=9)
        axes.invert_yaxis()
    content = io.BytesIO()
    picture.savefig(content, format="png", dpi=80, metadata={"Software": None})
    return content.getvalue()


# -- the command -------------------------------------------------------------------------------------------------


@contextmanager
def _progress(quiet: bool) -> Iterator[Show]:
    """Show a progress bar on stderr while it is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(text, *columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("leaderboard", total=None)
        yield lambda what, done, total: bar.update(task, description=what or "leaderboard", completed=done, total=total)


def command(
    game: Annotated[
        list[str] | None,
        typer.Option(
            help="A game, ENV or ENV:KEY=VALUE, such as Sultan-v0:redeals=1; may be repeated. All games, under several "
            "options, if left out.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A policy besides those of each game, as for evaluate; @N after it: on the first N deals alone, as in "
            "search:simulations=200@50; may be repeated.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Only the policies given by --policy.")] = False,
    deals: Annotated[str, typer.Option(help="The standard deals to play: test, validation or smoke.")] = "test",
    first: Annotated[
        int | None, typer.Option(metavar="N", help="Play only the first N of the deals.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the policies' own random choices.")] = 0,
    reference: Annotated[str, typer.Option(help="The policy that the others are compared with.")] = REFERENCE,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    address: AddressOption = None,
    out: Annotated[Path, typer.Option(help="Folder for leaderboard.json, leaderboard.md and leaderboard.png.")] = Path(
        "docs/figures"
    ),
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of what has been played; the user's cache folder if left out.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Let every policy of every game play the standard deals; write JSON, a Markdown table and a plot.

    What has been played is kept: after a kill the same command goes on where it was, and only what has changed since
    (a policy, a game, its options, the deals, the package's version) is played again.

    Example: patience leaderboard --game Sultan-v0 --game PatiencePoker-v0:placement=fixed --policy search@50
    """
    try:
        check_engine(engine, workers, address)
        check_plot()  # before hours of play, not after
        games = [read_game(text) for text in dict.fromkeys(game or ())] or [
            (name, get_game(name).check_options(options))
            for name in game_ids()
            for options in ({}, *VARIANTS.get(name, ()))
        ]
        if only and not policy:
            raise ValueError("--only leaves no policy: give some by --policy")
        cases = plan(games, policy or (), only, deals, first, seed)
        if reference != REFERENCE and reference not in (case.text for case in cases):
            raise ValueError(f"the reference {reference!r} plays none of the games: give it by --policy too")
        made_by = command_text(game, policy, only, deals, first, seed, reference)
        files = [out / f"leaderboard.{ending}" for ending in ("json", "md", "png")]
        kept = cache or cache_home()
        for folder in (out, kept):
            _make_folder(folder)
        for file in files:
            check_writable(file)
        store = Cache(kept)
        with _progress(quiet) as show:
            results = play(cases, store, partial(open_engine, engine, workers, address), show)
        board = {"command": made_by, **report(results, deals, reference)}
        drawn = draw(board)
        write_atomically(files[0], json.dumps(board, indent=1, allow_nan=False) + "\n")
        write_atomically(files[1], markdown(board))
        replace_file(files[2], drawn)
    except (TypeError, ValueError) as error:
        fail(error)
    except (IllegalChoiceError, WorkerError, OSError) as error:
        fail(error, FAILED)
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{len(results)} results; written to {out}: {', '.join(file.name for file in files)}")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{str(folder)!r} cannot be a folder: {error.strerror or error}") from error
