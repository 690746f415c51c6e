"""What the compiled loops count and choose, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from patience_env.kernels import any_held, count_legal, hold_rows, is_held, nth_legal, sample, sample_held, show_rows
from patience_env.lanes import (
    HALF,
    LANES,
    copy_few,
    couple_marker,
    crowd_finder,
    ones_above,
    rank_holder,
    subtract_bytes,
    triangle_holder,
    word_smearer,
)


@njit
def count(mask: Any) -> Any:
    return count_legal(mask)


@njit
def nth(mask: Any, left: int) -> Any:
    return nth_legal(mask, left)


@njit
def copy(target: Any, to: int, source: Any, at: int, length: int) -> None:
    copy_few(target, to, source, at, length)


@pytest.mark.parametrize("size", [1, 2, 11, 31, 32, 33, 63, 64, 65, 100, 400, 1777])
def test_legal_actions_are_counted_and_found_in_masks_of_any_length(size: int) -> None:
    rng = np.random.default_rng(size)
    for share in (0.0, 0.02, 0.5, 1.0):
        room = np.ones(size + 128, np.int8)  # what lies before and behind a mask does not count
        mask = room[64 : 64 + size]
        mask[:] = rng.random(size) < share
        legal = np.flatnonzero(mask).tolist()
        assert count(mask) == len(legal)
        assert [nth(mask, i) for i in range(len(legal) + 1)] == [*legal, -1]


def test_samples_are_legal_and_uniform_in_masks_of_any_layout() -> None:
    rng = np.random.default_rng(1)
    masks = (rng.random((300, 90)) < 0.1).astype(np.int8)
    masks[0] = 0
    for view in (masks, np.asfortranarray(masks), np.repeat(masks, 2, axis=1)[:, ::2], masks.astype(bool)):
        seeded = np.random.default_rng(2)
        chosen = sample(view, seeded)
        assert (chosen == sample(masks, np.random.default_rng(2))).all()
        assert chosen[0] == -1
        assert all(view[row, action] for row, action in enumerate(chosen) if view[row].any())
    one = np.zeros((20_000, 40), np.int8)
    one[:, [3, 17, 39]] = 1
    counts = np.bincount(sample(one, rng), minlength=40)
    assert sorted(np.flatnonzero(counts).tolist()) == [3, 17, 39]
    assert counts[[3, 17, 39]].min() > 6_400  # 6,667 expected, standard deviation 67


@njit
def held_actions(held: Any, count: int) -> Any:
    return [is_held(held, action) for action in range(count)], any_held(held)


@pytest.mark.parametrize("size", [1, 2, 11, 15, 16, 17, 25, 31, 32, 33, 48, 63, 64, 65, 81, 100, 400, 1777])
def test_masks_of_any_length_are_held_as_bits(size: int) -> None:
    rng = np.random.default_rng(size)
    for share in (0.0, 0.02, 0.5, 1.0):
        room = np.ones(3 * size + 128, np.int8)  # what lies before and behind a mask does not count
        masks = room[64 : 64 + 3 * size].reshape(3, size)
        masks[:] = rng.random((3, size)) < share
        held = np.full((3, -(-size // LANES)), 2**32 - 1, np.uint32)
        hold_rows(masks, held)
        for mask, bits in zip(masks, held, strict=True):
            told, some = held_actions(bits, size + 70)
            assert told == [*mask.astype(bool).tolist(), *[False] * 70]
            assert some == mask.any()
        shown = np.full((3, size), 7, np.int8)
        show_rows(held, shown)
        assert (shown == masks).all()
        draws, actions = rng.integers(0, 2**32, 3, np.uint32), np.full(3, -7)
        sample_held(held, draws, actions)
        by_mask = [nth(mask, int(draw) * count(mask) >> 32) for mask, draw in zip(masks, draws, strict=True)]
        assert actions.tolist() == [max(action, 0) for action in by_mask]


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 33, 64, 81, 97])
def test_a_few_bytes_are_copied_and_none_beside_them(length: int) -> None:
    source = np.arange(200, dtype=np.uint8).view(np.int8)
    target = np.full(200, 77, np.int8)
    copy(target, 40, source, 50, length)
    assert (target[40 : 40 + length] == source[50 : 50 + length]).all()
    assert (target[:40] == 77).all()
    assert (target[40 + length :] == 77).all()


@pytest.mark.parametrize(("size", "first"), [(2, 0), (5, 3), (25, 100), (32, 31), (32, 64)])
def test_couples_are_held_in_their_order_and_lower_bits_stay(size: int, first: int) -> None:
    hold = triangle_holder(size, first)

    @njit
    def held_rows(held: Any, rows: Any) -> Any:
        return hold(held, rows)

    rng = np.random.default_rng(size)
    couples = [(i, j) for i in range(size) for j in range(i + 1, size)]
    for share in (0.0, 0.3, 1.0):
        table = rng.random((size, size)) < share
        table[:, 31:] = False  # a bit there would make a word negative
        rows = np.zeros(LANES, np.int32)
        rows[:size] = [sum(1 << int(j) for j in np.flatnonzero(row)) for row in table]
        held = np.full(20, 2**32 - 1, np.uint32)
        assert held_rows(held, rows) == sum(table[couple] for couple in couples)
        bits = np.unpackbits(held.view(np.uint8), bitorder="little")
        end = first + len(couples)
        assert bits[:first].all()
        assert bits[first:end].tolist() == [table[couple] for couple in couples]
        assert not bits[end : -(-end // LANES) * LANES].any()
        assert bits[-(-end // LANES) * LANES :].all()


@pytest.mark.parametrize(("size", "first"), [(7, 31), (9, 0), (20, 40), (25, 100)])
def test_couples_of_one_kind_are_marked_in_bytes_and_bits(size: int, first: int) -> None:
    couples = [(i, j) for i in range(size) for j in range(i + 1, size)]
    mark = couple_marker([i for i, _ in couples], [j for _, j in couples], first)

    @njit
    def marked(target: Any, held: Any, one: int, other: int) -> Any:
        return mark(target, held, one, other)

    rng = np.random.default_rng(size)
    begin, end = first // LANES * LANES, first + len(couples)
    last = begin + -(-(end - begin) // LANES) * LANES
    bytes_end = last - HALF if end <= last - HALF else last
    for shares in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.9, 0.1)):
        sides = [rng.random(size) < share for share in shares]
        expected = [any(side[i] and side[j] for side in sides) for i, j in couples]
        target, held = np.full(last + LANES, 7, np.int8), np.full(20, 2**32 - 1, np.uint32)
        one, other = (sum(1 << int(i) for i in np.flatnonzero(side)) for side in sides)
        assert marked(target, held, one, other) == sum(expected)
        assert target[first:end].tolist() == expected
        assert not target[begin:first].any()
        assert (target[:begin] == 7).all()
        assert (target[bytes_end:] == 7).all()
        bits = np.unpackbits(held.view(np.uint8), bitorder="little")
        assert bits[first:end].tolist() == expected
        assert not bits[begin:first].any()
        assert not bits[end:last].any()
        assert bits[:begin].all()
        assert bits[last:].all()


@pytest.mark.parametrize("size", [1, 25, 31])
def test_each_rank_s_places_are_found(size: int) -> None:
    hold = rank_holder(size)

    @njit
    def held_ranks(held: Any, cards: Any) -> None:
        hold(held, cards)

    @njit
    def above(cards: Any, number: int) -> Any:
        return ones_above(cards, 0, number)

    rng = np.random.default_rng(size)
    for _ in range(20):
        cards = rng.integers(0, 53, LANES).astype(np.int8)  # those beyond the places do not count
        held = np.full(HALF + 1, 7, np.int32)
        held_ranks(held, cards)
        codes = cards.tolist()
        ranks = [(code - 1) % 13 + 1 if code else 0 for code in codes]
        for rank in range(HALF):
            assert int(held[rank]) & (2**32 - 1) == sum(1 << i for i in range(size) if ranks[i] == rank)
            assert above(cards, rank) == sum(1 << i for i in range(LANES) if codes[i] > rank)
        assert held[HALF] == 7


@pytest.mark.parametrize("least", [1, 2, 3, 5])
def test_words_that_share_enough_bits_are_found(least: int) -> None:
    find = crowd_finder(least)

    @njit
    def found(words: Any, bits: int) -> Any:
        return find(words, bits)

    rng = np.random.default_rng(least)
    words = rng.integers(0, 2**31, LANES).astype(np.int32)
    for bits in (0, 1, 0b1011, 2**31 - 1, *rng.integers(0, 2**31, 20).tolist()):
        expected = [(word & bits).bit_count() >= least for word in words.tolist()]
        assert found(words, bits) == sum(1 << i for i, enough in enumerate(expected) if enough)


def test_bytes_are_subtracted() -> None:
    @njit
    def subtract(target: Any, source: Any, at: int) -> None:
        subtract_bytes(target, source, at)

    target, source = np.arange(LANES).astype(np.int8), np.arange(3 * LANES).astype(np.int8)
    subtract(target, source, 40)
    assert (target == -40).all()


def test_words_are_the_union_of_their_moved_bits() -> None:
    smear = word_smearer([(1, 0b1110), (-2, 0b0111), (30, 1 << 30)], 3)

    @njit
    def smeared(target: Any, source: Any) -> None:
        smear(target, source)

    source, target = np.zeros(HALF, np.int32), np.full(HALF + 1, 7, np.int32)
    source[:3] = 0b0001, 0b1100, 0b1111_1111
    smeared(target, source)
    assert target[:3].tolist() == [0b0010 | 1 << 30, 0b1011, 0b1111 | 1 << 30]
    assert target[HALF] == 7
