"""What a training run does: MaskablePPO, measured and checkpointed. It imports torch, so `train` imports it late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnvWrapper

from patience_env.deals import refuse_reserved
from patience_env.game import max_episode_steps
from patience_env.sb3 import PatienceVecEnv
from patience_env.training.models import (
    best_actions,
    network_options,
    policy_class,
    read_pair,
    replace_file,
    save_model,
    tensors_of,
    write_pair,
)
from patience_env.training.train import CHECKPOINT, CURVE, MODEL_FOLDER, Outcome, Plan, Point
from patience_env.vector import PatienceVectorEnv

POLICY, OPTIMIZER = "policy.", "optimizer."


class ScaledRewards(VecEnvWrapper):
    """Rewards times a factor; the returns in `infos` stay as they are."""

    def __init__(self, venv: PatienceVecEnv, factor: float) -> None:
        super().__init__(venv)
        self._factor = np.float32(factor)

    def reset(self) -> Any:
        """Start all games anew."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Play one step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards * self._factor, dones, infos


class Validation:
    """Plays the deals of a learning curve, always the same ones."""

    def __init__(self, plan: Plan, deals: NDArray[np.uint64]) -> None:
        self._deals = deals
        self._batch = PatienceVectorEnv(
            plan.game,
            len(deals),
            observation=plan.settings["observation"],
            illegal_action="raise",
            autoreset_mode=AutoresetMode.SAME_STEP,
            max_episode_steps=max_episode_steps(plan.game),
            **plan.options,
        )

    def measure(self, policy: Any) -> tuple[float, float]:
        """Return the mean return of the policy's best legal actions, and its standard error."""
        observations, info = self._batch.reset(seed=0, options={"deal": self._deals})
        returns = np.zeros(len(self._deals))
        live = np.ones(len(self._deals), np.bool_)
        policy.set_training_mode(False)
        while live.any():
            actions = best_actions(policy, observations, info["action_mask"])
            observations, rewards, terminated, truncated, info = self._batch.step(actions)
            returns += np.where(live, rewards, 0.0)
            live &= ~(terminated | truncated)
        return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else 0.0


class Learner(MaskablePPO):
    """MaskablePPO whose schedules follow the share of the run that is done, be it counted in steps or in time."""

    run: Run

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        del num_timesteps, total_timesteps
        self._current_progress_remaining = 1.0 - self.run.share()


class Watch(BaseCallback):
    """Calls the run between two updates, when network and step count agree."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self.goes_on = True

    def _on_rollout_start(self) -> None:
        self.goes_on = self._run.between_updates()

    def _on_step(self) -> bool:
        return self.goes_on


class Run:
    """A run in its folder: new, or gone on with from its checkpoint when there is one.

    Args:
        folder: where it lies.
        plan: what it is; the caller has compared it with the checkpoint's.
        limits: the step count and the seconds at which it ends; None sets no limit.
        deals: deal numbers of the curve.
        quiet: show no progress.
    """

    def __init__(
        self, folder: Path, plan: Plan, limits: tuple[int | None, float | None], deals: NDArray[np.uint64], quiet: bool
    ) -> None:
        self._folder, self._plan, self._quiet = folder, plan, quiet
        self._total_steps, self._total_seconds = limits
        self._validation = Validation(plan, deals)
        saved = read_pair(folder / CHECKPOINT, "checkpoint") if (folder / CHECKPOINT).exists() else None
        self._steps: int = saved[0]["steps"] if saved else 0
        self._past: float = saved[0]["seconds"] if saved else 0.0
        self._curve = [Point(**point) for point in saved[0]["curve"]] if saved else []
        self._model = self._make_model()
        if saved:
            self._restore(saved[1])
        self._began = time.perf_counter()
        self._saved_at = self._past
        self._bar: Progress | None = None

    def _make_model(self) -> Learner:
        settings, plan = self._plan.settings, self._plan
        # The learner must not see the deals of its past again, so a continuation is seeded by where it starts.
        seed = int(np.random.SeedSequence([plan.seed, self._steps]).generate_state(1)[0])
        games = PatienceVecEnv(
            plan.game, settings["envs"], observation=settings["observation"], illegal_action="raise", **plan.options
        )
        maker, keywords = policy_class(settings["network"], network_options(settings["network"], settings))
        first, last = settings["learning_rate"], settings["final_learning_rate"]
        passed = ("n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "ent_coef", "vf_coef")
        model = Learner(
            maker,
            ScaledRewards(games, settings["reward_scale"]),
            learning_rate=lambda left: last + (first - last) * left,
            max_grad_norm=settings["max_grad_norm"],
            policy_kwargs=keywords,
            seed=seed,
            device="cpu",
            **{name: settings[name] for name in passed},
        )
        model.run = self
        return model

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, NDArray[Any]]:
        tensors = {POLICY + name: tensor for name, tensor in tensors_of(self._model.policy).items()}
        for index, facts in self._model.policy.optimizer.state_dict()["state"].items():
            for name, tensor in facts.items():
                tensors[f"{OPTIMIZER}{index}.{name}"] = torch.as_tensor(tensor).numpy()
        return tensors

    def _restore(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Put a checkpoint's numbers into the network and its optimizer.

        Raises:
            ValueError: they are those of another network.
        """
        policy = self._model.policy
        state: dict[int, dict[str, torch.Tensor]] = {}
        weights = {}
        for name, array in tensors.items():
            tensor = torch.from_numpy(np.array(array))
            if name.startswith(POLICY):
                weights[name.removeprefix(POLICY)] = tensor
            else:
                index, _, what = name.removeprefix(OPTIMIZER).partition(".")
                state.setdefault(int(index), {})[what] = tensor
        try:
            policy.load_state_dict(weights)
            groups = policy.optimizer.state_dict()["param_groups"]
            policy.optimizer.load_state_dict({"state": state, "param_groups": groups})
        except (RuntimeError, ValueError, KeyError) as error:
            raise ValueError(f"the checkpoint in {str(self._folder)!r} does not fit its network: {error}") from error

    def _save(self) -> None:
        """Write checkpoint, curve and model; a kill at any moment leaves the checkpoint whole."""
        curve = [asdict(point) for point in self._curve]
        seconds = self.seconds()
        done = {"steps": self._steps, "seconds": seconds, "curve": curve}
        limits = {"total_steps": self._total_steps, "total_seconds": self._total_seconds}
        write_pair(self._folder / CHECKPOINT, self._tensors(), {"plan": asdict(self._plan), **limits, **done})
        replace_file(self._folder / CURVE, (json.dumps(curve, indent=1) + "\n").encode())
        settings = self._plan.settings
        facts = {
            "game": self._plan.game,
            "options": self._plan.options,
            "observation": settings["observation"],
            "shape": list(self._model.observation_space.shape or ()),
            "actions": int(self._model.action_space.n),  # type: ignore[attr-defined]
            "network": settings["network"],
            "network_options": network_options(settings["network"], settings),
            "version": self._plan.version,
            "training": {"seed": self._plan.seed, "settings": settings, **done},
        }
        save_model(self._folder / MODEL_FOLDER, self._model.policy, facts)
        self._saved_at = seconds

    # -- the run -------------------------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Return how long the run has taken, the parts before a resume included."""
        return round(self._past + time.perf_counter() - self._began, 3)

    def share(self) -> float:
        """Return the share of the run that is done, 0 to 1."""
        shares = [0.0]
        if self._total_steps is not None:
            shares.append(self._steps / self._total_steps)
        if self._total_seconds is not None:
            shares.append(self.seconds() / self._total_seconds)
        return min(max(shares), 1.0)

    def go(self) -> Outcome:
        """Train to the end; return what came of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not (self._folder / CHECKPOINT).exists():
            self._save()  # before the logs, so that a run killed before its first evaluation can be resumed too
        self._model.set_logger(configure(str(self._folder / "tensorboard"), ["tensorboard"]))
        with self._threads(), self._progress():
            if self.share() < 1.0:
                self._learn()
            self._refuse_reserved()
            if not self._curve or self._curve[-1].steps != self._steps:
                self._evaluate()
            self._save()
        self._model.logger.close()
        return Outcome(self._folder, self._steps, self.seconds(), tuple(self._curve))

    def _learn(self) -> None:
        model = self._model
        model.num_timesteps = self._steps
        left = (self._total_steps or 10**15) - self._steps
        watch = Watch(self)
        model.learn(left, callback=watch, reset_num_timesteps=False, log_interval=4)
        # A run that its time ends has begun a rollout that it learns nothing from: those steps do not count.
        if watch.goes_on:
            self._steps = model.num_timesteps

    def between_updates(self) -> bool:
        """Measure and save when it is time to; return whether the run goes on."""
        self._steps = self._model.num_timesteps
        self._refuse_reserved()
        last = self._curve[-1].steps if self._curve else -(10**15)
        if self._steps - last >= self._plan.settings["evaluate_every"]:
            self._evaluate()
            self._save()
        elif self.seconds() - self._saved_at >= self._plan.settings["checkpoint_seconds"]:
            self._save()
        self._show()
        return self.share() < 1.0

    def _refuse_reserved(self) -> None:
        if self._model._last_obs is not None:
            refuse_reserved(np.array(self._model.env.get_attr("deal"), np.uint64))  # type: ignore[union-attr]

    def _evaluate(self) -> None:
        mean, stderr = self._validation.measure(self._model.policy)
        point = Point(self._steps, self.seconds(), round(mean, 4), round(stderr, 4))
        self._curve.append(point)
        self._model.logger.record("validation/mean", mean)
        self._model.logger.dump(self._steps)
        if self._bar is not None:
            self._bar.console.print(
                f"{point.seconds:8.0f} s {point.steps:13,} steps   validation {mean:8.2f} +- {stderr:.2f}",
                highlight=False,
            )

    # -- surroundings --------------------------------------------------------------------------------------------

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Let torch use the settings' number of threads for as long as the run takes."""
        before = torch.get_num_threads()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(self._plan.settings["threads"] or cores)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def _progress(self) -> Iterator[None]:
        if self._quiet:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn()) as bar:
            self._task = bar.add_task(self._plan.game, total=1.0)
            self._bar = bar
            try:
                yield
                self._show()
            finally:
                self._bar = None

    def _show(self) -> None:
        if self._bar is not None:
            text = f"{self._plan.game}  {self._steps:,} steps"
            self._bar.update(self._task, completed=self.share(), description=text)
