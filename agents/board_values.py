"""What a tableau of Patience Poker is worth: a small network over its ten lines that sees the whole board.

Each line is described by `FEATURES` numbers: how its ranks are grouped, its suit, the straights that it may still
become, how many of the cards that it wants are unseen, how many other lines want the same cards, and what the lines
that cross its empty cells want. One network turns every row into a vector and another every column; the means of
these vectors over the rows and over the columns tell each line about the rest of the board, and a second layer gives
the points that the line is expected to make. A tableau is worth the points of its complete lines and the sum over the
others.

On the canvas of the touching rule a tableau is seen as the five rows and five columns that it will have in the end:
those that hold a card, and for the rest empty ones. Where on the canvas they lie the network is not told; that many
cells stay open to the cards to come is worth a little by itself (`freedom`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.line_table import (
    GROUPING,
    LINES,
    LOWEST_RANK,
    MIXED,
    NO_SUIT,
    WINDOW,
    WITHIN,
    best_cell,
    check_fit,
    clear,
    copy_board,
    count_open,
    hand_of,
    lay,
    legal_columns,
    new_boards,
    random_cell,
    read_board,
    see_card,
    shipped_folder,
    weigh,
)
from patience_env.agents.policy import Policy, Turn
from patience_env.cards import PACK
from patience_env.deals import draw_below, draw_card, next_bits
from patience_env.game import Game
from patience_env.games.patience_poker import CANVAS, CARDS, CENTRE, GAME, SIDE
from patience_env.games.poker_hands import SCORED
from patience_env.jit import helper, kernel, rule

VALUE_MODEL = "value.json"
# A board is turned where that gains this share of the largest points.
TURN_GAIN = 0.2
ONES = np.array([bin(bits).count("1") for bits in range(8192)], np.int64)

# The features of a line, in order: name and number.
PARTS = {
    "cards in the line": 5,
    "grouping of its ranks": 8,
    "of the first, second and other ranks: unseen, unseen of a suit that a crossing line keeps, other lines": 9,
    "of those, how many may be expected to come": 2,
    "one suit; unseen of it; expected of it; other lines of it; unseen of it whose rank crosses": 5,
    "straights left; ways to fill them; ways to fill the best; straight flush, royal possible; the best's cards": 7,
    "cards that its straights want, that its ranks want: in all, and with the crossing lines, mean and least": 6,
    "crossing lines: empty, of mixed suits, keeping a suit": 3,
    "cards placed": 3,
}
FEATURES = sum(PARTS.values())
# What a network may be told besides, for each of the thirteen ranks: how many cards of it the line holds, those times
# how many are unseen, how many are unseen of what its straights want, and those times the crossing lines that hold it.
RANK_PARTS = {
    "each rank: held": 13,
    "held, times unseen": 13,
    "wanted for straights: unseen": 13,
    "wanted for straights: unseen, times the crossing lines with it": 13,
}
ALL_FEATURES = FEATURES + sum(RANK_PARTS.values())
# A network may have weights of its own for each number of cards on the board but 0 and 25.
STAGES = CARDS - 1
# The worth of an open cell more under the touching rule, as a share of the largest points (see `freedom`).
FREEDOM = 0.0002
# What a network for any table knows of the table: what kind it is, and its nine points.
MOODS = 32 + 9


@rule
def count_cards(pack, ranks):  # type: ignore[no-untyped-def]
    """Return how many cards of a pack (a bit each) have one of the ranks (a bit each)."""
    return ONES[pack & ranks] + ONES[(pack >> 13) & ranks] + ONES[(pack >> 26) & ranks] + ONES[(pack >> 39) & ranks]


@rule
def suits_of(pack, rank):  # type: ignore[no-untyped-def]
    """Return a bit for each suit of which the card of a rank is in the pack."""
    rest = pack >> rank
    return (rest & 1) | ((rest >> 12) & 2) | ((rest >> 24) & 4) | ((rest >> 36) & 8)


@helper
def wish(board, line, wants):  # type: ignore[no-untyped-def]
    """Write which ranks a line wants: `wants[line, 0]` for a straight, `wants[line, 1]` for that or to group ranks."""
    ranks = board.ranks[line]
    size = board.cards[line]
    wanted = 0
    if size == 0:
        wanted = 0
    elif size < SIDE and board.pairs[line] == 0:
        windows = WITHIN[ranks]
        while windows:
            low = LOWEST_RANK[windows]
            windows &= windows - 1
            missing = WINDOW[low] & ~ranks
            rest = missing
            alive = True
            while rest:
                if board.unseen[LOWEST_RANK[rest]] == 0:
                    alive = False
                rest &= rest - 1
            if alive:
                wanted |= missing
    wants[line, 0] = wanted
    wants[line, 1] = wanted | ranks


@helper
def describe_straights(board, line, out, at):  # type: ignore[no-untyped-def]
    """Write the seven features of the straights that a line of different ranks may become."""
    ranks = board.ranks[line]
    suit = board.suit[line]
    windows = WITHIN[ranks]
    count = 0
    ways = 0
    best = 0
    cards = 0
    while windows:
        low = LOWEST_RANK[windows]
        windows &= windows - 1
        missing = WINDOW[low] & ~ranks
        rest = missing
        product = 1
        total = 0
        while rest:
            unseen = board.unseen[LOWEST_RANK[rest]]
            product *= unseen
            total += unseen
            rest &= rest - 1
        if product > 0:
            count += 1
            ways += product
            if product > best:
                best = product
                cards = total
            if suit < NO_SUIT and ((board.pack >> (13 * suit)) & missing) == missing:
                out[at + 4] = 1.0
                if low == 9:
                    out[at + 5] = 1.0
    if count > 0:
        scale = 1.0 / (SIDE - board.cards[line])
        out[at] = 0.25 * count
        out[at + 1] = 0.25 * scale * np.log2(1.0 + ways)
        out[at + 2] = 0.25 * scale * np.log2(1.0 + best)
        out[at + 3] = 1.0
        out[at + 6] = 0.25 * scale * cards


@rule
def describe_ranks(board, line, wanted, out):  # type: ignore[no-untyped-def]
    """Write what is told of each rank; `out` holds how many crossing lines have each of those wanted for straights."""
    rest = board.ranks[line]
    while rest:
        rank = LOWEST_RANK[rest]
        held = (board.counts[line] >> (3 * rank)) & 7
        out[FEATURES + rank] = 0.5 * held
        out[FEATURES + 13 + rank] = 0.25 * held * board.unseen[rank]
        rest &= rest - 1
    while wanted:
        rank = LOWEST_RANK[wanted]
        out[FEATURES + 26 + rank] = 0.25 * board.unseen[rank]
        out[FEATURES + 39 + rank] *= 0.25 * board.unseen[rank]
        wanted &= wanted - 1


@helper
def describe_line(board, line, placed, wants, out):  # type: ignore[no-untyped-def]
    """Write the features of an incomplete line: 0 to 17; 18 and 19 stand for an empty row and column anywhere.

    `out` has room for FEATURES or for ALL_FEATURES of them.
    """
    ranked = out.shape[0] > FEATURES
    for i in range(out.shape[0]):
        out[i] = 0.0
    axis = line // CANVAS if line < LINES else line - LINES
    at = line
    size = 0
    if line < LINES:
        size = board.cards[at]
    pack = board.pack
    out[size] = 1.0
    out[FEATURES - 3] = 0.04 * placed
    out[FEATURES - 2] = 0.0016 * placed * placed
    out[FEATURES - 1] = 1.0 if placed >= 20 else 0.0
    share = np.float64(CARDS - placed) / np.float64(PACK - placed)
    ranks = 0
    straight = 0
    suit = NO_SUIT
    if size > 0:
        ranks = board.ranks[at]
        straight = wants[at, 0]
        suit = board.suit[at]
    # What crosses the empty cells.
    kept = 0
    crossed = 0
    empty = SIDE
    mixed = 0
    keeping = 0
    wanted_mean = 0
    wanted_least = 52
    ranks_mean = 0
    ranks_least = 52
    first_cross = CANVAS * (1 - axis)
    for cross in range(first_cross, first_cross + board.side):
        cards = board.cards[cross]
        if cards == 0:
            continue
        if size > 0:
            row = line if axis == 0 else cross
            column = cross - CANVAS if axis == 0 else line - CANVAS
            if (board.filled[row] >> column) & 1:
                empty -= 1
                continue
        if cards == SIDE:
            continue
        empty -= 1
        want = wants[cross, 1]
        if board.suit[cross] == MIXED:
            mixed += 1
        else:
            keeping += 1
            kept |= 1 << board.suit[cross]
        crossed |= board.ranks[cross]
        if straight:
            here = count_cards(pack, straight & want)
            wanted_mean += here
            wanted_least = min(wanted_least, here)
            if ranked:
                rest = straight & board.ranks[cross]
                while rest:
                    out[FEATURES + 39 + LOWEST_RANK[rest]] += 1.0
                    rest &= rest - 1
        if ranks:
            here = count_cards(pack, ranks & want)
            ranks_mean += here
            ranks_least = min(ranks_least, here)
    if empty > 0:
        if straight:
            here = count_cards(pack, straight)
            wanted_mean += here * empty
            wanted_least = min(wanted_least, here)
        if ranks:
            here = count_cards(pack, ranks)
            ranks_mean += here * empty
            ranks_least = min(ranks_least, here)
    out[FEATURES - 6] = 0.2 * empty
    out[FEATURES - 5] = 0.2 * mixed
    out[FEATURES - 4] = 0.2 * keeping
    if size == 0:
        out[5 + 7] = 0.25 * ONES[kept]
        return
    if ranked:
        describe_ranks(board, at, straight, out)
    left = SIDE - size
    if straight:
        out[FEATURES - 12] = 0.05 * count_cards(pack, straight)
        out[FEATURES - 11] = 0.05 * wanted_mean / left
        out[FEATURES - 10] = 0.05 * wanted_least
    out[FEATURES - 9] = 0.1 * count_cards(pack, ranks)
    out[FEATURES - 8] = 0.1 * ranks_mean / left
    out[FEATURES - 7] = 0.1 * ranks_least
    # Its ranks: the largest groups first, then those of which more is left.
    pairs = board.pairs[at]
    if pairs > 0:
        out[5 + GROUPING[7 * size + pairs]] = 1.0
    else:
        out[5 + 7] = 1.0
    counts = board.counts[at]
    claims = 17 * axis
    first = -1
    second = -1
    rest = ranks
    while rest:
        rank = LOWEST_RANK[rest]
        weight = (((counts >> (3 * rank)) & 7) * 8 + board.unseen[rank]) * 16 + rank
        if weight > first:
            second = first
            first = weight
        elif weight > second:
            second = weight
        rest &= rest - 1
    rest = ranks
    while rest:
        rank = LOWEST_RANK[rest]
        column = 13 + 6
        if rank == (first & 15):
            column = 13
        elif second >= 0 and rank == (second & 15):
            column = 13 + 3
        suits = suits_of(pack, rank)
        out[column] += 0.3 * board.unseen[rank]
        out[column + 1] += 0.3 * ONES[suits & kept]
        out[column + 2] += 0.4 * (board.claims[claims + rank] - 1)
        rest &= rest - 1
    out[22] = board.unseen[first & 15] * share
    if second >= 0:
        out[23] = board.unseen[second & 15] * share
    if suit < NO_SUIT:
        unseen = board.unseen[13 + suit]
        out[24] = 1.0
        out[25] = 0.1 * unseen
        out[26] = unseen * share / left
        out[27] = 0.5 * (board.claims[claims + 13 + suit] - 1)
        out[28] = 0.2 * ONES[(pack >> (13 * suit)) & 8191 & crossed]
    if pairs == 0:
        describe_straights(board, at, out, 29)


# -- the network -------------------------------------------------------------------------------------------------


@helper
def embed(features, weights, bias, out, active):  # type: ignore[no-untyped-def]
    """Write the first layer, relu(features @ weights + bias), and which units are not 0; return how many."""
    width = out.shape[0]
    for j in range(width):
        out[j] = bias[j]
    for i in range(features.shape[0]):
        x = features[i]
        if x != 0.0:
            row = weights[i]
            for j in range(width):
                out[j] += x * row[j]
    count = 0
    for j in range(width):
        if out[j] > 0.0:
            active[count] = j
            count += 1
        else:
            out[j] = 0.0
    return count


@rule
def add_product(vector, weights, out):  # type: ignore[no-untyped-def]
    """Add vector @ weights to `out`."""
    height = vector.shape[0]
    # Four rows at a time, so that `out` is read and written a quarter as often.
    for k in range(height // 4):
        i = 4 * k
        a, b, c, d = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        first, second, third, fourth = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(out.shape[0]):
            out[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j])
    for i in range(height // 4 * 4, height):
        for j in range(out.shape[0]):
            out[j] += vector[i] * weights[i, j]


@helper
def set_product(vector, active, count, weights, out):  # type: ignore[no-untyped-def]
    """Write vector @ weights, where the vector is not 0 at `active[:count]` alone: half of the units are, or less."""
    for j in range(out.shape[0]):
        out[j] = 0.0
    for k in range(count // 4):
        i = 4 * k
        p, q, r, s = active[i], active[i + 1], active[i + 2], active[i + 3]
        a, b, c, d = vector[p], vector[q], vector[r], vector[s]
        first, second, third, fourth = weights[p], weights[q], weights[r], weights[s]
        for j in range(out.shape[0]):
            out[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j])
    for k in range(count // 4 * 4, count):
        i = active[k]
        for j in range(out.shape[0]):
            out[j] += vector[i] * weights[i, j]


@helper
def head(base, product, last, bias):  # type: ignore[no-untyped-def]
    """Return the points of one line: relu(base + product) @ last + bias."""
    # Four sums side by side: one would have each addition wait for the one before.
    width = base.shape[0]
    zero = np.float32(0.0)
    first, second, third, fourth = zero, zero, zero, zero
    for k in range(width // 4):
        j = 4 * k
        first += max(base[j] + product[j], zero) * last[j]
        second += max(base[j + 1] + product[j + 1], zero) * last[j + 1]
        third += max(base[j + 2] + product[j + 2], zero) * last[j + 2]
        fourth += max(base[j + 3] + product[j + 3], zero) * last[j + 3]
    for j in range(width // 4 * 4, width):
        first += max(base[j] + product[j], zero) * last[j]
    return np.float64(first + second + third + fourth + bias)


class Net(NamedTuple):
    """The weights of a network, float32; the first index is the part that an axis plays (0 or 1).

    A network of stages has weights for each number of cards, 1 to 24, one after the other: 48 parts instead of 2.
    """

    w1: Any  # (2, FEATURES or ALL_FEATURES, width)
    b1: Any  # (2, width)
    # (2, 3 or 4, width, width): from the line itself, from its own axis, from the other one, and perhaps from the lines
    # that cross its empty cells
    w2: Any
    b2: Any  # (2, width)
    w3: Any  # (2, width)
    b3: Any  # (2,)


class Space(NamedTuple):
    """Room to work in."""

    wants: Any  # int64, (LINES, 2)
    features: Any  # float32, (ROWS, FEATURES)
    # What is known of the lines as they were on the last boards: the entries of line i are WAYS * i and those after it.
    roles: Any  # int64, (ENTRIES,): for what part of the network; -1: nothing is known
    told: Any  # float32, (ENTRIES, FEATURES): for what features
    vectors: Any  # float32, (ENTRIES, width): the first layer
    active: Any  # int64, (ENTRIES, width): which of its units are not 0
    counts: Any  # int64, (ENTRIES,): how many
    owns: Any  # float32, (ENTRIES, width): what it gives to its own line in the second
    crossings: Any  # float32, (ENTRIES, width): and to those that cross it at an empty cell
    entries: Any  # int64, (ROWS,): the entry of each line of the board in question
    product: Any  # float32, (width,): what a line sees of itself and those that cross it
    pools: Any  # float32, (2, width): the sum of an axis
    bases: Any  # float32, (2, width): what all lines of an axis have in common


class Conditions(NamedTuple):
    """What makes of a network one for a scoring table, float32.

    The table is its nine points divided by the largest of them. A small layer, relu(table @ t1 + t0), finds out what
    kind of table it is; what it finds and the table itself are the `MOODS` numbers that shift and stretch what both
    layers of the network see. The last layer knows nothing of points: it tells how likely each of the nine hands is.
    """

    t0: Any  # (MOODS - 9,)
    t1: Any  # (9, MOODS - 9)
    c1: Any  # (2, MOODS, width): added to b1
    g1: Any  # (2, MOODS, width): stretches the columns of w1
    c2: Any  # (2, MOODS, width): added to b2
    g2: Any  # (2, MOODS, width): stretches the columns of w2
    c3: Any  # (2, 9, width): times the table, added to w3
    c4: Any  # (2, 9): times the table, added to b3


def relative_points(points: NDArray[np.float64]) -> tuple[NDArray[np.float32], float]:
    """Return nine of the ten points (all but the high card's 0) divided by the largest size, and that divisor."""
    largest = max(float(np.abs(points[1:]).max()), 1e-9)
    return (points[1:] / largest).astype(np.float32), largest


def net_for(net: Net, conditions: Conditions, points: NDArray[np.float64]) -> Net:
    """Return the network for a scoring table, in points."""
    table, largest = relative_points(points)
    size = np.float32(largest)
    kind = np.maximum(table @ conditions.t1 + conditions.t0, np.float32(0.0))
    mood = np.concatenate([kind, table])
    first, second = (np.float32(1.0) + np.einsum("t,ath->ah", mood, one) for one in (conditions.g1, conditions.g2))
    return Net(
        net.w1 * first[:, None],
        net.b1 + np.einsum("t,ath->ah", mood, conditions.c1),
        net.w2 * second[:, None, None],
        net.b2 + np.einsum("t,ath->ah", mood, conditions.c2),
        (net.w3 + np.einsum("t,ath->ah", table, conditions.c3)) * size,
        (net.b3 + np.einsum("t,at->a", table, conditions.c4)) * size,
    )


def new_space(width: int, features: int = FEATURES) -> Space:
    """Return room for a network of a width that is told so many features of a line."""
    return Space(
        np.zeros((LINES, 2), np.int64),
        np.zeros((ROWS, features), np.float32),
        np.full(ENTRIES, -1, np.int64),
        np.zeros((ENTRIES, features), np.float32),
        np.zeros((ENTRIES, width), np.float32),
        np.zeros((ENTRIES, width), np.int64),
        np.zeros(ENTRIES, np.int64),
        np.zeros((ENTRIES, width), np.float32),
        np.zeros((ENTRIES, width), np.float32),
        WAYS * np.arange(ROWS),
        np.zeros(width, np.float32),
        np.zeros((2, width), np.float32),
        np.zeros((2, width), np.float32),
    )


def room_for(net: Net) -> Space:
    """Return room for a network."""
    return new_space(net.b1.shape[1], net.w1.shape[1])


# Rows of the arrays of features and vectors: the lines as in BOARD, then an empty row and an empty column.
BLANK, ROWS = LINES, LINES + 2
# Of each line the last few forms are kept: two in five are as they were when the card was tried elsewhere.
WAYS = 4
ENTRIES = WAYS * ROWS


@helper
def describe_board(board, placed, wants, features):  # type: ignore[no-untyped-def]
    """Write the features of all incomplete lines, (ROWS, FEATURES), and of an empty row and column."""
    for axis in range(2):
        for line in range(CANVAS * axis, CANVAS * axis + board.side):
            wish(board, line, wants)
    for axis in range(2):
        used = 0
        for line in range(CANVAS * axis, CANVAS * axis + board.side):
            if board.cards[line] > 0:
                used += 1
                if board.cards[line] < SIDE:
                    describe_line(board, line, placed, wants, features[line])
        if used < SIDE:
            describe_line(board, BLANK + axis, placed, wants, features[BLANK + axis])


@rule
def set_base(net, role, own, other, base):  # type: ignore[no-untyped-def]
    """Write what all lines of an axis have in common in the second layer, from the sums of both axes."""
    for j in range(base.shape[0]):
        base[j] = net.b2[role, j]
    add_product(own, net.w2[role, 1], base)
    add_product(other, net.w2[role, 2], base)


@rule
def forget(space):  # type: ignore[no-untyped-def]
    """Forget what was known of lines: those of other boards are no use, and other networks say something else."""
    for entry in range(ENTRIES):
        space.roles[entry] = -1


@rule
def tell(space, entry, weights, out):  # type: ignore[no-untyped-def]
    """Write what a line's vector is to the second layer."""
    set_product(space.vectors[entry], space.active[entry], space.counts[entry], weights, out)


@rule
def recall(net, space, line, role, other):  # type: ignore[no-untyped-def]
    """Find what the network says of a line (or of an empty one) that was described: look it up, or else ask."""
    features = space.features[line]
    first = WAYS * line
    latest = space.entries[line] - first
    for k in range(WAYS):
        entry = first + (latest + k) % WAYS
        if space.roles[entry] == role:
            told = space.told[entry]
            different = 0
            for i in range(features.shape[0]):
                different += features[i] != told[i]
            if different == 0:
                space.entries[line] = entry
                return
    entry = first + (latest + 1) % WAYS
    space.entries[line] = entry
    space.roles[entry] = role
    for i in range(features.shape[0]):
        space.told[entry, i] = features[i]
    space.counts[entry] = embed(features, net.w1[role], net.b1[role], space.vectors[entry], space.active[entry])
    tell(space, entry, net.w2[role, 0], space.owns[entry])
    if net.w2.shape[1] > 3:
        tell(space, entry, net.w2[other, 3], space.crossings[entry])


@rule
def see_itself(board, line, space, crossed):  # type: ignore[no-untyped-def]
    """Write what a line (or an empty one, see `describe_line`) sees of itself and of lines across its empty cells."""
    out = space.product
    own = space.owns[space.entries[line]]
    for j in range(out.shape[0]):
        out[j] = own[j]
    if not crossed:
        return
    axis = line // CANVAS if line < LINES else line - LINES
    blanks = SIDE
    for cross in range(CANVAS * (1 - axis), CANVAS * (1 - axis) + board.side):
        cards = board.cards[cross]
        if cards == 0:
            continue
        blanks -= 1
        if cards == SIDE:
            continue
        if line < LINES:
            row = line if axis == 0 else cross
            column = cross - CANVAS if axis == 0 else line - CANVAS
            if (board.filled[row] >> column) & 1:
                continue
        crossing = space.crossings[space.entries[cross]]
        for j in range(out.shape[0]):
            out[j] += crossing[j]
    if blanks > 0:
        crossing = space.crossings[space.entries[BLANK + 1 - axis]]
        for j in range(out.shape[0]):
            out[j] += blanks * crossing[j]


@rule
def stage_of(net, placed):  # type: ignore[no-untyped-def]
    """Return where the weights begin for a board of so many cards."""
    stage = 0
    if net.w1.shape[0] > 2:
        stage = 2 * (min(max(placed, 1), STAGES) - 1)
    return stage


@helper
def embed_board(board, net, space, placed):  # type: ignore[no-untyped-def]
    """Fill `space` with what the network makes of a board on which `placed` cards will lie; return its worth.

    What `space` holds of other boards is used: `forget` it before another network is asked.
    """
    describe_board(board, placed, space.wants, space.features)
    return embed_lines(board, net, space, placed)


@helper
def embed_lines(board, net, space, placed):  # type: ignore[no-untyped-def]
    """Do the same for a board whose lines are described already: that is the same for both parts of the axes."""
    stage = stage_of(net, placed)
    crossed = net.w2.shape[1] > 3
    for axis in range(2):
        role = stage + (axis ^ board.flip)
        other = stage + (1 - axis ^ board.flip)
        pool = space.pools[axis]
        for j in range(pool.shape[0]):
            pool[j] = 0.0
        blanks = SIDE
        for line in range(CANVAS * axis, CANVAS * axis + board.side):
            if board.cards[line] > 0:
                blanks -= 1
                if board.cards[line] < SIDE:
                    recall(net, space, line, role, other)
                    vector = space.vectors[space.entries[line]]
                    for j in range(pool.shape[0]):
                        pool[j] += vector[j]
        if blanks > 0:
            recall(net, space, BLANK + axis, role, other)
            vector = space.vectors[space.entries[BLANK + axis]]
            for j in range(pool.shape[0]):
                pool[j] += blanks * vector[j]
    total = board.score
    for axis in range(2):
        role = stage + (axis ^ board.flip)
        base = space.bases[axis]
        set_base(net, role, space.pools[axis], space.pools[1 - axis], base)
        blanks = SIDE
        for line in range(CANVAS * axis, CANVAS * axis + board.side):
            if board.cards[line] > 0:
                blanks -= 1
                if board.cards[line] < SIDE:
                    see_itself(board, line, space, crossed)
                    total += head(base, space.product, net.w3[role], net.b3[role])
        if blanks > 0:
            see_itself(board, BLANK + axis, space, crossed)
            total += blanks * head(base, space.product, net.w3[role], net.b3[role])
    return total


# -- play --------------------------------------------------------------------------------------------------------


@rule
def largest_of(points):  # type: ignore[no-untyped-def]
    """Return the largest size of the points of the hands."""
    largest = 0.0
    for i in range(points.shape[0]):
        largest = max(largest, abs(points[i]))
    return largest


@rule
def freedom(board, points):  # type: ignore[no-untyped-def]
    """Return what it is worth under the touching rule that more cells are open than there are cards to come.

    The network is told of lines and not where on the canvas they lie, so that it thinks many cells alike.
    """
    return FREEDOM * largest_of(points) * (count_open(board) - (CARDS - board.placed))


@helper
def try_cell(boards, net, space, cell, card, points):  # type: ignore[no-untyped-def]
    """Return the worth of the first of two boards with a card (0 to 51) on a cell; the second is worked on.

    All lines are described anew: a card changes what the lines beside it may hope for, if they want the same cards, and
    what those that cross its row and column see. (To describe these two alone takes half the time and plays worse.)
    """
    board = boards[1]
    copy_board(board, boards[0])
    lay(board, cell, card, points)
    return embed_board(board, net, space, board.placed)


@helper
def rate_cells(boards, net, space, card, points, worths):  # type: ignore[no-untyped-def]
    """Write the worth of the board with a card (0 to 51) on each legal cell, -inf elsewhere; return the best cell.

    Under the touching rule `freedom` counts.
    Of cells that are alike (empty rows of the fixed square are, and empty columns) only the first is rated.
    """
    board = boards[0]
    forget(space)
    best = -np.inf
    chosen = -1
    fixed = board.side == SIDE
    fresh_row = True
    for row in range(board.side):
        columns = legal_columns(board, row)
        if fixed and board.cards[row] == 0:
            if not fresh_row:
                columns = 0
            fresh_row = False
        fresh_column = True
        for column in range(board.side):
            cell = row * board.side + column
            worths[cell] = -np.inf
            legal = ((columns >> column) & 1) == 1
            if fixed and board.cards[CANVAS + column] == 0:
                if not fresh_column:
                    legal = False
                fresh_column = False
            if legal:
                worths[cell] = try_cell(boards, net, space, cell, card, points)
                if not fixed:
                    worths[cell] += freedom(boards[1], points)
                if worths[cell] > best:
                    best = worths[cell]
                    chosen = cell
    return chosen


@helper
def deal_board(board, deal, side):  # type: ignore[no-untyped-def]
    """Clear a board for a deal number."""
    clear(board, side)
    board.rng = deal
    for i in range(PACK):
        board.deck[i] = i + 1


@helper
def export(board, space, inputs, weights, owners):  # type: ignore[no-untyped-def]
    """Copy the features of the ten lines: `weights` is 0 for a complete line, `owners` is the line or -1 (empty)."""
    describe_board(board, board.placed, space.wants, space.features)
    for axis in range(2):
        slot = SIDE * axis
        for line in range(CANVAS * axis, CANVAS * axis + board.side):
            if board.cards[line] > 0:
                going = board.cards[line] < SIDE
                weights[slot] = 1.0 if going else 0.0
                owners[slot] = line
                for i in range(inputs.shape[1]):
                    inputs[slot, i] = space.features[line, i] if going else np.float32(0.0)
                slot += 1
        while slot < SIDE * (axis + 1):
            weights[slot] = 1.0
            owners[slot] = -1
            for i in range(inputs.shape[1]):
                inputs[slot, i] = space.features[BLANK + axis, i]
            slot += 1


@kernel
def record_games(  # type: ignore[no-untyped-def]
    deals,
    script,
    stream,
    boards,
    net,
    space,
    lines,
    points,
    touching,
    chance,
    worths,
    inputs,
    weights,
    owners,
    hands,
    starts,
    scores,
):
    """Play games by the network and write what it should have seen: one game for each row of `inputs`.

    Args:
        deals: uint64, (games,).
        script: int64, (games, 25): the cells where another player put the cards; with no rows the games are played
            here.
        stream: BOARD record, of which only `rng` matters: where random moves come from.
        boards: two BOARD records.
        net, space: the network, and room to work in.
        lines: the values of a line table, float32, (ENTRIES,), which plays instead; empty: the network plays.
        points: of the ten hands.
        touching: 1 for the touching placement, 0 for the fixed square.
        chance: the probability that a game has one random move; only what follows is to be learned from.
        worths: float64, (81,), scratch.
        inputs, weights, owners, hands: (games, 24, 10, FEATURES) float32, (games, 24, 10) float32, int8 and int8:
            after 1 to 24 cards the features of each line, whether it is incomplete, which line it is (-1: an empty one
            of the canvas), and which hand it came to be.
        starts: int64, (games,): the first number of cards from which there was no random move (with a script: given).
        scores: float64, (games,).
    """
    board = boards[0]
    side = CANVAS if touching else SIDE
    threshold = np.int64(chance * 4294967296.0)
    scripted = script.shape[0] > 0
    for game in range(inputs.shape[0]):
        deal_board(board, deals[game], side)
        odd = -1
        if not scripted:
            if np.int64(next_bits(stream[0]) >> 32) < threshold:
                odd = draw_below(stream[0], CARDS - 2)
            starts[game] = odd + 1
        for placed in range(CARDS):
            card = int(draw_card(board, board.deck, placed, PACK)) - 1
            see_card(board, card)
            if touching and placed == 0:
                cell = CENTRE
            elif scripted:
                cell = script[game, placed]
            elif placed == odd:
                cell = random_cell(board, stream[0])
            elif lines.shape[0] > 0:
                weigh(board, card, lines, points)
                cell, _ = best_cell(board)
            else:
                cell = rate_cells(boards, net, space, card, points, worths)
            lay(board, cell, card, points)
            if placed < CARDS - 1:
                export(board, space, inputs[game, placed], weights[game, placed], owners[game, placed])
        scores[game] = board.score
        for placed in range(CARDS - 1):
            for axis in range(2):
                following = CANVAS * axis
                for slot in range(SIDE * axis, SIDE * (axis + 1)):
                    line = int(owners[game, placed, slot])
                    if line < 0:
                        # The empty lines are alike: each stands for one of those that were begun later.
                        while begun(board, owners[game, placed], following) or board.cards[following] == 0:
                            following += 1
                        line = following
                        following += 1
                    hands[game, placed, slot] = hand_of(board, line)


@rule
def begun(board, owners, line):  # type: ignore[no-untyped-def]
    """Tell whether a line is among the owners."""
    found = False
    for k in range(owners.shape[0]):
        if owners[k] == line:
            found = True
    return found


@helper
def play_first(boards, deal, count, net, space, points, touching, worths):  # type: ignore[no-untyped-def]
    """Place the first `count` cards of a deal (uint64) on `boards[0]` as the network would."""
    board = boards[0]
    deal_board(board, deal, CANVAS if touching else SIDE)
    for placed in range(count):
        card = int(draw_card(board, board.deck, placed, PACK)) - 1
        see_card(board, card)
        cell = CENTRE
        if placed > 0 or not touching:
            cell = rate_cells(boards, net, space, card, points, worths)
        lay(board, cell, card, points)


@kernel
def play_values(deals, boards, net, space, points, touching, worths, scores):  # type: ignore[no-untyped-def]
    """Play each deal (uint64) by the network and write its points: what an evaluation of the policy would find."""
    for i in range(deals.shape[0]):
        play_first(boards, deals[i], CARDS, net, space, points, touching, worths)
        scores[i] = boards[0].score


@kernel
def tally_values(deals, boards, net, space, points, touching, worths, scores, hands):  # type: ignore[no-untyped-def]
    """Play each deal (uint64) by the network; write its score and count the hands of its rows and columns.

    `hands` is int64, (deals, 2, 10): how many rows, and how many columns, became each hand.
    """
    board = boards[0]
    for i in range(deals.shape[0]):
        play_values(deals[i : i + 1], boards, net, space, points, touching, worths, scores[i : i + 1])
        for line in range(LINES):
            if board.cards[line] == SIDE:
                hands[i, line // CANVAS, hand_of(board, line)] += 1


@helper
def turn_board(board, net, space, points):  # type: ignore[no-untyped-def]
    """Let rows and columns play the parts in which the board is clearly worth more.

    The network learned with the parts that rows and columns have by themselves. Turning a board for a small gain is a
    mistake of judgement more often than not (it cost a point a game); for a board that another player began it pays.
    """
    describe_board(board, board.placed, space.wants, space.features)
    forget(space)
    board.flip = 1
    turned = embed_lines(board, net, space, board.placed)
    board.flip = 0
    if turned > embed_lines(board, net, space, board.placed) + TURN_GAIN * largest_of(points):
        board.flip = 1


@kernel
def value_cells(states, boards, net, space, points, worths, actions):  # type: ignore[no-untyped-def]
    """Write the cell that the network likes best for every position, and the worth of each cell.

    `worths` is float64, (positions, 81): the expected final score with the card on the cell, -inf where it may not lie.
    """
    for i in range(states.shape[0]):
        board = boards[0]
        read_board(states[i], board, points)
        turn_board(board, net, space, points)
        card = int(states[i].deck[board.placed]) - 1
        actions[i] = rate_cells(boards, net, space, card, points, worths[i])
        if board.side == SIDE:
            # What was rated once holds for all cells like it.
            for cell in range(SIDE * SIDE):
                row = cell // SIDE
                column = cell % SIDE
                if not (board.filled[row] >> column) & 1 and worths[i, cell] == -np.inf:
                    worths[i, cell] = first_like(board, cell, worths[i])


@helper
def first_like(board, cell, worths):  # type: ignore[no-untyped-def]
    """Return the worth of the first cell that is like an empty cell of the fixed square."""
    row = cell // SIDE
    column = cell % SIDE
    if board.cards[row] == 0:
        row = 0
        while board.cards[row] > 0:
            row += 1
    if board.cards[CANVAS + column] == 0:
        column = 0
        while board.cards[CANVAS + column] > 0:
            column += 1
    return worths[SIDE * row + column]


# -- the policy --------------------------------------------------------------------------------------------------


def save_net(
    folder: str | os.PathLike[str], net: Net, facts: Mapping[str, Any], conditions: Conditions | None = None
) -> None:
    """Save a network into a folder (made if need be), and what made it.

    `facts` must hold `placement`, `points` (the ten; None for a network with conditions, which plays for any table) and
    whatever else should be told. The weights of a network of stages are rounded to half precision.
    """
    from patience_env.training.models import write_pair

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    tensors = {**net._asdict(), **(conditions._asdict() if conditions is not None else {})}
    parts = PARTS if net.w1.shape[1] == FEATURES else {**PARTS, **RANK_PARTS}
    if net.w1.shape[0] > 2:
        tensors = {name: array.astype(np.float16) for name, array in tensors.items()}
    write_pair(target / VALUE_MODEL, tensors, {**facts, "game": GAME.id, "features": parts})


def load_net(folder: str | os.PathLike[str]) -> tuple[Net, Conditions | None, dict[str, Any]]:
    """Return a saved network, its conditions (None where it plays for one table) and the facts of its file.

    Raises:
        ValueError: it is missing, damaged, changed, or made for other features.
    """
    from patience_env.training.models import read_pair, small

    path = Path(folder) / VALUE_MODEL
    facts, tensors = read_pair(path, "value model", small)
    parts = facts.get("features")
    if facts.get("game") != GAME.id or parts not in (PARTS, {**PARTS, **RANK_PARTS}):
        raise ValueError(
            f"value model {str(path)!r} was made for {facts.get('game')} and other features of a line than this "
            f"version's: train it again"
        )
    points = facts.get("points", 0)
    numbers = isinstance(points, list) and all(type(one) in (int, float) and np.isfinite(one) for one in points)
    told = points is None or (numbers and len(points) == len(SCORED) + 1)
    if not told or facts.get("placement") not in ("fixed", "touching"):
        raise ValueError(f"value model {str(path)!r} does not tell its placement and the points of ten hands")
    width = tensors["b1"].shape[-1] if "b1" in tensors and tensors["b1"].ndim else 0
    features = FEATURES if parts == PARTS else ALL_FEATURES
    staged = "b1" in tensors and len(tensors["b1"]) == 2 * STAGES
    roles, kind = (2 * STAGES, np.float16) if staged else (2, np.float32)
    crossed = "w2" in tensors and tensors["w2"].ndim == 4 and tensors["w2"].shape[1] == 4
    shapes: dict[str, tuple[int, ...]] = {
        "w1": (roles, features, width),
        "b1": (roles, width),
        "w2": (roles, 4 if crossed else 3, width, width),
        "b2": (roles, width),
        "w3": (roles, width),
        "b3": (roles,),
    }
    further: dict[str, tuple[int, ...]] = {"t0": (MOODS - 9,), "t1": (9, MOODS - 9), "c3": (2, 9, width), "c4": (2, 9)}
    further |= dict.fromkeys(("c1", "g1", "c2", "g2"), (2, MOODS, width))
    wanted = shapes if points is not None else {**shapes, **further}
    found = {name: (array.shape, array.dtype) for name, array in tensors.items()}
    if width == 0 or found != {name: (shape, np.dtype(kind)) for name, shape in wanted.items()}:
        raise ValueError(f"value model {str(path)!r} does not hold the weights of a network of this version")
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise ValueError(f"value model {str(path)!r} holds numbers that are not finite")
    arrays = {name: np.ascontiguousarray(tensors[name], np.float32) for name in wanted}
    conditions = None if points is not None else Conditions(**{name: arrays[name] for name in further})
    return Net(**{name: arrays[name] for name in shapes}), conditions, facts


class ValuePolicy(Policy):
    """Plays the cell after which the network thinks the tableau worth most; see the module's docstring.

    Args:
        path: the folder of a model that `patience train-value --kind value` wrote; None: the model that comes with the
            package for the placement and the scoring table in force, or else the one that plays for any table.

    Raises:
        ValueError: as `load_net`.
    """

    name = "value"
    version = 3
    game_id = GAME.id

    def __init__(self, path: str | None = None) -> None:
        self._given = None if path is None else load_net(path)
        self._path = path
        self._shipped: dict[Path, tuple[Net, Conditions | None, dict[str, Any]]] = {}
        self._boards = new_boards(2)

    def model(self, options: Mapping[str, Any]) -> tuple[Net, Conditions | None, dict[str, Any]]:
        """Return the network for a game's options, its conditions and the facts of its file.

        Raises:
            ValueError: the given model does not fit.
        """
        if self._given is not None:
            check_fit(f"value model {self._path!r}", self._given[2], options)
            return self._given
        folder = shipped_folder("value", options)
        if folder not in self._shipped:
            self._shipped[folder] = load_net(folder)
        return self._shipped[folder]

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        return [shipped_folder("value", options) if self._path is None else Path(self._path)]

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where there is no model for the placement or the scoring table."""
        super().check(game, options)
        self.model(options)

    def _rate(self, turn: Turn) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        net, conditions, _ = self.model(turn.options)
        actions, worths = np.zeros(len(turn), np.int64), np.full((len(turn), CANVAS * CANVAS), -np.inf)
        space = room_for(net)
        # All positions with one scoring table are rated in one go; with random tables each has its own.
        tables, which = np.unique(turn.states["points"], axis=0, return_inverse=True)
        for number, points in enumerate(tables):
            rows = np.flatnonzero(which.reshape(-1) == number)
            chosen, rated = np.zeros(len(rows), np.int64), np.full((len(rows), CANVAS * CANVAS), -np.inf)
            weights = net if conditions is None else net_for(net, conditions, points)
            value_cells(turn.states[rows], self._boards, weights, space, points.copy(), rated, chosen)
            actions[rows], worths[rows] = chosen, rated
        return actions, worths

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the best cell by the network, for every position."""
        return self._rate(turn)[0]

    def values(self, turn: Turn) -> NDArray[np.float64]:
        """Return the expected final score of each action, float64, (n, actions); -inf for those that are not legal."""
        return self._rate(turn)[1][:, : turn.masks.shape[1]]
