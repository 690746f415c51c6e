"""Workers, caches and disks: what happens around the compiled rules when there is more than one process or no room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from patience_env import jit
from torture.digests import installed_tree
from torture.kills import Launcher
from torture.report import Budget, Section

NAME, TITLE, SHARE = "processes", "Processes, caches and disks", 0.28
LONGEST = 900.0
METHODS = ("fork", "spawn", "forkserver")
CROWD = 8  # processes that compile at once
COMPILED = [30.0]  # seconds that a game last took to compile

WORKERS = """
import sys
import gymnasium
import numpy as np
import patience_env
from patience_env.env import PatienceEnv

def make(game_id):
    def one():
        import patience_env
        return gymnasium.make(game_id, disable_env_checker=True)
    return one

def main(kind, method, game_id):
    first = PatienceEnv(game_id)
    first.reset(seed=1)
    for _ in range(5):
        first.step(first.sample())  # compiled code has run here before the workers start
    singles = [gymnasium.make(game_id).unwrapped for _ in range(3)]
    seen = np.array([env.reset(seed=7 + i)[0] for i, env in enumerate(singles)])
    if kind == "AsyncVectorEnv":
        many = gymnasium.vector.AsyncVectorEnv([make(game_id)] * 3, context=method)
        told, _ = many.reset(seed=7)
    else:
        from stable_baselines3.common.vec_env import SubprocVecEnv
        many = SubprocVecEnv([make(game_id)] * 3, start_method=method)
        many.seed(7)
        told = many.reset()
    assert (told == seen).all()
    for step in range(5):
        actions = np.array([np.flatnonzero(env.action_masks())[step % 2] for env in singles])
        seen = np.array([env.step(int(action))[0] for env, action in zip(singles, actions)])
        told = many.step(actions)[0]
        assert (told == seen).all()
    many.close()
    print("alike")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""

PLAY = """
import hashlib, json, sys
import patience_env
from patience_env import jit
from patience_env.env import PatienceEnv
told = {}
for game_id in sys.argv[1:]:
    env = PatienceEnv(game_id)
    digest = hashlib.sha256()
    for deal in range(5):
        seen, info = env.reset(options={"deal": deal})
        for step in range(30):
            legal = info["action_mask"].nonzero()[0]
            if not len(legal):
                break
            seen, reward, *_, info = env.step(int(legal[7 * step % len(legal)]))
            digest.update(seen.tobytes() + repr(reward).encode())
    told[game_id] = digest.hexdigest()
missed = sum(sum(kernel.stats.cache_misses.values()) for kernel in jit._KERNELS)
print(json.dumps({"digests": told, "missed": missed, "folder": str(jit.cache_folder(core=True))}))
"""

THREE_DEALS = """
import patience_env.training.train as train
import patience_env.training.learner
train.named_deals = lambda name: np.arange(3_000_000, 3_000_003, dtype=np.uint64)
"""

FORFEIT = """
import patience_env
from patience_env.env import PatienceEnv
import gymnasium
gymnasium.logger.min_level = 50
env = PatienceEnv("Calculation-v0")
env.reset(seed=1)
print(env.step(-1)[1])
"""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(code: str, *words: str, **settings: Any) -> subprocess.Popen[str]:
    """Start Python code in a process of its own."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **settings.pop("variables", {})}
    for name in [name for name, value in variables.items() if value is None]:
        del variables[name]
    command = [*settings.pop("before", ()), sys.executable, "-c", code, *words]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=variables, **pipes, **settings)


def one_by_one(kinds: list[str], methods: tuple[str, ...], budget: Budget) -> Iterator[tuple[str, str]]:
    """Yield a kind of workers and a start method, all pairs or as many as there is time for."""
    longest = 0.0
    for method in methods:
        for kind in kinds:
            if budget.bounded and budget.left() < 1.5 * longest:
                return
            began = time.monotonic()
            yield kind, method
            longest = max(longest, time.monotonic() - began)


def finish(process: subprocess.Popen[str], seconds: float = LONGEST) -> tuple[bool, str]:
    """Return whether a process ended well, and what it said."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False, f"no end after {seconds:.0f} s"
    return process.returncode == 0, out.strip() if process.returncode == 0 else err.strip()[-600:]


def workers(section: Section, budget: Budget) -> None:
    """Let workers of every start method play after compiled code has run in their parent."""
    script = budget.folder / "workers.py"
    script.write_text(WORKERS, "utf-8")
    with_sb3 = find_spec("stable_baselines3") and not budget.short
    kinds = ["AsyncVectorEnv"] + (["SubprocVecEnv"] if with_sb3 else [])
    methods = METHODS[:1] if budget.short else METHODS
    wrong, count = [], 0
    for kind, method in one_by_one(kinds, methods, budget):
        process = subprocess.Popen(
            [sys.executable, "-P", str(script), kind, method, "Calculation-v0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=budget.folder,
        )  # fmt: skip
        held, told = finish(process, 300.0)
        count += 1
        if not held or told != "alike":
            wrong.append(f"{kind} {method}: {told}")
    section.check(
        f"workers ({', '.join(methods)}; {', '.join(kinds)}) that hang, die or play otherwise after kernels ran in "
        "their parent",
        f"{len(wrong)} of {count} {'; '.join(wrong)[:600]}",
        not wrong,
    )
    if count < len(kinds) * len(methods):
        section.note(f"The time sufficed for {count} of {len(kinds) * len(methods)} kinds of workers.")


def stampede(section: Section, budget: Budget) -> None:
    """Let eight processes compile at once into an empty cache; a ninth must find everything there."""
    cache = budget.folder / "stampede"
    cache.mkdir()
    games, crowd = ["Calculation-v0", "Fortress-v0"], CROWD
    if budget.bounded:
        # A game takes as long to compile as one did for `versions`; the cores are shared by all.
        rounds = budget.left() / (1.3 * COMPILED[-1])
        games = games[: 1 if rounds < 2 * (CROWD / cores() + 1) else 2]
        crowd = min(int((rounds / len(games) - 1) * cores()), CROWD)
        if crowd < 2:
            section.note("No time was left for processes that compile at once into an empty cache.")
            return
    began = time.monotonic()
    variables = {"NUMBA_CACHE_DIR": str(cache)}
    processes = [start(PLAY, *(games if i % 2 else games[::-1]), variables=variables) for i in range(crowd)]
    with ThreadPoolExecutor(crowd) as pool:
        ends = list(pool.map(finish, processes))
    told = [json.loads(text)["digests"] for held, text in ends if held]
    faults = [text for held, text in ends if not held]
    held, text = finish(start(PLAY, *games, variables=variables))
    ninth = json.loads(text) if held else {"digests": None, "missed": text}
    alike = all(one == ninth["digests"] for one in told)
    section.check(
        f"of {crowd} processes that compile {' and '.join(games)} at once into an empty cache, those that fail or play "
        "otherwise",
        f"{len(faults) + (0 if alike else 1)} ({time.monotonic() - began:.0f} s) {'; '.join(faults)[:400]}",
        not faults and alike,
    )
    section.check("what one more process must compile itself", ninth["missed"], ninth["missed"] == 0)


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount -t tmpfs -o ro tmpfs "$2" && shift 2 && '


def read_only(section: Section, budget: Budget) -> None:
    """Import and play where neither the installation nor the home can be written to."""
    home = budget.folder / "home"
    home.mkdir()
    tree = installed_tree()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None, "PYTHONPATH": str(tree)}
    # Modes do not bind root: in a mount namespace of its own both are read-only for it too.
    mounted = ["unshare", "--mount", "sh", "-c", READ_ONLY + 'exec "$@"', "sh", str(tree), str(home)]
    if os.geteuid() == 0:
        if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
            section.note("Nothing can be mounted here: read-only folders were not tried.")
            return
        before = mounted
    else:
        os.chmod(home, 0o555)
        before = []
    held, told = finish(start(PLAY, "Calculation-v0", variables=variables, before=before))
    facts = json.loads(told) if held else {}
    expected = facts.get("folder") == "None" and not any(home.iterdir())
    section.check(
        "a process that may write neither the installation nor its home",
        "plays, without a cache" if held and expected else told,
        held and expected,
    )


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[tuple[Path, str]]:
    """Give a folder on a disk of so many bytes: a tmpfs, or where none can be mounted a limit on the size of files."""
    disk = folder / "disk"
    disk.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    mounted = shutil.which("mount") and subprocess.run(options, capture_output=True, check=False).returncode == 0
    try:
        yield disk, "tmpfs" if mounted else "limit"
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False)


def full_disk(section: Section, budget: Budget) -> None:
    """Let the disk be full at a checkpoint: the run ends with a word, its checkpoint stays whole, and it goes on."""
    if not find_spec("sb3_contrib"):
        section.note("The extra 'train' is not installed: no checkpoint on a full disk.")
        return
    launcher = Launcher(THREE_DEALS, budget.folder)
    try:
        with small_disk(budget.folder, 6 * 2**20) as (disk, kind):
            _fill(section, launcher, disk, kind)
    finally:
        launcher.close()


def _fill(section: Section, launcher: Launcher, disk: Path, kind: str) -> None:
    run = disk / "run"
    words = ["train", "PatiencePoker-v0", "--option", "placement=fixed", "--out", str(run), "--quiet"]
    for pair in ("n_steps=8", "batch_size=16", "n_epochs=1", "width=64", "checkpoint_seconds=0", "threads=1"):
        words += ["--set", pair]
    words += ["--envs", "4"]

    def told(*more: str, largest: int | None = None) -> tuple[bool, str]:
        launcher.start([*words, *more], largest)
        return launcher.end() == 0, launcher.log()

    held, said = told("--steps", "64")
    section.check(f"a run on a small disk ({kind})", "made" if held else said[-600:], held)
    facts = (run / "checkpoint.json").read_bytes()
    filler = disk / "filler"
    if kind == "tmpfs":
        with open(filler, "wb", buffering=0) as file:
            room = os.statvfs(disk)
            # Less is left than the checkpoint takes, so that it is cut off in the middle.
            file.write(b"x" * max(room.f_bavail * room.f_frsize - 40_000, 0))
    held, said = told("--steps", "640", "--resume", largest=None if kind == "tmpfs" else 20_000)
    section.check(
        "a checkpoint that finds the disk full ends the run with one line",
        said.replace("\n", " ").replace(str(disk), "DISK")[-160:],
        not held and "cannot be written" in said and "Traceback" not in said,
    )
    parts = [path.name for path in run.iterdir() if path.name.startswith(".")]
    same = (run / "checkpoint.json").read_bytes() == facts
    section.check(
        "the checkpoint before it stays whole, and no part of a file is left",
        f"{'the same' if same else 'another'}, left: {parts}",
        same and not parts,
    )
    filler.unlink(missing_ok=True)
    held, said = told("--steps", "640", "--resume")
    steps = json.loads((run / "checkpoint.json").read_text())["steps"]
    section.check(
        "with room again `--resume` goes on to the end",
        f"{steps} steps" if held else said[-300:],
        held and steps == 640,
    )


def versions(section: Section, budget: Budget) -> None:
    """Install one version over another of the same size and time: none may run the other's compiled rules."""
    tree = budget.folder / "versions"
    shutil.copytree(installed_tree(), tree)
    file = tree / "patience_env" / "kernels.py"
    before = file.stat()
    old = file.read_text("utf-8")
    new = old.replace("reward = -1.0", "reward = -2.0")
    cache = budget.folder / "cache"
    variables = {"PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(cache)}
    told = []
    for text in (old, new, old):
        file.write_text(text, "utf-8")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        began = time.monotonic()
        told.append(finish(start(FORFEIT, variables=variables))[1])
        if text is new:
            COMPILED.append(time.monotonic() - began)
    folders = len(list(cache.glob("patience-*")))
    section.check(
        "two versions of the same size and time, installed in turn in one place: rewards of an illegal action",
        f"{', '.join(told)} (right: -1.0, -2.0, -1.0), {folders} caches",
        told == ["-1.0", "-2.0", "-1.0"] and folders == (2 if jit.JIT else 0),
    )


def run(budget: Budget) -> Section:
    """Try all of it."""
    section = Section(NAME, TITLE)
    workers(section, budget)
    full_disk(section, budget)
    section.amount = 0.2 if budget.short else 0.4
    if budget.short or not jit.JIT:
        return section
    for part, least in ((versions, 3 * COMPILED[0]), (read_only, COMPILED[0]), (stampede, 0.0)):
        if budget.left() < least:
            section.note(f"No time was left for: {textwrap.shorten(str(part.__doc__), 200)}")
            continue
        part(section, budget)
        section.amount += 0.2
    return section
