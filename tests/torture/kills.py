"""Commands that take long, killed by SIGKILL at random moments: they go on from a whole checkpoint, and lose little.

A launcher process imports everything once and forks a child for each trial, so that a kill may fall anywhere from the
first moment on. Each child writes down what it has done (in steps, games or parts) as it goes; after the kill this is
compared with the checkpoint, and with where the next child begins. A command that is to be killed too is one more `Job`
in `JOBS`. Those that spread their work over a Ray cluster are killed while it runs on; Ray needs an environment of its
own (name its Python by `--set ray=PYTHON`). `--set jobs=leaderboard,ray` kills those alone whose last word is named,
and keeps the figures of the others.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from patience_env import jit
from torture.report import Budget, Section, TimeUpError

NAME, TITLE, SHARE = "kills", "Killed at random moments", 0.25
KILLS = 20
INTERVAL = 0.3  # seconds between two checkpoints
SLACK = 5.0  # what a busy machine may add to the time since the last checkpoint

LAUNCHER = """
import ctypes, json, os, resource, signal, sys, time
import numpy as np
marks = None
def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
die_with_parent()
def mark(done):
    os.write(marks, f"{time.time()} {done}\\n".encode())
PREPARE
from patience_env.training.cli import main
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        die_with_parent()
        marks = os.open(order["marks"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if order["largest"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest"],) * 2)
        sys.argv = ["patience", *order["words"]]
        code = 1
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else (0 if end.code is None else 1)
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""

FEW_DEALS = """
few = lambda name, count=None: np.arange(3_000_000, 3_000_020, dtype=np.uint64)
"""

TRAIN = (
    FEW_DEALS
    + """
import patience_env.training.train as train
import patience_env.training.learner as learner
train.named_deals = few
before = learner.Run.between_updates
def between(run):
    goes_on = before(run)
    mark(run._steps)
    return goes_on
learner.Run.between_updates = between
"""
)

LINE = (
    FEW_DEALS
    + f"""
import patience_env.training.value_command as value_command
import patience_env.training.line_training as line_training
import torch.utils.tensorboard
value_command.named_deals = few
line_training.CHECKPOINT_SECONDS = {INTERVAL}
written = line_training._Log._write
def write(log, games, mean):
    written(log, games, mean)
    mark(games)
line_training._Log._write = write
"""
)

VALUE = (
    FEW_DEALS
    + f"""
import patience_env.training.value_command as value_command
import patience_env.training.value_training as value_training
import torch.utils.tensorboard
value_command.named_deals = value_training.named_deals = few
value_training.CHECKPOINT_SECONDS = {INTERVAL}
part = value_training.ValueTraining._part
def one(training):
    told = part(training)
    mark(training.done)
    return told
value_training.ValueTraining._part = one
"""
)

FIGURES = """
import patience_env.training.figures as figures
figures.PART, figures.SETTLING_GAMES, figures.SETTLING_DEALS, figures.SETTLING_ROUNDS = 100, 500, 100, 2
get = figures.Store.get
def counted(store, name, make):
    there = name in store.parts
    found = get(store, name, make)
    if not there:
        mark(len(store.parts) - 1)
    return found
figures.Store.get = counted
"""

LEADERBOARD = """
import glob
import matplotlib.figure
import patience_env.agents.policy as policy
import patience_env.training.leaderboard as leaderboard
policy.Policy.share = 5
write = leaderboard.Cache.write
def counted(cache, share, played):
    write(cache, share, played)
    mark(len(glob.glob(f"{cache._folder}/*/*.npz")))
leaderboard.Cache.write = counted
"""


CLUSTER = """
import sys
from patience_env.training.engines import ray_cluster
with ray_cluster(2, None) as (ray, workers):
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Stand:
    """How far a command has come by what lies on the disk."""

    done: int
    curve: list[Any]
    written: float


def sealed_stand(file: str, done: Callable[[dict[str, Any]], int]) -> Callable[[Path], Stand | None]:
    """Return what reads a checkpoint, tensors and all, or raises where it is damaged."""

    def read(folder: Path) -> Stand | None:
        from patience_env.training.models import read_pair

        if not (folder / file).exists():
            return None
        facts, _ = read_pair(folder / file, "checkpoint")
        return Stand(done(facts), facts.get("curve", []), (folder / file).stat().st_mtime)

    return read


def figures_stand(folder: Path) -> Stand | None:
    """Read the parts of figures."""
    file = folder / "parts.json"
    if not file.exists():
        return None
    parts = json.loads(file.read_text("utf-8"))
    parts.pop("head")
    return Stand(len(parts), list(parts.items()), file.stat().st_mtime)


def shares_stand(folder: Path) -> Stand | None:
    """Read the shares that a leaderboard keeps; raise ValueError where one is damaged."""
    files = list(folder.glob("cache/*/*.npz"))
    for file in files:
        with np.load(file, allow_pickle=False) as held:
            if len({len(held[name]) for name in ("deals", "returns", "lengths", "won")}) != 1:
                raise ValueError(f"{file} is damaged")
    return Stand(len(files), [], max(file.stat().st_mtime for file in files)) if files else None


@dataclass(frozen=True)
class Job:
    """A command to be killed.

    Attributes:
        name: as the page tells it.
        prepare: code that the launcher runs first: little work, and `mark(done)` after each piece of it.
        words: the command line; `{folder}` stands for the folder.
        resume: what is added to go on from a checkpoint.
        stand: folder -> how far it has come.
        first: how far the first mark after a start may lie beyond the checkpoint.
        total: how far it has come in the end.
        interval: seconds between two checkpoints, or None where a checkpoint follows each piece.
        same: files that must end as those of a run that nobody killed.
        result: folder -> how far it has come in the end, where the last checkpoint does not tell it.
        ray: whether it needs Ray; `{address}` then stands for the cluster's.
    """

    name: str
    prepare: str
    words: str
    resume: tuple[str, ...]
    stand: Callable[[Path], Stand | None]
    first: int
    total: int
    interval: float | None
    same: tuple[str, ...] = ()
    result: Callable[[Path], int] | None = None
    ray: bool = False

    def line(self, folder: Path, address: str, resumed: bool = False) -> list[str]:
        """Return the command line for a folder."""
        words = [word.format(folder=folder, address=address) for word in self.words.split(" ")]
        return words + list(self.resume if resumed else ())

    def reached(self, folder: Path) -> int:
        """Return how far a command that ended well has come."""
        if self.result is not None:
            return self.result(folder)
        stand = self.stand(folder)
        return stand.done if stand else 0


POKER = "PatiencePoker-v0"
JOBS: tuple[Job, ...] = (
    Job(
        "patience train",
        TRAIN,
        f"train {POKER} --option placement=fixed --out {{folder}} --quiet --envs 8 --steps 12000 --set n_steps=25 "
        f"--set batch_size=100 --set n_epochs=1 --set width=8 --set evaluate_every=2000 --set threads=1 "
        f"--set checkpoint_seconds={INTERVAL}",
        ("--resume",),
        sealed_stand("checkpoint.json", lambda facts: int(facts["steps"])),
        0,
        12_000,
        INTERVAL,
    ),
    Job(
        "patience train-value --kind line",
        LINE,
        f"train-value {POKER} --kind line --placement fixed --games 100000 --out {{folder}} --quiet",
        ("--resume",),
        sealed_stand("line-checkpoint.json", lambda facts: int(facts["done"])),
        100_000 // 200,
        100_000,
        INTERVAL,
        ("line.json",),
        lambda folder: int(json.loads((folder / "line.json").read_text("utf-8"))["training"]["games"]),
    ),
    Job(
        "patience train-value --kind value",
        VALUE,
        f"train-value {POKER} --kind value --placement fixed --games 4000 --width 8 --attempts 1 --teacher= "
        "--out {folder} --quiet",
        ("--resume",),
        sealed_stand("checkpoint.json", lambda facts: int(facts["learner"][1])),
        500,
        4_000,
        INTERVAL,
    ),
    Job(
        "patience figures poker",
        FIGURES,
        "figures poker --out {folder} --deals 200 --search-deals 0 --quiet",
        (),
        figures_stand,
        1,
        11,
        None,
        ("poker.json", "poker.md"),
    ),
    Job(
        "patience leaderboard",
        LEADERBOARD,
        f"leaderboard --game Calculation-v0 --game {POKER}:placement=fixed --only --policy random --policy greedy "
        "--policy thumb --deals smoke --out {folder}/out --cache {folder}/cache --quiet",
        (),
        shares_stand,
        1,
        2 * 3 * 100 // 5,
        None,
        ("out/leaderboard.json",),
    ),
    Job(
        "patience leaderboard --engine ray",
        LEADERBOARD,
        f"leaderboard --game Calculation-v0 --game {POKER}:placement=fixed --only --policy random --policy greedy "
        "--policy thumb --deals smoke --out {folder}/out --cache {folder}/cache --quiet --engine ray --workers 2 "
        "--address {address}",
        (),
        shares_stand,
        1,
        2 * 3 * 100 // 5,
        None,
        ("out/leaderboard.json",),
        ray=True,
    ),
)


# The short form: the tests of training kill that command too.
BRIEF = ("patience leaderboard",)


@dataclass
class Course:
    """What happened to a job."""

    kills: int = 0
    before_any: int = 0
    finished: int = 0
    longest: float = 0.0
    lost: int = 0
    faults: list[str] = field(default_factory=list)


class Launcher:
    """The process that forks the children, and the cluster that they use."""

    def __init__(self, prepare: str, folder: Path, python: str = sys.executable, with_ray: bool = False) -> None:
        self._marks, self._log = folder / "marks", folder / "log"
        self._others: list[subprocess.Popen[str]] = []
        self.address = ""
        if with_ray:
            self._others.append(_talking([python, "-c", CLUSTER]))
            self.address = _line(self._others[0])
            if not self.address:
                raise RuntimeError("Ray did not start")
        self._process = _talking([python, "-c", LAUNCHER.replace("PREPARE", prepare)])
        if self._line() != "ready":
            raise RuntimeError("the launcher did not start")

    def _line(self) -> str:
        return _line(self._process)

    def start(self, words: list[str], largest: int | None = None) -> int:
        """Start a child, which may write no file of more than `largest` bytes; return its process id."""
        assert self._process.stdin is not None
        self._marks.write_bytes(b"")
        order = {"words": words, "marks": str(self._marks), "log": str(self._log), "largest": largest}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def end(self) -> int:
        """Wait for the child; return its exit code."""
        return int(self._line())

    def marks(self) -> list[tuple[float, int]]:
        """Return when the child had done how much."""
        lines = self._marks.read_text().splitlines()
        return [(float(one), int(two)) for one, two in (line.split() for line in lines if line.count(" ") == 1)]

    def log(self) -> str:
        """Return what the child printed."""
        return self._log.read_text("utf-8", "replace").strip()

    def close(self) -> None:
        """End the launcher, then the cluster."""
        for process in (self._process, *self._others):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def _talking(command: list[str]) -> subprocess.Popen[str]:
    # The cluster listens to this machine alone; a token, which Ray would keep in the home, it needs none.
    variables = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)


def _line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints, "" where it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def trial(job: Job, launcher: Launcher, folder: Path, course: Course, moment: float) -> bool:
    """Start or go on, and kill after `moment` seconds; return whether the command was quicker and finished."""
    before = job.stand(folder)
    child = launcher.start(job.line(folder, launcher.address, before is not None))
    time.sleep(moment)
    _kill(child)
    code = launcher.end()
    marks = launcher.marks()
    try:
        after = job.stand(folder)
    except ValueError as error:
        course.faults.append(f"after a kill: {error}")
        return True
    if code != -signal.SIGKILL:
        if code:
            course.faults.append(f"exit {code}: {launcher.log()[-400:]}")
            return True
        if job.reached(folder) != job.total:
            course.faults.append(f"finished at {job.reached(folder)} instead of {job.total}")
        course.finished += 1
        return True
    course.kills += 1
    course.before_any += after is None
    _compare(job, course, before, after, marks)
    return False


def _compare(
    job: Job, course: Course, before: Stand | None, after: Stand | None, marks: list[tuple[float, int]]
) -> None:
    """Check that nothing was done twice or lost, and that the curves join."""
    done = before.done if before else 0
    if marks and not done <= marks[0][1] <= done + job.first:
        course.faults.append(f"went on at {marks[0][1]}, but the checkpoint was at {done}")
    if any(two <= one for (_, one), (_, two) in itertools.pairwise(marks)):
        course.faults.append("went back")
    if before and (after is None or after.done < before.done or after.curve[: len(before.curve)] != before.curve):
        course.faults.append(f"the checkpoint went back from {before.done} to {after.done if after else None}")
    if after is None:
        # Killed before the first checkpoint: nothing to lose yet but what the interval allows.
        course.longest = max(course.longest, marks[-1][0] - marks[0][0] if marks else 0.0)
        return
    steps = [point.get("steps", point.get("games")) for point in after.curve if isinstance(point, dict)]
    if any(two <= one for one, two in itertools.pairwise(steps)):
        course.faults.append(f"the learning curve does not go on: {steps}")
    later = [(when, done) for when, done in marks if done > after.done]
    if later:
        # Up to the last work that was done: a busy machine may let it wait long for the kill.
        lost = marks[-1][0] - max(after.written, marks[0][0])
        gap = max((two - one for (one, _), (two, _) in itertools.pairwise(marks)), default=0.0)
        course.lost = max(course.lost, marks[-1][1] - after.done)
        course.longest = max(course.longest, lost)
        allowed = (job.interval or 0.0) + gap + SLACK
        if lost > allowed:
            course.faults.append(f"{lost:.1f} s were lost, more than {allowed:.1f}")


def kill_often(job: Job, kills: int, seconds: float, folder: Path, number: int, python: str = sys.executable) -> Course:
    """Kill a command so many times, or as often as the time allows; in between let it finish.

    In so little time that not even one kill and an end fit, nothing is done.
    """
    course, rng = Course(), np.random.default_rng(number)
    folder.mkdir()
    end = time.monotonic() + seconds
    launcher = Launcher(job.prepare, folder, python, job.ray)
    try:
        whole = folder / "whole"
        began = time.monotonic()
        child = launcher.start(job.line(whole, launcher.address))
        with _killed_at(child, end):
            code = launcher.end()
        if code == -signal.SIGKILL:
            return course
        if code:
            course.faults.append(f"unbroken, exit {code}: {launcher.log()[-400:]}")
            return course
        length = time.monotonic() - began
        runs = 0
        target = folder / "run0"
        while course.kills < kills and not course.faults:
            # From the first moment on: some runs end before their kill, which then counts as no kill.
            moment = float(rng.uniform(0.0, 0.9 * length))
            if time.monotonic() + moment + 1.2 * length > end:
                break  # what is left is needed to come to the end
            if trial(job, launcher, target, course, moment):
                _same(job, whole, target, course)
                runs += 1
                target = folder / f"run{runs}"
        if course.kills and not course.faults:
            _finish(job, launcher, target, course)
            _same(job, whole, target, course)
    finally:
        launcher.close()
    return course


@contextlib.contextmanager
def _killed_at(child: int, end: float) -> Iterator[None]:
    """Kill a child that runs until `end`, by the monotonic clock."""
    timer = threading.Timer(min(max(end - time.monotonic(), 0.0), threading.TIMEOUT_MAX), _kill, (child,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _finish(job: Job, launcher: Launcher, folder: Path, course: Course) -> None:
    before = job.stand(folder)
    launcher.start(job.line(folder, launcher.address, before is not None))
    code = launcher.end()
    if code or job.reached(folder) != job.total:
        course.faults.append(f"the last run: exit {code}, {job.reached(folder)}: {launcher.log()[-400:]}")
    else:
        course.finished += 1


def _same(job: Job, whole: Path, folder: Path, course: Course) -> None:
    for name in job.same:
        files = [_essence(one / name) for one in (whole, folder)]
        if files[0] != files[1]:
            course.faults.append(f"{name} is not that of a run that nobody killed")


def _essence(path: Path) -> Any:
    """Return a file without what tells how long the run took."""
    if path.name == "line.json":
        facts = json.loads(path.read_text("utf-8"))
        return {name: facts.get(name) for name in ("sha256", "points", "placement")}
    if path.name == "leaderboard.json":
        entries = json.loads(path.read_text("utf-8"))["entries"]
        return [{name: value for name, value in entry.items() if name != "seconds_per_move"} for entry in entries]
    return path.read_bytes()


def run(budget: Budget) -> Section:
    """Kill every command."""
    section = Section(NAME, TITLE)
    if not find_spec("sb3_contrib") or not jit.JIT:
        section.note("Needs the extra 'train' and compiled rules.")
        return section
    kills = 1 if budget.short else KILLS
    ray = budget.extra.get("ray") or (sys.executable if find_spec("ray") else "")
    chosen = budget.extra.get("jobs", "").split(",")
    jobs = [job for job in JOBS if (ray or not job.ray) and (not budget.short or job.name in BRIEF)]
    if chosen != [""]:
        jobs = [job for job in jobs if job.name.split()[-1] in chosen]
        section.data = dict(budget.previous)
        section.parts = dict.fromkeys(section.data, False)
    with contextlib.suppress(TimeUpError):
        for number, job in enumerate(jobs):
            seconds = budget.left() / (len(jobs) - number)
            python = ray if job.ray else sys.executable
            folder = budget.folder / str(number)
            section.data[job.name] = asdict(kill_often(job, kills, seconds, folder, budget.seed + number, python))
            section.parts[job.name] = True
            print(f"  {job.name}: {section.data[job.name]}", flush=True)
    _judge(section, kills)
    if not ray and not budget.short and chosen == [""]:
        section.note("Ray is not installed here and was not named (`--set ray=PYTHON`).")
    return section


def _judge(section: Section, kills: int) -> None:
    section.tables.append(
        [["command", "kills", "before the first checkpoint", "finished", "most time lost", "most lost"]]
    )
    missing = [job.name for job in JOBS if job.name not in section.data]
    for job in (job for job in JOBS if job.name in section.data):
        course = Course(**section.data[job.name])
        if not course.kills and not course.faults:
            missing.append(job.name)
            continue
        section.check(
            f"{job.name}: continuations that do not join, or lose more than the interval, in {course.kills} kills",
            f"{len(course.faults)} {'; '.join(course.faults)[:700]}",
            not course.faults and course.finished > 0,
        )
        section.tables[0].append([
            job.name, str(course.kills), str(course.before_any), str(course.finished), f"{course.longest:.1f} s",
            f"{course.lost:,} of {job.total:,}",
        ])  # fmt: skip
        section.amount += course.kills / (KILLS * len(JOBS))
        if course.kills < kills:
            section.note(f"{job.name}: {course.kills} of {kills} kills fitted; `--only kills --full` makes all.")
    if missing:
        section.note(f"Not killed for this page: {', '.join(missing)}.")
