"""A network for any game, on the "cards" form of its observations: card embeddings shared over all places.

What the network is shown of a table (`CardView`):

* the cards of places that the network knows one by one. Places whose names differ only in their last number are a row
  (a pile, a row of the tableau, the Divan); a row of more than `2 * depth` places shows its first and its last `depth`
  cards only, so that the top of a pile is found wherever it lies. Every card is embedded by one table, and each place
  has weights of its own (its embedding) that the first layer multiplies it with;
* how many cards of each code lie in each group of places (names alike but for all their numbers): the order forgotten,
  nothing else. A talon of 87 cards costs no more than a hand of eight;
* the counters, each divided by its greatest value;
* which actions are legal. The player is told anyway, and legality says what fits on what.

Then comes a layer that policy and critic share, and a layer of each one's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from patience_env.agents.policy import KernelPolicy
from patience_env.cards import FACE_DOWN
from patience_env.game import Layout
from patience_env.jit import kernel
from patience_env.training.advice import ENTRIES, ranks_of
from patience_env.training.networks import OUT_OF_THE_QUESTION, LookingPolicy, Trust

CODES = FACE_DOWN + 1
# A group of fewer places is told well enough by its places.
LEAST_GROUP = 5


@dataclass(frozen=True)
class CardView:
    """Which cards of a layout the network is shown, and how.

    Attributes:
        places, counters, actions: the sizes of the layout.
        order: the places row by row, int64, shape (places,).
        rows: first index into `order` and length of each row, int64, shape (rows, 2).
        groups: the group of each place, -1 for none, int64, shape (places,).
        group_count: how many groups there are.
        scales: the greatest value of each counter (at least 1), float32, shape (counters,).
        depth: how many cards at either end of a long row are shown.
        shown: how many cards are shown one by one.
    """

    places: int
    counters: int
    actions: int
    order: NDArray[np.int64]
    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    group_count: int
    scales: NDArray[np.float32]
    depth: int
    shown: int


def view_cards(layout: Layout, depth: int) -> CardView:
    """Return the view of a layout whose long rows show `depth` cards at either end."""
    rows: dict[str, list[int]] = {}
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(layout.places):
        rows.setdefault(re.sub(r"\d+(?=\D*$)", "#", name), []).append(place)
        groups.setdefault(re.sub(r"\d+", "#", name), []).append(place)
    lengths = np.array([len(row) for row in rows.values()], np.int64)
    kept = [group for group in groups.values() if len(group) >= LEAST_GROUP]
    group_of = np.full(len(layout.places), -1, np.int64)
    for index, group in enumerate(kept):
        group_of[group] = index
    return CardView(
        places=len(layout.places),
        counters=len(layout.counters),
        actions=layout.actions,
        order=np.concatenate([np.array(row, np.int64) for row in rows.values()]),
        rows=np.stack([np.cumsum(lengths) - lengths, lengths], 1),
        groups=group_of,
        group_count=len(kept),
        scales=np.array([max(abs(counter.low), abs(counter.high), 1) for counter in layout.counters], np.float32),
        depth=depth,
        shown=int(np.minimum(lengths, 2 * depth).sum()),
    )


@kernel
def lay_out(cards, order, rows, groups, depth, codes, counts):  # type: ignore[no-untyped-def]
    """Write the codes of the cards that are shown and the counts of each group.

    `cards`: (n, at least places). `codes`: int64 or int8, (n, shown). `counts`: float32, (n, groups, CODES), zeros
    before; in tenths for the codes of no card and of a face-down one, in halves for cards, of which two packs hold two.
    """
    for i in range(cards.shape[0]):
        entry = 0
        for row in range(rows.shape[0]):
            first = int(rows[row, 0])
            length = int(rows[row, 1])
            if length <= 2 * depth:
                for place in range(first, first + length):
                    codes[i, entry] = int(cards[i, order[place]])
                    entry += 1
                continue
            last = length
            while last > 0 and cards[i, order[first + last - 1]] == 0:
                last -= 1
            for step in range(depth):
                codes[i, entry] = int(cards[i, order[first + step]])
                place = last - 1 - step
                codes[i, entry + depth] = int(cards[i, order[first + place]]) if place >= 0 else 0
                entry += 1
            entry += depth
        for place in range(groups.shape[0]):
            group = int(groups[place])
            if group >= 0:
                code = int(cards[i, place])
                counts[i, group, code] += 0.5 if 0 < code < CODES - 1 else 0.1


class CardFeatures(BaseFeaturesExtractor):
    """The part of the network that policy and critic share, up to a layer of `width` units.

    Its input is an observation in the cards form followed by the mask of legal actions, shape (n, places + counters +
    actions, and the entries of an adviser's choices, which it passes over): see
    `patience_env.training.models.network_input`.

    Args:
        observation_space: the Box of that input.
        view: what is shown.
        embedding: entries of a card's embedding.
        width: units of the layer.
        advised: how many choices of an adviser follow.

    Raises:
        ValueError: the observations are not of the view's shape.
    """

    sees_masks = True

    def __init__(
        self, observation_space: spaces.Box, view: CardView, embedding: int, width: int, advised: int = 0
    ) -> None:
        wanted = (view.places + view.counters + view.actions + ENTRIES * advised,)
        if observation_space.shape != wanted:
            raise ValueError(
                f"the cards network reads {view.places} cards, {view.counters} counters and {view.actions} legal "
                f"actions (shape {wanted}), not observations of shape {observation_space.shape}"
            )
        super().__init__(observation_space, width)
        self._view = view
        self.cards = nn.Embedding(CODES, embedding)
        with torch.no_grad():
            self.cards.weight.copy_(first_embedding(embedding))
        size = view.shown * embedding + view.group_count * CODES + view.counters + view.actions
        self.layer = nn.Linear(size, width)
        self._scales = torch.from_numpy(view.scales)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        view = self._view
        seen = observations.detach()
        cards = np.ascontiguousarray(seen[:, : view.places].to(torch.int8).cpu().numpy())
        codes = np.empty((len(cards), view.shown), np.int64)
        counts = np.zeros((len(cards), view.group_count, CODES), np.float32)
        lay_out(cards, view.order, view.rows, view.groups, view.depth, codes, counts)
        parts = (
            self.cards(torch.from_numpy(codes).to(seen.device)).flatten(1),
            torch.from_numpy(counts).to(seen.device).flatten(1),
            seen[:, view.places : view.places + view.counters] / self._scales.to(seen.device),
            seen[:, view.places + view.counters :][:, : view.actions],
        )
        return torch.relu(self.layer(torch.cat(parts, 1)))


def first_embedding(size: int) -> torch.Tensor:
    """Return embeddings in which cards of one rank, and cards of one suit, begin alike."""
    ranks, suits, others = torch.randn(13, size), torch.randn(4, size), torch.randn(2, size)
    rows = [others[0], *(ranks[code % 13] + suits[code // 13] for code in range(CODES - 2)), others[1]]
    return 0.5 * torch.stack(rows)


class CardPolicy(LookingPolicy):
    """MaskablePPO's usual policy class, which may have an adviser.

    Args:
        *spaces: observation and action space, schedule of the learning rate, as every SB3 policy.
        adviser: the rule of thumb whose choice the last entries of the observations tell, None for none.
        trust: how far it is followed at the start (see `Trust`).
        choices: of its choices so many, and no other actions, are played; 0: all legal actions may be.
        **others: as `MaskableActorCriticPolicy`.
    """

    def __init__(
        self,
        *spaces: Any,
        adviser: KernelPolicy | None = None,
        trust: float = 0.0,
        choices: int = 0,
        **others: Any,
    ) -> None:
        self.adviser, self._first_trust, self.choices = adviser, trust, choices
        super().__init__(*spaces, **others)

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        if self.adviser is not None:
            self.trust = Trust(self._first_trust, self.choices)
        super()._build(lr_schedule)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | self.advice_parameters()

    def _look(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        actor, critic = self.mlp_extractor(self.extract_features(obs, self.features_extractor))
        logits, values = self.action_net(actor), self.value_net(critic)
        if self.adviser is not None:
            ranks = ranks_of(self.told(obs), np.ones(logits.shape, np.int8))
            logits = logits + self.trust(ranks)
            if self.choices:
                logits = logits.masked_fill(torch.from_numpy(ranks < 0), OUT_OF_THE_QUESTION)
        return logits, values


def card_keywords(layout: Layout, options: Mapping[str, Any], advised: int = 0) -> dict[str, Any]:
    """Return the keywords that make `CardPolicy` such a network, whose input tells so many choices of an adviser."""
    return {
        "features_extractor_class": CardFeatures,
        "features_extractor_kwargs": {
            "view": view_cards(layout, options["depth"]),
            "embedding": options["embedding"],
            "width": options["width"],
            "advised": advised,
        },
        "net_arch": {"pi": [options["width"]], "vf": [options["width"]]},
        "activation_fn": nn.ReLU,
    }
