"""The Sultan: rules, table, observation, hidden information."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from gymnasium.error import InvalidAction

from patience_env.agents.policy import make_policy
from patience_env.cards import card_text, pack
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.jit import JIT
from patience_env.vector import PatienceVectorEnv

RANKS = "A23456789TJQ"
TALON, TURN, REDEAL = 8, 9, 10
BASES = {
    "spades 1": "KS",
    "spades 2": "KS",
    "hearts ace": "AH",
    "hearts king": "KH",
    "diamonds 1": "KD",
    "diamonds 2": "KD",
    "clubs 1": "KC",
    "clubs 2": "KC",
}
TWO_PACKS = Counter(card_text(int(card)) for card in pack(2))


def new_game(**options: Any) -> PatienceEnv:
    return PatienceEnv("Sultan-v0", observation="cards", illegal_action="raise", **options)


def packet(name: str, top: str) -> list[str]:
    """The cards of a packet up to a rank: `packet("spades 1", "3")` is KS AS 2S 3S."""
    base = BASES[name]
    ranks = RANKS[: RANKS.index(top) + 1] if top != "K" else ""
    return [base] + [rank + base[1] for rank in (ranks[1:] if name == "hearts ace" else ranks)]


def divan_only(divan: str) -> dict[str, list[str]]:
    return {f"divan {i + 1}": [card] for i, card in enumerate(divan.split()) if card != "--"}


def picture(divan: str, talon: str = "", **tops: str) -> dict[str, list[str]]:
    """A table: the Divan's cards from place 1 on, the talon's from its bottom; packets are full but for `tops`.

    `tops` names packets by suit letter and number: S1="J" lets spades 1 end with its jack.
    """
    short = {name[0].upper() + ("2" if name[-1] in "2g" else "1"): name for name in BASES}
    table = {name: packet(name, "Q") for name in BASES}
    table |= {short[key]: packet(short[key], top) for key, top in tops.items()}
    return {**table, **divan_only(divan), "talon": talon.split()}


def opened(divan: str, talon: str = "", redeals_left: int | None = None, **tops: str) -> PatienceEnv:
    env = new_game()
    table = picture(divan, talon, **tops)
    if redeals_left is not None:
        table["redeals left"] = [str(redeals_left)]
    env.load(table)
    return env


def legal(env: PatienceEnv) -> list[int]:
    return np.flatnonzero(env.action_masks()).tolist()


def cards_of(table: dict[str, list[str]]) -> Counter[str]:
    return Counter(card for pile, cards in table.items() if pile != "redeals left" for card in cards)


def test_the_deal_sets_out_eight_kings_and_an_ace_and_deals_the_divan() -> None:
    env = new_game()
    env.reset(options={"deal": 1})
    table = env.table()
    assert table["sultan"] == ["KH"]
    assert {name: table[name] for name in BASES} == {name: [base] for name, base in BASES.items()}
    assert [len(table[f"divan {i}"]) for i in range(1, 9)] == [1] * 8
    assert table["talon"] == []
    assert table["stock"] == ["??"] * 87
    stock = Counter(card_text(int(card)) for card in env.state_rows()[0]["pack"][8:])
    assert cards_of({name: cards for name, cards in table.items() if name != "stock"}) + stock == TWO_PACKS


def test_only_cards_that_follow_in_suit_fit() -> None:
    # Wanted are AS (twice), 2H, AH, AD, AC: of the Divan only the aces and the two of hearts.
    env = new_game()
    env.load(divan_only("AS AH 2H 2S QD AC 3H TC"))
    assert legal(env) == [0, 1, 2, 5, TURN]


def test_the_hearts_king_takes_the_ace_and_the_hearts_ace_the_two() -> None:
    env = new_game()
    env.load(divan_only("AH 2H 9S 9S 9D 9D 9C 9C"))
    env.step(1)
    assert env.table()["hearts ace"] == ["AH", "2H"]
    env.step(0)
    assert env.table()["hearts king"] == ["KH", "AH"]


def test_packets_of_a_suit_at_the_same_height_the_first_takes_the_card() -> None:
    env = opened("JS QS QS", S1="T", S2="J")
    env.step(1)
    assert env.table()["spades 2"][-1] == "QS"
    assert env.table()["spades 1"][-1] == "TS"
    env = opened("QS QS", S1="J", S2="J")
    assert legal(env) == [0, 1]
    env.step(1)
    assert env.table()["spades 1"][-1] == "QS"
    assert env.table()["spades 2"][-1] == "JS"


def test_a_vacancy_takes_the_talons_top() -> None:
    env = opened("9S TS JS QS TD JD QD 9C", talon="TC JC QC", S1="8", D1="9", C1="8")
    assert legal(env) == [0, 4, 7, REDEAL]
    _, reward, *_ = env.step(7)
    assert env.table()["divan 8"] == ["QC"]
    assert env.table()["talon"] == ["TC", "JC"]
    assert reward == pytest.approx(1 / 95)


def test_a_vacancy_takes_the_stock_when_there_is_no_talon_and_else_stays() -> None:
    # Divan 8S 9S TS JS QS QH QD JC, in the stock the queen of clubs alone.
    env = opened("8S 9S TS JS QS QH QD JC", S1="7", H1="J", D1="J", C1="T")
    assert env.table()["stock"] == ["??"]
    env.step(5)
    assert env.table()["divan 6"] == ["QC"]
    assert env.table()["stock"] == []
    env.step(6)
    assert env.table()["divan 7"] == []
    assert legal(env) == [0, 7]


def test_the_turned_card_is_the_talons_top_for_playing_and_for_refilling() -> None:
    env = opened("8S 9S TS JS QS QH QD JC", S1="7", H1="J", D1="J", C1="T")
    env.step(TURN)
    assert env.table()["talon"] == ["QC"]
    assert legal(env) == [0, 5, 6, 7, REDEAL]
    env.step(7)
    assert env.table()["divan 8"] == ["QC"]
    env = opened("8S 9S TS JS QS QH QD JD", S1="7", H1="J", D1="T", C1="J")
    env.step(TURN)
    assert TALON in legal(env)
    env.step(TALON)
    assert env.table()["talon"] == []
    assert env.table()["clubs 1"][-1] == "QC"
    assert env.table()["divan 8"] == ["JD"]


def test_redeal_needs_an_empty_stock_a_talon_and_redeals_left() -> None:
    position = ("5S 6S 7S 8S 9S TS JS QS", "9D JD TD")
    env = opened(*position, redeals_left=1, S1="4", D1="8")
    assert env.table()["stock"] == ["??"]
    assert REDEAL not in legal(env)
    env.step(TURN)
    assert legal(env) == [0, REDEAL]
    assert env.table()["talon"] == ["9D", "JD", "TD", "QD"]
    _, reward, _, _, info = env.step(REDEAL)
    assert (reward, info["redeals_left"]) == (0.0, 0)
    assert (env.table()["talon"], env.table()["stock"]) == ([], ["??"] * 4)
    for _ in range(4):
        env.step(TURN)
    assert sorted(env.table()["talon"]) == ["9D", "JD", "QD", "TD"]
    assert REDEAL not in legal(env)
    with pytest.raises(InvalidAction, match=r"redeals left: 0"):
        env.step(REDEAL)


def test_redeal_needs_a_talon() -> None:
    env = opened("JS QS", S1="T")
    assert legal(env) == [0]


@pytest.mark.parametrize("redeals", [0, 1, 2, 3])
def test_without_plays_every_card_is_turned_once_more_for_each_redeal(redeals: int) -> None:
    env = new_game(redeals=redeals)
    _, info = env.reset(options={"deal": 5})
    assert info["redeals_left"] == redeals
    turns = 0
    orders = []
    while True:
        if env.action_masks()[TURN]:
            env.step(TURN)
            turns += 1
        elif env.action_masks()[REDEAL]:
            orders.append(env.table()["talon"])
            env.step(REDEAL)
        else:
            break
    assert turns == 87 * (redeals + 1)
    assert len({tuple(order) for order in orders}) == redeals
    assert len({tuple(sorted(order)) for order in orders}) <= 1


def test_a_redeal_is_shuffled_by_the_deals_own_stream() -> None:
    def second_pass(deal: int) -> list[str]:
        env = new_game()
        env.reset(options={"deal": deal})
        for action in [TURN] * 87 + [REDEAL] + [TURN] * 87:
            env.step(action)
        return env.table()["talon"]

    assert second_pass(7) == second_pass(7)
    assert second_pass(7) != second_pass(8)


def test_eight_queens_win_and_a_won_game_returns_one() -> None:
    thumb = make_policy("thumb", "Sultan-v0")
    for deal in range(100):
        env = new_game()
        env.reset(options={"deal": deal})
        rewards, terminated = [], False
        while not terminated:
            _, reward, terminated, _, info = env.step(thumb.choose(env))
            rewards.append(reward)
        if sum(rewards) > 1 - 1e-9:
            break
    assert sum(rewards) == 1.0
    assert {cards[-1][0] for name, cards in env.table().items() if name in BASES} == {"Q"}
    assert not info["action_mask"].any()
    assert cards_of(env.table()) == TWO_PACKS
    assert len(rewards) <= 358


def test_the_last_queen_wins_with_the_win_reward() -> None:
    env = PatienceEnv("Sultan-v0", observation="cards", reward="win", illegal_action="raise")
    env.load(picture("JC QC", C2="T"))
    _, reward, terminated, *_ = env.step(0)
    assert (reward, terminated) == (0.0, False)
    _, reward, terminated, *_ = env.step(1)
    assert (reward, terminated) == (1.0, True)


def test_a_game_without_a_legal_action_is_over() -> None:
    # The six of spades and the nine of clubs are wanted and lie in the talon under a queen.
    env = opened("QS JS TS 9S 8S 7S TC JC", talon="6S 9C QC", redeals_left=0, S1="5", C1="8")
    assert env.table()["stock"] == []
    assert legal(env) == []
    env.load({**env.table(), "redeals left": ["1"]})
    assert legal(env) == [REDEAL]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pyramid": []}, "there is no pile 'pyramid': the piles are sultan, spades 1"),
        ({"talon": ["XX"]}, "'XX' is no card"),
        ({"talon": ["??"]}, "they hold known cards"),
        ({"sultan": ["KS"]}, "the Sultan is the king of hearts alone"),
        ({"spades 1": ["KS", "2S"]}, r"spades 1 holds \['KS', '2S'\]: it must hold the first one or more of"),
        ({"hearts ace": ["KH", "AH"]}, "hearts ace holds"),
        ({"clubs 1": []}, "clubs 1 holds"),
        ({"divan 1": ["9S", "9S"]}, "divan 1 holds 2 cards"),
        ({"divan 1": ["AS"], "divan 2": ["AS"], "divan 3": ["AS"]}, "AS lies on the table too often: there are 2"),
        ({"divan 1": ["KH"]}, "KH lies on the table too often: there are 2"),
        ({"divan 1": ["AH"], "divan 2": ["AH"]}, "AH lies on the table too often: there are 2"),
        (
            {"divan 8": [], "stock": ["??"] * 88},
            "divan 8 is empty while the talon holds 0 cards and the stock 88: a vacancy is refilled",
        ),
        ({"stock": ["??"] * 86}, "stock must be 87 times"),
        ({"redeals left": ["3"]}, r"redeals left must be a list of one number from 0 to 2, such as \['0'\]"),
        ({"redeals left": ["-1"]}, "redeals left must be a list of one number"),
        ({"redeals left": []}, "redeals left must be a list of one number"),
    ],
)
def test_an_impossible_table_is_refused_and_nothing_changes(change: dict[str, Any], message: str) -> None:
    env = new_game()
    env.reset(options={"deal": 3})
    before = env.get_state()
    with pytest.raises(ValueError, match=message):
        env.load({**env.table(), **change})
    assert env.get_state() == before


@pytest.mark.parametrize("value", [-1, 100, 1.0, True, "2", None])
def test_redeals_must_be_a_whole_number(value: Any) -> None:
    with pytest.raises(ValueError, match=r"redeals=.* is not allowed: give a whole number from 0 to 99"):
        new_game(redeals=value)


def test_loading_a_table_gives_the_same_table_and_redeals_left() -> None:
    env = new_game()
    env.reset(seed=4)
    for step in range(150):
        if step % 25 == 0:
            other = new_game()
            seen, _ = other.load(env.table())
            assert other.observation_space.contains(seen)
            assert np.array_equal(seen, env._refresh()[0])
            assert other.table() == env.table()
        _, _, _, _, info = env.step(env.sample())
    assert info["redeals_left"] == 1
    assert env.table()["redeals left"] == ["1"]
    untold = {pile: cards for pile, cards in env.table().items() if pile != "redeals left"}
    _, info = env.load(untold)
    assert info["redeals_left"] == 1
    _, info = new_game(redeals=3).load(untold)
    assert info["redeals_left"] == 3


def test_actions_are_described() -> None:
    env = opened("9S TS JS QS TD JD QD 9C", talon="TC JC QC", S1="8", D1="9", C1="8")
    assert env.describe(0) == "play 9S from divan 1"
    assert env.describe(TALON) == "play QC from the talon"
    assert env.describe(TURN) == "turn the next card of the stock onto the talon"
    assert env.describe(REDEAL) == "shuffle the talon into a new stock (redeals left: 2)"
    env = opened("QS", S1="J")
    assert env.describe(TALON) == "play no card from the talon"
    assert env.describe(7) == "play no card from divan 8"


def test_the_observation_shows_packets_divan_talon_and_the_stocks_composition() -> None:
    env = opened("5S 6S 7S 8S 9S TS JS QS", "9D JD TD", redeals_left=1, S1="4", D1="8")
    seen, _ = env.load({**env.table(), "redeals left": ["1"]})
    names = [*env.layout.places, *(counter.name for counter in env.layout.counters)]
    shown = dict(zip(names, seen.tolist(), strict=True))
    assert card_text(shown["spades 1"]) == "4S"
    assert card_text(shown["hearts king"]) == "QH"
    assert [card_text(shown[f"divan {i}"]) for i in (1, 8)] == ["5S", "QS"]
    assert [card_text(shown[f"talon {i}"]) for i in (1, 2, 3, 4)] == ["9D", "JD", "TD", "--"]
    assert card_text(shown["talon top"]) == "TD"
    assert (shown["redeals left"], shown["stock"]) == (1, 1)
    assert {name for name, value in shown.items() if name.startswith("stock ") and value} == {
        "stock Q",
        "stock diamonds",
    }
    assert card_text(new_game().reset(seed=1)[0][0]) == "KS"


def test_the_order_of_the_stock_cannot_be_seen() -> None:
    env = new_game()
    env.reset(options={"deal": 11})
    for _ in range(20):
        env.step(TURN)
    twin = env.clone()
    hidden = twin._rows.states[0]["pack"][28:]
    hidden[:] = hidden[::-1].copy()
    seen, info = twin._refresh()
    before, old = env._refresh()
    assert (seen == before).all()
    assert (info["action_mask"] == old["action_mask"]).all()
    assert twin.table() == env.table()


def test_determinize_shuffles_the_stock_alone() -> None:
    env = new_game()
    env.reset(options={"deal": 12})
    for _ in range(30):
        env.step(env.sample())
    orders = set()
    for key in range(5):
        twin = env.clone().determinize(key)
        assert twin.table() == env.table()
        assert (twin._refresh()[0] == env._refresh()[0]).all()
        first, second = env.state_rows()[0], twin.state_rows()[0]
        left = slice(int(first["turned"]), None)
        assert sorted(first["pack"][left]) == sorted(second["pack"][left])
        assert second["deal"] == 0
        assert first["rng"] != second["rng"]
        orders.add(tuple(second["pack"][left].tolist()))
    assert len(orders) == 5


def test_random_games_end_legally_and_keep_all_cards() -> None:
    games = 200 if JIT else 8
    env = PatienceVectorEnv("Sultan-v0", games, observation="cards", illegal_action="raise")
    rng = np.random.default_rng(3)
    env.reset(seed=3)
    ended, steps = np.zeros(games, np.bool_), 0
    while not ended.all():
        seen, rewards, terminated, truncated, info = env.step(env.sample(rng))
        steps += 1
        states = env.states()
        on_table = states["taken"].sum(1) - 1 + (states["divan"] > 0).sum(1) + states["talon_size"]
        assert (on_table + 95 - states["turned"] == 95).all()
        assert (seen[:, -17:-4].sum(1) == 95 - states["turned"]).all()
        assert ((info["action_mask"].sum(1) == 0) == terminated).all()
        assert not truncated.any()
        assert (rewards >= 0).all()
        ended |= terminated
        if steps % 60 == 0:
            for state in states[:4]:
                stock = Counter(card_text(int(card)) for card in state["pack"][state["turned"] :])
                shown = cards_of(env.game.table(state))
                del shown["??"]
                assert shown + stock == TWO_PACKS
    assert steps <= 358


def test_greedy_wins_about_a_quarter_and_the_thumb_more() -> None:
    if not JIT:
        pytest.skip("a thousand games take too long in plain Python")
    wins = {name: wins_of(name, 1000) for name in ("first", "thumb")}
    assert 0.19 < wins["first"] < 0.30
    assert wins["thumb"] > wins["first"] + 0.1


def wins_of(name: str, games: int) -> float:
    """The share of games that the thumb, or the first legal action each time, wins."""
    deals = named_deals("validation", games)
    env = PatienceVectorEnv("Sultan-v0", games, observation="cards", illegal_action="raise")
    env.reset(options={"deal": deals})
    thumb = make_policy("thumb", "Sultan-v0")
    returns, live = np.zeros(games), np.ones(games, np.bool_)
    while live.any():
        masks = env.action_masks().astype(np.int8)
        actions = masks.argmax(1)
        if name == "thumb":
            shown = np.flatnonzero(masks.any(1))
            kernel = type(thumb).kernel  # type: ignore[attr-defined]
            chosen = np.zeros(len(shown), np.int64)
            kernel(env.states()[shown], masks[shown], chosen)
            actions[shown] = chosen
        _, rewards, terminated, _, _ = env.step(actions)
        returns += rewards * live
        live &= ~terminated
    return float((returns > 1 - 1e-9).mean())


def test_the_thumb_keeps_the_divan_closed_to_a_card_that_is_not_wanted_soon() -> None:
    # Hearts wait from the two on: the queen of hearts would clog the Divan for long, so the nine of clubs waits.
    thumb = make_policy("thumb", "Sultan-v0")
    env = new_game()
    table = picture("9C TS JS QS TD JD QD JC", talon="QH", S1="8", D1="8", C1="8", H1="A", H2="K")
    env.load(table)
    assert legal(env) == [0, TURN]
    assert thumb.choose(env) == TURN
    env.load({**table, "talon": ["AH"]})
    assert thumb.choose(env) == TALON
    env.load({**table, "talon": ["TC"]})
    assert thumb.choose(env) == 0
