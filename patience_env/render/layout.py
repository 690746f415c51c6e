"""Where everything lies in a picture: computed once for all kinds of pictures from the spots of a game's layout.

Lengths are in the units of `Spot`: the step from a card to its neighbour, once across and once down. The size of
a picture depends on the spots alone, so all frames of an episode are equally large: a fan that would run into another
pile or too far is compressed instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from patience_env.cards import EMPTY, FACE_DOWN, NAMES, card_code
from patience_env.game import Layout, Spot, Table

CARD_WIDTH = 56
NARROWEST, WIDEST = 16, 512
ASPECT = 1.4
MOST_STEPS = 14
LONGEST = 6.0
LEAST_FAN = 0.3
LABEL_HEIGHT = 0.22
LETTER_WIDTH = 0.13
THIN = 0.035
TOUCH = 1e-6
KEPT = 64

EMPTY_TEXT, FACE_DOWN_TEXT = NAMES[EMPTY], NAMES[FACE_DOWN]


class Note(NamedTuple):
    """A short text whose middle lies at (x, y), in the units of `Spot`, such as the points of a line beside it."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Place:
    """A spot, and what was worked out for it.

    Attributes:
        name, spot: as in the layout.
        steps: how many steps its fan may be long.
        label_y: the top of its label, None when the label stands inside the empty place.
        label_room: the greatest width of its label.
    """

    name: str
    spot: Spot
    steps: float
    label_y: float | None
    label_room: float


@dataclass(frozen=True, eq=False)
class Board:
    """All places of a picture and the rectangle that they, their fans and their labels need (compared by identity)."""

    places: tuple[Place, ...]
    left: float
    top: float
    right: float
    bottom: float

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the places."""
        return frozenset(place.name for place in self.places)

    @cached_property
    def corners(self) -> frozenset[tuple[float, float]]:
        """Where the places lie."""
        return frozenset((place.spot.x, place.spot.y) for place in self.places)


class Drawn(NamedTuple):
    """A card (`--`: the outline of an empty place) with its corner at (x, y); `lit` where it is to stand out."""

    x: float
    y: float
    card: str
    lit: bool


@dataclass(frozen=True)
class Scale:
    """The lengths of a picture in pixels, from the width of its cards."""

    board: Board
    card_width: int

    @cached_property
    def card_height(self) -> int:
        """The height of a card."""
        return round(ASPECT * self.card_width)

    @cached_property
    def gap(self) -> int:
        """The space between neighbouring cards."""
        return max(1, round(0.09 * self.card_width))

    @cached_property
    def margin(self) -> int:
        """The space around the cards."""
        return round(0.35 * self.card_width)

    @cached_property
    def caption_height(self) -> int:
        """The height of the bar with the caption."""
        return round(0.6 * self.card_width)

    def x(self, x: float) -> int:
        """Return the pixel column of a place across."""
        return self.margin + round((x - self.board.left) * (self.card_width + self.gap))

    def y(self, y: float) -> int:
        """Return the pixel row of a place down."""
        return self.caption_height + self.margin + round((y - self.board.top) * (self.card_height + self.gap))

    def label_middle(self, place: Place) -> tuple[float, float]:
        """Return the pixel in the middle of a place's label."""
        spot = place.spot
        y = spot.y + 0.5 if place.label_y is None else place.label_y + LABEL_HEIGHT / 2
        return self.x(spot.x) + self.card_width / 2, self.y(y) - self.gap / 2

    @property
    def size(self) -> tuple[int, int]:
        """The (width, height) of the picture: even numbers, as video formats want them."""
        width = self.x(self.board.right) - self.gap + self.margin
        height = self.y(self.board.bottom) - self.gap + self.margin
        return width + width % 2, height + height % 2


def check_card_width(value: int) -> int:
    """Return the width of a card, or raise TypeError or ValueError saying what is allowed."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"card_width={value!r} is not allowed: give a whole number of pixels")
    if not NARROWEST <= value <= WIDEST:
        raise ValueError(f"card_width={value} is not allowed: give {NARROWEST} to {WIDEST} pixels")
    return value


_BOARDS: dict[int, tuple[Layout, Board]] = {}


def board_of(layout: Layout) -> Board:
    """Return the board of a layout (worked out once for the same spots)."""
    # By identity first: telling that hundreds of spots are the same takes longer than drawing them.
    known = _BOARDS.get(id(layout))
    if known is None:
        if len(_BOARDS) >= KEPT:
            _BOARDS.clear()
        known = _BOARDS[id(layout)] = (layout, _board(tuple(layout.spots.items())))
    return known[1]


@lru_cache(maxsize=KEPT)
def scale_of(board: Board, card_width: int) -> Scale:
    """Return the scale of a picture with cards of a given width."""
    return Scale(board, card_width)


def arrange(board: Board, table: Table, lit: Collection[str] = ()) -> Iterator[Drawn]:
    """Yield all that is to be drawn, the lowest first; cards that hardly show beside the next are left out.

    Raises:
        ValueError: the table holds what is no card, or cards where the layout has no spot.
    """
    facts(board, table)
    for place in board.places:
        cards = [NAMES[card_code(card)] for card in table.get(place.name, ())] or [EMPTY_TEXT]
        spot = place.spot
        squeeze = min(1.0, place.steps / (len(cards) - 1)) if len(cards) > 1 else 1.0
        dx, dy = spot.dx * squeeze, spot.dy * squeeze
        top = len(cards) - 1
        # From the top down, so that of cards in the same place the top one is shown.
        shown = [top]
        for i in range(top - 1, -1, -1):
            if (shown[-1] - i) * max(abs(dx), abs(dy)) >= THIN:
                shown.append(i)
        for i in reversed(shown):
            yield Drawn(spot.x + i * dx, spot.y + i * dy, cards[i], i == top and place.name in lit)


def facts(board: Board, table: Table) -> list[str]:
    """Return as text the entries of a table that are no piles of cards, such as `redeals 2`.

    Raises:
        ValueError: the table holds cards where the layout has no spot.
    """
    found = []
    for name, entries in table.items():
        if name in board.names:
            continue
        if any(entry in NAMES for entry in entries):
            raise ValueError(f"the layout has no spot for the cards of {name!r}: its spots are {_listed(board)}")
        if entries:
            found.append(f"{name.replace('_', ' ')} {' '.join(map(str, entries))}")
    return found


def _listed(board: Board) -> str:
    return ", ".join(place.name for place in board.places)


def full_caption(board: Board, table: Table, caption: str) -> str:
    """Return the caption with those entries of the table that are no cards, unless it tells them already."""
    told = caption.replace(": ", ", ").split(", ")
    return ", ".join(part for part in (caption, *(fact for fact in facts(board, table) if fact not in told)) if part)


@lru_cache(maxsize=KEPT)
def _board(spots: tuple[tuple[str, Spot], ...]) -> Board:
    places = []
    for name, spot in spots:
        others = [other for _, other in spots if other is not spot]
        label_y, label_room = _label(spot, others)
        places.append(Place(name, spot, _fan_steps(spot, others), label_y, label_room))
    xs, ys = [0.0, 1.0], [0.0, 1.0]
    if places:
        xs, ys = [], []
    for place in places:
        spot = place.spot
        for steps in (0.0, place.steps if spot.dx or spot.dy else 0.0):
            xs += [spot.x + steps * spot.dx, spot.x + steps * spot.dx + 1.0]
            ys += [spot.y + steps * spot.dy, spot.y + steps * spot.dy + 1.0]
        if spot.label:
            half = min(LETTER_WIDTH * len(spot.label), place.label_room) / 2
            xs += [spot.x + 0.5 - half, spot.x + 0.5 + half]
            if place.label_y is not None:
                ys += [place.label_y, place.label_y + LABEL_HEIGHT]
    return Board(tuple(places), min(xs), min(ys), max(xs), max(ys))


def _label(spot: Spot, others: list[Spot]) -> tuple[float | None, float]:
    """Return the top of a label (above its place, else below, else None: inside) and the width it may have."""
    near = [other for other in others if abs(other.x - spot.x) < 1.0 - TOUCH]
    above = 1.0 + LABEL_HEIGHT - TOUCH
    below = {True: above + LABEL_HEIGHT, False: above}
    if all(not 0.0 < spot.y - other.y < above for other in near):
        y = spot.y - LABEL_HEIGHT
    elif spot.dy <= 0.0 and all(not 0.0 < other.y - spot.y < below[other.label != ""] for other in near):
        y = spot.y + 1.0
    else:
        return None, 1.0
    room = 3.0
    for other in others:
        apart = abs(other.x - spot.x)
        if other.y < y + LABEL_HEIGHT - TOUCH and y < other.y + 1.0 - TOUCH:
            room = min(room, 2 * apart - 1.0)
        elif other.label and abs(other.y - spot.y) < 1.0:
            room = min(room, apart - 0.1)
    return y, max(room, 0.5)


def _fan_steps(spot: Spot, others: list[Spot]) -> float:
    """Return how many steps a fan may be long before it runs into another place or becomes too long."""
    step = max(abs(spot.dx), abs(spot.dy))
    if step == 0.0:
        return 0.0
    most = min(float(MOST_STEPS), max(LONGEST / step, 1.0))
    free = most
    for other in others:
        above = LABEL_HEIGHT if other.label else 0.0
        across = _meeting(other.x - spot.x, 1.0, 1.0, spot.dx)
        down = _meeting(other.y - spot.y, 1.0 + above, 1.0, spot.dy)
        if across is None or down is None:
            continue
        enter, leave = max(across[0], down[0]), min(across[1], down[1])
        if -TOUCH < enter < leave - TOUCH:
            free = min(free, max(enter, 0.0))
    return max(free, min(most, LEAST_FAN / step))


def _meeting(apart: float, before: float, after: float, step: float) -> tuple[float, float] | None:
    """Return between which steps a moving card overlaps, along one axis, what lies `apart` from its start."""
    low, high = apart - before, apart + after
    if step == 0.0:
        return (-float("inf"), float("inf")) if low < -TOUCH and high > TOUCH else None
    return min(low / step, high / step), max(low / step, high / step)
