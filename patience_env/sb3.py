"""The compiled batch as a `VecEnv` of Stable-Baselines3.

    from sb3_contrib import MaskablePPO
    from patience_env.sb3 import PatienceVecEnv

    model = MaskablePPO("MlpPolicy", PatienceVecEnv("PatiencePoker-v0", 256, placement="fixed"))

Only this module of the package imports Stable-Baselines3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from patience_env.game import Game, game_ids, get_game, max_episode_steps
from patience_env.vector import PatienceVectorEnv

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices
except ImportError as error:
    raise ImportError(
        'patience_env.sb3 needs Stable-Baselines3, which is not installed here: pip install "patience-env[train]"'
    ) from error

# What `env_method` calls for each game; the batch has more, but for all its games at once.
METHODS = ("action_masks", "describe", "table", "render")
# What `get_attr` gives for each game; anything else is an attribute of the batch, the same for every game.
OWN = ("deal", "np_random", "np_random_seed")


class PatienceVecEnv(VecEnv):
    """`num_envs` games for the algorithms of SB3 and sb3-contrib, stepped by one compiled loop.

    A game that ends starts anew in the same step. Its `infos` entry then holds `terminal_observation`,
    `TimeLimit.truncated`, `episode` (`r` return, `l` length, `t` seconds since this object was made, as `Monitor` gives
    them), `deal` and the game's summary, `illegal_action` if that is what ended it; the entries of all others are
    empty but for `illegal_action` where it was survived.

    Args:
        game: a game's id or a `Game`.
        num_envs: how many games.
        max_episode_steps: truncate after so many steps; "registered" (default) takes what `gymnasium.make` would.
        **keywords: as for `PatienceVectorEnv` (`observation`, `reward`, `illegal_action`, `render_mode`, the game's
            options). Returned arrays are always fresh: SB3 adds observations and masks to its buffers after the next
            step.

    Raises:
        TypeError, ValueError: as `PatienceVectorEnv`.
    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int = 1,
        *,
        max_episode_steps: int | str | None = "registered",
        **keywords: Any,
    ) -> None:
        for name in ("autoreset_mode", "copy"):
            if name in keywords:
                raise TypeError(f"PatienceVecEnv chooses {name} itself, as SB3 needs it: leave it out")
        self.batch = PatienceVectorEnv(
            game,
            num_envs,
            autoreset_mode=AutoresetMode.SAME_STEP,
            max_episode_steps=_steps(game, max_episode_steps),
            **keywords,
        )
        self._returns = np.zeros(self.batch.num_envs)
        self._lengths = np.zeros(self.batch.num_envs, np.int64)
        self._began = time.time()
        self._actions: NDArray[np.int64] | None = None
        self._deals: NDArray[np.uint64] = np.zeros(self.batch.num_envs, np.uint64)
        super().__init__(self.batch.num_envs, self.batch.single_observation_space, self.batch.single_action_space)

    # -- playing -------------------------------------------------------------------------------------------------

    def reset(self) -> NDArray[np.int8]:
        """Start all games anew, with the seeds of `seed()` and the options of `set_options()`, which are used once.

        Those that are refused are gone too: the next reset needs none.

        Raises:
            ValueError: some games were given a `deal` and others were not.
        """
        try:
            options = self._reset_choices()
            seeds = None if all(seed is None for seed in self._seeds) else self._seeds
            observations, info = self.batch.reset(seed=seeds, options=options)
        finally:
            self._reset_seeds()
            self._reset_options()
        self._returns[:] = 0
        self._lengths[:] = 0
        self._actions = None
        self._deals = info["deal"]
        self.reset_infos = [
            {"action_mask": mask, "deal": deal} for mask, deal in zip(info["action_mask"], info["deal"], strict=True)
        ]
        return observations

    def _reset_choices(self) -> dict[str, Any] | None:
        if len(self._options) != self.num_envs:
            raise ValueError(f"there are {self.num_envs} games, but {len(self._options)} options: give one for each")
        names = {name for options in self._options for name in options}
        if not names:
            return None
        if unknown := sorted(names - {"deal"}):
            raise ValueError(f"reset has no option {unknown[0]!r}: it takes 'deal', a deal number")
        if not all("deal" in options for options in self._options):
            raise ValueError("some games were given a deal and others not: give one to each game, or to none")
        return {"deal": [options["deal"] for options in self._options]}

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Take the actions that `step_wait` will play."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Play the actions; return observations, rewards (float32), which games ended, and infos.

        Raises:
            RuntimeError: `step_async` was not called before.
        """
        if self._actions is None:
            raise RuntimeError("step_wait() without actions: call step(actions), or step_async(actions) before it")
        actions, self._actions = self._actions, None
        observations, rewards, terminated, truncated, info = self.batch.step(actions)
        self._deals = info["deal"]
        self._returns += rewards
        self._lengths += 1
        dones: NDArray[np.bool_] = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(info.get("illegal_action", ())):
            infos[i]["illegal_action"] = True
        if dones.any():
            self._finish(np.flatnonzero(dones).tolist(), truncated & ~terminated, info, infos)
            self._returns[dones] = 0
            self._lengths[dones] = 0
        return observations, rewards.astype(np.float32), dones, infos

    def _finish(
        self, ended: list[int], cut: NDArray[np.bool_], info: dict[str, Any], infos: list[dict[str, Any]]
    ) -> None:
        """Write the infos of the games that have ended."""
        final = info["final_info"]
        facts = [name for name in final if not name.startswith("_") and name != "action_mask"]
        seconds = round(time.time() - self._began, 6)
        for i in ended:
            told = {name: final[name][i] for name in facts if final[f"_{name}"][i]}
            infos[i] = {
                **told,
                "episode": {"r": round(float(self._returns[i]), 6), "l": int(self._lengths[i]), "t": seconds},
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(cut[i]),
            }

    def close(self) -> None:
        """Close the batch; may be called twice."""
        self.batch.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """Return a picture of every game (`render_mode="rgb_array"`)."""
        if self.render_mode != "rgb_array":
            raise ValueError(f"pictures need render_mode='rgb_array', not {self.render_mode!r}")
        return self.batch.render()  # type: ignore[return-value]

    # -- attributes and methods of the games ---------------------------------------------------------------------

    def _rows(self, indices: VecEnvIndices) -> list[int]:
        """Return the games that `indices` names.

        Raises:
            IndexError: one lies outside the batch.
        """
        rows = [int(i) for i in self._get_indices(indices)]
        for i in rows:
            if not -self.num_envs <= i < self.num_envs:
                raise IndexError(f"there is no game {i}: they are numbered 0 to {self.num_envs - 1}")
        return rows

    def has_attr(self, attr_name: str) -> bool:
        """Tell whether the games have an attribute or method of that name."""
        return attr_name in OWN or attr_name in METHODS or hasattr(self.batch, attr_name)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of each game: its own `deal`, `np_random`, `np_random_seed`; others belong to all alike.

        Raises:
            AttributeError: there is no such attribute.
        """
        rows = self._rows(indices)
        if attr_name == "deal":
            return [int(self._deals[i]) for i in rows]
        value = getattr(self.batch, attr_name)
        return [value[i] for i in rows] if attr_name in OWN else [value for _ in rows]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of all games.

        Raises:
            ValueError: `indices` names only some games, or the attribute is each game's own.
        """
        if attr_name in OWN or set(self._rows(indices)) != set(range(self.num_envs)):
            raise ValueError(
                f"the games of a batch share their attributes: {attr_name} can only be set for all of them"
            )
        setattr(self.batch, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each game: `action_masks()`, `describe(action)`, `table()` or `render()`.

        Raises:
            AttributeError: another name.
        """
        rows = self._rows(indices)
        if method_name not in METHODS:
            raise AttributeError(f"the games of a batch have no method {method_name!r}: they have {', '.join(METHODS)}")
        if method_name == "action_masks":
            masks = self.batch.action_masks()
            return list(masks if indices is None else masks[rows])
        if method_name == "render":
            frames = self.batch.render() or [None] * self.num_envs
            return [frames[i] for i in rows]
        states = self.batch.states()
        method: Any = getattr(self.batch.game, method_name)
        return [method(states[i], *method_args, **method_kwargs) for i in rows]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Tell whether the games are wrapped: in no wrapper, but what `Monitor` adds to the infos is there."""
        return [wrapper_class is Monitor for _ in self._rows(indices)]


def _steps(game: str | Game, given: int | str | None) -> int | None:
    if given != "registered":
        return given  # type: ignore[return-value]
    known = get_game(game) if isinstance(game, str) else game
    return max_episode_steps(known.id) if known.id in game_ids() else None
