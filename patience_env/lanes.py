"""Thirty-two bytes, or half as many, at a time: what a compiler does not find by itself in loops over short rows.

These are written in vector instructions, which LLVM maps to whatever the processor has, and work in compiled code only.
They check no bounds: the caller sees to it that so many bytes lie behind each index.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types as _types
from numba.extending import intrinsic as _intrinsic

from patience_env.cards import FACE_DOWN, PACK

# Numba's annotations know neither.
types: Any = _types
intrinsic: Any = _intrinsic

LANES = 32
HALF = 16
_BYTE = ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, LANES)
_HALF = ir.VectorType(_BYTE, HALF)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any, lanes: Any = _BYTES) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), lanes.as_pointer())


def _all(value: int) -> Any:
    return ir.Constant(_BYTES, [value] * LANES)


@intrinsic
def copy_half(typing_context, target, to, source, at):  # type: ignore[no-untyped-def]
    """Copy `HALF` bytes from `source[at]` on to `target[to]` on (flat arrays of bytes that do not overlap)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        value = builder.load(_pointer(context, builder, kinds[2], args[2], args[3], _HALF), align=1)
        builder.store(value, _pointer(context, builder, kinds[0], args[0], args[1], _HALF), align=1)
        return context.get_dummy_value()

    return types.void(target, types.uint64, source, types.uint64), generate


@intrinsic
def spread_lanes(typing_context, target, to, stride, cards, at):  # type: ignore[no-untyped-def]
    """Write nineteen one-hot rows of `LANES` bytes, `stride` apart from `target[to]` on, of the cards from `at` on.

    Row after row: where a row is longer than the stride, the next one is written over its end.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        codes = builder.load(_pointer(context, builder, kinds[3], args[3], args[4]), align=1)
        card = builder.sub(codes, _all(1))  # an empty place becomes the greatest unsigned byte
        suit, rank = _all(0), card
        for _ in range(3):
            more = builder.icmp_unsigned(">=", rank, _all(13))
            rank = builder.sub(rank, builder.select(more, _all(13), _all(0)))
            suit = builder.add(suit, builder.zext(more, _BYTES))
        lies = builder.icmp_unsigned("<", card, _all(PACK))
        rank = builder.select(lies, rank, _all(13))
        suit = builder.select(lies, suit, _all(4))
        facts = [builder.icmp_unsigned("==", rank, _all(number)) for number in range(13)]
        facts += [builder.icmp_unsigned("==", suit, _all(number)) for number in range(4)]
        facts += [builder.icmp_unsigned("==", codes, _all(number)) for number in (0, FACE_DOWN)]
        place = args[1]
        for fact in facts:
            pointer = _pointer(context, builder, kinds[0], args[0], place)
            builder.store(builder.zext(fact, _BYTES), pointer, align=1)
            place = builder.add(place, args[2])
        return context.get_dummy_value()

    return types.void(target, types.uint64, types.uint64, cards, types.uint64), generate


@intrinsic
def marked_lanes(typing_context, source, at):  # type: ignore[no-untyped-def]
    """Return `LANES` bits, the lowest for `source[at]`: 1 where a byte is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1]), align=1)
        bits = builder.bitcast(builder.icmp_unsigned("!=", value, _all(0)), ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(source, types.uint64), generate


@intrinsic
def lowest_bit(typing_context, bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit of an int64 that is 1 (there must be one)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate
