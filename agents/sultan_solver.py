"""What the solver knows of The Sultan: its later shuffles are those that the deal number fixes."""

from __future__ import annotations

from patience_env.agents.solver_verbs import RANKS, absorb, absorb_pile, add_to_set, word_of
from patience_env.agents.sultan import cards_before
from patience_env.cards import EMPTY
from patience_env.games.sultan import DIVAN, PACKETS, REDEAL, TALON, TO_PLAY, TURN, legal, played
from patience_env.jit import helper

SIX = 6  # bits of a card code


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash packets, Divan, talon, stock and, while a redeal is left, the stream of the shuffles.

    Two packets of a suit that stand at each other's height are alike, and so are the places of the Divan.
    """
    for place in range(DIVAN):
        if state.divan[place] != EMPTY:
            add_to_set(key, word_of(state.divan[place]), word_of(0))
    word = int(state.redeals_left)
    for suit in range(PACKETS // 2):
        one = int(state.taken[2 * suit])
        two = int(state.taken[2 * suit + 1])
        word = (word << 8) | (min(one, two) << 4) | max(one, two)
    absorb(key, word_of(word))
    absorb_pile(key, state.talon, state.talon_size)
    if state.redeals_left > 0:
        absorb(key, word_of(state.rng))
    if state.redeals_left == state.redeals:  # the stock is still the one of the deal
        absorb(key, word_of(state.turned))
    else:
        word = 1
        for i in range(state.turned, TO_PLAY):
            word = (word << SIX) | int(state.pack[i])
            if i % 10 == 9:
                absorb(key, word_of(word))
                word = 1
        absorb(key, word_of(word))


@helper
def candidates(state, mask, moves):  # type: ignore[no-untyped-def]
    """Write the legal moves, of equal cards of the Divan only one."""
    legal(state, mask)
    count = 0
    seen = 0
    for action in range(TALON, -1, -1):
        if mask[action]:
            card = int(state.divan[action]) if action < DIVAN else 0
            if action == TALON or not (seen >> card) & 1:
                moves[count] = action
                count += 1
                if action < DIVAN:
                    seen |= 1 << card
    for action in range(TURN, REDEAL + 1):
        if mask[action]:
            moves[count] = action
            count += 1
    return count


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the cards played; rank by how long the Divan's cards wait, the talon's size and the redeals."""
    wait = 0
    for place in range(DIVAN):
        if state.divan[place] != EMPTY:
            wait += cards_before(state, state.divan[place])
    rank = 3 * wait + int(state.talon_size) + 60 * (2 - min(int(state.redeals_left), 2))
    rank -= (TO_PLAY - int(state.turned)) // 2
    return RANKS * played(state) + min(max(50 + rank, 0), RANKS - 1)
