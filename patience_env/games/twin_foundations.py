"""Twin foundations of a double pack: in each suit one built up from the ace, one down from the king.

Shared by La Nivernaise and Robin Post. The rules read the fields `up` and `down` of a state: how many cards lie on the
foundation of each suit that begins with the ace, and with the king. Ways are 0 (up) and 1 (down).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.cards import EMPTY, FACE_DOWN, PACK, RANKS, SUITS, card_code, card_text, pack, rank_of, suit_of
from patience_env.game import Counter
from patience_env.jit import helper, rule

CARDS = 2 * PACK
SUIT_NAMES = ("spades", "hearts", "diamonds", "clubs")
WAYS = ("up", "down")
FOUNDATIONS = tuple(f"{name} {way}" for name in SUIT_NAMES for way in WAYS)


@rule
def fits(state, card, way):  # type: ignore[no-untyped-def]
    """Tell whether a card is the next of the ascending (way 0) or descending (way 1) foundation of its suit."""
    suit = suit_of(card)
    if way == 0:
        return int(state.up[suit]) + 1 == rank_of(card)
    return int(state.down[suit]) + rank_of(card) == 13


@rule
def wanted_down(state):  # type: ignore[no-untyped-def]
    """Return a bit, 1 << code, for each card that is the next of a descending foundation."""
    wanted = 0
    for suit in range(4):
        height = int(state.down[suit])
        wanted |= (1 if height < 13 else 0) << (13 * suit + 13 - height)
    return wanted


@rule
def mark_fits(ups, downs, card, mask, first):  # type: ignore[no-untyped-def]
    """Mark in `mask[first]` and `mask[first + 1]` which foundations take a card (EMPTY: none); return how many do.

    `ups` and `downs` are `next_cards(state.up)` and `wanted_down(state)`: asked so, no card needs a branch.
    """
    up = (ups >> card) & 1
    down = (downs >> card) & 1
    mask[first] = up
    mask[first + 1] = down
    return up + down


@rule
def add_to_foundation(state, card, way):  # type: ignore[no-untyped-def]
    """Lay a card on a foundation of its suit."""
    if way == 0:
        state.up[suit_of(card)] += 1
    else:
        state.down[suit_of(card)] += 1


@rule
def may_pass(state, suit, giver):  # type: ignore[no-untyped-def]
    """Tell whether the giving foundation's top, not its base, is the next card of the other, begun, foundation."""
    up = int(state.up[suit])
    down = int(state.down[suit])
    return up + down == 13 and up >= 2 - giver and down >= 1 + giver


@helper
def mark_transfers(state, mask, first):  # type: ignore[no-untyped-def]
    """Mark the eight transfers from `mask[first]` on (2 * suit + giver); return how many are legal."""
    count = 0
    for suit in range(4):
        for giver in range(2):
            mask[first + 2 * suit + giver] = 1 if may_pass(state, suit, giver) else 0
            count += mask[first + 2 * suit + giver]
    return count


@rule
def transfer(state, suit, giver):  # type: ignore[no-untyped-def]
    """Pass the top card of one foundation of a suit to the other."""
    step = 2 * giver - 1
    state.up[suit] += step
    state.down[suit] -= step


@rule
def played(state):  # type: ignore[no-untyped-def]
    """Return how many cards are on the foundations."""
    count = 0
    for suit in range(4):
        count += int(state.up[suit]) + int(state.down[suit])
    return count


@helper
def show_foundations(state, places, first):  # type: ignore[no-untyped-def]
    """Write the tops of the eight foundations, up then down, suit by suit, from `places[first]` on."""
    for suit in range(4):
        up = int(state.up[suit])
        down = int(state.down[suit])
        places[first + 2 * suit] = 13 * suit + up if up else EMPTY
        places[first + 2 * suit + 1] = 13 * suit + 14 - down if down else EMPTY


@rule
def see_card(state, card):  # type: ignore[no-untyped-def]
    """Take a card off the counts `state.unseen` of cards never seen."""
    state.unseen[(int(card) - 1) % 13] -= 1
    state.unseen[13 + (int(card) - 1) // 13] -= 1


def unseen_counters() -> list[Counter]:
    """Return the counters that describe `state.unseen`: 13 ranks, then 4 suits."""
    counters = [Counter(f"unseen of rank {rank}", 8) for rank in range(1, 14)]
    return counters + [Counter(f"unseen {suit}", 26) for suit in SUIT_NAMES]


def count_unseen(cards: Sequence[int]) -> NDArray[np.int64]:
    """Return how many of the cards are of each rank, then of each suit."""
    codes = np.array(cards, int) - 1
    return np.concatenate([np.bincount(codes % 13, minlength=13), np.bincount(codes // 13, minlength=4)])


def foundation_cards(suit: int, way: int, height: int) -> list[str]:
    """Return the cards of a foundation of a given height, its base first."""
    ranks = RANKS if way == 0 else RANKS[::-1]
    return [rank + SUITS[suit] for rank in ranks[:height]]


def foundation_piles(state: Any) -> dict[str, list[str]]:
    """Return the eight foundations as piles of a table."""
    heights = [int(state[way][suit]) for suit in range(4) for way in WAYS]
    return {name: foundation_cards(i // 2, i % 2, heights[i]) for i, name in enumerate(FOUNDATIONS)}


def transfer_text(suit: int, giver: int) -> str:
    """Say what a transfer does."""
    return f"{SUIT_NAMES[suit]}: top card of the foundation built {WAYS[giver]} to the one built {WAYS[1 - giver]}"


def read_piles(given: Mapping[str, Sequence[str]], known: Iterable[str], facts: Sequence[str]) -> dict[str, list[int]]:
    """Return place -> card codes of a table, for the known places; foundations must be in order.

    Places left out are empty. A stock left out is what remains of the two packs.

    Raises:
        ValueError: unknown places or cards, a third card of a kind, not 104 cards, a foundation out of order.
    """
    piles: dict[str, list[int]] = {place: [] for place in known}
    for place, cards in given.items():
        if place not in piles and place not in facts:
            raise ValueError(f"there is no place {place!r}: the places are {', '.join([*piles, *facts])}")
        if place in piles:
            piles[place] = [card_code(card) for card in cards]
    copies = [0] * (FACE_DOWN + 1)
    for place, codes in piles.items():
        for code in codes:
            copies[code] += 1
            if code == EMPTY:
                raise ValueError(f"{place} holds --: an empty place is []")
            if code != FACE_DOWN and copies[code] > 2:
                raise ValueError(f"{place} holds a third {card_text(code)}: two packs have two of each card")
    for i, name in enumerate(FOUNDATIONS):
        texts = [card_text(code) for code in piles[name]]
        right = foundation_cards(i // 2, i % 2, len(texts))
        if texts != right:
            raise ValueError(f"{name} holds {' '.join(texts)}: it is built {' '.join(right)}")
    total = sum(map(len, piles.values()))
    if "stock" not in given and total <= CARDS:
        piles["stock"] = [FACE_DOWN] * (CARDS - total)
    elif total != CARDS:
        raise ValueError(f"the table holds {total} cards: two packs have {CARDS}")
    return piles


def cards_left(piles: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the cards of two packs that no pile names: as many as there are face-down ones."""
    rest: list[int] = pack(2).tolist()
    for codes in piles.values():
        for code in codes:
            if code != FACE_DOWN:
                rest.remove(code)
    return rest
