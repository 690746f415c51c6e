"""Honest comparison of policies: every policy plays the same deals, and sees only what a player sees.

result = evaluate("flush-rank", "PatiencePoker-v0", named_deals("test"), options={"placement": "fixed"})
paired(result, evaluate("greedy", "PatiencePoker-v0", named_deals("test"), options={"placement": "fixed"}))
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import patience_env
from patience_env.agents.policy import Policy, make_policy, parse_policy
from patience_env.deals import check_deal
from patience_env.game import get_game
from patience_env.training.shares import (
    BATCH,
    IllegalChoiceError,
    Played,
    Share,
    cut,
    fingerprint,
    play_deals,
    share_seed,
    warm_up,
)

if TYPE_CHECKING:
    from patience_env.training.engines import Engine

__all__ = ["Evaluation", "IllegalChoiceError", "Paired", "Tableaus", "evaluate", "paired", "wilson"]

Z_95 = 1.959963984540054  # the normal quantile of a two-sided 95% interval
TARGET = 500


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
    engine: Engine | None = None,
) -> Evaluation:
    """Let a policy play each deal once and return how it did.

    The deals are played in shares of `policy.share`, each with a seed of its own (see `patience_env.training.shares`),
    up to `batch` deals side by side; a deal that ends makes room for the next one. Before each move the hidden cards
    are dealt anew (`see`), so the policy cannot look at them.

    Args:
        policy: a policy, or one written as text (see `parse_policy`).
        env_id: the game's id; its registered `max_episode_steps` is honoured.
        deals: deal numbers; the result keeps their order.
        options: the game's options.
        seed: of the policy's random choices and of the cards that it is shown for hidden ones.
        name: what to call the policy in the result; by default its text, or its own name.
        batch: most deals side by side.
        progress: called after each round of moves (after each share, with an engine) with the numbers of deals finished
            and of moves made so far.
        engine: what plays the shares, such as several processes or a Ray cluster (see `patience_env.training.engines`);
            None plays them here, one after the other. The result is the same but for the time it took.

    Raises:
        TypeError, ValueError: an unknown game, policy, option or deal, a policy that does not play this game, or an
            engine and a policy that is not written as text (other processes must make it themselves).
        IllegalChoiceError: the policy chose an illegal action.
        WorkerError: an engine's workers died again and again.
    """
    game = get_game(env_id)
    checked = game.check_options(options or {})
    numbers = check_deals(deals)
    if batch < 1:
        raise ValueError(f"batch={batch} is not allowed: play at least one deal at a time")
    text = policy if isinstance(policy, str) else None
    if isinstance(policy, str):
        known, given = parse_policy(policy)
        policy = make_policy(known, env_id, **given)
    called = name or text or policy.name or type(policy).__name__
    policy.check(game, checked)
    if engine is None:
        warm_up(policy, game, checked, int(numbers[0]))
        parts: list[Played] = []
        for number, some in enumerate(cut(numbers, policy.share)):
            told = None if progress is None else _after(parts, progress)
            seeded = share_seed(seed, number)
            parts.append(play_deals(policy, called, game, checked, some, seeded, batch, told))
    elif text is None:
        raise ValueError(f"an engine plays policies written as text, which its workers make, not {policy!r}")
    else:
        shares = shares_of(text, policy, env_id, checked, numbers, seed)
        found: dict[int, Played] = {}
        for share, played in engine.play(shares):
            found[share.number] = played
            if progress is not None:
                _after(list(found.values()), progress)(0, 0)
        parts = [found[share.number] for share in shares]
    return gather(called, policy, env_id, checked, numbers, seed, parts)


def _after(parts: Sequence[Played], progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Return a `progress` that counts on from the given shares."""
    deals, moves = sum(len(part.returns) for part in parts), sum(int(part.lengths.sum()) for part in parts)
    return lambda more_deals, more_moves: progress(deals + more_deals, moves + more_moves)


def shares_of(
    text: str, policy: Policy, env_id: str, options: Mapping[str, Any], deals: NDArray[np.uint64], seed: int
) -> list[Share]:
    """Return the shares of an evaluation; `text` is how the policy is written."""
    printed = fingerprint(policy, get_game(env_id), options)
    return [
        Share(text, env_id, options, some, seed, number, printed)
        for number, some in enumerate(cut(deals, policy.share))
    ]


def gather(
    name: str,
    policy: Policy,
    env_id: str,
    options: Mapping[str, Any],
    deals: NDArray[np.uint64],
    seed: int,
    parts: Sequence[Played],
) -> Evaluation:
    """Return the evaluation whose shares, in their order, are `parts`."""
    scores = get_game(env_id).scores and not options.get("target")
    return Evaluation(
        policy=name,
        policy_version=policy.version,
        env=env_id,
        options=dict(options),
        deals=deals,
        returns=np.concatenate([part.returns for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        won=None if scores else np.concatenate([part.won for part in parts]),
        seconds=sum(part.seconds for part in parts),
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
