"""Calculation.

## Description
One pack. An ace, a two, a three and a four are the bases of four foundations, which are built up to thirteen cards by
steps of one, two, three and four, round the corner and whatever the suits. The other 48 cards are turned one at a time
and put on a foundation or on any of four piles, whose tops may go to the foundations at any time. The art lies in the
order in which the piles are laid. Also known as Broken Intervals. The rule sheet is `seeds/rules/calculation.md`.

## Action Space
`Discrete(24)`: 0 to 3 play the card in hand on foundation 1 to 4, 4 to 7 lay it on pile 1 to 4, `8 + 4 * p + f` plays
the top of pile p + 1 on foundation f + 1.

## Observation Space
`observation="cards"`: int8, shape (214,), or (261,) with `open_stock`: the tops of the foundations (4), the card in
hand, the four piles, 48 places each from the top down, with `open_stock` the stock, next card first (47), and 13 + 4
counts, how many cards of each rank and of each suit have not been turned. `observation="planes"`: int8, shape (198, 19)
or (245, 19): a row a place (one-hot rank, suit, empty, face-down), then a row of the counts.

## Starting State
The first ace, two, three and four of the shuffled pack are the bases; the first of the other cards is in hand.

## Rewards
1/48 for each card played on a foundation: the return is the share of the 48 cards that are played, 1.0 for a win.

## Episode End
Terminated when all four foundations are full, or when no card is in hand and no top can be played. Never longer
than 96 steps, so episodes are not truncated.

## Arguments
* `open_stock`: False (default) or True: the order of the stock is known (the thoughtful game, for solvers).

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, PACK, RANKS, card_code, card_text
from patience_env.deals import draw_below, draw_card, reshuffle, shuffle
from patience_env.game import Counter, Game, Layout, Option, Picture, Spot, Table, one_of
from patience_env.jit import helper, rule
from patience_env.lanes import HALF, clear_half, copy_bytes, show_cards_back

PILES = 4
FULL = 13
TO_PLAY = 48
IN_STOCK = TO_PLAY - 1
ACTIONS = 24
# NEXT[f, n]: the rank that foundation f takes when it holds n cards; 0, which no card has, when it is full.
NEXT = np.array([[(f * n + f - 1) % 13 + 1 if n < FULL else 0 for n in range(FULL + 1)] for f in range(1, PILES + 1)])
# The rank of each card code; -1 for no card, which fits nowhere.
RANK = np.array([-1, *(1 + code % 13 for code in range(PACK))])

CERTAIN = 2**31  # a weight of 1 in the draws of `determinize`


def chances_of_a_first() -> list[list[int]]:
    """Return KEEP[ranks, others]: the weight of a stock card that is the first of its rank, CERTAIN for any other.

    `ranks` of the ranks 1 to 4 have shown nothing but their base, `others` are the stock's cards of all other ranks.
    The bases are the first of their ranks in the pack, so the chance of an order of the 48 cards is in proportion to
    the ways to put the bases back before these firsts: n + i for the i-th (1 to 4) of them, at n (from 0).
    """
    ways = [[0.0] * (TO_PLAY + 1) for _ in range(PILES + 1)]
    keep = [[CERTAIN] * (TO_PLAY + 1) for _ in range(PILES + 1)]
    for ranks in range(PILES + 1):
        for others in range(TO_PLAY - 3 * ranks + 1):
            at = TO_PLAY - 3 * ranks - others
            a_first = (at + 1 + PILES - ranks) * ways[ranks - 1][others + 2] if ranks else 0.0
            another = ways[ranks][others - 1] if others else 0.0
            ways[ranks][others] = 3 * ranks * a_first + others * another if ranks or others else 1.0
            if another:
                keep[ranks][others] = round(CERTAIN * a_first / another)
    return keep


KEEP = np.array(chances_of_a_first())

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the stream of later chance (there is none after the deal)
        ("open_stock", np.int32),  # 1 where the player knows the order of the stock
        ("hand_at", np.int32),  # deck[hand_at] is the card in hand, what follows is the stock; 52: none
        ("played", np.int32),  # cards played on foundations, bases not counted
        ("built", np.int32, (PILES,)),  # cards on each foundation, base included
        ("height", np.int32, (PILES,)),  # cards on each pile
        ("deck", np.int8, (PACK,)),  # card codes: the four bases, then the others in the order of the deal
        ("foundations", np.int8, (PILES, FULL)),  # card codes, base first, then 0
        # `observe` takes sixteen bytes at a time, up to fifteen before this one: keep a field there.
        ("piles", np.int8, (PILES, TO_PLAY)),  # card codes, bottom first, then 0
        ("unturned", np.int8, (17,)),  # stock cards of each rank (13), then of each suit (4)
    ],
    align=True,
)


@rule
def in_hand(state):  # type: ignore[no-untyped-def]
    """Return the card in hand, or `EMPTY`."""
    return int(state.deck[state.hand_at]) if state.hand_at < PACK else EMPTY


@rule
def top_of(state, pile):  # type: ignore[no-untyped-def]
    """Return the top card of a pile, or `EMPTY`."""
    height = state.height[pile]
    return int(state.piles[pile, height - 1]) if height > 0 else EMPTY


@rule
def wanted(state, foundation):  # type: ignore[no-untyped-def]
    """Return the rank that a foundation takes next, 0 when it is full."""
    return NEXT[foundation, state.built[foundation]]


@rule
def note_turned(state, card):  # type: ignore[no-untyped-def]
    """Count a card as turned."""
    state.unturned[(card - 1) % 13] -= 1
    state.unturned[13 + (card - 1) // 13] -= 1


@helper
def take_bases(state):  # type: ignore[no-untyped-def]
    """Move the first ace, two, three and four to the front of the deck; the others keep their order."""
    missing = (1 << PILES) - 1
    for i in range(PACK):
        card = state.deck[i]
        rank = RANK[card]
        if rank <= PILES and (missing >> (rank - 1)) & 1:
            missing &= ~(1 << (rank - 1))
            state.foundations[rank - 1, 0] = card
    end = PACK
    for i in range(PACK - 1, -1, -1):
        card = state.deck[i]
        rank = RANK[card]
        if rank > PILES or state.foundations[rank - 1, 0] != card:
            end -= 1
            state.deck[end] = card
    for foundation in range(PILES):
        state.deck[foundation] = state.foundations[foundation, 0]


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle the pack, set out the bases and turn the first of the other cards."""
    for i in range(PACK):
        state.deck[i] = i + 1
    state.rng = state.deal
    shuffle(state, state.deck, 0, PACK)
    for pile in range(PILES):
        state.built[pile] = 1
        state.height[pile] = 0
        for i in range(FULL):
            state.foundations[pile, i] = EMPTY
        for i in range(TO_PLAY):
            state.piles[pile, i] = EMPTY
    take_bases(state)
    for i in range(13):
        state.unturned[i] = 4
    for i in range(13, 17):
        state.unturned[i] = 13
    for i in range(PILES + 1):
        note_turned(state, state.deck[i])
    state.hand_at = PILES
    state.played = 0


@helper
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark where the card in hand and the tops of the piles may go; return how many actions are legal."""
    hand = in_hand(state)
    count = 0
    for pile in range(PILES):
        mask[PILES + pile] = hand != EMPTY
        count += hand != EMPTY
    for foundation in range(PILES):
        rank = wanted(state, foundation)
        fits = RANK[hand] == rank
        mask[foundation] = fits
        count += fits
        for pile in range(PILES):
            fits = RANK[top_of(state, pile)] == rank
            mask[2 * PILES + PILES * pile + foundation] = fits
            count += fits
    return count


@rule
def build(state, foundation, card):  # type: ignore[no-untyped-def]
    """Put a card on a foundation; return by how much the share of cards played grows (so a win sums to exactly 1)."""
    state.foundations[foundation, state.built[foundation]] = card
    state.built[foundation] += 1
    state.played += 1
    return state.played / TO_PLAY - (state.played - 1) / TO_PLAY


@rule
def lay_on(state, pile, card):  # type: ignore[no-untyped-def]
    """Put a card on a pile."""
    state.piles[pile, state.height[pile]] = card
    state.height[pile] += 1


@rule
def take_from(state, pile):  # type: ignore[no-untyped-def]
    """Take the top card off a pile and return it."""
    state.height[pile] -= 1
    card = state.piles[pile, state.height[pile]]
    state.piles[pile, state.height[pile]] = EMPTY
    return card


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Move the card in hand, and turn the next, or the top of a pile; return the share of cards that it plays."""
    if action >= 2 * PILES:
        return build(state, action % PILES, take_from(state, (action - 2 * PILES) // PILES))
    card = state.deck[state.hand_at]
    state.hand_at += 1
    if state.hand_at < PACK:
        note_turned(state, state.deck[state.hand_at])
    if action >= PILES:
        lay_on(state, action - PILES, card)
        return 0.0
    return build(state, action, card)


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether all four foundations are full."""
    return state.played == TO_PLAY


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write the tops of the foundations, the card in hand, the piles from the top down, the known stock, the counts."""
    for pile in range(PILES):
        places[pile] = state.foundations[pile, state.built[pile] - 1]
    places[PILES] = in_hand(state)
    at = PILES + 1
    for pile in range(PILES):
        height = int(state.height[pile])
        cards = state.piles[pile]
        for i in range(0, TO_PLAY, HALF):
            if i < height:
                show_cards_back(places, at + i, cards, None, height - i, min(height - i, HALF))
            else:
                clear_half(places, at + i)
        at += TO_PLAY
    if state.open_stock:
        for i in range(IN_STOCK):
            card = state.hand_at + 1 + i
            places[at + i] = state.deck[card] if card < PACK else EMPTY
        at += IN_STOCK
    copy_bytes(places, at, state.unturned, 0, 17)


@helper
def deal_stock_anew(state):  # type: ignore[no-untyped-def]
    """Deal the stock as likely as the pack was shuffled so: the firsts of ranks 1 to 4 came after their bases."""
    fresh = 0
    ranks = 0
    for rank in range(1, PILES + 1):
        if state.unturned[rank - 1] == 3:
            fresh |= 1 << rank
            ranks += 1
    for place in range(state.hand_at + 1, PACK):
        keep = KEEP[ranks, PACK - place - 3 * ranks]
        rank = RANK[draw_card(state, state.deck, place, PACK)]
        while (fresh >> rank) & 1 and draw_below(state, CERTAIN) >= keep:
            rank = RANK[draw_card(state, state.deck, place, PACK)]
        if (fresh >> rank) & 1:
            fresh &= ~(1 << rank)
            ranks -= 1


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Deal the stock anew from the random bits `key`, unless the player knows its order."""
    state.rng = key
    state.deal = 0
    if not state.open_stock and state.hand_at < PACK:
        reshuffle(state, state.deck, state.hand_at + 1, PACK)
        deal_stock_anew(state)


def encore(foundations: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the thirteen places of the encore: each ends with four cards of one rank.

    The full foundations are stacked, the fourth on the third, that on the second, that on the first, and the whole is
    turned over, so that the first foundation's base is dealt first. Four sweeps round thirteen places follow: in
    sweep m each card goes m places on from the last, whether covered or not.

    Args:
        foundations: the four foundations of a won game, base first, as `table()` gives them.

    Raises:
        ValueError: not four foundations of thirteen cards that follow the rules.
    """
    if len(foundations) != PILES or any(len(cards) != FULL for cards in foundations):
        raise ValueError(
            f"the encore takes four foundations of 13 cards, not {[len(cards) for cards in foundations]}: win first"
        )
    places: list[list[str]] = [[] for _ in range(FULL)]
    for step, cards in enumerate(foundations, start=1):
        check_foundation(f"foundation {step}", step - 1, [card_code(card) for card in cards])
        place = -1
        for card in cards:
            place = (place + step) % FULL
            places[place].append(card)
    return places


def check_foundation(name: str, foundation: int, cards: Sequence[int]) -> None:
    """Refuse cards that do not follow the steps of a foundation."""
    if not 1 <= len(cards) <= FULL:
        raise ValueError(
            f"{name} holds {len(cards)} cards: it holds its base, a {RANKS[foundation]}, and at most 12 more"
        )
    for n, card in enumerate(cards):
        if RANK[card] != NEXT[foundation, n]:
            raise ValueError(
                f"{name} holds {card_text(card)} as card {n + 1}: there it takes a {RANKS[NEXT[foundation, n] - 1]}"
            )


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    hand = int(state["hand_at"])
    card = card_text(int(state["deck"][hand])) if hand < PACK else "no card"
    if action < PILES:
        return f"play {card} from the hand on foundation {action + 1}"
    if action < 2 * PILES:
        return f"lay {card} on pile {action - PILES + 1}"
    pile, foundation = divmod(action - 2 * PILES, PILES)
    height = int(state["height"][pile])
    card = card_text(int(state["piles"][pile][height - 1])) if height else "no card"
    return f"play {card} from pile {pile + 1} on foundation {foundation + 1}"


def table(state: Any) -> Table:
    """Return foundations, hand, piles and stock (its top, the next card, last)."""
    hand = int(state["hand_at"])
    known = {f"foundation {f + 1}": state["foundations"][f][: int(state["built"][f])] for f in range(PILES)}
    known["hand"] = state["deck"][hand : hand + 1]
    known |= {f"pile {p + 1}": state["piles"][p][: int(state["height"][p])] for p in range(PILES)}
    known["stock"] = state["deck"][hand + 1 :][::-1]
    piles = {name: [card_text(int(card)) for card in cards] for name, cards in known.items()}
    if not state["open_stock"]:
        piles["stock"] = ["??"] * len(piles["stock"])
    return piles


FOUNDATIONS = tuple(f"foundation {i}" for i in range(1, PILES + 1))
PILE_NAMES = tuple(f"pile {i}" for i in range(1, PILES + 1))


def read_piles(given: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return place -> card codes, `??` left out of the stock, refusing unknown places and repeated cards."""
    found: dict[str, list[int]] = {name: [] for name in (*FOUNDATIONS, "hand", *PILE_NAMES, "stock")}
    seen: dict[int, str] = {}
    for place, cards in given.items():
        if place not in found:
            raise ValueError(f"there is no place {place!r}: the places are {', '.join(found)}")
        for card in map(card_code, cards):
            if place == "stock" and card == card_code("??"):
                continue
            if not 1 <= card <= PACK:
                raise ValueError(f"{place} holds {card_text(card)}: it holds known cards")
            if card in seen:
                raise ValueError(f"{card_text(card)} lies in {seen[card]} and in {place}: there is one of each card")
            seen[card] = place
            found[place].append(card)
    return found


def check_piles(found: Mapping[str, Sequence[int]], rest: int) -> None:
    """Refuse foundations out of order and a hand that does not go with `rest`, the number of cards beside it."""
    for foundation, name in enumerate(FOUNDATIONS):
        check_foundation(name, foundation, found[name])
    if len(found["hand"]) > 1:
        raise ValueError(f"hand holds {len(found['hand'])} cards: it holds one")
    if rest and not found["hand"]:
        raise ValueError(f"hand is empty, but {rest} cards are in the stock: the next is turned at once")


def read_stock(
    told: Sequence[str] | None, known: Sequence[int], rest: Sequence[int], open_stock: bool, rng: np.random.Generator
) -> list[int]:
    """Return the stock, next card first: as told where its order is open, else the rest of the pack, shuffled."""
    if known and not open_stock:
        raise ValueError("stock holds known cards: write '??' (its order is open only with open_stock=True)")
    if known and len(known) != len(told or ()):
        raise ValueError("stock holds some known cards and some '??': write all of one kind")
    if told is not None and len(told) != len(rest):
        raise ValueError(f"stock holds {len(told)} cards, but {len(rest)} of the pack lie nowhere else")
    return list(reversed(known)) if known else [int(card) for card in rng.permutation(np.array(rest, np.int64))]


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; a stock whose order is not given is shuffled.

    Raises:
        ValueError: unknown places, repeated cards, foundations out of order, or an empty hand in spite of a stock.
    """
    found = read_piles(given)
    placed = [card for name, cards in found.items() if name != "stock" for card in cards]
    rest = [card for card in range(1, PACK + 1) if card not in placed]
    check_piles(found, len(rest))
    stock = read_stock(given.get("stock"), found["stock"], rest, bool(state["open_stock"]), rng)
    bases = [found[name][0] for name in FOUNDATIONS]
    before = [card for card in placed if card not in bases and card not in found["hand"]]
    state["deal"] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    state["hand_at"] = PILES + len(before)
    state["deck"] = [*bases, *before, *found["hand"], *stock]
    for i in range(PILES):
        for name, cards in (("foundations", found[FOUNDATIONS[i]]), ("piles", found[PILE_NAMES[i]])):
            state[name][i] = EMPTY
            state[name][i][: len(cards)] = cards
        state["built"][i] = len(found[FOUNDATIONS[i]])
        state["height"][i] = len(found[PILE_NAMES[i]])
    state["played"] = state["built"].sum() - PILES
    hidden = np.array(stock, np.int64) - 1
    state["unturned"][:13] = np.bincount(hidden % 13, minlength=13)
    state["unturned"][13:] = np.bincount(hidden // 13, minlength=4)


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes and names under the given options."""
    places = [*FOUNDATIONS, "hand"]
    places += [f"{name}, {depth} down" if depth else f"{name}, top" for name in PILE_NAMES for depth in range(TO_PLAY)]
    if options["open_stock"]:
        places += [f"stock, {i + 1}" for i in range(IN_STOCK)]
    counters = [Counter(f"unturned of rank {rank}", 4) for rank in range(1, 14)]
    counters += [Counter(f"unturned {suit}", 13) for suit in ("spades", "hearts", "diamonds", "clubs")]
    spots = {name: Spot(1.5 + i * 1.25, 0.0, 0.01, 0.01, label=name) for i, name in enumerate(FOUNDATIONS)}
    spots |= {name: Spot(1.5 + i * 1.25, 1.5, 0.0, 0.25, label=name) for i, name in enumerate(PILE_NAMES)}
    spots["stock"] = Spot(0.0, 0.0, 0.01, 0.01, label="stock")
    spots["hand"] = Spot(0.0, 1.5, label="in hand")
    return Layout(ACTIONS, tuple(places), tuple(counters), None, spots, summary=("played",))


def picture(state: Any) -> Picture | None:
    """Return the encore of a won game: thirteen places of four cards of one rank, where the piles were."""
    if int(state["played"]) < TO_PLAY:
        return None
    spots = dict(layout({"open_stock": False}).spots)
    for name in ("hand", *PILE_NAMES):
        del spots[name]
    names = [f"encore {i + 1}" for i in range(FULL)]
    places = encore([table(state)[name] for name in FOUNDATIONS])
    for i, name in enumerate(names):
        spots[name] = Spot((1.5 + 3 * 1.25) * i / (FULL - 1), 1.5, 0.0, 0.25)
    shown = Layout(ACTIONS, (), (), None, spots)
    return Picture(shown, dict(zip(names, places, strict=True)), "The encore")


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """Write the options into a fresh state."""
    state["open_stock"] = options["open_stock"]


GAME = Game(
    id="Calculation-v0",
    title="Calculation",
    state=STATE,
    packs=1,
    options=(Option("open_stock", False, one_of("open_stock", False, True), "let the order of the stock be known"),),
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
    picture=picture,
    has_grid=False,
)
