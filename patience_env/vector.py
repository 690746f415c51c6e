"""Many games of one kind at once, stepped by one compiled loop."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from patience_env.deals import check_deal
from patience_env.env import check_illegal_action, check_render_mode, check_reset_options, forfeit_warning
from patience_env.game import Game
from patience_env.kernels import DEAL, IDLE, ILLEGAL, LOOK, OVER, prepare_rows, sample_held, settle_rows
from patience_env.table import BLOCK, draw_deals, open_game

_INT64 = np.dtype(np.int64)


class _Buffers:
    """Arrays to write results into, given again only when nobody else holds them or a view of them."""

    def __init__(self, shape: tuple[int, ...], most: int = 8) -> None:
        self._shape = shape
        self._most = most
        self._kept: list[NDArray[np.int8]] = [np.empty(0, np.int8)]
        # Found out, since interpreters differ in how many references the counting itself holds.
        self._unshared = next(count for count in range(1, 100) if self._held_by(count) is not None)
        self._kept.clear()

    def _held_by(self, count: int) -> NDArray[np.int8] | None:
        """Return the first array with so many references, if there is one."""
        for buffer in self._kept:
            if sys.getrefcount(buffer) == count:
                return buffer
        return None

    def take(self) -> NDArray[np.int8]:
        """Return an array, contents arbitrary, that is not given again while anybody holds it or a view of it."""
        buffer = self._held_by(self._unshared)
        if buffer is None:
            buffer = np.empty(self._shape, np.int8)
            if len(self._kept) < self._most:
                self._kept.append(buffer)
        return buffer


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _with_companion(name: str, facts: NDArray[np.bool_] | None, where: NDArray[np.bool_]) -> dict[str, Any]:
    """Return a fact that is true of some games as `info` holds it, or nothing where it is true of none."""
    if facts is None or not (facts & where).any():
        return {}
    return {name: facts & where, f"_{name}": facts & where}


class PatienceVectorEnv(VectorEnv[NDArray[np.int8], NDArray[np.int64], NDArray[Any]]):
    """`num_envs` games at once; game i plays exactly as `PatienceEnv` seeded with `seed + i` would.

    Args:
        game: a game's id or a `Game`.
        num_envs: how many games (at least 1).
        observation, reward, illegal_action, **options: as for `PatienceEnv`.
        autoreset_mode: `AutoresetMode.NEXT_STEP` (default: the step after an episode's end resets, its action is
            ignored and its reward 0), `SAME_STEP` (the ending step resets; `info["final_obs"]` and
            `info["final_info"]` hold the end) or `DISABLED` (use `reset(options={"reset_mask": ...})`).
        max_episode_steps: truncate episodes after so many steps; None never does.
        copy: True returns fresh arrays; False returns the live ones, which the next call overwrites.
        render_mode: None, "ansi" or "rgb_array": `render()` then returns a tuple of frames.

    `info` holds `action_mask` (int8, shape (num_envs, actions)), `deal` (uint64) and, where an action was illegal,
    `illegal_action`, each with its `_`-companion that tells which games have it.

    Raises:
        TypeError: an unknown option.
        ValueError: a value that is not allowed.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        game: str | Game,
        num_envs: int = 1,
        *,
        observation: str = "planes",
        reward: str | None = None,
        illegal_action: Literal["forfeit", "raise"] = "forfeit",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        copy: bool = True,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        if not _is_whole(num_envs) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} is not allowed: give a whole number of at least 1")
        check_render_mode(render_mode, self.metadata["render_modes"])
        if max_episode_steps is not None:
            if not _is_whole(max_episode_steps) or not 1 <= max_episode_steps < 2**63:
                raise ValueError(
                    f"max_episode_steps={max_episode_steps!r} is not allowed: give None or a whole number of at least 1"
                )
            max_episode_steps = int(max_episode_steps)
        if not isinstance(copy, bool):
            raise ValueError(f"copy={copy!r} is not allowed: give True or False")
        modes = [mode.value for mode in AutoresetMode]
        if not isinstance(autoreset_mode, (AutoresetMode, str)) or autoreset_mode not in [*AutoresetMode, *modes]:
            raise ValueError(f"autoreset_mode={autoreset_mode!r} is not allowed: choose one of {', '.join(modes)}")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.illegal_action = check_illegal_action(illegal_action)
        self.render_mode = render_mode
        self.num_envs = int(num_envs)
        self.max_episode_steps = max_episode_steps
        self._limit = max_episode_steps or 0
        self.copy = copy
        self._rows, self.reward = open_game(game, observation, reward, options, self.num_envs)
        # The deals being played; the same with the next ones of games that are dealt in the coming step.
        self._playing, self._deals = np.zeros(self.num_envs, np.uint64), np.zeros(self.num_envs, np.uint64)
        self._no_actions = np.zeros(self.num_envs, np.int64)
        self._take_views()
        self.single_observation_space = self._rows.observation_space
        self.single_action_space = spaces.Discrete(self.layout.actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._generators: list[np.random.Generator] = []
        self._seeds: list[int] = []
        self._upcoming = np.zeros((self.num_envs, BLOCK), np.uint64)
        self._next = np.full(self.num_envs, BLOCK, np.int64)
        self._elapsed = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._modes = np.zeros(self.num_envs, np.uint8)
        self._all = np.ones(self.num_envs, np.bool_)
        # Whether any game may have ended, whether every row plays in this step, and whether the next one is prepared.
        self._some_ended, self._all_play, self._ready = True, False, False
        self._started = False
        self._warned = False

    # -- random numbers ------------------------------------------------------------------------------------------

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each game (it runs ahead of the deals it gave by up to a block)."""
        self._need_generators()
        return tuple(self._generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each game's generator."""
        self._need_generators()
        return tuple(self._seeds)

    def _need_generators(self) -> None:
        if not self._generators:
            self._seed([None] * self.num_envs, self._all)

    def _seed(self, seeds: list[int | None], chosen: NDArray[np.bool_]) -> None:
        fresh = not self._generators
        made = {
            i: seeding.np_random(number)
            for i, (number, reseed) in enumerate(zip(seeds, chosen, strict=True))
            if fresh or (reseed and number is not None)
        }
        # Nothing is changed before all seeds have proved right.
        if fresh:
            self._generators = [generator for generator, _ in made.values()]
            self._seeds = [seed for _, seed in made.values()]
        for i, (generator, seed) in made.items():
            self._generators[i], self._seeds[i] = generator, seed
            self._next[i] = BLOCK

    def _list_of_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            return [int(seed) + i for i in range(self.num_envs)]
        if isinstance(seed, str) or not isinstance(seed, (Sequence, np.ndarray)) or np.ndim(seed) != 1:  # type: ignore[arg-type]
            raise TypeError(f"seed is None, a whole number, or a list of one for each game, not {seed!r}")
        if len(seed) != self.num_envs:
            raise ValueError(f"there are {self.num_envs} games, but {len(seed)} seeds: give one for each")
        return [int(number) if _is_whole(number) else number for number in seed]  # type: ignore[arg-type]

    def _draw(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the next deal number of each of the given games."""
        for i in rows[self._next[rows] == BLOCK]:
            self._refill(i)
        numbers: NDArray[np.uint64] = self._upcoming[rows, self._next[rows]]
        self._next[rows] += 1
        return numbers

    def _refill(self, row: int) -> None:
        self._upcoming[row] = draw_deals(self._generators[row])
        self._next[row] = 0

    # -- the Gymnasium interface ---------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int8], dict[str, Any]]:
        """Start games anew.

        `options` may hold `deal` (one number for all games, or a sequence of one for each) and `reset_mask` (bool,
        shape (num_envs,): which games to start; the others go on).

        Raises:
            TypeError, ValueError: an unknown option, a wrong mask, or no deal numbers; nothing changes.
        """
        given = check_reset_options(options, "deal", "reset_mask")
        chosen = self._reset_mask(given.get("reset_mask"))
        deals = given.get("deal")
        numbers = None if deals is None else self._given_deals(deals)
        self._seed(self._list_of_seeds(seed), chosen)
        flat, masks = self._targets()
        # What goes on is shown again, since the arrays are fresh.
        self._start(np.flatnonzero(chosen), flat, masks, LOOK if self.copy else IDLE, numbers)
        self._started = True
        return self._shaped(flat), self._info(masks, self._all_told.copy())

    def _reset_mask(self, mask: Any) -> NDArray[np.bool_]:
        if mask is None:
            return self._all
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be a bool array of shape ({self.num_envs},), not {mask!r}")
        if not mask.any():
            raise ValueError("reset_mask chooses no game: at least one must be True")
        if not self._started and not mask.all():
            raise ResetNeeded("reset all games once before resetting some of them")
        return mask

    def _given_deals(self, deals: Any) -> NDArray[np.uint64]:
        if np.ndim(deals) == 0:
            return np.full(self.num_envs, check_deal(deals), np.uint64)
        numbers = np.array([check_deal(deal) for deal in deals], np.uint64)
        if len(numbers) != self.num_envs:
            raise ValueError(
                f"there are {self.num_envs} games, but {len(numbers)} deals: give one number or one for each"
            )
        return numbers

    def _start(
        self,
        rows: NDArray[np.int64],
        flat: NDArray[np.int8],
        masks: NDArray[np.int8],
        others: int,
        numbers: NDArray[np.uint64] | None = None,
    ) -> None:
        """Start the given rows; `others` is the mode of the other rows."""
        self._deals[rows] = self._draw(rows) if numbers is None else numbers[rows]
        self._playing[rows] = self._deals[rows]
        self._modes[:] = others
        self._modes[rows] = DEAL
        self._rows.advance(self._modes, self._deals, self._no_actions, flat, masks if self.copy else None)
        self._elapsed[rows] = 0
        self._ended[rows] = False
        self._some_ended, self._ready = True, False

    def _targets(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """Return where the next observations (flat) and masks go: arrays that nobody holds, or the live ones."""
        if self.copy:
            return self._flat_buffers.take(), self._mask_buffers.take()
        return self._rows.flat, self._rows.masks

    def _shaped(self, flat: NDArray[np.int8]) -> NDArray[np.int8]:
        return flat.reshape(self._shape) if self.copy else self._live_observations

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int8], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Play one action in every game.

        Raises:
            ResetNeeded: before the first reset, or (autoreset disabled) when an ended game was not reset.
            ValueError, TypeError: not one whole number a game.
            InvalidAction: an action is not legal and `illegal_action` is "raise"; nothing changes.
        """
        if not self._started:
            raise ResetNeeded(f"{self.game.id}: call reset() before step()")
        chosen = self._check_actions(actions)
        self._prepare(actions, chosen)
        rows = self._rows
        flat, masks = self._targets()
        seen = rows.advance(self._modes, self._deals, chosen, flat, masks if self.copy else None)
        rewards, told = self._settle(seen)
        illegal = self._illegal() if seen & ILLEGAL else None
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            extra = {**self._final(flat, masks, illegal), **_with_companion("illegal_action", illegal, ~self._ended)}
            self._start(np.flatnonzero(self._ended), flat, masks, IDLE)
            info = self._info(masks, told) | extra
        else:
            info = self._info(masks, told)
            if illegal is not None:
                info |= _with_companion("illegal_action", illegal, self._all)
        return self._shaped(flat), rewards, told[0], told[1], info

    def _prepare(self, given: Any, actions: NDArray[np.int64]) -> None:
        """Set modes and deals of the coming step, which resets ended games; or raise before anything is changed."""
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(f"games {ended} have ended: reset them with options={{'reset_mask': ...}}")
        self._all_play = not self._some_ended
        if self._ready and self.illegal_action != "raise":
            return
        found = self._prepare_rows(actions)
        while found < -1:
            self._refill(-2 - found)
            found = self._prepare_rows(actions)
        if found >= 0:
            self._refuse(found, given)

    def _settle(self, seen: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return rewards of the step just made and what it tells (as `_all_told`), and prepare the next one."""
        rows = self._rows
        told = self._all_told.copy()
        if not self._all_play or seen & OVER or self._limit:
            found = settle_rows(
                self._modes,
                rows.status,
                self._elapsed,
                self._limit,
                told[0],
                told[1],
                self._ended,
                self._deals,
                self._playing,
                self._upcoming,
                self._next,
            )
            self._some_ended, self._ready = found > 0, found < 2
        else:
            self._ready = True
        return rows.rewards.copy(), told

    def _prepare_rows(self, actions: NDArray[np.int64]) -> int:
        return int(
            prepare_rows(
                self._ended,
                self._modes,
                self._deals,
                self._upcoming,
                self._next,
                self._rows.held,
                actions,
                self.illegal_action == "raise",
            )
        )

    def _check_actions(self, actions: Any) -> NDArray[np.int64]:
        if type(actions) is np.ndarray and actions.dtype == _INT64 and actions.shape == self._deals.shape:
            return np.ascontiguousarray(actions)
        try:
            chosen = np.asarray(actions)
        except ValueError as error:
            raise ValueError(f"actions must have the shape ({self.num_envs},), one for each game: {error}") from error
        if chosen.shape != (self.num_envs,):
            raise ValueError(f"actions must have the shape ({self.num_envs},), one for each game, not {chosen.shape}")
        if chosen.dtype.kind not in "iu":
            raise TypeError(f"actions must be whole numbers, not {chosen.dtype}")
        return np.ascontiguousarray(chosen, np.int64)

    def _refuse(self, row: int, given: Any) -> NoReturn:
        action = int(np.asarray(given)[row])  # as given: a huge unsigned number became a negative one
        what = (
            f" ({self.game.describe(self._rows.states[row], action)}) is not legal there"
            if 0 <= action < self.layout.actions
            else f" lies outside 0 to {self.layout.actions - 1}"
        )
        raise InvalidAction(
            f"action {action} of {self.game.id} in game {row}{what}. Choose among the legal ones: info['action_mask']"
        )

    def _illegal(self) -> NDArray[np.bool_]:
        if not self._warned:
            gymnasium.logger.warn(forfeit_warning(self.game.id))
            self._warned = True
        return np.asarray((self._rows.status & ILLEGAL) != 0)

    def _info(self, masks: NDArray[np.int8], told: NDArray[np.bool_]) -> dict[str, Any]:
        info: dict[str, Any] = {"action_mask": masks, "_action_mask": told[2]}
        for i, (name, companion, value) in enumerate(self._told, 3):
            info[name] = value.copy()
            info[companion] = told[i]
        return info

    def _final(
        self, flat: NDArray[np.int8], masks: NDArray[np.int8], illegal: NDArray[np.bool_] | None
    ) -> dict[str, Any]:
        """Return `final_obs` and `final_info` of the games that have just ended."""
        ended = np.flatnonzero(self._ended)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i, observation in zip(ended, flat.reshape(self._shape)[ended], strict=True):
            final_obs[i] = observation
        info: dict[str, Any] = {}
        for name, value in {"action_mask": masks, **self._live_info}.items():
            info[name] = np.zeros_like(value)
            info[name][ended] = value[ended]
            info[f"_{name}"] = self._ended.copy()
        info |= _with_companion("illegal_action", illegal, self._ended)
        return {
            "final_obs": final_obs,
            "_final_obs": self._ended.copy(),
            "final_info": info,
            "_final_info": self._ended.copy(),
        }

    # -- beyond Gymnasium ----------------------------------------------------------------------------------------

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are legal, bool, shape (num_envs, actions), a fresh array."""
        return self._rows.legal_actions().astype(np.bool_)

    def sample(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a uniformly random legal action for every game, int64, shape (num_envs,).

        Ended games, which have no legal action, get 0 (it is ignored by the resetting step).

        Raises:
            ResetNeeded: before the first reset.
        """
        if not self._started:
            raise ResetNeeded(f"{self.game.id}: call reset() before sample()")
        actions = np.empty(self.num_envs, np.int64)
        sample_held(self._rows.held, rng.integers(0, 2**32, self.num_envs, np.uint32), actions)
        return actions

    def states(self) -> NDArray[Any]:
        """Return a copy of the state records, shape (num_envs,), dtype `game.state`."""
        return self._rows.states.copy()

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame for each game: strings ("ansi") or uint8 arrays ("rgb_array"); None without a render mode."""
        if self.render_mode is None:
            return None
        from patience_env import render

        draw: Any = render.ansi if self.render_mode == "ansi" else render.rgb_array
        return tuple(draw(self.layout, self.game.table(state), self.game.title) for state in self._rows.states)

    def _take_views(self) -> None:
        rows = self._rows
        self.game, self.options, self.layout = rows.game, rows.options, rows.layout
        self._shape = (self.num_envs, *rows.shape)
        views = {name: rows.states[name] for name in self.layout.summary}
        self._live_info: dict[str, NDArray[Any]] = {"deal": self._playing, **views}
        self._told = [(name, f"_{name}", value) for name, value in self._live_info.items()]
        # What a step tells of every game unless it finds otherwise: not terminated, not truncated, each fact known.
        self._all_told = np.ones((3 + len(self._told), self.num_envs), np.bool_)
        self._all_told[:2] = False
        self._live_observations = rows.flat.reshape(self._shape)
        self._flat_buffers = _Buffers(rows.flat.shape)
        self._mask_buffers = _Buffers(rows.masks.shape)

    def __getstate__(self) -> dict[str, Any]:
        derived = ["game", "options", "layout", "_shape", "_live_info", "_told", "_all_told", "_live_observations"]
        derived += ["_flat_buffers", "_mask_buffers"]
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._take_views()
