"""The server's answers: games, matches, replays, and what is refused. No browser here."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

fastapi = pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("httpx", reason="FastAPI's test client needs httpx")

from fastapi.testclient import TestClient  # noqa: E402

from patience_env.agents.policy import Policy, Turn, make_policy  # noqa: E402
from patience_env.game import game_ids, get_game  # noqa: E402
from patience_env.serve import guard, server, sessions  # noqa: E402
from patience_env.serve.sessions import Match, Play, Refusal, cell_values, form_field, play_of_record  # noqa: E402
from patience_env.serve.store import FullError, Store, StoreError  # noqa: E402
from patience_env.training import play as terminal  # noqa: E402

BASE = "http://127.0.0.1:8000"
FIXED = {"placement": "fixed"}
DAY = 86400.0


def make_client(path: Path, **settings: Any) -> TestClient:
    """Return a client of a server on a data file."""
    store = Store(path, settings.pop("most", 100), settings.pop("max_age", DAY), settings.pop("keep", 60.0))
    return TestClient(server.create_app(store, warm=(), **settings), base_url=BASE, raise_server_exceptions=False)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with make_client(tmp_path / "games.sqlite3") as made:
        yield made


def begin(client: TestClient, game: str = "PatiencePoker-v0", deal: int = 17, **options: Any) -> dict[str, Any]:
    """Start a game; return its state."""
    reply = client.post("/api/sessions", json={"game": game, "options": options, "deal": deal})
    assert reply.status_code == 201, reply.text
    state: dict[str, Any] = reply.json()
    return state


def play(client: TestClient, state: dict[str, Any], action: int | None = None) -> dict[str, Any]:
    """Play an action (the first legal one) and return the state after it."""
    chosen = state["moves"][0][0] if action is None else action
    body = {"action": chosen, "step": state["step"]}
    if state["kind"] == "match":
        body["round"] = state["round"]
    reply = client.post(f"/api/sessions/{state['id']}/moves", json=body)
    assert reply.status_code == 200, reply.text
    after: dict[str, Any] = reply.json()
    return after


def test_a_tableau_is_played_from_the_first_card_to_the_last(client):
    state = begin(client, **FIXED)
    assert state["deal"] == "17"
    assert state["table"]["stock"] == ["??"] * 51
    for step in range(25):
        assert (state["step"], state["over"]) == (step, False)
        assert len(state["moves"]) == 25 - step
        state = play(client, state)
    assert state["over"]
    assert state["moves"] == []
    assert state["message"] == f"Finished with {state['counters']['score']:g} points."
    assert client.get(f"/api/sessions/{state['id']}").json() == state


@pytest.mark.compiled
@pytest.mark.parametrize("game_id", game_ids())
def test_every_game_is_shown_with_a_place_for_every_pile_and_a_hint(client, game_id):
    state = begin(client, game_id, 3)
    assert {place["name"] for place in state["board"]["places"]} >= set(state["table"])
    for place in state["board"]["places"]:
        assert 0 <= place["x"] <= state["board"]["width"]
        assert 0 <= place["y"] <= state["board"]["height"]
    for _ in range(3):
        reply = client.post(f"/api/sessions/{state['id']}/hint", json={"step": state["step"], "policy": "random"})
        told = reply.json()
        assert told["action"] in [move[0] for move in state["moves"]]
        assert told["text"]
        state = play(client, state, told["action"])
    assert state["last"] == told["text"]


def without_names(told: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what differs from session to session."""
    return {name: value for name, value in told.items() if name not in ("id", "deal")}


@pytest.mark.compiled
@pytest.mark.parametrize("game_id", game_ids())
def test_nothing_that_leaves_the_server_depends_on_a_hidden_card(client, game_id):
    """Two sessions in positions that differ in the hidden cards alone give the same answers, word for word."""
    twins = [begin(client, game_id, 5), begin(client, game_id, 5)]
    desk = client.app.state.desk
    rng = np.random.default_rng(0)
    policy = "thumb" if "thumb" in desk.agents.names(game_id) else "flush-rank"
    for step in range(9):
        other = desk._live[twins[1]["id"]]
        other._env.determinize(1000 + step)
        other._seen = other._moves = None
        answers = []
        for twin in twins:
            name = f"/api/sessions/{twin['id']}"
            state = client.get(name).json()
            some = [move[0] for move in state["moves"][:20]]
            told = [without_names(state)]
            told.append(client.post(f"{name}/hint", json={"step": step, "policy": policy}).json())
            told.append(client.post(f"{name}/describe", json={"step": step, "actions": some}).json())
            if state["scores"] and step % 4 == 0:
                told.append(client.post(f"{name}/values", json={"step": step, "policy": policy}).json())
            answers.append(told)
        assert answers[0] == answers[1]
        legal = [move[0] for move in twins[0]["moves"]]
        if not legal:
            break
        action = int(rng.choice(legal))
        twins[0] = play(client, twins[0], action)
        # The other one goes on from the true cards, so that the same cards are turned.
        truth = desk._live[twins[0]["id"]]
        desk._live[twins[1]["id"]].replay(truth.actions)


def test_an_illegal_action_is_refused_in_words_and_the_game_goes_on(client):
    state = play(client, begin(client, **FIXED), 7)
    for action, words in ((7, "not legal here: place 8H in row 2, column 3"), (25, "outside 0 to 24"), (-1, "outside")):
        reply = client.post(f"/api/sessions/{state['id']}/moves", json={"action": action, "step": 1})
        assert reply.status_code == 422
        assert words in reply.json()["error"]
    for action in ("7", 7.0, True, None, [7], {}):
        reply = client.post(f"/api/sessions/{state['id']}/moves", json={"action": action, "step": 1})
        assert reply.status_code == 422
    assert client.get(f"/api/sessions/{state['id']}").json() == state
    assert play(client, state, 8)["step"] == 2


def test_a_page_that_is_out_of_date_is_told_how_the_game_stands(client):
    """Two tabs show the same game; the second one does not know of the first one's move."""
    state = begin(client, **FIXED)
    after = play(client, state, 0)
    reply = client.post(f"/api/sessions/{state['id']}/moves", json={"action": 1, "step": 0})
    assert reply.status_code == 409
    assert "out of date" in reply.json()["error"]
    assert reply.json()["state"] == after
    for body in ({"action": 1}, {"action": 1, "step": "1"}, {"action": 1, "step": True}):
        assert client.post(f"/api/sessions/{state['id']}/moves", json=body).status_code == 422


def test_undo_takes_the_last_move_back_and_no_more_than_there_are(client):
    start = begin(client, "Calculation-v0", 3)
    middle = play(client, start)
    end = play(client, middle)
    back = client.post(f"/api/sessions/{start['id']}/undo", json={"step": end["step"]}).json()
    assert back == middle
    back = client.post(f"/api/sessions/{start['id']}/undo", json={"step": 1}).json()
    assert back == start
    reply = client.post(f"/api/sessions/{start['id']}/undo", json={"step": 0})
    assert (reply.status_code, reply.json()["error"]) == (422, "there is no move to take back")


def test_games_and_matches_survive_a_restart(tmp_path):
    path = tmp_path / "games.sqlite3"
    with make_client(path) as client:
        game = play(client, play(client, begin(client, "Sultan-v0", 5, redeals=1)))
        match = start_match(client, 2, ("greedy", "random")).json()
        for _ in range(25):
            match = play(client, match)
        match = client.post(f"/api/sessions/{match['id']}/next", json={"step": 25, "round": 0}).json()
        match = play(client, match)
    with make_client(path) as client:
        assert client.get(f"/api/sessions/{game['id']}").json() == game
        assert client.get(f"/api/sessions/{match['id']}").json() == match
        assert play(client, game)["step"] == 3
        assert play(client, match)["step"] == 2


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        "null",
        "{}",
        '{"kind":"game","game":"PatiencePoker-v0","options":{},"deal":1,"actions":[40]}',
        '{"kind":"game","game":"PatiencePoker-v0","options":{},"deal":1,"actions":["x"]}',
        '{"kind":"game","game":"PatiencePoker-v0","options":{"placement":7},"deal":1,"actions":[]}',
        '{"kind":"game","game":"Nothing-v0","options":{},"deal":1,"actions":[]}',
        '{"kind":"game","game":"PatiencePoker-v0","options":{},"deal":-1,"actions":[]}',
        '{"kind":"match","game":"PatiencePoker-v0","options":{},"first":1,"deals":2,"opponents":["x"],"played":[]}',
        '{"kind":"match","game":"PatiencePoker-v0","options":{},"first":1,"deals":2,"opponents":["x"],"played":[[[]]]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_row_is_told_and_the_others_live(tmp_path, damage):
    path = tmp_path / "games.sqlite3"
    with make_client(path) as client:
        bad, good = begin(client), begin(client)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE sessions SET facts = ? WHERE id = ?", (damage, bad["id"]))
    file.close()
    with make_client(path) as client:
        reply = client.get(f"/api/sessions/{bad['id']}")
        assert reply.status_code == 500
        assert "damaged" in reply.json()["error"]
        assert play(client, good)["step"] == 1


def test_sessions_are_capped_in_number(tmp_path):
    with make_client(tmp_path / "kept.sqlite3", most=2, keep=60.0) as client:
        first, second = play(client, begin(client)), play(client, begin(client))
        reply = client.post("/api/sessions", json={"game": "PatiencePoker-v0"})
        assert reply.status_code == 503
        assert "2 games are in progress" in reply.json()["error"]
        assert play(client, first)["step"] == play(client, second)["step"] == 2
    with make_client(tmp_path / "swept.sqlite3", most=2, keep=0.0) as client:
        first, second = begin(client), begin(client)
        third = begin(client)
        assert client.get(f"/api/sessions/{first['id']}").status_code == 404
        assert play(client, second)["step"] == play(client, third)["step"] == 1


def test_games_that_nobody_plays_make_way_at_once(tmp_path):
    """A flood of games that are only begun neither keeps new ones out nor costs a game that is being played."""
    with make_client(tmp_path / "games.sqlite3", most=3, keep=3600.0) as client:
        mine = play(client, begin(client, **FIXED))
        match = play(client, start_match(client).json())
        for _ in range(5):
            latest = begin(client)
        idle = start_match(client).json()
        assert client.get(f"/api/sessions/{latest['id']}").status_code == 404
        newest = begin(client)
        assert client.get(f"/api/sessions/{idle['id']}").status_code == 404
        for kept, step in ((mine, 1), (match, 1), (newest, 0)):
            assert client.get(f"/api/sessions/{kept['id']}").json()["step"] == step


def test_sessions_grow_old(tmp_path):
    path = tmp_path / "games.sqlite3"
    with make_client(path) as client:
        state = begin(client)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE sessions SET used = used - 7200.0")
    file.close()
    with make_client(path, max_age=3600.0) as client:
        reply = client.get(f"/api/sessions/{state['id']}")
        assert (reply.status_code, "too old" in reply.json()["error"]) == (404, True)
        begin(client)
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT COUNT(*) FROM sessions").fetchone() == (1,)
    file.close()


def test_the_data_file_belongs_to_one_server_and_must_be_of_our_format(tmp_path):
    path = tmp_path / "games.sqlite3"
    store = Store(path, 10, DAY, 0.0)
    with pytest.raises(StoreError, match="another server uses it"):
        Store(path, 10, DAY, 0.0)
    store.close()
    store.close()
    Store(path, 10, DAY, 0.0).close()
    (tmp_path / "text").write_text("no database, " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path / "text", 10, DAY, 0.0)
    with sqlite3.connect(tmp_path / "other.sqlite3") as other:
        other.execute("CREATE TABLE something (x)")
    other.close()
    with pytest.raises(StoreError, match="something else"):
        Store(tmp_path / "other.sqlite3", 10, DAY, 0.0)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / "text" / "below", 10, DAY, 0.0)


def test_a_store_keeps_what_it_is_given(tmp_path):
    store = Store(tmp_path / "games.sqlite3", 1, DAY, 60.0)
    store.add("a", {"x": 1})
    with pytest.raises(FullError):
        store.add("b", {"x": 2})
    store.change("a", {"x": 3})
    assert store.find("a") == {"x": 3}
    with pytest.raises(StoreError, match="no longer"):
        store.change("b", {})
    assert store.find("b") is None
    store.close()


def test_bodies_are_json_of_bounded_size_and_depth(client):
    def send(content: bytes, kind: str = "application/json") -> Any:
        return client.post("/api/sessions", content=content, headers={"content-type": kind})

    assert send(b'{"game":"Sultan-v0"}').status_code == 201
    assert send(b'{"game":"Sultan-v0"}', "text/plain").status_code == 415
    assert send(b'{"game":"Sultan-v0"}', "application/x-www-form-urlencoded").status_code == 415
    big = send(b'{"game":"' + b"x" * guard.MOST_BYTES + b'"}')
    assert (big.status_code, "larger than 65536" in big.json()["error"]) == (413, True)
    deep = send(b'{"game":' + b"[" * 30_000 + b"]" * 30_000 + b"}")
    assert (deep.status_code, "nested" in deep.json()["error"]) == (422, True)
    assert send(b'{"game":"[[[[[[[[[[[[[[[[[[[[[[[[[[[\\"[[[["}').status_code == 422
    for content in (b"", b"{", b"\xff\xfe", b"nonsense", b"[]", b"7", b'{"game":NaN}', b'{"game":"Sultan-v0","x":1}'):
        assert send(content).status_code == 422, content
    assert client.post("/api/sessions", json={"game": "Sultan-v0", "options": {"redeals": -1}}).status_code == 422
    assert client.post("/api/sessions", json={"game": "Sultan-v0", "options": {"nothing": 1}}).status_code == 422
    assert client.post("/api/sessions", json={"game": "Sultan-v0", "options": []}).status_code == 422
    for deal in (-1, 2**64, "x", "1.5", True, [], "9" * 30):
        assert client.post("/api/sessions", json={"game": "Sultan-v0", "deal": deal}).status_code == 422, deal
    assert begin(client, deal=2**64 - 1)["deal"] == str(2**64 - 1)


def test_a_body_that_is_sent_in_parts_is_counted_too(client):
    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    reply = client.post("/api/sessions", content=parts(), headers={"content-type": "application/json"})
    assert reply.status_code == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"origin": BASE}, 201),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 201),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8000", "origin": "http://evil.example:8000"}, 421),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, 201),
        ({"host": "[::1]:8000", "origin": "http://[::1]:8000"}, 201),
        ({"host": "games.home:8000", "origin": "http://games.home:8000"}, 201),
        ({"host": ""}, 421),
    ],
)
def test_requests_of_other_sites_and_under_other_names_are_refused(tmp_path, headers, status):
    with make_client(tmp_path / "games.sqlite3", hosts=["games.home"]) as client:
        reply = client.post("/api/sessions", json={"game": "Sultan-v0"}, headers=headers)
        assert reply.status_code == status
        if status != 201:
            assert reply.json()["error"]
            assert client.app.state.desk.store._file.execute("SELECT COUNT(*) FROM sessions").fetchone() == (0,)


def test_another_site_can_neither_read_a_game_nor_be_told_that_it_may(client):
    state = begin(client)
    reply = client.get(f"/api/sessions/{state['id']}", headers={"sec-fetch-site": "cross-site"})
    assert reply.status_code == 403
    assert "deal" not in reply.text
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    assert not any(name.startswith("access-control") for name in client.options("/api/sessions", headers=asked).headers)
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to a deal


def test_every_answer_carries_the_security_headers_and_no_cookie(client):
    state = begin(client)
    for path in ("/", "/page.js", "/style.css", "/cards.svg", f"/api/sessions/{state['id']}", "/nothing", "/api/games"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "set-cookie" not in headers
    page = client.get("/").text
    assert "style=" not in page
    assert "onclick" not in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/..%2fserver.py",
        "/%2e%2e/%2e%2e/server.py",
        "/static/../server.py",
        "/static/page.js",
        "//etc/passwd",
        "/page.js/../../server.py",
        "/page.js%00.html",
        "/..\\server.py",
        "/server.py",
        "/api/sessions/..%2f..%2fserver.py",
        "/api/sessions/%00",
        "/docs",
        "/openapi.json",
        "/redoc",
    ],
)
def test_no_path_leads_to_another_file(client, path):
    reply = client.get(BASE + path)
    assert reply.status_code == 404
    assert "error" in reply.json()


def test_pages_are_not_sent_again_when_they_have_not_changed(client):
    first = client.get("/page.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = client.get("/page.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    cards = client.get("/cards.svg").text
    assert all(f'id="card-{name}"' in cards for name in ("AS", "TH", "KC", "back", "none"))


def test_a_game_can_be_taken_home_and_replayed_step_by_step(client, tmp_path):
    state = begin(client, "Calculation-v0", 2**63 + 5)
    seen = [state]
    for _ in range(6):
        state = play(client, state)
        seen.append(state)
    record = client.get(f"/api/sessions/{state['id']}/record").json()
    assert record["deal"] == 2**63 + 5
    for step, then in enumerate(seen):
        told = client.post("/api/replays", json={"record": record, "step": step}).json()
        assert (told["table"], told["counters"], told["steps"]) == (then["table"], then["counters"], 6)
        assert told["next"] == (seen[step + 1]["last"] if step < 6 else "")
    # The terminal goes on with the page's game, and the page replays the terminal's.
    (tmp_path / "game.json").write_text(client.get(f"/api/sessions/{state['id']}/record").text)
    session = terminal.load_game(tmp_path / "game.json")
    assert session.actions == record["actions"]
    session.undo(2)
    terminal.save_game(session, tmp_path / "shorter.json")
    shorter = json.loads((tmp_path / "shorter.json").read_text())
    assert client.post("/api/replays", json={"record": shorter}).json()["table"] == seen[4]["table"]
    assert client.post("/api/replays", json={"record": record}).json()["step"] == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"game": "Chess-v0"}, "there is no game"),
        ({"game": 7}, "named by a string"),
        ({"options": {"redeals": "many"}}, "redeals"),
        ({"options": None}, "options are an object"),
        ({"deal": -3}, "outside"),
        ({"deal": 1.5}, "whole number"),
        ({"actions": "no"}, "list of whole numbers"),
        ({"actions": [True]}, "list of whole numbers"),
        ({"actions": [9, 9, 999]}, "action 3 of the record: action 999 lies outside"),
        ({"actions": [10]}, "action 1 of the record: not legal here"),
        ({"actions": [9] * 10_001}, "at most 10000"),
    ],
)
def test_a_record_that_cannot_have_been_played_is_refused(client, change, words):
    record = {"game": "Sultan-v0", "options": {}, "deal": 1, "actions": [9, 9], "version": "0.1.0", **change}
    reply = client.post("/api/replays", json={"record": record})
    assert reply.status_code == 422
    assert words in reply.json()["error"]
    for lacking in ({}, [], None, 7, {"game": "Sultan-v0"}):
        assert client.post("/api/replays", json={"record": lacking}).status_code == 422
    for step in (-1, 3, 1.5, "1"):
        good = {"game": "Sultan-v0", "options": {}, "deal": 1, "actions": [9, 9]}
        assert client.post("/api/replays", json={"record": good, "step": step}).status_code == 422


def start_match(client: TestClient, deals: int = 2, opponents: tuple[str, ...] = ("greedy", "flush-rank")) -> Any:
    wanted = {"game": "PatiencePoker-v0", "options": FIXED, "deal": 30, "deals": deals, "opponents": list(opponents)}
    return client.post("/api/matches", json=wanted)


def test_a_match_calls_the_same_cards_to_all_and_adds_up_the_deals(client):
    state = start_match(client).json()
    scores = []
    for turn in range(2):
        assert (state["round"], state["deal"]) == (turn, str(30 + turn))
        for step in range(25):
            assert state["step"] == step
            called = state["table"]["hand"]
            state = play(client, state)
            for player in state["players"]:
                laid = sorted(card for name, cards in player["table"].items() if name[0] == "r" for card in cards)
                assert len(laid) == step + 1
                assert called[0] in laid
                assert player["table"]["hand"] == state["table"]["hand"]
        assert state["dealOver"]
        scores.append([player["score"] for player in state["players"]])
        assert [player["total"] for player in state["players"]] == np.sum(scores, axis=0).tolist()
        reply = client.post(f"/api/sessions/{state['id']}/next", json={"step": 25, "round": turn})
        if turn == 0:
            assert reply.status_code == 200
            state = reply.json()
        else:
            assert (reply.status_code, "last deal" in reply.json()["error"]) == (409, True)
    assert state["matchOver"]
    assert state["message"].startswith("The match is")
    assert [deal["scores"] for deal in state["history"]] == scores[:1]
    lone = Play(get_game("PatiencePoker-v0"), get_game("PatiencePoker-v0").check_options(FIXED), 31)
    policy = make_policy("flush-rank", "PatiencePoker-v0")
    while not lone.over:
        lone.play(int(policy.act(lone.turn())[0]))
    assert lone.total == state["players"][2]["score"]  # it plays as it does alone


def test_a_match_refuses_what_its_deal_does_not_allow(client):
    state = play(client, start_match(client).json(), 3)
    name = f"/api/sessions/{state['id']}"
    assert client.post(f"{name}/next", json={"step": 1, "round": 0}).status_code == 409
    assert client.post(f"{name}/undo", json={"step": 1}).status_code == 422
    assert client.post(f"{name}/moves", json={"step": 1, "round": 1, "action": 4}).status_code == 409
    illegal = client.post(f"{name}/moves", json={"step": 1, "round": 0, "action": 3})
    assert (illegal.status_code, "not legal here" in illegal.json()["error"]) == (422, True)
    assert client.get(name).json() == state
    for deals, opponents in ((0, ("greedy",)), (101, ("greedy",)), (2, ()), (2, ("nobody",)), (2, ("greedy",) * 5)):
        assert start_match(client, deals, opponents).status_code == 422
    other = {"game": "Sultan-v0", "options": {}, "deals": 1, "opponents": ["thumb"]}
    assert client.post("/api/matches", json=other).status_code == 422
    series = {"game": "PatiencePoker-v0", "options": {"target": 100}, "deals": 1, "opponents": ["greedy"]}
    assert client.post("/api/matches", json=series).status_code == 422


class Cheat(Policy):
    """Chooses what is never legal."""

    name = "cheat"

    def act(self, turn: Turn) -> np.ndarray:
        return np.full(len(turn), -1)


def test_an_agent_that_fails_stops_no_match(client):
    state = start_match(client).json()
    desk = client.app.state.desk
    game = get_game("PatiencePoker-v0")
    policy, lock = desk.agents.get(game, game.check_options(FIXED), "greedy")
    desk.agents._made["PatiencePoker-v0", "greedy"] = Cheat(), lock
    body = {"action": 0, "step": 0, "round": 0}
    reply = client.post(f"/api/sessions/{state['id']}/moves", json=body)
    assert (reply.status_code, "'cheat' chose action -1" in reply.json()["error"]) == (500, True)
    assert client.get(f"/api/sessions/{state['id']}").json() == state
    desk.agents._made["PatiencePoker-v0", "greedy"] = policy, lock
    assert play(client, state, 0)["step"] == 1


@pytest.mark.compiled  # making the learned ones takes long without
def test_opponents_are_those_that_can_play_under_the_options(client):
    told = client.post("/api/opponents", json={"game": "PatiencePoker-v0", "options": {"scoring": "english"}}).json()
    found = {one["name"]: one["fault"] for one in told["opponents"]}
    assert found["greedy"] == found["flush-rank"] == found["random"] == ""
    assert "sb3" not in found
    assert "thumb" not in found  # another name of flush-rank


def test_the_value_of_the_last_cell_is_the_score_and_all_values_see_what_the_player_sees(client):
    game = get_game("PatiencePoker-v0")
    hand = Play(game, game.check_options(FIXED), 17)
    for action in range(24):
        hand.play(action)
    policy = make_policy("greedy", game.id)
    values = cell_values(policy, hand.turn(), hand.total)
    hand.play(24)
    assert values.values == {24: hand.total}
    assert values.errors == {24: 0.0}


class Oracle(Policy):
    """Tells values of its own: the number of each cell, and nothing of the first."""

    name = "oracle"

    def act(self, turn: Turn) -> np.ndarray:
        return turn.masks.argmax(axis=1)

    def values(self, turn: Turn) -> np.ndarray:
        """Return the number of each action."""
        told = np.tile(np.arange(turn.masks.shape[1], dtype=float), (len(turn), 1))
        told[:, 0] = -np.inf
        return told


def test_a_policy_that_has_values_is_asked_for_them():
    game = get_game("PatiencePoker-v0")
    hand = Play(game, game.check_options(FIXED), 17)
    hand.play(3)
    values = cell_values(Oracle(), hand.turn(), 10.0)
    assert values.values == {cell: float(cell) for cell in range(1, 25) if cell != 3}
    assert values.errors == {}


def test_values_are_for_cells_that_score(client):
    state = begin(client, "Sultan-v0", 1)
    reply = client.post(f"/api/sessions/{state['id']}/values", json={"step": 0, "policy": "random"})
    assert (reply.status_code, "no cells that score" in reply.json()["error"]) == (422, True)
    state = begin(client, **FIXED)
    for seat in (1, -1, "0", True):
        body = {"step": 0, "policy": "greedy", "seat": seat}
        assert client.post(f"/api/sessions/{state['id']}/values", json=body).status_code == 422
    told = client.post(f"/api/sessions/{state['id']}/hint", json={"step": 0, "policy": "nobody"})
    assert (told.status_code, "choose random" in told.json()["error"]) == (422, True)


def test_a_failed_write_leaves_the_game_as_it_is_stored(client, monkeypatch):
    state = begin(client, **FIXED)
    desk = client.app.state.desk

    def full(name: str, facts: dict[str, Any]) -> None:
        raise StoreError("the data file cannot be written: disk full")

    monkeypatch.setattr(desk.store, "change", full)
    reply = client.post(f"/api/sessions/{state['id']}/moves", json={"action": 0, "step": 0})
    assert (reply.status_code, "disk full" in reply.json()["error"]) == (500, True)
    monkeypatch.undo()
    assert client.get(f"/api/sessions/{state['id']}").json() == state


def test_every_game_has_an_adviser_that_needs_nothing(client):
    for game in client.get("/api/games").json()["games"]:
        assert game["adviser"] == ("flush-rank" if game["id"] == "PatiencePoker-v0" else "thumb")
        assert game["adviser"] in game["policies"]
        assert game["about"]


@pytest.mark.parametrize("game_id", game_ids())
def test_forms_offer_what_the_options_allow(game_id):
    game = get_game(game_id)
    for option in game.options:
        field = form_field(option)
        assert field["kind"] in ("choice", "number")
        for value in field.get("choices", []):
            assert option.check(value) == value
        if field["kind"] == "number":
            for value in (field["low"], field["high"], *field["also"]):
                assert option.check(value) == value


def test_a_game_that_ends_too_late_is_cut(monkeypatch):
    monkeypatch.setattr(sessions, "MOST_ACTIONS", 3)
    game = get_game("PatiencePoker-v0")
    hand = Play(game, game.check_options({}), 1)
    for _ in range(3):
        hand.play(hand.moves[0].action)
    with pytest.raises(Refusal, match="the most that are kept"):
        hand.play(hand.moves[0].action)


def test_a_replay_that_fails_leaves_the_game_where_it_was():
    hand, rest = play_of_record({"game": "Sultan-v0", "options": {}, "deal": 1, "actions": [9, 9]}, 1)
    assert rest == [9]
    before = hand.view()
    with pytest.raises(Refusal):
        hand.replay([9, 10])
    assert hand.view() == before


def test_a_match_moves_all_seats_or_none():
    game = get_game("PatiencePoker-v0")
    match = Match(game, game.check_options(FIXED), 1, 1, ["greedy"])
    match.play([0, 0])
    with pytest.raises(Refusal):
        match.play([1, 0])
    assert [seat.actions for seat in match.seats] == [[0], [0]]


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    typer = pytest.importorskip("typer")
    from patience_env.serve import command

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(typer.Exit, match="1"):
        command.command(port=0, max_games=1, max_days=1.0)
    assert "pip install 'patience-env[serve]'" in capsys.readouterr().err


def test_a_further_policy_that_cannot_be_made_is_told_before_anything_is_served(tmp_path, capsys):
    typer = pytest.importorskip("typer")
    from patience_env.serve import command

    data = tmp_path / "games.sqlite3"
    for text, words in (("nobody", "there is no policy 'nobody'"), ("line:path=nowhere", "'nowhere'")):
        with pytest.raises(typer.Exit, match="1"):
            command.command(port=0, data=str(data), policy=[text], max_games=1, max_days=1.0)
        err = capsys.readouterr().err
        assert err.startswith(f"patience: error: --policy {text}: ")
        assert words in err
        assert not data.exists()
    assert command.fault_of("greedy") == ""
    assert command.fault_of("patience_env.agents:FlushRankPolicy") == ""


def test_json_round_trips_through_the_reader():
    for value in ({"a": [1, 'x"[{', None, True, 1.5]}, [], "text", 2**64):
        assert guard.read_json(json.dumps(value).encode()) == value
    with pytest.raises(guard.Refused, match="nested more than 16"):
        guard.read_json(b"[" * 17 + b"]" * 17)
    assert guard.read_json(b"[" * 16 + b"]" * 16) is not None


@contextmanager
def real_server(path: Path) -> Iterator[int]:
    """Run the server on a socket, in a thread; yield its port."""
    uvicorn = pytest.importorskip("uvicorn")
    app = server.create_app(Store(path, 10, DAY, 60.0), warm=())
    config = uvicorn.Config(app, port=0, http=guard.patient_protocol(), ws="none", log_level="critical")
    listening = config.bind_socket()
    listening.listen()
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join(30)
        listening.close()


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes or cuts the connection."""
    connection.settimeout(30)
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def drip(connection: socket.socket) -> None:
    """Send a head that never ends, line by line."""
    for _ in range(200):
        connection.sendall(b"x: y\r\n")
        time.sleep(0.05)


def test_slow_clients_are_cut_while_others_are_served(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(guard, "BODY_SECONDS", 1.0)
    with real_server(tmp_path / "games.sqlite3") as port:

        def connect() -> socket.socket:
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.settimeout(30)
            made.connect(("127.0.0.1", port))
            return made

        ask = b"GET /page.js HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        with connect() as silent, connect() as dripping, connect() as halting, connect() as greedy:
            dripping.sendall(ask[:-2])
            halting.sendall(
                b"POST /api/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                b"content-length: 100\r\n\r\n{"
            )
            greedy.sendall(ask.replace(b"page.js", b"cards.svg") * 200)  # asks for 10 MB and never reads
            with pytest.raises(OSError, match=r"."):
                drip(dripping)
            with connect() as good:
                good.sendall(ask[:-2] + b"connection: close\r\n\r\n")
                assert read_all(good).startswith(b"HTTP/1.1 200")
            assert read_all(halting).startswith(b"HTTP/1.1 408")
            assert read_all(silent) == b""
            time.sleep(2.5)  # it must have been cut before it begins to read
            answers = read_all(greedy).count(b"HTTP/1.1 200")
            assert 0 < answers < 200


def test_a_client_that_takes_its_answers_in_drops_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "TAKE_SECONDS", 2.0)
    ask = b"GET /cards.svg HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with real_server(tmp_path / "games.sqlite3") as port, socket.socket() as slow, socket.socket() as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", port))
        slow.sendall(ask * 400)
        end = time.monotonic() + 25
        with pytest.raises(ConnectionError):  # noqa: PT012
            while time.monotonic() < end:
                time.sleep(0.2)
                slow.recv(1024)
        quick.connect(("127.0.0.1", port))
        quick.sendall(ask[:-2] + b"connection: close\r\n\r\n")
        assert read_all(quick).startswith(b"HTTP/1.1 200")


STOPPED = """
import http.client, json, signal, sys, threading, time
from patience_env.serve import server
def compile_long(game):
    print("compiling", flush=True)
    time.sleep(120)
server._compile = compile_long
from patience_env.training.cli import main
main(["serve", "--port", "0", "--data", sys.argv[1]])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_stopped_while_it_compiles_answers_and_ends(tmp_path, number):
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "games.sqlite3")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().split()[1].rstrip("/").rpartition(":")[2])
        assert server.stdout.readline() == "compiling\n"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/api/sessions", '{"game": "Sultan-v0"}', {"content-type": "application/json"})
        assert server.stdout.readline() == "compiling\n"
        began = time.monotonic()
        server.send_signal(number)
        reply = connection.getresponse()
        assert (reply.status, json.loads(reply.read())["error"][:30]) == (503, "the server is being stopped; t")
        connection.close()
        assert server.wait(60) == (0 if number == signal.SIGINT else -number)
        assert time.monotonic() - began < 30  # five seconds, and what a busy machine adds
        assert "Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.communicate()
