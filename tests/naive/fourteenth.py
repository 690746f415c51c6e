"""The Fourteenth once more, slow and plain: only from `seeds/rules/fourteenth.md`."""

from __future__ import annotations

from itertools import combinations
from typing import Any

OPTIONS: list[dict[str, Any]] = [
    {},
    {"close_gaps": True},
    {"exchanges": 0},
    {"exchanges": 0, "close_gaps": True},
    {"exchanges": 1},
    {"exchanges": 1, "close_gaps": True},
    {"exchanges": 3},
]

RANKS = "A23456789TJQK"
SUITS = "SHDC"
TWO_OF_FIVE = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]


def rank(card: str) -> int:
    return RANKS.index(card[0]) + 1


def place(row: int, column: int) -> int:
    return 5 * row + column


def pairs_in_line() -> list[tuple[int, int]]:
    """The two places that each of the actions 0 to 99 withdraws: rows first, then columns."""
    rows = [(place(row, one), place(row, two)) for row in range(5) for one, two in TWO_OF_FIVE]
    columns = [(place(one, column), place(two, column)) for column in range(5) for one, two in TWO_OF_FIVE]
    return rows + columns


WITHDRAWALS = pairs_in_line()
SWAPS = list(combinations(range(25), 2))  # of the actions 100 to 399


def is_fourteen(ranks: list[int], one: int, two: int) -> bool:
    """An empty place has rank 0, which no rank completes to 14."""
    return ranks[one] + ranks[two] == 14


def has_fourteen(ranks: list[int]) -> bool:
    return any(ranks[one] + ranks[two] == 14 for one, two in WITHDRAWALS)


def swapped(ranks: list[int], one: int, two: int) -> list[int]:
    result = list(ranks)
    result[one], result[two] = ranks[two], ranks[one]
    return result


def completes(ranks: list[int], first: tuple[int, int], second: tuple[int, int]) -> bool:
    """A second swap, over two other places with cards, completes an exchange when it leaves a fourteen on the table."""
    if second[0] in first or second[1] in first or ranks[second[0]] == 0 or ranks[second[1]] == 0:
        return False
    return has_fourteen(swapped(ranks, *second))


def may_be_first(ranks: list[int], first: tuple[int, int]) -> bool:
    """Some second swap must complete the exchange."""
    if ranks[first[0]] == 0 or ranks[first[1]] == 0:
        return False
    after = swapped(ranks, *first)
    return any(completes(after, first, second) for second in SWAPS)


class Naive:
    def __init__(self, deck: list[str], options: dict[str, Any]) -> None:
        self.square: list[str | None] = list(deck[:25])  # None: an empty place
        self.stock = list(deck[25:])  # the next card first
        self.withdrawn: list[str] = []
        self.first_swap: tuple[int, int] | None = None  # the places of an unfinished exchange
        self.exchanges_left: int | None = options["exchanges"]  # None: no limit
        self.close_gaps: bool = options["close_gaps"]

    def legal(self) -> set[int]:
        ranks = [0 if card is None else rank(card) for card in self.square]
        if self.first_swap is not None:  # only second swaps, even if a fourteen lies there already
            return {100 + number for number, swap in enumerate(SWAPS) if completes(ranks, self.first_swap, swap)}
        withdrawals = {number for number, pair in enumerate(WITHDRAWALS) if is_fourteen(ranks, *pair)}
        if withdrawals or self.exchanges_left == 0:
            return withdrawals
        return {100 + number for number, swap in enumerate(SWAPS) if may_be_first(ranks, swap)}

    def play(self, action: int) -> float:
        if action < 100:
            self.withdraw(*WITHDRAWALS[action])
            return 2 / 104
        self.swap(SWAPS[action - 100])
        return 0.0

    def withdraw(self, one: int, two: int) -> None:
        for number in sorted((one, two)):  # the stock fills the lower-numbered place first
            card = self.square[number]
            assert card is not None
            self.withdrawn.append(card)
            self.square[number] = self.stock.pop(0) if self.stock else None
        if self.close_gaps:
            cards = [card for card in self.square if card is not None]
            self.square = [*cards, *[None] * (25 - len(cards))]

    def swap(self, places: tuple[int, int]) -> None:
        one, two = places
        self.square[one], self.square[two] = self.square[two], self.square[one]
        if self.first_swap is None:
            self.first_swap = places
        else:
            self.first_swap = None
            if self.exchanges_left is not None:
                self.exchanges_left -= 1

    def won(self) -> bool:
        return len(self.withdrawn) == 104

    def over(self) -> bool:
        return not self.legal()

    def table(self) -> dict[str, list[str]]:
        names = [f"r{row}c{column}" for row in range(1, 6) for column in range(1, 6)]
        table = {name: [card] for name, card in zip(names, self.square, strict=True) if card is not None}
        table["stock"] = ["??"] * len(self.stock)
        table["withdrawn"] = sorted(self.withdrawn, key=lambda card: (SUITS.index(card[1]), rank(card)))
        if self.first_swap is not None:
            table["swapped"] = [names[number] for number in self.first_swap]
        if self.exchanges_left is not None:
            table["exchanges"] = [str(self.exchanges_left)]
        return table
