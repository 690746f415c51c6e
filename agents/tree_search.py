"""Search for any of the games: flat Monte Carlo and UCT over information sets, written once on the generic verbs.

Both see what a player sees. Each simulated game deals the hidden cards and all later chance anew (`determinize`), from
random bits that depend on the seed and on the observation, and on nothing else.

At the root both try the moves, those that the rollout policy likes best, in the same determinizations with the same
chance, so that the luck of the cards is taken out of the comparison; the worse half of the moves is dropped again and
again, and the budget goes to those left (sequential halving: Karnin, Koren and Somekh, "Almost optimal exploration in
multi-armed bandits", 2013). It is the last choice that counts there, not what was gained on the way.

*Flat Monte Carlo* (`flat`) plays each simulated game to its end by a rollout policy. *UCT* (`uct`; Kocsis and
Szepesvari, "Bandit based Monte-Carlo planning", 2006; below sequential halving as in Pepels, Cazenave, Winands and
Lanctot, "Minimizing simple and cumulative regret in Monte-Carlo tree search", 2014) first walks down a tree of
information sets (Cowling, Powley and Whitehouse, "Information set Monte Carlo tree search", 2012): every simulation
walks through a determinization of its own, edges are actions, an edge counts how often it was available, and a node is
what the player sees there. So what a move turns up is part of the node that it leads to, a position that is reached in
two ways is one node, and a game without hidden cards gets a plain search. Nodes are found by a 61-bit hash of the
observation. A walk that comes back to a node ends there: going round in circles gains nothing more.

* Moves are added to a node one at a time as its visits grow (progressive widening: Coulom, "Computing Elo ratings of
  move patterns in the game of Go", 2007), in the order in which the rollout policy likes them: it is asked again and
  again, without the moves that are there already. Nothing is stored for the other actions.
* The k-th move begins with a bonus of `bias / k`, which fades with its visits (progressive bias: Chaslot et al.,
  "Progressive strategies for Monte-Carlo tree search", 2008).
* What a move is worth is the mean of its simulations or, by the share `peak`, the best of them (Schadd et al.,
  "Single-player Monte-Carlo tree search", 2008): useful where nothing is hidden, since what was reached once can be
  reached again.
* Worths are measured in the span of all that the search has seen from its root, whatever the scale of the rewards.

A simulated game counts its rewards, the progress that it makes, and `win` on top when it wins, all discounted a little
for each move. Winning alone would say nothing where rollouts hardly ever win; progress alone would rather be sure of
47 cards of 48 than risk two of them for the last; and without discount a won game could be put off for ever.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, Turn, key_of
from patience_env.agents.rollouts import (
    ROLLOUTS,
    THUMB,
    choose,
    find_moves,
    make_move,
    roll_out,
    rollout_names,
)
from patience_env.deals import advance, bits_at
from patience_env.game import Game, max_episode_steps
from patience_env.jit import JIT, helper, kernel, rule
from patience_env.verbs import determinize, is_won, observe

SIMULATIONS = 1000
# Nodes of a tree at most; the edges are as many again. Rollouts begin at the tree's rim when it is full.
NODES = 1 << 17
# Moves of a simulation inside the tree at most.
DEEPEST = 1024
# Moves of a rollout at most, by default, where the game ends by itself, and where positions can repeat.
ENDLESS, LOOPING = 100_000, 200
# Simulations that each move gets at least before the worse half is dropped.
LEAST = 4
# Moves that are tried at most, by default, where the budget is one of time.
WIDE = 32
TINY = 1e-9
WORDS = 0x1FFFFFFFFFFFFFFF  # the 61 bits of a hash

NODE = np.dtype(
    [
        ("key", np.int64),  # hash of what the player sees
        ("visits", np.int32),  # simulations that went through
        ("first", np.int32),  # its first edge, -1 without one
        ("last", np.int32),  # its last edge
        ("width", np.int32),  # how many edges it has
        ("walk", np.int32),  # the last simulation that went through, counting from 1
    ],
    align=True,
)
EDGE = np.dtype(
    [
        ("total", np.float64),  # sum of the worths of its simulations, from here on
        ("best", np.float64),  # the best of them
        ("action", np.int32),
        ("following", np.int32),  # the next edge of the same node, -1 at the end
        ("visits", np.int32),  # simulations that took it
        ("seen", np.int32),  # simulations in which it was legal
    ],
    align=True,
)
# What a search keeps count of, and how it is set.
TALLY = np.dtype(
    [
        ("key", np.int64),  # 61 random bits, where all chance comes from
        ("rng", np.uint64, (1,)),  # the splitmix64 stream of the present simulation
        ("low", np.float64),  # the least and the greatest worth of a simulation from the root
        ("high", np.float64),
        ("discount", np.float64),  # of rewards, for each move
        ("win", np.float64),  # what winning is worth beside the rewards
        ("noise", np.float64),  # share of random moves in rollouts
        ("exploration", np.float64),
        ("bias", np.float64),
        ("widening", np.float64),  # a node of n visits has about widening * sqrt(n) edges
        ("peak", np.float64),  # share of the best simulation in an edge's worth
        ("nodes", np.int32),  # how many there are
        ("edges", np.int32),
        ("walks", np.int32),  # simulations so far
        ("dealt", np.int32),  # determinizations so far
        ("policy", np.int32),  # of rollouts
        ("depth", np.int32),  # moves of a rollout at most
    ],
    align=True,
)


def _room(count: int, kind: np.dtype[Any]) -> Any:
    """Return so many blank records, in the form that compiled (or else plain) functions take."""
    room: Any = np.zeros(count, kind)
    return room if JIT else room.view(np.recarray)


# -- the tree ----------------------------------------------------------------------------------------------------


@rule
def hash_of(places):  # type: ignore[no-untyped-def]
    """Return a 61-bit hash of an observation in the cards form."""
    found = places.shape[0]
    for i in range(places.shape[0]):
        found = ((found ^ (int(places[i]) + 128)) * 0x100000001B3) & WORDS
    found = ((found ^ (found >> 29)) * 0x1B873593CC9E2D51) & WORDS
    return found ^ (found >> 32)


@helper
def slot_of(nodes, slots, key):  # type: ignore[no-untyped-def]
    """Return the slot of the node with a key, or the free one where it belongs (open addressing, linear probing)."""
    slot = key & (slots.shape[0] - 1)
    while slots[slot] >= 0 and nodes[slots[slot]].key != key:
        slot = (slot + 1) & (slots.shape[0] - 1)
    return slot


@helper
def add_node(nodes, slots, slot, key, tally):  # type: ignore[no-untyped-def]
    """Add a node where there is room; tell whether there was."""
    number = int(tally.nodes)
    if number == nodes.shape[0]:
        return False
    node = nodes[number]
    node.key = key
    node.visits = 0
    node.first = -1
    node.last = -1
    node.width = 0
    node.walk = 0
    slots[slot] = number
    tally.nodes = number + 1
    return True


@helper
def add_edge(node, edges, action, tally):  # type: ignore[no-untyped-def]
    """Add an edge behind a node's others and return its number."""
    number = int(tally.edges)
    edge = edges[number]
    edge.action = action
    edge.total = 0.0
    edge.best = -np.inf
    edge.visits = 0
    edge.seen = 0
    edge.following = -1
    if node.last < 0:
        node.first = number
    else:
        edges[node.last].following = number
    node.last = number
    node.width += 1
    tally.edges = number + 1
    return number


@rule
def worth_of(edge, peak):  # type: ignore[no-untyped-def]
    """Return what an edge that was tried is worth from its node on."""
    return (1.0 - peak) * edge.total / edge.visits + peak * edge.best


@helper
def best_edge(node, edges, mask, tally):  # type: ignore[no-untyped-def]
    """Return the edge of highest upper bound among the legal ones, -1 without any, and how many there are.

    Takes the node's moves out of `mask`.
    """
    chosen = -1
    most = -np.inf
    available = 0
    rank = 0
    span = max(tally.high - tally.low, TINY)
    number = int(node.first)
    while number >= 0:
        edge = edges[number]
        rank += 1
        if mask[edge.action]:
            mask[edge.action] = 0
            available += 1
            edge.seen += 1
            bound = np.inf
            if edge.visits > 0:
                bound = worth_of(edge, tally.peak) / span
                bound += tally.exploration * math.sqrt(math.log(edge.seen) / edge.visits)
                bound += tally.bias / (rank * (edge.visits + 1))
            if bound > most:
                most = bound
                chosen = number
        number = int(edge.following)
    return chosen, available


@helper
def next_edge(state, spare, mask, count, node, edges, tally):  # type: ignore[no-untyped-def]
    """Return the edge that a simulation takes from a node: a new one while the node is to widen; -1 without room."""
    chosen, available = best_edge(node, edges, mask, tally)
    left = count - available
    wide = node.width >= tally.widening * math.sqrt(node.visits)
    if left == 0 or (wide and chosen >= 0) or tally.edges == edges.shape[0]:
        return chosen
    tally.rng[0] = advance(int(tally.rng[0]))
    bits = np.uint64(bits_at(int(tally.rng[0])))
    number = add_edge(node, edges, choose(state, spare, mask, left, tally.policy, bits), tally)
    edges[number].seen = 1
    return number


@helper
def finish(state, spare, mask, tally):  # type: ignore[no-untyped-def]
    """Play a simulation to its end by the rollout policy; return its worth."""
    return roll_out(state, spare, mask, tally.rng, tally.policy, tally.noise, tally.depth, tally.discount, tally.win)[0]


@helper
def walk_down(state, spare, mask, places, nodes, edges, slots, path, rewards, tally):  # type: ignore[no-untyped-def]
    """Walk down the tree to its rim, add a node there, roll out; return the length of the path and the worth."""
    length = 0
    while nodes.shape[0] > 0:
        count = find_moves(state, mask)
        if count == 0:
            return length, tally.win if is_won(state) else 0.0
        observe(state, places)
        key = hash_of(places)
        slot = slot_of(nodes, slots, key)
        if slots[slot] < 0:
            add_node(nodes, slots, slot, key, tally)
            break
        node = nodes[slots[slot]]
        if node.walk == tally.walks:
            return length, 0.0
        if length == path.shape[0]:
            break
        node.walk = tally.walks
        node.visits += 1
        number = next_edge(state, spare, mask, count, node, edges, tally)
        if number < 0:
            break
        path[length] = number
        rewards[length] = make_move(state, edges[number].action)
        length += 1
    return length, finish(state, spare, mask, tally)


@helper
def simulate(state, spare, mask, places, nodes, edges, slots, path, rewards, tally):  # type: ignore[no-untyped-def]
    """Play one simulated game, add it to the tree, and return its worth."""
    tally.walks += 1
    if nodes.shape[0] > 0:
        nodes[0].walk = tally.walks
    length, worth = walk_down(state, spare, mask, places, nodes, edges, slots, path, rewards, tally)
    while length > 0:
        length -= 1
        worth = rewards[length] + tally.discount * worth
        edge = edges[path[length]]
        edge.visits += 1
        edge.total += worth
        edge.best = max(edge.best, worth)
    return worth


# -- the root ----------------------------------------------------------------------------------------------------


@helper
def deal_anew(state, number, tally):  # type: ignore[no-untyped-def]
    """Deal the hidden cards of a determinization; all further chance of a simulation comes from its number too."""
    key = np.uint64((int(tally.key) + 0x9E3779B97F4A7C1 * int(number)) & WORDS)
    determinize(state, np.uint64(bits_at(int(key))))
    tally.rng[0] = key


@helper
def rank_moves(state, spare, mask, actions, tally):  # type: ignore[no-untyped-def]
    """Write the moves marked in `mask` (which is used up), those that the rollout policy likes best first."""
    for k in range(actions.shape[0]):
        left = 0
        for action in range(mask.shape[0]):
            left += int(mask[action])
        tally.rng[0] = advance(int(tally.rng[0]))
        bits = np.uint64(bits_at(int(tally.rng[0])))
        actions[k] = choose(state, spare, mask, left, tally.policy, bits)
        mask[actions[k]] = 0


@helper
def plant_root(state, places, nodes, slots, tally):  # type: ignore[no-untyped-def]
    """Make the position the first node, so that walks that come back to it end there."""
    observe(state, places)
    key = hash_of(places)
    add_node(nodes, slots, slot_of(nodes, slots, key), key, tally)


@kernel
def search(  # type: ignore[no-untyped-def]
    states, row, work, mask, places, nodes, edges, slots, path, rewards, tallies, actions, totals, bests, rounds
):
    """Simulate each of the moves in so many further determinizations; note the sum of its worths and the best of them.

    With `rounds` 0 the search only begins: it ranks the moves that `mask` marks, as many as `actions` has room for.
    `work` is room for two states. Without nodes there is no tree: every simulation is a rollout.
    """
    tally = tallies[0]
    state = work[0]
    if rounds == 0:
        work[0] = states[row]
        deal_anew(state, -1, tally)
        if nodes.shape[0] > 0:
            plant_root(state, places, nodes, slots, tally)
        rank_moves(state, work[1:], mask, actions, tally)
    for _ in range(rounds):
        for k in range(actions.shape[0]):
            work[0] = states[row]
            deal_anew(state, tally.dealt, tally)
            worth = make_move(state, actions[k])
            worth += tally.discount * simulate(state, work[1:], mask, places, nodes, edges, slots, path, rewards, tally)
            totals[k] += worth
            bests[k] = max(bests[k], worth)
            tally.low = min(tally.low, worth)
            tally.high = max(tally.high, worth)
        tally.dealt += 1


# -- the policies ------------------------------------------------------------------------------------------------


class RolloutSearch(Policy):
    """What both searches share: the budget, the rollouts and the worth of a simulated game.

    Args:
        simulations: simulated games for a decision, 1000 where no budget is given.
        milliseconds: time for a decision instead; the choices then depend on the machine.
        rollout: the policy that plays simulated games to their end (see `rollout_names`): by default `thumb` where the
            game has it, else `random`.
        depth: moves of a rollout at most; by default no bound, or 200 in games whose positions can repeat.
        noise: the share of rollout moves that are drawn at random, 0 to 1.
        discount: what a reward one move later is worth, above 0 and up to 1.
        win: what winning is worth beside the rewards (whose sum is 1 when a game is won).
        width: moves that are tried at all, those that the rollout policy likes best; by default as many as the budget
            allows to be tried four times to begin with, 32 where it is one of time.

    Raises:
        ValueError: an option that is not allowed, or both budgets.
    """

    share = 5

    def __init__(
        self,
        simulations: int | None = None,
        milliseconds: float | None = None,
        rollout: str | None = None,
        depth: int | None = None,
        noise: float = 0.0,
        discount: float = 0.999,
        win: float = 1.0,
        width: int | None = None,
    ) -> None:
        if simulations is not None and milliseconds is not None:
            raise ValueError(
                f"simulations={simulations!r} and milliseconds={milliseconds!r} are both given: give one budget"
            )
        _check_count("simulations", simulations)
        _check_count("depth", depth)
        _check_count("width", width)
        if milliseconds is not None and not (_is_number(milliseconds) and 0 < milliseconds < 1e9):
            raise ValueError(f"milliseconds={milliseconds!r} is not allowed: give a number above 0")
        _check_range("noise", noise, 0.0, 1.0)
        _check_range("discount", discount, 0.01, 1.0)
        _check_range("win", win, 0.0, 1e6)
        self.simulations = SIMULATIONS if simulations is None and milliseconds is None else simulations
        self.milliseconds, self.rollout, self.depth, self.width = milliseconds, rollout, depth, width
        self._settings = {"noise": noise, "discount": discount, "win": win}
        self._bias, self._tree, self._seed = 0.0, _new_tree(0), 0

    def start(self, seed: int) -> None:
        self._seed = seed

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where the game has no such rollout policy."""
        super().check(game, options)
        self._rollout_of(game)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the move found for every position, one after the other."""
        tallies = _room(1, TALLY)
        for name, value in self._settings.items():
            tallies[0][name] = value
        tallies[0]["policy"], tallies[0]["depth"] = self._rollout_of(turn.game), self._depth_of(turn.game)
        work, seen = turn.game.new_states(2, turn.options), turn.observations("cards")
        actions: NDArray[np.int64] = turn.masks.argmax(axis=1).astype(np.int64)
        for row in np.flatnonzero(np.count_nonzero(turn.masks, axis=1) > 1).tolist():
            self._begin(tallies[0], self._key(seen[row]))
            given = (turn.states, row, work, turn.masks[row].copy(), seen[row].copy(), *self._tree, tallies)
            actions[row] = self._choose(given)
        return actions

    def _begin(self, tally: Any, key: int) -> None:
        """Forget the last search."""
        self._tree[2][:] = -1
        tally["key"], tally["low"], tally["high"] = key, math.inf, -math.inf
        tally["nodes"] = tally["edges"] = tally["walks"] = tally["dealt"] = 0

    def _choose(self, given: tuple[Any, ...]) -> int:
        """Return the best of the moves by sequential halving."""
        actions = np.zeros(self._candidates(int(np.count_nonzero(given[3]))), np.int64)
        totals, bests, played = np.zeros(len(actions)), np.full(len(actions), -math.inf), 0
        search(*given, actions, totals, bests, 0)
        ranks = np.arange(1, len(actions) + 1)
        halvings, started = _halvings(len(actions)), time.perf_counter()
        for number in range(halvings):
            until = None if self.milliseconds is None else started + self.milliseconds / 1000 * (number + 1) / halvings
            least = 1 if self.milliseconds else max(int(self.simulations or 1) // (halvings * len(actions)), 1)
            while least > 0:
                search(*given, actions, totals, bests, least)
                played += least
                least = 1 if until is not None and time.perf_counter() < until else 0
            # All that are left have been simulated in the same determinizations: their worths can be compared.
            worths = self._worths(given[-1][0], totals / played, bests) + self._bias / (ranks * (played + 1))
            order = np.argsort(-worths, kind="stable")[: (len(actions) + 1) // 2]
            actions, totals, bests, ranks = actions[order], totals[order], bests[order], ranks[order]
        return int(actions[0])

    def _candidates(self, count: int) -> int:
        """Return how many of so many legal moves are tried: as many as get `LEAST` simulations each at first."""
        if self.simulations is None:
            return min(count, self.width or WIDE)
        count = min(count, self.width or count, self.simulations)
        while count > 2 and LEAST * count * _halvings(count) > self.simulations:
            count -= 1
        return count

    def _worths(self, tally: Any, means: NDArray[np.float64], bests: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what moves are worth, in spans of the worths seen."""
        peak = float(tally["peak"])
        return ((1 - peak) * means + peak * bests) / max(float(tally["high"] - tally["low"]), TINY)

    def _rollout_of(self, game: Game) -> int:
        names = rollout_names(game)
        if self.rollout is None:
            return THUMB if ROLLOUTS[THUMB] in names else 0
        if self.rollout not in names:
            raise ValueError(f"rollout={self.rollout!r} is not allowed: {game.id} is played by {', '.join(names)}")
        return ROLLOUTS.index(self.rollout)

    def _depth_of(self, game: Game) -> int:
        if self.depth is not None:
            return self.depth
        return ENDLESS if max_episode_steps(game.id) is None else LOOPING

    def _key(self, seen: NDArray[np.int8]) -> int:
        """Return 61 random bits that depend on the seed and on what the player sees, and on nothing else."""
        return key_of(seen, f"{self._seed}:".encode()) & WORDS


class FlatMonteCarloPolicy(RolloutSearch):
    """Plays the moves to the end of the game in the same determinizations and drops the worse half again and again.

    Its settings are those of every `RolloutSearch`.
    """

    name = "flat"


class UCTPolicy(RolloutSearch):
    """Grows a tree of information sets by UCT below each of the moves, and drops the worse half of them likewise.

    Args:
        exploration: the weight of the width of a move's confidence bound, in spans of the worths seen.
        bias: the first bonus of the move that the rollout policy likes best, in the same spans.
        widening: a node of n visits has about `widening * sqrt(n)` moves.
        peak: the share of the best simulation, instead of the mean, in a move's worth, 0 to 1.
        simulations, milliseconds, rollout, depth, noise, discount, win, width: see `RolloutSearch`.

    Raises:
        ValueError: an option that is not allowed, or both budgets.
    """

    name = "uct"

    def __init__(
        self,
        simulations: int | None = None,
        milliseconds: float | None = None,
        rollout: str | None = None,
        depth: int | None = None,
        noise: float = 0.0,
        discount: float = 0.999,
        win: float = 1.0,
        width: int | None = None,
        exploration: float = 0.1,
        bias: float = 0.1,
        widening: float = 1.0,
        peak: float = 0.0,
    ) -> None:
        super().__init__(simulations, milliseconds, rollout, depth, noise, discount, win, width)
        _check_range("exploration", exploration, 0.0, 1e6)
        _check_range("bias", bias, 0.0, 1e6)
        _check_range("widening", widening, 0.01, 1e6)
        _check_range("peak", peak, 0.0, 1.0)
        self._settings.update(exploration=exploration, bias=bias, widening=widening, peak=peak)
        self._bias = bias
        self._tree = _new_tree(min(NODES, self.simulations or NODES) + 1)


def _new_tree(nodes: int) -> tuple[Any, ...]:
    """Return nodes, edges, slots, path and rewards of a tree of so many nodes."""
    slots = np.full(1 << (2 * nodes).bit_length(), -1, np.int32)
    return _room(nodes, NODE), _room(2 * nodes, EDGE), slots, np.zeros(DEEPEST, np.int32), np.zeros(DEEPEST)


def _halvings(count: int) -> int:
    return max(1, math.ceil(math.log2(count)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_count(name: str, value: Any) -> None:
    if value is not None and not (_is_number(value) and isinstance(value, int) and 0 < value < 1_000_000_000):
        raise ValueError(f"{name}={value!r} is not allowed: give a whole number above 0")


def _check_range(name: str, value: Any, low: float, high: float) -> None:
    if not _is_number(value) or not low <= value <= high:
        raise ValueError(f"{name}={value!r} is not allowed: give a number from {low:g} to {high:g}")
