"""Deal numbers: an unsigned 64-bit number names a shuffled deck for ever.

The stream of random bits is splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
2014) seeded with the deal number; the shuffle is Fisher-Yates from the first card on (so the first card dealt is the
first drawn) with an unbiased bounded draw (Lemire, "Fast random integer generation in an interval", 2019, on the upper
32 bits). Later chance of the same game, such as a redeal's
shuffle, comes from the same stream, so that a deal number and a list of actions replay a game exactly.

Numbers below 2**32 are reserved for the standard deals and for people who type a number: `reset(seed=...)` and
training draw from the rest, so that they never meet a test deal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.cards import pack
from patience_env.jit import helper, rule

RESERVED_DEALS = 2**32
LAST_DEAL = 2**64 - 1

_MASK = 0xFFFFFFFFFFFFFFFF
_STEP = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


@rule
def advance(rng):  # type: ignore[no-untyped-def]
    """Return the successor of a splitmix64 position (an unsigned 64-bit number)."""
    return (rng + _STEP) & _MASK


@rule
def bits_at(rng):  # type: ignore[no-untyped-def]
    """Return the 64 random bits at a splitmix64 position."""
    z = ((rng ^ (rng >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


@rule
def next_bits(state):  # type: ignore[no-untyped-def]
    """Advance `state.rng` (uint64) and return 64 random bits."""
    state.rng = advance(int(state.rng))
    return bits_at(int(state.rng))


@rule
def draw_below(state, count):  # type: ignore[no-untyped-def]
    """Return an unbiased random number from 0 to count - 1 (1 <= count <= 2**31) from the stream of `state`."""
    product = np.int64(next_bits(state) >> 32) * count
    low = product & 0xFFFFFFFF
    if low < count:
        threshold = 0x100000000 % count
        while low < threshold:
            product = np.int64(next_bits(state) >> 32) * count
            low = product & 0xFFFFFFFF
    return product >> 32


@rule
def draw_card(state, cards, place, end):  # type: ignore[no-untyped-def]
    """Choose the card at `cards[place]` among `cards[place:end]` (one step of a Fisher-Yates shuffle) and return it."""
    here = np.uint64(place)
    there = np.uint64(place + draw_below(state, end - place))
    card = cards[there]
    cards[there] = cards[here]
    cards[here] = card
    return card


@helper
def shuffle(state, cards, first, end):  # type: ignore[no-untyped-def]
    """Shuffle `cards[first:end]` in place (Fisher-Yates, from the first on) from the stream of `state`."""
    for place in range(first, end - 1):
        draw_card(state, cards, place, end)


@helper
def reshuffle(state, cards, first, end):  # type: ignore[no-untyped-def]
    """Shuffle `cards[first:end]` from the stream of `state` alone: the order in which they lie leaves no trace.

    They are sorted first, so that what a player is shown for hidden cards depends on no hidden card.
    """
    for i in range(first + 1, end):
        card = cards[i]
        j = i
        while j > first and cards[j - 1] > card:
            cards[j] = cards[j - 1]
            j -= 1
        cards[j] = card
    shuffle(state, cards, first, end)


class _Stream:
    """A splitmix64 stream in plain Python (nothing is compiled for a few decks)."""

    def __init__(self, seed: int) -> None:
        self.rng = seed

    def next_bits(self) -> int:
        self.rng = _plain(advance)(self.rng)
        return int(_plain(bits_at)(self.rng))

    def draw_below(self, count: int) -> int:
        product = (self.next_bits() >> 32) * count
        while product & 0xFFFFFFFF < 0x100000000 % count:
            product = (self.next_bits() >> 32) * count
        return product >> 32


def _plain(function: Any) -> Any:
    return getattr(function, "py_func", function)


def splitmix64(seed: int, count: int) -> list[int]:
    """Return the first `count` outputs of splitmix64 seeded with `seed` (0 to 2**64 - 1)."""
    stream = _Stream(check_deal(seed))
    return [stream.next_bits() for _ in range(count)]


def deck(deal: int, packs: int = 1) -> NDArray[np.int8]:
    """Return the shuffled deck of a deal number: int8 card codes, shape (52 * packs,), the first card dealt first.

    Games that take cards out before shuffling (foundations' bases, say) shuffle what is left in the same way.

    Raises:
        TypeError, ValueError: `deal` is no whole number from 0 to 2**64 - 1.
    """
    stream = _Stream(check_deal(deal))
    cards = pack(packs)
    for i in range(len(cards) - 1):
        j = i + stream.draw_below(len(cards) - i)
        cards[i], cards[j] = cards[j], cards[i]
    return cards


def check_deal(deal: Any) -> int:
    """Return a deal number as a Python int.

    Raises:
        TypeError: it is no whole number (bools are refused too).
        ValueError: it lies outside 0 to 2**64 - 1.
    """
    if isinstance(deal, (bool, np.bool_)) or not isinstance(deal, (int, np.integer)):
        raise TypeError(f"a deal is a whole number from 0 to 2**64 - 1, not {deal!r}")
    if not 0 <= int(deal) <= LAST_DEAL:
        raise ValueError(f"deal {deal} lies outside 0 to 2**64 - 1")
    return int(deal)


@dataclass(frozen=True)
class StandardDeals:
    """A named range of deal numbers that policies are compared on."""

    name: str
    first: int
    count: int
    sha256: str

    def numbers(self, count: int | None = None) -> NDArray[np.uint64]:
        """Return the deal numbers, uint64, all or the first `count` of them.

        Raises:
            ValueError: `count` is not between 1 and the size of the range.
        """
        if count is not None and not 1 <= count <= self.count:
            raise ValueError(f"the {self.name} deals are {self.count}: asked for the first {count}")
        return np.arange(self.first, self.first + (count or self.count), dtype=np.uint64)

    def checksum(self) -> str:
        """Return the SHA-256 of all the range's one-pack decks, joined: what the file must say."""
        digest = hashlib.sha256()
        for number in self.numbers():
            digest.update(deck(int(number)).tobytes())
        return digest.hexdigest()


@cache
def standard_deals() -> dict[str, StandardDeals]:
    """Return the standard deals by name (`test`, `validation`, `smoke`), read from `seeds/deals/standard.json`."""
    text = resources.files("patience_env.seeds").joinpath("deals/standard.json").read_text("utf-8")
    return {name: StandardDeals(name, **facts) for name, facts in json.loads(text)["deals"].items()}


def named_deals(name: str, count: int | None = None) -> NDArray[np.uint64]:
    """Return the deal numbers of a standard range (all, or the first `count`).

    Raises:
        ValueError: there is no such range, or it is shorter than `count`.
    """
    known = standard_deals()
    if name not in known:
        raise ValueError(f"there are no standard deals named {name!r}: choose one of {', '.join(known)}")
    return known[name].numbers(count)


def refuse_reserved(deals: NDArray[np.uint64]) -> None:
    """Raise ValueError when any deal number is reserved for comparison (below 2**32): training must not see it."""
    reserved = np.asarray(deals, dtype=np.uint64) < RESERVED_DEALS
    if reserved.any():
        number = int(np.asarray(deals)[reserved][0])
        raise ValueError(
            f"deal {number} is reserved for comparing policies (all below 2**32 are): training draws from 2**32 up"
        )
