"""The table as pixels, and in a window, drawn by pygame-ce on surfaces that need no display."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from patience_env.game import Layout, Table
from patience_env.render import faces
from patience_env.render.faces import Colour, Mark
from patience_env.render.layout import (
    ASPECT,
    CARD_WIDTH,
    EMPTY_TEXT,
    FACE_DOWN_TEXT,
    NARROWEST,
    WIDEST,
    Board,
    Note,
    Place,
    Scale,
    arrange,
    board_of,
    check_card_width,
    full_caption,
    scale_of,
)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable that the user has not set, for the time of a call."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)


try:
    with _environment("PYGAME_HIDE_SUPPORT_PROMPT", "1"):
        import pygame
except ImportError as error:
    raise ImportError('drawing pixels and windows needs pygame-ce: pip install "patience-env[render]"') from error
if not getattr(pygame, "IS_CE", False):
    warnings.warn(
        "the classic pygame is installed, but patience-env draws with pygame-ce, which uses the same name: "
        'pip uninstall pygame, then pip install --force-reinstall pygame-ce (or "patience-env[render]")',
        RuntimeWarning,
        stacklevel=2,
    )

FINER = 4
CURVE = 8
CLEAR = (1, 254, 3)
LIT_EMPTY, LIT_CARD = "lit place", "lit card"
WINDOW_SHARE = 0.85


def rgb_array(
    layout: Layout,
    table: Table,
    caption: str = "",
    *,
    card_width: int = CARD_WIDTH,
    lit: Collection[str] = (),
    notes: Sequence[Note] = (),
) -> NDArray[np.uint8]:
    """Return the table as pixels (see `patience_env.render.rgb_array`)."""
    scale = scale_of(board_of(layout), check_card_width(card_width))
    pixels = _background(scale).copy()
    surface = _surface_of(pixels)
    for item in arrange(scale.board, table, lit):
        if item.card == EMPTY_TEXT and not item.lit and (item.x, item.y) in scale.board.corners:
            continue
        corner = scale.x(item.x), scale.y(item.y)
        if item.card != EMPTY_TEXT:
            surface.blit(_sprite(item.card, card_width), corner)
            if item.lit:
                surface.blit(_sprite(LIT_CARD, card_width), corner)
        else:
            surface.blit(_sprite(LIT_EMPTY if item.lit else EMPTY_TEXT, card_width), corner)
    width = scale.size[0]
    title = full_caption(scale.board, table, caption)
    text = _text(title, 0.36 * card_width, faces.CAPTION, width - 2 * scale.gap)
    _centre(surface, text, (width / 2, scale.caption_height / 2))
    for note in notes:
        text = _text(note.text, 0.4 * card_width, faces.NOTE, width)
        _centre(surface, text, (scale.x(note.x), scale.y(note.y)))
    return pixels


def _surface_of(pixels: NDArray[np.uint8]) -> pygame.Surface:
    """Return a surface that shares the memory of an array (height, width, 3): what is drawn needs no conversion."""
    return pygame.image.frombuffer(pixels.data, (pixels.shape[1], pixels.shape[0]), "RGB")


@lru_cache(maxsize=8)
def _background(scale: Scale) -> NDArray[np.uint8]:
    """Return the pixels of the empty table: felt, caption bar, outlines, labels."""
    width, height = scale.size
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:] = faces.FELT
    pixels[: scale.caption_height] = faces.FELT_DARK
    surface = _surface_of(pixels)
    for place in scale.board.places:
        surface.blit(_sprite(EMPTY_TEXT, scale.card_width), (scale.x(place.spot.x), scale.y(place.spot.y)))
        if place.spot.label:
            _draw_label(surface, scale, place)
    return pixels


def _draw_label(surface: pygame.Surface, scale: Scale, place: Place) -> None:
    room = place.label_room * (scale.card_width + scale.gap)
    _centre(surface, _text(place.spot.label, 0.28 * scale.card_width, faces.LABEL, room), scale.label_middle(place))


def _centre(surface: pygame.Surface, picture: pygame.Surface, middle: tuple[float, float]) -> None:
    x, y = middle
    surface.blit(picture, (round(x - picture.get_width() / 2), round(y - picture.get_height() / 2)))


@lru_cache(maxsize=256)
def _text(text: str, size: float, colour: Colour, room: float) -> pygame.Surface:
    """Return a text on a clear ground, in smaller letters where its room is narrow, cut if it is still too wide."""
    for part in (1.0, 0.85, 0.7):
        font = _font(max(8, round(size * part)))
        if font.size(text)[0] <= room:
            break
    else:
        while text and font.size(text + "...")[0] > room:
            text = text[:-1]
        text += "..."
    return font.render(text, True, colour)


@lru_cache(maxsize=32)
def _font(size: int) -> pygame.font.Font:
    """Return the font that pygame-ce brings along, so that pictures are the same everywhere."""
    pygame.font.init()
    return pygame.font.Font(None, size)


@lru_cache(maxsize=1024)
def _sprite(name: str, card_width: int) -> pygame.Surface:
    """Return a card (or outline) that is ready to be laid on a table.

    Its smooth edges are mixed with the felt and the rest is left out by a colour key: such pictures are laid ten
    times faster than those with an alpha channel.
    """
    height = round(ASPECT * card_width)
    fine = pygame.Surface((FINER * card_width, FINER * height), pygame.SRCALPHA)
    fine.fill((*_edge_colour(name), 0))
    _paint(fine, name, FINER * card_width / faces.WIDTH)
    small = pygame.transform.smoothscale(fine, (card_width, height))
    if name not in (EMPTY_TEXT, FACE_DOWN_TEXT, LIT_EMPTY, LIT_CARD):
        _paint_rank(small, name, card_width / faces.WIDTH)
    pixels = np.empty((height, card_width, 3), np.uint8)
    pixels[:] = faces.FELT
    flat = _surface_of(pixels)
    flat.blit(small, (0, 0))
    alpha = pygame.surfarray.array_alpha(small).T
    pixels[alpha < 8] = CLEAR
    sprite = flat.copy()
    sprite.set_colorkey(CLEAR, pygame.RLEACCEL)
    return sprite


def _edge_colour(name: str) -> Colour:
    return {EMPTY_TEXT: faces.OUTLINE, LIT_EMPTY: faces.LIT, LIT_CARD: faces.LIT}.get(name, faces.EDGE)


def _paint(fine: pygame.Surface, name: str, unit: float) -> None:
    """Paint all of a card but its rank, `unit` pixels to a hundredth of its width."""
    whole = fine.get_rect()
    corner = round(faces.CORNER * unit)
    edge = max(FINER, round((4 if name in (LIT_EMPTY, LIT_CARD) else 2) * unit))
    if name in (EMPTY_TEXT, LIT_CARD):
        pygame.draw.rect(fine, _edge_colour(name), whole, edge, corner)
        return
    pygame.draw.rect(fine, _edge_colour(name), whole, 0, corner)
    inner = whole.inflate(-2 * edge, -2 * edge)
    fill = faces.LIT_FILL if name == LIT_EMPTY else faces.PAPER
    pygame.draw.rect(fine, fill, inner, 0, max(corner - edge, 0))
    if name == LIT_EMPTY:
        return
    if name == FACE_DOWN_TEXT:
        _paint_box(fine, faces.BACK_PANEL, faces.BACK, 4, unit)
        for x0, y0, x1, y1 in faces.back_lines():
            pygame.draw.line(fine, faces.BACK_LINE, (x0 * unit, y0 * unit), (x1 * unit, y1 * unit), round(2.4 * unit))
        return
    face = faces.face_of(name)
    if face.panel is not None:
        _paint_box(fine, face.panel, face.tint, 5, unit)
    for mark in face.marks:
        for outline in _outlines(mark, unit):
            pygame.draw.polygon(fine, face.colour, outline)


def _paint_box(
    fine: pygame.Surface, box: tuple[float, float, float, float], colour: Colour, corner: int, unit: float
) -> None:
    pygame.draw.rect(fine, colour, [round(length * unit) for length in box], 0, round(corner * unit))


def _paint_rank(small: pygame.Surface, name: str, unit: float) -> None:
    face = faces.face_of(name)
    text = _font(max(10, round(1.32 * faces.RANK_SIZE * unit))).render(face.rank, True, face.colour)
    widest = faces.RANK_WIDTH * unit
    if text.get_width() > widest:
        text = pygame.transform.smoothscale(text, (round(widest), text.get_height()))
    # The letters, not the line they stand on, are centred.
    box = text.get_bounding_rect()
    for x, y in faces.RANKS_AT:
        small.blit(text, (round(x * unit - box.width / 2) - box.x, round(y * unit - box.height / 2) - box.y))


def _outlines(mark: Mark, unit: float) -> list[list[tuple[float, float]]]:
    """Return a shape's outlines as polygons in pixels, its curves cut into short lines."""
    part = mark.side * unit / 100
    left, top = (mark.x - mark.side / 2) * unit, (mark.y - mark.side / 2) * unit
    return [[(left + x * part, top + y * part) for x, y in outline] for outline in _flatten(mark.path)]


@lru_cache(maxsize=16)
def _flatten(path: str) -> list[list[tuple[float, float]]]:
    outlines: list[list[tuple[float, float]]] = []
    for piece in path.replace("Z", "").split("M")[1:]:
        points: list[tuple[float, float]] = []
        for command in piece.replace("C", "\nC").replace("L", "\nL").split("\n"):
            numbers = [float(number) for number in command.lstrip("CL").split()]
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
            points += _curve(points[-1], *pairs) if command.startswith("C") else pairs
        outlines.append(points)
    return outlines


def _curve(
    start: tuple[float, float], first: tuple[float, float], second: tuple[float, float], end: tuple[float, float]
) -> list[tuple[float, float]]:
    """Return points along a cubic curve, its start left out."""
    points = []
    for i in range(1, CURVE + 1):
        t = i / CURVE
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
        x, y = (
            sum(w * p[axis] for w, p in zip(weights, (start, first, second, end), strict=True)) for axis in range(2)
        )
        points.append((x, y))
    return points


def fitting_width(board: Board, size: tuple[int, int]) -> int:
    """Return the greatest card width whose picture fits into (width, height) pixels, at least the narrowest allowed."""
    low, high = NARROWEST, WIDEST
    while low < high:
        middle = (low + high + 1) // 2
        width, height = Scale(board, middle).size
        low, high = (middle, high) if width <= size[0] and height <= size[1] else (low, middle - 1)
    return low


class Window:
    """The window of "human" mode; the user may change its size or close it.

    Attributes:
        closed: True once the user or `close` has closed it; then nothing is shown any more.
    """

    def __init__(self) -> None:
        self.closed = False
        self._clock = pygame.time.Clock()

    def show(
        self,
        layout: Layout,
        table: Table,
        caption: str,
        frames_a_second: float | None,
        *,
        lit: Collection[str] = (),
        notes: Sequence[Note] = (),
    ) -> None:
        """Draw the table, wait for the time of the frame, and see to what the user did to the window."""
        if self.closed:
            return
        board = board_of(layout)
        if pygame.display.get_surface() is None:
            self._open(board)
        self._pump()
        screen = pygame.display.get_surface()
        if screen is None:
            return
        width = fitting_width(board, screen.get_size())
        pixels = rgb_array(layout, table, caption, card_width=width, lit=lit, notes=notes)
        screen.fill(faces.FELT_DARK)
        _centre(screen, _surface_of(pixels), (screen.get_width() / 2, screen.get_height() / 2))
        pygame.display.set_caption(caption)
        pygame.display.flip()
        if frames_a_second:
            self._clock.tick(frames_a_second)

    def _open(self, board: Board) -> None:
        """Open the window as large as its cards are by default, smaller on a small screen."""
        # Without a screen SDL would refuse (or draw off-screen): say so and go on, as servers and tests need.
        if sys.platform.startswith("linux") and not any(
            os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
        ):
            warnings.warn("there is no display, so the window cannot be seen", RuntimeWarning, stacklevel=2)
            with _environment("SDL_VIDEODRIVER", "dummy"):
                pygame.display.init()
        else:
            pygame.display.init()
        sizes = pygame.display.get_desktop_sizes() or [(1280, 800)]
        most = (round(sizes[0][0] * WINDOW_SHARE), round(sizes[0][1] * WINDOW_SHARE))
        width = min(fitting_width(board, most), round(1.5 * CARD_WIDTH))
        pygame.display.set_mode(Scale(board, width).size, pygame.RESIZABLE)

    def _pump(self) -> None:
        pygame.event.pump()
        if pygame.event.get((pygame.QUIT, pygame.WINDOWCLOSE)):
            self.close()

    def close(self) -> None:
        """Close the window; may be called twice."""
        if not self.closed:
            self.closed = True
            pygame.display.quit()
