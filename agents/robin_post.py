"""Rule-of-thumb play of Robin Post."""

from __future__ import annotations

import numpy as np

from patience_env.agents.learned import shipped
from patience_env.agents.policy import KernelPolicy, Policy
from patience_env.agents.twin_signs import FAR, build, read_heights, waits_for
from patience_env.cards import EMPTY, PACK, rank_of, suit_of
from patience_env.games.robin_post import (
    ACTIONS,
    CORNERS,
    DEPTH,
    FILL,
    FOUNDATION,
    NEIGHBOURS,
    POSITIONS,
    SOURCES,
    TRANSFER,
    TURN,
    WASTE,
    may_be_lifted,
    top_of,
    touching_end,
    wanted_card,
)
from patience_env.games.twin_foundations import FOUNDATIONS
from patience_env.jit import helper, kernel
from patience_env.lanes import count_ones, words

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


# -- signs ---------------------------------------------------------------------------------------------------------

SIGN_COUNT = 16
TOPS = POSITIONS * DEPTH  # where the foundations begin in what the player sees; the waste, top first, follows them
WASTED = TOPS + len(FOUNDATIONS)


@helper
def piles_of(view):  # type: ignore[no-untyped-def]
    """Return a bit for each position that holds a card."""
    filled = np.int64(0)
    for p in range(POSITIONS):
        filled |= np.int64(1 if view[DEPTH * p] != EMPTY else 0) << p
    return filled


@helper
def free_corners(filled, p):  # type: ignore[no-untyped-def]
    """Return how many corners of a position are free where the positions of `filled` (a bit each) hold cards."""
    return 4 - count_ones(filled & NEIGHBOURS[p])


@helper
def play_out(view, built, filled):  # type: ignore[no-untyped-def]
    """Play what fits without packing anything, again and again; return (cards played, the positions filled then).

    Of a pile the top alone is played, unless it is a single card: then its corners become free.
    """
    count = 0
    played = np.int64(0)  # a bit for each position that gave its top
    wasted = 0
    going = True
    while going:
        going = False
        for p in range(POSITIONS):
            card = view[DEPTH * p]
            if (filled >> p) & 1 and not (played >> p) & 1 and card <= PACK and free_corners(filled, p) >= 2:
                if waits_for(built, card) == 0:
                    build(built, card)
                    played |= np.int64(1) << p
                    if view[DEPTH * p + 1] == EMPTY:
                        filled &= ~(np.int64(1) << p)
                    count += 1
                    going = True
        while wasted < PACK:
            card = view[WASTED + wasted]
            if not EMPTY < card <= PACK or waits_for(built, card) > 0:
                break
            build(built, card)
            wasted += 1
            count += 1
            going = True
    return count, filled


@helper
def signs(state, view, signs):  # type: ignore[no-untyped-def]
    """Write what can be played at once, which cards may be lifted, and how long they wait."""
    built = words()
    signs[0] = 0.02 * read_heights(view, TOPS, built)
    filled = piles_of(view)
    signs[1] = count_ones(filled) / POSITIONS
    played, filled = play_out(view, built, filled)
    signs[2] = 0.1 * played
    for p in range(POSITIONS):
        if (filled >> p) & 1:
            free = free_corners(filled, p)
            signs[3] += 0.05 if free >= 2 else 0.0
            signs[4] += 0.05 if free == 1 else 0.0
            signs[5] += 0.05 if free == 0 else 0.0
            card = view[DEPTH * p]
            if card <= PACK:
                wait = waits_for(built, card)
                if free >= 2:
                    signs[6] += 0.25 if wait == 1 else 0.0
                    signs[7] += 0.01 * min(wait, 12)
                elif wait == 0:
                    signs[8 if free == 1 else 9] += 0.25
            for depth in range(1, DEPTH):
                card = view[DEPTH * p + depth]
                if card == EMPTY:
                    break
                signs[10] += 0.02
                if card <= PACK and waits_for(built, card) <= 1:
                    signs[11] += 0.25
    for i in range(PACK):
        card = view[WASTED + i]
        if card == EMPTY:
            break
        signs[12] += 0.05
        if card <= PACK:
            wait = waits_for(built, card)
            if i == 0:
                signs[13] += 0.1 * min(wait, 12)
            elif wait == 0:
                signs[14] += 0.25
            signs[15] += 0.1 if wait == FAR else 0.0


def ppo_policy() -> Policy:
    """Return the agent of `patience train RobinPost-v0 --teacher thumb`.

    It comes with the package: a network that decides among the five actions that the rule of thumb likes best, learned
    by MaskablePPO (needs the `train` extra).
    """
    return shipped("robin_post")


POLICIES = {"thumb": "ThumbPolicy", "ppo": "ppo_policy"}
ROLLOUTS = {"thumb": thumb}
SIGNS = (SIGN_COUNT, signs)
