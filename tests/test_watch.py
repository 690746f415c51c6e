"""`patience render`: films and pictures of what a policy plays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playing import GAMES, scaled, strict

pytest.importorskip("typer")
pytest.importorskip("pygame")
pytest.importorskip("PIL")

from PIL import Image
from typer.testing import CliRunner

from patience_env.agents.policy import Policy, make_policy
from patience_env.env import PatienceEnv
from patience_env.render import faces
from patience_env.training import watch
from patience_env.training.cli import app
from patience_env.training.evaluate import evaluate
from patience_env.training.watch import palette, positions, write_gif, write_mp4

POKER = "PatiencePoker-v0"
PLAYED = ["--policy", "greedy", "--deal", "3", "--option", "placement=fixed"]


def written(*arguments: str) -> None:
    """Run `patience render`, which must succeed."""
    done = CliRunner().invoke(app, ["render", *arguments])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"wrote {arguments[-1]}\n"


def table_after(moves: int, mode: str) -> Any:
    """Return the picture (also "svg") of a game of the greedy policy after so many moves."""
    env = strict(POKER, placement="fixed", render_mode=None if mode == "svg" else mode)
    policy = make_policy("greedy", POKER)
    policy.start(0)
    env.reset(options={"deal": 3})
    for _ in range(moves):
        env.step(policy.choose(env))
    return env.svg() if mode == "svg" else env.render()


@pytest.mark.parametrize(("step", "moves"), [([], 25), (["--step", "0"], 0), (["--step", "7"], 7)])
def test_pictures_show_the_end_or_the_table_after_so_many_moves(
    step: list[str], moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(POKER, *PLAYED, *step, "--out", "table.txt")
    assert Path("table.txt").read_text("utf-8") == table_after(moves, "ansi") + "\n"
    written(POKER, *PLAYED, *step, "--out", "table.PNG")
    assert (np.asarray(Image.open("table.PNG")) == table_after(moves, "rgb_array")).all()
    written(POKER, *PLAYED, *step, "--out", "table.svg")
    assert Path("table.svg").read_text("utf-8") == table_after(moves, "svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.PNG", "table.svg", "table.txt"]


def test_a_gif_shows_every_position_of_the_game(tmp_path: Path) -> None:
    path = tmp_path / "game.gif"
    written(POKER, *PLAYED, "--fps", "4", "--out", str(path))
    with Image.open(path) as film:
        assert film.n_frames == 26
        assert film.info["loop"] == 0
        pauses = []
        for i in range(film.n_frames):
            film.seek(i)
            pauses.append(film.info["duration"])
            frame = np.asarray(film.convert("RGB")).astype(int)
            wanted = table_after(i, "rgb_array").astype(int)
            assert frame.shape == wanted.shape
            assert (np.abs(frame - wanted).max(axis=2) > 24).mean() < 0.002, "only mixtures at edges may differ"
    assert pauses == [250] * 25 + [2000]


@pytest.mark.parametrize("game", GAMES)
def test_every_game_becomes_a_film_of_equally_large_frames(game: str, tmp_path: Path) -> None:
    env = PatienceEnv(game, illegal_action="raise", render_mode="rgb_array")
    policy = make_policy("random", game)
    policy.start(1)
    frames = []
    for position in positions(env, policy, 6):
        frames.append(position.render())
        if len(frames) == scaled(40, 8):
            break
    write_gif(tmp_path / "game.gif", frames, 10)
    with Image.open(tmp_path / "game.gif") as film:
        assert film.n_frames == len(frames)
        assert film.size == (frames[0].shape[1], frames[0].shape[0])


def test_the_colours_of_cards_and_felt_are_kept_in_a_gif() -> None:
    colours = palette()
    assert len(colours) <= 256
    for name in ("FELT", "FELT_DARK", "PAPER", "RED", "BLACK", "BACK", "LIT", "CAPTION", "RED_TINT", "BLACK_TINT"):
        assert getattr(faces, name) in colours, name


def test_games_are_those_that_evaluation_counts() -> None:
    options = {"placement": "fixed"}
    result = evaluate("flush-rank", POKER, np.arange(4, dtype=np.uint64), options=options)
    env = PatienceEnv(POKER, illegal_action="raise", **options)
    policy = make_policy("flush-rank", POKER)
    for deal in range(4):
        for position in positions(env, policy, deal):
            last = position
        assert last._rows.states["score"].item() == result.returns[deal]


def test_games_are_cut_where_their_episodes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "max_episode_steps", lambda game: 5)
    env = PatienceEnv("Paganini-v0", illegal_action="raise")
    assert sum(1 for _ in positions(env, make_policy("random", "Paganini-v0"), 1)) == 6


def test_an_mp4_is_written(tmp_path: Path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "game.mp4"
    written(POKER, *PLAYED, "--fps", "5", "--out", str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["game.mp4"]
    count, seconds = imageio_ffmpeg.count_frames_and_secs(path)
    assert count == 26 + 10, "the end is shown for two seconds more"
    assert seconds == pytest.approx(36 / 5, abs=0.1)
    reader = imageio_ffmpeg.read_frames(path)
    assert next(reader)["size"] == table_after(0, "rgb_array").shape[1::-1]
    reader.close()


# -- files stay whole --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_gif, write_mp4])
def test_a_failure_leaves_the_old_file(write: Any, tmp_path: Path) -> None:
    if write is write_mp4:
        pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / ("game.gif" if write is write_gif else "game.mp4")
    path.write_bytes(b"old")

    def frames() -> Any:
        yield np.zeros((32, 48, 3), np.uint8)
        raise OSError("the game broke off")

    with pytest.raises(OSError, match="the game broke off"):
        write(path, frames(), 2)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


class Stubborn(Policy):
    """Always plays the first cell."""

    name = "stubborn"

    def act(self, turn: Any) -> Any:
        return np.zeros(len(turn), np.int64)


def test_an_illegal_choice_writes_nothing(tmp_path: Path) -> None:
    out = str(tmp_path / "game.gif")
    done = CliRunner().invoke(app, ["render", POKER, "--policy", f"{__name__}:Stubborn", *PLAYED[2:], "--out", out])
    assert done.exit_code == 1
    assert "action 0 of PatiencePoker-v0" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Whist-v0", *PLAYED[:4], "--out", "a.png"], "there is no game 'Whist-v0'"),
        ([POKER, *PLAYED, "--out", "a.jpg"], "'a.jpg' ends in none of .gif, .mp4, .svg, .txt, .png"),
        ([POKER, *PLAYED, "--out", "gif"], "'gif' ends in none of"),
        ([POKER, *PLAYED, "--out", "none/a.png"], "cannot be written"),
        ([POKER, *PLAYED, "--out", "a.gif", "--step", "3"], "a .gif file shows the whole game"),
        ([POKER, *PLAYED, "--out", "a.png", "--step", "26"], "step 26 does not exist: the game has 25 moves"),
        ([POKER, "--policy", "nobody", "--deal", "3", "--out", "a.png"], "there is no policy 'nobody'"),
        ([POKER, "--policy", "greedy", "--deal", "-3", "--out", "a.png"], "deal -3 lies outside"),
        ([POKER, *PLAYED, "--option", "side=3", "--out", "a.png"], "has no option 'side'"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["render", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "ending", "command"),
    [
        ("PIL", "gif", 'pip install "patience-env[render]"'),
        ("PIL", "png", 'pip install "patience-env[render]"'),
        ("imageio_ffmpeg", "mp4", 'pip install "patience-env[render,video]"'),
    ],
)
def test_a_missing_package_is_told_before_anything_is_played(
    module: str, ending: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(watch, "positions", lambda *_: pytest.fail("played"))
    done = CliRunner().invoke(app, ["render", POKER, *PLAYED, "--out", str(tmp_path / f"game.{ending}")])
    assert done.exit_code == 2
    assert command in done.stderr
    assert list(tmp_path.iterdir()) == []
