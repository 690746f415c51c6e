"""Fortress once more, slow and plain: only from `seeds/rules/fortress.md`."""

from __future__ import annotations

from typing import Any

RANKS = "A23456789TJQK"
SUITS = {"S": "spades", "H": "hearts", "D": "diamonds", "C": "clubs"}
DEALT = [5, 5, 5, 5, 6]  # cards of each row of either group, the fifth row with the extra card


def rank(card: str) -> int:
    return RANKS.index(card[0]) + 1


def marry(card: str, other: str) -> bool:
    """One suit, ranks one apart either way; king and ace are not neighbours."""
    return card[1] == other[1] and abs(rank(card) - rank(other)) == 1


class Naive:
    """Rows 0 to 4 are left 1 to left 5, rows 5 to 9 right 1 to right 5; each from its inner end outwards."""

    def __init__(self, deck: list[str], options: dict[str, Any]) -> None:
        self.rows: list[list[str]] = [[] for _ in range(10)]
        self.foundations: dict[str, list[str]] = {suit: [] for suit in SUITS}
        cards = list(deck)
        for line in range(5):
            from_left_to_right = [cards.pop(0) for _ in range(2 * DEALT[line])]
            left = from_left_to_right[: DEALT[line]]
            right = from_left_to_right[DEALT[line] :]
            # The outer end of a left row is dealt first, that of a right row last.
            self.rows[line] = left[::-1]
            self.rows[5 + line] = right

    def fits_foundation(self, card: str) -> bool:
        """An ace begins it, then 2, 3, ... king of the same suit."""
        return rank(card) == len(self.foundations[card[1]]) + 1

    def takes(self, row: int, card: str) -> bool:
        """A lane takes any card, another row only what marries its outside card."""
        return not self.rows[row] or marry(card, self.rows[row][-1])

    def legal(self) -> set[int]:
        actions = set()
        for row in range(10):
            if not self.rows[row]:
                continue
            outside = self.rows[row][-1]
            for other in range(10):
                allowed = self.fits_foundation(outside) if other == row else self.takes(other, outside)
                if allowed:
                    actions.add(10 * row + other)
        return actions

    def progress(self) -> float:
        return sum(len(pile) for pile in self.foundations.values()) / 52

    def play(self, action: int) -> float:
        before = self.progress()
        row, other = action // 10, action % 10
        card = self.rows[row].pop()
        if other == row:
            self.foundations[card[1]].append(card)
        else:
            self.rows[other].append(card)
        return self.progress() - before

    def won(self) -> bool:
        return all(len(pile) == 13 for pile in self.foundations.values())

    def over(self) -> bool:
        return not self.legal()

    def table(self) -> dict[str, list[str]]:
        table = {}
        for number in range(5):
            table[f"left {number + 1}"] = list(self.rows[number])
            table[f"right {number + 1}"] = list(self.rows[5 + number])
        for suit, name in SUITS.items():
            table[name] = list(self.foundations[suit])
        return table
