"""The web server under floods, slow clients and requests that no page of ours makes, all on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torture.report import Budget, Section

NAME, TITLE, SHARE = "server", "The web server", 0.25
REQUESTS, AT_ONCE, IDLE = 10_000, 200, 10_000
SLOW_SECONDS, IDLE_SECONDS, LEAST = 100.0, 60.0, 10.0

PATHS = (
    "/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "/static/../store.py", "//etc/passwd",
    "/page.js/../../store.py", "/.%00/etc/passwd", "/page.js%00.html", "/index.html", "/static/page.js",
    "/\\..\\store.py",
    "/api/sessions/../../etc/passwd", "/api/sessions/..%2f..%2f/record", "/api/sessions/" + "a" * 5000, "/docs",
    "/openapi.json", "/favicon.ico/../page.js", "/%c0%ae%c0%ae/etc/passwd", "/api/../page.js",
)  # fmt: skip
BODIES: tuple[tuple[bytes, dict[str, str], tuple[int, ...]], ...] = (
    (b"x" * 70_000, {}, (413,)),
    (b'{"game":"' + b"x" * 65_000 + b'"}', {}, (422, 413)),
    (b"", {"content-length": "99999999999999999999"}, (400, 413)),
    (b"", {"content-length": "-1"}, (400,)),
    (b"", {"content-length": "1e3"}, (400,)),
    (b"[" * 60_000, {}, (422,)),
    (b'{"game":' + b"9" * 60_000 + b"}", {}, (422,)),
    (b'{"game":"Sultan-v0","deal":' + b"9" * 5_000 + b"}", {}, (422,)),
    (b"\xff\xfe\x00", {}, (422,)),
    (b'{"game":"Sultan-v0"}', {"content-type": "text/plain"}, (415,)),
    (b'{"game":"Sultan-v0"}', {"content-type": "multipart/form-data"}, (415,)),
)
STRANGERS: tuple[tuple[dict[str, str], int], ...] = (
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://127.0.0.1.evil.example"}, 403),
    ({"origin": "https://127.0.0.1:1"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"sec-fetch-site": "nonsense"}, 403),
    ({"host": "evil.example"}, 421),
    ({"host": "evil.example", "origin": "http://evil.example"}, 421),
    ({"host": ""}, 421),
    ({"host": "127.0.0.1.evil.example:8000"}, 421),
)


class Running:
    """The server of `patience serve`, in a process of its own."""

    def __init__(self, data: Path, *words: str) -> None:
        command = [sys.executable, "-c", "from patience_env.training.cli import main; main()", "serve", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--data", str(data), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.port = int(line.split()[1].rstrip("/").rpartition(":")[2])
        self.ask("POST", "/api/sessions", {"game": "PatiencePoker-v0", "options": {"placement": "fixed"}, "deal": 1})

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, content and headers of an answer; `body` is bytes, or what becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        given = {"content-type": "application/json", **(headers or {})}
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.putrequest(method, path, skip_host="host" in given, skip_accept_encoding=True)
            if content is not None and "content-length" not in given:
                given["content-length"] = str(len(content))
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(content or b"")
            reply = connection.getresponse()
            return reply.status, reply.read(), {name.lower(): value for name, value in reply.getheaders()}
        finally:
            connection.close()

    def raw(self, content: bytes, receive: int = 0) -> socket.socket:
        """Return a connection on which something was sent."""
        made = socket.socket()
        if receive:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        made.settimeout(120)
        made.connect(("127.0.0.1", self.port))
        made.sendall(content)
        return made

    @property
    def alive(self) -> bool:
        """Whether the process runs and answers."""
        return self._process.poll() is None and self.ask("GET", "/api/games")[0] == 200

    def resident(self) -> int:
        """Return the resident size in bytes."""
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait(60)


def strangers(section: Section, server: Running) -> None:
    """Paths to other files, bodies of any kind, requests of other sites."""
    wrong = []
    marks = (b"root:", b"import ", b"sqlite3")
    for path in PATHS:
        made = server.raw(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode("latin-1"))
        with made:
            answer = _all(made)
        status = answer.split(b" ", 2)[1:2]
        if not status or status[0] not in (b"404", b"400", b"405") or any(mark in answer for mark in marks):
            wrong.append(f"{path[:60]}: {answer[:60]!r}")
    section.check(
        "paths that lead to a file that is not the page's", f"{len(wrong)} of {len(PATHS)} {wrong or ''}", not wrong
    )
    wrong = []
    for body, headers, wanted in BODIES:
        status = _status(server, "POST", "/api/sessions", body, headers)
        if status not in wanted:
            wrong.append(f"{body[:20]!r} {headers}: {status}")
    section.check(
        "oversized, nested, unreadable or wrongly labelled bodies that are not refused",
        f"{len(wrong)} of {len(BODIES)} {wrong or ''}",
        not wrong,
    )
    wrong = []
    for headers, expected in STRANGERS:
        status = _status(server, "POST", "/api/sessions", {"game": "Sultan-v0"}, headers)
        if status != expected:
            wrong.append(f"{headers}: {status}")
    section.check(
        "requests of other sites or under other names that are not refused",
        f"{len(wrong)} of {len(STRANGERS)} {wrong or ''}",
        not wrong,
    )


def _status(server: Running, method: str, path: str, body: Any, headers: dict[str, str]) -> int:
    try:
        return server.ask(method, path, body, headers)[0]
    except (http.client.HTTPException, OSError):
        return 0


def _all(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(OSError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def flooded(section: Section, server: Running, requests: int, at_once: int, seconds: float = 3600.0) -> None:
    """Play many games at once, and compare them all with what was played; TimeoutError after some seconds."""
    from benchmarks.serve import flood

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, at_once + 256), hard), hard))
    with contextlib.redirect_stdout(io.StringIO()):
        told = asyncio.run(asyncio.wait_for(flood(server.port, requests, at_once), seconds))
    section.check(
        f"errors in {told['requests']:,} requests, {at_once} at a time ({told['requests'] / told['seconds']:.0f} a "
        f"second, median {told['median']:.0f} ms, slowest {told['slowest']:.0f} ms)",
        f"{len(told['faults'])} {'; '.join(told['faults'][:3])}",
        not told["faults"] and told["requests"] >= requests,
    )
    section.check("games lost or changed", f"{told['lost']} of {told['games']}", told["lost"] == 0)


class Slow(threading.Thread):
    """A client that does something slowly; notes after how long it was cut."""

    def __init__(self, what: Any, most: float) -> None:
        super().__init__(daemon=True)
        self._what, self._most = what, most
        self.seconds: float | None = None

    def run(self) -> None:
        began = time.monotonic()
        with contextlib.suppress(OSError, EOFError):
            while time.monotonic() - began < self._most:
                self._what()
            return
        self.seconds = time.monotonic() - began


def slow_clients(section: Section, server: Running, each: int, patience: float) -> None:
    """Let clients send and read in drops, many of each kind, while others are served."""
    ask = b"GET /cards.svg HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    begun = b"POST /api/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    begun += b"content-length: 5000\r\n\r\n"
    threads: dict[str, list[Slow]] = {"head": [], "body": [], "reader": [], "silent": []}
    sockets = []
    for kind, content, receive in (
        ("head", ask[:-2], 0),
        ("body", begun, 0),
        ("reader", ask * 400, 2048),
        ("silent", b"", 0),
    ):
        for _ in range(each):
            made = server.raw(content, receive)
            sockets.append(made)

            def act(made: socket.socket = made, kind: str = kind) -> None:
                if kind == "reader":
                    time.sleep(1.0)
                    if not made.recv(1024):
                        raise EOFError
                elif kind == "silent":
                    if not made.recv(1):
                        raise EOFError
                else:
                    time.sleep(1.0)
                    made.sendall(b"x: y\r\n" if kind == "head" else b" ")

            threads[kind].append(Slow(act, patience))
    for slow in (slow for some in threads.values() for slow in some):
        slow.start()
    times = []
    end = time.monotonic() + min(20.0, patience / 2)
    while time.monotonic() < end:
        began = time.perf_counter()
        status = server.ask("GET", "/page.js")[0]
        times.append(1e3 * (time.perf_counter() - began) if status == 200 else float("inf"))
        time.sleep(0.05)
    for slow in (slow for some in threads.values() for slow in some):
        slow.join(patience + 10)
    for made in sockets:
        made.close()
    told = {kind: [slow.seconds for slow in some] for kind, some in threads.items()}
    longest = {kind: max((second for second in some if second is not None), default=0.0) for kind, some in told.items()}
    left = sum(second is None for some in told.values() for second in some)
    section.check(
        f"slow clients ({each} each that send a head or a body, read the answer, or say nothing, in drops) not cut "
        f"within {patience:.0f} s",
        f"{left} of {4 * each}; the last after " + ", ".join(f"{kind} {longest[kind]:.0f} s" for kind in longest),
        left == 0,
    )
    section.check("answers to others meanwhile, the slowest", f"{max(times):.0f} ms of {len(times)}", max(times) < 5000)


def idle_games(section: Section, folder: Path, count: int, end: float = float("inf")) -> bool:
    """Begin games until the store is full, and more: a game in play is kept, and new ones are let in.

    Return whether that was so before the monotonic time `end`.
    """
    server = Running(folder / "idle.sqlite3", "--max-games", str(count))
    try:
        body = {"game": "PatiencePoker-v0", "options": {"placement": "fixed"}, "deal": 3}
        mine = json.loads(server.ask("POST", "/api/sessions", body)[1])
        name = f"/api/sessions/{mine['id']}"
        server.ask("POST", f"{name}/moves", {"action": 3, "step": 0})
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        refused = 0
        content = json.dumps(body)
        for _ in range(count + 100):
            if time.monotonic() > end:
                return False
            connection.request("POST", "/api/sessions", content, {"content-type": "application/json"})
            reply = connection.getresponse()
            reply.read()
            refused += reply.status != 201
        connection.close()
        kept = json.loads(server.ask("GET", name)[1]).get("step")
        section.check(
            f"new games refused while {count:,} games lie idle, and what became of a game in play",
            f"{refused} of {count + 100:,} refused; {'kept' if kept == 1 else 'lost'}; "
            f"{server.resident() / 2**20:.0f} MiB",
            refused == 0 and kept == 1,
        )
        return True
    finally:
        server.stop()


def run(budget: Budget) -> Section:
    """Try all of it."""
    section = Section(NAME, TITLE)
    if not find_spec("uvicorn"):
        section.note("The extra 'serve' is not installed.")
        return section
    server = Running(budget.folder / "games.sqlite3")
    try:
        strangers(section, server)
        if budget.short:
            flooded(section, server, 300, 20)
        else:
            # As many as fit where time is scarce; what a flood takes is known when some of it is over.
            began = time.monotonic()
            requests = REQUESTS if budget.full else REQUESTS // 10
            flooded(section, server, requests, AT_ONCE)
            section.amount = 0.5 * requests / REQUESTS
            if not budget.full and budget.left() > 12 * (time.monotonic() - began) + SLOW_SECONDS + IDLE_SECONDS:
                with contextlib.suppress(TimeoutError):
                    flooded(section, server, REQUESTS, AT_ONCE, budget.left() - SLOW_SECONDS - 20)
                    section.amount = 0.5
            if budget.left() > SLOW_SECONDS + IDLE_SECONDS:
                slow_clients(section, server, 10, SLOW_SECONDS)
                section.amount += 0.3
            else:
                section.note("No time was left for slow clients.")
        section.check("the server runs on", server.alive, server.alive)
    finally:
        server.stop()
    end = time.monotonic() + budget.left() - 2 if budget.bounded else float("inf")
    if (budget.short or budget.left() > LEAST) and idle_games(
        section, budget.folder, 100 if budget.short else IDLE, end
    ):
        section.amount += 0.0 if budget.short else 0.2
    else:
        section.note("No time was left for a store full of idle games.")
    return section
