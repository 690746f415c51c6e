"""Networks that are told what a rule of thumb would play."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")
pytest.importorskip("safetensors")

import torch
from gymnasium.spaces import Discrete

from patience_env import get_game
from patience_env.agents.policy import Turn, make_policy, see
from patience_env.env import PatienceEnv
from patience_env.game import game_ids
from patience_env.training import models
from patience_env.training.advice import advised, ask, find_adviser
from patience_env.training.models import choose_actions, input_space, load_policy, network_input, policy_class
from patience_env.training.train import train
from patience_env.vector import PatienceVectorEnv

SULTAN = "Sultan-v0"
TINY = {
    "network": "ahead",
    "observation": "cards",
    "advice": "thumb",
    "envs": 4,
    "n_steps": 8,
    "batch_size": 16,
    "n_epochs": 1,
    "width": 8,
    "embedding": 2,
    "depth": 2,
    "warm_steps": 32,
    "spread_steps": 3,
    "evaluate_every": 64,
    "temperature": 0.0,
}
DEALS = range(3_000_000, 3_000_003)


def tiny(folder: Path, game: str = SULTAN, **keywords: Any) -> Any:
    keywords = {"steps": 64, "settings": TINY, "deals": DEALS, "quiet": True, **keywords}
    return train(game, folder, **keywords)


def fresh_policy(game_id: str, network: str, choices: int = 0) -> Any:
    """Return an untrained network that the rule of thumb advises."""
    torch.manual_seed(0)
    game = get_game(game_id)
    options = game.check_options({})
    shaping = {"width": 8, "embedding": 3, "depth": 3, "advice": "thumb", "trust": 5.0}
    shaping |= {"choices": choices} if choices else {}
    maker, keywords = policy_class(network, shaping, game, options)
    space = input_space(network, "cards", game, options, advice=max(choices, 1))
    return maker(space, Discrete(game.layout(options).actions), lambda _: 0.0, **keywords)


def turns(game_id: str, steps: int = 3) -> Iterator[Turn]:
    """Play at random; yield what the player sees of eight games side by side."""
    batch = PatienceVectorEnv(game_id, 8, autoreset_mode="SameStep")
    _, info = batch.reset(seed=1)
    rng = np.random.default_rng(0)
    for step in range(steps):
        yield see(batch.game, batch.options, batch.states(), info["action_mask"], step)
        _, _, _, _, info = batch.step(batch.sample(rng))


@pytest.mark.compiled
@pytest.mark.parametrize("network", models.ADVISED)
@pytest.mark.parametrize("game", game_ids())
def test_an_untrained_network_plays_as_its_adviser(game: str, network: str) -> None:
    policy, thumb = fresh_policy(game, network), make_policy("thumb", game)
    for turn in turns(game):
        chosen = choose_actions(policy, network_input(policy, turn, "cards"), turn.masks)
        np.testing.assert_array_equal(chosen, thumb.act(turn))


def test_the_advised_action_gets_the_trust_as_a_bonus() -> None:
    policy = fresh_policy(SULTAN, "ahead")
    told = {}
    for bonus in (5.0, 0.0):
        policy.trust.bonus.data.fill_(bonus)
        (turn,) = turns(SULTAN, 1)
        with torch.no_grad():
            told[bonus] = policy._look(torch.as_tensor(network_input(policy, turn, "cards")))[0].numpy()
    apart = told[5.0] - told[0.0]
    rows, actions = np.nonzero(np.where(turn.masks, apart, 0))
    np.testing.assert_array_equal(rows, np.arange(8))
    np.testing.assert_array_equal(actions, make_policy("thumb", SULTAN).act(turn))
    assert apart[rows, actions] == pytest.approx(5.0, abs=1e-4)


@pytest.mark.compiled
@pytest.mark.parametrize("network", models.ADVISED)
@pytest.mark.parametrize("game", game_ids())
def test_a_network_that_is_told_several_choices_plays_the_first_and_looks_at_no_others(game: str, network: str) -> None:
    policy, thumb = fresh_policy(game, network, choices=3), make_policy("thumb", game)
    for turn in turns(game):
        seen = network_input(policy, turn, "cards")
        np.testing.assert_array_equal(choose_actions(policy, seen, turn.masks), thumb.act(turn))
        with torch.no_grad():
            looked_at = policy.logits(torch.as_tensor(seen)).numpy() > -1e7
        assert not (looked_at & (turn.masks == 0)).any()
        assert looked_at.any(1).all()
        assert looked_at.sum(1).max() == 3 or turn.masks.sum(1).max() < 3


@pytest.mark.compiled
@pytest.mark.parametrize("game", ["Fourteenth-v0", "Nivernaise-v0", "EmpressOfIndia-v0"])
def test_choices_are_different_legal_actions_and_the_first_stands_for_what_is_missing(game: str) -> None:
    thumb = find_adviser("thumb", get_game(game), {})
    for turn in turns(game):
        told = advised(ask(thumb, turn, 40))
        np.testing.assert_array_equal(told[:, 0], thumb.act(turn))
        for row, mask in zip(told.tolist(), turn.masks, strict=True):
            assert mask[row].all()
            several = list(dict.fromkeys(row))
            assert row == several + [row[0]] * (40 - len(several))


@pytest.mark.parametrize("choices", [0, 3])
def test_chances_side_by_side_are_those_of_all_logits(choices: int) -> None:
    policy = fresh_policy(SULTAN, "ahead", choices)
    for turn in turns(SULTAN):
        obs = torch.as_tensor(network_input(policy, turn, "cards"))
        with torch.no_grad():
            everything = policy.get_distribution(obs, turn.masks)
            actions, values, chances = policy(obs, action_masks=turn.masks)
            assert turn.masks[np.arange(8), actions.numpy()].all()
            torch.testing.assert_close(chances, everything.log_prob(actions))
            best = policy(obs, deterministic=True)[0]
            torch.testing.assert_close(best, everything.mode())
            again, logs, entropy = policy.evaluate_actions(obs, actions, turn.masks)
        torch.testing.assert_close(again, values)
        torch.testing.assert_close(logs, chances)
        torch.testing.assert_close(entropy, everything.entropy())


def test_nothing_is_learned_of_an_action_that_is_not_looked_at() -> None:
    policy = fresh_policy(SULTAN, "ahead", 1)
    (turn,) = turns(SULTAN, 1)
    obs = torch.as_tensor(network_input(policy, turn, "cards"))
    legal = [np.flatnonzero(mask).tolist() for mask in turn.masks]
    other = [
        next((a for a in row if a != first), -1)
        for row, first in zip(legal, choose_actions(policy, obs, turn.masks), strict=True)
    ]
    _, logs, _ = policy.evaluate_actions(obs, torch.tensor(other))
    assert logs.tolist() == [-20.0] * 8


def test_advice_is_told_in_two_entries_and_none_where_a_game_is_over() -> None:
    class Last(type(find_adviser("thumb", get_game("EmpressOfIndia-v0"), {}))):  # type: ignore[misc]
        def act(self, turn: Turn) -> np.ndarray:
            return turn.masks.shape[1] - 1 - turn.masks[:, ::-1].argmax(1)

    (turn,) = turns("EmpressOfIndia-v0", 1)
    masks = turn.masks.copy()
    masks[3] = 0
    entries = ask(Last(), Turn(turn.game, turn.options, turn.states, masks))
    assert (entries.dtype, entries.shape) == (np.int8, (8, 2))
    assert advised(entries)[:, 0].tolist() == [1776 if row != 3 else 0 for row in range(8)]


def test_what_an_advised_network_plays_depends_on_no_hidden_card() -> None:
    policy = fresh_policy(SULTAN, "ahead")
    batch = PatienceVectorEnv(SULTAN, 1)
    _, info = batch.reset(options={"deal": 5_000_000})
    told = set()
    for key in range(8):
        turn = see(batch.game, batch.options, batch.states(), info["action_mask"], key)
        with torch.no_grad():
            logits, _ = policy._look(torch.as_tensor(network_input(policy, turn, "cards")))
        told.add(tuple(logits[0].numpy()[info["action_mask"][0] == 1].round(5).tolist()))
    # Two where the card turned up is that of the other world (see `look_ahead`).
    assert len(told) <= 2


@pytest.mark.parametrize("network", models.ADVISED)
def test_an_advised_agent_is_trained_saved_resumed_and_plays(tmp_path: Path, network: str) -> None:
    settings = {**TINY, "network": network}
    tiny(tmp_path / "run", settings=settings, teacher="thumb")
    with pytest.raises(ValueError, match="advice is 'thumb' in the run, but 'none' is asked for"):
        tiny(tmp_path / "run", settings={**settings, "advice": "none"}, teacher="thumb", resume=True)
    done = tiny(tmp_path / "run", settings=settings, teacher="thumb", steps=128, resume=True)
    assert [point.steps for point in done.curve] == [0, 64, 128]
    model = load_policy(tmp_path / "run" / "model")
    assert model.facts["network_options"]["advice"] == "thumb"
    assert model.policy.adviser.name == "thumb"
    player = make_policy("model", SULTAN, path=str(tmp_path / "run"))
    for turn in turns(SULTAN, 6):
        assert turn.masks[np.arange(8), player.act(turn)].all()
    env = PatienceEnv(SULTAN, illegal_action="raise")
    env.reset(options={"deal": 5_000_000})
    for _ in range(10):
        env.step(player.choose(env))


def test_the_critic_alone_learns_from_a_teacher_who_advises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patience_env.training.learner.Run._learn", lambda self: None)
    bonus = {}
    for advice in ("thumb", "none"):
        done = tiny(tmp_path / advice, settings={**TINY, "advice": advice}, teacher="thumb")
        tensors = load_policy(done.folder / "model").policy.state_dict()
        assert tensors["tables.critic.2.bias"] != 0
        bonus[advice] = (tensors.get("trust.bonus"), float(tensors["tables.judge.2.bias"]))
    assert bonus["thumb"] == (5.0, 0.0)
    assert bonus["none"][0] is None
    assert bonus["none"][1] != 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"advice": "nobody"}, "advice='nobody' is not allowed for Sultan-v0: choose one of none, thumb$"),
        ({"advice": "uct"}, "advice='uct' is not allowed"),
        ({"advice": "patience_env.agents.sultan:ThumbPolicy"}, "choose one of none, thumb"),
        ({"network": "mlp"}, "advice='thumb' is not allowed for the mlp network: .* networks ahead, cards"),
        ({"trust": -1}, "trust=-1 is not allowed: give a number from 0 to 100"),
        ({"choices": 65}, "choices=65 is not allowed: give a whole number from 0 to 64"),
    ],
)
def test_advice_that_does_not_fit_is_refused_and_nothing_written(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        tiny(tmp_path / "run", settings={**TINY, **given})
    with pytest.raises(ValueError, match="advice='thumb' is not allowed with the engine 'rllib'"):
        tiny(tmp_path / "run", settings={"advice": "thumb"}, engine="rllib")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"advice": "os:system"}, "advice='os:system' is not allowed for Sultan-v0"),
        ({"advice": ["thumb"]}, "give a policy's name and a number"),
        ({"trust": "much"}, "give a policy's name and a number"),
        ({"choices": 65}, "choices=65 is not allowed: give a whole number from 0 to 64"),
        ({"choices": True}, "choices=True is not allowed"),
        ({"choices": 3}, "does not fit its network"),
        ({"advice": "none"}, "does not fit its network"),
    ],
)
def test_a_model_can_name_no_other_adviser(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = tiny(tmp_path / "run", steps=32).folder / "model" / "model.json"
    facts = json.loads(path.read_text())
    facts["network_options"] |= changes
    facts["seal"] = models._seal(facts)
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=says):
        load_policy(path.parent)
