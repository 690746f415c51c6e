"""How evaluation scales: `python tests/benchmarks/scaling.py` prints the tables of docs/scaling.md.

Measured here: CPU seconds of a share of each policy, what one share costs the engine's own process, and how long workers
take to start. From these follows what so many cores need for an evaluation: shares are handed out one by one, so the time
is that of the fullest worker, or of the engine's process where that is busier.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from patience_env.agents.policy import make_policy, parse_policy
from patience_env.deals import named_deals
from patience_env.game import get_game
from patience_env.training.engines import ProcessEngine, open_engine
from patience_env.training.evaluate import shares_of
from patience_env.training.shares import Played, Share, play_share

CASES = (
    ("Sultan-v0", "thumb", {}),
    ("Paganini-v0", "thumb", {}),
    ("PatiencePoker-v0", "value", {"placement": "fixed"}),
    ("PatiencePoker-v0", "search", {"placement": "fixed"}),
)
DEALS = 10_000
CORES = (1, 2, 10, 100, 1000)


@dataclass(frozen=True)
class Cost:
    """What one share of a policy costs: deals in it, CPU seconds of a worker."""

    deals: int
    seconds: float


def shares(env: str, text: str, options: dict[str, object], count: int) -> list[Share]:
    """Return the first shares of an evaluation."""
    name, given = parse_policy(text)
    policy = make_policy(name, env, **given)
    checked = get_game(env).check_options(options)
    return shares_of(text, policy, env, checked, named_deals("test", min(DEALS, count * policy.share)), 0)


def measure(env: str, text: str, options: dict[str, object]) -> Cost:
    """Play three shares here after one that compiles; return the median cost."""
    some = shares(env, text, options, 4)
    play_share(some[0])
    costs = []
    for share in some[1:]:
        began = time.process_time()
        play_share(share)
        costs.append(time.process_time() - began)
    return Cost(len(some[1].deals), float(np.median(costs)))


class Idle(ProcessEngine):
    """Processes that are given shares of no work, so that only handing out and gathering costs."""


def overhead(name: str, workers: int, count: int) -> tuple[float, float]:
    """Return the engine's own CPU seconds a share, and the seconds until the first shares of all workers are back."""
    few = shares("PatiencePoker-v0", "random", {"placement": "fixed"}, workers)
    one = few[0]
    tiny = Share(one.policy, one.env, one.options, one.deals[:1], 0, 0, one.fingerprint)
    many = [Share(tiny.policy, tiny.env, tiny.options, tiny.deals, 0, i, tiny.fingerprint) for i in range(count)]
    began = time.perf_counter()
    with open_engine(name, workers) as engine:
        list(engine.play(few))
        started = time.perf_counter() - began
        spent = time.process_time()
        told: list[tuple[Share, Played]] = list(engine.play(many))
        spent = time.process_time() - spent
    assert len(told) == count
    return spent / count, started


def expected(cost: Cost, cores: int, handling: float, start: float) -> float:
    """Return the seconds of an evaluation of `DEALS` deals on so many cores."""
    count = -(-DEALS // cost.deals)
    fullest = -(-count // cores) * cost.seconds
    return start + max(fullest, count * handling)


def pairs(env: str, text: str, options: dict[str, object], count: int, rounds: int, engine: str) -> list[str]:
    """Return lines that compare one worker with two, in turns."""
    some = shares(env, text, options, count)
    lines = []
    with open_engine(engine, 1) as one, open_engine(engine, 2) as two:
        for playing in (one, two):
            list(playing.play(some[:2]))
        for _ in range(rounds):
            walls, used = [], []
            for playing in (one, two):
                began = time.perf_counter()
                used.append(sum(played.seconds for _, played in playing.play(some)))
                walls.append(time.perf_counter() - began)
            load = os.getloadavg()[0]
            lines.append(
                f"| {walls[0]:.1f} s | {walls[1]:.1f} s | {walls[0] / walls[1]:.2f} | {used[0]:.1f} s | {used[1]:.1f} s | "
                f"{load:.1f} |"
            )
    return lines


def main(
    engine: Annotated[str, typer.Option(help="processes or ray.")] = "processes",
    workers: Annotated[int, typer.Option(help="Workers while the engine's own cost is measured.")] = 2,
    handed: Annotated[int, typer.Option(help="Shares handed out to measure it.")] = 400,
    rounds: Annotated[int, typer.Option(help="Comparisons of one worker with two; 0: none.")] = 3,
    count: Annotated[int, typer.Option(help="Shares of search in each of them.")] = 12,
) -> None:
    """Measure and print what evaluation takes on more cores."""
    costs = {(env, text): measure(env, text, options) for env, text, options in CASES}
    handling, start = overhead(engine, workers, handed)
    print(f"Engine {engine}: {1e6 * handling:.0f} us of its own process a share; {workers} workers ready in {start:.1f} s.\n")
    print("| game | policy | deals a share | CPU a share | deals a second and core | " + " | ".join(
        f"{cores:,} core{'s' if cores > 1 else ''}" for cores in CORES) + " | most cores of use |")
    print("|" + "---|" * (6 + len(CORES)))
    for (env, text), cost in costs.items():
        times = [expected(cost, cores, handling, start if cores > 1 else 0.0) for cores in CORES]
        shown = " | ".join(f"{seconds:,.1f} s" for seconds in times)
        most = min(-(-DEALS // cost.deals), int(cost.seconds / handling) or 1)
        rate = cost.deals / cost.seconds
        print(f"| `{env}` | {text} | {cost.deals} | {cost.seconds:.3f} s | {rate:,.0f} | {shown} | {most:,} |")
    if rounds:
        print("\n| one worker | two workers | ratio | CPU of one | CPU of two | load of the machine |\n|---|---|---|---|---|---|")
        env, text, options = CASES[-1]
        print("\n".join(pairs(env, text, options, count, rounds, engine)))


if __name__ == "__main__":
    typer.run(main)
