"""The batched environment: it plays as so many single ones, in every autoreset mode."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from patience_env import vector
from patience_env.env import PatienceEnv
from patience_env.vector import PatienceVectorEnv
from playing import GAMES, legal_actions, random_actions, scaled, variants

POKER = "PatiencePoker-v0"
every_game = pytest.mark.parametrize("game_id", GAMES)
every_mode = pytest.mark.parametrize("mode", list(AutoresetMode))


def single(game_id: str, most: int, **arguments: Any) -> gymnasium.Env[Any, Any]:
    return TimeLimit(PatienceEnv(game_id, **arguments), most)


def assert_infos_alike(ours: dict[str, Any], theirs: dict[str, Any], count: int) -> None:
    """Check that wherever Gymnasium's own batch reports a fact, ours reports the same; and illegal actions exactly."""
    for name, companion in theirs.items():
        if not name.startswith("_"):
            continue
        fact = name[1:]
        for i in np.flatnonzero(companion):
            assert ours[name][i]
            if fact != "final_info":
                assert np.array_equal(ours[fact][i], theirs[fact][i]), fact
    for exact in ("illegal_action", "final_obs", "final_info"):
        none = np.zeros(count, np.bool_)
        assert (ours.get(f"_{exact}", none) == theirs.get(f"_{exact}", none)).all()
    if "final_info" in theirs:
        assert_infos_alike(ours["final_info"], theirs["final_info"], count)


@every_mode
@pytest.mark.parametrize(("game_id", "options"), variants())
@pytest.mark.filterwarnings("ignore:.*an illegal action forfeited")
def test_plays_exactly_as_single_environments(game_id: str, options: dict[str, Any], mode: AutoresetMode) -> None:
    """Over several episodes, ended by play, by the time limit and by illegal actions."""
    count, most, steps = 3, 28, scaled(80, 32)
    ours: Any = PatienceVectorEnv(game_id, count, autoreset_mode=mode, max_episode_steps=most, **options)
    theirs = SyncVectorEnv([lambda: single(game_id, most, **options)] * count, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    rng = np.random.default_rng(2)
    observations, infos = ours.reset(seed=11)
    expected, their_infos = theirs.reset(seed=11)
    assert (observations == expected).all()
    assert_infos_alike(infos, their_infos, count)
    ended = np.zeros(count, np.bool_)
    episodes = 0
    for step in range(steps):
        if mode == AutoresetMode.DISABLED and ended.any():
            observations, infos = ours.reset(options={"reset_mask": ended.copy()})
            expected, their_infos = theirs.reset(options={"reset_mask": ended.copy()})
            assert (observations == expected).all()
            assert_infos_alike(infos, their_infos, count)
        actions = random_actions(infos["action_mask"], rng)
        if step % 23 == 13:
            actions[step % count] = ours.layout.actions + 1
        observations, *results, infos = ours.step(actions)
        expected, *their_results, their_infos = theirs.step(actions)
        assert observations.dtype == expected.dtype
        assert (observations == expected).all()
        for name, value, their_value in zip(("reward", "over", "cut"), results, their_results, strict=True):
            assert value.dtype == their_value.dtype
            assert (value == their_value).all(), name
        assert_infos_alike(infos, their_infos, count)
        assert (ours.action_masks() == infos["action_mask"]).all()
        ended = results[1] | results[2]
        episodes += int(ended.sum())
    assert episodes >= count


@every_game
def test_game_i_is_the_single_environment_of_seed_plus_i(game_id: str) -> None:
    batch: Any = gymnasium.make_vec(game_id, 3)
    assert isinstance(batch, PatienceVectorEnv)
    observations, infos = batch.reset(seed=40)
    for i in range(3):
        env = PatienceEnv(game_id)
        observation, info = env.reset(seed=40 + i)
        assert (observation == observations[i]).all()
        assert (info["action_mask"] == infos["action_mask"][i]).all()
        assert info["deal"] == infos["deal"][i]


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync", "async"])
def test_make_vec_in_every_mode(mode: str) -> None:
    batch = gymnasium.make_vec(POKER, 2, vectorization_mode=mode, placement="fixed", illegal_action="raise")
    try:
        _, infos = batch.reset(seed=3)
        assert infos["deal"].dtype == np.uint64
        rng = np.random.default_rng(0)
        returns = np.zeros(2)
        for step in range(26):
            observations, rewards, terminated, truncated, infos = batch.step(random_actions(infos["action_mask"], rng))
            returns += rewards
            assert batch.observation_space.contains(observations)
            assert terminated.all() == (step == 24)
            assert not truncated.any()
        alone = []
        for i in range(2):
            env = PatienceEnv(POKER, placement="fixed")
            env.reset(seed=3 + i)
            env.reset()
            alone.append(env.deal)
        assert infos["deal"].tolist() == alone
        assert (returns >= 0).all()
    finally:
        batch.close()


@pytest.mark.compiled
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_started_after_the_rules_ran_here(context: str) -> None:
    env = PatienceEnv(POKER)
    env.reset(seed=1)
    env.step(env.sample())
    batch = AsyncVectorEnv([lambda: gymnasium.make("patience_env:PatiencePoker-v0")] * 2, context=context)
    try:
        expected = SyncVectorEnv([lambda: PatienceEnv(POKER)] * 2)
        observations, infos = batch.reset(seed=5)
        assert (observations == expected.reset(seed=5)[0]).all()
        actions = random_actions(infos["action_mask"], np.random.default_rng(0))
        assert (batch.step(actions)[0] == expected.step(actions)[0]).all()
    finally:
        batch.close()


# -- seeds, deals, resets ----------------------------------------------------------------------------------------


def deals_of(batch: PatienceVectorEnv, **arguments: Any) -> list[int]:
    return [int(deal) for deal in batch.reset(**arguments)[1]["deal"]]


def test_seeding() -> None:
    one, two = PatienceVectorEnv(POKER, 3), PatienceVectorEnv(POKER, 3)
    first = deals_of(one, seed=5)
    assert first == deals_of(two, seed=[5, 6, 7]) == deals_of(two, seed=np.array([5, 6, 7]))
    assert one.np_random_seed == (5, 6, 7)
    assert len(one.np_random) == 3
    assert deals_of(one) == deals_of(two) != first
    before = deals_of(one, seed=5)
    later = deals_of(one, seed=[None, 6, None])
    assert later[1] == before[1]
    assert later[0] != before[0]
    fresh = PatienceVectorEnv(POKER, 3)
    assert len(set(deals_of(fresh))) == 3
    assert deals_of(PatienceVectorEnv(POKER, 3)) != deals_of(PatienceVectorEnv(POKER, 3))


def test_random_numbers_before_the_first_reset() -> None:
    batch = PatienceVectorEnv(POKER, 3)
    assert len(set(batch.np_random_seed)) == 3
    assert len(batch.np_random) == 3


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (-1, gymnasium.error.Error),
        ([1, 2], ValueError),
        ([1, 2, 3, 4], ValueError),
        ([1, -2, 3], gymnasium.error.Error),
        ([1, "a", 3], gymnasium.error.Error),
        (1.5, TypeError),
        ("abc", TypeError),
        (True, TypeError),
        (np.zeros((3, 1), int), TypeError),
    ],
)
def test_refuses_other_seeds_and_changes_nothing(seed: Any, error: type[Exception]) -> None:
    batch, other = PatienceVectorEnv(POKER, 3), PatienceVectorEnv(POKER, 3)
    for one in (batch, other):
        one.reset(seed=2)
    with pytest.raises(error):
        batch.reset(seed=seed)
    assert batch.np_random_seed == (2, 3, 4)
    assert (batch.states() == other.states()).all()
    assert deals_of(batch) == deals_of(other)


def test_deals_by_number() -> None:
    batch = PatienceVectorEnv(POKER, 3)
    assert deals_of(batch, options={"deal": 7}) == [7, 7, 7]
    assert deals_of(batch, options={"deal": [1, 2, 2**64 - 1]}) == [1, 2, 2**64 - 1]
    assert deals_of(batch, options={"deal": np.array([4, 5, 6], np.uint64)}) == [4, 5, 6]
    mask = np.array([False, True, False])
    assert deals_of(batch, options={"deal": 9, "reset_mask": mask}) == [4, 9, 6]
    one, two = PatienceVectorEnv(POKER, 3), PatienceVectorEnv(POKER, 3)
    one.reset(seed=2)
    two.reset(seed=2)
    one.reset(options={"deal": 7})
    assert deals_of(one) == deals_of(two)


ALL = np.ones(3, np.bool_)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"deal": -1}, ValueError, "deal -1 lies outside"),
        ({"deal": [1, 2]}, ValueError, "there are 3 games, but 2 deals"),
        ({"deal": [1, 2, 3.0]}, TypeError, "a deal is a whole number"),
        ({"deal": [1, 2, 2**64]}, ValueError, "lies outside"),
        ({"deal": 1.5}, TypeError, "a deal is a whole number"),
        ({"deal": "123"}, TypeError, "a deal is a whole number"),
        ({"mask": ALL}, ValueError, "reset has no option 'mask': it takes 'deal' and 'reset_mask'"),
        ({"reset_mask": [True] * 3}, ValueError, r"a bool array of shape \(3,\)"),
        ({"reset_mask": ALL[:2]}, ValueError, r"a bool array of shape \(3,\)"),
        ({"reset_mask": ALL.astype(int)}, ValueError, r"a bool array of shape \(3,\)"),
        ({"reset_mask": ~ALL}, ValueError, "chooses no game"),
        (4, TypeError, "the options of reset are a dict"),
    ],
)
def test_refuses_other_reset_options_and_changes_nothing(options: Any, error: type[Exception], message: str) -> None:
    batch, other = PatienceVectorEnv(POKER, 3), PatienceVectorEnv(POKER, 3)
    for one in (batch, other):
        one.reset(seed=2)
    with pytest.raises(error, match=message):
        batch.reset(seed=9, options=options)
    assert (batch.states() == other.states()).all()
    assert deals_of(batch) == deals_of(other)


def test_some_games_alone_are_not_started_first() -> None:
    batch = PatienceVectorEnv(POKER, 2)
    with pytest.raises(ResetNeeded, match="reset all games once"):
        batch.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before step"):
        batch.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before sample"):
        batch.sample(np.random.default_rng(0))


def test_the_callers_options_stay_as_they_are() -> None:
    options = {"deal": 3, "reset_mask": np.ones(2, np.bool_)}
    PatienceVectorEnv(POKER, 2).reset(options=options)
    assert set(options) == {"deal", "reset_mask"}


def test_a_masked_reset_leaves_the_other_games_alone() -> None:
    batch = PatienceVectorEnv(POKER, 3, autoreset_mode=AutoresetMode.DISABLED)
    batch.reset(seed=2)
    rng = np.random.default_rng(0)
    for _ in range(24):
        results = batch.step(batch.sample(rng))
    assert results[2].all()
    with pytest.raises(ResetNeeded, match=r"games \[0, 1, 2\] have ended"):
        batch.step(np.zeros(3, np.int64))
    before = batch.states()
    observations, infos = batch.reset(options={"reset_mask": np.array([False, True, False])})
    assert (batch.states()[[0, 2]] == before[[0, 2]]).all()
    assert (observations[[0, 2]] == results[0][[0, 2]]).all()
    assert infos["action_mask"].any(axis=1).tolist() == [False, True, False]
    with pytest.raises(ResetNeeded, match=r"games \[0, 2\] have ended"):
        batch.step(np.zeros(3, np.int64))


# -- actions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        ([1, 2], ValueError, r"actions must have the shape \(3,\), one for each game, not \(2,\)"),
        (5, ValueError, r"not \(\)"),
        ([[1], [2], [3]], ValueError, r"not \(3, 1\)"),
        ([1.0, 2.0, 3.0], TypeError, "actions must be whole numbers, not float64"),
        ([True, False, True], TypeError, "actions must be whole numbers, not bool"),
        (["1", "2", "3"], TypeError, "actions must be whole numbers, not <U1"),
        ([10**30, 1, 1], TypeError, "actions must be whole numbers, not object"),
        (None, ValueError, r"not \(\)"),
        ([[1], [2, 3], 4], ValueError, r"actions must have the shape \(3,\), one for each game: "),
    ],
)
def test_refuses_other_actions_and_changes_nothing(actions: Any, error: type[Exception], message: str) -> None:
    batch = PatienceVectorEnv(POKER, 3)
    batch.reset(seed=2)
    before = batch.states()
    with pytest.raises(error, match=message):
        batch.step(actions)
    assert (batch.states() == before).all()


@every_game
@every_mode
def test_raise_mode_changes_nothing_on_an_illegal_action(game_id: str, mode: AutoresetMode) -> None:
    arguments: dict[str, Any] = {"illegal_action": "raise", "max_episode_steps": 4, "autoreset_mode": mode}
    batch, other = PatienceVectorEnv(game_id, 3, **arguments), PatienceVectorEnv(game_id, 3, **arguments)
    for one in (batch, other):
        observations, infos = one.reset(seed=2)
    rng = np.random.default_rng(0)
    for _ in range(12):
        good = random_actions(infos["action_mask"], rng)
        resetting = batch._ended.copy()
        if mode == AutoresetMode.DISABLED and resetting.any():
            for one in (batch, other):
                observations, infos = one.reset(options={"reset_mask": resetting})
            good, resetting = random_actions(infos["action_mask"], rng), np.zeros(3, np.bool_)
        if not resetting[1]:
            illegal = np.flatnonzero(infos["action_mask"][1] == 0)
            before = batch.states()
            for wrong in [-1, batch.layout.actions, *illegal[:2]]:
                bad = good.copy()
                bad[1] = wrong
                with pytest.raises(InvalidAction, match=rf"action {wrong} of {game_id} in game 1"):
                    batch.step(bad)
            assert (batch.states() == before).all()
        observations, *results, infos = batch.step(good)
        expected, *expected_results, _ = other.step(good)
        assert (observations == expected).all()
        assert all((a == b).all() for a, b in zip(results, expected_results, strict=True))


def test_a_huge_unsigned_action_is_named_as_it_was_given() -> None:
    batch = PatienceVectorEnv(POKER, 2, illegal_action="raise")
    batch.reset(seed=1)
    with pytest.raises(InvalidAction, match=f"action {2**64 - 1} of PatiencePoker-v0 in game 0 lies outside 0 to 80"):
        batch.step(np.full(2, 2**64 - 1, np.uint64))


def test_takes_whole_numbers_of_any_type_and_layout() -> None:
    for kind in (np.int8, np.uint8, np.int32, np.uint64):
        batch = PatienceVectorEnv(POKER, 2, illegal_action="raise")
        batch.reset(seed=1)
        strided = np.zeros(4, kind)
        strided[::2] = 30
        assert not batch.step(strided[::2])[2].any()
        assert not batch.step([31, 31])[2].any()  # type: ignore[arg-type]


def test_forfeit_warns_once_and_ends_that_game_alone() -> None:
    batch = PatienceVectorEnv(POKER, 3)
    batch.reset(seed=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            _, rewards, terminated, _, infos = batch.step(np.array([30, -5, 30]))
            assert rewards.tolist() == [0.0, -1.0, 0.0]
            assert terminated.tolist() == infos["illegal_action"].tolist() == [False, True, False]
            assert infos["_illegal_action"].tolist() == [False, True, False]
            batch.reset(seed=1)
    assert len(caught) == 1


@every_game
def test_sample_is_legal_and_repeatable(game_id: str) -> None:
    batch = PatienceVectorEnv(game_id, 4, illegal_action="raise", max_episode_steps=30)
    batch.reset(seed=1)
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(40):
        actions = batch.sample(one)
        assert (actions.dtype, actions.shape) == (np.int64, (4,))
        assert (actions == batch.sample(two)).all()
        batch.step(actions)


# -- what is returned --------------------------------------------------------------------------------------------


def arrays_in(results: tuple[Any, ...]) -> list[NDArray[Any]]:
    found = [value for value in results if isinstance(value, np.ndarray) and value.dtype != object]
    for value in results:
        if isinstance(value, dict):
            found += arrays_in(tuple(value.values()))
        elif isinstance(value, np.ndarray) and value.dtype == object:
            found += arrays_in(tuple(value))
    return found


@every_game
@every_mode
@pytest.mark.parametrize("kept_steps", [3, 40])
def test_returned_arrays_are_never_overwritten(game_id: str, mode: AutoresetMode, kept_steps: int) -> None:
    """Whether everything is kept, or only the latest results, or a mere slice of them."""
    batch = PatienceVectorEnv(game_id, 3, autoreset_mode=mode, max_episode_steps=9)
    results: tuple[Any, ...] = batch.reset(seed=2)
    kept: list[tuple[NDArray[Any], NDArray[Any]]] = []
    rng = np.random.default_rng(0)
    for _ in range(30):
        kept += [(array, array.copy()) for array in arrays_in(results)]
        kept += [(results[0][1:], results[0][1:].copy()), (results[0].ravel(), results[0].ravel().copy())]
        kept = kept[-15 * kept_steps :]
        if mode == AutoresetMode.DISABLED and batch._ended.any():
            results = batch.reset(options={"reset_mask": batch._ended.copy()})
        else:
            results = batch.step(random_actions(results[-1]["action_mask"], rng))
        assert all((array == was).all() for array, was in kept)


def test_writing_into_returned_arrays_changes_nothing() -> None:
    batch, other = PatienceVectorEnv(POKER, 3), PatienceVectorEnv(POKER, 3)
    rng, same = np.random.default_rng(0), np.random.default_rng(0)
    results, expected = batch.reset(seed=1), other.reset(seed=1)
    for _ in range(60):
        for array in arrays_in(results):
            array[...] = 1
        results, expected = batch.step(batch.sample(rng)), other.step(other.sample(same))
        for array, wanted in zip(arrays_in(results), arrays_in(expected), strict=True):
            assert (array == wanted).all()


def test_buffers_are_used_again_once_nobody_holds_them() -> None:
    buffers = vector._Buffers((6,))
    first = buffers.take()
    address = first.ctypes.data
    part = first[2:]
    del first
    assert buffers.take().ctypes.data != address
    del part
    again = [buffers.take() for _ in range(20)]
    assert address in {array.ctypes.data for array in again}
    assert len({array.ctypes.data for array in again}) == 20
    assert sys.getsizeof(buffers._kept) < 1000
    assert len(buffers._kept) <= 8


def test_live_arrays_on_request() -> None:
    batch = PatienceVectorEnv(POKER, 2, copy=False)
    observations, infos = batch.reset(seed=1)
    before = observations.copy()
    later, *_, later_infos = batch.step(batch.sample(np.random.default_rng(0)))
    assert later is observations
    assert later_infos["action_mask"] is infos["action_mask"]
    assert (before != observations).any()


@every_game
def test_truncation_after_max_episode_steps(game_id: str) -> None:
    batch = PatienceVectorEnv(game_id, 4, max_episode_steps=3)
    batch.reset(seed=1)
    rng = np.random.default_rng(0)
    played = np.zeros(4, int)
    for _ in range(12):
        resetting = batch._ended.copy()
        _, rewards, terminated, truncated, _ = batch.step(batch.sample(rng))
        played = np.where(resetting, 0, played + 1)
        assert (truncated == (played == 3)).all()
        assert not (rewards != 0)[resetting].any()
        assert not (terminated | truncated)[resetting].any()


def test_registered_time_limits_reach_the_batch() -> None:
    for game_id in GAMES:
        batch: Any = gymnasium.make_vec(game_id, 1)
        assert batch.max_episode_steps == gymnasium.spec(game_id).max_episode_steps


def test_finals_of_the_same_step_mode() -> None:
    batch = PatienceVectorEnv(POKER, 2, autoreset_mode="SameStep")
    batch.reset(options={"deal": [1, 2]})
    rng = np.random.default_rng(0)
    returns = np.zeros(2)
    for _ in range(24):
        observations, rewards, terminated, _, infos = batch.step(batch.sample(rng))
        returns += rewards
    assert terminated.all()
    assert infos["final_info"]["deal"].tolist() == [1, 2]
    assert infos["final_info"]["score"].tolist() == returns.tolist()
    assert not infos["final_info"]["action_mask"].any()
    assert (infos["deal"] >= 2**32).all()
    assert infos["action_mask"].any(axis=1).all()
    assert infos["score"].tolist() == [0.0, 0.0]
    assert all((infos["final_obs"][i] != observations[i]).any() for i in range(2))


# -- arguments, copies, closing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_envs": 0}, ValueError, "num_envs=0 is not allowed: give a whole number of at least 1"),
        ({"num_envs": -3}, ValueError, "num_envs=-3 is not allowed"),
        ({"num_envs": 2.0}, ValueError, "num_envs=2.0 is not allowed"),
        ({"num_envs": True}, ValueError, "num_envs=True is not allowed"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps=0 is not allowed"),
        ({"max_episode_steps": 2.5}, ValueError, "max_episode_steps=2.5 is not allowed"),
        ({"max_episode_steps": 2**63}, ValueError, "max_episode_steps=9223372036854775808 is not allowed"),
        ({"max_episode_steps": "9"}, ValueError, "max_episode_steps='9' is not allowed"),
        ({"autoreset_mode": "never"}, ValueError, "autoreset_mode='never' is not allowed: choose one of NextStep"),
        ({"autoreset_mode": [1]}, ValueError, r"autoreset_mode=\[1\] is not allowed: choose one of NextStep"),
        ({"autoreset_mode": None}, ValueError, "autoreset_mode=None is not allowed: choose one of NextStep"),
        ({"copy": "no"}, ValueError, "copy='no' is not allowed: give True or False"),
        ({"render_mode": "human"}, ValueError, "render_mode='human' is not allowed"),
        ({"observation": "pixels"}, ValueError, "observation='pixels' is not allowed"),
        ({"illegal_action": "skip"}, ValueError, "illegal_action='skip' is not allowed"),
        ({"reward": "win"}, ValueError, "reward='win' is not allowed for PatiencePoker-v0"),
        ({"colour": 3}, TypeError, "has no option 'colour'"),
        ({"placement": "free"}, ValueError, "placement='free' is not allowed"),
    ],
)
def test_refuses_other_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PatienceVectorEnv(POKER, **{"num_envs": 2, **arguments})


@every_game
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_pickled_in_the_middle_of_episodes(game_id: str, copied: Any) -> None:
    batch = PatienceVectorEnv(game_id, 3, max_episode_steps=7)
    rng = np.random.default_rng(0)
    twin = copied(batch)
    assert (twin.reset(seed=1)[0] == batch.reset(seed=1)[0]).all()
    for _ in range(5):
        batch.step(batch.sample(rng))
    twin = copied(batch)
    for _ in range(20):
        actions = batch.sample(rng)
        results, expected = twin.step(actions), batch.step(actions)
        for array, wanted in zip(arrays_in(results), arrays_in(expected), strict=True):
            assert (array == wanted).all()


def test_no_global_random_state_is_touched() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002
    batch = PatienceVectorEnv(POKER, 3)
    batch.reset()
    rng = np.random.default_rng(0)
    for _ in range(60):
        batch.step(batch.sample(rng))
    assert (random.getstate(), pickle.dumps(np.random.get_state())) == before  # noqa: NPY002


def test_closing_twice_is_harmless() -> None:
    batch = PatienceVectorEnv(POKER, 2)
    batch.close()
    batch.close()
    assert batch.closed


def test_the_state_of_every_game_is_a_copy() -> None:
    batch = PatienceVectorEnv(POKER, 2)
    batch.reset(seed=1)
    states = batch.states()
    states["placed"] = 99
    assert (batch.states()["placed"] == 1).all()
    masks = batch.action_masks()
    masks[:] = False
    assert batch.action_masks().any()


def test_single_and_batch_agree_on_a_loaded_policy_of_first_actions() -> None:
    """The first legal action each time, from the masks of the batch and from those of the single environment."""
    batch = PatienceVectorEnv(POKER, 2, target=30, autoreset_mode="SameStep")
    _, infos = batch.reset(seed=4)
    env = PatienceEnv(POKER, target=30)
    env.reset(seed=4)
    for _ in range(scaled(300, 60)):
        action = legal_actions(env)[0]
        actions = infos["action_mask"].argmax(axis=1)
        assert action == actions[0]
        *_, infos = batch.step(actions)
        if env.step(action)[2]:
            env.reset()
        assert infos["deal"][0] == env.deal
