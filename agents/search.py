"""`SearchPolicy`: Patience Poker by looking ahead.

The value network picks the candidate cells, and its opinion of them counts as so many simulated games. Every candidate
is tried on the same random decks (so that the luck of the cards is taken out of the comparison), and every unseen card
comes next equally often. A simulated game is played on by the network, asked about the few cells that the line table
likes best, and after each of some cards it says what the board is worth: what it says early has little of the luck of
the cards, what it says late less of its mistakes, and a cell's worth is made of both. Without a network the table plays
the game to its end.
The worse half of the candidates is dropped again and again, and the budget of each round goes to those left (sequential
halving: Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", 2013). The last cards are played
by exact expectation over all cards that may come.

The search reads what the player sees, and shuffles the unseen cards itself: the order in which they lie is not used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.board_values import (
    Net,
    Space,
    ValuePolicy,
    forget,
    freedom,
    largest_of,
    net_for,
    play_first,
    room_for,
    try_cell,
    turn_board,
)
from patience_env.agents.line_table import (
    IS_STRAIGHT,
    MIXED,
    RANKS_HAND,
    WITHIN,
    LinePolicy,
    best_cell,
    best_move,
    copy_board,
    lay,
    legal_columns,
    new_boards,
    read_board,
    see_card,
    weigh,
)
from patience_env.agents.policy import Policy, Turn
from patience_env.cards import PACK
from patience_env.deals import RESERVED_DEALS, draw_card, reshuffle
from patience_env.game import Game
from patience_env.games.patience_poker import CANVAS, CARDS, GAME, SIDE
from patience_env.games.poker_hands import FLUSH, HIGH_CARD, ROYAL, STRAIGHT, STRAIGHT_FLUSH
from patience_env.jit import helper, kernel, rule

# With this many cards placed the rest is always worked out exactly; with one less, where the budget allows as much.
EXACT_FROM = 22
EXACT_SIMULATIONS, EXACT_MILLISECONDS = 200, 10.0
# Candidate cells that are tried at all: those that the value network (or else the table) likes best. What the network
# thinks worse than the best by this share of the largest points never proves best, or hardly ever.
WIDTH, HOPELESS = 8, 0.05
# The opinion of a cell that the search begins with counts as much as so many simulated games: played to the end by the
# table, or judged by the network before.
PRIOR, PRIOR_AHEAD = 100.0, 40.0
# Cards that are played before the network judges, and how many more while few are placed, for it knows least then; how
# many cells the network is asked about for each of them, and for the last.
DEPTH, EARLY, FURTHER = 4, 9, 2
ASKED, LOOKED_AT = 3, 5
# How much of a cell's worth is left to what comes after each card ahead: the first is worked out without any luck.
BEYOND = 0.8
# The network is not asked about a cell that the table thinks worse than its best by this share of the largest points:
# such a cell is hardly ever the network's choice, and to ask takes most of the time.
MARGIN = 0.04
# A cell is dropped early where it is behind by so many standard errors of the difference, from so many decks on.
BEHIND, DECKS_AT_LEAST = 3.0, 16
# Deals half of which are played to see how table and network agree (no standard deals).
AGREED_ON = np.arange(16, dtype=np.uint64) + np.uint64(RESERVED_DEALS)
# Decks between two looks at the clock.
BLOCK = 8
# Boards: the position, those that moves are tried on, and (where looking ahead) one whose deck is shuffled.
ROOT, WORK, DECK = 0, 1, 3
BOARDS = 5


# -- simulated games ---------------------------------------------------------------------------------------------


@rule
def leads(board, row, column):  # type: ignore[no-untyped-def]
    """Tell whether a cell is the first of those like it: in the fixed square all empty rows are, and all columns."""
    first = True
    if board.side == SIDE:
        if board.cards[row] == 0:
            for other in range(row):
                if board.cards[other] == 0:
                    first = False
        if board.cards[CANVAS + column] == 0:
            for other in range(column):
                if board.cards[CANVAS + other] == 0:
                    first = False
    return first


@kernel
def begin(states, i, boards, key, values, points, mask, gains):  # type: ignore[no-untyped-def]
    """Set up position `i` as the root, its unseen cards sorted and shuffled from `key`; return the table's choice.

    `mask` gets the legal cells that are no mirror of another, `gains` what the table thinks of each.
    """
    root = boards[ROOT]
    read_board(states[i], root, points)
    placed = root.placed
    root.rng = key
    reshuffle(root, root.deck, placed + 1, PACK)
    choice = best_move(root, int(root.deck[placed]) - 1, values, points)
    weigh(root, int(root.deck[placed]) - 1, values, points)
    for row in range(root.side):
        columns = legal_columns(root, row)
        for column in range(root.side):
            cell = row * root.side + column
            mask[cell] = 1 if (columns >> column) & 1 and leads(root, row, column) else 0
            gains[cell] = root.gain[row] + root.gain[CANVAS + column]
    return choice


@kernel
def simulate(boards, cells, scores, values, points):  # type: ignore[no-untyped-def]
    """Play random decks from the root with the card in hand on each of the cells.

    `scores`, float64, (decks, cells), gets the final scores.
    """
    root = boards[ROOT]
    placed = root.placed
    for deck in range(scores.shape[0]):
        for place in range(placed + 1, CARDS):
            draw_card(root, root.deck, place, PACK)
        for k in range(cells.shape[0]):
            board = boards[WORK]
            copy_board(board, root)
            lay(board, cells[k], int(root.deck[placed]) - 1, points)
            for place in range(placed + 1, CARDS):
                card = int(root.deck[place]) - 1
                see_card(board, card)
                weigh(board, card, values, points)
                cell, _ = best_cell(board)
                lay(board, cell, card, points)
            scores[deck, k] = board.score


@helper
def pick(boards, flip, card, asked, points, net, space, worths):  # type: ignore[no-untyped-def]
    """Return the cell of the first of two boards that the network likes best for a card (0 to 51, seen), and its worth.

    Under the touching rule `freedom` helps to choose, and is no part of that worth.
    It is asked about so many cells alone, those that the table likes best and nearly as well; the lines must have been
    weighed for the card. `flip` is what the network takes rows and columns for.
    """
    board = boards[0]
    largest = largest_of(points)
    for row in range(board.side):
        columns = legal_columns(board, row)
        for column in range(board.side):
            cell = row * board.side + column
            worths[cell] = -np.inf
            if (columns >> column) & 1 and leads(board, row, column):
                worths[cell] = board.gain[row] + board.gain[CANVAS + column]
    kept = board.flip
    board.flip = flip
    forget(space)
    chosen = -1
    best = -np.inf
    most = -np.inf
    least = -np.inf
    for _ in range(asked):
        likely = -1
        top = -np.inf
        for cell in range(board.side * board.side):
            if worths[cell] > top:
                top = worths[cell]
                likely = cell
        if likely < 0 or top < least:
            break
        least = max(least, top - MARGIN * largest)
        worths[likely] = -np.inf
        worth = try_cell(boards, net, space, likely, card, points)
        liked = worth
        if board.side > SIDE:
            liked += freedom(boards[1], points)
        if liked > most:
            most = liked
            best = worth
            chosen = likely
    board.flip = kept
    return chosen, best


@kernel
def add_freedom(boards, cells, points, scores):  # type: ignore[no-untyped-def]
    """Add to scores of cells what it is worth how many are open with the root's card there, under the touching rule."""
    board = boards[WORK]
    for k in range(cells.shape[0]):
        copy_board(board, boards[ROOT])
        lay(board, cells[k], int(board.deck[board.placed]) - 1, points)
        scores[k] += freedom(board, points)


class Firsts(NamedTuple):
    """What came of the first card ahead, for each cell tried and each card, so that it is asked once."""

    cells: Any  # int64, (81, 52): where the network puts the card; -1 as long as it was not asked
    worths: Any  # float64, (81, 52): what the board is worth then


def new_firsts() -> Firsts:
    """Return what is known before anything is asked."""
    return Firsts(np.full((CANVAS * CANVAS, PACK), -1, np.int64), np.zeros((CANVAS * CANVAS, PACK)))


@kernel
def look_ahead(  # type: ignore[no-untyped-def]
    boards, cells, number, scores, depth, asked, beyond, flips, values, points, net, space, worths, firsts
):
    """Try cells on random decks some cards ahead; the network tells what came of it.

    Args:
        boards: the root (see `begin`), then three to work on.
        cells: int64, candidates for the card in hand.
        number: of the first deck. It tells which unseen card comes next, each equally often.
        scores: float64, (decks, cells): what each cell is worth in each deck.
        depth: cards that are turned; where the game ends with them, its score counts.
        asked: how many cells the network is asked about for each of them (see `pick`); 0: the table plays them.
        beyond: how much of the worth is left to what comes after a card: of what is left, 1 - `beyond` is what the
            network thinks with that card laid. 1 where the last alone counts, as it does where the table plays.
        flips: int64, (2,): what the table and the network take rows and columns for.
        values, points: of the table.
        net, space, worths: the network, and room to work in.
        firsts: what is known of the first card (for the same root), and is written there.
    """
    root = boards[ROOT]
    deck = boards[DECK].deck
    placed = root.placed
    first = placed + 1
    last = min(first + depth, CARDS)
    for k in range(scores.shape[0]):
        for i in range(first, PACK):
            deck[i] = root.deck[i]
        following = first + (number + k) % (PACK - first)
        card = deck[following]
        deck[following] = deck[first]
        deck[first] = card
        for place in range(first + 1, last):
            draw_card(root, deck, place, PACK)
        for c in range(cells.shape[0]):
            board = boards[WORK]
            copy_board(board, root)
            board.flip = flips[0]
            lay(board, cells[c], int(root.deck[placed]) - 1, points)
            total = 0.0
            left = 1.0
            for place in range(first, last):
                coming = int(deck[place]) - 1
                see_card(board, coming)
                ended = place == last - 1
                worth = 0.0
                if asked == 0 and not (ended and last < CARDS):
                    weigh(board, coming, values, points)
                    cell, _ = best_cell(board)
                elif place == first and firsts.cells[cells[c], coming] >= 0:
                    cell = firsts.cells[cells[c], coming]
                    worth = firsts.worths[cells[c], coming]
                else:
                    weigh(board, coming, values, points)
                    number_asked = LOOKED_AT if ended or place == first else asked
                    cell, worth = pick(boards[WORK:DECK], flips[1], coming, number_asked, points, net, space, worths)
                    if place == first:
                        firsts.cells[cells[c], coming] = cell
                        firsts.worths[cells[c], coming] = worth
                if ended and last < CARDS:
                    total += left * worth
                else:
                    lay(board, cell, coming, points)
                    if ended:
                        total += left * board.score
                    elif asked > 0:
                        total += left * (1.0 - beyond) * worth
                        left *= beyond
            scores[k, c] = total


@kernel
def network_flip(boards, net, space, points):  # type: ignore[no-untyped-def]
    """Return what the network takes rows and columns of the root for; the root stays as it is."""
    root = boards[ROOT]
    kept = root.flip
    turn_board(root, net, space, points)
    flip = root.flip
    root.flip = kept
    return flip


@kernel
def agree(boards, deals, net, space, values, points, touching, worths):  # type: ignore[no-untyped-def]
    """Return 0 where the table takes rows and columns for the same as the network does, 1 where for the other.

    They were trained apart. Deals are played half by the network, and the table tells what it thinks of the boards.
    """
    board = boards[0]
    total = 0.0
    for i in range(deals.shape[0]):
        play_first(boards, deals[i], CARDS // 2, net, space, points, touching, worths)
        card = int(draw_card(board, board.deck, CARDS // 2, PACK)) - 1
        see_card(board, card)
        board.flip = 1
        total += weigh(board, card, values, points)
        board.flip = 0
        total -= weigh(board, card, values, points)
    return 1 if total > 0.0 else 0


# -- exact expectation -------------------------------------------------------------------------------------------


@rule
def points_with(board, line, card, points):  # type: ignore[no-untyped-def]
    """Return the points of a line of four with a fifth card (0 to 51)."""
    rank = card % 13
    pairs = board.pairs[line] + ((board.counts[line] >> (3 * rank)) & 7)
    if pairs > 0:
        return points[RANKS_HAND[pairs]]
    ranks = board.ranks[line] | (1 << rank)
    straight = IS_STRAIGHT[ranks]
    if board.suit[line] == MIXED or board.suit[line] != card // 13:
        return points[STRAIGHT if straight else HIGH_CARD]
    if not straight:
        return points[FLUSH]
    return points[ROYAL if WITHIN[ranks] == 512 else STRAIGHT_FLUSH]


@helper
def expect_last(board, deck, used, first, points):  # type: ignore[no-untyped-def]
    """Return the mean final score with one cell left, over the unseen cards `deck[first:]` that are not in `used`."""
    for row in range(board.side):
        columns = legal_columns(board, row)
        if columns:
            column = 0
            while not (columns >> column) & 1:
                column += 1
            total = 0.0
            for k in range(first, PACK):
                card = int(deck[k]) - 1
                if not (used >> card) & 1:
                    total += points_with(board, row, card, points) + points_with(board, CANVAS + column, card, points)
            return board.score + total / (PACK - CARDS + 1)
    return board.score


@helper
def expect_two(boards, level, card, used, first, points):  # type: ignore[no-untyped-def]
    """Return the expected final score with two cells left and a card in hand, played best."""
    best = -np.inf
    board = boards[level]
    for row in range(board.side):
        columns = legal_columns(board, row)
        for column in range(board.side):
            if (columns >> column) & 1:
                copy_board(boards[level + 1], board)
                lay(boards[level + 1], row * board.side + column, card, points)
                best = max(best, expect_last(boards[level + 1], boards[ROOT].deck, used, first, points))
    return best


@helper
def expect_three(boards, level, card, used, first, points):  # type: ignore[no-untyped-def]
    """Return the expected final score with three cells left and a card in hand, played best."""
    best = -np.inf
    board = boards[level]
    for row in range(board.side):
        columns = legal_columns(board, row)
        for column in range(board.side):
            if (columns >> column) & 1:
                copy_board(boards[level + 1], board)
                lay(boards[level + 1], row * board.side + column, card, points)
                total = 0.0
                for k in range(first, PACK):
                    following = int(boards[ROOT].deck[k]) - 1
                    if not (used >> following) & 1:
                        total += expect_two(boards, level + 1, following, used | (1 << following), first, points)
                best = max(best, total / (PACK - CARDS + 2))
    return best


@kernel
def expect(boards, cells, worths, points):  # type: ignore[no-untyped-def]
    """Write the expected final score of each cell for the card in hand, all later cards played best.

    The root must have one to four cells left.
    """
    root = boards[ROOT]
    first = root.placed + 1
    left = CARDS - root.placed
    for k in range(cells.shape[0]):
        copy_board(boards[WORK], root)
        lay(boards[WORK], cells[k], int(root.deck[root.placed]) - 1, points)
        if left == 1:
            worths[k] = boards[WORK].score
        elif left == 2:
            worths[k] = expect_last(boards[WORK], root.deck, 0, first, points)
        else:
            total = 0.0
            for place in range(first, PACK):
                card = int(root.deck[place]) - 1
                if left == 3:
                    total += expect_two(boards, WORK, card, 1 << card, first, points)
                else:
                    total += expect_three(boards, WORK, card, 1 << card, first, points)
            worths[k] = total / (PACK - first)


# -- the policy --------------------------------------------------------------------------------------------------


def depth_at(depth: int, placed: int) -> int:
    """Return how many cards are played before the network judges, with so many placed.

    One card ahead is one card always: then every card that may come is tried once, and nothing is left to luck.
    """
    return depth + (FURTHER if placed < EARLY and depth > 1 else 0)


class Ahead(NamedTuple):
    """A network as the search asks it."""

    net: Net
    space: Space
    worths: NDArray[np.float64]  # (81,)
    turned: int  # 1 where the table takes rows for columns (see `agree`)


class SearchPolicy(Policy):
    """Looks ahead by a trained line table and a value network; see the module's docstring.

    Args:
        path: the folder of a line model that `patience train-value --kind line` wrote: it plays the simulated games.
            None: the one that comes with the package for the placement and the scoring table in force.
        value: the folder of a value model, whose opinion of the cells is heard first, and of the boards that simulated
            games come to; None: the one that comes with the package, or, where `path` is given, none: the line model's
            opinion serves, and games are played to their end.
        simulations: simulated games for one decision. With the same seed the same position gets the same answer.
        milliseconds: time for one decision instead. 1,000 simulations when neither is given.
        width: most candidate cells tried.
        prior: as how many simulated games the opinion of a cell counts; None: 100, or 40 where the network judges (less
            and less until every unseen card came next once: then looking ahead knows more than that opinion).
        depth: how many cards are played in a simulated game before the network judges (two more early in the game).
        asked: about how many cells the network is asked for each of them; 0: the table plays them, which is faster.
        beyond: how much of a cell's worth is left to what comes after each card ahead (see `look_ahead`); 1: only the
            board counts that a simulated game comes to.

    Raises:
        ValueError: as `LinePolicy`, or a budget that is no positive number, or both given.
    """

    name = "search"
    version = 5
    game_id = GAME.id
    share = 10

    def __init__(
        self,
        path: str | None = None,
        simulations: int | None = None,
        milliseconds: float | None = None,
        width: int = WIDTH,
        prior: float | None = None,
        value: str | None = None,
        depth: int = DEPTH,
        asked: int = ASKED,
        beyond: float = BEYOND,
    ) -> None:
        if simulations is not None and milliseconds is not None:
            raise ValueError(
                f"simulations={simulations!r} and milliseconds={milliseconds!r} are both given: give one budget"
            )
        _check_number("simulations", simulations, True)
        _check_number("milliseconds", milliseconds, False)
        _check_number("width", width, True)
        _check_number("depth", depth, True)
        if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= CARDS:
            raise ValueError(f"asked={asked!r} is not allowed: give a whole number from 0 to {CARDS}")
        if isinstance(beyond, bool) or not isinstance(beyond, (int, float)) or not 0 <= beyond <= 1:
            raise ValueError(f"beyond={beyond!r} is not allowed: give a number from 0 to 1")
        self.line = LinePolicy(path)
        self.value = None if path is not None and value is None else ValuePolicy(value)
        if prior is None:
            prior = PRIOR if self.value is None else PRIOR_AHEAD
        if isinstance(prior, bool) or not isinstance(prior, (int, float)) or not 0 <= prior < math.inf:
            raise ValueError(f"prior={prior!r} is not allowed: give a number from 0 up")
        self.simulations = 1000 if simulations is None and milliseconds is None else simulations
        self.milliseconds, self.width, self.prior = milliseconds, width, prior
        self.depth, self.asked, self.beyond = depth, asked, beyond if asked else 1.0
        self._boards = new_boards(BOARDS)
        self._seed = 0
        self._model: tuple[NDArray[np.float32], NDArray[np.float64]]
        self._ahead: dict[tuple[str, tuple[float, ...]], Ahead] = {}

    def start(self, seed: int) -> None:
        self._seed = seed

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        return self.line.files(options) + ([] if self.value is None else self.value.files(options))

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where the table was trained for another placement or scoring table."""
        super().check(game, options)
        self.line.check(game, options)
        if self.value is not None:
            self.value.check(game, options)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the best cell found, for every position, one after the other."""
        values, facts = self.line.model(turn.options)
        self._model = values, np.array(facts["points"], np.float64)
        worths = None if self.value is None else self.value.values(turn)
        ahead = None if self.value is None else self._network(self.value, turn.options)
        return np.array([self._choose(turn.states, i, worths, ahead) for i in range(len(turn))], np.int64)

    def _network(self, value: ValuePolicy, options: Mapping[str, Any]) -> Ahead:
        """Return the network for a game's options."""
        values, points = self._model
        key = str(options["placement"]), tuple(points.tolist())
        if key not in self._ahead:
            net, conditions, _ = value.model(options)
            weights = net if conditions is None else net_for(net, conditions, points)
            space, worths = room_for(net), np.zeros(CANVAS * CANVAS)
            touching = int(options["placement"] == "touching")
            turned = int(agree(self._boards, AGREED_ON, weights, space, values, points, touching, worths))
            self._ahead[key] = Ahead(weights, space, worths, turned)
        return self._ahead[key]

    def _choose(self, states: NDArray[Any], i: int, worths: NDArray[np.float64] | None, ahead: Ahead | None) -> int:
        (values, points), boards = self._model, self._boards
        cells = states["cells"].shape[1] if states["touching"][i] else SIDE * SIDE
        mask, gains = np.zeros(cells, np.int8), np.zeros(cells)
        choice = int(begin(states, i, boards, self._key(states[i]), values, points, mask, gains))
        if worths is not None:
            gains = worths[i]
            choice = int(gains.argmax())
        placed = int(boards["placed"][ROOT])
        likely = np.flatnonzero(mask)
        likely = likely[np.argsort(-gains[likely], kind="stable")]
        if len(likely) == 1:
            return int(likely[0])
        if placed >= EXACT_FROM or (placed == EXACT_FROM - 1 and self._affords_exact()):
            expected = np.zeros(len(likely))
            expect(boards, likely, expected, points)
            return int(likely[expected.argmax()])
        if choice not in likely[: self.width] and mask[choice]:
            likely = np.concatenate([[choice], likely])
        likely = likely[: self.width]
        if ahead is not None:
            likely = likely[gains[likely] >= gains[likely].max() - HOPELESS * np.abs(points).max()]
        return self._halve(likely, gains, ahead)

    def _key(self, state: Any) -> np.uint64:
        """Return random bits that depend on the seed and on what the player sees, and on nothing else."""
        placed = int(state["placed"])
        shown = np.concatenate([state["cells"], state["deck"][placed : placed + 1]]).astype(np.uint32)
        return np.uint64(np.random.SeedSequence([self._seed, *shown.tolist()]).generate_state(1, np.uint64)[0])

    def _affords_exact(self) -> bool:
        if self.milliseconds is not None:
            return self.milliseconds >= EXACT_MILLISECONDS
        return int(self.simulations or 0) >= EXACT_SIMULATIONS

    def _halve(self, cells: NDArray[np.int64], gains: NDArray[np.float64], ahead: Ahead | None) -> int:
        """Return the best of several cells by sequential halving."""
        if len(cells) == 1:
            return int(cells[0])
        rounds = max(1, math.ceil(math.log2(len(cells))))
        trial = _Trial(self._boards, self._model, ahead, self)
        cards = PACK - 1 - int(self._boards["placed"][ROOT])
        played = np.zeros((0, len(cells)))
        started = time.perf_counter()
        for number in range(rounds):
            if self.milliseconds is None:
                decks = max(1, int(self.simulations or 1) // (rounds * len(cells)))
                if decks > cards and ahead is not None:
                    decks -= decks % cards  # each card comes next equally often
                played = np.concatenate([played, trial.play(cells, len(played), decks)])
            else:
                until = started + self.milliseconds / 1000 * (number + 1) / rounds
                blocks = [played, trial.play(cells, len(played), 1)]
                while time.perf_counter() < until:
                    blocks.append(trial.play(cells, sum(map(len, blocks)), BLOCK))
                played = np.concatenate(blocks)
            # All that are left have played the same decks; what was thought of them counts as some more.
            prior = self.prior if ahead is None else self.prior * max(0.0, 1.0 - len(played) / cards)
            scores = (played.sum(0) + prior * gains[cells]) / (len(played) + prior)
            if ahead is not None and self._boards["side"][ROOT] > SIDE:
                add_freedom(self._boards, cells, self._model[1], scores)
            order = np.argsort(-scores, kind="stable")[: max(1, len(cells) // 2)]
            order = order[_not_behind(played[:, order], scores[order])]
            cells, played = cells[order], played[:, order]
            if len(cells) == 1:
                break
        return int(cells[0])


def _not_behind(played: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which columns may still prove better than the first, by what was played and scored."""
    if len(played) < DECKS_AT_LEAST:
        return np.ones(len(scores), np.bool_)
    errors = (played - played[:, :1]).std(0) / math.sqrt(len(played))
    found: NDArray[np.bool_] = scores[0] - scores <= BEHIND * errors
    return found


class _Trial:
    """What tries cells on decks: the table up to the end, or the table and the network."""

    def __init__(
        self,
        boards: Any,
        model: tuple[NDArray[np.float32], NDArray[np.float64]],
        ahead: Ahead | None,
        policy: SearchPolicy,
    ) -> None:
        self.boards, self.model, self.ahead, self.policy = boards, model, ahead, policy
        self.firsts = new_firsts()
        self.flips = np.zeros(2, np.int64)
        if ahead is not None:
            self.flips[1] = network_flip(boards, ahead.net, ahead.space, model[1])
            self.flips[0] = self.flips[1] ^ ahead.turned

    def play(self, cells: NDArray[np.int64], number: int, decks: int) -> NDArray[np.float64]:
        """Return the scores of cells on so many decks from a number on, (decks, cells)."""
        scores = np.zeros((decks, len(cells)))
        if self.ahead is None:
            simulate(self.boards, cells, scores, *self.model)
        else:
            net, space, worths, _ = self.ahead
            depth = depth_at(self.policy.depth, int(self.boards["placed"][ROOT]))
            way = depth, self.policy.asked, float(self.policy.beyond), self.flips
            look_ahead(self.boards, cells, number, scores, *way, *self.model, net, space, worths, self.firsts)
        return scores


def _check_number(name: str, value: Any, whole: bool) -> None:
    if value is None:
        return
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not 0 < value < 1e9:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name}={value!r} is not allowed: give {kind} above 0")
