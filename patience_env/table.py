"""A table of games: the arrays that single and batched environments share, and the calls that move them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env import kernels
from patience_env.deals import RESERVED_DEALS
from patience_env.encoding import TOGETHER, observation_space, scratch
from patience_env.game import Game, get_game
from patience_env.lanes import LANES

BLOCK = 64
_KEPT = ("states", "held", "masks", "flat", "rewards", "status")


class Rows:
    """`count` games of one kind side by side: states, masks and observations, all NumPy arrays of `count` rows.

    Attributes:
        states: the positions, dtype `game.state`.
        held: the legal actions, a bit each, uint32 (see `kernels.advance_rows`).
        masks: the same, int8, shape (count, actions), of the last call that did not write them elsewhere.
        flat: the observations, int8, shape (count, entries); empty until something is dealt or shown.
        rewards: rewards of the last step, float64.
        status: 0, OVER and ILLEGAL bits of the last step, uint8 (see `patience_env.kernels`).
    """

    def __init__(self, game: Game, options: Mapping[str, Any], count: int, observation: str, only_wins: bool) -> None:
        self.game = game
        self.options = dict(options)
        self.layout = game.layout(self.options)
        if self.layout.grid and not game.has_grid:
            raise ValueError(f"{game.id}: its layout has a grid, but its `has_grid` is False")
        self.observation_space = observation_space(self.layout, observation)
        self.observation = observation
        self.only_wins = only_wins
        self.states = game.new_states(count, self.options)
        self.held = np.zeros((count, -(-self.layout.actions // LANES)), np.uint32)
        self.masks = np.zeros((count, self.layout.actions), np.int8)
        self.shape: tuple[int, ...] = self.observation_space.shape or ()
        self.flat = np.zeros((count, int(np.prod(self.shape))), np.int8)
        self.rewards = np.zeros(count)
        self.status = np.zeros(count, np.uint8)
        self.all_rows = np.arange(count)
        self._modes = np.zeros(count, np.uint8)
        self._deals = np.zeros(count, np.uint64)
        self._no_actions = np.zeros(count, np.int64)
        cells = self.layout.grid[0] * self.layout.grid[1] if self.layout.grid else 0
        self._scratch = scratch(self.layout) if observation == "planes" else np.zeros((TOGETHER, 0), np.int8)
        self._sizes = np.array([len(self.layout.places), cells, only_wins])

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self.game, self.options, len(self.states), self.observation, self.only_wins)
        return Rows, facts, [getattr(self, name) for name in _KEPT]

    def __setstate__(self, held: list[NDArray[Any]]) -> None:
        for name, array in zip(_KEPT, held, strict=True):
            getattr(self, name)[:] = array

    @property
    def observations(self) -> NDArray[np.int8]:
        """The live observations, shape (count, *observation shape): later steps overwrite them."""
        return self.flat.reshape(len(self.flat), *self.shape)

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

    def allow(self, masks: NDArray[np.int8]) -> None:
        """Take these as the legal actions of the first rows (int8, shape (rows, actions))."""
        self.masks[: len(masks)] = masks
        kernels.hold_rows(self.masks[: len(masks)], self.held)

    def legal_actions(self) -> NDArray[np.int8]:
        """Return the legal actions, int8, shape (count, actions), a fresh array."""
        masks = np.empty_like(self.masks)
        kernels.show_rows(self.held, masks)
        return masks

    def _advance_some(self, rows: NDArray[np.int64], mode: int) -> None:
        self._modes[:] = kernels.IDLE
        self._modes[rows] = mode
        self.advance(self._modes, self._deals, self._no_actions)

    def advance(
        self,
        modes: NDArray[np.uint8],
        deals: NDArray[np.uint64],
        actions: NDArray[np.int64],
        flat: NDArray[np.int8] | None = None,
        masks: NDArray[np.int8] | None = None,
    ) -> int:
        """Move every row on as its mode says (see `kernels.advance_rows`); return the status bits of all together.

        Observations go to `flat` (int8, shape (count, entries)), where it is given, instead of `self.flat`, and the
        legal actions to `masks` (int8, shape (count, actions)) instead of `self.masks`.
        """
        return int(kernels.advance_rows(*self.arguments(modes, deals, actions, flat, masks)))

    def arguments(
        self,
        modes: NDArray[np.uint8],
        deals: NDArray[np.uint64],
        actions: NDArray[np.int64],
        flat: NDArray[np.int8] | None = None,
        masks: NDArray[np.int8] | None = None,
    ) -> tuple[Any, ...]:
        """Return the arguments of `advance_rows` for arrays that may be filled anew before each call."""
        return (
            self.states,
            modes,
            deals,
            actions,
            self.rewards,
            self.status,
            self.held,
            self.masks if masks is None else masks,
            self.flat if flat is None else flat,
            self._scratch,
            self._sizes,
        )


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
