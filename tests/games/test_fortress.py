"""Fortress: the rules of `seeds/rules/fortress.md`, one by one."""

from __future__ import annotations

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

DATA = Path(__file__).parents[1] / "data"
ROWS = [f"{side} {i}" for side in ("left", "right") for i in range(1, 6)]
SUITS = ("spades", "hearts", "diamonds", "clubs")

SOURCE = """
       JC AD 4C TH 2D | JS 6S QC 8D 8C
       TC 4S KS 9D JH | 3D 8H 9S 5C 3S
       QH 3C 7H 4D 2H | KH 5D 9H TD JD
       2S 4H TS 9C QS | 6C 2C KC 6D 6H
    3H AS AH QD 5H 5S | 7S 7D 8S AC 7C KD
"""


def wall(picture: str) -> Table:
    """Return the table of a drawn wall of 52 cards."""
    rows: Table = {name: [] for name in ROWS}
    for i, line in enumerate(picture.strip("\n").splitlines(), 1):
        left, right = line.split("|")
        rows[f"left {i}"] = left.split()[::-1]
        rows[f"right {i}"] = right.split()
    return rows | {name: [] for name in SUITS}


def loaded(table: Table | str) -> PatienceEnv:
    env = PatienceEnv("Fortress-v0", observation="cards", illegal_action="raise")
    env.load(wall(table) if isinstance(table, str) else table)
    return env


def moves(env: PatienceEnv) -> set[str]:
    return {env.describe(int(action)) for action in np.flatnonzero(env.action_masks())}


def action(row: str, other: str | None = None) -> int:
    return 10 * ROWS.index(row) + ROWS.index(other or row)


def test_the_deal_goes_line_by_line_from_left_to_right_across_both_groups() -> None:
    env = PatienceEnv("Fortress-v0")
    env.reset(options={"deal": 1})
    table = env.table()
    laid = [card for i in range(1, 6) for card in [*table[f"left {i}"][::-1], *table[f"right {i}"]]]
    assert laid == [card_text(int(card)) for card in deck(1)]
    assert [len(table[row]) for row in ROWS] == [5, 5, 5, 5, 6] * 2


def has_move(outside: list[int]) -> bool:
    pairs = [(a, b) for a in outside for b in outside if (a - 1) // 13 == (b - 1) // 13]
    return any((a - 1) % 13 == 0 for a in outside) or any(abs(a - b) == 1 for a, b in pairs)


def test_a_deal_without_a_move_stands_and_ends_with_the_first_step() -> None:
    env = PatienceEnv("Fortress-v0", illegal_action="raise")
    blocked = 0
    for deal in range(1, 201):
        _, info = env.reset(options={"deal": deal})
        able = has_move([card_code(env.table()[row][-1]) for row in ROWS])
        assert info["action_mask"].any() == able
        if not able:
            blocked += 1
            _, reward, terminated, truncated, info = env.step(0)
            assert (reward, terminated, truncated) == (0.0, True, False)
            assert "illegal_action" not in info
    assert 1 <= blocked <= 25


def test_the_sources_tableau_has_four_opening_moves() -> None:
    assert moves(loaded(SOURCE)) == {
        "JC of left 1 onto TC of left 2",
        "TC of left 2 onto JC of left 1",
        "2S of left 4 onto 3S of right 2",
        "3S of right 2 onto 2S of left 4",
    }


def test_the_sources_tableau_is_won_by_the_known_line() -> None:
    env = loaded(SOURCE)
    rewards: list[float] = []
    terminated = False
    for move in (DATA / "fortress-win.txt").read_text().split():
        assert not terminated
        card, target = move.split(">")
        table = env.table()
        row = next(name for name in ROWS if table[name][-1:] == [card])
        if target == "F":
            other = row
        elif target == "lane":
            other = next(name for name in ROWS if not table[name])
        else:
            other = next(name for name in ROWS if table[name][-1:] == [target])
        reward, terminated = env.step(action(row, other))[1:3]
        assert (reward > 0) == (target == "F")
        rewards.append(reward)
    assert terminated
    assert len(rewards) == 87
    assert sum(rewards) == 1.0
    assert rewards[-1] == pytest.approx(1 / 52)
    assert not env.action_masks().any()
    assert [len(env.table()[suit]) for suit in SUITS] == [13] * 4


def suit(letter: str, first: str, last: str) -> list[str]:
    """Return the cards of a suit from one rank to another, upwards or downwards."""
    ranks = "A23456789TJQK"
    i, j = ranks.index(first), ranks.index(last)
    step = 1 if j >= i else -1
    return [ranks[k] + letter for k in range(i, j + step, step)]


def lanes() -> PatienceEnv:
    """Return a position late in a game: left 2 is a lane."""
    return loaded(
        {
            "left 1": ["2C"],
            "left 3": ["4C", "5C"],
            "left 4": ["7H"],
            "left 5": suit("H", "K", "8"),
            "right 1": ["KC"],
            "right 2": ["QC"],
            "right 3": ["JC", "TC"],
            "right 4": ["9C", "8C"],
            "right 5": ["7C", "6C", "3C"],
            "spades": suit("S", "A", "K"),
            "hearts": suit("H", "A", "6"),
            "diamonds": suit("D", "A", "K"),
            "clubs": ["AC"],
        }
    )


def test_outside_cards_marry_up_and_down_start_lanes_and_go_to_foundations() -> None:
    env = lanes()
    assert moves(env) == {
        "2C of left 1 to its foundation",
        "2C of left 1 onto 3C of right 5",
        "3C of right 5 onto 2C of left 1",
        "KC of right 1 onto QC of right 2",
        "QC of right 2 onto KC of right 1",
        "7H of left 4 to its foundation",
        "7H of left 4 onto 8H of left 5",
        "8H of left 5 onto 7H of left 4",
        *(
            f"{card} of {row} into the empty lane left 2"
            for card, row in (
                ("2C", "left 1"),
                ("5C", "left 3"),
                ("7H", "left 4"),
                ("8H", "left 5"),
                ("KC", "right 1"),
                ("QC", "right 2"),
                ("TC", "right 3"),
                ("8C", "right 4"),
                ("3C", "right 5"),
            )
        ),
    }


def test_a_foundation_move_pays_its_share_and_others_nothing() -> None:
    env = lanes()
    assert env.step(action("left 4"))[1] == pytest.approx(1 / 52)
    assert env.table()["hearts"][-1] == "7H"
    assert env.step(action("right 2", "right 1"))[1] == 0.0
    assert env.table()["right 1"] == ["KC", "QC"]
    assert env.table()["right 2"] == []


def test_king_and_ace_do_not_marry_but_ace_and_two_do() -> None:
    table = loaded(SOURCE).table()
    swap(table, "JC", "AC")
    swap(table, "3S", "2C")
    swap(table, "8C", "KC")
    env = loaded(table)
    assert {move for move in moves(env) if "AC" in move} == {
        "AC of left 1 to its foundation",
        "AC of left 1 onto 2C of right 2",
        "2C of right 2 onto AC of left 1",
    }


def swap(table: Table, one: str, other: str) -> None:
    for cards in table.values():
        cards[:] = [{one: other, other: one}.get(card, card) for card in cards]


def test_a_lone_card_may_move_to_another_lane_and_back() -> None:
    env = lanes()
    before = env.table()
    env.step(action("left 1", "left 2"))
    env.step(action("left 2", "left 1"))
    assert env.table() == before


def test_a_row_may_grow_to_eighteen_cards() -> None:
    row = ["KS", "KH", "KD", "QD", "QH", *suit("C", "K", "A")]
    env = loaded(
        {
            "right 5": row,
            "left 5": ["QS"],
            "spades": suit("S", "A", "J"),
            "hearts": suit("H", "A", "J"),
            "diamonds": suit("D", "A", "J"),
        }
    )
    assert env.table()["right 5"] == row
    observation, reward = env.step(action("right 5"))[:2]
    assert reward == pytest.approx(1 / 52)
    names = env.layout.places
    assert observation[names.index("right 5 card 17")] == card_code("2C")
    assert observation[names.index("right 5 card 18")] == 0
    assert observation[names.index("clubs")] == card_code("AC")


ALMOST_STUCK = """
       2S KH AS 4S 6S | 8S TS QS KS 2H
       5S AH 3H 5H 7H | 9H TH JH QH 4H
       7S AD 2D 3D 4D | 5D 6D 7D 8D 6H
       9S 9D TD JD QD | KD AC 2C 3C 8H
    JS 4C 5C 6C 7C 8C | 9C TC JC QC KC 3S
"""


def test_the_game_ends_when_no_move_is_left() -> None:
    env = loaded(ALMOST_STUCK)
    assert moves(env) == {"2S of left 1 onto 3S of right 5", "3S of right 5 onto 2S of left 1"}
    _, reward, terminated, _, info = env.step(action("left 1", "right 5"))
    assert (reward, terminated, info["played"]) == (0.0, True, 0)
    assert not info["action_mask"].any()


def test_an_illegal_move_is_named() -> None:
    env = loaded(SOURCE)
    before = env.table()
    with pytest.raises(InvalidAction, match="JC of left 1 onto 8C of right 1"):
        env.step(action("left 1", "right 1"))
    assert env.table() == before


def test_every_action_is_described() -> None:
    env = lanes()
    assert env.describe(action("left 2", "left 1")) == "nothing can leave left 2, which is empty"
    assert env.describe(action("left 1", "left 3")) == "2C of left 1 onto 5C of left 3"
    assert env.describe(action("right 1")) == "KC of right 1 to its foundation"
    assert len({env.describe(number) for number in range(100)} - {"nothing can leave left 2, which is empty"}) == 90


def test_the_observation_shows_every_card_in_its_place() -> None:
    env = loaded(SOURCE)
    observation = env.load(wall(SOURCE))[0]
    assert observation.shape == (184,)
    shown = {name: card_text(int(code)) for name, code in zip(env.layout.places, observation, strict=True)}
    assert [shown[f"left 5 card {i}"] for i in range(1, 8)] == ["5S", "5H", "QD", "AH", "AS", "3H", "--"]
    assert [shown[f"right 1 card {i}"] for i in range(1, 7)] == ["JS", "6S", "QC", "8D", "8C", "--"]
    assert [shown[name] for name in SUITS] == ["--"] * 4
    planes = PatienceEnv("Fortress-v0").load(wall(SOURCE))[0]
    assert planes.shape == (20, 10, 18)
    assert (planes[17] == 1).sum() == 180 - 52


def test_determinize_changes_no_card() -> None:
    env = loaded(SOURCE)
    twin = env.clone().determinize(3)
    assert twin.table() == env.table()
    assert (twin.action_masks() == env.action_masks()).all()


def test_a_table_round_trips_in_the_middle_of_a_game() -> None:
    env = lanes()
    twin = loaded(env.table())
    assert twin.table() == env.table()
    for name in ("wall", "length", "founded", "outside", "played"):
        assert (twin.state_rows()[name] == env.state_rows()[name]).all()


def changed(**piles: list[str]) -> Table:
    table = lanes().table()
    return table | {name.replace("_", " "): cards for name, cards in piles.items()}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (changed(middle=["2C"]), "no place 'middle'"),
        (changed(left_1=["1C"]), "'1C' is no card"),
        (changed(left_1=["??"]), r"left 1 holds \?\?: all cards of this game are face up"),
        (changed(left_1=["2C", "KC"]), "KC lies in left 1 and in right 1"),
        (changed(left_1=[]), "2C missing"),
        (changed(clubs=["2C"], left_1=["AC"]), "clubs must be built up from the ace in suit, not 2C"),
        (changed(spades=suit("S", "K", "A")), "spades must be built up"),
        (
            changed(left_1=[], left_5=["KH", "QH", "JH", "TH", "9H", "8H", "2C"]),
            "left 5 holds 2C on 8H: beyond the 6 cards dealt",
        ),
        (
            changed(
                left_3=[], right_1=["KC", "QC", "JC", "TC", "9C", "5C", "4C"], right_2=[], right_3=[], right_4=["8C"]
            ),
            "right 1 holds 5C on 9C: beyond the 5 cards dealt",
        ),
    ],
)
def test_an_impossible_table_is_refused_and_nothing_changes(table: Table, reason: str) -> None:
    env = loaded(SOURCE)
    with pytest.raises(ValueError, match=reason):
        env.load(table)
    assert env.table() == wall(SOURCE)


def test_random_games_end_legally_and_keep_all_cards() -> None:
    env = gymnasium.make("Fortress-v0", illegal_action="raise")
    assert env.spec is not None
    assert env.spec.max_episode_steps == 500
    bare: Any = env.unwrapped
    everything = sorted(card_text(card) for card in range(1, 53))
    env.reset(seed=5)
    for deal in range(1, 201):
        env.reset(options={"deal": deal})
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, info = env.step(bare.sample())
            total += float(reward)
            ended = terminated or truncated
        assert total == info["played"] / 52
        assert terminated == (not info["action_mask"].any())
        table = bare.table()
        assert sorted(card for cards in table.values() for card in cards) == everything
        loaded(table)


def test_the_thumb_beats_random_play() -> None:
    game = get_game("Fortress-v0")
    means = {}
    for name in ("thumb", "random"):
        policy = make_policy(name, game.id)
        policy.start(1)
        total = 0.0
        for deal in named_deals("smoke", 60):
            env = PatienceEnv(game, observation="cards", illegal_action="raise")
            env.reset(options={"deal": int(deal)})
            for step in range(40 if env.action_masks().any() else 0):
                turn = see(game, {}, env.state_rows(), env.action_masks()[None], step)
                _, reward, terminated, _, _ = env.step(int(policy.act(turn)[0]))
                total += reward
                if terminated:
                    break
        means[name] = total / 60
    assert means["thumb"] > 1.2 * means["random"] > 0.0


def test_the_thumb_turns_a_run_over_to_free_its_lowest_card() -> None:
    """3C lies under 4C and 5C: 5C to the lane, 4C onto it, then 3C, 4C and 5C to the foundation."""
    table = lanes().table()
    table |= {"clubs": ["AC", "2C"], "left 1": [], "left 3": [], "right 5": ["7C", "6C", "3C", "4C", "5C"]}
    table |= {"hearts": suit("H", "A", "K"), "left 4": [], "left 5": []}
    env = loaded(table)
    policy = make_policy("thumb", "Fortress-v0")
    played = []
    for _ in range(5):
        number = policy.choose(env)
        played.append(env.describe(number))
        env.step(number)
    assert played == [
        "5C of right 5 into the empty lane left 1",
        "4C of right 5 onto 5C of left 1",
        "3C of right 5 to its foundation",
        "4C of left 1 to its foundation",
        "5C of left 1 to its foundation",
    ]
