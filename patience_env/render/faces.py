"""What cards look like: shapes and colours of our own, shared by the SVG and the pixels.

A card is 100 wide and 140 high here; a shape lies in a square of 100 by 100 and is written as an SVG path of
absolute M, L, C and Z commands.
"""

from __future__ import annotations

from typing import NamedTuple

from patience_env.cards import SUITS

WIDTH, HEIGHT = 100, 140
CORNER = 9

FELT = (30, 98, 74)
FELT_DARK = (22, 74, 57)
OUTLINE = (77, 135, 113)
LABEL = (186, 217, 202)
CAPTION = (240, 246, 238)
NOTE = (255, 214, 102)
LIT = (214, 196, 112)
LIT_FILL = (48, 116, 88)
PAPER = (253, 252, 247)
EDGE = (122, 130, 126)
RED = (196, 30, 48)
BLACK = (28, 32, 44)
RED_TINT = (250, 229, 226)
BLACK_TINT = (230, 233, 241)
BACK = (44, 82, 134)
BACK_LINE = (124, 156, 199)

Colour = tuple[int, int, int]


def _disc(x: float, y: float, radius: float) -> str:
    """Return the path of a disc, in four arcs."""
    bend = 0.5523 * radius
    left, right, top, bottom = x - radius, x + radius, y - radius, y + radius
    return (
        f"M{x:g} {top:g} C{x + bend:g} {top:g} {right:g} {y - bend:g} {right:g} {y:g} "
        f"C{right:g} {y + bend:g} {x + bend:g} {bottom:g} {x:g} {bottom:g} "
        f"C{x - bend:g} {bottom:g} {left:g} {y + bend:g} {left:g} {y:g} "
        f"C{left:g} {y - bend:g} {x - bend:g} {top:g} {x:g} {top:g} Z"
    )


SPADE = (
    "M50 3 C59 22 95 42 95 65 C95 77 86 85 75 85 C66 85 58 80 54 72 C55 84 60 92 70 98 "
    "L30 98 C40 92 45 84 46 72 C42 80 34 85 25 85 C14 85 5 77 5 65 C5 42 41 22 50 3 Z"
)
HEART = (
    "M50 95 C41 77 4 56 4 30 C4 15 15 6 28 6 C38 6 46 12 50 22 C54 12 62 6 72 6 C85 6 96 15 96 30 C96 56 59 77 50 95 Z"
)
DIAMOND = "M50 2 C58 19 71 36 87 50 C71 64 58 81 50 98 C42 81 29 64 13 50 C29 36 42 19 50 2 Z"
CLUB = " ".join(
    (
        _disc(50, 25, 22),
        _disc(26, 60, 22),
        _disc(74, 60, 22),
        "M43 36 L57 36 L62 58 C54 66 57 88 70 98 L30 98 C43 88 46 66 38 58 Z",
    )
)
PIPS = dict(zip(SUITS, (SPADE, HEART, DIAMOND, CLUB), strict=True))
KING_CROWN = "M14 84 L4 30 L31 54 L50 14 L69 54 L96 30 L86 84 Z"
QUEEN_CROWN = "M18 84 L2 44 L22 56 L28 24 L43 50 L50 16 L57 50 L72 24 L78 56 L98 44 L82 84 Z"
JACK_CORONET = "M12 84 L8 46 C28 56 42 46 50 18 C58 46 72 56 92 46 L88 84 Z"
HEADS = {"J": JACK_CORONET, "Q": QUEEN_CROWN, "K": KING_CROWN}


class Mark(NamedTuple):
    """A shape of a face: its path, its middle and the side of the square it fills."""

    path: str
    x: float
    y: float
    side: float


class Face(NamedTuple):
    """What stands on the face of a card; the rank has its middle at each of `RANKS_AT`."""

    rank: str
    colour: Colour
    marks: tuple[Mark, ...]
    panel: tuple[float, float, float, float] | None
    tint: Colour


RANKS_AT = ((20, 19), (80, 121))
RANK_SIZE, RANK_WIDTH = 36, 32
COURT_PANEL = (27, 38, 46, 64)


def face_of(card: str) -> Face:
    """Return the face of a two-letter card.

    Two corners show the rank and two the suit, so that a card can be read whichever side of it a fan leaves open.
    """
    rank, suit = card[0], card[1]
    red = suit in "HD"
    pip = PIPS[suit]
    marks = [Mark(pip, 80, 19, 25), Mark(pip, 20, 121, 25)]
    court = rank in HEADS
    if court:
        marks += [Mark(HEADS[rank], 50, 53, 30), Mark(pip, 50, 84, 34)]
    else:
        marks.append(Mark(pip, 50, 70, 62 if rank == "A" else 50))
    return Face(
        "10" if rank == "T" else rank,
        RED if red else BLACK,
        tuple(marks),
        COURT_PANEL if court else None,
        RED_TINT if red else BLACK_TINT,
    )


BACK_PANEL = (8, 8, 84, 124)
BACK_STEP = 14


def back_lines() -> list[tuple[float, float, float, float]]:
    """Return the lattice on the back of a card: lines (x0, y0, x1, y1) that end on the edges of the back's panel."""
    left, top, width, height = BACK_PANEL
    lines: list[tuple[float, float, float, float]] = []
    for offset in range(BACK_STEP, width + height, BACK_STEP):
        x0, y0 = max(0, offset - height), min(offset, height)
        x1, y1 = min(offset, width), max(0, offset - width)
        lines.append((left + x0, top + y0, left + x1, top + y1))
        lines.append((left + width - x0, top + y0, left + width - x1, top + y1))
    return lines
