"""What the compiled loops count and choose, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from patience_env.kernels import count_legal, nth_legal, sample
from patience_env.lanes import copy_few


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


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 33, 64, 81, 97])
def test_a_few_bytes_are_copied_and_none_beside_them(length: int) -> None:
    source = np.arange(200, dtype=np.uint8).view(np.int8)
    target = np.full(200, 77, np.int8)
    copy(target, 40, source, 50, length)
    assert (target[40 : 40 + length] == source[50 : 50 + length]).all()
    assert (target[:40] == 77).all()
    assert (target[40 + length :] == 77).all()
