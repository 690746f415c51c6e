"""Paganini: the rules of `seeds/rules/paganini.md`, one by one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction

from patience_env.agents.policy import make_policy, see
from patience_env.cards import card_code, card_text
from patience_env.deals import deck, named_deals
from patience_env.env import PatienceEnv
from patience_env.game import Table, get_game
from patience_env.jit import JIT

DATA = Path(__file__).parents[1] / "data"

# The source's beginning: AH to the left end of row 8, QH after JH, 9C after 8C, then a 2H. The other cards are ours.
SOURCE = """
    -- 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS KS AS
    -- 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS KS AS
    -- AD 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD KD
    -- AD 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD KD
    -- AH 2H 3H 4H 5H 8C QH 6H 7H 8H 9H TH KH
    -- AC 2C 3C 4C 5C 6C 7C 8C 9C TC JC QC KC
    -- AC 2C 3C 4C 5C 6C 7C TC JC JH QC KC QH
    -- 9C JH AH 2H 3H 4H 5H 6H 7H 8H 9H TH KH
"""

ALMOST_WON = """
    AS 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS KS --
    AS 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS KS --
    AD 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD KD --
    AD 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD KD --
    AH 2H 3H 4H 5H 6H 7H 8H 9H TH JH QH KH --
    AH 2H 3H 4H 5H 6H 7H 8H 9H TH JH QH -- KH
    AC 2C 3C 4C 5C 6C 7C 8C 9C TC JC QC KC --
    AC 2C -- 4C 5C 6C 7C 8C 9C TC JC QC KC 3C
"""

TWINS = """
    AS 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS KS --
    AS -- KS QS JS TS 9S 8S 7S 6S 5S 4S 3S 2S
    AD 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD KD --
    AD 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD KD --
    AH 2H 3H 4H 5H 6H 7H 8H 9H TH JH QH KH --
    AH 2H 3H 4H 5H 6H 7H 8H 9H TH JH QH KH --
    AC 2C 3C 4C 5C 6C 7C 8C 9C TC JC QC KC --
    AC 2C 3C 4C 5C 6C 7C 8C 9C TC JC QC KC --
"""


def board(picture: str) -> Table:
    """Return the table of a drawn board."""
    rows = [line.split() for line in picture.strip("\n").splitlines()]
    return {f"r{i}c{j}": [card] for i, row in enumerate(rows, 1) for j, card in enumerate(row, 1) if card != "--"}


def picture(env: PatienceEnv) -> list[str]:
    table = env.table()
    return [" ".join(table.get(f"r{i}c{j}", ["--"])[0] for j in range(1, 15)) for i in range(1, 9)]


def loaded(table: Table | str) -> PatienceEnv:
    env = PatienceEnv("Paganini-v0", observation="cards", illegal_action="raise")
    env.load(board(table) if isinstance(table, str) else table)
    return env


def moves(env: PatienceEnv) -> set[str]:
    return {env.describe(int(action)) for action in np.flatnonzero(env.action_masks())}


def find(env: PatienceEnv, move: str) -> int:
    """Return the legal action that is described so."""
    return next(int(number) for number in np.flatnonzero(env.action_masks()) if env.describe(int(number)) == move)


def act(env: PatienceEnv, move: str) -> tuple[Any, bool]:
    reward, terminated = env.step(find(env, move))[1:3]
    return reward, terminated


def test_the_deal_goes_row_by_row_beside_an_empty_column() -> None:
    env = PatienceEnv("Paganini-v0")
    env.reset(options={"deal": 7})
    laid = [card for row in picture(env) for card in row.split()[1:]]
    assert laid == [card_text(int(card)) for card in deck(7, packs=2)]
    assert [row.split()[0] for row in picture(env)] == ["--"] * 8


def test_at_the_start_any_ace_may_go_to_any_row() -> None:
    env = PatienceEnv("Paganini-v0")
    _, info = env.reset(options={"deal": 3})
    assert np.flatnonzero(info["action_mask"]).tolist() == list(range(64))
    assert {move.split(" to ")[1] for move in moves(env)} == {f"r{row}c1" for row in range(1, 9)}
    assert {move[:2] for move in moves(env)} == {"AS", "AH", "AD", "AC"}


def test_the_sources_beginning() -> None:
    env = loaded(SOURCE)
    assert act(env, "AH of r8c4 to r8c1") == (1 / 104, False)
    assert {move for move in moves(env) if "c1" not in move.split(" to ")[1]} == {
        "QH of r5c8 to r8c4",
        "QH of r7c14 to r8c4",
    }
    assert act(env, "QH of r5c8 to r8c4") == (0.0, False)
    assert act(env, "9C of r8c2 to r5c8") == (0.0, False)
    assert {move for move in moves(env) if move.endswith("r8c2")} == {"2H of r5c3 to r8c2", "2H of r8c5 to r8c2"}
    assert act(env, "2H of r8c5 to r8c2")[0] == pytest.approx(1 / 104)
    assert picture(env)[7] == "AH 2H JH QH -- 3H 4H 5H 6H 7H 8H 9H TH KH"


def test_equal_cards_are_numbered_in_reading_order() -> None:
    env = loaded(SOURCE)
    assert [env.describe(8 * 2 + 7), env.describe(8 * 3 + 7)] == ["AH of r5c2 to r8c1", "AH of r8c4 to r8c1"]
    env.step(8 * 3 + 7)
    queen = 64 + 4 * (12 * 1 + 12 - 2)
    assert [env.describe(queen + i) for i in range(4)] == [
        "QH of r5c8 to r7c12",
        "QH of r5c8 to r8c4",
        "QH of r7c14 to r7c12",
        "QH of r7c14 to r8c4",
    ]
    env.step(queen + 1)
    assert env.describe(queen + 2) == "QH of r8c4 to r7c12"


def test_no_ace_moves_that_is_leftmost_and_nothing_follows_a_king_or_a_space() -> None:
    assert moves(loaded(ALMOST_WON)) == {
        "KH of r5c13 to r6c13",
        "KH of r6c14 to r6c13",
        "3C of r7c3 to r8c3",
        "3C of r8c14 to r8c3",
    }


def test_a_card_that_closes_a_gap_is_paid_for_the_run_and_the_last_one_wins() -> None:
    env = loaded(ALMOST_WON)
    assert act(env, "3C of r8c14 to r8c3") == (pytest.approx(11 / 104), False)
    assert act(env, "KH of r6c14 to r6c13") == (pytest.approx(1 / 104), True)
    assert not env.action_masks().any()
    won = loaded(env.table())
    assert not won.action_masks().any()


def test_a_card_may_leave_its_place_for_its_twins_row_and_come_back() -> None:
    env = loaded(TWINS)
    before = env.table()
    assert act(env, "2S of r1c2 to r2c2")[0] == pytest.approx(-11 / 104)
    assert act(env, "2S of r2c2 to r1c2")[0] == pytest.approx(11 / 104)
    assert env.table() == before


def test_the_return_of_a_won_game_is_one() -> None:
    """The recorded playthrough is a game that the thumb won."""
    won = json.loads((DATA / "playthroughs" / "paganini.json").read_text())
    env = PatienceEnv("Paganini-v0", observation="cards", illegal_action="raise")
    env.reset(options={"deal": won["deal"]})
    total, terminated = 0.0, False
    for number in won["actions"]:
        assert not terminated
        reward, terminated = env.step(number)[1:3]
        total += reward
    assert terminated
    assert total == pytest.approx(1.0, abs=1e-12)
    assert sorted(row[:2] for row in picture(env)) == sorted(2 * ["AS", "AH", "AD", "AC"])
    assert all(row.endswith(f"K{row[1]} --") for row in picture(env))


def test_the_game_ends_when_every_space_is_dead() -> None:
    stuck = """
        AS KS -- 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS
        AS KS -- 2S 3S 4S 5S 6S 7S 8S 9S TS JS QS
        AD KD -- 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD
        AD KD -- 2D 3D 4D 5D 6D 7D 8D 9D TD JD QD
        AH KH -- 2H 3H 4H 5H 6H 7H 8H 9H TH JH QH
        AH 2H -- -- 3H 4H 5H 6H 7H 8H 9H TH JH QH
        AC KC KH 2C 3C 4C 5C 6C 7C 8C 9C TC JC QC
        AC KC -- 2C 3C 4C 5C 6C 7C 8C 9C TC JC QC
    """
    env = loaded(stuck)
    assert moves(env) == {"3H of r5c5 to r6c3", "3H of r6c5 to r6c3"}
    act(env, "3H of r6c5 to r6c3")
    assert moves(env) == {"4H of r5c6 to r6c4", "4H of r6c6 to r6c4"}
    for rank in "456789TJQ":
        move = next(move for move in moves(env) if move.startswith(f"{rank}H of r6"))
        assert act(env, move)[0] == pytest.approx(1 / 104)
    assert moves(env) == {"KH of r5c2 to r6c13", "KH of r7c3 to r6c13"}
    reward, terminated = act(env, "KH of r7c3 to r6c13")
    assert (reward, terminated) == (pytest.approx(1 / 104), True)


def test_an_illegal_move_is_named_and_changes_nothing() -> None:
    env = loaded(ALMOST_WON)
    before = env.table()
    with pytest.raises(InvalidAction, match="AS of r1c1 to r1c1"):
        env.step(0)
    assert env.table() == before


def test_every_action_is_described() -> None:
    env = loaded(SOURCE)
    king_of_diamonds = 64 + 4 * (12 * 2 + 13 - 2)
    assert env.describe(king_of_diamonds) == "KD of r3c14 to r3c14"
    moved = loaded(board(SOURCE) | {"r3c14": ["QD"], "r3c13": ["KD"]})
    assert moved.describe(king_of_diamonds) == "KD cannot go right of r3c14, the last place of its row"
    assert all(env.describe(number) for number in range(256))


def test_the_observation_shows_every_card_in_its_place() -> None:
    env = loaded(SOURCE)
    observation = env.load(board(SOURCE))[0]
    assert observation.shape == (112,)
    shown = [card_text(int(code)) for code in observation]
    assert [" ".join(shown[14 * row : 14 * row + 14]) for row in range(8)] == picture(env)
    planes = PatienceEnv("Paganini-v0").load(board(SOURCE))[0]
    assert planes.shape == (19, 8, 14)
    assert planes[17].sum() == 8
    assert planes[12, :, 13].tolist() == [0, 0, 1, 1, 1, 1, 0, 1]
    assert observation[14 * 7 + 1] == card_code("9C")


def test_determinize_changes_no_card() -> None:
    env = loaded(SOURCE)
    twin = env.clone().determinize(3)
    assert twin.table() == env.table()
    assert (twin.action_masks() == env.action_masks()).all()


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (board(SOURCE) | {"r9c1": ["AS"]}, "no place 'r9c1': the places are r1c1 to r8c14"),
        (board(SOURCE) | {"r1c2": ["2S", "3S"]}, "r1c2 holds 2 cards: a place takes one"),
        (board(SOURCE) | {"r1c2": ["2X"]}, "'2X' is no card"),
        (board(SOURCE) | {"r1c2": ["??"]}, r"r1c2 holds \?\?: all cards of this game are face up"),
        (board(SOURCE) | {"r1c2": []}, "2S lies in 1 places: each of the 52 cards lies in two"),
        (board(SOURCE) | {"r1c1": ["2S"]}, "2S lies in 3 places"),
        (board(SOURCE) | {"r1c2": [], "r1c1": ["2S"]}, "r1c1 holds 2S: the left end of a row takes only aces"),
    ],
)
def test_an_impossible_table_is_refused_and_nothing_changes(table: Any, reason: str) -> None:
    env = loaded(TWINS)
    with pytest.raises(ValueError, match=reason):
        env.load(table)
    assert env.table() == board(TWINS)


def test_random_games_end_legally_and_keep_all_cards() -> None:
    env = gymnasium.make("Paganini-v0", illegal_action="raise")
    assert env.spec is not None
    assert env.spec.max_episode_steps == 1000
    bare: Any = env.unwrapped
    env.reset(seed=5)
    for deal in range(1, 201 if JIT else 11):
        _, info = env.reset(options={"deal": deal})
        total, terminated, truncated = 0.0, False, False
        while not (terminated or truncated):
            leftmost = sum(f"r{row}c1" in bare.table() for row in range(1, 9)) if deal < 5 else 0
            if leftmost:
                assert info["action_mask"].sum() <= (8 - leftmost) ** 2 + 2 * leftmost
            _, reward, terminated, truncated, info = env.step(bare.sample())
            total += float(reward)
        assert total == pytest.approx(info["in_place"] / 104, abs=1e-12)
        table = bare.table()
        assert set(Counter(card for cards in table.values() for card in cards).values()) == {2}
        assert len(table) == 104
        twin, state = loaded(table), bare.state_rows()
        assert twin.table() == table
        for name in ("board", "found_at", "finished", "in_place"):
            assert (twin.state_rows()[name] == state[name]).all()
        assert sorted(twin.state_rows()["spaces"][0]) == sorted(state["spaces"][0])


def test_the_thumb_beats_random_play() -> None:
    game = get_game("Paganini-v0")
    means, games = {}, 10 if JIT else 3
    for name in ("thumb", "random"):
        policy = make_policy(name, game.id)
        policy.start(1)
        total = 0.0
        for deal in named_deals("smoke", games):
            env = PatienceEnv(game, observation="cards", illegal_action="raise")
            env.reset(options={"deal": int(deal)})
            for step in range(150):
                turn = see(game, {}, env.state_rows(), env.action_masks()[None], step)
                _, reward, terminated, _, _ = env.step(int(policy.act(turn)[0]))
                total += reward
                if terminated:
                    break
        means[name] = total / games
    assert means["thumb"] > 1.5 * means["random"] > 0.0


def test_the_thumb_leaves_the_turn_as_it_was() -> None:
    env = loaded(SOURCE)
    turn = see(env.game, {}, env.state_rows(), env.action_masks()[None], 4)
    before = turn.states.copy()
    first = make_policy("thumb", "Paganini-v0").act(turn)
    assert (turn.states == before).all()
    assert (make_policy("thumb", "Paganini-v0").act(turn) == first).all()
