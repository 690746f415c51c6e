"""The command line: what it prints, writes and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest

pytest.importorskip("typer")

import typer

import patience_env
from patience_env import jit
from patience_env.training.cli import main, read_options, time_text

POKER = "PatiencePoker-v0"
FEW = ["--deals", "smoke", "--first", "20" if jit.JIT else "3"]


class Ran:
    """What a command line printed, and its exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        self.code = stop.value.code
        self.out, self.err = capsys.readouterr()


@pytest.mark.parametrize("arguments", [["--help"], ["list"], []])
def test_help_and_list_load_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom patience_env.training.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print('torch' in sys.modules, 'stable_baselines3' in sys.modules, 'gymnasium' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.split()[-3:] == ["False", "False", "True"]


def test_list_shows_games_options_policies_and_deals(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "list")
    assert ran.code == 0
    for game_id in patience_env.game_ids():
        game = patience_env.get_game(game_id)
        assert f"{game_id}  {game.title}" in ran.out
        for option in game.options:
            assert option.name in ran.out
            assert option.help in ran.out
    assert "where a card may be placed: choose one of 'touching', 'fixed'" in ran.out
    assert "policies: random, greedy, flat, uct, sb3, model, ppo, flush-rank, thumb, line, value, search" in ran.out
    assert "test: 10,000 deals, 1000000 to 1009999" in ran.out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran(capsys, "--version").out == f"{patience_env.__version__}\n"


def test_evaluate_prints_a_table_and_writes_the_same_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    policies = ["--policy", "flush-rank", "--policy", "random:seed=3"]
    ran = Ran(capsys, "evaluate", POKER, *policies, *FEW, "--option", "placement=fixed", "--json", str(path))
    assert (ran.code, ran.err) == (0, "")
    data = json.loads(path.read_text())
    assert list(tmp_path.iterdir()) == [path]
    thumb, random = data["results"]
    assert data["env"] == POKER
    assert data["options"] == {"placement": "fixed", "scoring": "american", "target": None}
    assert (data["deals"], data["deal_count"], data["version"]) == ("smoke", int(FEW[-1]), patience_env.__version__)
    for result in (thumb, random):
        assert len(result["returns"]) == data["deal_count"]
        assert result["mean"] == pytest.approx(sum(result["returns"]) / data["deal_count"])
        assert result["moves"] == 25 * data["deal_count"]
        assert result["win_rate"] is None
        assert result["seconds_per_move"] >= 0
    assert random["paired"]["minus"] == "flush-rank"
    assert random["paired"]["difference"] == pytest.approx(random["mean"] - thumb["mean"])
    assert thumb["paired"] is None
    rows = {line.split("│")[1].strip(): line for line in ran.out.splitlines() if "│" in line}
    shown = rows["flush-rank"].split("│")[2].split()[0]
    assert shown == f"{thumb['mean']:.{len(shown.partition('.')[2])}f}"
    assert f"{random['paired']['difference']:+.0f}"[:3] in rows["random:seed=3"]
    assert ("tableaus to 500" in ran.out) == any(result["tableaus_to_500"] for result in data["results"])
    assert f"wrote {path}" in ran.out


def test_json_on_the_standard_output_stands_there_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "evaluate", POKER, "--policy", "flush-rank", *FEW, "--option", "target=60", "--json", "-")
    result = json.loads(ran.out)["results"][0]
    assert ran.code == 0
    assert (result["win_rate"], result["wilson_high"]) == (1.0, 1.0)
    assert 0 < result["wilson_low"] < 1
    assert result["tableaus_to_500"] is None


def test_one_deal_gives_valid_json_without_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "evaluate", POKER, "--policy", "random", "--policy", "greedy", "--first", "1", "--json", "-")
    data = json.loads(ran.out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert data["results"][0]["stderr"] is None
    assert data["results"][1]["paired"]["low"] is None


def test_options_are_read_as_json_where_they_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    table = {"pair": 0, "two pairs": 0, "triplets": 0, "straight": 0, "flush": 1, "full hand": 0, "four": 0}
    scoring = {**table, "straight flush": 1, "royal": 1}
    given = ["--option", f"scoring={json.dumps(scoring)}", "--option", "placement=fixed"]
    ran = Ran(capsys, "evaluate", POKER, "--policy", "flush-rank", *FEW, *given, "--json", "-")
    data = json.loads(ran.out)
    assert data["options"]["scoring"] == scoring
    assert all(points in range(11) for points in data["results"][0]["returns"])


def test_values_are_read_as_messages_name_them_too() -> None:
    given = ["a=None", "b=null", "c=True", "d=false", "e=none", "f=3", "g=NaN"]
    wanted = {"a": None, "b": None, "c": True, "d": False, "e": "none", "f": 3, "g": "NaN"}
    assert read_options(given) == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Nope-v0", "--policy", "greedy"], "there is no game 'Nope-v0': known are PatiencePoker-v0"),
        ([POKER], "Missing option '--policy'"),
        ([POKER, "--policy", "best"], "there is no policy 'best' for PatiencePoker-v0: choose random"),
        ([POKER, "--policy", "greedy:depth=2"], "policy 'greedy' cannot be made with depth=2"),
        ([POKER, "--policy", "nowhere.zip"], "there is no file 'nowhere.zip'"),
        (["Fortress-v0", "--policy", "patience_env.agents:FlushRankPolicy"], "plays PatiencePoker-v0, not Fortress-v0"),
        (
            [POKER, "--policy", "greedy", "--deals", "exam"],
            "there are no standard deals named 'exam': choose one of test",
        ),
        ([POKER, "--policy", "greedy", "--first", "10001"], "the test deals are 10000: asked for the first 10001"),
        ([POKER, "--policy", "greedy", "--first", "0"], "asked for the first 0"),
        ([POKER, "--policy", "greedy", "--first", "few"], "Invalid value for '--first'"),
        ([POKER, "--policy", "greedy", "--seed", "-1"], "Invalid value for '--seed'"),
        ([POKER, "--policy", "greedy", "--option", "fixed"], "option 'fixed' is not of the form KEY=VALUE"),
        ([POKER, "--policy", "greedy", "--option", "side=5"], "has no option 'side': its options are placement"),
        (
            [POKER, "--policy", "greedy", "--option", "placement=loose"],
            "placement='loose' is not allowed: choose one of",
        ),
        ([POKER, "--policy", "greedy", *["--option", "target=5"] * 2], "option 'target' is given twice"),
        ([POKER, "--policy", "greedy", "--option", 'scoring={"pair":1}'], "the scoring table lacks two pairs"),
        ([POKER, "--policy", "greedy", "--json", "none/result.json"], "'none/result.json' cannot be written"),
        ([POKER, "--policy", "greedy", "--json", "."], "'.' is no regular file"),
        ([POKER, "--policy", "greedy", "--fast"], "No such option: --fast"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_done(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: Any, **__: Any) -> None:
        pytest.fail("played although the input was bad")

    monkeypatch.setattr("patience_env.training.evaluate.evaluate", never)
    monkeypatch.chdir(tmp_path)
    given = arguments if "--json" in arguments else [*arguments, "--json", "result.json"]
    ran = Ran(capsys, "evaluate", *given)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("patience: error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_command_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "juggle")
    assert (ran.code, ran.err) == (2, "patience: error: No such command 'juggle'. (see patience --help)\n")


def test_a_module_in_the_working_folder_is_found_and_its_illegal_choice_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_players.py").write_text(
        "from patience_env.agents import Policy\n\n\n"
        "class Stubborn(Policy):\n    name = 'stubborn'\n\n    def act(self, turn):\n        return [0] * len(turn)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = ["--policy", "my_players:Stubborn", "--option", "placement=fixed", *FEW, "--json", "result.json"]
    ran = Ran(capsys, "evaluate", POKER, *given)
    assert ran.code == 1, ran.err
    assert ran.err.startswith("patience: error: policy 'my_players:Stubborn' chose the illegal action 0 (place ")
    assert "at move 2 of deal 3000000" in ran.err
    assert not (tmp_path / "result.json").exists()


def test_train_passes_its_arguments_to_the_training_module(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(env: str, steps: Annotated[int, typer.Option(help="How many.")] = 7, resume: bool = False) -> None:
        """Fit an agent."""
        print(env, steps, resume)

    module = ModuleType("patience_env.training.train")
    module.command = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "patience_env.training.train", module)
    assert Ran(capsys, "train", POKER, "--steps", "9", "--resume").out == f"{POKER} 9 True\n"
    helped = Ran(capsys, "train", "--help")
    assert helped.code == 0
    assert "patience train" in helped.out
    assert "How many." in helped.out
    wrong = Ran(capsys, "train", POKER, "--steps", "many")
    assert wrong.code == 2
    assert wrong.err.count("\n") == 1
    assert "Invalid value for '--steps'" in wrong.err


@pytest.mark.parametrize("message", ["no module named torch", "this needs pip install 'something'"])
def test_a_missing_package_is_told_in_one_line_with_the_pip_command(
    message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train() -> None:
        raise ImportError(message)

    module = ModuleType("patience_env.training.train")
    module.command = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "patience_env.training.train", module)
    ran = Ran(capsys, "train")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert ran.err.count("pip install") == 1
    assert message in ran.err


def test_durations_are_shown_in_the_unit_that_suits_them() -> None:
    assert [time_text(seconds) for seconds in (2.5, 0.0404, 1.2e-6, 0.0)] == ["2.5 s", "40.4 ms", "1.2 us", "0.0 us"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize(
    "words", ["list", "--help", "evaluate PatiencePoker-v0 --policy random --deals smoke --first 2 --json -"]
)
def test_what_is_printed_to_a_full_disk_is_one_line_on_stderr(words: str) -> None:
    command = [sys.executable, "-m", "patience_env.training.cli", *words.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "patience: error: [Errno 28] No space left on device\n")


@pytest.mark.skipif(os.name != "posix", reason="shells elsewhere close streams otherwise")
@pytest.mark.parametrize(
    ("closing", "words", "code"),
    [("<&-", "play Calculation-v0 --deal 3", 0), (">&-", "list", 0), ("2>&-", "evaluate nothing", 2)],
)
def test_streams_that_are_closed_break_nothing(closing: str, words: str, code: int) -> None:
    command = [sys.executable, "-m", "patience_env.training.cli", *words.split()]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
