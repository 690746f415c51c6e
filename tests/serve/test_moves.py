"""Which places of the table an action concerns, found without a line in any game."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from patience_env.env import PatienceEnv
from patience_env.game import game_ids
from patience_env.serve import moves
from patience_env.serve.moves import Move, Observer, Seen

DEALS = (3, 8)
STEPS = 40
VARIANTS = [(game_id, {}) for game_id in game_ids()] + [
    ("PatiencePoker-v0", {"placement": "fixed", "target": 60}),
    ("Fourteenth-v0", {"exchanges": 1, "close_gaps": True}),
    ("Calculation-v0", {"open_stock": True}),
]


def positions(game_id: str, options: dict[str, object]) -> Iterator[tuple[PatienceEnv, Observer, Seen]]:
    """Yield the positions of random games."""
    env = PatienceEnv(game_id, observation="cards", illegal_action="raise", **options)
    observer = Observer(env.game, env.options)
    rng = np.random.default_rng(1)
    for deal in DEALS:
        observation, _ = env.reset(options={"deal": deal})
        for _ in range(STEPS):
            if not env.action_masks().any():
                break
            yield env, observer, observer.see(env.state_rows(), env.action_masks(), observation)
            observation, *_ = env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))


@pytest.mark.compiled
@pytest.mark.parametrize(("game_id", "options"), VARIANTS)
def test_every_legal_action_concerns_places_of_the_table_that_tell_it_from_the_others(game_id, options):
    for env, observer, seen in positions(game_id, options):
        found = observer.moves(seen)
        assert [move.action for move in found] == np.flatnonzero(env.action_masks()).tolist()
        for move in found:
            assert move.sources
            assert {*move.sources, *move.targets} <= set(env.layout.spots)
            assert not set(move.sources) & set(move.targets)
        signs = [(move.sources, move.targets) for move in found]
        assert len(set(signs)) == len(signs)


@pytest.mark.compiled
@pytest.mark.parametrize(("game_id", "options"), VARIANTS)
def test_a_card_that_the_description_names_lies_on_a_source_and_a_place_that_it_names_is_concerned(game_id, options):
    for env, observer, seen in positions(game_id, options):
        table = env.table()
        for move in observer.moves(seen):
            text = move.text or observer.describe(seen, move.action)
            assert text == env.describe(move.action)
            places = {*move.sources, *move.targets}
            for row, column in re.findall(r"row (\d+), column (\d+)", text):
                assert f"r{row}c{column}" in places
            cards = re.findall(r"\b[A23456789TJQK][SHDC]\b", text)
            if cards:
                assert any(cards[0] in table.get(place, []) for place in move.sources), move


@pytest.mark.compiled
def test_long_lists_of_actions_which_are_worked_out_otherwise_say_the_same(monkeypatch):
    lengths = []
    for i, (_, observer, seen) in enumerate(positions("EmpressOfIndia-v0", {})):
        if i % 4 == 0:
            quick = observer.moves(seen)
            lengths.append(len(quick))
            with monkeypatch.context() as patch:
                patch.setattr(moves, "MANY", 10_000)
                assert [(m.action, m.sources, m.targets) for m in quick] == [
                    (m.action, m.sources, m.targets) for m in observer.moves(seen)
                ]
    assert max(lengths) > 1000


def moves_of(game_id: str, table: dict[str, list[str]], **options: object) -> dict[str, Move]:
    """Return description -> move in a position that is given as text."""
    env = PatienceEnv(game_id, observation="cards", **options)
    env.reset(seed=1)
    observation, _ = env.load(table)
    observer = Observer(env.game, env.options)
    return {move.text: move for move in observer.moves(observer.see(env.state_rows(), env.action_masks(), observation))}


def test_a_place_that_is_refilled_with_the_same_card_is_still_where_the_card_came_from():
    # The Divan's AC goes to the king of clubs and the talon's other AC fills its place, so the two tables differ as if
    # the talon's card had been played.
    env = PatienceEnv("Sultan-v0")
    env.reset(options={"deal": 1})
    table = {name: cards for name, cards in env.table().items() if name != "stock"}
    table |= {f"divan {i + 1}": [card] for i, card in enumerate(("AC", "5S", "6S", "7S", "8S", "9S", "TS", "JS"))}
    table["talon"] = ["AC"]
    found = moves_of("Sultan-v0", table)
    assert found["play AC from divan 1"].sources == ("divan 1",)
    assert found["play AC from the talon"].sources == ("talon",)
    assert found["play AC from divan 1"].targets == found["play AC from the talon"].targets


def test_two_cards_that_change_places_are_both_sources():
    found = moves.differences({"a": ["7H"], "b": ["8S"]}, {"a": ["8S"], "b": ["7H"]})
    assert moves.concerned(found, [], {}) == (("a", "b"), ())


def test_what_gathers_many_piles_is_clicked_where_it_goes():
    before = {"a": ["7H"], "b": ["8S"], "c": ["9S"], "stock": []}
    after = {"a": [], "b": [], "c": [], "stock": ["7H", "8S", "9S"]}
    assert moves.concerned(moves.differences(before, after), [], before) == (("stock",), ())


def test_a_hidden_card_is_dealt_from_the_pile_that_shrank():
    before = {"stock": ["??", "??"], "waste": []}
    after = {"stock": ["??"], "waste": ["KD"]}
    assert moves.concerned(moves.differences(before, after), [], before) == (("stock",), ("waste",))
