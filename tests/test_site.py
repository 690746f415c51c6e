"""The documentation site builds without a warning, holds a page for each game, and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from blocks import ROOT
from patience_env.game import game_ids, get_game

pytestmark = pytest.mark.compiled  # once is enough, though nothing is compiled for it


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site into a folder."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install 'patience-env[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        *(["-P"] * getattr(sys.flags, "safe_path", False)),
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
    ]
    done = subprocess.run(
        [*command, str(folder)],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_game_has_its_page(site: Path) -> None:
    for game_id in game_ids():
        game = get_game(game_id)
        name = game.deal.__module__.rpartition(".")[2]
        page = (site / "games" / f"{name}.html").read_text("utf-8")
        headings = set(re.findall(r'<h2 id="([\w-]+)"', page))
        wanted = "description action-space observation-space starting-state rewards episode-end arguments rule-sheet"
        assert set(wanted.split()) <= headings
        assert (site / "games" / f"{name}.svg").read_text("utf-8").startswith("<svg")
        for option in game.options:
            assert f"<code>{option.name}</code>" in page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]* src="(https?:[^"]*)"', page.read_text("utf-8"))
        fetched += re.findall(r'<link[^>]* href="(https?:[^"]*)"', page.read_text("utf-8"))
        assert not fetched, f"{page.name} fetches {fetched}"


def test_the_reference_tells_of_the_public_names(site: Path) -> None:
    page = (site / "api.html").read_text("utf-8")
    for name in ("PatienceEnv", "PatienceVectorEnv", "make_policy", "evaluate", "register_game"):
        assert f">{name}<" in page
