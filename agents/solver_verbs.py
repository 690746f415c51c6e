"""What the solver asks of a game beyond its rules: four verbs, with answers for any game and better ones for some.

A game may have a module `patience_env.agents.<game>_solver` that defines compiled functions of the same names and
argument names; what it leaves out is answered by the defaults below. They are dispatched on the type of the state
record, as the rules are (`patience_env.verbs`).

* `fingerprint(state, raw, kept, key)` writes 128 bits into `key`: equal only for positions that are won by the same
  moves, or by moves that correspond under a symmetry of the game. Soundness of a proven loss rests on this: two
  positions of which one is won and the other lost must never get one key.
* `forced(state)` returns a move that can be made at once without ever losing a win, or -1.
* `candidates(state, mask, moves)` writes the moves worth trying, returns how many. It may leave out a move only where
  some other one leads to a position that is won whenever that move's is (unless the module says `PROVES = False`).
* `promise(state, gained)` returns -1 for a position that is certainly lost, else `RANKS * stage + rank`: a stage
  (0 to STAGES - 1) that tells how far the game has come, and a rank (0 to RANKS - 1), the smaller the better.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numba import from_dtype
from numpy.typing import NDArray

from patience_env import jit
from patience_env.deals import bits_at
from patience_env.game import Game
from patience_env.jit import helper, rule
from patience_env.verbs import legal

STAGES = 256
RANKS = 512
# They tell the two halves of a key apart. (Both have their highest bit: Numba takes them for unsigned numbers then.)
ALL_BITS = 0xFFFFFFFFFFFFFFFF
HALF_0, HALF_1 = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F


@rule
def word_of(number):  # type: ignore[no-untyped-def]
    """Return a number as an unsigned 64-bit one, which must not meet signed ones."""
    return int(np.uint64(number))


@rule
def absorb(key, word):  # type: ignore[no-untyped-def]
    """Let a key depend on a word (see `word_of`) after all those before."""
    key[0] = bits_at(int(key[0]) ^ word ^ HALF_0)
    key[1] = bits_at(int(key[1]) ^ word ^ HALF_1)


@helper
def absorb_pile(key, cards, count):  # type: ignore[no-untyped-def]
    """Absorb the first `count` card codes of an array, in their order, ten in a word."""
    word = 1
    for i in range(count):
        word = (word << 6) | int(cards[i])
        if i % 10 == 9:
            absorb(key, word_of(word))
            word = 1
    absorb(key, word_of(word))


@rule
def add_to_set(key, word, more):  # type: ignore[no-untyped-def]
    """Let a key depend on a thing written as two words, but not on the order in which things are added."""
    key[0] = (int(key[0]) + bits_at(bits_at(word ^ HALF_0) ^ more)) & ALL_BITS
    key[1] = (int(key[1]) + bits_at(bits_at(word ^ HALF_1) ^ more)) & ALL_BITS


@helper
def any_fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash every byte of the record that may matter: `kept` are the numbers of all but those of the deal number."""
    word = 0
    filled = 0
    for i in range(kept.shape[0]):
        word = (word << 8) | int(np.int64(raw[kept[i]]))
        filled += 1
        if filled == 7:
            absorb(key, word_of(word))
            word = 0
            filled = 0
    absorb(key, word_of(word))


@rule
def never_forced(state):  # type: ignore[no-untyped-def]
    """Force no move."""
    return -1


@helper
def all_legal(state, mask, moves):  # type: ignore[no-untyped-def]
    """Try every legal move."""
    legal(state, mask)
    count = 0
    for action in range(mask.shape[0]):
        if mask[action]:
            moves[count] = action
            count += 1
    return count


@helper
def by_gain(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the rewards so far; within it the latest position comes first."""
    share = min(max(gained, 0.0), 1.0)
    return RANKS * int(share * (STAGES - 1))


DEFAULTS: dict[str, Any] = {
    "fingerprint": any_fingerprint,
    "forced": never_forced,
    "candidates": all_legal,
    "promise": by_gain,
}
_BY_FIELDS: dict[tuple[str, ...], dict[str, Any]] = {}
_BY_TYPE: dict[Any, dict[str, Any]] = {}


def like(states: NDArray[Any], count: int) -> Any:
    """Return `count` state records, all zeros, of the kind of `states`, on which the rules run."""
    rows = np.zeros(count, states.dtype)
    return rows if jit.JIT else rows.view(np.recarray)


def add_hooks(game: Game) -> bool:
    """Make a game known to the solver's verbs; return whether its searches may prove a loss."""
    name = f"patience_env.agents.{game.deal.__module__.rpartition('.')[2]}_solver"
    module = import_module(name) if find_spec(name) else None
    hooks = {verb: getattr(module, verb, function) for verb, function in DEFAULTS.items()}
    _BY_FIELDS[game.state.names or ()] = hooks
    if jit.JIT:
        _BY_TYPE[from_dtype(game.state)] = hooks
    return bool(getattr(module, "PROVES", True))


def _hook(state: Any, verb: str) -> Any:
    return _BY_FIELDS[state.dtype.names][verb]


def fingerprint(state: Any, raw: Any, kept: Any, key: Any) -> None:
    """Write the key (uint64, two entries, 0 before) of a position; `raw` are its bytes, `kept` those that count."""
    _hook(state, "fingerprint")(state, raw, kept, key)


def forced(state: Any) -> int:
    """Return a move that never loses a win, or -1."""
    return int(_hook(state, "forced")(state))


def candidates(state: Any, mask: Any, moves: Any) -> int:
    """Write the moves worth trying into `moves`; return how many."""
    return int(_hook(state, "candidates")(state, mask, moves))


def promise(state: Any, gained: float) -> int:
    """Return -1 for a lost position, else where it stands in the queue; `gained` are the rewards that led to it."""
    return int(_hook(state, "promise")(state, gained))


def _chooser(name: str) -> Any:
    def choose(state: Any) -> Any:
        hooks = _BY_TYPE.get(state)
        return None if hooks is None else hooks[name]

    return choose


if jit.JIT:
    for _verb in (fingerprint, forced, candidates, promise):
        jit.dispatch(_verb, _chooser(_verb.__name__))
