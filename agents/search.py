"""`SearchPolicy`: Patience Poker by looking ahead.

The value network picks the candidate cells, and its opinion of them counts as so many simulated games. Every candidate
is tried on the same random decks (so that the luck of the cards is taken out of the comparison),
each game played to its end by the table; the worse half of the candidates is dropped again and again, and the budget of
each round goes to those left (sequential halving: Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed
bandits", 2013). The last cards are played by exact expectation over all cards that may come.

The search reads what the player sees, and shuffles the unseen cards itself: the order in which they lie is not used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.board_values import ValuePolicy
from patience_env.agents.line_table import (
    IS_STRAIGHT,
    MIXED,
    RANKS_HAND,
    WITHIN,
    LinePolicy,
    best_cell,
    best_move,
    lay,
    legal_columns,
    new_boards,
    read_board,
    see_card,
    weigh,
)
from patience_env.agents.policy import Policy, Turn
from patience_env.cards import PACK
from patience_env.deals import draw_card, reshuffle
from patience_env.game import Game
from patience_env.games.patience_poker import CANVAS, CARDS, GAME, SIDE
from patience_env.games.poker_hands import FLUSH, HIGH_CARD, ROYAL, STRAIGHT, STRAIGHT_FLUSH
from patience_env.jit import helper, kernel, rule

# With this many cards placed the rest is always worked out exactly; with one less, where the budget allows as much.
EXACT_FROM = 22
EXACT_SIMULATIONS, EXACT_MILLISECONDS = 2000, 30.0
# Candidate cells that are tried at all: those that the value network (or else the table) likes best.
WIDTH = 8
# The opinion of a cell that the search begins with counts as much as so many simulated games.
PRIOR = 100.0
# Decks between two looks at the clock.
BLOCK = 8
ROOT, WORK = 0, 1
BOARDS = 5


# -- simulated games ---------------------------------------------------------------------------------------------


@kernel
def begin(states, i, boards, key, values, points, mask, gains):  # type: ignore[no-untyped-def]
    """Set up position `i` as the root, its unseen cards sorted and shuffled from `key`; return the table's choice.

    `mask` gets the legal cells that are no mirror of another, `gains` what the table thinks of each.
    """
    root = boards[ROOT]
    read_board(states[i], root, points)
    placed = root.placed
    root.rng = key
    reshuffle(root, root.deck, placed + 1, PACK)
    choice = best_move(root, int(root.deck[placed]) - 1, values, points)
    weigh(root, int(root.deck[placed]) - 1, values, points)
    fresh_row = True
    for row in range(root.side):
        columns = legal_columns(root, row)
        fixed = root.side == SIDE
        # In the fixed square all empty rows are alike, and all empty columns: one of each is enough.
        repeated = fixed and root.cards[row] == 0 and not fresh_row
        if root.cards[row] == 0:
            fresh_row = False
        fresh_column = True
        for column in range(root.side):
            cell = row * root.side + column
            empty = root.cards[CANVAS + column] == 0
            keep = ((columns >> column) & 1) == 1 and not repeated and not (fixed and empty and not fresh_column)
            if empty:
                fresh_column = False
            mask[cell] = 1 if keep else 0
            gains[cell] = root.gain[row] + root.gain[CANVAS + column]
    return choice


@kernel
def simulate(boards, cells, decks, totals, values, points):  # type: ignore[no-untyped-def]
    """Play so many random decks from the root with the card in hand on each of the cells; add up the final scores."""
    root = boards[ROOT]
    placed = root.placed
    for _ in range(decks):
        for place in range(placed + 1, CARDS):
            draw_card(root, root.deck, place, PACK)
        for k in range(cells.shape[0]):
            boards[WORK] = boards[ROOT]
            board = boards[WORK]
            lay(board, cells[k], int(root.deck[placed]) - 1, points)
            for place in range(placed + 1, CARDS):
                card = int(root.deck[place]) - 1
                see_card(board, card)
                weigh(board, card, values, points)
                cell, _ = best_cell(board)
                lay(board, cell, card, points)
            totals[k] += board.score


# -- exact expectation -------------------------------------------------------------------------------------------


@rule
def points_with(board, line, card, points):  # type: ignore[no-untyped-def]
    """Return the points of a line of four with a fifth card (0 to 51)."""
    rank = card % 13
    pairs = board.pairs[line] + ((board.counts[line] >> (3 * rank)) & 7)
    if pairs > 0:
        return points[RANKS_HAND[pairs]]
    ranks = board.ranks[line] | (1 << rank)
    straight = IS_STRAIGHT[ranks]
    if board.suit[line] == MIXED or board.suit[line] != card // 13:
        return points[STRAIGHT if straight else HIGH_CARD]
    if not straight:
        return points[FLUSH]
    return points[ROYAL if WITHIN[ranks] == 512 else STRAIGHT_FLUSH]


@helper
def expect_last(board, deck, used, first, points):  # type: ignore[no-untyped-def]
    """Return the mean final score with one cell left, over the unseen cards `deck[first:]` that are not in `used`."""
    for row in range(board.side):
        columns = legal_columns(board, row)
        if columns:
            column = 0
            while not (columns >> column) & 1:
                column += 1
            total = 0.0
            for k in range(first, PACK):
                card = int(deck[k]) - 1
                if not (used >> card) & 1:
                    total += points_with(board, row, card, points) + points_with(board, CANVAS + column, card, points)
            return board.score + total / (PACK - CARDS + 1)
    return board.score


@helper
def expect_two(boards, level, card, used, first, points):  # type: ignore[no-untyped-def]
    """Return the expected final score with two cells left and a card in hand, played best."""
    best = -np.inf
    board = boards[level]
    for row in range(board.side):
        columns = legal_columns(board, row)
        for column in range(board.side):
            if (columns >> column) & 1:
                boards[level + 1] = boards[level]
                lay(boards[level + 1], row * board.side + column, card, points)
                best = max(best, expect_last(boards[level + 1], boards[ROOT].deck, used, first, points))
    return best


@helper
def expect_three(boards, level, card, used, first, points):  # type: ignore[no-untyped-def]
    """Return the expected final score with three cells left and a card in hand, played best."""
    best = -np.inf
    board = boards[level]
    for row in range(board.side):
        columns = legal_columns(board, row)
        for column in range(board.side):
            if (columns >> column) & 1:
                boards[level + 1] = boards[level]
                lay(boards[level + 1], row * board.side + column, card, points)
                total = 0.0
                for k in range(first, PACK):
                    following = int(boards[ROOT].deck[k]) - 1
                    if not (used >> following) & 1:
                        total += expect_two(boards, level + 1, following, used | (1 << following), first, points)
                best = max(best, total / (PACK - CARDS + 2))
    return best


@kernel
def expect(boards, cells, worths, points):  # type: ignore[no-untyped-def]
    """Write the expected final score of each cell for the card in hand, all later cards played best.

    The root must have one to four cells left.
    """
    root = boards[ROOT]
    first = root.placed + 1
    left = CARDS - root.placed
    for k in range(cells.shape[0]):
        boards[WORK] = boards[ROOT]
        lay(boards[WORK], cells[k], int(root.deck[root.placed]) - 1, points)
        if left == 1:
            worths[k] = boards[WORK].score
        elif left == 2:
            worths[k] = expect_last(boards[WORK], root.deck, 0, first, points)
        else:
            total = 0.0
            for place in range(first, PACK):
                card = int(root.deck[place]) - 1
                if left == 3:
                    total += expect_two(boards, WORK, card, 1 << card, first, points)
                else:
                    total += expect_three(boards, WORK, card, 1 << card, first, points)
            worths[k] = total / (PACK - first)


# -- the policy --------------------------------------------------------------------------------------------------


class SearchPolicy(Policy):
    """Looks ahead from a trained line table; see the module's docstring.

    Args:
        path: the folder of a line model that `patience train-value --kind line` wrote: it plays the simulated games.
            None: the one that comes with the package for the placement and the scoring table in force.
        value: the folder of a value model, whose opinion of the cells is heard first; None: the one that comes with
            the package, or, where `path` is given, none: the line model's opinion serves.
        simulations: games played out for one decision. With the same seed the same position gets the same answer.
        milliseconds: time for one decision instead. 1,000 simulations when neither is given.
        width: most candidate cells tried.
        prior: as how many simulated games the opinion of a cell counts.

    Raises:
        ValueError: as `LinePolicy`, or a budget that is no positive number, or both given.
    """

    name = "search"
    game_id = GAME.id
    share = 10

    def __init__(
        self,
        path: str | None = None,
        simulations: int | None = None,
        milliseconds: float | None = None,
        width: int = WIDTH,
        prior: float = PRIOR,
        value: str | None = None,
    ) -> None:
        if simulations is not None and milliseconds is not None:
            raise ValueError(
                f"simulations={simulations!r} and milliseconds={milliseconds!r} are both given: give one budget"
            )
        _check_number("simulations", simulations, True)
        _check_number("milliseconds", milliseconds, False)
        _check_number("width", width, True)
        if isinstance(prior, bool) or not isinstance(prior, (int, float)) or not 0 <= prior < math.inf:
            raise ValueError(f"prior={prior!r} is not allowed: give a number from 0 up")
        self.line = LinePolicy(path)
        self.value = None if path is not None and value is None else ValuePolicy(value)
        self.simulations = 1000 if simulations is None and milliseconds is None else simulations
        self.milliseconds, self.width, self.prior = milliseconds, width, prior
        self._boards = new_boards(BOARDS)
        self._seed = 0
        self._model: tuple[NDArray[np.float32], NDArray[np.float64]]

    def start(self, seed: int) -> None:
        self._seed = seed

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        return self.line.files(options) + ([] if self.value is None else self.value.files(options))

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where the table was trained for another placement or scoring table."""
        super().check(game, options)
        self.line.check(game, options)
        if self.value is not None:
            self.value.check(game, options)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the best cell found, for every position, one after the other."""
        values, facts = self.line.model(turn.options)
        self._model = values, np.array(facts["points"], np.float64)
        worths = None if self.value is None else self.value.values(turn)
        return np.array([self._choose(turn.states, i, worths) for i in range(len(turn))], np.int64)

    def _choose(self, states: NDArray[Any], i: int, worths: NDArray[np.float64] | None) -> int:
        (values, points), boards = self._model, self._boards
        cells = states["cells"].shape[1] if states["touching"][i] else SIDE * SIDE
        mask, gains = np.zeros(cells, np.int8), np.zeros(cells)
        choice = int(begin(states, i, boards, self._key(states[i]), values, points, mask, gains))
        if worths is not None:
            gains = worths[i]
            choice = int(gains.argmax())
        placed = int(boards["placed"][ROOT])
        likely = np.flatnonzero(mask)
        likely = likely[np.argsort(-gains[likely], kind="stable")]
        if len(likely) == 1:
            return int(likely[0])
        if placed >= EXACT_FROM or (placed == EXACT_FROM - 1 and self._affords_exact()):
            expected = np.zeros(len(likely))
            expect(boards, likely, expected, points)
            return int(likely[expected.argmax()])
        if choice not in likely[: self.width] and mask[choice]:
            likely = np.concatenate([[choice], likely])
        return self._halve(likely[: self.width], gains)

    def _key(self, state: Any) -> np.uint64:
        """Return random bits that depend on the seed and on what the player sees, and on nothing else."""
        placed = int(state["placed"])
        shown = np.concatenate([state["cells"], state["deck"][placed : placed + 1]]).astype(np.uint32)
        return np.uint64(np.random.SeedSequence([self._seed, *shown.tolist()]).generate_state(1, np.uint64)[0])

    def _affords_exact(self) -> bool:
        if self.milliseconds is not None:
            return self.milliseconds >= EXACT_MILLISECONDS
        return int(self.simulations or 0) >= EXACT_SIMULATIONS

    def _halve(self, cells: NDArray[np.int64], gains: NDArray[np.float64]) -> int:
        """Return the best of several cells by sequential halving."""
        rounds = max(1, math.ceil(math.log2(len(cells))))
        totals, played = np.zeros(len(cells)), 0
        started = time.perf_counter()
        for number in range(rounds):
            if self.milliseconds is None:
                decks = max(1, int(self.simulations or 1) // (rounds * len(cells)))
                played += self._play(cells, totals, decks)
            else:
                until = started + self.milliseconds / 1000 * (number + 1) / rounds
                played += self._play(cells, totals, 1)
                while time.perf_counter() < until:
                    played += self._play(cells, totals, BLOCK)
            # All that are left have played the same decks; what was thought of them counts as some more.
            scores = (totals + self.prior * gains[cells]) / (played + self.prior)
            order = np.argsort(-scores, kind="stable")[: max(1, len(cells) // 2)]
            cells, totals = cells[order], totals[order]
        return int(cells[0])

    def _play(self, cells: NDArray[np.int64], totals: NDArray[np.float64], decks: int) -> int:
        simulate(self._boards, cells, decks, totals, *self._model)
        return decks


def _check_number(name: str, value: Any, whole: bool) -> None:
    if value is None:
        return
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not 0 < value < 1e9:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name}={value!r} is not allowed: give {kind} above 0")
