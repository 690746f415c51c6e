"""Observations: what `observe` writes (the "cards" form) and its one-hot expansion (the "planes" form).

Cards form: int8, shape (places + counters,): a card code a place (0 empty, 1 to 52 a card, 53 face-down), then the
counters as numbers. Nineteen channels describe a place in the planes form: 13 ranks, 4 suits, empty, face-down.

Planes form of a game with a grid: int8, shape (19 + n, rows, columns): the 19 channels of the grid's places; then n
planes that hold, entry after entry in reading order and padded with zeros, the 19 channels of each place outside the
grid (the current card, say) and the counters. They are not repeated over all cells: that would cost more time than the
games themselves; `channel_names` says where each stands, for those who want to spread them.
Planes form of the other games: int8, shape (places + n, 19): a row a place, then n rows that hold the counters.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from patience_env.cards import FACE_DOWN, PACK, RANKS
from patience_env.game import Layout
from patience_env.jit import rule

CHANNELS = 19
WORD = 8
EMPTY_CHANNEL = 17
FACE_DOWN_CHANNEL = 18
KINDS = ("planes", "cards")
# The two channels of each card code; an empty place and a face-down card have one, told twice.
RANK_CHANNEL = np.array([EMPTY_CHANNEL, *(code % 13 for code in range(PACK)), FACE_DOWN_CHANNEL], np.uint8)
SUIT_CHANNEL = np.array([EMPTY_CHANNEL, *(13 + code // 13 for code in range(PACK)), FACE_DOWN_CHANNEL], np.uint8)


def cards_length(layout: Layout) -> int:
    """Return the length of the cards form."""
    return len(layout.places) + len(layout.counters)


def planes_shape(layout: Layout) -> tuple[int, ...]:
    """Return the shape of the planes form."""
    if layout.grid is None:
        return (len(layout.places) + -(-len(layout.counters) // CHANNELS), CHANNELS)
    rows, columns = layout.grid
    cells = rows * columns
    others = CHANNELS * (len(layout.places) - cells) + len(layout.counters)
    return (CHANNELS + -(-others // cells), rows, columns)


def channel_names(layout: Layout) -> tuple[str, ...]:
    """Return what each entry of the flattened planes form holds, such as `r1c1: spades` or `unseen hearts`."""
    kinds = [*(f"rank {rank}" for rank in RANKS), "spades", "hearts", "diamonds", "clubs", "empty", "face-down"]
    cells = layout.grid[0] * layout.grid[1] if layout.grid else 0
    names = [f"{place}: {kind}" for kind in kinds for place in layout.places[:cells]]
    names += [f"{place}: {kind}" for place in layout.places[cells:] for kind in kinds]
    names += [counter.name for counter in layout.counters]
    return (*names, *["padding"] * (int(np.prod(planes_shape(layout))) - len(names)))


def observation_space(layout: Layout, kind: str) -> Box:
    """Return the Box (int8) of one observation.

    Raises:
        ValueError: `kind` is neither "planes" nor "cards".
    """
    low = np.array([counter.low for counter in layout.counters], np.int8)
    high = np.array([counter.high for counter in layout.counters], np.int8)
    places = len(layout.places)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"observation={kind!r} is not allowed: choose one of {', '.join(map(repr, KINDS))}")
    if kind == "cards":
        zeros = np.zeros(places, np.int8)
        return Box(np.concatenate([zeros, low]), np.concatenate([zeros + np.int8(FACE_DOWN), high]), dtype=np.int8)
    size = int(np.prod(planes_shape(layout)))
    first = CHANNELS * places
    bottom, top = np.zeros(size, np.int8), np.ones(size, np.int8)
    bottom[first : first + len(low)], top[first : first + len(high)] = low, high
    return Box(bottom.reshape(planes_shape(layout)), top.reshape(planes_shape(layout)), dtype=np.int8)


def words_of(rows: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the rows of a padded int8 array as 64-bit words, eight entries each (a view)."""
    return rows.view(np.int64)


def padded(count: int, length: int) -> NDArray[np.int8]:
    """Return an int8 array of zeros of `count` rows whose length is rounded up to whole 64-bit words."""
    return np.zeros((count, -(-length // WORD) * WORD), np.int8)


@rule
def update_planes(planes, cards, shown, words, shown_words, places, cells, entries):  # type: ignore[no-untyped-def]
    """Bring `planes` (flat) up to date with `cards`, touching only what differs from `shown`; then both are equal.

    `words` and `shown_words` are the same memory as `cards` and `shown`, eight entries a word: one comparison tells
    that eight places did not change. `cells` is the size of the grid, 0 without one; `entries` is the number of places
    and counters. Unsigned indices spare the test for negative ones, which takes half the time here.
    """
    for word in range((places + WORD - 1) // WORD):
        if words[word] != shown_words[word]:
            for place in range(np.uint64(WORD * word), np.uint64(min(WORD * word + WORD, places))):
                old = np.uint64(shown[place])
                new = np.uint64(cards[place])
                if old != new:
                    first = np.uint64(place)
                    stride = np.uint64(cells)
                    if place >= np.uint64(cells):
                        first = np.uint64(CHANNELS) * first
                        stride = np.uint64(1)
                    planes[first + stride * np.uint64(RANK_CHANNEL[old])] = 0
                    planes[first + stride * np.uint64(SUIT_CHANNEL[old])] = 0
                    planes[first + stride * np.uint64(RANK_CHANNEL[new])] = 1
                    planes[first + stride * np.uint64(SUIT_CHANNEL[new])] = 1
            shown_words[word] = words[word]
    for entry in range(np.uint64(places), np.uint64(entries)):
        planes[np.uint64((CHANNELS - 1) * places) + np.uint64(entry)] = cards[entry]


def empty_planes(layout: Layout, count: int) -> NDArray[np.int8]:
    """Return the flat planes form of `count` tables on which no card lies: what `shown` of zeros means."""
    planes = np.zeros((count, int(np.prod(planes_shape(layout)))), np.int8)
    cells = layout.grid[0] * layout.grid[1] if layout.grid else 0
    planes[:, EMPTY_CHANNEL * cells : (EMPTY_CHANNEL + 1) * cells] = 1
    planes[:, CHANNELS * cells + EMPTY_CHANNEL : CHANNELS * len(layout.places) : CHANNELS] = 1
    return planes
