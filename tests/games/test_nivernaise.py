"""La Nivernaise: the rules of `seeds/rules/nivernaise.md`, position by position."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from patience_env import jit
from patience_env.agents.policy import make_policy
from patience_env.cards import card_text, pack
from patience_env.deals import deck
from patience_env.env import PatienceEnv
from patience_env.games.nivernaise import (
    PACKET_TO_FLANK,
    PACKET_TO_FOUNDATION,
    REDEAL,
    ROUND,
    STOCK,
    STOCK_TO_FLANK,
    TRANSFER,
)

ASCENDING = {suit: [rank + suit for rank in "A23456789TJQK"] for suit in "SHDC"}
TIMES = 200 if jit.JIT else 20  # plain Python is slow
SUITS = {"spades": "S", "hearts": "H", "diamonds": "D", "clubs": "C"}


def make(**options: Any) -> PatienceEnv:
    env = PatienceEnv("Nivernaise-v0", observation="cards", illegal_action="raise", **options)
    env.reset(options={"deal": 1})
    return env


def foundations(**heights: tuple[int, int]) -> dict[str, list[str]]:
    """Return foundations of the given heights; suits not named are complete."""
    piles = {}
    for name, suit in SUITS.items():
        up, down = heights.get(name, (13, 13))
        piles[f"{name} up"] = ASCENDING[suit][:up]
        piles[f"{name} down"] = ASCENDING[suit][::-1][:down]
    return piles


def legal(env: PatienceEnv) -> list[int]:
    return [int(action) for action in np.flatnonzero(env.action_masks())]


def all_cards(env: PatienceEnv) -> Counter[int]:
    """Return the cards of a state, hidden ones included."""
    state = env.state_rows()[0]
    cards = Counter(int(card) for card in [*state["flank"], *state["cards"]] if card)
    for suit in range(4):
        cards.update(13 * suit + rank for rank in range(1, state["up"][suit] + 1))
        cards.update(13 * suit + 14 - rank for rank in range(1, state["down"][suit] + 1))
    return cards


def finish(env: PatienceEnv, deal: int) -> tuple[float, bool]:
    """Play a deal by the rule of thumb; return the return and whether it was won."""
    env.reset(options={"deal": deal})
    thumb = make_policy("thumb", "Nivernaise-v0")
    total, over = 0.0, False
    while not over:
        _, reward, over, _, _ = env.step(thumb.choose(env))
        total += reward
    return total, not any(env.table()[f"packet {p}"] for p in range(1, 7))


#   flanks 2H QH JH TH | 9H 8H 7H AS     clubs down  KC QC JC     stock  72
#   packets  ?? 3C 4C 5C | KS | ?? ?? ?? 6H | ?? ?? ?? 5H | ?? ?? ?? 4H | ?? ?? ?? 3H
DEALT = {
    "clubs down": ["KC", "QC", "JC"],
    **{f"flank {i}": [card] for i, card in enumerate(["2H", "QH", "JH", "TH", "9H", "8H", "7H", "AS"], 1)},
    "packet 1": ["??", "3C", "4C", "5C"],
    "packet 2": ["KS"],
    **{f"packet {p}": ["??", "??", "??", card] for p, card in zip(range(3, 7), ["6H", "5H", "4H", "3H"], strict=True)},
}


def test_flanks_take_the_first_eight_cards_then_each_packet_four_together() -> None:
    env = make()
    cards = [card_text(int(card)) for card in deck(1, 2)]
    table = env.table()
    assert [table[f"flank {i}"][0] for i in range(1, 9)] == cards[:8]
    for p in range(6):
        assert table[f"packet {p + 1}"] == ["??", "??", "??", cards[8 + 4 * p + 3]]
    assert table["stock"] == ["??"] * 72
    assert env.state_rows()[0]["cards"][STOCK + 32] == deck(1, 2)[32]


def test_only_aces_kings_and_the_round_are_legal_at_the_start() -> None:
    env = make()
    for deal in range(30):
        env.reset(options={"deal": deal})
        table = env.table()
        tops = [table[f"flank {i}"][-1] for i in range(1, 9)] + [table[f"packet {p}"][-1] for p in range(1, 7)]
        plays = [2 * i + (card[0] == "K") for i, card in enumerate(tops) if card[0] in "AK"]
        assert legal(env) == [*plays, ROUND]


def test_flank_and_top_cards_go_to_the_foundations_of_their_suit() -> None:
    env = make()
    env.load(DEALT)
    assert legal(env) == [2 * 7, PACKET_TO_FOUNDATION + 2 + 1, ROUND]
    assert env.describe(14) == "flank 8: AS to the foundation built up"
    _, reward, *_ = env.step(14)
    assert reward == 1 / 104
    assert env.table()["spades up"] == ["AS"]
    assert env.table()["flank 8"] == []


def test_an_emptied_packet_is_dealt_four_at_once() -> None:
    env = make()
    env.load(DEALT)
    coming = [card_text(int(card)) for card in env.state_rows()[0]["cards"][STOCK : STOCK + 4]]
    env.step(PACKET_TO_FOUNDATION + 2 + 1)
    table = env.table()
    assert table["spades down"] == ["KS"]
    assert table["packet 2"] == ["??", "??", "??", coming[3]]
    assert len(table["stock"]) == 68


def test_packets_are_looked_into_as_deep_as_there_are_vacancies() -> None:
    env = make()
    env.load({**DEALT, "packet 1": ["??", "??", "??", "5C"]})
    assert env.table()["packet 1"] == ["??", "??", "??", "5C"]
    env.step(14)
    assert [card != "??" for card in env.table()["packet 1"]] == [False, False, True, True]
    env.step(PACKET_TO_FLANK)
    assert [card != "??" for card in env.table()["packet 1"]] == [False, False, True], "the vacancy is gone again"
    assert env.table()["flank 8"] == ["5C"]


def test_a_card_goes_to_the_lowest_numbered_vacancy_from_packet_or_stock() -> None:
    env = make()
    env.load({**DEALT, "flank 3": [], "flank 6": [], "clubs up": ["AC", "2C"]})
    coming = card_text(int(env.state_rows()[0]["cards"][STOCK]))
    assert legal(env) == [14, 19, *range(PACKET_TO_FLANK, PACKET_TO_FLANK + 6), STOCK_TO_FLANK, ROUND]
    env.step(STOCK_TO_FLANK)
    assert env.table()["flank 3"] == [coming]
    env.step(PACKET_TO_FLANK + 1)
    assert env.table()["flank 6"] == ["KS"]
    assert len(env.table()["packet 2"]) == 4
    assert not set(legal(env)) & set(range(PACKET_TO_FLANK, STOCK_TO_FLANK + 1))


def test_a_short_last_round_deals_fours_then_what_remains() -> None:
    env = make()
    packets = {f"packet {p}": ["??"] for p in range(1, 7)}
    env.load({**foundations(spades=(0, 0)), **packets, "flank 1": ["2S"], "flank 2": ["3S"]})
    assert len(env.table()["stock"]) == 18
    env.step(ROUND)
    assert [len(env.table()[f"packet {p}"]) for p in range(1, 7)] == [5, 5, 5, 5, 3, 1]
    assert env.table()["stock"] == []
    assert ROUND not in legal(env)


def test_an_emptied_packet_takes_what_remains_of_the_stock() -> None:
    env = make()
    packets = {"packet 1": ["KS"], **{f"packet {p}": ["??"] * 4 for p in range(2, 7)}}
    env.load({**foundations(spades=(0, 0)), **packets, "flank 1": ["2S"], "flank 2": ["3S"]})
    env.step(PACKET_TO_FOUNDATION + 1)
    assert len(env.table()["packet 1"]) == 3
    env.load({**foundations(spades=(0, 0)), **packets, **{f"flank {i}": [f"{i + 1}S"] for i in range(1, 6)}})
    env.step(PACKET_TO_FOUNDATION + 1)
    assert env.table()["packet 1"] == []


#   packet 1  AS 2S     packet 2  9S     packet 3  8S 7S     the stock is out
REDEALT = {
    **foundations(spades=(0, 0)),
    "packet 1": ["4S", "2S"],
    "packet 2": ["9S"],
    "packet 3": ["8S", "7S"],
    "packet 4": ["QS", "JS", "3S", "4S"],
    **{f"flank {i + 1}": [card] for i, card in enumerate(["2S", "3S", "5S", "5S", "6S", "6S", "7S", "8S"])},
    "packet 5": ["9S", "TS", "TS", "JS", "QS", "KS", "KS"],
    "packet 6": ["AS", "AS"],
}


def test_the_redeal_takes_packets_from_the_left_turns_and_deals_anew() -> None:
    env = make()
    env.load(REDEALT)
    assert legal(env) == [PACKET_TO_FOUNDATION + 9, PACKET_TO_FOUNDATION + 10, REDEAL]
    env.step(REDEAL)
    table = env.table()
    assert table["packet 1"] == ["4S", "2S", "9S", "8S"]
    assert table["packet 2"] == ["7S", "QS", "JS", "3S"]
    assert table["packet 3"] == ["4S", "9S", "TS", "TS"]
    assert table["packet 4"] == ["JS", "QS", "KS", "KS"]
    assert table["packet 5"] == ["AS", "AS"]
    assert table["packet 6"] == []
    assert table["redeals"] == ["0"]
    assert REDEAL not in legal(env)


def test_cards_seen_stay_known_through_the_redeal() -> None:
    env = make()
    for _ in range(3):
        env.step(ROUND)
    known = [card for p in range(1, 7) for card in env.table()[f"packet {p}"]]
    assert legal(env)[-1] == REDEAL
    observation, *_ = env.step(REDEAL)
    table = env.table()
    again = [card for p in range(1, 7) for card in table[f"packet {p}"]]
    assert len(known) == 96
    assert sum(card != "??" for card in known) == 24
    assert table["stock"][::-1] == known[24:]
    assert [card for card, before in zip(again, known, strict=False) if before != "??"] == [
        card for card in known[:24] if card != "??"
    ]
    assert [card_text(int(code)) for code in observation[112:184]] == known[24:]


def test_there_is_no_redeal_with_an_empty_line_or_a_stock() -> None:
    env = make()
    assert REDEAL not in legal(env)
    env.load({**foundations(spades=(12, 12)), "flank 1": ["KS"], "flank 2": ["AS"]})
    assert legal(env) == [0, 3]


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [
        (6, 7, [TRANSFER, TRANSFER + 1]),
        (1, 12, [TRANSFER + 1]),
        (12, 1, [TRANSFER]),
        (0, 13, []),
        (6, 6, []),
        (6, 8, []),
    ],
)
def test_the_tops_of_a_suit_pass_but_the_bases_do_not(up: int, down: int, expected: list[int]) -> None:
    env = make()
    env.load({**foundations(spades=(up, down)), "packet 1": ["??"] * (26 - up - down)})
    assert [action for action in legal(env) if TRANSFER <= action < ROUND] == expected


def test_a_transfer_moves_one_card_for_nothing_and_back() -> None:
    env = make()
    env.load({**foundations(hearts=(6, 7)), "packet 1": ["??"] * 13})
    before = env.table()
    _, reward, *_ = env.step(TRANSFER + 2)
    assert reward == 0.0
    assert env.table()["hearts up"] == ASCENDING["H"][:5]
    assert env.table()["hearts down"] == ASCENDING["H"][:5:-1] + ["6H"]
    assert env.describe(TRANSFER + 3) == "hearts: top card of the foundation built down to the one built up"
    env.step(TRANSFER + 3)
    assert env.table() == before


def test_a_game_without_legal_actions_is_over() -> None:
    env = make()
    stuck = {
        **foundations(spades=(0, 0)),
        **{f"flank {i}": [card] for i, card in enumerate(["2S", "3S", "4S", "5S", "6S", "7S", "8S", "9S"], 1)},
        "packet 1": ["AS", "AS", "KS", "KS", "TS", "TS", "JS", "2S"],
        "packet 2": ["JS", "QS", "QS", "3S", "4S", "5S", "6S", "7S", "8S", "9S"],
    }
    env.load({**stuck, "redeals": ["1"]})
    assert legal(env) == [REDEAL]
    env.load({**stuck, "redeals": ["0"]})
    assert legal(env) == []


def test_the_last_card_wins_and_ends_the_game() -> None:
    env = make()
    env.load({**foundations(clubs=(13, 12)), "packet 4": ["AC"]})
    assert PACKET_TO_FOUNDATION + 7 in legal(env)
    _, reward, over, _, _ = env.step(PACKET_TO_FOUNDATION + 7)
    assert (reward, over, legal(env)) == (pytest.approx(1 / 104), True, [])


def test_a_won_game_returns_one() -> None:
    total, won = finish(make(), 99)
    assert won
    assert total == 1.0


def test_the_win_reward_is_one_on_the_last_move_only() -> None:
    total, won = finish(make(reward="win"), 99)
    assert (total, won) == (1.0, True)


def test_random_games_end_legally_and_conserve_the_cards() -> None:
    env = make()
    whole = Counter(pack(2).tolist())
    for deal in range(TIMES):
        env.reset(options={"deal": deal})
        for _ in range(500):
            env.step(env.sample())
            if not legal(env):
                break
        assert all_cards(env) == whole
        assert legal(env) == []


def test_text_round_trips_through_whole_games() -> None:
    env, other = make(), make()
    for deal in range(10):
        env.reset(options={"deal": deal})
        while legal(env):
            observation, *_ = env.step(env.sample())
            seen, _ = other.load(env.table())
            assert other.table() == env.table()
            assert np.array_equal(seen, observation)
            assert legal(other) == legal(env)


def played(env: PatienceEnv, deal: int, steps: int) -> NDArray[Any]:
    env.reset(options={"deal": deal})
    for _ in range(steps):
        if legal(env):
            env.step(env.sample())
    return env.state_rows()


def test_nothing_shown_depends_on_the_order_of_hidden_cards() -> None:
    env = make()
    for deal in range(20):
        played(env, deal, 3 + deal)
        before = env.table(), legal(env), env.load(env.table())[0]
        state = env._rows.states[0]
        hidden = np.flatnonzero(state["hidden"])
        state["cards"][hidden] = np.roll(state["cards"][hidden], 5)
        observation, _ = env._refresh()
        assert (env.table(), legal(env)) == before[:2]
        assert np.array_equal(observation, before[2])


def test_determinize_keeps_all_that_is_known_and_moves_the_rest() -> None:
    env = make()
    for deal in range(10):
        before = played(env, deal, 4 + deal)[0]
        shown = env.table(), legal(env)
        observation = env._rows.observations[0].copy()
        cards = all_cards(env)
        env.determinize(7)
        after = env.state_rows()[0]
        assert np.array_equal(env._refresh()[0], observation)
        assert (env.table(), legal(env)) == shown
        assert all_cards(env) == cards
        assert after["deal"] == 0
        known = before["hidden"] == 0
        assert np.array_equal(before["cards"][known], after["cards"][known])
        assert np.count_nonzero(before["cards"] != after["cards"]) > 3 or before["hidden"].sum() < 10


def test_determinize_depends_on_no_hidden_card() -> None:
    env = make()
    for deal in range(10):
        played(env, deal, 4 + deal)
        once = env.clone().determinize(7).state_rows()
        state = env._rows.states[0]
        hidden = np.flatnonzero(state["hidden"])
        state["cards"][hidden] = np.roll(state["cards"][hidden], 5)
        assert (env.determinize(7).state_rows() == once).all()


def test_determinize_gives_every_order_of_the_hidden_cards_alike() -> None:
    env = make()
    env.reset(options={"deal": 3})
    seen: Counter[int] = Counter()
    for key in range(TIMES):
        twin = env.clone().determinize(key)
        seen[int(twin.state_rows()[0]["cards"][0] - 1) // 13] += 1
    unseen = env._rows.observations[0][184 + 13 : 184 + 17].astype(float)
    for suit in range(4):
        expected = TIMES * unseen[suit] / unseen.sum()
        assert abs(seen[suit] - expected) < 5 * np.sqrt(expected)


def test_the_observation_holds_places_and_counters() -> None:
    env = make()
    observation, _ = env.load(DEALT)
    assert observation.shape == (203,)
    names = [card_text(int(code)) for code in observation[:184]]
    assert names[:16] == ["2H", "QH", "JH", "TH", "9H", "8H", "7H", "AS"] + ["--"] * 7 + ["JC"]
    assert names[16:21] == ["5C", "4C", "3C", "??", "--"]
    assert names[32:34] == ["KS", "--"]
    assert names[112:116] == ["??"] * 4
    assert observation[184:197].sum() == observation[197:201].sum() == np.count_nonzero(observation[:184] == 53)
    assert observation[201:].tolist() == [1, 0]
    observation, *_ = env.step(14)
    assert card_text(int(observation[8])) == "AS"
    assert observation[202] == 1


def test_describe_tells_every_action() -> None:
    env = make()
    env.load(DEALT)
    texts = [env.describe(action) for action in range(45)]
    assert len(set(texts)) == 45
    assert texts[PACKET_TO_FOUNDATION + 3] == "packet 2: KS to the foundation built down"
    assert texts[PACKET_TO_FLANK] == "packet 1: 5C to a vacant flank"
    assert texts[STOCK_TO_FLANK] == "the next card of the stock to a vacant flank"
    assert texts[ROUND:] == ["deal a round: four cards on each packet", "redeal the Line"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"flank 9": ["AS"]}, "there is no place 'flank 9'"),
        ({"flank 1": ["AS", "2S"]}, "flank 1 holds 2 cards: a flank takes one"),
        ({"flank 1": ["??"]}, "flank 1 holds ??: its card is known"),
        ({"flank 1": ["1S"]}, "'1S' is no card"),
        ({f"flank {i}": ["AS"] for i in range(1, 4)}, "flank 3 holds a third AS"),
        ({"spades up": ["2S"]}, "spades up holds 2S: it is built AS"),
        ({"hearts down": ["KH", "JH"]}, "hearts down holds KH JH: it is built KH QH"),
        ({"stock": ["??"] * 71}, "the table holds 71 cards: two packs have 104"),
        ({}, "the stock would hold 104 cards: it never holds more than 72"),
        ({f"packet {p}": ["??"] * (5 if p == 1 else 6) for p in range(1, 7)}, "packet 1 holds 5 cards: .* at most 4"),
        (
            {"spades up": ASCENDING["S"], **{f"packet {p}": ["??"] * 4 for p in (1, 3, 4, 5, 6)}, "flank 1": ["KS"]},
            "packet 2 is empty",
        ),
        ({**DEALT, "redeals": ["2"]}, "redeals must be"),
    ],
)
def test_impossible_tables_are_refused_and_change_nothing(table: dict[str, Any], message: str) -> None:
    env = make()
    before = env.get_state()
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        env.load(table)
    assert env.get_state() == before
