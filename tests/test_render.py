"""Pictures: the same table in text, SVG, pixels and a window, for every game of the registry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import types
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import patience_env
from patience_env import render
from patience_env.cards import NAMES
from patience_env.env import PatienceEnv
from patience_env.game import Layout, Spot
from patience_env.render import faces
from patience_env.render.layout import Scale, arrange, board_of

pytest.importorskip("pygame")
GAMES = patience_env.game_ids()
SVG = "{http://www.w3.org/2000/svg}"
HREF = re.compile(r'href="#([^"]+)"')


def opened(game: str, mode: str | None, **options: Any) -> PatienceEnv:
    env = gymnasium.make(game, render_mode=mode, **options).unwrapped
    assert isinstance(env, PatienceEnv)
    return env


def wander(env: PatienceEnv, steps: int) -> None:
    """Play random legal actions, fewer where the game is over sooner."""
    for _ in range(steps):
        if not env.action_masks().any():
            return
        env.step(env.sample())


def made_up(**spots: Spot) -> Layout:
    return Layout(1, (), (), None, spots)


# -- every game --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_pixels_have_one_size_through_an_episode_and_follow_the_play(game: str) -> None:
    env = opened(game, "rgb_array")
    env.reset(seed=5)
    frames = [env.render()]
    wander(env, 1)
    frames.append(env.render())
    wander(env, 29)
    frames.append(env.render())
    for frame in frames:
        assert frame.dtype == np.uint8
        assert frame.shape == frames[0].shape
        assert frame.shape[2] == 3
        assert frame.shape[0] % 2 == frame.shape[1] % 2 == 0, "video formats need even sizes"
        assert (frame == faces.PAPER).all(axis=2).any(), "some card lies face up"
    assert (frames[0] != frames[1]).any()
    assert (frames[1] != frames[2]).any()
    frames[0][:] = 0
    assert env.render().any(), "frames are fresh arrays"


@pytest.mark.parametrize("game", GAMES)
def test_text_shows_the_top_card_of_every_pile_and_no_codes(game: str) -> None:
    env = opened(game, "ansi")
    env.reset(seed=6)
    for _ in range(3):
        text = env.render()
        assert "\x1b" not in text, "plain where standard output is no terminal"
        assert text == env.render()
        assert text.startswith(env.game.title)
        words = re.findall(r"[^\s*]+", text)
        for place, cards in env.table().items():
            if place in env.layout.spots and cards and cards[-1] != "--":
                assert cards[-1] in [word[:2] for word in words], place
        assert all(line == line.rstrip() for line in text.split("\n"))
        wander(env, 15)


@pytest.mark.parametrize("game", GAMES)
def test_svg_is_valid_and_shows_the_top_card_of_every_pile(game: str) -> None:
    env = opened(game, None)
    env.reset(seed=7)
    for _ in range(3):
        text = env.svg()
        root = ET.fromstring(text)
        assert root.tag == f"{SVG}svg"
        shown = [use.attrib["href"] for use in root.iter(f"{SVG}use")]
        known = [f"#{symbol.attrib['id']}" for symbol in root.iter(f"{SVG}symbol")]
        assert set(shown) == set(known)
        assert len(known) == len(set(known))
        for place, cards in env.table().items():
            if place in env.layout.spots and cards and cards[-1] in NAMES[1:53]:
                assert f"#card-{cards[-1]}" in shown, place
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "self-contained"
        wander(env, 15)


@pytest.mark.parametrize("game", GAMES)
def test_every_pile_with_cards_has_a_spot(game: str) -> None:
    env = opened(game, None)
    for seed in range(5):
        env.reset(seed=seed)
        wander(env, 10 * seed)
        for place, entries in env.table().items():
            assert place in env.layout.spots or not set(entries) & set(NAMES), place


@pytest.mark.parametrize("game", GAMES)
def test_hidden_cards_never_show(game: str) -> None:
    env = opened(game, None)
    env.reset(seed=8)
    for _ in range(4):
        pictures = []
        for key in (1, 2):
            twin = env.clone().determinize(key)
            texts = [twin.svg()]
            for mode in ("ansi", "rgb_array"):
                twin.render_mode = mode
                texts.append(np.asarray(twin.render()).tobytes())
            pictures.append(texts)
        assert pictures[0] == pictures[1]
        assert pictures[0][0] == env.svg()
        wander(env, 8)


@pytest.mark.parametrize("game", GAMES)
def test_a_hundred_frames_a_second(game: str) -> None:
    env = opened(game, "rgb_array")
    env.reset(seed=9)
    wander(env, 30)
    env.render()
    best = float("inf")
    for _ in range(6):
        start = time.process_time()
        for _ in range(10):
            env.render()
        best = min(best, (time.process_time() - start) / 10)
    assert best < 0.01


@pytest.mark.parametrize("game", GAMES)
def test_batched_games_render_as_single_ones(game: str) -> None:
    batch = gymnasium.make_vec(game, num_envs=2, render_mode="rgb_array")
    batch.reset(seed=3)
    frames = batch.render()
    assert frames is not None
    assert len(frames) == 2
    env = opened(game, "rgb_array")
    env.reset(seed=4)
    assert frames[1].shape == env.render().shape
    batch.close()


@pytest.mark.parametrize("game", GAMES)
def test_window_shows_every_game_and_closes_twice(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    env = opened(game, "human")
    env.metadata = {**env.metadata, "render_fps": 1000}
    env.reset(seed=10)
    wander(env, 30)
    assert env.render() is None
    shown = pygame.surfarray.array3d(pygame.display.get_surface())
    assert (shown == faces.PAPER).all(axis=2).any()
    env.close()
    assert pygame.display.get_surface() is None
    env.close()


# -- the window --------------------------------------------------------------------------------------------------


@pytest.fixture
def human(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = opened(GAMES[0], "human")
    env.metadata = {**env.metadata, "render_fps": 1000}
    env.reset(seed=11)
    yield env
    env.close()


def test_a_window_that_the_user_closed_stays_closed_and_the_game_goes_on(human: PatienceEnv) -> None:
    import pygame

    pygame.event.post(pygame.event.Event(pygame.QUIT))
    wander(human, 3)
    assert pygame.display.get_surface() is None
    human.close()
    human.reset(seed=12)
    assert pygame.display.get_surface() is not None, "close() and reset() open a new one"


def test_the_window_fits_cards_to_its_size(human: PatienceEnv) -> None:
    import pygame

    for size in ((300, 260), (1200, 900)):
        pygame.display.set_mode(size, pygame.RESIZABLE)
        human.render()
        shown = pygame.surfarray.array3d(pygame.display.get_surface())
        assert shown.shape[:2] == size
        assert (shown[:, 0] == faces.FELT_DARK).all(axis=1).any()
        assert (shown == faces.PAPER).all(axis=2).any()


def test_the_window_shows_no_more_frames_a_second_than_asked(human: PatienceEnv) -> None:
    human.metadata = {**human.metadata, "render_fps": 25}
    human.render()
    start = time.perf_counter()
    for _ in range(5):
        human.render()
    assert time.perf_counter() - start > 5 / 25 - 0.02


def test_set_state_and_load_draw_anew(human: PatienceEnv) -> None:
    import pygame

    before = human.get_state()
    first = pygame.surfarray.array3d(pygame.display.get_surface())
    wander(human, 4)
    assert (pygame.surfarray.array3d(pygame.display.get_surface()) != first).any()
    human.set_state(before)
    assert (pygame.surfarray.array3d(pygame.display.get_surface()) == first).all()


# -- what is installed, and where it runs ------------------------------------------------------------------------


def run_bare(code: str) -> str:
    """Run Python code in a process that has no display, and return what it prints."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pixels_need_no_display_and_leave_the_environment_alone() -> None:
    code = f"""
import os
from patience_env import PatienceEnv
before = dict(os.environ)
env = PatienceEnv({GAMES[0]!r}, render_mode="rgb_array")
env.reset(seed=1)
print(env.render().shape[2], dict(os.environ) == before)
"""
    assert run_bare(code) == "3 True\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there a display may be missing")
def test_a_window_without_a_display_warns_and_goes_on() -> None:
    code = f"""
import os, warnings
from patience_env import PatienceEnv
before = dict(os.environ)
env = PatienceEnv({GAMES[0]!r}, render_mode="human")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    env.reset(seed=1)
print([str(w.message) for w in caught if "display" in str(w.message)], dict(os.environ) == before)
"""
    assert run_bare(code) == "['there is no display, so the window cannot be seen'] True\n"


def test_pygame_is_imported_only_for_pixels() -> None:
    code = f"""
import sys
from patience_env import PatienceEnv
env = PatienceEnv({GAMES[0]!r}, render_mode="ansi")
env.reset(seed=1)
env.render(), env.svg()
print("pygame" in sys.modules, "patience_env.render.raster" in sys.modules)
"""
    assert run_bare(code) == "False False\n"


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `patience_env.render.raster` be imported anew."""
    from patience_env.render import raster

    assert raster.Window
    monkeypatch.delitem(sys.modules, "patience_env.render.raster")
    monkeypatch.delattr(render, "raster")


@pytest.mark.usefixtures("unloaded")
def test_without_pygame_the_error_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    env = opened(GAMES[0], "rgb_array")
    env.reset(seed=1)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ImportError, match=r'pip install "patience-env\[render\]"'):
        env.render()


@pytest.mark.usefixtures("unloaded")
def test_the_classic_pygame_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", types.ModuleType("pygame"))
    with pytest.warns(RuntimeWarning, match="the classic pygame is installed"):
        from patience_env.render import raster
    assert raster.CARD_WIDTH


def test_record_video_writes_a_film(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    from gymnasium.wrappers import RecordVideo

    env = RecordVideo(gymnasium.make(GAMES[0], render_mode="rgb_array"), str(tmp_path / "films"), disable_logger=True)
    env.reset(seed=1)
    table: Any = env.unwrapped
    while table.action_masks().any():
        env.step(table.sample())
    env.close()
    films = list((tmp_path / "films").glob("*.mp4"))
    assert len(films) == 1
    assert films[0].stat().st_size > 1000


# -- one layout for all ------------------------------------------------------------------------------------------

FANS = made_up(
    hand=Spot(0, 0, label="hand"),
    left=Spot(3, 0, -0.5, 0),
    right=Spot(5, 0, 0.5, 0),
    talon=Spot(0, 1.5, 0, 0.25),
    stock=Spot(2, 1.5, 0.01, 0.01, label="stock"),
)
FANNED = {
    "hand": ["QH"],
    "left": ["2S", "3S", "4S"],
    "right": ["2D", "3D"],
    "talon": ["5C", "??", "7C"],
    "stock": ["??"] * 30,
}


def test_text_stretches_for_fans_in_every_direction() -> None:
    assert render.ansi(FANS, FANNED, "fans").split("\n") == [
        "fans",
        "",
        "hand",
        "QH    4S 3S 2S      2D 3D",
        "        stock",
        "5C      ??x30",
        "??",
        "7C",
    ]


def test_lit_places_are_marked_and_empty_ones_shown() -> None:
    text = render.ansi(FANS, {"hand": ["QH"]}, "", lit=("hand", "talon"))
    assert text.split("\n")[2:] == ["hand", "QH*          .       .", "        stock", "[]       ."]


def test_long_fans_are_cut_in_text() -> None:
    cards = [rank + suit for suit in "SH" for rank in "A23456789TJQK"]
    lines = render.ansi(FANS, {"talon": cards}).split("\n")
    shown = [line.split()[0] for line in lines[5:]]
    assert shown == ["AS", "2S", "..", *cards[-17:]]


def test_notes_are_written_where_they_belong() -> None:
    grid = made_up(**{f"r{r}c{c}": Spot(c, r) for r in range(2) for c in range(2)})
    table = {"r0c0": ["AS"], "r0c1": ["AH"], "r1c0": ["KD"], "r1c1": ["QC"]}
    notes = [render.Note(2.0, 0.0, "2"), render.Note(2.0, 1.0, "15"), render.Note(0.0, 0.0, "hidden by a card")]
    assert render.ansi(grid, table, notes=notes).split("\n")[2:] == ["AS  AH  2", "KD  QC  15"]
    assert {"2", "15"} <= {text.text for text in ET.fromstring(render.svg(grid, table, notes=notes)).iter(f"{SVG}text")}
    plain, noted = (render.rgb_array(grid, table, notes=some) for some in ((), [render.Note(1.0, 1.0, "15")]))
    assert (plain != noted).any()


def test_red_suits_are_red_only_where_colour_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, table = made_up(a=Spot(0, 0), b=Spot(1, 0)), {"a": ["QH"], "b": ["QS"]}
    red = "\x1b[31mQH\x1b[0m  QS"
    assert render.ansi(layout, table).endswith("\nQH  QS")
    assert render.ansi(layout, table, colour=True).endswith(f"\n{red}")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert render.ansi(layout, table).endswith(f"\n{red}")
    assert render.ansi(layout, table, colour=False).endswith("\nQH  QS")
    monkeypatch.setenv("NO_COLOR", "1")
    assert render.ansi(layout, table).endswith("\nQH  QS")


def test_a_huge_fan_is_compressed_into_the_same_picture() -> None:
    board = board_of(FANS)
    for count in (0, 1, 5, 52, 104):
        table = {"talon": ["7C"] * count, "left": ["2S"] * count}
        for item in arrange(board, table):
            assert board.left <= item.x <= board.right - 1
            assert board.top <= item.y <= board.bottom - 1
        assert render.rgb_array(FANS, table).shape == render.rgb_array(FANS, {}).shape
    drawn = [item for item in arrange(board, {"talon": [*["7C"] * 51, "AH"]}) if item.card == "AH"]
    assert len(drawn) == 1, "the top card is always shown"


def test_a_fan_stops_before_the_next_pile() -> None:
    board = board_of(made_up(a=Spot(0, 0, 0, 0.5), b=Spot(0, 3)))
    lowest = max(item.y for item in arrange(board, {"a": ["7C"] * 20}) if item.card == "7C")
    assert lowest == pytest.approx(2.0)


def test_spaces_within_a_row_are_outlines() -> None:
    layout = made_up(row=Spot(0, 0, 1, 0))
    table = {"row": ["AS", "--", "3S"]}
    assert render.ansi(layout, table).endswith("\nAS  . 3S")
    assert [item.card for item in arrange(board_of(layout), table)] == ["AS", "--", "3S"]
    assert HREF.findall(render.svg(layout, table)) == ["card-AS", "card-none", "card-3S"]


def test_labels_lie_above_below_or_inside() -> None:
    spots = {"above": Spot(0, 0, label="x"), "below": Spot(0, 1, label="x"), "inside": Spot(2, 1, label="x")}
    spots |= {"inside too": Spot(4, 1, label="x"), "labelled": Spot(4, 2.3, label="x")}
    board = board_of(made_up(**spots, over=Spot(2, 0), under=Spot(2, 2), **{"over too": Spot(4, 0)}))
    heights = {place.name: place.label_y for place in board.places if place.spot.label}
    lies = {"above": pytest.approx(-0.22), "below": 2.0, "inside": None}
    assert heights == {**lies, "inside too": None, "labelled": pytest.approx(2.08)}


def test_entries_that_are_no_cards_join_the_caption() -> None:
    text = render.ansi(made_up(a=Spot(0, 0)), {"a": ["AS"], "redeals_left": ["2"]}, "Some game")
    assert text.split("\n")[0] == "Some game, redeals left 2"
    told = render.ansi(made_up(a=Spot(0, 0)), {"a": ["AS"], "redeals_left": ["2"]}, "Some game: redeals left 2, over")
    assert told.split("\n")[0] == "Some game: redeals left 2, over"


@pytest.mark.parametrize("draw", [render.ansi, render.svg, render.rgb_array])
def test_what_cannot_be_drawn_is_refused(draw: Any) -> None:
    layout = made_up(a=Spot(0, 0))
    with pytest.raises(ValueError, match="no spot for the cards of 'b': its spots are a"):
        draw(layout, {"b": ["AS"]})
    with pytest.raises(ValueError, match="'XX' is no card"):
        draw(layout, {"a": ["XX"]})


@pytest.mark.parametrize("draw", [render.svg, render.rgb_array])
@pytest.mark.parametrize(
    ("width", "error"), [(15, ValueError), (513, ValueError), (True, TypeError), (56.0, TypeError), ("56", TypeError)]
)
def test_card_widths_are_checked(draw: Any, width: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=re.escape(f"card_width={width!r} is not allowed: give")):
        draw(made_up(a=Spot(0, 0)), {}, card_width=width)


@pytest.mark.parametrize("width", [16, 40, 130])
def test_pictures_grow_with_their_cards(width: int) -> None:
    frame = render.rgb_array(FANS, FANNED, "fans", card_width=width)
    assert frame.shape[1::-1] == Scale(board_of(FANS), width).size
    root = ET.fromstring(render.svg(FANS, FANNED, "fans", card_width=width))
    assert (int(root.attrib["width"]), int(root.attrib["height"])) == frame.shape[1::-1]


def test_every_card_looks_different() -> None:
    layout = made_up(a=Spot(0, 0))
    for width in (16, 56):
        seen = {render.rgb_array(layout, {"a": [card]}, card_width=width).tobytes() for card in NAMES}
        assert len(seen) == len(NAMES)
    assert len({render.svg(layout, {"a": [card]}) for card in NAMES}) == len(NAMES)


def test_red_cards_are_red_and_black_cards_black() -> None:
    layout = made_up(a=Spot(0, 0))
    for card, colour in (("7H", faces.RED), ("7D", faces.RED), ("7S", faces.BLACK), ("7C", faces.BLACK)):
        frame = render.rgb_array(layout, {"a": [card]})
        inks = [int((frame == ink).all(axis=2).sum()) for ink in (faces.RED, faces.BLACK)]
        assert inks[colour == faces.BLACK] > 200
        assert inks[colour == faces.RED] == 0


def test_captions_are_escaped_and_long_ones_fit() -> None:
    layout, caption = made_up(a=Spot(0, 0)), '<b> & "quotes" ' + "long " * 40
    root = ET.fromstring(render.svg(layout, {}, caption))
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == caption
    assert render.rgb_array(layout, {}, caption).shape == render.rgb_array(layout, {}, "").shape


# -- the environment ---------------------------------------------------------------------------------------------


def test_a_tableau_in_text() -> None:
    env = opened("PatiencePoker-v0", "ansi", placement="fixed")
    env.reset(seed=1)
    env.load({"r1c1": ["TH"], "r1c2": ["TS"], "r3c3": ["AD"], "hand": ["2C"]})
    assert env.render().split("\n") == [
        "Patience Poker: score 0, 22 legal actions",
        "",
        "                      to be placed",
        "TH  TS  []  []  []    2C",
        "[]  []  []  []  []    stock",
        "[]  []  AD  []  []    ??x48",
        "[]  []  []  []  []",
        "[]  []  []  []  []",
    ]


def test_legal_places_are_lit_until_the_game_is_over() -> None:
    env = opened("PatiencePoker-v0", "ansi")
    env.reset(seed=2)
    assert env.render().count("[]") == 8
    wander(env, 100)
    text = env.render()
    assert "[]" not in text
    assert text.split("\n")[0].endswith(", over")


@pytest.mark.parametrize("mode", ["ansi", "rgb_array", "human"])
def test_nothing_to_draw_before_the_deal(mode: str) -> None:
    env = opened(GAMES[0], mode)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before render\(\)"):
        env.render()
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before svg\(\)"):
        env.svg()
