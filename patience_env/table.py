"""A table of games: the arrays that single and batched environments share, and the calls that move them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env import kernels
from patience_env.deals import RESERVED_DEALS
from patience_env.encoding import cards_length, empty_planes, observation_space, padded, words_of
from patience_env.game import Game, get_game

BLOCK = 64
_HELD = ("states", "masks", "_cards", "_shown", "planes", "rewards", "status")


class Rows:
    """`count` games of one kind side by side: states, masks and observations, all NumPy arrays of `count` rows.

    Attributes:
        states: the positions, dtype `game.state`.
        masks: legal actions, int8, shape (count, actions).
        cards: the cards form of the observations, int8, shape (count, places + counters).
        planes: the planes form, int8, flat rows, shape (count, size); no rows where the cards form is wanted.
        rewards: rewards of the last step, float64.
        status: 0, OVER and ILLEGAL bits of the last step, uint8 (see `patience_env.kernels`).
    """

    def __init__(self, game: Game, options: Mapping[str, Any], count: int, observation: str, only_wins: bool) -> None:
        self.game = game
        self.options = dict(options)
        self.layout = game.layout(self.options)
        self.observation_space = observation_space(self.layout, observation)
        self.observation = observation
        self.only_wins = only_wins
        self.states = game.new_states(count, self.options)
        self.masks = np.zeros((count, self.layout.actions), np.int8)
        length = cards_length(self.layout)
        wanted = count if observation == "planes" else 0
        self._cards = padded(count, length)
        self._shown = padded(wanted, length)
        self.cards = self._cards[:, :length]
        self.planes = empty_planes(self.layout, wanted)
        self.rewards = np.zeros(count)
        self.status = np.zeros(count, np.uint8)
        self.all_rows = np.arange(count)
        self._modes = np.zeros(count, np.uint8)
        self._deals = np.zeros(count, np.uint64)
        self._no_actions = np.zeros(count, np.int64)
        self.shape = self.observation_space.shape
        cells = self.layout.grid[0] * self.layout.grid[1] if self.layout.grid else 0
        self._view = (
            self.masks,
            self._cards,
            self.planes,
            self._shown,
            words_of(self._cards),
            words_of(self._shown),
            np.array([len(self.layout.places), cells, length]),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Many of the arrays are views of one another, which a plain pickle would make copies of.
        facts = (self.game, self.options, len(self.states), self.observation, self.only_wins)
        return Rows, facts, [getattr(self, name) for name in _HELD]

    def __setstate__(self, held: list[NDArray[Any]]) -> None:
        for name, array in zip(_HELD, held, strict=True):
            getattr(self, name)[:] = array

    @property
    def observations(self) -> NDArray[np.int8]:
        """The live observations, shape (count, *observation shape): later steps overwrite them."""
        chosen = self.planes if self.observation == "planes" else self.cards
        return chosen.reshape(len(chosen), *self.shape) if self.observation == "planes" else chosen

    def reset(self, rows: NDArray[np.int64], deals: NDArray[np.uint64]) -> None:
        """Deal the given numbers into the given rows."""
        self._deals[rows] = deals
        self._advance_some(rows, kernels.DEAL)

    def show(self, rows: NDArray[np.int64]) -> None:
        """Write masks and observations of the given rows anew."""
        self._advance_some(rows, kernels.SHOW)

    def step(self, actions: NDArray[np.int64], idle: NDArray[np.bool_]) -> None:
        """Play one action in every row that is not idle."""
        self.advance(np.where(idle, np.uint8(kernels.IDLE), np.uint8(kernels.STEP)), self._deals, actions)

    def _advance_some(self, rows: NDArray[np.int64], mode: int) -> None:
        self._modes[:] = kernels.IDLE
        self._modes[rows] = mode
        self.advance(self._modes, self._deals, self._no_actions)

    def advance(self, modes: NDArray[np.uint8], deals: NDArray[np.uint64], actions: NDArray[np.int64]) -> int:
        """Move every row on as its mode says (see `kernels.advance_rows`); return the status bits of all together."""
        return int(kernels.advance_rows(*self.arguments(modes, deals, actions)))

    def arguments(
        self, modes: NDArray[np.uint8], deals: NDArray[np.uint64], actions: NDArray[np.int64]
    ) -> tuple[Any, ...]:
        """Return the arguments of `advance_rows` for arrays that may be filled anew before each call."""
        return (self.states, modes, deals, actions, self.rewards, self.status, *self._view, self.only_wins)


def open_game(
    game: str | Game, observation: str, reward: str | None, options: Mapping[str, Any], count: int
) -> tuple[Rows, str]:
    """Return the rows for a game and its checked options, and the reward kind in force."""
    facts = game if isinstance(game, Game) else get_game(game)
    allowed = ("score",) if facts.scores else ("progress", "win")
    kind = allowed[0] if reward is None else reward
    if not isinstance(kind, str) or kind not in allowed:
        raise ValueError(
            f"reward={reward!r} is not allowed for {facts.id}: choose one of {', '.join(map(repr, allowed))}"
        )
    return Rows(facts, facts.check_options(options), count, observation, kind == "win"), kind


def draw_deal(rng: np.random.Generator) -> int:
    """Draw a deal number that is not reserved for comparisons: 64 random bits, raised if below 2**32."""
    bits = int(rng.bit_generator.random_raw())
    return bits if bits >= RESERVED_DEALS else bits + RESERVED_DEALS


def draw_deals(rng: np.random.Generator) -> NDArray[np.uint64]:
    """Draw the next `BLOCK` deal numbers: the same as so many calls of `draw_deal`."""
    bits = np.asarray(rng.bit_generator.random_raw(BLOCK), np.uint64)
    return np.where(bits < RESERVED_DEALS, bits + np.uint64(RESERVED_DEALS), bits)
