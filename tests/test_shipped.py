"""The agents that come with the package play, and play well."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from patience_env.deals import named_deals
from patience_env.training.evaluate import evaluate, paired

GAME = "PatiencePoker-v0"
FIXED = {"placement": "fixed"}


@pytest.mark.compiled
def test_ppo_plays_far_above_greed() -> None:
    deals = named_deals("validation", 300)
    ppo = evaluate("ppo", GAME, deals, options=FIXED)
    greedy = evaluate("greedy", GAME, deals, options=FIXED)
    assert ppo.mean > 118
    assert paired(ppo, greedy).low > 60


@pytest.mark.compiled
def test_the_sultans_ppo_plays_above_its_teacher() -> None:
    deals = named_deals("validation", 300)
    ppo, thumb = (evaluate(policy, "Sultan-v0", deals) for policy in ("ppo", "thumb"))
    assert paired(ppo, thumb).low > 0
    with pytest.raises(ValueError, match=r"redeals=2.*redeals=1"):
        evaluate("ppo", "Sultan-v0", named_deals("smoke", 2), options={"redeals": 1})


@pytest.mark.compiled
@pytest.mark.parametrize("game", ["RobinPost-v0", "Fortress-v0", "Fourteenth-v0"])
def test_an_advised_ppo_plays_above_its_adviser(game: str) -> None:
    deals = named_deals("validation")
    ppo, thumb = (evaluate(policy, game, deals) for policy in ("ppo", "thumb"))
    assert paired(ppo, thumb).low > 0


def test_ppo_refuses_another_table_and_names_both() -> None:
    with pytest.raises(ValueError, match=r"scoring='american'.*scoring='english'"):
        evaluate("ppo", GAME, named_deals("smoke", 2), options={**FIXED, "scoring": "english"})


LEAST = {"american": 115, "american-alternate": 45, "english": 49}


@pytest.mark.compiled
@pytest.mark.parametrize("placement", ["fixed", "touching"])
@pytest.mark.parametrize("scoring", list(LEAST))
def test_models_come_for_every_published_table_and_both_placements(placement: str, scoring: str) -> None:
    options = {"placement": placement, "scoring": scoring}
    deals = named_deals("validation", 300)
    greedy = evaluate("greedy", GAME, deals, options=options)
    for policy in ("line", "value"):
        result = evaluate(policy, GAME, deals, options=options)
        assert result.mean > LEAST[scoring], policy
        assert paired(result, greedy).low > 10
    search = evaluate("search:simulations=40", GAME, named_deals("smoke", 10), options=options)
    assert paired(search, evaluate("greedy", GAME, named_deals("smoke", 10), options=options)).low > 0


def test_a_given_table_with_the_points_of_a_published_one_is_that_table() -> None:
    table = {"pair": 1, "two pairs": 3, "triplets": 6, "straight": 12, "flush": 5, "full hand": 10, "four": 16}
    table |= {"straight flush": 30, "royal": 30}
    named = evaluate("value", GAME, named_deals("smoke", 3), options={**FIXED, "scoring": "english"})
    assert evaluate("value", GAME, named_deals("smoke", 3), options={**FIXED, "scoring": table}).mean == named.mean


ODD = {"pair": 9, "two pairs": 8, "triplets": 7, "straight": 6, "flush": 5, "full hand": 4, "four": 3}
ODD |= {"straight flush": 2, "royal": 1}


@pytest.mark.compiled
@pytest.mark.parametrize("placement", ["fixed", "touching"])
@pytest.mark.parametrize("scoring", [ODD, "random"], ids=["nine numbers", "random"])
def test_one_network_comes_for_each_placement_that_plays_for_any_table(
    placement: str, scoring: str | dict[str, float]
) -> None:
    options = {"placement": placement, "scoring": scoring}
    deals = named_deals("validation", 200)
    value, greedy = (evaluate(policy, GAME, deals, options=options) for policy in ("value", "greedy"))
    assert paired(value, greedy).low > 0


@pytest.mark.parametrize("placement", ["fixed", "touching"])
def test_a_table_without_a_model_is_refused_with_the_command_that_trains_one(placement: str) -> None:
    command = rf"train-value PatiencePoker-v0 --kind line --scoring .* --placement {placement} --out"
    with pytest.raises(ValueError, match=command):
        evaluate("line", GAME, named_deals("smoke", 2), options={"placement": placement, "scoring": ODD})
