"""Compilation: what the decorators promise, the cache, and the same games without compilation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patience_env
from patience_env import deals, jit, kernels
from patience_env.env import PatienceEnv
from patience_env.games.poker_hands import CATEGORIES, category
from playing import GAMES, run_python

compiled = pytest.mark.compiled
PACKAGE = Path(patience_env.__file__).resolve().parent
NO_CACHE: dict[str, str | None] = {"NUMBA_CACHE_DIR": None}


@compiled
def test_rules_are_inlined_and_count_no_references() -> None:
    """`_nrt=False` is a semi-private option of Numba: this tells when a new version no longer takes it."""
    rule: Any = deals.next_bits
    assert rule.targetoptions["forceinline"] is True
    assert rule.targetoptions["_nrt"] is False
    helper: Any = deals.shuffle
    assert helper.targetoptions["_nrt"] is False
    assert not helper.targetoptions.get("forceinline", False)
    loop: Any = kernels.advance_rows
    assert loop.targetoptions["_nrt"] is False
    assert loop.targetoptions["nogil"] is True
    assert not loop.targetoptions.get("parallel", False)


@compiled
def test_inner_functions_have_no_entry_for_python_which_calls_them_as_plain_python() -> None:
    for inner in (deals.bits_at, category):
        assert inner.targetoptions["no_cpython_wrapper"] is True
    assert deals.bits_at(0x9E3779B97F4A7C15) == deals.splitmix64(0, 1)[0]
    assert category(1, 2, 3, 4, 5) == CATEGORIES.index("straight flush")
    states = np.zeros(1, np.dtype([("rng", np.uint64)]))
    with pytest.raises(TypeError, match="record array"):
        deals.next_bits(states[0])
    assert deals.next_bits(states.view(np.recarray)[0]) == deals.splitmix64(0, 1)[0]


@compiled
def test_the_option_takes_the_reference_counting_out() -> None:
    from numba import njit

    def pick(rows: Any, i: int) -> Any:
        return rows[i][::2][1]

    def with_count(rows: Any, i: int) -> Any:
        return rows[i][::2]

    without = njit(pick, _nrt=False)
    rows = np.arange(40).reshape(4, 10)
    assert without(rows, 1) == 12
    assert not any("NRT_incref" in text and "call void @NRT_incref" in text for text in without.inspect_llvm().values())
    counting = njit(with_count)
    counting(rows, 1)
    assert any("NRT_incref" in text for text in counting.inspect_llvm().values())


@compiled
def test_a_second_process_compiles_nothing() -> None:
    """Everything that the environments call comes from the cache, for every game."""
    code = """
import json, sys
import gymnasium, numpy as np, patience_env
from patience_env import jit
for game_id in json.loads(sys.argv[1]):
    env = gymnasium.make(game_id).unwrapped
    env.reset(seed=1)
    env.step(env.sample())
    env.clone().determinize(1)
    batch = gymnasium.make_vec(game_id, 2)
    batch.reset(seed=1)
    batch.step(batch.sample(np.random.default_rng(0)))
stats = [kernel.stats for kernel in jit._KERNELS]
misses = {k.py_func.__name__: len(k.stats.cache_misses) for k in jit._KERNELS if k.stats.cache_misses}
print(json.dumps([sum(sum(s.cache_hits.values()) for s in stats), misses]))
"""
    games = json.dumps(GAMES)
    first = run_python(code, games)
    hits, misses = json.loads(run_python(code, games))
    assert hits >= 2 * len(GAMES), first
    assert misses == {}


@compiled
def test_jit_and_plain_python_play_the_same_games() -> None:
    """Plain Python, in a process of its own, gives the same observations, masks and rewards."""
    code = PLAY + "\nimport json, sys\nprint(json.dumps([play(game_id) for game_id in json.loads(sys.argv[1])]))"
    other = json.loads(run_python(code, json.dumps(GAMES), NUMBA_DISABLE_JIT="1"))
    scope: dict[str, Any] = {}
    exec(PLAY, scope)
    assert other == [scope["play"](game_id) for game_id in GAMES]


PLAY = '''
import hashlib
from patience_env.env import PatienceEnv

def play(game_id, steps=40):
    """Play the first, second, third ... legal actions of two deals and return a checksum of all that is seen."""
    digest = hashlib.sha256()
    for observation in ("planes", "cards"):
        env = PatienceEnv(game_id, observation=observation, illegal_action="raise")
        for deal in (1, 2**64 - 1):
            seen, info = env.reset(options={"deal": deal})
            for step in range(steps):
                legal = info["action_mask"].nonzero()[0]
                if not len(legal):
                    break
                seen, reward, *_, info = env.step(int(legal[7 * step % len(legal)]))
                digest.update(seen.tobytes() + info["action_mask"].tobytes() + repr(round(reward, 9)).encode())
            env.determinize(5)
            digest.update(env.state_rows()["rng"].tobytes())
    return digest.hexdigest()
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package's own sources, without the cache of this one."""
    target = tmp_path / "copy" / "patience_env"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


@compiled
def test_edited_sources_get_another_cache(checkout: Path, tmp_path: Path) -> None:
    code = (
        "import patience_env; from patience_env import jit; "
        "print(jit.cache_folder(), jit.cache_folder(core=True), patience_env.__file__)"
    )
    where = {"PYTHONPATH": str(checkout.parent), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def folders() -> list[str]:
        return run_python(code, **where).split()[:2]

    def edit(name: str) -> None:
        file = checkout / name
        file.parent.mkdir(exist_ok=True)
        file.write_text((file.read_text("utf-8") if file.exists() else "") + "\n# edited\n", "utf-8")

    whole, core, file = run_python(code, **where).split()
    assert Path(file).is_relative_to(checkout)
    assert Path(whole).is_relative_to(tmp_path / "cache")
    assert folders() == [whole, core]
    edit("render/ansi.py")
    edit("training/cli.py")
    assert folders() == [whole, core]
    edit("agents/basic.py")
    after, same = folders()
    assert after != whole
    assert same == core
    edit("deals.py")
    last, changed = folders()
    assert last not in (whole, after)
    assert changed != core


@compiled
def test_old_caches_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(9):
        (tmp_path / f"patience-{i}").mkdir()
    (tmp_path / "somebody else's").mkdir()
    keep = tmp_path / "patience-new"
    keep.mkdir()
    jit._prune(tmp_path, keep)
    assert keep.is_dir()
    assert (tmp_path / "somebody else's").is_dir()
    assert len(list(tmp_path.glob("patience-*"))) == jit.KEPT_CACHES


@compiled
def test_an_unwritable_cache_does_not_break_the_import(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("no folder can be made in here", "utf-8")
    code = """
import patience_env, patience_env.env
from patience_env import jit, kernels
from numba.core.caching import NullCache
print(jit.cache_folder(), isinstance(kernels.advance_rows._cache, NullCache), len(patience_env.game_ids()))
"""
    told = run_python(code, HOME=str(blocker), XDG_CACHE_HOME=str(blocker), **NO_CACHE)
    assert told == f"None True {len(GAMES)}"


@compiled
@pytest.mark.slow
def test_without_a_cache_everything_runs(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("no folder can be made in here", "utf-8")
    code = PLAY + "\nprint(play('PatiencePoker-v0'))"
    told = run_python(code, HOME=str(blocker), XDG_CACHE_HOME=str(blocker), **NO_CACHE)
    scope: dict[str, Any] = {}
    exec(PLAY, scope)
    assert told == scope["play"]("PatiencePoker-v0")


@compiled
@pytest.mark.slow
def test_damaged_or_mixed_up_files_of_the_cache_are_compiled_anew(tmp_path: Path) -> None:
    code = """
import gymnasium, patience_env
for game_id in ("PatiencePoker-v0", "Calculation-v0"):
    env = gymnasium.make(game_id).unwrapped
    env.reset(seed=1)
    for _ in range(9):
        env.step(env.sample())
    print(env.table())
"""

    def played() -> str:
        return run_python(code, NUMBA_CACHE_DIR=str(tmp_path))

    right = played()
    # What two processes that compile for two games at the same moment may leave behind.
    one, two = sorted(tmp_path.rglob("kernels.advance_rows*.nbc"))
    swapped = one.read_bytes(), two.read_bytes()
    two.write_bytes(swapped[0])
    one.write_bytes(swapped[1])
    assert played() == right
    assert one.read_bytes() != swapped[1]
    assert two.read_bytes() != swapped[0]
    one.write_bytes(one.read_bytes()[:20])
    (index,) = tmp_path.rglob("kernels.sample_one*.nbi")
    index.write_bytes(b"")
    assert played() == right
    assert one.stat().st_size > 20
    assert index.stat().st_size > 0


def test_the_source_hash_covers_every_part() -> None:
    names = {path.name for path in jit._sources()}
    assert {"jit.py", "deals.py", "kernels.py", "patience_poker.py", "basic.py"} <= names
    assert "basic.py" not in {path.name for path in jit._sources(core=True)}
    digest = jit.source_hash()
    assert len(digest) == 16
    assert digest == jit.source_hash()


@compiled
def test_a_game_s_kernels_are_compiled_once_for_all_its_environments() -> None:
    loop: Any = kernels.advance_rows
    for game_id in GAMES:
        env = PatienceEnv(game_id)
        env.reset(seed=1)
    count = len(loop.signatures)
    for game_id in GAMES:
        for observation in ("planes", "cards"):
            env = PatienceEnv(game_id, observation=observation)
            env.reset(seed=1)
            env.step(env.sample())
            batch = patience_env.PatienceVectorEnv(game_id, 3, observation=observation, copy=False)
            batch.reset(seed=1)
            batch.step(batch.sample(np.random.default_rng(0)))
    assert len(loop.signatures) == count
