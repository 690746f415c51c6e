"""Networks for MaskablePPO: line values shared by the policy and the critic of Patience Poker.

A tableau is worth what its lines are worth, and a line of cards is worth the same wherever it lies, so one small
network values every row and another every column (they must be able to differ: collecting suits one way and ranks the
other is the plan that pays). The policy looks one placement ahead: the logit of a cell is what its row and its column
gain by the card in hand, times a learned sharpness. The critic is the sum of the same line values plus the gain that
the policy expects. What the critic learns about lines therefore changes play at once, which is why this learns in
minutes what a flat network does not find in hours.

A line is shown to the network by counts that no renaming of suits and no order of its cells changes: see `FEATURES`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from patience_env.agents.policy import KernelPolicy
from patience_env.cards import CHANNELS, EMPTY_CHANNEL
from patience_env.jit import helper, kernel
from patience_env.training.advice import ENTRIES, advised

SIDE = 5
CANVAS = 9
COUNTERS = 17
# What a line shows the network. "Unseen" counts the cards that may still come; a window is five ranks of a straight.
FEATURES = (
    *(f"{n} cards" for n in range(SIDE + 1)),
    *(f"{what} that lie {k} times" for k in (1, 2, 3, 4) for what in ("ranks", "unseen of the ranks")),
    "one suit",
    "unseen of the suit",
    "other lines of the suit",
    "windows",
    "any window",
    "unseen of the best window",
    "unseen of all windows",
    "cards placed",
    "cards placed, squared",
)


@helper
def count_lines(observation, side, ranks, suits, sizes):  # type: ignore[no-untyped-def]
    """Count the ranks and suits of the cards in each row (lines 0 to side - 1) and column (the next) of the grid."""
    cells = side * side
    ranks[:] = 0
    suits[:] = 0
    sizes[:] = 0
    for cell in range(cells):
        if observation[EMPTY_CHANNEL * cells + cell] == 0:
            rank = 0
            while observation[rank * cells + cell] == 0:
                rank += 1
            suit = 0
            while observation[(13 + suit) * cells + cell] == 0:
                suit += 1
            for line in (cell // side, side + cell % side):
                ranks[line, rank] += 1
                suits[line, suit] += 1
                sizes[line] += 1


@helper
def describe_ranks(counts, size, unseen, features):  # type: ignore[no-untyped-def]
    """Write how often ranks lie in a line, which straights it can still become, and what may come for either."""
    distinct = 0
    for rank in range(13):
        count = int(counts[rank])
        if count > 0:
            distinct += 1
            features[6 + 2 * (count - 1)] += 0.5
            features[7 + 2 * (count - 1)] += 0.25 * unseen[rank]
    if distinct < size:
        return
    for lowest in range(10):
        held = 0
        coming = 0.0
        missing = False
        for step in range(5):
            rank = (lowest + step) % 13
            if counts[rank] > 0:
                held += 1
            elif unseen[rank] > 0:
                coming += unseen[rank]
            else:
                missing = True
        if held == size and not missing:
            features[17] += 0.2
            features[18] = 1.0
            features[19] = max(features[19], 0.1 * coming)
            features[20] += 0.025 * coming


@helper
def describe_lines(side, first, ranks, suits, sizes, rank, suit, unseen, placed, features):  # type: ignore[no-untyped-def]
    """Write the features of `side` lines from `first` on, each with one more card of `rank` and `suit` (none: -1)."""
    for i in range(side):
        line = first + i
        out = features[i]
        size = int(sizes[line])
        if rank >= 0:
            if size == SIDE:
                continue
            ranks[line, rank] += 1
            suits[line, suit] += 1
            size += 1
        out[size] = 1.0
        describe_ranks(ranks[line], size, unseen, out)
        for one in range(4):
            if size > 0 and suits[line, one] == size:
                out[14] = 1.0
                out[15] = 0.1 * unseen[13 + one]
                for other in range(first, first + side):
                    if other != line and 0 < sizes[other] < SIDE and suits[other, one] == sizes[other]:
                        out[16] += 0.5
        out[21] = 0.04 * placed
        out[22] = 0.0016 * placed * placed
        if rank >= 0:
            ranks[line, rank] -= 1
            suits[line, suit] -= 1


@helper
def weigh_lines(sizes, first, side, weights):  # type: ignore[no-untyped-def]
    """Write how much each line counts: 1 while incomplete, 0 when complete; the empty ones share what five lines want.

    On the canvas of 9 the cards are connected, so the lines that they span hold a card each, and 5 less so many empty
    ones will be used.
    """
    used = 0
    for i in range(side):
        if sizes[first + i] > 0:
            used += 1
    for i in range(side):
        size = sizes[first + i]
        if size == 0:
            weights[i] = (SIDE - used) / (side - used)
        else:
            weights[i] = 1.0 if size < SIDE else 0.0


@helper
def find_legal(sizes, observation, side, legal):  # type: ignore[no-untyped-def]
    """Mark the cells that may take the card, as the rules of both placements have it."""
    cells = side * side
    top, bottom, left, right = side, -1, side, -1
    for i in range(side):
        if sizes[i] > 0:
            top = min(top, i)
            bottom = max(bottom, i)
        if sizes[side + i] > 0:
            left = min(left, i)
            right = max(right, i)
    for cell in range(cells):
        row = cell // side
        column = cell % side
        free = observation[EMPTY_CHANNEL * cells + cell] != 0
        if side == CANVAS and bottom >= 0:
            free = free and bottom - SIDE < row < top + SIDE and right - SIDE < column < left + SIDE
            near = False
            for r in range(max(row - 1, 0), min(row + 2, side)):
                for c in range(max(column - 1, 0), min(column + 2, side)):
                    if observation[EMPTY_CHANNEL * cells + side * r + c] == 0:
                        near = True
            free = free and near
        legal[cell] = 1.0 if free else 0.0


@kernel
def look(observations, side, ranks, suits, sizes, features, weights, legal):  # type: ignore[no-untyped-def]
    """Write features, weights and legal cells of every observation (float32, flat planes form).

    `features`: (n, 2, 2, side, features): before and after the card in hand; rows and columns. `weights`: (n, 2, side).
    `legal`: (n, side * side). `ranks`, `suits`, `sizes` are scratch for one board's lines.
    """
    cells = side * side
    for i in range(observations.shape[0]):
        observation = observations[i]
        count_lines(observation, side, ranks, suits, sizes)
        hand = observation[CHANNELS * cells : CHANNELS * cells + CHANNELS]
        unseen = observation[CHANNELS * cells + CHANNELS : CHANNELS * cells + CHANNELS + COUNTERS]
        rank = -1
        suit = -1
        for k in range(13):
            if hand[k] != 0:
                rank = k
        for k in range(4):
            if hand[13 + k] != 0:
                suit = k
        placed = 0
        for line in range(side):
            placed += int(sizes[line])
        for way in range(2):
            first = way * side
            describe_lines(side, first, ranks, suits, sizes, -1, -1, unseen, placed, features[i, 0, way])
            if rank >= 0:
                describe_lines(side, first, ranks, suits, sizes, rank, suit, unseen, placed, features[i, 1, way])
            weigh_lines(sizes, first, side, weights[i, way])
        find_legal(sizes, observation, side, legal[i])


class LineFeatures(BaseFeaturesExtractor):
    """Features of every line before and after the card in hand, from the planes form of Patience Poker.

    The flat output holds, one after the other: features (2, 2, side, `size`), weights of the lines (2, side) and legal
    cells (side, side). Counters beyond the usual 17 (a series' points wanted, a drawn scoring table) are shown to every
    line, in hundreds. Nothing here is learned.

    Raises:
        ValueError: the observations are not those of Patience Poker in the planes form.
    """

    def __init__(self, observation_space: spaces.Box) -> None:
        shape = observation_space.shape
        if len(shape) != 3 or shape[1:] not in ((SIDE, SIDE), (CANVAS, CANVAS)) or shape[0] <= CHANNELS:
            raise ValueError(
                f"the lines network reads the planes observations of PatiencePoker-v0 "
                f"(shape (channels, 5, 5) or (channels, 9, 9)), not observations of shape {shape}"
            )
        self.side: int = shape[1]
        known = (CHANNELS * (self.side**2 + 1)) + COUNTERS
        # Padding is told from counters by its range, 0 to 1.
        high, low = observation_space.high.reshape(-1), observation_space.low.reshape(-1)
        extras = known + np.flatnonzero((high[known:] > 1) | (low[known:] < 0))
        self.size = len(FEATURES) + len(extras)
        super().__init__(observation_space, 4 * self.side * self.size + 2 * self.side + self.side**2)
        self._extras: list[int] = extras.tolist()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        flat = np.ascontiguousarray(observations.detach().cpu().numpy().reshape(len(observations), -1), np.float32)
        count, side = len(flat), self.side
        features = np.zeros((count, 2, 2, side, len(FEATURES)), np.float32)
        weights = np.zeros((count, 2, side), np.float32)
        legal = np.zeros((count, side * side), np.float32)
        scratch = (np.zeros((2 * side, 13), np.int8), np.zeros((2 * side, 4), np.int8), np.zeros(2 * side, np.int8))
        look(flat, side, *scratch, features, weights, legal)
        if self._extras:
            extras = flat[:, None, None, None, self._extras] * np.float32(0.01)
            features = np.concatenate([features, np.broadcast_to(extras, (count, 2, 2, side, extras.shape[-1]))], -1)
        parts = [part.reshape(count, -1) for part in (features, weights, legal)]
        return torch.from_numpy(np.concatenate(parts, 1)).to(observations.device)


class LineValues(nn.Module):
    """From the output of `LineFeatures` to logits and value (see the module's docstring)."""

    def __init__(self, side: int, size: int, width: int, sharpness: float) -> None:
        super().__init__()
        self.side, self.size = side, size
        self.row = self._network(size, width)
        self.column = self._network(size, width)
        self.log_sharpness = nn.Parameter(torch.tensor(float(np.log(sharpness))))

    @staticmethod
    def _network(size: int, width: int) -> nn.Sequential:
        last = nn.Linear(width, 1)
        with torch.no_grad():
            last.weight.mul_(0.1)
            last.bias.zero_()
        return nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)

    def line_values(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values of the lines (n, before or after, rows or columns, side) and their weights (n, 2, side)."""
        lines, weights, _ = self._parts(features)
        return torch.stack([self.row(lines[:, :, 0]), self.column(lines[:, :, 1])], 2)[..., 0], weights

    def _parts(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        side = self.side
        lines, weights, legal = torch.split(features, [4 * side * self.size, 2 * side, side * side], 1)
        return lines.view(-1, 2, 2, side, self.size), weights.view(-1, 2, side), legal

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (n, cells) and values (n, 1)."""
        _, _, legal = self._parts(features)
        values, weights = self.line_values(features)
        gain = values[:, 1] - values[:, 0]
        gains = (gain[:, 0, :, None] + gain[:, 1, None, :]).flatten(1)
        logits = self.log_sharpness.exp() * gains
        # The critic expects what the policy does, but is no way for its loss to change what the policy prefers.
        likely = torch.softmax(logits.detach().masked_fill(legal == 0, -1e8), 1)
        worth = (values[:, 0] * weights).sum((1, 2)) + (likely * gains).sum(1)
        return logits, worth[:, None]


# The logit of an action that is not legal, or not looked at.
OUT_OF_THE_QUESTION = -1e8


class Trust(nn.Module):
    """How far a network follows its adviser: the bonus of the advised action's logit, `start` at the start.

    Of several `choices` each has its own bonus, at the start half that of the one before it.
    """

    def __init__(self, start: float, choices: int = 0) -> None:
        super().__init__()
        bonus = start * 0.5 ** torch.arange(choices) if choices else torch.tensor(float(start))
        self.bonus = nn.Parameter(bonus)

    def forward(self, ranks: NDArray[np.int8]) -> torch.Tensor:
        """Return what the logits of actions rise by; `ranks` as `patience_env.training.advice.ranks_of` tells them."""
        each = torch.from_numpy(ranks.astype(np.int64))
        bonus = self.bonus.reshape(-1)
        return torch.where(each >= 0, bonus[each.clamp(min=0)], bonus.new_zeros(()))


class LookingPolicy(MaskableActorCriticPolicy):
    """A policy whose logits and values come at once, from `_look`, without SB3's networks between.

    Attributes:
        adviser: the rule of thumb whose choice the last entries of its input tell, None for none.
        choices: how many of its choices they tell, of which one is played; 0: the first, and any action is played.
    """

    adviser: KernelPolicy | None = None
    choices: int = 0
    _first_trust: float = 0.0

    @abstractmethod
    def _look(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (n, actions) and values (n, 1)."""

    def told(self, obs: Any) -> NDArray[np.int64]:
        """Return the adviser's choices that the input tells, int64, shape (n, max(choices, 1))."""
        return advised(torch.as_tensor(obs)[:, -ENTRIES * max(self.choices, 1) :].cpu().numpy())

    def advice_parameters(self) -> dict[str, Any]:
        """Return what the constructor was told of an adviser."""
        return {"adviser": self.adviser, "trust": self._first_trust, "choices": self.choices}

    def logits(self, obs: Any) -> torch.Tensor:
        """Return the logits, shape (n, actions)."""
        return self._look(obs)[0]

    def _distribution(self, logits: torch.Tensor, masks: Any) -> MaskableDistribution:
        distribution: MaskableDistribution = self.action_dist.proba_distribution(action_logits=logits)
        if masks is not None:
            distribution.apply_masking(masks)
        return distribution

    def forward(
        self, obs: torch.Tensor, deterministic: bool = False, action_masks: NDArray[Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions, values and the actions' log probabilities."""
        logits, values = self._look(obs)
        distribution = self._distribution(logits, action_masks)
        actions = distribution.get_actions(deterministic=deterministic)
        return actions, values, distribution.log_prob(actions)

    def evaluate_actions(
        self, obs: torch.Tensor, actions: torch.Tensor, action_masks: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return values, log probabilities of the given actions, and entropies."""
        logits, values = self._look(obs)
        distribution = self._distribution(logits, action_masks)
        return values, distribution.log_prob(actions), distribution.entropy()

    def get_distribution(self, obs: Any, action_masks: NDArray[Any] | None = None) -> MaskableDistribution:
        """Return the distribution of the actions."""
        return self._distribution(self._look(obs)[0], action_masks)

    def predict_values(self, obs: Any) -> torch.Tensor:
        """Return the values, shape (n, 1)."""
        return self._look(obs)[1]


class AfterstatePolicy(LookingPolicy):
    """The policy class to give to MaskablePPO: `MaskablePPO(AfterstatePolicy, env, policy_kwargs={"width": 64})`.

    Args:
        observation_space, action_space, lr_schedule: as every SB3 policy.
        width: hidden units of the two line networks.
        sharpness: the factor from gains to logits at the start, in units of one scaled reward; it is learned.
        **others: as `MaskableActorCriticPolicy`; the features extractor is fixed.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        action_space: spaces.Discrete,
        lr_schedule: Callable[[float], float],
        *,
        width: int = 64,
        sharpness: float = 8.0,
        **others: Any,
    ) -> None:
        self._width, self._sharpness = width, sharpness
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[],
            ortho_init=False,
            features_extractor_class=LineFeatures,
            **others,
        )

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        extractor = self.features_extractor
        assert isinstance(extractor, LineFeatures)
        self._build_mlp_extractor()
        self.lines = LineValues(extractor.side, extractor.size, self._width, self._sharpness)
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"width": self._width, "sharpness": self._sharpness}

    def _look(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits, values = self.lines(self.extract_features(obs, self.features_extractor))
        return logits, values
