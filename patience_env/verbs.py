"""The generic verbs: one name for the same act in every game, dispatched on the type of the state record.

Compiled algorithms (batch step, random play, rollouts, tree search) call these and are written once; Numba compiles
and caches them for each game's record type. With `NUMBA_DISABLE_JIT=1` the same calls run in plain Python on rows of
a record array. The argument names are part of the contract, since Numba matches them by name.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import from_dtype

from patience_env import jit

VERBS = (
    "deal", "legal", "mark_legal", "holds_legal", "play", "is_won", "observe", "has_grid", "determinize", "forfeit"
)  # fmt: skip

_BY_FIELDS: dict[tuple[str, ...], Any] = {}
_BY_TYPE: dict[Any, Any] = {}


def add_rules(game: Any) -> None:
    """Make a game's rules known to the verbs.

    Raises:
        ValueError: another game's state record has the very same fields (dispatch could not tell them apart).
    """
    fields = game.state.names
    known = _BY_FIELDS.get(fields)
    if known is not None and known.id != game.id:
        raise ValueError(f"the state records of {game.id} and {known.id} have the same field names: rename one")
    _BY_FIELDS[fields] = game
    if jit.JIT:
        _BY_TYPE[from_dtype(game.state)] = game


def rules_of(state: Any) -> Any:
    """Return the game of a state record (a row of a record array)."""
    return _BY_FIELDS[state.dtype.names]


def game_of_type(record: Any) -> Any:
    """Return the game whose state record has this Numba type, or None: how verbs are dispatched while compiling."""
    return _BY_TYPE.get(record)


def deal(state: Any) -> None:
    """Shuffle and lay out the game named by `state.deal`; the options are in the record already."""
    rules_of(state).deal(state)


def legal(state: Any, mask: Any) -> int:
    """Write 1 for each legal action and 0 for the others into `mask` (int8); return how many are legal (0: over)."""
    return int(rules_of(state).legal(state, mask))


def mark_legal(state: Any, mask: Any, held: Any) -> int:
    """Do as `legal`; where `holds_legal`, write a bit for each action too, 32 in a word, into `held` (uint32)."""
    game = rules_of(state)
    return int(game.legal(state, mask) if game.mark_legal is None else game.mark_legal(state, mask, held))


def holds_legal(state: Any) -> bool:
    """Tell whether `mark_legal` of the game writes bits."""
    return rules_of(state).mark_legal is not None


def play(state: Any, action: int) -> float:
    """Play a legal action and return the reward."""
    return float(rules_of(state).play(state, action))


def is_won(state: Any) -> bool:
    """Tell whether the game is won."""
    return bool(rules_of(state).is_won(state))


def observe(state: Any, places: Any) -> None:
    """Write what the player sees into `places` (int8): a card code for each place, then the counters."""
    rules_of(state).observe(state, places)


def has_grid(state: Any) -> bool:
    """Tell whether any of the game's layouts has a grid: for games without one, nothing is compiled for grids."""
    return bool(rules_of(state).has_grid)


def determinize(state: Any, key: Any) -> None:
    """Re-deal all that the player cannot know, and future chance, from the random bits `key` (uint64)."""
    rules_of(state).determinize(state, key)


def forfeit(state: Any) -> bool:
    """Bear the consequence of an illegal action; return whether the episode goes on (as in a series of tableaus)."""
    return bool(rules_of(state).forfeit(state))


@jit.rule
def _true(state):  # type: ignore[no-untyped-def]
    return True


@jit.rule
def _false(state):  # type: ignore[no-untyped-def]
    return False


@cache
def _legal_alone(rules: Any) -> Any:
    """Return what `mark_legal` does in a game that writes no bits."""

    @jit.rule
    def legal_alone(state, mask, held):  # type: ignore[no-untyped-def]
        return rules(state, mask)

    return legal_alone


def _rule(game: Any, verb: str) -> Any:
    """Return the compiled rule of a game for a verb."""
    if verb == "mark_legal":
        return game.mark_legal or _legal_alone(game.legal)
    if verb == "holds_legal":
        return _false if game.mark_legal is None else _true
    if verb == "has_grid":
        return _true if game.has_grid else _false
    return getattr(game, verb)


def _chooser(verb: str) -> Any:
    def choose(state: Any) -> Any:
        game = game_of_type(state)
        return None if game is None else _rule(game, verb)

    return choose


if jit.JIT:
    for _verb in VERBS:
        jit.dispatch(globals()[_verb], _chooser(_verb))
