"""Policies for Patience Poker: greed, and the old rule of thumb.

Both read the nine points of the scoring table from the position or do not need them, so they play any table, and both
placements: the lines of the touching canvas are simply longer and mostly empty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patience_env.agents import basic
from patience_env.agents.board_values import ValuePolicy
from patience_env.agents.learned import shipped
from patience_env.agents.line_table import LinePolicy
from patience_env.agents.policy import KernelPolicy, Policy, Turn
from patience_env.agents.rollouts import is_one_in
from patience_env.agents.search import SearchPolicy
from patience_env.cards import EMPTY, PACK
from patience_env.deals import advance
from patience_env.games.patience_poker import CANVAS, CARDS, GAME, SIDE, line_points
from patience_env.games.poker_hands import FOUR, FULL_HAND, HIGH_CARD, PAIR, TRIPLETS, TWO_PAIRS
from patience_env.jit import helper, kernel

# The hand that a line holds by its ranks alone, by how many pairs of equal ranks are in it (five pairs cannot be).
RANKS_HAND = np.array([HIGH_CARD, PAIR, TWO_PAIRS, TRIPLETS, FULL_HAND, HIGH_CARD, FOUR])

# What a row of 0 to 5 cards is worth to the rule of thumb, in American points, by its pairs of equal ranks.
ROW_WORTH = np.array(
    [
        [0.0, 0.5, 0.5, 0.0, 0.0, 0.0],  # all different: a first card may stand, more are in the way
        [0.0, 0.0, 5.0, 5.0, 4.0, 2.0],  # a pair
        [0.0, 0.0, 0.0, 0.0, 13.0, 7.0],  # two pairs: four cards of them want a full hand
        [0.0, 0.0, 0.0, 17.0, 17.0, 9.0],  # triplets
        [0.0, 0.0, 0.0, 0.0, 0.0, 30.0],  # a full hand
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 50.0, 50.0],  # fours
    ]
)
# What a column of 0 to 5 cards of one suit is worth.
COLUMN_WORTH = np.array([0.0, 4.0, 6.0, 10.0, 16.0, 23.0])
# The cost of opening a second column for a suit while the first is not full: the two share the suit's cards.
SECOND_COLUMN = 3.0
# The share of its worth that a column loses for each card that it is expected to lack in the end.
LACKING_CARD = 0.5


@helper
def count_ranks(state, first, step, side):  # type: ignore[no-untyped-def]
    """Return a line's cards, its pairs of equal ranks, and how many it has of each rank (three bits a rank)."""
    cards = 0
    pairs = 0
    counts = 0
    for i in range(side):
        code = int(state.cells[first + i * step])
        if code != EMPTY:
            shift = 3 * ((code - 1) % 13)
            cards += 1
            pairs += (counts >> shift) & 7
            counts += 1 << shift
    return cards, pairs, counts


@helper
def points_gained(state, cell, first, step, side):  # type: ignore[no-untyped-def]
    """Return by how many points the card on `cell` would raise what its line holds, a partial line by its ranks."""
    card = int(state.deck[state.placed])
    cards, pairs, counts = count_ranks(state, first, step, side)
    before = state.points[RANKS_HAND[pairs]]
    if cards == SIDE - 1:
        state.cells[cell] = card
        after = line_points(state, first, step, side)
        state.cells[cell] = EMPTY
    else:
        after = state.points[RANKS_HAND[pairs + ((counts >> (3 * ((card - 1) % 13))) & 7)]]
    return after - before


@helper
def cell_gain(state, cell, side):  # type: ignore[no-untyped-def]
    """Return by how many points the card on `cell` would raise what its row and its column hold."""
    gain = points_gained(state, cell, cell - cell % side, 1, side)
    return gain + points_gained(state, cell, cell % side, side, side)


@kernel
def greediest_cells(states, masks, keys, actions):  # type: ignore[no-untyped-def]
    """Write the cell that gains most points now, ties broken by the random numbers in `keys` (float64)."""
    for i in range(states.shape[0]):
        state = states[i]
        side = CANVAS if state.touching else SIDE
        best = -np.inf
        best_key = 0.0
        for cell in range(masks.shape[1]):
            if masks[i, cell]:
                gain = cell_gain(state, cell, side)
                if gain > best or (gain == best and keys[i, cell] > best_key):
                    best = gain
                    best_key = keys[i, cell]
                    actions[i] = cell


@helper
def greedy(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the cell that gains most points now, ties broken by the random `bits`."""
    side = CANVAS if state.touching else SIDE
    best = -np.inf
    chosen = -1
    equals = 0
    chance = bits
    for cell in range(mask.shape[0]):
        if mask[cell]:
            gain = cell_gain(state, cell, side)
            equals = equals + 1 if gain == best else 1
            chance = advance(int(chance))
            if gain > best or (gain == best and is_one_in(equals, chance)):
                best = gain
                chosen = cell
    return chosen


@helper
def suit_of_column(state, column, side):  # type: ignore[no-untyped-def]
    """Return a column's cards and their suit: 0 to 3, 4 when it is empty, 5 when they differ."""
    cards = 0
    suit = 4
    for i in range(side):
        code = int(state.cells[column + i * side])
        if code != EMPTY:
            cards += 1
            own = (code - 1) // 13
            suit = own if suit in (4, own) else 5
    return cards, suit


@helper
def is_begun(state, suit, side):  # type: ignore[no-untyped-def]
    """Tell whether some column, not yet full, collects a suit."""
    for column in range(side):
        cards, own = suit_of_column(state, column, side)
        if own == suit and cards < SIDE:
            return True
    return False


@helper
def column_gain(state, column, suit, side):  # type: ignore[no-untyped-def]
    """Return what a card of a suit does to a column: flushes are built down."""
    cards, own = suit_of_column(state, column, side)
    if own == suit:
        return COLUMN_WORTH[cards + 1] - COLUMN_WORTH[cards]
    if own == 4:
        return COLUMN_WORTH[1] - (SECOND_COLUMN if is_begun(state, suit, side) else 0.0)
    if own == 5:
        return 0.0
    to_come = CARDS - 1 - state.placed
    expected = int(state.unseen[13 + own]) * to_come / (PACK - 1.0 - state.placed)
    lacking = max(SIDE - cards - expected, 0.0)
    return -COLUMN_WORTH[cards] * max(1.0 - LACKING_CARD * lacking, 0.0)


@helper
def row_gain(state, row, rank, side):  # type: ignore[no-untyped-def]
    """Return what a card of a rank (0 to 12) does to a row: pairs, triplets, full hands and fours are built across."""
    cards, pairs, counts = count_ranks(state, side * row, 1, side)
    return ROW_WORTH[pairs + ((counts >> (3 * rank)) & 7), cards + 1] - ROW_WORTH[pairs, cards]


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the cell whose row and column gain most by the rule of thumb, the first of equals."""
    side = CANVAS if state.touching else SIDE
    card = int(state.deck[state.placed]) - 1
    best = -np.inf
    chosen = -1
    for row in range(side):
        across = row_gain(state, row, card % 13, side) if state.in_row[row] < SIDE else 0.0
        for column in range(side):
            cell = side * row + column
            if mask[cell]:
                gain = across + column_gain(state, column, card // 13, side)
                if gain > best:
                    best = gain
                    chosen = cell
    return chosen


@kernel
def thumb_cells(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write the choice of the rule of thumb for every row."""
    for i in range(states.shape[0]):
        actions[i] = thumb(states[i], states, masks[i], states[i].rng)


class GreedyPolicy(basic.GreedyPolicy):
    """Takes the most points now: a partial line counts as the pair, triplets and so on that it already holds.

    Ties are broken at random.
    """

    game_id = GAME.id

    def act(self, turn: Turn) -> NDArray[np.int64]:
        actions = np.zeros(len(turn), np.int64)
        greediest_cells(turn.states, turn.masks, self._rng.random(turn.masks.shape), actions)
        return actions


class FlushRankPolicy(KernelPolicy):
    """The old advice: flushes down the columns; pairs, triplets, full hands and fours along the rows.

    Each cell is valued by the change in worth of its row (`ROW_WORTH`, by ranks) and of its column (`COLUMN_WORTH`, by
    suit). A suit whose column is begun rather goes on there than open a second one, and a column that will not fill
    any more is the place for odd cards. The worths are whole and half American points, rounded by hand from a random
    search over training deals; the scoring table in force is not looked at.
    """

    name = "flush-rank"
    game_id = GAME.id
    kernel = staticmethod(thumb_cells)


def ppo_policy() -> Policy:
    """Return the agent of `patience train PatiencePoker-v0 --option placement=fixed --minutes 30` (American table).

    It comes with the package: a network of line values trained from scratch by MaskablePPO (needs the `train` extra).
    """
    return shipped("poker-fixed-american")


POLICIES = {
    "greedy": "GreedyPolicy",
    "ppo": "ppo_policy",
    "flush-rank": "FlushRankPolicy",
    "thumb": "FlushRankPolicy",
    "line": LinePolicy.__name__,
    "value": ValuePolicy.__name__,
    "search": SearchPolicy.__name__,
}
ROLLOUTS = {"greedy": greedy, "thumb": thumb}
