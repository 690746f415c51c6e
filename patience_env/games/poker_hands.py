"""Poker hands of five cards: their category and the published scoring tables.

A hand counts once, in its standard category; an ace is high or low in a straight and straights do not wrap around.
Categories are numbered 0 (high card) to 9 (royal), in the order of `CATEGORIES`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from patience_env.jit import helper

CATEGORIES = (
    "high card",
    "pair",
    "two pairs",
    "triplets",
    "straight",
    "flush",
    "full hand",
    "four",
    "straight flush",
    "royal",
)
HIGH_CARD, PAIR, TWO_PAIRS, TRIPLETS, STRAIGHT, FLUSH, FULL_HAND, FOUR, STRAIGHT_FLUSH, ROYAL = range(10)
SCORED = CATEGORIES[1:]

TABLES: dict[str, tuple[float, ...]] = {
    "american": (2, 5, 10, 15, 20, 25, 50, 75, 100),
    "american-alternate": (1, 2, 7, 9, 5, 12, 20, 30, 50),
    "english": (1, 3, 6, 12, 5, 10, 16, 30, 30),
}
LOWEST_POINTS, HIGHEST_POINTS = -1_000_000, 1_000_000

_ACE_HIGH = 0b1111000000001


# By how many of the ten pairs of cards are of equal rank (0 to 6) + 7 * (0 no straight, 1 a straight, 2 one to the ace)
# + 21 where all are of one suit: looked up, since branches on random cards are guessed wrong more often than not.
_KINDS = np.array(
    [HIGH_CARD, PAIR, TWO_PAIRS, TRIPLETS, FULL_HAND, HIGH_CARD, FOUR]
    + 2 * 7 * [STRAIGHT]
    + 7 * [FLUSH]
    + 7 * [STRAIGHT_FLUSH]
    + 7 * [ROYAL]
)


@helper
def category(first, second, third, fourth, fifth):  # type: ignore[no-untyped-def]
    """Return the category, 0 to 9, of five different card codes (1 to 52)."""
    a, b, c, d, e = int(first) - 1, int(second) - 1, int(third) - 1, int(fourth) - 1, int(fifth) - 1
    ra, rb, rc, rd, re = a % 13, b % 13, c % 13, d % 13, e % 13
    equal_pairs = (
        (1 if ra == rb else 0)
        + (1 if ra == rc else 0)
        + (1 if ra == rd else 0)
        + (1 if ra == re else 0)
        + (1 if rb == rc else 0)
        + (1 if rb == rd else 0)
        + (1 if rb == re else 0)
        + (1 if rc == rd else 0)
        + (1 if rc == re else 0)
        + (1 if rd == re else 0)
    )
    ranks = (1 << ra) | (1 << rb) | (1 << rc) | (1 << rd) | (1 << re)
    straight = (1 if ranks == (ranks & -ranks) * 31 else 0) + (2 if ranks == _ACE_HIGH else 0)
    suit = a // 13
    others = (suit ^ (b // 13)) | (suit ^ (c // 13)) | (suit ^ (d // 13)) | (suit ^ (e // 13))
    return _KINDS[equal_pairs + 7 * straight + (21 if others == 0 else 0)]


def check_scoring(value: Any) -> str | dict[str, float]:
    """Return a scoring in normal form: a name in `TABLES`, "random", or a dict of the nine names to numbers.

    Raises:
        ValueError: an unknown name, or a table whose names are not exactly the nine of `SCORED`, or whose points are
            not finite numbers from -1,000,000 to 1,000,000.
        TypeError: neither a string nor a mapping.
    """
    if isinstance(value, str):
        if value in TABLES or value == "random":
            return value
        names = ", ".join(map(repr, (*TABLES, "random")))
        raise ValueError(
            f"scoring={value!r} is not known: choose one of {names}, or give a mapping of the nine hands "
            f"{', '.join(SCORED)} to numbers"
        )
    if not isinstance(value, Mapping):
        raise TypeError(f"scoring is the name of a table or a mapping of the nine hands to numbers, not {value!r}")
    missing = [name for name in SCORED if name not in value]
    unknown = [name for name in value if name not in SCORED]
    if missing or unknown:
        faults = [f"lacks {', '.join(missing)}"] if missing else []
        faults += [f"has unknown hands {', '.join(map(repr, unknown))}"] if unknown else []
        raise ValueError(f"the scoring table {' and '.join(faults)}: it needs exactly {', '.join(SCORED)}")
    for name in SCORED:
        points = value[name]
        if isinstance(points, bool) or not isinstance(points, Real) or not math.isfinite(points):
            raise ValueError(f"the scoring table gives {points!r} for {name}: give a finite number")
        if not LOWEST_POINTS <= float(points) <= HIGHEST_POINTS:
            raise ValueError(f"the scoring table gives {points!r} for {name}: give -1,000,000 to 1,000,000")
    return {name: float(value[name]) for name in SCORED}


def points_table(scoring: str | Mapping[str, float]) -> tuple[float, ...]:
    """Return the ten points (category 0 to 9) of a scoring in normal form; all zeros for "random"."""
    if isinstance(scoring, str):
        return (0.0, *map(float, TABLES.get(scoring, (0.0,) * 9)))
    return (0.0, *(float(scoring[name]) for name in SCORED))
