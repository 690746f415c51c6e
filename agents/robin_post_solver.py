"""What the solver knows of Robin Post."""

from __future__ import annotations

import numpy as np

from patience_env.agents.nivernaise_solver import wait
from patience_env.agents.solver_verbs import RANKS, absorb, absorb_pile, add_to_set, word_of
from patience_env.cards import suit_of
from patience_env.games.robin_post import DEPTH, POSITIONS
from patience_env.games.twin_foundations import CARDS, fits, played
from patience_env.jit import helper, rule

SIX = 6  # bits of a card code
FAR = 60  # a next card that lies nowhere in reach


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash the piles, the foundations, the waste and how many cards of the stock are gone."""
    for p in range(POSITIONS):
        height = int(state.height[p])
        if height > 0:
            word = 64 + p
            more = 0
            for i in range(height):
                if i < 9:
                    word = (word << SIX) | int(state.layout[DEPTH * p + i])
                else:
                    more = (more << SIX) | int(state.layout[DEPTH * p + i])
            add_to_set(key, word_of(word), word_of(more))
    word = int(state.first)
    for suit in range(4):
        word = (word << 8) | (int(state.up[suit]) << 4) | int(state.down[suit])
    absorb(key, word_of(word))
    absorb_pile(key, state.waste, state.wasted)


@rule
def lower(costs, state, card, cost):  # type: ignore[no-untyped-def]
    """Return the costs (a byte for each foundation) with that of a foundation that takes the card lowered to `cost`."""
    for way in range(2):
        if fits(state, card, way):
            shift = 8 * (2 * suit_of(card) + way)
            if cost < (costs >> shift) & 127:
                costs += (cost - ((costs >> shift) & 127)) << shift
    return costs


@helper
def reach(state):  # type: ignore[no-untyped-def]
    """Return about how many moves bring the next card of every foundation, all together."""
    costs = np.int64(0)
    for foundation in range(8):
        costs |= np.int64(FAR) << (8 * foundation)
    for p in range(POSITIONS):
        for i in range(state.height[p]):
            blocked = 3 * max(2 - int(state.free[p]), 0)
            costs = lower(costs, state, int(state.layout[DEPTH * p + i]), blocked + 3 * i)
    wasted = int(state.wasted)
    for i in range(wasted):
        costs = lower(costs, state, int(state.waste[i]), 3 * (wasted - 1 - i))
    for i in range(state.first, CARDS):
        costs = lower(costs, state, int(state.deck[i]), min(4 + (i - int(state.first)) // 3, FAR))
    total = np.int64(0)
    for foundation in range(8):
        total += (costs >> (8 * foundation)) & 127
    # A full foundation waits for nothing.
    for suit in range(4):
        total -= FAR * ((state.up[suit] == 13) + (state.down[suit] == 13))
    return total


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the cards played; rank by the way to the next cards, cards that cannot be lifted, the waste."""
    value = 2 * reach(state)
    for p in range(POSITIONS):
        height = int(state.height[p])
        if height > 0:
            value += max(2 - int(state.free[p]), 0)
            for i in range(1, height):
                over = wait(state, int(state.layout[DEPTH * p + i - 1]))
                value += 2 if over > wait(state, int(state.layout[DEPTH * p + i])) else 0
    for i in range(1, int(state.wasted)):
        if wait(state, int(state.waste[i])) > wait(state, int(state.waste[i - 1])):
            value += 2
    value += int(state.wasted)
    return RANKS * played(state) + min(value, RANKS - 1)
