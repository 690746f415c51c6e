"""Registration of the games with Gymnasium."""

from __future__ import annotations

import gymnasium

from patience_env.game import Entry, add_entry
from patience_env.games import GAMES


def register_game(entry: Entry) -> None:
    """Register a game with Gymnasium: `gymnasium.make(entry.id)` makes it, `make_vec` the compiled batch.

    The module that `entry` names is imported when the first environment is made; it must hold `GAME`.
    """
    add_entry(entry)
    gymnasium.register(
        id=entry.id,
        entry_point="patience_env.env:PatienceEnv",
        vector_entry_point="patience_env.vector:PatienceVectorEnv",
        max_episode_steps=entry.max_episode_steps,
        kwargs={"game": entry.id},
    )


def register_all() -> None:
    """Register the games of this package."""
    for entry in GAMES:
        register_game(entry)
