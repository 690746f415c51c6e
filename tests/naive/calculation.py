"""Calculation once more, slow and plain: only from `seeds/rules/calculation.md`."""

from __future__ import annotations

from typing import Any

OPTIONS: list[dict[str, Any]] = [{}, {"open_stock": True}]

# The ranks of each foundation in the order in which they are laid, as the rule sheet prints them.
ORDERS = ["A23456789TJQK", "2468TQA3579JK", "369Q258JA47TK", "48Q37J26TA59K"]


class Naive:
    def __init__(self, deck: list[str], options: dict[str, Any]) -> None:
        self.open_stock: bool = options["open_stock"]
        cards = list(deck)
        # The bases: the first ace, two, three and four met in the shuffled pack.
        self.foundations: list[list[str]] = []
        for base in "A234":
            first = next(card for card in cards if card[0] == base)
            cards.remove(first)
            self.foundations.append([first])
        self.hand = [cards.pop(0)]  # one card, or none when the stock is out
        self.stock = cards  # the next card first
        self.piles: list[list[str]] = [[], [], [], []]

    def takes(self, foundation: int, card: str) -> bool:
        """Suits are ignored; a full foundation takes nothing."""
        height = len(self.foundations[foundation])
        return height < 13 and ORDERS[foundation][height] == card[0]

    def legal(self) -> set[int]:
        actions = set()
        for foundation in range(4):
            if self.hand and self.takes(foundation, self.hand[0]):
                actions.add(foundation)
            for pile in range(4):
                if self.piles[pile] and self.takes(foundation, self.piles[pile][-1]):
                    actions.add(8 + 4 * pile + foundation)
        if self.hand:
            actions.update({4, 5, 6, 7})
        return actions

    def play(self, action: int) -> float:
        before = self.progress()
        if action < 4:
            self.foundations[action].append(self.leave_hand())
        elif action < 8:
            self.piles[action - 4].append(self.leave_hand())
        else:
            pile, foundation = divmod(action - 8, 4)
            self.foundations[foundation].append(self.piles[pile].pop())
        return self.progress() - before

    def leave_hand(self) -> str:
        """The card in hand is placed, and the next of the stock is turned at once."""
        card = self.hand.pop()
        if self.stock:
            self.hand.append(self.stock.pop(0))
        return card

    def played(self) -> int:
        return sum(len(foundation) - 1 for foundation in self.foundations)

    def progress(self) -> float:
        return self.played() / 48

    def won(self) -> bool:
        return self.played() == 48

    def over(self) -> bool:
        return not self.legal()

    def table(self) -> dict[str, list[str]]:
        table = {"hand": list(self.hand)}
        for number in range(4):
            table[f"foundation {number + 1}"] = list(self.foundations[number])
            table[f"pile {number + 1}"] = list(self.piles[number])
        # The next card of the stock is its top, so it comes last.
        table["stock"] = self.stock[::-1] if self.open_stock else ["??"] * len(self.stock)
        return table
