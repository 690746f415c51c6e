"""The Sultan played naively, from `seeds/rules/sultan.md` alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RANKS = "A23456789TJQK"
PACK = [rank + suit for suit in "SHDC" for rank in RANKS]
BASES = {
    "spades 1": "KS",
    "spades 2": "KS",
    "hearts ace": "AH",
    "hearts king": "KH",
    "diamonds 1": "KD",
    "diamonds 2": "KD",
    "clubs 1": "KC",
    "clubs 2": "KC",
}
OPTIONS: list[dict[str, Any]] = [{}, {"redeals": 1}, {"redeals": 0}]


class Naive:
    def __init__(self, deck: list[str], options: dict[str, Any], shuffle: Callable[[list[Any]], None]) -> None:
        # The kings and one ace of hearts are set out; the other 95 cards are shuffled.
        cards = [card for card in PACK if card[0] != "K" and card != "AH"] + [card for card in PACK if card[0] != "K"]
        shuffle(cards)
        self.packets = {name: [base] for name, base in BASES.items()}
        self.divan: list[str | None] = [*cards[:8]]
        self.stock = cards[8:]  # the next card to be turned first
        self.talon: list[str] = []  # bottom first
        self.redeals = options.get("redeals", 2)
        self.shuffle = shuffle

    def packet_for(self, card: str | None) -> list[str] | None:
        """Return the first packet of the card's suit whose top is one rank lower; a king's base counts as rank 0."""
        for packet in self.packets.values():
            top = packet[-1]
            height = 0 if top[0] == "K" else RANKS.index(top[0]) + 1
            if card is not None and card[1] == top[1] and RANKS.index(card[0]) + 1 == height + 1:
                return packet
        return None

    def fits(self, card: str | None) -> bool:
        return self.packet_for(card) is not None

    def legal(self) -> set[int]:
        found = {place for place in range(8) if self.fits(self.divan[place])}
        if self.talon and self.fits(self.talon[-1]):
            found.add(8)
        if self.stock:
            found.add(9)
        if not self.stock and self.talon and self.redeals > 0:
            found.add(10)
        return found

    def play(self, action: int) -> float:
        assert action in self.legal()
        if action < 8:
            self.play_card(self.divan[action])
            self.divan[action] = self.refill()
            return 1 / 95
        if action == 8:
            self.play_card(self.talon.pop())
            return 1 / 95
        if action == 9:
            self.talon.append(self.stock.pop(0))
        else:
            self.redeal()
        return 0

    def play_card(self, card: str | None) -> None:
        packet = self.packet_for(card)
        assert packet is not None
        assert card is not None
        packet.append(card)

    def refill(self) -> str | None:
        """A vacancy in the Divan takes the talon's top, else the stock's next card, else it stays empty."""
        if self.talon:
            return self.talon.pop()
        return self.stock.pop(0) if self.stock else None

    def redeal(self) -> None:
        """The talon, taken from its bottom up, is shuffled into a new stock."""
        self.stock, self.talon = self.talon, []
        self.shuffle(self.stock)
        self.redeals -= 1

    def won(self) -> bool:
        return sum(len(packet) - 1 for packet in self.packets.values()) == 95

    def over(self) -> bool:
        return not self.legal()

    def table(self) -> dict[str, list[str]]:
        places = {f"divan {place + 1}": [] if card is None else [card] for place, card in enumerate(self.divan)}
        packets = {name: list(packet) for name, packet in self.packets.items()}
        piles = {"talon": list(self.talon), "stock": ["??"] * len(self.stock), "redeals left": [str(self.redeals)]}
        return {"sultan": ["KH"], **packets, **places, **piles}
