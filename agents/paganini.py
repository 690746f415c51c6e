"""Policies for Paganini."""

from __future__ import annotations

from patience_env.agents.policy import KernelPolicy
from patience_env.cards import EMPTY, rank_of
from patience_env.deals import draw_below
from patience_env.games.paganini import (
    ACE_ACTIONS,
    ACTIONS,
    COLUMNS,
    KING,
    ROWS,
    card_moved,
    source_of,
    target_of,
)
from patience_env.jit import helper, kernel, rule
from patience_env.lanes import words

IN_PLACE = 100
OUT_OF_PLACE = -150
DEAD_SPACE = -40
READY_SPACE = 30
BREAKS_PAIR = -20
WHIM = 20


@rule
def cards_that_fit(state, row, ace):  # type: ignore[no-untyped-def]
    """Return how many cards of a row would lie in their final place if it began with the given ace."""
    fitting = 0
    for column in range(1, KING):
        fitting += state.board[COLUMNS * row + column] == ace + column
    return fitting


@rule
def space_worth(state, place, target):  # type: ignore[no-untyped-def]
    """Return what the space is worth that a move to `target` leaves at a place: what could fill it next?"""
    left = int(state.board[place - 1])
    if place - 1 == target:
        return 0
    if left == EMPTY or rank_of(left) == KING:
        return DEAD_SPACE
    row = place // COLUMNS
    if place % COLUMNS == state.finished[row]:
        return READY_SPACE
    return -rank_of(left)


@helper
def worth(state, action):  # type: ignore[no-untyped-def]
    """Return how the old advice ranks a legal move."""
    card = card_moved(action)
    source = source_of(state, action)
    target = target_of(state, action)
    row = target // COLUMNS
    value = space_worth(state, source, target)
    if target % COLUMNS == state.finished[row] and (action < ACE_ACTIONS or target % COLUMNS > 0):
        value += IN_PLACE
    if source % COLUMNS < state.finished[source // COLUMNS]:
        value += OUT_OF_PLACE
    if action < ACE_ACTIONS:
        value += 3 * cards_that_fit(state, row, card)
    elif state.board[source - 1] == card - 1:
        value += BREAKS_PAIR
    if source % COLUMNS < COLUMNS - 1 and state.board[source + 1] == card + 1 and rank_of(card) < KING:
        value += BREAKS_PAIR
    return value


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the move that the old advice ranks highest.

    A whim, drawn from the random `bits` (`rng` is left as it was), keeps play from going in circles.
    """
    key = state.rng
    state.rng = bits
    best = -1000
    chosen = -1
    for action in range(ACTIONS):
        if mask[action]:
            value = worth(state, action) + draw_below(state, WHIM)
            if value > best:
                best = value
                chosen = action
    state.rng = key
    return chosen


@kernel
def follow_advice(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write the choice of the rule of thumb for every row; `rng`, drawn anew for each turn, is its chance."""
    for i in range(states.shape[0]):
        actions[i] = thumb(states[i], states, masks[i], states[i].rng)


class ThumbPolicy(KernelPolicy):
    """Builds the rows from the left and keeps the spaces that it leaves from going dead behind kings."""

    name = "thumb"
    game_id = "Paganini-v0"
    kernel = follow_advice


# -- signs ---------------------------------------------------------------------------------------------------------

SIGN_COUNT = 16


@helper
def finished_lengths(view, lengths):  # type: ignore[no-untyped-def]
    """Write how many cards of each row follow one another from an ace at its left end; return how many in all."""
    count = 0
    for row in range(ROWS):
        ace = int(view[COLUMNS * row])
        length = 0
        while ace != EMPTY and length < KING and view[COLUMNS * row + length] == ace + length:
            length += 1
        lengths[row] = length
        count += length
    return count


@rule
def can_come(view, lengths, card):  # type: ignore[no-untyped-def]
    """Return how many copies of a card lie elsewhere than in a finished beginning of a row."""
    count = 0
    for place in range(COLUMNS * ROWS):
        count += view[place] == card and place % COLUMNS >= lengths[place // COLUMNS]
    return count


@helper
def signs(state, view, signs):  # type: ignore[no-untyped-def]
    """Write how far the rows are, what may fill the spaces, and how many cards lie as they will have to."""
    lengths = words()
    signs[0] = finished_lengths(view, lengths) / 104.0
    for row in range(ROWS):
        first = COLUMNS * row
        length = int(lengths[row])
        ace = int(view[first])
        signs[1] += 0.125 if length else 0.0
        signs[2] += 0.125 if length == KING else 0.0
        for column in range(COLUMNS):
            card = int(view[first + column])
            if card == EMPTY:
                left = int(view[first + column - 1]) if column else EMPTY
                if column == 0:
                    signs[3] += 0.125
                elif left == EMPTY:
                    signs[4] += 0.125
                elif rank_of(left) == KING:
                    signs[5] += 0.125
                else:
                    ready = length > 0 and column == length
                    fillers = can_come(view, lengths, left + 1)
                    signs[6] += 0.125 if fillers == 0 else 0.0
                    signs[7] += 0.125 if ready else 0.0
                    signs[8] += 0.02 * (KING - rank_of(left))
                    signs[9] += 0.125 if fillers else 0.0
                continue
            if column >= length:
                signs[10] += 0.02 if rank_of(card) == column + 1 else 0.0
                signs[11] += 0.05 if length and card == ace + column else 0.0
                signs[12] += 0.05 if rank_of(card) == KING and column >= KING - 1 else 0.0
                signs[13] += 0.01 * abs(rank_of(card) - 1 - column)
                if column and view[first + column - 1] == card - 1 and rank_of(card) > 1:
                    signs[14] += 0.05
                if length and column == length + 1 and card == ace + column:
                    signs[15] += 0.125


POLICIES = {"thumb": "ThumbPolicy", "plan": "patience_env.agents.plan:PlanPolicy"}
ROLLOUTS = {"thumb": thumb}
SIGNS = (SIGN_COUNT, signs)
