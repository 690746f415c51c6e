"""Robin Post.

## Description
Two packs. Fifty-two cards lie face up in nine rows of 4 5 6 7 8 7 6 5 4 that touch only at the corners; the other 52
are the stock. A card with two or more free corners may be lifted and packed on another, up or down in alternate
colours, with one free corner it may only be packed on. In each suit one foundation is built up from the ace and one
down from the king. The rule sheet is `seeds/rules/robin_post.md`.

## Action Space
`Discrete(540)`. Sources are the 52 positions in reading order, and 52, the top of the waste.

* `8 * source + 4 * side + 2 * colour + copy` (0 to 423): pack the source's card or whole pile on a card one rank below
  its lowest card (side 0) or one rank above its highest (side 1), of the first or second suit of the opposite colour
  (spades before clubs, hearts before diamonds). Of two such cards that may be packed on, copy 0 is the earlier in
  reading order. The pile is turned over when its other end has to touch.
* `424 + 2 * source + way` (424 to 529): the source's top card to the ascending (way 0) or descending (way 1)
  foundation of its suit.
* `530 + 2 * suit + giver` (530 to 537): the top card of one foundation of a suit to the other, the giver being the
  ascending (0) or the descending one (1).
* `538`: turn the next card of the stock; `539`: fill the vacancies from the stock.

## Observation Space
736 places: thirteen for each position, the top card of its pile first; the tops of the eight foundations; 52 for the
waste, its top card first. Then 19 counters: how many cards of each rank (13) and of each suit (4) are in the stock, its
size, and the vacancies. `observation="planes"`: int8, shape (737, 19); `observation="cards"`: int8, shape (755,).

## Starting State
The layout is dealt; foundations and waste are empty.

## Rewards
1/104 for each card that comes onto a foundation; a return of 1.0 means that the game is won.

## Episode End
Terminated when all 104 cards are on the foundations, or when no action is legal. Passing cards between two foundations
can go on for ever: truncated after the registered `max_episode_steps`.

## Arguments
None of its own.

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, FACE_DOWN, PACK, RANKS, SUITS, card_text, is_red, next_cards, rank_of
from patience_env.deals import reshuffle, shuffle
from patience_env.game import Counter, Game, Layout, Spot, Table
from patience_env.games.twin_foundations import (
    CARDS,
    FOUNDATIONS,
    SUIT_NAMES,
    WAYS,
    add_to_foundation,
    cards_left,
    count_unseen,
    foundation_piles,
    mark_fits,
    mark_transfers,
    played,
    read_piles,
    see_card,
    show_foundations,
    transfer,
    transfer_text,
    unseen_counters,
    wanted_down,
)
from patience_env.jit import helper, kernel, rule
from patience_env.lanes import copy_bytes

ROWS = (4, 5, 6, 7, 8, 7, 6, 5, 4)
POSITIONS = sum(ROWS)
DEPTH = 13  # no pile is deeper: its ranks run one way
WASTE = POSITIONS  # the source after the last position
SOURCES = POSITIONS + 1

FOUNDATION = 8 * SOURCES
TRANSFER = FOUNDATION + 2 * SOURCES
TURN = TRANSFER + 8
FILL = TURN + 1
ACTIONS = FILL + 1

# Row and x of each position: a row of n cards lies at x = -(n - 1), ..., n - 1 in steps of two.
SEATS = tuple((row, x) for row, n in enumerate(ROWS) for x in range(1 - n, n, 2))
NAMES = tuple(f"r{row + 1}c{(x + ROWS[row] - 1) // 2 + 1}" for row, x in SEATS)
SOURCE_NAMES = (*NAMES, "waste")
STEPS = ((-1, -1), (-1, 1), (1, -1), (1, 1))
# The positions at the four corners of each, -1 where the layout has none.
CORNERS = np.array(
    [[SEATS.index((r + i, x + j)) if (r + i, x + j) in SEATS else -1 for i, j in STEPS] for r, x in SEATS], np.int8
)

# A bit for each of the corners that the layout has.
NEIGHBOURS = np.array([sum(1 << int(q) for q in corners if q >= 0) for corners in CORNERS], np.int64)

RED = "HD"

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the stream of later chance (there is none)
        ("first", np.int32),  # the next card of the stock is deck[first]
        ("wasted", np.int32),  # cards in the waste
        ("height", np.int32, (POSITIONS,)),  # cards in the pile of each position
        ("deck", np.int8, (CARDS,)),  # deck[first:] is the stock in order
        ("waste", np.int8, (PACK,)),  # card codes, bottom first, 0 above the top
        ("up", np.int8, (4,)),  # cards on the foundation of each suit that begins with the ace
        ("down", np.int8, (4,)),  # cards on the foundation of each suit that begins with the king
        ("layout", np.int8, (POSITIONS * DEPTH,)),  # pile of position p, top first, from DEPTH * p; 0 below the bottom
        ("free", np.int8, (POSITIONS,)),  # free corners of each position (kept by `survey`)
        ("target", np.int8, (2 * (PACK + 1),)),  # from 2 * card: 1 + positions where it may be packed on, 0 none (same)
        ("unseen", np.int8, (17,)),  # cards in the stock of each rank (13), then of each suit (4)
    ],
    align=True,
)


@helper
def survey(state):  # type: ignore[no-untyped-def]
    """Count the free corners, and note where each card lies on top with one free at least, in reading order."""
    for i in range(np.uint64(2 * (PACK + 1))):
        state.target[i] = 0
    filled: Any = 0
    for p in range(np.uint64(POSITIONS)):
        filled |= (1 if state.height[p] else 0) << np.int64(p)
    for p in range(np.uint64(POSITIONS)):
        # At most four bits are set: the corners that hold a pile.
        corners = filled & NEIGHBOURS[p]
        free = 4
        while corners:
            corners &= corners - 1
            free -= 1
        state.free[p] = free
        card = np.uint64(state.layout[np.uint64(DEPTH) * p])
        if free and card != EMPTY:
            first = np.uint64(2) * card
            copy = np.uint64(1 if state.target[first] else 0)
            state.target[first + copy] = np.int64(p) + 1


@kernel
def survey_position(state):  # type: ignore[no-untyped-def]
    """Let Python code survey one position."""
    survey(state)


@helper
def fill_vacancies(state):  # type: ignore[no-untyped-def]
    """Deal a card to each vacancy, top row first, from left to right, until the stock is out."""
    for p in range(POSITIONS):
        if state.height[p] == 0 and state.first < CARDS:
            card = state.deck[state.first]
            see_card(state, card)
            state.layout[DEPTH * p] = card
            state.height[p] = 1
            state.first += 1


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle two packs and fill the layout."""
    state.rng = state.deal
    for i in range(CARDS):
        state.deck[i] = i % PACK + 1
    shuffle(state, state.deck, 0, CARDS)
    for i in range(13):
        state.unseen[i] = 8
    for i in range(13, 17):
        state.unseen[i] = 26
    for suit in range(4):
        state.up[suit] = 0
        state.down[suit] = 0
    for i in range(PACK):
        state.waste[i] = EMPTY
    for i in range(POSITIONS * DEPTH):
        state.layout[i] = EMPTY
    for p in range(POSITIONS):
        state.height[p] = 0
    state.first = 0
    state.wasted = 0
    fill_vacancies(state)
    survey(state)


@rule
def may_be_lifted(state, p):  # type: ignore[no-untyped-def]
    """Tell whether the pile of a position has two free corners or more."""
    return state.height[p] > 0 and state.free[p] >= 2


@rule
def top_of(state, source):  # type: ignore[no-untyped-def]
    """Return the top card of a source that holds one."""
    return int(state.waste[state.wasted - 1] if source == WASTE else state.layout[DEPTH * source])


@rule
def bottom_of(state, source):  # type: ignore[no-untyped-def]
    """Return the card of a source that lies lowest when it is lifted: of the waste only the top is."""
    return int(
        state.waste[state.wasted - 1] if source == WASTE else state.layout[DEPTH * source + state.height[source] - 1]
    )


@rule
def touching_end(state, source, side):  # type: ignore[no-untyped-def]
    """Return the source's card that touches the one it is packed on: its lowest (side 0) or its highest (side 1)."""
    top = top_of(state, source)
    bottom = bottom_of(state, source)
    return bottom if (rank_of(bottom) < rank_of(top)) == (side == 0) else top


@rule
def wanted_card(end, side, colour):  # type: ignore[no-untyped-def]
    """Return the card next to an end, on the given side and of the given suit of the opposite colour, or EMPTY."""
    rank = rank_of(end) - 1 + 2 * side
    suit = 3 * colour if is_red(end) else 1 + colour
    return 13 * suit + rank if 1 <= rank <= 13 else EMPTY


@rule
def is_turned(state, source, side):  # type: ignore[no-untyped-def]
    """Tell whether a pile has to be turned over for the end on the given side to touch."""
    return touching_end(state, source, side) != bottom_of(state, source)


@rule
def takes(state, q, side, turned):  # type: ignore[no-untyped-def]
    """Tell whether the pile of a position, whose top is the card wanted, goes on in the direction of the packed one.

    A single card takes either; a pile takes none that is turned over. Side 0 makes the pile ascend.
    """
    if state.height[q] == 1:
        return True
    ascending = rank_of(state.layout[DEPTH * q]) > rank_of(state.layout[DEPTH * q + 1])
    return not turned and ascending == (side == 0)


@helper
def mark_packings(state, mask, source):  # type: ignore[no-untyped-def]
    """Mark what a source may be packed on; return how many cards those are."""
    count = 0
    for side in range(2):
        end = touching_end(state, source, side)
        turned = end != bottom_of(state, source)
        for colour in range(2):
            card = np.uint64(2 * wanted_card(end, side, colour))
            for copy in range(np.uint64(2)):
                q = int(state.target[card + copy]) - 1
                if q < 0:  # a second copy is noted only behind a first
                    break
                if takes(state, q, side, turned):
                    mask[np.uint64(8 * source + 4 * side + 2 * colour) + copy] = 1
                    count += 1
    return count


@helper
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the legal actions; return how many they are."""
    for i in range(np.uint64(TRANSFER)):
        mask[i] = 0
    ups, downs = next_cards(state.up), wanted_down(state)
    count = 0
    vacancies = 0
    for source in range(POSITIONS):
        if may_be_lifted(state, np.uint64(source)):
            count += mark_packings(state, mask, source)
            count += mark_fits(ups, downs, top_of(state, source), mask, FOUNDATION + 2 * source)
        elif state.height[np.uint64(source)] == 0:
            vacancies += 1
    if state.wasted > 0:
        count += mark_packings(state, mask, WASTE)
        count += mark_fits(ups, downs, top_of(state, WASTE), mask, FOUNDATION + 2 * WASTE)
    count += mark_transfers(state, mask, TRANSFER)
    mask[TURN] = 1 if state.first < CARDS else 0
    mask[FILL] = 1 if state.first < CARDS and vacancies else 0
    return count + mask[TURN] + mask[FILL]


@helper
def turn(state):  # type: ignore[no-untyped-def]
    """Turn the next card of the stock face up on the waste."""
    card = state.deck[state.first]
    see_card(state, card)
    state.waste[state.wasted] = card
    state.wasted += 1
    state.first += 1


@helper
def take_top(state, source):  # type: ignore[no-untyped-def]
    """Take the top card of the waste or of a pile and return it."""
    card = top_of(state, source)
    if source == WASTE:
        state.wasted -= 1
        state.waste[state.wasted] = EMPTY
    else:
        first = DEPTH * source
        for i in range(first, first + DEPTH - 1):
            state.layout[i] = state.layout[i + 1]
        state.layout[first + DEPTH - 1] = EMPTY
        state.height[source] -= 1
    return card


@helper
def pack_on(state, source, side, q):  # type: ignore[no-untyped-def]
    """Pack the waste's top or a whole pile on the pile of position `q`, turned over if the touching end is its top."""
    count = 1 if source == WASTE else int(state.height[source])
    turned = is_turned(state, source, side)
    target = DEPTH * q
    for i in range(target + state.height[q] - 1, target - 1, -1):
        state.layout[i + count] = state.layout[i]
    for i in range(count):
        state.layout[target + (count - 1 - i if turned else i)] = take_top(state, source)
    state.height[q] += count


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Play a legal action; return 1/104 for a card brought onto a foundation, else 0."""
    reward = 0.0
    if action < FOUNDATION:
        source = action // 8
        side = action // 4 % 2
        card = wanted_card(touching_end(state, source, side), side, action // 2 % 2)
        pack_on(state, source, side, int(state.target[2 * card + action % 2]) - 1)
    elif action < TRANSFER:
        add_to_foundation(state, take_top(state, (action - FOUNDATION) // 2), action % 2)
        reward = played(state) / CARDS - (played(state) - 1) / CARDS
    elif action < TURN:
        transfer(state, (action - TRANSFER) // 2, (action - TRANSFER) % 2)
    elif action == TURN:
        turn(state)
    else:
        fill_vacancies(state)
    survey(state)
    return reward


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether all cards are on the foundations."""
    return played(state) == CARDS


@helper
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the piles from the top down, the foundations, the waste from the top down, and the counters."""
    copy_bytes(places, 0, state.layout, 0, POSITIONS * DEPTH)
    following = POSITIONS * DEPTH
    show_foundations(state, places, following)
    following += 8
    wasted = np.uint64(state.wasted)
    for i in range(wasted):
        places[np.uint64(following) + i] = state.waste[wasted - np.uint64(1) - i]
    for i in range(wasted, np.uint64(PACK)):
        places[np.uint64(following) + i] = EMPTY
    following += PACK
    copy_bytes(places, following, state.unseen, 0, 17)
    places[following + 17] = CARDS - state.first
    vacancies = 0
    for p in range(POSITIONS):
        vacancies += state.height[p] == 0
    places[following + 18] = vacancies


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Shuffle the stock from the random bits `key`."""
    state.rng = key
    state.deal = 0
    for i in range(state.first):
        state.deck[i] = EMPTY
    reshuffle(state, state.deck, state.first, CARDS)


def rank_in(text: str) -> int:
    """Return the rank, 0 to 12, of a two-letter card."""
    return RANKS.index(text[0])


def pile_of(state: Any, source: int) -> list[str]:
    """Return the cards that a source gives, bottom first."""
    if source == WASTE:
        wasted = int(state["wasted"])
        return [card_text(int(state["waste"][wasted - 1]))] if wasted else []
    pile = state["layout"][DEPTH * source : DEPTH * source + int(state["height"][source])]
    return [card_text(int(card)) for card in reversed(pile)]


def describe_packing(state: Any, action: int) -> str:
    """Say which pile goes on which card, and where that lies."""
    source, side, colour, copy = action // 8, action // 4 % 2, action // 2 % 2, action % 2
    pile = pile_of(state, source)
    if not pile:
        return f"{SOURCE_NAMES[source]}: no card to pack"
    end = (min, max)[side](pile[0], pile[-1], key=rank_in)
    rank = rank_in(end) - 1 + 2 * side
    if not 0 <= rank < 13:
        return f"{SOURCE_NAMES[source]}: {end} cannot be packed on a card {('below', 'above')[side]} it: there is none"
    suit = (3 * colour) if end[1] in RED else 1 + colour
    q = int(state["target"][2 * (13 * suit + rank + 1) + copy]) - 1
    turned = " turned over" if len(pile) > 1 and end == pile[-1] else ""
    place = f" at {NAMES[q]}" if q >= 0 else ": none may be packed on"
    cards = " ".join(pile)
    return (
        f"{SOURCE_NAMES[source]}: {cards}{turned} on the {('first', 'second')[copy]} {RANKS[rank]}{SUITS[suit]}{place}"
    )


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    if action < FOUNDATION:
        return describe_packing(state, action)
    if action < TRANSFER:
        source, way = divmod(action - FOUNDATION, 2)
        pile = pile_of(state, source)
        return f"{SOURCE_NAMES[source]}: {pile[-1] if pile else 'no card'} to the foundation built {WAYS[way]}"
    if action < TURN:
        return transfer_text(*divmod(action - TRANSFER, 2))
    return "turn the next card of the stock" if action == TURN else "fill the vacancies from the stock"


def table(state: Any) -> Table:
    """Return the piles of the layout, the foundations, waste and stock, bottom first."""
    piles = {name: pile_of(state, p) for p, name in enumerate(NAMES)}
    piles |= foundation_piles(state)
    piles["waste"] = [card_text(int(card)) for card in state["waste"][: int(state["wasted"])]]
    piles["stock"] = ["??"] * (CARDS - int(state["first"]))
    return piles


def check_piles(piles: Mapping[str, Sequence[int]]) -> None:
    """Refuse layouts that packing cannot make, and a stock or waste that is too large or not face-down."""
    for name in NAMES:
        pile = piles[name]
        if len(pile) > 1 and FACE_DOWN in pile:
            raise ValueError(f"{name} holds ?? in a pile: only a card alone may be left open")
        texts = " ".join(map(card_text, pile))
        steps = {after % 13 - card % 13 for card, after in pairwise(code - 1 for code in pile)}
        if steps and steps not in ({1}, {-1}):
            raise ValueError(f"{name} holds {texts}: a pile runs up or down by one rank, all one way")
        if any((card[1] in RED) == (after[1] in RED) for card, after in pairwise(texts.split())):
            raise ValueError(f"{name} holds {texts}: colours alternate in a pile")
    if any(code != FACE_DOWN for code in piles["stock"]):
        raise ValueError("stock holds a known card: its cards are '??'")
    if len(piles["stock"]) + len(piles["waste"]) > PACK:
        raise ValueError(
            f"stock and waste would hold {len(piles['stock'])} and {len(piles['waste'])} cards: together at most 52"
        )


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; cards given as `??`, and a stock left out, are dealt from what remains of the packs.

    Raises:
        ValueError: unknown places or cards, more or fewer than 104 cards, or piles that the rules cannot make.
    """
    piles = read_piles(given, (*NAMES, *FOUNDATIONS, "waste", "stock"), ())
    check_piles(piles)
    rest = rng.permutation(np.array(cards_left(piles), np.int8)).tolist()
    for name in STATE.names or ():
        state[name] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    for p, name in enumerate(NAMES):
        pile = [rest.pop() if code == FACE_DOWN else code for code in piles[name]]
        state["layout"][DEPTH * p : DEPTH * p + len(pile)] = pile[::-1]
        state["height"][p] = len(pile)
    waste = [rest.pop() if code == FACE_DOWN else code for code in piles["waste"]]
    state["waste"][: len(waste)] = waste
    state["wasted"] = len(waste)
    state["up"] = [len(piles[name]) for name in FOUNDATIONS[::2]]
    state["down"] = [len(piles[name]) for name in FOUNDATIONS[1::2]]
    state["first"] = CARDS - len(rest)
    state["deck"][CARDS - len(rest) :] = rest
    state["unseen"] = count_unseen(rest)
    survey_position(state)


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names."""
    del options
    places = [f"{name}, card {i + 1} from the top" for name in NAMES for i in range(DEPTH)]
    places += [*FOUNDATIONS, *(f"waste, card {i + 1} from the top" for i in range(PACK))]
    counters = [*unseen_counters(), Counter("stock", PACK), Counter("vacancies", POSITIONS)]
    spots = {name: Spot(0.55 * (x + 7), 1.05 * row, 0.0, 0.12) for name, (row, x) in zip(NAMES, SEATS, strict=True)}
    for i, name in enumerate(FOUNDATIONS):
        spots[name] = Spot(9.5 + 1.1 * (i % 2), 1.1 * (i // 2), label=f"{SUIT_NAMES[i // 2]} {WAYS[i % 2]}")
    spots["stock"] = Spot(9.5, 5.0, 0.004, 0.004, label="stock")
    spots["waste"] = Spot(9.5, 6.2, 0.05, 0.0, label="waste")
    return Layout(ACTIONS, tuple(places), tuple(counters), None, spots)


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state: there are none."""


GAME = Game(
    id="RobinPost-v0",
    title="Robin Post",
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
    has_grid=False,
)
