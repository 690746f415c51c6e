"""How much 25 known cards can score at most in a square, and a proof of the best arrangement where there is time.

A square is ten hands of five cards, each card in two of them. Every hand is a variable of a linear programme that asks
for no more than that, and for what a square cannot break: of any `size` cards, so many in a line weigh so much, and
together no more than a limit (`CUTS`; two cards, for one, share a line at most). The 53,130 hands come in only when
they pay, the cuts only when they are broken. Its value bounds every arrangement.

Its dual prices then say what each hand costs against the bound, and the costs of the ten hands of a square sum to at
most the gap between the bound and the best score known, if it scores more. Transposed or not, its rows cost no more
than its columns: all sets of five rows within half of the gap are tried, and for each the columns within the rest. If
the search comes to its end, the best square known is the best there is.
"""

from __future__ import annotations

import itertools
import math
import time
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.arrangement import hand_of, keys_of
from patience_env.games.patience_poker import CARDS, SIDE
from patience_env.jit import helper, kernel, rule

# (size, weight of a line by how many of the cards it holds, limit): of any `size` cards of a square, the weights of all
# ten lines sum to the limit at most. tests/test_arrangement.py tries all ways to place them.
CUTS: tuple[tuple[int, tuple[int, int, int, int, int, int], int], ...] = (
    (2, (0, 0, 1, 1, 1, 1), 1),
    (3, (0, 0, 1, 2, 2, 2), 2),
    (4, (0, 0, 1, 3, 4, 4), 4),
    (4, (0, 0, 0, 1, 1, 1), 1),
    (5, (0, 0, 1, 2, 4, 5), 5),
    (5, (0, 0, 2, 6, 10, 12), 12),
    (5, (0, 0, 0, 1, 2, 2), 2),
    (5, (0, 0, 1, 1, 3, 4), 4),
    (6, (0, 0, 2, 3, 6, 10), 12),
    (6, (0, 0, 0, 1, 1, 2), 2),
    (6, (0, 0, 0, 0, 1, 1), 1),
    (6, (0, 0, 1, 2, 4, 6), 7),
)
EACH_CARD = (0, 1, 1, 1, 1, 1)
HANDS_ADDED, CUTS_ADDED, CUTS_A_ROUND = 300, 60, 100
LEAST_BREACH = 0.02
TINY = 1e-7
# Nodes of the search between two looks at the clock.
STEP = 300_000
# The share of the time after which no more cuts are added, and how long a search between two rounds of cuts may take,
# as a share of the time gone by: so neither the cuts nor the searches take much more than they need.
SHARE_FOR_CUTS, SHARE_FOR_TRIALS = 0.6, 0.3
LOW_BITS = 13
COUNT = np.array([i.bit_count() for i in range(1 << LOW_BITS)], np.int64)


@cache
def all_hands() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all hands of five of 25 cards: card numbers, shape (53130, 5), and masks with a bit for each card."""
    cards = np.array(list(itertools.combinations(range(CARDS), SIDE)), np.int64)
    return cards, (1 << cards).sum(axis=1)


@kernel
def weigh_hands(keys, hands, points, worths):  # type: ignore[no-untyped-def]
    """Write the points of every hand."""
    for i in range(hands.shape[0]):
        line = 0
        for k in range(hands.shape[1]):
            line += keys[hands[i, k]]
        worths[i] = points[hand_of(line)]


@rule
def count_bits(bits, count):  # type: ignore[no-untyped-def]
    return count[bits & ((1 << LOW_BITS) - 1)] + count[bits >> LOW_BITS]


@kernel
def price_hands(worths, masks, cuts, weights, prices, count, gains):  # type: ignore[no-untyped-def]
    """Write what each hand scores beyond the prices of the constraints that it takes part in."""
    for i in range(masks.shape[0]):
        gain = worths[i]
        for k in range(cuts.shape[0]):
            gain -= prices[k] * weights[k, count_bits(masks[i] & cuts[k], count)]
        gains[i] = gain


@kernel
def find_breaches(masks, shares, size, weight, limit, count, cuts, breaches):  # type: ignore[no-untyped-def]
    """Write the sets of `size` cards whose cut the shares of the hands break most, as masks; return how many."""
    found = 0
    most = cuts.shape[0]
    cards = (1 << size) - 1
    while cards < 1 << CARDS:
        total = 0.0
        for k in range(masks.shape[0]):
            total += shares[k] * weight[count_bits(masks[k] & cards, count)]
        breach = total - limit
        if breach > LEAST_BREACH * limit:
            at = found
            if found < most:
                found += 1
            else:
                at = 0
                for k in range(1, most):
                    if breaches[k] < breaches[at]:
                        at = k
            if at == found - 1 or breach > breaches[at]:
                cuts[at] = cards
                breaches[at] = breach
        # The next larger number with as many bits.
        low = cards & -cards
        ripple = cards + low
        cards = (((ripple ^ cards) >> 2) // low) | ripple
    return found


# -- search ------------------------------------------------------------------------------------------------------

# What the search knows: the best score, what the ten hands of a better square may cost, the nodes left.
SCORE, GAP, LEFT, BETTER = range(4)


@rule
def lowest_free(used):  # type: ignore[no-untyped-def]
    card = 0
    while (used >> card) & 1:
        card += 1
    return card


@helper
def search_columns(rows, masks, costs, worths, starts, know, spent, score, at, best):  # type: ignore[no-untyped-def]
    """Try all columns for five rows that cost `spent` and score `score`; note a better square in `best`."""
    depth = 0
    cost = spent
    used = 0
    at[SIDE] = starts[0]
    while depth >= 0:
        i = at[SIDE + depth]
        card = lowest_free(used)
        if i >= starts[card + 1] or cost + costs[i] > know[GAP]:
            depth -= 1
            if depth >= 0:
                i = at[SIDE + depth]
                at[SIDE + depth] += 1
                used ^= masks[i]
                cost -= costs[i]
                score -= worths[i]
            continue
        mask = masks[i]
        crosses = mask & used == 0
        for k in range(SIDE):
            crosses = crosses and mask & masks[rows[k]] != 0
        if not crosses:
            at[SIDE + depth] += 1
            continue
        if depth == SIDE - 1:
            total = score + worths[i]
            if total > know[SCORE] + TINY:
                know[GAP] -= total - know[SCORE]
                know[SCORE] = total
                know[BETTER] = 1.0
                for k in range(2 * SIDE):
                    best[k] = masks[at[k]]
            at[SIDE + depth] += 1
            continue
        know[LEFT] -= 1.0
        used ^= mask
        cost += costs[i]
        score += worths[i]
        depth += 1
        at[SIDE + depth] = starts[lowest_free(used)]


@kernel
def search_from(depth, masks, costs, worths, starts, know, at, best):  # type: ignore[no-untyped-def]
    """Try all squares whose first row is the hand `at[0]`, and whose rows cost at most half of the gap.

    Hands are in groups by their lowest card, in each by their cost. `best` gets the rows and the columns of a better
    square, as masks. Returns 0 when all were tried, or, when `know[LEFT]` has run out, the depth to go on from, with
    `at` as it is.
    """
    if depth == 1:
        at[1] = starts[lowest_free(masks[at[0]])]
    used = 0
    cost = 0.0
    score = 0.0
    for k in range(depth):
        used ^= masks[at[k]]
        cost += costs[at[k]]
        score += worths[at[k]]
    while depth > 0:
        i = at[depth]
        card = lowest_free(used)
        if i >= starts[card + 1] or cost + costs[i] > know[GAP] / 2:
            depth -= 1
            if depth > 0:
                i = at[depth]
                at[depth] += 1
                used ^= masks[i]
                cost -= costs[i]
                score -= worths[i]
            continue
        if masks[i] & used:
            at[depth] += 1
            continue
        if know[LEFT] < 0.0:
            return depth
        know[LEFT] -= 1.0
        if depth == SIDE - 1:
            search_columns(at, masks, costs, worths, starts, know, cost + costs[i], score + worths[i], at, best)
            at[depth] += 1
            continue
        used ^= masks[i]
        cost += costs[i]
        score += worths[i]
        depth += 1
        at[depth] = starts[lowest_free(used)]
    return 0


class _Search:
    """The search for a better square, given what each hand costs."""

    def __init__(
        self, costs: NDArray[np.float64], worths: NDArray[np.float64], bound: float, score: float, unit: float
    ) -> None:
        hands, _ = all_hands()
        gap = bound - score - unit + TINY
        # Cards that few cheap hands hold come first: they decide most.
        cheap = np.bincount(hands[costs <= gap / 2].ravel(), minlength=CARDS)
        self.cards = np.argsort(cheap, kind="stable")
        place = np.empty(CARDS, np.int64)
        place[self.cards] = np.arange(CARDS)
        lowest = place[hands].min(axis=1)
        order = np.lexsort((costs, lowest))
        self.masks = (1 << place[hands[order]]).sum(axis=1)
        self.costs, self.worths = costs[order], worths[order]
        self.starts = np.searchsorted(lowest[order], np.arange(CARDS + 1)).astype(np.int64)
        self.know = np.array([score, gap, 0.0, 0.0])
        self.best = np.zeros(2 * SIDE, np.int64)
        self._at = np.zeros(2 * SIDE, np.int64)
        self._depth = 0

    def run(self, until: float) -> bool:
        """Go on for one step, and until that time; return whether the search is at its end."""
        while self._is_open():
            self.know[LEFT] = STEP
            self._depth = search_from(
                max(self._depth, 1), self.masks, self.costs, self.worths, self.starts, self.know, self._at, self.best
            )
            if self._depth == 0:
                self._at[0] += 1
            if time.monotonic() > until:
                break
        return not self._is_open()

    def _is_open(self) -> bool:
        first = self._at[0]
        return self._depth > 0 or bool(first < self.starts[1] and self.costs[first] <= self.know[GAP] / 2)

    def square(self) -> NDArray[np.int64] | None:
        """Return the better square that was found, card numbers, shape (5, 5), or None."""
        if not self.know[BETTER]:
            return None
        cells = [[int(row) & int(column) for column in self.best[SIDE:]] for row in self.best[:SIDE]]
        return np.array([[self.cards[cell.bit_length() - 1] for cell in row] for row in cells], np.int64)


# -- the linear programme ----------------------------------------------------------------------------------------


class _Programme:
    """The linear programme over hands, solved by OR-tools' GLOP."""

    def __init__(self, worths: NDArray[np.float64], square: NDArray[np.int64]) -> None:
        self._solver = _solver()
        self.worths = worths
        _, self._masks = all_hands()
        self._objective = self._solver.Objective()
        self._objective.SetMaximization()
        self.cuts = [1 << card for card in range(CARDS)]
        self._weights: list[tuple[int, ...]] = [EACH_CARD] * CARDS
        self.limits = [2.0] * CARDS
        self._constraints = [self._solver.Constraint(2, 2) for _ in range(CARDS)]
        self._hands: dict[int, Any] = {}
        numbers = {int(mask): i for i, mask in enumerate(self._masks)}
        for line in [*square, *square.T]:
            self._add_hand(numbers[sum(1 << int(card) for card in line)])
        # With all prices zero: ten times the best hand.
        self.bound, self.costs = 2.0 * SIDE * worths.max(), worths.max() - worths
        self._gains = np.zeros(len(worths))

    def _add_hand(self, hand: int) -> None:
        if hand in self._hands:
            return
        variable = self._hands[hand] = self._solver.NumVar(0, self._solver.infinity(), "")
        self._objective.SetCoefficient(variable, float(self.worths[hand]))
        mask = int(self._masks[hand])
        for cut, weight, constraint in zip(self.cuts, self._weights, self._constraints, strict=True):
            held = weight[(mask & cut).bit_count()]
            if held:
                constraint.SetCoefficient(variable, held)

    def _add_cut(self, cut: int, weight: tuple[int, ...], limit: int) -> None:
        constraint = self._solver.Constraint(-self._solver.infinity(), limit)
        self.cuts.append(cut)
        self._weights.append(weight)
        self.limits.append(limit)
        self._constraints.append(constraint)
        for hand, variable in self._hands.items():
            held = weight[(int(self._masks[hand]) & cut).bit_count()]
            if held:
                constraint.SetCoefficient(variable, held)

    def solve(self, until: float) -> bool:
        """Solve it over all hands; return False where the time or the solver's accuracy did not suffice."""
        while True:
            if self._solver.Solve() != self._solver.OPTIMAL:
                return False
            worst = self._price()
            if worst < TINY:
                return True
            if time.monotonic() > until:
                return False
            for hand in np.argsort(-self._gains, kind="stable")[:HANDS_ADDED]:
                if self._gains[hand] > TINY:
                    self._add_hand(int(hand))

    def _price(self) -> float:
        """Take the prices, keep them where they give the best bound so far; return the most that a hand gains.

        The bound is worked out from the prices alone (any prices give one, those of cuts not being below zero), so it
        does not lean on the accuracy of the solver.
        """
        prices = np.array([constraint.dual_value() for constraint in self._constraints])
        prices[CARDS:] = np.maximum(prices[CARDS:], 0.0)
        active = np.flatnonzero(prices)
        weights = np.array(self._weights, np.float64)[active]
        cuts = np.array(self.cuts, np.int64)[active]
        price_hands(self.worths, self._masks, cuts, weights, prices[active], COUNT, self._gains)
        worst = float(self._gains.max())
        bound = float(prices @ np.array(self.limits)) + 2 * SIDE * worst
        if bound < self.bound:
            self.bound, self.costs = bound, worst - self._gains
        return worst

    def cut(self) -> bool:
        """Add cuts that the solution breaks; return whether there are any."""
        hands = np.array(list(self._hands), np.int64)
        shares = np.array([variable.solution_value() for variable in self._hands.values()])
        masks, shares = self._masks[hands][shares > 1e-9], shares[shares > 1e-9]
        added = 0
        for size, weight, limit in CUTS:
            cuts, breaches = np.zeros(CUTS_ADDED, np.int64), np.zeros(CUTS_ADDED)
            weights = np.array(weight, np.float64)
            found = find_breaches(masks, shares, size, weights, float(limit), COUNT, cuts, breaches)
            for cut in cuts[:found].tolist():
                self._add_cut(cut, weight, limit)
            added += found
            if added > CUTS_A_ROUND:
                break
        return added > 0


def _solver() -> Any:
    try:
        from ortools.linear_solver import pywraplp
    except ImportError as error:
        raise ImportError(
            f"a proof needs the 'solve' extra, pip install 'patience-env[solve]' (OR-tools): {error}"
        ) from error
    return pywraplp.Solver.CreateSolver("GLOP")


def unit_of(points: NDArray[np.float64]) -> float:
    """Return the number whose multiples all scores are: the greatest common divisor of whole points, else 0."""
    if not (points == np.round(points)).all():
        return 0.0
    return float(math.gcd(*(int(abs(value)) for value in points)))


def prove(square: NDArray[np.int64], points: NDArray[np.float64], seconds: float) -> tuple[NDArray[np.int64], float]:
    """Return the best square found and an upper bound on what any arrangement of its cards scores.

    The bound is the square's score where that is proven best.

    Args:
        square: the best arrangement known, card codes, shape (5, 5).
        points: of the ten hands, shape (10,).
        seconds: about how long to try. (Compiling comes on top of it.)

    Raises:
        ImportError: OR-tools is not installed.
    """
    codes = square.ravel()
    hands, _ = all_hands()
    worths = np.zeros(len(hands))
    weigh_hands(keys_of(codes), hands, points, worths)
    numbers = np.arange(CARDS).reshape(SIDE, SIDE)
    score = _score(numbers, codes, points)
    programme = _Programme(worths, numbers)
    unit = unit_of(points)
    started = time.monotonic()
    end = started + seconds
    until = started + SHARE_FOR_CUTS * seconds
    while True:
        solved = programme.solve(until)
        bound = _round_down(programme.bound, unit)
        if bound <= score + TINY:
            return codes[numbers], score
        # The gap is often small enough for the search long before the cuts are at an end.
        over = not solved or not programme.cut()
        search = _Search(programme.costs, worths, programme.bound, score, unit)
        now = time.monotonic()
        done = search.run(end if over else now + SHARE_FOR_TRIALS * (now - started))
        better = search.square()
        if better is not None:
            numbers, score = better, _score(better, codes, points)
        if done:
            return codes[numbers], score
        if over:
            return codes[numbers], max(score, _round_down(programme.bound, unit))


def _round_down(bound: float, unit: float) -> float:
    return math.floor(bound / unit + TINY) * unit if unit else bound


def _score(numbers: NDArray[np.int64], codes: NDArray[np.int64], points: NDArray[np.float64]) -> float:
    hand: Any = getattr(hand_of, "py_func", hand_of)
    keys = keys_of(codes[numbers])
    return float(sum(points[hand(int(line))] for line in [*keys.sum(axis=0), *keys.sum(axis=1)]))
