"""How fast are the environments?  `make bench` or `python tests/benchmarks/speed.py --help`.

Everything is random legal play with masks and observations, in one process on one core, in CPU time (the machine may be
shared). Each rate is the median of several short runs taken in turn, so that drift of the machine hits all alike; quote
ratios, not single numbers. The best run is told beside it: what the machine does when nobody else fills its caches.
Peers are measured in the same run where they are installed. `Batched` says what is compared in the batched table.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import patience_env

BATCH = 1024
WARM_UP = 400  # steps before the batch is measured
PAGE = 4096
Job = Callable[[], int]


def single(env_id: str, **options: Any) -> Job:
    """Return a job that plays one environment through `gymnasium.make` and returns its steps."""
    env = gymnasium.make(env_id, illegal_action="raise", **options)
    bare: Any = env.unwrapped
    env.reset(seed=0)
    bare.sample()

    def job() -> int:
        steps = 0
        while steps < 5000:
            env.reset()
            while True:
                steps += 1
                _, _, terminated, truncated, _ = env.step(bare.sample())
                if terminated or truncated:
                    break
        return steps

    return job


class Batched:
    """A batch with autoreset, in the midst of random legal play, actions drawn outside the clock.

    Games of most kinds end at different times. All of Patience Poker's last 25 placements: they are dealt together, as
    in training, so measuring takes whole games; "staggered" starts each at another moment, which takes a processor's
    guesses away. Three things are measured in turn, so that each finds the caches as the others and the drawing of
    actions left them:

    * `VectorEnv.step`, whose results are kept until the next ones are there, as a training loop does;
    * the bare compiled loop exactly as `step` calls it: rules, resets, masks and observations into the arrays that are
      returned, without the Python around it;
    * a memcpy of all that `step` returned (observations, rewards, ends, masks and infos) into two sets of arrays in
      turn: as many as `step` writes to while a caller holds the latest results. Where a target lies a few bytes behind
      its source in its page of memory (4,096 bytes), processors copy at a tenth of their speed, so none is laid there.
    """

    def __init__(self, env_id: str, staggered: bool = False, **options: Any) -> None:
        self.env: Any = gymnasium.make_vec(env_id, BATCH, **options)
        self.rng = np.random.default_rng(0)
        self.results = self.env.reset(seed=0)
        for _ in range(WARM_UP):
            actions = self.env.sample(self.rng)
            if staggered:
                actions[self.rng.random(BATCH) < 0.05] = -1  # which ends the game
            self.results = self.env.step(actions)
        self.results = self.env.step(self.env.sample(self.rng))  # all legal: no further facts in `infos`
        self.rooms = [[np.zeros(array.nbytes + 2 * PAGE, np.uint8) for array in self.returned()] for _ in range(2)]

    def returned(self) -> list[Any]:
        """Return the arrays of the last step."""
        return [*self.results[:4], *(value for value in self.results[4].values() if isinstance(value, np.ndarray))]

    def nanoseconds(self, rounds: int = 26) -> tuple[float, float, float]:
        """Return CPU nanoseconds a step of one game: of `VectorEnv.step`, of the bare loop, of the memcpy.

        Each round steps all games twice: 26 rounds are two whole games of Patience Poker, each step of which is once
        made by `step` and once by the loop, since they take turns in being first.
        """
        spent = [0, 0, 0]
        measured = (self.step, self.loop, self.copy)
        for number in range(rounds):
            for kind in (0, 1, 2) if number % 2 else (1, 0, 2):
                spent[kind] += measured[kind](self.env.sample(self.rng))
        step, loop, copy = (total / rounds / BATCH for total in spent)
        return step, loop, copy

    def step(self, actions: Any) -> int:
        start = time.process_time_ns()
        self.results = self.env.step(actions)
        return time.process_time_ns() - start

    def loop(self, actions: Any) -> int:
        env = self.env
        env._prepare(actions, actions)
        flat, masks = env._targets()
        start = time.process_time_ns()
        seen = env._rows.advance(env._modes, env._deals, actions, flat, masks)
        spent = time.process_time_ns() - start
        rewards, told = env._settle(seen)
        self.results = (flat, rewards, told[0], told[1], env._info(masks, told))
        return spent

    def copy(self, actions: Any) -> int:
        del actions
        self.rooms.reverse()
        pairs = []
        for array, room in zip(self.returned(), self.rooms[0], strict=True):
            source = array.reshape(-1).view(np.uint8)
            first = (source.ctypes.data + PAGE // 2 - room.ctypes.data) % PAGE
            pairs.append((room[first : first + len(source)], source))
        start = time.process_time_ns()
        for target, source in pairs:
            np.copyto(target, source)
        return time.process_time_ns() - start


START = """
import os, time
t = time.perf_counter(); import patience_env; a = time.perf_counter() - t
t = time.perf_counter(); import gymnasium
for env_id in {env_ids!r}:
    env = gymnasium.make(env_id); env.reset(seed=0); env.step(env.unwrapped.sample())
print(a, time.perf_counter() - t)
"""


def start_times(env_ids: list[str], cold: bool) -> tuple[float, float]:
    """Return the seconds of `import patience_env` and of the first make, reset and step, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **({"NUMBA_CACHE_DIR": folder} if cold else {})}
        script = START.format(env_ids=env_ids)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
    first, second = map(float, done.stdout.split())
    return first, second


def peers() -> dict[str, Job]:
    """Return jobs for well-known environments that are installed."""
    found: dict[str, Job] = {}

    def gym_job(env_id: str) -> Job:
        env = gymnasium.make(env_id)
        env.reset(seed=0)

        def job() -> int:
            for _ in range(5000):
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    env.reset()
            return 5000

        return job

    for env_id in ("CartPole-v1", "Taxi-v4", "Blackjack-v1"):
        try:
            found[f"Gymnasium {env_id}"] = gym_job(env_id)
        except Exception:
            continue
    try:
        import pyspiel

        game = pyspiel.load_game("klondike")

        def klondike() -> int:
            rng = np.random.default_rng(0)
            steps = 0
            state = game.new_initial_state()
            while steps < 2000:
                if state.is_terminal():
                    state = game.new_initial_state()
                elif state.is_chance_node():
                    state.apply_action(state.chance_outcomes()[0][0])
                else:
                    state.observation_tensor(0)
                    legal = state.legal_actions()
                    state.apply_action(legal[rng.integers(len(legal))])
                    steps += 1
            return steps

        found["OpenSpiel Klondike"] = klondike
    except ImportError:
        pass
    try:
        import rlcard

        table = rlcard.make("gin-rummy")

        def gin_rummy() -> int:
            rng = np.random.default_rng(0)
            steps = 0
            state, _ = table.reset()
            while steps < 2000:
                legal = list(state["legal_actions"])
                state, _ = table.step(legal[rng.integers(len(legal))])
                steps += 1
                if table.is_over():
                    state, _ = table.reset()
            return steps

        found["RLCard gin rummy"] = gin_rummy
    except ImportError:
        pass
    return found


def rate(job: Job) -> float:
    """Return steps a CPU second of one run of a job."""
    start = time.process_time()
    steps = job()
    return steps / (time.process_time() - start)


def ppo_frames(native: bool) -> float:
    """Return frames a CPU second of MaskablePPO with a 64 x 64 net, 4 epochs."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from patience_env.sb3 import PatienceVecEnv

    torch.set_num_threads(1)
    options = {"placement": "fixed", "illegal_action": "raise"}
    if native:
        env: Any = PatienceVecEnv("PatiencePoker-v0", 512, **options)
        settings = {"n_steps": 32, "batch_size": 2048}
    else:
        env = DummyVecEnv([lambda: gymnasium.make("PatiencePoker-v0", **options)] * 8)  # type: ignore[list-item]
        settings = {"n_steps": 256, "batch_size": 256}
    model = MaskablePPO("MlpPolicy", env, n_epochs=4, **settings)  # type: ignore[arg-type]
    start = time.process_time()
    model.learn(16384 if native else 4096)
    return model.num_timesteps / (time.process_time() - start)


def _rows(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def write_page(page: Path, figures: dict[str, Any]) -> None:
    """Write the tables, with what they show, at the beginning of a page; what begins with its first `##` stays."""
    singles = {name.removesuffix(" single"): value for name, value in figures.items() if name.endswith(" single")}
    unit = singles.get("Gymnasium CartPole-v1", {"median": float("nan")})["median"]
    lines = [
        "# Speed",
        "",
        f"What `make bench` prints (version {figures['version']}; `python tests/benchmarks/speed.py --markdown",
        "docs/speed.md` wrote it here), on a machine that others used too: read the ratios to Gymnasium's own",
        "environments, which ran in the same minutes (CartPole's time includes the drawing of a random action from its",
        "action space), and to the memcpy. OpenSpiel and RLCard are measured too where they are installed.",
        "",
        "Single environment through `gymnasium.make`, random legal play with masks and observations, steps a second of",
        "one core (CPU time):",
        "",
        *_rows(
            ["environment", "median", "best", "times CartPole"],
            [
                [name, f"{value['median']:,.0f}", f"{value['best']:,.0f}", f"{value['median'] / unit:.2f}"]
                for name, value in singles.items()
            ],
        ),
        f"{BATCH:,} games at once, million steps a second of one core, median (best): `VectorEnv.step` with fresh",
        "observations, masks, rewards and autoreset; the bare compiled loop that writes them; a memcpy of what a step",
        "returns (no target lies a few bytes behind its source in its page, where some processors copy at a tenth of",
        "their speed), and the ratio to it. Games of Patience Poker all last 25 placements, so all are dealt in one",
        "step; *staggered* starts them at different moments:",
        "",
        *_rows(
            ["game", "observation", "`VectorEnv.step`", "bare loop", "memcpy", "step / memcpy"],
            [
                [*name.removesuffix(" batched").rsplit(" ", 1), *batched_row(value["median"], value["best"])]
                for name, value in figures.items()
                if name.endswith(" batched")
            ],
        ),
    ]
    if "together, cold" in figures:
        starts = [(name.removesuffix(" start"), row) for name, row in figures.items() if name.endswith(" start")]
        lines += [
            "Start-up of a fresh process, seconds (wall time):",
            "",
            *_rows(
                ["game", "`import patience_env`", "first make, reset and step, warm cache", "the same, cold cache"],
                [[name, *(f"{seconds:.2f}" for seconds in row)] for name, row in starts],
            ),
            f"The eight other games in one process, cold cache: {figures['together, cold']:.1f} s.",
            "",
        ]
    before = page.read_text("utf-8") if page.exists() else ""
    kept = before[before.index("\n## ") + 1 :] if "\n## " in before else ""
    page.write_text("\n".join(lines) + ("\n" + kept if kept else ""), "utf-8")


def batched_row(middle: dict[str, float], best: dict[str, float]) -> list[str]:
    """Return the rates, median (best), of nanoseconds a step, and the ratio of step and memcpy."""
    rates = [
        f"{1e3 / usual:.2f} ({1e3 / least:.2f})" for usual, least in zip(middle.values(), best.values(), strict=True)
    ]
    ratios = [each["memcpy_ns"] / each["step_ns"] for each in (middle, best)]
    return [*rates, f"{ratios[0]:.2f} ({ratios[1]:.2f})"]


def main(
    repeats: Annotated[int, typer.Option(help="Runs of each measurement; the median counts.")] = 7,
    startup: Annotated[
        bool, typer.Option(help="Measure the start-up of fresh processes, cold compilation included.")
    ] = True,
    ppo: Annotated[bool, typer.Option(help="Measure MaskablePPO too (needs the train extra).")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here too.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables at the beginning of this page too (docs/speed.md).")
    ] = None,
) -> None:
    """Measure start-up, single and batched speed of every game, and of the peers that are installed."""
    warnings.filterwarnings("ignore", message=".*an illegal action forfeited the game.*")
    console = Console()
    if not console.is_terminal:
        console.width = 140
    figures: dict[str, Any] = {"version": patience_env.__version__, "batch": BATCH}

    first = Table(title="Start-up, seconds of a fresh process", title_justify="left")
    for name in ("game", "import patience_env", "first make + reset + step, warm cache", "the same, cold cache"):
        first.add_column(name, justify="right" if first.columns else "left")
    for env_id in patience_env.game_ids() if startup else ():
        start_times([env_id], cold=False)
        warm = [start_times([env_id], cold=False) for _ in range(3)]
        cold = start_times([env_id], cold=True)
        row = [min(w[0] for w in warm), min(w[1] for w in warm), cold[1]]
        figures[f"{env_id} start"] = row
        first.add_row(env_id, *(f"{seconds:.2f}" for seconds in row))
    if startup:
        console.print(first)
        others = [env_id for env_id in patience_env.game_ids() if env_id != "PatiencePoker-v0"]
        figures["together, cold"] = start_times(others, cold=True)[1]
        console.print(f"All but PatiencePoker-v0 in one process, cold cache: {figures['together, cold']:.1f} s")

    jobs = {env_id: single(env_id) for env_id in patience_env.game_ids()}
    jobs["PatiencePoker-v0 fixed"] = single("PatiencePoker-v0", placement="fixed")
    jobs |= peers()
    for job in jobs.values():
        job()
    runs: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            runs[name].append(rate(job))
    second = Table(title="Single environment through gymnasium.make, steps a second of one core", title_justify="left")
    second.add_column("environment")
    second.add_column("median", justify="right")
    second.add_column("best", justify="right")
    second.add_column("times CartPole", justify="right")
    unit = statistics.median(runs.get("Gymnasium CartPole-v1", [float("nan")]))
    for name, values in runs.items():
        median = statistics.median(values)
        figures[f"{name} single"] = {"median": median, "best": max(values)}
        second.add_row(name, f"{median:,.0f}", f"{max(values):,.0f}", f"{median / unit:.2f}")
    console.print(second)

    third = Table(
        title=f"Batched, {BATCH} games, million steps a second of one core: median (best)", title_justify="left"
    )
    for name in (
        "game",
        "observation",
        "VectorEnv.step",
        "bare loop",
        "memcpy of what a step returns",
        "step / memcpy",
    ):
        third.add_column(name, justify="right" if len(third.columns) > 1 else "left")
    settings: list[tuple[str, dict[str, Any]]] = [(env_id, {}) for env_id in patience_env.game_ids()]
    settings.insert(1, ("PatiencePoker-v0", {"placement": "fixed"}))
    settings.insert(2, ("PatiencePoker-v0", {"placement": "fixed", "staggered": True}))
    for env_id, options in settings:
        for observation in ("planes", "cards"):
            batched = Batched(env_id, observation=observation, **options)
            samples = [batched.nanoseconds() for _ in range(3 * repeats)]
            names = ("step_ns", "loop_ns", "memcpy_ns")
            columns = list(zip(*samples, strict=True))
            middle = dict(zip(names, map(statistics.median, columns), strict=True))
            best = dict(zip(names, map(min, columns), strict=True))
            label = " ".join([env_id, *(name if value is True else str(value) for name, value in options.items())])
            figures[f"{label} {observation} batched"] = {"median": middle, "best": best}
            third.add_row(label, observation, *batched_row(middle, best))
    console.print(third)
    if ppo:
        slow, fast = ppo_frames(native=False), ppo_frames(native=True)
        figures["MaskablePPO"] = {"DummyVecEnv 8": slow, "native 512": fast}
        console.print(
            f"MaskablePPO, frames a second of one core: DummyVecEnv 8 {slow:,.0f}, native adapter 512 {fast:,.0f}"
        )
    if markdown is not None:
        write_page(markdown, figures)
        console.print(f"written to {markdown}")
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n")
        console.print(f"written to {json_file}")


if __name__ == "__main__":
    typer.run(main)
