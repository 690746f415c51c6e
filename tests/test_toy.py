"""A tenth game takes one module and one entry: everything else finds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import patience_env
import toy_patience
from patience_env.agents.policy import make_policy, policy_names
from patience_env.game import Entry


@pytest.fixture
def toy() -> Iterator[str]:
    patience_env.register_game(Entry("Reds-v0", "toy_patience"))
    yield "Reds-v0"
    gymnasium.registry.pop("Reds-v0")
    patience_env.game._ENTRIES.pop("Reds-v0")


def test_is_found_by_the_registry_and_passes_the_checker(toy: str) -> None:
    env = gymnasium.make(toy)
    assert toy in patience_env.game_ids()
    assert env.action_space == gymnasium.spaces.Discrete(3)
    check_env(env.unwrapped, skip_render_check=True)


def test_single_and_batched_play_alike(toy: str) -> None:
    batch: Any = gymnasium.make_vec(toy, 3, observation="cards")
    singles = [gymnasium.make(toy, observation="cards") for _ in range(3)]
    observations, _ = batch.reset(seed=5)
    for i, env in enumerate(singles):
        assert (env.reset(seed=5 + i)[0] == observations[i]).all()
    for step in range(5):
        actions = np.array([0, 1, 2])
        observations, rewards, terminated, _, _ = batch.step(actions)
        for i, env in enumerate(singles):
            observation, reward, over, _, _ = env.step(int(actions[i]))
            assert (observation == observations[i]).all()
            assert (reward, over) == (rewards[i], terminated[i])
        assert terminated.all() == (step == 4)


def test_won_with_five_reds_returns_one(toy: str) -> None:
    env: Any = gymnasium.make(toy, illegal_action="raise").unwrapped
    for deal in range(1, 200):
        env.reset(options={"deal": deal})
        total = 0.0
        for _ in range(5):
            names = [env.table()[f"place {i + 1}"][0] for i in range(3)]
            red = [i for i, name in enumerate(names) if name[1] in "HD"]
            total += env.step(red[0] if red else 0)[1]
        if toy_patience.is_won(env._rows.states.view(np.recarray)[0]):
            assert total == pytest.approx(1.0)
            return
    pytest.fail("no deal was won")


def test_greedy_discards_a_red_card(toy: str) -> None:
    assert {"random", "greedy"} <= set(policy_names(toy))
    env: Any = gymnasium.make(toy)
    env.reset(seed=1)
    env.unwrapped.load({"place 1": ["AS"], "place 2": ["TH"], "place 3": ["2C"], "stock": ["??"] * 49})
    assert make_policy("greedy", toy).choose(env) == 1
    assert env.unwrapped.describe(1) == "discard TH"


def test_spec_goes_through_json(toy: str) -> None:
    spec = gymnasium.spec(toy)
    again = gymnasium.envs.registration.EnvSpec.from_json(spec.to_json())
    assert json.loads(again.to_json()) == json.loads(spec.to_json())
