"""What the signs of games with twin foundations share (`patience_env.games.twin_foundations`): which cards wait long.

`built` holds how many cards lie on each foundation: up and down, suit by suit.
"""

from __future__ import annotations

from patience_env.cards import EMPTY, rank_of, suit_of
from patience_env.games.twin_foundations import FOUNDATIONS
from patience_env.jit import helper, rule

FAR = 99


@helper
def read_heights(view, first, built):  # type: ignore[no-untyped-def]
    """Write how many cards lie on the foundations, whose tops a view shows from `first` on; return how many in all."""
    count = 0
    for i in range(len(FOUNDATIONS)):
        top = view[first + i]
        height = 0 if top == EMPTY else rank_of(top)
        built[i] = 14 - height if i % 2 and height else height
        count += int(built[i])
    return count


@rule
def waits_for(built, card):  # type: ignore[no-untyped-def]
    """Return how many cards the nearer foundation of a known card still needs first; `FAR` when both are past it."""
    up = rank_of(card) - 1 - int(built[2 * suit_of(card)])
    down = 13 - rank_of(card) - int(built[2 * suit_of(card) + 1])
    nearest = up if up >= 0 else FAR
    return min(nearest, down) if down >= 0 else nearest


@rule
def build(built, card):  # type: ignore[no-untyped-def]
    """Lay a card that waits for none on its foundation, the ascending one if it may choose."""
    suit = suit_of(card)
    built[2 * suit + (0 if rank_of(card) - 1 == int(built[2 * suit]) else 1)] += 1
