"""Saved models: they play as they did, and damaged or foreign ones are refused quickly and clearly."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")
pytest.importorskip("safetensors")

import torch
from gymnasium.spaces import Discrete
from safetensors.numpy import load_file, save

from patience_env import __version__, get_game
from patience_env.agents.policy import make_policy, see
from patience_env.encoding import observation_space
from patience_env.training import models
from patience_env.training.models import ModelPolicy, load_policy, policy_class, save_model
from patience_env.vector import PatienceVectorEnv

POKER = "PatiencePoker-v0"


def save_fresh(folder: Path, network: str = "lines", observation: str = "planes", **options: Any) -> Any:
    """Save an untrained model and return its policy."""
    game = get_game(POKER)
    checked = game.check_options(options)
    layout = game.layout(checked)
    space = observation_space(layout, observation)
    every = {"width": 16, "sharpness": 4.0, "embedding": 3, "depth": 2}
    shaping = models.network_options(network, every)
    maker, keywords = policy_class(network, shaping, game, checked)
    policy = maker(
        models.input_space(network, observation, game, checked), Discrete(layout.actions), lambda _: 0.0, **keywords
    )
    facts = {
        "game": POKER,
        "options": checked,
        "observation": observation,
        "shape": list(space.shape),
        "actions": layout.actions,
        "network": network,
        "network_options": shaping,
        "version": __version__,
    }
    save_model(folder, policy, facts)
    return policy


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_fresh(tmp_path / "model", placement="fixed")
    return tmp_path / "model"


def tensor_file(folder: Path) -> Path:
    (file,) = folder.glob("model-*.safetensors")
    return file


def reseal(folder: Path, **changes: Any) -> None:
    """Change facts as somebody would who knows how the seal is made."""
    facts = {**json.loads((folder / "model.json").read_text()), **changes}
    facts["seal"] = models._seal(facts)
    (folder / "model.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("network", "observation", "options"),
    [
        ("lines", "planes", {"placement": "fixed"}),
        ("lines", "planes", {"placement": "touching", "scoring": "random"}),
        ("mlp", "cards", {"placement": "touching"}),
        ("cards", "cards", {"placement": "touching"}),
        ("ahead", "cards", {"placement": "fixed"}),
    ],
)
def test_a_loaded_model_plays_as_the_saved_one(
    tmp_path: Path, network: str, observation: str, options: dict[str, Any]
) -> None:
    policy = save_fresh(tmp_path, network, observation, **options)
    loaded = load_policy(tmp_path)
    batch = PatienceVectorEnv(POKER, 6, observation=observation, autoreset_mode="SameStep", **options)
    _, info = batch.reset(seed=1)
    for _ in range(5):
        turn = see(batch.game, batch.options, batch.states(), info["action_mask"], 1)
        actions = loaded.actions(turn)
        seen = models.network_input(policy, turn, observation)
        np.testing.assert_array_equal(actions, models.choose_actions(policy, seen, info["action_mask"]))
        assert info["action_mask"][np.arange(6), actions].all()
        _, _, _, _, info = batch.step(actions)


def test_the_policy_plays_legal_cells_of_any_batch(saved: Path) -> None:
    player = make_policy("patience_env.training.models:ModelPolicy", POKER, path=str(saved))
    assert player.name == "model"
    batch = PatienceVectorEnv(POKER, 7, placement="fixed", autoreset_mode="SameStep")
    _, info = batch.reset(seed=1)
    for step in range(6):
        turn = see(batch.game, batch.options, batch.states(), info["action_mask"], step)
        actions = player.act(turn)
        assert actions.dtype == np.int64
        assert info["action_mask"][np.arange(7), actions].all()
        _, _, _, _, info = batch.step(actions)


def test_loading_draws_nothing_from_the_random_states_of_all(saved: Path) -> None:
    def states() -> str:
        return f"{random.getstate()} {np.random.get_state()} {torch.get_rng_state().tolist()}"  # noqa: NPY002

    before = states()
    load_policy(saved)
    assert states() == before


def test_the_folder_of_a_run_will_do(saved: Path) -> None:
    assert ModelPolicy(str(saved.parent)).model.facts["game"] == POKER


def test_saving_anew_replaces_the_old_model(saved: Path) -> None:
    old = tensor_file(saved)
    save_fresh(saved, placement="fixed")
    assert tensor_file(saved) != old
    load_policy(saved)
    assert sorted(file.suffix for file in saved.iterdir()) == [".json", ".safetensors"]


def test_another_game_or_option_is_refused_naming_both(saved: Path) -> None:
    player = ModelPolicy(str(saved))
    game = get_game(POKER)
    player.check(game, game.check_options({"placement": "fixed"}))
    with pytest.raises(ValueError, match=r"placement='fixed', but .* placement='touching'"):
        player.check(game, game.check_options({}))
    with pytest.raises(ValueError, match=r"scoring='american', but .* scoring='english'"):
        player.check(game, game.check_options({"placement": "fixed", "scoring": "english"}))
    other = get_game("Fortress-v0")
    with pytest.raises(ValueError, match="plays PatiencePoker-v0, not Fortress-v0"):
        player.check(other, other.check_options({}))


def test_a_temperature_draws_by_the_probabilities_and_the_seed(saved: Path) -> None:
    batch = PatienceVectorEnv(POKER, 64, placement="fixed")
    _, info = batch.reset(seed=1)
    turn = see(batch.game, batch.options, batch.states(), info["action_mask"], 1)
    best, drawn = ModelPolicy(str(saved)), ModelPolicy(str(saved), temperature=1.0)
    np.testing.assert_array_equal(best.act(turn), best.act(turn))
    drawn.start(3)
    first = drawn.act(turn)
    assert (first != drawn.act(turn)).any()
    drawn.start(3)
    np.testing.assert_array_equal(drawn.act(turn), first)
    with pytest.raises(ValueError, match="temperature=-1 is not allowed: give a number from 0 to 100"):
        ModelPolicy(str(saved), temperature=-1)


def test_a_network_refuses_the_other_form_of_observations() -> None:
    game = get_game(POKER)
    with pytest.raises(ValueError, match="the ahead network reads observation='cards', not observation='planes'"):
        models.input_space("ahead", "planes", game, game.check_options({}))


def cut_short(folder: Path) -> None:
    file = tensor_file(folder)
    file.write_bytes(file.read_bytes()[:-100])


def flip_a_bit(folder: Path) -> None:
    file = tensor_file(folder)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(bytes(content))


def lose_the_tensors(folder: Path) -> None:
    tensor_file(folder).unlink()


def lose_the_facts(folder: Path) -> None:
    (folder / "model.json").unlink()


def cut_the_facts(folder: Path) -> None:
    path = folder / "model.json"
    path.write_text(path.read_text()[:-40])


def other_json(folder: Path) -> None:
    (folder / "model.json").write_text("[1, 2]")


def edit_the_options(folder: Path) -> None:
    path = folder / "model.json"
    path.write_text(path.read_text().replace('"fixed"', '"touching"'))


def other_format(folder: Path) -> None:
    reseal(folder, format=99)


def other_shape(folder: Path) -> None:
    reseal(folder, shape=[21, 9, 9])


def wider(folder: Path) -> None:
    reseal(folder, network_options={"width": 17, "sharpness": 4.0})


def immense(folder: Path) -> None:
    reseal(folder, network_options={"width": 10**9, "sharpness": 4.0})


def no_width(folder: Path) -> None:
    reseal(folder, network_options={"sharpness": 4.0})


def unknown_network(folder: Path) -> None:
    reseal(folder, network="transformer")


def unknown_game(folder: Path) -> None:
    reseal(folder, game="Whist-v0")


def unknown_option(folder: Path) -> None:
    reseal(folder, options={"jokers": 2})


def no_actions(folder: Path) -> None:
    reseal(folder, actions="many")


def outside_path(folder: Path) -> None:
    reseal(folder, tensors="../elsewhere.safetensors")


def other_tensors(folder: Path, change: Any) -> None:
    tensors = load_file(tensor_file(folder))
    change(tensors)
    content = save(tensors)
    tensor_file(folder).write_bytes(content)
    reseal(folder, sha256=models.hashlib.sha256(content).hexdigest())


def wrong_tensor(folder: Path) -> None:
    other_tensors(folder, lambda tensors: tensors.update({"lines.row.0.bias": np.zeros(3, np.float32)}))


def missing_tensor(folder: Path) -> None:
    other_tensors(folder, lambda tensors: tensors.pop("lines.row.0.bias"))


def surplus_tensor(folder: Path) -> None:
    other_tensors(folder, lambda tensors: tensors.update({"more": np.zeros(3, np.float32)}))


def not_finite(folder: Path) -> None:
    other_tensors(folder, lambda tensors: tensors["lines.row.0.bias"].fill(np.nan))


def no_safetensors(folder: Path) -> None:
    tensor_file(folder).write_bytes(b"nothing")
    reseal(folder, sha256=models.hashlib.sha256(b"nothing").hexdigest())


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (cut_short, "damaged: its SHA-256"),
        (flip_a_bit, "damaged: its SHA-256"),
        (lose_the_tensors, "lacks its tensor file"),
        (lose_the_facts, "there is no model.json"),
        (cut_the_facts, "no readable JSON"),
        (other_json, "no format and no seal"),
        (edit_the_options, "seal does not match"),
        (other_format, "format 99, but this version reads format 1"),
        (other_shape, r"by version .* \(21, 9, 9\), but .* of this version, .* \(21, 5, 5\)"),
        (wider, "does not fit its network"),
        (immense, "width=1000000000 is not allowed"),
        (no_width, "does not tell the width"),
        (unknown_network, "choose one of lines, ahead, cards, mlp"),
        (unknown_game, "there is no game 'Whist-v0'"),
        (unknown_option, "no option 'jokers'"),
        (no_actions, "must hold 'actions' as int"),
        (outside_path, "names no tensor file beside it"),
        (wrong_tensor, r"holds \(3,\) for tensor 'lines.row.0.bias', but \(16,\) is needed"),
        (missing_tensor, "holds nothing for tensor 'lines.row.0.bias'"),
        (surplus_tensor, "'more', but nothing is needed"),
        (not_finite, "not finite"),
        (no_safetensors, "no safetensors file"),
    ],
)
def test_a_harmed_model_is_refused_quickly(saved: Path, harm: Any, says: str) -> None:
    load_policy(saved)
    harm(saved)
    start = time.process_time()
    with pytest.raises(ValueError, match=says):
        ModelPolicy(str(saved))
    assert time.process_time() - start < 1.0


def swell(folder: Path, suffix: str) -> None:
    (file,) = folder.glob(f"model*{suffix}")
    os.truncate(file, 6 * 2**30)  # a hole: it takes no room on the disk


def fill_with_a_hole(folder: Path) -> None:
    """Give the tensor file a head of 6 GiB of numbers, and so many zeros, under a right seal."""
    size = 6 * 2**30
    head = json.dumps({"more": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    tensor_file(folder).write_bytes(len(head).to_bytes(8, "little") + head)
    os.truncate(tensor_file(folder), 8 + len(head) + size)
    reseal(folder)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda folder: swell(folder, ".json"), "more than the 16,777,216 allowed"),
        (lambda folder: swell(folder, ".safetensors"), "its tensors fill"),
        (fill_with_a_hole, "'lines.column.0.bias', but"),
        (lambda folder: reseal(folder, network="mlp", network_options={"width": 4096}), "does not fit its network"),
    ],
)
def test_an_immense_model_is_refused_without_making_room_for_it(saved: Path, harm: Any, says: str) -> None:
    load_policy(saved)
    harm(saved)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(ValueError, match=says):
        load_policy(saved)
    assert time.process_time() - start < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_full_disk_leaves_the_old_pair_and_no_part_of_a_file(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_fresh(saved, placement="touching")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_what_a_kill_left_is_removed_before_more_is_written(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (saved / ".model-0123456789abcdef.safetensors.7").write_bytes(b"half")

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "replace_file", full)
    with pytest.raises(OSError, match="No space"):
        save_fresh(saved, placement="touching")
    assert not list(saved.glob(".*"))
    load_policy(saved)


def test_facts_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    policy = save_fresh(tmp_path / "good")
    with pytest.raises(ValueError, match="'game' as str"):
        save_model(tmp_path / "bad", policy, {"options": {}})
    assert not (tmp_path / "bad").exists()


def test_a_failed_write_leaves_the_old_pair(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_policy(saved).policy.state_dict()
    copy = saved.parent / "copy"
    shutil.copytree(saved, copy)
    calls = []

    def dies(path: Path, content: bytes) -> None:
        calls.append(path.name)
        if path.suffix == ".json":
            raise KeyboardInterrupt
        path.write_bytes(content)

    monkeypatch.setattr(models, "replace_file", dies)
    with pytest.raises(KeyboardInterrupt):
        save_fresh(saved, placement="fixed")
    assert calls[-1] == "model.json"
    after = load_policy(saved).policy.state_dict()
    assert all((before[name] == after[name]).all() for name in before)
