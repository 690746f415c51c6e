"""The agent that comes with the package plays, and plays well."""

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


def test_ppo_refuses_another_table_and_names_both() -> None:
    with pytest.raises(ValueError, match=r"scoring='american'.*scoring='english'"):
        evaluate("ppo", GAME, named_deals("smoke", 2), options={**FIXED, "scoring": "english"})
