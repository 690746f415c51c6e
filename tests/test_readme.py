"""The README's examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from blocks import ROOT, Block, blocks_of, run_python

README = ROOT / "README.md"
EXAMPLES = [block for block in blocks_of(README) if block.language == "python"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.compiled
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"line {example.line}")
def test_example_runs(example: Block) -> None:
    if example.missing:
        pytest.skip(f"needs {', '.join(example.missing)}")
    run_python(example, {"__name__": "readme"})


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


def test_every_page_and_file_that_it_links_to_is_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text("utf-8"))
    assert len(links) >= 10
    for link in links:
        assert (ROOT / link).exists(), link
