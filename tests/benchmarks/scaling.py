"""How evaluation scales: `python tests/benchmarks/scaling.py` prints the tables of docs/scaling.md.

Measured here: CPU seconds of a share of each policy, what one share costs the engine's own process, and how long
workers take to start. From these follows what so many cores need for an evaluation: shares are handed out one by one,
so the time is that of the fullest worker, or of the engine's process where that is busier.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer

from patience_env.agents.policy import make_policy, parse_policy
from patience_env.deals import named_deals
from patience_env.game import get_game
from patience_env.training.engines import Engine, open_engine
from patience_env.training.evaluate import shares_of
from patience_env.training.shares import Share, play_share

FIXED: dict[str, Any] = {"placement": "fixed"}
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PatiencePoker-v0", "flush-rank", FIXED),
    ("PatiencePoker-v0", "value", FIXED),
    ("Paganini-v0", "thumb", {}),
    ("PatiencePoker-v0", "search", FIXED),
)
DEALS = 10_000
CORES = (1, 2, 10, 100, 1000)


@dataclass(frozen=True)
class Cost:
    """What one share of a policy costs: deals in it, CPU seconds of a worker."""

    deals: int
    seconds: float

    def on(self, cores: int, handling: float) -> float:
        """Return the seconds that `DEALS` deals take on so many cores."""
        shares = -(-DEALS // self.deals)
        return max(-(-shares // cores) * self.seconds, shares * handling if cores > 1 else 0.0)


def shares(env: str, text: str, options: dict[str, Any], count: int) -> list[Share]:
    """Return the first shares of an evaluation of the test deals."""
    name, given = parse_policy(text)
    policy = make_policy(name, env, **given)
    deals = named_deals("test", min(DEALS, count * policy.share))
    return shares_of(text, policy, env, get_game(env).check_options(options), deals, 0)


def measure(env: str, text: str, options: dict[str, Any]) -> Cost:
    """Play three shares here after one that compiles; return the median cost."""
    first, *rest = shares(env, text, options, 4)
    play_share(first)
    costs = []
    for share in rest:
        began = time.process_time()
        play_share(share)
        costs.append(time.process_time() - began)
    return Cost(len(first.deals), float(np.median(costs)))


def overhead(name: str, workers: int, count: int) -> tuple[float, float]:
    """Return the engine's own CPU seconds a share, and the seconds until all workers have started and played one."""
    few = shares("PatiencePoker-v0", "random", FIXED, workers)
    many = [replace(few[0], deals=few[0].deals[:1], number=number) for number in range(count)]
    began = time.perf_counter()
    with open_engine(name, workers) as engine:
        list(engine.play(few))
        started = time.perf_counter() - began
        before = time.process_time()
        told = len(list(engine.play(many)))
        spent = time.process_time() - before
    assert told == count
    return spent / count, started


def expect(name: str, workers: int, handed: int) -> None:
    """Print what evaluations take on more cores."""
    handling, start = overhead(name, workers, handed)
    print(
        f"Engine `{name}`: {1e6 * handling:.0f} us of its own process a share; {workers} workers had started and "
        f"played their first share after {start:.1f} s.\n"
    )
    heads = ["game", "policy", "deals a share", "CPU a share", "deals a second of one core"]
    heads += [f"{cores:,} core{'s' if cores > 1 else ''}" for cores in CORES]
    print(f"| {' | '.join([*heads, 'most cores of use'])} |\n|{'---|' * (len(heads) + 1)}")
    for env, text, options in CASES:
        cost = measure(env, text, options)
        cells = [f"`{env}`", text, str(cost.deals), f"{cost.seconds:.3f} s", f"{cost.deals / cost.seconds:,.0f}"]
        cells += [f"{cost.on(cores, handling):,.1f} s" for cores in CORES]
        most = min(-(-DEALS // cost.deals), max(1, round(cost.seconds / handling)))
        print(f"| {' | '.join([*cells, f'{most:,}'])} |", flush=True)


def timed(engine: Engine, some: list[Share]) -> tuple[float, float]:
    """Return the wall seconds that shares take, and the CPU seconds of their policies."""
    began = time.perf_counter()
    used = sum(played.seconds for _, played in engine.play(some))
    return time.perf_counter() - began, used


def compare(name: str, count: int, rounds: int) -> None:
    """Print how long one worker and two take for the same shares of the search, in turns, and the median ratio."""
    env, text, options = CASES[-1]
    some = shares(env, text, options, count)
    print(f"\nThe same {count} shares of {text} by one worker and by two of the engine `{name}`, in turns:\n")
    heads = ("one worker", "two workers", "ratio", "CPU of one", "CPU of two", "load of the machine")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    ratios = []
    for _ in range(rounds):
        results = []
        for workers in (1, 2):
            with open_engine(name, workers) as engine:
                timed(engine, some[:workers])  # they load and compile
                results.append(timed(engine, some))
        (wall, used), (wall_of_two, used_by_two) = results
        ratios.append(wall / wall_of_two)
        cells = (f"{wall:.1f} s", f"{wall_of_two:.1f} s", f"{ratios[-1]:.2f}", f"{used:.1f} s")
        print(f"| {' | '.join([*cells, f'{used_by_two:.1f} s', f'{os.getloadavg()[0]:.1f}'])} |", flush=True)
    print(f"\nTwo workers are {np.median(ratios):.2f} times as fast as one.")


def main(
    engine: Annotated[str, typer.Option(help="processes or ray.")] = "processes",
    workers: Annotated[int, typer.Option(help="Workers while the engine's own cost is measured.")] = 2,
    handed: Annotated[int, typer.Option(help="Shares handed out to measure it.")] = 400,
    rounds: Annotated[int, typer.Option(help="Comparisons of one worker with two; 0: none.")] = 2,
    count: Annotated[int, typer.Option(help="Shares in each of them.")] = 8,
) -> None:
    """Measure and print what evaluation takes on more cores."""
    expect(engine, workers, handed)
    if rounds:
        compare(engine, count, rounds)


if __name__ == "__main__":
    typer.run(main)
