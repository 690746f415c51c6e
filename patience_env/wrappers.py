"""The dictionary forms of observation and mask that RLlib and PettingZoo expect."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from patience_env.env import PatienceEnv

DictObservation = dict[str, NDArray[Any]]


class _MaskInObservation(gymnasium.ObservationWrapper[DictObservation, int, NDArray[np.int8]], RecordConstructorArgs):
    """Puts the mask beside the observation, under the names and in the number type of one library."""

    observation_key: str
    mask_type: type[np.generic]

    def __init__(self, env: gymnasium.Env[NDArray[np.int8], int]) -> None:
        if not isinstance(env.unwrapped, PatienceEnv):
            raise TypeError(f"{type(self).__name__} wraps a PatienceEnv, not {env.unwrapped}")
        RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        actions = env.unwrapped.layout.actions
        spaces_of: Any = spaces.Dict(
            {
                self.observation_key: env.observation_space,
                "action_mask": spaces.Box(0, 1, (actions,), self.mask_type),
            }
        )
        self.observation_space = spaces_of

    def observation(self, observation: NDArray[np.int8]) -> DictObservation:
        """Return the observation with the mask of the present position beside it."""
        bare: PatienceEnv = self.unwrapped  # type: ignore[assignment]
        return {self.observation_key: observation, "action_mask": bare.action_masks().astype(self.mask_type)}


class RLlibDict(_MaskInObservation):
    """Observations as RLlib's action-masking models take them: `observations` and `action_mask` (float32)."""

    observation_key = "observations"
    mask_type = np.float32


class PettingZooDict(_MaskInObservation):
    """Observations as PettingZoo writes them: `observation` and `action_mask` (int8)."""

    observation_key = "observation"
    mask_type = np.int8
