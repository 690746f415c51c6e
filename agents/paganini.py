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
    card_moved,
    source_of,
    target_of,
)
from patience_env.jit import helper, kernel, rule

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


POLICIES = {"thumb": "ThumbPolicy"}
ROLLOUTS = {"thumb": thumb}
