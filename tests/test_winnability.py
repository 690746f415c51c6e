"""`patience solve` and `patience figures winnability`: what they print and write, going on after a kill, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("safetensors")

from patience_env.agents.solver import Solution
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.game import get_game
from patience_env.training import winnability
from patience_env.training.cli import main
from patience_env.training.evaluate import wilson
from patience_env.training.solve import told

LOST = 2000000  # a deal of Fortress that is lost after a few positions
FEW = ["--first", "4", "--game", "Fortress-v0", "--seconds", "30", "--policy", "thumb", "--quiet"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    """Run the command line; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code, *capsys.readouterr()


# -- patience solve -----------------------------------------------------------------------------------------------


def test_solve_tells_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "solve", "Fortress-v0", "--deal", str(LOST))
    assert code == 0
    assert out.startswith(f"Fortress-v0 deal {LOST}: lost: no line of play wins (")


@pytest.mark.compiled
def test_solve_prints_the_line_of_play(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    code, out, _ = run(capsys, "solve", "Fortress-v0", "--deal", "2000017", "--json", str(file))
    assert code == 0
    first, *lines = out.splitlines()
    answer = json.loads(file.read_text("utf-8"))
    assert first.startswith(f"Fortress-v0 deal 2000017: won in {len(lines)} moves (")
    assert (answer["status"], len(answer["moves"])) == ("won", len(lines))
    game = get_game("Fortress-v0")
    texts = told(game, game.check_options({}), 2000017, tuple(answer["moves"]))
    assert [line.split(". ", 1)[1] for line in lines] == texts
    assert texts[-1].endswith("to its foundation")


def test_solve_says_what_ended_an_unknown_search(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "solve", "Fortress-v0", "--deal", "2000002", "--positions", "10", "--json", "-")
    answer = json.loads(out)
    assert code == 3
    assert (answer["status"], answer["limit"], answer["moves"]) == ("unknown", "positions", [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["PatiencePoker-v0", "--deal", "1"], "only scores"),
        (["Chess-v0", "--deal", "1"], "there is no game 'Chess-v0'"),
        (["Fortress-v0", "--deal", "-1"], "deal -1 lies outside"),
        (["Fortress-v0", "--deal", "1", "--option", "lanes=2"], "no option 'lanes'"),
        (["Fortress-v0", "--deal", "1", "--seconds", "0"], "seconds=0"),
        (["Fortress-v0", "--deal", "1", "--json", "/nowhere/file"], "cannot be written"),
    ],
)
def test_solve_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, out, err = run(capsys, "solve", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_wrong_line_of_play_is_never_told() -> None:
    game = get_game("Fortress-v0")
    env = PatienceEnv(game)
    env.reset(options={"deal": LOST})
    illegal = int(env.action_masks().argmin())
    with pytest.raises(ValueError, match="wrong at move 1"):
        told(game, {}, LOST, (illegal,))
    with pytest.raises(ValueError, match="does not win"):
        told(game, {}, LOST, ())


# -- patience figures winnability ---------------------------------------------------------------------------------


def test_shares_come_from_the_letters() -> None:
    results = {
        "status": "WLLu",
        "seconds": [1.0, 0.5, 0.25, 60.0],
        "positions": [5, 4, 3, 9],
        "moves": [87, 0, 0, 0],
        "tried": {"3": [60.0, 4.0]},
        "policies": {"thumb": "+---"},
    }
    part = winnability.summary(results)
    assert (part["won"]["share"], part["lost"]["share"], part["unknown"]["share"]) == (0.25, 0.5, 0.25)
    assert part["lost"]["interval"] == wilson(2, 4)
    assert part["winnable"] == [wilson(1, 4)[0], wilson(2, 4)[1]]
    assert part["seconds"]["median"] == 0.5
    assert part["policies"]["thumb"]["wins"] == 1
    assert part["limits of unknown"] == [60.0, 4.0]
    part = winnability.summary({**results, "policies": {"thumb": "+--+", "greedy": "----"}})
    assert (part["won"]["share"], part["unknown"]["share"], part["resolved"]) == (0.5, 0.0, 0.75)
    assert part["winnable"] == [wilson(2, 4)[0], wilson(2, 4)[1]]
    assert part["policies"]["thumb"]["wins"] == 2


def test_variants_are_chosen_by_name_or_with_their_game() -> None:
    names = [case.name for case in winnability.chosen_cases(["Sultan-v0"])]
    assert names == ["Sultan-v0", "Sultan-v0 redeals=1"]
    assert [case.options for case in winnability.chosen_cases(["Sultan-v0 redeals=1"])] == [{"redeals": 1}]
    assert len(winnability.chosen_cases(None)) == len(winnability.all_cases()) >= 8
    with pytest.raises(ValueError, match="Chess-v0"):
        winnability.chosen_cases(["Chess-v0"])


def test_figures_are_written_and_taken_up_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[int] = []

    def answer(game: Any, states: Any, options: Any, **limits: Any) -> Solution:
        solved.append(int(states["deal"][0]))
        if len(solved) == 3:
            raise KeyboardInterrupt
        status: Any = "unknown" if solved[-1] % 2 else "lost"
        return Solution(status, (), 7, 0.5, "time" if status == "unknown" else "")

    deals = [int(deal) for deal in named_deals("test", 4)]
    monkeypatch.setattr(winnability, "solve_states", answer)
    monkeypatch.setattr(winnability, "SAVE_SECONDS", -1.0)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main(["figures", "winnability", "--out", str(tmp_path), *FEW])
    assert solved == deals[:3]
    # The third deal is solved again, the first two are kept.
    code, out, _ = run(capsys, "figures", "winnability", "--out", str(tmp_path), *FEW)
    assert code == 0
    assert str(tmp_path) in out
    assert solved == [*deals[:3], *deals[2:]]
    content = json.loads((tmp_path / "winnability.json").read_text("utf-8"))
    case = content["cases"]["Fortress-v0"]
    assert case["status"] == "".join("u" if deal % 2 else "L" for deal in deals)
    assert len(case["policies"]["thumb"]) == 4
    text = (tmp_path / "winnability.md").read_text("utf-8")
    assert "| `Fortress-v0` | 4 | 0.0% [0.0%, " in text
    assert (tmp_path / "winnability.png").read_bytes().startswith(b"\x89PNG")
    # More time: only what is unknown is tried anew.
    before = len(solved)
    run(capsys, "figures", "winnability", "--out", str(tmp_path), *FEW[:5], "60", *FEW[6:])
    assert solved[before:] == [deal for deal in deals if deal % 2]
    # Nothing is left to do within the same limits.
    before = len(solved)
    run(capsys, "figures", "winnability", "--out", str(tmp_path), *FEW)
    assert len(solved) == before


def test_what_an_older_solver_left_open_is_tried_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[int] = []

    def answer(game: Any, states: Any, options: Any, **limits: Any) -> Solution:
        solved.append(int(states["deal"][0]))
        return Solution("lost", (), 7, 0.5)

    deals = [int(deal) for deal in named_deals("test", 4)]
    case = {"status": "WuLu", "positions": [1] * 4, "seconds": [0.1] * 4, "moves": [9, 0, 0, 0], "policies": {}}
    case["tried"] = {"1": [60, 4], "3": [60, 4]}
    content = {"head": {"solver": 1}, "cases": {"Fortress-v0": case}}
    (tmp_path / "winnability.json").write_text(json.dumps(content))
    monkeypatch.setattr(winnability, "solve_states", answer)
    code, _, _ = run(capsys, "figures", "winnability", "--out", str(tmp_path), *FEW)
    assert code == 0
    assert solved == [deals[1], deals[3]]
    after = json.loads((tmp_path / "winnability.json").read_text("utf-8"))
    assert after["head"]["solver"] == winnability.SOLVER
    assert after["cases"]["Fortress-v0"]["status"] == "WLLL"
    assert after["cases"]["Fortress-v0"]["tried"] == {}


def test_a_policy_that_wins_a_lost_deal_is_an_error(tmp_path: Path) -> None:
    store = winnability.Store(tmp_path)
    case = winnability.chosen_cases(["Sultan-v0 redeals=1"])[0]
    store.case(case).update({"status": "WL", "policies": {"thumb": "-+"}})
    with pytest.raises(ValueError, match="proved lost"):
        winnability.play_deals(case, store, 2, ["thumb"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--game", "Chess-v0"], "no winnability of 'Chess-v0'"),
        (["--first", "0"], "asked for the first 0"),
        (["--seconds", "0"], "--seconds 0"),
    ],
)
def test_figures_refuse(capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], said: str) -> None:
    code, _, err = run(capsys, "figures", "winnability", "--out", str(tmp_path), *arguments)
    assert code == 2
    assert said in err
    assert not list(tmp_path.iterdir())


def test_two_commands_do_not_write_one_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    store = winnability.Store(tmp_path)
    code, _, err = run(capsys, "figures", "winnability", "--out", str(tmp_path), *FEW)
    assert code == 2
    assert "another command writes figures" in err
    store.close()
    winnability.Store(tmp_path).close()


@pytest.mark.parametrize(("text", "said"), [("{", "damaged"), ('{"head": {"solver": -1}}', "another solver")])
def test_figures_leave_files_that_are_not_theirs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "winnability.json"
    file.write_text(text)
    code, _, err = run(capsys, "figures", "winnability", "--out", str(tmp_path), *FEW)
    assert code == 2
    assert said in err
    assert file.read_text() == text
