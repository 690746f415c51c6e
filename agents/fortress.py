"""Policies for Fortress."""

from __future__ import annotations

import numpy as np

from patience_env.agents.learned import shipped
from patience_env.agents.policy import KernelPolicy, Policy
from patience_env.cards import rank_of, suit_of
from patience_env.games.fortress import ACTIONS, LONGEST, ROWS
from patience_env.jit import helper, kernel, rule
from patience_env.kernels import nth_legal

TO_FOUNDATION = 1000
REVERSE = 800
MARRY = 600
OPEN_UP = 400
TO_LANE = 200


@rule
def is_married(state, row):  # type: ignore[no-untyped-def]
    """Tell whether the outside card of a row lies on its neighbour of the same suit."""
    place = LONGEST * row + int(state.length[row]) - 1
    if state.length[row] < 2:
        return False
    card = int(state.wall[place])
    below = int(state.wall[place - 1])
    return abs(card - below) == 1 and suit_of(card) == suit_of(below)


@rule
def hides_next(state, row):  # type: ignore[no-untyped-def]
    """Tell whether a row ends in an ascending run in suit that begins with the next card of its foundation."""
    last = LONGEST * row + int(state.length[row]) - 1
    card = int(state.wall[last])
    depth = rank_of(card) - int(state.founded[suit_of(card)]) - 1
    if depth < 1 or depth >= state.length[row]:
        return False
    matching = 0
    for i in range(1, depth + 1):
        matching += state.wall[last - i] == card - i
    return matching == depth


@rule
def next_is_free(state, row):  # type: ignore[no-untyped-def]
    """Tell whether the card below a row's outside card could move on: to its foundation, or to marry elsewhere."""
    card = int(state.wall[LONGEST * row + int(state.length[row]) - 2])
    slot = card + 2 * suit_of(card)
    up = int(state.outside[slot + 1])
    down = int(state.outside[slot - 1])
    return (
        state.founded[suit_of(card)] + 1 == rank_of(card)
        or (up > 0 and up != row + 1)
        or (down > 0 and down != row + 1)
    )


@helper
def worth(state, row, other):  # type: ignore[no-untyped-def]
    """Return how the old advice ranks a legal move; 0 for the moves that it advises against."""
    if row == other:
        return TO_FOUNDATION
    length = int(state.length[row])
    lane = state.length[other] == 0
    reverses = hides_next(state, row)
    if reverses:
        # The run is turned over: its next card is set free, and then all of it follows.
        return REVERSE - (100 if lane else 0)
    if is_married(state, row):
        return 0
    if lane:
        if length == 1:
            return 0
        return (OPEN_UP if next_is_free(state, row) else TO_LANE) - length
    card = int(state.wall[LONGEST * row + length - 1])
    onto = int(state.wall[LONGEST * other + int(state.length[other]) - 1])
    value = MARRY - 2 * length
    if length == 1 or next_is_free(state, row):
        value += 30
    # A lower card outside a higher one leaves for the foundation first.
    return value + (1 if card < onto else 0)


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the move that the old advice ranks highest, the first of equals.

    Where it advises against all of them the random `bits` choose, so that play does not go in circles.
    """
    best = 0
    count = 0
    chosen = -1
    for action in range(ACTIONS):
        if mask[action]:
            count += 1
            value = worth(state, action // ROWS, action % ROWS)
            if value > best:
                best = value
                chosen = action
    return chosen if best > 0 else nth_legal(mask, np.int64(int(bits) >> 33) % count)


@kernel
def follow_advice(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write the choice of the rule of thumb for every row; `rng`, drawn anew for each turn, is its chance."""
    for i in range(states.shape[0]):
        actions[i] = thumb(states[i], states, masks[i], states[i].rng)


class ThumbPolicy(KernelPolicy):
    """Plays to the foundations, turns runs over to free their cards, marries, and clears the shortest rows."""

    name = "thumb"
    game_id = "Fortress-v0"
    kernel = follow_advice


def ppo_policy() -> Policy:
    """Return the agent of `patience train Fortress-v0 --teacher thumb`.

    It comes with the package: a network that is told what the rule of thumb would play and learned by MaskablePPO where
    to play otherwise (needs the `train` extra). It draws its moves by their probabilities.
    """
    return shipped("fortress")


POLICIES = {"thumb": "ThumbPolicy", "ppo": "ppo_policy", "plan": "patience_env.agents.plan:PlanPolicy"}
ROLLOUTS = {"thumb": thumb}
