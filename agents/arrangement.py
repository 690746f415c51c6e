"""`best_arrangement`: the best tableau of Patience Poker that 25 known cards can make.

Simulated annealing over the square: two cards change places, the at most four lines that this touches are scored anew,
and the change is kept by Metropolis's rule at a falling temperature. A line is the sum of the keys of its cards (three
bits for each rank and each suit), so that a change is an addition and a hand is read from a few masks. Rows may be
permuted among themselves, columns too, and the square transposed, without changing the score: good arrangements are
many, and a few restarts find one. `patience_env.agents.arrangement_proof` bounds what any arrangement can score.

No policy can reach these scores but by luck: it sees the cards one by one. They are what its scores fall short of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patience_env.cards import PACK, card_code, card_text
from patience_env.deals import LAST_DEAL, next_bits, shuffle
from patience_env.games.patience_poker import CARDS, SIDE
from patience_env.games.poker_hands import (
    CATEGORIES,
    FLUSH,
    FOUR,
    FULL_HAND,
    HIGH_CARD,
    PAIR,
    ROYAL,
    STRAIGHT,
    STRAIGHT_FLUSH,
    TRIPLETS,
    TWO_PAIRS,
    check_scoring,
    points_table,
)
from patience_env.jit import JIT, helper, kernel, rule

RESTARTS, STEPS = 5, 1_000_000
# To choose the cards as well, many short searches from a hotter start do best.
PACK_RESTARTS, PACK_STEPS, PACK_HEAT = 50, 200_000, 2.0
# The temperature falls geometrically between these shares of what a usual hand scores, in so many parts.
FIRST_TEMPERATURE, LAST_TEMPERATURE = 0.22, 0.11
PARTS = 100
# Metropolis's rule with a table: a loss is taken when it is less than the temperature times a random one of these.
CHANCES = 4096
LOGARITHMS = -np.log((np.arange(CHANCES) + 0.5) / CHANCES)

# A card's key: 1 in the three bits of its rank, 1 in the three bits of its suit, above them its code. Keys are added
# up for a line, where no three bits overflow (five cards of a suit, four of a rank) and the sum of the codes is unused.
SUIT_BITS, CODE_BITS = 39, 51
RANKS_MASK = (1 << SUIT_BITS) - 1
EACH_RANK, EACH_SUIT = 0o1111111111111, 0o1111
FIVE_RANKS, ACE_HIGH = 0o11111, 0o1111000000001
LINES = 2 * SIDE

SQUARE = np.dtype(
    [
        ("rng", np.uint64),  # the stream of chance
        ("cards", np.int64, (PACK,)),  # the key in each cell, in reading order, then those of the cards left out
        ("lines", np.int64, (LINES,)),  # the sum of the keys of each row, then of each column
        ("worth", np.float64, (LINES,)),  # the points of each line
    ],
    align=True,
)


def keys_of(codes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the keys of card codes (1 to 52), int64, of the same shape."""
    wide = codes.astype(np.int64)
    return (1 << (3 * ((wide - 1) % 13))) | (1 << (SUIT_BITS + 3 * ((wide - 1) // 13))) | (wide << CODE_BITS)


@helper
def hand_of(line):  # type: ignore[no-untyped-def]
    """Return the hand of five cards from the sum of their keys."""
    ranks = line & RANKS_MASK
    if (ranks >> 2) & EACH_RANK:
        return FOUR
    ones = ranks & EACH_RANK
    twos = (ranks >> 1) & EACH_RANK
    if twos == 0:
        suits = line >> SUIT_BITS
        straight = ones == ACE_HIGH or ones == (ones & -ones) * FIVE_RANKS
        if suits & (suits >> 2) & EACH_SUIT:  # five of a suit: binary 101
            if not straight:
                return FLUSH
            return ROYAL if ones == ACE_HIGH else STRAIGHT_FLUSH
        return STRAIGHT if straight else HIGH_CARD
    pairs = twos & ~ones
    if twos & ones:
        return FULL_HAND if pairs else TRIPLETS
    return TWO_PAIRS if pairs & (pairs - 1) else PAIR


@rule
def change(square, line, key, points):  # type: ignore[no-untyped-def]
    """Return what a line gains when the sum of its keys grows by `key`."""
    return points[hand_of(square.lines[line] + key)] - square.worth[line]


@helper
def gain_of(square, a, b, points):  # type: ignore[no-untyped-def]
    """Return what the score gains when cell `a` changes cards with place `b`: another cell, or a card left out."""
    key = square.cards[b] - square.cards[a]
    gain = 0.0
    if b >= CARDS:
        gain = change(square, a // SIDE, key, points) + change(square, SIDE + a % SIDE, key, points)
    else:
        if a // SIDE != b // SIDE:
            gain += change(square, a // SIDE, key, points) + change(square, b // SIDE, -key, points)
        if a % SIDE != b % SIDE:
            gain += change(square, SIDE + a % SIDE, key, points) + change(square, SIDE + b % SIDE, -key, points)
    return gain


@helper
def score_lines(square, points):  # type: ignore[no-untyped-def]
    """Add up the keys of every line anew and return the score."""
    for line in range(LINES):
        square.lines[line] = 0
    for cell in range(CARDS):
        square.lines[cell // SIDE] += square.cards[cell]
        square.lines[SIDE + cell % SIDE] += square.cards[cell]
    score = 0.0
    for line in range(LINES):
        square.worth[line] = points[hand_of(square.lines[line])]
        score += square.worth[line]
    return score


@helper
def add_key(square, line, key, points):  # type: ignore[no-untyped-def]
    square.lines[line] += key
    square.worth[line] = points[hand_of(square.lines[line])]


@helper
def exchange(square, a, b, points):  # type: ignore[no-untyped-def]
    """Let cell `a` and place `b` change cards."""
    key = square.cards[b] - square.cards[a]
    square.cards[a] += key
    square.cards[b] -= key
    add_key(square, a // SIDE, key, points)
    add_key(square, SIDE + a % SIDE, key, points)
    if b < CARDS:
        add_key(square, b // SIDE, -key, points)
        add_key(square, SIDE + b % SIDE, -key, points)


@helper
def descend(square, places, score, points):  # type: ignore[no-untyped-def]
    """Exchange cards as long as some exchange gains; return the score."""
    improved = True
    while improved:
        improved = False
        for a in range(CARDS):
            for b in range(a + 1, places):
                gain = gain_of(square, a, b, points)
                if gain > 1e-9:
                    exchange(square, a, b, points)
                    score += gain
                    improved = True
    return score


@helper
def keep(square, best):  # type: ignore[no-untyped-def]
    """Note the keys of the square."""
    for cell in range(CARDS):
        best[cell] = square.cards[cell]


@kernel
def anneal(squares, keys, seed, points, schedule, restarts, steps, logarithms, best, scores):  # type: ignore[no-untyped-def]
    """Write the best squares found, their keys and their scores, for every row of keys.

    `keys` has 25 cards a row, or more, of which 25 are chosen. `schedule` holds the first and the last temperature.
    """
    square = squares[0]
    places = keys.shape[1]
    ratio = schedule[1] / schedule[0]
    for row in range(keys.shape[0]):
        square.rng = seed
        scores[row] = -np.inf
        for _ in range(restarts):
            for place in range(places):
                square.cards[place] = keys[row, place]
            shuffle(square, square.cards, 0, places)
            score = score_lines(square, points)
            for part in range(PARTS):
                temperature = schedule[0] * ratio ** (part / (PARTS - 1))
                for _ in range(steps * part // PARTS, steps * (part + 1) // PARTS):
                    bits = next_bits(square)
                    a = (np.int64(bits >> 44) * CARDS) >> 20
                    b = (np.int64((bits >> 24) & 0xFFFFF) * (places - 1)) >> 20
                    if b >= a:
                        b += 1
                    gain = gain_of(square, a, b, points)
                    if gain >= 0.0 or -gain < temperature * logarithms[np.int64(bits & (CHANCES - 1))]:
                        exchange(square, a, b, points)
                        score += gain
                        if score > scores[row]:
                            scores[row] = score
                            keep(square, best[row])
            score = descend(square, places, score, points)
            if score > scores[row]:
                scores[row] = score
                keep(square, best[row])
        for cell in range(CARDS):
            square.cards[cell] = best[row, cell]
        # Points with fractions have been added up in another order, over many steps.
        scores[row] = descend(square, CARDS, score_lines(square, points), points)
        scores[row] = score_lines(square, points)
        keep(square, best[row])


@dataclass(frozen=True)
class Line:
    """A line of an arrangement.

    Attributes:
        name: "row 1" to "row 5", from the top, "column 1" to "column 5", from the left.
        cards: the five cards, two-letter text.
        hand: what they are, "high card" to "royal".
        points: what that scores.
    """

    name: str
    cards: tuple[str, ...]
    hand: str
    points: float


@dataclass(frozen=True)
class Arrangement:
    """A square of 25 cards and what it scores.

    Attributes:
        rows: five rows of five cards, two-letter text.
        score: of its ten lines.
        bound: no arrangement of these cards (for `best_tableau`, of any cards) scores more; None where that was not
            asked for.
        proven: no arrangement scores more than this one.
        lines: the ten lines, rows first.
    """

    rows: tuple[tuple[str, ...], ...]
    score: float
    bound: float | None
    proven: bool
    lines: tuple[Line, ...]


def best_arrangement(
    cards: Sequence[str | int] | NDArray[Any] | str,
    scoring: str | Mapping[str, float] = "american",
    *,
    seed: int = 0,
    restarts: int = RESTARTS,
    steps: int = STEPS,
    prove_seconds: float | None = None,
) -> Arrangement:
    """Return the best arrangement found of 25 known cards in a square, as ten poker hands.

    The placement plays no part: in the fixed square every arrangement can be reached in whatever order the cards
    come, and in the touching game those that `can_be_laid` in that order; so what is best here bounds both.
    The order in which the cards are given plays no part either. The same seed gives the same arrangement.

    Args:
        cards: 25 different cards, two-letter text or codes from 1 to 52; or one text with spaces between them.
        scoring: the name of a table, or a mapping of the nine hands to numbers (not "random").
        seed: of the annealing, 0 to 2**64 - 1.
        restarts, steps: how often the annealing begins anew, and the exchanges that it tries each time. The defaults
            take about a quarter of a second.
        prove_seconds: spend up to so long on an upper bound and on a proof that nothing scores more, which may find
            a better arrangement too. Needs the `solve` extra.

    Raises:
        TypeError, ValueError: not 25 different cards, an unknown scoring, or a number out of range.
        ImportError: a proof without OR-tools.
    """
    codes = check_cards(cards)
    points = check_points(scoring)
    check_numbers(seed, restarts, steps)
    check_seconds(prove_seconds)
    found, scores = _anneal(codes[None], points, seed, restarts, steps)
    square, score = found[0], float(scores[0])
    if prove_seconds is None:
        return describe_square(square, points, None)
    from patience_env.agents.arrangement_proof import prove

    square, bound = prove(square, points, prove_seconds)
    return describe_square(square, points, max(bound, score))


def best_arrangements(
    cards: ArrayLike,
    scoring: str | Mapping[str, float] = "american",
    *,
    seed: int = 0,
    restarts: int = RESTARTS,
    steps: int = STEPS,
) -> NDArray[np.float64]:
    """Return the best scores found for many sets of 25 known cards, float64, shape (n,).

    Each is what `best_arrangement` finds for those cards alone. The compiled loop releases the interpreter lock.

    Args:
        cards: card codes 1 to 52, shape (n, 25), different in each row.
        scoring, seed, restarts, steps: as for `best_arrangement`.

    Raises:
        TypeError, ValueError: as `best_arrangement`.
    """
    given = np.asarray(cards)
    if given.ndim != 2 or given.shape[1] != CARDS or given.dtype.kind not in "iu":
        raise ValueError(f"cards are {given.dtype} of shape {given.shape}: give card codes of shape (n, {CARDS})")
    points = check_points(scoring)
    check_numbers(seed, restarts, steps)
    codes = np.array([check_cards(row) for row in given], np.int64).reshape(-1, CARDS)
    return _anneal(codes, points, seed, restarts, steps)[1]


def best_tableau(
    scoring: str | Mapping[str, float] = "american",
    *,
    seed: int = 0,
    restarts: int = PACK_RESTARTS,
    steps: int = PACK_STEPS,
) -> Arrangement:
    """Return the best tableau found of any 25 of the 52 cards, with the bound of `tableau_bound`.

    It is proven best where it reaches the bound, as it does for the three published tables.

    Args:
        scoring, seed, restarts, steps: as for `best_arrangement`.

    Raises:
        TypeError, ValueError: as `best_arrangement`.
    """
    points = check_points(scoring)
    check_numbers(seed, restarts, steps)
    found, _ = _anneal(np.arange(1, PACK + 1)[None], points, seed, restarts, steps, PACK_HEAT)
    return describe_square(found[0], points, tableau_bound(points))


def tableau_bound(points: Sequence[float] | NDArray[np.float64]) -> float:
    """Return a score that no tableau of any 25 cards can exceed; `points` of the ten hands, high card first.

    Call flushes, straight flushes and royals suited. A suited row and a suited column cross in a card, so they are of
    one suit. Either all suited lines go one way: then the other way's five lines are not suited, and of the five at
    most four are royals. Or there are suited lines both ways, all of one suit: r rows and c columns hold 5r + 5c - rc
    of its 13 cards, so there are at most three of them, of which one at most is a royal; seven lines are not suited.
    """
    worth = np.asarray(points, np.float64)
    plain = max(worth[i] for i in (HIGH_CARD, PAIR, TWO_PAIRS, TRIPLETS, STRAIGHT, FULL_HAND, FOUR))
    suited = max(plain, worth[FLUSH], worth[STRAIGHT_FLUSH])
    best = max(suited, worth[ROYAL])
    return float(max(4 * best + suited + 5 * plain, best + 2 * suited + 7 * plain))


def can_be_laid(rows: Sequence[Sequence[str]], order: Sequence[str | int] | NDArray[Any] | str) -> bool:
    """Tell whether a square can be laid by the touching rule when the cards come in this order.

    Every card but the first must touch a card laid before it, by an edge or a corner. (A square that grows so never
    spans more than five rows or columns.)

    Args:
        rows: five rows of five cards, as in `Arrangement.rows`.
        order: the same 25 cards in the order in which they come.

    Raises:
        TypeError, ValueError: not 25 different cards, or other cards in `order` than in `rows`.
    """
    square = check_cards([card for row in rows for card in row])
    turned = check_cards(order)
    if set(square.tolist()) != set(turned.tolist()):
        raise ValueError("the order names other cards than the square holds: give the same 25 cards")
    where = {int(code): divmod(cell, SIDE) for cell, code in enumerate(square)}
    laid: list[tuple[int, int]] = []
    for code in turned.tolist():
        row, column = where[code]
        if laid and not any(abs(row - r) <= 1 and abs(column - c) <= 1 for r, c in laid):
            return False
        laid.append((row, column))
    return True


def check_cards(cards: Sequence[str | int] | NDArray[Any] | str) -> NDArray[np.int64]:
    """Return the codes of 25 different known cards, int64, shape (25,), in the order given.

    Raises:
        TypeError, ValueError: not 25, not different, or no known cards.
    """
    given: list[Any] = cards.split() if isinstance(cards, str) else list(cards)
    codes = [_known_card(card) for card in given]
    repeated = sorted({card_text(code) for code in codes if codes.count(code) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} given more than once: give {CARDS} different cards")
    if len(codes) != CARDS:
        raise ValueError(f"{len(codes)} cards given: an arrangement takes {CARDS}")
    return np.array(codes, np.int64)


def _known_card(card: Any) -> int:
    if isinstance(card, str):
        code = card_code(card)
    elif isinstance(card, (int, np.integer)) and not isinstance(card, bool):
        code = int(card)
    else:
        raise TypeError(f"{card!r} is no card: give two-letter text such as 'TH', or a code from 1 to {PACK}")
    if not 1 <= code <= PACK:
        raise ValueError(f"{card!r} is no known card: give two-letter text such as 'TH', or a code from 1 to {PACK}")
    return code


def check_points(scoring: str | Mapping[str, float]) -> NDArray[np.float64]:
    """Return the points of the ten hands, float64, shape (10,).

    Raises:
        TypeError, ValueError: an unknown scoring, or "random", which is a table for each deal and not one.
    """
    checked = check_scoring(scoring)
    if checked == "random":
        raise ValueError("scoring='random' draws a table for each deal: give the table, a mapping of the nine hands")
    return np.array(points_table(checked), np.float64)


def check_numbers(seed: int, restarts: int, steps: int) -> None:
    """Raise ValueError or TypeError where the settings of the annealing are no whole numbers in range."""
    for name, value, least, most in (
        ("seed", seed, 0, LAST_DEAL),
        ("restarts", restarts, 1, 1_000_000),
        ("steps", steps, 1, 10**12),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name}={value!r} is no whole number")
        if not least <= value <= most:
            raise ValueError(f"{name}={value!r} is not allowed: give {least} to {most}")


def check_seconds(seconds: float | None) -> None:
    """Raise ValueError where a time limit is neither None nor a number above 0."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < np.inf:
        raise ValueError(f"prove_seconds={seconds!r} is not allowed: give a number above 0")


def temperatures(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first and the last temperature for a table: shares of what hands from pair to four score.

    Straight flushes and royals are left out where others score: they are so rare that their points say little.
    """
    common, rare = np.abs(points[PAIR : FOUR + 1]).mean(), np.abs(points[STRAIGHT_FLUSH:]).mean()
    return np.array([FIRST_TEMPERATURE, LAST_TEMPERATURE]) * (common or rare or 1.0)


def new_squares(count: int) -> NDArray[Any]:
    """Return so many blank squares, in the form that compiled (or else plain) functions take."""
    squares: NDArray[Any] = np.zeros(count, SQUARE)
    return squares if JIT else squares.view(np.recarray)


def _anneal(
    codes: NDArray[np.int64], points: NDArray[np.float64], seed: int, restarts: int, steps: int, heat: float = 1.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the best squares found, card codes, shape (n, 5, 5), and their scores, float64, shape (n,)."""
    keys = keys_of(np.sort(codes, axis=1))  # in whatever order the cards come: the same answer
    best, scores = np.zeros((len(codes), CARDS), np.int64), np.zeros(len(codes))
    schedule = temperatures(points) * np.array([heat, 1.0])
    anneal(new_squares(1), keys, np.uint64(seed), points, schedule, restarts, steps, LOGARITHMS, best, scores)
    return (best >> CODE_BITS).reshape(-1, SIDE, SIDE), scores


def describe_square(square: NDArray[Any], points: NDArray[np.float64], bound: float | None) -> Arrangement:
    """Return the arrangement that a square of card codes, shape (5, 5), is."""
    hand: Any = getattr(hand_of, "py_func", hand_of)
    lines = []
    for name, codes in [(f"row {i + 1}", square[i]) for i in range(SIDE)] + [
        (f"column {i + 1}", square[:, i]) for i in range(SIDE)
    ]:
        category = hand(int(keys_of(codes).sum()))
        cards = tuple(card_text(int(code)) for code in codes)
        lines.append(Line(name, cards, CATEGORIES[category], float(points[category])))
    score = sum(line.points for line in lines)
    proven = bound is not None and score >= bound - 1e-9 * max(1.0, abs(bound))
    return Arrangement(tuple(line.cards for line in lines[:SIDE]), score, bound, proven, tuple(lines))
