"""The Fourteenth.

## Description
Two packs. Twenty-five cards lie face up in a square of five by five; the others are the stock, face-down. Two cards in
one row or one column whose ranks add up to fourteen (ace and king, two and queen, and so on; two sevens) are withdrawn
and the stock fills their places. When there is no fourteen, one means remains: an exchange, in which two cards change
places with two others so that a fourteen appears. The rule sheet is
`seeds/rules/fourteenth.md`.

## Action Space
`Discrete(400)`. 0 to 49 withdraw two cards of one row, 50 to 99 two of one column, 100 to 399 let the cards of two
places change places (an exchange is two such swaps, one after the other). Places are numbered 0 to 24 in reading order.

## Observation Space
`observation="planes"`: int8, shape (21, 5, 5): one-hot rank (13), suit (4), empty, face-down of each place; then a
plane that marks the places of the first swap of an unfinished exchange; then, in reading order, 13 + 4 counts, how many
cards of each rank and of each suit have not been seen, and, where exchanges are limited, how many are left.
`observation="cards"`: int8, shape (67,) or, where exchanges are limited, (68,): the card code of each place, the 25
marks and the counts.

## Starting State
The first 25 cards of the shuffled packs lie in the square in reading order.

## Rewards
2/104 for each withdrawal: the return is the share of the 104 cards withdrawn, 1.0 when the game is won.

## Episode End
Terminated when all cards are withdrawn, or when there is no fourteen and no exchange is allowed that makes one. Never
longer than 156 steps, so episodes are not truncated.

## Arguments
* `exchanges`: None (default: whenever play is blocked) or how many exchanges a game allows (0 to 52).
* `close_gaps`: False (default: spaces stay where they arise when the stock is out) or True (the later cards move up in
  reading order).

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.cards import EMPTY, PACK, RANKS, card_code, card_text
from patience_env.deals import reshuffle, shuffle
from patience_env.game import Counter, Game, Layout, Option, Spot, Table, one_of, whole_number
from patience_env.jit import helper, rule
from patience_env.lanes import (
    LANES,
    bit_words,
    copy_bytes,
    count_ones,
    couple_marker,
    crowd_finder,
    lowest_one,
    meeting,
    ones,
    ones_above,
    pair_marker,
    rank_holder,
    subtract_bytes,
    triangle_holder,
    word_smearer,
    words,
    write_bits,
)

SIDE = 5
PLACES = 25
CARDS = 2 * PACK
SUM = 14
PAIRS = 100
ACTIONS = 400

_SQUARE = np.arange(PLACES).reshape(SIDE, SIDE)
# The two places, the lower-numbered first, that each action is about.
BOTH = np.array(
    [pair for line in (*_SQUARE, *_SQUARE.T) for pair in combinations(line.tolist(), 2)]
    + list(combinations(range(PLACES), 2))
)
FIRST, SECOND = np.ascontiguousarray(BOTH[:, 0], np.uint8), np.ascontiguousarray(BOTH[:, 1], np.uint8)
# A bit for each other place in the row and the column of a place.
LINE = np.array(
    [sum(1 << q for q in range(PLACES) if q != p and (q // 5 == p // 5 or q % 5 == p % 5)) for p in range(25)]
)
ALL_PLACES = (1 << PLACES) - 1
REST = ACTIONS % LANES
WORDS = ACTIONS // LANES + 1  # words of `LANES` bits, one an action
# The same in the words of `lanes`, with nothing at places that do not exist.
LINES = np.array([*LINE, *[0] * (LANES - PLACES)], np.int32)
# The eight places in the row and the column of each place.
NEIGHBOURS = np.array([[q for q in range(PLACES) if line >> q & 1] for line in LINE.tolist()], np.uint8)
# The rank of each card code; 0 for an empty place, which makes no fourteen.
RANK = np.array([0, *(1 + code % 13 for code in range(PACK))])
# For each card code, in `LANES` bytes, 1 at its rank and at its suit among the counts of unseen cards.
COUNTED = np.zeros((1 + PACK) * LANES, np.int8)
for _place in (np.arange(PACK) % 13, 13 + np.arange(PACK) // 13):
    COUNTED.reshape(-1, LANES)[np.arange(1, 1 + PACK), _place] = 1
# What the withdrawal with which so many couples are withdrawn adds to the share of all cards.
REWARDS = np.array([cards / CARDS - (cards - 2) / CARDS for cards in range(0, CARDS + 2, 2)])

# What a step needs lies side by side.
STATE = np.dtype(
    [
        ("cells", np.int8, (PLACES,)),  # the card code of each place, 0 empty
        ("beyond", np.int8, (LANES - PLACES,)),  # always 0: `LANES` places can be read
        # Cards not seen of each rank (13), then of each suit (4); `LANES` bytes are written anew from here on.
        ("unseen", np.int8, (17,)),
        ("allowed", np.int8),  # exchanges that a game allows, -1 for any number
        ("left", np.int8),  # exchanges left, -1 for any number
        ("closing", np.int8),  # 1 where the later cards close the gaps
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("turned", np.int32),  # cards dealt so far; the next of the stock is deck[turned]
        ("withdrawn", np.int32),  # cards withdrawn; the others of those dealt lie in the square
        ("swapped", np.int32),  # a bit for each place of the first swap of an unfinished exchange, 0 without one
        ("rng", np.uint64),  # the stream of later chance (there is none after the deal)
        ("deck", np.int8, (CARDS,)),  # card codes in the order of the deal
    ],
    align=True,
)


@rule
def lay(state, place, card):  # type: ignore[no-untyped-def]
    """Let a place hold a card, or nothing (`EMPTY`)."""
    state.cells[np.uint64(place)] = card


@rule
def next_card(state, later):  # type: ignore[no-untyped-def]
    """Return the card of the stock that is turned next, or so many cards later; `EMPTY` beyond its end."""
    number = state.turned + later
    card = int(state.deck[np.uint64(min(number, CARDS - 1))])
    return card if number < CARDS else EMPTY


@rule
def swap(state, first, second):  # type: ignore[no-untyped-def]
    """Let the cards of two places change places."""
    card, other = state.cells[np.uint64(first)], state.cells[np.uint64(second)]
    lay(state, first, other)
    lay(state, second, card)


@helper
def close_the_gaps(state):  # type: ignore[no-untyped-def]
    """Move the cards up in reading order until no space lies before a card."""
    end = 0
    for place in range(PLACES):
        if state.cells[place] != EMPTY:
            if place > end:
                swap(state, end, place)
            end += 1


_hold_ranks = rank_holder(PLACES)
_hold_swaps = triangle_holder(PLACES, PAIRS)
_mark_swaps_among = couple_marker(FIRST[PAIRS:].tolist(), SECOND[PAIRS:].tolist(), PAIRS)
_at_least_three = crowd_finder(3)
_at_least_one = crowd_finder(1)
_mark_couples = pair_marker(FIRST[:PAIRS].tolist(), SECOND[:PAIRS].tolist(), SUM)


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle both packs and lay out the square."""
    for i in range(CARDS):
        state.deck[i] = i % PACK + 1
    state.rng = state.deal
    shuffle(state, state.deck, 0, CARDS)
    copy_bytes(state.cells, 0, state.deck, 0, PLACES)
    state.left = state.allowed
    state.swapped = 0
    state.turned = PLACES
    state.withdrawn = 0
    have = words()
    _hold_ranks(have, state.cells)
    for rank in range(13):
        state.unseen[rank] = 8 - count_ones(have[rank + 1])
    for suit in range(4):
        more = ones_above(state.cells, 0, 13 * suit) & ALL_PLACES
        state.unseen[13 + suit] = 26 - count_ones(more & ~ones_above(state.cells, 0, 13 * suit + 13))


@rule
def cards_of(state):  # type: ignore[no-untyped-def]
    """Return a bit for each place with a card."""
    return ones(state.cells, 0) & ALL_PLACES


@rule
def find_fourteens(fourteens, state):  # type: ignore[no-untyped-def]
    """Write for each place a bit for each in its line whose card makes fourteen with its own."""
    have = words()
    _hold_ranks(have, state.cells)
    for place in range(PLACES):
        fourteens[place] = have[SUM - RANK[state.cells[place]]] & LINE[place]


# What lies k to the right or the left of a place in its row, and what lies k above or below it.
_IN_ROW = [
    (way * k, sum(1 << p for p in range(PLACES) if 0 <= p % SIDE - way * k < SIDE))
    for k in range(1, SIDE)
    for way in (1, -1)
]
_write_near = word_smearer(_IN_ROW + [(way * SIDE * k, ALL_PLACES) for k in range(1, SIDE) for way in (1, -1)], SUM + 1)


@rule
def mark_fourteens(state, mask, held):  # type: ignore[no-untyped-def]
    """Mark the fourteens among the first hundred actions; return how many they are."""
    return _mark_couples(mask, np.uint64(0), held, state.cells, np.uint64(0))


@rule
def clear_swaps(mask, held):  # type: ignore[no-untyped-def]
    """Mark no swap."""
    for action in range(PAIRS, ACTIONS, LANES):
        write_bits(mask, min(action, ACTIONS - LANES), 0)
    for word in range(PAIRS // LANES + 1, WORDS):
        held[word] = 0


@rule
def mark_swaps(mask, held, seconds):  # type: ignore[no-untyped-def]
    """Mark the swaps of each place with those later ones that have a bit in `seconds`; return how many they are.

    There is no fourteen among the first hundred actions, whose last entries are written anew.
    """
    count = _hold_swaps(held, seconds)
    for word in range(PAIRS // LANES, ACTIONS // LANES):
        write_bits(mask, LANES * word, held[word])
    write_bits(mask, ACTIONS - LANES, (int(held[WORDS - 2]) >> (LANES - REST)) | (int(held[WORDS - 1]) << REST))
    return count


@rule
def mark_all_swaps(mask, held):  # type: ignore[no-untyped-def]
    """Mark every swap of two places, where there is no fourteen; return how many they are."""
    held[PAIRS // LANES] = (1 << LANES) - (1 << PAIRS % LANES)
    for word in range(PAIRS // LANES + 1, ACTIONS // LANES):
        held[word] = (1 << LANES) - 1
    held[ACTIONS // LANES] = (1 << REST) - 1
    for action in range(PAIRS, ACTIONS, LANES):
        write_bits(mask, min(action, ACTIONS - LANES), (1 << LANES) - 1)
    return ACTIONS - PAIRS


@helper
def count_fourteens(state):  # type: ignore[no-untyped-def]
    """Return how many fourteens lie in the square."""
    fourteens = words()
    find_fourteens(fourteens, state)
    twice = 0
    for place in range(PLACES):
        twice += count_ones(fourteens[place])
    return twice // 2


@rule
def partners_of(have, state, place):  # type: ignore[no-untyped-def]
    """Return a bit for each other place whose card makes fourteen with the card of a place, in line or not.

    `have` holds a bit for each place of each rank (0: spaces; 14, their partner: none).
    """
    return have[SUM - RANK[state.cells[place]]] & ~(1 << place)


@rule
def swaps_that_meet(wanted, first):  # type: ignore[no-untyped-def]
    """Return a bit for each place whose swap with `first` brings either card into line with a third that it meets.

    `wanted` holds what `partners_of` gives of each place; bits beyond the places mean nothing.
    """
    return meeting(wanted, LINE[first], LINES, wanted[first])


@rule
def can_be_completed(wanted, cards, first, second):  # type: ignore[no-untyped-def]
    """Tell whether a first swap of two of the `cards` can be followed by one of two others that makes a fourteen.

    It makes none itself, and there is none before it.
    """
    two = (1 << first) | (1 << second)
    others = cards & ~two
    movable = others
    while movable:
        third = lowest_one(movable)
        movable &= movable - 1
        partners = np.int64(wanted[third])
        places = (partners & ~two) | (((partners >> first) & 1) << second) | (((partners >> second) & 1) << first)
        reached = np.int64(0)
        while places:
            reached |= LINE[lowest_one(places)]
            places &= places - 1
        if reached & others & ~(1 << third):
            return True
    return False


@rule
def every_swap_begins(have, cards):  # type: ignore[no-untyped-def]
    """Tell, where there is no fourteen, that every first swap can be completed; False when in doubt.

    Two partners are not in line, so one of them can complete an exchange by going to a place in the other's line: if
    three cards lie there, then whatever two cards the first swap has moved. Only a first swap of two cards that have
    part in all such couples could be in the way; so there must not be two such cards. Fewest have part in all couples
    of two ranks if they are all of one rank, or all that have three cards in line; of sevens, all but one, or the same.
    `have` holds a bit for each place of each rank, `cards` for each place with a card.
    """
    joined = np.int64(_at_least_three(LINES, cards))
    fewest = 0
    for rank in range(1, SUM // 2):
        ones, others = np.int64(have[rank]), np.int64(have[SUM - rank])
        fewest += min(count_ones(ones), count_ones(others), count_ones((ones | others) & joined))
    sevens = np.int64(have[SUM // 2])
    fewest += min(max(count_ones(sevens) - 1, 0), count_ones(sevens & joined))
    return fewest > 2


@helper
def mark_first_swaps(state, mask, held):  # type: ignore[no-untyped-def]
    """Mark, where there is no fourteen, the swaps that begin an exchange; return how many they are."""
    have = words()
    _hold_ranks(have, state.cells)
    cards = ~np.int64(have[0]) & ALL_PLACES
    every = every_swap_begins(have, cards)
    if every and cards == ALL_PLACES:
        return mark_all_swaps(mask, held)
    if every:
        return _mark_swaps_among(mask, held, cards, np.int64(0))
    wanted, seconds = words(), words()
    for place in range(PLACES):
        wanted[place] = partners_of(have, state, place)
        seconds[place] = 0
    firsts = cards
    while firsts:
        first = lowest_one(firsts)
        firsts &= firsts - 1
        begins = firsts
        # One that makes a fourteen can be completed: of five cards or more, two others have no part in it.
        others = begins & ~swaps_that_meet(wanted, first)
        while others:
            second = lowest_one(others)
            if not can_be_completed(wanted, cards, first, second):
                begins &= ~(1 << second)
            others &= others - 1
        seconds[first] = begins
    return mark_swaps(mask, held, seconds)


@rule
def reach_lines(lines, partners):  # type: ignore[no-untyped-def]
    """Write for each place the partners (a bit each) of the cards in its row and its column, without its own."""
    for row in range(SIDE):
        at = SIDE * row
        a, b, c, d, e = partners[at], partners[at + 1], partners[at + 2], partners[at + 3], partners[at + 4]
        lines[at], lines[at + 1], lines[at + 2] = b | c | d | e, a | c | d | e, a | b | d | e
        lines[at + 3], lines[at + 4] = a | b | c | e, a | b | c | d
    for at in range(SIDE):
        a, b, c, d, e = partners[at], partners[at + 5], partners[at + 10], partners[at + 15], partners[at + 20]
        lines[at] |= b | c | d | e
        lines[at + 5] |= a | c | d | e
        lines[at + 10] |= a | b | d | e
        lines[at + 15] |= a | b | c | e
        lines[at + 20] |= a | b | c | d


@rule
def mark_swaps_that_meet(state, have, movable, mask, held):  # type: ignore[no-untyped-def]
    """Mark the swaps of two movable places that bring either card into line with one that it makes fourteen with.

    The second place's card is a partner of one in the first place's lines, or the second place lies in the lines of a
    partner of the first place's card.
    """
    near = words()  # at a rank: the places in whose lines there is a card of it
    _write_near(near, have)
    near[SUM // 2] = 0  # a seven is no partner of its own
    partners, seconds = words(), words()
    for place in range(PLACES):
        partners[place] = partners_of(have, state, place)
    reach_lines(seconds, partners)
    for place in range(PLACES):
        seconds[place] |= near[SUM - RANK[state.cells[place]]]
    sevens = np.int64(have[SUM // 2])
    while sevens:
        first = lowest_one(sevens)
        sevens &= sevens - 1
        seconds[first] |= _at_least_one(LINES, np.int64(partners[first]))
    for place in range(PLACES):
        seconds[place] &= movable if (movable >> place) & 1 else 0
    return mark_swaps(mask, held, seconds)


@rule
def swaps_of(state, have, place):  # type: ignore[no-untyped-def]
    """Return a bit for each other place whose swap with `place` brings either card into line with its partner."""
    found = np.int64(_at_least_one(LINES, np.int64(partners_of(have, state, place))))
    for i in range(NEIGHBOURS.shape[1]):
        found |= partners_of(have, state, np.int64(NEIGHBOURS[place, i]))
    return found


@helper
def mark_second_swaps(state, mask, held):  # type: ignore[no-untyped-def]
    """Mark the swaps that complete an exchange: of two other places, with a fourteen in the end; count them.

    There was no fourteen before the first swap, so each of now lies in one of its two places and in another one. Any
    swap that leaves one of these others alone will do; so will one that makes another fourteen.
    """
    have = words()  # a bit for each place of each rank
    _hold_ranks(have, state.cells)
    swapped = np.int64(state.swapped)
    movable = ~np.int64(have[0]) & ~swapped & ALL_PLACES
    first, second = lowest_one(swapped), lowest_one(swapped & (swapped - 1))
    busy = (partners_of(have, state, first) & LINE[first]) | (partners_of(have, state, second) & LINE[second])
    if busy == 0:
        return mark_swaps_that_meet(state, have, movable, mask, held)
    # Two places of which neither is the first of these may be swapped; what that one may be swapped with is told apart.
    place = lowest_one(busy)
    others = busy & (busy - 1)
    partners = np.int64(swaps_of(state, have, place))
    if others:
        partners |= movable if others & (others - 1) else movable & ~others
    one = np.int64(1) << place
    return _mark_swaps_among(mask, held, movable & ~one, (partners & movable) | one)


@helper
def mark_legal(state, mask, held):  # type: ignore[no-untyped-def]
    """Mark the fourteens or, where there is none, the swaps that an exchange allows; return how many they are.

    Each is marked twice: by a byte of the mask, and by a bit (see `patience_env.verbs.mark_legal`). With four cards no
    exchange is possible: two swaps leave each couple of partners on its own two places or on the other couple's, and
    neither are in line.
    """
    if state.swapped:
        for action in range(PAIRS):
            mask[action] = 0
        for word in range(PAIRS // LANES + 1):
            held[word] = 0
        return mark_second_swaps(state, mask, held)
    count = mark_fourteens(state, mask, held)
    if count == 0 and state.left != 0 and state.turned - state.withdrawn > 4:
        return mark_first_swaps(state, mask, held)
    clear_swaps(mask, held)
    return count


@helper
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the legal actions by a byte each; return how many they are."""
    return mark_legal(state, mask, bit_words())


@helper
def withdraw(state, first, second):  # type: ignore[no-untyped-def]
    """Take two cards away and refill their places, the lower-numbered first, while the stock lasts."""
    one, other = next_card(state, 0), next_card(state, 1)
    subtract_bytes(state.unseen, COUNTED, LANES * one)
    subtract_bytes(state.unseen, COUNTED, LANES * other)
    lay(state, first, one)
    lay(state, second, other)
    state.turned = min(state.turned + 2, CARDS)
    state.withdrawn += 2
    if state.closing and other == EMPTY:
        close_the_gaps(state)


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Withdraw a fourteen, or swap two cards; return the share of all cards that are withdrawn."""
    first, second = np.int64(FIRST[np.uint64(action)]), np.int64(SECOND[np.uint64(action)])
    if action < PAIRS:
        withdraw(state, first, second)
        return REWARDS[np.uint64(state.withdrawn >> 1)]
    swap(state, first, second)
    if state.swapped:
        state.swapped = 0
        if state.left > 0:
            state.left -= 1
    else:
        state.swapped = (1 << first) | (1 << second)
    return 0.0


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether all cards are withdrawn."""
    return state.withdrawn == CARDS


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the square, the places of a first swap, the counts of unseen cards and, where limited, exchanges left."""
    copy_bytes(places, 0, state.cells, 0, PLACES)
    write_bits(places, PLACES, state.swapped)  # too long: the counts are written over its end
    copy_bytes(places, 2 * PLACES, state.unseen, 0, 17)
    if state.allowed > 0:
        places[2 * PLACES + 17] = state.left


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Shuffle the stock anew from the random bits `key`."""
    state.rng = key
    state.deal = 0
    reshuffle(state, state.deck, state.turned, CARDS)


def cell_name(place: int) -> str:
    """Return the name of a place: `r1c1` is the first of the first row."""
    return f"r{place // SIDE + 1}c{place % SIDE + 1}"


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    first, second = (
        f"{card_text(int(state['cells'][place]))} (row {place // SIDE + 1}, column {place % SIDE + 1})"
        for place in BOTH[action].tolist()
    )
    if action < PAIRS:
        return f"withdraw {first} and {second}"
    return f"{'complete' if state['swapped'] else 'begin'} an exchange: {first} changes places with {second}"


def withdrawn_cards(state: Any) -> list[int]:
    """Return the withdrawn cards, sorted by code."""
    gone = Multiset(state["deck"][: state["turned"]].tolist())
    gone.subtract(card for card in state["cells"].tolist() if card != EMPTY)
    return sorted(gone.elements())


def table(state: Any) -> Table:
    """Return the places that hold a card, the stock, the withdrawn cards (sorted) and the facts of exchanges.

    `swapped` names the two places of the first swap while an exchange is unfinished; `exchanges` tells how many are
    left where they are limited.
    """
    cells = state["cells"].tolist()
    piles = {cell_name(place): [card_text(card)] for place, card in enumerate(cells) if card != EMPTY}
    piles["stock"] = ["??"] * (CARDS - int(state["turned"]))
    piles["withdrawn"] = [card_text(card) for card in withdrawn_cards(state)]
    if state["swapped"]:
        piles["swapped"] = [cell_name(place) for place in range(PLACES) if int(state["swapped"]) >> place & 1]
    if state["allowed"] >= 0:
        piles["exchanges"] = [str(int(state["left"]))]
    return piles


NAMES = {cell_name(place): place for place in range(PLACES)}
OTHER_KEYS = ("stock", "withdrawn", "swapped", "exchanges")


def read_known(given: Mapping[str, Sequence[str]]) -> tuple[dict[int, int], list[int] | None]:
    """Return place -> card code and the withdrawn cards (None when left out), each checked by itself."""
    cells: dict[int, int] = {}
    withdrawn: list[int] | None = None
    for key, cards in given.items():
        if key not in NAMES and key not in OTHER_KEYS:
            raise ValueError(f"there is no place {key!r}: there are r1c1 to r5c5, {', '.join(OTHER_KEYS)}")
        if isinstance(cards, str) or not all(isinstance(card, str) for card in cards):
            raise ValueError(f"{key} must hold a list of texts such as two-letter cards, not {cards!r}")
        if key in NAMES or key == "withdrawn":
            codes = [card_code(card) for card in cards]
            if not all(1 <= code <= PACK for code in codes):
                raise ValueError(f"{key} must hold known cards, not {list(cards)}")
            if key == "withdrawn":
                withdrawn = codes
            elif len(codes) > 1:
                raise ValueError(f"{key} holds {len(codes)} cards: a place takes one")
            elif codes:
                cells[NAMES[key]] = codes[0]
    return cells, withdrawn


def check_cards(cells: Mapping[int, int], gone: Sequence[int], closing: bool) -> None:
    """Refuse cards that the rules cannot have laid or withdrawn so."""
    for card, count in Multiset([*cells.values(), *gone]).items():
        if count > 2:
            raise ValueError(f"{card_text(card)} lies in {count} places: there are two of each card")
    ranks = Multiset(int(RANK[card]) for card in gone)
    for rank in range(1, SUM // 2):
        if ranks[rank] != ranks[SUM - rank]:
            raise ValueError(
                f"{ranks[rank]} cards of rank {RANKS[rank - 1]} and {ranks[SUM - rank]} of rank {RANKS[13 - rank]} "
                "are withdrawn: they go in pairs"
            )
    if ranks[7] % 2:
        raise ValueError(f"{ranks[7]} sevens are withdrawn: they go in pairs")
    if len(cells) < PLACES and len(cells) + len(gone) < CARDS:
        space = min(set(range(PLACES)) - set(cells))
        raise ValueError(f"{cell_name(space)} is empty, but a stock is left: it would have filled the space")
    if closing and cells and max(cells) >= len(cells):
        raise ValueError(f"a space lies before {cell_name(max(cells))}: with close_gaps the cards move up")


def read_swapped(given: Mapping[str, Sequence[str]], cells: Mapping[int, int]) -> int:
    """Return the bits of the first swap's places, 0 without an unfinished exchange."""
    names = list(given.get("swapped", []))
    if not names:
        return 0
    places = {NAMES.get(name, -1) for name in names}
    if len(names) != 2 or len(places) != 2 or not places <= set(cells):
        raise ValueError(f"swapped must name two places that hold cards, such as r1c1 and r2c3, not {names}")
    return sum(1 << place for place in places)


def read_left(given: Mapping[str, Sequence[str]], allowed: int, present: int) -> int:
    """Return the exchanges left: what the table says, else what is present."""
    told = list(given.get("exchanges", []))
    if not told:
        return present
    if allowed < 0:
        raise ValueError("exchanges are not limited under these options: leave them out of the table")
    if len(told) != 1 or told[0] not in map(str, range(allowed + 1)):
        raise ValueError(f"exchanges must hold one whole number from 0 to {allowed} (how many are left), not {told}")
    return int(told[0])


def has_fourteen(ranks: NDArray[np.int64], *swaps: tuple[int, int]) -> bool:
    """Tell whether a fourteen lies in a square of ranks once the given places are swapped."""
    after = ranks.copy()
    for first, second in swaps:
        after[[first, second]] = after[[second, first]]
    return bool((after[BOTH[:PAIRS]].sum(axis=1) == SUM).any())


def check_unfinished(ranks: NDArray[np.int64], swapped: int, left: int) -> None:
    """Refuse a first swap that the rules do not allow: none left, not blocked before, or not to be completed."""
    if left == 0:
        raise ValueError("an exchange is unfinished (swapped), but no exchange is left")
    first, second = (place for place in range(PLACES) if swapped >> place & 1)
    if has_fourteen(ranks, (first, second)):
        raise ValueError("an exchange is unfinished (swapped), but there was a fourteen before its first swap")
    others = [place for place in range(PLACES) if ranks[place] and place not in (first, second)]
    if not any(has_fourteen(ranks, pair) for pair in combinations(others, 2)):
        raise ValueError("an exchange is unfinished (swapped), but no second swap can bring a fourteen")


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; the stock is shuffled.

    A table that leaves `withdrawn` out has withdrawn nothing while all 25 places hold cards, else all other cards.

    Raises:
        ValueError: unknown places, cards too often, withdrawn cards that do not pair, spaces in spite of a stock, or
            facts of exchanges that the rules cannot make.
    """
    cells, withdrawn = read_known(given)
    rest = Multiset(dict.fromkeys(range(1, PACK + 1), 2))
    rest.subtract(cells.values())
    if withdrawn is None:
        withdrawn = [] if len(cells) == PLACES else sorted((+rest).elements())
    check_cards(cells, withdrawn, bool(state["closing"]))
    rest.subtract(withdrawn)
    stock = np.array(sorted(rest.elements()), np.int8)
    told = given.get("stock")
    if told is not None and (len(told) != len(stock) or any(card != "??" for card in told)):
        raise ValueError(f"stock must be {len(stock)} times '??' (or left out): its cards are face-down")
    left = read_left(given, int(state["allowed"]), int(state["left"]))
    swapped = read_swapped(given, cells)
    ranks = np.zeros(PLACES, np.int64)
    ranks[list(cells)] = RANK[list(cells.values())]
    if swapped:
        check_unfinished(ranks, swapped, left)
    state["left"], state["swapped"], state["deal"] = left, swapped, 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    state["cells"] = 0
    state["cells"][list(cells)] = list(cells.values())
    state["withdrawn"] = len(withdrawn)
    state["turned"] = CARDS - len(stock)
    state["deck"] = np.concatenate([np.array([*withdrawn, *cells.values()], np.int8), rng.permutation(stock)])
    hidden = stock.astype(int) - 1
    state["unseen"][:13] = np.bincount(hidden % 13, minlength=13)
    state["unseen"][13:] = np.bincount(hidden // 13, minlength=4)


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names under the given options."""
    cells = tuple(NAMES)
    counters = [Counter(f"{name} swapped", 1) for name in cells]
    counters += [Counter(f"unseen of rank {rank}", 8) for rank in range(1, 14)]
    counters += [Counter(f"unseen {suit}", 26) for suit in ("spades", "hearts", "diamonds", "clubs")]
    if options["exchanges"]:
        counters += [Counter("exchanges left", options["exchanges"])]
    spots = {name: Spot(place % SIDE, place // SIDE) for name, place in NAMES.items()}
    spots["stock"] = Spot(SIDE + 0.5, 0.0, 0.01, 0.01, label="stock")
    spots["withdrawn"] = Spot(SIDE + 0.5, 2.0, 0.01, 0.01, label="withdrawn")
    return Layout(ACTIONS, cells, tuple(counters), (SIDE, SIDE), spots, summary=("withdrawn",))


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state."""
    state["allowed"] = -1 if options["exchanges"] is None else options["exchanges"]
    state["left"] = state["allowed"]
    state["closing"] = options["close_gaps"]


GAME = Game(
    id="Fourteenth-v0",
    title="The Fourteenth",
    state=STATE,
    packs=2,
    options=(
        Option("exchanges", None, whole_number("exchanges", 0, 52, None), "how many exchanges a game allows"),
        Option("close_gaps", False, one_of("close_gaps", False, True), "move later cards up once the stock is out"),
    ),
    layout=layout,
    configure=configure,
    deal=deal,
    legal=legal,
    mark_legal=mark_legal,
    play=play,
    is_won=is_won,
    observe=observe,
    determinize=determinize,
    describe=describe,
    table=table,
    from_table=from_table,
)
