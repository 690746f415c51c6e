"""La Nivernaise played naively, from `seeds/rules/nivernaise.md` alone."""

from __future__ import annotations

from dataclasses import dataclass

RANKS = "A23456789TJQK"
SUITS = "SHDC"
SUIT_NAMES = ("spades", "hearts", "diamonds", "clubs")
UP, DOWN = 0, 1


@dataclass
class Card:
    """A card; once seen it stays known."""

    text: str
    seen: bool = False

    def shown(self) -> str:
        return self.text if self.seen else "??"


class Naive:
    def __init__(self, deck: list[str]) -> None:
        cards = [Card(text) for text in deck]
        self.flanks: list[Card | None] = [*cards[:8]]
        self.packets: list[list[Card]] = [[] for _ in range(6)]  # bottom first
        self.stock = cards[8:]  # the next card first
        # For each suit its ascending and its descending foundation, base first.
        self.foundations: list[list[list[Card]]] = [[[], []] for _ in SUITS]
        self.redeals = 1
        self.deal_on_each()
        self.look()

    # Dealing and looking.

    def deal_four(self, packet: list[Card]) -> None:
        """Four cards together, the fourth on top, or what remains of the stock."""
        packet.extend(self.stock[:4])
        del self.stock[:4]

    def deal_on_each(self) -> None:
        """A round: four on each packet in turn from the left, until the stock is out."""
        for packet in self.packets:
            self.deal_four(packet)

    def redeal(self) -> None:
        """The cards come again from the first packet's bottom card on, dealt as before."""
        self.stock = [card for packet in self.packets for card in packet]
        self.packets = [[] for _ in range(6)]
        self.redeals -= 1
        self.deal_on_each()

    def look(self) -> None:
        """See the Flanks, and below each packet's top as many cards as there are vacancies."""
        for card in self.flanks:
            if card is not None:
                card.seen = True
        depth = 1 + self.flanks.count(None)
        for packet in self.packets:
            for card in packet[-depth:]:
                card.seen = True

    # What fits.

    def next_rank(self, suit: int, way: int) -> int | None:
        """The rank that a foundation takes next; a full one takes nothing."""
        height = len(self.foundations[suit][way])
        if height == 13:
            return None
        return height + 1 if way == UP else 13 - height

    def fits(self, card: Card | None, way: int) -> bool:
        if card is None:
            return False
        rank = RANKS.index(card.text[0]) + 1
        return self.next_rank(SUITS.index(card.text[1]), way) == rank

    def may_pass(self, suit: int, giver: int) -> bool:
        """Both foundations are begun, and the giver's top, which is not its base, is the taker's next card."""
        taker = 1 - giver
        if len(self.foundations[suit][giver]) < 2 or not self.foundations[suit][taker]:
            return False
        return self.fits(self.foundations[suit][giver][-1], taker)

    def legal(self) -> set[int]:
        vacancy = None in self.flanks
        found = {2 * flank + way for flank in range(8) for way in (UP, DOWN) if self.fits(self.flanks[flank], way)}
        for number, packet in enumerate(self.packets):
            if packet:
                found |= {16 + 2 * number + way for way in (UP, DOWN) if self.fits(packet[-1], way)}
                found |= {28 + number} if vacancy else set()
        if vacancy and self.stock:
            found.add(34)
        found |= {35 + 2 * suit + giver for suit in range(4) for giver in (UP, DOWN) if self.may_pass(suit, giver)}
        if self.stock:
            found.add(43)
        if not self.stock and any(self.packets) and self.redeals > 0:
            found.add(44)
        return found

    # Playing.

    def play(self, action: int) -> float:
        assert action in self.legal()
        before = self.played()
        self.act(action)
        self.look()
        return (self.played() - before) / 104

    def act(self, action: int) -> None:
        if action < 16:
            card = self.flanks[action // 2]
            self.flanks[action // 2] = None
            assert card is not None
            self.to_foundation(card, action % 2)
        elif action < 28:
            self.to_foundation(self.take_top((action - 16) // 2), action % 2)
        elif action < 34:
            self.to_flank(self.take_top(action - 28))
        elif action == 34:
            self.to_flank(self.stock.pop(0))
        elif action < 43:
            suit, giver = divmod(action - 35, 2)
            self.foundations[suit][1 - giver].append(self.foundations[suit][giver].pop())
        elif action == 43:
            self.deal_on_each()
        else:
            self.redeal()

    def take_top(self, number: int) -> Card:
        """Take a packet's top; an emptied packet is at once dealt four cards from the stock, or what remains."""
        card = self.packets[number].pop()
        if not self.packets[number]:
            self.deal_four(self.packets[number])
        return card

    def to_foundation(self, card: Card, way: int) -> None:
        self.foundations[SUITS.index(card.text[1])][way].append(card)

    def to_flank(self, card: Card) -> None:
        """Into the lowest-numbered vacant flank."""
        self.flanks[self.flanks.index(None)] = card

    # The end and the text.

    def played(self) -> int:
        return sum(len(foundation) for pair in self.foundations for foundation in pair)

    def won(self) -> bool:
        return self.played() == 104

    def over(self) -> bool:
        return self.won() or not self.legal()

    def table(self) -> dict[str, list[str]]:
        text = {f"flank {place + 1}": [] if card is None else [card.text] for place, card in enumerate(self.flanks)}
        for name, pair in zip(SUIT_NAMES, self.foundations, strict=True):
            for way, foundation in zip(("up", "down"), pair, strict=True):
                text[f"{name} {way}"] = [card.text for card in foundation]
        for number, packet in enumerate(self.packets):
            text[f"packet {number + 1}"] = [card.shown() for card in packet]
        text["stock"] = [card.shown() for card in reversed(self.stock)]
        text["redeals"] = [str(self.redeals)]
        return text
