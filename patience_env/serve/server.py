"""The FastAPI application: a page, and a small JSON interface to the sessions.

The handlers run one after the other on the event loop: what they do takes a few milliseconds, and no two of them ever
meet in the middle of a move. Whatever may take longer (compiling a game, a policy that thinks) runs in a few threads of
its own.

| request | answer |
|---|---|
| `GET /`, `/page.js`, `/style.css`, `/cards.svg` | the page |
| `GET /api/games` | the games, their options as fields of a form, their policies |
| `POST /api/opponents` {game, options} | the policies that can be opponents under these options |
| `POST /api/sessions` {game, options, deal?} | a new game |
| `POST /api/matches` {game, options, deal?, deals, opponents} | a new match |
| `GET /api/sessions/ID` | the game or match as it stands |
| `POST /api/sessions/ID/moves` {action, step, round?} | after the move |
| `POST /api/sessions/ID/undo` {step} | after taking the last move back |
| `POST /api/sessions/ID/next` {round} | the next deal of a match |
| `POST /api/sessions/ID/describe` {step, actions} | actions in words |
| `POST /api/sessions/ID/hint` {step, policy} | the action that a policy would choose |
| `POST /api/sessions/ID/values` {step, policy, seat?} | what a policy expects of each action |
| `GET /api/sessions/ID/record` | the game as a file, as `patience play --save` writes it |
| `POST /api/replays` {record, step} | the position of a recorded game after so many actions |

`step` is the number of actions played; where it is not that of the game, the page was out of date: 409, with the state.
An illegal action is 422. Every refusal is `{"error": text}`, and the game goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from patience_env.agents.policy import Policy, make_policy, parse_policy, policy_names
from patience_env.game import Game, game_ids
from patience_env.render.vector_graphics import card_symbols
from patience_env.serve.guard import Guard, Refused, read_json
from patience_env.serve.sessions import (
    Match,
    Play,
    Refusal,
    act,
    cell_values,
    check_options,
    draw_deal,
    find_game,
    form_field,
    game_facts,
    new_match,
    new_name,
    play_of_record,
    read_deal,
    restore,
)
from patience_env.serve.store import FullError, Store, StoreError

STATIC = Path(__file__).resolve().parent / "static"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}
LIVE = 256
THINKERS = 2
MOST_WAITING = 32
MOST_DESCRIBED = 200
FIRST_GAME = "PatiencePoker-v0"
T = TypeVar("T")
_log = logging.getLogger("patience_env.serve")


class Agents:
    """The policies that may give hints and play: those without required arguments, and those that were named.

    Args:
        extra: policies as the command line writes them, such as `line:path=runs/line`.
    """

    def __init__(self, extra: Sequence[str] = ()) -> None:
        self._extra = list(extra)
        self._made: dict[tuple[str, str], tuple[Policy, threading.Lock]] = {}
        self._lock = threading.Lock()

    def names(self, game_id: str) -> list[str]:
        """Return the names of a game's policies; some may turn out to need what is not installed."""
        seen: set[str] = set()
        names: list[str] = []
        for name, path in policy_names(game_id).items():
            if path in seen or name in ("sb3", "model"):
                continue
            module, _, attribute = path.partition(":")
            try:
                inspect.signature(getattr(import_module(module), attribute)).bind()
            except (TypeError, ImportError, AttributeError):
                continue
            seen.add(path)
            names.append(name)
        return names + self._extra

    def adviser(self, game_id: str) -> str:
        """Return the policy that gives hints unless another is chosen: a rule of thumb, which fits all options."""
        known = policy_names(game_id)
        thumbs = [name for name in self.names(game_id) if name in known and known[name] == known.get("thumb")]
        return thumbs[0] if thumbs else "greedy"

    def get(self, game: Game, options: Mapping[str, Any], name: Any) -> tuple[Policy, threading.Lock]:
        """Return a policy and the lock under which it thinks.

        Raises:
            Refusal: no such policy, it cannot be made here, or it does not play under these options.
        """
        if not isinstance(name, str) or name not in self.names(game.id):
            raise Refusal(422, f"there is no policy {name!r:.60}: choose {', '.join(self.names(game.id))}")
        with self._lock:
            if (game.id, name) not in self._made:
                plain, given = parse_policy(name)
                try:
                    self._made[game.id, name] = make_policy(plain, game.id, **given), threading.Lock()
                except (ImportError, ValueError, TypeError, OSError) as error:
                    raise Refusal(422, f"the policy {name!r} is not available here: {error}") from error
            policy, lock = self._made[game.id, name]
        try:
            policy.check(game, options)
        except ValueError as error:
            raise Refusal(422, str(error)) from error
        return policy, lock

    def available(self, game: Game, options: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return the policies that play under these options, and why the others do not."""
        found = []
        for name in self.names(game.id):
            try:
                self.get(game, options, name)
                found.append({"name": name, "fault": ""})
            except Refusal as refusal:
                found.append({"name": name, "fault": str(refusal)})
        return found


class Desk:
    """The sessions that are being played: in memory while in use, in the store always."""

    def __init__(self, store: Store, agents: Agents) -> None:
        self.store, self.agents = store, agents
        self._live: OrderedDict[str, Play | Match] = OrderedDict()
        self._warm: dict[str, asyncio.Future[None]] = {}
        self._threads = ThreadPoolExecutor(THINKERS, "patience")
        self._running: set[Future[Any]] = set()
        self._waiting = 0

    def _begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        running = self._threads.submit(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return asyncio.wrap_future(running)

    async def think(self, work: Callable[[], T]) -> T:
        """Run in a thread what may take long.

        Raises:
            Refusal: too much is waiting already.
        """
        if self._waiting >= MOST_WAITING:
            raise Refusal(503, "the server has much to think about: try again in a moment")
        self._waiting += 1
        try:
            return await self._begin(work)
        finally:
            self._waiting -= 1

    async def warm(self, game: Game) -> None:
        """Wait until a game is compiled (or loaded from the cache): seconds the first time, else at once."""
        if game.id not in self._warm:
            self._warm[game.id] = self._begin(lambda: _compile(game))
        try:
            await asyncio.shield(self._warm[game.id])
        except Exception:
            self._warm.pop(game.id, None)  # so that the next request tries again
            raise

    def add(self, session: Play | Match) -> str:
        """Store a new session; return its name."""
        name = new_name()
        for gone in self.store.add(name, facts_of(session)):
            self._live.pop(gone, None)
        self._keep(name, session)
        return name

    def _keep(self, name: str, session: Play | Match) -> None:
        self._live[name] = session
        self._live.move_to_end(name)
        if len(self._live) > LIVE:
            # A match whose agents think is not to be had twice.
            idle = (one for one, held in self._live.items() if not (isinstance(held, Match) and held.thinking))
            self._live.pop(next(idle, name), None)

    async def find(self, name: str) -> Play | Match:
        """Return a session by its name, replayed from the store where need be.

        Raises:
            Refusal: there is none (404), or its record is damaged.
        """
        session = self._live.get(name)
        if session is None:
            stored = self.store.find(name)
            if stored is None:
                raise Refusal(404, "there is no such game here: it may have grown too old")
            if isinstance(stored.get("game"), str) and stored["game"] in game_ids():
                await self.warm(find_game(stored["game"]))
                session = self._live.get(name)  # another request may have been quicker
            if session is None:
                session = restore(stored)
        self._keep(name, session)
        return session

    def save(self, name: str, session: Play | Match) -> None:
        """Store what was played."""
        self.store.change(name, facts_of(session))

    def drop(self, name: str) -> None:
        """Forget what is in memory of a session, so that it is read from the store again."""
        self._live.pop(name, None)

    @property
    def busy(self) -> bool:
        """Whether a thread still thinks or compiles."""
        return any(not running.done() for running in list(self._running))

    def close(self) -> None:
        """Close the store. Threads that think or compile, which may take long, are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.store.close()


def _compile(game: Game) -> None:
    """Call all compiled functions that a move needs once."""
    play = Play(game, game.check_options({}), 1)
    if play.moves:
        play.play(play.moves[0].action)
        play.view()


def facts_of(session: Play | Match) -> dict[str, Any]:
    """Return what a session is rebuilt from."""
    return session.facts() if isinstance(session, Match) else game_facts(session)


def seat_of(session: Play | Match) -> Play:
    """Return the player's own game."""
    return session.seats[0] if isinstance(session, Match) else session


class StaleError(Exception):
    """A request was about a position that is no longer the present one."""


def check_step(session: Play | Match, body: Mapping[str, Any]) -> None:
    """Raise StaleError unless the request is about the present position."""
    step, turn = body.get("step"), body.get("round", session.round if isinstance(session, Match) else None)
    if type(step) is not int:
        raise Refusal(422, "the request must tell its step: how many actions the page knows of")
    if step != len(seat_of(session).actions) or (isinstance(session, Match) and turn != session.round):
        raise StaleError


def create_app(
    store: Store, *, policies: Sequence[str] = (), hosts: Collection[str] = (), warm: Collection[str] = (FIRST_GAME,)
) -> FastAPI:
    """Return the application.

    Args:
        store: where the games are kept; the application closes it.
        policies: further policies to offer, as the command line writes them.
        hosts: host names it is reached by, beside `localhost` and bare addresses.
        warm: the games to compile (or load) as soon as it starts.
    """
    desk = Desk(store, Agents(policies))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        tasks = [asyncio.create_task(desk.warm(find_game(game_id))) for game_id in warm]
        yield
        for task in tasks:
            task.cancel()
        desk.close()

    app = FastAPI(title="patience-env", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.desk = desk
    app.add_middleware(Guard, hosts=hosts)
    _add_pages(app)
    _add_refusals(app)
    _add_games(app, desk)
    _add_play(app, desk)
    return app


def answer(facts: Any, status: int = 200) -> Response:
    """Return facts as a JSON response."""
    body = json.dumps(facts, separators=(",", ":"), allow_nan=False)
    return Response(body, status, {"cache-control": "no-store"}, "application/json")


def _add_pages(app: FastAPI) -> None:
    """Serve the files by their fixed names: no path of a request is ever looked up on the disk."""
    pages = {path: ((STATIC / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
    pages["/cards.svg"] = (card_symbols().encode(), "image/svg+xml")
    for path, (content, kind) in pages.items():
        tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'

        def page(request: Request, content: bytes = content, kind: str = kind, tag: str = tag) -> Response:
            headers = {"cache-control": "no-cache", "etag": tag}
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers=headers)
            return Response(content, headers=headers, media_type=kind)

        app.add_route(path, page, methods=["GET"])


def _add_refusals(app: FastAPI) -> None:
    async def refusal(_: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, (Refusal, Refused)) else 500
        return answer({"error": str(error)}, status)

    async def full(_: Request, error: Exception) -> Response:
        return answer({"error": str(error)}, 503)

    async def other(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return answer({"error": {404: "there is no such page", 405: "not in this way"}.get(status, str(error))}, status)

    app.add_exception_handler(Refusal, refusal)
    app.add_exception_handler(Refused, refusal)
    app.add_exception_handler(StoreError, refusal)
    app.add_exception_handler(FullError, full)
    app.add_exception_handler(HTTPException, other)


async def _read(request: Request, *known: str) -> dict[str, Any]:
    """Return the JSON object of a request, or refuse it."""
    body = read_json(await request.body())
    if not isinstance(body, dict):
        raise Refusal(422, f"the request must be a JSON object with {', '.join(known)}")
    for name in body:
        if name not in known:
            raise Refusal(422, f"the request has an unknown entry {name!r:.60}: it takes {', '.join(known)}")
    return body


def _add_games(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/games")
    async def games() -> Response:
        found = []
        for game_id in game_ids():
            game = find_game(game_id)
            fields = [form_field(option) for option in game.options]
            names = desk.agents.names(game_id)
            facts = {"id": game_id, "title": game.title, "about": about_game(game), "scores": game.scores}
            found.append({**facts, "fields": fields, "policies": names, "adviser": desk.agents.adviser(game_id)})
        return answer({"games": found})

    @app.post("/api/opponents")
    async def opponents(request: Request) -> Response:
        body = await _read(request, "game", "options")
        game = find_game(body.get("game"))
        options = check_options(game, body.get("options", {}))
        return answer({"opponents": await desk.think(lambda: desk.agents.available(game, options))})

    @app.post("/api/sessions")
    async def new_game(request: Request) -> Response:
        body = await _read(request, "game", "options", "deal")
        game = find_game(body.get("game"))
        options = check_options(game, body.get("options", {}))
        deal = draw_deal() if body.get("deal") is None else read_deal(body["deal"])
        await desk.warm(game)
        play = Play(game, options, deal)
        view = play.view()
        return answer(told(desk.add(play), play, view), 201)

    @app.post("/api/matches")
    async def begin_match(request: Request) -> Response:
        body = await _read(request, "game", "options", "deal", "deals", "opponents")
        game = find_game(body.get("game"))
        options = check_options(game, body.get("options", {}))
        deal = draw_deal() if body.get("deal") is None else read_deal(body["deal"])
        await desk.warm(game)
        match = new_match(game, options, deal, body.get("deals"), body.get("opponents"))
        for name in match.opponents:
            await desk.think(lambda name=name: desk.agents.get(game, options, name))  # type: ignore[misc]
        return answer(told(desk.add(match), match), 201)

    @app.post("/api/replays")
    async def replay(request: Request) -> Response:
        body = await _read(request, "record", "step")
        step = body.get("step")
        if step is not None and type(step) is not int:
            raise Refusal(422, f"step={step!r:.40} is not allowed: give a whole number")
        record = body.get("record")
        if isinstance(record, dict) and isinstance(record.get("game"), str):
            await desk.warm(find_game(record["game"]))
        play, following = play_of_record(record, step)
        text = play.describe(following[0]) if following and play.seen.mask[following[0]] else ""
        steps = len(play.actions) + len(following)
        return answer({**play.view(moves=False), "kind": "replay", "steps": steps, "next": text})


def about_game(game: Game) -> str:
    """Return the first paragraph of a game's description, from its module's docstring."""
    text = inspect.getdoc(import_module(game.deal.__module__)) or ""
    paragraph = text.partition("## Description")[2].strip().partition("\n\n")[0]
    return " ".join(paragraph.split()).partition(" The rule sheet is")[0]


def told(name: str, session: Play | Match, view: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the page is told of a session."""
    return {"kind": "game", **(view or session.view()), "id": name}


def _add_play(app: FastAPI, desk: Desk) -> None:
    Step = Callable[[str, Play | Match, dict[str, Any]], Awaitable[dict[str, Any]]]

    async def about(name: str, request: Request, known: Sequence[str], step: Step) -> Response:
        """Find the session, check that the request is up to date, do what it asks and answer."""
        body = await _read(request, *known)
        session = await desk.find(name)
        try:
            if isinstance(session, Match) and session.thinking:
                raise Refusal(409, "the agents are still thinking about the last card")
            check_step(session, body)
            return answer(await step(name, session, body))
        except StaleError:
            fault = "this page was out of date (the game was played on elsewhere): here is how it stands"
            return answer({"error": fault, "state": told(name, session)}, 409)

    @app.get("/api/sessions/{name}")
    async def state(name: str) -> Response:
        return answer(told(name, await desk.find(name)))

    @app.get("/api/sessions/{name}/record")
    async def record(name: str) -> Response:
        return answer(seat_of(await desk.find(name)).record())

    async def move(name: str, session: Play | Match, body: dict[str, Any]) -> dict[str, Any]:
        action = body.get("action")
        if isinstance(session, Match):
            await _move_all(desk, name, session, action)
        else:
            session.play(action)
            _save(desk, name, session)
        return told(name, session)

    @app.post("/api/sessions/{name}/moves")
    async def moves(name: str, request: Request) -> Response:
        return await about(name, request, ("action", "step", "round"), move)

    async def take_back(name: str, session: Play | Match, body: dict[str, Any]) -> dict[str, Any]:
        del body
        if isinstance(session, Match):
            raise Refusal(422, "in a match no move is taken back")
        if not session.actions:
            raise Refusal(422, "there is no move to take back")
        session.replay(session.actions[:-1])
        _save(desk, name, session)
        return told(name, session)

    @app.post("/api/sessions/{name}/undo")
    async def undo(name: str, request: Request) -> Response:
        return await about(name, request, ("step",), take_back)

    async def next_deal(name: str, session: Play | Match, body: dict[str, Any]) -> dict[str, Any]:
        del body
        if not isinstance(session, Match):
            raise Refusal(422, "only a match has a next deal")
        session.next()
        _save(desk, name, session)
        return told(name, session)

    @app.post("/api/sessions/{name}/next")
    async def following(name: str, request: Request) -> Response:
        return await about(name, request, ("step", "round"), next_deal)

    async def in_words(name: str, session: Play | Match, body: dict[str, Any]) -> dict[str, Any]:
        del name
        play = seat_of(session)
        actions = body.get("actions")
        legal = isinstance(actions, list) and all(
            type(action) is int and 0 <= action < play.layout.actions and play.seen.mask[action] for action in actions
        )
        if not isinstance(actions, list) or not legal or len(actions) > MOST_DESCRIBED:
            raise Refusal(422, f"actions are a list of at most {MOST_DESCRIBED} legal actions")
        return {"texts": [play.describe(action) for action in actions]}

    @app.post("/api/sessions/{name}/describe")
    async def describe(name: str, request: Request) -> Response:
        return await about(name, request, ("step", "actions", "round"), in_words)

    async def advise(name: str, session: Play | Match, body: dict[str, Any]) -> dict[str, Any]:
        del name
        play = seat_of(session)
        if play.over:
            raise Refusal(422, "the game is over: there is nothing to play")
        turn = play.turn()

        def think() -> int:
            policy, lock = desk.agents.get(play.game, play.options, body.get("policy"))
            with lock:
                return act(policy, turn)

        action = await desk.think(think)
        described = next(move for move in play.moves if move.action == action) if play.seen.mask[action] else None
        if described is None:
            raise StaleError
        return {
            "action": action,
            "text": described.text or play.describe(action),
            "from": described.sources,
            "to": described.targets,
        }

    @app.post("/api/sessions/{name}/hint")
    async def hint(name: str, request: Request) -> Response:
        return await about(name, request, ("step", "policy", "round"), advise)

    async def weigh(name: str, session: Play | Match, body: dict[str, Any]) -> dict[str, Any]:
        del name
        seats = session.seats if isinstance(session, Match) else [session]
        seat = body.get("seat", 0)
        if type(seat) is not int or not 0 <= seat < len(seats):
            raise Refusal(422, f"seat={seat!r:.40} is not allowed: give 0 to {len(seats) - 1}")
        play = seats[seat]
        if not play.game.scores or play.layout.grid is None:
            raise Refusal(422, f"{play.game.title} has no cells that score")
        if play.over:
            raise Refusal(422, "the game is over: there is nothing to play")
        turn, score = play.turn(), play.total

        def think() -> Any:
            policy, lock = desk.agents.get(play.game, play.options, body.get("policy"))
            with lock:
                return cell_values(policy, turn, score)

        found = await desk.think(think)
        cells = play.layout.places
        return {
            "values": {cells[action]: round(value, 2) for action, value in found.values.items()},
            "errors": {cells[action]: round(error, 2) for action, error in found.errors.items()},
            "method": found.method,
        }

    @app.post("/api/sessions/{name}/values")
    async def values(name: str, request: Request) -> Response:
        return await about(name, request, ("step", "policy", "seat", "round"), weigh)


def _save(desk: Desk, name: str, session: Play | Match) -> None:
    """Store a session after a move; where that fails, memory goes back to what is stored."""
    try:
        desk.save(name, session)
    except StoreError:
        desk.drop(name)
        raise


async def _move_all(desk: Desk, name: str, match: Match, action: Any) -> None:
    """Let every opponent choose for the same card, then lay all cards at once."""
    mine = match.seats[0]
    legal = type(action) is int and 0 <= action < mine.layout.actions and bool(mine.seen.mask[action])
    if mine.over or not legal:
        mine.play(action)  # refuses in its own words
    turns = [seat.turn() for seat in match.seats[1:]]

    def think() -> list[int]:
        chosen = []
        for opponent, turn in zip(match.opponents, turns, strict=True):
            policy, lock = desk.agents.get(match.game, match.options, opponent)
            with lock:
                chosen.append(act(policy, turn))
        return chosen

    match.thinking = True
    try:
        chosen = await desk.think(think)
    finally:
        match.thinking = False
    match.play([action, *chosen])
    _save(desk, name, match)
