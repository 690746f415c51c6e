"""Shares: an evaluation is cut into parts that can be played in any order, by any process, with the same results.

How it is cut depends on the policy and the deals alone. Each share has a seed of its own, from which the policy's
random choices and the cards that it is shown for hidden ones come, and is played side by side in one go: so what an
evaluation says does not depend on how many workers played it (on machines of one kind: another processor may round a
network's sums otherwise).
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from ast import Import, ImportFrom, parse, walk
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import patience_env
from patience_env.agents.policy import Policy, make_policy, parse_policy, see
from patience_env.game import Game, get_game, max_episode_steps
from patience_env.kernels import OVER, won_rows
from patience_env.table import Rows

PROTOCOL = 1  # changed whenever the same policy would be given the same deals otherwise: shares, seeds, hidden cards
BATCH = 1024
KEPT_PLAYERS = 4


class IllegalChoiceError(RuntimeError):
    """A policy under evaluation chose an action that is not legal."""


@dataclass(frozen=True, eq=False)
class Share:
    """Some deals that a policy plays in one go.

    Attributes:
        policy: the policy as text (see `parse_policy`).
        env, options: the game, its options in normal form.
        deals: deal numbers, uint64.
        seed: of the whole evaluation.
        number: which share of the evaluation, from 0 on.
        fingerprint: of the policy and the game where the evaluation was begun ("" is not compared).
    """

    policy: str
    env: str
    options: Mapping[str, Any]
    deals: NDArray[np.uint64]
    seed: int
    number: int
    fingerprint: str = ""

    def __str__(self) -> str:
        return f"{self.policy} on deals {self.deals[0]} to {self.deals[-1]} of {self.env}"


@dataclass(frozen=True, eq=False)
class Played:
    """How a share was played: returns (float64), lengths (int64) and wins (bool) of its deals, CPU seconds."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    won: NDArray[np.bool_]
    seconds: float


def cut(deals: NDArray[np.uint64], size: int) -> list[NDArray[np.uint64]]:
    """Return the deals in parts of `size` (the last one may be smaller)."""
    return [deals[first : first + size] for first in range(0, len(deals), size)]


def share_seed(seed: int, number: int) -> int:
    """Return the seed of a share: that of the evaluation for the first one, independent ones for the others."""
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def play_deals(
    policy: Policy,
    name: str,
    game: Game,
    options: Mapping[str, Any],
    deals: NDArray[np.uint64],
    seed: int,
    batch: int = BATCH,
    progress: Callable[[int, int], None] | None = None,
) -> Played:
    """Let a policy, which has been warmed up, play the deals of one share; `seed` is the share's own.

    Raises:
        IllegalChoiceError: the policy chose an illegal action.
    """
    policy.start(seed)
    match = _Match(policy, name, game, dict(options), deals, seed, batch)
    with _one_thread():
        match.play(progress)
    return Played(match.returns, match.lengths, match.won, match.seconds)


def warm_up(policy: Policy, game: Game, options: Mapping[str, Any], deal: int) -> None:
    """Let a policy compile and load what it needs on one position."""
    one = Rows(game, options, 1, "cards", False)
    one.reset(one.all_rows, np.array([deal], np.uint64))
    if one.masks.any():
        policy.start(0)
        policy.act(see(game, options, one.states, one.masks, 0))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch, where it is loaded, use one thread: how sums are split among several shows in their last digits."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_PLAYERS: dict[tuple[str, str, str], tuple[Policy, str]] = {}


def play_share(share: Share) -> Played:
    """Play a share; the policy is made at its first one and kept for the next.

    Raises:
        ValueError: the policy cannot be made here, or is not what it was where the evaluation was begun.
        IllegalChoiceError: the policy chose an illegal action.
    """
    game = get_game(share.env)
    key = (share.policy, share.env, repr(sorted(share.options.items())))
    if key not in _PLAYERS:
        name, given = parse_policy(share.policy)
        policy = make_policy(name, share.env, **given)
        policy.check(game, share.options)
        print_here = fingerprint(policy, game, share.options)
        warm_up(policy, game, share.options, int(share.deals[0]))
        while len(_PLAYERS) >= KEPT_PLAYERS:
            del _PLAYERS[next(iter(_PLAYERS))]
        _PLAYERS[key] = policy, print_here
    policy, print_here = _PLAYERS[key]
    if share.fingerprint not in ("", print_here):
        raise ValueError(
            f"policy {share.policy!r} or {share.env} is not the same here as where the evaluation was begun (version "
            f"{patience_env.__version__} here): install the same package and models on every machine"
        )
    return play_deals(policy, share.policy, game, share.options, share.deals, share_seed(share.seed, share.number))


# -- what the outcome of a share depends on ----------------------------------------------------------------------


def fingerprint(policy: Policy, game: Game, options: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that change with the version, the sources of policy and game, and model files."""
    digest = hashlib.sha256(f"{PROTOCOL} {patience_env.__version__} {policy.version}".encode())
    for module in ("patience_env.table", game.deal.__module__, type(policy).__module__):
        digest.update(_source_digest(module).encode())
    for path in policy.files(options):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                digest.update(file.name.encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


@cache
def _source_digest(module: str) -> str:
    """Return a digest of a module's source and of the modules of the same package that it imports, and so on."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = _source_of(name)
        found[name] = path.read_bytes() if path else b""
        packages = {"patience_env", name.partition(".")[0]}
        names = _imports(found[name], not re.match(r"patience_env(\.(?!agents\.|training\.)|$)", name))
        waiting += [other for other in names if other.partition(".")[0] in packages and _source_of(other)]
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name])
    return digest.hexdigest()


def _source_of(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _imports(source: bytes, inner: bool) -> list[str]:
    """Return the names of modules that a source imports (and names in them, which may be modules).

    With `inner` those count too that functions import: policies load torch, and what needs it, late. What the
    environments import late are pictures, which play does not depend on.
    """
    names: list[str] = []
    tree = parse(source)
    for node in walk(tree) if inner else tree.body:
        if isinstance(node, Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


# -- playing -----------------------------------------------------------------------------------------------------


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
        self.policy, self.name, self.game, self.options, self.deals = policy, name, game, options, deals
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
