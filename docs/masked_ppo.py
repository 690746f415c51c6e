"""Masked PPO in one file: `python docs/masked_ppo.py` learns Patience Poker, fixed placement, for some 20 seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Categorical

import patience_env  # noqa: F401  (registers the environments)
from patience_env.encoding import CHANNELS, EMPTY_CHANNEL


@dataclass
class Args:
    """Everything that can be changed."""

    env_id: str = "PatiencePoker-v0"
    placement: str = "fixed"
    total_steps: int = 160_000
    num_envs: int = 64
    num_steps: int = 25  # of each game between two updates: here a whole game
    epochs: int = 2
    minibatch: int = 400
    learning_rate: float = 3e-3
    gamma: float = 1.0
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    reward_scale: float = 0.05  # so that values are of the order of one
    width: int = 64
    seed: int = 0


class Agent(nn.Module):
    """One small network looks at each row and column of the square: all that knows the game is here.

    It is told five numbers: how many cards of the line have the rank and the suit of the card in hand, how many cells
    are empty, the most cards of one rank and of one suit. It says how much the line wants the card, and what the line
    is worth. A cell's logit is what its row and its column want together; the value adds up all lines.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.line = nn.Sequential(
            nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, observations: torch.Tensor, masks: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        planes = observations.float()  # (games, 21, 5, 5): 19 channels of each cell, then those of the hand, and counts
        cells, hand = planes[:, :CHANNELS], planes[:, CHANNELS:].flatten(1)[:, :CHANNELS, None]
        lines = torch.cat([cells.sum(3), cells.sum(2)], 2)  # (games, 19, 5 rows and 5 columns): how many of each kind
        ranks, suits = lines[:, :13], lines[:, 13:17]
        same_rank, same_suit = (ranks * hand[:, :13]).sum(1), (suits * hand[:, 13:17]).sum(1)
        told = torch.stack([same_rank, same_suit, lines[:, EMPTY_CHANNEL], ranks.amax(1), suits.amax(1)], 2)
        wish, worth = self.line(told).unbind(2)
        logits = (wish[:, :5, None] + wish[:, None, 5:]).flatten(1)
        logits = logits.masked_fill(~masks, -1e9)  # illegal actions get no probability
        return Categorical(logits=logits, validate_args=False), worth.sum(1)


def train(args: Args) -> tuple[Agent, list[float]]:
    """Train an agent; return it and the mean score of the games that ended in each round of steps."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    # An episode's last step already shows the next game, so that no step is wasted.
    envs = gym.make_vec(args.env_id, args.num_envs, autoreset_mode=AutoresetMode.SAME_STEP, placement=args.placement)
    agent = Agent(args.width)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    observation, info = envs.reset(seed=args.seed)
    scores, running = [], np.zeros(args.num_envs)
    rounds = args.total_steps // (args.num_envs * args.num_steps)
    for number in range(rounds):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - number / rounds)
        steps, finished = [], []
        with torch.no_grad():
            for _ in range(args.num_steps):
                seen, mask = torch.as_tensor(observation), torch.as_tensor(info["action_mask"]).bool()
                choice, value = agent(seen, mask)
                action = choice.sample()
                observation, reward, terminated, truncated, info = envs.step(action.numpy())
                done = terminated | truncated  # games of Patience Poker are never truncated: no value to add there
                running += reward
                finished += running[done].tolist()
                running[done] = 0
                gain = torch.as_tensor(args.reward_scale * reward).float()
                steps.append((seen, mask, action, choice.log_prob(action), value, gain, torch.as_tensor(done).float()))
            next_value = agent(torch.as_tensor(observation), torch.as_tensor(info["action_mask"]).bool())[1]
        seen, mask, action, old_log, value, gain, done = (torch.stack(part) for part in zip(*steps, strict=True))
        # Generalised advantage estimation, from the last step back.
        advantage = torch.zeros_like(gain)
        later = torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            going = 1 - done[t]
            error = gain[t] + args.gamma * next_value * going - value[t]
            later = error + args.gamma * args.gae_lambda * going * later
            advantage[t], next_value = later, value[t]
        target = advantage + value
        batch = [part.flatten(0, 1) for part in (seen, mask, action, old_log, advantage, target)]
        for _ in range(args.epochs):
            for rows in torch.randperm(len(batch[0])).split(args.minibatch):
                x, legal, a, old, adv, wanted = (part[rows] for part in batch)
                choice, predicted = agent(x, legal)
                ratio = (choice.log_prob(a) - old).exp()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                surrogate = torch.min(ratio * adv, ratio.clamp(1 - args.clip, 1 + args.clip) * adv).mean()
                loss = -surrogate + 0.5 * (predicted - wanted).pow(2).mean() - args.entropy * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        scores.append(float(np.mean(finished)))
    return agent, scores


if __name__ == "__main__":
    began = time.perf_counter()
    scores = train(Args())[1]
    print(f"{len(scores)} rounds in {time.perf_counter() - began:.0f} s")
    print(f"mean score of the first {scores[0]:.1f}, of the last ten {np.mean(scores[-10:]):.1f}")
