"""Paganini played naively, from `seeds/rules/paganini.md` alone."""

from __future__ import annotations

RANKS = "A23456789TJQK"
SUITS = "SHDC"
Place = tuple[int, int]


class Naive:
    def __init__(self, deck: list[str]) -> None:
        # An empty column stands at the left of eight rows of thirteen.
        self.rows: list[list[str | None]] = [[None, *deck[13 * row : 13 * row + 13]] for row in range(8)]

    def places_of_cards(self) -> dict[str, list[Place]]:
        """Both copies of every card in reading order: copy 0 comes first."""
        found: dict[str, list[Place]] = {rank + suit: [] for suit in SUITS for rank in RANKS}
        for row in range(8):
            for column in range(14):
                card = self.rows[row][column]
                if card is not None:
                    found[card].append((row, column))
        return found

    def moves(self) -> dict[int, tuple[Place, Place]]:
        """Every legal action with the place that gives the card and the space that takes it."""
        return {**self.ace_moves(), **self.following_moves()}

    def ace_moves(self) -> dict[int, tuple[Place, Place]]:
        """The leftmost place of a row takes any ace that does not itself lie in a leftmost place."""
        found = {}
        places = self.places_of_cards()
        for suit in range(4):
            for copy, (row, column) in enumerate(places["A" + SUITS[suit]]):
                for target in range(8):
                    if column != 0 and self.rows[target][0] is None:
                        found[8 * (2 * suit + copy) + target] = ((row, column), (target, 0))
        return found

    def following_moves(self) -> dict[int, tuple[Place, Place]]:
        """Any other space takes either copy of the card one higher and of the same suit as the card on its left."""
        found = {}
        places = self.places_of_cards()
        for suit in range(4):
            for rank in range(2, 14):
                lower = places[RANKS[rank - 2] + SUITS[suit]]
                for copy, place in enumerate(places[RANKS[rank - 1] + SUITS[suit]]):
                    for before, (row, column) in enumerate(lower):
                        if column < 13 and self.rows[row][column + 1] is None:
                            action = 64 + 4 * (12 * suit + rank - 2) + 2 * copy + before
                            found[action] = (place, (row, column + 1))
        return found

    def legal(self) -> set[int]:
        return set(self.moves())

    def play(self, action: int) -> float:
        before = self.finished()
        (from_row, from_column), (to_row, to_column) = self.moves()[action]
        self.rows[to_row][to_column] = self.rows[from_row][from_column]
        self.rows[from_row][from_column] = None
        return (self.finished() - before) / 104

    def finished(self) -> int:
        """Progress counts the cards in the finished beginnings of all rows."""
        return sum(self.finished_beginning(row) for row in self.rows)

    def finished_beginning(self, row: list[str | None]) -> int:
        """The run ace, 2, 3, ... of one suit that starts in the leftmost place."""
        first = row[0]
        if first is None:
            return 0
        length = 0
        while length < 13 and row[length] == RANKS[length] + first[1]:
            length += 1
        return length

    def won(self) -> bool:
        """Each row holds one suit from ace to king in its first thirteen places."""
        return all(self.finished_beginning(row) == 13 for row in self.rows)

    def over(self) -> bool:
        return self.won() or not self.moves()

    def table(self) -> dict[str, list[str]]:
        return {
            f"r{row + 1}c{column + 1}": [card]
            for row in range(8)
            for column in range(14)
            if (card := self.rows[row][column]) is not None
        }
