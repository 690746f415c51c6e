"""Policies that play any game."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, Turn
from patience_env.jit import kernel
from patience_env.kernels import sample
from patience_env.verbs import play


class RandomPolicy(Policy):
    """Plays a uniformly random legal action."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def start(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        return sample(turn.masks, self._rng)


@kernel
def greediest(states, scratch, masks, keys, actions):  # type: ignore[no-untyped-def]
    """Write the legal action of highest immediate reward, ties broken by the random numbers in `keys` (float64)."""
    for row in range(states.shape[0]):
        best = -1.0e300
        best_key = 0.0
        for action in range(masks.shape[1]):
            if masks[row, action]:
                scratch[0] = states[row]
                reward = play(scratch[0], action)
                if reward > best or (reward == best and keys[row, action] > best_key):
                    best = reward
                    best_key = keys[row, action]
                    actions[row] = action


class GreedyPolicy(Policy):
    """Plays the action of highest immediate reward, ties broken at random."""

    name = "greedy"

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def start(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        actions = np.zeros(len(turn), np.int64)
        scratch = turn.game.new_states(1, turn.options)
        greediest(turn.states, scratch, turn.masks, self._rng.random(turn.masks.shape), actions)
        return actions
