"""The short form of what `make torture` does at length, and that its program tells what it found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from patience_env import __version__, jit
from patience_env.game import game_ids, get_game
from playing import scaled
from torture import digests, fuzz, fuzz_targets, kills, run, steps
from torture.report import Budget, Line, Section, TimeUpError, as_json, as_markdown, read_sections, settle

every_game = pytest.mark.parametrize("game_id", game_ids())
LOOPED = ("PatiencePoker-v0", "Sultan-v0")
SLOW_SECTIONS = ("processes", "kills", "files", "server", "simplex")


@every_game
@pytest.mark.parametrize("kind", list(steps.KINDS))
def test_random_steps(game_id: str, kind: str) -> None:
    if kind == "compiled" and game_id not in LOOPED:
        pytest.skip("its loop takes long to compile: make torture plays it")
    wanted = steps.SHORT[kind][0 if jit.JIT else 1]
    arguments: dict[str, Any] = {"games": scaled(64, 8)} if kind == "batched" else {}
    tally = steps.KINDS[kind](game_id, wanted, float("inf"), 5, **arguments)
    assert tally.steps >= wanted
    assert tally.faults == []
    assert (tally.refused, tally.wrong_masks, tally.torn, tally.differences, tally.illegal_taken) == (0, 0, 0, 0, 0)


@every_game
def test_a_missing_or_double_card_is_noticed(game_id: str) -> None:
    game = get_game(game_id)
    env = steps.PatienceEnv(game, illegal_action="raise")
    env.reset(seed=1)
    state = env.state_rows()
    assert steps.is_whole(game, state[0])
    name = {"Fortress-v0": "wall", "Paganini-v0": "board", "Nivernaise-v0": "flank"}.get(game_id)
    if name is None:
        name, first = steps.HIDDEN[game_id]
        place = first(state[0])
    else:
        place = int((state[0][name] != 0).argmax())
    state[0][name][place] = state[0][name][place] % 52 + 1
    assert not steps.is_whole(game, state[0])


def test_a_wrong_mask_is_noticed() -> None:
    env = steps.PatienceEnv("Sultan-v0", illegal_action="raise")
    env.reset(seed=1)
    mask, tally = env.action_masks(), steps.Tally()
    steps.check_position(env, tally, env.state_rows(), mask)
    assert tally.wrong_masks == 0
    mask[0] = not mask[0]
    tally = steps.Tally()  # which takes its first position through text
    steps.check_position(env, tally, env.state_rows(), mask)
    assert tally.wrong_masks == 1


@pytest.mark.parametrize("machine", list(fuzz.MACHINES))
def test_anything_in_any_order(machine: str) -> None:
    fuzz.drive(machine, scaled(25, 4), 11)


@pytest.mark.parametrize("target", list(fuzz_targets.TARGETS))
def test_parsers_take_any_bytes(target: str) -> None:
    count, faults = fuzz.mutate(target, 60.0, 1, scaled(400, 60))
    assert faults == []
    assert count > 20


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps(
            {"game": "Sultan-v0", "options": {}, "live": True, "sampling": 0, "random": {}, "deal": -1}
        ).encode(),
        json.dumps({"game": "Sultan-v0", "options": {}, "live": 1, "sampling": 0, "random": {}, "deal": 1}).encode(),
        json.dumps(
            {"game": "Sultan-v0", "options": {}, "live": True, "sampling": 2**64, "random": {}, "deal": 1}
        ).encode(),
    ],
)
def test_a_state_with_a_right_checksum_around_nonsense_is_refused(head: bytes) -> None:
    env, states, _ = fuzz_targets.subject(0)
    env.set_state(states[0])
    with pytest.raises(ValueError, match="no state that get_state"):
        env.set_state(fuzz_targets.sealed(head, b""))
    assert env.get_state() == states[0]


@pytest.mark.parametrize(
    "random",
    [
        {},
        {"bit_generator": "seed"},
        {"bit_generator": "BitGenerator"},
        {"bit_generator": "PCG64"},
        {"bit_generator": "PCG64", "state": 5},
    ],
)
def test_a_state_with_another_random_generator_is_refused(random: dict[str, Any]) -> None:
    env, states, _ = fuzz_targets.subject(0)
    env.set_state(states[0])
    head, record = fuzz_targets._parts(states[0])
    facts = {**json.loads(head), "random": random}
    with pytest.raises(ValueError, match="generator"):
        env.set_state(fuzz_targets.sealed(json.dumps(facts).encode(), record))
    assert env.get_state() == states[0]


def test_digests_are_the_golden_ones() -> None:
    golden = json.loads(digests.GOLDEN.read_text("utf-8"))["games"]
    for game_id in game_ids():
        if jit.JIT or game_id in ("PatiencePoker-v0", "Calculation-v0"):
            cards = digests.play_digests(game_id, digests.FEW, "cards")
            assert digests.joined(cards) == golden[game_id]["few"]
            assert digests.seed_digest(game_id) == golden[game_id]["seeds"]


def test_a_different_digest_is_told() -> None:
    golden = json.loads(digests.GOLDEN.read_text("utf-8"))["games"]
    assert digests.differences({"Sultan-v0": {"few": "x"}}, golden) == ["Sultan-v0 few"]
    assert digests.differences({"error": "no"}, golden) == ["no"]


def test_ways_and_games_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = json.loads(digests.GOLDEN.read_text("utf-8"))["games"]
    asked: list[tuple[list[str], dict[str, str]]] = []

    def ask(python: str, tree: Path | None, words: list[str], seconds: float | None, **variables: str) -> Any:
        asked.append((words, variables))
        return {name: {"few": golden[name]["few"]} for name in (words[-1:] if "--games" in words else game_ids())}

    monkeypatch.setattr(digests, "ask", ask)
    extra = {"ways": "plain", "games": "Sultan-v0"}
    first = digests.run(Budget(60.0, tmp_path, full=True, extra=extra))
    assert asked == [(["--whole", "--games", "Sultan-v0"], {"NUMBA_DISABLE_JIT": "1"})]
    extra = {"ways": "plain,one", "games": "Fortress-v0"}
    second = digests.run(Budget(60.0, tmp_path, full=True, extra=extra, previous=first.data))
    assert [(line.what.partition(": ")[2], line.found) for line in second.lines] == [
        ("without compilation, 1,000 games an id (2 of 9 ids)", "0 of 2"),
        ("a process with one thread", "0 of 9"),
    ]
    assert list(second.parts.values()) == [False, True, True]
    assert second.amount > first.amount


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_SECTIONS)
def test_the_short_form_of_a_section_holds(name: str, tmp_path: Path) -> None:
    section = import_module(f"torture.{name}").run(Budget(60.0, tmp_path, short=True))
    assert [line for line in section.lines if not line.held] == []
    assert section.lines or section.notes


def test_a_setting_is_shown_without_the_folders_of_this_machine() -> None:
    assert run.shown("Fortress-v0,Sultan-v0") == "Fortress-v0,Sultan-v0"
    assert run.shown(str(Path("one file").resolve())) == "'one file'"


def test_the_page_tells_every_line_and_keeps_earlier_sections(tmp_path: Path) -> None:
    section = Section("steps", "Steps", command="python x", when="today")
    section.check("nothing breaks", "0 of 5 | 6", True)
    section.check("all is well", "no", False)
    section.note("a note")
    section.tables.append([["a", "b"], ["1", "2"]])
    assert not section.held
    (tmp_path / "page.json").write_text(as_json({"steps": section}))
    again = read_sections(tmp_path / "page.json")
    assert again["steps"] == section
    assert again["steps"].lines[0] == Line("nothing breaks", "0 of 5 | 6", True)
    page = as_markdown(again.values())
    assert "| all is well | no | **NO** |" in page
    assert r"0 of 5 \| 6" in page
    assert "| 1 | 2 |" in page
    assert "`python x` (today" in page
    assert "without figures here" not in page
    assert "not been run for this page: kills, digests." in as_markdown([section], ["kills", "digests"])
    assert read_sections(tmp_path / "none.json") == {}


def made(amount: float, held: bool = True, version: str = "1", command: str = "python x") -> Section:
    section = Section("steps", "Steps", command=command, when="today, Python 3", version=version, amount=amount)
    section.check("nothing breaks", amount, held)
    return section


def test_a_shorter_run_keeps_the_figures_of_a_longer_one_and_is_named() -> None:
    long = made(1.0, command="python x --full")
    kept = settle(settle(long, made(0.1)), made(0.2))
    assert (kept.lines, kept.command) == (long.lines, long.command)
    assert kept.again == ["`python x` (today; 0 s)"]
    assert "Every line held again: `python x` (today; 0 s)." in as_markdown([kept])
    assert settle(kept, made(1.0, command="python y")).again == []


@pytest.mark.parametrize(
    ("known", "fresh"),
    [
        (None, made(0.1)),
        (made(0.1), made(0.1)),
        (made(0.1), made(0.2)),
        (made(1.0, version="0"), made(0.1)),
        (made(1.0), made(0.1, held=False)),
        (made(1.0, held=False), made(0.1)),
    ],
)
def test_no_old_figures_hide_news(known: Section | None, fresh: Section) -> None:
    assert settle(known, fresh) is fresh


def in_parts(command: str, *now: str) -> Section:
    section = made(1.0, command=command)
    section.parts, section.seconds = {"a": "a" in now, "b": "b" in now, "c": "c" in now}, 5.0
    return section


def test_a_run_of_one_part_joins_those_of_the_others() -> None:
    known = in_parts("python x")  # an older page does not say which run made which part
    known.when = "yesterday"
    first = in_parts("python x --set games=b", "b")
    first.sign(first.command, "today", "1", known)
    second = in_parts("python x --set games=c", "c")
    second.sign(second.command, "today", "1", first)
    assert second.made == {
        "a": ["python x", "yesterday", 5.0],
        "b": ["python x --set games=b", "today", 5.0],
        "c": ["python x --set games=c", "today", 5.0],
    }
    assert second.origin() == [
        "* `python x` (yesterday; 5 s)",
        "* `python x --set games=b`, `python x --set games=c` (today; 10 s)",
    ]
    whole = in_parts("python x", "a", "b", "c")
    whole.sign(whole.command, "today", "1", second)
    assert whole.origin() == ["`python x` (today; 5 s)"]


def test_one_kind_of_kills_joins_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "find_spec", lambda name: name == "sb3_contrib")
    monkeypatch.setattr(jit, "JIT", True)
    monkeypatch.setattr(kills, "kill_often", lambda job, count, *_: kills.Course(kills=count, finished=1))
    known = asdict(kills.Course(kills=20, finished=5))
    extra = {"jobs": "line"}
    section = kills.run(Budget(60.0, tmp_path, full=True, extra=extra, previous={"patience train": known}))
    assert section.parts == {"patience train": False, "patience train-value --kind line": True}
    assert section.data["patience train"] == known
    assert len(section.lines) == 2
    assert section.held
    assert section.amount == pytest.approx(2 / len(kills.JOBS))
    assert "Not killed for this page: patience train-value --kind value," in section.notes[-1]


def goes_on(process: int) -> bool:
    """Tell whether a process still runs after a while; one that ended may not have been noticed by its parent."""
    stat = Path(f"/proc/{process}/stat")
    for _ in range(50):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.1)
    return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes cannot be looked at here")
def test_a_section_that_takes_too_long_is_ended_with_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"

    def dawdle(budget: Budget) -> Section:
        section = Section("steps", "Steps")
        section.check("nothing breaks", 0, True)
        process = subprocess.Popen(["sleep", "600"])
        child.write_text(str(process.pid))
        process.wait()
        return section

    monkeypatch.setattr(steps, "run", dawdle)
    monkeypatch.setattr(run, "LEAST", 0.0)
    began = time.monotonic()
    section = run.run_section("steps", Budget(1.0, tmp_path / "work"))
    assert time.monotonic() - began < 1.0 + run.OVER + run.GRACE + 1.0
    assert section.lines == [Line("nothing breaks", "0", True)]
    assert section.notes == ["Its time was over before it came to its end."]
    assert not goes_on(int(child.read_text()))


def test_a_section_that_takes_too_long_can_tell_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(budget: Budget) -> Section:
        section = Section("steps", "Steps", data={"a": 1})
        with contextlib.suppress(TimeUpError):
            time.sleep(600)
        return section

    monkeypatch.setattr(steps, "run", stop)
    monkeypatch.setattr(run, "LEAST", 0.0)
    assert run.run_section("steps", Budget(0.1, tmp_path / "work")).data == {"a": 1}


def test_a_section_whose_process_dies_did_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "run", lambda budget: os.kill(os.getpid(), signal.SIGKILL))
    section = run.run_section("steps", Budget(60.0, tmp_path / "work"))
    assert [line.found for line in section.lines] == ["its process died"]


def test_the_page_of_a_run_names_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_by(budget: Budget) -> Section:
        assert budget.previous == {}
        section = Section("steps", "Steps", data={"a": 1})
        section.check("nothing breaks", 0, True)
        return section

    monkeypatch.setattr(steps, "run", pass_by)
    page = tmp_path / "page.md"
    stranger = made(1.0, version="another")
    page.with_suffix(".json").write_text(as_json({"steps": stranger}))
    monkeypatch.setattr("sys.argv", ["run.py", "--only", "steps", "--short", "--out", str(page)])
    assert run.main() == 0
    assert f"`python tests/torture/run.py --only steps --short` (patience-env {__version__}, " in page.read_text()
    assert read_sections(page.with_suffix(".json"))["steps"].data == {"a": 1}


def test_a_section_that_fails_is_a_line_that_did_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(budget: Budget) -> Section:
        raise RuntimeError("boom")

    monkeypatch.setattr(steps, "run", fail)
    section = run.run_section("steps", Budget(60.0, tmp_path))
    assert not section.held
    assert "boom" in section.lines[0].found
    bounded = run.run_section("steps", Budget(60.0, tmp_path / "work"))
    assert "boom" in bounded.lines[0].found
    left = run.run_section("steps", Budget(1.0, tmp_path))
    assert (left.lines, left.notes, left.amount) == ([], ["The sections before it left no time."], 0.0)
