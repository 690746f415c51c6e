"""Rules of thumb for The Fourteenth: look one move ahead at the cards that lie there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.learned import shipped
from patience_env.agents.policy import KernelPolicy, Policy, Turn
from patience_env.cards import EMPTY, PACK
from patience_env.games.fourteenth import (
    ACTIONS,
    CARDS,
    FIRST,
    LINE,
    PAIRS,
    PLACES,
    RANK,
    SECOND,
    SUM,
    cards_of,
    count_fourteens,
    find_fourteens,
    lay,
    swap,
    withdraw,
)
from patience_env.jit import helper, kernel
from patience_env.lanes import count_ones, words

# What fourteens, couples and lines are worth; with so few cards whole exchanges are looked through.
GREEDY, THUMB = np.array([1, 0, 0]), np.array([1, 4, 1])
FEW = 8
STRIDE = 149  # no factor of the number of actions


@helper
def fewest_partners(fourteens, among, free):  # type: ignore[no-untyped-def]
    """Return the place of `among` (a bit each) with the fewest partners in `free`, but at least one; -1 without any.

    `fourteens` holds what `find_fourteens` writes.
    """
    fewest, chosen = PLACES, -1
    for place in range(PLACES):
        if (among >> place) & 1:
            partners = count_ones(fourteens[place] & free)
            if 0 < partners < fewest:
                fewest, chosen = partners, place
    return chosen


@helper
def couples(state):  # type: ignore[no-untyped-def]
    """Return how many fourteens can be withdrawn one after the other with the cards where they lie.

    A place with the fewest partners takes, of these, the one with the fewest: seldom less than the most possible.
    """
    fourteens = words()
    find_fourteens(fourteens, state)
    free = np.int64(cards_of(state))
    count = 0
    while True:
        first = fewest_partners(fourteens, free, free)
        if first < 0:
            return count
        second = fewest_partners(fourteens, np.int64(fourteens[first]) & free, free)
        free &= ~((1 << first) | (1 << second))
        count += 1


@helper
def lines(state):  # type: ignore[no-untyped-def]
    """Return how many pairs of cards lie in line, whatever their ranks: cards that lie apart are beyond all help."""
    cards = np.int64(cards_of(state))
    count = 0
    for place in range(PLACES):
        if (cards >> place) & 1:
            count += count_ones(LINE[place] & cards)
    return count // 2


@helper
def worth(state, weights):  # type: ignore[no-untyped-def]
    """Return what a position is worth: weighted fourteens, couples and lines."""
    value = weights[0] * count_fourteens(state)
    if weights[1]:
        value += weights[1] * couples(state)
    if weights[2]:
        value += weights[2] * lines(state)
    return value


@helper
def after_withdrawal(state, action, weights):  # type: ignore[no-untyped-def]
    """Withdraw a fourteen without turning a card; return what the position is worth then."""
    first, second = FIRST[action], SECOND[action]
    if state.turned < CARDS:
        lay(state, first, EMPTY)
        lay(state, second, EMPTY)
    else:
        withdraw(state, first, second)
    return worth(state, weights)


@helper
def after_exchange(state, swapped, weights):  # type: ignore[no-untyped-def]
    """Return the most that a second swap makes of a position after a first of the places `swapped` (a bit each)."""
    best = 0
    closed = ~np.int64(cards_of(state)) | swapped
    for action in range(PAIRS, ACTIONS):
        first, second = FIRST[action], SECOND[action]
        if not ((closed >> first) | (closed >> second)) & 1:
            swap(state, first, second)
            best = max(best, worth(state, weights))
            swap(state, first, second)
    return best


@helper
def after_swap(state, action, weights, few):  # type: ignore[no-untyped-def]
    """Return what a position is worth after a swap; after a first one with `few` cards left, with the best second."""
    first, second = FIRST[action], SECOND[action]
    swap(state, first, second)
    if state.swapped == 0 and state.turned - state.withdrawn <= few:
        return after_exchange(state, np.int64((1 << first) | (1 << second)), weights)
    return worth(state, weights)


@helper
def most_worth(state, spare, mask, weights, few):  # type: ignore[no-untyped-def]
    """Return the action after which the position is worth most, the first of equals; `spare` is room for one state."""
    best = -1
    chosen = -1
    for action in range(ACTIONS):
        if mask[action]:
            spare[0] = state
            if action < PAIRS:
                value = after_withdrawal(spare[0], action, weights)
            else:
                value = after_swap(spare[0], action, weights, few)
            if value > best:
                best = value
                chosen = action
    return chosen


@helper
def greedy(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the action that leaves most fourteens among the cards that lie there."""
    return most_worth(state, spare, mask, GREEDY, 0)


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the action after which fourteens, couples and lines are worth most."""
    return most_worth(state, spare, mask, THUMB, FEW)


@helper
def action_worth(state, spare, action, weights, few):  # type: ignore[no-untyped-def]
    """Return what a position is worth after an action; `spare` is room for one state."""
    spare[0] = state
    if action < PAIRS:
        return after_withdrawal(spare[0], action, weights)
    return after_swap(spare[0], action, weights, few)


@kernel
def rank_most_worth(states, scratch, masks, values, choices, weights, few):  # type: ignore[no-untyped-def]
    """Write the actions after which the position is worth most in every row, best first; -1 where there are no more.

    The first is the first of equals, as `most_worth` has it; of the others, which would else all begin at the first
    place, the numbers times `STRIDE` tell the order. `values` is room for what each action is worth.
    """
    for row in range(states.shape[0]):
        for action in range(ACTIONS):
            if masks[row, action]:
                values[action] = action_worth(states[row], scratch, action, weights, few)
            else:
                values[action] = -1
        for choice in range(choices.shape[1]):
            best = -1
            chosen = -1
            for step in range(ACTIONS):
                action = step if choice == 0 else step * STRIDE % ACTIONS
                if values[action] > best:
                    best = values[action]
                    chosen = action
            choices[row, choice] = chosen
            if chosen >= 0:
                values[chosen] = -1


@kernel
def play_most_worth(states, scratch, masks, actions, weights, few):  # type: ignore[no-untyped-def]
    """Write the action after which the position is worth most in every row."""
    for row in range(states.shape[0]):
        actions[row] = most_worth(states[row], scratch, masks[row], weights, few)


class GreedyPolicy(KernelPolicy):
    """Withdraws and swaps so that most fourteens are left among the cards that lie there."""

    name = "greedy"
    game_id = "Fourteenth-v0"
    weights = GREEDY
    few = 0

    def act(self, turn: Turn) -> NDArray[np.int64]:
        actions = np.zeros(len(turn), np.int64)
        scratch = turn.game.new_states(1, turn.options)
        play_most_worth(turn.states, scratch, turn.masks, actions, self.weights, self.few)
        return actions

    def rank(self, turn: Turn, choices: int) -> NDArray[np.int64]:
        ranked = np.full((len(turn), choices), -1, np.int64)
        scratch, values = turn.game.new_states(1, turn.options), np.zeros(ACTIONS, np.int64)
        rank_most_worth(turn.states, scratch, turn.masks, values, ranked, self.weights, self.few)
        return ranked


class ThumbPolicy(GreedyPolicy):
    """Thinks of the end too: of cards that can be withdrawn as they lie and of cards that lie in line at all.

    With eight cards or fewer it looks through whole exchanges.
    """

    name = "thumb"
    weights = THUMB
    few = FEW


# -- signs ---------------------------------------------------------------------------------------------------------


@helper
def match(partners, free):  # type: ignore[no-untyped-def]
    """Return (places left, couples): as in `couples`, places of `free` (a bit each) that are `partners` (of each place
    a word) leave two by two."""
    count = 0
    left = free
    while True:
        fewest, first = PLACES, -1
        for place in range(PLACES):
            if (left >> place) & 1:
                number = count_ones(np.int64(partners[place]) & left)
                if 0 < number < fewest:
                    fewest, first = number, place
        if first < 0:
            return left, count
        among = np.int64(partners[first]) & left
        fewest, second = PLACES, -1
        for place in range(PLACES):
            if (among >> place) & 1:
                number = count_ones(np.int64(partners[place]) & left)
                if number < fewest:
                    fewest, second = number, place
        left &= ~((1 << first) | (1 << second))
        count += 1


@helper
def lonely(partners, places):  # type: ignore[no-untyped-def]
    """Return how many of the places (a bit each) have no partner among them."""
    count = 0
    for place in range(PLACES):
        if (places >> place) & 1 and not np.int64(partners[place]) & places:
            count += 1
    return count


@helper
def signs(state, view, signs):  # type: ignore[no-untyped-def]
    """Write how a square stands: its cards, what can be withdrawn as it lies, and how the cards left then lie.

    Four cards that are left are lost, six that lie well can be exchanged.
    """
    partners, lines, by_rank = words(), words(), words()
    for rank in range(SUM + 1):
        by_rank[rank] = 0
    cards = np.int64(0)
    for place in range(PLACES):
        code = view[place]
        if code != EMPTY:
            cards |= 1 << place
            if code <= PACK:
                by_rank[RANK[code]] |= 1 << place
    twice = 0
    in_line = 0
    for place in range(PLACES):
        lines[place] = LINE[place] & cards if (cards >> place) & 1 else 0
        partners[place] = 0
        if EMPTY < view[place] <= PACK:
            partners[place] = by_rank[SUM - RANK[view[place]]] & LINE[place]
        twice += count_ones(np.int64(partners[place]))
        in_line += count_ones(np.int64(lines[place]))
    number = count_ones(cards)
    left, couples = match(partners, cards)
    rest = number - 2 * couples
    apart, _ = match(lines, left)
    all_apart, _ = match(lines, cards)
    signs[0] = number / PLACES
    signs[1] = 0.1 * twice
    signs[2] = 0.2 * couples
    signs[3] = in_line / 100.0
    signs[4] = 0.5 * count_ones(apart)
    signs[5] = 0.5 * count_ones(all_apart)
    signs[6] = 0.5 * lonely(lines, left)
    signs[7] = 0.5 * lonely(lines, cards)
    signs[8] = 1.0 if twice == 0 else 0.0
    if number < PLACES:
        signs[9] = 1.0
        if number <= 12:
            signs[10 + number // 2] = 1.0
        signs[17 + min(rest, 12) // 2] = 1.0
        if twice == 0 and number <= 12:
            signs[24 + number // 2] = 1.0


# -- the policies --------------------------------------------------------------------------------------------------

SIGN_COUNT = 31


def ppo_policy() -> Policy:
    """Return the agent of `patience train Fourteenth-v0 --teacher thumb`.

    It comes with the package: a network that decides among the six actions that the rule of thumb likes best, learned
    by MaskablePPO (needs the `train` extra). It plays the rules without limit to exchanges and without closing gaps.
    """
    return shipped("fourteenth")


POLICIES = {"greedy": "GreedyPolicy", "thumb": "ThumbPolicy", "ppo": "ppo_policy"}
ROLLOUTS = {"greedy": greedy, "thumb": thumb}
SIGNS = (SIGN_COUNT, signs)
