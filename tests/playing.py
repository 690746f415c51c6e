"""What the tests share: all games and their variants, random play, and Python in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import patience_env
from patience_env import jit
from patience_env.env import PatienceEnv
from patience_env.kernels import won_rows

GAMES = patience_env.game_ids()
# Variants beyond those that a flag among the options gives by itself.
FURTHER_VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "PatiencePoker-v0": ({"placement": "fixed"}, {"target": 40}, {"scoring": "random", "placement": "fixed"}),
    "Fourteenth-v0": ({"exchanges": 1, "close_gaps": True},),
    "Sultan-v0": ({"redeals": 1},),
}


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Return every game with its default options, each flag turned over, and further variants."""
    found: list[tuple[str, dict[str, Any]]] = []
    for game_id in GAMES:
        options = patience_env.get_game(game_id).options
        flags = [{option.name: not option.default} for option in options if isinstance(option.default, bool)]
        found += [(game_id, chosen) for chosen in ({}, *flags, *FURTHER_VARIANTS.get(game_id, ()))]
    return found


def scaled(compiled: int, plain: int) -> int:
    """Return how much to do: plain Python is some hundred times slower."""
    return compiled if jit.JIT else plain


def strict(game_id: str, **arguments: Any) -> PatienceEnv:
    """Return an environment that raises on illegal actions."""
    return PatienceEnv(game_id, illegal_action="raise", **arguments)


def legal_actions(env: PatienceEnv) -> list[int]:
    """Return the legal actions in order."""
    return [int(action) for action in np.flatnonzero(env.action_masks())]


def play_at_random(env: PatienceEnv, rng: np.random.Generator, most: int) -> Iterator[tuple[int, Any]]:
    """Play random legal actions to the end, or `most` of them; yield each action and what `step` returned."""
    for _ in range(most):
        choices = legal_actions(env)
        if not choices:
            return
        action = choices[rng.integers(len(choices))]
        yield action, env.step(action)


def begin(env: PatienceEnv, deal: int, steps: int, seed: int = 0) -> list[int]:
    """Start a deal and play up to `steps` random actions, stopping before the end; return them."""
    env.reset(seed=seed, options={"deal": deal})
    rng = np.random.default_rng(seed)
    played: list[int] = []
    for _ in range(steps):
        choices = legal_actions(env)
        action = choices[rng.integers(len(choices))]
        if env.clone().step(action)[2]:
            break
        env.step(action)
        played.append(action)
    return played


def seen(env: PatienceEnv) -> tuple[bytes, bytes, dict[str, list[str]]]:
    """Return all that a player sees: observation, mask, table."""
    return env._observation.tobytes(), env.action_masks().tobytes(), env.table()


def is_won(env: PatienceEnv) -> bool:
    """Tell whether the game is won."""
    won = np.zeros(1, np.bool_)
    won_rows(env._rows.states, won)
    return bool(won[0])


def random_actions(masks: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random legal action for every row of masks (0 where none is legal), drawn without the package."""
    chosen = [rng.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in np.asarray(masks)]
    return np.array(chosen, np.int64)


def run_python(code: str, *arguments: str, **environment: str | None) -> str:
    """Run Python code in a fresh process and return what it printed; None takes a variable out of its environment."""
    variables = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
    for name, value in environment.items():
        if value is None:
            variables.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=variables,
        cwd=Path(__file__).resolve().parent,  # not the checkout, whose package would come before PYTHONPATH's
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def open_after(state: Any, action: int) -> int:
    """Return how many cells of the touching rule's canvas are legal after an action, from the rule's own words."""
    cells = np.array(state["cells"]).reshape(9, 9) > 0
    cells[divmod(action, 9)] = True
    taken = np.argwhere(cells)
    count = 0
    for cell in np.argwhere(~cells):
        touches = (np.abs(taken - cell).max(1) == 1).any()
        both = np.vstack([taken, cell])
        count += int(touches and (both.max(0) - both.min(0) < 5).all())
    return count
