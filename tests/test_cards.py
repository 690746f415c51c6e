"""Card codes and their text."""

from __future__ import annotations

import numpy as np
import pytest

from patience_env import cards


def test_codes_and_text_are_one_to_one() -> None:
    texts = [cards.card_text(code) for code in range(54)]
    assert len(set(texts)) == 54
    assert [cards.card_code(text) for text in texts] == list(range(54))


@pytest.mark.parametrize(
    ("text", "code"),
    [("--", 0), ("AS", 1), ("KS", 13), ("AH", 14), ("TH", 23), ("AD", 27), ("AC", 40), ("KC", 52), ("??", 53)],
)
def test_known_codes(text: str, code: int) -> None:
    assert cards.card_code(text) == code
    assert cards.card_text(code) == text


def test_reads_lower_case_spaces_and_ten_in_figures() -> None:
    assert cards.card_code(" th ") == cards.card_code("10H") == cards.card_code("TH")


@pytest.mark.parametrize("text", ["", "1H", "TX", "HT", "THH", "11S", None, 5, b"TH", "?"])
def test_refuses_what_is_no_card(text: object) -> None:
    with pytest.raises(ValueError, match=r"is no card: write a rank of A23456789TJQK and a suit of SHDC"):
        cards.card_code(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [-1, 54, 1000])
def test_refuses_codes_out_of_range(code: int) -> None:
    with pytest.raises(ValueError, match="is none of 0"):
        cards.card_text(code)


def test_rank_suit_and_colour_of_every_card() -> None:
    for suit, letter in enumerate("SHDC"):
        for rank, name in enumerate("A23456789TJQK", 1):
            code = cards.card_code(name + letter)
            assert (cards.rank_of(code), cards.suit_of(code)) == (rank, suit)
            assert bool(cards.is_red(code)) == (letter in "HD")


@pytest.mark.parametrize("packs", [1, 2])
def test_a_pack_holds_each_card_once(packs: int) -> None:
    pack = cards.pack(packs)
    assert pack.dtype == np.int8
    assert (np.bincount(pack, minlength=53) == [0, *[packs] * 52]).all()
