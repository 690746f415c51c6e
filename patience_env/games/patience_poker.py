"""Patience Poker.

## Description
One pack. Twenty-five cards are turned one at a time, and each is placed for good before the next is seen, so that in
the end they form a square of five by five. Its five rows and five columns score as poker hands. Known today as Poker
Squares. The rule sheet is `seeds/rules/patience_poker.md`.

With `placement="touching"` (the old rule) the first card lies on the table and every later one must touch a placed
card by an edge or a corner, while the cards never span more than five rows or five columns; where the square lies is
not fixed until they span five each way. With `placement="fixed"` (the modern rule) any empty cell of a fixed square
will do.

## Action Space
`Discrete(81)` for touching: cell `9 * row + column` of a canvas of 9 by 9. `Discrete(25)` for fixed: cell
`5 * row + column`.

## Observation Space
`observation="planes"`: int8, shape (20, 9, 9) or (21, 5, 5): one-hot rank (13), suit (4), empty, face-down of each
cell; then, in reading order, the same 19 entries for the card to be placed and 13 + 4 counts, how many cards of each
rank and of each suit have not been seen, padded with zeros (see `patience_env.encoding`). `observation="cards"`: int8,
shape (99,) or (43,): the card code of each cell, of the card to be placed, and the 17 counts. A series (`target`) adds
two counters, the points still wanted in hundreds and in units (rounded up, at most 12,799); `scoring="random"` adds
the nine points of the table.

## Starting State
Touching: the first card lies in the centre of the canvas and the second is to be placed. Fixed: the square is empty
and the first card is to be placed.

## Rewards
The score of each line when its fifth card is placed; the return is the score of the tableau. In a series (`target`)
the reward is -1 for each completed tableau instead, the one that reaches the total included.

## Episode End
Terminated when 25 cards are placed; in a series when the total reaches the target.

## Arguments
* `placement`: "touching" (default) or "fixed".
* `scoring`: "american" (default), "american-alternate", "english", a mapping of the nine hands to numbers, or
  "random": each deal draws a table of nine whole numbers from -128 to 127, uniformly and independently (the range of
  the random tables in the Parameterized Poker Squares challenge), and shows it; its cards stay the same.
* `target`: None (default) or a whole number from 1 to 1,000,000: a series of freshly shuffled tableaus until their
  total reaches it (not with random tables, of which some never would).

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, PACK, card_code, card_text
from patience_env.deals import draw_below, draw_card, reshuffle
from patience_env.game import Counter, Game, Layout, Option, Spot, Table, one_of, whole_number
from patience_env.games.poker_hands import SCORED, category, check_scoring, points_table
from patience_env.jit import helper, rule
from patience_env.lanes import LANES, copy_bytes, count_ones, mark_zeros, write_bits

SIDE = 5
CARDS = 25
CANVAS = 9
CENTRE = 40
LOWEST_RANDOM, RANDOM_POINTS = -128, 256
MOST_WANTED = 12_799
TABLE_STREAM = 0x5EED0F7AB1E5

STATE = np.dtype(
    [
        # What every step touches comes first, so that it shares few cache lines.
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the stream of later chance
        ("target", np.float64),  # points to reach in a series, 0 for a single tableau
        ("score", np.float64),  # points of the tableau in progress
        ("placed", np.int32),  # cards in the tableau; the next in the deck is the card to be placed
        ("touching", np.int32),  # 1 for the touching placement, 0 for the fixed square
        ("drawn_table", np.int32),  # 1 when each deal draws a scoring table
        ("tableaus", np.int32),  # completed tableaus
        ("in_row", np.int8, (CANVAS,)),  # cards in each row
        ("in_column", np.int8, (CANVAS,)),  # cards in each column
        ("unseen", np.int8, (17,)),  # cards not seen of each rank (13), then of each suit (4)
        ("deck", np.int8, (PACK,)),  # card codes: as far as cards are turned in their order, then the others in any
        ("cells", np.int8, (CANVAS * CANVAS,)),  # card code of each cell, 0 empty; stride 9 touching, 5 fixed
        ("span", np.int32, (4,)),  # first and last row, first and last column of the cards (touching)
        ("filled", np.int32, (CANVAS,)),  # a bit for each cell of a row that holds a card (touching)
        ("points", np.float64, (10,)),  # what each category of hand scores
        ("total", np.float64),  # points of the completed tableaus of the series
    ],
    align=True,
)


@rule
def side_of(state):  # type: ignore[no-untyped-def]
    """Return the number of rows and columns of the board: the canvas of 9, or the square of 5."""
    return CANVAS if state.touching else SIDE


@rule
def turn(state):  # type: ignore[no-untyped-def]
    """Turn the next card of the pack: `deck[placed]`, which is drawn only now."""
    card = np.uint64(draw_card(state, state.deck, state.placed, PACK)) - np.uint64(1)
    suit = card // np.uint64(13)
    state.unseen[card - np.uint64(13) * suit] -= 1
    state.unseen[np.uint64(13) + suit] -= 1


@rule
def put(state, cell, row, column, card):  # type: ignore[no-untyped-def]
    """Lay a card on a cell and keep the counts of lines, the span and the touched cells in step."""
    state.cells[cell] = card
    state.in_row[row] += 1
    state.in_column[column] += 1
    state.placed += 1
    if state.touching:
        span = state.span
        span[0] = min(span[0], np.int64(row))
        span[1] = max(span[1], np.int64(row))
        span[2] = min(span[2], np.int64(column))
        span[3] = max(span[3], np.int64(column))
        state.filled[row] |= 1 << np.int64(column)


@helper
def line_points(state, first, step, side):  # type: ignore[no-untyped-def]
    """Return the points of a complete line: of the five cards on the cells first, first + step, ... of the board."""
    cells = state.cells
    start = first
    while cells[start] == EMPTY:
        start += step
    hand = category(
        cells[start], cells[start + step], cells[start + 2 * step], cells[start + 3 * step], cells[start + 4 * step]
    )
    return state.points[hand]


@helper
def start_tableau(state):  # type: ignore[no-untyped-def]
    """Clear the board, take a fresh pack and turn the first card or cards."""
    for i in range(PACK):
        state.deck[i] = i + 1
    for i in range(CANVAS * CANVAS):
        state.cells[i] = EMPTY
    for i in range(CANVAS):
        state.filled[i] = 0
        state.in_row[i] = 0
        state.in_column[i] = 0
    for i in range(13):
        state.unseen[i] = 4
    for i in range(13, 17):
        state.unseen[i] = 13
    state.placed = 0
    state.score = 0.0
    if state.touching:
        state.span[0] = state.span[2] = CANVAS
        state.span[1] = state.span[3] = -1
        turn(state)
        put(state, CENTRE, CENTRE // CANVAS, CENTRE % CANVAS, state.deck[0])
    turn(state)


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Start the tableau, or the series, of a deal number."""
    state.total = 0.0
    state.tableaus = 0
    if state.drawn_table:
        state.rng = int(state.deal) ^ TABLE_STREAM
        for i in range(1, 10):
            state.points[i] = LOWEST_RANDOM + draw_below(state, RANDOM_POINTS)
    state.rng = state.deal
    start_tableau(state)


@rule
def touched(state, row):  # type: ignore[no-untyped-def]
    """Return a bit for each cell of a row that holds a card or touches one by an edge or a corner."""
    near = state.filled[row]
    if row > 0:
        near |= state.filled[row - 1]
    if row < CANVAS - 1:
        near |= state.filled[row + 1]
    return near | (near << 1) | (near >> 1)


@rule
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the cells that may take the card; return how many they are."""
    count = 0
    if state.placed == CARDS:
        for cell in range(mask.shape[0]):
            mask[cell] = 0
    elif state.touching:
        span = state.span
        top, bottom = max(span[1] - 4, 0), min(span[0] + 5, CANVAS)
        columns = (1 << min(span[2] + 5, CANVAS)) - (1 << max(span[3] - 4, 0))
        # A bit for each cell that is free: of the first seven rows, and of the other two.
        low, high = np.int64(0), np.int64(0)
        for row in range(CANVAS):
            free = touched(state, row) & ~state.filled[row] & columns
            free = np.int64(free if top <= row < bottom else 0)
            if row < 7:
                low |= free << (CANVAS * row)
            else:
                high |= free << (CANVAS * (row - 7))
        count = count_ones(low) + count_ones(high)
        write_bits(mask, 0, low)
        write_bits(mask, LANES, (low >> LANES) | (high << 31))
        write_bits(mask, CANVAS * CANVAS - LANES, (low >> 49) | (high << 14))
    else:
        count = CARDS - state.placed
        mark_zeros(mask, 0, state.cells, 0, CARDS)
    return count


@rule
def end_tableau(state, points):  # type: ignore[no-untyped-def]
    """Add a completed tableau to the series and start the next one unless the target is reached."""
    state.tableaus += 1
    state.total += points
    if state.target > 0.0 and state.total < state.target:
        start_tableau(state)


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Place the card; return the points of the lines that it completes, or -1 for a completed tableau of a series."""
    # Unsigned, and divided by constants: both are much faster.
    cell = np.uint64(action)
    side = side_of(state)
    row = cell // np.uint64(CANVAS) if state.touching else cell // np.uint64(SIDE)
    column = cell - np.uint64(side) * row
    put(state, cell, row, column, state.deck[np.uint64(state.placed)])
    points = 0.0
    if state.in_row[row] == SIDE:
        points += line_points(state, side * np.int64(row), 1, side)
    if state.in_column[column] == SIDE:
        points += line_points(state, np.int64(column), side, side)
    state.score += points
    if state.placed < CARDS:
        turn(state)
    else:
        end_tableau(state, state.score)
        if state.target > 0.0:
            return -1.0
    return 0.0 if state.target > 0.0 else points


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether a series has reached its target."""
    return state.target > 0.0 and state.total >= state.target


@helper
def forfeit(state):  # type: ignore[no-untyped-def]
    """In a series let the tableau score zero and go on with the next one; a single tableau ends."""
    if state.target > 0.0:
        end_tableau(state, 0.0)
        return True
    return False


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the cells, the card to be placed, the counts of unseen cards, then points wanted and table where shown."""
    cells = CANVAS * CANVAS if state.touching else CARDS
    if state.touching:
        copy_bytes(places, 0, state.cells, 0, CANVAS * CANVAS)
    else:
        copy_bytes(places, 0, state.cells, 0, CARDS)
    places[cells] = state.deck[state.placed] if state.placed < CARDS else EMPTY
    copy_bytes(places, cells + 1, state.unseen, 0, 17)
    following = cells + 18
    if state.target > 0.0:
        wanted = min(max(int(np.ceil(state.target - state.total)), 0), MOST_WANTED)
        places[following] = wanted // 100
        places[following + 1] = wanted % 100
        following += 2
    if state.drawn_table:
        for i in range(1, 10):
            places[following + i - 1] = int(state.points[i])


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Draw the cards behind the one to be placed, and all later chance, from the random bits `key`."""
    seen = state.placed + 1 if state.placed < CARDS else CARDS
    state.rng = key
    state.deal = 0
    reshuffle(state, state.deck, seen, PACK)


def cell_name(cell: int, side: int) -> str:
    """Return the name of a cell: `r1c1` is the first cell of the first row."""
    return f"r{cell // side + 1}c{cell % side + 1}"


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    side = CANVAS if state["touching"] else SIDE
    card = card_text(int(state["deck"][state["placed"]])) if state["placed"] < CARDS else "no card"
    return f"place {card} in row {action // side + 1}, column {action % side + 1}"


def table(state: Any) -> Table:
    """Return the cells that hold a card, the card in hand and the face-down stock."""
    side = CANVAS if state["touching"] else SIDE
    placed = int(state["placed"])
    piles = {
        cell_name(cell, side): [card_text(int(state["cells"][cell]))]
        for cell in range(side * side)
        if state["cells"][cell] != EMPTY
    }
    in_hand = placed < CARDS
    piles["hand"] = [card_text(int(state["deck"][placed]))] if in_hand else []
    piles["stock"] = ["??"] * (PACK - placed - in_hand)
    return piles


def read_cells(given: Mapping[str, Sequence[str]], side: int) -> dict[int, int]:
    """Return cell -> card code from a table's cells, refusing unknown places, piles and repeated cards."""
    names = {cell_name(cell, side): cell for cell in range(side * side)}
    cells: dict[int, int] = {}
    seen: dict[int, str] = {}
    for place, cards in given.items():
        if place not in names and place not in ("hand", "stock"):
            raise ValueError(f"there is no place {place!r}: the places are r1c1 to r{side}c{side}, hand and stock")
        if place == "stock":
            continue
        if len(cards) > 1:
            raise ValueError(f"{place} holds {len(cards)} cards: a place takes one")
        for card in map(card_code, cards):
            if not 1 <= card <= PACK:
                raise ValueError(f"{place} holds {card_text(card)}: cells and hand hold known cards")
            if card in seen:
                raise ValueError(f"{card_text(card)} lies in {seen[card]} and in {place}: there is one of each card")
            seen[card] = place
            if place != "hand":
                cells[names[place]] = card
    return cells


def check_shape(cells: Mapping[int, int], touching: bool) -> None:
    """Refuse cards that the rules cannot have laid so."""
    if len(cells) > CARDS:
        raise ValueError(f"{len(cells)} cards are placed: a tableau holds at most 25")
    if not touching:
        return
    if CENTRE not in cells:
        raise ValueError("the first card lies in the centre of the canvas, r5c5, which is empty here")
    for axis, lines in (("rows", {c // CANVAS for c in cells}), ("columns", {c % CANVAS for c in cells})):
        if max(lines) - min(lines) >= SIDE:
            raise ValueError(f"the cards span {max(lines) - min(lines) + 1} {axis}: at most 5 are allowed")
    reached = [CENTRE]
    for cell in reached:
        row, column = divmod(cell, CANVAS)
        reached += [
            other
            for other in cells
            if other not in reached and abs(other // CANVAS - row) <= 1 and abs(other % CANVAS - column) <= 1
        ]
    if len(reached) < len(cells):
        loose = min(set(cells) - set(reached))
        raise ValueError(f"{cell_name(loose, CANVAS)} touches no card that leads back to the first: every card must")


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; the hidden rest of the pack is shuffled, and a series starts from a total of zero.

    Raises:
        ValueError: unknown places, repeated cards, more than 25 cards, or cards that the placement cannot reach.
    """
    side = CANVAS if state["touching"] else SIDE
    cells = read_cells(given, side)
    check_shape(cells, bool(state["touching"]))
    hand = [card_code(card) for card in given.get("hand", [])]
    if len(hand) != (len(cells) < CARDS):
        raise ValueError(
            "hand is empty: it holds the card to be placed"
            if not hand
            else "hand holds a card although all 25 are placed: leave it empty"
        )
    known = [*cells.values(), *hand]
    stock = given.get("stock")
    if stock is not None and (
        len(stock) != PACK - len(known) or any(card_code(card) != card_code("??") for card in stock)
    ):
        raise ValueError(f"stock must be {PACK - len(known)} times '??' (or left out): its cards are face-down")
    points = state["points"].copy()
    fresh = {name: state[name].copy() for name in ("target", "touching", "drawn_table")}
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    for name in ("deal", "total", "score", "tableaus", "placed", "in_row", "in_column", "cells", "filled"):
        state[name] = 0
    state["points"] = points
    if fresh["drawn_table"] and not points.any():
        state["points"][1:] = rng.integers(LOWEST_RANDOM, LOWEST_RANDOM + RANDOM_POINTS, 9)
    rest = np.array([card for card in range(1, PACK + 1) if card not in known], np.int8)
    state["deck"] = np.concatenate([np.array(known, np.int8), rng.permutation(rest)])
    state["unseen"][:13] = np.bincount((rest.astype(int) - 1) % 13, minlength=13)
    state["unseen"][13:] = np.bincount((rest.astype(int) - 1) // 13, minlength=4)
    state["cells"][list(cells)] = list(cells.values())
    state["placed"] = len(cells)
    rows = np.array([cell // side for cell in cells], int)
    columns = np.array([cell % side for cell in cells], int)
    state["in_row"] = np.bincount(rows, minlength=CANVAS)
    state["in_column"] = np.bincount(columns, minlength=CANVAS)
    if state["touching"]:
        state["span"] = [rows.min(), rows.max(), columns.min(), columns.max()]
        np.bitwise_or.at(state["filled"], rows, 1 << columns)
    score = tableau_score(state)
    state["score"] = score
    if len(cells) == CARDS:
        state["tableaus"] = 1
        state["total"] = score


def lines(state: Any) -> list[tuple[str, list[int]]]:
    """Return the complete lines of a tableau: (name, five card codes), rows first."""
    side = CANVAS if state["touching"] else SIDE
    board = np.asarray(state["cells"])[: side * side].reshape(side, side)
    named = [(f"row {i + 1}", board[i]) for i in range(side)] + [(f"column {i + 1}", board[:, i]) for i in range(side)]
    return [(name, [int(c) for c in line if c]) for name, line in named if np.count_nonzero(line) == SIDE]


def tableau_score(state: Any) -> float:
    """Return the points of all complete lines."""
    hands = getattr(category, "py_func", category)
    return float(sum(state["points"][hands(*cards)] for _, cards in lines(state)))


def check_series(value: Any) -> Any:
    """Check the `target` option."""
    return whole_number("target", 1, 1_000_000, None)(value)


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names under the given options."""
    side = CANVAS if options["placement"] == "touching" else SIDE
    cells = tuple(cell_name(cell, side) for cell in range(side * side))
    counters = [Counter(f"unseen of rank {rank}", 4) for rank in range(1, 14)]
    counters += [Counter(f"unseen {suit}", 13) for suit in ("spades", "hearts", "diamonds", "clubs")]
    if options["target"] is not None:
        counters += [Counter("points wanted, hundreds", MOST_WANTED // 100), Counter("points wanted, units", 99)]
    if options["scoring"] == "random":
        counters += [Counter(f"points of {name}", 127, -128) for name in SCORED]
    spots = {name: Spot(cell % side, cell // side) for cell, name in enumerate(cells)}
    spots["hand"] = Spot(side + 0.5, 0.0, label="to be placed")
    spots["stock"] = Spot(side + 0.5, 1.5, 0.01, 0.01, label="stock")
    summary = ("score",) if options["target"] is None else ("score", "total", "tableaus")
    return Layout(side * side, (*cells, "hand"), tuple(counters), (side, side), spots, summary)


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state."""
    state["touching"] = options["placement"] == "touching"
    state["target"] = options["target"] or 0
    state["drawn_table"] = options["scoring"] == "random"
    state["points"] = points_table(options["scoring"])
    if state["target"] and state["drawn_table"]:
        raise ValueError(
            "a series with a target needs a given scoring table, not scoring='random': in some deals no hand would "
            "score more than zero, and the series would never end"
        )
    if state["target"] and state["points"].max() <= 0:
        raise ValueError("a series with a target needs a scoring table in which some hand scores more than zero")


GAME = Game(
    id="PatiencePoker-v0",
    title="Patience Poker",
    state=STATE,
    packs=1,
    options=(
        Option("placement", "touching", one_of("placement", "touching", "fixed"), "where a card may be placed"),
        Option("scoring", "american", check_scoring, "the points of the nine hands"),
        Option("target", None, check_series, "play a series of tableaus up to this total"),
    ),
    layout=layout,
    configure=configure,
    deal=deal,
    legal=legal,
    play=play,
    is_won=is_won,
    observe=observe,
    determinize=determinize,
    describe=describe,
    table=table,
    from_table=from_table,
    scores=True,
    forfeit=forfeit,
)
