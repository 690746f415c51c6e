"""A rule of thumb for Calculation: play what can be played, and lay the piles in the order opposite to the need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import KernelPolicy, Turn
from patience_env.cards import PACK
from patience_env.games.calculation import ACTIONS, FULL, NEXT, PILES, RANK, build, lay_on, take_from, top_of, wanted
from patience_env.jit import helper, kernel

# HELD[f, rank]: how many cards foundation f holds when it takes a rank (column 0 is not used).
HELD = np.array([[0, *(NEXT[f, :FULL].tolist().index(rank) for rank in range(1, FULL + 1))] for f in range(PILES)])
# What counts: a card played, a card that can still be played at best, the wait of a pile's top (13 without cards).
PLAYED, PLAYABLE, OPENNESS, NO_WAIT = 40.0, 3.0, 0.1, 13.0


@helper
def wait(state, rank):  # type: ignore[no-untyped-def]
    """Return about how long a card of a rank waits, in cards to be played on a foundation before it.

    Each foundation that still wants the rank has a wait of its own; the least counts for a half, the mean and the most
    for a quarter each. Kings wait longest: every foundation wants them last.
    """
    total, count, least, most = 0, 0, FULL, 0
    for foundation in range(PILES):
        before = HELD[foundation, rank] - state.built[foundation]
        if before >= 0:
            total += before
            count += 1
            least = min(least, before)
            most = max(most, before)
    return 0.5 * least + 0.25 * total / max(count, 1) + 0.25 * most


@helper
def order(state):  # type: ignore[no-untyped-def]
    """Return how well the piles are laid: none should lie below one that waits longer; a long wait on top is room."""
    value = 0.0
    for pile in range(PILES):
        height = state.height[pile]
        longest = wait(state, RANK[top_of(state, pile)]) if height > 0 else NO_WAIT
        value += OPENNESS * longest
        for i in range(height - 2, -1, -1):
            here = wait(state, RANK[state.piles[pile, i]])
            if here < longest:
                value -= (longest - here) ** 2
            else:
                longest = here
    return value


@helper
def play_a_top(state):  # type: ignore[no-untyped-def]
    """Play some top of a pile that fits; tell whether there was one."""
    for foundation in range(PILES):
        for pile in range(PILES):
            if RANK[top_of(state, pile)] == wanted(state, foundation):
                build(state, foundation, take_from(state, pile))
                return True
    return False


@helper
def play_from_the_stock(state):  # type: ignore[no-untyped-def]
    """Play the fitting rank of which the stock holds most, wherever its cards lie; tell whether there was one."""
    most, chosen = 0, -1
    for foundation in range(PILES):
        rank = wanted(state, foundation)
        if rank > 0 and state.unturned[rank - 1] > most:
            most = int(state.unturned[rank - 1])
            chosen = foundation
    if chosen >= 0:
        rank = wanted(state, chosen)
        state.unturned[rank - 1] -= 1
        build(state, chosen, rank)
    return chosen >= 0


@helper
def playable(state):  # type: ignore[no-untyped-def]
    """Play on as if the whole stock were at hand; return how many cards are played then (the state is used up).

    Less than 48 tells that cards of the piles block one another, whatever the order of the stock may be.
    """
    while play_a_top(state) or play_from_the_stock(state):
        pass
    return state.played


@helper
def worth(state, action):  # type: ignore[no-untyped-def]
    """Return what the position after an action is worth (the state is used up). No card is turned: it is not known."""
    hand = state.deck[state.hand_at] if state.hand_at < PACK else 0
    if action >= 2 * PILES:
        build(state, action % PILES, take_from(state, (action - 2 * PILES) // PILES))
        if hand > 0:
            state.unturned[RANK[hand] - 1] += 1
    elif action >= PILES:
        lay_on(state, action - PILES, hand)
    else:
        build(state, action, hand)
    value = PLAYED * state.played + order(state)
    return value + PLAYABLE * playable(state)


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the action after which the position is worth most, the first of equals; `spare` is room for one state."""
    best = -1.0e300
    chosen = -1
    for action in range(ACTIONS):
        if mask[action]:
            spare[0] = state
            value = worth(spare[0], action)
            if value > best:
                best = value
                chosen = action
    return chosen


@kernel
def best_worth(states, scratch, masks, actions):  # type: ignore[no-untyped-def]
    """Write the choice of the rule of thumb for every row."""
    for row in range(states.shape[0]):
        actions[row] = thumb(states[row], scratch, masks[row], states[row].rng)


class ThumbPolicy(KernelPolicy):
    """Plays what it can, lays no card on those needed sooner, kings together, and keeps clear of deadlocks."""

    name = "thumb"
    game_id = "Calculation-v0"

    def act(self, turn: Turn) -> NDArray[np.int64]:
        actions = np.zeros(len(turn), np.int64)
        scratch = turn.game.new_states(1, turn.options)
        best_worth(turn.states, scratch, turn.masks, actions)
        return actions


POLICIES = {"thumb": "ThumbPolicy", "plan": "patience_env.agents.plan:PlanPolicy"}
ROLLOUTS = {"thumb": thumb}
