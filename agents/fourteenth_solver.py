"""What the solver knows of The Fourteenth."""

from __future__ import annotations

from patience_env.agents.fourteenth import couples, lines
from patience_env.agents.solver_verbs import RANKS, absorb, word_of
from patience_env.games.fourteenth import PLACES, RANK, count_fourteens
from patience_env.jit import helper


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash the ranks in the square, the cards turned, and how exchanges stand: suits count for nothing."""
    word = 0
    for place in range(PLACES):
        word = (word << 4) | int(RANK[state.cells[place]])
        if place % 13 == 12:
            absorb(key, word_of(word))
            word = 0
    absorb(key, word_of(word))
    absorb(key, word_of((int(state.turned) << 40) | (int(state.left + 1) << 32) | int(state.swapped)))


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the cards withdrawn; rank by fourteens, couples and lines."""
    value = count_fourteens(state) + 4 * couples(state) + lines(state)
    return RANKS * int(state.withdrawn) + min(max(250 - value + (20 if state.swapped else 0), 0), RANKS - 1)
