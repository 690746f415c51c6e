"""Observations: the cards form as the games write it, and its one-hot expansion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from patience_env.cards import CHANNELS, FACE_DOWN, card_code
from patience_env.encoding import (
    channel_names,
    observation_space,
    planes_shape,
    scratch,
    write_planes,
)
from patience_env.env import PatienceEnv
from patience_env.game import Counter, Layout, get_game
from playing import GAMES, legal_actions, scaled, variants

POKER = "PatiencePoker-v0"


def expand(layout: Layout, cards: NDArray[np.int8]) -> NDArray[np.int8]:
    """Write the planes form from the cards form, entry by entry, as the documentation says."""
    places = len(layout.places)
    hot = np.zeros((places, CHANNELS), np.int8)
    for place, code in enumerate(cards[:places].astype(int)):
        if code == 0:
            hot[place, 17] = 1
        elif code == FACE_DOWN:
            hot[place, 18] = 1
        else:
            hot[place, (code - 1) % 13] = hot[place, 13 + (code - 1) // 13] = 1
    flat = np.zeros(int(np.prod(planes_shape(layout))), np.int8)
    cells = layout.grid[0] * layout.grid[1] if layout.grid else 0
    written = np.concatenate([hot[:cells].T.ravel(), hot[cells:].ravel(), cards[places:]])
    flat[: len(written)] = written
    return flat.reshape(planes_shape(layout))


@pytest.mark.parametrize(("game_id", "options"), variants())
def test_planes_expand_the_cards_form(game_id: str, options: dict[str, Any]) -> None:
    planes = PatienceEnv(game_id, **options)
    cards = PatienceEnv(game_id, observation="cards", **options)
    rng = np.random.default_rng(0)
    for deal in range(3):
        wide, _ = planes.reset(options={"deal": deal})
        narrow, _ = cards.reset(options={"deal": deal})
        assert (wide == expand(planes.layout, narrow)).all()
        for _ in range(scaled(40, 10)):
            choices = legal_actions(planes)
            if not choices:
                break
            action = choices[rng.integers(len(choices))]
            wide, narrow = planes.step(action)[0], cards.step(action)[0]
            assert (wide == expand(planes.layout, narrow)).all()
            assert cards.observation_space.contains(narrow)


@njit
def write(planes: Any, cards: Any, places: int, cells: int) -> None:
    write_planes(planes, cards, places, cells)


@pytest.mark.parametrize("grid", [None, (1, 1), (2, 2), (5, 5), (4, 8), (3, 11), (7, 9), (8, 8), (9, 11)])
@pytest.mark.parametrize(("others", "counters"), [(0, 0), (1, 0), (3, 2), (40, 17), (33, 50)])
def test_planes_of_any_size_are_written_whole_and_nothing_beside_them(
    grid: tuple[int, int] | None, others: int, counters: int
) -> None:
    cells = grid[0] * grid[1] if grid else 0
    places = cells + others
    layout = Layout(
        1, tuple(f"p{i}" for i in range(places)), tuple(Counter(f"n{i}", 9) for i in range(counters)), grid, {}
    )
    size = int(np.prod(planes_shape(layout)))
    rng = np.random.default_rng(places)
    for _ in range(5):
        room = scratch(layout)[0]
        cards = rng.integers(0, FACE_DOWN + 1, places) * (rng.random(places) < rng.random())
        room[: places + counters] = [*cards, *rng.integers(-128, 128, counters)]
        rows = np.full((3, size), 77, np.int8)
        write(rows[1], room, places, cells)
        assert (rows[1] == expand(layout, room[: places + counters]).ravel()).all()
        assert (rows[[0, 2]] == 77).all()


@pytest.mark.parametrize("game_id", GAMES)
def test_spaces_fit_the_layout(game_id: str) -> None:
    env = PatienceEnv(game_id)
    layout = env.layout
    assert len(set(layout.places)) == len(layout.places)
    assert len({counter.name for counter in layout.counters}) == len(layout.counters)
    cards = observation_space(layout, "cards")
    assert cards.shape == (len(layout.places) + len(layout.counters),)
    assert env.observation_space.dtype == cards.dtype == np.int8
    assert all(-128 <= counter.low <= counter.high <= 127 for counter in layout.counters)
    names = channel_names(layout)
    assert len(names) == int(np.prod(env.observation_space.shape or ()))


def test_channel_names_say_what_each_entry_holds() -> None:
    env = PatienceEnv(POKER)
    env.load({"r5c5": ["TH"], "r4c5": ["KC"], "hand": ["2D"]})
    names = channel_names(env.layout)
    told = {names[i]: int(value) for i, value in enumerate(env._observation.ravel()) if value}
    assert told["r5c5: rank T"] == told["r5c5: hearts"] == told["r4c5: rank K"] == told["r4c5: clubs"] == 1
    assert told["hand: rank 2"] == told["hand: diamonds"] == told["r1c1: empty"] == 1
    assert "r5c5: empty" not in told
    assert told["unseen of rank 10"] == told["unseen of rank 13"] == told["unseen of rank 2"] == 3
    assert told["unseen of rank 1"] == 4
    assert told["unseen spades"] == 13
    assert told["unseen hearts"] == 12


@pytest.mark.parametrize(
    ("options", "planes", "cards"),
    [({}, (20, 9, 9), 99), ({"placement": "fixed"}, (21, 5, 5), 43)],
)
def test_shapes_of_patience_poker(options: dict[str, Any], planes: tuple[int, ...], cards: int) -> None:
    assert PatienceEnv(POKER, **options).observation_space.shape == planes
    assert PatienceEnv(POKER, observation="cards", **options).observation_space.shape == (cards,)


def test_a_layout_without_a_grid_has_a_row_a_place() -> None:
    layout = Layout(3, ("left", "right"), tuple(Counter(f"n{i}", 9) for i in range(20)), None, {})
    assert planes_shape(layout) == (2 + 2, CHANNELS)
    shown = expand(layout, np.array([card_code("AS"), FACE_DOWN, *range(20)], np.int8))
    assert shown[0].nonzero()[0].tolist() == [0, 13]
    assert shown[1].nonzero()[0].tolist() == [18]
    assert shown[2:].ravel()[:20].tolist() == list(range(20))
    assert channel_names(layout)[-18:] == ("padding",) * 18


def test_the_series_tells_the_points_still_wanted() -> None:
    env = PatienceEnv(POKER, target=512, observation="cards")
    observation, _ = env.reset(seed=1)
    assert observation[-2:].tolist() == [5, 12]
    huge = PatienceEnv(POKER, target=1_000_000, observation="cards")
    observation, _ = huge.reset(seed=1)
    assert observation[-2:].tolist() == [127, 99]
    assert huge.observation_space.contains(observation)


def test_random_scoring_shows_its_table() -> None:
    env = PatienceEnv(POKER, scoring="random", observation="cards")
    tables = []
    for deal in range(scaled(200, 40)):
        observation, _ = env.reset(options={"deal": deal})
        assert observation[-9:].tolist() == env._rows.states[0]["points"][1:].tolist()
        tables.append(observation[-9:])
    values = np.array(tables)
    assert values.min() < -100
    assert values.max() > 100
    assert abs(values.mean() + 0.5) < 4 * 73.9 / np.sqrt(values.size)


def test_a_game_with_a_grid_does_not_say_that_it_has_none() -> None:
    with pytest.raises(ValueError, match=f"{POKER}: its layout has a grid"):
        PatienceEnv(replace(get_game(POKER), has_grid=False))
