"""Policies that were learned: saved models of Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, Turn
from patience_env.encoding import KINDS, observation_space
from patience_env.game import Game

if TYPE_CHECKING:
    import torch


class SB3Policy(Policy):
    """A model that any algorithm of Stable-Baselines3 or sb3-contrib saved (`model.save(path)`).

    Only the network is built, not the algorithm with its buffers. A policy that tells action probabilities (PPO, A2C,
    TRPO, MaskablePPO) or action values (DQN, QR-DQN) plays the best legal action; another one (ARS) plays what it
    predicts, legal or not. Recurrent policies are refused, since policies here keep no memory.

    The model may have been trained on either form of the observations, flattened or not, but on no other wrapper's
    (VecNormalize's statistics are not in the file). SB3 files hold pickles: load only files that you trust.

    Args:
        path: the `.zip`.
        deterministic: True plays the most probable legal action, False draws by the model's probabilities (or, from
            values, plays the best all the same).
        device: where torch computes.

    Raises:
        ValueError: the file is missing, damaged or of another kind, or the packages it needs are not installed.
    """

    name = "sb3"

    def __init__(self, path: str, deterministic: bool = True, device: str = "cpu") -> None:
        if not isinstance(deterministic, bool):
            raise ValueError(f"deterministic={deterministic!r} is not allowed: give true or false")
        self._path = str(path)
        self._deterministic = deterministic
        self._rng = np.random.default_rng(0)
        self._model = _load(self._path, device)

    def start(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        del options
        return [Path(self._path)]

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        layout = game.layout(options)
        actions = getattr(self._model.action_space, "n", None)
        if actions != layout.actions:
            raise ValueError(
                f"model {self._path!r} has the action space {self._model.action_space}, but {game.id} under these "
                f"options has Discrete({layout.actions})"
            )
        self._form(game, options)

    def _form(self, game: Game, options: Mapping[str, Any]) -> str:
        """Return which form of the observations the model takes."""
        shape = self._model.observation_space.shape
        layout = game.layout(options)
        offered = {kind: observation_space(layout, kind).shape for kind in KINDS}
        for kind, own in offered.items():
            if shape in (own, (prod(own),)):
                return kind
        forms = ", ".join(f"{own} ({kind})" for kind, own in offered.items())
        raise ValueError(
            f"model {self._path!r} takes observations of shape {shape}, but {game.id} under these options gives {forms}"
        )

    def act(self, turn: Turn) -> NDArray[np.int64]:
        import torch

        seen = turn.observations(self._form(turn.game, turn.options))
        seen = seen.reshape(len(turn), *self._model.observation_space.shape)
        with torch.no_grad():
            scores = self._scores(self._model.obs_to_tensor(seen)[0], turn.masks)
        if scores is None:
            return np.asarray(self._model.predict(seen, deterministic=self._deterministic)[0], np.int64)
        values: NDArray[np.float64] = np.where(turn.masks, scores.double().cpu().numpy(), -np.inf)
        if not self._deterministic and hasattr(self._model, "get_distribution"):
            # The Gumbel-max trick: the greatest of log-probabilities plus Gumbel noise is a draw by the probabilities.
            values += self._rng.gumbel(size=values.shape)
        best: NDArray[np.int64] = np.argmax(values, axis=1)
        return best

    def _scores(self, seen: Any, masks: NDArray[np.int8]) -> torch.Tensor | None:
        """Return the log-probabilities or the values of the actions, shape (n, actions), or None if there are none."""
        model = self._model
        if hasattr(model, "get_distribution"):
            masked = {"action_masks": masks.astype(bool)} if _takes(model.get_distribution, "action_masks") else {}
            logits: torch.Tensor = model.get_distribution(seen, **masked).distribution.logits
            return logits
        if hasattr(model, "quantile_net"):
            quantiles: torch.Tensor = model.quantile_net(seen)
            return quantiles.mean(dim=1)
        if hasattr(model, "q_net"):
            values: torch.Tensor = model.q_net(seen)
            return values
        return None


def _takes(function: Any, argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def _load(path: str, device: str) -> Any:
    """Return the policy network of a saved model, ready to predict."""
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {path!r}: give the .zip that an SB3 model's save() wrote")
    try:
        from stable_baselines3.common.save_util import load_from_zip_file
    except ImportError as error:
        raise ValueError(f"SB3 models need the 'train' extra, pip install 'patience-env[train]' ({error})") from error
    try:
        data, parameters, _ = load_from_zip_file(path, device=device)
        maker, spaces = data["policy_class"], (data["observation_space"], data["action_space"])  # type: ignore[index]
        weights = parameters["policy"]
    except Exception as error:
        # A damaged zip, pickle or tensor file raises nearly anything, a class that cannot be imported a KeyError.
        raise ValueError(f"{path!r} is no readable SB3 model: {type(error).__name__}: {error}") from error
    if hasattr(maker, "get_distribution") and _takes(maker.get_distribution, "lstm_states"):
        raise ValueError(f"{path!r} holds a recurrent policy: policies here keep no memory of a game")
    schedule = ((lambda _: 0.0),) if _takes(maker, "lr_schedule") else ()
    sde = {"use_sde": True} if data.get("use_sde") else {}  # type: ignore[union-attr]
    try:
        model = maker(*spaces, *schedule, **sde, **data.get("policy_kwargs", {}))  # type: ignore[union-attr]
        model.load_state_dict(weights)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{path!r} holds a {maker.__name__} that cannot be built again: {error}") from error
    model = model.to(device)
    model.set_training_mode(False)
    return model


def shipped(name: str) -> Policy:
    """Return the agent of `patience train` that comes with the package under a name (needs the `train` extra)."""
    from patience_env.training.models import ModelPolicy

    return ModelPolicy(str(Path(__file__).resolve().parent / "models" / name))
