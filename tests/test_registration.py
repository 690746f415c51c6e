"""Registration: string entry points, JSON specs, and a light import."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

import patience_env
from patience_env.game import Entry, get_game
from playing import GAMES, run_python


@pytest.mark.parametrize("game_id", GAMES)
def test_specs_go_through_json(game_id: str) -> None:
    spec = gymnasium.spec(game_id)
    assert spec.entry_point == "patience_env.env:PatienceEnv"
    assert spec.vector_entry_point == "patience_env.vector:PatienceVectorEnv"
    again = EnvSpec.from_json(spec.to_json())
    assert again == spec
    one, two = gymnasium.make(again), gymnasium.make(spec)
    assert (one.reset(seed=3)[0] == two.reset(seed=3)[0]).all()


@pytest.mark.parametrize("game_id", GAMES)
def test_facts_of_every_game(game_id: str) -> None:
    game = get_game(game_id)
    assert game.id == game_id
    assert game_id.endswith("-v0")
    assert {"deal", "rng"} <= set(game.state.names or ())
    options = game.check_options({})
    assert game.check_options(options) == options
    assert json.loads(json.dumps(options)) == options
    layout = game.layout(options)
    assert set(layout.summary) <= set(game.state.names or ())
    if layout.grid is not None:
        assert layout.grid[0] * layout.grid[1] <= len(layout.places)


@pytest.mark.parametrize("game_id", GAMES)
def test_documentation_of_every_game_has_the_usual_headings(game_id: str) -> None:
    module = __import__(get_game(game_id).deal.__module__, fromlist=["GAME"])
    headings = [line[3:] for line in (module.__doc__ or "").splitlines() if line.startswith("## ")]
    wanted = "Description, Action Space, Observation Space, Starting State, Rewards, Episode End, Arguments"
    assert headings == [*wanted.split(", "), "Version History"]


def test_made_by_module_and_id_in_a_fresh_process() -> None:
    code = """
import gymnasium
env = gymnasium.make("patience_env:PatiencePoker-v0", placement="fixed")
_, info = env.reset(options={"deal": 1})
print(env.unwrapped.table()["hand"][0], int(info["action_mask"].sum()))
"""
    hand, legal = run_python(code).split()
    env: Any = gymnasium.make("PatiencePoker-v0", placement="fixed")
    env.reset(options={"deal": 1})
    assert hand == env.unwrapped.table()["hand"][0]
    assert legal == "25"


def test_import_is_light_and_compiles_nothing() -> None:
    code = """
import json, sys
import patience_env
import numba.core.dispatcher
heavy = ("torch", "pygame", "stable_baselines3", "matplotlib", "rich", "typer")
loaded = [name for name in heavy if name in sys.modules]
from patience_env import jit
compiled = [k.py_func.__name__ for k in jit._KERNELS if k.signatures] if jit.JIT else []
games = [name for name in sys.modules if name.startswith("patience_env.games.")]
import patience_env.env, patience_env.vector
compiled += [k.py_func.__name__ for k in jit._KERNELS if k.signatures] if jit.JIT else []
print(json.dumps([loaded, compiled, games, len(patience_env.game_ids())]))
"""
    loaded, compiled, games, known = json.loads(run_python(code))
    assert loaded == []
    assert compiled == []
    assert games == []
    assert known == len(GAMES)


def test_names_of_the_package() -> None:
    for name in patience_env.__all__:
        assert getattr(patience_env, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Solitaire'"):
        _ = patience_env.Solitaire
    with pytest.raises(ValueError, match="there is no game 'Solitaire-v0': known are"):
        get_game("Solitaire-v0")


def test_a_module_that_holds_another_game_is_refused() -> None:
    entry = Entry("Impostor-v0", "patience_env.games.patience_poker")
    patience_env.register_game(entry)
    try:
        with pytest.raises(ValueError, match="holds the game 'PatiencePoker-v0', not 'Impostor-v0'"):
            gymnasium.make("Impostor-v0")
    finally:
        gymnasium.registry.pop("Impostor-v0")
        patience_env.game._ENTRIES.pop("Impostor-v0")
