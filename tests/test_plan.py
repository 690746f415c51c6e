"""Planning: where nothing is hidden the policy plays the solver's game, and elsewhere it does not play."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from patience_env import jit
from patience_env.agents.plan import PlanPolicy, hides_cards
from patience_env.agents.policy import make_policy, policy_names
from patience_env.agents.solver import solve
from patience_env.game import game_ids, get_game
from patience_env.training.evaluate import evaluate
from playing import legal_actions, strict

WON, LOST = 1_000_008, 2_000_000  # deals of Fortress


def play_out(policy: Any, env: Any) -> float:
    total = 0.0
    while legal_actions(env):
        total += float(env.step(policy.choose(env))[1])
    return total


@pytest.mark.skipif(not jit.JIT, reason="a thousand positions")
def test_where_nothing_is_hidden_the_plan_is_the_solution() -> None:
    env = strict("Fortress-v0")
    env.reset(options={"deal": WON})
    policy = PlanPolicy()
    solution = solve("Fortress-v0", WON)
    for move in solution.moves:
        choices = legal_actions(env)
        assert policy.choose(env) == (move if len(choices) > 1 else choices[0])
        env.step(move)
    assert not legal_actions(env)
    planned = len(policy._planned)
    assert planned == len(solution.moves)  # it was planned once
    policy.start(0)
    assert not policy._planned


def test_a_lost_deal_is_played_as_far_as_can_be() -> None:
    env = strict("Fortress-v0")
    env.reset(options={"deal": LOST})
    most = 20_000 if jit.JIT else 40
    planned = play_out(PlanPolicy(most), env)
    env.reset(options={"deal": LOST})
    assert planned >= play_out(make_policy("thumb", "Fortress-v0"), env)


def test_it_plays_where_every_card_is_known_alone() -> None:
    known = [
        game_id for game_id in game_ids() if not hides_cards(get_game(game_id), get_game(game_id).check_options({}))
    ]
    assert known == ["Paganini-v0", "Fortress-v0"]
    calculation = get_game("Calculation-v0")
    PlanPolicy().check(calculation, calculation.check_options({"open_stock": True}))
    with pytest.raises(ValueError, match="Calculation-v0 hides cards under these options"):
        PlanPolicy().check(calculation, calculation.check_options({}))


def test_shares_do_not_depend_on_each_other() -> None:
    deals = [int(deal) for deal in np.arange(LOST, LOST + 3)]
    found = evaluate("plan:positions=30", "Fortress-v0", deals)
    alone = [evaluate("plan:positions=30", "Fortress-v0", [deal]).returns[0] for deal in deals]
    assert found.returns.tolist() == alone


def test_games_that_have_known_cards_offer_it() -> None:
    offering = [game_id for game_id in game_ids() if "plan" in policy_names(game_id)]
    assert offering == ["Paganini-v0", "Calculation-v0", "Fortress-v0"]
    with pytest.raises(ValueError, match="there is no policy 'plan' for Sultan-v0"):
        make_policy("plan", "Sultan-v0")


def test_it_refuses_what_it_cannot_plan() -> None:
    with pytest.raises(ValueError, match="PatiencePoker-v0 only scores"):
        evaluate("patience_env.agents.plan:PlanPolicy", "PatiencePoker-v0", [1])
    for positions in (0, -1, 1.5, True, "many", None):
        with pytest.raises(ValueError, match=f"positions={positions!r} is not allowed"):
            make_policy("plan", "Fortress-v0", positions=positions)
