"""Patience Poker played naively, from `seeds/rules/patience_poker.md` alone.

`scoring="random"` also reads `options["deal"]`, the deal number, which seeds the stream of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RANKS = "A23456789TJQK"
SUITS = "SHDC"
HANDS = ("pair", "two pairs", "triplets", "straight", "flush", "full hand", "four", "straight flush", "royal")
TABLES: dict[str, tuple[int, ...]] = {
    "american": (2, 5, 10, 15, 20, 25, 50, 75, 100),
    "american-alternate": (1, 2, 7, 9, 5, 12, 20, 30, 50),
    "english": (1, 3, 6, 12, 5, 10, 16, 30, 30),
}
Cell = tuple[int, int]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"placement": "fixed"},
    {"scoring": "random"},
    {"scoring": dict(zip(HANDS, (-7, 3, 100, 1.5, 2, 0, -128, 127, 5), strict=True)), "placement": "fixed"},
    {"target": 40},
    {"target": 60, "placement": "fixed", "scoring": "english"},
]


def is_straight(line: list[str]) -> bool:
    """Five ranks in a row; an ace is high or low, and there is no wrap from king to ace."""
    ranks = {card[0] for card in line}
    return any(ranks == set(run) for run in [RANKS[low : low + 5] for low in range(9)] + ["TJQKA"])


def hand_of(line: list[str]) -> str | None:
    """Return the standard category of five cards, the highest that applies; None is a high card."""
    ranks = [card[0] for card in line]
    alike = sorted((ranks.count(rank) for rank in set(ranks)), reverse=True)
    flush = len({card[1] for card in line}) == 1
    if flush and set(ranks) == set("TJQKA"):
        return "royal"
    if flush and is_straight(line):
        return "straight flush"
    if alike == [4, 1]:
        return "four"
    if alike == [3, 2]:
        return "full hand"
    if flush:
        return "flush"
    if is_straight(line):
        return "straight"
    if alike == [3, 1, 1]:
        return "triplets"
    if alike == [2, 2, 1]:
        return "two pairs"
    if alike == [2, 1, 1, 1]:
        return "pair"
    return None


def splitmix64(seed: int, count: int) -> list[int]:
    """Return the first numbers of the stream: 64 bits each."""
    found = []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        mixed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        found.append(mixed ^ (mixed >> 31))
    return found


def points_table(options: dict[str, Any]) -> dict[str, float]:
    """Return what each of the nine hands scores."""
    scoring = options.get("scoring", "american")
    if scoring == "random":
        bits = splitmix64(options["deal"] ^ 0x5EED0F7AB1E5, len(HANDS))
        return {hand: (number >> 56) - 128 for hand, number in zip(HANDS, bits, strict=True)}
    if isinstance(scoring, str):
        return dict(zip(HANDS, TABLES[scoring], strict=True))
    return dict(scoring)


class Naive:
    def __init__(self, deck: list[str], options: dict[str, Any], shuffle: Callable[[list[Any]], None]) -> None:
        self.touching = options.get("placement", "touching") == "touching"
        self.size = 9 if self.touching else 5
        self.target = options.get("target")
        self.points = points_table(options)
        self.total: float = 0
        self.shuffle = shuffle
        self.begin(deck)

    def begin(self, deck: list[str]) -> None:
        """Turn the first card; in the old rule it is laid in the centre at once, and the second turned."""
        self.cells: dict[Cell, str] = {}
        self.score: float = 0
        self.coming = list(deck)
        self.hand: str | None = self.coming.pop(0)
        if self.touching:
            self.cells[4, 4] = self.hand
            self.hand = self.coming.pop(0)

    # The rules of placing.

    def touches(self, cell: Cell) -> bool:
        """By an edge or a corner."""
        return any(max(abs(cell[0] - row), abs(cell[1] - column)) == 1 for row, column in self.cells)

    def keeps_the_box(self, cell: Cell) -> bool:
        """The bounding box may never exceed five rows or five columns."""
        rows = [row for row, _ in [*self.cells, cell]]
        columns = [column for _, column in [*self.cells, cell]]
        return max(rows) - min(rows) < 5 and max(columns) - min(columns) < 5

    def takes(self, cell: Cell) -> bool:
        if cell in self.cells:
            return False
        return not self.touching or (self.touches(cell) and self.keeps_the_box(cell))

    def legal(self) -> set[int]:
        if self.over():
            return set()
        every = [(row, column) for row in range(self.size) for column in range(self.size)]
        return {self.size * row + column for row, column in every if self.takes((row, column))}

    def play(self, action: int) -> float:
        cell = (action // self.size, action % self.size)
        assert self.hand is not None
        assert self.takes(cell)
        self.cells[cell] = self.hand
        earned = self.line_points(lambda other: other[0] == cell[0]) + self.line_points(
            lambda other: other[1] == cell[1]
        )
        self.score += earned
        self.hand = self.coming.pop(0) if len(self.cells) < 25 else None
        if self.target is None:
            return earned
        return self.complete() if self.hand is None else 0

    def line_points(self, lies_in: Callable[[Cell], bool]) -> float:
        """Score a line when its fifth card is placed."""
        line = [card for cell, card in self.cells.items() if lies_in(cell)]
        hand = hand_of(line) if len(line) == 5 else None
        return 0 if hand is None else self.points[hand]

    def complete(self) -> float:
        """The series: every completed tableau costs 1; a fresh pack comes until the total reaches the target."""
        self.total += self.score
        if not self.won():
            pack = [rank + suit for suit in SUITS for rank in RANKS]
            self.shuffle(pack)
            self.begin(pack)
        return -1

    # The end and the text.

    def over(self) -> bool:
        return self.hand is None

    def won(self) -> bool:
        """Only a series can be won."""
        return self.target is not None and self.total >= self.target

    def table(self) -> dict[str, list[str]]:
        cells = {f"r{row + 1}c{column + 1}": [self.cells[row, column]] for row, column in sorted(self.cells)}
        return {
            **cells,
            "hand": [] if self.hand is None else [self.hand],
            "stock": ["??"] * len(self.coming),
        }
