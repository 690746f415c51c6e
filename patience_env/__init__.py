"""Nine old patience games as Gymnasium environments with masked discrete actions.

Importing the package registers the environments; `gymnasium.make("PatiencePoker-v0")` then works, as does
`gymnasium.make("patience_env:PatiencePoker-v0")` without an import. Nothing is compiled, and neither torch nor pygame
is loaded, before it is needed.
"""

from __future__ import annotations

from typing import Any

from patience_env.game import game_ids, get_game
from patience_env.registration import register_all, register_game

__version__ = "0.2.0"

__all__ = [
    "PatienceEnv",
    "PatienceVectorEnv",
    "__version__",
    "game_ids",
    "get_game",
    "register_game",
]


def __getattr__(name: str) -> Any:
    if name == "PatienceEnv":
        from patience_env.env import PatienceEnv

        return PatienceEnv
    if name == "PatienceVectorEnv":
        from patience_env.vector import PatienceVectorEnv

        return PatienceVectorEnv
    raise AttributeError(f"module 'patience_env' has no attribute {name!r}")


register_all()
