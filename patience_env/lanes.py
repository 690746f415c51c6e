"""Thirty-two bytes, or half as many, at a time: what a compiler does not find by itself in loops over short rows.

The intrinsics are written in vector instructions, which LLVM maps to whatever the processor has, and work in compiled
code only. They check no bounds: the caller sees to it that so many bytes lie behind each index. What games
call stands at the end, and runs in plain Python too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types as _types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic
from numba.np.arrayobj import populate_array as _populate_array

from patience_env.cards import CHANNELS, EMPTY_CHANNEL, FACE_DOWN, FACE_DOWN_CHANNEL, PACK
from patience_env.jit import JIT, rule

# Numba's annotations know none of these.
types: Any = _types
intrinsic: Any = _intrinsic
cgutils: Any = _cgutils
populate_array: Any = _populate_array

LANES = 32
HALF = 16
_BYTE = ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, LANES)
_HALF = ir.VectorType(_BYTE, HALF)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any, lanes: Any = _BYTES) -> Any:
    if kind.layout != "C":
        raise TypeError(f"an array of bytes that lie side by side is needed here, not {kind}")
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), lanes.as_pointer())


def _all(value: int) -> Any:
    return ir.Constant(_BYTES, [value] * LANES)


def _everywhere(builder: Any, value: Any) -> Any:
    """Return `LANES` bytes, each the lowest of a number."""
    zeros = _all(0)
    first = builder.insert_element(zeros, builder.trunc(value, _BYTE), ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, zeros, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


@intrinsic
def mark_half(typing_context, target, to, source, at):  # type: ignore[no-untyped-def]
    """Write `HALF` bytes from `target[to]` on: 1 where the byte of `source`, from `at` on, is 0, else 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        value = builder.load(_pointer(context, builder, kinds[2], args[2], args[3], _HALF), align=1)
        marks = builder.zext(builder.icmp_unsigned("==", value, ir.Constant(_HALF, [0] * HALF)), _HALF)
        builder.store(marks, _pointer(context, builder, kinds[0], args[0], args[1], _HALF), align=1)
        return context.get_dummy_value()

    return types.void(target, types.uint64, source, types.uint64), generate


def _ranks(builder: Any, codes: Any) -> Any:
    """Return the rank, 0 to 12, of each card code; 13 of a face-down place, 216 of an empty one."""
    rank = builder.sub(codes, _all(1))  # an empty place becomes the greatest unsigned byte
    for _ in range(3):
        less = builder.sub(rank, _all(13))  # greater than before where it was less than 13
        rank = builder.select(builder.icmp_unsigned("<", less, rank), less, rank)
    return rank


def _rank_and_suit(builder: Any, codes: Any) -> Any:
    """Return the channel of the rank (0 to 12; another number without one) and of the suit of each card code.

    What is no card has the channel of an empty or a face-down place for its suit's.
    """
    card = builder.sub(codes, _all(1))  # an empty place becomes the greatest unsigned byte
    suit, rank = _all(13), card
    for _ in range(3):
        more = builder.icmp_unsigned(">=", rank, _all(13))
        rank = builder.sub(rank, builder.select(more, _all(13), _all(0)))
        suit = builder.add(suit, builder.zext(more, _BYTES))
    lies = builder.icmp_unsigned("<", card, _all(PACK))
    empty = builder.icmp_unsigned("==", codes, _all(0))
    kind = builder.select(empty, _all(EMPTY_CHANNEL), _all(FACE_DOWN_CHANNEL))
    return builder.select(lies, rank, _all(CHANNELS)), builder.select(lies, suit, kind)


def _channels(builder: Any, codes: Any) -> list[Any]:
    """Return for each of the nineteen channels which card codes have it (vectors of one bit a code)."""
    rank, card = _ranks(builder, codes), builder.sub(codes, _all(1))
    facts = [builder.icmp_unsigned("==", rank, _all(number)) for number in range(13)]
    facts += [builder.icmp_unsigned("==", rank, builder.sub(card, _all(13 * suit))) for suit in range(3)]
    facts.append(builder.icmp_unsigned("<", builder.sub(card, _all(39)), _all(13)))  # the others are of no suit
    return [*facts, *(builder.icmp_unsigned("==", codes, _all(code)) for code in (0, FACE_DOWN))]


def _shuffled(builder: Any, one: Any, other: Any, places: Sequence[int]) -> Any:
    lanes = ir.VectorType(ir.IntType(32), len(places))
    return builder.shuffle_vector(one, other, ir.Constant(lanes, list(places)))


@intrinsic
def spread_rows(typing_context, target, to, cards, at):  # type: ignore[no-untyped-def]
    """Write `LANES` rows of `CHANNELS` one-hot bytes from `target[to]` on, of the cards from `at` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        codes = builder.load(_pointer(context, builder, kinds[2], args[2], args[3]), align=1)
        sides = _rank_and_suit(builder, codes)
        # Rank and suit of each place side by side; each sixteen of them, eight places, twice, so that a processor finds
        # what it needs in either half of its registers.
        eights = []
        for first in range(0, LANES, 8):
            pairs = [side * LANES + first + place for place in range(8) for side in range(2)]
            eights.append(_shuffled(builder, sides[0], sides[1], pairs * 2))
        for start in range(0, LANES * CHANNELS, LANES):
            places, channels = zip(*(divmod(start + i, CHANNELS) for i in range(LANES)), strict=True)
            low, high = places[0] // 8, places[-1] // 8
            sources = [
                (place // 8 - low) * LANES + i // HALF * HALF + 2 * (place % 8) + (channel >= 13)
                for i, (place, channel) in enumerate(zip(places, channels, strict=True))
            ]
            values = _shuffled(builder, eights[low], eights[high], sources)
            found = builder.icmp_unsigned("==", values, ir.Constant(_BYTES, channels))
            pointer = _pointer(
                context, builder, kinds[0], args[0], builder.add(args[1], ir.Constant(ir.IntType(64), start))
            )
            builder.store(builder.zext(found, _BYTES), pointer, align=1)
        return context.get_dummy_value()

    return types.void(target, types.uint64, cards, types.uint64), generate


@intrinsic
def spread_lanes(typing_context, target, to, stride, cards, at):  # type: ignore[no-untyped-def]
    """Write nineteen one-hot rows of `LANES` bytes, `stride` apart from `target[to]` on, of the cards from `at` on.

    Row after row: where a row is longer than the stride, the next one is written over its end.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        codes = builder.load(_pointer(context, builder, kinds[3], args[3], args[4]), align=1)
        place = args[1]
        for fact in _channels(builder, codes):
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
def above_lanes(typing_context, source, at, limit):  # type: ignore[no-untyped-def]
    """Return `LANES` bits, the lowest for `source[at]`: 1 where a byte, taken as unsigned, is more than `limit`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1]), align=1)
        found = builder.icmp_unsigned(">", value, _everywhere(builder, args[2]))
        return builder.zext(builder.bitcast(found, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(source, types.uint64, types.uint64), generate


@intrinsic
def subtract_lanes(typing_context, target, to, source, at):  # type: ignore[no-untyped-def]
    """Subtract `LANES` bytes of `source`, from `at` on, from those of `target`, from `to` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        pointer = _pointer(context, builder, kinds[0], args[0], args[1])
        less = builder.load(_pointer(context, builder, kinds[2], args[2], args[3]), align=1)
        builder.store(builder.sub(builder.load(pointer, align=1), less), pointer, align=1)
        return context.get_dummy_value()

    return types.void(target, types.uint64, source, types.uint64), generate


def _seen(builder: Any, kinds: Any, args: Any, context: Any, at: Any) -> Any:
    """Return `HALF` card codes, `FACE_DOWN` where `hidden` (args[3]) is not 0, of `cards` (args[2]) from `at` on.

    Where `hidden` is None, all are known.
    """
    cards = builder.load(_pointer(context, builder, kinds[2], args[2], at, _HALF), align=1)
    if isinstance(kinds[3], types.NoneType):
        return cards
    hidden = builder.load(_pointer(context, builder, kinds[3], args[3], at, _HALF), align=1)
    down = builder.icmp_unsigned("!=", hidden, ir.Constant(_HALF, [0] * HALF))
    return builder.select(down, ir.Constant(_HALF, [FACE_DOWN] * HALF), cards)


def _store_some(builder: Any, kinds: Any, args: Any, context: Any, value: Any) -> None:
    """Store the first `args[5]` of `HALF` bytes, and zeros for the others, in args[0] from args[1] on."""
    count = builder.trunc(args[5], _BYTE)
    zeros = ir.Constant(_HALF, [0] * HALF)
    first = builder.insert_element(zeros, count, ir.Constant(ir.IntType(32), 0))
    lanes = ir.VectorType(ir.IntType(32), HALF)
    limit = builder.shuffle_vector(first, zeros, ir.Constant(lanes, [0] * HALF))
    kept = builder.icmp_unsigned("<", ir.Constant(_HALF, list(range(HALF))), limit)
    value = builder.select(kept, value, zeros)
    builder.store(value, _pointer(context, builder, kinds[0], args[0], args[1], _HALF), align=1)


@intrinsic
def show_half(typing_context, target, to, cards, hidden, at, count):  # type: ignore[no-untyped-def]
    """Write `HALF` bytes from `target[to]` on: `count` cards from `at` on as the player knows them, then zeros."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _seen(builder, signature.args, args, context, args[4])
        _store_some(builder, signature.args, args, context, value)
        return context.get_dummy_value()

    return types.void(target, types.uint64, cards, hidden, types.int64, types.uint64), generate


@intrinsic
def show_half_reversed(typing_context, target, to, cards, hidden, end, count):  # type: ignore[no-untyped-def]
    """Write `HALF` bytes from `target[to]` on: the `count` cards before `end` as known, the last first, then zeros.

    `HALF` bytes are read before `end`, more than `count`.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = builder.sub(args[4], ir.Constant(ir.IntType(64), HALF))
        value = _seen(builder, signature.args, args, context, start)
        lanes = ir.VectorType(ir.IntType(32), HALF)
        value = builder.shuffle_vector(value, value, ir.Constant(lanes, list(reversed(range(HALF)))))
        _store_some(builder, signature.args, args, context, value)
        return context.get_dummy_value()

    return types.void(target, types.uint64, cards, hidden, types.int64, types.uint64), generate


@intrinsic
def count_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """Return how many bits of an int64 are 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), generate


@intrinsic
def lowest_bit(typing_context, bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit of an int64 that is 1 (there must be one)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


def pair_marker(firsts: Sequence[int], seconds: Sequence[int], total: int) -> Any:
    """Return `mark(target, to, held, cards, at)` for these couples of places (`LANES` or more, places below `LANES`).

    It writes a byte a couple from `target[to]` on, 1 where the ranks of the cards on its two places add up to `total`
    (more than 13, so that an empty place makes none), else 0, and the same as bits, `LANES` a word, from `held[0]` (an
    array of uint32) on, and returns the number of ones. `to` and `at` are uint64; `LANES` card codes are read from
    `cards[at]` on.
    """
    couples = len(firsts)

    @intrinsic
    def mark(typing_context, target, to, held, cards, at):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            values = _ranks(builder, builder.load(_pointer(context, builder, kinds[3], args[3], args[4]), align=1))
            kept = context.make_array(kinds[2])(context, builder, args[2]).data
            lanes, count = ir.VectorType(ir.IntType(32), LANES), ir.Constant(ir.IntType(32), 0)
            for word in range(-(-couples // LANES)):
                start = min(LANES * word, couples - LANES)  # the last lanes lie over some of those before
                first, second = (
                    builder.shuffle_vector(values, values, ir.Constant(lanes, list(places[start : start + LANES])))
                    for places in (firsts, seconds)
                )
                found = builder.icmp_unsigned("==", builder.add(first, second), _all(total - 2))
                place = builder.add(args[1], ir.Constant(ir.IntType(64), start))
                builder.store(
                    builder.zext(found, _BYTES), _pointer(context, builder, kinds[0], args[0], place), align=1
                )
                bits = builder.bitcast(found, ir.IntType(32))
                if start < LANES * word:
                    bits = builder.lshr(bits, ir.Constant(ir.IntType(32), LANES * word - start))
                builder.store(bits, builder.gep(kept, [ir.Constant(ir.IntType(64), word)]))
                count = builder.add(count, builder.ctpop(bits))
            return builder.zext(count, ir.IntType(64))

        return types.int64(target, types.uint64, held, cards, types.uint64), generate

    def mark_plainly(target, to, held, cards, at):  # type: ignore[no-untyped-def]
        codes = np.asarray(cards[at:]).astype(np.int64)
        values = np.where(codes == 0, 0, (codes - 1) % 13 + 1)
        found = values[list(firsts)] + values[list(seconds)] == total
        target[to : to + couples] = found
        for word in range(-(-couples // LANES)):
            held[word] = sum(1 << i for i, one in enumerate(found[LANES * word : LANES * (word + 1)].tolist()) if one)
        return int(np.count_nonzero(found))

    return mark if JIT else mark_plainly


def couple_marker(firsts: Sequence[int], seconds: Sequence[int], begin: int) -> Any:
    """Return `mark(target, held, one, other)` for these couples of places (below `LANES` - 1).

    From `target[begin]` on it writes a byte a couple, 1 where both places have a bit in `one` or both have one in
    `other` (int64, no bits from the last lane on), and the same as bits, `LANES` a word, from bit `begin` of `held` on
    (uint32). The first and the last entries share words, and the last `HALF` bytes, with others, which become 0.
    Returns the number of ones.
    """
    end = begin + len(firsts)

    @intrinsic
    def mark(typing_context, target, held, one, other):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            flags = ir.VectorType(ir.IntType(1), LANES)
            sides = [builder.bitcast(builder.trunc(value, ir.IntType(LANES)), flags) for value in args[2:]]
            low, high = (builder.zext(side, _BYTES) for side in sides)
            values = builder.or_(low, builder.shl(high, _all(1)))
            kept = context.make_array(kinds[1])(context, builder, args[1]).data
            count = ir.Constant(ir.IntType(32), 0)
            for word in range(begin // LANES, -(-end // LANES)):
                chosen = [
                    (firsts[i - begin], seconds[i - begin]) if begin <= i < end else (LANES - 1, LANES - 1)
                    for i in range(LANES * word, LANES * (word + 1))
                ]
                first, second = (_shuffled(builder, values, values, places) for places in zip(*chosen, strict=True))
                found = builder.icmp_unsigned("!=", builder.and_(first, second), _all(0))
                marks, place = builder.zext(found, _BYTES), ir.Constant(ir.IntType(64), LANES * word)
                lanes = _BYTES
                if end - LANES * word <= HALF:
                    marks, lanes = _shuffled(builder, marks, marks, range(HALF)), _HALF
                builder.store(marks, _pointer(context, builder, kinds[0], args[0], place, lanes), align=1)
                bits = builder.bitcast(found, ir.IntType(32))
                builder.store(bits, builder.gep(kept, [ir.Constant(ir.IntType(64), word)]))
                count = builder.add(count, builder.ctpop(bits))
            return builder.zext(count, ir.IntType(64))

        return types.int64(target, held, types.int64, types.int64), generate

    def mark_plainly(target, held, one, other):  # type: ignore[no-untyped-def]
        sides, couples = (int(one), int(other)), zip(firsts, seconds, strict=True)
        both = np.array([any(side >> i & side >> j & 1 for side in sides) for i, j in couples], np.int8)
        target[begin // LANES * LANES : begin] = 0
        target[begin:end] = both
        bits = sum(1 << begin + i for i, value in enumerate(both.tolist()) if value)
        for word in range(begin // LANES, -(-end // LANES)):
            held[word] = bits >> LANES * word & ((1 << LANES) - 1)
        return int(both.sum())

    return mark if JIT else mark_plainly


def rank_holder(size: int) -> Any:
    """Return `hold(held, cards)`: it writes a word for each rank, with a bit for each place where a card of it lies.

    `cards` are the codes on `size` places (fewer than `LANES`, and so many are read); `held` (int32) gets `HALF` words:
    the empty places', those of rank 1 to 13, then zeros.
    """

    @intrinsic
    def hold(typing_context, held, cards):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to = context.make_array(signature.args[0])(context, builder, args[0]).data
            pointer = _pointer(context, builder, signature.args[1], args[1], ir.Constant(ir.IntType(64), 0))
            beyond = ir.Constant(_BYTES, [0 if place < size else 255 for place in range(LANES)])
            ranks = builder.or_(_ranks(builder, builder.load(pointer, align=1)), beyond)
            for word in range(HALF):
                bits: Any = ir.Constant(ir.IntType(32), 0)
                if word <= 13:
                    found = builder.icmp_unsigned("==", ranks, _all(word - 1 if word else 216))
                    bits = builder.bitcast(found, ir.IntType(32))
                builder.store(bits, builder.gep(to, [ir.Constant(ir.IntType(64), word)]))
            return context.get_dummy_value()

        return types.void(held, cards), generate

    def hold_plainly(held, cards):  # type: ignore[no-untyped-def]
        held[:HALF] = 0
        for place, code in enumerate(cards[:size].tolist()):
            held[(code - 1) % 13 + 1 if code else 0] |= 1 << place

    return hold if JIT else hold_plainly


def triangle_holder(size: int, first: int) -> Any:
    """Return `hold(held, rows)`: it writes a bit for each couple (i, j) of numbers below `size` (to `LANES`), i < j.

    They stand in the order (0, 1), (0, 2), ..., (1, 2), ... from bit `first` of `held` on, `LANES` in each of its words
    (uint32): the one that `rows[i]` (int32, not below 0, no bits from `size` on) has at j. Lower bits of the first word
    are kept, others of the words that are written become 0. Returns the number of ones.
    """
    begins = [first]
    for i in range(size - 1):
        begins.append(begins[-1] + size - 1 - i)
    end = -(-begins.pop() // LANES)

    @intrinsic
    def hold(typing_context, held, rows):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, source = (
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args, args, strict=True)
            )

            def number(value: int, width: int = 64) -> Any:
                return ir.Constant(ir.IntType(width), value)

            words: list[Any] = [None] * end
            words[first // LANES] = builder.and_(
                builder.load(builder.gep(to, [number(first // LANES)])), number((1 << first % LANES) - 1, 32)
            )
            for i, begin in enumerate(begins):
                bits = builder.lshr(builder.load(builder.gep(source, [number(i)])), number(i + 1, 32))
                word, shift = divmod(begin, LANES)
                for part in (word, word + 1):
                    if part == word:
                        piece = builder.shl(bits, number(shift, 32))
                    elif shift + size - 1 - i > LANES:
                        piece = builder.lshr(bits, number(LANES - shift, 32))
                    else:
                        break
                    words[part] = piece if words[part] is None else builder.or_(words[part], piece)
            kept = builder.and_(words[first // LANES], number((1 << LANES) - (1 << first % LANES), 32))
            count = builder.ctpop(kept)
            for word in range(first // LANES, end):
                builder.store(words[word], builder.gep(to, [number(word)]))
                if word > first // LANES:
                    count = builder.add(count, builder.ctpop(words[word]))
            return builder.zext(count, ir.IntType(64))

        return types.int64(held, rows), generate

    def hold_plainly(held, rows):  # type: ignore[no-untyped-def]
        bits = int(held[first // LANES]) & ((1 << first % LANES) - 1)
        count = 0
        for i, begin in enumerate(begins):
            found = int(rows[i]) >> (i + 1)
            bits |= found << (begin - first // LANES * LANES)
            count += found.bit_count()
        for word in range(first // LANES, end):
            held[word] = bits & ((1 << LANES) - 1)
            bits >>= LANES
        return count

    return hold if JIT else hold_plainly


def word_smearer(steps: Sequence[tuple[int, int]], count: int) -> Any:
    """Return `smear(target, source)` for `count` words (int32, to `HALF`) of arrays that have `HALF` or more each.

    Each word of the target becomes the union of the source's word moved by each step: (by how many bits to the left,
    not by 0; which bits to keep). Further words of the target, up to `HALF`, get arbitrary contents.
    """

    @intrinsic
    def smear(typing_context, target, source):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            lanes = ir.VectorType(ir.IntType(32), HALF)
            to, at = (
                builder.bitcast(context.make_array(kind)(context, builder, value).data, lanes.as_pointer())
                for kind, value in zip(signature.args, args, strict=True)
            )
            value = builder.load(at, align=4)
            union = ir.Constant(lanes, [0] * HALF)
            for step, kept in steps:
                shift = builder.shl if step > 0 else builder.lshr
                moved = shift(value, ir.Constant(lanes, [abs(step)] * HALF))
                union = builder.or_(union, builder.and_(moved, ir.Constant(lanes, [kept] * HALF)))
            builder.store(union, to, align=4)
            return context.get_dummy_value()

        return types.void(target, source), generate

    def smear_plainly(target, source):  # type: ignore[no-untyped-def]
        for i in range(count):
            word = int(source[i])
            target[i] = 0
            for step, kept in steps:
                target[i] |= (word << step if step > 0 else word >> -step) & kept

    return smear if JIT else smear_plainly


def _stack_array(entry: Any) -> Any:
    """Return an intrinsic: `LANES` numbers of a type of 32 bits on the stack of the calling function."""
    kind = types.Array(entry, 1, "C")

    @intrinsic
    def stack_array(typing_context):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            room = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(32), LANES))
            array = context.make_array(kind)(context, builder)
            size = context.get_constant(types.intp, 4)
            populate_array(
                array,
                data=builder.bitcast(room, array.data.type),
                shape=[context.get_constant(types.intp, LANES)],
                strides=[size],
                itemsize=size,
                meminfo=None,
            )
            return array._getvalue()

        return kind(), generate

    return stack_array


@intrinsic
def meeting_lanes(typing_context, words, bits, others, other_bits):  # type: ignore[no-untyped-def]
    """Return `LANES` bits, the lowest for `words[0]`: 1 where `words & bits` or `others & other_bits` is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(32), LANES)
        found = []
        for kind, array, word in zip(signature.args[::2], args[::2], args[1::2], strict=True):
            value = builder.load(
                builder.bitcast(context.make_array(kind)(context, builder, array).data, lanes.as_pointer()), align=4
            )
            first = builder.insert_element(
                ir.Constant(lanes, [0] * LANES), builder.trunc(word, ir.IntType(32)), ir.Constant(ir.IntType(32), 0)
            )
            everywhere = builder.shuffle_vector(first, first, ir.Constant(lanes, [0] * LANES))
            found.append(builder.and_(value, everywhere))
        meet = builder.icmp_unsigned("!=", builder.or_(*found), ir.Constant(lanes, [0] * LANES))
        return builder.zext(builder.bitcast(meet, ir.IntType(32)), ir.IntType(64))

    return types.int64(words, types.int64, others, types.int64), generate


def crowd_finder(least: int) -> Any:
    """Return `find(words, bits)`: `LANES` bits, the lowest for `words[0]` (int32): 1 where `words & bits` has so many.

    That many ones or more; `least` is 1 or more.
    """

    @intrinsic
    def find(typing_context, words, bits):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            lanes = ir.VectorType(ir.IntType(32), LANES)
            array = context.make_array(signature.args[0])(context, builder, args[0]).data
            value = builder.load(builder.bitcast(array, lanes.as_pointer()), align=4)
            zeros = ir.Constant(lanes, [0] * LANES)
            first = builder.insert_element(
                zeros, builder.trunc(args[1], ir.IntType(32)), ir.Constant(ir.IntType(32), 0)
            )
            value = builder.and_(value, builder.shuffle_vector(first, zeros, zeros))
            for _ in range(least - 1):  # without the lowest one
                value = builder.and_(value, builder.sub(value, ir.Constant(lanes, [1] * LANES)))
            found = builder.bitcast(builder.icmp_unsigned("!=", value, zeros), ir.IntType(32))
            return builder.zext(found, ir.IntType(64))

        return types.int64(words, types.int64), generate

    def find_plainly(words, bits):  # type: ignore[no-untyped-def]
        crowds = [(value & int(bits)).bit_count() >= least for value in words[:LANES].tolist()]
        return sum(1 << i for i, crowd in enumerate(crowds) if crowd)

    return find if JIT else find_plainly


@intrinsic
def spread_bits(typing_context, target, to, bits):  # type: ignore[no-untyped-def]
    """Write `LANES` bytes from `target[to]` on: 0 or 1 for each of the lowest bits of `bits`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flags = builder.bitcast(builder.trunc(args[2], ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(builder.zext(flags, _BYTES), pointer, align=1)
        return context.get_dummy_value()

    return types.void(target, types.uint64, types.uint64), generate


def _copy_plainly(target, to, source, at, count):  # type: ignore[no-untyped-def]
    """Copy `count` bytes from `source[at]` on to `target[to]` on (flat int8 arrays that do not overlap)."""
    target[to : to + count] = source[at : at + count]


@intrinsic
def _copy_in_lanes(typing_context, target, to, source, at, count):  # type: ignore[no-untyped-def]
    """Do the same in compiled code: LLVM writes out a copy of a known length."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        places = [
            builder.gep(context.make_array(kinds[i])(context, builder, args[i]).data, [args[i + 1]]) for i in (0, 2)
        ]
        cgutils.raw_memcpy(builder, *places, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


def _move(kind: Any) -> Any:
    """Return an intrinsic that copies the bytes of a vector type from `source[at]` on to `target[to]` on."""

    @intrinsic
    def move(typing_context, target, to, source, at):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            value = builder.load(_pointer(context, builder, kinds[2], args[2], args[3], kind), align=1)
            builder.store(value, _pointer(context, builder, kinds[0], args[0], args[1], kind), align=1)
            return context.get_dummy_value()

        return types.void(target, types.uint64, source, types.uint64), generate

    return move


copy_lanes = _move(_BYTES)
copy_half = _move(_HALF)


@rule
def _copy_few_in_lanes(target, to, source, at, count):  # type: ignore[no-untyped-def]
    """Copy `count` bytes as `copy_bytes` does: faster for a few bytes whose number is known at run time alone."""
    if count >= LANES:
        for i in range(0, count - LANES, LANES):
            copy_lanes(target, np.uint64(to + i), source, np.uint64(at + i))
        copy_lanes(target, np.uint64(to + count - LANES), source, np.uint64(at + count - LANES))
    elif count >= HALF:
        copy_half(target, np.uint64(to), source, np.uint64(at))
        copy_half(target, np.uint64(to + count - HALF), source, np.uint64(at + count - HALF))
    else:
        for i in range(count):
            target[np.uint64(to + i)] = source[np.uint64(at + i)]


def _mark_plainly(target, to, source, at, count):  # type: ignore[no-untyped-def]
    """Write `count` bytes from `target[to]` on: 1 where the byte of `source`, from `at` on, is 0, else 0."""
    target[to : to + count] = source[at : at + count] == 0


@rule
def _mark_in_lanes(target, to, source, at, count):  # type: ignore[no-untyped-def]
    """Do the same in compiled code."""
    if count >= HALF:
        for i in range(0, count - HALF, HALF):
            mark_half(target, np.uint64(to + i), source, np.uint64(at + i))
        mark_half(target, np.uint64(to + count - HALF), source, np.uint64(at + count - HALF))
    else:
        for i in range(count):
            target[np.uint64(to + i)] = 1 if source[np.uint64(at + i)] == 0 else 0


def _show_plainly(target, to, cards, hidden, at, count):  # type: ignore[no-untyped-def]
    """Write `HALF` bytes as `show_half` does."""
    target[to : to + HALF] = 0
    shown = cards[at : at + count]
    if hidden is not None:
        shown = np.where(hidden[at : at + count] != 0, FACE_DOWN, shown)
    target[to : to + count] = shown


@rule
def _show_in_lanes(target, to, cards, hidden, at, count):  # type: ignore[no-untyped-def]
    show_half(target, np.uint64(to), cards, hidden, np.int64(at), np.uint64(count))


def _show_back_plainly(target, to, cards, hidden, end, count):  # type: ignore[no-untyped-def]
    """Write `HALF` bytes as `show_half_reversed` does."""
    target[to : to + HALF] = 0
    shown = cards[end - count : end]
    if hidden is not None:
        shown = np.where(hidden[end - count : end] != 0, FACE_DOWN, shown)
    target[to : to + count] = shown[::-1]


@rule
def _show_back_in_lanes(target, to, cards, hidden, end, count):  # type: ignore[no-untyped-def]
    show_half_reversed(target, np.uint64(to), cards, hidden, np.int64(end), np.uint64(count))


@rule
def clear_half(target, to):  # type: ignore[no-untyped-def]
    """Write `HALF` zeros from `target[to]` on."""
    for i in range(np.uint64(to), np.uint64(to + HALF)):
        target[i] = 0


def _words_plainly():  # type: ignore[no-untyped-def]
    """Return `LANES` numbers (int32, contents arbitrary) that last until the calling function returns."""
    return np.zeros(LANES, np.int32)


def _bit_words_plainly():  # type: ignore[no-untyped-def]
    """Return `LANES` words for bits (uint32, contents arbitrary) that last until the calling function returns."""
    return np.zeros(LANES, np.uint32)


def _meeting_plainly(words, bits, others, other_bits):  # type: ignore[no-untyped-def]
    """Return `LANES` bits, the lowest for `words[0]`: 1 where `words & bits` or `others & other_bits` is not 0."""
    meet = (words[:LANES] & int(bits)) | (others[:LANES] & int(other_bits))
    return sum(1 << i for i, value in enumerate(meet.tolist()) if value)


@rule
def _meeting_in_lanes(words, bits, others, other_bits):  # type: ignore[no-untyped-def]
    return meeting_lanes(words, np.int64(bits), others, np.int64(other_bits))


def _spread_plainly(target, to, bits):  # type: ignore[no-untyped-def]
    """Write `LANES` bytes from `target[to]` on: 0 or 1 for each of the lowest bits of a number."""
    target[to : to + LANES] = [int(bits) >> i & 1 for i in range(LANES)]


@rule
def _spread_in_lanes(target, to, bits):  # type: ignore[no-untyped-def]
    spread_bits(target, np.uint64(to), np.uint64(bits))


def _count_plainly(bits):  # type: ignore[no-untyped-def]
    """Return how many bits of a number are 1."""
    return int(bits).bit_count()


@rule
def _count_in_lanes(bits):  # type: ignore[no-untyped-def]
    return count_bits(np.int64(bits))


def _lowest_plainly(bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is 1 (there must be one)."""
    return (int(bits) & -int(bits)).bit_length() - 1


@rule
def _lowest_in_lanes(bits):  # type: ignore[no-untyped-def]
    return lowest_bit(np.int64(bits))


def _marked_plainly(source, at):  # type: ignore[no-untyped-def]
    """Return `LANES` bits, the lowest for `source[at]`: 1 where a byte is not 0."""
    return sum(1 << i for i, value in enumerate(source[at : at + LANES]) if value)


@rule
def _marked_in_lanes(source, at):  # type: ignore[no-untyped-def]
    return marked_lanes(source, np.uint64(at))


def _above_plainly(source, at, limit):  # type: ignore[no-untyped-def]
    """Return `LANES` bits, the lowest for `source[at]`: 1 where a byte, taken as unsigned, is more than `limit`."""
    return sum(1 << i for i, value in enumerate(source[at : at + LANES].tolist()) if value & 255 > limit)


@rule
def _above_in_lanes(source, at, limit):  # type: ignore[no-untyped-def]
    return above_lanes(source, np.uint64(at), np.uint64(limit))


def _subtract_plainly(target, source, at):  # type: ignore[no-untyped-def]
    """Subtract bytes of `source`, from `at` on, from those of `target`.

    Compiled code does so with `LANES` bytes, even where `target` is shorter.
    """
    target -= source[at : at + len(target)]


@rule
def _subtract_in_lanes(target, source, at):  # type: ignore[no-untyped-def]
    subtract_lanes(target, np.uint64(0), source, np.uint64(at))


def _pack_plainly(held, masks, row):  # type: ignore[no-untyped-def]
    """Write a bit for each byte of a row, 1 where it is not 0, into the words of `LANES` bits (uint32) of `held`."""
    room = np.zeros(4 * held.shape[1], np.uint8)
    room[: -(-masks.shape[1] // 8)] = np.packbits(masks[row] != 0, bitorder="little")
    held[row] = room.view("<u4")


@rule
def _pack_in_lanes(held, masks, row):  # type: ignore[no-untyped-def]
    size = masks.shape[1]
    whole = size // LANES
    for word in range(whole):
        held[row, word] = marked_lanes(masks, np.uint64(row * size + LANES * word))
    rest = size - LANES * whole
    if rest == 0:
        return
    bits = np.int64(0)
    first = row * size + LANES * whole
    if first + LANES <= masks.size:  # what is read beyond the row belongs to the next ones
        bits = marked_lanes(masks, np.uint64(first)) & ((1 << rest) - 1)
    else:
        for i in range(rest):
            bits |= (1 if masks[row, LANES * whole + i] else 0) << i
    held[row, whole] = bits


copy_bytes: Any = _copy_in_lanes if JIT else _copy_plainly
copy_few: Any = _copy_few_in_lanes if JIT else _copy_plainly
mark_zeros: Any = _mark_in_lanes if JIT else _mark_plainly
show_cards: Any = _show_in_lanes if JIT else _show_plainly
show_cards_back: Any = _show_back_in_lanes if JIT else _show_back_plainly
count_ones: Any = _count_in_lanes if JIT else _count_plainly
lowest_one: Any = _lowest_in_lanes if JIT else _lowest_plainly
ones_above: Any = _above_in_lanes if JIT else _above_plainly
subtract_bytes: Any = _subtract_in_lanes if JIT else _subtract_plainly
ones: Any = _marked_in_lanes if JIT else _marked_plainly
write_bits: Any = _spread_in_lanes if JIT else _spread_plainly
words: Any = _stack_array(types.int32) if JIT else _words_plainly
bit_words: Any = _stack_array(types.uint32) if JIT else _bit_words_plainly
meeting: Any = _meeting_in_lanes if JIT else _meeting_plainly
pack_row: Any = _pack_in_lanes if JIT else _pack_plainly
