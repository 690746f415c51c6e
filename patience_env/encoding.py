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

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from patience_env.cards import CHANNELS, EMPTY_CHANNEL, FACE_DOWN, FACE_DOWN_CHANNEL, PACK, RANKS
from patience_env.game import Layout
from patience_env.jit import JIT, rule
from patience_env.lanes import LANES, copy_bytes, copy_few, spread_lanes, spread_rows

KINDS = ("planes", "cards")
TOGETHER = 8  # rows of a scratch, a power of two: more than the compiled loop has under way


def one_hot() -> NDArray[np.int8]:
    """Return the nineteen channels of each card code, in rows of `LANES` entries, flat."""
    rows = np.zeros((FACE_DOWN + 1, LANES), np.int8)
    for code in range(PACK):
        rows[1 + code, code % 13] = rows[1 + code, 13 + code // 13] = 1
    rows[0, EMPTY_CHANNEL] = rows[FACE_DOWN, FACE_DOWN_CHANNEL] = 1
    return rows.ravel()


ONE_HOT = one_hot()


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


def scratch(layout: Layout) -> NDArray[np.int8]:
    """Return room (zeros) for the cards form that `write_planes` reads, of `TOGETHER` games.

    It may read on beyond its end.
    """
    padding = int(np.prod(planes_shape(layout))) - CHANNELS * len(layout.places)
    return np.zeros((TOGETHER, len(layout.places) + padding + LANES), np.int8)


def expand(planes, cards, places, cells):  # type: ignore[no-untyped-def]
    """Write the planes form (flat) of the cards form in a `scratch`: plain Python's way.

    `cells` is the size of the grid, 0 without one.
    """
    hot = ONE_HOT.reshape(-1, LANES)[cards[:places], :CHANNELS]
    planes[: CHANNELS * cells] = hot[:cells].T.ravel()
    planes[CHANNELS * cells : CHANNELS * places] = hot[cells:].ravel()
    planes[CHANNELS * places :] = cards[places : places + len(planes) - CHANNELS * places]


@rule
def write_grid(planes, cards, cells):  # type: ignore[no-untyped-def]
    """Write the one-hot channels of the cells of a grid, 32 cells at a time.

    A grid of fewer is written too long, channel by channel: each is written over the excess of the last, and what
    follows the grid must be written later.
    """
    if cells >= LANES:
        for cell in range(0, cells - LANES, LANES):
            spread_lanes(planes, np.uint64(cell), np.uint64(cells), cards, np.uint64(cell))
        spread_lanes(planes, np.uint64(cells - LANES), np.uint64(cells), cards, np.uint64(cells - LANES))
    elif planes.shape[0] >= (CHANNELS - 1) * cells + LANES:
        spread_lanes(planes, np.uint64(0), np.uint64(cells), cards, np.uint64(0))
    else:
        for cell in range(cells):
            for channel in range(CHANNELS):
                planes[cells * channel + cell] = ONE_HOT[LANES * int(cards[cell]) + channel]


@rule
def write_rows(planes, cards, cells, places):  # type: ignore[no-untyped-def]
    """Write the one-hot rows of the places outside the grid, 32 at a time; of fewer, one after the other."""
    if places - cells >= LANES:
        for place in range(cells, places, LANES):
            first = min(place, places - LANES)  # the last rows are written over some of those before
            spread_rows(planes, np.uint64(CHANNELS * first), cards, np.uint64(first))
    else:
        for place in range(cells, places):
            copy_bytes(planes, CHANNELS * place, ONE_HOT, LANES * int(cards[np.uint64(place)]), CHANNELS)


@rule
def expand_in_lanes(planes, cards, places, cells):  # type: ignore[no-untyped-def]
    """Do the same in compiled code: the grid, the other places, then the counters.

    To write all is faster than to find out what has changed, and lets the observation be written where the caller wants
    it.
    """
    if cells > 0:
        write_grid(planes, cards, cells)
    write_rows(planes, cards, cells, places)
    tail = CHANNELS * places
    copy_few(planes, tail, cards, places, planes.shape[0] - tail)


write_planes: Any = expand_in_lanes if JIT else expand
