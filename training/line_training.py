"""Train the line table of Patience Poker by self-play: `patience train-value`.

A table is learned for one scoring table and one placement, on one core, in seconds to minutes; see
`patience_env.agents.line_table` for what is learned. Deals are drawn from 2**32 up, so no standard deal is ever seen.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.line_table import (
    ENTRIES,
    LINES,
    MODEL,
    LinePolicy,
    new_boards,
    points_of,
    save_table,
    train_games,
)
from patience_env.deals import named_deals
from patience_env.games.patience_poker import CARDS, GAME
from patience_env.games.poker_hands import SCORED, TABLES
from patience_env.training.evaluate import Evaluation, evaluate

PLACEMENTS = ("touching", "fixed")
SECONDS = 60.0
# The chance of a random move falls in a straight line to none at this share of the training, and stays there.
CHANCE, LAST_CHANCE = 0.1, 0.8
# The least learning rate falls geometrically, so that what badly played games taught is forgotten.
FIRST_RATE, LAST_RATE = 0.02, 0.0003
# Games between two looks at the clock, in a training by time; and parts of a training by games.
PART, PARTS = 500, 200


@dataclass(frozen=True, eq=False)
class LineTable:
    """A trained table.

    Attributes:
        values, visits: worth and number of updates of each entry, float32 and int32, shape (ENTRIES,).
        points: of the ten hands.
        placement: "touching" or "fixed".
        made: how it was trained.
    """

    values: NDArray[np.float32]
    visits: NDArray[np.int32]
    points: NDArray[np.float64]
    placement: str
    made: dict[str, Any]

    def save(self, folder: str | os.PathLike[str], **facts: Any) -> None:
        """Save the table as the model in a folder, with further facts."""
        known = {"placement": self.placement, "points": self.points.tolist(), "version": __version__}
        save_table(folder, self.values, self.visits, {**known, "training": self.made, **facts})


def train_lines(
    scoring: str | Mapping[str, float] = "american",
    placement: str = "touching",
    *,
    games: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    progress: Callable[[float, int, float], None] | None = None,
) -> LineTable:
    """Return a table trained by self-play. The same seed and number of games give the same table.

    Args:
        scoring: the name of a table, or a mapping of the nine hands to numbers.
        placement: "touching" or "fixed".
        games: train for so many games.
        seconds: train for so long, compiling not counted (60 when neither is given).
        seed: of the deals and the random moves.
        progress: called now and then with the share done, the games so far and their latest mean score.

    Raises:
        TypeError, ValueError: an argument that is not allowed.
    """
    points = points_of(scoring)
    _check(placement, games, seconds, seed)
    if games is None and seconds is None:
        seconds = SECONDS
    values, visits = np.zeros(ENTRIES, np.float32), np.zeros(ENTRIES, np.int32)
    stream, boards = new_boards(1), new_boards(1)
    stream["rng"] = np.random.default_rng(seed).integers(0, 2**64, dtype=np.uint64)
    scratch = (stream, boards, np.zeros((CARDS + 1, LINES), np.int64), values, visits, points)
    touching = int(placement == "touching")
    train_games(0, *scratch, touching, 0.0, FIRST_RATE)  # compiles
    done = 0
    started = time.monotonic()
    part = PART if games is None else math.ceil(games / PARTS)
    while True:
        share = (time.monotonic() - started) / seconds if seconds is not None else done / (games or 1)
        if share >= 1:
            break
        now = part if games is None else min(part, games - done)
        chance = CHANCE * max(0.0, 1 - share / LAST_CHANCE)
        score = train_games(now, *scratch, touching, chance, FIRST_RATE * (LAST_RATE / FIRST_RATE) ** share)
        done += now
        if progress is not None:
            progress(share, done, score / now)
    made = {
        "games": done,
        "seconds": round(time.monotonic() - started, 3),
        "seed": seed,
        "chance": CHANCE,
        "last_chance": LAST_CHANCE,
        "first_rate": FIRST_RATE,
        "last_rate": LAST_RATE,
    }
    return LineTable(values, visits, points, placement, made)


def _check(placement: Any, games: Any, seconds: Any, seed: Any) -> None:
    if placement not in PLACEMENTS:
        raise ValueError(f"placement={placement!r} is not allowed: choose one of {', '.join(PLACEMENTS)}")
    if games is not None and seconds is not None:
        raise ValueError(f"games={games!r} and seconds={seconds!r} are both given: give one of them")
    if games is not None and (isinstance(games, bool) or not isinstance(games, int) or not 1 <= games <= 10**10):
        raise ValueError(f"games={games!r} is not allowed: give a whole number from 1 to 10,000,000,000")
    if seconds is not None and not 0 < seconds <= 1e6:
        raise ValueError(f"seconds={seconds!r} is not allowed: give a number above 0, up to 1,000,000")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed!r} is not allowed: give a whole number from 0 to 2**63 - 1")


def read_scoring(text: str) -> str | dict[str, float]:
    """Return a scoring written as text: the name of a table, or nine numbers from pair to royal.

    Raises:
        ValueError: neither.
    """
    if text in TABLES:
        return text
    try:
        numbers = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if len(numbers) != len(SCORED):
        raise ValueError(
            f"scoring {text!r} is neither one of {', '.join(TABLES)} nor nine numbers, those of {', '.join(SCORED)}, "
            "such as 2,5,10,15,20,25,50,75,100"
        )
    return dict(zip(SCORED, numbers, strict=True))


def check_folder(folder: Path) -> None:
    """Raise ValueError where a model cannot go into a folder without something being lost."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder: give one for the model")
    if (folder / MODEL).exists():
        raise ValueError(f"{str(folder)!r} already holds a line model: choose another folder, or remove it first")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{str(folder)!r} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{str(folder)!r} cannot be written into")


def train_value(
    out: str | os.PathLike[str],
    scoring: str | dict[str, float] = "american",
    placement: str = "touching",
    *,
    games: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    progress: Callable[[float, int, float], None] | None = None,
) -> tuple[LineTable, Evaluation]:
    """Train a table (see `train_lines`), save it in `out` and measure it on the validation deals.

    Raises:
        TypeError, ValueError: an argument that is not allowed, or `out` holds something. Nothing is changed then.
    """
    points_of(scoring)
    _check(placement, games, seconds, seed)
    folder = Path(out)
    check_folder(folder)
    table = train_lines(scoring, placement, games=games, seconds=seconds, seed=seed, progress=progress)
    table.save(folder)
    options = {"placement": placement, "scoring": scoring}
    result = evaluate(LinePolicy(str(folder)), GAME.id, named_deals("validation"), options=options, seed=seed)
    measured = {"deals": len(result.deals), "mean": result.mean, "stderr": result.stderr}
    table.save(folder, validation=measured)
    return table, result


def command(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="The game: PatiencePoker-v0.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.", show_default=False)],
    scoring: Annotated[
        str,
        typer.Option(
            help=f"The table to play for: {', '.join(TABLES)}, or nine numbers such as 2,5,10,15,20,25,50,75,100 "
            "(from pair to royal)."
        ),
    ] = "american",
    placement: Annotated[str, typer.Option(help="touching or fixed.")] = "touching",
    seconds: Annotated[
        float | None, typer.Option(help=f"Train for so long; {SECONDS:.0f} without --games.", show_default=False)
    ] = None,
    games: Annotated[int | None, typer.Option(help="Train for so many games.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the deals and of the random moves.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a table of partial lines for Patience Poker, on one core.

    The model is saved in the folder and measured on the validation deals. It plays as the policy line:path=FOLDER.

    Example: patience train-value PatiencePoker-v0 --scoring english --placement fixed --seconds 60 --out english
    """
    try:
        if env_id != GAME.id:
            raise ValueError(f"train-value trains line tables of {GAME.id}, not of {env_id!r}")
        with _Bar(quiet) as show:
            table, result = train_value(
                out, read_scoring(scoring), placement, games=games, seconds=seconds, seed=seed, progress=show
            )
    except (TypeError, ValueError) as error:
        typer.echo(f"patience: error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped; nothing was saved", err=True)
        raise typer.Exit(130) from None
    made = table.made
    speed = made["games"] / max(made["seconds"], 1e-9)
    typer.echo(
        f"{made['games']:,} games in {made['seconds']:.1f} s ({speed:,.0f} a second); "
        f"{np.count_nonzero(table.visits):,} entries\n"
        f"validation: {result.mean:.2f} +- {result.stderr:.2f} ({len(result.deals):,} deals)\n"
        f"model: {out}"
    )


class _Bar:
    """A progress bar on stderr while it is a terminal."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.fields[games]:,} games, mean {task.fields[mean]:.1f}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=1.0, games=0, mean=0.0)

    def __enter__(self) -> Callable[[float, int, float], None]:
        self._progress.start()
        return lambda share, games, mean: self._progress.update(self._task, completed=share, games=games, mean=mean)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
