"""What a training run does: MaskablePPO, measured and checkpointed. It imports torch, so `train` imports it late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnvWrapper

from patience_env.agents.policy import Policy, see
from patience_env.deals import refuse_reserved
from patience_env.game import get_game, max_episode_steps
from patience_env.sb3 import PatienceVecEnv
from patience_env.training.advice import ask, find_adviser
from patience_env.training.models import (
    MODEL,
    choose_actions,
    input_space,
    network_input,
    network_options,
    policy_class,
    read_pair,
    replace_file,
    save_model,
    tensors_of,
    told_choices,
    write_pair,
)
from patience_env.training.train import (
    CHECKPOINT,
    CURVE,
    MODEL_FOLDER,
    Outcome,
    Plan,
    Point,
    level_text,
    reward_kind,
)
from patience_env.training.warm_start import FORCED_SHARE, WarmStart
from patience_env.vector import PatienceVectorEnv

POLICY, OPTIMIZER = "policy.", "optimizer."
WON = 1 - 1e-6  # the return of a game that is won, but for rounding


class Lesson(VecEnvWrapper):
    """The games as the learner sees them.

    Rewards are `factor * (reward + bonus for a win)`; the returns in `infos` stay as they are. Observations are what
    the network reads (`patience_env.training.models.network_input`). A game that is cut off after its greatest number
    of moves is over, as it is in comparisons: the learner expects nothing beyond.

    Args:
        venv: the games.
        plan: of the run.
    """

    venv: PatienceVecEnv

    def __init__(self, venv: PatienceVecEnv, plan: Plan) -> None:
        settings = plan.settings
        game = get_game(plan.game)
        advice = settings["advice"]
        told = told_choices(network_options(settings["network"], settings))
        space = input_space(settings["network"], settings["observation"], game, plan.options, told)
        super().__init__(venv, observation_space=space)
        self._network = settings["network"]
        self._adviser, self._choices = (find_adviser(advice, game, plan.options) if told else None), told
        self._rng = np.random.default_rng([plan.seed, 1])
        self._factor, self._bonus = np.float32(settings["reward_scale"]), np.float32(settings["win_bonus"])

    def _seen(self, observations: NDArray[np.int8]) -> NDArray[Any]:
        """Return what the network reads: see `patience_env.training.models.network_input`."""
        batch = self.venv.batch
        masks = batch.action_masks().view(np.int8)
        parts: list[NDArray[Any]] = [observations]
        if self._network == "ahead" or self._adviser is not None:
            turn = see(batch.game, batch.options, batch.states(), masks, int(self._rng.integers(2**63)))
        if self._network == "ahead":
            parts = [np.ascontiguousarray(turn.states).view(np.uint8).reshape(len(turn), -1)]
        elif self._network == "cards":
            parts.append(masks)
        if self._adviser is not None:
            parts.append(ask(self._adviser, turn, self._choices).astype(parts[0].dtype))
        return np.concatenate(parts, 1) if len(parts) > 1 else parts[0]

    def reset(self) -> Any:
        """Start all games anew."""
        return self._seen(self.venv.reset())

    def spread(self, choose: Callable[[NDArray[Any], NDArray[np.bool_]], NDArray[np.int64]], steps: int) -> Any:
        """Play on for some steps, starting an equal share of the games anew in each of them; return what is seen.

        Games that all begin at once stay in step, so that an update would see only openings, the next only endings.
        `choose` is given what is seen and the legal actions.
        """
        batch = self.venv.batch
        seen = self.reset()
        turns = np.arange(batch.num_envs) * steps // batch.num_envs
        for step in range(1, steps):
            seen = self.step(choose(seen, batch.action_masks()))[0]
            fresh = turns == step
            if fresh.any():
                observations, info = batch.reset(options={"reset_mask": fresh})
                self.venv._deals = info["deal"]
                self.venv._returns[fresh] = 0
                self.venv._lengths[fresh] = 0
                seen = self._seen(observations)
        return seen

    def step_wait(self) -> Any:
        """Play one step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        for i in np.flatnonzero(dones):
            infos[i]["TimeLimit.truncated"] = False
            if self._bonus and infos[i]["episode"]["r"] >= WON:
                rewards[i] += self._bonus
        return self._seen(observations), rewards * self._factor, dones, infos


class Validation:
    """Plays the deals of a learning curve, always the same ones."""

    def __init__(self, plan: Plan, deals: NDArray[np.uint64]) -> None:
        self._deals = deals
        self._temperature, self._observation = plan.settings["temperature"], plan.settings["observation"]
        self._batch = PatienceVectorEnv(
            plan.game,
            len(deals),
            observation=plan.settings["observation"],
            illegal_action="raise",
            autoreset_mode=AutoresetMode.SAME_STEP,
            max_episode_steps=max_episode_steps(plan.game),
            **plan.options,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return self._batch.single_observation_space.shape or ()

    def measure(self, policy: Any) -> tuple[float, float, float | None]:
        """Return the policy's mean return, its standard error, and the share of games won (None where games score)."""
        batch = self._batch
        _, info = batch.reset(seed=0, options={"deal": self._deals})
        returns = np.zeros(len(self._deals))
        live = np.ones(len(self._deals), np.bool_)
        rng = np.random.default_rng(0)
        policy.set_training_mode(False)
        while live.any():
            masks = info["action_mask"]
            actions = masks.argmax(1)
            now = np.flatnonzero(live & masks.any(1))
            turn = see(batch.game, batch.options, batch.states()[now], masks[now], int(rng.integers(2**63)))
            seen = network_input(policy, turn, self._observation)
            actions[now] = choose_actions(policy, seen, masks[now], self._temperature, rng)
            _, rewards, terminated, truncated, info = batch.step(actions)
            returns += np.where(live, rewards, 0.0)
            live &= ~(terminated | truncated)
        stderr = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else 0.0
        won = None if batch.game.scores else float((returns >= WON).mean())
        return float(returns.mean()), stderr, won


class Decisions(MaskableRolloutBuffer):
    """A rollout buffer that gives out the positions in which there is something to decide.

    Forced moves, most of them in some games, teach the critic alone: one in four of them will do.
    """

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self._useful: NDArray[np.bool_] | None = None

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Any:
        if self._useful is None:
            free = self.action_masks.reshape(-1, self.mask_dims).sum(1) > 1
            self._useful = free | (np.random.random(len(free)) < FORCED_SHARE)  # noqa: NPY002 - as SB3 draws its minibatches
        useful = batch_inds[self._useful[batch_inds]]
        # Advantages are divided by their spread, which a single one has not.
        return super()._get_samples(useful if len(useful) > 1 else batch_inds, env)


class Learner(MaskablePPO):
    """MaskablePPO whose schedules follow the share of the run that is done, be it counted in steps or in time."""

    run: Run

    def draw_actions(self, seen: NDArray[Any], masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return actions drawn by the policy's probabilities."""
        with torch.no_grad():
            actions, _, _ = self.policy(torch.as_tensor(seen), action_masks=masks)
        drawn: NDArray[np.int64] = actions.numpy()
        return drawn

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
        teacher: the policy of the warm start, None for none.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        limits: tuple[int | None, float | None],
        deals: NDArray[np.uint64],
        quiet: bool,
        teacher: Policy | None = None,
    ) -> None:
        self._folder, self._plan, self._quiet, self._teacher = folder, plan, quiet, teacher
        self._total_steps, self._total_seconds = limits
        self._validation = Validation(plan, deals)
        saved = read_pair(folder / CHECKPOINT, "checkpoint") if (folder / CHECKPOINT).exists() else None
        self._steps: int = saved[0]["steps"] if saved else 0
        self._past: float = saved[0]["seconds"] if saved else 0.0
        # Of the warm start: positions learned from, whether it is over, and the seconds that it took until then.
        self._warm_steps: int = saved[0].get("warm_steps", 0) if saved else 0
        self._warmed: bool = saved[0].get("warmed", True) if saved else teacher is None
        self._warm_seconds: float = saved[0].get("warm_seconds", 0.0) if saved else 0.0
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
        seed = int(np.random.SeedSequence([plan.seed, self._warm_steps + self._steps]).generate_state(1)[0])
        games = PatienceVecEnv(
            plan.game,
            settings["envs"],
            observation=settings["observation"],
            reward=reward_kind(plan),
            illegal_action="raise",
            **plan.options,
        )
        shaping = network_options(settings["network"], settings)
        maker, keywords = policy_class(settings["network"], shaping, get_game(plan.game), plan.options)
        first, last = settings["learning_rate"], settings["final_learning_rate"]
        passed = ("n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "ent_coef", "vf_coef")
        model = Learner(
            maker,
            Lesson(games, plan),
            learning_rate=lambda left: last + (first - last) * left,
            max_grad_norm=settings["max_grad_norm"],
            target_kl=settings["target_kl"] or None,
            policy_kwargs=keywords,
            seed=seed,
            device="cpu",
            rollout_buffer_class=Decisions,
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
        warm = {"warm_steps": self._warm_steps, "warm_seconds": self._warm_seconds}
        limits = {"total_steps": self._total_steps, "total_seconds": self._total_seconds}
        facts = {"plan": asdict(self._plan), **limits, **done, **warm, "warmed": self._warmed}
        write_pair(self._folder / CHECKPOINT, self._tensors(), facts)
        replace_file(self._folder / CURVE, (json.dumps(curve, indent=1) + "\n").encode())
        settings = self._plan.settings
        facts = {
            "game": self._plan.game,
            "options": self._plan.options,
            "observation": settings["observation"],
            "shape": list(self._validation.shape),
            "actions": int(self._model.action_space.n),  # type: ignore[attr-defined]
            "network": settings["network"],
            "network_options": network_options(settings["network"], settings),
            "temperature": settings["temperature"],
            "version": self._plan.version,
            "training": {
                "seed": self._plan.seed,
                "teacher": self._plan.teacher,
                "settings": settings,
                **done,
                **(warm if self._plan.teacher else {}),
            },
        }
        if self._is_kept():
            save_model(self._folder / MODEL_FOLDER, self._model.policy, facts)
        self._saved_at = seconds

    def _is_kept(self) -> bool:
        """Tell whether the network as it is replaces the model in the folder."""
        if self._plan.settings["keep"] == "last" or not (self._folder / MODEL_FOLDER / MODEL).exists():
            return True
        bonus = self._plan.settings["win_bonus"]
        levels = [point.mean + bonus * (point.won or 0.0) for point in self._curve]
        measured = bool(self._curve) and self._curve[-1].steps == self._steps
        return measured and levels[-1] == max(levels)

    # -- the run -------------------------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Return how long the run has taken, the parts before a resume included."""
        return round(self._past + time.perf_counter() - self._began, 3)

    def share(self) -> float:
        """Return the share of PPO's part of the run that is done, 0 to 1."""
        shares = [0.0]
        if self._total_steps is not None:
            shares.append(self._steps / self._total_steps)
        if self._total_seconds is not None:
            left = self._total_seconds - self._warm_seconds
            shares.append((self.seconds() - self._warm_seconds) / left if left > 0 else 1.0)
        return min(max(shares), 1.0)

    def go(self) -> Outcome:
        """Train to the end; return what came of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not (self._folder / CHECKPOINT).exists():
            self._save()  # before the logs, so that a run killed before its first evaluation can be resumed too
        self._model.set_logger(configure(str(self._folder / "tensorboard"), ["tensorboard"]))
        with self._threads(), self._progress():
            if not self._warmed:
                self._warm_up()
            if self.share() < 1.0:
                self._learn()
            self._refuse_reserved()
            if not self._curve or self._curve[-1].steps != self._steps:
                self._evaluate()
            self._save()
        self._model.logger.close()
        return Outcome(self._folder, self._steps, self.seconds(), tuple(self._curve))

    def _warm_up(self) -> None:
        """Learn from the teacher, from where the checkpoint stands."""
        assert self._teacher is not None
        total = self._plan.settings["warm_steps"]
        lesson = WarmStart(self._model, self._plan, self._teacher)
        with self._second_bar("warm start") as show:
            while (share := self._warm_share()) < 1.0:
                measures = lesson.round(share)
                self._warm_steps += lesson.steps
                refuse_reserved(np.array(self._model.env.get_attr("deal"), np.uint64))  # type: ignore[union-attr]
                for name, value in measures.items():
                    self._model.logger.record(f"warm_start/{name}", value)
                self._model.logger.dump(self._warm_steps)
                show(self._warm_share(), f"warm start  {self._warm_steps:,} of {total:,} positions")
                if self.seconds() - self._saved_at >= self._plan.settings["checkpoint_seconds"]:
                    self._save()
        self._warmed, self._warm_seconds = True, self.seconds()
        lesson.finish()
        self._save()

    def _warm_share(self) -> float:
        """Return the share of the warm start that is done, 0 to 1; it takes at most half of the run's time."""
        shares: list[float] = [self._warm_steps / self._plan.settings["warm_steps"]]
        if self._total_seconds is not None:
            shares.append(2 * self.seconds() / self._total_seconds)
        return min(max(shares), 1.0)

    def _learn(self) -> None:
        model = self._model
        model.num_timesteps = self._steps
        left = (self._total_steps or 10**15) - self._steps
        if model._last_obs is None:
            model._last_obs = cast(Lesson, model.env).spread(model.draw_actions, self._plan.settings["spread_steps"])
            model._last_episode_starts = np.ones(model.n_envs, np.bool_)
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
        mean, stderr, won = self._validation.measure(self._model.policy)
        point = Point(self._steps, self.seconds(), round(mean, 4), round(stderr, 4), won)
        self._curve.append(point)
        self._model.logger.record("validation/mean", mean)
        if won is not None:
            self._model.logger.record("validation/won", won)
        self._model.logger.dump(self._steps)
        if self._bar is not None:
            self._bar.console.print(
                f"{point.seconds:8.0f} s {point.steps:13,} steps   validation {level_text(point)}",
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

    @contextmanager
    def _second_bar(self, text: str) -> Iterator[Callable[[float, str], None]]:
        """Show a bar of its own for a part of the run; yield what tells it the share done and a text."""
        bar = self._bar
        if bar is None:
            yield lambda share, text: None
            return
        task = bar.add_task(text, total=1.0)
        yield lambda share, text: bar.update(task, completed=share, description=text)
        bar.update(task, completed=1.0)

    def _show(self) -> None:
        if self._bar is not None:
            text = f"{self._plan.game}  {self._steps:,} steps"
            self._bar.update(self._task, completed=self.share(), description=text)
