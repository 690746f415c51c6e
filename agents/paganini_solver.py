"""What the solver knows of Paganini."""

from __future__ import annotations

from patience_env.agents.solver_verbs import RANKS, add_to_set, word_of
from patience_env.cards import EMPTY, rank_of
from patience_env.games.paganini import COLUMNS, KING, ROWS
from patience_env.jit import helper


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash the rows, whichever of them lies where: no rule looks at a row's neighbours."""
    for row in range(ROWS):
        left = 0
        right = 0
        for column in range(COLUMNS // 2):
            left = (left << 6) | int(state.board[COLUMNS * row + column])
            right = (right << 6) | int(state.board[COLUMNS * row + COLUMNS // 2 + column])
        add_to_set(key, word_of(left), word_of(right))


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the cards that follow their predecessor; rank by dead spaces and those in their final place."""
    pairs = 0
    dead = 0
    for row in range(ROWS):
        first = COLUMNS * row
        for column in range(1, COLUMNS):
            left = int(state.board[first + column - 1])
            card = int(state.board[first + column])
            if card == EMPTY:
                if left == EMPTY or rank_of(left) == KING:
                    dead += 1
            elif left != EMPTY and card == left + 1 and rank_of(left) < KING:
                pairs += 1
    placed = int(state.in_place)
    return RANKS * pairs + min(max(300 + 10 * dead - 2 * placed, 0), RANKS - 1)
