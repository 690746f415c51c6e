"""Honest comparison of policies: every policy plays the same deals, and sees only what a player sees.

result = evaluate("flush-rank", "PatiencePoker-v0", named_deals("test"), options={"placement": "fixed"})
paired(result, evaluate("greedy", "PatiencePoker-v0", named_deals("test"), options={"placement": "fixed"}))
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import patience_env
from patience_env.agents.policy import Policy, make_policy, parse_policy, see
from patience_env.deals import check_deal
from patience_env.game import Game, get_game, max_episode_steps
from patience_env.kernels import OVER, won_rows
from patience_env.table import Rows

BATCH = 1024
Z_95 = 1.959963984540054  # the normal quantile of a two-sided 95% interval
TARGET = 500


class IllegalChoiceError(RuntimeError):
    """A policy under evaluation chose an action that is not legal."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How one policy played a list of deals.

    Attributes:
        policy, policy_version: what played.
        env, options: what it played, the options in normal form.
        deals: the deal numbers, uint64, shape (n,).
        returns: the undiscounted return of each deal, float64, shape (n,).
        lengths: the moves of each deal, int64, shape (n,).
        won: which deals were won, bool, shape (n,), or None for a game that only scores.
        seconds: CPU time (of all threads) that the policy took for its choices; compiling is not counted.
        seed: where the policy's random choices and the hidden cards that it was shown came from.
        version, cores: of this package, and of the machine.
    """

    policy: str
    policy_version: int
    env: str
    options: dict[str, Any]
    deals: NDArray[np.uint64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    won: NDArray[np.bool_] | None
    seconds: float
    seed: int
    version: str
    cores: int

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def stderr(self) -> float:
        """The standard error of the mean return, NaN for a single deal."""
        return standard_error(self.returns)

    @property
    def moves(self) -> int:
        """The moves of all deals together."""
        return int(self.lengths.sum())

    @property
    def seconds_per_move(self) -> float:
        """The policy's CPU seconds for a move."""
        return self.seconds / max(self.moves, 1)

    @property
    def win_rate(self) -> float | None:
        """The share of deals won, None for a game that only scores."""
        return None if self.won is None else float(self.won.mean())

    @property
    def win_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the win rate, None for a game that only scores."""
        return None if self.won is None else wilson(int(self.won.sum()), len(self.won))

    @property
    def tableaus(self) -> Tableaus | None:
        """The tableaus to 500 of a game whose series (`target`) this is not, None for another game."""
        if "target" not in self.options or self.options["target"] is not None:
            return None
        return tableaus_to_500(self.returns)


@dataclass(frozen=True)
class Paired:
    """The mean difference of two policies over the same deals, first minus second, with its 95% interval."""

    difference: float
    stderr: float
    low: float
    high: float


@dataclass(frozen=True)
class Tableaus:
    """How many tableaus a series took to its target: mean, standard error (NaN for one series), and how many series."""

    mean: float
    stderr: float
    series: int


def standard_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of `values`, NaN for fewer than two."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def wilson(wins: int, games: int) -> tuple[float, float]:
    """Return the 95% score interval of a proportion: E. B. Wilson, "Probable inference, the law of succession, and
    statistical inference", Journal of the American Statistical Association 22 (1927), 209-212.

    Unlike mean +- 1.96 standard errors it holds for few games and for rates near 0 and 1.

    Raises:
        ValueError: no games, or more wins than games.
    """
    if not 0 <= wins <= games or games == 0:
        raise ValueError(f"{wins} wins in {games} games: give at least one game and 0 to that many wins")
    share = wins / games
    shrink = 1 + Z_95**2 / games
    centre = (share + Z_95**2 / (2 * games)) / shrink
    half = Z_95 * math.sqrt(share * (1 - share) / games + (Z_95 / (2 * games)) ** 2) / shrink
    return (0.0 if wins == 0 else centre - half), (1.0 if wins == games else centre + half)


def paired(first: Evaluation, second: Evaluation) -> Paired:
    """Compare two policies deal by deal, which takes the luck of the deals out (normal 95% interval).

    Raises:
        ValueError: they did not play the same deals of the same game under the same options.
    """
    if (first.env, first.options) != (second.env, second.options):
        raise ValueError(
            f"{first.policy} played {first.env} with {first.options}, "
            f"{second.policy} played {second.env} with {second.options}: only "
            "results of the same game under the same options can be compared"
        )
    if not np.array_equal(first.deals, second.deals):
        raise ValueError(
            f"{first.policy} and {second.policy} played different deals ({_span(first.deals)}; {_span(second.deals)}): "
            "only results on the same deals, in the same order, can be compared"
        )
    differences = first.returns - second.returns
    mean, stderr = float(differences.mean()), standard_error(differences)
    return Paired(mean, stderr, mean - Z_95 * stderr, mean + Z_95 * stderr)


def _span(deals: NDArray[np.uint64]) -> str:
    return f"{len(deals)} from {deals[0]} to {deals[-1]}"


def tableaus_to(returns: Sequence[float] | NDArray[Any], target: float) -> list[int]:
    """Return how many tableaus each finished series took to `target`, the tableaus laid end to end in their order."""
    counts: list[int] = []
    total, count = 0.0, 0
    for points in np.asarray(returns, np.float64).tolist():
        total += points
        count += 1
        if total >= target:
            counts.append(count)
            total, count = 0.0, 0
    return counts


def tableaus_to_500(returns: Sequence[float] | NDArray[np.float64], target: float = TARGET) -> Tableaus | None:
    """Return how many tableaus a series takes to reach `target` points, the old object of Patience Poker.

    The tableaus are laid end to end in their order: a series ends with the one that reaches the total, and the next
    one starts a new series. The unfinished series at the end is left out. None when no series was finished.
    """
    counts = tableaus_to(returns, target)
    lengths = np.array(counts, np.float64)
    return Tableaus(float(lengths.mean()), standard_error(lengths), len(counts)) if counts else None


def check_deals(deals: Sequence[int] | NDArray[Any]) -> NDArray[np.uint64]:
    """Return deal numbers as a uint64 array.

    Raises:
        TypeError, ValueError: none at all, or one that is no deal number.
    """
    numbers = [check_deal(deal) for deal in deals]
    if not numbers:
        raise ValueError("there are no deals to play: give at least one deal number")
    return np.array(numbers, np.uint64)


def evaluate(
    policy: Policy | str,
    env_id: str,
    deals: Sequence[int] | NDArray[Any],
    *,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    name: str | None = None,
    batch: int = BATCH,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Let a policy play each deal once and return how it did.

    Up to `batch` deals are played side by side; a deal that ends makes room for the next one. Before each move the
    hidden cards are dealt anew (`see`), so the policy cannot look at them.

    Args:
        policy: a policy, or one written as text (see `parse_policy`).
        env_id: the game's id; its registered `max_episode_steps` is honoured.
        deals: deal numbers; the result keeps their order.
        options: the game's options.
        seed: of the policy's random choices and of the cards that it is shown for hidden ones.
        name: what to call the policy in the result; by default its text, or its own name.
        progress: called after each round of moves with the numbers of deals finished and of moves made so far.

    Raises:
        TypeError, ValueError: an unknown game, policy, option or deal, or a policy that does not play this game.
        IllegalChoiceError: the policy chose an illegal action.
    """
    game = get_game(env_id)
    checked = game.check_options(options or {})
    numbers = check_deals(deals)
    if batch < 1:
        raise ValueError(f"batch={batch} is not allowed: play at least one deal at a time")
    if isinstance(policy, str):
        known, given = parse_policy(policy)
        name = policy if name is None else name
        policy = make_policy(known, env_id, **given)
    policy.check(game, checked)
    match = _Match(policy, name or policy.name or type(policy).__name__, game, checked, numbers, seed, batch)
    match.warm_up()
    match.play(progress)
    scores = game.scores and not checked.get("target")
    return Evaluation(
        policy=match.name,
        policy_version=policy.version,
        env=env_id,
        options=checked,
        deals=numbers,
        returns=match.returns,
        lengths=match.lengths,
        won=None if scores else match.won,
        seconds=match.seconds,
        seed=seed,
        version=patience_env.__version__,
        cores=os.cpu_count() or 1,
    )


def check_writable(path: str | Path) -> None:
    """Raise ValueError when no file can be written at `path`; nothing is left there."""
    place = Path(path)
    if place.exists() and not place.is_file():
        raise ValueError(f"{str(path)!r} is no regular file: give the name of a file to write")
    try:
        with tempfile.TemporaryFile(dir=place.resolve().parent):
            pass
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error


def write_atomically(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all: readers see the old file or the new one, never a part.

    Raises:
        OSError: it cannot be written; an old file stays as it is.
    """
    place = Path(path).resolve()
    mode = place.stat().st_mode & 0o777 if place.exists() else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, place)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class _Match:
    """One policy at a table of rows, each of which plays one deal after another until all are played."""

    def __init__(
        self,
        policy: Policy,
        name: str,
        game: Game,
        options: dict[str, Any],
        deals: NDArray[np.uint64],
        seed: int,
        batch: int,
    ) -> None:
        self.policy, self.name, self.game, self.options, self.deals, self.seed = (
            policy,
            name,
            game,
            options,
            deals,
            seed,
        )
        self.limit = max_episode_steps(game.id)
        self.returns = np.zeros(len(deals))
        self.lengths = np.zeros(len(deals), np.int64)
        self.won = np.zeros(len(deals), np.bool_)
        self.seconds = 0.0
        count = min(batch, len(deals))
        self._rows = Rows(game, options, count, "cards", False)
        self._playing = np.arange(count)  # which deal each row plays; -1 when none is left for it
        self._next = count
        self._finished = 0
        self._keys = np.random.default_rng(seed)

    def warm_up(self) -> None:
        """Let the policy compile and load what it needs on one position, then seed it."""
        one = Rows(self.game, self.options, 1, "cards", False)
        one.reset(one.all_rows, self.deals[:1])
        if one.masks.any():
            self.policy.start(self.seed)
            self.policy.act(see(self.game, self.options, one.states, one.masks, self.seed))
        self.policy.start(self.seed)

    def play(self, progress: Callable[[int, int], None] | None) -> None:
        rows = self._rows
        rows.reset(rows.all_rows, self.deals[: len(self._playing)])
        actions = np.zeros(len(self._playing), np.int64)
        self._end(rows.all_rows[~rows.masks.any(axis=1)])
        while True:
            live = np.flatnonzero(self._playing >= 0)
            if not len(live):
                return
            actions[live] = self._choose(live)
            rows.step(actions, self._playing < 0)
            current = self._playing[live]
            self.returns[current] += rows.rewards[live]
            self.lengths[current] += 1
            over = rows.status[live] & OVER != 0
            if self.limit is not None:
                over |= self.lengths[current] >= self.limit
            self._end(live[over])
            if progress is not None:
                progress(self._finished, int(self.lengths.sum()))

    def _choose(self, live: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the policy's legal choices in the given rows."""
        rows = self._rows
        turn = see(self.game, self.options, rows.states[live], rows.masks[live], int(self._keys.integers(2**63)))
        begun = time.process_time()
        given = self.policy.act(turn)
        self.seconds += time.process_time() - begun
        chosen = np.asarray(given)
        if chosen.shape != (len(live),) or chosen.dtype.kind not in "iu":
            raise IllegalChoiceError(
                f"policy {self.name!r} gave {chosen.dtype} actions of shape {chosen.shape} for {len(live)} positions "
                f"of {self.game.id}: whole numbers of shape ({len(live)},) are wanted"
            )
        inside = (chosen >= 0) & (chosen < rows.masks.shape[1])
        legal = inside & (rows.masks[live, np.where(inside, chosen, 0)] != 0)
        if not legal.all():
            self._refuse(live, chosen, int(np.flatnonzero(~legal)[0]), inside)
        return chosen.astype(np.int64)

    def _refuse(self, live: NDArray[np.int64], chosen: NDArray[Any], i: int, inside: NDArray[np.bool_]) -> None:
        row, action = live[i], int(chosen[i])
        size = self._rows.masks.shape[1]
        what = (
            f" ({self.game.describe(self._rows.states[row], action)})" if inside[i] else f", outside 0 to {size - 1},"
        )
        deal = self._playing[row]
        raise IllegalChoiceError(
            f"policy {self.name!r} chose the illegal action {action}{what} at move {self.lengths[deal] + 1} of deal "
            f"{self.deals[deal]} of {self.game.id}"
        )

    def _end(self, ended: NDArray[np.int64]) -> None:
        """Note the end of the deals in the given rows and deal the next ones there, while there are any."""
        rows = self._rows
        while len(ended):
            won = np.zeros(len(ended), np.bool_)
            won_rows(rows.states[ended], won)
            self.won[self._playing[ended]] = won
            self._finished += len(ended)
            fresh = ended[: len(self.deals) - self._next]
            self._playing[ended] = -1
            self._playing[fresh] = np.arange(self._next, self._next + len(fresh))
            rows.reset(fresh, self.deals[self._playing[fresh]])
            self._next += len(fresh)
            # A deal may leave no legal action at all: it is over before it began.
            ended = fresh[~rows.masks[fresh].any(axis=1)]
