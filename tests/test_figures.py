"""`patience figures`: what is counted, the settled table, going on after a kill."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")
pytest.importorskip("typer")

from patience_env.agents.line_table import MODELS
from patience_env.env import PatienceEnv
from patience_env.games.patience_poker import lines
from patience_env.games.poker_hands import CATEGORIES, SCORED, TABLES, category
from patience_env.training import figures, tables
from patience_env.training.cli import main

POKER = "PatiencePoker-v0"


def test_wilson_intervals_hold_the_share_and_stay_within_bounds() -> None:
    for hits, count in ((0, 10), (10, 10), (3, 10), (1, 100_000)):
        low, high = figures.wilson(hits, count)
        assert 0 <= low <= hits / count <= high <= 1
    # Agresti and Coull (1998) give 0.722 and 1 for 10 of 10.
    assert figures.wilson(10, 10)[0] == pytest.approx(0.722, abs=0.001)


def test_series_are_counted_tableau_by_tableau() -> None:
    assert figures.tableaus_to(np.array([100, 400, 250, 249, 1, 600, 3]), 500) == [2, 3, 1]


@pytest.mark.compiled
@pytest.mark.parametrize("placement", figures.PLACEMENTS)
def test_hands_and_scores_are_those_of_the_policy_s_own_games(placement: str) -> None:
    scores, hands = figures.play_all(placement, "english", 20, lambda *_: None)
    assert (hands.sum((1, 2)) == 10).all()
    from patience_env.agents.policy import make_policy

    policy = make_policy("value", POKER)
    env = PatienceEnv(POKER, placement=placement, scoring="english")
    agreed = 0
    for i in range(20):
        env.reset(options={"deal": figures.FIRST_DEAL + i})
        total, over = 0.0, False
        while not over:
            _, reward, over, _, _ = env.step(policy.choose(env))
            total += float(reward)
        if total != scores[i]:
            continue  # the policy turned the board
        agreed += 1
        counts = np.zeros((2, 10), np.int64)
        for name, cards in lines(env.state_rows()[0]):
            counts[int(name.startswith("column")), category(*cards)] += 1
        assert np.array_equal(counts, hands[i])
    assert agreed >= 15


def parts(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "parts.json").read_text()))


@pytest.mark.compiled
def test_the_search_s_games_are_counted_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SEARCHED", 2)
    scores, hands = figures.play_searching("fixed", "english", 3, 4, tmp_path, lambda *_: None)
    assert (hands.sum((1, 2)) == 10).all()
    points = np.array([0, *TABLES["english"]])
    assert np.array_equal(hands.sum(1) @ points, scores)
    kept = sorted(path.name for path in tmp_path.iterdir())
    player = figures.as_name(figures.played_by("fixed", "english", "search:simulations=4,depth=1"))
    assert kept == [f"fixed-english-{player}-{deals}.npz" for deals in ("0-2", "2-3")]
    (tmp_path / kept[1]).unlink()
    again, same = figures.play_searching("fixed", "english", 3, 4, tmp_path, lambda *_: None)
    assert np.array_equal(again, scores)
    assert np.array_equal(same, hands)


@pytest.mark.compiled
@pytest.mark.slow
def test_figures_are_made_and_go_on_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "SETTLING_GAMES", 5000)
    monkeypatch.setattr(figures, "SETTLING_DEALS", 2000)
    monkeypatch.setattr(figures, "SETTLING_ROUNDS", 2)
    made = []

    def show(name: str, _: float) -> None:
        made.append(name)
        if name == "touching american-alternate":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        figures.poker_figures(tmp_path, 200, 0, 0, show, searched=60, simulations=3)
    before = parts(tmp_path)
    assert "play fixed american" in before
    made.clear()
    monkeypatch.setattr(figures, "SEARCHED", 35)
    monkeypatch.setattr(figures, "BUDGETS", (8, 16))
    told = lambda name, _: made.append(name)  # noqa: E731
    found = figures.poker_figures(tmp_path, 200, 8, 0, told, searched=60, simulations=3)
    assert "fixed american" not in made
    assert found["play fixed american"] == before["play fixed american"]
    for name, one in found.items():
        if name.startswith("play "):
            assert sum(line["share_of_lines"] for line in one["lines"].values()) == pytest.approx(1)
            assert sum(one["histogram"]["counts"]) == 200
            assert set(one["lines"]) == set(CATEGORIES)
    for name in ("searched touching english 3 60", "searched fixed american 3 60"):
        assert found[name]["deals"] == 60
        assert found[name]["simulations"] == 3
    assert [part["deals"] for part in found["growth fixed english"]] == [8, 8, 8]
    assert set(found["settled fixed"]["points"]) == set(SCORED)
    assert len(found["settled fixed"]["course"]) == 2
    known = figures.played_by
    made.clear()
    other = lambda *who: known(*who) + " trained anew" * (who[:2] == ("touching", "english"))  # noqa: E731
    monkeypatch.setattr(figures, "played_by", other)
    assert figures.poker_figures(tmp_path, 200, 8, 0, told, searched=60, simulations=3)["players"] != found["players"]
    assert set(made) == {"touching english", "search touching english"}
    text = (tmp_path / "poker.md").read_text()
    assert f"{found['play touching english']['score']['mean']:.2f}" in text
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert len(pictures) == 13
    assert set(re.findall(r"\]\((.*?)\)", text)) == pictures
    with pytest.raises(SystemExit) as stop:
        main(["figures", "poker", "--out", str(tmp_path), "--deals", "300", "--quiet"])
    assert stop.value.code == 2
    assert "belongs to other figures" in capsys.readouterr().err


def test_held_out_tables_stay_the_same_and_within_the_range_of_random_ones() -> None:
    found = tables.held_out_tables(20)
    assert found[:3] == tables.held_out_tables(3)
    points = np.array([list(table.values()) for table in found])
    assert points.shape == (20, 9)
    assert points.min() < -100
    assert points.max() > 100
    assert (points >= -128).all()
    assert (points <= 127).all()


def write(arguments: list[str], out: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["figures", "tables", "--out", str(out), "--quiet", *arguments])
    assert not stop.value.code


@pytest.mark.compiled
def test_the_figures_of_each_placement_have_files_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--tables", "1", "--deals", "20", "--seconds", "0.2", "--long-tables", "0"]
    write(settings, tmp_path)
    fixed = {path.name: path.read_bytes() for path in tmp_path.glob("tables.*")}
    assert set(fixed) == {"tables.md", "tables.json", "tables.png"}
    write(["--placement", "touching", *settings], tmp_path)
    assert "tables-touching.md, tables-touching.json and tables-touching.png" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in tmp_path.glob("tables.*")} == fixed
    text = (tmp_path / "tables-touching.md").read_text()
    assert "--placement touching" in text
    assert "touching placement" in text
    assert "(tables-touching.png)" in text
    found = json.loads((tmp_path / "tables-touching.json").read_text())
    assert found["head"]["placement"] == "touching"
    assert found["tables"][0]["points"] == json.loads(fixed["tables.json"])["tables"][0]["points"]


@pytest.mark.compiled
def test_tables_are_trained_for_played_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from patience_env.training.value_training import Plan, ValueTraining

    network = tmp_path / "network"
    ValueTraining(network, Plan("random", "fixed", 500, width=16, attempts=1, teacher="")).run()
    out = tmp_path / "out"
    settings = ["--deals", "50", "--seconds", "0.5", "--long", "1", "--long", "0.2", "--long-tables", "1"]
    settings += ["--value", str(network)]
    write(["--tables", "1", *settings], out)
    first = json.loads((out / "tables.json").read_text())
    results = first["tables"][0]["results"]
    assert set(results) == {"line", "any table", "greedy", "random"}
    assert results["line"]["mean"] > results["random"]["mean"]
    course = first["courses"]["1"]
    assert [part["seconds"] for part in course] == [0.2, 0.5, 1.0]
    assert course[0]["games"] < course[1]["games"] == first["tables"][0]["games"] < course[2]["games"]
    assert course[1]["mean"] == results["line"]["mean"]
    assert course[0]["short"] == pytest.approx(1 - course[0]["mean"] / course[2]["mean"])
    assert course[2]["short"] == 0
    write(["--tables", "2", *settings], out)
    both = json.loads((out / "tables.json").read_text())
    assert both["courses"] == first["courses"]
    assert both["tables"][0] == first["tables"][0]
    text = (out / "tables.md").read_text()
    assert f"| {both['tables'][1]['results']['line']['mean']:.1f} +-" in text
    assert f"short {course[0]['short']:.1%}" in text
    assert re.findall(r"\]\((.*?)\)", text) == [path.name for path in out.glob("*.png")]
    trained = {path.name: path.stat().st_mtime_ns for path in (out / "tables-parts").glob("line-*/*")}
    (out / "tables-parts" / "parts.json").unlink()
    write(["--tables", "2", *settings], out)
    assert json.loads((out / "tables.json").read_text())["tables"][1]["games"] == both["tables"][1]["games"]
    assert {path.name: path.stat().st_mtime_ns for path in (out / "tables-parts").glob("line-*/*")} == trained
    with pytest.raises(SystemExit):
        main(["figures", "tables", "--out", str(out), *settings, "--deals", "60", "--quiet"])
    assert "belongs to other figures" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chess"], "there are no figures of 'chess'"),
        (["tables", "--placement", "round"], "placement='round' is not allowed: choose fixed or touching"),
        (["tables", "--tables", "2", "--long-tables", "3"], "no more long trainings than tables"),
        (["tables", "--seconds", "0"], "give different times above 0"),
        (["tables", "--seconds", "9", "--long", "9"], "--seconds 9 --long 9 is not allowed"),
        (["tables", "--value", str(MODELS / "value-fixed-english")], "was trained for the scoring table"),
        (["poker", "--deals", "1"], "--deals 1 --search-deals 200 is not"),
        (["poker", "--deals", "60", "--searched", "61"], "--searched 61 --simulations 20 is not"),
        (["poker", "--searched", "49"], "give from 50 up to --deals"),
        (["poker", "--simulations", "0"], "--searched 0 --simulations 0 is not"),
    ],
)
def test_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["figures", *arguments, "--out", str(tmp_path / "x")])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
