"""Pictures of a table: text, SVG, pixels and a window, all drawn from the spots of a game's layout.

Every picture shows `table()`, the position as the player may know it, so no picture can show a hidden card. Text and
SVG need nothing beyond Python; pixels and the window need pygame-ce (`pip install "patience-env[render]"`), which is
imported when the first of them is drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patience_env.game import Layout, Table
from patience_env.render.ansi import ansi
from patience_env.render.layout import CARD_WIDTH, Note
from patience_env.render.vector_graphics import svg

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from patience_env.render.raster import Window

__all__ = ["Note", "ansi", "close_window", "rgb_array", "show_window", "svg"]


def rgb_array(
    layout: Layout,
    table: Table,
    caption: str = "",
    *,
    card_width: int = CARD_WIDTH,
    lit: Collection[str] = (),
    notes: Sequence[Note] = (),
) -> NDArray[np.uint8]:
    """Return the table as pixels, uint8, shape (height, width, 3), a fresh array; the shape depends on the layout only.

    Args:
        layout, table, caption, lit, notes: as for `ansi`.
        card_width: the width of a card in pixels, 16 to 512.

    Raises:
        ImportError: pygame-ce is missing.
        TypeError, ValueError: a card width that is not allowed, or a table that the layout cannot show.
    """
    from patience_env.render import raster

    return raster.rgb_array(layout, table, caption, card_width=card_width, lit=lit, notes=notes)


def show_window(
    window: Window | None,
    layout: Layout,
    table: Table,
    caption: str,
    metadata: Mapping[str, Any],
    *,
    lit: Collection[str] = (),
    notes: Sequence[Note] = (),
) -> Window:
    """Draw the table in a window, opening it where `window` is None; return the window.

    Waits so that no more than `metadata["render_fps"]` pictures a second are shown. A window that the user closed
    stays closed: nothing is drawn until `close_window` and a new one.

    Raises:
        ImportError: pygame-ce is missing.
        ValueError: the layout cannot show the table.
    """
    from patience_env.render import raster

    window = raster.Window() if window is None else window
    window.show(layout, table, caption, metadata.get("render_fps"), lit=lit, notes=notes)
    return window


def close_window(window: Window) -> None:
    """Close a window; may be called twice."""
    window.close()
