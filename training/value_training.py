"""Train the value network of Patience Poker by playing against itself: `patience train-value --kind value`.

The network (see `patience_env.agents.board_values`) learns from its own games what each line of a tableau came to
score. Which plan a tableau follows (flushes one way and ranks the other, or straights, or ...) is settled early and
hardly ever left again, so a training begins with several short attempts: one learns from games of a line table, the
others from scratch with other random numbers. The attempt that plays best on deals of its own goes on.

The deals are drawn from 2**32 up, so no standard deal is ever seen; the validation deals only measure.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from patience_env import __version__
from patience_env.agents.board_values import (
    FEATURES,
    MOODS,
    VALUE_MODEL,
    Conditions,
    Net,
    load_net,
    net_for,
    new_space,
    play_values,
    record_games,
    relative_points,
    save_net,
)
from patience_env.agents.line_table import new_boards, points_of
from patience_env.agents.policy import Policy, make_policy, parse_policy, see
from patience_env.deals import RESERVED_DEALS, named_deals
from patience_env.game import get_game
from patience_env.games.patience_poker import CANVAS, CARDS, CENTRE, GAME, LOWEST_RANDOM, RANDOM_POINTS, SIDE
from patience_env.games.poker_hands import SCORED
from patience_env.kernels import sample
from patience_env.table import Rows
from patience_env.training.line_training import train_lines
from patience_env.training.models import read_pair, write_pair

CHECKPOINT = "checkpoint.json"
CURVE = "curve.json"
WIDTH = 32
LINES = 2 * SIDE
STAGES = CARDS - 1
# Games played between two rounds of learning, how many of the latest are learned from, and how often each is. (Older
# games were played by a weaker network: learning from 16,000 games three times was 3 points weaker after 40,000 games.)
PART, KEPT, PASSES = 500, 500, 1
BATCH = 1024
FIRST_RATE, LAST_RATE, WARM_GAMES = 2e-3, 1e-5, 2000
SMOOTHING = 0.999
# How many attempts there are, which share of all games each gets, and on how many deals they are compared.
ATTEMPTS, ATTEMPT_SHARE, ATTEMPT_DEALS = 4, 0.07, 4000
# The chance that a game begins with random moves (which are not learned from), at first and in the end.
FIRST_CHANCE, LAST_CHANCE = 0.6, 0.1
GAMES = 300_000
QUARTERS = 4.0
# With random tables: how many games of a part share one, how many of the latest games are learned from (there are many
# tables among them), how much it counts which hand a line came to be besides what it scored, and the share of tables
# whose points rise with the hands, as people make them.
SHARED, KEPT_RANDOM, HANDS_COUNT, RISING = 10, 2000, 1.0, 0.2
# With random tables line tables teach too: they are trained for so many tables, in so many games each, and play this
# share of the games in the first part of the training. Left alone, a network for any table finds no plan of straights.
TAUGHT_TABLES, TAUGHT_GAMES, TAUGHT_SHARE, TAUGHT_UNTIL = 80, 60_000, 0.5, 0.5
CHECKPOINT_SECONDS = 60.0
MEASURES = 20
_NAMES = ("w1", "b1", "w2", "b2", "w3", "b3")


class ValueNet(nn.Module):
    """The network in torch: the same function as `patience_env.agents.board_values` computes in play.

    Args:
        width: of both layers.
        seed: of the first weights.
        conditional: play for any scoring table, which `forward` is then told.
        features: how many a line is told.
        crossed: let lines hear those that cross their empty cells, which `forward` is then told.
    """

    def __init__(
        self, width: int, seed: int, conditional: bool = False, features: int = FEATURES, crossed: bool = False
    ) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)

        def weights(scale: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=random) * scale)

        self.w1 = weights((2 / 16) ** 0.5, 2, features, width)
        self.b1 = nn.Parameter(torch.zeros(2, width))
        self.w2 = weights(width**-0.5, 2, 4 if crossed else 3, width, width)
        self.w2.data[:, 1:] *= 0.1
        self.b2 = nn.Parameter(torch.zeros(2, width))
        self.w3 = weights(width**-0.5, 2, width)
        self.b3 = nn.Parameter(torch.zeros(2))
        self.conditional = conditional
        if conditional:
            self.t0 = nn.Parameter(torch.zeros(MOODS - 9))
            self.t1 = weights(0.5, 9, MOODS - 9)
            self.c1 = weights(0.15, 2, MOODS, width)
            self.g1 = weights(0.05, 2, MOODS, width)
            self.c2 = weights(0.15, 2, MOODS, width)
            self.g2 = weights(0.05, 2, MOODS, width)
            self.c3 = weights(width**-0.5, 2, 9, width)
            self.c4 = nn.Parameter(torch.zeros(2, 9))
            self.w3.data.zero_()

    def begin_with(self, net: Net, conditions: Conditions | None, facts: Mapping[str, Any]) -> None:
        """Take the weights of a saved network (its output in quarters of its largest points)."""
        scale = QUARTERS if conditions is not None else QUARTERS / relative_points(np.array(facts["points"]))[1]
        arrays = {**net._asdict(), "w3": net.w3 * scale, "b3": net.b3 * scale}
        if conditions is not None:
            arrays |= {**conditions._asdict(), "c3": conditions.c3 * scale, "c4": conditions.c4 * scale}
        with torch.no_grad():
            for name, value in self.named_parameters():
                value.copy_(torch.from_numpy(np.array(arrays[name], np.float32)))

    def forward(
        self,
        lines: torch.Tensor,
        going: torch.Tensor,
        tables: torch.Tensor | None = None,
        opened: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the points that each line is expected to make, (n, 10), in units of the training's scale.

        Args:
            lines: the features, (n, 10, features), rows first.
            going: 1 for an incomplete line, 0 for a complete one (it tells the others nothing), (n, 10).
            tables: the nine points divided by the largest, (n, 9), for a conditional network.
            opened: 1 where a row and a column cross at an empty cell, (n, 5, 5), for a crossed network.
        """
        return self.look(lines, going, tables, opened)[0]

    def look(
        self,
        lines: torch.Tensor,
        going: torch.Tensor,
        tables: torch.Tensor | None = None,
        opened: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what `forward` does, and how likely a conditional network thinks each of the nine hands, (n, 10, 9).

        The chances are in the same units: QUARTERS is certain.
        """
        count = lines.shape[0]
        b1, b2 = self.b1[None], self.b2[None]
        first = second = None
        if self.conditional:
            assert tables is not None
            mood = torch.cat([torch.relu(tables @ self.t1 + self.t0), tables], 1)
            b1 = b1 + torch.einsum("nt,ath->nah", mood, self.c1)
            b2 = b2 + torch.einsum("nt,ath->nah", mood, self.c2)
            first = 1 + torch.einsum("nt,ath->nah", mood, self.g1)
            second = 1 + torch.einsum("nt,ath->nah", mood, self.g2)
        shown = lines.view(count, 2, SIDE, lines.shape[2])
        vectors = torch.einsum("naif,afh->naih", shown, self.w1)
        if first is not None:
            vectors = vectors * first[:, :, None]
        vectors = torch.relu(vectors + b1[:, :, None]) * going.view(count, 2, SIDE, 1)
        pools = vectors.sum(2)
        base = torch.einsum("nah,ahk->nak", pools, self.w2[:, 1])
        if second is None:
            base = base + b2
        base = base + torch.einsum("nah,ahk->nak", pools.flip(1), self.w2[:, 2])
        hidden = torch.einsum("naih,ahk->naik", vectors, self.w2[:, 0]) + base[:, :, None]
        if self.w2.shape[1] > 3:
            assert opened is not None
            heard = [torch.bmm(opened, vectors[:, 1]), torch.bmm(opened.transpose(1, 2), vectors[:, 0])]
            hidden = hidden + torch.einsum("naih,ahk->naik", torch.stack(heard, 1), self.w2[:, 3])
        if second is not None:
            hidden = hidden * second[:, :, None] + b2[:, :, None]
        hidden = torch.relu(hidden)
        worth = ((hidden * self.w3[None, :, None]).sum(-1) + self.b3[None, :, None]).view(count, LINES)
        if tables is None or not self.conditional:
            return worth, None
        chances = torch.einsum("naih,ath->nait", hidden, self.c3) + self.c4[None, :, None]
        chances = chances.reshape(count, LINES, 9)
        return worth + torch.einsum("nlt,nt->nl", chances, tables), chances


def net_of(weights: Mapping[str, torch.Tensor], scale: float) -> Net:
    """Return the weights as compiled play takes them; `scale` turns the output into points (conditions apart)."""
    arrays = {name: weights[name].detach().cpu().numpy() for name in _NAMES}
    arrays["w3"], arrays["b3"] = arrays["w3"] * scale, arrays["b3"] * scale
    return Net(*(np.ascontiguousarray(arrays[name], np.float32) for name in _NAMES))


def conditions_of(weights: Mapping[str, torch.Tensor]) -> Conditions:
    """Return the conditions of a conditional network as compiled play takes them."""
    return Conditions(*(weights[name].detach().cpu().numpy().astype(np.float32) for name in Conditions._fields))


@dataclass(frozen=True)
class Plan:
    """What is to be trained.

    Attributes:
        scoring: the name of a scoring table, a mapping of the nine hands to numbers, or "random": one network that
            plays for any table, trained on tables of whole numbers from -128 to 127 drawn at random.
        placement: "touching" or "fixed".
        games: how many are played in all, attempts included.
        width: of the network.
        seed: of deals, random moves and first weights.
        attempts: how many short trainings compete at the beginning.
        teacher: the policy, written as for `patience evaluate`, whose games the first attempt begins with; "line" is a
            line table trained on the spot (with random tables: several, for some tables); "" none.
        start: the folder of a value model whose weights the first attempt begins with (of the other placement or of a
            like table, say), at a quarter of the learning rate; "" none.
        device: where torch learns ("cpu", "cuda"); play is compiled and runs on the processor.
    """

    scoring: str | Mapping[str, float] = "american"
    placement: str = "touching"
    games: int = GAMES
    width: int = WIDTH
    seed: int = 0
    attempts: int = ATTEMPTS
    teacher: str = "line"
    start: str = ""
    device: str = "cpu"

    def check(self) -> None:
        """Raise ValueError or TypeError where something is not allowed."""
        if self.scoring != "random":
            points_of(self.scoring)
        elif self.teacher not in ("", "line"):
            raise ValueError(f"teacher={self.teacher!r} is not allowed with scoring='random': only line, or none")
        if self.placement not in ("touching", "fixed"):
            raise ValueError(f"placement={self.placement!r} is not allowed: choose one of touching, fixed")
        for name, value, low, high in (
            ("games", self.games, PART, 10**9),
            ("width", self.width, 1, 1024),
            ("seed", self.seed, 0, 2**31),
            ("attempts", self.attempts, 1, 10),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{name}={value!r} is not allowed: give a whole number from {low:,} to {high:,}")
        if not isinstance(self.teacher, str):
            raise TypeError(f"teacher={self.teacher!r} is not allowed: write a policy as for patience evaluate")
        if self.teacher not in ("", "line"):
            self.find_teacher()
        if self.start:
            net, conditions, _ = load_net(self.start)
            if net.w1.shape[:2] != (2, FEATURES) or net.w2.shape[1] != 3:
                raise ValueError(f"start={self.start!r} does not fit: sweeping has made another kind of network of it")
            if net.b1.shape[1] != self.width or (conditions is None) != (self.scoring != "random"):
                raise ValueError(
                    f"start={self.start!r} does not fit: its network has width {net.b1.shape[1]} and "
                    f"{'no conditions' if conditions is None else 'conditions'}"
                )
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device={self.device!r} is not to be had here: {str(error).splitlines()[0]}") from None

    def options(self) -> dict[str, Any]:
        """Return the game's options in normal form."""
        return GAME.check_options({"placement": self.placement, "scoring": self.scoring})

    def find_teacher(self) -> Policy:
        """Return the policy that teaches.

        Raises:
            ValueError: there is no such policy, or it cannot play this.
        """
        name, options = parse_policy(self.teacher)
        policy = make_policy(name, GAME.id, **options)
        policy.check(GAME, self.options())
        return policy

    def facts(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it."""
        scoring = self.scoring if isinstance(self.scoring, str) else dict(self.scoring)
        named = ("placement", "games", "width", "seed", "attempts", "teacher", "start")
        return {"scoring": scoring, **{name: getattr(self, name) for name in named}}


class Memory:
    """The latest games, as `record_games` writes them: a ring of `kept` games at most."""

    def __init__(self, games: int, kept: int = KEPT) -> None:
        parts = max(1, min(kept, games) // PART)
        self.capacity = parts * PART
        self.inputs = np.zeros((self.capacity, STAGES, LINES, FEATURES), np.float32)
        self.weights = np.zeros((self.capacity, STAGES, LINES), np.float32)
        self.owners = np.zeros((self.capacity, STAGES, LINES), np.int8)
        self.hands = np.zeros((self.capacity, STAGES, LINES), np.int8)
        self.starts = np.zeros(self.capacity, np.int64)
        self.tables = np.zeros((self.capacity, 9), np.float32)
        self.largest = np.ones(self.capacity, np.float32)
        self.points = np.zeros((self.capacity, 10), np.float32)
        self.scores = np.zeros(self.capacity)
        self.clear()

    def clear(self) -> None:
        """Forget all games."""
        self.filled = self._at = 0

    def next_part(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays that the next `PART` games are written into: the last three are the tables."""
        part = slice(self._at, self._at + PART)
        self._at = (self._at + PART) % self.capacity
        self.filled = min(self.filled + PART, self.capacity)
        arrays = (self.inputs, self.weights, self.owners, self.hands, self.starts, self.scores)
        return tuple(array[part] for array in (*arrays, self.tables, self.largest, self.points))

    def draw(self, rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
        """Return features, weights, targets, hands and tables of positions to be learned from, drawn at random.

        There are `BATCH` of them; targets are divided by the largest points of their table.
        """
        places = rng.integers(0, self.filled * STAGES, 2 * BATCH)
        played = places[places % STAGES + 1 >= np.maximum(self.starts[places // STAGES], 1)][:BATCH]
        games = played // STAGES
        inputs, weights, hands = (
            array.reshape(-1, *array.shape[2:])[played] for array in (self.inputs, self.weights, self.hands)
        )
        targets = self.points[games[:, None], hands] / self.largest[games][:, None]
        return tuple(torch.from_numpy(array) for array in (inputs, weights, targets, hands, self.tables[games]))


@dataclass
class Learner:
    """One attempt: a network, its running mean (which plays), and its optimizer."""

    plan: Plan
    number: int
    games: int = 0
    steps: int = 0
    net: ValueNet = field(init=False)
    mean: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        conditional = self.plan.scoring == "random"
        self.net = ValueNet(self.plan.width, 1000 * self.plan.seed + self.number, conditional).to(self.plan.device)
        if self.plan.start and self.number == 0:
            self.net.begin_with(*load_net(self.plan.start))
        self.mean = {name: value.detach().clone() for name, value in self.net.named_parameters()}
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=FIRST_RATE)

    def learn(self, memory: Memory, rng: np.random.Generator, rate: float) -> float:
        """Learn for as long as one part of games is worth; return the mean loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rounds = PASSES * PART * STAGES // BATCH
        total = 0.0
        for _ in range(rounds):
            inputs, weights, targets, hands, tables = (one.to(self.plan.device) for one in memory.draw(rng))
            # The output is in quarters of the largest points.
            worth, chances = self.net.look(inputs, weights, tables)
            errors = (worth - QUARTERS * targets) ** 2
            if chances is not None:
                came = nn.functional.one_hot(hands.long(), 10)[:, :, 1:]
                errors = errors + HANDS_COUNT * ((chances - QUARTERS * came) ** 2).sum(-1)
            loss: Any = (errors * weights).sum() / weights.sum()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()
            self.steps += 1
            keep = min(SMOOTHING, self.steps / (self.steps + 10))
            with torch.no_grad():
                for name, value in self.net.named_parameters():
                    self.mean[name].lerp_(value, 1 - keep)
            total += float(loss.detach())
        return total / rounds

    def tensors(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return all that the learner must remember, as arrays."""
        found = {f"{prefix}mean.{name}": value.cpu().numpy() for name, value in self.mean.items()}
        found |= {f"{prefix}net.{name}": value.detach().cpu().numpy() for name, value in self.net.named_parameters()}
        state = self.optimizer.state_dict()["state"]
        for number, moments in state.items():
            for name, value in moments.items():
                found[f"{prefix}adam.{number}.{name}"] = np.asarray(value.cpu().numpy())
        return found

    def restore(self, tensors: Mapping[str, NDArray[Any]], prefix: str, games: int, steps: int) -> None:
        """Take back what `tensors` gave."""
        self.games, self.steps = games, steps
        with torch.no_grad():
            for name, value in self.net.named_parameters():
                value.copy_(torch.from_numpy(np.array(tensors[f"{prefix}net.{name}"])))
                self.mean[name].copy_(torch.from_numpy(np.array(tensors[f"{prefix}mean.{name}"])))
        state = self.optimizer.state_dict()
        start = f"{prefix}adam."
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for name, array in tensors.items():
            if name.startswith(start):
                number, _, kind = name[len(start) :].partition(".")
                moments.setdefault(int(number), {})[kind] = torch.from_numpy(np.array(array))
        state["state"] = moments
        self.optimizer.load_state_dict(state)


class ValueTraining:
    """A training in a folder: it can be stopped at any moment and goes on from its last checkpoint.

    What is not in a checkpoint are the latest games: they are played anew (other deals), so a resumed training ends
    with another network than an unbroken one, after the same number of games.

    Args:
        folder: of the model, the checkpoint, the curve and TensorBoard's files.
        plan: what to train.
        resume: go on from the folder's checkpoint.

    Raises:
        ValueError, TypeError: as `Plan.check`; or the checkpoint is damaged or belongs to another plan.
    """

    def __init__(self, folder: str | os.PathLike[str], plan: Plan, resume: bool = False) -> None:
        plan.check()
        self.plan = plan
        self.folder = Path(folder)
        self.points = None if plan.scoring == "random" else points_of(plan.scoring)
        self.touching = int(plan.placement == "touching")
        self.rng = np.random.default_rng(plan.seed)
        self.stream, self.boards = new_boards(1), new_boards(2)
        self.stream["rng"] = self.rng.integers(0, 2**64, dtype=np.uint64)
        self.space, self.worths = new_space(plan.width), np.zeros(CANVAS * CANVAS)
        self.lines: NDArray[np.float32] = np.zeros(0, np.float32)
        self.taught: list[tuple[NDArray[np.float64], NDArray[np.float32]]] = []  # with random tables
        self.teacher: Policy | None = None
        self.memory = Memory(plan.games, KEPT if self.points is not None else KEPT_RANDOM)
        self.learner = Learner(plan, 0)
        self.best: Learner | None = None
        self.results: list[float] = []  # of the attempts that are done
        self.curve: list[dict[str, float]] = []
        self.seconds = 0.0
        if resume:
            self._restore()

    # -- the course of a training ------------------------------------------------------------------------------

    @property
    def attempt_games(self) -> int:
        """How many games an attempt has, in whole parts."""
        if self.plan.attempts == 1:
            return 0
        return max(PART, int(ATTEMPT_SHARE * self.plan.games) // PART * PART)

    @property
    def done(self) -> int:
        """How many games have been played in all."""
        if len(self.results) < self.plan.attempts and self.plan.attempts > 1:
            return len(self.results) * self.attempt_games + self.learner.games
        return (max(1, self.plan.attempts) - 1) * self.attempt_games + self.learner.games

    def run(self, show: Callable[[float, str], None] | None = None) -> None:
        """Train to the end.

        `show` is called after each part with the share done and a line of text.
        """
        from torch.utils.tensorboard import SummaryWriter

        if not (self.folder / CHECKPOINT).exists():
            self.save_checkpoint()  # before the logs, so that a kill before the first one is due can be resumed too
        writer = SummaryWriter(str(self.folder / "tensorboard"))
        saved = began = time.monotonic()
        spent = self.seconds
        measured = len(self.curve)
        torch.set_num_threads(1)
        try:
            while self.done < self.plan.games:
                loss, score = self._part()
                self.seconds = spent + time.monotonic() - began
                share = self.done / self.plan.games
                writer.add_scalar("self-play/score", score, self.done)
                writer.add_scalar("training/loss", loss, self.done)
                if share * MEASURES >= measured + 1:
                    measured = int(share * MEASURES)
                    self.curve.append({"games": self.done, "seconds": self.seconds, "validation": self.validate()})
                    writer.add_scalar("validation/score", self.curve[-1]["validation"], self.done)
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self.save_checkpoint()
                    saved = time.monotonic()
                if show is not None:
                    latest = f", validation {self.curve[-1]['validation']:.1f}" if self.curve else ""
                    stage = f"attempt {len(self.results) + 1}" if len(self.results) < self.plan.attempts > 1 else "best"
                    show(share, f"{stage}: {self.done:,} games, mean {score:.1f}{latest}")
        finally:
            writer.close()
        self.save_checkpoint()

    def _part(self) -> tuple[float, float]:
        """Play and learn one part; return the loss and the mean score."""
        trying = self.plan.attempts > 1 and len(self.results) < self.plan.attempts
        learner = self.learner
        whole = self.plan.games - (self.plan.attempts - 1) * self.attempt_games
        share = learner.games / max(1, whole)
        taught = (
            self.plan.teacher != ""
            and self.points is not None
            and learner.number == 0
            and learner.games < 0.7 * (self.attempt_games or 0.1 * whole)
        )
        chance = FIRST_CHANCE + (LAST_CHANCE - FIRST_CHANCE) * share
        part = self.memory.next_part()
        deals = self.rng.integers(RESERVED_DEALS, 2**64, PART, dtype=np.uint64)
        lines, script = np.zeros(0, np.float32), np.zeros((0, CARDS), np.int64)
        if taught and self.plan.teacher == "line":
            lines = self._teacher_lines()
        elif taught:
            script = self._teach(deals, chance, part[4])
        step = PART if self.points is not None else SHARED
        for first in range(0, PART, step):
            some = slice(first, first + step)
            if self.points is None and self.plan.teacher and share < TAUGHT_UNTIL:
                points, lines = self._taught_table()
            else:
                points = self._draw_table() if self.points is None else self.points
            part[6][some], part[7][some] = relative_points(points)
            part[8][some] = points
            record_games(
                deals[some],
                script[some],
                self.stream,
                self.boards,
                self.net(points),
                self.space,
                lines,
                points,
                self.touching,
                chance,
                self.worths,
                *(array[some] for array in part[:6]),
            )
        learner.games += PART
        top = FIRST_RATE / 4 if self.plan.start and learner.number == 0 else FIRST_RATE
        rate = LAST_RATE + top * min(1.0, learner.games / WARM_GAMES) * (1 + math.cos(math.pi * share)) / 2
        loss = learner.learn(self.memory, self.rng, rate)
        score = float(part[5].mean())
        if trying and learner.games >= self.attempt_games:
            self._end_attempt()
        return loss, score

    def _draw_table(self) -> NDArray[np.float64]:
        """Return ten points, nine of them random: as `scoring="random"` draws them, or rising with the hands."""
        if self.rng.random() < RISING:
            rising = np.exp(np.arange(9) * self.rng.uniform(0.2, 0.7) + self.rng.normal(0.0, 0.3, 9))
            return np.array([0.0, *(100 * rising / rising.max())])
        low, high = LOWEST_RANDOM, LOWEST_RANDOM + RANDOM_POINTS
        return np.array([0.0, *self.rng.integers(low, high, 9)])

    def _taught_table(self) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Return ten points and the line table that plays for them; an empty one where the network is to play."""
        if self.rng.random() >= TAUGHT_SHARE:
            return self._draw_table(), np.zeros(0, np.float32)
        if not self.taught:
            for number in range(TAUGHT_TABLES):
                points = self._draw_table()
                table = dict(zip(SCORED, points[1:].tolist(), strict=True))
                trained = train_lines(table, self.plan.placement, games=TAUGHT_GAMES, seed=self.plan.seed + number)
                self.taught.append((points, trained.values))
        return self.taught[int(self.rng.integers(len(self.taught)))]

    def net(self, points: NDArray[np.float64]) -> Net:
        """Return the running mean of the network, for a scoring table."""
        if self.points is None:
            return net_for(net_of(self.learner.mean, 1 / QUARTERS), self._conditions(), points)
        return net_of(self.learner.mean, relative_points(self.points)[1] / QUARTERS)

    def _conditions(self) -> Conditions:
        found = conditions_of(self.learner.mean)
        return found._replace(c3=found.c3 / np.float32(QUARTERS), c4=found.c4 / np.float32(QUARTERS))

    def _teacher_lines(self) -> NDArray[np.float32]:
        """Return the line table that teaches, trained when first asked for."""
        if not len(self.lines):
            plan = self.plan
            games = min(500_000, 2 * plan.games)
            self.lines = train_lines(plan.scoring, plan.placement, games=games, seed=plan.seed).values
        return self.lines

    def _teach(self, deals: NDArray[np.uint64], chance: float, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Let the teacher play deals, some with one random move; return the cells, and write `starts`."""
        if self.teacher is None:
            self.teacher = self.plan.find_teacher()
            self.teacher.start(self.plan.seed)
        count = len(deals)
        options = self.plan.options()
        rows = Rows(get_game(GAME.id), options, count, "cards", False)
        rows.reset(rows.all_rows, deals)
        odd = np.where(self.rng.random(count) < chance, self.rng.integers(0, CARDS - 2, count), -1)
        starts[:] = odd + 1
        script = np.zeros((count, CARDS), np.int64)
        script[:, 0] = CENTRE
        idle = np.zeros(count, np.bool_)
        for placed in range(self.touching, CARDS):
            turn = see(GAME, options, rows.states, rows.masks, int(self.rng.integers(2**63)))
            cells = self.teacher.act(turn)
            cells = np.where(odd == placed, sample(rows.masks, self.rng), cells)
            script[:, placed] = cells
            rows.step(cells, idle)
        return script

    def _end_attempt(self) -> None:
        result = self._mean_score(np.arange(ATTEMPT_DEALS, dtype=np.uint64) + np.uint64(RESERVED_DEALS))
        if self.best is None or result > max(self.results):
            self.best = self.learner
        self.results.append(result)
        self.memory.clear()
        if len(self.results) < self.plan.attempts:
            self.learner = Learner(self.plan, len(self.results))
        else:
            self.learner, self.best = self.best, None

    def _mean_score(self, deals: NDArray[np.uint64]) -> float:
        """Return the mean score on deals; with random tables each deal has the table that the game draws for it."""
        scores = np.zeros(len(deals))
        if self.points is not None:
            net, space = self.net(self.points), self.space
            play_values(deals, self.boards, net, space, self.points, self.touching, self.worths, scores)
            return float(scores.mean())
        rows = Rows(get_game(GAME.id), self.plan.options(), len(deals), "cards", False)
        rows.reset(rows.all_rows, deals)
        for i in range(len(deals)):
            points = rows.states["points"][i]
            own, net = slice(i, i + 1), self.net(points)
            play_values(
                deals[own], self.boards, net, self.space, points.copy(), self.touching, self.worths, scores[own]
            )
        return float(scores.mean())

    def validate(self) -> float:
        """Return the mean score on the validation deals."""
        return self._mean_score(np.array(named_deals("validation"), np.uint64))

    # -- files -----------------------------------------------------------------------------------------------------

    def save_checkpoint(self) -> None:
        """Write the checkpoint, the curve and the model as it is now."""
        learner, best = self.learner, self.best
        tensors = learner.tensors("")
        facts = {
            "plan": self.plan.facts(),
            "version": __version__,
            "learner": [learner.number, learner.games, learner.steps],
            "best": None,
            "results": self.results,
            "curve": self.curve,
            "seconds": self.seconds,
            "stream": str(int(self.stream["rng"][0])),
            "rng": json.loads(json.dumps(self.rng.bit_generator.state)),
        }
        if best is not None:
            tensors |= best.tensors("best.")
            facts["best"] = [best.number, best.games, best.steps]
        self.folder.mkdir(parents=True, exist_ok=True)
        write_pair(self.folder / CHECKPOINT, tensors, facts)
        self.save_model()

    def save_model(self, **facts: Any) -> None:
        """Write the network as it is now as a model that the policy "value" plays."""
        made = {
            "training": {
                **self.plan.facts(),
                "start": Path(self.plan.start).name,  # a model travels: the path was this machine's
                "played": self.done,
                "seconds": round(self.seconds, 1),
            },
            "attempts": self.results,
            "curve": self.curve,
        }
        points = None if self.points is None else self.points.tolist()
        known = {"placement": self.plan.placement, "points": points, "version": __version__}
        if self.points is None:
            net, conditions = net_of(self.learner.mean, 1 / QUARTERS), self._conditions()
            save_net(self.folder, net, {**known, **made, **facts}, conditions)
        else:
            save_net(self.folder, self.net(self.points), {**known, **made, **facts})

    def _restore(self) -> None:
        facts, tensors = read_pair(self.folder / CHECKPOINT, "checkpoint")
        if facts.get("plan") != json.loads(json.dumps(self.plan.facts())):
            raise ValueError(
                f"the checkpoint in {str(self.folder)!r} belongs to another training ({facts.get('plan')}): resume it "
                "with the same settings"
            )
        try:
            number, games, steps = facts["learner"]
            self.learner = Learner(self.plan, number)
            self.learner.restore(tensors, "", games, steps)
            if facts["best"] is not None:
                number, games, steps = facts["best"]
                self.best = Learner(self.plan, number)
                self.best.restore(tensors, "best.", games, steps)
            self.results, self.curve, self.seconds = facts["results"], facts["curve"], facts["seconds"]
            self.stream["rng"] = np.uint64(int(facts["stream"]))
            self.rng.bit_generator.state = facts["rng"]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"the checkpoint in {str(self.folder)!r} is not one of this version's: {error!r}"
            ) from error


def find_plan(folder: str | os.PathLike[str], device: str = "cpu") -> Plan:
    """Return the plan of the checkpoint in a folder.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    facts, _ = read_pair(Path(folder) / CHECKPOINT, "checkpoint")
    try:
        return Plan(**facts["plan"], device=device)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the checkpoint in {str(folder)!r} is not one of this version's: {error!r}") from error


__all__ = ["CHECKPOINT", "VALUE_MODEL", "Plan", "ValueNet", "ValueTraining", "find_plan", "net_of"]
