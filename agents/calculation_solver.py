"""What the solver knows of Calculation."""

from __future__ import annotations

from patience_env.agents.calculation import HELD, order
from patience_env.agents.solver_verbs import RANKS, absorb, add_to_set, word_of
from patience_env.cards import EMPTY, PACK
from patience_env.deals import bits_at
from patience_env.games.calculation import FULL, NEXT, PILES, RANK, in_hand, top_of, wanted
from patience_env.jit import helper, rule


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash the card in hand, the heights of the foundations and the ranks in the piles, whichever pile lies where.

    Suits count for nothing, the piles have no other difference than their place, and all positions of a search have
    the same deck: the number of cards turned tells the stock.
    """
    for pile in range(PILES):
        word = 0
        below = word_of(0)
        height = int(state.height[pile])
        for i in range(height):
            word = (word << 4) | int(RANK[state.piles[pile, i]])
            if i % 15 == 14:
                below = bits_at(below ^ word_of(word))
                word = 0
        if height > 0:
            add_to_set(key, below, word_of(word))
    word = int(state.hand_at)
    for foundation in range(PILES):
        word = (word << 4) | int(state.built[foundation])
    absorb(key, word_of(word))


@rule
def is_last_of_rank(state, rank):  # type: ignore[no-untyped-def]
    """Tell whether only one foundation still takes a rank: only one card of that rank is left to play."""
    takers = 0
    for foundation in range(PILES):
        takers += HELD[foundation, rank] >= state.built[foundation]
    return takers == 1


@helper
def forced(state):  # type: ignore[no-untyped-def]
    """Play a card that fits where it is the last of its rank.

    That never loses a win: the card has no other place to go, nothing can be laid on a foundation in its stead, and
    what would be laid on it can be laid where it lay.
    """
    hand = in_hand(state)
    for foundation in range(PILES):
        rank = wanted(state, foundation)
        if rank > 0 and is_last_of_rank(state, rank):
            if RANK[hand] == rank:
                return foundation
            for pile in range(PILES):
                if RANK[top_of(state, pile)] == rank:
                    return 2 * PILES + PILES * pile + foundation
    return -1


@helper
def candidates(state, mask, moves):  # type: ignore[no-untyped-def]
    """Write the plays, and one laying for all empty piles."""
    hand = in_hand(state)
    count = 0
    for foundation in range(PILES):
        rank = wanted(state, foundation)
        if RANK[hand] == rank:
            moves[count] = foundation
            count += 1
        for pile in range(PILES):
            if RANK[top_of(state, pile)] == rank:
                moves[count] = 2 * PILES + PILES * pile + foundation
                count += 1
    if hand != EMPTY:
        empty = False
        for pile in range(PILES):
            if state.height[pile] > 0 or not empty:
                moves[count] = PILES + pile
                count += 1
            empty = empty or state.height[pile] == 0
    return count


@helper
def is_dead(state):  # type: ignore[no-untyped-def]
    """Tell that the cards in the piles block one another whatever comes.

    Every card is let out as soon as some foundation could take it, and no card is used up: each foundation is built
    as far as any card of the next rank is in the stock, in hand, or let out of a pile or lies free on one. Any real
    play lets out no more and builds no further; so a win needs that all are full in the end.
    """
    at_hand = 0  # a bit for each rank of which there is a card to take
    for i in range(state.hand_at, PACK):
        at_hand |= 1 << RANK[state.deck[i]]
    b0 = int(state.built[0])
    b1 = int(state.built[1])
    b2 = int(state.built[2])
    b3 = int(state.built[3])
    h0 = int(state.height[0])
    h1 = int(state.height[1])
    h2 = int(state.height[2])
    h3 = int(state.height[3])
    changed = True
    while changed:
        changed = False
        for pile in range(PILES):
            height = h0 if pile == 0 else h1 if pile == 1 else h2 if pile == 2 else h3
            while height > 0:
                rank = RANK[state.piles[pile, height - 1]]
                at_hand |= 1 << rank
                # It leaves when some foundation that takes it still, or took it in this relaxed play, has come so far.
                leaves = False
                for foundation in range(PILES):
                    built = b0 if foundation == 0 else b1 if foundation == 1 else b2 if foundation == 2 else b3
                    held = HELD[foundation, rank]
                    leaves = leaves or (held >= state.built[foundation] and held <= built)
                if not leaves:
                    break
                height -= 1
                changed = True
            if pile == 0:
                h0 = height
            elif pile == 1:
                h1 = height
            elif pile == 2:
                h2 = height
            else:
                h3 = height
        while b0 < FULL and (at_hand >> NEXT[0, b0]) & 1:
            b0 += 1
            changed = True
        while b1 < FULL and (at_hand >> NEXT[1, b1]) & 1:
            b1 += 1
            changed = True
        while b2 < FULL and (at_hand >> NEXT[2, b2]) & 1:
            b2 += 1
            changed = True
        while b3 < FULL and (at_hand >> NEXT[3, b3]) & 1:
            b3 += 1
            changed = True
    return b0 + b1 + b2 + b3 < PILES * FULL


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Tell the stage by the cards turned; rank by cards played and by the order of the piles."""
    if is_dead(state):
        return -1
    value = 6.0 * state.played + 0.3 * order(state)
    return RANKS * (int(state.hand_at) - PILES) + min(max(300 - int(value), 0), RANKS - 1)
