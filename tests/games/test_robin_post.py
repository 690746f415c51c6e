"""Robin Post: the rules of `seeds/rules/robin_post.md`, position by position."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from patience_env import jit
from patience_env.agents.policy import make_policy
from patience_env.cards import card_text, pack
from patience_env.deals import deck
from patience_env.env import PatienceEnv
from patience_env.games.robin_post import FILL, FOUNDATION, NAMES, TRANSFER, TURN, WASTE

TIMES = 200 if jit.JIT else 5  # plain Python is slow
ASCENDING = {suit: [rank + suit for rank in "A23456789TJQK"] for suit in "SHDC"}
SUITS = {"spades": "S", "hearts": "H", "diamonds": "D", "clubs": "C"}
# A frame for small positions: in the middle two piles of thirteen, which neither move nor take anything.
CORE = {
    **{f"{name} up": ASCENDING[SUITS[name]][:height] for name, height in zip(SUITS, (4, 4, 2, 3), strict=True)},
    **{f"{name} down": ASCENDING[suit][:8:-1] for name, suit in SUITS.items()},
    "r4c4": ["KS", "QH", "JS", "TH", "9S", "8D", "7C", "6H", "5S", "4H", "3S", "2H", "AS"],
    "r6c4": ["KD", "QC", "JD", "TC", "9D", "8S", "7H", "6C", "5D", "4C", "3D", "2C", "AD"],
    "waste": ["2S"],
}


def make(**options: Any) -> PatienceEnv:
    env = PatienceEnv("RobinPost-v0", observation="cards", illegal_action="raise", **options)
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


def number(source: str, side: int, colour: int, copy: int = 0) -> int:
    """Return the number of a packing action."""
    place = WASTE if source == "waste" else NAMES.index(source)
    return 8 * place + 4 * side + 2 * colour + copy


def packings(env: PatienceEnv) -> list[str]:
    return [env.describe(action) for action in legal(env) if action < FOUNDATION]


def pack_at(env: PatienceEnv, source: str, target: str) -> None:
    """Pack a source on the card at a position; there must be exactly one such action."""
    (action,) = [
        action
        for action in legal(env)
        if action < FOUNDATION
        and env.describe(action).startswith(f"{source}:")
        and env.describe(action).endswith(f" at {target}")
    ]
    env.step(action)


def all_cards(env: PatienceEnv) -> Counter[int]:
    """Return the cards of a state, hidden ones included."""
    state = env.state_rows()[0]
    cards = Counter(int(card) for card in [*state["layout"], *state["waste"], *state["deck"][state["first"] :]] if card)
    for suit in range(4):
        cards.update(13 * suit + rank for rank in range(1, state["up"][suit] + 1))
        cards.update(13 * suit + 14 - rank for rank in range(1, state["down"][suit] + 1))
    return cards


def test_the_first_fifty_two_cards_fill_the_rows_in_reading_order() -> None:
    env = make()
    cards = [card_text(int(card)) for card in deck(1, 2)]
    table = env.table()
    assert [table[name] for name in NAMES] == [[card] for card in cards[:52]]
    assert NAMES[:5] == ("r1c1", "r1c2", "r1c3", "r1c4", "r2c1")
    assert NAMES[-1] == "r9c4"
    assert table["waste"] == []
    assert table["stock"] == ["??"] * 52
    assert [card_text(int(card)) for card in env.state_rows()[0]["deck"][52:]] == cards[52:]


def test_ten_cards_may_be_lifted_twelve_only_packed_on_and_thirty_neither() -> None:
    free = make().state_rows()[0]["free"]
    rows = np.split(free, np.cumsum((4, 5, 6, 7, 8, 7, 6, 5)))
    picture = [" ".join(map(str, row)) for row in rows]
    assert picture == [
        "2 2 2 2",
        "1 0 0 0 1",
        "1 0 0 0 0 1",
        "1 0 0 0 0 0 1",
        "2 0 0 0 0 0 0 2",
        "1 0 0 0 0 0 1",
        "1 0 0 0 0 1",
        "1 0 0 0 1",
        "2 2 2 2",
    ]
    assert ((free >= 2).sum(), (free == 1).sum(), (free == 0).sum()) == (10, 12, 30)


@pytest.mark.parametrize("top", [["QC", "TH"], ["TD", "QC"]])
@pytest.mark.parametrize("jack", ["JH", "JD"])
def test_packing_queen_and_ten_frees_the_two_rightmost_cards_of_row_two(top: list[str], jack: str) -> None:
    """Draw the known position of the rule sheet.

    .  .  QC TH         row 1
    9S .  .  .  .       row 2, whose last two cards become free
    .  .  .  .  .  .
    JD .  .  .  .  .  . row 4
    """
    env = make()
    given = {"r1c3": [top[0]], "r1c4": [top[1]], "r4c1": [jack], "r2c1": ["9S"]}
    env.load({**{name: ["??"] for name in NAMES}, **given})
    for name, card in (("r1c3", top[0]), ("r1c4", top[1])):
        pack_at(env, name, "r4c1" if card == "QC" else "r2c1")
    table = env.table()
    assert table["r1c3"] == table["r1c4"] == []
    assert table["r4c1"] == [jack, "QC"]
    assert table["r2c1"] == ["9S", top[0] if top[1] == "QC" else top[1]]
    free = env.state_rows()[0]["free"]
    assert [free[NAMES.index(name)] for name in ("r2c3", "r2c4", "r2c5")] == [1, 2, 2]


def test_a_card_is_packed_up_or_down_in_the_opposite_colour() -> None:
    env = make()
    env.load({**CORE, "r1c1": ["7S"], "r1c3": ["8H"], "r9c1": ["6D"], "r9c3": ["8C"], "r5c1": ["6S"]})
    assert [text for text in packings(env) if text.startswith("r1c1")] == [
        "r1c1: 7S on the first 6D at r9c1",
        "r1c1: 7S on the first 8H at r1c3",
    ]
    assert {number("r1c1", 0, 1), number("r1c1", 1, 0)} <= set(legal(env))
    assert number("r1c1", 0, 0) not in legal(env)
    env.step(number("r1c1", 1, 0))
    assert env.table()["r1c3"] == ["8H", "7S"]
    assert env.table()["r1c1"] == []


def test_equal_targets_are_numbered_in_reading_order() -> None:
    env = make()
    env.load({**CORE, "r1c1": ["7S"], "r9c1": ["8H"], "r5c8": ["8H"]})
    assert [text for text in packings(env) if text.startswith("r1c1")] == [
        "r1c1: 7S on the first 8H at r5c8",
        "r1c1: 7S on the second 8H at r9c1",
    ]
    env.step(number("r1c1", 1, 0, 1))
    assert env.table()["r9c1"] == ["8H", "7S"]


def test_a_pile_moves_as_a_whole_and_keeps_its_direction() -> None:
    env = make()
    env.load({**CORE, "r1c1": ["5H", "6S"], "r1c3": ["3D", "4C"], "r9c1": ["7D"], "r9c3": ["6D", "5C"]})
    assert [text for text in packings(env) if text.startswith("r1c1")] == [
        "r1c1: 5H 6S on the first 4C at r1c3",
        "r1c1: 5H 6S turned over on the first 7D at r9c1",
    ]
    env.step(number("r1c1", 0, 1))
    assert env.table()["r1c3"] == ["3D", "4C", "5H", "6S"]


def test_a_pile_is_turned_over_only_onto_a_single_card() -> None:
    env = make()
    position = {**CORE, "r1c1": ["5H", "6S"], "r9c1": ["7D"]}
    env.load(position)
    env.step(number("r1c1", 1, 1))
    assert env.table()["r9c1"] == ["7D", "6S", "5H"]
    env.load({**position, "r9c1": ["8C", "7D"]})
    assert [text for text in packings(env) if text.startswith("r1c1")] == []
    assert "r9c1: 8C 7D turned over" not in " ".join(packings(env))


def test_a_pile_takes_no_card_against_its_direction() -> None:
    env = make()
    env.load({**CORE, "r1c1": ["5H"], "r9c1": ["5C", "6D"], "r1c3": ["7D", "6S"], "r9c3": ["5D", "6C"]})
    assert [text for text in packings(env) if text.startswith("r1c1")] == ["r1c1: 5H on the first 6S at r1c3"]


def test_one_free_corner_lets_a_card_be_packed_on_but_not_lifted() -> None:
    env = make()
    env.load({**{name: ["??"] for name in NAMES}, "r1c1": ["7S"], "r2c1": ["8H"], "r2c2": ["8D"], "r3c1": ["9C"]})
    texts = packings(env)
    assert "r1c1: 7S on the first 8H at r2c1" in texts or "r1c1: 7S on the second 8H at r2c1" in texts
    assert not any(text.endswith("r2c2") for text in texts), "8D is blocked"
    assert not any(text.startswith("r2c1") for text in texts), "8H has one free corner only"


def test_only_the_top_of_a_pile_that_may_be_lifted_goes_to_a_foundation_alone() -> None:
    env = make()
    env.load({**CORE, "hearts up": ASCENDING["H"][:4], "r1c1": ["6S", "5H"], "r1c3": ["5H", "6S"]})
    assert FOUNDATION + 2 * NAMES.index("r1c1") in legal(env)
    assert FOUNDATION + 2 * NAMES.index("r1c3") not in legal(env)
    _, reward, *_ = env.step(FOUNDATION)
    assert reward == pytest.approx(1 / 104)
    assert env.table()["r1c1"] == ["6S"]
    assert env.table()["hearts up"] == ASCENDING["H"][:5]
    full = {name: ["??"] for name in NAMES}
    env.load({**full, "r1c1": ["AS"], "r2c1": ["KS"], "r2c2": ["AS"]})
    assert FOUNDATION in legal(env)
    assert FOUNDATION + 2 * 4 + 1 not in legal(env), "KS in r2c1 has one free corner"
    assert FOUNDATION + 2 * 5 not in legal(env), "AS in r2c2 has none"


def test_a_card_that_fits_both_foundations_has_two_actions() -> None:
    env = make()
    env.load({**foundations(clubs=(6, 6)), "r1c1": ["7C"]})
    assert {FOUNDATION, FOUNDATION + 1} <= set(legal(env))
    env.step(FOUNDATION + 1)
    assert env.table()["clubs down"][-1] == "7C"


def test_a_turned_card_is_playable_to_foundations_and_layout_but_not_into_a_vacancy() -> None:
    env = make()
    env.load({**CORE, "r1c1": ["7S"], "waste": [*CORE["waste"], "8D"]})
    assert [text for text in packings(env) if text.startswith("waste")] == ["waste: 8D on the first 7S at r1c1"]
    assert not any("on the first 8D" in text for text in packings(env)), "nothing is packed on the waste"
    env.step(number("waste", 0, 0))
    assert env.table()["r1c1"] == ["7S", "8D"]
    assert env.table()["waste"] == CORE["waste"]
    coming = card_text(int(env.state_rows()[0]["deck"][env.state_rows()[0]["first"]]))
    env.step(TURN)
    assert env.table()["waste"][-1] == coming


def test_vacancies_are_filled_in_reading_order_until_the_stock_is_out() -> None:
    env = make()
    few = {"spades up": ASCENDING["S"][:4], "waste": ["??"] * 20}
    env.load({**{name: ["??"] for name in NAMES if name not in ("r1c2", "r5c3", "r9c4")}, **few})
    state = env.state_rows()[0]
    coming = [card_text(int(card)) for card in state["deck"][state["first"] :][:3]]
    assert FILL in legal(env)
    env.step(FILL)
    assert [env.table()[name] for name in ("r1c2", "r5c3", "r9c4")] == [[card] for card in coming]
    assert FILL not in legal(env), "no vacancy is left"
    left = dict.fromkeys(("spades", "hearts"), (10, 10))
    env.load({**foundations(**left), "r1c1": ["??"], "r1c3": ["??"]})
    assert env.table()["stock"] == ["??"] * 10
    env.step(FILL)
    assert [name for name in NAMES if env.table()[name]] == list(NAMES[:12])
    assert env.table()["stock"] == []
    assert not {TURN, FILL} & set(legal(env))


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [(6, 7, [0, 1]), (1, 12, [1]), (12, 1, [0]), (0, 13, []), (6, 6, []), (6, 8, [])],
)
def test_the_tops_of_a_suit_pass_but_the_bases_do_not(up: int, down: int, expected: list[int]) -> None:
    env = make()
    env.load(foundations(diamonds=(up, down)))
    assert [action - TRANSFER - 4 for action in legal(env) if TRANSFER <= action < TURN] == expected


def test_a_transfer_moves_one_card_for_nothing() -> None:
    env = make()
    env.load(foundations(hearts=(6, 7)))
    _, reward, *_ = env.step(TRANSFER + 2)
    assert reward == 0.0
    assert env.table()["hearts up"] == ASCENDING["H"][:5]
    assert env.table()["hearts down"] == [*ASCENDING["H"][:5:-1], "6H"]


def test_the_last_card_wins_and_ends_the_game() -> None:
    env = make()
    env.load({**foundations(clubs=(13, 12)), "r5c1": ["AC"]})
    action = FOUNDATION + 2 * NAMES.index("r5c1") + 1
    _, reward, over, _, _ = env.step(action)
    assert (over, legal(env)) == (True, [])
    assert reward == pytest.approx(1 / 104)


def test_a_game_without_legal_actions_is_over() -> None:
    env = make()
    env.load({**foundations(spades=(12, 12)), "r1c1": ["AS"], "waste": ["KS"]})
    assert legal(env) == [FOUNDATION + 1, FOUNDATION + 2 * WASTE]
    env.load({**foundations(spades=(11, 13)), "waste": ["QS", "KS"]})
    assert legal(env) == []


@pytest.mark.parametrize("reward", ["progress", "win"])
def test_a_won_game_returns_one(reward: str) -> None:
    env = make(reward=reward)
    env.reset(options={"deal": 1859})
    thumb = make_policy("thumb", "RobinPost-v0")
    total, over = 0.0, False
    while not over:
        _, got, over, _, _ = env.step(thumb.choose(env))
        total += got
    assert total == 1.0
    assert got == pytest.approx(1.0 if reward == "win" else 1 / 104)


def check_piles(env: PatienceEnv) -> None:
    for name in NAMES:
        pile = env.table()[name]
        steps = {"A23456789TJQK".index(b[0]) - "A23456789TJQK".index(a[0]) for a, b in pairwise(pile)}
        assert steps in (set(), {1}, {-1})
        assert all((a[1] in "HD") != (b[1] in "HD") for a, b in pairwise(pile))


def test_random_games_end_legally_and_conserve_the_cards() -> None:
    env = make()
    whole = Counter(pack(2).tolist())
    for deal in range(TIMES):
        env.reset(options={"deal": deal})
        for _ in range(1000):
            env.step(env.sample())
            if not legal(env):
                break
        assert all_cards(env) == whole
        check_piles(env)
        assert legal(env) == []


def test_text_round_trips_through_whole_games() -> None:
    env, other = make(), make()
    for deal in range(3 if jit.JIT else 1):
        env.reset(options={"deal": deal})
        while legal(env):
            observation, *_ = env.step(env.sample())
            seen, _ = other.load(env.table())
            assert other.table() == env.table()
            assert np.array_equal(seen, observation)
            assert legal(other) == legal(env)


def test_nothing_shown_depends_on_the_order_of_the_stock() -> None:
    env = make()
    for _ in range(40):
        observation, *_ = env.step(env.sample())
        before = env.table(), legal(env), [env.describe(action) for action in legal(env)]
        state = env._rows.states[0]
        state["deck"][state["first"] :] = np.roll(state["deck"][state["first"] :], 3)
        assert np.array_equal(env._refresh()[0], observation)
        assert (env.table(), legal(env), [env.describe(action) for action in legal(env)]) == before


def test_determinize_shuffles_the_stock_and_nothing_else() -> None:
    env = make()
    for _ in range(15):
        env.step(env.sample())
    before = env.state_rows()[0]
    shown = env.table(), legal(env), env._rows.observations[0].copy()
    env.determinize(5)
    after = env.state_rows()[0]
    assert (env.table(), legal(env)) == shown[:2]
    assert np.array_equal(env._refresh()[0], shown[2])
    first = before["first"]
    assert sorted(before["deck"][first:]) == sorted(after["deck"][first:])
    assert not np.array_equal(before["deck"][first:], after["deck"][first:])
    assert (after["deal"], after["deck"][:first].any()) == (0, False)


def test_what_determinize_deals_depends_on_no_hidden_card() -> None:
    env = make()
    env.reset(options={"deal": 4})
    other = env.clone().determinize(8)
    assert not np.array_equal(env.state_rows()["deck"][:, 52:], other.state_rows()["deck"][:, 52:])
    assert np.array_equal(env.determinize(5).state_rows(), other.determinize(5).state_rows())


def test_the_observation_holds_places_and_counters() -> None:
    env = make()
    observation, _ = env.load({**CORE, "r1c1": ["5H", "6S"], "waste": [*CORE["waste"], "8D"]})
    assert observation.shape == (755,)
    names = [card_text(int(code)) for code in observation[:736]]
    assert names[:4] == ["6S", "5H", "--", "--"]
    assert names[676:684] == ["4S", "TS", "4H", "TH", "2D", "TD", "3C", "TC"]
    assert names[684:687] == ["8D", "2S", "--"]
    stock = len(env.table()["stock"])
    assert observation[736:749].sum() == observation[749:753].sum() == observation[753] == stock
    assert observation[754] == sum(not env.table()[name] for name in NAMES)


def test_describe_tells_every_action() -> None:
    env = make()
    env.load({**CORE, "r1c1": ["5H", "6S"], "r9c1": ["AC"], "r1c3": ["7D"]})
    assert env.describe(number("r1c1", 1, 1)) == "r1c1: 5H 6S turned over on the first 7D at r1c3"
    assert env.describe(number("r1c1", 0, 0, 1)) == "r1c1: 5H 6S on the second 4S: none may be packed on"
    assert env.describe(number("r9c1", 0, 0)) == "r9c1: AC cannot be packed on a card below it: there is none"
    assert env.describe(number("r3c3", 0, 0)) == "r3c3: no card to pack"
    assert env.describe(FOUNDATION + 1) == "r1c1: 6S to the foundation built down"
    assert env.describe(TRANSFER + 7) == "clubs: top card of the foundation built down to the one built up"
    assert env.describe(TURN) == "turn the next card of the stock"
    assert env.describe(FILL) == "fill the vacancies from the stock"
    assert all(env.describe(action) for action in range(540))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"r1c5": ["AS"]}, "there is no place 'r1c5'"),
        ({"r1c1": ["1S"]}, "'1S' is no card"),
        ({"r1c1": ["--"]}, "r1c1 holds --: an empty place is"),
        ({"r1c1": ["AS"], "r1c2": ["AS"], "r1c3": ["AS"]}, "r1c3 holds a third AS"),
        ({"spades up": ["2S"]}, "spades up holds 2S: it is built AS"),
        ({"stock": ["??"] * 50}, "the table holds 50 cards: two packs have 104"),
        ({"r1c1": ["??", "AS"]}, "r1c1 holds ?? in a pile"),
        ({"r1c1": ["AS", "3H"]}, "r1c1 holds AS 3H: a pile runs up or down by one rank"),
        ({"r1c1": ["AS", "2H", "AS"]}, "r1c1 holds AS 2H AS: a pile runs up or down by one rank"),
        ({"r1c1": ["KS", "AH"]}, "r1c1 holds KS AH: a pile runs up or down by one rank"),
        ({"r1c1": ["AS", "2C"]}, "r1c1 holds AS 2C: colours alternate"),
        ({}, "stock and waste would hold 104 and 0 cards: together at most 52"),
    ],
)
def test_impossible_tables_are_refused_and_change_nothing(table: dict[str, Any], message: str) -> None:
    env = make()
    before = env.get_state()
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        env.load(table)
    assert env.get_state() == before


def test_a_known_card_in_the_stock_is_refused() -> None:
    env = make()
    table = env.table()
    with pytest.raises(ValueError, match=r"stock holds a known card: its cards are '\?\?'"):
        env.load({**table, "stock": ["AS", *table["stock"][1:]]})
