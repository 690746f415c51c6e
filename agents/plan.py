"""Planning where every card is known: solve the game and play the solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.guided import GuidedGames
from patience_env.agents.policy import Policy, Turn
from patience_env.agents.solver import bytes_that_count, longest_game, solve_states
from patience_env.game import Game
from patience_env.jit import kernel
from patience_env.kernels import determinize_rows
from patience_env.table import Rows
from patience_env.verbs import play

POSITIONS = 100_000
MOST_KEPT = 100_000  # positions with a planned move that are remembered


@kernel
def play_line(states, line):  # type: ignore[no-untyped-def]
    """Write into row i + 1 the position after the first i + 1 moves of a line from row 0 on."""
    for i in range(line.shape[0]):
        states[i + 1] = states[i]
        play(states[i + 1], line[i])


def keys_of(game: Game, states: NDArray[Any]) -> list[bytes]:
    """Return the bytes of each state's fields, but for its random bits, which differ from turn to turn."""
    bare = states.copy()
    bare["rng"] = 0
    raw = bare.view(np.ndarray).view(np.uint8).reshape(len(bare), -1)[:, bytes_that_count(game)]
    return [row.tobytes() for row in raw]


def hides_cards(game: Game, options: Mapping[str, Any]) -> bool:
    """Tell whether a player of the game does not know all cards, or chance to come, from the deal on."""
    rows = Rows(game, options, 2, "cards", False)
    rows.reset(rows.all_rows, np.ones(2, np.uint64))
    determinize_rows(rows.states, np.arange(1, 3, dtype=np.uint64))
    first, second = keys_of(game, rows.states)
    return first != second


class PlanPolicy(Policy):
    """Solves the position and follows the solution; without one, the best game that it has found.

    It plays where every card is known: Paganini, Fortress, Calculation with `open_stock=True`. (A plan made for hidden
    cards as they might lie trusts in what nobody knows: in The Sultan it wins less than the rule of thumb does. `flat`
    and `uct` think of many ways in which the cards might lie.)

    Args:
        positions: how many positions the solver may meet for a plan; guided games may have ten moves for each.

    Raises:
        ValueError: `positions` is no whole number above 0.
    """

    name = "plan"
    share = 10

    def __init__(self, positions: int = POSITIONS) -> None:
        if isinstance(positions, bool) or not isinstance(positions, int) or not 0 < positions < 10**9:
            raise ValueError(f"positions={positions!r} is not allowed: give a whole number above 0")
        self.positions = positions
        self._planned: dict[bytes, int] = {}

    def start(self, seed: int) -> None:
        """Forget all plans; there is no chance in them."""
        del seed
        self._planned.clear()

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where the game only scores, or hides cards under these options."""
        super().check(game, options)
        if game.scores:
            raise ValueError(f"policy 'plan' plays games that are won or lost: {game.id} only scores")
        if hides_cards(game, options):
            raise ValueError(
                f"policy 'plan' plays where every card is known: {game.id} hides cards under these options; choose "
                "flat or uct"
            )

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the planned move of every position, one after the other."""
        actions: NDArray[np.int64] = turn.masks.argmax(axis=1).astype(np.int64)
        for row in np.flatnonzero(np.count_nonzero(turn.masks, axis=1) > 1).tolist():
            state = turn.states[row : row + 1]
            key = keys_of(turn.game, state)[0]
            if key not in self._planned:
                self._plan(turn.game, turn.options, state)
            actions[row] = self._planned.get(key, actions[row])
        return actions

    def _plan(self, game: Game, options: Mapping[str, Any], state: NDArray[Any]) -> None:
        """Plan the game from a position on and remember the move of every position on the way."""
        line = solve_states(game, state, options, seconds=None, positions=self.positions).moves
        if not line:
            games = GuidedGames(state, game.layout(dict(options)).actions, longest_game(game))
            line = games.play(self.positions) or games.best
        states = game.new_states(len(line) + 1, options)
        states[0] = state[0]
        play_line(states, np.array(line, np.int64))
        if len(self._planned) + len(line) > MOST_KEPT:
            self._planned.clear()
        self._planned.update(zip(keys_of(game, states), line, strict=False))
