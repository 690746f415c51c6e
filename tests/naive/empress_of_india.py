"""The Empress of India once more, slow and plain: only from `seeds/rules/empress_of_india.md`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RANKS = "A23456789TJQK"
SUITS = "SHDC"
NAMES = {"S": "spades", "H": "hearts", "D": "diamonds", "C": "clubs"}
RED, BLACK = "HD", "SC"
UPWARDS = "A23456789TJK"  # black foundations, without the queens
DOWNWARDS = "KQT98765432A"  # red foundations, without the knaves
ARMY, NAVY = 0, 24  # the first place of each of the two, among 48
DEAL_ON = 1776


def is_red(card: str) -> bool:
    return card[1] in RED


def order(suit: str) -> str:
    return DOWNWARDS if suit in RED else UPWARDS


def playing_cards() -> list[str]:
    """The 176 cards before the shuffle: without the bases, the black queens and the red knaves."""
    left_out = {rank + suit for suit in BLACK for rank in "AQ"} | {rank + suit for suit in RED for rank in "KJ"}
    one_pack = [rank + suit for suit in SUITS for rank in RANKS if rank + suit not in left_out]
    return one_pack * 4


class Naive:
    """Places 0 to 23 are the Army's, 24 to 47 the Navy's; each holds nothing, a card or a pair (covered first)."""

    def __init__(self, deck: list[str], options: dict[str, Any], shuffle: Callable[[list[str]], None]) -> None:
        self.pack = playing_cards()  # the next card first
        shuffle(self.pack)
        self.places: list[list[str]] = [[] for _ in range(48)]
        self.talons: dict[bool, list[str]] = {True: [], False: []}  # by "is red"
        self.foundations: dict[str, list[list[str]]] = {
            suit: [[order(suit)[0] + suit] for _ in range(4)] for suit in SUITS
        }
        self.deal_until_full()

    # Places

    def vacancies(self, red: bool) -> list[int]:
        first = ARMY if red else NAVY
        return [place for place in range(first, first + 24) if not self.places[place]]

    def deal_until_full(self) -> None:
        """Turn cards to vacancies of their colour, else to its talon, until no place is vacant or the pack is out."""
        while self.pack and (self.vacancies(True) or self.vacancies(False)):
            card = self.pack.pop(0)
            vacant = self.vacancies(is_red(card))
            if vacant:
                self.places[vacant[0]] = [card]
            else:
                self.talons[is_red(card)].append(card)

    def refill(self) -> None:
        for red in (True, False):
            for place in self.vacancies(red):
                if self.talons[red]:
                    self.places[place] = [self.talons[red].pop()]
        self.deal_until_full()

    # Foundations

    def foundation_for(self, card: str) -> list[str] | None:
        """The lowest-numbered foundation of the suit with the card before this one on top, if there is one."""
        ranks = order(card[1])
        for pile in self.foundations[card[1]]:
            if ranks.index(pile[-1][0]) + 1 == ranks.index(card[0]):
                return pile
        return None

    def fits(self, card: str) -> bool:
        return self.foundation_for(card) is not None

    def to_foundation(self, card: str) -> None:
        pile = self.foundation_for(card)
        assert pile is not None
        pile.append(card)

    def played(self) -> int:
        return sum(len(pile) - 1 for piles in self.foundations.values() for pile in piles)

    # The contract

    def is_single(self, place: int) -> bool:
        return len(self.places[place]) == 1

    def legal(self) -> set[int]:
        actions = set()
        for army in range(24):
            for navy in range(24):
                if not (self.is_single(ARMY + army) and self.is_single(NAVY + navy)):
                    continue
                actions.add(576 + 24 * army + navy)
                actions.add(1152 + 24 * army + navy)
                if self.fits(self.places[ARMY + army][0]) and self.fits(self.places[NAVY + navy][0]):
                    actions.add(24 * army + navy)
        for place in range(48):
            if len(self.places[place]) == 2 and all(self.fits(card) for card in self.places[place]):
                actions.add(1728 + place)
        if self.pack:
            actions.add(DEAL_ON)
        return actions

    def play(self, action: int) -> float:
        before = self.played()
        if action < 1728:
            kind, number = divmod(action, 576)
            army, navy = ARMY + number // 24, NAVY + number % 24
            if kind == 0:
                self.play_cards(army)
                self.play_cards(navy)
            elif kind == 1:
                self.lay(army, navy)
            else:
                self.lay(navy, army)
            self.refill()
        elif action < DEAL_ON:
            self.play_cards(action - 1728)
            self.refill()
        else:
            card = self.pack.pop(0)
            self.talons[is_red(card)].append(card)
        return (self.played() - before) / 176

    def play_cards(self, place: int) -> None:
        for card in self.places[place]:
            self.to_foundation(card)
        self.places[place] = []

    def lay(self, covering: int, covered: int) -> None:
        self.places[covered].append(self.places[covering].pop())

    def won(self) -> bool:
        return self.played() == 176

    def over(self) -> bool:
        return not self.legal()

    def table(self) -> dict[str, list[str]]:
        table = {"empress": ["QC"], "knaves": ["JH"] * 4 + ["JD"] * 4}
        for suit in SUITS:
            for number in range(4):
                table[f"{NAMES[suit]} {number + 1}"] = list(self.foundations[suit][number])
        for number in range(24):
            table[f"army {number + 1}"] = list(self.places[ARMY + number])
            table[f"navy {number + 1}"] = list(self.places[NAVY + number])
        table["red talon"] = list(self.talons[True])
        table["black talon"] = list(self.talons[False])
        table["pack"] = ["??"] * len(self.pack)
        return table
