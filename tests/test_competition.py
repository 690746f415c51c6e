"""Patience Poker as a contest: the PettingZoo interface, and that nobody fares otherwise than alone."""

from __future__ import annotations

import copy
import itertools
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded

from patience_env import jit
from patience_env.agents.policy import make_policy
from patience_env.cards import card_code
from patience_env.env import PatienceEnv

pytest.importorskip("pettingzoo")

from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from patience_env.competition import CompetitionEnv, aec_env, parallel_env

POKER = "PatiencePoker-v0"
VARIANTS: list[dict[str, Any]] = [
    {},
    {"placement": "fixed", "observation": "cards", "players": 3, "deals": 2},
    {"scoring": "random", "illegal_action": "raise", "deals": 2},
]


def pick(observation: dict[str, Any], rng: np.random.Generator) -> int:
    """Return a random action that the mask allows."""
    return int(rng.choice(np.flatnonzero(observation["action_mask"])))


def play(env: CompetitionEnv, rng: np.random.Generator, observations: dict[str, Any]) -> list[Any]:
    """Play at random to the end; return what every step was given and returned."""
    steps = []
    while env.agents:
        actions = {agent: pick(observations[agent], rng) for agent in env.agents}
        stepped = env.step(actions)
        observations = stepped[0]
        steps.append((actions, *stepped))
    return steps


def forfeit_one(env: CompetitionEnv, observations: dict[str, Any], agent: str) -> Any:
    """Let one player answer with an illegal action and the others with legal ones; return what `step` returned."""
    rng = np.random.default_rng(0)
    actions = {name: pick(observations[name], rng) for name in env.agents}
    actions[agent] = int(np.flatnonzero(observations[agent]["action_mask"] == 0)[0])
    return env.step(actions)


# -- PettingZoo --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", VARIANTS)
def test_pettingzoo_s_checks_pass(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The one thing that the test does against our advice: an option that does not exist.
        warnings.filterwarnings("ignore", message=".*reset passes over the options 'options'")
        parallel_api_test(parallel_env(**options), num_cycles=300 if jit.JIT else 60)


def test_pettingzoo_s_seed_check_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it plays illegal actions
        parallel_seed_test(lambda: parallel_env(placement="fixed"))


@pytest.mark.parametrize("options", VARIANTS)
def test_the_form_for_one_player_at_a_time_passes_pettingzoo_s_checks(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PettingZoo's own: observations as dicts, and reset's unknown option
        api_test(aec_env(**options), num_cycles=100 if jit.JIT else 30)
        seed_test(lambda: aec_env(**options), num_cycles=60 if jit.JIT else 20)


def test_one_at_a_time_is_the_same_contest() -> None:
    together, in_turn = parallel_env(players=3, deals=2), aec_env(players=3, deals=2)
    rng = np.random.default_rng(3)
    steps = play(together, rng, together.reset(seed=8)[0])
    in_turn.reset(seed=8)
    returns = dict.fromkeys(together.possible_agents, 0.0)
    queue = iter([actions[agent] for actions, *_ in steps for agent in together.possible_agents])
    for agent in in_turn.agent_iter():
        _, reward, terminated, truncated, _ = in_turn.last()
        returns[agent] += reward
        in_turn.step(None if terminated or truncated else next(queue))
    assert next(queue, None) is None
    assert returns == together.totals()


# -- the contest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"placement": "fixed"}, {"placement": "fixed", "scoring": "english"}])
def test_everybody_fares_as_alone_with_the_same_deals_and_actions(options: dict[str, Any]) -> None:
    env = parallel_env(players=3, deals=3, **options)
    rng = np.random.default_rng(11)
    numbers = [5, 2**64 - 1, 77]
    observations, infos = env.reset(options={"deals": numbers})
    alone = {agent: PatienceEnv(POKER, illegal_action="raise", **options) for agent in env.agents}
    totals = dict.fromkeys(env.agents, 0.0)
    for number in numbers:
        for agent, single in alone.items():
            observation, info = single.reset(options={"deal": number})
            assert infos[agent]["deal"] == number
            assert (observations[agent]["observation"] == observation).all()
            assert (observations[agent]["action_mask"] == info["action_mask"]).all()
        over = False
        while not over:
            actions = {agent: pick(observations[agent], rng) for agent in env.agents}
            observations, rewards, _, _, infos = env.step(actions)
            for agent, single in alone.items():
                observation, reward, over, _, info = single.step(actions[agent])
                assert rewards[agent] == reward
                totals[agent] += reward
                assert infos[agent]["total"] == totals[agent]
                if over:
                    assert infos[agent]["deal_score"] == info["score"]
                else:
                    assert infos[agent]["score"] == info["score"]
                    assert (observations[agent]["observation"] == observation).all()
                    assert (observations[agent]["action_mask"] == info["action_mask"]).all()
    assert not env.agents
    assert env.totals() == totals
    best = max(totals.values())
    assert env.winners() == [agent for agent, total in totals.items() if total == best]
    assert [agent for agent in totals if infos[agent]["won"]] == env.winners()


def test_calling_passes_to_the_left() -> None:
    env = parallel_env(players=3, deals=5, placement="fixed")
    callers = [env.reset(seed=1)[1]["player_0"]["caller"]]
    for *_, infos in play(env, np.random.default_rng(0), env.reset(seed=1)[0]):
        assert len({info["caller"] for info in infos.values()}) == 1
        callers.append(infos["player_2"]["caller"])
    order = [caller for caller, _ in itertools.groupby(callers)]
    assert order == ["player_0", "player_1", "player_2", "player_0", "player_1"]
    assert len(callers) == 5 * 25 + 1


def test_the_same_cards_are_called_to_all_and_new_ones_in_each_deal() -> None:
    env = parallel_env(players=4, deals=3, placement="fixed", observation="cards")
    seen = []
    observations, _ = env.reset(seed=6)
    rng = np.random.default_rng(1)
    while env.agents:
        called = {int(observation["observation"][25]) for observation in observations.values()}
        assert len(called) == 1
        seen += called
        observations, *_ = env.step({agent: pick(observations[agent], rng) for agent in env.agents})
    deals = [tuple(seen[i : i + 25]) for i in (0, 25, 50)]
    assert len(set(deals)) == 3
    assert all(len(set(deal)) == 25 for deal in deals)


def test_players_see_the_others_cards_from_their_left_on_and_all_totals() -> None:
    env = parallel_env(players=3, deals=2, placement="fixed", observation="cards")
    observations, _ = env.reset(seed=4)
    card = int(observations["player_0"]["observation"][25])
    observations, *_ = env.step({"player_0": 3, "player_1": 7, "player_2": 12})
    for i in range(3):
        mine = observations[f"player_{i}"]
        where = [3, 7, 12]
        assert mine["observation"][where[i]] == card
        for j, cells in enumerate(mine["opponents"]):
            assert np.flatnonzero(cells).tolist() == [where[(i + 1 + j) % 3]]
    rng = np.random.default_rng(2)
    while env.agents:
        observations, *_, infos = env.step({agent: pick(observations[agent], rng) for agent in env.agents})
        totals = list(env.totals().values())
        for i in range(3):
            mine = observations[f"player_{i}"]
            assert mine["totals"].tolist() == [totals[(i + j) % 3] for j in range(3)]
            assert mine["deals_left"].tolist() == [1 - infos["player_0"]["deal_index"]]
    assert sum(totals) > 0


def test_nothing_seen_depends_on_cards_to_come() -> None:
    env = parallel_env(players=2, deals=2)
    observations, _ = env.reset(seed=9)
    rng = np.random.default_rng(5)
    for _ in range(10):
        observations, *_ = env.step({agent: pick(observations[agent], rng) for agent in env.agents})
    twin = copy.deepcopy(env)
    for state in twin._rows.states:
        deck = state["deck"]
        deck[int(state["placed"]) + 1 :] = deck[int(state["placed"]) + 1 :][::-1].copy()
    twin._rows.show(twin._rows.all_rows)
    for agent, observation in twin._observations().items():
        for name, values in observation.items():
            assert (values == observations[agent][name]).all(), name


def test_seeds_give_deals_and_contests_go_on_from_the_seed() -> None:
    first, second = parallel_env(), parallel_env()
    deals = []
    for env in (first, second):
        env.reset(seed=12)
        before = env._numbers.tolist()
        env.reset()
        deals.append((before, env._numbers.tolist()))
    assert deals[0] == deals[1]
    assert deals[0][0] != deals[0][1]
    assert min(min(numbers) for numbers in deals[0]) >= 2**32, "deals that policies are compared on are not drawn"


def test_the_winner_s_reward() -> None:
    env = parallel_env(players=3, deals=1, placement="fixed", reward="win")
    observations, _ = env.reset(seed=2)
    rng = np.random.default_rng(0)
    returns = dict.fromkeys(env.agents, 0.0)
    while env.agents:
        actions = {agent: pick(observations[agent], rng) for agent in env.agents}
        actions["player_2"] = actions["player_0"] = int(np.flatnonzero(observations["player_0"]["action_mask"])[0])
        observations, rewards, *_ = env.step(actions)
        returns = {agent: returns[agent] + rewards[agent] for agent in returns}
    winners = env.winners()
    assert sum(returns.values()) == pytest.approx(1.0)
    assert returns == {agent: (agent in winners) / len(winners) for agent in returns}
    assert ("player_0" in winners) == ("player_2" in winners), "they played alike"


def test_policies_play_from_their_seats() -> None:
    env = parallel_env(players=2, deals=1, placement="fixed")
    policies = {"player_0": make_policy("flush-rank", POKER), "player_1": make_policy("greedy", POKER)}
    env.reset(options={"deals": [3]})
    while env.agents:
        env.step({agent: policies[agent].choose(env.seat(agent)) for agent in env.agents})
    for agent, name in (("player_0", "flush-rank"), ("player_1", "greedy")):
        policy = make_policy(name, POKER)  # anew: it breaks ties by a random stream of its own
        single = PatienceEnv(POKER, placement="fixed")
        single.reset(options={"deal": 3})
        over, score = False, 0.0
        while not over:
            _, reward, over, _, _ = single.step(policy.choose(single))
            score += reward
        assert env.totals()[agent] == score


# -- illegal actions ---------------------------------------------------------------------------------------------


def test_a_forfeited_tableau_scores_zero_and_the_player_is_back_in_the_next_deal() -> None:
    env = parallel_env(players=2, deals=2, placement="fixed")
    env.reset(options={"deals": [0, 1]})
    # Both fill the square row by row, so that lines score before player_0 errs.
    for cell in range(24):
        env.step(dict.fromkeys(env.agents, cell))
    scored = env.totals()
    assert scored["player_0"] == scored["player_1"] > 0
    with pytest.warns(UserWarning, match="an illegal action of player_0 forfeited the tableau"):
        _, rewards, terminated, _, infos = env.step({"player_0": 0, "player_1": 24})
    assert rewards["player_0"] == -scored["player_0"]
    assert infos["player_0"]["illegal_action"]
    assert not infos["player_1"]["illegal_action"]
    assert infos["player_0"]["deal_score"] == infos["player_0"]["total"] == 0.0
    assert infos["player_1"]["total"] == infos["player_1"]["deal_score"] >= scored["player_1"]
    assert not infos["player_0"]["forfeited"], "the next deal has begun"
    assert not any(terminated.values())
    for cell in range(25):
        env.step({"player_0": cell, "player_1": cell})
    assert env.totals()["player_0"] == env.totals()["player_1"] - infos["player_1"]["deal_score"]


def test_who_has_forfeited_sits_out_and_the_others_go_on() -> None:
    env = parallel_env(players=2, deals=2)
    observations, _ = env.reset(seed=5)
    with pytest.warns(UserWarning, match="forfeited"):
        observations, _, _, _, infos = forfeit_one(env, observations, "player_1")
    assert infos["player_1"]["forfeited"]
    held = env._rows.states[1].copy()
    rng = np.random.default_rng(0)
    for _ in range(22):
        assert observations["player_1"]["action_mask"].all(), "never all zero"
        actions: dict[str, Any] = {"player_0": pick(observations["player_0"], rng), "player_1": None}
        observations, rewards, _, _, infos = env.step(actions)
        assert rewards["player_1"] == 0.0
        assert env._rows.states[1] == held
    with pytest.raises(ValueError, match="player_1 has forfeited"):
        env.seat("player_1")
    *_, infos = env.step({"player_0": pick(observations["player_0"], rng), "player_1": -5})
    assert infos["player_1"]["deal_index"] == 1
    assert not infos["player_1"]["forfeited"]


def test_a_deal_that_all_forfeit_is_over() -> None:
    env = parallel_env(players=2, deals=1, placement="fixed")
    env.reset(seed=5)
    with pytest.warns(UserWarning, match="forfeited"):
        _, rewards, terminated, _, infos = env.step({"player_0": 25, "player_1": -1})
    assert all(terminated.values())
    assert not env.agents
    assert rewards == {"player_0": 0.0, "player_1": 0.0}
    assert env.winners() == ["player_0", "player_1"]
    assert infos["player_0"]["won"]


def test_illegal_actions_can_raise_and_change_nothing() -> None:
    env = parallel_env(illegal_action="raise", placement="fixed")
    env.reset(seed=5)
    env.step({"player_0": 4, "player_1": 9})
    before = env._rows.states.copy()
    with pytest.raises(InvalidAction, match=r"player_1 is not legal: it would place .. in row 2, column 5"):
        env.step({"player_0": 5, "player_1": 9})
    with pytest.raises(InvalidAction, match="player_0 is not legal: it lies outside"):
        env.step({"player_0": 10**30, "player_1": 1})
    assert (env._rows.states == before).all()


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"players": 1}, ValueError, "players=1 is not allowed: give a whole number of at least 2"),
        ({"players": True}, ValueError, "players=True"),
        ({"deals": 0}, ValueError, "deals=0 is not allowed"),
        ({"deals": 2.0}, ValueError, "deals=2.0 is not allowed"),
        ({"reward": "points"}, ValueError, "reward='points' is not allowed: choose one of 'score', 'win'"),
        ({"render_mode": "human"}, ValueError, "render_mode='human' is not allowed"),
        ({"illegal_action": "ignore"}, ValueError, "illegal_action='ignore' is not allowed"),
        ({"observation": "image"}, ValueError, "observation='image'"),
        ({"target": 500}, ValueError, "target makes a series of one player"),
        ({"scoring": "random"}, ValueError, "give illegal_action='raise'"),
        ({"rounds": 3}, TypeError, "has no option 'rounds'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parallel_env(**arguments)


@pytest.mark.parametrize(
    ("deals", "error", "message"),
    [
        ([1, 2, 3], ValueError, "goes over 2 deals: 3 deal numbers are given"),
        ([1, -1], ValueError, "deal -1 lies outside"),
        ([1, "2"], TypeError, "a deal is a whole number"),
        (7, TypeError, "a list of deal numbers"),
    ],
)
def test_wrong_deals_change_nothing(deals: Any, error: type[Exception], message: str) -> None:
    env = parallel_env(deals=2)
    env.reset(seed=1)
    before = env._rows.states.copy()
    with pytest.raises(error, match=message):
        env.reset(options={"deals": deals})
    assert (env._rows.states == before).all()
    assert env.agents


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        ({"player_0": 1}, ValueError, "the action of player_1 is missing"),
        ({"player_0": 1, "player_1": 1, "player_2": 1}, ValueError, "there is no player 'player_2'"),
        ({"player_0": 1, "player_1": None}, TypeError, "the action of player_1 is a whole number from 0 to 24"),
        ({"player_0": 1, "player_1": 1.5}, TypeError, "not 1.5"),
    ],
)
def test_wrong_actions_change_nothing(actions: Any, error: type[Exception], message: str) -> None:
    env = parallel_env(placement="fixed")
    env.reset(seed=1)
    before = env._rows.states.copy()
    with pytest.raises(error, match=message):
        env.step(actions)
    assert (env._rows.states == before).all()


def test_reset_comes_first() -> None:
    env = parallel_env(render_mode="ansi")
    for call in (lambda: env.step({}), env.render, lambda: env.seat("player_0")):
        with pytest.raises(ResetNeeded):
            call()


def test_without_pettingzoo_the_error_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "patience_env.competition")
    monkeypatch.setitem(sys.modules, "pettingzoo", types.ModuleType("pettingzoo"))
    with pytest.raises(ImportError, match=r'pip install "patience-env\[multiplayer\]"'):
        import patience_env.competition  # noqa: F401


# -- pictures ----------------------------------------------------------------------------------------------------


def test_tableaus_side_by_side_in_text() -> None:
    env = parallel_env(placement="fixed", render_mode="ansi", deals=2)
    env.reset(options={"deals": [0, 1]})
    (first,) = env.seat("player_0").table()["hand"]
    env.step({"player_0": 0, "player_1": 24})
    (second,) = env.seat("player_0").table()["hand"]
    with pytest.warns(UserWarning, match="forfeited"):
        env.step({"player_0": 0, "player_1": 0})
    (third,) = env.seat("player_1").table()["hand"]
    assert env.render().splitlines() == [
        "Patience Poker, deal 1 of 2: player_0 calls",
        "",
        "called  stock",
        f"{third}      ??x49",
        "player_0 0 (out)        player_1 0 (+0)",
        f"{first}   .   .   .   .      {second}  []  []  []  []",
        *[" .   .   .   .   .      []  []  []  []  []"] * 3,
        f" .   .   .   .   .      []  []  []  []  {first}",
    ]
    assert card_code(first)


def test_pixels_show_all_tableaus_and_keep_their_size() -> None:
    pytest.importorskip("pygame")
    env = parallel_env(players=3, deals=1, placement="fixed", render_mode="rgb_array")
    env.reset(seed=1)
    frames = [env.render()]
    for cell in range(25):
        env.step(dict.fromkeys(env.agents, cell))
        frames.append(env.render())
    assert {frame.shape for frame in frames} == {frames[0].shape}
    assert all((first != second).any() for first, second in itertools.pairwise(frames))
