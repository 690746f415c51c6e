"""A linear layer on vectors that are mostly zero: only the entries that are not cost anything.

`rows` of sparse vectors come as `starts` (int64, (n + 1,)), `columns` (int32) and `values` (float32): the entries of
vector i are those from `starts[i]` to `starts[i + 1]`. The vectors are data, so gradients go to the weights alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from patience_env.jit import kernel

Sparse = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


@kernel
def count_entries(codes, counts, starts):  # type: ignore[no-untyped-def]
    """Write where the entries of each table begin: a card that is shown (code above 0) has one, a count has one."""
    total = 0
    for i in range(codes.shape[0]):
        starts[i] = total
        for place in range(codes.shape[1]):
            total += 1 if codes[i, place] > 0 else 0
        for group in range(counts.shape[1]):
            total += 1 if counts[i, group] != 0.0 else 0
    starts[codes.shape[0]] = total


@kernel
def write_entries(codes, counts, kinds, starts, columns, values):  # type: ignore[no-untyped-def]
    """Write the entries of each table; `kinds` is how many codes there are."""
    for i in range(codes.shape[0]):
        at = starts[i]
        for place in range(codes.shape[1]):
            if codes[i, place] > 0:
                columns[at] = place * kinds + int(codes[i, place])
                values[at] = 1.0
                at += 1
        for group in range(counts.shape[1]):
            if counts[i, group] != 0.0:
                columns[at] = codes.shape[1] * kinds + group
                values[at] = counts[i, group]
                at += 1


@kernel
def count_changes(codes, counts, rows, codes_after, counts_after, starts):  # type: ignore[no-untyped-def]
    """Write where the entries begin of what sets each table after apart from table `rows[i]` before."""
    total = 0
    for i in range(rows.shape[0]):
        starts[i] = total
        before = rows[i]
        for place in range(codes.shape[1]):
            old, new = codes[before, place], codes_after[i, place]
            if old != new:
                total += (1 if old > 0 else 0) + (1 if new > 0 else 0)
        for group in range(counts.shape[1]):
            total += 1 if counts[before, group] != counts_after[i, group] else 0
    starts[rows.shape[0]] = total


@kernel
def write_changes(codes, counts, rows, codes_after, counts_after, kinds, starts, columns, values):  # type: ignore[no-untyped-def]
    """Write the entries of what sets each table after apart from table `rows[i]` before."""
    for i in range(rows.shape[0]):
        at = starts[i]
        before = rows[i]
        for place in range(codes.shape[1]):
            old, new = codes[before, place], codes_after[i, place]
            if old != new:
                if old > 0:
                    columns[at] = place * kinds + int(old)
                    values[at] = -1.0
                    at += 1
                if new > 0:
                    columns[at] = place * kinds + int(new)
                    values[at] = 1.0
                    at += 1
        for group in range(counts.shape[1]):
            change = counts_after[i, group] - counts[before, group]
            if change != 0.0:
                columns[at] = codes.shape[1] * kinds + group
                values[at] = change
                at += 1


@kernel
def gather(starts, columns, values, weights, out):  # type: ignore[no-untyped-def]
    """Write the products of sparse vectors with a matrix, `out` (zeros before): (n, width)."""
    for i in range(out.shape[0]):
        for at in range(starts[i], starts[i + 1]):
            column, value = columns[at], values[at]
            for unit in range(weights.shape[1]):
                out[i, unit] += value * weights[column, unit]


@kernel
def scatter(starts, columns, values, slopes, out):  # type: ignore[no-untyped-def]
    """Add up the gradient of the matrix, `out` (zeros before), from those of the products."""
    for i in range(slopes.shape[0]):
        for at in range(starts[i], starts[i + 1]):
            column, value = columns[at], values[at]
            for unit in range(slopes.shape[1]):
                out[column, unit] += value * slopes[i, unit]


class SparseProduct(torch.autograd.Function):
    """See `sparse_product`."""

    @staticmethod
    def forward(ctx: Any, weights: torch.Tensor, starts: Any, columns: Any, values: Any) -> torch.Tensor:
        ctx.vectors, ctx.size = (starts, columns, values), weights.shape
        out = np.zeros((len(starts) - 1, weights.shape[1]), np.float32)
        gather(starts, columns, values, weights.detach().contiguous().numpy(), out)
        return torch.from_numpy(out)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        out = np.zeros(ctx.size, np.float32)
        scatter(*ctx.vectors, slopes[0].contiguous().numpy(), out)
        return torch.from_numpy(out), None, None, None


def sparse_product(weights: torch.Tensor, vectors: Sparse) -> torch.Tensor:
    """Return the products of n sparse vectors with a matrix, (n, width)."""
    made: torch.Tensor = SparseProduct.apply(weights, *vectors)  # type: ignore[no-untyped-call]
    return made


def entries_of(codes: NDArray[np.int8], counts: NDArray[np.float32], kinds: int) -> Sparse:
    """Return tables as sparse vectors: for every place `kinds` entries, one of which is 1 (none for code 0), then the
    counts, which are (n, count)."""
    starts = np.zeros(len(codes) + 1, np.int64)
    count_entries(codes, counts, starts)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    write_entries(codes, counts, kinds, starts, columns, values)
    return starts, columns, values


def changes_of(
    codes: NDArray[np.int8],
    counts: NDArray[np.float32],
    rows: NDArray[np.int64],
    codes_after: NDArray[np.int8],
    counts_after: NDArray[np.float32],
    kinds: int,
) -> Sparse:
    """Return, as sparse vectors, what sets tables apart from those, `rows`, that they came from."""
    starts = np.zeros(len(rows) + 1, np.int64)
    count_changes(codes, counts, rows, codes_after, counts_after, starts)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    write_changes(codes, counts, rows, codes_after, counts_after, kinds, starts, columns, values)
    return starts, columns, values
