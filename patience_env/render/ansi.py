"""The table as text: cards on a grid of characters that stretches where a fan needs more room."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from patience_env.cards import NAMES, card_code
from patience_env.game import Layout, Spot, Table
from patience_env.render.layout import (
    EMPTY_TEXT,
    FACE_DOWN_TEXT,
    TOUCH,
    Board,
    Note,
    board_of,
    facts,
    full_caption,
)

PITCH = 4
FAN_PITCH = 3
LEAST_STEP = 0.1
MOST_SHOWN = 20
FIRST_SHOWN = 2
RED = "\x1b[31m"
DIM = "\x1b[2m"
BRIGHT = "\x1b[1;33m"
PLAIN = "\x1b[0m"


def ansi(
    layout: Layout,
    table: Table,
    caption: str = "",
    *,
    colour: bool | None = None,
    lit: Collection[str] = (),
    notes: Sequence[Note] = (),
) -> str:
    """Return the table as lines of text.

    `TH` is a card, `??` a face-down one (`??x27` a pile of 27), ` .` an empty place, `[]` an empty place that is lit
    and `TH*` a card that is lit. A fanned pile shows its cards down or along the line, at most twenty of them.

    Args:
        layout: where the piles lie.
        table: what they hold, as `env.table()` gives it.
        caption: the first line.
        colour: whether to colour by ANSI codes; None does so where standard output is a terminal and `NO_COLOR` is
            not set.
        lit: the names of the places to mark, such as those where an action is legal.
        notes: texts to write at given places.

    Raises:
        ValueError: the table holds what is no card, or cards where the layout has no spot.
    """
    if colour is None:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    board = board_of(layout)
    facts(board, table)
    grid = _grid_of(board)
    piles = [_pile(place.spot, table.get(place.name, ()), place.name in lit) for place in board.places]
    rows = _stretch_rows(board, grid, piles)
    columns = _stretch_columns(board, grid, piles, rows)
    tokens: dict[tuple[int, int], str] = {}
    for place, pile, row, column in zip(board.places, piles, rows, columns, strict=True):
        for i, token in enumerate(pile.tokens):
            tokens[row + i * pile.down, column + i * pile.along * FAN_PITCH] = token
        if place.spot.label:
            tokens[row - pile.up - 1, column - pile.before] = place.spot.label
    for note in notes:
        row = _nearest(note.y, [(place.spot.y, row) for place, row in zip(board.places, rows, strict=True)], 1)
        column = _nearest(note.x, [(p.spot.x, column) for p, column in zip(board.places, columns, strict=True)], PITCH)
        tokens.setdefault((row, column), note.text)
    return "\n".join((full_caption(board, table, caption), "", *_lines(tokens, colour)))


class _Pile(NamedTuple):
    """The tokens of a pile, bottom first, and in which direction (-1, 0 or 1) each follows the last."""

    tokens: tuple[str, ...]
    along: int
    down: int

    @property
    def up(self) -> int:
        return len(self.tokens) - 1 if self.down < 0 else 0

    @property
    def below(self) -> int:
        return len(self.tokens) - 1 if self.down > 0 else 0

    @property
    def before(self) -> int:
        return FAN_PITCH * (len(self.tokens) - 1) if self.along < 0 else 0

    @property
    def width(self) -> int:
        last = len(self.tokens[-1])
        return max(last, FAN_PITCH * (len(self.tokens) - 1) * self.along + last)


def _pile(spot: Spot, cards: Sequence[str], lit: bool) -> _Pile:
    texts = [NAMES[card_code(card)] for card in cards] or [EMPTY_TEXT]
    fanned = max(abs(spot.dx), abs(spot.dy)) >= LEAST_STEP
    if not fanned:
        count = f"x{len(texts)}" if texts[-1] == FACE_DOWN_TEXT and len(texts) > 1 else ""
        texts = [texts[-1] + count]
    elif len(texts) > MOST_SHOWN:
        texts = [*texts[:FIRST_SHOWN], "..", *texts[FIRST_SHOWN + 1 - MOST_SHOWN :]]
    tokens = [" ." if text == EMPTY_TEXT else text for text in texts]
    if lit:
        tokens[-1] = "[]" if tokens[-1] == " ." else f"{tokens[-1]}*"
    upright = abs(spot.dy) >= abs(spot.dx)
    return _Pile(
        tuple(tokens),
        0 if upright or not fanned else (1 if spot.dx > 0 else -1),
        0 if not upright or not fanned else (1 if spot.dy > 0 else -1),
    )


@dataclass(frozen=True)
class _Grid:
    """The places in whole rows and columns, so close that none coincide: for each place its `row` and `column`.

    `above` lists, for each place, the places above it in its way.
    """

    row: tuple[int, ...]
    column: tuple[float, ...]
    above: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)
def _grid_of(board: Board) -> _Grid:
    spots = [place.spot for place in board.places]
    near = [
        [j for j, other in enumerate(spots) if abs(other.x - spot.x) < 1.0 - TOUCH and other.y < spot.y - TOUCH]
        for spot in spots
    ]
    closest = min((spot.y - spots[j].y for spot, above in zip(spots, near, strict=True) for j in above), default=1.0)
    row = tuple(int(spot.y / min(closest, 1.0) + 0.5 + TOUCH) for spot in spots)
    gaps = [
        spot.x - other.x
        for i, spot in enumerate(spots)
        for j, other in enumerate(spots)
        if row[i] == row[j] and spot.x > other.x + TOUCH
    ]
    closest = min(gaps, default=1.0)
    return _Grid(row, tuple(spot.x / min(closest, 1.0) for spot in spots), tuple(map(tuple, near)))


def _stretch_rows(board: Board, grid: _Grid, piles: list[_Pile]) -> list[int]:
    """Return the text row of each place: places in one row of the grid stay in one, below all that lies above them."""
    rows = [0] * len(piles)
    levels = sorted(set(grid.row))
    at, before = 0, levels[0] if levels else 0
    for level in levels:
        at += min(level - before, 2)
        before = level
        here = [i for i, row in enumerate(grid.row) if row == level]
        for i in here:
            over = piles[i].up + (board.places[i].spot.label != "")
            at = max([at, over, *(rows[j] + piles[j].below + 1 + over for j in grid.above[i])])
        for i in here:
            rows[i] = at
    return rows


def _stretch_columns(board: Board, grid: _Grid, piles: list[_Pile], rows: list[int]) -> list[int]:
    """Return the text column of each place: places in one column stay so, right of all that lies left of them."""
    first = [row - pile.up - (p.spot.label != "") for row, pile, p in zip(rows, piles, board.places, strict=True)]
    last = [row + pile.below for row, pile in zip(rows, piles, strict=True)]
    columns = [0] * len(piles)
    ends = [0] * len(piles)
    levels = sorted(set(grid.column))
    at, before = 0, levels[0] if levels else 0.0
    done: list[int] = []
    for level in levels:
        at += round(PITCH * min(level - before, 2.0))
        before = level
        here = [i for i, column in enumerate(grid.column) if column == level]
        for i in here:
            beside = [ends[j] + 1 for j in done if first[j] <= last[i] and first[i] <= last[j]]
            at = max([at, piles[i].before, *(end + piles[i].before for end in beside)])
        for i in here:
            columns[i] = at
            label = len(board.places[i].spot.label) - piles[i].before
            ends[i] = at + max(piles[i].width, label)
        done += here
    return columns


def _nearest(wanted: float, known: list[tuple[float, int]], pitch: int) -> int:
    """Return the row or column that belongs to a length, measured from the nearest place before it."""
    at, found = max((pair for pair in known if pair[0] <= wanted + TOUCH), default=min(known, default=(0.0, 0)))
    return max(0, found + round((wanted - at) * pitch))


def _lines(tokens: dict[tuple[int, int], str], colour: bool) -> list[str]:
    """Return the lines that show each token in its (row, column)."""
    lines: list[str] = []
    for row in range(max((row for row, _ in tokens), default=-1) + 1):
        line, length = "", 0
        for column in sorted(column for line_row, column in tokens if line_row == row):
            token = tokens[row, column]
            # A token that has no room (only a note can) is left out rather than written over another.
            if column < length:
                continue
            line += " " * (column - length) + (_coloured(token) if colour else token)
            length = column + len(token)
        lines.append(line.rstrip())
    return lines


def _coloured(token: str) -> str:
    if token.endswith("*") or token == "[]":
        code = BRIGHT
    elif token.strip() == "." or token.startswith(FACE_DOWN_TEXT):
        code = DIM
    elif token in NAMES and token[1] in "HD":
        code = RED
    else:
        return token
    return f"{code}{token}{PLAIN}"
