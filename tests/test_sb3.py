"""The VecEnv of Stable-Baselines3: the same games as the batch, and what SB3 expects of their infos and attributes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import patience_env
from patience_env.vector import PatienceVectorEnv

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from patience_env.sb3 import PatienceVecEnv

POKER = "PatiencePoker-v0"


def random_actions(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        (None, {"placement": "fixed"}),
        (None, {"placement": "touching", "observation": "cards"}),
        (None, {"placement": "fixed", "target": 5}),
        (7, {"placement": "fixed"}),
    ],
)
def test_plays_the_games_of_the_batch(steps: int | None, options: dict[str, Any]) -> None:
    env = PatienceVecEnv(POKER, 5, max_episode_steps=steps, **options)
    batch = PatienceVectorEnv(POKER, 5, autoreset_mode="SameStep", max_episode_steps=steps, **options)
    env.seed(11)
    np.testing.assert_array_equal(env.reset(), batch.reset(seed=11)[0])
    rng = np.random.default_rng(0)
    returns, lengths, ended = np.zeros(5), np.zeros(5, int), 0
    for _ in range(110):
        masks = get_action_masks(env)
        np.testing.assert_array_equal(masks, batch.action_masks())
        assert masks.dtype == np.bool_
        actions = random_actions(masks, rng)
        observations, rewards, dones, infos = env.step(actions)
        wanted, paid, terminated, truncated, info = batch.step(actions)
        np.testing.assert_array_equal(observations, wanted)
        np.testing.assert_array_equal(rewards, paid.astype(np.float32))
        np.testing.assert_array_equal(dones, terminated | truncated)
        assert rewards.dtype == np.float32
        returns += paid
        lengths += 1
        for i, facts in enumerate(infos):
            if not dones[i]:
                assert facts == {}
                continue
            ended += 1
            np.testing.assert_array_equal(facts["terminal_observation"], info["final_obs"][i])
            assert facts["TimeLimit.truncated"] is bool(truncated[i] and not terminated[i])
            assert facts["episode"]["r"] == pytest.approx(returns[i])
            assert facts["episode"]["l"] == lengths[i]
            assert facts["episode"]["t"] >= 0
            assert facts["deal"] == info["final_info"]["deal"][i]
            returns[i] = lengths[i] = 0
    assert ended > 0


def test_a_cut_game_is_told_apart_from_a_finished_one() -> None:
    env = PatienceVecEnv(POKER, 2, placement="fixed", max_episode_steps=3)
    env.reset()
    for cell in range(3):
        _, _, dones, infos = env.step(np.array([cell, cell]))
    assert dones.all()
    assert [facts["TimeLimit.truncated"] for facts in infos] == [True, True]


def test_what_was_returned_is_never_overwritten() -> None:
    env = PatienceVecEnv(POKER, 4, placement="fixed")
    rng = np.random.default_rng(1)
    seen = [env.reset()]
    held = [seen[0].copy()]
    masks = []
    for _ in range(30):
        masks.append(get_action_masks(env))
        held_mask = masks[-1].copy()
        observations, *_ = env.step(random_actions(masks[-1], rng))
        np.testing.assert_array_equal(masks[-1], held_mask)
        seen.append(observations)
        held.append(observations.copy())
    np.testing.assert_array_equal(seen, held)


def test_infos_of_running_games_are_not_one_dictionary() -> None:
    env = PatienceVecEnv(POKER, 3)
    env.reset()
    infos = env.step(random_actions(get_action_masks(env), np.random.default_rng(0)))[3]
    infos[0]["mine"] = 1
    assert infos[1] == {}


def test_masks_are_found_as_sb3_contrib_looks_for_them() -> None:
    env = PatienceVecEnv(POKER, 3, placement="fixed")
    env.reset()
    assert is_masking_supported(env)
    assert get_action_masks(env).shape == (3, 25)
    assert len(env.env_method("action_masks", indices=[0, 2])) == 2
    assert not env.has_attr("no_such_thing")


def test_attributes_and_methods() -> None:
    env = PatienceVecEnv(POKER, 3, placement="fixed")
    env.set_options({"deal": 7})
    env.reset()
    assert env.get_attr("deal") == [7, 7, 7]
    assert env.get_attr("deal", indices=1) == [7]
    assert env.get_attr("options")[0]["placement"] == "fixed"
    assert [info["deal"] for info in env.reset_infos] == [7, 7, 7]
    single = gymnasium.make(POKER, placement="fixed")
    single.reset(options={"deal": 7})
    assert env.env_method("table") == [single.unwrapped.table()] * 3
    assert env.env_method("describe", 3, indices=0) == [single.unwrapped.describe(3)]
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit, indices=[0]) == [False]
    env.set_attr("illegal_action", "raise")
    assert env.get_attr("illegal_action") == ["raise"] * 3
    with pytest.raises(ValueError, match="share their attributes"):
        env.set_attr("illegal_action", "forfeit", indices=[0])
    with pytest.raises(AttributeError, match="action_masks, describe, table, render"):
        env.env_method("clone")
    with pytest.raises(AttributeError, match="no_such_thing"):
        env.get_attr("no_such_thing")
    with pytest.raises(IndexError, match="0 to 2"):
        env.get_attr("deal", indices=[3])


def test_options_and_seeds_are_used_once() -> None:
    env = PatienceVecEnv(POKER, 2)
    env.set_options([{"deal": 3}, {"deal": 4}])
    env.reset()
    assert env.get_attr("deal") == [3, 4]
    env.reset()
    assert min(env.get_attr("deal")) >= 2**32
    env.seed(5)
    env.reset()
    first = env.get_attr("deal")
    env.reset()
    assert env.get_attr("deal") != first
    env.seed(5)
    env.reset()
    assert env.get_attr("deal") == first


def test_wrong_arguments_say_what_is_right() -> None:
    with pytest.raises(TypeError, match="leave it out"):
        PatienceVecEnv(POKER, 2, copy=False)
    with pytest.raises(ValueError, match="PatiencePoker-v0"):
        PatienceVecEnv("Whist-v0", 2)
    env = PatienceVecEnv(POKER, 2)
    env.set_options([{"deal": 3}, {}])
    with pytest.raises(ValueError, match="to each game, or to none"):
        env.reset()
    env.set_options({"seed": 3})
    with pytest.raises(ValueError, match="it takes 'deal'"):
        env.reset()
    env.set_options()
    env.reset()
    with pytest.raises(RuntimeError, match="step_async"):
        env.step_wait()


def test_an_illegal_action_is_told() -> None:
    env = PatienceVecEnv(POKER, 2, placement="fixed")
    env.reset()
    env.step(np.array([0, 0]))
    with pytest.warns(UserWarning, match="illegal action"):
        _, rewards, dones, infos = env.step(np.array([0, 1]))
    assert dones.tolist() == [True, False]
    assert rewards.tolist() == [-1, 0]
    assert infos[0]["illegal_action"]
    assert infos[0]["episode"]["r"] == -1


def test_a_pickled_copy_goes_on_alike() -> None:
    env = PatienceVecEnv(POKER, 3, placement="fixed")
    env.seed(2)
    env.reset()
    rng = np.random.default_rng(3)
    for _ in range(10):
        env.step(random_actions(get_action_masks(env), rng))
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(40):
        actions = random_actions(get_action_masks(env), rng)
        for mine, other in zip(env.step(actions)[:3], twin.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(mine, other)


def test_pictures() -> None:
    pytest.importorskip("pygame")
    env = PatienceVecEnv(POKER, 2, render_mode="rgb_array")
    env.reset()
    images = env.get_images()
    assert len(images) == 2
    assert images[0] is not None
    assert images[0].shape[2] == 3
    with pytest.raises(ValueError, match="rgb_array"):
        PatienceVecEnv(POKER, 2).get_images()


def make_single() -> gymnasium.Env[Any, Any]:
    import patience_env  # noqa: F401  (a spawned process registers the games by this import)

    return gymnasium.make(POKER, placement="fixed", illegal_action="raise")


def dummy() -> VecEnv:
    return DummyVecEnv([make_single] * 2)


def forked() -> VecEnv:
    return SubprocVecEnv([make_single] * 2, start_method="fork")


def spawned() -> VecEnv:
    return SubprocVecEnv([make_single] * 2, start_method="spawn")


def native() -> VecEnv:
    return PatienceVecEnv(POKER, 2, placement="fixed", illegal_action="raise")


@pytest.mark.parametrize(
    "make", [dummy, native, pytest.param(forked, marks=pytest.mark.slow), pytest.param(spawned, marks=pytest.mark.slow)]
)
def test_maskable_ppo_trains(make: Callable[[], VecEnv]) -> None:
    env = make()
    try:
        model = MaskablePPO("MlpPolicy", env, n_steps=26, batch_size=26, n_epochs=1, seed=0, device="cpu")
        before = [parameter.detach().clone() for parameter in model.policy.parameters()]
        model.learn(104)
        assert model.num_timesteps == 104
        assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
        episode = model.ep_info_buffer[0] if make is native else None  # type: ignore[index]
        assert episode is None or episode["l"] == 25
    finally:
        env.close()


def test_evaluation_of_sb3_contrib_agrees_with_play() -> None:
    env = PatienceVecEnv(POKER, 4, placement="fixed")
    model = MaskablePPO("MlpPolicy", env, n_steps=25, seed=0, device="cpu")
    env.seed(9)
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=4, return_episode_rewards=True, warn=True)
    batch = PatienceVectorEnv(POKER, 4, placement="fixed", autoreset_mode="SameStep")
    observations, info = batch.reset(seed=9)
    own = np.zeros(4)
    for _ in range(25):
        actions, _ = model.predict(observations, deterministic=True, action_masks=info["action_mask"].astype(bool))
        observations, rewards, _, _, info = batch.step(actions)
        own += rewards
    assert sorted(returns) == pytest.approx(sorted(own))
    assert lengths == [25] * 4


def test_without_sb3_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "import patience_env\n"
        "try:\n    import patience_env.sb3\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=None)
    assert 'pip install "patience-env[train]"' in done.stdout


def test_the_game_ids_have_a_registered_limit() -> None:
    for game_id in patience_env.game_ids():
        env = PatienceVecEnv(game_id, 1)
        assert env.batch.max_episode_steps == gymnasium.spec(game_id).max_episode_steps


@pytest.mark.parametrize("game_id", patience_env.game_ids())
def test_sb3s_own_checker_passes_with_default_arguments(game_id: str) -> None:
    from stable_baselines3.common.env_checker import check_env

    check_env(gymnasium.make(game_id), skip_render_check=True)


@pytest.mark.parametrize("how", ["seed", "options", "deal"])
def test_a_refused_reset_does_not_refuse_the_next_one(how: str) -> None:
    env = PatienceVecEnv(POKER, 2, placement="fixed")
    env.reset()
    if how == "seed":
        env.seed(-5)
    else:
        env.set_options({"colour": 1} if how == "options" else {"deal": -1})
    with pytest.raises((ValueError, gymnasium.error.Error)):
        env.reset()
    assert env.reset().shape == env.reset().shape
