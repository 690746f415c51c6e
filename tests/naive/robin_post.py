"""Robin Post once more, slow and plain: only from `seeds/rules/robin_post.md`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

RANKS = "A23456789TJQK"
SUITS = "SHDC"
NAMES = {"S": "spades", "H": "hearts", "D": "diamonds", "C": "clubs"}
ROWS = [4, 5, 6, 7, 8, 7, 6, 5, 4]
WASTE = 52  # the number of the waste among the sources; positions are 0 to 51
UP, DOWN = 0, 1
TURN, FILL = 538, 539


def rank(card: str) -> int:
    return RANKS.index(card[0]) + 1


def is_red(card: str) -> bool:
    return card[1] in "HD"


def runs_in_one_direction(pile: list[str]) -> bool:
    """Neighbours of opposite colours, and all of them one rank up, or all of them one rank down."""
    steps = [rank(upper) - rank(lower) for lower, upper in pairwise(pile)]
    alternate = all(is_red(lower) != is_red(upper) for lower, upper in pairwise(pile))
    return alternate and (all(step == 1 for step in steps) or all(step == -1 for step in steps))


class Naive:
    def __init__(self, deck: list[str], options: dict[str, Any]) -> None:
        # Positions by row and x in reading order: a row of n lies at x = -(n - 1), ..., n - 1 in steps of 2.
        self.places = [(row, x) for row, size in enumerate(ROWS) for x in range(-(size - 1), size, 2)]
        self.position_at = {place: position for position, place in enumerate(self.places)}
        self.piles: list[list[str]] = [[card] for card in deck[:52]]
        self.stock = list(deck[52:])  # the next card first
        self.waste: list[str] = []
        self.foundations: dict[str, list[list[str]]] = {suit: [[], []] for suit in SUITS}

    # Corners

    def card_lies_at(self, row: int, x: int) -> bool:
        position = self.position_at.get((row, x))
        return position is not None and bool(self.piles[position])

    def free_corners(self, position: int) -> int:
        row, x = self.places[position]
        corners = [(row - 1, x - 1), (row - 1, x + 1), (row + 1, x - 1), (row + 1, x + 1)]
        return sum(not self.card_lies_at(*corner) for corner in corners)

    def may_be_packed_on(self, position: int) -> bool:
        return bool(self.piles[position]) and self.free_corners(position) >= 1

    def lifted(self, source: int) -> list[str]:
        """The pile that a source lets the player lift, empty when there is none."""
        if source == WASTE:
            return self.waste[-1:]
        return self.piles[source] if self.free_corners(source) >= 2 else []

    # Packing

    def target(self, pile: list[str], a: int, b: int, c: int) -> int | None:
        """The position that a packing action names by its card, None when there is none."""
        if a == 0:
            end = min(pile, key=rank)
            wanted_rank = rank(end) - 1
        else:
            end = max(pile, key=rank)
            wanted_rank = rank(end) + 1
        if not 1 <= wanted_rank <= 13:
            return None
        wanted = RANKS[wanted_rank - 1] + ("SC" if is_red(end) else "HD")[b]
        found = [place for place in range(52) if self.piles[place][-1:] == [wanted] and self.may_be_packed_on(place)]
        return found[c] if c < len(found) else None

    def packed(self, pile: list[str], target: int) -> list[str] | None:
        """The pile that arises, as the moving one lies or turned over; None when neither is right."""
        below = self.piles[target]
        if runs_in_one_direction(below + pile):
            return below + pile
        # It may be turned over, but only onto a single card.
        if len(below) == 1 and runs_in_one_direction(below + pile[::-1]):
            return below + pile[::-1]
        return None

    def legal_packings(self) -> set[int]:
        actions = set()
        for source in range(53):
            pile = self.lifted(source)
            if not pile:
                continue
            for a in (0, 1):
                for b in (0, 1):
                    for c in (0, 1):
                        target = self.target(pile, a, b, c)
                        if target is not None and self.packed(pile, target) is not None:
                            actions.add(8 * source + 4 * a + 2 * b + c)
        return actions

    # Foundations

    def next_rank(self, suit: str, way: int) -> int:
        """The rank that a foundation waits for; 14 or 0 when it is full."""
        played = len(self.foundations[suit][way])
        return 1 + played if way == UP else 13 - played

    def legal_foundation_moves(self) -> set[int]:
        actions = set()
        for source in range(53):
            pile = self.lifted(source)
            for way in (UP, DOWN):
                if pile and rank(pile[-1]) == self.next_rank(pile[-1][1], way):
                    actions.add(424 + 2 * source + way)
        return actions

    def legal_transfers(self) -> set[int]:
        """Both foundations hold a card, the giver's top is the taker's next card and not the giver's base."""
        actions = set()
        for number, suit in enumerate(SUITS):
            for giver, taker in ((UP, DOWN), (DOWN, UP)):
                given = self.foundations[suit][giver]
                if len(given) >= 2 and self.foundations[suit][taker]:
                    if rank(given[-1]) == self.next_rank(suit, taker):
                        actions.add(530 + 2 * number + giver)
        return actions

    # The contract

    def legal(self) -> set[int]:
        actions = self.legal_packings() | self.legal_foundation_moves() | self.legal_transfers()
        if self.stock:
            actions.add(TURN)
            if [] in self.piles:
                actions.add(FILL)
        return actions

    def take_pile(self, source: int) -> None:
        if source == WASTE:
            self.waste.pop()
        else:
            self.piles[source] = []

    def take_top(self, source: int) -> str:
        return self.waste.pop() if source == WASTE else self.piles[source].pop()

    def fill(self) -> None:
        for position in range(52):
            if not self.piles[position] and self.stock:
                self.piles[position] = [self.stock.pop(0)]

    def on_foundations(self) -> int:
        return sum(len(pile) for pair in self.foundations.values() for pile in pair)

    def play(self, action: int) -> float:
        before = self.on_foundations()
        if action < 424:
            source = action // 8
            pile = list(self.lifted(source))
            target = self.target(pile, action // 4 % 2, action // 2 % 2, action % 2)
            assert target is not None
            result = self.packed(pile, target)
            assert result is not None
            self.take_pile(source)
            self.piles[target] = result
        elif action < 530:
            card = self.take_top((action - 424) // 2)
            self.foundations[card[1]][action % 2].append(card)
        elif action < TURN:
            pair = self.foundations[SUITS[(action - 530) // 2]]
            giver = action % 2
            pair[1 - giver].append(pair[giver].pop())
        elif action == TURN:
            self.waste.append(self.stock.pop(0))
        else:
            self.fill()
        return (self.on_foundations() - before) / 104

    def won(self) -> bool:
        return self.on_foundations() == 104

    def over(self) -> bool:
        return self.won() or not self.legal()

    def table(self) -> dict[str, list[str]]:
        table = {}
        position = 0
        for row, size in enumerate(ROWS):
            for column in range(size):
                table[f"r{row + 1}c{column + 1}"] = list(self.piles[position])
                position += 1
        for suit in SUITS:
            table[f"{NAMES[suit]} up"] = list(self.foundations[suit][UP])
            table[f"{NAMES[suit]} down"] = list(self.foundations[suit][DOWN])
        table["waste"] = list(self.waste)
        table["stock"] = ["??"] * len(self.stock)
        return table
