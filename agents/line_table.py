"""`LinePolicy`: Patience Poker by a table of abstract partial lines.

A tableau is worth the sum of what its ten lines are worth, and a partial line is worth the mean of what such lines
came to score in the end. "Such lines" is the whole art: a line is looked up by what can still become of it
(`index_of`): how its ranks are grouped and how many of each may still come, its suit and how many of that may still
come, the straights that are left, how many cards are placed, whether other lines of the same axis want the same cards,
and whether it is a row or a column. Rows and columns have values of their own, for collecting suits one way and ranks
the other is the plan that pays. Which axis of a board plays which part is free (transposing changes no rule), so the
policy takes the better of the two.

`train_games` learns the table by self-play; `patience_env.training.line_training` runs it and saves the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, Turn
from patience_env.cards import EMPTY, PACK
from patience_env.deals import RESERVED_DEALS, draw_below, draw_card, next_bits
from patience_env.game import Game
from patience_env.games.patience_poker import CANVAS, CARDS, CENTRE, GAME, SIDE
from patience_env.games.poker_hands import (
    FLUSH,
    FOUR,
    FULL_HAND,
    HIGH_CARD,
    PAIR,
    ROYAL,
    SCORED,
    STRAIGHT,
    STRAIGHT_FLUSH,
    TABLES,
    TRIPLETS,
    TWO_PAIRS,
    check_scoring,
    points_table,
)
from patience_env.jit import JIT, helper, kernel, rule

MODEL = "line.json"
MODELS = Path(__file__).resolve().parent / "models"
NO_SUIT, MIXED = 4, 5
LINES = 2 * CANVAS
CLAIMS = 17

# A board as the table sees it: its lines, not its cards. Lines 0 to 8 are rows, 9 to 17 columns.
BOARD = np.dtype(
    [
        ("rng", np.uint64),  # the stream of chance
        ("placed", np.int64),
        ("side", np.int64),  # 5, or 9 for the touching canvas
        ("flip", np.int64),  # 1: rows are valued as columns and columns as rows
        ("span", np.int64, (4,)),  # first and last row, first and last column that hold a card
        ("filled", np.int64, (CANVAS,)),  # a bit for each cell of a row that holds a card
        ("cards", np.int64, (LINES,)),  # how many
        ("suit", np.int64, (LINES,)),  # 0 to 3, NO_SUIT (empty) or MIXED
        ("ranks", np.int64, (LINES,)),  # a bit for each rank
        ("counts", np.int64, (LINES,)),  # three bits for each rank
        ("pairs", np.int64, (LINES,)),  # pairs of equal ranks
        ("claims", np.int64, (2 * CLAIMS,)),  # of each axis: incomplete lines with each rank (13), of each suit (4)
        ("unseen", np.int64, (CLAIMS,)),  # cards not seen of each rank, then of each suit
        ("pack", np.int64),  # a bit for each card not seen
        ("now", np.float64, (LINES,)),  # the worth of each line
        ("gain", np.float64, (LINES,)),  # what the axis gains when the card in hand goes into the line
        ("key", np.int64, (LINES,)),  # where the table holds each line
        ("deck", np.int8, (PACK,)),
        ("score", np.float64),  # points of the complete lines
    ],
    align=True,
)


def new_boards(count: int) -> NDArray[Any]:
    """Return so many blank boards, in the form that compiled (or else plain) functions take."""
    boards: NDArray[Any] = np.zeros(count, BOARD)
    return boards if JIT else boards.view(np.recarray)


# -- the lines ---------------------------------------------------------------------------------------------------

STRAIGHTS = [sum(1 << ((low + step) % 13) for step in range(5)) for low in range(10)]
# The lowest rank in a set of ranks; the straights (a bit each) that contain it; whether it is a straight.
LOWEST_RANK = np.array([0] + [(ranks & -ranks).bit_length() - 1 for ranks in range(1, 8192)], np.int64)
WITHIN = np.array(
    [sum(1 << i for i, window in enumerate(STRAIGHTS) if ranks & ~window == 0) for ranks in range(8192)], np.int64
)
IS_STRAIGHT = np.array([ranks in STRAIGHTS for ranks in range(8192)], np.int64)
WINDOW = np.array(STRAIGHTS, np.int64)
RANKS_HAND = np.array([HIGH_CARD, PAIR, TWO_PAIRS, TRIPLETS, FULL_HAND, HIGH_CARD, FOUR])


@rule
def hand_of(board, line):  # type: ignore[no-untyped-def]
    """Return the hand that a complete line is."""
    pairs = board.pairs[line]
    if pairs > 0:
        return RANKS_HAND[pairs]
    straight = IS_STRAIGHT[board.ranks[line]]
    if board.suit[line] == MIXED:
        return STRAIGHT if straight else HIGH_CARD
    if not straight:
        return FLUSH
    return ROYAL if WITHIN[board.ranks[line]] == 512 else STRAIGHT_FLUSH


@rule
def claim(board, line, sign):  # type: ignore[no-untyped-def]
    """Count (or with `sign` -1 no longer count) the ranks and the suit that an incomplete line wants."""
    size = board.cards[line]
    if 0 < size < SIDE:
        first = CLAIMS * (line // CANVAS)
        ranks = board.ranks[line]
        while ranks:
            board.claims[first + LOWEST_RANK[ranks]] += sign
            ranks &= ranks - 1
        if board.suit[line] < NO_SUIT:
            board.claims[first + 13 + board.suit[line]] += sign


@helper
def extend(board, line, card):  # type: ignore[no-untyped-def]
    """Lay a card (0 to 51) into a line."""
    claim(board, line, -1)
    rank = card % 13
    suit = card // 13
    board.cards[line] += 1
    board.suit[line] = suit if board.suit[line] == NO_SUIT or board.suit[line] == suit else MIXED
    board.pairs[line] += (board.counts[line] >> (3 * rank)) & 7
    board.counts[line] += 1 << (3 * rank)
    board.ranks[line] |= 1 << rank
    claim(board, line, 1)


@rule
def mark(board, row, column):  # type: ignore[no-untyped-def]
    """Take a cell."""
    board.filled[row] |= 1 << column
    span = board.span
    span[0] = min(span[0], row)
    span[1] = max(span[1], row)
    span[2] = min(span[2], column)
    span[3] = max(span[3], column)
    board.placed += 1


@helper
def lay(board, cell, card, points):  # type: ignore[no-untyped-def]
    """Lay a card (0 to 51) on a cell; lines that it completes score."""
    row = cell // board.side
    column = cell % board.side
    mark(board, row, column)
    extend(board, row, card)
    extend(board, CANVAS + column, card)
    if board.cards[row] == SIDE:
        board.score += points[hand_of(board, row)]
    if board.cards[CANVAS + column] == SIDE:
        board.score += points[hand_of(board, CANVAS + column)]


@rule
def see_card(board, card):  # type: ignore[no-untyped-def]
    """Turn a card (0 to 51): it is unseen no more."""
    board.unseen[card % 13] -= 1
    board.unseen[13 + card // 13] -= 1
    board.pack &= ~(1 << card)


@helper
def clear(board, side):  # type: ignore[no-untyped-def]
    """Make the board empty, with a whole pack unseen."""
    board.side = side
    board.flip = 0
    board.placed = 0
    board.score = 0.0
    board.span[0] = board.span[2] = CANVAS
    board.span[1] = board.span[3] = -1
    for i in range(CANVAS):
        board.filled[i] = 0
    for i in range(LINES):
        board.cards[i] = 0
        board.suit[i] = NO_SUIT
        board.ranks[i] = 0
        board.counts[i] = 0
        board.pairs[i] = 0
    for i in range(2 * CLAIMS):
        board.claims[i] = 0
    for i in range(13):
        board.unseen[i] = 4
    for i in range(13, CLAIMS):
        board.unseen[i] = 13
    board.pack = (1 << PACK) - 1


@helper
def read_board(state, board, points):  # type: ignore[no-untyped-def]
    """Set a board up from a position of the game, its card in hand seen."""
    side = CANVAS if state.touching else SIDE
    clear(board, side)
    for cell in range(side * side):
        if state.cells[cell] != EMPTY:
            card = int(state.cells[cell]) - 1
            see_card(board, card)
            lay(board, cell, card, points)
    for i in range(PACK):
        board.deck[i] = state.deck[i]
    if board.placed < CARDS:
        see_card(board, int(state.deck[board.placed]) - 1)


@helper
def copy_board(board, source):  # type: ignore[no-untyped-def]
    """Make a board like another one, but for its pack and what was weighed (many times faster than copying records)."""
    board.placed = source.placed
    board.side = source.side
    board.flip = source.flip
    board.pack = source.pack
    board.score = source.score
    for i in range(4):
        board.span[i] = source.span[i]
    for i in range(CANVAS):
        board.filled[i] = source.filled[i]
    for i in range(LINES):
        board.cards[i] = source.cards[i]
        board.suit[i] = source.suit[i]
        board.ranks[i] = source.ranks[i]
        board.counts[i] = source.counts[i]
        board.pairs[i] = source.pairs[i]
    for i in range(2 * CLAIMS):
        board.claims[i] = source.claims[i]
    for i in range(CLAIMS):
        board.unseen[i] = source.unseen[i]


@rule
def legal_columns(board, row):  # type: ignore[no-untyped-def]
    """Return a bit for each column where the next card may go in a row, as both placements have it."""
    if board.side == SIDE:
        return 31 & ~board.filled[row]
    span = board.span
    if row <= span[1] - SIDE or row >= span[0] + SIDE:
        return 0
    near = board.filled[row]
    if row > 0:
        near |= board.filled[row - 1]
    if row < CANVAS - 1:
        near |= board.filled[row + 1]
    near |= (near << 1) | (near >> 1)
    within = (1 << min(span[2] + SIDE, CANVAS)) - (1 << max(span[3] - SIDE + 1, 0))
    return near & within & ~board.filled[row]


# -- the table ---------------------------------------------------------------------------------------------------

# Lines without a pair, by: axis, cards placed, cards in the line (1 to 4), cards left of the suit, other lines of it,
# straights left, cards left of the ranks. Lines with a pair, by: axis, cards placed, grouping, for the two largest
# groups how many cards are left and how many other lines hold the rank, cards left of the other ranks.
SUIT_LEFT, SUIT_LINES, STRAIGHT_CLASSES, RANKS_LEFT = 12, 3, 7, 10
GROUPINGS, FIRST_LEFT, FIRST_LINES, SECOND_LEFT, SECOND_LINES, OTHERS_LEFT = 7, 3, 3, 4, 2, 4
PLAIN = 4 * SUIT_LEFT * SUIT_LINES * STRAIGHT_CLASSES * RANKS_LEFT
PAIRED = GROUPINGS * FIRST_LEFT * FIRST_LINES * SECOND_LEFT * SECOND_LINES * OTHERS_LEFT
PER_STAGE = 1 + PLAIN + PAIRED
STAGES = 2 * (CARDS + 1)
ENTRIES = STAGES * PER_STAGE
# The grouping of a line by 7 * cards + pairs of equal ranks.
GROUPING = np.zeros(35, np.int64)
for _number, (_cards, _pairs) in enumerate(((2, 1), (3, 1), (3, 3), (4, 1), (4, 2), (4, 3), (4, 6))):
    GROUPING[7 * _cards + _pairs] = _number
# The upper bounds of the classes of straights left, for a line of n cards: row n.
STRAIGHT_STEPS = np.array([[share * 4.0 ** (SIDE - n) for share in (0.25, 0.6, 1.0, 1.6, 2.5)] for n in range(5)])


@rule
def straight_class(board, ranks, size):  # type: ignore[no-untyped-def]
    """Return how many ways are left to fill a straight, in seven classes from none."""
    windows = WITHIN[ranks]
    ways = 0
    for i in range(10):
        if (windows >> i) & 1:
            missing = WINDOW[i] & ~ranks
            product = 1
            while missing:
                product *= board.unseen[LOWEST_RANK[missing]]
                missing &= missing - 1
            ways += product
    if ways == 0:
        return 0
    step = 0
    while step < 5 and ways > STRAIGHT_STEPS[size, step]:
        step += 1
    return step + 1


@helper
def index_of(board, line, placed):  # type: ignore[no-untyped-def]
    """Return where the table holds an incomplete line when `placed` cards are placed."""
    axis = line // CANVAS
    size = board.cards[line]
    start = (((axis ^ board.flip) * (CARDS + 1)) + placed) * PER_STAGE
    if size == 0:
        return start
    ranks = board.ranks[line]
    claims = CLAIMS * axis
    if board.pairs[line] == 0:
        left = 0
        rest = ranks
        while rest:
            left += board.unseen[LOWEST_RANK[rest]]
            rest &= rest - 1
        suit_left = 0
        suit_lines = 0
        suit = board.suit[line]
        if suit < NO_SUIT:
            suit_left = 1 + min(board.unseen[13 + suit], SUIT_LEFT - 2)
            suit_lines = min(board.claims[claims + 13 + suit] - 1, SUIT_LINES - 1)
        key = size - 1
        key = key * SUIT_LEFT + suit_left
        key = key * SUIT_LINES + suit_lines
        key = key * STRAIGHT_CLASSES + straight_class(board, ranks, size)
        return start + 1 + key * RANKS_LEFT + min(left, RANKS_LEFT - 1)
    first = -1
    second = -1
    left = 0
    counts = board.counts[line]
    while ranks:
        rank = LOWEST_RANK[ranks]
        unseen = board.unseen[rank]
        left += unseen
        # Larger groups first, then those of which more is left; the rank itself only rides along.
        weight = (((counts >> (3 * rank)) & 7) * 8 + unseen) * 16 + rank
        if weight > first:
            second = first
            first = weight
        elif weight > second:
            second = weight
        ranks &= ranks - 1
    first_left = (first >> 4) & 7
    second_left = 0
    second_lines = 0
    if second >= 0:
        second_left = (second >> 4) & 7
        second_lines = min(board.claims[claims + (second & 15)] - 1, SECOND_LINES - 1)
    key = GROUPING[7 * size + board.pairs[line]]
    key = key * FIRST_LEFT + first_left
    key = key * FIRST_LINES + min(board.claims[claims + (first & 15)] - 1, FIRST_LINES - 1)
    key = key * SECOND_LEFT + second_left
    key = key * SECOND_LINES + second_lines
    return start + 1 + PLAIN + key * OTHERS_LEFT + min(left - first_left - second_left, OTHERS_LEFT - 1)


@rule
def worth(board, line, placed, values, points):  # type: ignore[no-untyped-def]
    """Return the worth of a line: its points when complete, else the table's value."""
    if board.cards[line] == SIDE:
        return points[hand_of(board, line)]
    return np.float64(values[index_of(board, line, placed)])


@helper
def gain_of(board, line, card, placed, values, points):  # type: ignore[no-untyped-def]
    """Return what an axis gains when a card goes into one of its lines, the lines that want the same cards included."""
    size, suit, ranks = board.cards[line], board.suit[line], board.ranks[line]
    counts, pairs = board.counts[line], board.pairs[line]
    extend(board, line, card)
    gain = worth(board, line, placed, values, points) - board.now[line]
    # Other lines are worth something else only where a claim on their cards came or went.
    changed = ranks if size == SIDE - 1 else board.ranks[line] & ~ranks
    suits = 0
    if suit < NO_SUIT and (board.suit[line] != suit or size == SIDE - 1):
        suits = 1 << suit
    elif suit == NO_SUIT:
        suits = 1 << board.suit[line]
    first = line // CANVAS * CANVAS
    for other in range(first, first + board.side):
        if other != line and 0 < board.cards[other] < SIDE:
            if board.pairs[other] == 0:
                touched = (suits >> board.suit[other]) & 1
            else:
                touched = board.ranks[other] & changed
            if touched:
                gain += worth(board, other, placed, values, points) - board.now[other]
    claim(board, line, -1)
    board.cards[line] = size
    board.suit[line] = suit
    board.ranks[line] = ranks
    board.counts[line] = counts
    board.pairs[line] = pairs
    claim(board, line, 1)
    return gain


@helper
def weigh(board, card, values, points):  # type: ignore[no-untyped-def]
    """Write what each line is worth now and gains by a card (0 to 51), seen already; return the worth of all lines."""
    placed = board.placed + 1
    total = board.score
    for axis in range(2):
        first = axis * CANVAS
        used = 0
        empty = -1
        for line in range(first, first + board.side):
            size = board.cards[line]
            if size == SIDE:
                used += 1
                continue
            if size == 0 and empty >= 0:
                board.key[line] = board.key[empty]
                board.now[line] = board.now[empty]
                continue
            board.key[line] = index_of(board, line, placed)
            board.now[line] = np.float64(values[board.key[line]])
            if size == 0:
                empty = line
            else:
                used += 1
                total += board.now[line]
        if empty >= 0:
            # Of the canvas's empty lines only so many will be used that there are five.
            total += (SIDE - used) * board.now[empty]
        fresh = -1
        for line in range(first, first + board.side):
            if board.cards[line] == SIDE:
                continue
            if board.cards[line] == 0 and fresh >= 0:
                board.gain[line] = board.gain[fresh]
                continue
            board.gain[line] = gain_of(board, line, card, placed, values, points)
            if board.cards[line] == 0:
                fresh = line
    return total


@rule
def count_open(board):  # type: ignore[no-untyped-def]
    """Return how many cells are legal."""
    count = 0
    for row in range(board.side):
        columns = legal_columns(board, row)
        while columns:
            count += 1
            columns &= columns - 1
    return count


@helper
def open_cells(board, row, column):  # type: ignore[no-untyped-def]
    """Return how many cells are legal once a card lies on a cell, under the touching rule."""
    span = board.span
    first_row, last_row, first_column, last_column = span[0], span[1], span[2], span[3]
    span[0] = min(first_row, row)
    span[1] = max(last_row, row)
    span[2] = min(first_column, column)
    span[3] = max(last_column, column)
    board.filled[row] |= 1 << column
    count = count_open(board)
    board.filled[row] &= ~(1 << column)
    span[0], span[1], span[2], span[3] = first_row, last_row, first_column, last_column
    return count


@rule
def best_cell(board):  # type: ignore[no-untyped-def]
    """Return the legal cell whose row and column gain most, and the gain.

    Of equals it is the first, but under the touching rule the one after which most cells are open.
    """
    best = -np.inf
    chosen = -1
    most = -1
    for row in range(board.side):
        columns = legal_columns(board, row)
        if columns:
            across = board.gain[row]
            for column in range(board.side):
                if (columns >> column) & 1:
                    gain = across + board.gain[CANVAS + column]
                    if gain > best:
                        best = gain
                        chosen = row * board.side + column
                        most = -1
                    elif gain == best and board.side > SIDE:
                        if most < 0:
                            most = open_cells(board, chosen // CANVAS, chosen % CANVAS)
                        here = open_cells(board, row, column)
                        if here > most:
                            most = here
                            chosen = row * CANVAS + column
    return chosen, best


@helper
def random_cell(board, stream):  # type: ignore[no-untyped-def]
    """Return a legal cell at random, from the stream of another record (the board's own turns the cards)."""
    left = draw_below(stream, count_open(board))
    for row in range(board.side):
        columns = legal_columns(board, row)
        for column in range(board.side):
            if (columns >> column) & 1:
                if left == 0:
                    return row * board.side + column
                left -= 1
    return -1


@helper
def learn(board, history, values, visits, slowest):  # type: ignore[no-untyped-def]
    """Move the table's values of all lines that became complete towards what they scored.

    `history` holds the index of each line after each move (row: cards placed), `board.now` the points of each line.
    A value is the running mean, of at least the last 1 / `slowest` lines or so, for early games were played badly.
    """
    for line in range(LINES):
        if board.cards[line] == SIDE:
            for placed in range(1, CARDS):
                index = history[placed, line]
                if index >= 0:
                    visits[index] += 1
                    rate = max(1.0 / visits[index], slowest)
                    values[index] += np.float32(rate * (board.now[line] - values[index]))


@kernel
def train_games(games, stream, boards, history, values, visits, points, touching, chance, slowest):  # type: ignore[no-untyped-def]
    """Play games against oneself and learn from each; return the points of all together.

    Args:
        games: how many.
        stream: BOARD record, of which only `rng` matters: where deals and random moves come from.
        boards: a BOARD record to play on.
        history: int64, (CARDS + 1, LINES), scratch.
        values, visits: the table, float32 and int32, (ENTRIES,).
        points: of the ten hands.
        touching: 1 for the touching placement, 0 for the fixed square.
        chance: the probability of a random move.
        slowest: the least learning rate, see `learn`.
    """
    board = boards[0]
    total = 0.0
    threshold = np.int64(chance * 4294967296.0)
    for _ in range(games):
        # Numbers below 2**32 name the deals that players are compared on: training never plays those.
        deal = np.uint64(next_bits(stream[0]))
        while deal < np.uint64(RESERVED_DEALS):
            deal = np.uint64(next_bits(stream[0]))
        clear(board, CANVAS if touching else SIDE)
        board.rng = deal
        for i in range(PACK):
            board.deck[i] = i + 1
        for placed in range(CARDS):
            card = int(draw_card(board, board.deck, placed, PACK)) - 1
            see_card(board, card)
            for line in range(LINES):
                history[placed + 1, line] = -1
            if touching and placed == 0:
                lay(board, CENTRE, card, points)
                continue
            weigh(board, card, values, points)
            if chance > 0.0 and np.int64(next_bits(stream[0]) >> 32) < threshold:
                cell = random_cell(board, stream[0])
            else:
                cell, _ = best_cell(board)
            lay(board, cell, card, points)
            row = cell // board.side
            column = CANVAS + cell % board.side
            for line in range(LINES):
                if line % CANVAS < board.side and board.cards[line] < SIDE:
                    history[placed + 1, line] = board.key[line]
            for line in (row, column):
                if board.cards[line] < SIDE:
                    history[placed + 1, line] = index_of(board, line, placed + 1)
        total += board.score
        for line in range(LINES):
            if board.cards[line] == SIDE:
                board.now[line] = points[hand_of(board, line)]
        learn(board, history, values, visits, slowest)
    return total


@kernel
def play_deals(deals, boards, values, points, touching, scores):  # type: ignore[no-untyped-def]
    """Play each deal (uint64) by the table and write its points: what an evaluation of the policy would find."""
    board = boards[0]
    for i in range(deals.shape[0]):
        clear(board, CANVAS if touching else SIDE)
        board.rng = deals[i]
        for place in range(PACK):
            board.deck[place] = place + 1
        for placed in range(CARDS):
            card = int(draw_card(board, board.deck, placed, PACK)) - 1
            see_card(board, card)
            cell = CENTRE
            if placed > 0 or not touching:
                cell = best_move(board, card, values, points)
            lay(board, cell, card, points)
        scores[i] = board.score


@kernel
def play_tally(deals, boards, values, points, touching, scores, hands):  # type: ignore[no-untyped-def]
    """Play each deal (uint64) by the table; count the hands of its rows and columns in `hands`, int64, (2, 10)."""
    for i in range(deals.shape[0]):
        play_deals(deals[i : i + 1], boards, values, points, touching, scores[i : i + 1])
        board = boards[0]
        for line in range(LINES):
            if board.cards[line] == SIDE:
                hands[line // CANVAS, hand_of(board, line)] += 1


@helper
def best_move(board, card, values, points):  # type: ignore[no-untyped-def]
    """Return the best cell for a card (0 to 51), with the axes cast as suits the board better."""
    board.flip = 1
    turned = weigh(board, card, values, points)
    turned_cell, gain = best_cell(board)
    turned += gain
    board.flip = 0
    upright = weigh(board, card, values, points)
    cell, gain = best_cell(board)
    upright += gain
    if turned > upright:
        board.flip = 1
        return turned_cell
    return cell


@kernel
def table_cells(states, boards, values, points, actions):  # type: ignore[no-untyped-def]
    """Write the cell that the table likes best, for every position."""
    for i in range(states.shape[0]):
        read_board(states[i], boards[0], points)
        card = int(states[i].deck[states[i].placed]) - 1
        actions[i] = best_move(boards[0], card, values, points)


# -- the policy --------------------------------------------------------------------------------------------------

# What a saved table must have been made with to be read by this version.
SHAPE = [SUIT_LEFT, SUIT_LINES, STRAIGHT_CLASSES, RANKS_LEFT]
SHAPE += [GROUPINGS, FIRST_LEFT, FIRST_LINES, SECOND_LEFT, SECOND_LINES, OTHERS_LEFT]


def points_of(scoring: str | Mapping[str, float]) -> NDArray[np.float64]:
    """Return the points of the ten hands of a given scoring table.

    Raises:
        TypeError, ValueError: it is no table, or "random".
    """
    checked = check_scoring(scoring)
    if checked == "random":
        raise ValueError(
            "scoring='random' is not one table: a line table is trained for one, so give a name or nine numbers"
        )
    return np.array(points_table(checked), np.float64)


def points_text(points: NDArray[np.float64]) -> str:
    """Return a scoring table in words: the nine points with their hands."""
    return ", ".join(f"{name} {value:g}" for name, value in zip(SCORED, points[1:], strict=True))


def save_table(
    folder: str | os.PathLike[str], values: NDArray[np.float32], visits: NDArray[np.int32], facts: Mapping[str, Any]
) -> None:
    """Save the entries that training visited into a folder (made if need be), and what made them.

    `facts` must hold `placement`, `points` (the ten) and whatever else should be told.
    """
    from patience_env.training.models import write_pair

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    seen = np.flatnonzero(visits)
    tensors = {"index": seen.astype(np.uint32), "value": values[seen]}
    write_pair(target / MODEL, tensors, {"game": GAME.id, "shape": SHAPE, **facts})


def load_table(folder: str | os.PathLike[str]) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return the values of a saved table, float32, (ENTRIES,), and the facts of its file.

    Raises:
        ValueError: it is missing, damaged, changed, or made for another layout of the table.
    """
    from patience_env.training.models import read_pair, small

    path = Path(folder) / MODEL
    facts, tensors = read_pair(path, "line model", small)
    if facts.get("game") != GAME.id or facts.get("shape") != SHAPE:
        raise ValueError(
            f"line model {str(path)!r} was made for {facts.get('game')} and a table of shape {facts.get('shape')}, but "
            f"this version plays {GAME.id} by one of shape {SHAPE}: train it again"
        )
    points = facts.get("points")
    numbers = isinstance(points, list) and all(type(one) in (int, float) and np.isfinite(one) for one in points)
    if not numbers or len(points or ()) != len(SCORED) + 1 or facts.get("placement") not in ("fixed", "touching"):
        raise ValueError(f"line model {str(path)!r} does not tell its placement and the points of ten hands")
    index, value = tensors.get("index"), tensors.get("value")
    if (
        index is None
        or value is None
        or index.dtype != np.uint32
        or value.dtype != np.float32
        or index.ndim != 1
        or index.shape != value.shape
        or (len(index) and int(index.max()) >= ENTRIES)
        or not np.isfinite(value).all()
    ):
        raise ValueError(f"line model {str(path)!r} does not hold finite values with their places in the table")
    values = np.zeros(ENTRIES, np.float32)
    values[index] = value
    return values, facts


def shipped_folder(kind: str, options: Mapping[str, Any]) -> Path:
    """Return the folder of the model of a kind ("value" or "line") that comes with the package for some options.

    Raises:
        ValueError: none comes for this scoring table.
    """
    scoring, placement = options["scoring"], options["placement"]
    if scoring != "random":
        wanted = points_table(scoring)
        for name in TABLES:
            if points_table(name) == wanted:
                return MODELS / f"{kind}-{placement}-{name}"
    for_any = MODELS / f"{kind}-{placement}-random"
    if for_any.is_dir():
        return for_any
    raise ValueError(
        f"no {kind} model comes with the package for placement={placement!r} and this scoring ({scoring!r}), only for "
        f"{', '.join(TABLES)}: train one with patience train-value PatiencePoker-v0 --kind {kind} --scoring ... "
        f"--placement {placement} --out FOLDER, and give path=FOLDER"
    )


def check_fit(what: str, facts: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise ValueError where a model was trained for another placement or scoring table than the game's options."""
    if options["placement"] != facts["placement"]:
        raise ValueError(
            f"{what} was trained for placement={facts['placement']!r}, but the game is played with "
            f"placement={options['placement']!r}"
        )
    if facts["points"] is None:
        return  # it plays for any table
    points = np.array(facts["points"], np.float64)
    if options["scoring"] == "random":
        raise ValueError(
            f"{what} was trained for one scoring table ({points_text(points)}), but the game is played with "
            "scoring='random', another in each deal"
        )
    asked = points_of(options["scoring"])
    if not np.array_equal(asked, points):
        raise ValueError(
            f"{what} was trained for the scoring table {points_text(points)}, but the game is played with "
            f"{points_text(asked)}"
        )


class LinePolicy(Policy):
    """Plays the cell whose row and column gain most by a trained table of partial lines; see the module's docstring.

    Args:
        path: the folder of a model that `patience train-value --kind line` wrote; None: the model that comes with the
            package for the placement and the scoring table in force.

    Raises:
        ValueError: as `load_table`.
    """

    name = "line"
    version = 2
    game_id = GAME.id

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._given = None if path is None else load_table(path)
        self._shipped: dict[Path, tuple[NDArray[np.float32], dict[str, Any]]] = {}

    def model(self, options: Mapping[str, Any]) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Return the table for a game's options, float32, (ENTRIES,), and the facts of its file.

        Raises:
            ValueError: the given model does not fit, or none comes with the package.
        """
        if self._given is not None:
            check_fit(f"line model {str(self._path)!r}", self._given[1], options)
            return self._given
        folder = shipped_folder("line", options)
        if folder not in self._shipped:
            self._shipped[folder] = load_table(folder)
        return self._shipped[folder]

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        return [shipped_folder("line", options) if self._path is None else Path(self._path)]

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where there is no model for the placement or the scoring table."""
        super().check(game, options)
        self.model(options)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the best cell by the table, for every position."""
        values, facts = self.model(turn.options)
        actions = np.zeros(len(turn), np.int64)
        table_cells(turn.states, new_boards(1), values, np.array(facts["points"], np.float64), actions)
        return actions
