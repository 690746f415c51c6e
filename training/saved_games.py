"""The file of a saved game: game, options, deal number and actions, from which it is dealt anew and replayed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import patience_env

FORMAT = "patience-env game 1"


def record_of(game_id: str, options: Mapping[str, Any], deal: int, actions: Sequence[int]) -> dict[str, Any]:
    """Return the facts of a saved game with a checksum, as its JSON file holds them."""
    facts = {
        "format": FORMAT,
        "game": game_id,
        "options": dict(options),
        "deal": deal,
        "actions": list(actions),
        "version": patience_env.__version__,
    }
    return {**facts, "sha256": digest_of(facts)}


def digest_of(facts: Mapping[str, Any]) -> str:
    """Return the checksum of the facts of a saved game (without it)."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
