"""Guided games: a deal whose cards are all known is played by a rule of thumb, again and again, until it is won.

The solver's other half. A rule of thumb that wins a deal now and then wins more deals when it may try again, with some
moves drawn at random; and far more when every move is tried by a game that is played on from it to the end, and the
best game so far is followed (*nested* rollouts: Yan, Diaconis, Rusmevichientong and Van Roy, "Solitaire: Man Versus
Machine", 2004; Cazenave, "Nested Monte-Carlo Search", 2009). These games meet the very cards of the deal, hidden ones
and later shuffles included, as the solver does.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.rollouts import RANDOM, THUMB, choose, find_moves, make_move
from patience_env.agents.solver_verbs import candidates, forced, like
from patience_env.deals import advance, bits_at
from patience_env.jit import helper, kernel
from patience_env.verbs import is_won

PLAIN_GAMES = 50  # before nested ones
MOST_NESTED = 500_000  # moves of all games that a nested game may cost
NOISES = np.array([0.0, 0.02, 0.05, 0.1])  # shares of moves at random, from game to game
SEED = 0x6A09E667F3BCC908
# What `facts` holds.
LENGTH, MOVES = range(2)
BEFORE = -1.0  # less than the rewards of any game


@helper
def play_on(state, spare, mask, stream, noise, line, length, facts):  # type: ignore[no-untyped-def]
    """Play a game to its end by the rule of thumb, writing its moves into `line` from `length` on; return the rewards.

    `facts[LENGTH]` becomes the number of all moves; a game as long as `line` ends there.
    """
    value = 0.0
    rng = int(stream[0])
    begun = length
    while length < line.shape[0]:
        action = forced(state)
        if action < 0:
            count = find_moves(state, mask)
            if count == 0:
                break
            rng = advance(rng)
            bits = bits_at(rng)
            policy = RANDOM if noise > 0.0 and np.int64(bits >> 32) < noise * 4294967296.0 else THUMB
            rng = advance(rng)
            action = choose(state, spare, mask, count, policy, np.uint64(bits_at(rng)))
        line[length] = action
        length += 1
        value += make_move(state, action)
    stream[0] = rng
    facts[LENGTH] = length
    facts[MOVES] += length - begun
    return value


@kernel
def play_plainly(root, work, mask, stream, noise, line, facts):  # type: ignore[no-untyped-def]
    """Play one game by the rule of thumb; return whether it is won, and its rewards.

    Its moves are `line[: facts[LENGTH]]`.
    """
    work[0] = root[0]
    value = play_on(work[0], work[2:], mask, stream, noise, line, 0, facts)
    return is_won(work[0]), value


@kernel
def play_nested(root, work, mask, moves, stream, noise, line, best, facts):  # type: ignore[no-untyped-def]
    """Play one game in which every move is tried by a game; return whether one was won, and the rewards of the best.

    The moves of the best game are `best[: facts[LENGTH]]`. It ends after about `MOST_NESTED` moves of all games.
    """
    work[0] = root[0]
    state = work[0]
    length = 0
    reached = 0.0
    highest = BEFORE
    end = 0
    limit = facts[MOVES] + MOST_NESTED
    while length < line.shape[0]:
        action = forced(state)
        if action < 0:
            count = candidates(state, mask, moves)
            if count == 0:
                break
            for i in range(count):
                if count == 1 and length < end and best[length] == moves[0]:
                    break  # the best game plays it already
                work[1] = work[0]
                tried = work[1]
                line[length] = moves[i]
                value = reached + make_move(tried, int(moves[i]))
                value += play_on(tried, work[2:], mask, stream, noise, line, length + 1, facts)
                if value > highest:
                    highest = value
                    end = int(facts[LENGTH])
                    for j in range(length, end):
                        best[j] = line[j]
                    if is_won(tried):
                        facts[LENGTH] = end
                        return True, highest
                if facts[MOVES] >= limit:
                    facts[LENGTH] = end
                    return False, highest
            if length >= end:
                break
            action = best[length]
        elif length >= end or best[length] != action:
            best[length] = action
            end = length + 1
            highest = BEFORE
        line[length] = action
        length += 1
        reached += make_move(state, int(action))
    facts[LENGTH] = end
    return False, highest


class GuidedGames:
    """Guided games from one position, the same ones every time: first plain ones, then nested ones.

    Args:
        states: the position, shape (1,); the solver's verbs must know its game (`solver_verbs.add_hooks`).
        actions: size of the action space.
        longest: moves of the longest game.

    Attributes:
        best: the moves of the game that had the highest rewards so far.
    """

    def __init__(self, states: NDArray[Any], actions: int, longest: int) -> None:
        self._root = states
        self._work = like(states, 3)
        self._mask = np.zeros(actions, np.int8)
        self._moves = np.zeros(actions, np.int64)
        self._line = np.zeros(longest, np.int64)
        self._best = np.zeros(longest, np.int64)
        self._stream = np.array([SEED], np.uint64)
        self._facts = np.zeros(2, np.int64)
        self._games = 0
        self._highest = BEFORE
        self.best: tuple[int, ...] = ()

    @property
    def moves(self) -> int:
        """How many moves all games so far had."""
        return int(self._facts[MOVES])

    def play(self, most: int, until: float = math.inf) -> tuple[int, ...]:
        """Play until all games together have had `most` moves or a few more; return a won game's moves, else none.

        No game is begun once the process has had `until` seconds of CPU time.
        """
        while self.moves < most and time.process_time() < until:
            noise = float(NOISES[self._games % len(NOISES)])
            before = self.moves
            given = (self._stream, noise, self._line)
            line, facts = self._line, self._facts
            if self._games < PLAIN_GAMES:
                won, value = play_plainly(self._root, self._work, self._mask, *given, facts)
            else:
                line = self._best
                won, value = play_nested(self._root, self._work, self._mask, self._moves, *given, line, facts)
            self._games += 1
            if value > self._highest:
                self._highest = value
                self.best = tuple(int(action) for action in line[: facts[LENGTH]])
            if won:
                return self.best
            if self.moves == before:  # there is no move to make
                break
        return ()
