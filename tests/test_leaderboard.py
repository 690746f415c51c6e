"""`patience leaderboard`: what it plays, keeps, plays again, and writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from patience_env.deals import named_deals
from patience_env.game import game_ids, get_game
from patience_env.training import engines, leaderboard, shares
from patience_env.training.cli import main
from patience_env.training.evaluate import evaluate
from patience_env.training.leaderboard import Cache, cell, game_text, markdown, plan, read_game, read_policy

POKER = "PatiencePoker-v0"
FIXED = {"placement": "fixed"}
GAME = ["--game", f"{POKER}:placement=fixed"]


def board(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run the command with its cache in the folder; return the JSON that it wrote."""
    with pytest.raises(SystemExit) as stop:
        main(["leaderboard", *arguments, "--deals", "smoke", "--out", str(folder), "--cache", str(folder / "cache")])
    assert stop.value.code == 0
    return dict(json.loads((folder / "leaderboard.json").read_text()))


def without_times(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "entries": [{**entry, "seconds_per_move": None} for entry in data["entries"]]}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which shares are played from now on, as `policy number`."""
    played: list[str] = []

    def play(share: shares.Share) -> shares.Played:
        played.append(f"{share.policy} {share.number}")
        return shares.play_share(share)

    monkeypatch.setattr(engines, "play_share", play)
    return played


# What is written -----------------------------------------------------------------------------------------------


def test_results_are_those_of_evaluate_and_are_compared_on_the_same_deals(tmp_path: Path) -> None:
    policies = ["--only", "--policy", "greedy", "--policy", "random@3", "--reference", "greedy"]
    data = board(tmp_path, *GAME, *policies, "--first", "5", "--seed", "2")
    greedy, random = (
        evaluate(name, POKER, named_deals("smoke", count), options=FIXED, seed=2)
        for name, count in (("greedy", 5), ("random", 3))
    )
    first, second = data["entries"]
    for entry, result in ((first, greedy), (second, random)):
        assert entry["policy"] == result.policy
        assert entry["deals"] == len(result.deals)
        assert (entry["mean"], entry["stderr"], entry["moves"]) == (result.mean, result.stderr, result.moves)
        assert entry["options"] == {"placement": "fixed", "scoring": "american", "target": None}
    assert first["paired"] is None
    assert second["paired"]["difference"] == (random.returns - greedy.returns[:3]).mean()
    assert second["paired"]["deals"] == 3
    assert (data["deals"], data["first_deal"], data["seed"]) == ("smoke", int(named_deals("smoke")[0]), 2)
    text = (tmp_path / "leaderboard.md").read_text()
    assert (
        "`patience leaderboard --game PatiencePoker-v0:placement=fixed --policy greedy --policy random@3 --only "
        in text
    )
    assert f"| **{greedy.mean:.2f} +- {greedy.stderr:.2f}** | {random.mean:.2f} +- {random.stderr:.2f} (3) |" in text
    assert (tmp_path / "leaderboard.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_has_a_line_a_game_and_a_column_a_policy() -> None:
    base = {"deals": 100, "stderr": 0.25, "win_rate": None}
    won = {"win_rate": 0.5, "wilson_low": 0.4, "wilson_high": 0.6}
    entries = [
        {**base, "env": POKER, "options": get_game(POKER).check_options({}), "policy": "a", "mean": 3.0},
        {**base, **won, "env": "Sultan-v0", "options": {"redeals": 1}, "policy": "b", "mean": 0.75, "deals": 40},
        {**base, **won, "env": "Sultan-v0", "options": {"redeals": 1}, "policy": "a", "mean": 0.5},
    ]
    facts = {"command": "patience leaderboard", "version": "1", "deals": "test", "first_deal": 5}
    table = markdown({**facts, "entries": entries})
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert lines == [
        "| game | a | b |",
        "|---|---|---|",
        "| `PatiencePoker-v0` | **3.00 +- 0.25** |  |",
        "| `Sultan-v0` redeals=1 | 50.0% [40.0%, 60.0%], 0.500 | **50.0% [40.0%, 60.0%], 0.750 (40)** |",
    ]
    assert "100 test deals from 5 on" in table
    assert "](leaderboard.png)" in table
    assert cell({**entries[0], "stderr": None}, 100) == "3.00"


def test_games_and_policies_are_read_from_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_game("Sultan-v0:redeals=1") == ("Sultan-v0", {"redeals": 1})
    assert game_text(*read_game("Fourteenth-v0:exchanges=1,close_gaps=true")) == (
        "`Fourteenth-v0` exchanges=1, close_gaps=true"
    )
    assert read_policy("greedy") == ("greedy", None)
    assert read_policy("search:simulations=20@7") == ("search:simulations=20", 7)
    assert read_policy("search:simulations=20") == ("search:simulations=20", leaderboard.SLOW["search"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model@3").mkdir()
    assert read_policy("model@3") == ("model@3", None)
    with pytest.raises(ValueError, match="plays no deal"):
        read_policy("greedy@0")


def test_every_game_has_its_policies_without_a_path() -> None:
    pytest.importorskip("sb3_contrib")
    games = [(name, get_game(name).check_options({})) for name in game_ids()]
    cases = plan([*games, (POKER, get_game(POKER).check_options(FIXED))], ["greedy@2"], False, "smoke", 4, 0)
    found: dict[str, list[str]] = {}
    for case in cases:
        found.setdefault(game_text(case.env, case.options), []).append(f"{case.text}@{len(case.deals)}")
    assert len(found) == len(game_ids()) + 1
    for played in found.values():
        assert {"random@4", "greedy@4", "thumb@4", "uct:simulations=100@4"} <= set(played)
    assert {"line@4", "value@4", "ppo@4", "search@4"} <= set(found[f"`{POKER}` placement=fixed"])
    assert "ppo@4" not in found[f"`{POKER}`"]  # it plays the fixed placement alone


# The cache -----------------------------------------------------------------------------------------------------


def noted(folder: Path, kind: str = "Noted", rest: str = "") -> list[str]:
    return [*GAME, "--only", "--policy", f"sharing:{kind}:log={folder / 'log'}{rest}", "--first", "7"]


def test_what_was_played_is_not_played_again(tmp_path: Path, counted: list[str]) -> None:
    first = board(tmp_path, *noted(tmp_path))
    assert len(counted) == 4
    held = (tmp_path / "leaderboard.json").read_bytes()
    assert board(tmp_path, *noted(tmp_path)) == first
    assert (tmp_path / "leaderboard.json").read_bytes() == held
    assert len(counted) == 4
    # More deals: the whole shares of the fewer ones serve.
    board(tmp_path, *noted(tmp_path)[:-1], "9")
    assert [text.rpartition(" ")[2] for text in counted[4:]] == ["3", "4"]


def test_what_has_changed_is_played_again(tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["--only", "--policy", "random", "--first", "2"]
    board(tmp_path, *GAME, *few)
    for changed in (
        [*GAME, *few, "--seed", "1"],
        ["--game", POKER, *few],
        [*GAME, "--only", "--policy", "random:seed=0", "--first", "2"],
        [*GAME, *few[:-1], "1"],
    ):
        before = len(counted)
        board(tmp_path, *changed)
        assert len(counted) == before + 1
    for module, name, value in (
        ("patience_env.agents.basic", "RandomPolicy.version", 2),
        ("patience_env", "__version__", "9"),
        ("patience_env.training.shares", "PROTOCOL", 9),
    ):
        before = len(counted)
        monkeypatch.setattr(f"{module}.{name}", value)
        shares._PLAYERS.clear()
        board(tmp_path, *GAME, *few)
        assert len(counted) == before + 1
    board(tmp_path, *GAME, *few)
    assert len(counted) == before + 1


def test_a_damaged_file_counts_as_none(tmp_path: Path, counted: list[str]) -> None:
    first = board(tmp_path, *noted(tmp_path))
    files = sorted((tmp_path / "cache").glob("*/*.npz"))
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-20])
    files[2].write_bytes(files[3].read_bytes())  # those of other deals
    flipped = bytearray(files[3].read_bytes())
    flipped[10] ^= 1  # the time of an entry, which no sum covers
    files[3].write_bytes(flipped)
    assert without_times(board(tmp_path, *noted(tmp_path))) == without_times(first)
    assert len(counted) == 8


def test_a_leaderboard_that_is_killed_goes_on_and_counts_nothing_twice(tmp_path: Path) -> None:
    whole = board(tmp_path / "whole", *noted(tmp_path / "whole"))
    out = tmp_path / "killed"
    out.mkdir()
    arguments = [*noted(out, "Fatal", ":at=3"), "--deals", "smoke", "--out", str(out), "--cache", str(out / "cache")]
    code = "import sys\nfrom patience_env.training.cli import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-P", "-c", code, "leaderboard", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert not (out / "leaderboard.json").exists()
    kept = sorted(path.name.split("-")[0] for path in (out / "cache").glob("*/*.npz"))
    assert kept == ["0", "1"]
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    found = json.loads((out / "leaderboard.json").read_text())
    for data in (found, whole):  # they differ in the policy's name, not in its play
        data["command"] = ""
        data["entries"][0]["policy"] = ""
    assert without_times(found) == without_times(whole)
    # Shares 0 and 1 once, share 2 twice (it was killed), share 3 has a single deal, which is not noted.
    begun = (out / "log").read_text().split()
    assert (len(begun), len(set(begun))) == (4, 3)


def test_two_processes_write_the_same_leaderboard(tmp_path: Path) -> None:
    here = board(tmp_path / "one", *noted(tmp_path))
    there = board(tmp_path / "two", *noted(tmp_path), "--engine", "processes", "--workers", "2")
    assert without_times(here) == without_times(there)


def test_shares_are_kept_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    share = shares.Share("greedy", POKER, get_game(POKER).check_options({}), named_deals("smoke", 3), 0, 0)
    assert cache.read(share) is None
    played = shares.Played(np.array([1.0, 2, 3]), np.array([25, 25, 25]), np.zeros(3, np.bool_), 0.5)
    cache.write(share, played)
    held = cache.read(share)
    assert held is not None
    assert held.returns.tolist() == [1, 2, 3]
    assert held.lengths.tolist() == [25, 25, 25]
    assert held.won.dtype == np.bool_
    assert held.seconds == 0.5


# What is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--game", "Nope-v0"], "there is no game 'Nope-v0'"),
        (["--game", "Sultan-v0:speed=3"], "has no option 'speed'"),
        (["--only"], "--only leaves no policy"),
        (["--policy", "nobody"], "there is no policy 'nobody' for"),
        (["--policy", "greedy@0"], "'greedy@0' plays no deal"),
        (["--game", "Sultan-v0", "--policy", "flush-rank"], "there is no policy 'flush-rank' for Sultan-v0"),
        (["--policy", "model:path=nowhere"], "'nowhere' holds no model"),
        (["--deals", "mine"], "there are no standard deals named 'mine'"),
        (["--first", "0"], "asked for the first 0"),
        (["--reference", "nobody"], "the reference 'nobody' plays none of the games"),
        (["--engine", "threads"], "there is no engine 'threads'"),
        (["--engine", "processes", "--workers", "0"], "workers=0 is not allowed"),
        (["--seed", "-1"], "greater than or equal to 0"),
    ],
)
def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    pytest.importorskip("sb3_contrib")
    with pytest.raises(SystemExit) as stop:
        main(["leaderboard", "--out", str(tmp_path / "x"), *arguments])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
    assert not (tmp_path / "x").exists()


def test_a_missing_plotting_package_is_told_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, counted: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit) as stop:
        main(["leaderboard", *GAME, "--only", "--policy", "greedy", "--first", "1", "--out", str(tmp_path / "x")])
    assert stop.value.code == 2
    assert "pip install 'patience-env[train]'" in capsys.readouterr().err
    assert counted == []
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("option", ["--out", "--cache"])
def test_a_folder_that_cannot_be_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "file").touch()
    arguments = [*GAME, "--only", "--policy", "greedy", "--out", str(tmp_path / "x"), option, str(tmp_path / "file")]
    with pytest.raises(SystemExit) as stop:
        main(["leaderboard", *arguments])
    assert stop.value.code == 2
    assert "file' cannot be a folder: File exists" in capsys.readouterr().err
