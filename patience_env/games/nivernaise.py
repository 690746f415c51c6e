"""La Nivernaise.

## Description
Two packs. Eight cards lie in two Flanks of four, and six packets of four form the Line; the other 72 are the stock. In
each suit one foundation is built up from the ace and one down from the king. Flank cards and the tops of the packets
are available; vacancies in the Flanks let the player look below the tops and set cards aside. The rule sheet is
`seeds/rules/nivernaise.md`.

## Action Space
`Discrete(45)`, flanks and packets numbered from 0, suits spades, hearts, diamonds, clubs:

* `2 * flank + way` (0 to 15): the flank's card to the ascending (way 0) or descending (way 1) foundation of its suit;
* `16 + 2 * packet + way` (16 to 27): the packet's top card to a foundation;
* `28 + packet` (28 to 33): the packet's top card to the lowest-numbered vacant flank;
* `34`: the next card of the stock to the lowest-numbered vacant flank;
* `35 + 2 * suit + giver` (35 to 42): the top card of one foundation of a suit to the other, the giver being the
  ascending (0) or the descending one (1);
* `43`: deal a round; `44`: redeal.

## Observation Space
184 places: the eight flanks; the tops of the foundations (ascending then descending, suit by suit); sixteen places for
each packet, its top card first; 72 places for the stock, the next card first. Cards that the player has not seen are
face-down; a card once seen stays known, through the redeal too. Then 19 counters: how many cards of each rank (13) and
of each suit (4) have not been seen, the redeals left and the vacant flanks. `observation="planes"`: int8, shape
(185, 19); `observation="cards"`: int8, shape (203,).

## Starting State
Flanks and Line are dealt; the tops of the packets are seen, nothing below them, and no card of the stock.

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
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, FACE_DOWN, PACK, card_text, next_cards
from patience_env.deals import draw_below, shuffle
from patience_env.game import Counter, Game, Layout, Spot, Table
from patience_env.games.twin_foundations import (
    CARDS,
    FOUNDATIONS,
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
from patience_env.lanes import HALF, clear_half, copy_bytes, lowest_one, ones, show_cards, show_cards_back

FLANKS = 8
LINE = 6
FOUR = 4  # cards dealt together on a packet
DEPTH = 16  # no packet grows deeper: four at first, then four in each of at most three rounds
STOCK = LINE * DEPTH  # where the stock begins in `cards`
MOST_STOCK = CARDS - FLANKS - LINE * FOUR
FLANK_NAMES = tuple(f"flank {f + 1}" for f in range(FLANKS))
PACKET_NAMES = tuple(f"packet {p + 1}" for p in range(LINE))

PACKET_TO_FOUNDATION = 2 * FLANKS
PACKET_TO_FLANK = PACKET_TO_FOUNDATION + 2 * LINE
STOCK_TO_FLANK = PACKET_TO_FLANK + LINE
TRANSFER = STOCK_TO_FLANK + 1
ROUND = TRANSFER + 8
REDEAL = ROUND + 1
ACTIONS = REDEAL + 1

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the stream of later chance (the redeal does not shuffle: none)
        ("first", np.int32),  # the next card of the stock is cards[STOCK + first]
        ("end", np.int32),  # the stock ends before cards[STOCK + end]
        ("redeals", np.int32),  # redeals left
        ("height", np.int32, (LINE,)),  # cards in each packet
        ("flank", np.int8, (FLANKS,)),  # card code of each flank place, 0 vacant
        ("up", np.int8, (4,)),  # cards on the foundation of each suit that begins with the ace
        ("down", np.int8, (4,)),  # cards on the foundation of each suit that begins with the king
        # `observe` takes sixteen bytes at a time, up to twelve before and fifteen behind these two: keep fields there.
        ("cards", np.int8, (STOCK + CARDS,)),  # packet p, bottom first, from DEPTH * p; then the stock; 0 no card
        ("hidden", np.int8, (STOCK + CARDS,)),  # 1 where `cards` holds a card that the player has never seen
        ("unseen", np.int8, (17,)),  # cards never seen of each rank (13), then of each suit (4)
    ],
    align=True,
)


@rule
def see(state, i):  # type: ignore[no-untyped-def]
    """Let the player know the card at `cards[i]` from now on."""
    if state.hidden[i]:
        state.hidden[i] = 0
        see_card(state, state.cards[i])


@rule
def vacancies(state):  # type: ignore[no-untyped-def]
    """Return how many flank places are vacant."""
    count = 0
    for f in range(FLANKS):
        count += state.flank[f] == EMPTY
    return count


@rule
def vacancy(state):  # type: ignore[no-untyped-def]
    """Return the lowest-numbered vacant flank, or FLANKS when there is none."""
    f = 0
    while f < FLANKS and state.flank[f] != EMPTY:
        f += 1
    return f


@helper
def look_into_packets(state):  # type: ignore[no-untyped-def]
    """See the top of each packet and as many cards below it as there are vacancies in the Flanks."""
    deep = vacancies(state) + 1
    for p in range(LINE):
        height = int(state.height[p])
        in_sight = (1 << height) - (1 << max(height - deep, 0))
        unknown = ones(state.hidden, DEPTH * p) & in_sight
        while unknown:
            see(state, DEPTH * p + lowest_one(unknown))
            unknown &= unknown - 1


@kernel
def look(state):  # type: ignore[no-untyped-def]
    """Let Python code look into the packets of one position."""
    look_into_packets(state)


@helper
def deal_packet(state, p):  # type: ignore[no-untyped-def]
    """Deal four cards of the stock, or what remains of it, together on a packet."""
    for _ in range(min(FOUR, state.end - state.first)):
        source = STOCK + state.first
        target = DEPTH * p + state.height[p]
        state.cards[target] = state.cards[source]
        state.hidden[target] = state.hidden[source]
        state.cards[source] = EMPTY
        state.hidden[source] = 0
        state.first += 1
        state.height[p] += 1


@helper
def deal_round(state):  # type: ignore[no-untyped-def]
    """Deal on each packet in turn from the left, until the stock is out."""
    for p in range(LINE):
        deal_packet(state, p)


@helper
def redeal(state):  # type: ignore[no-untyped-def]
    """Take up the packets from the left, each on those before, turn the whole and deal the Line anew."""
    count = 0
    for p in range(LINE):
        for i in range(DEPTH * p, DEPTH * p + state.height[p]):
            state.cards[STOCK + count] = state.cards[i]
            state.hidden[STOCK + count] = state.hidden[i]
            state.cards[i] = EMPTY
            state.hidden[i] = 0
            count += 1
        state.height[p] = 0
    state.first = 0
    state.end = count
    state.redeals -= 1
    deal_round(state)


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle two packs and lay out the Flanks, then the Line."""
    state.rng = state.deal
    for i in range(STOCK):
        state.cards[i] = EMPTY
        state.hidden[i] = 0
    for i in range(CARDS):
        state.cards[STOCK + i] = i % PACK + 1
        state.hidden[STOCK + i] = 1
    shuffle(state, state.cards, STOCK, STOCK + CARDS)
    for i in range(13):
        state.unseen[i] = 8
    for i in range(13, 17):
        state.unseen[i] = 26
    for s in range(4):
        state.up[s] = 0
        state.down[s] = 0
    for p in range(LINE):
        state.height[p] = 0
    state.first = 0
    state.end = CARDS
    state.redeals = 1
    for f in range(FLANKS):
        stock_to_flank(state, f)
    deal_round(state)
    look_into_packets(state)


@rule
def top_of(state, p):  # type: ignore[no-untyped-def]
    """Return the top card of a packet that holds cards."""
    return state.cards[DEPTH * p + state.height[p] - 1]


@helper
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark the legal actions; return how many they are."""
    ups, downs = next_cards(state.up), wanted_down(state)
    count = 0
    vacant = 0
    for f in range(FLANKS):
        card = int(state.flank[np.uint64(f)])
        count += mark_fits(ups, downs, card, mask, np.uint64(2 * f))
        vacant |= 1 if card == EMPTY else 0
    cards = 0
    for p in range(LINE):
        height = int(state.height[np.uint64(p)])
        card = int(state.cards[np.uint64(DEPTH * p + max(height - 1, 0))])  # EMPTY in an empty packet
        count += mark_fits(ups, downs, card, mask, np.uint64(PACKET_TO_FOUNDATION + 2 * p))
        free = vacant if height else 0
        mask[np.uint64(PACKET_TO_FLANK + p)] = free
        count += free
        cards += height
    count += mark_transfers(state, mask, TRANSFER)
    stock = state.first < state.end
    mask[STOCK_TO_FLANK] = 1 if stock and vacant else 0
    mask[ROUND] = 1 if stock else 0
    mask[REDEAL] = 1 if not stock and cards > 0 and state.redeals > 0 else 0
    return count + mask[STOCK_TO_FLANK] + mask[ROUND] + mask[REDEAL]


@helper
def take_top(state, p):  # type: ignore[no-untyped-def]
    """Take the top card of a packet, which is dealt anew if that was its last, and return it."""
    state.height[p] -= 1
    i = DEPTH * p + state.height[p]
    card = int(state.cards[i])
    state.cards[i] = EMPTY
    if state.height[p] == 0:
        deal_packet(state, p)
    return card


@helper
def stock_to_flank(state, f):  # type: ignore[no-untyped-def]
    """Turn the next card of the stock into a vacant flank."""
    i = STOCK + state.first
    see(state, i)
    state.flank[f] = state.cards[i]
    state.cards[i] = EMPTY
    state.first += 1


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Play a legal action; return by how much the share of cards on foundations grows (so a win sums to exactly 1)."""
    reward = 0.0
    if action < PACKET_TO_FLANK:
        if action < PACKET_TO_FOUNDATION:
            card = int(state.flank[action // 2])
            state.flank[action // 2] = EMPTY
        else:
            card = take_top(state, (action - PACKET_TO_FOUNDATION) // 2)
        add_to_foundation(state, card, action % 2)
        reward = played(state) / CARDS - (played(state) - 1) / CARDS
    elif action < STOCK_TO_FLANK:
        f = vacancy(state)
        state.flank[f] = take_top(state, action - PACKET_TO_FLANK)
    elif action == STOCK_TO_FLANK:
        stock_to_flank(state, vacancy(state))
    elif action < ROUND:
        transfer(state, (action - TRANSFER) // 2, (action - TRANSFER) % 2)
    elif action == ROUND:
        deal_round(state)
    else:
        redeal(state)
    look_into_packets(state)
    return reward


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether all cards are on the foundations."""
    return played(state) == CARDS


@helper
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write flanks, foundations, packets from the top down, the stock in dealing order, and the counters."""
    for f in range(FLANKS):
        places[f] = state.flank[f]
    show_foundations(state, places, FLANKS)
    following = FLANKS + 8
    for p in range(LINE):
        height = int(state.height[p])
        show_cards_back(places, following, state.cards, state.hidden, DEPTH * p + height, height)
        following += DEPTH
    stock = int(state.end) - int(state.first)
    first = STOCK + int(state.first)
    # What follows the stock's places is written over the excess of the last sixteen.
    for i in range(0, MOST_STOCK, HALF):
        if i < stock:
            show_cards(places, following + i, state.cards, state.hidden, first + i, min(stock - i, HALF))
        else:
            clear_half(places, following + i)
    following += MOST_STOCK
    copy_bytes(places, following, state.unseen, 0, 17)
    places[following + 17] = state.redeals
    places[following + 18] = vacancies(state)


@helper
def sort_hidden(state):  # type: ignore[no-untyped-def]
    """Sort the cards that the player has never seen, so that the order in which they lay leaves no trace."""
    once = 0  # a bit for each code that is among them, and for each that is so twice
    twice = 0
    for i in range(STOCK + CARDS):
        if state.hidden[i]:
            bit = 1 << int(state.cards[i])
            twice |= once & bit
            once |= bit
    code = 1
    for i in range(STOCK + CARDS):
        if state.hidden[i]:
            while not (once >> code) & 1:
                code += 1
            state.cards[i] = code
            if (twice >> code) & 1:
                twice &= ~(1 << code)
            else:
                once &= ~(1 << code)


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Shuffle the cards that the player has never seen among their places, from the random bits `key`."""
    state.rng = key
    state.deal = 0
    sort_hidden(state)
    for i in range(STOCK + CARDS):
        if state.hidden[i]:
            j = i + draw_below(state, STOCK + CARDS - i)
            while not state.hidden[j]:
                j = i + draw_below(state, STOCK + CARDS - i)
            card = state.cards[j]
            state.cards[j] = state.cards[i]
            state.cards[i] = card


def card_in(state: Any, place: int) -> str:
    """Return the text of a card the player may look at, `??` for a hidden one and `no card` for none."""
    code = FACE_DOWN if state["hidden"][place] else int(state["cards"][place])
    return card_text(code) if code else "no card"


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    if action < PACKET_TO_FOUNDATION:
        card = card_text(int(state["flank"][action // 2]))
        return f"flank {action // 2 + 1}: {card} to the foundation built {WAYS[action % 2]}"
    if action < STOCK_TO_FLANK:
        to_flank = action >= PACKET_TO_FLANK
        p = action - PACKET_TO_FLANK if to_flank else (action - PACKET_TO_FOUNDATION) // 2
        card = card_in(state, DEPTH * p + int(state["height"][p]) - 1) if state["height"][p] else "no card"
        goal = "a vacant flank" if to_flank else f"the foundation built {WAYS[action % 2]}"
        return f"packet {p + 1}: {card} to {goal}"
    if action == STOCK_TO_FLANK:
        return "the next card of the stock to a vacant flank"
    if action < ROUND:
        return transfer_text(*divmod(action - TRANSFER, 2))
    return "deal a round: four cards on each packet" if action == ROUND else "redeal the Line"


def table(state: Any) -> Table:
    """Return all piles, bottom first (the stock's next card is its last), and how many redeals are left."""
    piles = {name: [card_text(int(c))] if c else [] for name, c in zip(FLANK_NAMES, state["flank"], strict=True)}
    piles |= foundation_piles(state)
    for p, name in enumerate(PACKET_NAMES):
        piles[name] = [card_in(state, DEPTH * p + i) for i in range(int(state["height"][p]))]
    stock = range(STOCK + int(state["first"]), STOCK + int(state["end"]))
    piles["stock"] = [card_in(state, i) for i in reversed(stock)]
    piles["redeals"] = [str(int(state["redeals"]))]
    return piles


def check_piles(piles: Mapping[str, Sequence[int]]) -> None:
    """Refuse flanks, packets and stock that the rules cannot make."""
    for name in FLANK_NAMES:
        if len(piles[name]) > 1:
            raise ValueError(f"{name} holds {len(piles[name])} cards: a flank takes one")
        if FACE_DOWN in piles[name]:
            raise ValueError(f"{name} holds ??: its card is known")
    stock = len(piles["stock"])
    if stock > MOST_STOCK:
        raise ValueError(f"the stock would hold {stock} cards: it never holds more than {MOST_STOCK}")
    most = DEPTH - FOUR * -(-stock // (LINE * FOUR))
    for name in PACKET_NAMES:
        if len(piles[name]) > most:
            raise ValueError(f"{name} holds {len(piles[name])} cards: with {stock} in the stock at most {most} can lie")
        if stock and not piles[name]:
            raise ValueError(f"{name} is empty: while there is a stock an emptied packet is dealt anew")


def read_redeals(state: Any, given: Mapping[str, Sequence[str]]) -> int:
    """Return the redeals left: what the table says, else those of the present position (1 before the first deal)."""
    if "redeals" not in given:
        return int(state["redeals"]) if state["end"] else 1
    if list(given["redeals"]) not in (["0"], ["1"]):
        raise ValueError(f"redeals must be ['0'] or ['1'], the redeals left, not {list(given['redeals'])!r}")
    return int(given["redeals"][0])


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; cards given as `??`, and a stock left out, are dealt from what remains of the packs.

    Raises:
        ValueError: unknown places or cards, more or fewer than 104 cards, or piles that the rules cannot make.
    """
    piles = read_piles(given, (*FLANK_NAMES, *FOUNDATIONS, *PACKET_NAMES, "stock"), ("redeals",))
    check_piles(piles)
    redeals = read_redeals(state, given)
    rest = cards_left(piles)
    for name in STATE.names or ():
        state[name] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    hidden = iter(rng.permutation(np.array(rest, np.int8)))
    state["flank"] = [sum(piles[name]) for name in FLANK_NAMES]
    state["up"] = [len(piles[name]) for name in FOUNDATIONS[::2]]
    state["down"] = [len(piles[name]) for name in FOUNDATIONS[1::2]]
    starts = {name: DEPTH * p for p, name in enumerate(PACKET_NAMES)} | {"stock": STOCK}
    for place, start in starts.items():
        for i, code in enumerate(piles[place] if place != "stock" else piles[place][::-1], start):
            state["hidden"][i] = code == FACE_DOWN
            state["cards"][i] = next(hidden) if code == FACE_DOWN else code
    state["height"] = [len(piles[name]) for name in PACKET_NAMES]
    state["end"] = len(piles["stock"])
    state["redeals"] = redeals
    state["unseen"] = count_unseen(rest)
    look(state)


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names."""
    del options
    places = [*FLANK_NAMES, *FOUNDATIONS]
    places += [f"{packet}, card {i + 1} from the top" for packet in PACKET_NAMES for i in range(DEPTH)]
    places += [f"stock, card {i + 1} to come" for i in range(MOST_STOCK)]
    counters = [*unseen_counters(), Counter("redeals left", 1), Counter("vacant flanks", FLANKS)]
    spots = {name: Spot(8.6 * (f // 4), 1.1 * (f % 4), label=str(f + 1)) for f, name in enumerate(FLANK_NAMES)}
    for i, name in enumerate(FOUNDATIONS):
        spots[name] = Spot(2.1 + 1.5 * (i // 2), 1.1 * (i % 2), label="up" if i % 2 == 0 else "down")
    for p, name in enumerate(PACKET_NAMES):
        spots[name] = Spot(1.5 + 1.1 * p, 2.4, 0.0, 0.25, label=str(p + 1))
    spots["stock"] = Spot(10.0, 0.0, 0.004, 0.004, label="stock")
    return Layout(ACTIONS, tuple(places), tuple(counters), None, spots)


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state: there are none."""


GAME = Game(
    id="Nivernaise-v0",
    title="La Nivernaise",
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
