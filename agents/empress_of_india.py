"""Policies for The Empress of India."""

from __future__ import annotations

import numpy as np

from patience_env.agents.policy import KernelPolicy
from patience_env.games.empress_of_india import (
    ARMY_ON_NAVY,
    BLACK,
    DEAL_ON,
    HEIGHT,
    NAVY_ON_ARMY,
    PAIRED,
    PLACES,
    RED,
    SEQUENCE,
    SIDE,
)
from patience_env.jit import helper, kernel

# The height at which each card code lies on its foundation: 1 for a black two or a red queen, 11 for the last.
_HEIGHTS = np.zeros(53, np.int64)
for _height in range(1, HEIGHT + 1):
    _HEIGHTS[SEQUENCE[:, _height]] = _height


@helper
def first_marked(mask, first, end):  # type: ignore[no-untyped-def]
    """Return the first legal action from `first` to `end` - 1, or -1."""
    for action in range(first, end):
        if mask[action]:
            return action
    return -1


@helper
def evenest(state, mask, first, higher):  # type: ignore[no-untyped-def]
    """Return (action, difference of heights) of the legal action among first ... first + 575 that joins the two cards
    most alike in height; of equal ones the highest (`higher` 1) or the lowest (-1); (-1, 99) when none is legal."""
    chosen, best, gap = -1, -10_000, 99
    for army in range(SIDE):
        red = _HEIGHTS[state.covered[army]]
        for navy in range(SIDE):
            action = SIDE * army + navy
            if mask[first + action]:
                black = _HEIGHTS[state.covered[SIDE + navy]]
                worth = higher * (red + black) - 100 * abs(red - black)
                if worth > best:
                    best = worth
                    gap = abs(red - black)
                    chosen = first + action
    return chosen, gap


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Play what can be played, pair cards of equal height, else deal on; with the pack out pair whatever is most alike.

    Pairs of equal height never lock each other. A pairing takes from the colour with the larger talon, which gives up
    its top to the vacancy.
    """
    action = first_marked(mask, PAIRED, PAIRED + PLACES)
    if action >= 0:
        return action
    action, _ = evenest(state, mask, 0, -1)
    if action >= 0:
        return action
    action, gap = evenest(state, mask, ARMY_ON_NAVY, 1)
    if action >= 0 and (gap == 0 or not mask[DEAL_ON]):
        return action if state.talon_size[RED] >= state.talon_size[BLACK] else action + NAVY_ON_ARMY - ARMY_ON_NAVY
    return DEAL_ON


@kernel
def play_by_thumb(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write the choice of the rule of thumb for every row."""
    for row in range(states.shape[0]):
        actions[row] = thumb(states[row], states, masks[row], states[row].rng)


class ThumbPolicy(KernelPolicy):
    """Plays whenever it can, pairs cards that stand equally far from their foundations' bases, and deals on last."""

    name = "thumb"
    game_id = "EmpressOfIndia-v0"
    kernel = staticmethod(play_by_thumb)


POLICIES = {"thumb": "ThumbPolicy"}
ROLLOUTS = {"thumb": thumb}
