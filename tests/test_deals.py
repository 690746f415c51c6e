"""Deal numbers: the random stream, the shuffle, and the standard deals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patience_env import deals
from patience_env.cards import card_text
from patience_env.jit import JIT, kernel
from patience_env.table import BLOCK, draw_deal, draw_deals
from playing import begin, scaled, strict

GOLDEN = json.loads((Path(__file__).parent / "data" / "decks.json").read_text("utf-8"))
STREAM = np.dtype([("rng", np.uint64), ("test_stream", np.int8)])


@pytest.mark.parametrize(
    ("seed", "first"),
    [
        # Outputs published with the reference implementations of splitmix64.
        (
            1234567,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423,
                4593380528125082431,
                16408922859458223821,
            ],
        ),
        (0, [16294208416658607535, 7960286522194355700, 487617019471545679]),
    ],
)
def test_stream_is_splitmix64(seed: int, first: list[int]) -> None:
    assert deals.splitmix64(seed, len(first)) == first


@kernel
def draw_many(states, counts, drawn):  # type: ignore[no-untyped-def]
    """Draw below each of the counts in turn."""
    for i in range(counts.shape[0]):
        drawn[i] = deals.draw_below(states[0], counts[i])


def draw_naively(seed: int, counts: list[int]) -> list[int]:
    """Draw from the upper halves of splitmix64, rejecting what would favour the low numbers."""
    bits = iter([value >> 32 for value in deals.splitmix64(seed, 4 * len(counts))])
    drawn = []
    for count in counts:
        product = next(bits) * count
        while product % 2**32 < 2**32 % count:
            product = next(bits) * count
        drawn.append(product >> 32)
    return drawn


@pytest.mark.parametrize("seed", [0, 7, 2**63, 2**64 - 1])
def test_compiled_draws_equal_the_definition(seed: int) -> None:
    # Counts just over 2**30 are rejected in a quarter of the draws.
    counts = [52, 51, 2, 1, 3, 2**31, 2**31 - 1, 2**30 + 1] * scaled(500, 20)
    states: Any = np.zeros(1, STREAM)
    states["rng"] = seed
    drawn = np.zeros(len(counts), np.int64)
    draw_many(states if JIT else states.view(np.recarray), np.array(counts), drawn)
    assert drawn.tolist() == draw_naively(seed, counts)


@pytest.mark.parametrize("packs", [1, 2])
def test_decks_never_change(packs: int) -> None:
    golden = GOLDEN[f"{packs} packs"]
    assert len(golden) >= 12
    for number, text in golden.items():
        assert " ".join(map(card_text, deals.deck(int(number), packs))) == text


@pytest.mark.parametrize("packs", [1, 2])
def test_a_deck_holds_each_card(packs: int) -> None:
    for deal in range(20):
        deck = deals.deck(deal, packs)
        assert deck.dtype == np.int8
        assert (np.bincount(deck, minlength=53) == [0, *[packs] * 52]).all()


def test_games_deal_the_same_deck() -> None:
    env = strict("PatiencePoker-v0", placement="fixed")
    for deal in (1, 2**63, 2**64 - 1):
        begin(env, deal, 25)
        table = env.table()
        placed = {card for place, cards in table.items() if place not in ("hand", "stock") for card in cards}
        turned = [card_text(card) for card in deals.deck(deal)[:25]]
        assert placed == set(turned[:24])
        assert table["hand"] == turned[24:]


def test_every_card_comes_first_and_last_equally_often() -> None:
    count = scaled(10_400, 2_080)
    decks = np.array([deals.deck(2**40 + i) for i in range(count)])
    expected = count / 52
    for place in (0, 1, 25, 50, 51):
        observed = np.bincount(decks[:, place], minlength=53)[1:]
        chi_square = ((observed - expected) ** 2 / expected).sum()
        # 51 degrees of freedom: mean 51, standard deviation 10.1; the numbers are fixed, so this cannot flicker.
        assert 20 < chi_square < 100
    # Neighbours in the deck are neighbours in the pack no more often than they should be.
    neighbours = ((decks[:, 1:] - decks[:, :-1]) == 1).mean()
    assert neighbours == pytest.approx(1 / 52, abs=4 * np.sqrt(1 / 52 / (51 * count)))


@pytest.mark.parametrize("deal", [True, np.True_, 1.0, 1.5, "3", None, [1], np.float64(2), np.array(3)])
def test_refuses_what_is_no_whole_number(deal: object) -> None:
    with pytest.raises(TypeError, match=r"a deal is a whole number from 0 to 2\*\*64 - 1, not"):
        deals.check_deal(deal)


@pytest.mark.parametrize("deal", [-1, 2**64, np.int64(-5), 10**30])
def test_refuses_numbers_out_of_range(deal: int) -> None:
    with pytest.raises(ValueError, match=r"lies outside 0 to 2\*\*64 - 1"):
        deals.check_deal(deal)


@pytest.mark.parametrize("deal", [0, 2**64 - 1, np.uint64(2**64 - 1), np.int8(3)])
def test_takes_whole_numbers_of_any_type(deal: Any) -> None:
    assert deals.check_deal(deal) == int(deal)
    assert type(deals.check_deal(deal)) is int


def test_standard_deals_are_the_ones_in_the_file() -> None:
    known = deals.standard_deals()
    assert {name: facts.count for name, facts in known.items()} == {"test": 10_000, "validation": 1_000, "smoke": 100}
    numbers = np.concatenate([facts.numbers() for facts in known.values()])
    assert len(np.unique(numbers)) == len(numbers)
    assert (numbers < deals.RESERVED_DEALS).all()


@pytest.mark.parametrize(
    "name", [pytest.param("test", marks=pytest.mark.compiled), "validation", "smoke"]
)  # the long one once, in the quicker of the two runs
def test_standard_decks_match_their_checksum(name: str) -> None:
    facts = deals.standard_deals()[name]
    assert facts.checksum() == facts.sha256


def test_standard_deals_by_name() -> None:
    assert deals.named_deals("smoke", 3).tolist() == [3_000_000, 3_000_001, 3_000_002]
    assert deals.named_deals("smoke").dtype == np.uint64
    with pytest.raises(ValueError, match="no standard deals named 'train': choose one of test, validation, smoke"):
        deals.named_deals("train")
    for count in (0, -1, 101):
        with pytest.raises(ValueError, match="the smoke deals are 100"):
            deals.named_deals("smoke", count)


def test_training_refuses_reserved_deals() -> None:
    deals.refuse_reserved(np.array([2**32, 2**64 - 1], np.uint64))
    with pytest.raises(ValueError, match="deal 1000000 is reserved"):
        deals.refuse_reserved(np.array([2**40, 1_000_000, 5], np.uint64))


def test_drawn_deals_are_never_reserved_and_come_in_the_same_order_in_blocks() -> None:
    one, many = np.random.default_rng(8), np.random.default_rng(8)
    numbers = [draw_deal(one) for _ in range(2 * BLOCK)]
    assert [*draw_deals(many).tolist(), *draw_deals(many).tolist()] == numbers
    deals.refuse_reserved(np.array(numbers, np.uint64))


def test_low_random_bits_are_raised_out_of_the_reserved_range() -> None:
    class LowBits:
        """Gives random bits below 2**32."""

        def random_raw(self, size: int | None = None) -> Any:
            return 5 if size is None else np.full(size, 5, np.uint64)

    class Low:
        bit_generator = LowBits()

    assert draw_deal(Low()) == 2**32 + 5  # type: ignore[arg-type]
    assert (draw_deals(Low()) == 2**32 + 5).all()  # type: ignore[arg-type]
