"""The compiled loops that environments and agents call, written once for all games on the generic verbs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.deals import advance, bits_at
from patience_env.encoding import TOGETHER, write_planes
from patience_env.jit import JIT, kernel, rule
from patience_env.lanes import LANES, count_ones, lowest_one, ones, pack_row
from patience_env.verbs import deal, determinize, forfeit, has_grid, holds_legal, is_won, mark_legal, observe, play

OVER = 1
ILLEGAL = 2

IDLE = 0
STEP = 1
DEAL = 2
SHOW = 3
LOOK = 4

LAG = 2  # rows between one that is played and one that is looked at, and between that and one that is written out


@rule
def is_held(held, action):  # type: ignore[no-untyped-def]
    """Tell whether an action (not below 0) is legal by the bits of its row."""
    word = np.uint64(action >> 5)
    return word < held.shape[0] and (int(held[word]) >> (action & 31)) & 1 != 0


@rule
def any_held(held):  # type: ignore[no-untyped-def]
    """Tell whether any action is legal by the bits of a row."""
    found = 0
    for word in range(held.shape[0]):
        found |= int(held[word])
    return found != 0


@rule
def move(state, held, mode, number, action):  # type: ignore[no-untyped-def]
    """Deal or play; return the reward and status bits: ILLEGAL, and OVER where an illegal action ended the game."""
    reward = 0.0
    bits = 0
    if mode == STEP:
        if action >= 0 and is_held(held, action):
            reward = play(state, action)
        elif any_held(held):
            reward = -1.0
            bits = ILLEGAL if forfeit(state) else ILLEGAL | OVER
    elif mode == DEAL:
        state.deal = number
        deal(state)
    return reward, bits


@rule
def mark(state, mask, held, bits):  # type: ignore[no-untyped-def]
    """Write the legal actions, none where the game is forfeited; return how many they are."""
    count = mark_legal(state, mask, held)
    if bits & OVER:
        count = 0
        for i in range(mask.shape[0]):
            mask[i] = 0
        for word in range(held.shape[0]):
            held[word] = 0
    return count


@rule
def show_held(mask, held):  # type: ignore[no-untyped-def]
    """Write the legal actions of a row from its bits."""
    for i in range(mask.shape[0]):
        mask[i] = is_held(held, i)


@kernel
def advance_rows(  # type: ignore[no-untyped-def]
    states, modes, deals, actions, rewards, status, held, masks, observations, scratch, sizes
):
    """Move every row on as its mode says and write its reward, status, mask and observation.

    Modes (uint8): IDLE leaves the row alone (reward 0, status 0), STEP plays its action, DEAL starts the deal of its
    number (uint64), SHOW finds what is legal and writes mask and observation, LOOK writes both as they are. One loop
    does all, so that each game is compiled once. It plays a row, finds what is legal and to be seen in an earlier one,
    and spreads that into planes and keeps what is legal in a still earlier one. Each reads in wide pieces what the one
    before has written in narrow ones, for which a processor waits if that was just before; and while it waits for one
    it works on another.
    `held` keeps the legal actions from call to call, a bit each (uint32, `LANES` a word): what happens to the `masks`,
    a byte each, does no harm to the game. They are written for every row that is not IDLE. `scratch` is room for the
    cards form of the rows under way, without entries where `observations` are not planes. `sizes` holds the number
    of places, the size of the grid, and 1 where the reward is 1 on the winning move, else 0.
    `status` gets 0 (goes on), OVER, ILLEGAL (an illegal action that the episode survives) or both bits. An action
    outside the action space is illegal like any other. Where no action is legal (a deal that is over before it began)
    any action will do and gives no reward.
    Returns the status bits that any row got.
    """
    seen = 0
    count = states.shape[0]
    for turn in range(count + 2 * LAG):
        row = turn - 2 * LAG
        if row >= 0:
            if modes[row] != IDLE:
                if not holds_legal(states[row]):
                    pack_row(held, masks, row)
                if scratch.shape[1] > 0:
                    cells = int(sizes[1]) if has_grid(states[row]) else 0
                    write_planes(observations[row], scratch[row & (TOGETHER - 1)], int(sizes[0]), cells)
        row = turn - LAG
        if row >= 0 and row < count:
            mode = modes[row]
            if mode != IDLE:
                state = states[row]
                mask = masks[row]
                if mode != LOOK:
                    bits = int(status[row])
                    legal = mark(state, mask, held[row], bits)
                    if legal == 0:
                        bits |= OVER
                    if sizes[2] and not bits & ILLEGAL:
                        rewards[row] = 1.0 if legal == 0 and mode == STEP and is_won(state) else 0.0
                    status[row] = bits
                    seen |= bits
                else:
                    show_held(mask, held[row])
                places = observations[row]
                if scratch.shape[1] > 0:
                    places = scratch[row & (TOGETHER - 1)]
                observe(state, places)
        row = turn
        if row < count:
            reward, bits = move(states[row], held[row], modes[row], deals[row], actions[row])
            rewards[row] = reward
            status[row] = bits
    return seen


@kernel
def determinize_rows(states, keys):  # type: ignore[no-untyped-def]
    """Re-deal in every row what its player cannot know, from the random bits in `keys` (uint64)."""
    for row in range(states.shape[0]):
        determinize(states[row], keys[row])


@kernel
def won_rows(states, won):  # type: ignore[no-untyped-def]
    """Write for every row whether the game is won."""
    for row in range(states.shape[0]):
        won[row] = is_won(states[row])


@rule
def legal_bits(mask, first):  # type: ignore[no-untyped-def]
    """Return a bit for each of up to `LANES` entries from `first` on, the lowest for `first`: 1 where it is not 0."""
    size = mask.shape[0]
    if first + LANES <= size:
        return ones(mask, first)
    if size >= LANES:
        return ones(mask, size - LANES) >> (first + LANES - size)
    bits = 0
    for i in range(first, size):
        bits |= (1 if mask[i] else 0) << (i - first)
    return bits


@rule
def prepare_row(row, deals, upcoming, following):  # type: ignore[no-untyped-def]
    """Set the deal of a game that has ended to the next of its upcoming numbers; tell whether there was one."""
    if following[row] == upcoming.shape[1]:
        return False
    deals[row] = upcoming[row, following[row]]
    return True


@kernel
def prepare_rows(ended, modes, deals, upcoming, following, held, actions, strict):  # type: ignore[no-untyped-def]
    """Set the modes of the coming step: games that have ended are dealt anew, with the next of their upcoming numbers.

    Returns -1; or, before anything is changed, the first row that is to play an illegal action although it has a legal
    one (only where `strict`); or, if there is none, -2 - row for the first row whose upcoming numbers are used up.
    """
    if strict:
        for row in range(held.shape[0]):
            action = actions[row]
            obeyed = action >= 0 and is_held(held[row], action)
            if not obeyed and not ended[row] and any_held(held[row]):
                return row
    for row in range(ended.shape[0]):
        if ended[row] and not prepare_row(row, deals, upcoming, following):
            return -2 - row
    for row in range(ended.shape[0]):
        modes[row] = DEAL if ended[row] else STEP
    return -1


@kernel
def settle_rows(  # type: ignore[no-untyped-def]
    modes, status, elapsed, limit, terminated, truncated, ended, deals, playing, upcoming, following
):
    """Tell after a step which games terminated, were truncated (after `limit` steps; 0: never) or ended in any way.

    Those that had ended before were dealt in this step: the numbers of their deals go from `deals` to `playing`. The
    next step is prepared as `prepare_rows` does. Returns 0 where no game has ended, 1 where some have, 2 where the
    upcoming numbers of one of these are used up, so that the next step is not prepared.
    """
    rows = modes.shape[0]
    for start in range(0, rows, LANES):
        dealt = np.int64(legal_bits(ended, start))
        while dealt:
            row = start + lowest_one(dealt)
            dealt &= dealt - 1
            playing[row] = deals[row]
            following[row] += 1
    for row in range(rows):  # a compiler makes vectors of short loops over few arrays
        terminated[row] = (modes[row] == STEP) & ((status[row] & OVER) != 0)
    if limit > 0:
        for row in range(rows):
            elapsed[row] = elapsed[row] + 1 if modes[row] == STEP else 0
        for row in range(rows):
            truncated[row] = elapsed[row] >= limit
    for row in range(rows):
        ended[row] = terminated[row] | truncated[row]
    for row in range(rows):
        modes[row] = DEAL if ended[row] else STEP
    found = 0
    for start in range(0, rows, LANES):
        over = np.int64(legal_bits(ended, start))
        while over:
            row = start + lowest_one(over)
            over &= over - 1
            found |= 1 if prepare_row(row, deals, upcoming, following) else 3
    return min(found, 2)


@rule
def nth_one(bits, left):  # type: ignore[no-untyped-def]
    """Return the number of the bit that is 1 and has `left` lower ones (there must be one)."""
    for _ in range(left):
        bits &= bits - 1
    return lowest_one(bits)


def _nth_plainly(mask, left):  # type: ignore[no-untyped-def]
    found = np.flatnonzero(mask)
    return int(found[left]) if 0 <= left < len(found) else -1


@rule
def _nth_in_lanes(mask, left):  # type: ignore[no-untyped-def]
    """Return the legal action that has `left` legal ones before it, -1 if there is none."""
    for first in range(0, mask.shape[0], LANES):
        bits = np.int64(legal_bits(mask, first))
        here = count_ones(bits)
        if left < here:
            return first + nth_one(bits, left)
        left -= here
    return -1


def _count_plainly(mask):  # type: ignore[no-untyped-def]
    return int(np.count_nonzero(mask))


@rule
def _count_in_lanes(mask):  # type: ignore[no-untyped-def]
    """Return the number of legal actions."""
    count = 0
    for first in range(0, mask.shape[0], LANES):
        count += count_ones(np.int64(legal_bits(mask, first)))
    return count


nth_legal: Any = _nth_in_lanes if JIT else _nth_plainly
count_legal: Any = _count_in_lanes if JIT else _count_plainly


@kernel
def sample_rows(masks, bits, actions):  # type: ignore[no-untyped-def]
    """Choose a uniformly random legal action in every row from 32 random bits each (uint32); -1 where none is legal."""
    for row in range(masks.shape[0]):
        mask = masks[row]
        actions[row] = nth_legal(mask, (np.int64(bits[row]) * count_legal(mask)) >> 32)


@kernel
def sample_held(held, bits, actions):  # type: ignore[no-untyped-def]
    """Choose like `sample_rows` by the bits of every row (see `advance_rows`); 0 where none is legal."""
    for row in range(held.shape[0]):
        words = held[row]
        count = 0
        for word in range(words.shape[0]):
            count += count_ones(int(words[word]))
        left = (np.int64(bits[row]) * count) >> 32
        actions[row] = 0
        for word in range(words.shape[0]):
            one = np.int64(words[word])
            here = count_ones(one)
            if left < here:
                actions[row] = LANES * word + nth_one(one, left)
                break
            left -= here


@kernel
def hold_rows(masks, held):  # type: ignore[no-untyped-def]
    """Take these legal actions for those of the rows."""
    for row in range(masks.shape[0]):
        pack_row(held, masks, row)


@kernel
def show_rows(held, masks):  # type: ignore[no-untyped-def]
    """Write the legal actions of every row."""
    for row in range(masks.shape[0]):
        show_held(masks[row], held[row])


@kernel
def sample_one(mask, stream):  # type: ignore[no-untyped-def]
    """Return a uniformly random legal action (-1 if none) and advance the splitmix64 stream `stream[0]` (uint64)."""
    stream[0] = advance(int(stream[0]))
    return nth_legal(mask, (np.int64(bits_at(int(stream[0])) >> 32) * count_legal(mask)) >> 32)


def sample(masks: NDArray[np.int8], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a uniformly random legal action for every row of `masks`, shape (n,), int64 (-1 where none is legal)."""
    actions = np.empty(len(masks), np.int64)
    sample_rows(np.ascontiguousarray(masks), rng.integers(0, 2**32, len(masks), np.uint32), actions)
    return actions
