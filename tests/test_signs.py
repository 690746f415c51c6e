"""Signs: what a game's own module says of a table for networks to be told."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from patience_env import get_game
from patience_env.agents.policy import Turn
from patience_env.agents.signs import own_signs, write_signs
from patience_env.cards import EMPTY, FACE_DOWN
from patience_env.env import PatienceEnv
from patience_env.game import game_ids
from patience_env.jit import kernel

FOURTEENTH, EMPRESS = "Fourteenth-v0", "EmpressOfIndia-v0"
PAGANINI, NIVERNAISE, ROBIN_POST = "Paganini-v0", "Nivernaise-v0", "RobinPost-v0"
ORDER = {"spades": "A23456789TJK", "hearts": "KQT98765432A", "diamonds": "KQT98765432A", "clubs": "A23456789TJK"}


@kernel
def write_all(states, views, signs):  # type: ignore[no-untyped-def]
    for i in range(states.shape[0]):
        write_signs(states[i], views[i], signs[i])


def seen(env: PatienceEnv) -> NDArray[np.int8]:
    masks = env.action_masks()[None].astype(np.int8)
    return Turn(env.game, env.options, env.state_rows(), masks).observations("cards")[0]


def signs_of(env: PatienceEnv, view: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
    if view is None:
        view = seen(env)
    signs = np.zeros((1, own_signs(env.game)[0]), np.float32)
    write_all(env.state_rows(), view[None], signs)
    row: NDArray[np.float32] = signs[0]
    return row


def square(picture: str) -> PatienceEnv:
    env = PatienceEnv(FOURTEENTH, observation="cards", illegal_action="raise")
    rows = [line.split() for line in picture.strip().splitlines()]
    env.load({f"r{i}c{j}": [c] for i, row in enumerate(rows, 1) for j, c in enumerate(row, 1) if c != "--"})
    return env


def empress(pairs: list[tuple[str, str]], **tops: str) -> PatienceEnv:
    """An Army of such pairs (covered, covering), all foundations finished but the first of each suit in `tops`."""
    env = PatienceEnv(EMPRESS, observation="cards", illegal_action="raise")
    table = {}
    for suit, order in ORDER.items():
        for i in range(1, 5):
            top = tops.get(suit, order[-1]) if i == 1 else order[-1]
            table[f"{suit} {i}"] = [rank + suit[0].upper() for rank in order[: order.index(top) + 1]]
    table |= {f"army {i}": list(pair) for i, pair in enumerate(pairs, 1)}
    env.load(table)
    return env


def test_some_games_have_no_signs() -> None:
    told = [game for game in game_ids() if own_signs(get_game(game))[0]]
    assert told == [PAGANINI, ROBIN_POST, FOURTEENTH, NIVERNAISE, EMPRESS]
    env = PatienceEnv("Sultan-v0", observation="cards")
    env.reset(options={"deal": 5_000_000})
    assert signs_of(env).size == 0


def test_the_square_is_told_by_what_can_be_withdrawn_and_by_what_is_left_then() -> None:
    signs = signs_of(
        square(
            """
            AS KS -- -- --
            2S -- 3H -- --
            -- -- -- -- 4D
            -- -- -- -- --
            -- JH -- QD TC
            """
        )
    )
    assert signs[0] == pytest.approx(8 / 25)
    assert signs[1] == pytest.approx(0.1 * 2 * 2)  # ace and king, four and ten
    assert signs[2] == pytest.approx(0.2 * 2)
    assert signs[9:17].tolist() == [1, 0, 0, 0, 0, 1, 0, 0]  # no stock is left; eight cards
    assert signs[17:24].tolist() == [0, 0, 1, 0, 0, 0, 0]  # of which four stay
    # Two, three, knave and queen are left, each with one of the others in its row.
    assert signs[4] == signs[6] == 0.0
    assert not signs[24:].any()


def test_a_square_without_a_fourteen_is_blocked() -> None:
    signs = signs_of(square("AS -- -- -- --\n-- KS -- -- --\n-- -- 2S -- --\nJC -- -- QD --\n-- -- -- -- 3H"))
    assert signs[8] == 1.0
    assert signs[1] == signs[2] == 0.0
    assert signs[24:].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert signs[7] == pytest.approx(0.5 * 3)  # only ace, knave and queen have another card in line


def test_cards_that_are_not_known_make_no_fourteen() -> None:
    env = square("AS KS -- -- --\n-- -- -- -- --\n-- -- -- -- --\n-- -- -- -- --\n-- -- -- -- --")
    view = seen(env)
    assert signs_of(env, view)[1] == pytest.approx(0.2)
    view[1] = FACE_DOWN
    signs = signs_of(env, view)
    assert signs[1] == 0.0
    assert signs[0] == pytest.approx(2 / 25)
    assert signs[8] == 1.0


def test_pairs_that_wait_for_each_other_are_locked() -> None:
    # The hearts want the two, then the ace; the spades the knave, then the king.
    free = empress([("2H", "JS"), ("AH", "KS")], spades="T", hearts="3")
    # The two waits for the knave below the ace, which waits for the two.
    locked = empress([("2H", "KS"), ("AH", "JS")], spades="T", hearts="3")
    assert signs_of(free)[:2].tolist() == [0.0, 0.0]
    assert signs_of(locked)[:2].tolist() == [1.0, 1.0]
    assert signs_of(free)[5:10].sum() == pytest.approx(0.2)


@pytest.mark.parametrize(("game", "plays"), [(NIVERNAISE, range(28)), (ROBIN_POST, range(424, 530))])
def test_cards_can_be_played_at_once_where_a_play_is_legal(game: str, plays: range) -> None:
    env = PatienceEnv(game, observation="cards", illegal_action="raise")
    env.reset(options={"deal": 5_000_000})
    rng = np.random.default_rng(0)
    told = set()
    for _ in range(80):
        mask = env.action_masks()
        signs = signs_of(env)
        foundations = env.state_rows()["up"].sum() + env.state_rows()["down"].sum()
        assert signs[0] == pytest.approx(0.02 * foundations)
        assert (signs[2] > 0) == mask[plays].any()
        told.add(bool(mask[plays].any()))
        if env.step(int(rng.choice(np.flatnonzero(mask))))[2]:
            break
    assert told == {False, True}


def test_la_nivernaise_tells_its_vacancies() -> None:
    env = PatienceEnv(NIVERNAISE, observation="cards", illegal_action="raise")
    env.reset(options={"deal": 5_000_001})
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert signs_of(env)[1] == 0.25 * (seen(env)[:8] == EMPTY).sum()
        if env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))[2]:
            break


def test_the_rows_of_paganini_are_told_by_their_finished_beginnings_and_their_spaces() -> None:
    env = PatienceEnv(PAGANINI, observation="cards", illegal_action="raise")
    env.reset(options={"deal": 5_000_000})
    rng = np.random.default_rng(0)
    for _ in range(40):
        signs = signs_of(env)
        assert signs[0] == pytest.approx(int(env.state_rows()["in_place"][0]) / 104)
        # Every space is at the left end, behind a space or a king, or waits for one of two cards.
        assert signs[3] + signs[4] + signs[5] + signs[6] + signs[9] == pytest.approx(1.0)
        if env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))[2]:
            break
