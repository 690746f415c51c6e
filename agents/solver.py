"""The solver: is a deal whose cards are all known won or lost, and by which moves?

It is an oracle, not a policy: it looks at every card of a deal, the hidden ones and the later shuffles included (the
*thoughtful* game), so that its answer bounds what any player can do. `solve` answers

* *won*, with moves that win in the real environment from the deal number on,
* *lost*, proven: every position that can be reached was searched,
* *unknown* at the limit of time, memory or positions.

## How it searches
Every position reached is entered once, by a 128-bit key, in a table of visited positions that never forgets; a position
whose key is known is not looked at again. This is sound for the question whether a win can be reached, in games with
loops too: what can be reached from a position does not depend on the way to it. (Two different positions get one key
with a probability below 1e-20 even among a hundred million.) When the table is full the answer is *unknown*.

The open positions wait in queues, one for each stage of the game and within it by rank (`solver_verbs.promise`). The
search takes the best of each stage in turn, over and over: so play comes to an end early, with promising positions of
every stage beside each other, and no early mistake is held on to. When no open position is left, all have been
searched. The order of search changes nothing in what is proven.

A position is kept as its parent and one move (twelve bytes beside its key); it is found again by playing the moves from
the nearest ancestor among those lately looked at.

Where twenty thousand positions tell nothing, and now and then from there on, it plays games by the rule of thumb
(`patience_env.agents.guided`): they prove nothing, but find most of the wins of long games.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from patience_env import jit
from patience_env.agents.guided import GuidedGames
from patience_env.agents.solver_verbs import RANKS, STAGES, add_hooks, candidates, fingerprint, forced, like, promise
from patience_env.deals import check_deal
from patience_env.env import PatienceEnv
from patience_env.game import Game, get_game, max_episode_steps
from patience_env.jit import helper, kernel, rule
from patience_env.table import Rows
from patience_env.verbs import is_won, play

# Raised whenever an answer within the same limits may change: results tell it.
SOLVER = 2
RUNNING, WON, EXHAUSTED, FULL = range(4)
# What `facts` holds.
NODES, EXPANDED, STAGE, OPEN, WINNER, CUT, LONGEST, PLACES_USED = range(8)
RECENT = 4096  # positions lately looked at that are kept whole
FIRST_ROOM = 1 << 14 if jit.JIT else 1 << 11
MOST_ROOM = 2**30
SLOTS_A_NODE = 1.4
LONG_GAME = 20_000  # moves, where the game itself has no limit
SLICE_SECONDS = 0.1
FIRST_BUDGET = 1000 if jit.JIT else 20  # positions looked at before time is first taken
FIRST_GUIDED = 20_000  # positions met before the first guided games
MOST_APART = 20_000  # positions met between guided games
GUIDED_MOVES = 10  # moves of guided games for each position met
NONE = -1

Status = Literal["won", "lost", "unknown"]


@dataclass(frozen=True)
class Solution:
    """What the solver found.

    Attributes:
        status: "won", "lost" (proven) or "unknown".
        moves: the actions that win, in order; empty unless won.
        positions: how many different positions were met.
        seconds: CPU seconds.
        limit: what ended an unknown search: "time", "memory", "positions", or "moves" (everything was searched but
            for what lies beyond the longest game, or what the search leaves out); "" for an answer.
    """

    status: Status
    moves: tuple[int, ...]
    positions: int
    seconds: float
    limit: str = ""


@rule
def find_or_add(table, key):  # type: ignore[no-untyped-def]
    """Enter a key (not twice 0) in the table (uint64, shape (slots, 2)); return whether it is new."""
    slots = table.shape[0]
    slot = (np.int64(int(key[0]) >> 32) * slots) >> 32
    while table[slot, 0] != 0 or table[slot, 1] != 0:
        if table[slot, 0] == key[0] and table[slot, 1] == key[1]:
            return False
        slot += 1
        if slot == slots:
            slot = 0
    table[slot, 0] = key[0]
    table[slot, 1] = key[1]
    return True


@helper
def write_key(state, raw, kept, key):  # type: ignore[no-untyped-def]
    """Write the key of a position; it is never twice 0, which marks a free slot."""
    key[0] = 0
    key[1] = 0
    fingerprint(state, raw, kept, key)
    if key[0] == 0 and key[1] == 0:
        key[0] = 1


@helper
def settle(state):  # type: ignore[no-untyped-def]
    """Make all forced moves; return the rewards and how many they were."""
    gained = 0.0
    steps = 0
    action = forced(state)
    while action >= 0:
        gained += play(state, action)
        steps += 1
        action = forced(state)
    return gained, steps


@rule
def push(place, node, links, heads, lows, facts):  # type: ignore[no-untyped-def]
    """Let a node wait in its queue."""
    stage = place // RANKS
    links[node] = heads[place]
    heads[place] = node
    lows[stage] = min(lows[stage], place % RANKS)
    facts[OPEN] += 1


@helper
def pop(links, heads, lows, facts):  # type: ignore[no-untyped-def]
    """Take the best node of the next stage that has one (there must be one)."""
    stage = facts[STAGE]
    while True:
        while lows[stage] < RANKS:
            place = RANKS * stage + lows[stage]
            node = heads[place]
            if node != NONE:
                heads[place] = links[node]
                facts[OPEN] -= 1
                facts[STAGE] = (stage + 1) % STAGES
                return int(node)
            lows[stage] += 1
        stage = (stage + 1) % STAGES


@helper
def restore(node, root, scratch, recent, recent_nodes, recent_facts, parents, actions, chain):  # type: ignore[no-untyped-def]
    """Set up the position of a node in `scratch[0]` and keep it; return the rewards and the moves that led to it."""
    length = 0
    at = node
    while at != 0 and recent_nodes[at % RECENT] != at:
        chain[length] = actions[at]
        length += 1
        at = int(parents[at])
    gained = 0.0
    steps = 0
    if recent_nodes[at % RECENT] == at:
        scratch[0] = recent[at % RECENT]
        gained = recent_facts[at % RECENT, 0]
        steps = int(recent_facts[at % RECENT, 1])
    else:
        scratch[0] = root[0]
        state = scratch[0]
        gained, steps = settle(state)
    state = scratch[0]
    for i in range(length - 1, -1, -1):
        gained += play(state, int(chain[i]))
        more, further = settle(state)
        gained += more
        steps += 1 + further
    keep = node % RECENT
    recent[keep] = scratch[0]
    recent_nodes[keep] = node
    recent_facts[keep, 0] = gained
    recent_facts[keep, 1] = steps
    return gained, steps


@kernel
def begin(root, scratch, raw, kept, key, parents, actions, links, table, heads, lows, facts):  # type: ignore[no-untyped-def]
    """Enter the first position as node 0; return RUNNING, or WON where the forced moves win."""
    scratch[0] = root[0]
    state = scratch[0]
    gained, steps = settle(state)
    parents[0] = NONE
    actions[0] = NONE
    facts[NODES] = 1
    facts[LONGEST] = steps
    if is_won(state):
        facts[WINNER] = 0
        return WON
    write_key(state, raw[0], kept, key)
    find_or_add(table, key)
    facts[PLACES_USED] = 1
    place = promise(state, gained)
    if place >= 0:
        push(place, 0, links, heads, lows, facts)
    return RUNNING


@kernel
def explore(  # type: ignore[no-untyped-def]
    root,
    scratch,
    raw,
    kept,
    key,
    mask,
    moves,
    recent,
    recent_nodes,
    recent_facts,
    chain,
    parents,
    actions,
    links,
    table,
    heads,
    lows,
    facts,
    longest,
    budget,
    enough,
):
    """Look at up to `budget` open positions, or until `enough` were met.

    Returns RUNNING, WON, EXHAUSTED or FULL (make room and go on).
    """
    for _ in range(budget):
        if facts[OPEN] == 0:
            return EXHAUSTED
        if facts[PLACES_USED] >= enough:
            return RUNNING
        if facts[NODES] + moves.shape[0] >= parents.shape[0]:
            return FULL
        if SLOTS_A_NODE * (facts[PLACES_USED] + moves.shape[0]) >= table.shape[0]:
            return FULL
        node = pop(links, heads, lows, facts)
        reached, depth = restore(node, root, scratch, recent, recent_nodes, recent_facts, parents, actions, chain)
        facts[EXPANDED] += 1
        count = candidates(scratch[0], mask, moves)
        for i in range(count):
            scratch[1] = scratch[0]
            state = scratch[1]
            gained = reached + play(state, int(moves[i]))
            more, further = settle(state)
            gained += more
            steps = depth + 1 + further
            won = is_won(state)
            # A position beyond the longest game is not entered: it may be met again sooner.
            if steps > longest or (steps == longest and not won):
                facts[CUT] = 1
                continue
            fresh = int(facts[NODES])
            if won:
                parents[fresh] = node
                actions[fresh] = moves[i]
                facts[NODES] += 1
                facts[WINNER] = fresh
                return WON
            write_key(state, raw[1], kept, key)
            if not find_or_add(table, key):
                continue
            facts[PLACES_USED] += 1
            place = promise(state, gained)
            if place < 0:
                continue
            parents[fresh] = node
            actions[fresh] = moves[i]
            facts[NODES] += 1
            facts[LONGEST] = max(facts[LONGEST], steps)
            push(place, fresh, links, heads, lows, facts)
    return RUNNING


@kernel
def rehash(old, new):  # type: ignore[no-untyped-def]
    """Enter all keys of a table in a larger, empty one."""
    for i in range(old.shape[0]):
        if old[i, 0] != 0 or old[i, 1] != 0:
            find_or_add(new, old[i])


@kernel
def follow(root, scratch, chosen, line):  # type: ignore[no-untyped-def]
    """Play the chosen moves, with the forced ones between them, from the root; write them all, return how many."""
    scratch[0] = root[0]
    state = scratch[0]
    count = 0
    for i in range(chosen.shape[0] + 1):
        action = forced(state)
        while action >= 0:
            line[count] = action
            count += 1
            play(state, action)
            action = forced(state)
        if i < chosen.shape[0]:
            line[count] = chosen[i]
            count += 1
            play(state, int(chosen[i]))
    return count


def longest_game(game: Game) -> int:
    """Return how many moves a game may have."""
    return max_episode_steps(game.id) or LONG_GAME


def bytes_that_count(game: Game) -> NDArray[np.int64]:
    """Return the numbers of the bytes of a state record that belong to a field, the deal number's left out."""
    fields: Mapping[str, Any] = game.state.fields or {}
    kept = [
        np.arange(offset, offset + dtype.itemsize) for name, (dtype, offset, *_) in fields.items() if name != "deal"
    ]
    return np.concatenate(kept)


class _Search:
    """The arrays of one search, and the room that they have."""

    def __init__(self, game: Game, states: NDArray[Any], actions: int, longest: int, memory: int) -> None:
        self.root = states
        self.longest = longest
        self.memory = memory
        self.proves = add_hooks(game)
        self.scratch = like(states, 2)
        self.raw = self.scratch.view(np.ndarray).view(np.uint8).reshape(2, -1)
        self.kept = bytes_that_count(game)
        self.key = np.zeros(2, np.uint64)
        self.mask = np.zeros(actions, np.int8)
        self.moves = np.zeros(actions, np.int64)
        self.recent = like(states, RECENT)
        self.recent_nodes = np.full(RECENT, NONE, np.int64)
        self.recent_facts = np.zeros((RECENT, 2))
        self.chain = np.zeros(longest + 1, np.int32)
        self.heads = np.full(STAGES * RANKS, NONE, np.int32)
        self.lows = np.full(STAGES, RANKS, np.int64)
        self.facts = np.zeros(8, np.int64)
        self.room = max(FIRST_ROOM, 4 * actions)
        self.parents = np.zeros(self.room, np.int32)
        self.actions = np.zeros(self.room, np.int32)
        self.links = np.zeros(self.room, np.int32)
        self.table = np.zeros((self._slots(self.room), 2), np.uint64)
        self.outcome = begin(
            self.root,
            self.scratch,
            self.raw,
            self.kept,
            self.key,
            self.parents,
            self.actions,
            self.links,
            self.table,
            self.heads,
            self.lows,
            self.facts,
        )

    @staticmethod
    def _slots(room: int) -> int:
        return int(1.5 * room)

    @staticmethod
    def bytes_of(room: int) -> int:
        """Return the memory of a search with room for so many positions, while it moves in."""
        return int(room * (12 + 16 * 1.5))

    def explore(self, budget: int, enough: int) -> None:
        self.outcome = explore(
            self.root,
            self.scratch,
            self.raw,
            self.kept,
            self.key,
            self.mask,
            self.moves,
            self.recent,
            self.recent_nodes,
            self.recent_facts,
            self.chain,
            self.parents,
            self.actions,
            self.links,
            self.table,
            self.heads,
            self.lows,
            self.facts,
            self.longest,
            budget,
            enough,
        )

    def grow(self) -> bool:
        """Make room for twice to four times as many positions; return whether memory allows that."""
        used = self.bytes_of(self.room)
        for factor in (4, 3, 2, 1.5):
            room = min(int(self.room * factor), MOST_ROOM)
            if self.bytes_of(room) + used <= self.memory and room > self.room:
                break
        else:
            return False
        table = np.zeros((self._slots(room), 2), np.uint64)
        rehash(self.table, table)
        self.table = table
        for name in ("parents", "actions", "links"):
            old = getattr(self, name)
            new = np.empty(room, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self.room = room
        return True

    def line(self) -> tuple[int, ...]:
        """Return the moves that lead to the winning node."""
        chosen: list[int] = []
        node = int(self.facts[WINNER])
        while node != 0:
            chosen.append(int(self.actions[node]))
            node = int(self.parents[node])
        line = np.zeros(self.longest + 1, np.int64)
        count = follow(self.root, self.scratch, np.array(chosen[::-1], np.int64), line)
        return tuple(int(action) for action in line[:count])


def solve_states(
    game: Game,
    states: NDArray[Any],
    options: Mapping[str, Any] | None = None,
    *,
    seconds: float | None = 60.0,
    memory: float = 4.0,
    positions: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """Solve a position given as a state record with every card in it.

    Args:
        game: the game.
        states: the position, shape (1,), dtype `game.state`; it is left as it is.
        options: the game's options.
        seconds: limit of CPU seconds, None for none.
        memory: limit of memory in GiB.
        positions: limit of different positions met, None for none.
        progress: called now and then with the positions met and the CPU seconds so far.

    Raises:
        ValueError: a game that only scores, or limits out of range.
    """
    if game.scores:
        raise ValueError(f"{game.id} only scores: there is nothing to win; see patience_env.agents.best_arrangement")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds={seconds!r} is not allowed: give more than 0, or None for no limit")
    if not memory > 0:
        raise ValueError(f"memory={memory!r} is not allowed: give GiB, more than 0")
    if positions is not None and positions < 1:
        raise ValueError(f"positions={positions!r} is not allowed: give at least 1, or None for no limit")
    begun = time.process_time()
    actions = game.layout(game.check_options(options or {})).actions
    until = math.inf if seconds is None else begun + seconds
    longest = longest_game(game)
    search = _Search(game, states, actions, longest, int(memory * 2**30))
    guided = GuidedGames(states, actions, longest)
    line: tuple[int, ...] = ()
    budget, limit, mark = FIRST_BUDGET, "", FIRST_GUIDED
    while search.outcome == RUNNING:
        before = time.process_time()
        search.explore(budget, mark if positions is None else min(mark, positions))
        now = time.process_time()
        if now - before < SLICE_SECONDS / 2:
            budget = min(2 * budget, 10**6)
        elif now - before > SLICE_SECONDS:
            budget = max(budget // 2, 1)
        if progress is not None:
            progress(int(search.facts[PLACES_USED]), now - begun)
        if search.outcome == FULL:
            if not search.grow():
                limit = "memory"
                break
            search.outcome = RUNNING
        if search.outcome != RUNNING:
            break
        if search.facts[PLACES_USED] >= mark:
            line = guided.play(GUIDED_MOVES * mark, until)
            if line:
                break
            mark += min(mark // 2, MOST_APART)
            now = time.process_time()
        if positions is not None and search.facts[PLACES_USED] >= positions:
            limit = "positions"
            break
        if now >= until:
            limit = "time"
            break
    status: Status = "unknown"
    if line:
        status, limit = "won", ""
    elif search.outcome == WON:
        status, line = "won", search.line()
    elif search.outcome == EXHAUSTED:
        if search.facts[CUT] or not search.proves:
            limit = "moves"
        else:
            status = "lost"
    return Solution(status, line, int(search.facts[PLACES_USED]), time.process_time() - begun, limit)


def deal_states(game: Game, options: Mapping[str, Any], deal: int) -> NDArray[Any]:
    """Return the first position of a deal, every card in it, shape (1,), dtype `game.state`.

    Raises:
        TypeError, ValueError: no deal number, or options that the game does not have.
    """
    rows = Rows(game, game.check_options(options), 1, "cards", False)
    rows.reset(rows.all_rows, np.array([check_deal(deal)], np.uint64))
    return rows.states


def solve(
    game: str | Game | Any,
    deal: int | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    seconds: float | None = 60.0,
    memory: float = 4.0,
    positions: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """Solve a deal, or the position of an environment: every card of it is looked at, the hidden ones too.

    Args:
        game: a game's id (or `Game`), with a deal number; or an environment of this package, wrapped or not, whose
            present position is solved and which is left as it is.
        deal: the deal number; None with an environment.
        options: the game's options; None with an environment.
        seconds, memory, positions, progress: see `solve_states`.

    Returns:
        The answer. Its moves replay in the environment from the deal (or position) on.

    Raises:
        TypeError, ValueError: an unknown game, option or deal, a game that only scores, limits out of range.
    """
    bare = getattr(game, "unwrapped", game)
    if isinstance(bare, PatienceEnv):
        if deal is not None or options is not None:
            raise TypeError("an environment brings its own deal and options: give neither")
        bare._need_position("solve()")
        facts, states, options = bare.game, bare.state_rows(), bare.options
    else:
        if deal is None:
            raise TypeError("give the number of a deal, or an environment with a position")
        facts = game if isinstance(game, Game) else get_game(game)
        states = deal_states(facts, options or {}, deal)
    return solve_states(facts, states, options, seconds=seconds, memory=memory, positions=positions, progress=progress)
