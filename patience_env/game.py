"""The facts of a game, declared apart from its play, and the registry of games."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env import jit, verbs
from patience_env.jit import rule

Table = dict[str, list[str]]


@dataclass(frozen=True)
class Option:
    """One keyword of a game: its default, a check that returns the value in normal form, and what it means.

    `check(value)` raises ValueError or TypeError saying what is allowed.
    """

    name: str
    default: Any
    check: Callable[[Any], Any]
    help: str

    @property
    def allowed(self) -> str:
        """What `check` says is allowed, such as "choose one of 'touching', 'fixed'"; "" where any text is."""
        try:
            self.check("?")
        except (TypeError, ValueError) as error:
            return str(error).partition(": ")[2]
        return ""


def one_of(name: str, *allowed: Any) -> Callable[[Any], Any]:
    """Return an option check that takes one of the allowed values."""

    def check(value: Any) -> Any:
        for choice in allowed:
            if type(value) is type(choice) and value == choice:
                return value
        raise ValueError(f"{name}={value!r} is not allowed: choose one of {', '.join(map(repr, allowed))}")

    return check


def whole_number(name: str, low: int, high: int, *also: Any) -> Callable[[Any], Any]:
    """Return an option check that takes a whole number from low to high, or one of the values in `also`."""

    def check(value: Any) -> Any:
        if any(value is choice for choice in also):
            return value
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            others = "".join(f", or {choice!r}" for choice in also)
            raise ValueError(f"{name}={value!r} is not allowed: give a whole number from {low} to {high}{others}")
        return int(value)

    return check


@dataclass(frozen=True)
class Counter:
    """A number in the observation beside the cards: its name and its least and greatest value (within int8)."""

    name: str
    high: int
    low: int = 0


@dataclass(frozen=True)
class Spot:
    """Where a pile of `table()` is drawn: its first card's place and the step from card to card, in card sizes."""

    x: float
    y: float
    dx: float = 0.0
    dy: float = 0.0
    label: str = ""


@dataclass(frozen=True)
class Layout:
    """The sizes and names that a game has under given options.

    Attributes:
        actions: size of the action space.
        places: names of the places, each of which shows at most one card, in observation order.
        counters: the numbers that follow the places in the observation.
        grid: (rows, columns) when the first rows * columns places form a grid in reading order, else None.
        spots: where the renderers draw each pile that `table()` names.
        summary: fields of the state (single numbers) that `info` shows beside mask and deal.
    """

    actions: int
    places: tuple[str, ...]
    counters: tuple[Counter, ...]
    grid: tuple[int, int] | None
    spots: Mapping[str, Spot]
    summary: tuple[str, ...] = ()


@rule
def ends_the_episode(state):  # type: ignore[no-untyped-def]
    """Let an illegal action end the episode: what all games without a series do."""
    return False


@dataclass(frozen=True)
class Picture:
    """What the renderers draw: where, which cards, and what to call it. All pictures of a game have the same extent."""

    layout: Layout
    table: Table
    caption: str


def the_table_itself(state: Any) -> Picture | None:
    """Return None: most games draw their table and nothing else."""
    del state
    return None


@dataclass(frozen=True)
class Game:
    """All the facts of one game: what the environments, agents and renderers need to know.

    Attributes:
        id: the Gymnasium environment id.
        title: what people call it.
        state: the NumPy structured dtype of a position; it has the fields `deal` and `rng` (uint64).
        packs: how many packs of 52 are in play.
        options: the keywords of the game.
        layout: options -> Layout.
        configure: (row, options) -> None; writes the options into the fields of a zeroed state row.
        deal, legal, play, is_won, observe, determinize, forfeit: the compiled rules (see `patience_env.verbs`).
        mark_legal: None, or a rule that a batch uses instead of `legal`: it writes the same, and a bit for each action.
        describe: (row, action) -> str; what an action does, for people.
        table: row -> {place: cards}; the position as text, bottom card first, `??` for cards the player may not know.
        from_table: (row, table, generator) -> None; the reverse, into a configured row; cards that the table leaves
            open are dealt by the NumPy generator; raises ValueError saying what is impossible.
        picture: row -> what the renderers draw instead of the table, or None for the table itself.
        scores: True where the return is a score, False where 1.0 means that the game is won.
        has_grid: False where no options give the layout a grid; then nothing is compiled for grids.
    """

    id: str
    title: str
    state: np.dtype[Any]
    packs: int
    options: tuple[Option, ...]
    layout: Callable[[Mapping[str, Any]], Layout]
    configure: Callable[[Any, Mapping[str, Any]], None]
    deal: Callable[..., Any]
    legal: Callable[..., Any]
    play: Callable[..., Any]
    is_won: Callable[..., Any]
    observe: Callable[..., Any]
    determinize: Callable[..., Any]
    describe: Callable[[Any, int], str]
    table: Callable[[Any], Table]
    from_table: Callable[[Any, Mapping[str, Sequence[str]], np.random.Generator], None]
    scores: bool = False
    picture: Callable[[Any], Picture | None] = the_table_itself
    forfeit: Callable[..., Any] = ends_the_episode
    mark_legal: Callable[..., Any] | None = None
    has_grid: bool = True

    def __reduce__(self) -> tuple[Callable[[Entry], Game], tuple[Entry]]:
        """Pickle by name: the functions are those of the game's module."""
        if self.id not in _ENTRIES:
            raise TypeError(f"{self.id} is not registered, so it cannot be pickled: see register_game")
        return game_of, (_ENTRIES[self.id],)

    def check_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options in normal form, defaults filled in.

        Raises:
            TypeError: a keyword that the game does not have.
            ValueError: a value that is not allowed.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                has = ", ".join(known) or "none"
                raise TypeError(f"{self.id} has no option {name!r}: its options are {has}")
        return {name: option.check(given.get(name, option.default)) for name, option in known.items()}

    def new_states(self, count: int, options: Mapping[str, Any]) -> NDArray[Any]:
        """Return `count` configured state rows that are not dealt yet, shape (count,), dtype `state`.

        With `NUMBA_DISABLE_JIT=1` it is a record array, on whose rows the rules run in plain Python.
        """
        states = np.zeros(count, self.state)
        if count:
            self.configure(states[0], options)
            states[1:] = states[0]
        return states if jit.JIT else states.view(np.recarray)


@dataclass(frozen=True)
class Entry:
    """A game in the registry: enough to register it without importing its module."""

    id: str
    module: str
    max_episode_steps: int | None = None


_LOADED: dict[str, Game] = {}
_ENTRIES: dict[str, Entry] = {}


def add_entry(entry: Entry) -> None:
    """Add a game to the registry (its module is imported when first needed)."""
    _ENTRIES[entry.id] = entry


def game_ids() -> tuple[str, ...]:
    """Return the ids of all known games."""
    return tuple(_ENTRIES)


def game_of(entry: Entry) -> Game:
    """Return the game of an entry, adding the entry to the registry where it is new (in another process, say)."""
    _ENTRIES.setdefault(entry.id, entry)
    return get_game(entry.id)


def max_episode_steps(game_id: str) -> int | None:
    """Return the number of steps after which episodes of a game are truncated, or None."""
    return _ENTRIES[game_id].max_episode_steps


def get_game(game_id: str) -> Game:
    """Return a game by its id, importing its module when it is first asked for.

    Raises:
        ValueError: no such game.
    """
    if not isinstance(game_id, str) or (game_id not in _LOADED and game_id not in _ENTRIES):
        raise ValueError(f"there is no game {game_id!r}: known are {', '.join(_ENTRIES)}")
    if game_id not in _LOADED:
        module = import_module(_ENTRIES[game_id].module)
        game = module.GAME
        if game.id != game_id:
            raise ValueError(f"module {module.__name__} holds the game {game.id!r}, not {game_id!r}")
        jit.add_source(str(module.__file__))
        verbs.add_rules(game)
        _LOADED[game_id] = game
    return _LOADED[game_id]
