"""Rule-of-thumb play of Robin Post."""

from __future__ import annotations

from patience_env.agents.policy import KernelPolicy
from patience_env.cards import EMPTY, rank_of, suit_of
from patience_env.games.robin_post import (
    ACTIONS,
    CORNERS,
    FILL,
    FOUNDATION,
    SOURCES,
    TRANSFER,
    TURN,
    WASTE,
    may_be_lifted,
    top_of,
    touching_end,
    wanted_card,
)
from patience_env.jit import helper, kernel

FAR = 99
SOON = 7  # a card for which its foundations need fewer cards is not buried lightly


@helper
def first_marked(mask, first, end):  # type: ignore[no-untyped-def]
    """Return the first legal action from `first` on and before `end`, or -1."""
    for action in range(first, end):
        if mask[action]:
            return action
    return -1


@helper
def helpful_transfer(state, mask):  # type: ignore[no-untyped-def]
    """Return the transfer that leads by the fewest steps to a foundation's taking an available card, or -1.

    Each step brings the same card nearer, so this never goes to and fro.
    """
    best = FAR
    chosen = -1
    for source in range(SOURCES):
        card = EMPTY
        if state.wasted > 0 if source == WASTE else may_be_lifted(state, source):
            card = top_of(state, source)
        if card != EMPTY:
            suit = suit_of(card)
            apart = rank_of(card) - int(state.up[suit])
            apart = apart if apart < 0 else apart - 1
            giver = 1 if apart > 0 else 0
            action = TRANSFER + 2 * suit + giver
            if apart != 0 and abs(apart) < best and mask[action]:
                best = abs(apart)
                chosen = action
    return chosen


@helper
def release(state, source):  # type: ignore[no-untyped-def]
    """Return what leaving a position is worth: a corner freed counts most where a card then may be lifted."""
    worth = 0
    if source != WASTE:
        for corner in range(4):
            q = CORNERS[source, corner]
            if q >= 0 and state.height[q]:
                free = state.free[q]
                worth += (3 if free == 1 else 1) if free < 2 else 0
    return worth


@helper
def wait(state, card):  # type: ignore[no-untyped-def]
    """Return how many cards its foundations still need before they take a card, the nearer one counting."""
    suit = suit_of(card)
    up = rank_of(card) - int(state.up[suit]) - 1
    down = 13 - int(state.down[suit]) - rank_of(card)
    nearest = FAR
    if up >= 0:
        nearest = up
    if 0 <= down < nearest:
        nearest = down
    return nearest


@helper
def best_packing(state, mask):  # type: ignore[no-untyped-def]
    """Return the packing that releases most, less what it costs to bury a card that is wanted soon, or -1."""
    best = 0
    chosen = -1
    for source in range(SOURCES):
        for action in range(8 * source, 8 * source + 8):
            if mask[action]:
                card = wanted_card(touching_end(state, source, action // 4 % 2), action // 4 % 2, action // 2 % 2)
                worth = release(state, source) - max(SOON - wait(state, card), 0)
                if worth >= best:
                    best = worth + 1
                    chosen = action
    return chosen


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Play what fits, pack what releases most, then fill the vacancies, then turn a card."""
    action = first_marked(mask, FOUNDATION, TRANSFER)
    if action < 0:
        action = helpful_transfer(state, mask)
    if action < 0:
        action = best_packing(state, mask)
    if action < 0 and mask[FILL]:
        action = FILL
    if action < 0 and mask[TURN]:
        action = TURN
    return first_marked(mask, 0, ACTIONS) if action < 0 else action


@kernel
def thumb_rows(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write an action for every row."""
    for row in range(states.shape[0]):
        actions[row] = thumb(states[row], states, masks[row], states[row].rng)


class ThumbPolicy(KernelPolicy):
    """Plays every card that fits and packs whatever releases most."""

    name = "thumb"
    game_id = "RobinPost-v0"
    kernel = staticmethod(thumb_rows)


POLICIES = {"thumb": "ThumbPolicy"}
ROLLOUTS = {"thumb": thumb}
