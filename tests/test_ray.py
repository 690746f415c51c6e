"""Ray: evaluation and training over two local workers. `make test-ray` runs these in an environment of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("sb3_contrib")

from patience_env.agents.policy import make_policy
from patience_env.deals import RESERVED_DEALS, named_deals
from patience_env.training import engines
from patience_env.training.cli import main
from patience_env.training.engines import Engine, RayEngine, WorkerError, open_engine
from patience_env.training.evaluate import Evaluation, IllegalChoiceError, evaluate
from patience_env.training.shares import Played, Share
from sharing import Noted

pytestmark = pytest.mark.ray

POKER = "PatiencePoker-v0"
FIXED = {"placement": "fixed"}
DEALS = named_deals("smoke", 7)


@pytest.fixture(scope="module")
def two() -> Iterator[Engine]:
    """Two workers of a Ray that is started here."""
    with open_engine("ray", workers=2) as engine:
        yield engine


def same(first: Evaluation, second: Evaluation) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("deals", "returns", "lengths", "won")
    )


def test_two_workers_play_as_this_process(two: Engine) -> None:
    deals = named_deals("test", 600)
    here = evaluate("greedy", "Sultan-v0", deals, seed=3)
    assert same(here, evaluate("greedy", "Sultan-v0", deals, seed=3, engine=two))


def test_a_model_plays_as_in_this_process(two: Engine) -> None:
    deals = named_deals("test", 300)
    here = evaluate("ppo", POKER, deals, options=FIXED)
    assert here.returns.tolist() == evaluate("ppo", POKER, deals, options=FIXED, engine=two).returns.tolist()


def test_a_share_whose_worker_is_killed_is_played_again_and_counted_once(tmp_path: Path, two: Engine) -> None:
    log = tmp_path / "log"
    here = evaluate(Noted(str(tmp_path / "other")), POKER, DEALS, options=FIXED)
    there = evaluate(f"sharing:Fatal:log={log}:at=2", POKER, DEALS, options=FIXED, engine=two)
    assert (tmp_path / "killed0").exists()
    assert here.returns.tolist() == there.returns.tolist()
    begun = log.read_text().split()
    assert (len(begun), len(set(begun))) == (4, 3)


def test_a_share_that_kills_every_worker_is_given_up(tmp_path: Path, two: Engine) -> None:
    text = f"sharing:Fatal:log={tmp_path / 'log'}:at=1:times=99"
    with pytest.raises(WorkerError, match=f"3 workers died while they played {text}"):
        evaluate(text, POKER, DEALS[:2], options=FIXED, engine=two)
    assert len(list(tmp_path.glob("killed*"))) == engines.TRIES


def test_errors_of_policies_come_from_the_workers(tmp_path: Path, two: Engine) -> None:
    with pytest.raises(IllegalChoiceError, match="illegal action 25, outside 0 to 24"):
        evaluate(f"sharing:Illegal:log={tmp_path / 'log'}", POKER, DEALS, options=FIXED, engine=two)


def test_shares_are_told_once(two: Engine) -> None:
    assert isinstance(two, RayEngine)
    shares = [Share("random", POKER, FIXED_OPTIONS, DEALS[i : i + 1], 0, i) for i in range(7)]
    told: list[tuple[Share, Played]] = list(two.play(shares))
    assert sorted(share.number for share, _ in told) == list(range(7))


FIXED_OPTIONS = {"placement": "fixed", "scoring": "american", "target": None}


def test_the_ray_of_this_process_is_used_and_left_as_it_is(two: Engine) -> None:
    import ray

    with open_engine("ray") as again:
        result = evaluate("random", POKER, DEALS[:3], options=FIXED, engine=again)
    assert result.returns.tolist() == evaluate("random", POKER, DEALS[:3], options=FIXED).returns.tolist()
    assert ray.is_initialized()


def test_a_cluster_that_runs_is_joined_and_left_running(two: Engine, tmp_path: Path) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    assert address.startswith("127.0.0.1:")
    out = tmp_path / "out.json"
    arguments = ["evaluate", POKER, "--policy", "random", "--deals", "smoke", "--first", "7", "--engine", "ray"]
    arguments += ["--workers", "1", "--address", address, "--json", str(out), "--option", "placement=fixed"]
    code = "import sys\nfrom patience_env.training.cli import main\nmain(sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    here = evaluate("random", POKER, DEALS, options=FIXED)
    assert json.loads(out.read_text())["results"][0]["returns"] == here.returns.tolist()
    assert ray.is_initialized()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks sockets up in /proc")
def test_ray_listens_to_this_machine_alone(two: Engine) -> None:
    import ray

    # The port of the cluster's head, in hexadecimal, and at which addresses it listens.
    port = f"{int(ray.get_runtime_context().gcs_address.rpartition(':')[2]):04X}"
    sockets = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()]
    found = {fields[1] for fields in sockets if fields[3] == "0A" and fields[1].endswith(f":{port}")}
    local = {f"0100007F:{port}", f"0000000000000000FFFF00000100007F:{port}", f"{'0' * 24}01000000:{port}"}
    assert found
    assert found <= local


def test_an_address_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ANSWER_SECONDS", 5.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"no Ray cluster .*{address}"):
            engines._expect_answer(address)


# RLlib ---------------------------------------------------------------------------------------------------------


def test_the_module_gives_illegal_actions_no_probability_and_its_model_plays_alike() -> None:
    import torch
    from ray.rllib.core.columns import Columns

    from patience_env.training import rllib

    context = {"game": "Sultan-v0", "num_envs": 3, "observation": "planes", "options": {}, "reward_scale": 0.5}
    batch = rllib.make_batch(context)
    observations, _ = batch.reset(seed=4)
    assert batch.observation_space.contains(observations)
    module = rllib.MaskedModule(
        observation_space=batch.single_observation_space,
        action_space=batch.single_action_space,
        model_config={
            "network": "mlp",
            "network_options": {"width": 8},
            "game": "Sultan-v0",
            "options": {"redeals": 2},
        },
    )
    seen = {name: torch.as_tensor(value) for name, value in observations.items()}
    logits = module._forward({Columns.OBS: seen})[Columns.ACTION_DIST_INPUTS]
    chances = torch.softmax(logits, 1).detach().numpy()
    legal = observations["action_mask"] > 0
    assert (chances[~legal] == 0).all()
    assert np.allclose(chances.sum(1), 1)
    assert (chances[legal] > 0).all()
    assert module.compute_values({Columns.OBS: seen}).shape == (3,)
    # An ended game, where nothing is legal, has finite logits.
    seen["action_mask"] = torch.zeros_like(seen["action_mask"])
    assert torch.isfinite(module._forward({Columns.OBS: seen})[Columns.ACTION_DIST_INPUTS]).all()


def test_batches_play_as_the_environment_does_with_scaled_rewards() -> None:
    from patience_env.training import rllib
    from patience_env.vector import PatienceVectorEnv

    context = {"game": "Sultan-v0", "num_envs": 4, "observation": "cards", "options": {}, "reward_scale": 0.5}
    ours, plain = rllib.make_batch(context), PatienceVectorEnv("Sultan-v0", 4, observation="cards")
    seen, _ = ours.reset(seed=1)
    expected, info = plain.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(300):
        assert np.array_equal(seen["observations"], expected)
        assert np.array_equal(seen["action_mask"], info["action_mask"])
        assert (info["deal"] >= RESERVED_DEALS).all()
        actions = plain.sample(rng)
        seen, rewards, over, cut, infos = ours.step(actions)
        expected, plain_rewards, plain_over, plain_cut, info = plain.step(actions)
        assert np.array_equal(rewards, 0.5 * plain_rewards)
        assert np.array_equal(over, plain_over)
        assert np.array_equal(cut, plain_cut)
        assert infos == {}


def test_training_with_two_workers_makes_a_model_that_plays(tmp_path: Path, two: Engine) -> None:
    import ray

    arguments = [
        "train",
        POKER,
        "--option",
        "placement=fixed",
        "--engine",
        "rllib",
        "--workers",
        "2",
        "--steps",
        "4000",
    ]
    arguments += ["--set", "envs=16", "--set", "batch_size=200", "--set", "evaluate_every=2000", "--quiet"]
    address = ray.get_runtime_context().gcs_address
    code = "import sys\nfrom patience_env.training.cli import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-P", "-c", code, *arguments, "--out", str(tmp_path / "run"), "--address", address]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    curve = json.loads((tmp_path / "run" / "curve.json").read_text())
    assert curve[-1]["steps"] >= 4000
    assert curve[-1]["mean"] > curve[0]["mean"]
    # The model needs no Ray to play, and plays as it was measured.
    result = evaluate(f"model:path={tmp_path / 'run'}", POKER, named_deals("validation"), options=FIXED)
    assert round(result.mean, 4) == pytest.approx(curve[-1]["mean"], abs=0.5)
    assert result.mean > evaluate("random", POKER, named_deals("validation"), options=FIXED).mean
    facts: Any = make_policy("model", POKER, path=str(tmp_path / "run")).model.facts  # type: ignore[attr-defined]
    assert facts["training"]["engine"] == "rllib"
    assert list((tmp_path / "run" / "tensorboard").iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "tune"], "there is no engine 'tune': choose one of sb3, rllib"),
        (["--workers", "2"], "engine 'sb3' has no workers: choose rllib for --workers 2"),
        (["--engine", "rllib", "--workers", "0"], "workers=0 is not allowed"),
        (["--engine", "rllib", "--resume"], "keeps no checkpoint to resume"),
        (["--engine", "rllib", "--address", "127.0.0.1:1"], "nothing answers at address '127.0.0.1:1'"),
    ],
)
def test_train_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", POKER, "--out", str(tmp_path / "run"), *arguments])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
    assert not (tmp_path / "run").exists()
