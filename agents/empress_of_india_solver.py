"""What the solver knows of The Empress of India."""

from __future__ import annotations

import numpy as np

from patience_env.agents.solver_verbs import RANKS, absorb, add_to_set, word_of
from patience_env.cards import EMPTY
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
    TALON,
    TO_PLAY,
    fits_alone,
    is_single,
    played,
    wanted_cards,
)
from patience_env.jit import helper

# Only some pairings are tried (see `candidates`), so that a search to the end proves nothing.
PROVES = False
SIX = 6  # bits of a card code
GAP = 2
# The height at which each card code lies on its foundation: 1 for a black two or a red queen, 11 for the last.
HEIGHTS = np.zeros(53, np.int64)
for _height in range(1, HEIGHT + 1):
    HEIGHTS[SEQUENCE[:, _height]] = _height


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash the places, the foundations, the talons and how many cards of the pack are gone.

    The places of each side are alike, and so are the foundations of a suit.
    """
    for place in range(PLACES):
        if state.covered[place] != EMPTY:
            side = 1 if place >= SIDE else 0
            word = (side << 12) | (int(state.covered[place]) << SIX) | int(state.covering[place])
            add_to_set(key, word_of(word), word_of(0))
    for suit in range(4):
        heights = 0
        for i in range(4):
            heights += 1 << (4 * int(state.built[4 * suit + i]))
        absorb(key, word_of(heights))
    for colour in range(2):
        word = 1
        for i in range(state.talon_size[colour]):
            word = (word << SIX) | int(state.talon[TALON * colour + i])
            if i % 10 == 9:
                absorb(key, word_of(word))
                word = 1
        absorb(key, word_of(word))
    absorb(key, word_of(state.dealt))


@helper
def first_single(state, card, first):  # type: ignore[no-untyped-def]
    """Return the first place from `first` on that holds a card that is not paired."""
    place = first
    while state.covered[place] != card or not is_single(state, place):
        place += 1
    return place


@helper
def candidates(state, mask, moves):  # type: ignore[no-untyped-def]
    """Write plays, pairings of cards about equally far from their bases, and dealing on; of equal cards only one."""
    wanted = wanted_cards(state)
    count = 0
    for place in range(PLACES):
        both = (1 << int(state.covered[place])) | (1 << int(state.covering[place]))
        if state.covering[place] != EMPTY and (wanted & both) == both:
            moves[count] = PAIRED + place
            count += 1
    for army in range(SIDE):
        if not is_single(state, army) or first_single(state, state.covered[army], 0) != army:
            continue
        red = HEIGHTS[state.covered[army]]
        for navy in range(SIDE):
            place = SIDE + navy
            if not is_single(state, place) or first_single(state, state.covered[place], SIDE) != place:
                continue
            if fits_alone(state, army, wanted) and fits_alone(state, place, wanted):
                moves[count] = SIDE * army + navy
                count += 1
            elif abs(red - HEIGHTS[state.covered[place]]) <= GAP:
                moves[count] = ARMY_ON_NAVY + SIDE * army + navy
                moves[count + 1] = NAVY_ON_ARMY + SIDE * army + navy
                count += 2
    if state.dealt < TO_PLAY:
        moves[count] = DEAL_ON
        count += 1
    return count


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by cards played and paired; rank by how unlike the pairs are and by the talons."""
    pairs = 0
    gaps = 0
    for place in range(PLACES):
        if state.covering[place] != EMPTY:
            pairs += 1
            gaps += abs(HEIGHTS[state.covered[place]] - HEIGHTS[state.covering[place]])
    rank = 8 * gaps + 3 * pairs + 2 * (int(state.talon_size[RED]) + int(state.talon_size[BLACK]))
    return RANKS * played(state) + min(rank, RANKS - 1)
