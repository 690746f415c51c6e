"""Advice: a network that is told in every position what a rule of thumb would play, and begins by playing that.

The logit of the advised action gets a bonus, which is learned (`patience_env.training.networks.Trust`). At the start it
outweighs all else, so the agent plays as its adviser does and has but to learn where to play otherwise, which pays in
games where imitation does not reach the teacher. The adviser is shown what every policy is shown: positions whose
hidden cards are dealt anew.

Asked again without the action that it chose, an adviser tells its second choice, and so on. A network that is told of
several `choices` decides among those alone: where hundreds of actions are legal, trying them all would take too long,
and a player who tries them at random plays badly.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import KernelPolicy, Turn, policy_names
from patience_env.game import Game

NO_ADVICE = "none"
# The advised action is two entries of a network's input: its hundreds and the rest.
ENTRIES, BASE = 2, 100
MOST_CHOICES = 64


def find_adviser(name: str, game: Game, options: Mapping[str, Any]) -> KernelPolicy:
    """Return the rule of thumb of a game that a network is to be told of.

    Only compiled rules that come with the package will do: they are fast and keep no memory, and a model that names one
    can run no other code.

    Raises:
        ValueError: there is no such rule, or it does not play the game under these options.
    """
    rules: dict[str, type[KernelPolicy]] = {}
    for rule, path in policy_names(game.id).items():
        module, _, attribute = path.partition(":")
        if module.startswith("patience_env.agents."):
            maker = getattr(import_module(module), attribute)
            if isinstance(maker, type) and issubclass(maker, KernelPolicy):
                rules[rule] = maker
    if name not in rules:
        raise ValueError(
            f"advice={name!r} is not allowed for {game.id}: choose one of {', '.join([NO_ADVICE, *rules])}"
        )
    adviser = rules[name]()
    adviser.check(game, options)
    return adviser


def ask(adviser: KernelPolicy, turn: Turn, choices: int = 1) -> NDArray[np.int8]:
    """Return the advised actions, first choice first, as networks read them, int8, shape (n, choices * ENTRIES).

    Where an adviser has fewer choices, its first one stands again in place of each that is missing; zeros stand where
    no action is legal.
    """
    actions = np.zeros((len(turn), choices), np.int64)
    live = np.flatnonzero(turn.masks.any(1))
    asked = Turn(turn.game, turn.options, turn.states[live], turn.masks[live])
    if choices == 1:
        actions[live, 0] = adviser.act(asked)
    elif len(live):
        ranked = adviser.rank(asked, choices)
        actions[live] = np.where(ranked < 0, ranked[:, :1], ranked)
    return np.stack(np.divmod(actions, BASE), 2).astype(np.int8).reshape(len(turn), -1)


def advised(entries: NDArray[Any]) -> NDArray[np.int64]:
    """Return the actions that `ask` wrote as entries, first choices first, int64, shape (n, choices)."""
    actions: NDArray[np.int64] = entries.astype(np.int64).reshape(len(entries), -1, ENTRIES) @ np.array([BASE, 1])
    return actions


def ranks_of(actions: NDArray[np.int64], legal: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return which choice each action is (0: the first), -1 for the others, int8, (n, all actions)."""
    ranks = np.full(legal.shape, -1, np.int8)
    for choice in reversed(range(actions.shape[1])):
        ranks[np.arange(len(actions)), actions[:, choice]] = choice
    return np.where(legal != 0, ranks, np.int8(-1))
