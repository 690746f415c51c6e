"""The single environment of every game."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsIndex, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from numpy.typing import NDArray

from patience_env.deals import check_deal
from patience_env.game import Game, Layout, Table
from patience_env.kernels import DEAL, ILLEGAL, OVER, STEP, advance_rows, sample_one
from patience_env.table import draw_deal, open_game

ILLEGAL_ACTIONS = ("forfeit", "raise")
MAGIC = b"patience-env state 1\n"


def check_illegal_action(value: str) -> str:
    """Return the `illegal_action` argument, or raise ValueError saying what is allowed."""
    if not isinstance(value, str) or value not in ILLEGAL_ACTIONS:
        raise ValueError(
            f"illegal_action={value!r} is not allowed: choose one of {', '.join(map(repr, ILLEGAL_ACTIONS))}"
        )
    return value


def check_render_mode(value: Any, allowed: list[str]) -> None:
    """Raise ValueError saying what is allowed unless `value` is None or one of the render modes."""
    if value is not None and (not isinstance(value, str) or value not in allowed):
        raise ValueError(f"render_mode={value!r} is not allowed: give None or one of {', '.join(map(repr, allowed))}")


def forfeit_warning(game_id: str) -> str:
    """Return the one warning that an illegal action in "forfeit" mode gives."""
    return (
        f"{game_id}: an illegal action forfeited the game (reward -1). Choose among the legal ones: "
        "info['action_mask'], env.unwrapped.action_masks(). "
        "illegal_action='raise' makes an error of it."
    )


class PatienceEnv(gymnasium.Env[NDArray[np.int8], int]):
    """One game of patience at a time.

    Args:
        game: a game's id, such as "PatiencePoker-v0", or a `Game`.
        observation: "planes" (one-hot tensor) or "cards" (one card code a place, then counters); see
            `patience_env.encoding` and the game's own documentation.
        reward: "progress" (change in the share of cards in their final place) or "win" (1.0 on the winning move);
            games that score allow only "score". None takes the first.
        illegal_action: "forfeit" (the episode ends with reward -1, `info["illegal_action"]` is True and one warning is
            given; in a series the tableau scores zero instead) or "raise" (`gymnasium.error.InvalidAction`).
        render_mode: None, "ansi", "rgb_array" or "human".
        **options: the game's own options.

    `info` holds `action_mask` (int8, a fresh array), `deal` (the deal number as np.uint64, which Gymnasium's vector
    environments can collect; absent where the cards come from no deal) and the game's summary.

    Raises:
        TypeError: an unknown option.
        ValueError: a value that is not allowed.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        game: str | Game,
        *,
        observation: str = "planes",
        reward: str | None = None,
        illegal_action: Literal["forfeit", "raise"] = "forfeit",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.illegal_action = check_illegal_action(illegal_action)
        self.render_mode = render_mode
        self._rows, self.reward = open_game(game, observation, reward, options, 1)
        self.game = self._rows.game
        self.options = self._rows.options
        self.layout = self._rows.layout
        self.observation_space = cast(Any, self._rows.observation_space)
        self.action_space = cast(Any, spaces.Discrete(self.layout.actions))
        self.deal: int | None = None
        self._deal_info: dict[str, np.uint64] = {}
        self._started = False
        self._sampling = False
        self._live = False
        self._warned = False
        self._actions = np.zeros(1, np.int64)
        self._modes = np.zeros(1, np.uint8)
        self._deals = np.zeros(1, np.uint64)
        self._stream = np.zeros(1, np.uint64)
        self._window: Any = None
        self._take_views()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int8], dict[str, Any]]:
        """Start a game: the deal of `options={"deal": number}`, else one drawn from `np_random`.

        Raises:
            TypeError, ValueError: an unknown reset option, or no deal number; nothing changes.
        """
        given = check_reset_options(options, "deal")
        number = check_deal(given["deal"]) if given.get("deal") is not None else None
        super().reset(seed=seed)
        if seed is not None or not self._sampling:
            self._stream[0] = self.np_random_seed % 2**64
            self._sampling = True
        if number is None:
            number = draw_deal(self.np_random)
        self._deals[0] = number
        self._modes[0] = DEAL
        advance_rows(*self._arguments)
        self._set_deal(number)
        # A deal without any legal action is played by one step, whatever its action, that gives no reward.
        self._live = True
        self._draw_window()
        return self._observation.copy(), self._info()

    def step(self, action: SupportsIndex) -> tuple[NDArray[np.int8], float, bool, bool, dict[str, Any]]:
        """Play an action.

        Raises:
            ResetNeeded: no episode is in progress.
            TypeError: the action is no whole number.
            InvalidAction: it is not legal and `illegal_action` is "raise"; nothing changes.
        """
        if not self._live:
            raise ResetNeeded(f"{self.game.id}: no episode is in progress: call reset() before step()")
        # Python ints, what most callers pass, skip the check.
        if type(action) is not int:
            action = self._whole_number(action)
        mask = self._mask
        if not 0 <= action < len(mask) or not mask[action]:
            if self.illegal_action == "raise" and mask.any():
                raise InvalidAction(self._explain(action))
            self._actions[0] = -1
        else:
            self._actions[0] = action
        rows = self._rows
        self._modes[0] = STEP
        advance_rows(*self._arguments)
        status = rows.status.item()
        terminated = status & OVER != 0
        self._live = not terminated
        info = self._info()
        if status & ILLEGAL:
            info["illegal_action"] = True
            if not self._warned:
                gymnasium.logger.warn(forfeit_warning(self.game.id))
                self._warned = True
        if self.render_mode == "human":
            self._draw_window()
        return self._observation.copy(), rows.rewards.item(), terminated, False, info

    def _info(self) -> dict[str, Any]:
        info = {"action_mask": self._mask.copy(), **self._deal_info}
        for name, value in self._summary:
            info[name] = value.item()
        return info

    def _set_deal(self, deal: int | None) -> None:
        self.deal = deal
        self._deal_info = {} if deal is None else {"deal": np.uint64(deal)}
        self._started = True

    def _need_position(self, what: str) -> None:
        if not self._started:
            raise ResetNeeded(f"{self.game.id}: there is no position yet: call reset() before {what}")

    def _whole_number(self, action: Any) -> int:
        if isinstance(action, np.ndarray) and action.size == 1:
            action = action.reshape(-1)[0]
        if isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer)):
            raise TypeError(
                f"an action of {self.game.id} is a whole number from 0 to {len(self._mask) - 1}, not {action!r}"
            )
        return int(action)

    def _explain(self, action: int) -> str:
        if not 0 <= action < len(self._mask):
            return f"action {action} of {self.game.id} lies outside 0 to {len(self._mask) - 1}"
        legal = int(np.count_nonzero(self._mask))
        return (
            f"action {action} of {self.game.id} ({self.describe(action)}) is not legal here: {legal} "
            f"{'action is' if legal == 1 else 'actions are'}. Pass the mask to whatever chooses: info['action_mask'] "
            "or env.unwrapped.action_masks()"
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are legal, bool, shape (actions,), a fresh array (the form sb3-contrib asks for)."""
        return np.asarray(self._mask, np.bool_)

    def sample(self) -> int:
        """Return a uniformly random legal action; much faster than the action space's own sampling.

        It comes from a stream of its own, which `reset(seed=...)` seeds too.

        Raises:
            ResetNeeded: no episode is in progress.
        """
        if not self._live:
            raise ResetNeeded(f"{self.game.id}: no episode is in progress: call reset() before sample()")
        return max(int(sample_one(self._mask, self._stream)), 0)

    def describe(self, action: int) -> str:
        """Say in words what an action does in this position.

        Raises:
            ResetNeeded: there is no position yet.
            TypeError, ValueError: the action is no whole number, or lies outside the action space.
        """
        self._need_position("describe()")
        number = self._whole_number(action)
        if not 0 <= number < len(self._mask):
            raise ValueError(f"action {number} of {self.game.id} lies outside 0 to {len(self._mask) - 1}")
        return self.game.describe(self._rows.states[0], number)

    def table(self) -> Table:
        """Return the position as text: place -> two-letter cards, bottom first, `??` for cards the player may not know.

        Raises:
            ResetNeeded: there is no position yet.
        """
        self._need_position("table()")
        return self.game.table(self._rows.states[0])

    def load(self, table: Mapping[str, Sequence[str]]) -> tuple[NDArray[np.int8], dict[str, Any]]:
        """Set up a position from text (as `table` returns it); return its observation and info, as `reset` does.

        What the table leaves open is dealt from `np_random`.

        Raises:
            TypeError: no mapping of names to lists of two-letter cards.
            ValueError: the position is impossible. The present one, random stream included, stays as it is.
        """
        check_table(table)
        fresh = self.game.new_states(1, self.options)
        if self._started:
            fresh[:] = self._rows.states
        before = self.np_random.bit_generator.state
        try:
            self.game.from_table(fresh[0], table, self.np_random)
        except BaseException:
            self.np_random.bit_generator.state = before
            raise
        self._rows.states[:] = fresh
        self._set_deal(None)
        return self._refresh()

    def _refresh(self) -> tuple[NDArray[np.int8], dict[str, Any]]:
        self._rows.show(self._rows.all_rows)
        self._live = bool(self._mask.any())
        self._draw_window()
        return self._observation.copy(), self._info()

    def clone(self) -> PatienceEnv:
        """Return an independent copy, random stream included, without a render mode.

        Raises:
            ResetNeeded: there is no position yet.
        """
        twin = PatienceEnv(
            self.game,
            observation=self._rows.observation,
            reward=self.reward,
            illegal_action=self.illegal_action,  # type: ignore[arg-type]
            **self.options,
        )
        twin.set_state(self.get_state())
        return twin

    def get_state(self) -> bytes:
        """Return the whole state, hidden cards and random stream included, with a version and a checksum.

        Raises:
            ResetNeeded: there is no position yet.
        """
        self._need_position("get_state()")
        facts = {
            "game": self.game.id,
            "options": self.options,
            "deal": self.deal,
            "live": self._live,
            "sampling": int(self._stream[0]),
            "random": self.np_random.bit_generator.state,
            "size": self.game.state.itemsize,
            "record": _record_digest(self.game),
        }
        # Some of NumPy's bit generators (not the usual one) hold arrays.
        head = json.dumps(facts, default=lambda array: array.tolist()).encode()
        body = MAGIC + len(head).to_bytes(4, "big") + head + self._rows.states.tobytes()
        return body + hashlib.sha256(body).digest()

    def set_state(self, state: bytes) -> None:
        """Go back to a state that `get_state` gave.

        Its checksum tells damage, not malice: take states only from where programs may come from too.

        Raises:
            TypeError: no bytes.
            ValueError: damaged, from another version, game or options; the present state stays as it is.
        """
        facts, raw = _read_state(state)
        if (facts["game"], facts["options"]) != (self.game.id, json.loads(json.dumps(self.options))):
            raise ValueError(
                f"this state belongs to {facts['game']} with {facts['options']}, "
                f"not to {self.game.id} with {self.options}"
            )
        if facts.get("record") != _record_digest(self.game):
            raise ValueError(
                f"this state was saved by another version, whose record of {self.game.id} is laid out apart"
            )
        if len(raw) != self.game.state.itemsize:
            raise ValueError(f"this state's record has {len(raw)} bytes, but {self.game.state.itemsize} are needed")
        generator = _generator_of(facts["random"])
        self._rows.states[:] = np.frombuffer(raw, self.game.state)
        self.np_random = generator
        self._set_deal(facts["deal"])
        self._rows.show(self._rows.all_rows)
        self._stream[0] = facts["sampling"]
        self._sampling = True
        self._live = facts["live"]
        if not self._live:
            self._mask[:] = 0
        self._draw_window()

    def determinize(self, rng: np.random.Generator | int) -> PatienceEnv:
        """Re-deal, in place, all that the player cannot know; return this environment.

        Search that uses only `env.clone().determinize(rng)` is honest: nothing in the result depends on the hidden
        cards or on the deal number of the original.

        Raises:
            ResetNeeded: there is no position yet.
        """
        self._need_position("determinize()")
        from patience_env.kernels import determinize_rows

        whole = isinstance(rng, (int, np.integer)) and not isinstance(rng, bool)
        if not isinstance(rng, np.random.Generator) and not (whole and int(rng) >= 0):
            raise TypeError(f"determinize takes a NumPy Generator or a whole number of at least 0, not {rng!r}")
        generator = np.random.default_rng(rng)
        determinize_rows(self._rows.states, generator.integers(0, 2**64, 1, dtype=np.uint64))
        self.np_random = np.random.Generator(np.random.PCG64(generator.integers(2**63)))
        self._stream[0] = generator.integers(2**64, dtype=np.uint64)
        self._set_deal(None)
        return self

    def state_rows(self) -> NDArray[Any]:
        """Return a copy of the state record, shape (1,), dtype `game.state`."""
        return self._rows.states.copy()

    def render(self) -> Any:
        """Draw the table: a string ("ansi"), a uint8 array (height, width, 3) ("rgb_array") or None ("human").

        Raises:
            ResetNeeded: nothing is dealt yet.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "You are calling render() without a render mode: use "
                f'gym.make("{self.game.id}", render_mode="rgb_array")'
            )
            return None
        self._need_position("render()")
        if self.render_mode == "human":
            self._draw_window()
            return None
        return self._picture(self.render_mode)

    def svg(self) -> str:
        """Return the table as an SVG picture.

        Raises:
            ResetNeeded: nothing is dealt yet.
        """
        self._need_position("svg()")
        return str(self._picture("svg"))

    def _picture(self, kind: str) -> Any:
        """Return the picture that the function of that name in `patience_env.render` draws."""
        from patience_env import render

        draw: Any = getattr(render, kind)
        return draw(*self._shown(), lit=self._lit())

    def _shown(self) -> tuple[Layout, Table, str]:
        """Return the layout, cards and caption to draw: the game's own picture, where it has one, or the table."""
        own = self.game.picture(self._rows.states[0])
        if own is not None:
            return own.layout, own.table, f"{self._caption()}. {own.caption}"
        return self.layout, self.table(), self._caption()

    def _caption(self) -> str:
        facts = [f"{name.replace('_', ' ')} {view.item():g}" for name, view in self._summary]
        legal = int(np.count_nonzero(self._mask))
        facts.append(f"{legal} legal action{'s' * (legal != 1)}" if self._live else "over")
        return f"{self.game.title}: {', '.join(facts)}"

    def _lit(self) -> list[str]:
        """Return the places where an action is legal, in games in which each action is a place of the grid."""
        grid = self.layout.grid
        if grid is None or grid[0] * grid[1] != self.layout.actions:
            return []
        return [self.layout.places[action] for action in np.flatnonzero(self._mask)]

    def _draw_window(self) -> None:
        if self.render_mode == "human":
            from patience_env import render

            self._window = render.show_window(self._window, *self._shown(), self.metadata, lit=self._lit())

    def close(self) -> None:
        """Close the window, if one is open; may be called twice."""
        if self._window is not None:
            from patience_env import render

            render.close_window(self._window)
            self._window = None

    def _take_views(self) -> None:
        self._mask = self._rows.masks[0]
        self._observation = self._rows.observations[0]
        self._arguments = self._rows.arguments(self._modes, self._deals, self._actions)
        self._summary = [(name, self._rows.states[name]) for name in self.layout.summary]

    def __getstate__(self) -> dict[str, Any]:
        derived = ("game", "options", "layout", "_mask", "_observation", "_arguments", "_summary", "_window")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        rows = self._rows
        self.game, self.options, self.layout = rows.game, rows.options, rows.layout
        self._window = None
        self._take_views()


def _record_digest(game: Game) -> str:
    """Return a digest of names, types and places of the fields of a game's record: what its bytes mean."""
    fields = [(name, kind.base.str, kind.shape, at) for name, (kind, at, *_) in (game.state.fields or {}).items()]
    return hashlib.sha256(repr(fields).encode()).hexdigest()[:16]


def check_reset_options(options: Any, *known: str) -> dict[str, Any]:
    """Return the options of a reset, or raise TypeError or ValueError saying which there are."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"the options of reset are a dict, not {options!r}")
    for name in options:
        if name not in known:
            raise ValueError(f"reset has no option {name!r}: it takes {' and '.join(map(repr, known))}")
    return dict(options)


def check_table(table: Any) -> None:
    """Raise TypeError unless `table` has the form of a position as text: names -> lists of strings."""
    if not isinstance(table, Mapping):
        raise TypeError(f"a position is a dict of places to lists of two-letter cards, not {type(table).__name__}")
    for place, cards in table.items():
        if not isinstance(place, str):
            raise TypeError(f"a place is named by a string, not {place!r}")
        if not isinstance(cards, (list, tuple)) or not all(isinstance(card, str) for card in cards):
            raise TypeError(f"{place} must hold a list of two-letter cards, not {cards!r}")


def _read_state(state: Any) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the record of a saved state; raise ValueError when it is damaged or of another version."""
    if not isinstance(state, (bytes, bytearray)):
        raise TypeError(f"a state is the bytes that get_state() returned, not {type(state).__name__}")
    state = bytes(state)
    if not state.startswith(MAGIC):
        raise ValueError(f"these bytes are no state of this version: they must begin with {MAGIC!r}")
    body, digest = state[:-32], state[-32:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("this state is damaged: its checksum does not match")
    start = len(MAGIC) + 4
    length = int.from_bytes(body[len(MAGIC) : start], "big")
    try:
        facts = json.loads(body[start : start + length])
        _check_facts(facts)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"these bytes are no state that get_state() returned: {error}") from error
    return facts, body[start + length :]


def _check_facts(facts: Any) -> None:
    """Raise TypeError or ValueError unless the head of a saved state tells all that is needed."""
    if not isinstance(facts, dict):
        raise TypeError(f"its head is {type(facts).__name__}, not a dict")
    for name, kind in {"game": str, "options": dict, "live": bool, "sampling": int, "random": dict}.items():
        if type(facts.get(name)) is not kind:
            raise TypeError(f"it must tell {name!r} as {kind.__name__}, not {facts.get(name)!r:.80}")
    if "deal" not in facts or facts["deal"] is not None:
        check_deal(facts.get("deal"))
    if not 0 <= facts["sampling"] < 2**64:
        raise ValueError(f"its sampling stream stands at {facts['sampling']!r:.80}, outside 0 to 2**64 - 1")


def _generator_of(facts: dict[str, Any]) -> np.random.Generator:
    """Return the random generator of a saved state; raise ValueError where it is none."""
    maker = getattr(np.random, str(facts.get("bit_generator")), None)
    if not (isinstance(maker, type) and issubclass(maker, np.random.BitGenerator)) or maker is np.random.BitGenerator:
        raise ValueError(f"this state names no bit generator of NumPy, but {facts.get('bit_generator')!r:.80}")
    generator = np.random.Generator(maker())
    try:
        generator.bit_generator.state = facts
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"this state's random generator cannot be set up: {error!r:.200}") from error
    return generator
