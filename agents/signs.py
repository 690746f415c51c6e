"""Signs: what a game's own module says of a table, for networks to be told besides its cards.

How many couples of cards can still be withdrawn, say: a number that is quick to work out, and slow to learn from cards.
A game's module in `agents` lists as `SIGNS` how many numbers these are and a compiled function `(state, view, signs)`
that writes them (float32, zeros before). `view` is what the player sees of the table (`observe`), with cards that are
not known face-down; it alone is read: `state` tells which game it is. Most games have no signs.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from patience_env import jit
from patience_env.agents.policy import game_module
from patience_env.game import Game
from patience_env.jit import rule
from patience_env.verbs import game_of_type, rules_of


def own_signs(game: Game) -> tuple[int, Any]:
    """Return how many signs a game has and what writes them."""
    module = game_module(game)
    count, write = getattr(import_module(module), "SIGNS", (0, None)) if find_spec(module) else (0, None)
    return count, no_signs if write is None else write


@rule
def no_signs(state, view, signs):  # type: ignore[no-untyped-def]
    """Write nothing."""


def write_signs(state: Any, view: Any, signs: Any) -> None:
    """Write the signs of the table that `view` shows."""
    own_signs(rules_of(state))[1](state, view, signs)


def _chooser(state: Any) -> Any:
    game = game_of_type(state)
    return None if game is None else own_signs(game)[1]


if jit.JIT:
    jit.dispatch(write_signs, _chooser)
