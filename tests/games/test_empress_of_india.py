"""The Empress of India: rules, table, observation, hidden information."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from gymnasium.error import InvalidAction

from patience_env.agents.policy import make_policy
from patience_env.cards import card_text, pack
from patience_env.env import PatienceEnv
from patience_env.jit import JIT
from patience_env.vector import PatienceVectorEnv

ID = "EmpressOfIndia-v0"
DEAL_ON = 1776
ORDER = {"S": "A23456789TJK", "C": "A23456789TJK", "H": "KQT98765432A", "D": "KQT98765432A"}
SUITS = {"spades": "S", "hearts": "H", "diamonds": "D", "clubs": "C"}
FOUNDATIONS = {f"{name} {i}": suit for name, suit in SUITS.items() for i in range(1, 5)}
ARMY = [f"army {i}" for i in range(1, 25)]
NAVY = [f"navy {i}" for i in range(1, 25)]
PUT_AWAY = Counter({"QC": 3, "QS": 4})
FOUR_PACKS = Counter(card_text(int(card)) for card in pack(4))


def new_game(**options: Any) -> PatienceEnv:
    return PatienceEnv(ID, observation="cards", illegal_action="raise", **options)


def play_two(army: int, navy: int) -> int:
    """The action that plays the cards of `army <army>` and `navy <navy>`, counted from 1 as on the table."""
    return 24 * (army - 1) + navy - 1


def army_on_navy(army: int, navy: int) -> int:
    return 576 + play_two(army, navy)


def navy_on_army(army: int, navy: int) -> int:
    return 1152 + play_two(army, navy)


def foundation(suit: str, top: str) -> list[str]:
    return [rank + suit for rank in ORDER[suit][: ORDER[suit].index(top) + 1]]


def picture(army: str, navy: str, red: str = "", black: str = "", **tops: str) -> dict[str, list[str]]:
    """A table: places from 1 on, covered/covering for a pair; foundations are full but for `tops` (S1="T")."""
    table = {name: foundation(suit, ORDER[suit][-1]) for name, suit in FOUNDATIONS.items()}
    for key, top in tops.items():
        name = next(name for name in FOUNDATIONS if name[0].upper() + name[-1] == key)
        table[name] = foundation(key[0], top)
    for names, cards in ((ARMY, army), (NAVY, navy)):
        table |= {name: place.split("/") for name, place in zip(names, cards.split(), strict=False)}
    return {**table, "red talon": red.split(), "black talon": black.split()}


def opened(army: str, navy: str, red: str = "", black: str = "", **tops: str) -> PatienceEnv:
    env = new_game()
    env.load(picture(army, navy, red, black, **tops))
    return env


def legal(env: PatienceEnv) -> list[int]:
    return np.flatnonzero(env.action_masks()).tolist()


def plays(env: PatienceEnv) -> list[int]:
    return [action for action in legal(env) if action < 576 or 1728 <= action < DEAL_ON]


def cards_of(table: dict[str, list[str]]) -> Counter[str]:
    return Counter(card for cards in table.values() for card in cards)


def plain_legal(table: dict[str, list[str]]) -> list[int]:
    """The legal actions, told from the table by the rule sheet, slowly and plainly."""
    wanted = set()
    for name, suit in FOUNDATIONS.items():
        if len(table[name]) < 12:
            wanted.add(ORDER[suit][len(table[name])] + suit)
    army, navy = [table[name] for name in ARMY], [table[name] for name in NAVY]
    both = [(i, j) for i in range(24) for j in range(24) if len(army[i]) == len(navy[j]) == 1]
    found = [24 * i + j for i, j in both if army[i][0] in wanted and navy[j][0] in wanted]
    found += [576 + 24 * i + j for i, j in both] + [1152 + 24 * i + j for i, j in both]
    found += [1728 + i for i, place in enumerate(army + navy) if len(place) == 2 and set(place) <= wanted]
    return found + ([DEAL_ON] if table["pack"] else [])


def test_the_deal_fills_army_and_navy_and_the_surplus_goes_to_a_talon() -> None:
    env = new_game()
    env.reset(options={"deal": 1})
    table = env.table()
    assert {name: table[name] for name in FOUNDATIONS} == {
        name: [("A" if suit in "SC" else "K") + suit] for name, suit in FOUNDATIONS.items()
    }
    assert {card[1] for name in ARMY for card in table[name]} == {"H", "D"}
    assert {card[1] for name in NAVY for card in table[name]} == {"S", "C"}
    assert [len(table[name]) for name in ARMY + NAVY] == [1] * 48
    assert table["empress"] == ["QC"]
    talons = table["red talon"] + table["black talon"]
    assert len(talons) > 0
    assert [] in (table["red talon"], table["black talon"])
    order = [card_text(int(card)) for card in env.state_rows()[0]["pack"]]
    assert [card for card in order if card[1] in "HD"][:24] == [table[name][0] for name in ARMY]
    assert [card for card in order if card[1] in "SC"][:24] == [table[name][0] for name in NAVY]
    assert len(table["pack"]) == 176 - 48 - len(talons)


def test_the_first_play_is_a_black_two_with_a_red_queen() -> None:
    env = new_game()
    for deal in range(20):
        env.reset(options={"deal": deal})
        table = env.table()
        queens = [i for i, name in enumerate(ARMY) if table[name][0][0] == "Q"]
        twos = [j for j, name in enumerate(NAVY) if table[name][0][0] == "2"]
        assert plays(env) == [24 * i + j for i in queens for j in twos]
    assert len(legal(env)) == len(queens) * len(twos) + 2 * 576 + 1


def test_nothing_is_played_but_one_red_and_one_black_at_once() -> None:
    # Wanted are AH, AD and JS; the knave of spades lies under the ace of hearts as a pair, which can be played.
    # The ace of diamonds fits too, but the king of spades beside it does not, so it has no partner.
    env = opened("AD", "JS/AH KS", H1="2", D1="2", S1="T")
    assert plays(env) == [1728 + 24]
    assert legal(env) == [army_on_navy(1, 2), navy_on_army(1, 2), 1728 + 24]


def test_two_cards_played_leave_two_vacancies_when_talons_and_pack_are_out() -> None:
    env = opened("AH AH", "KS KS", H1="2", H2="2", S1="J", S2="J")
    assert plays(env) == [play_two(1, 1), play_two(1, 2), play_two(2, 1), play_two(2, 2)]
    _, reward, terminated, *_ = env.step(play_two(2, 1))
    assert reward == pytest.approx(2 / 176)
    assert not terminated
    assert env.table()["army 2"] == env.table()["navy 1"] == []
    assert legal(env) == [play_two(1, 2), army_on_navy(1, 2), navy_on_army(1, 2)]
    _, _, terminated, *_ = env.step(play_two(1, 2))
    assert terminated
    assert legal(env) == []


def test_a_pair_is_played_at_once_or_not_at_all() -> None:
    # The ace of diamonds fits, but its partner, the king of spades, waits for the knave.
    env = opened("AD/KS AH", "JS", D1="2", H1="2", S1="T")
    assert plays(env) == [play_two(2, 1)]
    assert legal(env) == [play_two(2, 1), army_on_navy(2, 1), navy_on_army(2, 1)]
    env.step(play_two(2, 1))
    assert legal(env) == [1728]
    _, reward, terminated, *_ = env.step(1728)
    assert (reward, terminated) == (pytest.approx(2 / 176), True)


def test_pairs_that_wait_for_each_other_end_the_game() -> None:
    # The ace of diamonds waits for the two, whose partner waits for the partner of the ace.
    env = opened("AD/JS", "KS/2D", D1="3", S1="T")
    assert legal(env) == []


def test_a_pairing_lays_one_card_on_the_other_and_vacates_the_givers_place() -> None:
    env = opened("2D AD", "JS KS", D1="3", S1="T")
    env.step(army_on_navy(2, 2))
    assert (env.table()["army 2"], env.table()["navy 2"]) == ([], ["KS", "AD"])
    env = opened("2D AD", "JS KS", D1="3", S1="T")
    env.step(navy_on_army(2, 2))
    assert (env.table()["army 2"], env.table()["navy 2"]) == (["AD", "KS"], [])
    assert legal(env) == [play_two(1, 1), army_on_navy(1, 1), navy_on_army(1, 1)]
    with pytest.raises(InvalidAction, match="is not legal here"):
        env.step(army_on_navy(1, 2))


def deal_with_surplus(talon: str) -> PatienceEnv:
    env = new_game()
    for deal in range(100):
        env.reset(options={"deal": deal})
        if len(env.table()[talon]) > 1:
            break
    return env


def next_cards(env: PatienceEnv) -> list[str]:
    state = env.state_rows()[0]
    return [card_text(int(card)) for card in state["pack"][state["dealt"] :]]


@pytest.mark.parametrize("colour", ["red", "black"])
def test_a_vacancy_first_takes_the_top_of_its_own_talon(colour: str) -> None:
    env = deal_with_surplus(f"{colour} talon")
    before = env.table()
    env.step(army_on_navy(5, 7) if colour == "red" else navy_on_army(5, 7))
    place = "army 5" if colour == "red" else "navy 7"
    after = env.table()
    assert after[place] == before[f"{colour} talon"][-1:]
    assert after[f"{colour} talon"] == before[f"{colour} talon"][:-1]
    assert after["pack"] == before["pack"]


@pytest.mark.parametrize("colour", ["red", "black"])
def test_a_vacancy_without_a_talon_is_filled_from_the_pack_card_by_card(colour: str) -> None:
    other = "black" if colour == "red" else "red"
    suits = "HD" if colour == "red" else "SC"
    env = deal_with_surplus(f"{other} talon")
    before, coming = env.table(), next_cards(env)
    assert before[f"{colour} talon"] == []
    env.step(army_on_navy(5, 7) if colour == "red" else navy_on_army(5, 7))
    turned = next(i for i, card in enumerate(coming) if card[1] in suits)
    after = env.table()
    assert after["army 5" if colour == "red" else "navy 7"] == [coming[turned]]
    assert after[f"{other} talon"] == before[f"{other} talon"] + coming[:turned]
    assert len(after["pack"]) == len(before["pack"]) - turned - 1


def test_two_vacancies_are_filled_from_the_pack_each_in_its_colour() -> None:
    env = deal_with_surplus("red talon")
    while env.table()["red talon"]:
        single = next(i for i, name in enumerate(NAVY, 1) if len(env.table()[name]) == 1)
        env.step(army_on_navy(single, single))
    before, coming = env.table(), next_cards(env)
    assert before["red talon"] == before["black talon"] == []
    two_played = plays(env)
    if not two_played:
        pytest.fail("choose another deal: no play is possible here")
    army, navy = ARMY[two_played[0] // 24], NAVY[two_played[0] % 24]
    env.step(two_played[0])
    red = next(i for i, card in enumerate(coming) if card[1] in "HD")
    black = next(i for i, card in enumerate(coming) if card[1] in "SC")
    after = env.table()
    assert (after[army], after[navy]) == ([coming[red]], [coming[black]])
    surplus = coming[: max(red, black)]
    surplus = [card for i, card in enumerate(surplus) if i not in (red, black)]
    assert after["red talon"] + after["black talon"] == surplus


def test_dealing_on_lays_the_next_card_on_its_talon_until_the_pack_is_out() -> None:
    env = new_game()
    env.reset(options={"deal": 2})
    before, coming = env.table(), next_cards(env)
    for left in range(len(coming), 0, -1):
        assert len(env.table()["pack"]) == left
        _, reward, *_ = env.step(DEAL_ON)
        assert reward == 0.0
    after = env.table()
    assert after["red talon"] == before["red talon"] + [card for card in coming if card[1] in "HD"]
    assert after["black talon"] == before["black talon"] + [card for card in coming if card[1] in "SC"]
    assert (len(after["red talon"]), len(after["black talon"])) == (64, 64)
    assert DEAL_ON not in legal(env)


def test_a_won_game_returns_one_and_the_win_reward_comes_last() -> None:
    thumb = make_policy("thumb", ID)
    for deal in range(20):
        env, only_wins = new_game(), new_game(reward="win")
        env.reset(options={"deal": deal})
        only_wins.reset(options={"deal": deal})
        rewards, wins, terminated = [], [], False
        while not terminated:
            action = thumb.choose(env)
            _, reward, terminated, _, info = env.step(action)
            rewards.append(reward)
            wins.append(only_wins.step(action)[1])
        if sum(rewards) > 1 - 1e-9:
            break
    assert sum(rewards) == 1.0
    assert wins == [0.0] * (len(wins) - 1) + [1.0]
    assert not info["action_mask"].any()
    assert cards_of(env.table()) + PUT_AWAY == FOUR_PACKS
    assert len(rewards) <= 304


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pyramid": []}, "there is no pile 'pyramid': the piles are empress, knaves"),
        ({"army 1": ["XX"]}, "'XX' is no card"),
        ({"army 1": ["??"]}, r"army 1 holds \?\?: black 2 to T, J, K and red A to T, Q are played"),
        ({"navy 1": ["QS"]}, "navy 1 holds QS: black 2 to T, J, K"),
        ({"empress": ["QS"]}, r"empress must be \['QC'\] \(or left out\)"),
        ({"army 1": ["2S"]}, "army 1 holds 2S where a red card must lie"),
        ({"navy 1": ["2S", "3S"]}, "navy 1 holds 3S where a red card must lie"),
        ({"navy 1": ["2S", "3H", "4S"]}, "navy 1 holds 3 cards: it takes at most 2"),
        ({"black talon": ["3H"]}, "black talon holds 3H where a black card must lie"),
        ({"spades 1": ["2S"]}, r"spades 1 holds \['2S'\]: it must hold the first one or more of"),
        ({"hearts 1": ["KH", "QH"]}, "1 red and 0 black cards are played: every play lays one of each colour"),
        ({f"army {i}": ["QH"] for i in range(1, 6)}, "QH lies on the table . times: there are 4"),
        ({"army 9": [], "pack": None}, "army 9 is empty while the red talon holds"),
        ({"pack": ["??"]}, "pack must be .* times"),
    ],
)
def test_an_impossible_table_is_refused_and_nothing_changes(change: dict[str, Any], message: str) -> None:
    env = new_game()
    env.reset(options={"deal": 3})
    before = env.get_state()
    table = {name: cards for name, cards in {**env.table(), **change}.items() if cards is not None}
    with pytest.raises(ValueError, match=message):
        env.load(table)
    assert env.get_state() == before


def test_actions_are_described() -> None:
    env = opened("2D AD/KS", "JS", D1="3", S1="T")
    assert env.describe(play_two(1, 1)) == "play 2D from army 1 and JS from navy 1"
    assert env.describe(army_on_navy(1, 1)) == "pair 2D from army 1 with JS in navy 1"
    assert env.describe(navy_on_army(1, 1)) == "pair JS from navy 1 with 2D in army 1"
    assert env.describe(1728 + 1) == "play the pair AD and KS from army 2"
    assert env.describe(DEAL_ON) == "deal the next card of the pack to its talon"


def test_the_observation_shows_all_piles_and_the_packs_composition() -> None:
    env = new_game()
    env.reset(options={"deal": 2})
    env.step(army_on_navy(3, 4))
    seen, _ = env._refresh()
    assert env.observation_space.contains(seen)
    names = [*env.layout.places, *(counter.name for counter in env.layout.counters)]
    shown = dict(zip(names, seen.tolist(), strict=True))
    table, coming = env.table(), next_cards(env)
    for name in ARMY + NAVY:
        pair = [*table[name], "--", "--"][:2]
        assert [card_text(shown[name]), card_text(shown[f"{name} covering"])] == pair
    assert len(table["navy 4"]) == 2
    for name in ("red talon", "black talon"):
        pile = [card_text(shown[f"{name} {i}"]) for i in range(1, 65)]
        assert pile == table[name] + ["--"] * (64 - len(table[name]))
        assert card_text(shown[f"{name} top"]) == (table[name] or ["--"])[-1]
    assert [card_text(shown[f"{name} 1"]) for name in SUITS] == ["AS", "KH", "KD", "AC"]
    colours = Counter("red" if card[1] in "HD" else "black" for card in coming)
    assert (shown["pack red"], shown["pack black"]) == (colours["red"], colours["black"])
    ranks, suits = Counter(card[0] for card in coming), Counter(card[1] for card in coming)
    assert [shown[f"pack {rank}"] for rank in "A23456789TJQK"] == [ranks[rank] for rank in "A23456789TJQK"]
    assert [shown[f"pack {name}"] for name in SUITS] == [suits[suit] for suit in SUITS.values()]


def test_the_order_of_the_pack_cannot_be_seen_and_determinize_shuffles_it_alone() -> None:
    env = new_game()
    env.reset(options={"deal": 11})
    for _ in range(12):
        env.step(env.sample())
    seen, info = env._refresh()
    first = env.state_rows()[0]
    left = slice(int(first["dealt"]), None)
    assert first["pack"][left].size > 5
    reversed_twin = env.clone()
    hidden = reversed_twin._rows.states[0]["pack"][left]
    hidden[:] = hidden[::-1].copy()
    twins = [reversed_twin, *(env.clone().determinize(key) for key in range(4))]
    orders = set()
    for twin in twins:
        other, facts = twin._refresh()
        assert (other == seen).all()
        assert (facts["action_mask"] == info["action_mask"]).all()
        assert twin.table() == env.table()
        second = twin.state_rows()[0]
        assert sorted(second["pack"][left]) == sorted(first["pack"][left])
        orders.add(tuple(second["pack"][left].tolist()))
    assert len(orders) == 5
    assert twins[1].state_rows()[0]["deal"] == 0


def test_mask_and_tables_agree_with_the_plain_rules_and_load_again() -> None:
    thumb = make_policy("thumb", ID)
    env, other = new_game(), new_game()
    rng = np.random.default_rng(5)
    for deal in range(4 if JIT else 1):
        env.reset(options={"deal": deal})
        live, steps = True, 0
        while live:
            if steps % (8 if JIT else 24) == 0:
                table = env.table()
                assert legal(env) == plain_legal(table)
                assert cards_of(table) + Counter(next_cards(env)) + PUT_AWAY - Counter({"??": 200}) == FOUR_PACKS
                other.load(table)
                assert other.table() == table
                assert legal(other) == legal(env)
            action = env.sample() if rng.random() < 0.1 else thumb.choose(env)
            _, _, terminated, _, _ = env.step(action)
            live, steps = not terminated, steps + 1


def test_random_games_end_legally_and_keep_all_cards() -> None:
    games = 200 if JIT else 2
    env = PatienceVectorEnv(ID, games, observation="cards", illegal_action="raise")
    rng = np.random.default_rng(3)
    env.reset(seed=3)
    ended, steps = np.zeros(games, np.bool_), 0
    while not ended.all():
        _, rewards, terminated, truncated, info = env.step(env.sample(rng))
        steps += 1
        states = env.states()
        lying = (states["covered"] > 0).sum(1) + (states["covering"] > 0).sum(1) + states["talon_size"].sum(1)
        assert (lying + states["built"].sum(1) + 176 - states["dealt"] == 176).all()
        assert ((info["action_mask"].sum(1) == 0) == terminated).all()
        assert not truncated.any()
        assert (rewards >= 0).all()
        ended |= terminated
    assert steps <= 304


def test_the_thumb_wins_where_random_play_never_does() -> None:
    if not JIT:
        pytest.skip("a hundred games take too long in plain Python")
    env = PatienceVectorEnv(ID, 100, observation="cards", illegal_action="raise")
    _, info = env.reset(seed=1)
    kernel = type(make_policy("thumb", ID)).kernel  # type: ignore[attr-defined]
    returns, live = np.zeros(100), np.ones(100, np.bool_)
    while live.any():
        actions = np.zeros(100, np.int64)
        kernel(env.states(), info["action_mask"], actions)
        _, rewards, terminated, _, info = env.step(actions)
        returns += rewards * live
        live &= ~terminated
    assert 0.4 < (returns > 1 - 1e-9).mean() < 0.8


def test_the_thumb_plays_first_then_pairs_cards_of_equal_height_then_deals_on() -> None:
    thumb = make_policy("thumb", ID)
    env = new_game()
    env.reset(options={"deal": 4})
    kinds: Counter[str] = Counter()
    for _ in range(60):
        table, action = env.table(), thumb.choose(env)
        heights = [
            ORDER[table[name][0][1]].index(table[name][0][0]) if len(table[name]) == 1 else None for name in ARMY + NAVY
        ]
        equal = {height for height in heights[:24] if height is not None} & set(heights[24:])
        if plays(env):
            assert action in plays(env)
            kinds["play"] += 1
        elif equal:
            assert 576 <= action < 1728
            assert heights[action % 576 // 24] == heights[24 + action % 24] == max(equal)
            kinds["pair"] += 1
        else:
            assert action == DEAL_ON
            kinds["deal"] += 1
        env.step(action)
    assert min(kinds["play"], kinds["pair"]) > 0
