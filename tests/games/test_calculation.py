"""The rules of Calculation: positions are written as tables, bottom card first."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from gymnasium.error import InvalidAction

from patience_env import jit
from patience_env.agents.policy import make_policy
from patience_env.cards import card_code
from patience_env.deals import deck
from patience_env.env import PatienceEnv
from patience_env.games.calculation import encore

SEQUENCES = (
    "A 2 3 4 5 6 7 8 9 T J Q K",
    "2 4 6 8 T Q A 3 5 7 9 J K",
    "3 6 9 Q 2 5 8 J A 4 7 T K",
    "4 8 Q 3 7 J 2 6 T A 5 9 K",
)
FULL = {
    f"foundation {f + 1}": [rank + suit for rank in ranks.split()]
    for f, (ranks, suit) in enumerate(zip(SEQUENCES, "SHDC", strict=True))
}
# Two cards are wanting; the kings of clubs and spades lie on piles 1 and 3.
NEARLY_WON = FULL | {
    "foundation 1": FULL["foundation 1"][:12],
    "foundation 4": FULL["foundation 4"][:12],
    "hand": [],
    "pile 1": ["KC"],
    "pile 3": ["KS"],
}
OPENING = {
    "foundation 1": ["AS"],
    "foundation 2": ["2S"],
    "foundation 3": ["3S"],
    "foundation 4": ["4S"],
    "hand": ["2H"],
    "pile 1": ["KH", "6H"],
    "pile 2": ["8H"],
    "pile 3": ["TH", "4H"],
    "pile 4": [],
}


def make(**options: Any) -> PatienceEnv:
    return PatienceEnv("Calculation-v0", illegal_action="raise", **options)


def at(table: dict[str, list[str]], **options: Any) -> PatienceEnv:
    env = make(**options)
    env.reset(seed=0)
    env.load(table)
    return env


def legal(env: PatienceEnv) -> list[int]:
    return np.flatnonzero(env.action_masks()).tolist()


def test_the_first_ace_two_three_and_four_are_the_bases() -> None:
    for deal in range(20):
        env = make(open_stock=True)
        env.reset(options={"deal": deal})
        cards = deck(deal).tolist()
        bases = [next(card for card in cards if (card - 1) % 13 + 1 == rank) for rank in (1, 2, 3, 4)]
        rest = [card for card in cards if card not in bases]
        table = env.table()
        assert [card_code(table[f"foundation {f}"][0]) for f in (1, 2, 3, 4)] == bases
        assert card_code(table["hand"][0]) == rest[0]
        assert [card_code(card) for card in reversed(table["stock"])] == rest[1:]


@pytest.mark.parametrize("foundation", range(4))
def test_a_foundation_goes_by_its_step_round_the_corner(foundation: int) -> None:
    ranks = SEQUENCES[foundation].split()
    others = {f"foundation {f + 1}": [SEQUENCES[f][0] + "S"] for f in range(4)}
    for n in range(1, 13):
        built = [rank + "SHDC"[i % 2 + 1] for i, rank in enumerate(ranks[:n])]
        env = at({**others, f"foundation {foundation + 1}": built, "hand": [ranks[n] + "C"]})
        assert foundation in legal(env)
        wrong = next(rank for rank in "A23456789TJQK" if rank not in ranks[: n + 1]) if n < 12 else "Q"
        env = at({**others, f"foundation {foundation + 1}": built, "hand": [wrong + "C"]})
        assert foundation not in legal(env)


def test_hand_and_tops_may_play_and_the_hand_may_go_on_any_pile() -> None:
    env = at(OPENING)
    assert {env.describe(action) for action in legal(env)} == {
        "play 2H from the hand on foundation 1",
        "lay 2H on pile 1",
        "lay 2H on pile 2",
        "lay 2H on pile 3",
        "lay 2H on pile 4",
        "play 6H from pile 1 on foundation 3",
        "play 8H from pile 2 on foundation 4",
        "play 4H from pile 3 on foundation 2",
    }
    with pytest.raises(InvalidAction, match="play 2H from the hand on foundation 2"):
        env.step(1)


def test_the_next_card_is_turned_when_the_one_in_hand_is_placed() -> None:
    env = at({**OPENING, "stock": [*left_over(OPENING, "5D"), "5D"]}, open_stock=True)
    _, reward, _, _, info = env.step(4)
    assert (reward, info["played"]) == (0.0, 0)
    table = env.table()
    assert (table["hand"], table["pile 1"]) == (["5D"], ["KH", "6H", "2H"])
    env.step(15)
    assert env.table()["hand"] == ["5D"]


def left_over(table: dict[str, list[str]], *more: str) -> list[str]:
    """Return the cards of the pack that lie nowhere in a table."""
    used = {card for cards in table.values() for card in cards} | set(more)
    return [rank + suit for suit in "SHDC" for rank in "A23456789TJQK" if rank + suit not in used]


def test_a_top_pays_a_48th_and_uncovers_the_card_below() -> None:
    env = at(OPENING)
    _, reward, _, _, info = env.step(8 + 4 * 0 + 2)
    assert reward == 1 / 48
    assert info["played"] == 1
    assert env.table()["pile 1"] == ["KH"]
    assert env.table()["foundation 3"] == ["3S", "6H"]


def test_the_last_cards_win() -> None:
    env = at(NEARLY_WON)
    # Either king fits either foundation: suits play no part.
    assert legal(env) == [8, 11, 16, 19]
    _, reward, over, _, _ = env.step(8)
    assert (reward, over) == (pytest.approx(1 / 48), False)
    _, reward, over, _, info = env.step(19)
    assert (reward, over, info["played"]) == (pytest.approx(1 / 48), True, 48)
    assert not info["action_mask"].any()


def test_a_blocked_end_is_over() -> None:
    env = at(FULL | {"foundation 1": FULL["foundation 1"][:11], "hand": [], "pile 1": ["QS", "KS"]})
    assert legal(env) == []


def test_reward_win_pays_the_last_card_only() -> None:
    env = at(NEARLY_WON, reward="win")
    assert [env.step(8)[1], env.step(19)[1]] == [0.0, 1.0]


def test_a_won_game_returns_1_and_its_encore_ends_with_equal_ranks() -> None:
    env = make()
    policy = make_policy("thumb", "Calculation-v0")
    env.reset(options={"deal": 6})
    total, over = 0.0, False
    while not over:
        _, reward, over, _, info = env.step(policy.choose(env))
        total += reward
    assert info["played"] == 48
    assert total == 1.0
    places = encore([env.table()[f"foundation {f}"] for f in (1, 2, 3, 4)])
    assert [[card[0] for card in place] for place in places] == [[rank] * 4 for rank in "A23456789TJQK"]
    assert len({card for place in places for card in place}) == 52


def test_a_won_game_is_drawn_as_its_encore_in_a_picture_of_the_same_size() -> None:
    pytest.importorskip("pygame")
    env = PatienceEnv("Calculation-v0", render_mode="rgb_array")
    env.reset(seed=1)
    at_the_start = env.render()
    assert "encore" not in env.svg()
    env.load(FULL)
    assert "The encore" in env.svg()
    at_the_end = env.render()
    assert at_the_end.shape == at_the_start.shape
    assert (at_the_end != at_the_start).any()
    plain = PatienceEnv("Calculation-v0", render_mode="ansi")
    plain.load(FULL)
    lines = [line.split() for line in plain.render().splitlines()]
    assert ["AC", "2C", "3C", "4C", "5C", "6C", "7C", "8C", "9C", "TC", "JC", "QC", "KC"] in lines


def test_the_encore_deals_four_sweeps() -> None:
    places = encore([FULL[f"foundation {f}"] for f in (1, 2, 3, 4)])
    assert places[0] == ["AS", "AH", "AD", "AC"]
    assert places[12] == ["KS", "KH", "KD", "KC"]
    assert [place[0][0] for place in places] == list("A23456789TJQK")


def test_the_encore_needs_a_won_game() -> None:
    foundations = [FULL[f"foundation {f}"] for f in (1, 2, 3, 4)]
    with pytest.raises(ValueError, match=r"four foundations of 13 cards, not \[13, 13, 13, 12\]"):
        encore([*foundations[:3], foundations[3][:12]])
    with pytest.raises(ValueError, match="foundation 1 holds 2H as card 1: there it takes a A"):
        encore([foundations[1], *foundations[1:]])


def test_options_that_are_not_allowed() -> None:
    with pytest.raises(ValueError, match="open_stock=1 is not allowed: choose one of False, True"):
        make(open_stock=1)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"pile 5": ["AS"]}, {}, "there is no place 'pile 5'"),
        ({"pile 4": ["1S"]}, {}, "'1S' is no card"),
        ({"pile 4": ["??"]}, {}, r"pile 4 holds \?\?: it holds known cards"),
        ({"pile 4": ["8H"]}, {}, "8H lies in pile 2 and in pile 4"),
        ({"foundation 1": []}, {}, "foundation 1 holds 0 cards: it holds its base, a A, and at most 12 more"),
        ({"foundation 1": ["AS", "3C"]}, {}, "foundation 1 holds 3C as card 2: there it takes a 2"),
        ({"foundation 4": ["5S"]}, {}, "foundation 4 holds 5S as card 1: there it takes a 4"),
        ({"hand": ["2H", "2D"]}, {}, "hand holds 2 cards: it holds one"),
        ({"hand": []}, {}, "hand is empty, but 43 cards are in the stock"),
        ({"stock": ["??"]}, {}, "stock holds 1 cards, but 42 of the pack lie nowhere else"),
        ({"stock": ["9C"]}, {}, "stock holds known cards"),
        ({"stock": ["9C"]}, {"open_stock": True}, "stock holds 1 cards, but 42"),
        ({"stock": ["9C", *["??"] * 41]}, {"open_stock": True}, "some known cards and some"),
    ],
)
def test_tables_that_are_impossible(change: dict[str, list[str]], options: dict[str, Any], message: str) -> None:
    env = at(OPENING, **options)
    before = env.get_state()
    with pytest.raises(ValueError, match=message):
        env.load({**OPENING, **change})
    assert env.get_state() == before


@pytest.mark.parametrize("open_stock", [False, True])
def test_tables_round_trip_through_a_game(open_stock: bool) -> None:
    env, twin = make(open_stock=open_stock), make(open_stock=open_stock)
    rng = np.random.default_rng(3)
    seen, _ = env.reset(options={"deal": 8})
    over = False
    while not over:
        copy, info = twin.load(env.table())
        assert twin.table() == env.table()
        assert (copy == seen).all()
        assert (info["action_mask"].astype(bool) == env.action_masks()).all()
        seen, _, over, _, _ = env.step(int(rng.choice(legal(env))))


def test_the_observation_shows_tops_hand_piles_and_counts() -> None:
    env = at(OPENING, observation="cards")
    observation, _ = env.load(OPENING)
    assert observation[:5].tolist() == [card_code(card) for card in ("AS", "2S", "3S", "4S", "2H")]
    assert observation[5:8].tolist() == [card_code("6H"), card_code("KH"), 0]
    assert observation[53:55].tolist() == [card_code("8H"), 0]
    assert observation[101:104].tolist() == [card_code("4H"), card_code("TH"), 0]
    assert not observation[149:197].any()
    ranks = Counter(card[0] for card in left_over(OPENING))
    suits = Counter(card[1] for card in left_over(OPENING))
    assert observation[197:210].tolist() == [ranks[rank] for rank in "A23456789TJQK"]
    assert observation[210:].tolist() == [suits[suit] for suit in "SHDC"]


def test_the_open_stock_is_shown_next_card_first() -> None:
    stock = left_over(OPENING)
    env = at(OPENING, observation="cards", open_stock=True)
    observation, _ = env.load({**OPENING, "stock": stock})
    shown = [card_code(card) for card in reversed(stock)]
    assert observation[197:244].tolist() == shown + [0] * (47 - len(shown))
    observation, *_ = env.step(4)
    assert observation[4] == shown[0]
    assert observation[197:199].tolist() == shown[1:3]


def test_the_stock_is_hidden() -> None:
    env = make()
    env.reset(options={"deal": 4})
    for _ in range(10):
        env.step(legal(env)[-1])
    states = env.state_rows()
    first = int(states[0]["hand_at"]) + 1
    before = (env.table(), env.action_masks().tolist(), env._observation.tolist())
    states[0]["deck"][first:] = states[0]["deck"][first:][::-1].copy()
    env._rows.states[:] = states
    env._refresh()
    assert (env.table(), env.action_masks().tolist(), env._observation.tolist()) == before


@pytest.mark.parametrize("open_stock", [False, True])
def test_determinize_shuffles_the_stock_unless_it_is_open(open_stock: bool) -> None:
    env = make(open_stock=open_stock)
    env.reset(options={"deal": 4})
    for _ in range(10):
        env.step(legal(env)[-1])
    before = env.state_rows()[0]
    after = env.clone().determinize(1).state_rows()[0]
    first = int(before["hand_at"]) + 1
    assert (after["deck"][:first] == before["deck"][:first]).all()
    assert sorted(after["deck"].tolist()) == list(range(1, 53))
    assert (after["deck"][first:] == before["deck"][first:]).all() == open_stock
    assert (after["piles"] == before["piles"]).all()
    assert after["deal"] == 0


@pytest.mark.parametrize("turns", [0, 12])
def test_determinize_deals_low_cards_as_late_as_the_pack_does(turns: int) -> None:
    """The bases are the first of their ranks, so the others of these ranks come later than an even shuffle has them."""
    deals = 2000 if jit.JIT else 150
    env = make()
    low = np.zeros((2, deals))
    for deal in range(deals):
        env.reset(options={"deal": deal})
        for _ in range(turns):
            env.step(4)
        first = 5 + turns
        for i, some in enumerate((env, env.determinize(deal))):
            stock = some.state_rows()[0]["deck"][first : first + 8].astype(int)
            low[i, deal] = np.mean((stock - 1) % 13 < 4)
    error = np.sqrt(low.var(1).sum() / deals)
    assert abs(low[0].mean() - low[1].mean()) < 4 * error
    if turns == 0:
        assert low[1].mean() < 12 / 48 - 4 * error


def test_random_games_end_legally_and_conserve_cards() -> None:
    env = make()
    for deal in range(200 if jit.JIT else 10):
        env.reset(options={"deal": deal})
        steps, total, over = 0, 0.0, False
        while not over:
            _, reward, over, _, info = env.step(env.sample())
            steps += 1
            total += reward
        assert steps <= 96
        assert total == pytest.approx(info["played"] / 48)
        table = env.table()
        assert table["hand"] == table["stock"] == []
        assert sorted(card_code(card) for cards in table.values() for card in cards) == list(range(1, 53))


def test_thumb_keeps_kings_together() -> None:
    policy = make_policy("thumb", "Calculation-v0")
    env = at({**OPENING, "hand": ["KD"], "pile 1": ["KH"], "pile 4": ["7H"], "stock": left_over(OPENING, "KD", "7H")
              + ["2H", "6H"]}, open_stock=True)  # fmt: skip
    while (action := policy.choose(env)) >= 8:
        env.step(action)
    assert action == 4
