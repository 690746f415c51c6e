"""A network for any game that looks one move ahead: an action is as good as the table that it leaves.

One network looks at tables (`CardView`: embeddings of cards, counts of groups, counters). Of the table at hand it says
what return is to come: the critic. Of each table that a legal action leaves it says how desirable that is: the action's
logit. What is learned of one action so counts for all that lead to the like, which is what a network with an output for
every action lacks. Positions with a single legal action, which are most in some games, cost nothing to decide. And an
action changes few cards: the first layer, by far the largest, multiplies those alone (`sparse_layer`).

An action may turn up a card that the player does not know. What is seen of it must not depend on that card: the action
is played twice, in worlds whose hidden cards are dealt differently, and cards that differ are shown face-down (the
counters then as they were before). The network's input is the record of a position whose hidden cards have been dealt
anew (`see`), so there is nothing true in it to be spied on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from patience_env.agents.policy import KernelPolicy
from patience_env.agents.signs import own_signs, write_signs
from patience_env.cards import FACE_DOWN
from patience_env.game import Game, get_game
from patience_env.jit import kernel
from patience_env.training.advice import ranks_of
from patience_env.training.card_networks import CODES, first_embedding, lay_out, view_cards
from patience_env.training.networks import OUT_OF_THE_QUESTION, LookingPolicy, Trust
from patience_env.training.sparse_layer import changes_of, entries_of, sparse_product
from patience_env.verbs import determinize, is_won, legal, observe, play

# Of a table: the reward that led to it, whether the game is won, whether it is over, its legal actions in tens. The
# game's own signs follow (`patience_env.agents.signs`).
FACTS = 4
# Entries of an action's embedding.
ACTION_SIZE = 16
# Rewards are shares of a pack or two: so many times one they are of the size of the other facts.
REWARD_FACTOR = 20.0
# What stands for the number of legal actions where it hangs on a card that is turned up.
UNKNOWN = -0.1
# The world that an action is played in once more; any number will do, as long as it is always the same.
OTHER_WORLD = np.uint64(0x9E3779B97F4A7C15)
# The log probability of an action that is not looked at.
NEVER = -20.0


@kernel
def find_legal(states, masks):  # type: ignore[no-untyped-def]
    """Write the legal actions of every position (int8)."""
    for i in range(states.shape[0]):
        legal(states[i], masks[i])


@kernel
def look_at(states, masks, views, facts):  # type: ignore[no-untyped-def]
    """Write what is seen of every position (int8, as `observe` does) and its facts (zeros before)."""
    for i in range(states.shape[0]):
        observe(states[i], views[i])
        count = 0
        for action in range(masks.shape[1]):
            count += int(masks[i, action])
        facts[i, 2] = 1.0 if count == 0 else 0.0
        facts[i, 3] = 0.1 * count
        write_signs(states[i], views[i], facts[i, FACTS:])


@kernel
def look_ahead(states, present, rows, actions, places, key, scratch, mask, worlds, views, facts):  # type: ignore[no-untyped-def]
    """Write what is seen of the table that each action leaves, and its facts.

    `present`: what is seen of the positions. `rows`, `actions`: int64, (m,): which position, which legal action.
    `places`: how many entries of a view are cards. `scratch`: room for three positions; `mask`: for one mask; `worlds`:
    for two views. `views`: int8, (m, entries).
    """
    for i in range(rows.shape[0]):
        if i == 0 or rows[i] != rows[i - 1]:
            scratch[2] = states[rows[i]]
            determinize(scratch[2], key)
        scratch[0] = states[rows[i]]
        scratch[1] = scratch[2]
        for turn in range(2):
            reward = play(scratch[turn], actions[i])
            observe(scratch[turn], worlds[turn])
            if turn == 0:
                count = legal(scratch[0], mask)
                facts[i, 0] = REWARD_FACTOR * reward
                facts[i, 1] = 1.0 if is_won(scratch[0]) else 0.0
                facts[i, 2] = 1.0 if count == 0 else 0.0
                facts[i, 3] = 0.1 * count
        unknown = False
        for place in range(places):
            known = worlds[0, place] == worlds[1, place]
            views[i, place] = worlds[0, place] if known else FACE_DOWN
            unknown = unknown or not known
        for counter in range(places, worlds.shape[1]):
            views[i, counter] = present[rows[i], counter] if unknown else worlds[0, counter]
        if unknown:
            facts[i, 2] = 0.0
            facts[i, 3] = UNKNOWN
        write_signs(scratch[0], views[i], facts[i, FACTS:])


class Choice(NamedTuple):
    """What there is to choose among, in all positions one after the other.

    Attributes:
        rows: the position, int64, shape (m,), ascending.
        actions: a legal action there, int64, shape (m,).
        counts: how many of them a position has, int64, shape (n,).
        scores: their logits, shape (m,).
    """

    rows: NDArray[np.int64]
    actions: NDArray[np.int64]
    counts: NDArray[np.int64]
    scores: torch.Tensor

    def side_by_side(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log probabilities and actions, each (n, most actions of a position); -1 fills the rows of actions.

        Where hundreds of actions exist and few are legal, that is far less to work on than all logits.
        """
        columns = np.arange(len(self.rows)) - (np.cumsum(self.counts) - self.counts)[self.rows]
        shape = (len(self.counts), max(int(self.counts.max(initial=1)), 1))
        actions = np.full(shape, -1, np.int64)
        actions[self.rows, columns] = self.actions
        actions[self.counts == 0, 0] = 0
        where = (torch.from_numpy(self.rows), torch.from_numpy(columns))
        logits = torch.full(shape, OUT_OF_THE_QUESTION).index_put(where, self.scores)
        return torch.log_softmax(logits, 1), torch.from_numpy(actions)


class Laid(NamedTuple):
    """What the first layer reads of tables.

    Attributes:
        codes: the cards that are shown, int8, shape (n, shown).
        counts: of each group and code, float32, shape (n, groups * CODES).
        numbers: the counters in parts of their greatest values, shape (n, counters).
    """

    codes: NDArray[np.int8]
    counts: NDArray[np.float32]
    numbers: torch.Tensor


class Records(BaseFeaturesExtractor):
    """Passes on the bytes of the positions' records."""

    sees_states = True

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, int(np.prod(observation_space.shape)))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations


class Tables(nn.Module):
    """The network that looks at tables; `told` of its judge's last entries say other things about an action."""

    def __init__(
        self, game: Game, options: Mapping[str, Any], width: int, embedding: int, depth: int, told: int = 0
    ) -> None:
        super().__init__()
        self.view = view_cards(game.layout(options), depth)
        self.cards = nn.Embedding(CODES, embedding)
        self.actions = nn.Embedding(self.view.actions, ACTION_SIZE)
        with torch.no_grad():
            self.cards.weight.copy_(first_embedding(embedding))
            self.actions.weight.mul_(0.1)
        size = self.view.shown * embedding + self.view.group_count * CODES + self.view.counters
        size += FACTS + own_signs(game)[0]
        self.first = nn.Linear(size, width)
        self.judge = nn.Sequential(nn.Linear(2 * width + ACTION_SIZE + told, width), nn.ReLU(), _last(width))
        self.critic = nn.Sequential(nn.Linear(width, width), nn.ReLU(), _last(width))
        self._scales = torch.from_numpy(self.view.scales)

    def lay(self, seen: NDArray[np.int8]) -> Laid:
        """Return what the first layer reads of tables."""
        view = self.view
        codes = np.empty((len(seen), view.shown), np.int8)
        counts = np.zeros((len(seen), view.group_count, CODES), np.float32)
        lay_out(seen, view.order, view.rows, view.groups, view.depth, codes, counts)
        numbers = torch.from_numpy(seen[:, view.places :].astype(np.float32)) / self._scales
        return Laid(codes, counts.reshape(len(seen), -1), numbers)

    def weights(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the first layer's weights of each card in each place and of each count (one below the other), those
        of counters and facts, and what a table without cards would make of it."""
        view, size = self.view, self.cards.embedding_dim
        width, split = self.first.out_features, view.shown * size
        places = self.first.weight[:, :split].reshape(width, view.shown, size)
        cards = torch.einsum("ce,wpe->pcw", self.cards.weight, places)
        empty = cards[:, :1]
        table = (cards - empty).reshape(-1, width)
        rest = self.first.weight[:, split:]
        counts = view.group_count * CODES
        return torch.cat([table, rest[:, :counts].t()]), rest[:, counts:], self.first.bias + empty.sum((0, 1))

    def before(self, laid: Laid, facts: NDArray[np.float32], weights: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return what the first layer makes of tables, (n, width), before it is rectified."""
        cards, numbers, bias = weights
        made = sparse_product(cards, entries_of(laid.codes, laid.counts, CODES))
        return made + nn.functional.linear(torch.cat([laid.numbers, torch.from_numpy(facts)], 1), numbers, bias)

    def change(
        self,
        laid: Laid,
        facts: NDArray[np.float32],
        rows: NDArray[np.int64],
        after: Laid,
        facts_after: NDArray[np.float32],
        weights: tuple[torch.Tensor, ...],
    ) -> torch.Tensor:
        """Return by how much that differs, (m, width), for the tables that actions leave of tables `rows`."""
        cards, numbers, _ = weights
        made = sparse_product(cards, changes_of(laid.codes, laid.counts, rows, after.codes, after.counts, CODES))
        apart = torch.cat([after.numbers - laid.numbers[rows], torch.from_numpy(facts_after - facts[rows])], 1)
        return made + nn.functional.linear(apart, numbers)

    def worth(self, tables: torch.Tensor) -> torch.Tensor:
        """Return the values of tables from what `before` made of them, (n, 1)."""
        values: torch.Tensor = self.critic(torch.relu(tables))
        return values

    def desire(
        self, before: torch.Tensor, change: torch.Tensor, actions: torch.Tensor, *told: torch.Tensor
    ) -> torch.Tensor:
        """Return how desirable actions are, (m,), from the tables before them, what they change and what is `told`."""
        seen = torch.cat([torch.relu(before + change), change, self.actions(actions), *told], 1)
        desires: torch.Tensor = self.judge(seen)[:, 0]
        return desires


def _last(width: int) -> nn.Linear:
    """Return a last layer that begins with small outputs."""
    layer = nn.Linear(width, 1)
    with torch.no_grad():
        layer.weight.mul_(0.1)
        layer.bias.zero_()
    return layer


class AheadPolicy(LookingPolicy):
    """The policy class to give to MaskablePPO.

    Args:
        observation_space, action_space, lr_schedule: as every SB3 policy; the observations are records, as bytes.
        game_id, game_options: the game, its options in normal form.
        width, embedding, depth: of the network.
        adviser: the rule of thumb whose choice follows each record in the observations, None for none.
        trust: how far it is followed at the start (see `Trust`).
        choices: of its choices so many, and no other actions, are looked at; 0: all legal actions are.
        **others: as `MaskableActorCriticPolicy`; the features extractor is fixed.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        action_space: spaces.Discrete,
        lr_schedule: Callable[[float], float],
        *,
        game_id: str,
        game_options: Mapping[str, Any],
        width: int,
        embedding: int,
        depth: int,
        adviser: KernelPolicy | None = None,
        trust: float = 0.0,
        choices: int = 0,
        **others: Any,
    ) -> None:
        self.adviser, self._first_trust, self.choices = adviser, trust, choices
        self._shape = {"width": width, "embedding": embedding, "depth": depth}
        self._game, self._game_options = get_game(game_id), dict(game_options)
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[],
            ortho_init=False,
            features_extractor_class=Records,
            **others,
        )

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        self._build_mlp_extractor()
        told = 0 if self.adviser is None else max(self.choices, 1)
        self.tables = Tables(self._game, self._game_options, **self._shape, told=told)
        if self.adviser is not None:
            self.trust = Trust(self._first_trust, self.choices)
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)
        self._scratch = self._game.new_states(3, self._game_options)
        self._facts = FACTS + own_signs(self._game)[0]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"game_id": self._game.id, "game_options": self._game_options, **self._shape}
        return super()._get_constructor_parameters() | own | self.advice_parameters()

    def _positions(self, obs: Any) -> tuple[NDArray[Any], NDArray[np.int8], NDArray[np.int8], NDArray[np.float32]]:
        """Return the positions, their legal actions, what is seen of them and its facts."""
        content = torch.as_tensor(obs).detach().cpu().numpy()[:, : self._game.state.itemsize].astype(np.uint8)
        states = np.ascontiguousarray(content).view(self._game.state)[:, 0]
        if isinstance(self._scratch, np.recarray):
            states = states.view(np.recarray)
        view = self.tables.view
        masks = np.zeros((len(states), view.actions), np.int8)
        seen = np.zeros((len(states), view.places + view.counters), np.int8)
        facts = np.zeros((len(states), self._facts), np.float32)
        find_legal(states, masks)
        look_at(states, masks, seen, facts)
        return states, masks, seen, facts

    def _judge(self, obs: Any) -> tuple[Choice, torch.Tensor]:
        """Return what there is to choose among, and the values, (n, 1)."""
        states, masks, present, given = self._positions(obs)
        ranks = None
        if self.adviser is not None:
            ranks = ranks_of(self.told(obs), masks)
            if self.choices:
                masks = (ranks >= 0).astype(np.int8)
        rows, actions = np.nonzero(masks)
        view, weights = self.tables.view, self.tables.weights()
        laid = self.tables.lay(present)
        tables = self.tables.before(laid, given, weights)
        scores = torch.zeros(len(rows))
        counts = masks.sum(1, dtype=np.int64)
        several = np.flatnonzero((counts > 1)[rows])
        if len(several):
            rows_, actions_ = rows[several], actions[several]
            seen = np.zeros((len(several), view.places + view.counters), np.int8)
            facts = np.zeros((len(several), self._facts), np.float32)
            room = (self._scratch, np.zeros(view.actions, np.int8), np.zeros((2, seen.shape[1]), np.int8))
            look_ahead(states, present, rows_, actions_, view.places, OTHER_WORLD, *room, seen, facts)
            before = tables.index_select(0, torch.from_numpy(rows_))
            change = self.tables.change(laid, given, rows_, self.tables.lay(seen), facts, weights)
            marks = []
            if ranks is not None:
                each = np.arange(max(self.choices, 1))
                marks = [torch.from_numpy(ranks[rows_, actions_][:, None] == each).float()]
            desires = self.tables.desire(before, change, torch.from_numpy(actions_), *marks)
            scores = scores.index_put((torch.from_numpy(several),), desires)
        if ranks is not None:
            scores = scores + self.trust(ranks[rows, actions])
        return Choice(rows, actions, counts, scores), self.tables.worth(tables)

    def _look(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        choice, values = self._judge(obs)
        logits = torch.full((len(values), self.tables.view.actions), OUT_OF_THE_QUESTION)
        where = (torch.from_numpy(choice.rows), torch.from_numpy(choice.actions))
        return logits.index_put(where, choice.scores), values

    def forward(
        self, obs: torch.Tensor, deterministic: bool = False, action_masks: NDArray[Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions, values and the actions' log probabilities; it knows by itself what is legal."""
        choice, values = self._judge(obs)
        chances, actions = choice.side_by_side()
        drawn = chances.argmax(1) if deterministic else torch.multinomial(chances.exp(), 1)[:, 0]
        return actions.gather(1, drawn[:, None])[:, 0], values, chances.gather(1, drawn[:, None])[:, 0]

    def evaluate_actions(
        self, obs: torch.Tensor, actions: torch.Tensor, action_masks: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return values, log probabilities of the given actions, and entropies; it knows by itself what is legal."""
        choice, values = self._judge(obs)
        chances, offered = choice.side_by_side()
        same = offered == actions.long().reshape(-1, 1)
        # Of an action that is not looked at nothing can be learned.
        told = torch.where(same, chances, 0.0).sum(1) + torch.where(same.any(1), 0.0, NEVER)
        return values, told, -(chances.exp() * chances).sum(1)

    def predict_values(self, obs: Any) -> torch.Tensor:
        """Return the values, shape (n, 1)."""
        _, _, seen, facts = self._positions(obs)
        tables = self.tables
        return tables.worth(tables.before(tables.lay(seen), facts, tables.weights()))
