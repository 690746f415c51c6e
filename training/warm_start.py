"""The warm start of a run: before PPO begins, the network learns to play as a teacher does (behaviour cloning).

Teacher and pupil play the training's own games side by side: in most of them the teacher moves, in a growing part the
pupil, so that it meets the positions that its own mistakes lead to. The teacher says in every position what it would
play. The policy learns to give that action probability (cross-entropy over the legal actions), the critic to expect the
returns that follow. A network that is told what its teacher would play (the setting `advice`) does so from the first;
there only the critic has to learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, see

# The share of forced moves from which is learned.
FORCED_SHARE = 0.25

if TYPE_CHECKING:
    from patience_env.training.learner import Learner
    from patience_env.training.train import Plan


class WarmStart:
    """Rounds of play and learning; the network and its optimizer are those of the run.

    Args:
        model: the run's learner; its games are started anew.
        plan: of the run.
        teacher: a policy that plays the game.

    Attributes:
        steps: positions of a round.
    """

    def __init__(self, model: Learner, plan: Plan, teacher: Policy) -> None:
        self._model, self._settings, self._teacher = model, plan.settings, teacher
        self._length = model.n_steps
        self.steps = self._length * model.n_envs
        self._games = cast(Any, model.env)
        self._batch = self._games.venv.batch
        self._rng = np.random.default_rng(model.seed)
        self._copies = plan.settings["advice"] != plan.teacher
        teacher.start(int(self._rng.integers(2**31)))
        self._seen: NDArray[Any] = self._games.spread(
            lambda _, masks: self._advice(masks), plan.settings["spread_steps"]
        )

    def round(self, share: float) -> dict[str, float]:
        """Play `steps` positions and learn from each once; `share` of the warm start is done.

        Returns the means of the losses and of the probability that the pupil gives the teacher's actions.
        """
        settings = self._settings
        rate = settings["warm_learning_rate"] * (1 - 0.9 * share)
        for group in self._model.policy.optimizer.param_groups:
            group["lr"] = rate
        pupils = round(share * settings["warm_pupil"] * self._model.n_envs)
        return {**self._learn(*self._play(pupils)), "learning_rate": rate, "games_of_the_pupil": float(pupils)}

    def finish(self) -> None:
        """Let PPO go on with the games as they stand, its optimizer without memory of the warm start's gradients."""
        self._model.policy.optimizer.state.clear()
        self._model._last_obs = self._seen
        self._model._last_episode_starts = np.ones(self._model.n_envs, np.bool_)

    def _play(self, pupils: int) -> tuple[NDArray[Any], ...]:
        """Return what was seen, the legal actions, the teacher's and the returns, each (steps, ...)."""
        shape = (self._length, self._model.n_envs)
        seen = np.empty((*shape, *self._seen.shape[1:]), self._seen.dtype)
        masks = np.empty((*shape, self._batch.layout.actions), np.bool_)
        taught = np.empty(shape, np.int64)
        rewards, going = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self._model.policy.set_training_mode(False)
        for step in range(self._length):
            seen[step], masks[step] = self._seen, self._batch.action_masks()
            taught[step] = self._advice(masks[step])
            actions = taught[step].copy()
            if pupils:
                actions[:pupils] = self._tries(masks[step, :pupils])
            self._seen, rewards[step], over, _ = self._games.step(actions)
            going[step] = ~over
        with torch.no_grad():
            last = self._model.policy.predict_values(torch.as_tensor(self._seen)).flatten().numpy()
        returns = np.empty(shape, np.float32)
        for step in reversed(range(self._length)):
            last = rewards[step] + self._model.gamma * going[step] * last
            returns[step] = last
        return tuple(part.reshape(self.steps, *part.shape[2:]) for part in (seen, masks, taught, returns))

    def _advice(self, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the teacher's actions; where no action is legal (a deal over before it began) any will do."""
        taught = np.zeros(len(masks), np.int64)
        live = np.flatnonzero(masks.any(1))
        batch = self._batch
        turn = see(batch.game, batch.options, batch.states()[live], masks[live], int(self._rng.integers(2**63)))
        taught[live] = self._teacher.act(turn)
        return taught

    def _tries(self, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return actions drawn by the pupil's probabilities in the first games."""
        policy = self._model.policy
        with torch.no_grad():
            told: Any = policy.get_distribution(torch.as_tensor(self._seen[: len(masks)]))
        noisy = told.distribution.logits.numpy() + self._rng.gumbel(size=masks.shape)
        chosen: NDArray[np.int64] = np.where(masks, noisy, -np.inf).argmax(1)
        return chosen

    def _learn(
        self, seen: NDArray[Any], masks: NDArray[Any], taught: NDArray[Any], returns: NDArray[Any]
    ) -> dict[str, float]:
        model = self._model
        policy = model.policy
        policy.set_training_mode(True)
        choices = masks.sum(1)
        # As in `Decisions`: forced moves teach the critic alone.
        useful = (choices > 1) | ((choices == 1) & (self._rng.random(len(choices)) < FORCED_SHARE))
        order = self._rng.permutation(np.flatnonzero(useful))
        sums = np.zeros(3)
        size = self._settings["batch_size"]
        for start in range(0, len(order), size):
            part = order[start : start + size]
            values, log_chances, _ = policy.evaluate_actions(
                torch.as_tensor(seen[part]), torch.as_tensor(taught[part]), torch.as_tensor(masks[part])
            )
            missing = torch.nn.functional.mse_loss(values.flatten(), torch.as_tensor(returns[part]))
            surprise = -log_chances.mean()
            policy.optimizer.zero_grad()
            loss = model.vf_coef * missing + (surprise if self._copies else 0.0)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(policy.parameters(), model.max_grad_norm)
            policy.optimizer.step()
            agreement = log_chances.detach().exp().mean().item()
            sums += np.array([surprise.item(), missing.item(), agreement]) * len(part)
        names = ("cross_entropy", "value_loss", "agreement")
        return dict(zip(names, (sums / max(len(order), 1)).tolist(), strict=True))
