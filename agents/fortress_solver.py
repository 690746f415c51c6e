"""What the solver knows of Fortress."""

from __future__ import annotations

from patience_env.agents.solver_verbs import RANKS, add_to_set, word_of
from patience_env.cards import rank_of, suit_of
from patience_env.games.fortress import LONGEST, ROWS, slot_of
from patience_env.jit import helper


@helper
def fingerprint(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Hash the rows, whichever of them lies where.

    The rows have no other difference than their place: an empty one is a lane like any other, and no rule looks at how
    many cards were dealt. So positions with the same rows in another order are won alike. The foundations follow from
    the rows: what does not lie there is on them.
    """
    for row in range(ROWS):
        first = LONGEST * row
        length = int(state.length[row])
        word = 0
        more = 0
        for i in range(length):
            if i < 10:
                word = (word << 6) | int(state.wall[first + i])
            else:
                more = (more << 6) | int(state.wall[first + i])
        if length > 0:
            add_to_set(key, word_of(word), word_of(more))


@helper
def forced(state):  # type: ignore[no-untyped-def]
    """Play any outside card that its foundation takes, at once.

    That never loses a win. Take a winning line from the position before, and play it from the position after the card
    went up, leaving out what cannot be done: let every card go up as early as it can. At each moment the cards that
    are up here include those that are up there, and each row here is the row there without the cards that are up
    here; so a card that lies outside there, lies outside here or is up. A move there onto a card y is a move of y + 1
    or y - 1. If y is still in its row here, the same move can be made. If y is up, so is y - 1, and y + 1 goes up
    itself. A move into a lane can be made too, since an empty row there is empty here.
    """
    for row in range(ROWS):
        length = int(state.length[row])
        if length > 0:
            card = int(state.wall[LONGEST * row + length - 1])
            if state.founded[suit_of(card)] + 1 == rank_of(card):
                return (ROWS + 1) * row
    return -1


@helper
def candidates(state, mask, moves):  # type: ignore[no-untyped-def]
    """Write the marriages and the moves into the first lane (lanes are all alike).

    A row's only card is not moved to a lane: that changes nothing.
    """
    lane = -1
    for row in range(ROWS):
        if state.length[row] == 0:
            lane = row
            break
    count = 0
    for row in range(ROWS):
        length = int(state.length[row])
        if length == 0:
            continue
        if lane >= 0 and length > 1:
            moves[count] = ROWS * row + lane
            count += 1
        slot = slot_of(state.wall[LONGEST * row + length - 1])
        for step in range(-1, 2, 2):
            other = int(state.outside[slot + step])
            if other > 0:
                moves[count] = ROWS * row + other - 1
                count += 1
    return count


@helper
def promise(state, gained):  # type: ignore[no-untyped-def]
    """Count what lies in the way: the cards on each card that its foundation needs soon, runs, lanes."""
    played = 0
    wait = 0
    pairs = 0
    lanes = 0
    for suit in range(4):
        played += int(state.founded[suit])
    for row in range(ROWS):
        first = LONGEST * row
        length = int(state.length[row])
        if length == 0:
            lanes += 1
        groups = 0
        before = -9
        for i in range(length - 1, -1, -1):
            card = int(state.wall[first + i])
            ahead = rank_of(card) - int(state.founded[suit_of(card)]) - 1
            if abs(card - before) == 1 and suit_of(card) == suit_of(before):
                pairs += 1
            else:
                groups += 1
            before = card
            if ahead < 3:
                wait += (groups - 1) * (3 - ahead)
    rank = 200 + 2 * wait - 6 * pairs - 12 * lanes
    return RANKS * played + min(max(rank, 0), RANKS - 1)
