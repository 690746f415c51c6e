"""The README's examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.compiled
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    code = EXAMPLES[number]
    for word, package in (("sb3", "sb3_contrib"), ("competition", "pettingzoo")):
        if word in code:
            pytest.importorskip(package)
    exec(compile(code, f"README.md example {number + 1}", "exec"), {"__name__": "readme"})


@pytest.mark.compiled
def test_commands_of_play_and_watch_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("typer", "torch", "pygame", "PIL"):
        pytest.importorskip(package)
    from typer.testing import CliRunner

    from patience_env.training.cli import app

    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^patience ((?:play|render) .*)$", README.read_text("utf-8"), re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command), input="1\nh\nu\nq\n")
        assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"game.json", "game.gif", "table.svg"}


def test_no_figure_is_left_to_be_filled_in() -> None:
    assert "@@" not in README.read_text("utf-8")
