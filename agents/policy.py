"""The one interface of all policies, and how they are found by name."""

from __future__ import annotations

import inspect
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.env import PatienceEnv
from patience_env.game import Game, get_game
from patience_env.kernels import determinize_rows
from patience_env.table import Rows


@dataclass(frozen=True)
class Turn:
    """What a policy is shown: a batch of positions of one game, each with a decision to make.

    Attributes:
        game, options: which game, under which options (normal form).
        states: the positions, shape (n,), dtype `game.state`; their hidden cards and their future chance have been
            dealt anew at random (`determinize`), so that whatever a policy reads or searches there is honest.
        masks: legal actions, int8, shape (n, actions); every row has at least one.
    """

    game: Game
    options: Mapping[str, Any]
    states: NDArray[Any]
    masks: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.states)

    def observations(self, kind: str) -> NDArray[np.int8]:
        """Return the observations as the environments give them: `kind` is "planes" or "cards"."""
        return self._observations_of[kind]

    @cached_property
    def _observations_of(self) -> dict[str, NDArray[np.int8]]:
        return _Observations(self)


class _Observations(dict[str, NDArray[np.int8]]):
    """Observations of a turn, made when first asked for."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def __missing__(self, kind: str) -> NDArray[np.int8]:
        rows = Rows(self._turn.game, self._turn.options, len(self._turn), kind, False)
        rows.states[:] = self._turn.states
        rows.show(rows.all_rows)
        self[kind] = rows.observations
        return self[kind]


def see(game: Game, options: Mapping[str, Any], states: NDArray[Any], masks: NDArray[Any], key: int) -> Turn:
    """Return the turn that a player sees in `states`: a copy with its hidden cards dealt anew from the number `key`."""
    hidden = states.copy()
    keys = np.random.default_rng(key).integers(0, 2**64, len(states), dtype=np.uint64)
    determinize_rows(hidden, keys)
    return Turn(game, options, hidden, masks.astype(np.int8))


def key_of(seen: NDArray[np.int8], prefix: bytes = b"") -> int:
    """Return 64 random bits that depend on an observation (and a prefix) alone: on what the player sees."""
    return int.from_bytes(blake2b(prefix + seen.tobytes(), digest_size=8).digest(), "big")


class Policy(ABC):
    """A player. Policies keep no memory of a game: all that a perfect-memory player knows is in the position.

    Class attributes:
        name: what tables call it.
        version: changed whenever its play changes; results tell it.
        game_id: the only game that it plays, or "" when it plays any.
        share: an evaluation plays so many deals in one go, side by side, with a seed of their own, and may play such
            shares on several cores. Slow policies give a small number, so that few deals make work for many cores.
    """

    name: str = ""
    version: int = 1
    game_id: str = ""
    share: int = 250

    @abstractmethod
    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return a legal action for every position, int64, shape (n,)."""

    def start(self, seed: int) -> None:
        """Seed the policy's own random choices; called before each share of an evaluation.

        Nothing of what was played before may be left in them: shares are played in any order and by any process.
        """
        del seed

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        """Return the files and folders that its play under these options depends on, such as a saved model."""
        del options
        return []

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where this policy cannot play the game under these options."""
        del options
        if self.game_id and game.id != self.game_id:
            raise ValueError(f"policy {self.name!r} plays {self.game_id}, not {game.id}")

    def choose(self, env: Any) -> int:
        """Return an action for a single environment (wrapped or not), which it leaves untouched.

        The hidden cards that the policy is shown are drawn from what the player sees, so that the same position gets
        the same answer (from a policy that makes no random choices of its own).

        Raises:
            TypeError: no environment of this package.
            ValueError: the policy does not play this game, or the episode is over.
        """
        bare = getattr(env, "unwrapped", env)
        if not isinstance(bare, PatienceEnv):
            raise TypeError(f"choose needs an environment of patience_env, not {type(bare).__name__}")
        self.check(bare.game, bare.options)
        masks = bare.action_masks()[None].astype(np.int8)
        if not masks.any():
            raise ValueError(f"{bare.game.id}: there is nothing to choose: no episode is in progress, call reset()")
        states = bare.state_rows()
        seen = Turn(bare.game, bare.options, states, masks).observations("cards")
        key = key_of(seen)
        return int(self.act(see(bare.game, bare.options, states, masks, key))[0])


class KernelPolicy(Policy):
    """A policy that is one compiled loop `kernel(states, masks, actions)`: it writes an action for every row."""

    kernel: Callable[[NDArray[Any], NDArray[np.int8], NDArray[np.int64]], None]

    def act(self, turn: Turn) -> NDArray[np.int64]:
        actions = np.zeros(len(turn), np.int64)
        type(self).kernel(turn.states, turn.masks, actions)
        return actions

    def rank(self, turn: Turn, choices: int) -> NDArray[np.int64]:
        """Return the actions that it likes best of every position, int64, shape (n, choices), best first.

        It is asked again and again without what it chose; -1 stands where it has no more to say.
        """
        ranked = np.full((len(turn), choices), -1, np.int64)
        masks = turn.masks.copy()
        rows = np.arange(len(turn))
        for choice in range(choices):
            told = self.act(Turn(turn.game, turn.options, turn.states[rows], masks[rows]))
            known = masks[rows, told] != 0
            rows, told = rows[known], told[known]
            ranked[rows, choice] = told
            masks[rows, told] = 0
            rows = rows[masks[rows].any(1)]
            if not len(rows):
                break
        return ranked


# Names of policies that play any game: `module:attribute`, imported when asked for.
GENERAL = {
    "random": "patience_env.agents.basic:RandomPolicy",
    "greedy": "patience_env.agents.basic:GreedyPolicy",
    "flat": "patience_env.agents.tree_search:FlatMonteCarloPolicy",
    "uct": "patience_env.agents.tree_search:UCTPolicy",
    "sb3": "patience_env.agents.learned:SB3Policy",
    "model": "patience_env.training.models:ModelPolicy",
}
_OPTION = re.compile(r"[:,](?=[A-Za-z_]\w*=)")


def game_module(game: Game) -> str:
    """Return the module that holds a game's own policies: `patience_env.agents.<module of the game>`."""
    return f"patience_env.agents.{game.deal.__module__.rpartition('.')[2]}"


def policy_names(game_id: str) -> dict[str, str]:
    """Return the policies that play a game, name -> `module:attribute`: general ones, then those of its own module.

    That lists them as `POLICIES`: name -> attribute, or `module:attribute` of another module.
    """
    module = game_module(get_game(game_id))
    own = import_module(module).POLICIES if find_spec(module) else {}
    return {**GENERAL, **{name: path if ":" in path else f"{module}:{path}" for name, path in own.items()}}


_PYTHON = {"True": True, "False": False, "None": None}  # as messages and help name values


def read_value(text: str) -> Any:
    """Return the value of an option written as text: JSON where it is JSON, True, False, None, else the text itself."""
    try:
        return _PYTHON[text] if text in _PYTHON else json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def parse_policy(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a policy written as text.

    `name`, `module:attribute`, each with `:key=value` any number of times (commas between options will do too), or the
    path of a saved model: a folder (the policy "model") or an SB3 `.zip` ("sb3"). Values are read by `read_value`.
    """
    name, *given = _OPTION.split(text)
    options = {key: read_value(value) for key, _, value in (option.partition("=") for option in given)}
    if name.endswith(".zip"):
        return "sb3", {"path": name, **options}
    if os.path.isdir(name):
        return "model", {"path": name, **options}
    return name, options


def make_policy(name: str, game_id: str, **options: Any) -> Policy:
    """Return a policy by its name (see `policy_names`) or by `module:attribute`, made with the given options.

    Raises:
        ValueError: no such policy, or it cannot be imported or made so.
    """
    known = policy_names(game_id)
    path = known.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise ValueError(
            f"there is no policy {name!r} for {game_id}: choose {', '.join(known)}, or give module:attribute or a "
            "model's path"
        )
    try:
        maker = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"policy {path!r} cannot be imported: {error}") from error
    try:
        inspect.signature(maker).bind(**options)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "no options"
        raise ValueError(f"policy {name!r} cannot be made with {given}: {error}") from error
    try:
        policy = maker(**options)
    except ImportError as error:
        raise ValueError(
            f"policy {name!r} needs a package that is not installed ({error}); what this package's learned policies "
            "need comes by pip install 'patience-env[train]'"
        ) from error
    if not isinstance(policy, Policy):
        raise ValueError(f"{path!r} made a {type(policy).__name__}, not a Policy")
    return policy
