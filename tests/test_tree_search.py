"""Search on any game: rollouts are what they say, trees add up, nobody peeks, budgets are kept, play gets better."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import patience_env
from patience_env import jit
from patience_env.agents import rollouts, tree_search
from patience_env.agents.policy import Policy, make_policy, policy_names, see
from patience_env.agents.rollouts import GREEDY, RANDOM, ROLLOUTS, THUMB, roll_out, rollout_names
from patience_env.agents.tree_search import FlatMonteCarloPolicy, UCTPolicy
from patience_env.deals import named_deals, splitmix64
from patience_env.env import PatienceEnv
from patience_env.game import Entry, get_game, max_episode_steps
from patience_env.kernels import won_rows
from patience_env.training.evaluate import evaluate
from playing import GAMES, begin, legal_actions, scaled, strict

POKER = "PatiencePoker-v0"
# To compile a search takes some ten seconds a game: these stand for all but in the slow tests and in plain Python.
FEW = ("PatiencePoker-v0", "Sultan-v0", "Fortress-v0")
TWO = ("Sultan-v0", "Fortress-v0")
ALL_GAMES = [pytest.param(game, marks=() if game in FEW or not jit.JIT else pytest.mark.slow) for game in GAMES]
ALL_ROLLED = [pytest.param(game, marks=() if game in TWO or not jit.JIT else pytest.mark.slow) for game in GAMES]
SEARCHES = ("flat", "uct")


def midgame(game_id: str, deal: int = 7, steps: int = 4, **options: Any) -> PatienceEnv:
    """Return a game after some random moves, and all further ones that are the only ones."""
    env = strict(game_id, **options)
    begin(env, deal, steps)
    while len(legal_actions(env)) == 1 and not env.clone().step(legal_actions(env)[0])[2]:
        env.step(legal_actions(env)[0])
    return env


def mask_of(env: PatienceEnv) -> NDArray[np.int8]:
    return env.action_masks().astype(np.int8)


def small(name: str, **options: Any) -> dict[str, Any]:
    """Return options of a search that plain Python can afford."""
    return {"simulations": scaled(60, 4), "depth": scaled(200, 3), **options}


# Rollouts ----------------------------------------------------------------------------------------------------------


@jit.kernel
def rolled(states, spare, mask, stream, policy, noise, most, discount, win):  # type: ignore[no-untyped-def]
    """Roll a state out; with `most` below 0 return only what the policy plays. One loop, so as to compile once."""
    if most < 0:
        count = 0
        for i in range(mask.shape[0]):
            count += int(mask[i])
        return 0.0, rollouts.choose(states[0], spare, mask, count, policy, stream[0])
    return roll_out(states[0], spare, mask, stream, policy, noise, most, discount, win)


def chosen(states: Any, mask: NDArray[np.int8], policy: int, bits: int) -> int:
    """Return what a rollout policy plays in a position."""
    stream = np.array([bits], np.uint64)
    return int(rolled(states, states.copy(), mask.copy(), stream, policy, 0.0, -1, 1.0, 1.0)[1])


def choice(env: PatienceEnv, policy: int, mask: NDArray[np.int8], number: int) -> int:
    return chosen(env.state_rows(), mask, policy, splitmix64(number, 1)[0])


def positions(game_id: str, count: int) -> Iterator[PatienceEnv]:
    for number in range(count):
        yield midgame(game_id, deal=number, steps=3 * number)


@pytest.mark.parametrize("game_id", ALL_ROLLED)
def test_the_thumb_of_rollouts_is_the_policy_of_that_name(game_id: str) -> None:
    policy = make_policy("thumb", game_id)
    for env in positions(game_id, scaled(8, 2)):
        rows, mask = env.state_rows(), mask_of(env)
        turn = see(env.game, env.options, rows, mask[None], 5)
        wanted = int(policy.act(turn)[0])
        before = turn.states.tobytes()
        assert chosen(turn.states, mask, THUMB, int(turn.states["rng"][0])) == wanted
        assert turn.states.tobytes() == before, "a rollout policy leaves the position as it was"


@pytest.mark.parametrize("game_id", TWO)
def test_greedy_takes_the_highest_reward_and_breaks_ties_at_random(game_id: str) -> None:
    for env in positions(game_id, scaled(6, 2)):
        rewards = {}
        for action in legal_actions(env):
            rewards[action] = float(env.clone().step(action)[1])
        best = {action for action, reward in rewards.items() if reward == max(rewards.values())}
        found = {choice(env, GREEDY, mask_of(env), number) for number in range(scaled(200, 40))}
        assert found == best if len(best) < 6 else found <= best


@pytest.mark.parametrize("policy", range(len(ROLLOUTS)))
@pytest.mark.parametrize("game_id", TWO)
def test_asked_again_and_again_a_rollout_policy_names_every_move_once(game_id: str, policy: int) -> None:
    for env in positions(game_id, scaled(5, 2)):
        left = mask_of(env)
        named = []
        for bits in range(int(left.sum())):
            named.append(choice(env, policy, left, bits))
            left[named[-1]] = 0
        assert sorted(named) == legal_actions(env)


def test_games_list_their_rollout_policies() -> None:
    for game_id in GAMES:
        own = rollouts.own_rollouts(get_game(game_id))
        assert "thumb" in own, "a rule of thumb that search cannot call"
        assert set(own) <= {"greedy", "thumb"}
        assert rollout_names(get_game(game_id)) == ("random", "greedy", "thumb")


def plain_rollout(env: PatienceEnv, stream: int, most: int, discount: float, win: float) -> tuple[float, int]:
    """Play random moves on in the environment; return the worth and the moves."""
    value = 0.0
    for moves, bits in enumerate([*splitmix64(stream, most), 0]):
        choices = legal_actions(env)
        if not choices:
            won = np.zeros(1, np.bool_)
            won_rows(env.state_rows(), won)
            return value + (discount**moves * win if won[0] else 0.0), moves
        if moves < most:
            value += discount**moves * float(env.step(choices[((bits >> 32) * len(choices)) >> 32])[1])
    return value, most


def contents(rows: Any) -> list[Any]:
    """Return the fields of state records: the bytes between them mean nothing."""
    return [rows[name].tolist() for name in rows.dtype.names]


@pytest.mark.parametrize("game_id", ALL_ROLLED)
def test_a_random_rollout_is_random_play_in_the_environment(game_id: str) -> None:
    for number, env in enumerate(positions(game_id, scaled(6, 2))):
        for most in (0, 1, scaled(300, 6)):
            rows = env.state_rows()
            stream = np.array([number + 1], np.uint64)
            spare = env.game.new_states(1, env.options)
            found = rolled(rows, spare, mask_of(env), stream, RANDOM, 0.0, most, 0.9, 2.0)
            again = env.clone()
            value, moves = plain_rollout(again, number + 1, most, 0.9, 2.0)
            assert found == (pytest.approx(value), moves)
            assert contents(rows) == contents(again.state_rows())


def test_noise_mixes_random_moves_into_a_rollout() -> None:
    env = midgame("Sultan-v0", steps=0)
    spare = env.game.new_states(1, env.options)

    def ends(noise: float) -> set[str]:
        found = set()
        for key in range(scaled(12, 3)):
            rows = env.state_rows()
            rolled(rows, spare, mask_of(env), np.array([key], np.uint64), THUMB, noise, 40, 1.0, 1.0)
            found.add(str(contents(rows)))
        return found

    assert len(ends(0.0)) == 1
    assert len(ends(0.5)) > 1


# Trees -------------------------------------------------------------------------------------------------------------


def searched(policy: UCTPolicy, env: PatienceEnv) -> tuple[Any, Any, Any]:
    """Let a search choose; return its choice, nodes and edges."""
    move = policy.choose(env)
    nodes, edges, slots = policy._tree[:3]
    return move, nodes[: np.count_nonzero(slots >= 0)], edges[: np.count_nonzero(edges["seen"])]


def edges_of(node: Any, edges: Any) -> list[Any]:
    found, number = [], int(node["first"])
    while number >= 0:
        found.append(edges[number])
        number = int(edges[number]["following"])
    return found


@pytest.mark.parametrize("game_id", FEW)
def test_a_tree_adds_up(game_id: str) -> None:
    policy = UCTPolicy(simulations=scaled(400, 20), depth=scaled(100, 2), widening=1.5)
    env = midgame(game_id)
    move, nodes, edges = searched(policy, env)
    assert env.action_masks()[move]
    assert len(set(nodes["key"].tolist())) == len(nodes)
    assert nodes["width"][0] == 0, "the root's moves are looked after by sequential halving"
    for node in nodes:
        own = edges_of(node, edges)
        assert len(own) == node["width"] <= 1.5 * math.sqrt(node["visits"]) + 1
        assert len({int(edge["action"]) for edge in own}) == len(own)
        assert sum(int(edge["visits"]) for edge in own) == node["visits"]
        for edge in own:
            assert 1 <= edge["visits"] <= edge["seen"] <= node["visits"]
            assert edge["best"] >= edge["total"] / edge["visits"] - 1e-12


def test_a_node_is_what_the_player_sees() -> None:
    """In Sultan the turned card is seen: turning leads to many nodes, as many as there are kinds of cards at most."""
    policy = UCTPolicy(simulations=scaled(300, 30), depth=scaled(100, 1))
    env = strict("Sultan-v0")
    env.reset(options={"deal": 3})
    _, nodes, _ = searched(policy, env)
    assert len(nodes) > scaled(40, 5)


def test_positions_reached_in_two_ways_are_one_node() -> None:
    """Fortress has no hidden cards, and its moves can be made in any order: fewer nodes than simulations."""
    policy = UCTPolicy(simulations=scaled(400, 60), depth=1)
    env = strict("Fortress-v0")
    env.reset(options={"deal": 3})
    _, nodes, _ = searched(policy, env)
    assert len(nodes) < 0.95 * len(policy._tree[0])


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_search, "NODES", 9)
    policy = UCTPolicy(simulations=scaled(300, 30), depth=2)
    env = midgame("Sultan-v0")
    move, nodes, edges = searched(policy, env)
    assert env.action_masks()[move]
    assert len(nodes) == 10
    assert len(edges) <= 20


# Honesty -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("game_id", ALL_GAMES)
def test_what_lies_hidden_does_not_matter(game_id: str, name: str) -> None:
    """States that differ in hidden cards and in future chance get equal choices."""
    for deal in range(scaled(3, 1)):
        env = midgame(game_id, deal=deal)
        policy = make_policy(name, game_id, **small(name))
        states, choices = set(), set()
        for key in range(scaled(6, 2)):
            policy.start(5)
            turn = see(env.game, env.options, env.state_rows(), mask_of(env)[None], key)
            states.add(turn.states.tobytes())
            choices.add(int(policy.act(turn)[0]))
        assert len(states) == scaled(6, 2)
        assert len(choices) == 1


@pytest.mark.parametrize("name", SEARCHES)
def test_the_seed_counts(name: str) -> None:
    env = midgame(POKER, steps=1, placement="fixed")
    policy = make_policy(name, POKER, **{**small(name), "simulations": 4, "rollout": "random"})
    choices = []
    for seed in range(scaled(12, 6)):
        policy.start(seed)
        choices.append(policy.choose(env))
    policy.start(0)
    assert policy.choose(env) == choices[0]
    assert len(set(choices)) > 1


@pytest.mark.parametrize("name", SEARCHES)
def test_a_position_is_played_the_same_alone_and_in_a_batch(name: str) -> None:
    envs = [midgame(POKER, deal=deal, steps=2 + deal) for deal in range(scaled(4, 2))]
    policy = make_policy(name, POKER, **small(name))
    states = envs[0].game.new_states(len(envs), envs[0].options)
    states[:] = np.concatenate([env.state_rows() for env in envs])
    masks = np.stack([mask_of(env) for env in envs])
    before = states.tobytes(), masks.tobytes()
    together = policy.act(see(envs[0].game, envs[0].options, states, masks, 0))
    assert (states.tobytes(), masks.tobytes()) == before
    assert together.tolist() == [policy.choose(env) for env in envs]


# Strength ----------------------------------------------------------------------------------------------------------


def best_ending(env: PatienceEnv) -> dict[int, float]:
    """Return the exact expected score of each cell with two cells left, from the environment alone."""
    found = {}
    for action in legal_actions(env):
        after = env.clone()
        reward = float(after.step(action)[1])
        last = []
        for key in range(200):
            world = after.clone().determinize(key)
            last.append(float(world.step(legal_actions(world)[0])[1]))
        found[action] = reward + float(np.mean(last))
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("name", SEARCHES)
def test_the_last_choice_of_patience_poker_is_right_where_it_matters(name: str) -> None:
    checked = 0
    for deal in range(20):
        env = midgame(POKER, deal=deal, steps=23, placement="fixed")
        values = best_ending(env)
        if len(values) == 2 and abs(np.subtract(*values.values())) > 2:
            policy = make_policy(name, POKER, simulations=1000, rollout="random")
            assert policy.choose(env) == max(values, key=lambda action: values[action])
            checked += 1
    assert checked > 0


# A jack and a king lie on the ten: both must leave it, then all four cards follow each other.
WON_IN_SIX = {
    "left 1": ["TS", "KS", "JS"],
    "left 2": ["QS"],
    "spades": [f"{rank}S" for rank in "A23456789"],
    **{suit: [f"{rank}{suit[0].upper()}" for rank in "A23456789TJQK"] for suit in ("hearts", "diamonds", "clubs")},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_an_open_game_is_won_by_looking_ahead(name: str) -> None:
    env = strict("Fortress-v0")
    env.load(WON_IN_SIX)
    budget = {"simulations": scaled(600, 40), "depth": scaled(12, 6)}
    # With a discount that small a shorter win stands out among few simulations.
    policy = make_policy(name, "Fortress-v0", rollout="thumb", discount=0.9, **budget)
    moves, over = 0, False
    while not over and moves < 12:
        over = env.step(policy.choose(env))[2]
        moves += 1
    assert over


@pytest.mark.compiled
def test_search_plays_better_than_its_rollouts() -> None:
    deals = named_deals("validation", 12)
    plain = evaluate("random", "Sultan-v0", deals)
    for name in ("uct", "flat"):
        search = evaluate(f"{name}:simulations=30:rollout=random", "Sultan-v0", deals)
        assert search.mean > plain.mean + 0.1


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("game_id", GAMES)
def test_search_plays_whole_games_of_every_kind(game_id: str) -> None:
    """`evaluate` refuses an illegal choice."""
    deals = named_deals("smoke", 3)
    for name in ("flat:simulations=12:depth=20", "uct:simulations=12:depth=20"):
        one, same = (evaluate(name, game_id, deals, batch=batch) for batch in (1, 3))
        assert one.returns.tolist() == same.returns.tolist()


# Budgets and options -----------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("name", SEARCHES)
def test_a_budget_of_time_is_kept(name: str) -> None:
    env = midgame(POKER)
    policy = make_policy(name, POKER, milliseconds=30)
    policy.choose(env)
    started = time.perf_counter()
    assert env.action_masks()[policy.choose(env)]
    # A busy machine may stretch it; a search that does not look at the clock would take far longer or far shorter.
    assert 0.03 <= time.perf_counter() - started < 3.0


class Counted:
    """Counts the calls of a compiled function's arguments that say how many games are played."""

    def __init__(self, function: Any) -> None:
        self.function, self.games = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.games += len(arguments[11]) * arguments[14]
        return self.function(*arguments)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("budget", [1, 7, 40])
def test_a_search_keeps_its_budget_and_uses_most_of_it(name: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(tree_search.search)
    monkeypatch.setattr(tree_search, "search", counted)
    env = midgame(POKER, steps=6)
    assert len(legal_actions(env)) > 7
    make_policy(name, POKER, simulations=budget, depth=2).choose(env)
    assert budget / 2 - 1 <= counted.games <= budget


@pytest.mark.parametrize("name", SEARCHES)
def test_a_single_legal_move_is_not_searched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_search, "search", None)
    env = strict(POKER, placement="fixed")
    begin(env, 7, 24)
    assert [make_policy(name, POKER).choose(env)] == legal_actions(env)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"simulations": 0}, "simulations=0 is not allowed: give a whole number above 0"),
        ({"simulations": -5}, "simulations=-5 is not allowed"),
        ({"simulations": 1.5}, "simulations=1.5 is not allowed"),
        ({"simulations": True}, "simulations=True is not allowed"),
        ({"milliseconds": 0}, "milliseconds=0 is not allowed: give a number above 0"),
        ({"milliseconds": "long"}, "milliseconds='long' is not allowed"),
        ({"simulations": 10, "milliseconds": 10}, "simulations=10 and milliseconds=10 are both given: give one budget"),
        ({"depth": 0}, "depth=0 is not allowed: give a whole number above 0"),
        ({"noise": 1.5}, "noise=1.5 is not allowed: give a number from 0 to 1"),
        ({"discount": 0}, "discount=0 is not allowed"),
        ({"win": -1}, "win=-1 is not allowed"),
        ({"win": math.nan}, "win=nan is not allowed"),
    ],
)
def test_settings_that_are_none_are_refused(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_policy(name, "Sultan-v0", **arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("uct", {"exploration": -1}, "exploration=-1 is not allowed: give a number from 0"),
        ("uct", {"bias": None}, "bias=None is not allowed"),
        ("uct", {"widening": 0}, "widening=0 is not allowed"),
        ("uct", {"peak": 2}, "peak=2 is not allowed: give a number from 0 to 1"),
        ("uct", {"speed": 1}, "cannot be made with speed=1"),
        ("flat", {"width": 0}, "width=0 is not allowed: give a whole number above 0"),
        ("flat", {"peak": 0.5}, "cannot be made with peak=0.5"),
    ],
)
def test_settings_of_one_search_are_checked(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_policy(name, "Sultan-v0", **arguments)


@pytest.mark.parametrize("name", SEARCHES)
def test_an_unknown_rollout_policy_names_those_of_the_game(name: str) -> None:
    said = "rollout='best' is not allowed: Sultan-v0 is played by random, greedy, thumb"
    with pytest.raises(ValueError, match=said):
        evaluate(f"{name}:rollout=best", "Sultan-v0", [1])
    with pytest.raises(ValueError, match=said):
        make_policy(name, "Sultan-v0", rollout="best").choose(midgame("Sultan-v0"))


def test_searches_are_found_by_name() -> None:
    for game_id in GAMES:
        assert set(SEARCHES) <= set(policy_names(game_id))
        for name, kind in (("flat", FlatMonteCarloPolicy), ("uct", UCTPolicy)):
            policy: Policy = make_policy(name, game_id)
            assert type(policy) is kind
            assert isinstance(policy, tree_search.RolloutSearch)
            assert policy.simulations == tree_search.SIMULATIONS
            looping = max_episode_steps(game_id) is not None
            assert policy._depth_of(get_game(game_id)) == (tree_search.LOOPING if looping else tree_search.ENDLESS)
            assert policy._rollout_of(get_game(game_id)) == THUMB


# A game that is added ----------------------------------------------------------------------------------------------


@pytest.fixture
def toy() -> Iterator[str]:
    patience_env.register_game(Entry("Reds-v0", "toy_patience"))
    yield "Reds-v0"
    gymnasium.registry.pop("Reds-v0")
    patience_env.game._ENTRIES.pop("Reds-v0")


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("rollout", [None, "random", "greedy"])
def test_a_game_without_a_rule_of_thumb_is_searched_too(toy: str, name: str, rollout: str | None) -> None:
    env = PatienceEnv(toy)
    env.reset(seed=1)
    env.load({"place 1": ["AS"], "place 2": ["TH"], "place 3": ["2C"], "stock": ["??"] * 49})
    policy = make_policy(name, toy, simulations=scaled(100, 40), rollout=rollout)
    # A red card scores at once; whether one comes later does not depend on which black card is left.
    assert policy.choose(env) == 1


def test_a_game_without_a_rule_of_thumb_says_what_plays_it(toy: str) -> None:
    with pytest.raises(ValueError, match=r"rollout='thumb' is not allowed: Reds-v0 is played by random, greedy$"):
        make_policy("uct", toy, rollout="thumb").check(get_game(toy), {})
