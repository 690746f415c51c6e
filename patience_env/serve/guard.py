"""What keeps strangers, floods and slow clients out: an ASGI middleware, and limits on connections.

A page of another site must not play here (cross-site requests), nor reach the server under a name of its own (DNS
rebinding). So a request is served only under a known host name or a bare address, whatever changes something must be
JSON and come from the page itself, and sessions have names that cannot be guessed instead of cookies: a browser sends
cookies along with any site's requests, but not a name in the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 64 * 1024
MOST_DEPTH = 16
BODY_SECONDS = 10.0
HEAD_SECONDS = 10.0
TAKE_SECONDS = 60.0
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


class Refused(Exception):  # noqa: N818  (an answer, no error of the program)
    """A request that is not let in: an HTTP status and what was wrong."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def host_name(host: str) -> str:
    """Return the name in a Host header without its port; an IPv6 address keeps its brackets off."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def is_address(name: str) -> bool:
    """Tell whether a name is a bare IP address: only a name can be rebound to another address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def read_json(body: bytes) -> Any:
    """Return the JSON of a request, or refuse it: no JSON, nested too deep, or with numbers that JSON does not have."""
    depth = 0
    in_text = escaped = False
    for byte in body:
        if in_text:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_text = False
        elif byte == 0x22:
            in_text = True
        elif byte in b"[{":
            depth += 1
            if depth > MOST_DEPTH:
                raise Refused(422, f"the JSON is nested more than {MOST_DEPTH} deep")
        elif byte in b"]}":
            depth -= 1
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(422, f"the request is no JSON: {error}") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


class Guard:
    """The middleware: checks host, origin, size and pace of a request, and adds the security headers.

    Args:
        app: what it guards.
        hosts: the host names it is reached by, beside `localhost` and bare addresses.
    """

    def __init__(self, app: App, hosts: Collection[str] = ()) -> None:
        self.app = app
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = False
        stopped = Refused(503, "the server is being stopped; the game is as it was")

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            body = await _body(headers, receive)
        except Refused as refused:
            await _refuse(send_safely, refused)
            return
        except asyncio.CancelledError:
            await _refuse(send_safely, stopped)
            return
        given = False

        async def receive_body() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self.app(scope, receive_body, send_safely)
        except asyncio.CancelledError:
            # The server is being stopped and has waited long enough; it would print a trace for each request.
            if not started:
                await _refuse(send_safely, stopped)
        except Exception:
            if not started:
                await _refuse(send_safely, Refused(500, "the server met an error of its own; the game is as it was"))
            raise

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        name = host_name(host)
        if name not in self.hosts and not is_address(name):
            raise Refused(421, f"this server is not known as {host!r:.80}: start it with --allow-host {name:.60}")
        site = headers.get("sec-fetch-site", "same-origin")
        api = scope["path"].startswith("/api/")
        if site not in ("same-origin", "none") and (api or scope["method"] not in SAFE):
            raise Refused(403, "requests of other sites are refused")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, f"requests of other sites are refused, such as of {origin!r:.80}")
        if scope["method"] not in SAFE:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(415, "send application/json")


async def _body(headers: dict[str, str], receive: Receive) -> bytes:
    length = headers.get("content-length")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise Refused(400, "the content length is no number")
    if length is not None and int(length[:20]) > MOST_BYTES:
        raise Refused(413, f"the request is larger than {MOST_BYTES} bytes")
    if length in (None, "0") and "transfer-encoding" not in headers:
        return b""
    try:
        return await asyncio.wait_for(_whole_body(receive), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise Refused(408, f"the request took longer than {BODY_SECONDS:g} seconds to arrive") from None


async def _whole_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request broke off")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise Refused(413, f"the request is larger than {MOST_BYTES} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    # The rest of a body that was not read would be taken for the next request.
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def patient_protocol() -> Any:
    """Return uvicorn's HTTP protocol with limits on clients that are slow to ask or to take the answer."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class PatientProtocol(H11Protocol):
        """Cuts a connection on which a request's head is not complete, or an answer moves on, for too long.

        A client that takes its answers in drops is cut too, after `TAKE_SECONDS` in which some was always waiting.
        """

        _watch: asyncio.TimerHandle | None = None
        _idle_since: float = 0.0
        _unsent: int = 0
        _owing_since: float = 0.0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # Head and body of an answer are written one after the other: without this the second waits 40 ms for the
            # first one's acknowledgement. (asyncio sets it, but not for sockets made as uvicorn makes them.)
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._idle_since = self._owing_since = self.loop.time()
            self._look_again()

        def _look_again(self) -> None:
            self._watch = self.loop.call_later(min(HEAD_SECONDS, TAKE_SECONDS) / 2, self._look)

        def _look(self) -> None:
            if self.transport is None:
                return
            now = self.loop.time()
            unsent = self.transport.get_write_buffer_size()
            moving = unsent < self._unsent or unsent == 0
            working = self.cycle is not None and not self.cycle.response_complete
            if working and moving:
                self._idle_since = now
            self._unsent = unsent
            if unsent == 0:
                self._owing_since = now
            if now - self._idle_since > HEAD_SECONDS or now - self._owing_since > TAKE_SECONDS:
                # Without this the system would go on keeping what was not taken for as long as the client likes.
                self.transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.transport.abort()
                return
            self._look_again()

        def on_response_complete(self) -> None:
            self._idle_since = self.loop.time()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._watch is not None:
                self._watch.cancel()
            super().connection_lost(exc)

    return PatientProtocol
