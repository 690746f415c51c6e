"""Train the line table of Patience Poker by self-play: `patience train-value --kind line`.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.line_table import (
    ENTRIES,
    LINES,
    new_boards,
    points_of,
    save_table,
    train_games,
)
from patience_env.games.patience_poker import CARDS
from patience_env.games.poker_hands import SCORED, TABLES
from patience_env.training.models import read_pair, write_pair

PLACEMENTS = ("touching", "fixed")
SECONDS = 60.0
# The chance of a random move falls in a straight line to none at this share of the training, and stays there.
CHANCE, LAST_CHANCE = 0.1, 0.8
# The least learning rate falls geometrically, so that what badly played games taught is forgotten.
FIRST_RATE, LAST_RATE = 0.02, 0.0003
# Games between two looks at the clock, in a training by time; and parts of a training by games.
PART, PARTS = 500, 200
CHECKPOINT = "line-checkpoint.json"
CHECKPOINT_SECONDS, LOG_SECONDS = 30.0, 1.0


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
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> LineTable:
    """Return a table trained by self-play. The same seed and number of games give the same table, resumed or not.

    Args:
        scoring: the name of a table, or a mapping of the nine hands to numbers.
        placement: "touching" or "fixed".
        games: train for so many games.
        seconds: train for so long, in seconds of one core (what other programs take of it is not counted), compiling
            not counted (60 when neither is given).
        seed: of the deals and the random moves.
        progress: called now and then with the share done, the games so far and their latest mean score.
        folder: where a checkpoint is kept up to date and TensorBoard's files are written; None: nowhere.
        resume: go on from the checkpoint in the folder.

    Raises:
        TypeError, ValueError: an argument that is not allowed; or there is no checkpoint of this training to resume.
    """
    check_line_plan(scoring, placement, games, seconds, seed)
    points = points_of(scoring)
    if games is None and seconds is None:
        seconds = SECONDS
    values, visits = np.zeros(ENTRIES, np.float32), np.zeros(ENTRIES, np.int32)
    stream, boards = new_boards(1), new_boards(1)
    stream["rng"] = np.random.default_rng(seed).integers(0, 2**64, dtype=np.uint64)
    plan = {"points": points.tolist(), "placement": placement, "games": games, "seconds": seconds, "seed": seed}
    done, spent = 0, 0.0
    if resume:
        done, spent = _restore(folder, plan, values, visits, stream)
    scratch = (stream, boards, np.zeros((CARDS + 1, LINES), np.int64), values, visits, points)
    touching = int(placement == "touching")
    train_games(0, *scratch, touching, 0.0, FIRST_RATE)  # compiles
    started, saved = time.thread_time(), time.monotonic()
    part = PART if games is None else math.ceil(games / PARTS)
    if folder is not None and not resume:
        # Before the logs, so that a training killed before its first checkpoint is due can be resumed too.
        _save(folder, plan, values, visits, stream, done, spent)
    with _Log(folder) as log:
        while True:
            elapsed = spent + time.thread_time() - started
            share = elapsed / seconds if seconds is not None else done / (games or 1)
            if share >= 1:
                break
            now = part if games is None else min(part, games - done)
            chance = CHANCE * max(0.0, 1 - share / LAST_CHANCE)
            score = train_games(now, *scratch, touching, chance, FIRST_RATE * (LAST_RATE / FIRST_RATE) ** share)
            done += now
            log(done, score / now)
            if progress is not None:
                progress(share, done, score / now)
            if folder is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                _save(folder, plan, values, visits, stream, done, spent + time.thread_time() - started)
                saved = time.monotonic()
    made = {
        "games": done,
        "seconds": round(spent + time.thread_time() - started, 3),
        "seed": seed,
        "chance": CHANCE,
        "last_chance": LAST_CHANCE,
        "first_rate": FIRST_RATE,
        "last_rate": LAST_RATE,
    }
    return LineTable(values, visits, points, placement, made)


class _Log:
    """Writes the mean scores of self-play for TensorBoard, where a folder is given."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._writer: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(Path(folder) / "tensorboard"))
        self._last = 0.0

    def __enter__(self) -> Callable[[int, float], None]:
        return self._write

    def _write(self, games: int, mean: float) -> None:
        if self._writer is not None and time.monotonic() - self._last > LOG_SECONDS:
            self._writer.add_scalar("self-play/score", mean, games)
            self._last = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


def _save(
    folder: str | os.PathLike[str],
    plan: Mapping[str, Any],
    values: NDArray[np.float32],
    visits: NDArray[np.int32],
    stream: NDArray[Any],
    done: int,
    spent: float,
) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    seen = np.flatnonzero(visits)
    tensors = {"index": seen.astype(np.uint32), "value": values[seen], "visits": visits[seen]}
    facts = {"plan": dict(plan), "done": done, "spent": spent, "stream": str(int(stream["rng"][0]))}
    write_pair(Path(folder) / CHECKPOINT, tensors, facts)


def _restore(
    folder: str | os.PathLike[str] | None,
    plan: Mapping[str, Any],
    values: NDArray[np.float32],
    visits: NDArray[np.int32],
    stream: NDArray[Any],
) -> tuple[int, float]:
    """Take a checkpoint back; return the games and the seconds done."""
    if folder is None:
        raise ValueError("resume=True needs the folder that holds the checkpoint")
    facts, tensors = read_pair(Path(folder) / CHECKPOINT, "checkpoint")
    if facts.get("plan") != dict(plan):
        raise ValueError(
            f"the checkpoint in {str(folder)!r} belongs to another training ({facts.get('plan')}): resume it with the "
            "same settings"
        )
    try:
        index = tensors["index"].astype(np.int64)
        values[index], visits[index] = tensors["value"], tensors["visits"]
        stream["rng"] = np.uint64(int(facts["stream"]))
        return int(facts["done"]), float(facts["spent"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"the checkpoint in {str(folder)!r} is not one of this version's: {error!r}") from error


def check_line_plan(scoring: Any, placement: Any, games: Any, seconds: Any, seed: Any) -> None:
    """Raise TypeError or ValueError where an argument of `train_lines` is not allowed."""
    points_of(scoring)
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
