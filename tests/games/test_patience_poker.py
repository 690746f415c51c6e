"""Patience Poker: the known openings, where the square may lie, and what loading keeps."""

from __future__ import annotations

import numpy as np
import pytest

from patience_env.cards import card_text
from patience_env.deals import deck
from patience_env.env import PatienceEnv
from playing import legal_actions, strict

POKER = "PatiencePoker-v0"
SIDE, CENTRE = 9, 40


def dealt(**options: object) -> PatienceEnv:
    env = strict(POKER, observation="cards", **options)
    env.reset(options={"deal": 3})
    return env


def test_the_first_card_lies_in_the_centre_and_eight_cells_touch_it() -> None:
    env = dealt()
    first, second = (card_text(int(card)) for card in deck(3)[:2])
    assert env.table() == {"r5c5": [first], "hand": [second], "stock": ["??"] * 50}
    assert legal_actions(env) == [30, 31, 32, 39, 41, 48, 49, 50]


@pytest.mark.parametrize("cell", [30, 31, 32, 39, 41, 48, 49, 50])
def test_twelve_cells_are_legal_after_a_diagonal_and_ten_after_an_edge(cell: int) -> None:
    env = dealt()
    env.step(cell)
    steps = abs(cell // SIDE - CENTRE // SIDE) + abs(cell % SIDE - CENTRE % SIDE)
    assert len(legal_actions(env)) == {1: 10, 2: 12}[steps]


def test_the_square_lies_fixed_only_when_five_rows_and_columns_are_spanned() -> None:
    env = dealt()
    for row in (3, 2, 1):
        env.step(SIDE * row + 4)
    rows = {cell // SIDE for cell in legal_actions(env)}
    assert rows == {0, 1, 2, 3, 4, 5}  # row 5 below the centre or row 0 above may still be the fifth, never both
    env.step(SIDE * 0 + 4)
    assert {cell // SIDE for cell in legal_actions(env)} == {0, 1, 2, 3, 4}
    assert {cell % SIDE for cell in legal_actions(env)} == {3, 5}
    for column in (5, 6, 7, 8):
        env.step(SIDE * 4 + column)
    assert {cell % SIDE for cell in legal_actions(env)} == {5, 6, 7, 8}  # column 4 is full


def test_any_empty_cell_of_the_fixed_square_takes_the_card() -> None:
    env = dealt(placement="fixed")
    assert (env.action_space.n, env.table()["hand"]) == (25, [card_text(int(deck(3)[0]))])
    for left in range(25, 0, -1):
        assert len(legal_actions(env)) == left
        terminated = env.step(legal_actions(env)[-1])[2]
    assert terminated


def test_twenty_four_decisions_are_left_when_cards_must_touch() -> None:
    env = dealt()
    assert env.action_space.n == 81
    for left in range(24, 0, -1):
        terminated = env.step(env.sample())[2]
        assert terminated == (left == 1)


def test_loading_keeps_a_drawn_table_and_a_position_without_a_game_draws_one() -> None:
    env = dealt(scoring="random")
    points = env.state_rows()[0]["points"].copy()
    before = env.step(env.sample())[0]
    assert np.array_equal(env.load(env.table())[0], before)
    assert np.array_equal(env.state_rows()[0]["points"], points)
    other = strict(POKER, scoring="random")
    other.load(env.table())
    drawn = other.state_rows()[0]["points"]
    assert drawn[0] == 0
    assert drawn.any()
    assert (abs(drawn) <= 128).all()
