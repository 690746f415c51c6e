"""The table as an SVG picture: one self-contained string that no font, style sheet or script belongs to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from xml.sax.saxutils import escape

from patience_env.cards import NAMES
from patience_env.game import Layout, Table
from patience_env.render import faces
from patience_env.render.faces import Colour
from patience_env.render.layout import (
    CARD_WIDTH,
    EMPTY_TEXT,
    FACE_DOWN_TEXT,
    Note,
    Place,
    Scale,
    arrange,
    board_of,
    check_card_width,
    full_caption,
    scale_of,
)

LETTER = 0.52


def svg(
    layout: Layout,
    table: Table,
    caption: str = "",
    *,
    card_width: int = CARD_WIDTH,
    lit: Collection[str] = (),
    notes: Sequence[Note] = (),
) -> str:
    """Return the table as an SVG document.

    Args:
        layout, table, caption, lit, notes: as for `ansi`.
        card_width: the width of a card in the picture's own size, 16 to 512; it scales without loss.

    Raises:
        TypeError, ValueError: a card width that is not allowed, or a table that the layout cannot show.
    """
    board = board_of(layout)
    scale = scale_of(board, check_card_width(card_width))
    width, height = scale.size
    drawn = list(arrange(board, table, lit))
    title = full_caption(board, table, caption)
    middle = width / 2, scale.caption_height / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f"<defs>{''.join(_symbol(card) for card in sorted({item.card for item in drawn}))}</defs>",
        f'<rect width="{width}" height="{height}" fill="{_hex(faces.FELT)}"/>',
        f'<rect width="{width}" height="{scale.caption_height}" fill="{_hex(faces.FELT_DARK)}"/>',
        _text(middle, 0.32 * card_width, faces.CAPTION, title, width - 2 * scale.gap),
    ]
    parts += [_label(scale, place) for place in board.places if place.spot.label]
    for item in drawn:
        x, y = scale.x(item.x), scale.y(item.y)
        size = f'x="{x}" y="{y}" width="{card_width}" height="{scale.card_height}"'
        parts.append(f'<use href="#{_symbol_id(item.card)}" {size}/>')
        if item.lit:
            fill = f' fill="{_hex(faces.LIT)}" fill-opacity="{0.18 if item.card == EMPTY_TEXT else 0}"'
            corner = faces.CORNER / faces.WIDTH * card_width
            stroke = f'stroke="{_hex(faces.LIT)}" stroke-width="{max(1.5, 0.035 * card_width):.3g}"'
            parts.append(f'<rect {size} rx="{corner:.3g}"{fill} {stroke}/>')
    for note in notes:
        middle = scale.x(note.x), scale.y(note.y)
        parts.append(_text(middle, 0.34 * card_width, faces.NOTE, note.text))
    return "\n".join((*parts, "</svg>\n"))


def card_symbols() -> str:
    """Return an SVG document of symbols alone: `card-7H` and so on, `card-back` and `card-none`, to be used by others.

    Drawn once and referred to (`<use href="cards.svg#card-7H"/>`), as web pages do. Each is 100 by 140.
    """
    symbols = "".join(_symbol(card) for card in NAMES)
    return f'<svg xmlns="http://www.w3.org/2000/svg">{symbols}</svg>\n'


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _symbol_id(card: str) -> str:
    """Return the id of a card's drawing: the same in every picture, so that several may stand in one web page."""
    return "card-" + {FACE_DOWN_TEXT: "back", EMPTY_TEXT: "none"}.get(card, card)


def _text(middle: tuple[float, float], size: float, colour: Colour, text: str, room: float = 0.0) -> str:
    """Return a text around a middle point, squeezed where it is probably wider than its room (0: no limit)."""
    squeeze = ""
    if room and LETTER * len(text) * size > room:
        squeeze = f' textLength="{room:.4g}" lengthAdjust="spacingAndGlyphs"'
    x, y = middle
    return (
        f'<text x="{x:.5g}" y="{y:.5g}" dy="0.35em" font-size="{size:.4g}" fill="{_hex(colour)}" '
        f'text-anchor="middle"{squeeze}>{escape(text)}</text>'
    )


def _label(scale: Scale, place: Place) -> str:
    room = place.label_room * (scale.card_width + scale.gap)
    return _text(scale.label_middle(place), 0.22 * scale.card_width, faces.LABEL, place.spot.label, room)


def _symbol(card: str) -> str:
    """Return the drawing of a card as an SVG symbol."""
    w, h, corner = faces.WIDTH, faces.HEIGHT, faces.CORNER
    frame = f'<rect x="1" y="1" width="{w - 2}" height="{h - 2}" rx="{corner}" '
    if card == EMPTY_TEXT:
        inside = f'{frame}fill="none" stroke="{_hex(faces.OUTLINE)}" stroke-width="2"/>'
    elif card == FACE_DOWN_TEXT:
        inside = f'{frame}fill="{_hex(faces.PAPER)}" stroke="{_hex(faces.EDGE)}" stroke-width="2"/>{_back()}'
    else:
        inside = f'{frame}fill="{_hex(faces.PAPER)}" stroke="{_hex(faces.EDGE)}" stroke-width="2"/>{_face(card)}'
    return f'<symbol id="{_symbol_id(card)}" viewBox="0 0 {w} {h}">{inside}</symbol>'


def _back() -> str:
    lines = "".join(f"M{x0:g} {y0:g} L{x1:g} {y1:g} " for x0, y0, x1, y1 in faces.back_lines())
    x, y, w, h = faces.BACK_PANEL
    return (
        f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="4" fill="{_hex(faces.BACK)}"/>'
        f'<path d="{lines.strip()}" stroke="{_hex(faces.BACK_LINE)}" stroke-width="2.4" fill="none"/>'
    )


def _face(card: str) -> str:
    face = faces.face_of(card)
    colour = _hex(face.colour)
    parts = []
    if face.panel is not None:
        x, y, w, h = face.panel
        parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" fill="{_hex(face.tint)}"/>')
    for mark in face.marks:
        corner_x, corner_y = mark.x - mark.side / 2, mark.y - mark.side / 2
        place = f"translate({corner_x:g} {corner_y:g}) scale({mark.side / 100:g})"
        parts.append(f'<path transform="{place}" d="{mark.path}" fill="{colour}"/>')
    narrow = f' textLength="{faces.RANK_WIDTH}" lengthAdjust="spacingAndGlyphs"' if len(face.rank) > 1 else ""
    parts += [
        f'<text x="{x}" y="{y}" dy="0.36em" font-size="{faces.RANK_SIZE}" font-weight="bold" '
        f'fill="{colour}" text-anchor="middle"{narrow}>{face.rank}</text>'
        for x, y in faces.RANKS_AT
    ]
    return "".join(parts)
