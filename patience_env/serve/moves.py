"""What a player sees of a position and may do there: the public table, and the places that each action concerns.

Everything is worked out on a copy of the position whose hidden cards were dealt anew, from a number that is itself
drawn from what the player sees (`Seen`). So nothing told to a player can depend on a face-down card, and the same view
gets the same answer.

Games describe their actions in words only. Which piles an action takes cards from and puts them on is found by playing
it on such copies and comparing the tables before and after. That needs nothing of a game beyond what every
game has, so a tenth game is clickable without a line of its own. Two helps make the comparison sure:
cards that only refill a place that was just left are told from the move itself, and places that the description names
settle what identical cards of several packs leave open.

The Empress of India can have more than a thousand legal actions, whose tables and descriptions take long to make. Where
there are more than `MANY`, observations are compared instead of tables, and descriptions are left to be asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import key_of
from patience_env.cards import EMPTY, FACE_DOWN, NAMES
from patience_env.game import Game, Table
from patience_env.kernels import determinize_rows
from patience_env.table import Rows

HIDDEN = NAMES[FACE_DOWN]
CARDS = frozenset(NAMES) - {NAMES[EMPTY]}
Piles = dict[str, Counter[str]]
AT_ONCE = 64
MANY = 100
USUAL = 0.1  # a pile that gains unknown cards in more than this share of long lists is one that others refill
MOST_SOURCES = 2
_CELL = re.compile(r"row (\d+), column (\d+)")


@dataclass(frozen=True)
class Move:
    """A legal action: its number, what it does in words, and the piles of the table that it concerns.

    Attributes:
        action: the action's number.
        text: the game's description; "" in a long list (more than `MANY`), where `Observer.describe` gives it.
        sources: the piles that one clicks first, any of them; at least one.
        targets: the piles that the cards go to; may be empty (two cards that change places).
    """

    action: int
    text: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """A position as its player sees it: one state row with hidden cards dealt anew, and all that derives from it.

    Attributes:
        states: the row, shape (1,).
        cards: the observed code of each place, int8, shape (places,).
        table: the public table.
        mask: the legal actions, int8, shape (actions,).
        key: the random bits that the hidden cards were dealt from, drawn from the observation.
    """

    states: NDArray[Any]
    cards: NDArray[np.int8]
    table: Table
    mask: NDArray[np.int8]
    key: int


class Observer:
    """Tells what a player sees of positions of one game under given options. Not to be used by two threads at once."""

    def __init__(self, game: Game, options: Mapping[str, Any]) -> None:
        self.game = game
        self.layout = game.layout(options)
        self._rows = Rows(game, options, AT_ONCE, "cards", False)
        self._idle = np.ones(AT_ONCE, np.bool_)
        self._actions = np.zeros(AT_ONCE, np.int64)
        names = sorted(self.layout.spots, key=len, reverse=True)
        self._named = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, names))})(?!\w)") if names else None
        grid = self.layout.grid
        # Where each action is a cell of the grid there is nothing to find out (and a tableau that makes way for the
        # next of its series would hide the card).
        self._cells = grid is not None and grid[0] * grid[1] == self.layout.actions
        # The places of the other grids do not show all piles: the pairs that Fourteenth withdraws, for one.
        self._quick = grid is None
        found = [self._named.match(place) if self._named else None for place in self.layout.places]
        self._pile_of = [match.group() if match else "" for match in found]

    def see(self, states: NDArray[Any], mask: NDArray[Any], observation: NDArray[np.int8]) -> Seen:
        """Return what the player sees: `states` of one row, its mask, and its observation in the form "cards"."""
        hidden = states.copy()
        key = key_of(observation)
        determinize_rows(hidden, np.array([key], np.uint64))
        cards = observation[: len(self.layout.places)].copy()
        return Seen(hidden, cards, self.game.table(hidden[0]), np.asarray(mask, np.int8), key)

    def describe(self, seen: Seen, action: int) -> str:
        """Say what an action does, from what the player sees."""
        return self.game.describe(seen.states[0], action)

    def moves(self, seen: Seen) -> list[Move]:
        """Return all legal actions with the places that they concern, in the order of their numbers."""
        actions = np.flatnonzero(seen.mask).tolist()
        if self._cells:
            hand = self._outside(seen.table)
            return [
                Move(action, self.describe(seen, action), hand, (self.layout.places[action],)) for action in actions
            ]
        find = self._by_observation if self._quick and len(actions) > MANY else self._by_table
        return find(seen, actions)

    def _by_table(self, seen: Seen, actions: Sequence[int]) -> list[Move]:
        found = []
        for part in _parts(actions):
            self._play(seen, part)
            for i, action in enumerate(part):
                text = self.describe(seen, action)
                changes = differences(seen.table, self.game.table(self._rows.states[i]))
                found.append(Move(action, text, *concerned(changes, self._names_in(text), seen.table)))
        return found

    def _by_observation(self, seen: Seen, actions: Sequence[int]) -> list[Move]:
        changed: list[Changes] = []
        for part in _parts(actions):
            self._play(seen, part)
            changed += self._observed_changes(seen, len(part))
        refilling = {source for changes in changed for source, _ in changes.refills}
        strangers = Counter(name for changes in changed for name in changes.strangers)
        usual = {name for name, count in strangers.items() if count > USUAL * len(actions)}
        found, unsure = [], []
        for action, changes in zip(actions, changed, strict=True):
            told = usual.issuperset(changes.strangers) and refilling.isdisjoint(changes.sources)
            if not changes.moves or not told:
                # Only hidden cards moved, or a card like the one that was played may have refilled its place.
                unsure.append(action)
            else:
                found.append(Move(action, "", *concerned(changes, (), seen.table)))
        return sorted(found + self._by_table(seen, unsure), key=lambda move: move.action)

    def _observed_changes(self, seen: Seen, count: int) -> list[Changes]:
        """Return the changes that the observations after `count` actions show."""
        after = self._rows.observations[:count, : len(self._pile_of)]
        lost: list[Piles] = [{} for _ in range(count)]
        gained: list[Piles] = [{} for _ in range(count)]
        rows, places = np.nonzero(after != seen.cards)
        for row, place, was, now in zip(
            rows.tolist(), places.tolist(), seen.cards[places].tolist(), after[rows, places].tolist(), strict=True
        ):
            pile = self._pile_of[place]
            lost[row].setdefault(pile, Counter())[NAMES[was]] += 1
            gained[row].setdefault(pile, Counter())[NAMES[now]] += 1
        return [Changes(*_net(lost[row], gained[row])) for row in range(count)]

    def _play(self, seen: Seen, actions: Sequence[int]) -> None:
        """Play each action on a copy of what the player sees."""
        rows = self._rows
        count = len(actions)
        rows.states[:count] = seen.states[0]
        rows.allow(np.repeat(seen.mask[None], count, 0))
        self._idle[:] = True
        self._idle[:count] = False
        self._actions[:count] = actions
        rows.step(self._actions, self._idle)

    def _names_in(self, text: str) -> list[str]:
        """Return the places that a description names, such as `pile 3`, or `row 1, column 2` for the cell r1c2."""
        spots = self.layout.spots
        found = [f"r{row}c{column}" for row, column in _CELL.findall(text)]
        if self._named is not None:
            found += self._named.findall(text)
        return [name for name in dict.fromkeys(found) if name in spots]

    def _outside(self, table: Table) -> tuple[str, ...]:
        """Return the piles beside the grid that hold a card to be placed."""
        cells = set(self.layout.places[: self.layout.actions])
        return tuple(name for name, cards in table.items() if name not in cells and cards and HIDDEN not in cards)


def _parts(actions: Sequence[int]) -> list[Sequence[int]]:
    """Return the actions in parts that are played at once."""
    return [actions[first : first + AT_ONCE] for first in range(0, len(actions), AT_ONCE)]


class Changes:
    """What an action changed: the cards that each pile lost and gained, and which pile each known card left for which.

    A card that comes to a place which another card leaves by the same action refills it: a rule's doing, not the
    player's.

    Attributes:
        lost, gained: pile -> cards.
        moves: (from, to) of the player's move; empty where only hidden cards move.
        refills: (from, to) of the known cards that refill a place.
        sources: the piles that `moves` start from.
        strangers: the piles that no card left and that gained a card which came from no known place.
    """

    def __init__(self, lost: Piles, gained: Piles) -> None:
        self.lost, self.gained = lost, gained
        edges, strangers = _edges(lost, gained)
        left = {source for source, _ in edges}
        self.moves = [edge for edge in edges if edge[1] not in left]
        self.refills = [edge for edge in edges if edge[1] in left]
        self.exchange = not self.moves and bool(edges)
        if self.exchange:
            self.moves, self.refills = edges, []
        self.sources = {source for source, _ in self.moves}
        self.strangers = strangers - left


def concerned(changes: Changes, named: Sequence[str], before: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the (sources, targets) of an action.

    Args:
        changes: what it changes.
        named: the places that its description names.
        before: the table before it.
    """
    if changes.moves:
        sources = [a for a, _ in changes.moves]
        targets = [] if changes.exchange else [b for _, b in changes.moves]
    else:
        sources, targets = list(changes.lost), [name for name in changes.gained if name not in changes.lost]
    if missing := [name for name in named if name not in sources and name not in targets and before.get(name)]:
        sources = [name for name in sources if name in named] + missing
    order = {name: number for number, name in enumerate(before)}
    sources = list(dict.fromkeys(sources))
    targets = sorted(set(targets), key=lambda name: order.get(name, -1))
    if not sources:
        sources, targets = targets, []
    if len(sources) > MOST_SOURCES and 0 < len(targets) <= MOST_SOURCES:
        sources, targets = targets, []  # all is gathered: one clicks where it goes
    return tuple(sources), tuple(name for name in targets if name not in sources)


def differences(before: Table, after: Table) -> Changes:
    """Return what changed from one table to the next; entries that are no cards are passed over."""
    lost: Piles = {}
    gained: Piles = {}
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, []), after.get(name, [])
        if old != new and CARDS.issuperset(old) and CARDS.issuperset(new):
            lost[name], gained[name] = Counter(old), Counter(new)
    return Changes(*_net(lost, gained))


def _net(lost: Piles, gained: Piles) -> tuple[Piles, Piles]:
    """Return losses and gains without what a pile both lost and gained, and without empty places."""
    less = {name: cards - gained.get(name, Counter()) for name, cards in lost.items()}
    more = {name: cards - lost.get(name, Counter()) for name, cards in gained.items()}
    for piles in (less, more):
        for cards in piles.values():
            cards.pop(NAMES[EMPTY], None)
    return {name: cards for name, cards in less.items() if cards}, {
        name: cards for name, cards in more.items() if cards
    }


def _edges(lost: Piles, gained: Piles) -> tuple[list[tuple[str, str]], set[str]]:
    """Return which pile each known card left for which, and the piles that gained a card from no known place."""
    came: dict[str, list[str]] = {}
    for name, cards in gained.items():
        for card, count in cards.items():
            came.setdefault(card, []).extend([name] * count)
    edges = []
    for name, cards in lost.items():
        for card in cards.elements():
            if card != HIDDEN and came.get(card):
                edges.append((name, came[card].pop(0)))
    return edges, {name for names in came.values() for name in names}
