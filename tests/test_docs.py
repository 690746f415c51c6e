"""The guides' code blocks run, page by page, and print what the pages say; the notebook is the first guide."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from blocks import ROOT, Block, blocks_of, commands, fences, run_alone, run_python

PAGES = sorted((ROOT / "docs").glob("*.md"))
GUIDES = [page for page in PAGES if any(block.language in ("python", "sh") for block in blocks_of(page))]


def run_sh(block: Block) -> None:
    """Run the `patience` commands of a block."""
    from typer.testing import CliRunner

    from patience_env.training.cli import app

    for arguments in commands(block):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{block.page}, line {block.line}: patience {arguments}\n{done.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_seen(page: Path) -> None:
    assert fences(page) == 2 * len(blocks_of(page))
    for block in blocks_of(page):
        assert block.language in ("python", "sh", "text", ""), f"{block.page}, line {block.line}: nothing runs this"
        if block.language == "sh":
            list(commands(block))


@pytest.mark.compiled
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "register_game" in page.read_text("utf-8"):
        done = run_alone(page, tmp_path)
        assert done.returncode == 0, done.stderr
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    left_out = []
    for block in blocks_of(page):
        if "--8<--" in block.text:  # a whole file, which has tests of its own
            continue
        if block.missing:
            left_out.append(f"line {block.line} needs {', '.join(block.missing)}")
        elif block.language == "python":
            if block.file is not None:
                Path(block.file).write_text(block.text, "utf-8")
            run_python(block, names)
        elif block.language == "sh":
            run_sh(block)
    if left_out:
        pytest.skip(f"not all of {page.name} ran: {'; '.join(left_out)}")


@pytest.mark.compiled
def test_the_loop_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import masked_ppo

    scores = masked_ppo.train(masked_ppo.Args(total_steps=32_000))[1]
    sys.modules.pop("masked_ppo")
    assert sum(scores[-3:]) / 3 > scores[0] + 5


def test_the_notebook_is_the_first_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import make_notebook

    written = (ROOT / "docs" / "first-steps.ipynb").read_text("utf-8")
    guide = (ROOT / "docs" / "first-steps.md").read_text("utf-8")
    assert written == make_notebook.notebook_text(guide), "run python docs/make_notebook.py"


@pytest.mark.compiled
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "docs" / "first-steps.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6
    names: dict[str, Any] = {"__name__": "__main__"}
    for i, cell in enumerate(cells):
        exec(compile(cell, f"first-steps.ipynb, cell {i + 1}", "exec"), names)
    assert {"deals", "results", "envs"} <= names.keys()
