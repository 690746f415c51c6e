"""Fortress.

## Description
One pack, all face up: a wall of five rows on the left and one on the right of the middle, where the four foundations
are built in suit from ace to king. Only the outside card of each row can move: to its foundation, onto the outside
card of another row when the two are neighbours of one suit (a *marriage*), or to the inner end of a row that has been
emptied (a *lane*). The rule sheet is `seeds/rules/fortress.md`.

## Action Space
`Discrete(100)`: action `10 * row + other` moves the outside card of a row to another row; action `10 * row + row`
moves it to its foundation. Rows 0 to 4 are the left ones from the top, rows 5 to 9 the right ones.

## Observation Space
`observation="planes"`: int8, shape (20, 10, 18): one-hot rank (13), suit (4), empty, face-down of each place of the ten
rows, counted from the middle outwards; then the same 19 entries for the top card of each foundation, padded with zeros
(see `patience_env.encoding`). `observation="cards"`: int8, shape (184,): the card codes of the same places.

## Starting State
All 52 cards lie in the rows, five in each, six in the fifth and the tenth. In about one deal
of 21 no move can be made: its mask is empty, and the first step, whatever its action, ends it with reward 0.

## Rewards
The change in the share of the 52 cards that lie on foundations: 1/52 for each card played there, so 1.0 in all for a
won game.

## Episode End
Terminated when all cards are on foundations, or no move is left. Positions can repeat: registered with
`max_episode_steps=500`.

## Arguments
None.

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, PACK, SUITS, card_code, card_text, next_cards, suit_of
from patience_env.deals import draw_below
from patience_env.game import Game, Layout, Spot, Table
from patience_env.jit import helper, rule
from patience_env.lanes import copy_bytes

ROWS = 10
SIDE = 5
# A row of six grows longest: its fifth card, dealt, stays, and twelve of its suit follow the sixth.
LONGEST = 18
ACTIONS = ROWS * ROWS
# The outside cards are looked up by 15 * suit + rank, so that below an ace and above a king lies nothing.
SLOTS = 60
SUIT_NAMES = ("spades", "hearts", "diamonds", "clubs")


def dealt_row(row: int) -> int:
    """Return how many cards are dealt to a row: five, and one more to the last row of each side."""
    return SIDE + (row % SIDE == SIDE - 1)


def dealt_places() -> list[int]:
    """Return the places of the wall in the order of dealing: line by line, each from its left end to its right end."""
    order: list[int] = []
    for line in range(SIDE):
        order += [LONGEST * line + i for i in reversed(range(dealt_row(line)))]
        order += [LONGEST * (SIDE + line) + i for i in range(dealt_row(line))]
    return order


DEALT = np.array(dealt_places(), np.int64)
DEALT_LENGTH = np.array([dealt_row(row) for row in range(ROWS)], np.int64)

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the random stream, not used after the deal
        ("played", np.int32),  # cards on the foundations
        ("wall", np.int8, (ROWS * LONGEST,)),  # card code of each place of the rows, from the middle outwards, 0 empty
        ("length", np.int8, (ROWS,)),  # cards in each row
        ("founded", np.int8, (len(SUITS),)),  # rank of each foundation's top card, 0 without one
        ("outside", np.int8, (SLOTS,)),  # 1 + the row whose outside card has this slot, 0 for none
    ],
    align=True,
)


@rule
def slot_of(card):  # type: ignore[no-untyped-def]
    """Return the slot of a card in `outside`: its neighbours of the same suit have the next ones."""
    return int(card) + 2 * suit_of(card)


@rule
def put(state, row, card):  # type: ignore[no-untyped-def]
    """Lay a card outside on a row."""
    length = int(state.length[row])
    place = LONGEST * row + length
    if length > 0:
        state.outside[slot_of(state.wall[place - 1])] = 0
    state.wall[place] = card
    state.length[row] = length + 1
    state.outside[slot_of(card)] = row + 1


@rule
def take(state, row):  # type: ignore[no-untyped-def]
    """Lift the outside card of a row and return it."""
    length = int(state.length[row]) - 1
    place = LONGEST * row + length
    card = int(state.wall[place])
    state.wall[place] = EMPTY
    state.length[row] = length
    state.outside[slot_of(card)] = 0
    if length > 0:
        state.outside[slot_of(state.wall[place - 1])] = row + 1
    return card


@rule
def clear(state):  # type: ignore[no-untyped-def]
    """Leave no card on the table."""
    state.played = 0
    for place in range(ROWS * LONGEST):
        state.wall[place] = EMPTY
    for row in range(ROWS):
        state.length[row] = 0
    for suit in range(len(SUITS)):
        state.founded[suit] = 0
    for slot in range(SLOTS):
        state.outside[slot] = 0


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle the pack through its places in the wall: line after line, from the left row's outer end rightwards."""
    state.rng = state.deal
    clear(state)
    for i in range(PACK):
        state.wall[DEALT[i]] = i + 1
    for i in range(PACK - 1):
        drawn = DEALT[i + draw_below(state, PACK - i)]
        card = state.wall[drawn]
        state.wall[drawn] = state.wall[DEALT[i]]
        state.wall[DEALT[i]] = card
    for row in range(ROWS):
        cards = DEALT_LENGTH[row]
        state.length[row] = cards
        state.outside[slot_of(state.wall[LONGEST * row + cards - 1])] = row + 1


@rule
def open_lane(state, mask, lane):  # type: ignore[no-untyped-def]
    """Mark the moves into an empty row, one from every other row that has a card; return how many they are."""
    count = 0
    for row in range(ROWS):
        able = 1 if state.length[row] > 0 else 0
        mask[ROWS * row + lane] = able
        count += able
    return count


@rule
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the moves of the outside cards; return how many they are."""
    for action in range(ACTIONS):
        mask[action] = 0
    wanted = next_cards(state.founded)
    count = 0
    for row in range(ROWS):
        length = int(state.length[row])
        if length == 0:
            count += open_lane(state, mask, row)
            continue
        # Without branches, which would be guessed wrong: no neighbour in sight marks nothing, in row 0.
        card = int(state.wall[np.uint64(LONGEST * row + length - 1)])
        slot = slot_of(card)
        found = (wanted >> card) & 1
        mask[(ROWS + 1) * row] |= found
        count += found
        for neighbour in (slot - 1, slot + 1):
            other = int(state.outside[np.uint64(neighbour)])
            there = 1 if other > 0 else 0
            mask[np.uint64(ROWS * row + other - there)] |= there
            count += there
    return count


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Move an outside card; return the share of the pack that so reaches a foundation."""
    row = action // ROWS
    other = action % ROWS
    card = take(state, row)
    if row == other:
        state.founded[suit_of(card)] += 1
        state.played += 1
        return state.played / PACK - (state.played - 1) / PACK
    put(state, other, card)
    return 0.0


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether all cards are on the foundations."""
    return state.played == PACK


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the places of the rows from the middle outwards, then the foundations' top cards."""
    copy_bytes(places, 0, state.wall, 0, ROWS * LONGEST)
    for suit in range(len(SUITS)):
        rank = int(state.founded[suit])
        places[ROWS * LONGEST + suit] = 13 * suit + rank if rank > 0 else EMPTY


@rule
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Forget the deal number: all cards are known, so that nothing is dealt anew."""
    state.rng = key
    state.deal = 0


def row_name(row: int) -> str:
    """Return the name of a row: `left 1` to `left 5` and `right 1` to `right 5`, from the top."""
    return f"{'left' if row < SIDE else 'right'} {row % SIDE + 1}"


def row_cards(state: Any, row: int) -> list[int]:
    """Return the card codes of a row, from the middle outwards."""
    first = LONGEST * row
    return [int(card) for card in state["wall"][first : first + int(state["length"][row])]]


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    row, other = divmod(action, ROWS)
    cards, onto = row_cards(state, row), row_cards(state, other)
    if not cards:
        return f"nothing can leave {row_name(row)}, which is empty"
    card = card_text(cards[-1])
    if row == other:
        return f"{card} of {row_name(row)} to its foundation"
    target = f"onto {card_text(onto[-1])} of" if onto else "into the empty lane"
    return f"{card} of {row_name(row)} {target} {row_name(other)}"


def table(state: Any) -> Table:
    """Return the rows, each from the middle outwards, and the foundations from the ace up."""
    piles = {row_name(row): [card_text(card) for card in row_cards(state, row)] for row in range(ROWS)}
    for suit, name in enumerate(SUIT_NAMES):
        piles[name] = [card_text(13 * suit + rank) for rank in range(1, int(state["founded"][suit]) + 1)]
    return piles


def read_piles(given: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return place -> card codes, refusing unknown places and whatever is not exactly one pack."""
    names = (*map(row_name, range(ROWS)), *SUIT_NAMES)
    seen: dict[int, str] = {}
    piles: dict[str, list[int]] = {name: [] for name in names}
    for place, cards in given.items():
        if place not in names:
            raise ValueError(f"there is no place {place!r}: the places are {', '.join(names)}")
        for card in map(card_code, cards):
            if not 1 <= card <= PACK:
                raise ValueError(f"{place} holds {card_text(card)}: all cards of this game are face up")
            if card in seen:
                raise ValueError(f"{card_text(card)} lies in {seen[card]} and in {place}: there is one of each card")
            seen[card] = place
            piles[place].append(card)
    missing = [card_text(card) for card in range(1, PACK + 1) if card not in seen]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing: all 52 cards lie in the rows and on the foundations")
    return piles


def check_row(row: int, cards: Sequence[int]) -> None:
    """Refuse a row that no play can make: what exceeds its dealt length was married, card by card."""
    for i in range(dealt_row(row), len(cards)):
        below, card = cards[i - 1], cards[i]
        if abs(card - below) != 1 or (card - 1) // 13 != (below - 1) // 13:
            raise ValueError(
                f"{row_name(row)} holds {card_text(card)} on {card_text(below)}: beyond the {dealt_row(row)} cards "
                "dealt to it, each card is a neighbour of the same suit of the one before"
            )


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position.

    Raises:
        ValueError: unknown places, cards missing or repeated, foundations out of order, or a row that cannot arise.
    """
    piles = read_piles(given)
    for suit, name in enumerate(SUIT_NAMES):
        wanted = [13 * suit + rank for rank in range(1, len(piles[name]) + 1)]
        if piles[name] != wanted:
            raise ValueError(f"{name} must be built up from the ace in suit, not {' '.join(given[name])}")
    for row in range(ROWS):
        check_row(row, piles[row_name(row)])
    state["deal"] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    for name in ("wall", "length", "outside"):
        state[name] = 0
    state["founded"] = [len(piles[name]) for name in SUIT_NAMES]
    state["played"] = int(np.sum(state["founded"]))
    for row in range(ROWS):
        cards = piles[row_name(row)]
        state["wall"][LONGEST * row : LONGEST * row + len(cards)] = cards
        state["length"][row] = len(cards)
        if cards:
            state["outside"][cards[-1] + 2 * ((cards[-1] - 1) // 13)] = row + 1


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names of the game."""
    del options
    places = [f"{row_name(row)} card {i + 1}" for row in range(ROWS) for i in range(LONGEST)]
    spots = {
        row_name(row): Spot(7.0 if row < SIDE else 10.0, row % SIDE * 1.1, -1.0 if row < SIDE else 1.0)
        for row in range(ROWS)
    }
    for suit, name in enumerate(SUIT_NAMES):
        spots[name] = Spot(8.5, suit * 1.1)
    return Layout(ACTIONS, (*places, *SUIT_NAMES), (), (ROWS, LONGEST), spots, ("played",))


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state: there are none."""
    del state, options


GAME = Game(
    id="Fortress-v0",
    title="Fortress",
    state=STATE,
    packs=1,
    options=(),
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
)
