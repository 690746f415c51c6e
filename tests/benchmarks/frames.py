"""How many frames a second each game is drawn at: `python tests/benchmarks/frames.py`.

Prints a table (Markdown) of frames a second of one core for "rgb_array" (pixels), "svg" and "ansi". Every frame shows
another position of a random game, as in a recorded film, and only the drawing is timed: the median of several runs,
and in brackets the slowest single frame of all in milliseconds (the first, which draws the cards for all later ones,
apart). `tests/benchmarks/frames.py 100` exits with 1 where pixels are drawn at fewer frames a second than that.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import patience_env
from patience_env.env import PatienceEnv

RUNS = 5
FRAMES = 60


def times(env: PatienceEnv, draw: Callable[[], Any], seed: int) -> list[float]:
    """Return the processor time of each of a run's frames, in seconds."""
    env.reset(seed=seed)
    found = []
    while len(found) < FRAMES:
        if not env.action_masks().any():
            env.reset()
        env.step(env.sample())
        start = time.process_time_ns()
        draw()
        found.append((time.process_time_ns() - start) / 1e9)
    return found


def measure(env: PatienceEnv, draw: Callable[[], Any]) -> tuple[float, float, float]:
    """Return the first frame's time, the median run's frames a second, and the slowest later frame's time."""
    env.reset(seed=0)
    start = time.process_time_ns()
    draw()
    first = (time.process_time_ns() - start) / 1e9
    times(env, draw, 0)  # meets every card
    runs = [times(env, draw, 1 + run) for run in range(RUNS)]
    return first, statistics.median(FRAMES / sum(run) for run in runs), max(map(max, runs))


def main(least: float = 0.0) -> int:
    """Print the table; return 1 where a game's pixels are slower than `least` frames a second, else 0."""
    print("| game | size | rgb_array | first frame, ms | svg | ansi |\n|---|---|---|---|---|---|")
    slow = []
    for game in patience_env.game_ids():
        env = PatienceEnv(game, render_mode="rgb_array")
        first, pixels, worst = measure(env, env.render)
        height, width, _ = env.render().shape
        _, svg, _ = measure(env, env.svg)
        text_env = PatienceEnv(game, render_mode="ansi")
        _, text, _ = measure(text_env, text_env.render)
        print(
            f"| {game} | {width} x {height} | {pixels:,.0f} ({1000 * worst:.1f}) | {1000 * first:.0f} "
            f"| {svg:,.0f} | {text:,.0f} |",
            flush=True,
        )
        if pixels < least:
            slow.append(game)
    if slow:
        print(f"fewer than {least:g} frames a second: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:2])))
