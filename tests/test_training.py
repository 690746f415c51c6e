"""Training: settings, curves, checkpoints that survive a kill, and the network of the lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")
pytest.importorskip("safetensors")

import torch
import typer
from gymnasium.spaces import Discrete
from typer.testing import CliRunner

from patience_env import get_game, jit
from patience_env.agents.policy import make_policy
from patience_env.encoding import observation_space
from patience_env.env import PatienceEnv
from patience_env.game import game_ids
from patience_env.training.advice import NO_ADVICE
from patience_env.training.curve import command as curve_command
from patience_env.training.curve import read_curve
from patience_env.training.networks import FEATURES, AfterstatePolicy, LineFeatures
from patience_env.training.train import SETTINGS, command, read_settings, train
from patience_env.vector import PatienceVectorEnv

POKER = "PatiencePoker-v0"
FIXED = {"placement": "fixed"}
TINY = {"envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "width": 8, "evaluate_every": 64, "spread_steps": 1}
DEALS = range(3_000_000, 3_000_003)


def tiny(folder: Path, **keywords: Any) -> Any:
    keywords = {"options": FIXED, "steps": 128, "settings": TINY, "deals": DEALS, "quiet": True, **keywords}
    return train(POKER, folder, **keywords)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# -- settings ----------------------------------------------------------------------------------------------------


def test_every_game_has_settings_and_its_own_override_the_default() -> None:
    for game in game_ids():
        assert read_settings(game).keys() == read_settings(game, taught=True).keys() == SETTINGS.keys()
    poker, other = read_settings(POKER), read_settings("Fortress-v0")
    assert (poker["network"], other["network"]) == ("lines", "ahead")
    assert read_settings(POKER, {"width": 9})["width"] == 9
    assert read_settings("Fortress-v0", taught=True)["ent_coef"] < other["ent_coef"]
    assert read_settings("Fortress-v0", {"ent_coef": 0.5}, taught=True)["ent_coef"] == 0.5
    assert read_settings("Fortress-v0", {"width": 9})["advice"] == "thumb"
    assert read_settings("Fortress-v0", {"network": "mlp"})["advice"] == NO_ADVICE
    assert read_settings("Fortress-v0", {"network": "mlp", "advice": "thumb"})["advice"] == "thumb"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"learning_rat": 1}, "no setting 'learning_rat': the settings are network"),
        ({"learning_rate": "fast"}, "learning_rate='fast' is not allowed: give a number from 0 to 1"),
        ({"learning_rate": 2.0}, "give a number from 0 to 1"),
        ({"envs": 2.5}, "envs=2.5 is not allowed: give a whole number from 1"),
        ({"envs": True}, "envs=True is not allowed"),
        ({"network": "cnn"}, "choose one of lines, ahead, cards, mlp"),
        ({"network": 3}, "network=3 is not allowed"),
        ({"observation": "pixels"}, "'pixels' is not allowed: choose one of 'planes', 'cards'"),
        ({"observation": "cards"}, "the lines network reads the planes observations"),
        ({"envs": 3, "n_steps": 7, "batch_size": 20}, "minibatch of a single step"),
    ],
)
def test_wrong_settings_say_what_is_right_and_write_nothing(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tiny(tmp_path / "run", settings={**TINY, **given})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"steps": 0}, "steps=0 is not allowed"),
        ({"minutes": -1.0}, "minutes=-1.0 is not allowed"),
        ({"seed": -1}, "seed=-1 is not allowed"),
        ({"options": {"placement": "diagonal"}}, "'diagonal' is not allowed"),
        ({"resume": True}, "holds no run to resume"),
    ],
)
def test_wrong_arguments_say_what_is_right_and_write_nothing(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tiny(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"teacher": "thumb"}, "'rllib' knows no teacher: leave --teacher out, or choose --engine sb3"),
        ({"settings": {"network": "ahead"}}, "network='ahead' is not allowed with the engine 'rllib'"),
        ({"settings": {"win_bonus": 1.0}}, "win_bonus=1.0 is not allowed with the engine 'rllib'"),
    ],
)
def test_what_rllib_cannot_do_is_refused(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        train("Sultan-v0", tmp_path / "run", engine="rllib", **given)
    assert not (tmp_path / "run").exists()


# -- runs --------------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_model_a_curve_and_logs(tmp_path: Path) -> None:
    done = tiny(tmp_path / "run")
    assert done.steps == 128
    assert [point.steps for point in done.curve] == [0, 64, 128]
    assert read_curve(tmp_path / "run") == list(done.curve)
    assert all(a.seconds < b.seconds for a, b in zip(done.curve, done.curve[1:], strict=False))
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    player = make_policy("patience_env.training.models:ModelPolicy", POKER, path=str(tmp_path / "run"))
    env = PatienceEnv(POKER, **FIXED)
    total = 0.0
    for deal in DEALS:
        env.reset(options={"deal": deal})
        over = False
        while not over:
            _, reward, over, _, _ = env.step(player.choose(env))
            total += reward
    assert total / len(DEALS) == pytest.approx(done.curve[-1].mean, abs=1e-3)
    assert not [name for name in contents(tmp_path / "run") if name.endswith((".pkl", ".zip", ".pt", ".pth"))]


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    first, again, other = (tiny(tmp_path / str(i), seed=seed) for i, seed in enumerate((5, 5, 6)))
    weights = [
        make_policy("patience_env.training.models:ModelPolicy", POKER, path=str(run.folder)).model.policy.state_dict()
        for run in (first, again, other)
    ]  # type: ignore[attr-defined]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_the_mlp_trains_any_game_on_either_observation(tmp_path: Path) -> None:
    for observation in ("planes", "cards"):
        settings = {**TINY, "network": "mlp", "observation": observation}
        done = train(POKER, tmp_path / observation, steps=32, settings=settings, deals=DEALS, quiet=True)
        assert done.steps == 32
        make_policy("patience_env.training.models:ModelPolicy", POKER, path=str(done.folder))


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match="already holds a run of 128 steps: go on with --resume"):
        tiny(tmp_path / "run")
    assert contents(tmp_path / "run") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ValueError, match="not empty and holds no run"):
        tiny(tmp_path / "mine")


def test_a_run_stopped_before_its_first_evaluation_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        pass

    def stop(*given: object) -> Any:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("patience_env.training.learner.configure", stop)
        with pytest.raises(Stopped):
            tiny(tmp_path / "run")
    done = tiny(tmp_path / "run", resume=True)
    assert [point.steps for point in done.curve] == [0, 64, 128]


def test_parts_of_a_first_checkpoint_hinder_no_run_and_are_removed(tmp_path: Path) -> None:
    digest = "0123456789abcdef"
    parts = [f".checkpoint-{digest}.safetensors.7", f"checkpoint-{digest}.safetensors", ".checkpoint.json.7"]
    (tmp_path / "run").mkdir()
    for name in parts:
        (tmp_path / "run" / name).write_bytes(b"half")
    tiny(tmp_path / "run")
    assert not {path.name for path in (tmp_path / "run").iterdir()} & set(parts)


def test_a_resumed_run_goes_on_to_the_longer_end_and_joins_the_curve(tmp_path: Path) -> None:
    whole = tiny(tmp_path / "whole", steps=256)
    part = tiny(tmp_path / "run")
    done = tiny(tmp_path / "run", steps=256, resume=True)
    assert done.steps == whole.steps == 256
    assert done.curve[: len(part.curve)] == part.curve
    assert [point.steps for point in done.curve] == [point.steps for point in whole.curve] == [0, 64, 128, 192, 256]
    assert done.curve[-1].seconds > part.seconds
    again = tiny(tmp_path / "run", steps=None, resume=True)
    assert (again.steps, again.curve) == (done.steps, done.curve)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"options": {"placement": "touching"}}, "placement is 'fixed' in the run, but 'touching' is asked for"),
        ({"seed": 4}, "seed is 0 in the run, but 4 is asked for"),
        ({"settings": {**TINY, "width": 9}}, "width is 8 in the run, but 9 is asked for"),
    ],
)
def test_another_run_is_not_resumed(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    tiny(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match=says):
        tiny(tmp_path / "run", resume=True, **change)
    assert contents(tmp_path / "run") == before


def test_a_damaged_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    (file,) = (tmp_path / "run").glob("checkpoint-*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"checkpoint file .* is damaged"):
        tiny(tmp_path / "run", resume=True)


def test_a_run_can_be_limited_in_time(tmp_path: Path) -> None:
    done = tiny(tmp_path / "run", steps=None, minutes=0.02)
    assert done.steps % 32 == 0
    assert done.seconds >= 1.2
    assert done.curve[-1].steps == done.steps


def test_reserved_deals_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reserved(rng: np.random.Generator) -> Any:
        return rng.integers(0, 2**32, 64, dtype=np.uint64)

    monkeypatch.setattr("patience_env.vector.draw_deals", reserved)
    with pytest.raises(ValueError, match="reserved for comparing policies"):
        tiny(tmp_path / "run")


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_step_count(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {**TINY, "checkpoint_seconds": 0.0, "evaluate_every": 640}
    code = (
        "from patience_env.training.train import train\n"
        f"train({POKER!r}, {str(folder)!r}, options={FIXED!r}, steps=10**9, settings={settings!r}, "
        f"deals={list(DEALS)!r}, quiet=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            path = folder / "checkpoint.json"
            if path.exists() and json.loads(path.read_text())["steps"] >= 64:
                break
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    facts = json.loads((folder / "checkpoint.json").read_text())
    assert 64 <= facts["steps"] < 10**9
    total = (facts["steps"] // 64 + 2) * 64
    done = tiny(folder, steps=total, settings=settings, resume=True)
    assert done.steps == total
    assert [point.steps for point in done.curve][:1] == [0]
    assert done.seconds > facts["seconds"]
    assert len(list(folder.glob("checkpoint-*.safetensors"))) == 1


@pytest.mark.slow
@pytest.mark.skipif(not jit.JIT, reason="needs compiled rules")
def test_the_lines_network_beats_the_greedy_player_in_a_short_run(tmp_path: Path) -> None:
    done = train(
        POKER,
        tmp_path / "run",
        options=FIXED,
        steps=130_000,
        settings={"threads": 1},
        deals=range(4_000_000, 4_000_500),
        quiet=True,
    )
    # Greedy play over partial hands makes 51.8, with a standard error of 1.4 over so many deals.
    assert done.curve[-1].mean > 60


# -- the command -------------------------------------------------------------------------------------------------


def run_command(*words: str) -> Any:
    app = typer.Typer()
    app.command("train")(command)
    app.command("curve")(curve_command)
    return CliRunner().invoke(app, list(words))


def test_the_command_trains_and_tells_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patience_env.training.train.named_deals", lambda name: np.array(DEALS, np.uint64))
    settings = [word for name, value in TINY.items() if name != "envs" for word in ("--set", f"{name}={value}")]
    words = [
        "train",
        POKER,
        "--option",
        "placement=fixed",
        "--steps",
        "64",
        "--envs",
        "4",
        "--out",
        str(tmp_path / "a"),
    ]
    done = run_command(*words, *settings)
    assert done.exit_code == 0, done.output
    assert "64 steps" in done.output
    assert str(tmp_path / "a" / "model") in done.output.replace("\n", "")
    refused = run_command(*words, *settings)
    assert refused.exit_code == 2
    assert "go on with --resume" in refused.output
    drawn = run_command("curve", str(tmp_path / "a"), "--out", str(tmp_path / "curve.png"))
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "width"], "--set 'width' is not of the form name=value"),
        (["--set", "width=1", "--set", "width=2"], "--set 'width' is given twice"),
        (["--option", "colour=red"], "has no option 'colour'"),
    ],
)
def test_the_command_refuses_what_it_cannot_read(tmp_path: Path, words: list[str], says: str) -> None:
    done = run_command("train", POKER, "--out", str(tmp_path / "a"), *words)
    assert done.exit_code == 2
    assert says in done.output


def test_the_command_says_in_one_line_that_a_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep")
    done = run_command("train", POKER, "--steps", "64", "--envs", "4", "--out", str(tmp_path / "file" / "run"))
    assert done.exit_code == 1
    assert "cannot be written: " in done.output
    assert "Traceback" not in done.output
    assert (tmp_path / "file").read_text() == "keep"


def test_a_curve_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no run"):
        read_curve(tmp_path)
    (tmp_path / "curve.json").write_text('[{"steps": 1}]')
    with pytest.raises(ValueError, match="is no learning curve"):
        read_curve(tmp_path)
    (tmp_path / "curve.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is no learning curve"):
        read_curve(tmp_path)
    os.truncate(tmp_path / "curve.json", 2**33)  # a hole: it takes no room on the disk
    with pytest.raises(ValueError, match="more than the 16,777,216 allowed"):
        read_curve(tmp_path)


# -- the network of the lines ------------------------------------------------------------------------------------


def lines_policy(batch: PatienceVectorEnv) -> AfterstatePolicy:
    torch.manual_seed(0)
    return AfterstatePolicy(batch.single_observation_space, batch.single_action_space, lambda _: 0.0, width=12)  # type: ignore[arg-type]


def seen(env: PatienceEnv, table: dict[str, list[str]]) -> torch.Tensor:
    observation, _ = env.load(table)
    return torch.as_tensor(observation[None])


def logits_and_value(policy: AfterstatePolicy, observation: torch.Tensor) -> tuple[np.ndarray, float]:
    with torch.no_grad():
        logits, values = policy._look(observation)
    return logits[0].numpy(), float(values)


@pytest.mark.parametrize("options", [{"placement": "fixed"}, {"placement": "touching"}, {"scoring": "random"}])
def test_the_network_knows_the_legal_cells(options: dict[str, Any]) -> None:
    batch = PatienceVectorEnv(POKER, 8 if jit.JIT else 2, autoreset_mode="SameStep", **options)
    extractor = LineFeatures(batch.single_observation_space)  # type: ignore[arg-type]
    observations, info = batch.reset(seed=4)
    rng = np.random.default_rng(4)
    for _ in range(55 if jit.JIT else 26):
        features = extractor(torch.as_tensor(observations).float()).numpy()
        np.testing.assert_array_equal(features[:, -batch.layout.actions :], info["action_mask"])
        observations, _, _, _, info = batch.step(batch.sample(rng))


def test_features_of_a_line_before_and_after_the_card_in_hand() -> None:
    env = PatienceEnv(POKER, **FIXED)
    table = {"r1c1": ["9S"], "r1c2": ["8S"], "r2c1": ["KS"], "hand": ["9H"]}
    extractor = LineFeatures(env.observation_space)  # type: ignore[arg-type]
    flat = extractor(seen(env, table).float())[0, : 4 * 5 * len(FEATURES)]
    before, after = flat.view(2, 2, 5, len(FEATURES))[:, 0, 0]
    told = [dict(zip(FEATURES, line.tolist(), strict=True)) for line in (before, after)]
    assert (told[0]["2 cards"], told[1]["3 cards"]) == (1, 1)
    # Two of the nines are seen, one of the eights: two ranks that lie once, then a pair of nines and an eight.
    assert told[0]["ranks that lie 1 times"] == pytest.approx(2 * 0.5)
    assert told[0]["unseen of the ranks that lie 1 times"] == pytest.approx((2 + 3) * 0.25)
    assert told[1]["ranks that lie 2 times"] == pytest.approx(0.5)
    assert told[1]["unseen of the ranks that lie 2 times"] == pytest.approx(2 * 0.25)
    assert (told[0]["one suit"], told[1]["one suit"]) == (1, 0)
    assert told[0]["unseen of the suit"] == pytest.approx(0.1 * 10)
    # The second row holds a king of the same suit.
    assert told[0]["other lines of the suit"] == pytest.approx(0.5)
    # 4-8, 5-9, 6-10, 7-J and 8-Q hold an eight; with the nine there remain 5-9 to 8-Q.
    assert told[0]["windows"] == pytest.approx(4 * 0.2)
    assert told[1]["windows"] == 0
    assert told[0]["cards placed"] == pytest.approx(3 * 0.04)


def test_renaming_suits_and_swapping_lines_changes_nothing() -> None:
    batch = PatienceVectorEnv(POKER, 1, **FIXED)
    policy = lines_policy(batch)
    env = PatienceEnv(POKER, **FIXED)
    table = {"r1c1": ["9S"], "r1c4": ["8S"], "r2c1": ["KH"], "r3c3": ["KD"], "r5c4": ["2C"], "hand": ["9H"]}
    logits, value = logits_and_value(policy, seen(env, table))
    renamed = {place: [cards[0][0] + "HDCS"["SHDC".index(cards[0][1])]] for place, cards in table.items()}
    other, other_value = logits_and_value(policy, seen(env, renamed))
    np.testing.assert_allclose(other, logits, atol=1e-5)
    assert other_value == pytest.approx(value, abs=1e-5)
    swapped = {
        place.replace("r1", "r9").replace("r2", "r1").replace("r9", "r2"): cards for place, cards in table.items()
    }
    other, other_value = logits_and_value(policy, seen(env, swapped))
    grid, other_grid = logits.reshape(5, 5), other.reshape(5, 5)
    np.testing.assert_allclose(other_grid[[1, 0, 2, 3, 4]], grid, atol=1e-5)
    assert other_value == pytest.approx(value, abs=1e-5)
    assert np.abs(grid - grid.T).max() > 1e-4


def test_the_canvas_is_valued_like_the_square_it_will_be() -> None:
    square, canvas = PatienceEnv(POKER, **FIXED), PatienceEnv(POKER, placement="touching")
    small = lines_policy(PatienceVectorEnv(POKER, 1, **FIXED))
    large = lines_policy(PatienceVectorEnv(POKER, 1, placement="touching"))
    large.lines.load_state_dict(small.lines.state_dict())
    cells = {(0, 0): "9S", (0, 1): "8S", (1, 0): "KH"}
    near = seen(square, {**{f"r{r + 1}c{c + 1}": [card] for (r, c), card in cells.items()}, "hand": ["9H"]})
    far = seen(canvas, {**{f"r{r + 5}c{c + 5}": [card] for (r, c), card in cells.items()}, "hand": ["9H"]})
    logits, _ = logits_and_value(small, near)
    wide, _ = logits_and_value(large, far)
    np.testing.assert_allclose(wide.reshape(9, 9)[4:9, 4:9], logits.reshape(5, 5), atol=1e-5)
    with torch.no_grad():
        before = [
            policy.lines.line_values(policy.extract_features(seen_, policy.features_extractor))
            for policy, seen_ in ((small, near), (large, far))
        ]
    sums = [(values[:, 0] * weights).sum().item() for values, weights in before]
    assert sums[0] == pytest.approx(sums[1], abs=1e-4)


def test_the_lines_network_refuses_other_games() -> None:
    game = get_game("Fortress-v0")
    layout = game.layout(game.check_options({}))
    with pytest.raises(ValueError, match="planes observations of PatiencePoker-v0"):
        AfterstatePolicy(observation_space(layout, "planes"), Discrete(layout.actions), lambda _: 0.0)
