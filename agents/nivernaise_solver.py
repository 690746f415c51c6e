"""What the solver knows of La Nivernaise."""

from __future__ import annotations

from patience_env.agents.solver_verbs import RANKS, absorb, add_to_set, word_of
from patience_env.cards import EMPTY, rank_of, suit_of
from patience_env.games.nivernaise import (
    DEPTH,
    FLANKS,
    LINE,
    PACKET_TO_FOUNDATION,
    STOCK,
    legal,
    vacancies,
)
from patience_env.games.twin_foundations import played
from patience_env.jit import helper, rule

SIX = 6  # bits of a card code


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash foundations, flanks, packets and stock; what the player has seen does not matter here.

    It does not matter which flank holds which card: the lowest-numbered vacancy is filled, but any would do.
    """
    for flank in range(FLANKS):
        if state.flank[flank] != EMPTY:
            add_to_set(key, word_of(state.flank[flank]), word_of(0))
    word = int(state.redeals)
    for suit in range(4):
        word = (word << 8) | (int(state.up[suit]) << 4) | int(state.down[suit])
    absorb(key, word_of(word))
    for p in range(LINE):
        word = 1
        for i in range(state.height[p]):
            word = (word << SIX) | int(state.cards[DEPTH * p + i])
            if i % 10 == 9:
                absorb(key, word_of(word))
                word = 1
        absorb(key, word_of(word))
    if state.redeals > 0:  # the stock is still the one of the deal
        absorb(key, word_of(state.first))
    else:
        word = 1
        for i in range(state.first, state.end):
            word = (word << SIX) | int(state.cards[STOCK + i])
            if i % 10 == 9:
                absorb(key, word_of(word))
                word = 1
        absorb(key, word_of(word))


@rule
def first_equal(state, flank):  # type: ignore[no-untyped-def]
    """Return the first flank that holds a card equal to that of a flank."""
    f = 0
    while state.flank[f] != state.flank[flank]:
        f += 1
    return f


@helper
def candidates(state, mask, moves):  # type: ignore[no-untyped-def]
    """Write the legal moves, of equal flank cards only one; what comes last, the foundations, is tried first."""
    legal(state, mask)
    count = 0
    for action in range(mask.shape[0] - 1, -1, -1):
        if mask[action] and (action >= PACKET_TO_FOUNDATION or first_equal(state, action // 2) == action // 2):
            moves[count] = action
            count += 1
    return count


@helper
def wait(state, card):  # type: ignore[no-untyped-def]
    """Return how many cards must come onto a foundation of its suit before a card, the nearer one counting."""
    up = rank_of(card) - int(state.up[suit_of(card)]) - 1
    down = 13 - int(state.down[suit_of(card)]) - rank_of(card)
    if up < 0:
        return max(down, 0)
    if down < 0:
        return up
    return min(up, down)


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the cards played; rank by the vacancies, the wait of the flanks' cards, and the redeal."""
    value = 200 - 14 * vacancies(state)
    for flank in range(FLANKS):
        if state.flank[flank] != EMPTY:
            value += 2 * wait(state, int(state.flank[flank]))
    for p in range(LINE):
        height = int(state.height[p])
        for i in range(1, min(height, 5)):
            here = wait(state, int(state.cards[DEPTH * p + height - 1 - i]))
            above = wait(state, int(state.cards[DEPTH * p + height - i]))
            value += 2 if above > here else 0
        value += height // 2
    if state.redeals == 0:
        value += 60
    return RANKS * played(state) + min(max(value, 0), RANKS - 1)
