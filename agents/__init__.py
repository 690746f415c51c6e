"""Policies for the games, behind one interface.

`make_policy(name, game_id)` makes one by its name; each game's own policies live in the module named after the game.
Names are imported when first used: torch is loaded only with a learned policy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patience_env.agents.arrangement import (
        Arrangement,
        best_arrangement,
        best_arrangements,
        best_tableau,
        can_be_laid,
    )
    from patience_env.agents.basic import GreedyPolicy, RandomPolicy
    from patience_env.agents.learned import SB3Policy
    from patience_env.agents.patience_poker import FlushRankPolicy
    from patience_env.agents.policy import KernelPolicy, Policy, Turn, make_policy, parse_policy, policy_names, see
    from patience_env.agents.solver import Solution, solve
    from patience_env.agents.tree_search import FlatMonteCarloPolicy, UCTPolicy

_HOMES = {
    "Arrangement": "arrangement",
    "FlatMonteCarloPolicy": "tree_search",
    "FlushRankPolicy": "patience_poker",
    "GreedyPolicy": "basic",
    "KernelPolicy": "policy",
    "Policy": "policy",
    "RandomPolicy": "basic",
    "SB3Policy": "learned",
    "Solution": "solver",
    "Turn": "policy",
    "UCTPolicy": "tree_search",
    "best_arrangement": "arrangement",
    "best_arrangements": "arrangement",
    "best_tableau": "arrangement",
    "can_be_laid": "arrangement",
    "make_policy": "policy",
    "parse_policy": "policy",
    "policy_names": "policy",
    "see": "policy",
    "solve": "solver",
}

__all__ = [
    "Arrangement",
    "FlatMonteCarloPolicy",
    "FlushRankPolicy",
    "GreedyPolicy",
    "KernelPolicy",
    "Policy",
    "RandomPolicy",
    "SB3Policy",
    "Solution",
    "Turn",
    "UCTPolicy",
    "best_arrangement",
    "best_arrangements",
    "best_tableau",
    "can_be_laid",
    "make_policy",
    "parse_policy",
    "policy_names",
    "see",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
