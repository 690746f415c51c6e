"""Rollouts: a game played on to its end, or for so many moves, by a simple policy, all in compiled code.

A rollout policy is a compiled function `(state, spare, mask, bits) -> action`: a legal position, room for one state
(an array of one row), the legal actions, and 64 random bits (uint64) as its only chance. It changes neither state nor
mask, and must do with any mask: a search takes actions out of it to hear what the policy would like next best.

`random` and `greedy` play every game. What a game has of its own its module in `agents` lists as `ROLLOUTS`, name ->
function: `thumb`, the rule of thumb, and perhaps a better `greedy`. The verbs of these names are dispatched on the type
of the state record like those of `patience_env.verbs`; a game without a rule of thumb is played at random by it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from patience_env import jit
from patience_env.agents.policy import game_module
from patience_env.deals import advance, bits_at
from patience_env.game import Game
from patience_env.jit import helper, rule
from patience_env.kernels import nth_legal
from patience_env.verbs import game_of_type, is_won, legal, play, rules_of

# What `choose` calls the rollout policies.
ROLLOUTS = ("random", "greedy", "thumb")
RANDOM, GREEDY, THUMB = range(3)


def own_rollouts(game: Game) -> dict[str, Any]:
    """Return the rollout policies that a game's own module offers, name -> compiled function."""
    module = game_module(game)
    return dict(getattr(import_module(module), "ROLLOUTS", {})) if find_spec(module) else {}


def rollout_names(game: Game) -> tuple[str, ...]:
    """Return the names of the rollout policies that play a game."""
    return ROLLOUTS if "thumb" in own_rollouts(game) else ROLLOUTS[:THUMB]


@rule
def is_one_in(count, bits):  # type: ignore[no-untyped-def]
    """Tell, in one of `count` (up to 2**31) cases on the average, that `bits` (a splitmix64 position) fell so."""
    return (np.int64(bits_at(int(bits)) >> 32) * count) >> 32 == 0


@rule
def draw_legal(mask, count, bits):  # type: ignore[no-untyped-def]
    """Return a random one of the `count` legal actions."""
    return nth_legal(mask, (np.int64(int(bits) >> 32) * count) >> 32)


@helper
def find_moves(state, mask):  # type: ignore[no-untyped-def]
    """The verb `legal`, compiled once for all that calls it here."""
    return legal(state, mask)


@helper
def make_move(state, action):  # type: ignore[no-untyped-def]
    """The verb `play`, compiled once for all that calls it here."""
    return play(state, action)


@helper
def any_legal(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return a random legal action: the rule of thumb of games that have none."""
    count = 0
    for action in range(mask.shape[0]):
        count += int(mask[action])
    return draw_legal(mask, count, bits)


@helper
def most_reward(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Return the action of highest immediate reward, ties broken by the random bits."""
    best = -np.inf
    chosen = -1
    equals = 0
    chance = bits
    for action in range(mask.shape[0]):
        if mask[action]:
            spare[0] = state
            reward = make_move(spare[0], action)
            equals = equals + 1 if reward == best else 1
            chance = advance(int(chance))
            if reward > best or (reward == best and is_one_in(equals, chance)):
                best = reward
                chosen = action
    return chosen


def thumb(state: Any, spare: Any, mask: Any, bits: Any) -> int:
    """Return the action of the game's rule of thumb."""
    return int(_rollout(rules_of(state), "thumb")(state, spare, mask, bits))


def greedy(state: Any, spare: Any, mask: Any, bits: Any) -> int:
    """Return the action of the game's own greed, or the one of highest immediate reward."""
    return int(_rollout(rules_of(state), "greedy")(state, spare, mask, bits))


_FALLBACKS = {"greedy": most_reward, "thumb": any_legal}


def _rollout(game: Game, name: str) -> Any:
    return own_rollouts(game).get(name, _FALLBACKS[name])


def _chooser(name: str) -> Any:
    def choose(state: Any) -> Any:
        game = game_of_type(state)
        return None if game is None else _rollout(game, name)

    return choose


if jit.JIT:
    for _verb in (thumb, greedy):
        jit.dispatch(_verb, _chooser(_verb.__name__))


@helper
def choose(state, spare, mask, count, policy, bits):  # type: ignore[no-untyped-def]
    """Return what a rollout policy (RANDOM, GREEDY or THUMB) plays; `mask` marks `count` > 0 actions.

    A policy that answers with an action that is not marked is taken to have no opinion: chance decides.
    """
    action = -1
    if policy == THUMB:
        action = thumb(state, spare, mask, bits)
    elif policy == GREEDY:
        action = greedy(state, spare, mask, bits)
    if action < 0 or not mask[action]:
        action = draw_legal(mask, count, bits)
    return action


@helper
def roll_out(state, spare, mask, stream, policy, noise, most, discount, win):  # type: ignore[no-untyped-def]
    """Play a state on for up to `most` moves; return its discounted rewards, and `win` where the game is won.

    A share `noise` of the moves is drawn at random. Random bits come from the splitmix64 stream `stream[0]` (uint64).
    """
    value = 0.0
    weight = 1.0
    rng = int(stream[0])
    moves = 0
    while True:
        count = find_moves(state, mask)
        if count == 0:
            if is_won(state):
                value += weight * win
            break
        if moves == most:
            break
        rng = advance(rng)
        bits = bits_at(rng)
        at_random = policy == RANDOM
        if noise > 0.0 and not at_random:
            at_random = np.int64(bits >> 32) < noise * 4294967296.0
            rng = advance(rng)
            bits = bits_at(rng)
        if at_random:
            action = draw_legal(mask, count, bits)
        else:
            action = choose(state, spare, mask, count, policy, np.uint64(bits))
        value += weight * make_move(state, action)
        weight *= discount
        moves += 1
    stream[0] = rng
    return value, moves
