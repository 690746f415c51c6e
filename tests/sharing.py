"""Policies that tests of engines and of the leaderboard give to other processes: `sharing:Noted`, `sharing:Fatal`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, Turn


class Noted(Policy):
    """Plays at random, two deals a share, and notes the first masks of each share that it is given in a file."""

    name = "noted"
    share = 2

    def __init__(self, log: str) -> None:
        self._log = log
        self._fresh = False
        self._rng = np.random.default_rng(0)

    def start(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._seed, self._fresh = seed, True

    def act(self, turn: Turn) -> NDArray[np.int64]:
        if self._fresh and len(turn) == self.share:  # not when it is warmed up on one position
            with open(self._log, "a") as file:
                file.write(f"{self._seed}\n")
        self._fresh = False
        return np.asarray((self._rng.random(turn.masks.shape) * turn.masks).argmax(axis=1))


class Fatal(Noted):
    """Kills its own process, as by `kill -9`, in the middle of its share number `at`, the first `times` times."""

    def __init__(self, log: str, at: int, times: int = 1) -> None:
        super().__init__(log)
        self._at, self._times = at, times

    def act(self, turn: Turn) -> NDArray[np.int64]:
        actions = super().act(turn)
        begun = Path(self._log).read_text().splitlines() if Path(self._log).exists() else []
        if len(begun) >= self._at and turn.masks.sum() < turn.masks.size:
            for number in range(self._times):
                # Made by one process alone, where several come here at the same moment.
                with suppress(FileExistsError), open(Path(self._log).with_name(f"killed{number}"), "x"):
                    os.kill(os.getpid(), signal.SIGKILL)
        return actions


class Illegal(Noted):
    """Chooses what lies outside the action space."""

    def act(self, turn: Turn) -> NDArray[np.int64]:
        return np.full(len(turn), turn.masks.shape[1])


class Picky(Noted):
    """Cannot be made by any process but the first (it finds its file gone)."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        if not Path(log).exists():
            raise ValueError(f"there is no file {log!r}")

    def files(self, options: object) -> list[Path]:
        del options
        return [Path(self._log)]
