"""Records of every game: none may be missing, and each must come out as it is written.

* `tests/data/playthroughs/<module>.json`: recorded games, action by action.
* `tests/data/perft/<module>.json`: how many legal sequences of 1, 2, 3 ... actions a deal has.
* `tests/naive/<module>.py`: the rules once more, slow and plain (see `tests/naive/README.md`).
* `seeds/rules/<module>.md`: the rule sheet.

`tests/data/record.py` writes the first two.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.record import final_facts, legal_sequences

from patience_env.cards import card_text
from patience_env.deals import deck, splitmix64
from patience_env.env import PatienceEnv
from patience_env.game import get_game
from playing import GAMES, is_won, legal_actions, scaled, strict

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
every_game = pytest.mark.parametrize("game_id", GAMES)


def module_of(game_id: str) -> str:
    """Return the bare name of a game's module."""
    return get_game(game_id).deal.__module__.rpartition(".")[2]


def records(kind: str, game_id: str) -> list[dict[str, Any]]:
    """Return the records of a game, of which the file may hold one or a list."""
    found = json.loads((DATA / kind / f"{module_of(game_id)}.json").read_text("utf-8"))
    return found if isinstance(found, list) else [found]


@every_game
@pytest.mark.parametrize(
    "place",
    ["tests/naive/{}.py", "tests/data/perft/{}.json", "tests/data/playthroughs/{}.json", "seeds/rules/{}.md"],
)
def test_every_game_has_its_records(game_id: str, place: str) -> None:
    path = ROOT / place.format(module_of(game_id))
    assert path.is_file(), f"{game_id} lacks {path.relative_to(ROOT)}"
    assert path.stat().st_size > 0


@every_game
def test_playthroughs_come_out_as_recorded(game_id: str) -> None:
    for record in records("playthroughs", game_id):
        assert record["id"] == game_id
        env = strict(game_id, **record["options"])
        env.reset(options={"deal": record["deal"]})
        tables, rewards = [], []
        for action in record["actions"]:
            rewards.append(env.step(action)[1])
            tables.append(env.table())
        assert rewards == pytest.approx(record["rewards"], abs=1e-9)
        assert final_facts(tables) == {name: record[name] for name in ("tables_sha256", "final_table")}


@every_game
def test_legal_sequences_are_as_many_as_recorded(game_id: str) -> None:
    found = records("perft", game_id)
    assert found
    for record in found:
        assert record["id"] == game_id
        counts = record["counts"]
        most = scaled(10**9, 200)
        depth = max(1, sum(before <= most for before in [1, *counts[:-1]]))
        env = strict(game_id, **record["options"])
        env.reset(options={"deal": record["deal"]})
        assert list(legal_sequences(env, depth)) == counts[:depth]


def without_empty(table: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the piles that hold something."""
    return {place: list(cards) for place, cards in table.items() if cards}


class Stream:
    """The shuffle that an oracle is given: the package's, from a stated place of its stream."""

    def __init__(self, state: int) -> None:
        self.state = state

    def _draw(self, count: int) -> int:
        while True:
            product = (splitmix64(self.state, 1)[0] >> 32) * count
            self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
            if product % 2**32 >= 2**32 % count:
                return product >> 32

    def shuffle(self, cards: list[Any]) -> None:
        """Shuffle a list in place, from its first place on."""
        for place in range(len(cards) - 1):
            other = place + self._draw(len(cards) - place)
            cards[place], cards[other] = cards[other], cards[place]


def oracle(naive: Any, env: PatienceEnv, deal: int, shuffle: Callable[[list[Any]], None]) -> Any:
    """Make the oracle for the game that `env` plays."""
    cards = [card_text(int(card)) for card in deck(deal, env.game.packs)]
    arguments = (cards, {**env.options, "deal": deal}, shuffle)
    return naive(*arguments[: len(inspect.signature(naive).parameters)])


def test_the_shuffle_given_to_oracles_is_the_package_s() -> None:
    cards = [card_text(code) for code in range(1, 53)] * 2
    Stream(12345).shuffle(cards)
    assert cards == [card_text(int(card)) for card in deck(12345, 2)]


@every_game
def test_plays_as_the_naive_oracle_does(game_id: str) -> None:
    module = import_module(f"naive.{module_of(game_id)}")
    most = scaled(400, 60)
    for options in getattr(module, "OPTIONS", [{}]):
        env = strict(game_id, **options)
        for deal in range(1, scaled(9, 3)):
            env.reset(options={"deal": deal})
            stream = Stream(deal)
            naive = oracle(module.Naive, env, deal, stream.shuffle)
            rng = np.random.default_rng(deal)
            for step in range(most):
                where = f"{game_id} {options}, deal {deal}, after {step} actions"
                choices = legal_actions(env)
                assert naive.legal() == set(choices), where
                assert without_empty(naive.table()) == without_empty(env.table()), where
                assert naive.over() == (not choices), where
                assert naive.won() == is_won(env), where
                if not choices:
                    break
                action = choices[rng.integers(len(choices))]
                stream.state = int(env.state_rows()["rng"][0])
                expected = naive.play(action)
                reward = env.step(action)[1]
                assert reward == pytest.approx(expected, abs=1e-9), f"{where}: {env.describe(action)}"
