"""Engines: whoever plays the shares, and whatever dies on the way, the results are the same to the last digit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patience_env import get_game
from patience_env.agents.policy import make_policy
from patience_env.deals import named_deals
from patience_env.training import engines, shares
from patience_env.training.engines import LocalEngine, ProcessEngine, WorkerError, open_engine
from patience_env.training.evaluate import Evaluation, IllegalChoiceError, evaluate, shares_of
from patience_env.training.shares import cut, fingerprint, share_seed
from sharing import Noted

POKER = "PatiencePoker-v0"
FIXED = {"placement": "fixed"}
DEALS = named_deals("smoke", 7)


@pytest.fixture(scope="module")
def two() -> Iterator[ProcessEngine]:
    """Two processes, started once."""
    with open_engine("processes", workers=2) as engine:
        assert isinstance(engine, ProcessEngine)
        yield engine


def same(first: Evaluation, second: Evaluation) -> bool:
    pairs = [(getattr(first, name), getattr(second, name)) for name in ("deals", "returns", "lengths")]
    return all(np.array_equal(one, other) for one, other in pairs) and first.policy_version == second.policy_version


# Shares --------------------------------------------------------------------------------------------------------


def test_shares_hold_every_deal_once_in_order() -> None:
    parts = cut(named_deals("test", 1001), 250)
    assert [len(part) for part in parts] == [250, 250, 250, 250, 1]
    assert np.array_equal(np.concatenate(parts), named_deals("test", 1001))


def test_shares_have_seeds_of_their_own() -> None:
    seeds = [share_seed(seed, number) for seed in (0, 1, 2) for number in range(100)]
    assert len(set(seeds)) == 300
    assert share_seed(5, 0) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_results_on_fewer_deals_are_the_beginning_of_those_on_more(tmp_path: Path) -> None:
    policy = Noted(str(tmp_path / "log"))
    few, more = (evaluate(policy, POKER, DEALS[:count], options=FIXED) for count in (4, 7))
    assert few.returns.tolist() == more.returns[:4].tolist()
    # Nothing of one share is left in the next, so that any may be played first.
    last = evaluate(f"sharing:Noted:log={tmp_path / 'log'}", POKER, DEALS, options=FIXED, engine=Backwards())
    assert same(last, more)


class Backwards(LocalEngine):
    def play(self, parts: Any) -> Any:
        return super().play(list(reversed(parts)))


@pytest.mark.compiled
def test_two_processes_play_as_one(two: ProcessEngine) -> None:
    # Sultan hides cards and shuffles later, and the policy breaks ties at random.
    told: list[tuple[int, int]] = []
    deals = named_deals("test", 600)
    here = evaluate("greedy", "Sultan-v0", deals, seed=3)
    there = evaluate("greedy", "Sultan-v0", deals, seed=3, engine=two, progress=lambda *done: told.append(done))
    assert same(here, there)
    assert here.won is not None
    assert there.won is not None
    assert np.array_equal(here.won, there.won)
    assert told == sorted(told)
    assert told[-1] == (600, here.moves)


# Deaths --------------------------------------------------------------------------------------------------------


def test_a_share_whose_process_is_killed_is_played_again_and_counted_once(tmp_path: Path, two: ProcessEngine) -> None:
    log = tmp_path / "log"
    here = evaluate(Noted(str(tmp_path / "other")), POKER, DEALS, options=FIXED)
    there = evaluate(f"sharing:Fatal:log={log}:at=2", POKER, DEALS, options=FIXED, engine=two)
    assert (tmp_path / "killed0").exists()
    assert same(here, there)
    assert len(there.deals) == 7
    # Four shares, the last of one deal, which is not noted; the killed one is begun twice.
    begun = log.read_text().split()
    assert len(begun) == 4
    assert len(set(begun)) == 3


def test_a_share_that_kills_every_process_is_given_up(tmp_path: Path, two: ProcessEngine) -> None:
    text = f"sharing:Fatal:log={tmp_path / 'log'}:at=1:times=99"
    with pytest.raises(WorkerError, match=f"3 workers died while they played {text} on deals .* of {POKER}"):
        evaluate(text, POKER, DEALS[:2], options=FIXED, engine=two)
    assert len(list(tmp_path.glob("killed*"))) == engines.TRIES


def test_errors_of_policies_come_from_the_workers(tmp_path: Path, two: ProcessEngine) -> None:
    with pytest.raises(IllegalChoiceError, match="illegal action 25, outside 0 to 24"):
        evaluate(f"sharing:Illegal:log={tmp_path / 'log'}", POKER, DEALS, options=FIXED, engine=two)
    log = tmp_path / "model"
    log.touch()
    text = f"sharing:Picky:log={log}"
    policy = make_policy("sharing:Picky", POKER, log=str(log))
    parts = shares_of(text, policy, POKER, get_game(POKER).check_options(FIXED), DEALS, 0)
    log.write_text("trained again")
    with pytest.raises(ValueError, match="is not the same here as where the evaluation was begun"):
        list(two.play(parts))
    log.unlink()
    with pytest.raises(ValueError, match="there is no file"):
        list(two.play(shares_of(text.replace("model", "none"), policy, POKER, parts[0].options, DEALS, 0)))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_workers_end_with_an_engine_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom patience_env.training.engines import _Worker\n"
        "if __name__ == '__main__':\n"
        "    worker = _Worker()\n    print(worker.process.pid, flush=True)\n    sys.stdin.read()\n"
    )
    script = tmp_path / "engine.py"
    script.write_text(code)
    engine = subprocess.Popen([sys.executable, "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    worker = int(engine.stdout.readline())
    os.kill(engine.pid, signal.SIGKILL)
    engine.communicate()
    until = time.monotonic() + 60
    while _is_alive(worker) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _is_alive(worker)


def _is_alive(process: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


# What is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("threads",), "there is no engine 'threads': choose one of local, processes, ray"),
        (("processes", 0), "workers=0 is not allowed: give a whole number from 1 on"),
        (("processes", True), "workers=True is not allowed"),
        (("local", 2), "engine 'local' has no workers: choose processes or ray for --workers 2"),
        (("processes", 2, "127.0.0.1:6379"), "engine 'processes' has no address: choose ray"),
    ],
)
def test_wrong_engines_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message), open_engine(*arguments):
        pass


def test_an_engine_wants_policies_as_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an engine plays policies written as text"):
        evaluate(Noted(str(tmp_path / "log")), POKER, DEALS, options=FIXED, engine=LocalEngine())


def test_without_ray_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'patience-env\[ray\]'"), open_engine("ray"):
        pass


@pytest.mark.parametrize("address", ["here", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:port", ":6379"])
def test_addresses_have_host_and_port(address: str) -> None:
    with pytest.raises(ValueError, match="give HOST:PORT, ray://HOST:PORT or auto"):
        engines._expect_answer(address)


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"nothing answers at address '127.0.0.1:1': Connection refused"):
        engines._expect_answer("127.0.0.1:1")
    assert time.monotonic() - began < engines.CONNECT_SECONDS + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "threads"], "there is no engine 'threads'"),
        (["--engine", "processes", "--workers", "0"], "workers=0 is not allowed"),
        (["--workers", "2"], "engine 'local' has no workers"),
        (["--engine", "processes", "--policy", "nobody"], "there is no policy 'nobody'"),
        (["--engine", "processes", "--policy", "model:path=nowhere"], "'nowhere' holds no model"),
    ],
)
def test_the_command_refuses_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    pytest.importorskip("typer")
    if "model:path=nowhere" in arguments:
        pytest.importorskip("safetensors")
    from patience_env.training.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["evaluate", POKER, "--policy", "greedy", "--first", "2", *arguments])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("patience: error: ")
    assert said in err


# Fingerprints --------------------------------------------------------------------------------------------------


def test_a_fingerprint_changes_with_what_play_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "model"
    log.write_text("one")
    policy, game = make_policy("sharing:Picky", POKER, log=str(log)), get_game(POKER)
    options = game.check_options(FIXED)
    found = [fingerprint(policy, game, options)]
    assert found[0] == fingerprint(policy, game, options)
    log.write_text("two")
    found.append(fingerprint(policy, game, options))
    monkeypatch.setattr(policy, "version", 2, raising=False)
    found.append(fingerprint(policy, game, options))
    found.append(fingerprint(policy, get_game("Sultan-v0"), {}))
    monkeypatch.setattr(shares.patience_env, "__version__", "0.0.1")
    found.append(fingerprint(policy, game, options))
    assert len(set(found)) == len(found)


def test_a_fingerprint_reads_what_a_module_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "told"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("import os\ndef act():\n    from told import second\n")
    (package / "second.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for text in ("X = 1\n", "X = 2\n"):
        (package / "second.py").write_text(text)
        shares._source_digest.cache_clear()
        digests.append(shares._source_digest("told.first"))
    assert digests[0] != digests[1]
    shares._source_digest.cache_clear()
