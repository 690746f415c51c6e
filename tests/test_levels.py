"""The levels of the baselines: the printed table and the JSON say what evaluation says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("typer")

from typer import Typer
from typer.testing import CliRunner

from patience_env.deals import named_deals
from patience_env.training import levels
from patience_env.training.evaluate import evaluate

APP = Typer()
APP.command()(levels.main)
FEW = ["--deals", "smoke", "--first", "2", "--game", "Sultan-v0"]


def test_table_and_json_hold_what_evaluation_says(tmp_path: Path) -> None:
    file = tmp_path / "levels.json"
    done = CliRunner().invoke(APP, [*FEW, "--json", str(file)])
    assert done.exit_code == 0, done.output
    board = json.loads(file.read_text("utf-8"))
    assert (
        board["command"]
        == f"python -m patience_env.training.levels {' '.join(FEW[:-2])} --game Sultan-v0 --json {file}"
    )
    assert (board["deals"], board["first_deal"]) == ("smoke", int(named_deals("smoke")[0]))
    assert [(one["policy"], one["options"]["redeals"]) for one in board["entries"]] == [
        (policy, redeals) for redeals in (2, 1) for policy in ("random", "greedy", "thumb")
    ]
    again = evaluate("thumb", "Sultan-v0", named_deals("smoke", 2), options={"redeals": 1})
    last = board["entries"][-1]
    assert (last["mean"], last["win_rate"], last["deals"]) == (again.mean, again.win_rate, 2)
    assert levels.level(last) in done.output


@pytest.mark.parametrize("wrong", [["--deals", "none"], ["--first", "0"], ["--game", "None-v0"]])
def test_bad_input_is_refused(wrong: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(APP, [*FEW, *wrong, "--json", str(tmp_path / "levels.json")])
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())
