"""Training with RLlib: PPO of its new API stack over compiled batches, the games spread over a Ray cluster.

Each of RLlib's environment runners steps one compiled batch of games (`MaskedVector`); the module it asks
(`MaskedModule`) holds the same network that `patience train` builds otherwise, so the model that comes of it is saved,
evaluated and shipped like any other: Ray is needed to train it, not to play it. `import_ray` comes before this module,
which imports Ray.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from ray.exceptions import RayError
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.torch_utils import FLOAT_MIN
from ray.tune.registry import register_env
from stable_baselines3.common.logger import configure as configure_logger

from patience_env.deals import refuse_reserved
from patience_env.game import get_game, max_episode_steps
from patience_env.training.engines import WorkerError, ray_cluster
from patience_env.training.models import network_options, policy_class, replace_file, save_model
from patience_env.training.train import CURVE, MODEL_FOLDER, Outcome, Plan, Point
from patience_env.vector import PatienceVectorEnv

ENV = "patience-env"
STEPS = ("env_runners", "num_env_steps_sampled_lifetime")
# Runners compile at their first step, which takes a busy machine minutes; RLlib goes on without what comes too late.
SAMPLE_SECONDS, IDLE_UPDATES = 300.0, 3


class MaskedVector(VectorWrapper):
    """A compiled batch whose observations hold the mask, as `RLlibDict` gives them, and whose rewards are scaled.

    Infos are left out: RLlib would turn them into a dictionary for every game and step, and needs none of them.
    """

    def __init__(self, env: PatienceVectorEnv, factor: float) -> None:
        super().__init__(env)
        self._batch, self._factor = env, factor
        both = {"observations": env.single_observation_space, "action_mask": _mask_space(env.layout.actions)}
        self.single_observation_space = spaces.Dict(both)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start all games anew."""
        observations, info = self._batch.reset(seed=seed, options=options)
        refuse_reserved(info["deal"])
        return self._with_masks(observations, info), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play one step of all games."""
        observations, rewards, terminated, truncated, info = self._batch.step(np.asarray(actions))
        refuse_reserved(info["deal"])
        return self._with_masks(observations, info), rewards * self._factor, terminated, truncated, {}

    def _with_masks(self, observations: NDArray[np.int8], info: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return {"observations": observations, "action_mask": info["action_mask"].astype(np.float32)}


def _mask_space(actions: int) -> spaces.Box:
    return spaces.Box(0, 1, (actions,), np.float32)


def make_batch(context: Mapping[str, Any]) -> VectorEnv[Any, Any, Any]:
    """Return the games of one environment runner: `num_envs`, `game`, `observation`, `options`, `reward_scale`."""
    batch = PatienceVectorEnv(
        context["game"],
        context.get("num_envs", 1),
        observation=context["observation"],
        illegal_action="raise",
        max_episode_steps=max_episode_steps(context["game"]),
        **context["options"],
    )
    return MaskedVector(batch, context["reward_scale"])


class MaskedModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """A network of `patience_env.training.models` as RLlib's module: illegal actions get no probability.

    `model_config` holds `network` and `network_options`, `game` and its `options`; `policy` is the network.
    """

    def setup(self) -> None:
        """Build the network."""
        config = self.model_config
        game = get_game(config["game"])
        maker, keywords = policy_class(config["network"], config["network_options"], game, config["options"])
        self.policy = maker(self.observation_space["observations"], self.action_space, lambda _: 0.0, **keywords)

    def _forward(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        seen = batch[Columns.OBS]
        logits = self.policy.get_distribution(seen["observations"]).distribution.logits
        # An ended game has no legal action at all, and its logits must be finite all the same.
        return {Columns.ACTION_DIST_INPUTS: torch.where(seen["action_mask"] > 0, logits, FLOAT_MIN)}

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Any:
        """Return the critic's values, shape (n,)."""
        del embeddings
        return self.policy.predict_values(batch[Columns.OBS]["observations"]).squeeze(-1)


class Learner(PPO):  # type: ignore[misc]
    """RLlib's PPO, which keeps nothing in the home folder (the run's folder holds what is worth keeping)."""

    def _setup_logdir(self) -> None:
        self._logdir = tempfile.mkdtemp(prefix="patience-env-")

    def cleanup(self) -> None:
        """End the environment runners."""
        super().cleanup()
        shutil.rmtree(self._logdir, ignore_errors=True)


def configure(plan: Plan, workers: int, total_steps: int | None) -> Any:
    """Return RLlib's configuration of a run with so many environment runners."""
    settings = plan.settings
    network = settings["network"]
    each = -(-settings["envs"] // workers)
    context = {
        "game": plan.game,
        "options": plan.options,
        "observation": settings["observation"],
        "reward_scale": settings["reward_scale"],
    }
    rate: Any = settings["learning_rate"]
    if total_steps is not None:
        rate = [[0, rate], [total_steps, settings["final_learning_rate"]]]
    example = make_batch({**context, "num_envs": 1})
    config = PPOConfig(algo_class=Learner)
    config.environment(
        ENV,
        env_config=context,
        observation_space=example.single_observation_space,
        action_space=example.single_action_space,
    )
    config.env_runners(
        num_env_runners=workers,
        num_envs_per_env_runner=each,
        gym_env_vectorize_mode="vector_entry_point",
        rollout_fragment_length=settings["n_steps"],
        sample_timeout_s=SAMPLE_SECONDS,
    )
    config.training(
        train_batch_size_per_learner=workers * each * settings["n_steps"],
        minibatch_size=min(settings["batch_size"], workers * each * settings["n_steps"]),
        num_epochs=settings["n_epochs"],
        lr=rate,
        gamma=settings["gamma"],
        lambda_=settings["gae_lambda"],
        clip_param=settings["clip_range"],
        entropy_coeff=settings["ent_coef"],
        vf_loss_coeff=settings["vf_coef"],
        vf_clip_param=float("inf"),
        use_kl_loss=False,
        grad_clip=settings["max_grad_norm"],
        grad_clip_by="global_norm",
    )
    shaping = {
        "network": network,
        "network_options": network_options(network, settings),
        "game": plan.game,
        "options": plan.options,
    }
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=MaskedModule, model_config=shaping))
    config.debugging(seed=plan.seed % 2**31, log_level="ERROR")
    config.fault_tolerance(restart_failed_env_runners=True)
    return config


def run(
    folder: Path,
    plan: Plan,
    limits: tuple[int | None, float | None],
    deals: NDArray[np.uint64],
    quiet: bool,
    workers: int | None,
    address: str | None,
) -> Outcome:
    """Train to the end of the step count or the seconds in `limits`; return what came of it.

    Raises:
        ValueError: Ray or the cluster is not there (see `ray_cluster`).
        WorkerError: Ray cannot be started, or training broke down.
    """
    from patience_env.training.learner import Validation

    logging.getLogger("ray").setLevel(logging.ERROR)
    total_steps, total_seconds = limits
    began = time.perf_counter()
    validation = Validation(plan, deals)
    curve: list[Point] = []

    def measure(policy: Any, steps: int, logger: Any) -> None:
        mean, stderr, won = validation.measure(policy)
        curve.append(Point(steps, round(time.perf_counter() - began, 3), round(mean, 4), round(stderr, 4), won))
        logger.record("validation/mean", mean)
        if not quiet:
            last = curve[-1]
            print(f"{last.seconds:8.0f} s {steps:13,} steps   validation {mean:8.2f} +- {stderr:.2f}", flush=True)
        _save(folder, plan, policy, curve, steps)

    with ray_cluster(workers, address) as (_, count):
        # Only now: where Ray is not there, nothing is left behind.
        folder.mkdir(parents=True, exist_ok=True)
        logger = configure_logger(str(folder / "tensorboard"), ["tensorboard"])
        register_env(ENV, make_batch)
        algorithm = None
        try:
            algorithm = configure(plan, count, total_steps).build_algo()
            steps, idle, over = 0, 0, False
            while not over:
                told = algorithm.train()
                before, steps = steps, int(told.get(STEPS[0], {}).get(STEPS[1], steps))
                idle = idle + 1 if steps == before else 0
                if idle == IDLE_UPDATES:
                    raise WorkerError(f"RLlib's environment runners gave no step in {idle} times {SAMPLE_SECONDS:g} s")
                over = total_steps is not None and steps >= total_steps
                over = over or (total_seconds is not None and time.perf_counter() - began >= total_seconds)
                if over or steps - (curve[-1].steps if curve else 0) >= plan.settings["evaluate_every"]:
                    measure(algorithm.get_module().policy, steps, logger)
                _log(logger, told, steps)
        except RayError as error:
            raise WorkerError(f"RLlib stopped: {error}") from error
        finally:
            if algorithm is not None:
                algorithm.stop()
            logger.close()
    return Outcome(folder, steps, round(time.perf_counter() - began, 3), tuple(curve))


def _log(logger: Any, told: Mapping[str, Any], steps: int) -> None:
    """Write what RLlib tells of an update into TensorBoard's files."""
    found = {"rollout/return": told.get("env_runners", {}).get("episode_return_mean")}
    found |= {f"train/{name}": value for name, value in told.get("learners", {}).get("default_policy", {}).items()}
    for name, value in found.items():
        if isinstance(value, (int, float, np.floating)):
            logger.record(name, float(value))
    logger.dump(steps)


def _save(folder: Path, plan: Plan, policy: Any, curve: list[Point], steps: int) -> None:
    """Write the model and its curve."""
    points = [asdict(point) for point in curve]
    replace_file(folder / CURVE, (json.dumps(points, indent=1) + "\n").encode())
    settings = plan.settings
    facts = {
        "game": plan.game,
        "options": plan.options,
        "observation": settings["observation"],
        "shape": list(policy.observation_space.shape),
        "actions": int(policy.action_space.n),
        "network": settings["network"],
        "network_options": network_options(settings["network"], settings),
        "version": plan.version,
        "training": {"engine": "rllib", "seed": plan.seed, "settings": settings, "steps": steps, "curve": points},
    }
    save_model(folder / MODEL_FOLDER, policy, facts)
