"""Properties that hold for every game, whatever is dealt and played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patience_env.cards import NAMES
from patience_env.env import PatienceEnv
from patience_env.vector import PatienceVectorEnv
from playing import is_won, legal_actions, scaled, seen, strict, variants

every_variant = pytest.mark.parametrize(("game_id", "options"), variants())
DEALS = st.integers(0, 2**64 - 1)
KEYS = st.integers(0, 2**63 - 1)
# Which of the legal actions is played, one after the other; a long game goes on as the list says, from its start again.
CHOICES = st.lists(st.integers(0, 10_000), min_size=1, max_size=40)
LENGTHS = st.integers(0, scaled(120, 25))


def follow(env: PatienceEnv, deal: int, choices: list[int], length: int) -> list[int]:
    """Play `length` actions of a deal, or as many as the game lasts; return them."""
    env.reset(seed=0, options={"deal": deal})
    actions = []
    for i in range(length):
        legal = legal_actions(env)
        if not legal:
            break
        actions.append(legal[choices[i % len(choices)] % len(legal)])
        env.step(actions[-1])
    return actions


@every_variant
@given(deal=DEALS, choices=CHOICES, length=LENGTHS)
def test_mask_agrees_with_play(
    game_id: str, options: dict[str, Any], deal: int, choices: list[int], length: int
) -> None:
    """No legal action raises, each has a name, observations stay within the space, and the end is the end."""
    env = strict(game_id, **options)
    observation, info = env.reset(options={"deal": deal})
    total = 0.0
    for i in range(length):
        legal = legal_actions(env)
        assert env.observation_space.contains(observation)
        assert (np.flatnonzero(info["action_mask"]) == legal).all()
        if not legal:
            break
        action = legal[choices[i % len(choices)] % len(legal)]
        assert env.describe(action)
        observation, reward, terminated, _, info = env.step(action)
        total += reward
        assert terminated == (not info["action_mask"].any())
        if is_won(env) and not env.game.scores:
            assert terminated
            assert total == pytest.approx(1.0, abs=1e-9)
    assert env.observation_space.contains(observation)


@every_variant
@given(deal=DEALS, choices=CHOICES, length=LENGTHS)
def test_text_round_trips(game_id: str, options: dict[str, Any], deal: int, choices: list[int], length: int) -> None:
    env = strict(game_id, **options)
    follow(env, deal, choices, length)
    table = env.table()
    mask = env.action_masks()
    env.load(table)
    assert env.table() == table
    if game_id != "PatiencePoker-v0" or options.get("target") is None:
        assert (env.action_masks() == mask).all()
    fresh = strict(game_id, **options)
    fresh.load(table)
    assert fresh.table() == table


@every_variant
@given(deal=DEALS, choices=CHOICES, length=LENGTHS)
def test_batch_clone_and_replay_equal_the_single_game(
    game_id: str, options: dict[str, Any], deal: int, choices: list[int], length: int
) -> None:
    env = strict(game_id, **options)
    actions = follow(env, deal, choices, length)
    replay = strict(game_id, **options)
    replay.reset(seed=1, options={"deal": deal})
    batch = PatienceVectorEnv(game_id, 2, illegal_action="raise", **options)
    batch.reset(options={"deal": [deal, deal]})
    half = len(actions) // 2
    for i, action in enumerate(actions):
        if i == half:
            twin = replay.clone()
        observation, reward, terminated, _, info = replay.step(action)
        both = batch.step(np.full(2, action))
        assert (both[0] == observation).all()
        assert (both[1] == reward).all()
        assert (both[2] == terminated).all()
        assert (both[4]["action_mask"] == info["action_mask"]).all()
    assert seen(replay) == seen(env)
    assert (replay.state_rows() == env.state_rows()).all()
    assert (batch.states() == env.state_rows()).all()
    if actions:
        for action in actions[half:]:
            twin.step(action)
        assert seen(twin) == seen(env)


@every_variant
@given(deal=DEALS, choices=CHOICES, length=LENGTHS, keys=st.tuples(KEYS, KEYS))
def test_no_peeking(
    game_id: str, options: dict[str, Any], deal: int, choices: list[int], length: int, keys: tuple[int, int]
) -> None:
    """Whatever lies face-down, the player sees the same: both observations, mask, table, names of the actions."""
    env = strict(game_id, **options)
    cards = strict(game_id, observation="cards", **options)
    follow(env, deal, choices, length)
    cards.set_state(env.get_state())
    expected = (seen(env), seen(cards))
    named = legal_actions(env)[:10]
    names = [env.describe(action) for action in named]
    for key in keys:
        for one, was in zip((env, cards), expected, strict=True):
            twin = one.clone().determinize(key)
            again = strict(game_id, observation=twin._rows.observation, **options)
            again.set_state(twin.get_state())
            assert seen(again) == was
            assert [again.describe(action) for action in named] == names


@every_variant
@given(deal=DEALS, choices=CHOICES, length=LENGTHS, key=KEYS)
def test_determinized_games_can_be_played_on(
    game_id: str, options: dict[str, Any], deal: int, choices: list[int], length: int, key: int
) -> None:
    """What is dealt anew is a whole game: the same cards altogether, playable, and seen more and more."""
    env = strict(game_id, **options)
    follow(env, deal, choices, length)
    twin = env.clone().determinize(key)
    for i in range(scaled(30, 8)):
        legal = legal_actions(twin)
        if not legal:
            break
        observation, *_ = twin.step(legal[choices[i % len(choices)] % len(legal)])
        assert twin.observation_space.contains(observation)
    table = twin.table()
    twin.load(table)
    assert twin.table() == table


@every_variant
@given(deal=DEALS, choices=CHOICES, length=LENGTHS)
def test_cards_are_conserved(game_id: str, options: dict[str, Any], deal: int, choices: list[int], length: int) -> None:
    """No known card lies on the table more often than there are packs."""
    env = strict(game_id, **options)
    follow(env, deal, choices, length)
    listed = [card for cards in env.table().values() for card in cards if card in NAMES[1:-1]]
    assert listed
    assert all(listed.count(card) <= env.game.packs for card in set(listed))
