"""The Empress of India.

## Description
Four packs. Black aces and red kings are the foundations; black queens and red knaves take no part (one queen of clubs
is the Empress). The black foundations go up in suit to the king without queens, the red ones down to the ace without
knaves: 176 cards. Twenty-four red cards are the Army, twenty-four black ones the Navy; surplus cards of either colour
go to its talon. Cards are played only two at a time, one red and one black. A card of the Army may be paired with one
of the Navy: one is laid on the other until both can be played at once. The rule sheet is
`seeds/rules/empress_of_india.md`.

## Action Space
`Discrete(1777)`, with army and navy places counted from 0: 24 * army + navy plays two cards; 576 + 24 * army + navy
lays the Army's card on the Navy's; 1152 + 24 * army + navy the Navy's on the Army's; 1728 + place (Army 0 to 23, Navy
24 to 47) plays a pair; 1776 deals the next card of the pack to its talon.

## Observation Space
Places (242): the tops of the sixteen foundations (four each of spades, hearts, diamonds, clubs), the Army's 24 and the
Navy's 24 lower cards, the same 48 places' covering cards, the tops of the red and the black talon, the red talon and
the black talon from their bottoms (64 each). Counters (19): red cards and black cards in the pack, how many cards of
each rank (13) and of each suit (4) are in the pack.
`observation="planes"`: int8, shape (243, 19). `observation="cards"`: int8, shape (261,).

## Starting State
Army and Navy are full, the surplus of the colour that was completed first lies on its talon.

## Rewards
1/88 for two cards played; a won game returns 1.0.

## Episode End
Terminated when all 176 cards are played (won) or no action is legal; at most 304 steps.

## Arguments
None.

## Version History
* v0: first version.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import EMPTY, FACE_DOWN, RANKS, card_code, card_text, is_red, suit_of
from patience_env.deals import reshuffle, shuffle
from patience_env.game import Counter, Game, Layout, Spot, Table
from patience_env.jit import helper, rule
from patience_env.lanes import copy_bytes

PACKS = 4
SIDE = 24
PLACES = 2 * SIDE
FOUNDATIONS = 16
HEIGHT = 11
TO_PLAY = FOUNDATIONS * HEIGHT
TALON = TO_PLAY // 2 - SIDE
RED, BLACK = 0, 1
PLAYS = SIDE * SIDE
ARMY_ON_NAVY, NAVY_ON_ARMY, PAIRED = PLAYS, 2 * PLAYS, 3 * PLAYS
DEAL_ON = PAIRED + PLACES
ACTIONS = DEAL_ON + 1

_UP = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13]
_DOWN = [13, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
# The card at each height of a suit's foundations, base first; nothing (0) follows the twelfth.
SEQUENCE = np.array(
    [[13 * suit + rank for rank in (_DOWN if suit in (1, 2) else _UP)] + [EMPTY] for suit in range(4)], np.int64
)
IN_PLAY = tuple(int(card) for card in np.sort(SEQUENCE[:, 1:-1].ravel()))
_CARDS = np.array(IN_PLAY, np.int8)

STATE = np.dtype(
    [
        ("deal", np.uint64),  # the deal number, 0 when unknown
        ("rng", np.uint64),  # the stream that shuffled the pack
        ("dealt", np.int32),  # the pack is pack[dealt:], its next card first
        ("talon_size", np.int32, (2,)),  # cards in the red and in the black talon
        ("built", np.int8, (FOUNDATIONS,)),  # cards played on each foundation, four foundations a suit
        ("covered", np.int8, (PLACES,)),  # the card of each place, the lower one of a pair, 0 empty; Army, then Navy
        ("covering", np.int8, (PLACES,)),  # the upper card of a pair, 0 where there is none
        ("talon", np.int8, (2 * TALON,)),  # red talon from its bottom, then black talon; 0 above the tops
        ("pack", np.int8, (TO_PLAY,)),  # card codes; those before `dealt` are stale
        ("in_pack", np.int8, (17,)),  # cards in the pack of each rank (13), then of each suit (4)
    ],
    align=True,
)


@rule
def colour_of(card):  # type: ignore[no-untyped-def]
    """Return RED (0) or BLACK (1)."""
    return RED if is_red(card) else BLACK


@rule
def next_of_pack(state):  # type: ignore[no-untyped-def]
    """Turn the next card of the pack, which must not be out."""
    card = state.pack[state.dealt]
    state.dealt += 1
    code = int(card) - 1
    state.in_pack[code % 13] -= 1
    state.in_pack[13 + code // 13] -= 1
    return card


@rule
def lay_on_talon(state, card):  # type: ignore[no-untyped-def]
    """Lay a card on the talon of its colour."""
    colour = colour_of(card)
    state.talon[TALON * colour + state.talon_size[colour]] = card
    state.talon_size[colour] += 1


@rule
def lift_talon(state, colour):  # type: ignore[no-untyped-def]
    """Take the top of a talon, which must not be empty."""
    state.talon_size[colour] -= 1
    place = TALON * colour + state.talon_size[colour]
    card = state.talon[place]
    state.talon[place] = EMPTY
    return card


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Shuffle the 176 cards and deal them until Army and Navy are full."""
    for i in range(TO_PLAY):
        state.pack[i] = _CARDS[i % len(IN_PLAY)]
    state.rng = state.deal
    shuffle(state, state.pack, 0, TO_PLAY)
    for i in range(FOUNDATIONS):
        state.built[i] = 0
    for i in range(PLACES):
        state.covered[i] = EMPTY
        state.covering[i] = EMPTY
    for i in range(2 * TALON):
        state.talon[i] = EMPTY
    for i in range(17):
        state.in_pack[i] = 0
    for i in range(TO_PLAY):
        code = int(state.pack[i]) - 1
        state.in_pack[code % 13] += 1
        state.in_pack[13 + code // 13] += 1
    state.talon_size[RED] = state.talon_size[BLACK] = 0
    state.dealt = 0
    fill_army_and_navy(state)


@helper
def fill_army_and_navy(state):  # type: ignore[no-untyped-def]
    """Deal each card to the next place of its colour, or to its talon when all 24 are taken, until none is left."""
    army = 0
    navy = SIDE
    while army < SIDE or navy < PLACES:
        card = next_of_pack(state)
        if is_red(card) and army < SIDE:
            state.covered[army] = card
            army += 1
        elif not is_red(card) and navy < PLACES:
            state.covered[navy] = card
            navy += 1
        else:
            lay_on_talon(state, card)


@rule
def wanted_cards(state):  # type: ignore[no-untyped-def]
    """Return a bit for each card code that some foundation takes."""
    wanted = 0
    for i in range(FOUNDATIONS):
        wanted |= 1 << SEQUENCE[np.uint64(i // 4), np.uint64(state.built[i] + 1)]
    return wanted & ~1


@rule
def is_single(state, place):  # type: ignore[no-untyped-def]
    """Return 1 where a place holds a card that is not paired, else 0."""
    return (1 if state.covered[place] != EMPTY else 0) & (1 if state.covering[place] == EMPTY else 0)


@rule
def fits_alone(state, place, wanted):  # type: ignore[no-untyped-def]
    """Return 1 where a place holds an unpaired card that a foundation takes, else 0."""
    return is_single(state, place) & (wanted >> int(state.covered[place]))


@helper
def mark_plays(state, mask, wanted):  # type: ignore[no-untyped-def]
    """Mark the plays of two cards; return how many they are."""
    for action in range(np.uint64(PLAYS)):
        mask[action] = 0
    fits = 0
    for navy in range(SIDE):
        fits |= fits_alone(state, np.uint64(SIDE + navy), wanted) << navy
    count = 0
    for army in range(SIDE):
        if fits != 0 and fits_alone(state, np.uint64(army), wanted):
            for navy in range(SIDE):
                mask[np.uint64(SIDE * army + navy)] = (fits >> navy) & 1
                count += (fits >> navy) & 1
    return count


@helper
def mark_pairings(state, mask):  # type: ignore[no-untyped-def]
    """Mark the pairings, which any two unpaired cards allow both ways (in loops that compile to vector code)."""
    armies = navies = 0
    for place in range(SIDE):
        armies += is_single(state, np.uint64(place))
        navies += is_single(state, np.uint64(SIDE + place))
    for army in range(np.uint64(SIDE)):
        row = np.uint64(ARMY_ON_NAVY) + np.uint64(SIDE) * army
        if is_single(state, army):
            for navy in range(np.uint64(SIDE)):
                mask[row + navy] = is_single(state, np.uint64(SIDE) + navy)
        else:
            for navy in range(np.uint64(SIDE)):
                mask[row + navy] = 0
    for pair in range(np.uint64(PLAYS)):
        mask[np.uint64(NAVY_ON_ARMY) + pair] = mask[np.uint64(ARMY_ON_NAVY) + pair]
    return 2 * armies * navies


@rule
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Mark plays of two cards, pairings, plays of pairs and dealing on; return how many are legal."""
    wanted = wanted_cards(state)
    mask[DEAL_ON] = 1 if state.dealt < TO_PLAY else 0
    count = mark_plays(state, mask, wanted) + mark_pairings(state, mask) + mark_pairs(state, mask, wanted)
    return count + int(mask[DEAL_ON])


@helper
def mark_pairs(state, mask, wanted):  # type: ignore[no-untyped-def]
    """Mark the pairs of which both cards fit; return how many they are."""
    count = 0
    for place in range(PLACES):
        both = (1 << int(state.covered[np.uint64(place)])) | (1 << int(state.covering[np.uint64(place)]))
        fits = 1 if (wanted & both) == both else 0
        mask[np.uint64(PAIRED + place)] = fits
        count += fits
    return count


@rule
def add_to_foundation(state, card):  # type: ignore[no-untyped-def]
    """Lay a card that fits on the first foundation of its suit that takes it."""
    suit = suit_of(card)
    foundation = 4 * suit
    while SEQUENCE[suit, state.built[foundation] + 1] != card:
        foundation += 1
    state.built[foundation] += 1


@helper
def refill(state, army, navy):  # type: ignore[no-untyped-def]
    """Fill up to one vacancy of each side (-1 for none): from the talons, then from the pack card by card."""
    if army >= 0 and state.talon_size[RED] > 0:
        state.covered[army] = lift_talon(state, RED)
        army = -1
    if navy >= 0 and state.talon_size[BLACK] > 0:
        state.covered[navy] = lift_talon(state, BLACK)
        navy = -1
    while (army >= 0 or navy >= 0) and state.dealt < TO_PLAY:
        card = next_of_pack(state)
        if is_red(card) and army >= 0:
            state.covered[army] = card
            army = -1
        elif not is_red(card) and navy >= 0:
            state.covered[navy] = card
            navy = -1
        else:
            lay_on_talon(state, card)


@rule
def played(state):  # type: ignore[no-untyped-def]
    """Return how many cards are played."""
    count = 0
    for i in range(FOUNDATIONS):
        count += int(state.built[i])
    return count


@helper
def gain(state):  # type: ignore[no-untyped-def]
    """Return by how much two cards just played raise the share of cards played (so that a win sums to exactly 1)."""
    count = played(state)
    return count / TO_PLAY - (count - 2) / TO_PLAY


@helper
def play_pair(state, place):  # type: ignore[no-untyped-def]
    """Play both cards of a pair and refill the place."""
    add_to_foundation(state, state.covered[place])
    add_to_foundation(state, state.covering[place])
    state.covered[place] = EMPTY
    state.covering[place] = EMPTY
    refill(state, place if place < SIDE else -1, place if place >= SIDE else -1)


@helper
def play(state, action):  # type: ignore[no-untyped-def]
    """Play two cards, pair two cards or deal on; return 1/88 for two cards played."""
    if action == DEAL_ON:
        lay_on_talon(state, next_of_pack(state))
        return 0.0
    if action >= PAIRED:
        play_pair(state, action - PAIRED)
        return gain(state)
    army = (action % PLAYS) // SIDE
    navy = SIDE + action % SIDE
    red = state.covered[army]
    black = state.covered[navy]
    if action >= NAVY_ON_ARMY:
        state.covering[army] = black
        state.covered[navy] = EMPTY
        refill(state, -1, navy)
        return 0.0
    if action >= ARMY_ON_NAVY:
        state.covering[navy] = red
        state.covered[army] = EMPTY
        refill(state, army, -1)
        return 0.0
    add_to_foundation(state, red)
    add_to_foundation(state, black)
    state.covered[army] = EMPTY
    state.covered[navy] = EMPTY
    refill(state, army, navy)
    return gain(state)


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """Tell whether all 176 cards are played."""
    return played(state) == TO_PLAY


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Write foundations, Army, Navy, covering cards, talon tops and talons, then the counters."""
    for i in range(FOUNDATIONS):
        places[i] = SEQUENCE[np.uint64(i // 4), np.uint64(state.built[i])]
    following = FOUNDATIONS
    copy_bytes(places, following, state.covered, 0, PLACES)
    following += PLACES
    copy_bytes(places, following, state.covering, 0, PLACES)
    following += PLACES
    for colour in range(2):
        size = state.talon_size[colour]
        places[following + colour] = state.talon[TALON * colour + size - 1] if size > 0 else EMPTY
    following += 2
    copy_bytes(places, following, state.talon, 0, 2 * TALON)
    following += 2 * TALON
    places[following] = state.in_pack[14] + state.in_pack[15]
    places[following + 1] = state.in_pack[13] + state.in_pack[16]
    copy_bytes(places, following + 2, state.in_pack, 0, 17)


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Shuffle the pack, whose cards are known but not their order, from the random bits `key` (uint64)."""
    state.rng = key
    state.deal = 0
    reshuffle(state, state.pack, state.dealt, TO_PLAY)


SUIT_NAMES = ("spades", "hearts", "diamonds", "clubs")
FOUNDATION_NAMES = tuple(f"{suit} {i + 1}" for suit in SUIT_NAMES for i in range(PACKS))
PLACE_NAMES = tuple(f"{side} {i + 1}" for side in ("army", "navy") for i in range(SIDE))
TALON_NAMES = ("red talon", "black talon")
ORNAMENTS = {"empress": ["QC"], "knaves": ["JH"] * PACKS + ["JD"] * PACKS}
PILE_NAMES = (*ORNAMENTS, *FOUNDATION_NAMES, *PLACE_NAMES, *TALON_NAMES, "pack")


def foundation_cards(foundation: int, built: int) -> list[str]:
    """Return the base and the cards played on a foundation, bottom first."""
    return [card_text(int(card)) for card in SEQUENCE[foundation // PACKS, : built + 1]]


def describe(state: Any, action: int) -> str:
    """Say what an action does."""
    cards = [[card_text(int(state[field][place])) for field in ("covered", "covering")] for place in range(PLACES)]
    if action == DEAL_ON:
        return "deal the next card of the pack to its talon"
    if action >= PAIRED:
        place = action - PAIRED
        return f"play the pair {cards[place][0]} and {cards[place][1]} from {PLACE_NAMES[place]}"
    army, navy = action % PLAYS // SIDE, SIDE + action % SIDE
    red = f"{cards[army][0]} from {PLACE_NAMES[army]}"
    black = f"{cards[navy][0]} from {PLACE_NAMES[navy]}"
    if action >= NAVY_ON_ARMY:
        return f"pair {black} with {red.replace(' from', ' in')}"
    if action >= ARMY_ON_NAVY:
        return f"pair {red} with {black.replace(' from', ' in')}"
    return f"play {red} and {black}"


def table(state: Any) -> Table:
    """Return the ornaments, foundations, Army and Navy (a pair has two cards), talons and the face-down pack."""
    piles = {name: list(cards) for name, cards in ORNAMENTS.items()}
    piles |= {name: foundation_cards(i, int(state["built"][i])) for i, name in enumerate(FOUNDATION_NAMES)}
    for place, name in enumerate(PLACE_NAMES):
        pair = (int(state["covered"][place]), int(state["covering"][place]))
        piles[name] = [card_text(card) for card in pair if card]
    for colour, name in enumerate(TALON_NAMES):
        first = TALON * colour
        piles[name] = [card_text(int(c)) for c in state["talon"][first : first + int(state["talon_size"][colour])]]
    piles["pack"] = [card_text(FACE_DOWN)] * (TO_PLAY - int(state["dealt"]))
    return piles


def check_piles(given: Mapping[str, Sequence[str]]) -> None:
    """Refuse piles that the game does not have, and ornaments that are not there."""
    for name in given:
        if name not in PILE_NAMES:
            raise ValueError(
                f"there is no pile {name!r}: the piles are empress, knaves, spades 1 to 4 and so on for each suit, "
                "army 1 to 24, navy 1 to 24, red talon, black talon, pack"
            )
    for name, ornaments in ORNAMENTS.items():
        if sorted(given.get(name, ornaments)) != sorted(ornaments):
            raise ValueError(f"{name} must be {ornaments} (or left out), not {list(given[name])}")


def read_foundation(foundation: int, cards: Sequence[str]) -> int:
    """Return how many cards are played on a foundation, refusing cards that are out of order."""
    whole = foundation_cards(foundation, HEIGHT)
    texts = [card_text(card_code(card)) for card in cards]
    if not texts or texts != whole[: len(texts)]:
        raise ValueError(f"{FOUNDATION_NAMES[foundation]} holds {texts}: it must hold the first one or more of {whole}")
    return len(texts) - 1


def read_cards(name: str, cards: Sequence[str], most: int, colours: Sequence[int]) -> list[int]:
    """Return the codes of a pile of face-up cards, whose colours from the bottom up must be as given."""
    codes = [card_code(card) for card in cards]
    if len(codes) > most:
        raise ValueError(f"{name} holds {len(codes)} cards: it takes at most {most}")
    for code, colour in zip(codes, colours, strict=False):
        if code not in IN_PLAY:
            raise ValueError(
                f"{name} holds {card_text(code)}: black 2 to T, J, K and red A to T, Q are played, all face up"
            )
        if colour_of(code) != colour:
            wanted = ("red", "black")[colour]
            raise ValueError(f"{name} holds {card_text(code)} where a {wanted} card must lie")
    return codes


def rest_of_pack(built: Sequence[int], shown: Sequence[int]) -> list[int]:
    """Return the cards that lie neither on a foundation nor among `shown`, sorted."""
    left = Tally(dict.fromkeys(IN_PLAY, PACKS))
    for foundation, height in enumerate(built):
        left.subtract(int(card) for card in SEQUENCE[foundation // PACKS, 1 : height + 1])
    left.subtract(shown)
    for card, count in left.items():
        if count < 0:
            raise ValueError(f"{card_text(card)} lies on the table {PACKS - count} times: there are {PACKS}")
    return sorted(left.elements())


def check_vacancies(covered: Sequence[int], talons: Sequence[Sequence[int]], in_pack: int) -> None:
    """Refuse a vacancy that a talon or the pack would have filled."""
    for place, card in enumerate(covered):
        talon = talons[place // SIDE]
        if card == EMPTY and (talon or in_pack):
            raise ValueError(
                f"{PLACE_NAMES[place]} is empty while the {TALON_NAMES[place // SIDE]} holds {len(talon)} cards and "
                f"the pack {in_pack}: a vacancy is refilled at once"
            )


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Set up a position; the pack is what lies nowhere else, shuffled. A foundation left out holds its base alone.

    Raises:
        ValueError: unknown piles, cards out of order, of the wrong colour or too many, foundations that two-card
            plays cannot have built, or a vacancy that must have been refilled.
    """
    check_piles(given)
    built = [read_foundation(i, given.get(name, foundation_cards(i, 0))) for i, name in enumerate(FOUNDATION_NAMES)]
    red, black = sum(built[PACKS : 3 * PACKS]), sum(built[:PACKS] + built[3 * PACKS :])
    if red != black:
        raise ValueError(f"{red} red and {black} black cards are played: every play lays one of each colour")
    pairs = []
    for place, name in enumerate(PLACE_NAMES):
        own = place // SIDE
        pairs.append([*read_cards(name, given.get(name, []), 2, (own, 1 - own)), EMPTY, EMPTY][:2])
    covered, covering = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    talons = [read_cards(name, given.get(name, []), TALON, [colour] * TALON) for colour, name in enumerate(TALON_NAMES)]
    rest = rest_of_pack(built, [card for card in [*covered, *covering, *talons[RED], *talons[BLACK]] if card])
    pack = given.get("pack")
    if pack is not None and list(pack) != [card_text(FACE_DOWN)] * len(rest):
        raise ValueError(f"pack must be {len(rest)} times '??' (or left out): its cards are face-down")
    check_vacancies(covered, talons, len(rest))
    state["deal"] = 0
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)
    state["dealt"] = TO_PLAY - len(rest)
    state["talon_size"] = [len(talon) for talon in talons]
    state["built"] = built
    state["covered"] = covered
    state["covering"] = covering
    state["talon"] = [card for talon in talons for card in [*talon, *[EMPTY] * (TALON - len(talon))]]
    state["pack"] = np.concatenate([np.zeros(TO_PLAY - len(rest), np.int8), rng.permutation(np.array(rest, np.int8))])
    ranks_and_suits = Tally(entry for card in rest for entry in ((card - 1) % 13, 13 + (card - 1) // 13))
    state["in_pack"] = [ranks_and_suits[i] for i in range(17)]


def layout(options: Mapping[str, Any]) -> Layout:
    """Return the sizes, places and counters."""
    del options
    places = (*FOUNDATION_NAMES, *PLACE_NAMES, *(f"{name} covering" for name in PLACE_NAMES))
    places += tuple(f"{name} top" for name in TALON_NAMES)
    places += tuple(f"{name} {i + 1}" for name in TALON_NAMES for i in range(TALON))
    counters = [Counter("pack red", TALON), Counter("pack black", TALON)]
    counters += [Counter(f"pack {rank}", 4 * PACKS) for rank in RANKS]
    counters += [Counter(f"pack {suit}", PACKS * HEIGHT) for suit in SUIT_NAMES]
    spots = {name: Spot(6.8 + 1.1 * (i % 4), 1.3 * (i // 4)) for i, name in enumerate(FOUNDATION_NAMES)}
    for place, name in enumerate(PLACE_NAMES):
        column, line = place % SIDE % 6, place % SIDE // 6
        spots[name] = Spot(1.1 * column + (11.6 if place >= SIDE else 0.0), 1.6 * line, 0.0, 0.35)
    spots["empress"] = Spot(6.8, 5.3, label="Empress")
    spots["knaves"] = Spot(8.0, 5.3, 0.3, label="knaves")
    spots["red talon"] = Spot(0.0, 6.9, 0.09, label="red talon")
    spots["black talon"] = Spot(11.6, 6.9, 0.09, label="black talon")
    spots["pack"] = Spot(8.6, 6.9, 0.005, label="pack")
    return Layout(ACTIONS, places, tuple(counters), None, spots)


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """There are no options to write into a fresh state."""
    del state, options


GAME = Game(
    id="EmpressOfIndia-v0",
    title="The Empress of India",
    state=STATE,
    packs=PACKS,
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
