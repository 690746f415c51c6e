"""Paganini.

## Description
Two packs, all 104 cards face up in eight rows of thirteen, with an empty column at the left: eight rows of fourteen
places, eight of them spaces at any time. A space at the left end of a row takes any ace; every other one takes either
of the two cards that are one higher than the card on its left and of the same suit. The game is won when each row holds
one suit from ace to king in its first thirteen places. The rule sheet is `seeds/rules/paganini.md`.

## Action Space
`Discrete(256)`. Equal cards are numbered 0 and 1 as they lie in reading order. Action `8 * (2 * suit + copy) + row`
moves an ace to the left end of a row; action `64 + 4 * (12 * suit + rank - 2) + 2 * copy + before` moves a card of
rank 2 to 13 to the right of the card one lower, the copy `before` of it. Suits 0 to 3 are spades, hearts, diamonds,
clubs; rows count from 0.

## Observation Space
`observation="planes"`: int8, shape (19, 8, 14): one-hot rank (13), suit (4), empty, face-down of each place (see
`patience_env.encoding`). `observation="cards"`: int8, shape (112,): the card code of each place in reading order.

## Starting State
The leftmost place of each row is empty, all others hold a card.

## Rewards
The change in the share of the 104 cards that lie in a finished beginning of their row (ace, 2, 3, ... of one suit
from the left end), so 1.0 in all for a won game; a card that leaves such a beginning takes its share away.

## Episode End
Terminated when all rows are finished, or no space can be filled. Positions can repeat: registered with
`max_episode_steps=1000`.

## Arguments
None.

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, PACK, SUITS, card_code, card_text
from patience_env.deals import draw_below
from patience_env.game import Game, Layout, Spot, Table
from patience_env.jit import helper, rule
from patience_env.lanes import copy_bytes

ROWS = 8
COLUMNS = 14
PLACES = ROWS * COLUMNS
SPACES = 8
CARDS = 2 * PACK
ACES = 2 * len(SUITS)
KING = 13
ACE_ACTIONS = ACES * ROWS
ACTIONS = ACE_ACTIONS + 4 * (PACK - len(SUITS))

# Of each card code: 1 where another card can follow it in a row, else 0; and the first of the four actions that bring
# it, copy by copy to each copy.
FOLLOWED = np.array([0, *(int(code % KING < KING - 1) for code in range(PACK))], np.int8)
FOLLOWING = np.array(
    [ACE_ACTIONS, *(ACE_ACTIONS + 4 * min(code - code // KING, PACK - len(SUITS) - 1) for code in range(PACK))]
)

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the random stream, not used after the deal
        ("in_place", np.int32),  # cards in finished beginnings of rows
        ("board", np.int8, (PLACES,)),  # card code of each place in reading order, 0 for a space
        ("spaces", np.int8, (SPACES,)),  # the places that are empty, in no order
        ("found_at", np.int8, (CARDS,)),  # places of both copies of each card, in reading order: 2 * (code - 1) + copy
        ("finished", np.int8, (ROWS,)),  # length of each row's finished beginning
    ],
    align=True,
)


@rule
def note_place(state, card, place):  # type: ignore[no-untyped-def]
    """Enter that the later copy of a card lies at a place, keeping both copies in reading order."""
    first = 2 * (card - 1)
    if state.found_at[first] > place:
        state.found_at[first + 1] = state.found_at[first]
        state.found_at[first] = place
    else:
        state.found_at[first + 1] = place


@helper
def extend(state, row):  # type: ignore[no-untyped-def]
    """Lengthen the finished beginning of a row as far as its cards allow."""
    first = COLUMNS * row
    ace = int(state.board[first])
    done = int(state.finished[row])
    before = done
    if ace != EMPTY:
        while done < KING and state.board[first + done] == ace + done:
            done += 1
    state.finished[row] = done
    state.in_place += done - before


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle both packs through the places of the board in reading order, beside an empty left column."""
    state.rng = state.deal
    state.in_place = 0
    for row in range(ROWS):
        state.board[COLUMNS * row] = EMPTY
        state.spaces[row] = COLUMNS * row
        state.finished[row] = 0
    for i in range(CARDS):
        state.board[i + i // KING + 1] = i % PACK + 1
    for i in range(CARDS - 1):
        place = i + i // KING + 1
        j = i + draw_below(state, CARDS - i)
        drawn = j + j // KING + 1
        card = state.board[drawn]
        state.board[drawn] = state.board[place]
        state.board[place] = card
    index_cards(state)


@rule
def index_cards(state):  # type: ignore[no-untyped-def]
    """Enter the places of all cards of a full board."""
    for i in range(CARDS):
        state.found_at[i] = -1
    for place in range(PLACES):
        card = int(state.board[place])
        if card != EMPTY:
            first = 2 * (card - 1)
            state.found_at[first + (1 if state.found_at[first] >= 0 else 0)] = place


@rule
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the moves that fill a space; return how many they are.

    Whether a space can be filled at all is worked out without a branch, which would often be guessed wrong.
    """
    for action in range(ACTIONS):
        mask[action] = 0
    count = 0
    for i in range(SPACES):
        place = np.uint64(state.spaces[i])
        row = place // np.uint64(COLUMNS)
        if place == np.uint64(COLUMNS) * row:
            for ace in range(ACES):
                loose = int(state.found_at[2 * KING * (ace // 2) + ace % 2]) % COLUMNS != 0
                mask[np.uint64(ROWS * ace) + row] = loose
                count += 1 if loose else 0
        else:
            left = np.uint64(state.board[place - np.uint64(1)])
            can = FOLLOWED[left]
            other = np.uint64(2) * max(left, np.uint64(1)) - np.uint64(1)
            copy = 1 if np.uint64(state.found_at[other]) == place - np.uint64(1) else 0
            first = np.uint64(FOLLOWING[left] + copy)
            mask[first] |= can
            mask[first + np.uint64(2)] |= can
            count += 2 * int(can)
    return count


@rule
def card_moved(action):  # type: ignore[no-untyped-def]
    """Return the code of the card that an action moves."""
    if action < ACE_ACTIONS:
        return action // (2 * ROWS) * KING + 1
    kind = (action - ACE_ACTIONS) // 4
    return kind // 12 * KING + kind % 12 + 2


@rule
def source_of(state, action):  # type: ignore[no-untyped-def]
    """Return the place that an action takes its card from."""
    copy = action // ROWS % 2 if action < ACE_ACTIONS else action // 2 % 2
    return int(state.found_at[2 * (card_moved(action) - 1) + copy])


@rule
def target_of(state, action):  # type: ignore[no-untyped-def]
    """Return the place that an action fills."""
    if action < ACE_ACTIONS:
        return COLUMNS * (action % ROWS)
    return int(state.found_at[2 * (card_moved(action) - 2) + action % 2]) + 1


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Fill a space; return the change in the share of cards that lie in finished beginnings of rows."""
    card = card_moved(action)
    source = source_of(state, action)
    target = target_of(state, action)
    before = int(state.in_place)
    state.board[source] = EMPTY
    state.board[target] = card
    for i in range(SPACES):
        if state.spaces[i] == target:
            state.spaces[i] = source
    first = 2 * (card - 1)
    if state.found_at[first] == source:
        state.found_at[first] = state.found_at[first + 1]
    note_place(state, card, target)
    row = source // COLUMNS
    lost = max(int(state.finished[row]) - source % COLUMNS, 0)
    state.finished[row] -= lost
    state.in_place -= lost
    extend(state, target // COLUMNS)
    return state.in_place / CARDS - before / CARDS


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether every row is finished."""
    return state.in_place == CARDS


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the card of each place in reading order."""
    copy_bytes(places, 0, state.board, 0, PLACES)


@rule
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Forget the deal number: all cards are known, so that nothing is dealt anew."""
    state.rng = key
    state.deal = 0


def place_name(place: int) -> str:
    """Return the name of a place: `r1c1` is the left end of the first row, where an ace goes."""
    return f"r{place // COLUMNS + 1}c{place % COLUMNS + 1}"


def move_of(state: Any, action: int) -> tuple[int, int, int]:
    """Return the card code of an action, the place that it takes the card from and the one that it fills."""
    found_at = state["found_at"]
    if action < ACE_ACTIONS:
        ace, row = divmod(action, ROWS)
        return ace // 2 * KING + 1, int(found_at[2 * KING * (ace // 2) + ace % 2]), COLUMNS * row
    kind, copies = divmod(action - ACE_ACTIONS, 4)
    card = kind // 12 * KING + kind % 12 + 2
    return card, int(found_at[2 * (card - 1) + copies // 2]), int(found_at[2 * (card - 2) + copies % 2]) + 1


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    card, source, target = move_of(state, action)
    if action >= ACE_ACTIONS and target % COLUMNS == 0:
        return f"{card_text(card)} cannot go right of {place_name(target - 1)}, the last place of its row"
    return f"{card_text(card)} of {place_name(source)} to {place_name(target)}"


def table(state: Any) -> Table:
    """Return the places that hold a card."""
    return {place_name(place): [card_text(int(card))] for place, card in enumerate(state["board"]) if card != EMPTY}


def read_board(given: Mapping[str, Sequence[str]]) -> dict[int, int]:
    """Return place -> card code, refusing unknown places and whatever is not exactly two packs."""
    names = {place_name(place): place for place in range(PLACES)}
    board: dict[int, int] = {}
    for name, cards in given.items():
        if name not in names:
            raise ValueError(f"there is no place {name!r}: the places are r1c1 to r{ROWS}c{COLUMNS}")
        if len(cards) > 1:
            raise ValueError(f"{name} holds {len(cards)} cards: a place takes one")
        for card in map(card_code, cards):
            if not 1 <= card <= PACK:
                raise ValueError(f"{name} holds {card_text(card)}: all cards of this game are face up")
            board[names[name]] = card
    laid = list(board.values())
    for card in range(1, PACK + 1):
        if laid.count(card) != 2:
            raise ValueError(f"{card_text(card)} lies in {laid.count(card)} places: each of the 52 cards lies in two")
    return board


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position.

    Raises:
        ValueError: unknown places, a place with several cards, cards missing or repeated, or no ace at a left end.
    """
    board = read_board(given)
    for row in range(ROWS):
        card = board.get(COLUMNS * row)
        if card is not None and card % KING != 1:
            raise ValueError(
                f"{place_name(COLUMNS * row)} holds {card_text(card)}: the left end of a row takes only aces"
            )
    state["deal"] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    state["board"] = 0
    state["board"][list(board)] = list(board.values())
    state["spaces"] = [place for place in range(PLACES) if place not in board]
    copies = [sorted(place for place, laid in board.items() if laid == card) for card in range(1, PACK + 1)]
    state["found_at"] = np.array(copies).reshape(-1)
    state["finished"] = [finished_length(board, row) for row in range(ROWS)]
    state["in_place"] = int(np.sum(state["finished"]))


def finished_length(board: Mapping[int, int], row: int) -> int:
    """Return how many cards of a row follow one another from an ace at its left end."""
    ace = board.get(COLUMNS * row)
    length = 0
    while ace is not None and length < KING and board.get(COLUMNS * row + length) == ace + length:
        length += 1
    return length


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names of the game."""
    del options
    names = tuple(place_name(place) for place in range(PLACES))
    spots = {name: Spot(place % COLUMNS, place // COLUMNS) for place, name in enumerate(names)}
    return Layout(ACTIONS, names, (), (ROWS, COLUMNS), spots, ("in_place",))


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state: there are none."""
    del state, options


GAME = Game(
    id="Paganini-v0",
    title="Paganini",
    state=STATE,
    packs=2,
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
