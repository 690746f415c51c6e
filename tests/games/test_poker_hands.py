"""Poker hands: every hand of five cards, and the best tableau."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from patience_env.cards import card_code
from patience_env.games.poker_hands import CATEGORIES, SCORED, TABLES, category, check_scoring, points_table
from patience_env.jit import kernel
from playing import strict

KNOWN_COUNTS = {
    "high card": 1_302_540,
    "pair": 1_098_240,
    "two pairs": 123_552,
    "triplets": 54_912,
    "straight": 10_200,
    "flush": 5_108,
    "full hand": 3_744,
    "four": 624,
    "straight flush": 36,
    "royal": 4,
}
MEANS = {"american": 14.415, "american-alternate": 7.333, "english": 7.676}


@kernel
def count_categories(counts):  # type: ignore[no-untyped-def]
    """Count the categories of all hands of five different cards."""
    for a in range(1, 49):
        for b in range(a + 1, 50):
            for c in range(b + 1, 51):
                for d in range(c + 1, 52):
                    for e in range(d + 1, 53):
                        counts[category(a, b, c, d, e)] += 1


@pytest.mark.compiled
def test_all_hands_fall_into_their_known_classes() -> None:
    counts = np.zeros(10, np.int64)
    count_categories(counts)
    assert dict(zip(CATEGORIES, counts.tolist(), strict=True)) == KNOWN_COUNTS
    assert counts.sum() == 2_598_960


@pytest.mark.parametrize("name", TABLES)
def test_random_play_averages_the_known_score(name: str) -> None:
    points = points_table(name)
    mean = sum(KNOWN_COUNTS[hand] * points[i] for i, hand in enumerate(CATEGORIES)) / 2_598_960
    assert 10 * mean == pytest.approx(MEANS[name], abs=0.0005)


@pytest.mark.parametrize(
    ("hand", "expected"),
    [
        ("TS JS QS KS AS", "royal"),
        ("AH 2H 3H 4H 5H", "straight flush"),
        ("9C TC JC QC KC", "straight flush"),
        ("JS QS KS AS 2S", "flush"),  # no wrap-around
        ("JS QH KS AS 2S", "high card"),
        ("AS 2H 3S 4D 5C", "straight"),
        ("TS JH QS KD AC", "straight"),
        ("7S 7H 7D 7C 2S", "four"),
        ("7S 7H 7D 2C 2S", "full hand"),
        ("7S 7H 7D 3C 2S", "triplets"),
        ("7S 7H 3D 3C 2S", "two pairs"),
        ("7S 7H 3D 4C 2S", "pair"),
        ("2S 3S 4S 5S 7S", "flush"),
        ("2S 3S 4S 5S 7H", "high card"),
    ],
)
def test_named_hands_in_any_order(hand: str, expected: str) -> None:
    codes = [card_code(card) for card in hand.split()]
    for turn in range(5):
        cards = codes[turn:] + codes[:turn]
        assert CATEGORIES[category(*cards)] == expected
        assert CATEGORIES[category(*cards[::-1])] == expected


BEST = [
    "AS KS QS JS TS",
    "AH KH QH JH TH",
    "AD KD QD JD TD",
    "AC KC QC JC TC",
    "9S 8S 7S 6S 5S",
]


@pytest.mark.parametrize(("scoring", "best"), [("american", 725), ("american-alternate", 330), ("english", 230)])
@pytest.mark.parametrize("placement", ["fixed", "touching"])
def test_the_best_tableau(scoring: str, best: int, placement: str) -> None:
    env = strict("PatiencePoker-v0", scoring=scoring, placement=placement)
    corner = 3 if placement == "touching" else 1
    cells = {
        f"r{corner + row}c{corner + column}": [card]
        for row, line in enumerate(BEST)
        for column, card in enumerate(line.split())
    }
    last = f"r{corner}c{corner}"
    hand = cells.pop(last)
    env.reset(seed=1)
    env.load({**cells, "hand": hand})
    before = env._rows.states[0]["score"]
    side = 9 if placement == "touching" else 5
    _, reward, terminated, _, info = env.step((corner - 1) * (side + 1))
    assert terminated
    assert before + reward == info["score"] == best


def test_the_best_tableau_has_five_straight_flushes_four_royals_among_them_and_five_fours() -> None:
    rows = [[card_code(card) for card in line.split()] for line in BEST]
    found = [CATEGORIES[category(*line)] for line in [*rows, *zip(*rows, strict=True)]]
    assert sorted(found) == ["four"] * 5 + ["royal"] * 4 + ["straight flush"]


@pytest.mark.parametrize("name", [*TABLES, "random"])
def test_known_tables_by_name(name: str) -> None:
    assert check_scoring(name) == name
    assert len(points_table(name)) == 10
    assert points_table(name)[0] == 0.0


def test_a_mapping_is_a_table() -> None:
    table = {name: i for i, name in enumerate(SCORED)}
    assert check_scoring(table) == {name: float(i) for i, name in enumerate(SCORED)}
    assert points_table(table) == (0.0, *map(float, range(9)))


GOOD: dict[str, Any] = dict.fromkeys(SCORED, 1)


@pytest.mark.parametrize(
    ("scoring", "error", "message"),
    [
        ("French", ValueError, "scoring='French' is not known: choose one of 'american', 'american-alternate'"),
        ({}, ValueError, "lacks pair, two pairs, triplets"),
        ({name: 1 for name in SCORED if name != "four"}, ValueError, "the scoring table lacks four: it needs exactly"),
        ({**GOOD, "five": 1}, ValueError, "has unknown hands 'five'"),
        ({**GOOD, "pair": "2"}, ValueError, "gives '2' for pair: give a finite number"),
        ({**GOOD, "pair": True}, ValueError, "gives True for pair"),
        ({**GOOD, "pair": float("nan")}, ValueError, "gives nan for pair"),
        ({**GOOD, "pair": float("inf")}, ValueError, "gives inf for pair"),
        ({**GOOD, "royal": 1_000_001}, ValueError, "gives 1000001 for royal: give -1,000,000 to 1,000,000"),
        (3, TypeError, "scoring is the name of a table or a mapping"),
        (None, TypeError, "scoring is the name of a table or a mapping"),
        ([1] * 9, TypeError, "scoring is the name of a table or a mapping"),
    ],
)
def test_refuses_other_tables(scoring: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        strict("PatiencePoker-v0", scoring=scoring)
