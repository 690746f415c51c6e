"""The dictionary forms of observation and mask."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from patience_env.wrappers import PettingZooDict, RLlibDict
from playing import GAMES

FORMS = [(RLlibDict, "observations", np.float32), (PettingZooDict, "observation", np.int8)]
every_form = pytest.mark.parametrize(("form", "name", "kind"), FORMS)


@every_form
@pytest.mark.parametrize("game_id", GAMES)
def test_spaces_and_contents(form: Any, name: str, kind: Any, game_id: str) -> None:
    plain = gymnasium.make(game_id)
    env = form(gymnasium.make(game_id))
    actions = env.action_space.n
    assert env.observation_space == spaces.Dict(
        {name: plain.observation_space, "action_mask": spaces.Box(0, 1, (actions,), kind)}
    )
    observation, info = env.reset(seed=4)
    expected, _ = plain.reset(seed=4)
    for _ in range(8):
        assert env.observation_space.contains(observation)
        assert set(observation) == {name, "action_mask"}
        assert (observation[name] == expected).all()
        assert observation["action_mask"].dtype == kind
        assert (observation["action_mask"] == info["action_mask"]).all()
        action = int(np.flatnonzero(info["action_mask"])[-1])
        observation, _, over, _, info = env.step(action)
        expected, *_ = plain.step(action)
        if over:
            break
    assert (observation["action_mask"] == info["action_mask"]).all()


@every_form
@pytest.mark.filterwarnings("ignore:.*an illegal action forfeited")
def test_gymnasium_checker(form: Any, name: str, kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*an illegal action forfeited")
        # What the checker says of every wrapper:
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(form(gymnasium.make("PatiencePoker-v0").unwrapped), skip_render_check=True)


@every_form
def test_made_again_from_its_spec(form: Any, name: str, kind: Any) -> None:
    env = form(gymnasium.make("PatiencePoker-v0", placement="fixed"))
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert isinstance(again, form)
    one, two = env.reset(seed=2)[0], again.reset(seed=2)[0]
    assert (one[name] == two[name]).all()


@every_form
def test_inside_gymnasium_s_own_batch(form: Any, name: str, kind: Any) -> None:
    batch = gymnasium.make_vec("PatiencePoker-v0", 2, vectorization_mode="sync", wrappers=[form])
    observations, infos = batch.reset(seed=1)
    assert (observations["action_mask"] == infos["action_mask"]).all()


@every_form
def test_refuses_other_environments(form: Any, name: str, kind: Any) -> None:
    with pytest.raises(TypeError, match=f"{form.__name__} wraps a PatienceEnv, not"):
        form(gymnasium.make("CartPole-v1"))
