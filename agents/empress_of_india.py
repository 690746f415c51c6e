"""Policies for The Empress of India."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import KernelPolicy, Turn
from patience_env.cards import EMPTY, suit_of
from patience_env.games.empress_of_india import (
    ARMY_ON_NAVY,
    BLACK,
    DEAL_ON,
    FOUNDATIONS,
    HEIGHT,
    NAVY_ON_ARMY,
    PACKS,
    PAIRED,
    PLACES,
    PLAYS,
    RED,
    SEQUENCE,
    SIDE,
    TALON,
)
from patience_env.jit import helper, kernel, rule
from patience_env.lanes import words

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


@kernel
def rank_by_thumb(states, masks, choices):  # type: ignore[no-untyped-def]
    """Write what the rule of thumb likes best in every row, best first; -1 where there is no more.

    Of two ways to join the same two cards it names the one that it likes better. `masks` is written over.
    """
    for row in range(states.shape[0]):
        mask = masks[row]
        for choice in range(choices.shape[1]):
            action = thumb(states[row], states, mask, states[row].rng)
            if not mask[action]:
                break
            choices[row, choice] = action
            mask[action] = 0
            if ARMY_ON_NAVY <= action < PAIRED:
                mask[ARMY_ON_NAVY + action % PLAYS] = 0
                mask[NAVY_ON_ARMY + action % PLAYS] = 0


class ThumbPolicy(KernelPolicy):
    """Plays whenever it can, pairs cards that stand equally far from their foundations' bases, and deals on last."""

    name = "thumb"
    game_id = "EmpressOfIndia-v0"
    kernel = staticmethod(play_by_thumb)

    def rank(self, turn: Turn, choices: int) -> NDArray[np.int64]:
        ranked = np.full((len(turn), choices), -1, np.int64)
        rank_by_thumb(turn.states, turn.masks.copy(), ranked)
        return ranked


# -- signs ---------------------------------------------------------------------------------------------------------

STEPS = HEIGHT + 1  # heights of a foundation
SIGN_COUNT = 16


@rule
def is_ready(ready, card):  # type: ignore[no-untyped-def]
    """Tell whether a foundation takes a card; `ready` holds how many foundations of two suits stand at each height."""
    suit = suit_of(card)
    return ready[suit // 2][STEPS * (suit % 2) + _HEIGHTS[card] - 1] > 0


@rule
def grow(ready, card):  # type: ignore[no-untyped-def]
    """Lay a card on its foundation."""
    suit = suit_of(card)
    height = STEPS * (suit % 2) + _HEIGHTS[card]
    ready[suit // 2][height - 1] -= 1
    ready[suit // 2][height] += 1


@helper
def locked_pairs(view):  # type: ignore[no-untyped-def]
    """Return how many pairs can never be played, were every card that is not paired to be had at any time.

    Pairs lock each other: one waits for a card of another. With such pairs a game is lost.
    """
    ready, free = (words(), words()), (words(), words())
    for half in range(2):
        for i in range(2 * STEPS):
            ready[half][i] = 0
            free[half][i] = PACKS
    for foundation in range(FOUNDATIONS):
        suit = foundation // PACKS
        at = STEPS * (suit % 2)
        height = _HEIGHTS[view[foundation]]
        ready[suit // 2][at + height] += 1
        for step in range(1, height + 1):
            free[suit // 2][at + step] -= 1
    left = np.int64(0)
    count = 0
    for place in range(PLACES):
        if view[FOUNDATIONS + PLACES + place] != EMPTY:
            count += 1
            left |= np.int64(1) << place
            for which in range(2):
                card = view[FOUNDATIONS + PLACES * which + place]
                free[suit_of(card) // 2][STEPS * (suit_of(card) % 2) + _HEIGHTS[card]] -= 1
    going = count > 0
    while going:
        going = False
        for half in range(2):
            for i in range(2 * STEPS - 1):
                if i != HEIGHT:
                    number = min(ready[half][i], free[half][i + 1])
                    if number > 0:
                        ready[half][i] -= number
                        ready[half][i + 1] += number
                        free[half][i + 1] -= number
                        going = True
        for place in range(PLACES):
            if (left >> place) & 1:
                lower, upper = view[FOUNDATIONS + place], view[FOUNDATIONS + PLACES + place]
                if is_ready(ready, lower) and is_ready(ready, upper):
                    grow(ready, lower)
                    grow(ready, upper)
                    left &= ~(np.int64(1) << place)
                    count -= 1
                    going = True
    return count


@helper
def signs(state, view, signs):  # type: ignore[no-untyped-def]
    """Write how Army and Navy stand: pairs by how far they are from alike, pairs that lock each other, single cards."""
    locked = locked_pairs(view)
    signs[0] = 0.5 * locked
    signs[1] = 1.0 if locked else 0.0
    wanted = np.int64(0)
    lowest = highest = _HEIGHTS[view[0]]
    for foundation in range(FOUNDATIONS):
        height = _HEIGHTS[view[foundation]]
        lowest, highest = min(lowest, height), max(highest, height)
        if height < HEIGHT:
            wanted |= np.int64(1) << SEQUENCE[foundation // PACKS, height + 1]
        signs[2] += 0.05 * height
    signs[3] = 0.1 * lowest
    signs[4] = 0.1 * highest
    for place in range(PLACES):
        lower, upper = view[FOUNDATIONS + place], view[FOUNDATIONS + PLACES + place]
        side = 1 if place < SIDE else 0
        if upper != EMPTY:
            signs[5 + min(abs(_HEIGHTS[lower] - _HEIGHTS[upper]), 4)] += 0.1
            signs[10] += 0.1 if (wanted >> lower) & (wanted >> upper) & 1 else 0.0
        elif lower != EMPTY:
            signs[11 + side] += 0.05
            signs[13] += 0.1 if (wanted >> lower) & 1 else 0.0
    talons = FOUNDATIONS + 2 * PLACES + 2
    for i in range(2 * TALON):
        if view[talons + i] != EMPTY:
            signs[14 + i // TALON] += 0.05


POLICIES = {"thumb": "ThumbPolicy"}
ROLLOUTS = {"thumb": thumb}
SIGNS = (SIGN_COUNT, signs)
