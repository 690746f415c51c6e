"""The Sultan.

## Description
Two packs. The eight kings and one ace of hearts are set out; one king of hearts, the Sultan, takes nothing. The seven
other kings take ace to queen of their suit and the ace of hearts takes two to queen, so that in the end eight queens
lie round the Sultan. Eight cards are the Divan, face up; the other 87 are the stock, turned one at a time onto the
talon. Divan cards and the talon's top may be played; a vacancy in the Divan is refilled at once, from the talon's top
or else from the stock. The rule sheet is `seeds/rules/sultan.md`.

## Action Space
`Discrete(11)`: 0 to 7 play the card of a Divan place, 8 play the talon's top, 9 turn the next card of the stock, 10
shuffle the talon into a new stock.

## Observation Space
Places (104): the top of each packet (spades 1 and 2, hearts ace, hearts king, diamonds 1 and 2, clubs 1 and 2), the
eight Divan places, the talon's top, and the whole talon from its bottom (87). Counters (19): redeals left, cards in
the stock, how many cards of each rank (13) and of each suit (4) are in the stock.
`observation="planes"`: int8, shape (105, 19). `observation="cards"`: int8, shape (123,).

## Starting State
Eight Divan cards, 87 cards in the stock, no talon.

## Rewards
1/95 for each card played onto a packet; a won game returns 1.0.

## Episode End
Terminated when all 95 cards are played (won) or no action is legal. With two redeals at most 358 steps.

## Arguments
* `redeals`: how often the talon may be shuffled into a new stock: 2 (default, the English text; the Russian text
  gives 1), a whole number from 0 to 99.

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, FACE_DOWN, PACK, RANKS, card_code, card_text
from patience_env.deals import reshuffle, shuffle
from patience_env.game import Counter, Game, Layout, Option, Spot, Table, whole_number
from patience_env.jit import helper, rule
from patience_env.lanes import copy_bytes

PACKETS = 8
DIVAN = 8
STOCK = 87
TO_PLAY = DIVAN + STOCK
QUEEN, KING = 12, 13
ACE_OF_HEARTS, KING_OF_HEARTS = card_code("AH"), card_code("KH")
HEARTS_ACE = 2
TALON, TURN, REDEAL = DIVAN, DIVAN + 1, DIVAN + 2
ACTIONS = DIVAN + 3

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the stream of later chance: the redeals' shuffles
        ("redeals", np.int32),  # redeals of a whole game
        ("redeals_left", np.int32),  # redeals not yet made
        ("turned", np.int32),  # the stock is pack[turned:], its next card first
        ("talon_size", np.int32),  # cards in the talon
        ("taken", np.int8, (PACKETS,)),  # rank of each packet's top, 0 for a king; two packets a suit
        ("divan", np.int8, (DIVAN,)),  # card code of each Divan place, 0 empty
        ("talon", np.int8, (STOCK,)),  # card codes from the bottom, 0 above the top
        ("pack", np.int8, (TO_PLAY,)),  # card codes; those before `turned` are stale
        ("in_stock", np.int8, (17,)),  # cards in the stock of each rank (13), then of each suit (4)
    ],
    align=True,
)


@rule
def count_in_stock(state, card, change):  # type: ignore[no-untyped-def]
    """Keep the counts of ranks and suits in step with a card that enters (1) or leaves (-1) the stock."""
    code = int(card) - 1
    state.in_stock[code % 13] += change
    state.in_stock[13 + code // 13] += change


@rule
def next_of_stock(state):  # type: ignore[no-untyped-def]
    """Take the next card of the stock, which must not be out."""
    card = state.pack[state.turned]
    state.turned += 1
    count_in_stock(state, card, -1)
    return card


@rule
def lift_talon(state):  # type: ignore[no-untyped-def]
    """Take the top of the talon, which must not be empty."""
    state.talon_size -= 1
    card = state.talon[state.talon_size]
    state.talon[state.talon_size] = EMPTY
    return card


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Set out the kings and the ace, shuffle the other 95 cards and deal the Divan."""
    place = 0
    for copy in range(2):
        for card in range(1, PACK + 1):
            if card % 13 != 0 and (card != ACE_OF_HEARTS or copy > 0):
                state.pack[place] = card
                place += 1
    state.rng = state.deal
    shuffle(state, state.pack, 0, TO_PLAY)
    for packet in range(PACKETS):
        state.taken[packet] = 1 if packet == HEARTS_ACE else 0
    for i in range(STOCK):
        state.talon[i] = EMPTY
    state.talon_size = 0
    state.redeals_left = state.redeals
    state.turned = 0
    start_stock(state)
    for place in range(DIVAN):
        state.divan[place] = next_of_stock(state)


@helper
def start_stock(state):  # type: ignore[no-untyped-def]
    """Count the ranks and suits of a stock that has just been made of pack[turned:]."""
    for i in range(17):
        state.in_stock[i] = 0
    for i in range(state.turned, TO_PLAY):
        count_in_stock(state, state.pack[i], 1)


@rule
def wanted_cards(state):  # type: ignore[no-untyped-def]
    """Return a bit for each card code that some packet takes; a full packet asks for a king, and none is in play."""
    wanted = 0
    for packet in range(PACKETS):
        wanted |= 1 << (13 * (packet // 2) + int(state.taken[packet]) + 1)
    return wanted


@rule
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the Divan cards and the talon's top that fit, turning and redealing; return how many actions are legal."""
    wanted = wanted_cards(state)
    count = 0
    for place in range(DIVAN):
        fits = (wanted >> int(state.divan[place])) & 1
        mask[place] = fits
        count += fits
    top = int(state.talon[state.talon_size - 1]) if state.talon_size > 0 else EMPTY
    mask[TALON] = (wanted >> top) & 1
    mask[TURN] = 1 if state.turned < TO_PLAY else 0
    mask[REDEAL] = 1 if state.turned == TO_PLAY and state.talon_size > 0 and state.redeals_left > 0 else 0
    return count + mask[TALON] + mask[TURN] + mask[REDEAL]


@rule
def add_to_packet(state, card):  # type: ignore[no-untyped-def]
    """Lay a card that fits on the first packet of its suit that takes it."""
    code = int(card) - 1
    packet = 2 * (code // 13)
    if state.taken[packet] != code % 13:
        packet += 1
    state.taken[packet] += 1


@helper
def refill(state, place):  # type: ignore[no-untyped-def]
    """Fill a Divan vacancy from the talon's top, else from the stock, else leave it."""
    if state.talon_size > 0:
        state.divan[place] = lift_talon(state)
    elif state.turned < TO_PLAY:
        state.divan[place] = next_of_stock(state)
    else:
        state.divan[place] = EMPTY


@helper
def redeal(state):  # type: ignore[no-untyped-def]
    """Shuffle the talon, taken from its bottom up, into a new stock."""
    first = TO_PLAY - state.talon_size
    for i in range(state.talon_size):
        state.pack[first + i] = state.talon[i]
        state.talon[i] = EMPTY
    state.turned = first
    state.talon_size = 0
    state.redeals_left -= 1
    shuffle(state, state.pack, first, TO_PLAY)
    start_stock(state)


@rule
def played(state):  # type: ignore[no-untyped-def]
    """Return how many cards have been played to the packets (the ace of hearts lies there from the start)."""
    total = -1
    for packet in range(PACKETS):
        total += int(state.taken[packet])
    return total


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Play a card, turn or redeal; return 1/95 for a card played."""
    if action == TURN:
        state.talon[state.talon_size] = next_of_stock(state)
        state.talon_size += 1
        return 0.0
    if action == REDEAL:
        redeal(state)
        return 0.0
    if action == TALON:
        add_to_packet(state, lift_talon(state))
    else:
        add_to_packet(state, state.divan[action])
        refill(state, action)
    return played(state) / TO_PLAY - (played(state) - 1) / TO_PLAY


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether eight queens lie round the Sultan."""
    return played(state) == TO_PLAY


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the packets' tops, the Divan, the talon's top, the talon from its bottom, then the counters."""
    for packet in range(PACKETS):
        rank = int(state.taken[packet])
        places[packet] = 13 * (packet // 2) + (rank if rank > 0 else KING)
    for place in range(DIVAN):
        places[PACKETS + place] = state.divan[place]
    following = PACKETS + DIVAN
    places[following] = state.talon[state.talon_size - 1] if state.talon_size > 0 else EMPTY
    following += 1
    copy_bytes(places, following, state.talon, 0, STOCK)
    following += STOCK
    places[following] = state.redeals_left
    places[following + 1] = TO_PLAY - state.turned
    copy_bytes(places, following + 2, state.in_stock, 0, 17)


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Shuffle the stock, whose cards are known but not their order, and all later chance, from `key` (uint64)."""
    state.rng = key
    state.deal = 0
    reshuffle(state, state.pack, state.turned, TO_PLAY)


PACKET_NAMES = (
    "spades 1",
    "spades 2",
    "hearts ace",
    "hearts king",
    "diamonds 1",
    "diamonds 2",
    "clubs 1",
    "clubs 2",
)
DIVAN_NAMES = tuple(f"divan {place + 1}" for place in range(DIVAN))
PILE_NAMES = ("sultan", *PACKET_NAMES, *DIVAN_NAMES, "talon", "stock")
REDEALS_LEFT = "redeals left"


def packet_cards(packet: int, rank: int) -> list[str]:
    """Return the cards of a packet whose top has the given rank (0 for a king), bottom first."""
    suit = 13 * (packet // 2)
    first = [] if packet == HEARTS_ACE else [card_text(suit + KING)]
    return first + [card_text(suit + taken) for taken in range(1, rank + 1)]


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    if action == TURN:
        return "turn the next card of the stock onto the talon"
    if action == REDEAL:
        return f"shuffle the talon into a new stock (redeals left: {int(state['redeals_left'])})"
    if action == TALON:
        size = int(state["talon_size"])
        return f"play {card_text(int(state['talon'][size - 1])) if size else 'no card'} from the talon"
    card = int(state["divan"][action])
    return f"play {card_text(card) if card else 'no card'} from {DIVAN_NAMES[action]}"


def table(state: Any) -> Table:
    """Return the Sultan, the packets, the Divan, the talon, the face-down stock and how many redeals are left."""
    piles = {"sultan": [card_text(KING_OF_HEARTS)]}
    for packet, name in enumerate(PACKET_NAMES):
        piles[name] = packet_cards(packet, int(state["taken"][packet]))
    for place, name in enumerate(DIVAN_NAMES):
        card = int(state["divan"][place])
        piles[name] = [card_text(card)] if card else []
    piles["talon"] = [card_text(int(card)) for card in state["talon"][: state["talon_size"]]]
    piles["stock"] = [card_text(FACE_DOWN)] * (TO_PLAY - int(state["turned"]))
    piles[REDEALS_LEFT] = [str(int(state["redeals_left"]))]
    return piles


def check_piles(given: Mapping[str, Sequence[str]]) -> None:
    """Refuse piles that the game does not have, and another Sultan."""
    for name in given:
        if name not in (*PILE_NAMES, REDEALS_LEFT):
            raise ValueError(f"there is no pile {name!r}: the piles are {', '.join(PILE_NAMES)}")
    if list(given.get("sultan", ["KH"])) != ["KH"]:
        raise ValueError(f"the Sultan is the king of hearts alone, ['KH'], not {list(given['sultan'])}")


def read_packet(packet: int, cards: Sequence[str]) -> int:
    """Return the rank of a packet's top, 0 for a king, refusing cards that are out of order."""
    whole = packet_cards(packet, QUEEN)
    texts = [card_text(card_code(card)) for card in cards]
    if not texts or texts != whole[: len(texts)]:
        raise ValueError(f"{PACKET_NAMES[packet]} holds {texts}: it must hold the first one or more of {whole}")
    return len(texts) - (packet != HEARTS_ACE)


def read_divan(given: Mapping[str, Sequence[str]]) -> list[int]:
    """Return the card code of each Divan place, 0 where it is empty."""
    divan = []
    for name in DIVAN_NAMES:
        cards = [card_code(card) for card in given.get(name, [])]
        if len(cards) > 1:
            raise ValueError(f"{name} holds {len(cards)} cards: a place of the Divan holds one")
        divan.append(cards[0] if cards else EMPTY)
    return divan


def rest_of_pack(taken: Sequence[int], shown: Sequence[int]) -> list[int]:
    """Return the cards that lie neither on a packet nor among `shown` (Divan and talon), sorted."""
    whole = Tally(code for packet in range(PACKETS) for code in map(card_code, packet_cards(packet, QUEEN)))
    played = Tally(code for packet, rank in enumerate(taken) for code in map(card_code, packet_cards(packet, rank)))
    left = whole - played
    for card in shown:
        if left[card] == 0:
            in_all = whole[card] + (card == KING_OF_HEARTS)
            raise ValueError(f"{card_text(card)} lies on the table too often: there are {in_all}, packets included")
        left[card] -= 1
    return sorted(left.elements())


def read_redeals(given: Mapping[str, Sequence[str]], allowed: int, default: int) -> int:
    """Return the redeals left that a table tells, or else the default."""
    if REDEALS_LEFT not in given:
        return default
    told = list(given[REDEALS_LEFT])
    if len(told) != 1 or not told[0].isdecimal() or int(told[0]) > allowed:
        raise ValueError(f"{REDEALS_LEFT} must be a list of one number from 0 to {allowed}, such as ['0'], not {told}")
    return int(told[0])


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; the stock is what lies nowhere else, shuffled.

    A packet that is left out is not begun; the redeals left stay as they are in the present position where the table
    does not tell them.

    Raises:
        ValueError: unknown piles, packets out of order, cards too many, or a vacancy that must have been refilled.
    """
    check_piles(given)
    taken = [read_packet(i, given.get(name, packet_cards(i, i == HEARTS_ACE))) for i, name in enumerate(PACKET_NAMES)]
    divan = read_divan(given)
    talon = [card_code(card) for card in given.get("talon", [])]
    shown = [card for card in divan if card] + talon
    if any(not 1 <= card <= PACK for card in shown):
        raise ValueError("the Divan and the talon lie face up: they hold known cards such as 'TH', not '??' or '--'")
    rest = rest_of_pack(taken, shown)
    stock = given.get("stock")
    if stock is not None and list(stock) != [card_text(FACE_DOWN)] * len(rest):
        raise ValueError(f"stock must be {len(rest)} times '??' (or left out): its cards are face-down")
    if EMPTY in divan and (talon or rest):
        raise ValueError(
            f"{DIVAN_NAMES[divan.index(EMPTY)]} is empty while the talon holds {len(talon)} cards and the stock "
            f"{len(rest)}: a vacancy is refilled at once"
        )
    present = int(state["redeals_left"] if state["rng"] else state["redeals"])
    state["redeals_left"] = read_redeals(given, int(state["redeals"]), present)
    state["deal"] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    state["turned"] = TO_PLAY - len(rest)
    state["talon_size"] = len(talon)
    state["taken"] = taken
    state["divan"] = divan
    state["talon"] = talon + [EMPTY] * (STOCK - len(talon))
    state["pack"] = np.concatenate([np.zeros(TO_PLAY - len(rest), np.int8), rng.permutation(np.array(rest, np.int8))])
    ranks_and_suits = Tally(entry for card in rest for entry in ((card - 1) % 13, 13 + (card - 1) // 13))
    state["in_stock"] = [ranks_and_suits[i] for i in range(17)]


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes, places and counters."""
    places = (*PACKET_NAMES, *DIVAN_NAMES, "talon top", *(f"talon {i + 1}" for i in range(STOCK)))
    counters = [Counter("redeals left", options["redeals"]), Counter("stock", STOCK)]
    counters += [Counter(f"stock {rank}", 8) for rank in RANKS]
    counters += [Counter(f"stock {suit}", 2 * QUEEN) for suit in ("spades", "hearts", "diamonds", "clubs")]
    spots = {"sultan": Spot(4.0, 1.2, label="Sultan")}
    around = ((2.9, 0.0), (5.1, 0.0), (4.0, 0.0), (4.0, 2.4), (2.9, 2.4), (5.1, 2.4), (2.9, 1.2), (5.1, 1.2))
    spots |= {name: Spot(x, y) for name, (x, y) in zip(PACKET_NAMES, around, strict=True)}
    spots |= {name: Spot(1.2 if place < 4 else 6.8, 1.15 * (place % 4) - 0.5) for place, name in enumerate(DIVAN_NAMES)}
    spots["stock"] = Spot(0.0, 4.3, label="stock")
    spots["talon"] = Spot(1.2, 4.3, 0.08, label="talon")
    return Layout(ACTIONS, places, tuple(counters), None, spots, ("redeals_left",))


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state."""
    state["redeals"] = options["redeals"]


GAME = Game(
    id="Sultan-v0",
    title="The Sultan",
    state=STATE,
    packs=2,
    options=(
        Option("redeals", 2, whole_number("redeals", 0, 99), "how often the talon may be shuffled into a new stock"),
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
    has_grid=False,
)
