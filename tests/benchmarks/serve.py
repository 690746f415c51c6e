"""How quick the web page's server is, and that a flood loses nothing: prints tables.

python tests/benchmarks/serve.py [--requests 10000] [--at-once 200] [--moves 60]

A server of its own on loopback and a fresh data file. Start-up (warm Numba cache: run it twice): from the start of the
process until it listens, from then until the page's files and the first dealt game are answered. Clicks: the time
from sending an action to having read the whole answer, no agent thinking. Flood: moves, undos and reads of so many
games at a time; every answer is checked, and afterwards every game is compared with the moves that were made in it.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

FILES = ("/", "/style.css", "/page.js", "/cards.svg", "/api/games")
POKER = {"game": "PatiencePoker-v0", "options": {"placement": "fixed"}}
GAMES = (
    "PatiencePoker-v0",
    "Paganini-v0",
    "RobinPost-v0",
    "Fourteenth-v0",
    "Sultan-v0",
    "Calculation-v0",
    "Nivernaise-v0",
    "Fortress-v0",
    "EmpressOfIndia-v0",
)
MOST_SECONDS = 900.0


class Caller:
    """One connection to the server, kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer: parsed JSON, or the bytes of a file."""
        headers = {"content-type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._connection.request("GET" if body is None else "POST", path, text, headers)
        reply = self._connection.getresponse()
        content = reply.read()
        if reply.status not in (200, 201):
            raise RuntimeError(f"{path} answered {reply.status}: {content[:200]!r}")
        return json.loads(content) if path.startswith("/api/") else content


def start(data: Path) -> tuple[subprocess.Popen[str], int, float]:
    """Start the server; return it, its port, and the seconds until it listened."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "patience_env.training.cli", "serve", "--port", "0", "--data", str(data)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert server.stdout is not None
    line = server.stdout.readline()
    return server, int(line.split()[1].rstrip("/").rpartition(":")[2]), time.perf_counter() - began


def measure_start(folder: Path, runs: int) -> None:
    """Print how long the page takes after the server's start."""
    print("| run | process started to listening | listening to page and first game ready |")
    print("|---|---|---|")
    for run in range(1, runs + 1):
        server, port, listening = start(folder / f"start{run}.sqlite3")
        try:
            began = time.perf_counter()
            caller = Caller(port)
            for path in FILES:
                caller.ask(path)
            caller.ask("/api/sessions", {**POKER, "deal": run})
            print(f"| {run} | {listening:.2f} s | {time.perf_counter() - began:.2f} s |", flush=True)
        finally:
            server.terminate()
            server.wait(30)


def measure_clicks(port: int, moves: int) -> None:
    """Print how long a click takes in each game, with random legal moves."""
    rng = np.random.default_rng(1)
    print("\n| game | clicks | legal moves, median | click: median | 95% | most |")
    print("|---|---|---|---|---|---|")
    caller = Caller(port)
    everything: list[float] = []
    for game in GAMES:
        times: list[float] = []
        choices: list[int] = []
        state = caller.ask("/api/sessions", {"game": game, "deal": 1})
        deal = 1
        while len(times) < moves:
            if state["over"]:
                deal += 1
                state = caller.ask("/api/sessions", {"game": game, "deal": deal})
                continue
            choices.append(len(state["moves"]))
            action = int(rng.choice([move[0] for move in state["moves"]]))
            began = time.perf_counter()
            state = caller.ask(f"/api/sessions/{state['id']}/moves", {"action": action, "step": state["step"]})
            times.append(1e3 * (time.perf_counter() - began))
        everything += times
        print(
            f"| {game} | {len(times)} | {median(choices):g} | {median(times):.1f} ms "
            f"| {quantiles(times, n=20)[-1]:.1f} ms | {max(times):.1f} ms |",
            flush=True,
        )
    print(f"| all | {len(everything)} | | {median(everything):.1f} ms | {quantiles(everything, n=20)[-1]:.1f} ms | |")


async def flood(port: int, requests: int, at_once: int) -> dict[str, Any]:
    """Print what became of so many requests, and compare all games with what was played in them; return it too."""
    caller = Caller(port)
    states = [caller.ask("/api/sessions", {**POKER, "deal": 1000 + i}) for i in range(at_once)]
    played: list[list[int]] = [[] for _ in states]
    left = iter(range(requests))
    times: list[float] = []
    faults: list[str] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Any) -> Any:
        text = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        began = time.perf_counter()
        writer.write(head.encode() + text)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length"))
        content = await reader.readexactly(length)
        times.append(1e3 * (time.perf_counter() - began))
        if lines[0].split()[1] != "200":
            faults.append(f"{path}: {lines[0]}")
        return json.loads(content)

    async def player(seat: int) -> None:
        rng = np.random.default_rng(seat)
        name = f"/api/sessions/{states[seat]['id']}"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            empty = sorted(set(range(25)) - set(played[seat]))
            step = len(played[seat])
            if number % 10 == 9:
                state = await one(reader, writer, name, None)
            elif step and (not empty or number % 7 == 6):
                state = await one(reader, writer, f"{name}/undo", {"step": step})
                played[seat].pop()
            else:
                cell = int(rng.choice(empty))
                state = await one(reader, writer, f"{name}/moves", {"step": step, "action": cell})
                played[seat].append(cell)
            if state.get("step") != len(played[seat]):
                faults.append(f"{name}: at step {state.get('step')} instead of {len(played[seat])}")
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(player(seat) for seat in range(at_once)))
    seconds = time.perf_counter() - began
    caller = Caller(port)
    lost = sum(
        caller.ask(f"/api/sessions/{state['id']}/record")["actions"] != actions
        for state, actions in zip(states, played, strict=True)
    )
    print("\n| flood | |")
    print("|---|---|")
    print(f"| requests, at a time | {len(times):,}, {at_once} |")
    print(f"| seconds, requests a second | {seconds:.1f}, {len(times) / seconds:.0f} |")
    print(f"| answer: median, 99% | {median(times):.0f} ms, {quantiles(times, n=100)[-1]:.0f} ms |")
    print(f"| errors | {len(faults)} {'; '.join(faults[:3])} |")
    print(f"| games lost or changed | {lost} of {len(states)} |")
    return {
        "requests": len(times),
        "seconds": seconds,
        "median": median(times),
        "slowest": max(times),
        "faults": faults,
        "lost": lost,
        "games": len(states),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="how many requests the flood makes")
    parser.add_argument("--at-once", type=int, default=200, help="how many of them at a time")
    parser.add_argument("--moves", type=int, default=60, help="how many clicks are timed in each game")
    parser.add_argument("--starts", type=int, default=3, help="how many starts are timed")
    given = parser.parse_args()
    wanted = given.at_once + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{platform.machine()}, {cores} cores, load {load:.1f}, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory() as folder:
        measure_start(Path(folder), given.starts)
        server, port, _ = start(Path(folder) / "games.sqlite3")
        try:
            measure_clicks(port, given.moves)
            asyncio.run(asyncio.wait_for(flood(port, given.requests, given.at_once), MOST_SECONDS))
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()
