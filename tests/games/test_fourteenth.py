"""The rules of The Fourteenth: positions are drawn, `--` is a space."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from gymnasium.error import InvalidAction

from patience_env import jit
from patience_env.agents.policy import make_policy
from patience_env.deals import deck
from patience_env.env import PatienceEnv
from patience_env.games.fourteenth import BOTH

SOURCE = """
    TH 5C 2D JS 4C
    5H 8D 3H 6S 5D
    6H KC AH 2H 3S
    AS 2C 5S 3H 6D
    3D 5S 5H 2S 4H
"""
NO_PARTNERS = """
    AS 2S 3S 4S 5S
    AS 2S 3S 4S 5S
    AH 2H 3H 4H 5H
    AH 2H 3H 4H 5H
    AD 2D 3D 4D 5D
"""
ONE_FAR_KING = """
    AS 2S 3S 4S 5S
    2H 2S 3S 4S 5S
    2H 6S 3H 4H 5H
    6H 6D 3H 4H 5H
    6H 6D 3D 4D KD
"""
EIGHT_LEFT = """
    AS -- -- 5S --
    -- KS 9S -- --
    2S -- -- 3S --
    -- JS QS -- --
    -- -- -- -- --
"""
FOUR_LEFT = """
    AS -- -- -- --
    -- KS -- -- --
    -- -- 2S -- --
    -- -- -- QS --
    -- -- -- -- --
"""
LAST_SIX = """
    AS -- -- -- KS
    -- 7H -- -- 7S
    -- -- 2S -- QS
    -- -- -- -- --
    -- -- -- -- --
"""


def read(picture: str) -> dict[str, list[str]]:
    """Return the table of a picture."""
    return {
        f"r{row + 1}c{column + 1}": [card]
        for row, line in enumerate(picture.strip().splitlines())
        for column, card in enumerate(line.split())
        if card != "--"
    }


def draw(env: PatienceEnv) -> str:
    """Return the picture of a position."""
    table = env.table()
    rows = [" ".join(table.get(f"r{r}c{c}", ["--"])[0] for c in range(1, 6)) for r in range(1, 6)]
    return "\n".join(rows)


def same(picture: str) -> str:
    return "\n".join(line.strip() for line in picture.strip().splitlines())


def make(**options: Any) -> PatienceEnv:
    return PatienceEnv("Fourteenth-v0", illegal_action="raise", **options)


def at(picture: str, more: dict[str, list[str]] | None = None, **options: Any) -> PatienceEnv:
    env = make(**options)
    env.reset(seed=0)
    env.load({**read(picture), **(more or {})})
    return env


def legal(env: PatienceEnv) -> list[int]:
    return np.flatnonzero(env.action_masks()).tolist()


def swap_of(first: str, second: str) -> int:
    """Return the action that swaps two named places."""
    places = sorted(5 * (int(name[1]) - 1) + int(name[3]) - 1 for name in (first, second))
    return 100 + list(combinations(range(25), 2)).index((places[0], places[1]))


def pair_of(first: str, second: str) -> int:
    """Return the action that withdraws two named places of one row or column."""
    row, column = (int(first[i]) - 1 for i in (1, 3))
    other_row, other_column = (int(second[i]) - 1 for i in (1, 3))
    order = list(combinations(range(5), 2))
    if row == other_row:
        return 10 * row + order.index((min(column, other_column), max(column, other_column)))
    assert column == other_column
    return 50 + 10 * column + order.index((min(row, other_row), max(row, other_row)))


def test_the_source_tableau_has_four_fourteens() -> None:
    env = at(SOURCE)
    assert {env.describe(action) for action in legal(env)} == {
        "withdraw TH (row 1, column 1) and 4C (row 1, column 5)",
        "withdraw 8D (row 2, column 2) and 6S (row 2, column 4)",
        "withdraw KC (row 3, column 2) and AH (row 3, column 3)",
        "withdraw JS (row 1, column 4) and 3H (row 4, column 4)",
    }


def test_actions_are_numbered_rows_then_columns_then_swaps() -> None:
    assert BOTH[[0, 3, 9, 49, 50, 53, 59, 99, 100, 123, 124, 399]].tolist() == [
        [0, 1], [0, 4], [3, 4], [23, 24], [0, 5], [0, 20], [15, 20], [19, 24], [0, 1], [0, 24], [1, 2], [23, 24],
    ]  # fmt: skip


def test_the_deal_lies_in_reading_order_and_the_stock_follows() -> None:
    env = make()
    env.reset(options={"deal": 5})
    cards = deck(5, packs=2)
    assert env.state_rows()[0]["cells"].tolist() == cards[:25].tolist()
    action = legal(env)[0]
    first, second = BOTH[action]
    _, reward, _, _, info = env.step(action)
    after = env.state_rows()[0]["cells"]
    assert (after[first], after[second]) == (cards[25], cards[26])
    assert reward == pytest.approx(2 / 104)
    assert info["withdrawn"] == 2


def test_the_last_stock_card_fills_the_lower_numbered_place() -> None:
    for closing in (False, True):
        env = make(close_gaps=closing)
        env.reset(options={"deal": 3})
        while len(env.table()["stock"]) > 1:
            env.step(legal(env)[0])
        while not (withdrawals := [action for action in legal(env) if action < 100]):
            env.step(legal(env)[0])
        first, second = BOTH[withdrawals[0]]
        env.step(withdrawals[0])
        cells = env.state_rows()[0]["cells"].tolist()
        assert cells[first] == deck(3, packs=2)[-1]
        assert cells.index(0) == (24 if closing else second)


def test_without_partners_no_exchange_is_legal_and_the_game_is_over() -> None:
    assert legal(at(NO_PARTNERS)) == []


def test_a_first_swap_is_legal_only_if_a_second_can_bring_a_fourteen() -> None:
    env = at(ONE_FAR_KING)
    # The king must come into line with the ace, but either may be moved and either swap may do it.
    assert swap_of("r5c5", "r1c4") in legal(env)
    assert swap_of("r1c1", "r1c2") in legal(env)
    assert swap_of("r1c1", "r5c5") not in legal(env)


def brute_force_swaps(cells: np.ndarray, closed: tuple[int, ...] = ()) -> set[tuple[int, int]]:
    """Return the swaps after which a fourteen lies in the square."""
    ranks = np.where(cells > 0, (cells.astype(int) - 1) % 13 + 1, 0)
    good = set()
    held = [place for place in range(25) if ranks[place] and place not in closed]
    for first, second in combinations(held, 2):
        after = ranks.copy()
        after[[first, second]] = after[[second, first]]
        if (after[BOTH[:100]].sum(axis=1) == 14).any():
            good.add((first, second))
    return good


def brute_force_exchanges(cells: np.ndarray) -> set[tuple[int, int]]:
    """Return the first swaps that some second swap of two other places completes."""
    good = set()
    for first, second in combinations(np.flatnonzero(cells).tolist(), 2):
        after = cells.copy()
        after[[first, second]] = after[[second, first]]
        if brute_force_swaps(after, (first, second)):
            good.add((first, second))
    return good


@pytest.mark.parametrize("few", [False, True])
def test_swaps_agree_with_brute_force(few: bool) -> None:
    env = make()
    rng = np.random.default_rng(7)
    checked = 0
    for deal in range(40):
        env.reset(options={"deal": deal})
        while (actions := legal(env)) and checked < 8:
            row = env.state_rows()[0]
            if actions[0] >= 100 and (row["turned"] - row["withdrawn"] <= 9) == few:
                marked = {tuple(BOTH[action].tolist()) for action in actions}
                places = tuple(place for place in range(25) if int(row["swapped"]) >> place & 1)
                if places:
                    assert marked == brute_force_swaps(row["cells"], places)
                    checked += 1
                elif few or checked < 2:
                    assert marked == brute_force_exchanges(row["cells"])
                    checked += 1
            env.step(int(rng.choice(actions)))
    assert checked == 8


@pytest.mark.parametrize("picture", [NO_PARTNERS, ONE_FAR_KING, EIGHT_LEFT])
def test_first_swaps_of_rare_positions_agree_with_brute_force(picture: str) -> None:
    env = at(picture)
    marked = {tuple(BOTH[action].tolist()) for action in legal(env)}
    assert marked == brute_force_exchanges(env.state_rows()[0]["cells"])


def test_only_second_swaps_follow_a_first_though_it_made_a_fourteen() -> None:
    env = at(EIGHT_LEFT)
    env.step(swap_of("r1c4", "r2c2"))
    assert same(draw(env)) == same("""
        AS -- -- KS --
        -- 5S 9S -- --
        2S -- -- 3S --
        -- JS QS -- --
        -- -- -- -- --
    """)
    assert env.table()["swapped"] == ["r1c4", "r2c2"]
    assert all(action >= 100 for action in legal(env))
    assert not {3, 6} & {int(place) for action in legal(env) for place in BOTH[action]}
    assert swap_of("r3c1", "r4c2") in legal(env)
    with pytest.raises(InvalidAction, match="not legal"):
        env.step(pair_of("r1c1", "r1c4"))
    env.step(swap_of("r3c1", "r4c2"))
    assert "swapped" not in env.table()
    assert env.describe(legal(env)[0]) == "withdraw AS (row 1, column 1) and KS (row 1, column 4)"


def test_a_second_swap_may_not_destroy_the_only_fourteen() -> None:
    env = at("""
        AS -- -- -- --
        -- KS -- -- --
        -- -- 2S -- --
        -- -- -- QS --
        -- -- 7S -- 7S
    """, None)  # fmt: skip
    assert legal(env) == [pair_of("r5c3", "r5c5")]
    env = at("""
        AS -- -- -- --
        -- KS 7S -- --
        -- -- 2S -- --
        -- -- -- QS --
        -- -- -- -- 7S
    """)  # fmt: skip
    env.step(swap_of("r1c1", "r2c3"))  # the ace comes beside the king
    assert swap_of("r2c2", "r5c5") not in legal(env)
    assert swap_of("r3c3", "r5c5") in legal(env)


def test_four_cards_that_are_blocked_are_lost() -> None:
    assert legal(at(FOUR_LEFT)) == []


def test_exchanges_are_counted_when_completed() -> None:
    env = at(EIGHT_LEFT, exchanges=1)
    assert env.table()["exchanges"] == ["1"]
    env.step(swap_of("r1c4", "r2c2"))
    assert env.table()["exchanges"] == ["1"]
    env.step(swap_of("r3c1", "r4c2"))
    assert env.table()["exchanges"] == ["0"]
    env.load({**read(EIGHT_LEFT), "exchanges": ["0"]})
    assert legal(env) == []


def test_no_exchange_is_legal_with_exchanges_0() -> None:
    assert legal(at(EIGHT_LEFT, exchanges=0)) == []
    assert legal(at(EIGHT_LEFT)) != []


def test_by_default_spaces_stay() -> None:
    env = at(LAST_SIX)
    env.step(pair_of("r1c1", "r1c5"))
    assert same(draw(env)) == same("""
        -- -- -- -- --
        -- 7H -- -- 7S
        -- -- 2S -- QS
        -- -- -- -- --
        -- -- -- -- --
    """)


def test_close_gaps_moves_later_cards_up_in_reading_order() -> None:
    env = at("""
        AS 7H QS KS 7S
        2S -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
    """, close_gaps=True)  # fmt: skip
    env.step(pair_of("r1c1", "r1c4"))
    assert same(draw(env)) == same("""
        7H QS 7S 2S --
        -- -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
    """)


def test_the_game_is_won_when_all_cards_are_withdrawn() -> None:
    env = at(LAST_SIX)
    rewards = []
    for pair in (("r1c1", "r1c5"), ("r2c2", "r2c5"), ("r3c3", "r3c5")):
        _, reward, over, _, info = env.step(pair_of(*pair))
        rewards.append(reward)
    assert over
    assert rewards == pytest.approx([2 / 104] * 3)
    assert info["withdrawn"] == 104
    assert not info["action_mask"].any()


def test_a_won_game_returns_1() -> None:
    env = make(exchanges=1, close_gaps=True)
    policy = make_policy("greedy", "Fourteenth-v0")
    for deal in range(20):
        env.reset(options={"deal": deal})
        total, over = 0.0, False
        while not over:
            _, reward, over, _, info = env.step(policy.choose(env))
            total += reward
        assert total == info["withdrawn"] / 104
        if info["withdrawn"] == 104:
            return
    pytest.fail("no game of twenty is won")


def test_reward_win_pays_the_winning_move_only() -> None:
    env = at(LAST_SIX, reward="win")
    rewards = [env.step(pair_of(*pair))[1] for pair in (("r1c1", "r1c5"), ("r2c2", "r2c5"), ("r3c3", "r3c5"))]
    assert rewards == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exchanges": -1}, "whole number from 0 to 52, or None"),
        ({"exchanges": True}, "whole number from 0 to 52, or None"),
        ({"exchanges": 53}, "whole number from 0 to 52, or None"),
        ({"close_gaps": 1}, "choose one of False, True"),
    ],
)
def test_options_that_are_not_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"r6c1": ["AS"]}, {}, "there is no place 'r6c1'"),
        ({"r1c1": ["TH", "AS"]}, {}, "r1c1 holds 2 cards: a place takes one"),
        ({"r1c1": ["1H"]}, {}, "'1H' is no card"),
        ({"r1c1": ["??"]}, {}, "r1c1 must hold known cards"),
        ({"r1c1": ["3H"]}, {}, "3H lies in 3 places: there are two of each card"),
        ({"withdrawn": ["AS", "AD"]}, {}, "2 cards of rank A and 0 of rank K are withdrawn: they go in pairs"),
        ({"withdrawn": ["7S"]}, {}, "1 sevens are withdrawn"),
        ({"r1c1": [], "withdrawn": []}, {}, "r1c1 is empty, but a stock is left"),
        ({"stock": ["??"]}, {}, r"stock must be 79 times '\?\?'"),
        ({"stock": ["AS"] * 79}, {}, r"stock must be 79 times '\?\?'"),
        ({"r3c3": []}, {}, "are withdrawn: they go in pairs"),
        ({"exchanges": ["1"]}, {}, "exchanges are not limited"),
        ({"exchanges": ["2"]}, {"exchanges": 1}, "exchanges must hold one whole number from 0 to 1"),
        ({"swapped": ["r1c1"]}, {}, "swapped must name two places"),
        ({"swapped": ["r1c1", "r1c6"]}, {}, "swapped must name two places"),
        ({"swapped": ["r1c1", "r2c2"]}, {}, "there was a fourteen before its first swap"),
        ({"swapped": ["r1c1", "r2c2"], "exchanges": ["0"]}, {"exchanges": 1}, "no exchange is left"),
    ],
)
def test_tables_that_are_impossible(change: dict[str, list[str]], options: dict[str, Any], message: str) -> None:
    env = at(SOURCE, **options)
    before = env.get_state()
    with pytest.raises(ValueError, match=message):
        env.load({**read(SOURCE), **change})
    assert env.get_state() == before


def test_an_unfinished_exchange_must_be_possible() -> None:
    with pytest.raises(ValueError, match="no second swap can bring a fourteen"):
        at(NO_PARTNERS, {"swapped": ["r1c1", "r1c2"]})


def test_gaps_before_a_card_are_impossible_with_close_gaps() -> None:
    with pytest.raises(ValueError, match="a space lies before r4c3: with close_gaps the cards move up"):
        at(EIGHT_LEFT, close_gaps=True)


@pytest.mark.parametrize("options", [{}, {"exchanges": 2}, {"exchanges": 1, "close_gaps": True}])
def test_tables_round_trip_through_a_game(options: dict[str, Any]) -> None:
    env, twin = make(**options), make(**options)
    rng = np.random.default_rng(3)
    seen, _ = env.reset(options={"deal": 8})
    over = False
    while not over:
        copy, info = twin.load(env.table())
        assert twin.table() == env.table()
        assert (copy == seen).all()
        assert (info["action_mask"].astype(bool) == env.action_masks()).all()
        seen, _, over, _, _ = env.step(int(rng.choice(legal(env))))


def test_the_observation_shows_square_marks_counts_and_exchanges_left() -> None:
    env = at(EIGHT_LEFT, exchanges=3, observation="cards")
    observation, *_ = env.step(swap_of("r1c4", "r2c2"))
    assert observation[:25].tolist() == env.state_rows()[0]["cells"].tolist()
    assert np.flatnonzero(observation[25:50]).tolist() == [3, 6]
    assert observation[50:].tolist() == [0] * 17 + [3]
    full = at(SOURCE, observation="cards")
    observation, _ = full.load(full.table())
    ranks = Counter(card[0] for cards in read(SOURCE).values() for card in cards)
    suits = Counter(card[1] for cards in read(SOURCE).values() for card in cards)
    assert observation[50:63].tolist() == [8 - ranks[rank] for rank in "A23456789TJQK"]
    assert observation[63:].tolist() == [26 - suits[suit] for suit in "SHDC"]


def test_planes_align_the_marks_with_the_square() -> None:
    env = at(EIGHT_LEFT)
    planes, *_ = env.step(swap_of("r1c4", "r2c2"))
    assert planes.shape == (21, 5, 5)
    assert np.argwhere(planes[19]).tolist() == [[0, 3], [1, 1]]
    assert planes[17].sum() == 17


def test_the_stock_is_hidden() -> None:
    env = make()
    env.reset(options={"deal": 4})
    for _ in range(20):
        env.step(legal(env)[0])
    states = env.state_rows()
    turned = int(states[0]["turned"])
    assert 25 < turned < 103
    before = (env.table(), env.action_masks().tolist(), env._observation.tolist())
    states[0]["deck"][turned:] = states[0]["deck"][turned:][::-1].copy()
    env._rows.states[:] = states
    env._refresh()
    assert (env.table(), env.action_masks().tolist(), env._observation.tolist()) == before


def test_determinize_shuffles_the_stock_only() -> None:
    env = make()
    env.reset(options={"deal": 4})
    for _ in range(10):
        env.step(legal(env)[0])
    before = env.state_rows()[0]
    after = env.clone().determinize(1).state_rows()[0]
    turned = int(before["turned"])
    assert (after["deck"][:turned] == before["deck"][:turned]).all()
    assert (after["deck"][turned:] != before["deck"][turned:]).any()
    assert sorted(after["deck"].tolist()) == sorted(before["deck"].tolist())
    assert (after["cells"] == before["cells"]).all()
    assert after["deal"] == 0


@pytest.mark.parametrize("options", [{}, {"exchanges": 1, "close_gaps": True}])
def test_random_games_end_legally_and_conserve_cards(options: dict[str, Any]) -> None:
    env = make(**options)
    pack = Counter(deck(1, packs=2).tolist())
    for deal in range(100 if jit.JIT else 5):
        env.reset(options={"deal": deal})
        steps, total, over = 0, 0.0, False
        while not over:
            _, reward, over, _, info = env.step(env.sample())
            steps += 1
            total += reward
        row = env.state_rows()[0]
        assert steps <= 156
        assert total == info["withdrawn"] / 104
        assert Counter(row["deck"].tolist()) == pack
        assert info["withdrawn"] + np.count_nonzero(row["cells"]) + len(env.table()["stock"]) == 104
        assert len(env.table()["withdrawn"]) == info["withdrawn"]


def test_thumb_withdraws_so_that_most_can_follow() -> None:
    env = at("""
        AS KS -- -- --
        KH -- -- -- --
        -- -- -- -- --
        -- AH -- -- --
        -- -- -- -- --
    """)  # fmt: skip
    # The ace in the corner has both kings; with the king beside it the other two cards would be left out of line.
    policy = make_policy("thumb", "Fourteenth-v0")
    assert policy.choose(env) in (pair_of("r1c1", "r2c1"), pair_of("r1c2", "r4c2"))
