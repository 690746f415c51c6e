"""`patience play`: the dialogue, undo without peeking, honest hints, saved games."""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playing import GAMES, begin, legal_actions, scaled, strict

pytest.importorskip("typer")

from gymnasium.error import InvalidAction
from typer.testing import CliRunner

import patience_env
from patience_env.agents.policy import Policy, Turn, make_policy
from patience_env.training import play
from patience_env.training.cli import app
from patience_env.training.play import PAGE, Session, Terminal, load_game, matching, save_game
from patience_env.training.saved_games import FORMAT

POKER = "PatiencePoker-v0"
FIXED = ["--option", "placement=fixed"]


def typed(*arguments: str, lines: str = "q") -> str:
    """Run `patience play` with commands typed one by one, separated by `;`, and return what it printed."""
    done = CliRunner().invoke(app, ["play", *arguments], input="".join(f"{line}\n" for line in lines.split(";")))
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments: str) -> str:
    """Run `patience play` with arguments that are refused, and return the message."""
    done = CliRunner().invoke(app, ["play", *arguments], input="q\n")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("patience: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def played(path: Path) -> list[int]:
    actions: list[int] = json.loads(path.read_text())["actions"]
    return actions


# -- the dialogue ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_every_game_is_drawn_with_its_moves_in_words_and_numbers(game: str) -> None:
    out = typed(game, "--deal", "5")
    env = strict(game, render_mode="ansi")
    env.reset(options={"deal": 5})
    assert env.render() in out
    for i, action in enumerate(legal_actions(env)[:PAGE], 1):
        assert f"{i:4}  {env.describe(action)}\n" in out
    assert out.endswith("> Score 0 after 0 moves of deal 5\n")
    assert "\x1b" not in out, "no colours where the output is no terminal"


def test_a_move_is_played_by_its_number() -> None:
    out = typed(POKER, *FIXED, "--deal", "5", lines="3;24;q")
    env = strict(POKER, placement="fixed")
    env.reset(options={"deal": 5})
    assert f"You {env.describe(2)}." in out
    env.step(2)
    assert f"You {env.describe(24)}." in out, "the twenty-fourth of the 24 moves that are left"
    assert "Score 0 after 2 moves of deal 5" in out


def test_places_are_moves_where_a_move_is_a_place() -> None:
    out = typed(POKER, *FIXED, "--deal", "5", lines="r2c3;r2c3;q")
    assert re.search(r"You place .. in row 2, column 3\.", out)
    assert "no move holds 'r2c3'" in out, "it is taken now"
    assert "no move holds 'r2c3'" in typed("Calculation-v0", "--deal", "5", lines="r2c3;q")


def test_long_lists_come_in_pages_and_part_of_a_text_chooses() -> None:
    out = typed(POKER, *FIXED, "--deal", "5", lines=";;row 4;/column 5;3 column;nothing;q").split("> ")
    assert "page 1 of 2" in out[0]
    assert out[1].splitlines()[0].startswith("  21  place")
    assert "page 2 of 2" in out[1]
    assert out[2].splitlines()[0].startswith("   1  place")
    assert [line.split()[0] for line in out[3].splitlines()[:5]] == ["16", "17", "18", "19", "20"]
    assert "(5 of 25 moves hold 'row 4': Enter shows all again)" in out[3]
    assert [line.split()[0] for line in out[4].splitlines()[:5]] == ["5", "10", "15", "20", "25"]
    assert "(9 of 25 moves hold '3 column': Enter shows all again)" in out[5], (
        "all of the words, where no move holds the whole text"
    )
    assert "no move holds 'nothing', which is no command either: ? lists them" in out[6]


def test_enter_shows_all_moves_again_after_a_choice_among_them() -> None:
    for game, word in (("Calculation-v0", "foundation"), (POKER, "row 4, column 5")):
        out = typed(game, "--deal", "7", lines=f"{word};;q").split("> ")
        assert f" holds {word!r}: Enter shows all again)" in out[1] or f" hold {word!r}: Enter" in out[1]
        assert out[2].count("\n   1  ") == 1
        assert "\n   2  " in out[2]
        assert repr(word) not in out[2]


def test_matching_prefers_the_whole_text() -> None:
    moves = ["play 4H on 5S", "play 5S on 4H", "turn"]
    assert matching(moves, "4h ON") == [1]
    assert matching(moves, "on play") == [1, 2]
    assert matching(moves, "x") == []
    assert matching(moves, "") == [1, 2, 3]


def test_wrong_commands_are_answered_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    lines = "0;26;99999999999999999999;u;u x;u 0;d;d x;d 99999999999999999999999;h nobody;h sb3;-1;q"
    out = typed(POKER, *FIXED, "--deal", "5", "--save", str(path), lines=lines)
    for message in (
        "there is no move 0: the moves are 1 to 25",
        "there is no move 26",
        "there is nothing to undo",
        "u takes the number of moves to undo, not 'x'",
        "u takes the number of moves to undo, not '0'",
        "d takes a deal number, not ''",
        "d takes a deal number, not 'x'",
        "deal 18446744073709551616 lies outside 0 to 2**64 - 1",
        "no hint: there is no policy 'nobody'",
        "no hint: policy 'sb3' cannot be made with no options",
        "no move holds '-1'",
    ):
        assert message in out
    assert played(path) == []
    assert json.loads(path.read_text())["deal"] == 5


def test_help_lists_every_command() -> None:
    out = typed(POKER, lines="?;q")
    terminal = Terminal(Session(POKER, {}, 1), lambda text: make_policy(text, POKER), "thumb")
    for command in terminal._commands:
        assert re.search(rf"^  {re.escape(command[0])}", out, re.MULTILINE), command


def test_score_tells_game_options_and_deal() -> None:
    out = typed("Sultan-v0", "--option", "redeals=1", "--deal", "12", lines="1;s;q")
    assert "Sultan-v0 (redeals=1)" in out
    assert re.search(r"Score \S+ after 1 move of deal 12", out)


def test_other_deals_and_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "new_deal", lambda: 4711)
    out = typed(POKER, "--deal", "5", lines="1;d 18446744073709551615;s;n;q")
    assert "Score 0 after 0 moves of deal 18446744073709551615" in out
    assert out.endswith("Score 0 after 0 moves of deal 4711\n")
    assert "of deal 4711" in typed(POKER)


def test_new_deals_are_short_and_none_that_policies_are_compared_on() -> None:
    numbers = [play.new_deal() for _ in range(100)]
    assert len(set(numbers)) > 90
    assert all(0 <= number < 1_000_000 for number in numbers)
    first = min(deals.first for deals in patience_env.deals.standard_deals().values())
    assert first >= 1_000_000


def test_the_end_of_the_input_quits() -> None:
    done = CliRunner().invoke(app, ["play", POKER, "--deal", "5"], input="1\n")
    assert done.exit_code == 0
    assert done.output.endswith("> \nScore 0 after 1 move of deal 5\n")


def test_the_end_is_announced_and_can_be_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    out = typed(
        POKER, *FIXED, "--deal", "5", "--save", str(path), lines=";".join(["1"] * 25 + ["1", "h", "x", "u", "q"])
    )
    env = strict(POKER, placement="fixed")
    env.reset(options={"deal": 5})
    score = sum(env.step(cell)[1] for cell in range(25))
    assert f"The game is over. Score {score:g} after 25 moves of deal 5" in out
    assert out.count("The game is over") == 4
    assert "after 24 moves of deal 5, saved in" in out
    assert played(path) == list(range(24))


def test_a_game_without_a_move_left_is_lost() -> None:
    session = Session("Calculation-v0", {}, 3)
    said: list[str] = []
    lines = iter(["1"] * 500)

    def ask(prompt: str) -> str:
        del prompt
        if session.over:
            raise EOFError
        return next(lines)

    Terminal(session, lambda text: make_policy(text, "Calculation-v0"), "thumb", ask=ask, say=said.append).run()
    assert any(line.startswith("The game is lost: no move is left. Score ") for line in said)


@pytest.mark.compiled  # a won deal is looked for
def test_a_won_game_is_announced() -> None:
    env = strict("Calculation-v0")
    policy = make_policy("thumb", "Calculation-v0")
    for deal in range(200):
        actions = []
        env.reset(options={"deal": deal})
        while env.action_masks().any():
            actions.append(policy.choose(env))
            env.step(actions[-1])
        if env.table()["stock"] == [] and sum(map(len, (env.table()[name] for name in env.layout.places[:4]))) == 52:
            break
    session = Session("Calculation-v0", {}, deal, actions)
    assert session.won
    assert session.score == pytest.approx(1.0)
    said: list[str] = []

    def ask(prompt: str) -> str:
        raise EOFError(prompt)

    Terminal(session, lambda text: policy, "thumb", ask=ask, say=said.append).run()
    assert any(line.startswith("The game is won. Score 1 after") for line in said)


def test_games_end_where_their_episodes_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "max_episode_steps", lambda game: 3)
    out = typed("Paganini-v0", "--deal", "1", lines="1;1;1;1;u;q")
    assert "The game ends after 3 moves. Score" in out
    assert "after 2 moves of deal 1" in out
    session = Session("Paganini-v0", {}, 1)
    for _ in range(3):
        session.play(session.legal()[0])
    with pytest.raises(InvalidAction, match="the game is over"):
        session.play(0)


# -- undo and hints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_undo_restores_every_position_and_changes_no_later_chance(game: str) -> None:
    env = strict(game)
    actions = begin(env, 9, scaled(60, 20), seed=2)
    session = Session(game, {}, 9)
    states, scores = [session.env.state_rows()], [0.0]
    for action in actions:
        session.play(action)
        states.append(session.env.state_rows())
        scores.append(session.score)
    for count in (1, len(actions) // 2, 3):
        session.undo(count)
        left = len(session.actions)
        assert session.actions == actions[:left]
        assert session.env.state_rows() == states[left]
        assert session.score == scores[left]
    for action in actions[len(session.actions) :]:
        session.play(action)
    assert session.env.state_rows() == states[-1], "the cards to come stayed as they were"
    assert session.undo(10_000) == len(actions)
    assert session.undo() == 0
    assert session.env.state_rows() == states[0]


def test_undo_in_the_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    out = typed(POKER, "--deal", "5", "--save", str(path), lines="1;2;3;4;u;u 2;u;u;5;q")
    assert "there is nothing to undo" in out
    assert len(played(path)) == 1


def test_hints_come_from_the_policy_and_name_a_move() -> None:
    env = strict("Sultan-v0")
    env.reset(options={"deal": 4})
    advised = make_policy("thumb", "Sultan-v0").choose(env)
    number = legal_actions(env).index(advised) + 1
    assert f"thumb advises {number}: {env.describe(advised)}" in typed("Sultan-v0", "--deal", "4", lines="h;q")
    out = typed("Sultan-v0", "--deal", "4", "--hint", "greedy", lines="h;h random;q")
    assert re.search(r"greedy advises \d+: ", out)
    assert re.search(r"random advises \d+: ", out)


class Spy(Policy):
    """Notes the hidden cards that it is shown."""

    name = "spy"

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def act(self, turn: Turn) -> np.ndarray[Any, np.dtype[np.int64]]:
        self.seen.append(turn.states["deck"].tobytes())
        return turn.masks.argmax(axis=1).astype(np.int64)


def test_hints_know_no_hidden_card() -> None:
    spy = Spy()
    session = Session(POKER, {}, 5)
    terminal = Terminal(session, lambda text: spy, "spy", say=lambda line: None)
    terminal._obey("h")
    twin = Session(POKER, {}, 5)
    twin.env.determinize(3)
    assert twin.env.state_rows()["deck"].tobytes() != session.env.state_rows()["deck"].tobytes()
    terminal.session = twin
    terminal._obey("h")
    assert spy.seen[0] == spy.seen[1]
    assert spy.seen[0] != session.env.state_rows()["deck"].tobytes()


# -- saved games -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game", "options"),
    [(game, {}) for game in GAMES]
    + [
        (
            POKER,
            {
                "scoring": {
                    "pair": 1.5,
                    "two pairs": 2,
                    "triplets": 3,
                    "straight": 4,
                    "flush": 5,
                    "full hand": 6,
                    "four": 7,
                    "straight flush": 8,
                    "royal": 9,
                }
            },
        )
    ],
)
def test_saved_games_go_on_where_they_were(game: str, options: dict[str, Any], tmp_path: Path) -> None:
    actions = begin(strict(game, **options), 9, 12, seed=4)
    session = Session(game, options, 9, actions)
    save_game(session, tmp_path / "game.json")
    again = load_game(tmp_path / "game.json")
    assert again.env.state_rows() == session.env.state_rows()
    assert (again.actions, again.deal, again.score) == (actions, 9, session.score)
    assert [path.name for path in tmp_path.iterdir()] == ["game.json"]


def test_save_and_resume_in_the_dialogue(tmp_path: Path) -> None:
    kept, other = str(tmp_path / "kept.json"), str(tmp_path / "other.json")
    typed("Sultan-v0", "--deal", "4", lines=f"1;1;save {kept};q")
    assert len(played(Path(kept))) == 2
    out = typed("--resume", kept, lines=f"1;save;save {other};save {other};save {tmp_path};1;q")
    assert f"saved in {kept}: patience play --resume {kept} goes on" in out
    assert f"saved in {other}" in out
    assert out.count("not saved:") == 2
    assert len(played(Path(kept))) == 4, "the file that was resumed is kept up to date"
    assert len(played(Path(other))) == 3
    assert "Score" in typed("Sultan-v0", "--resume", kept, "--save", str(tmp_path / "third.json"), lines="1;q")
    assert len(played(Path(kept))) == 4
    assert "save FILE: say where" in typed("Sultan-v0", lines="save;q")


def sealed(**facts: Any) -> str:
    """Return a file that only lacks sense."""
    whole = {"format": FORMAT, "game": POKER, "options": {}, "deal": 1, "actions": [], "version": "0.0.1", **facts}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return json.dumps({**whole, "sha256": hashlib.sha256(text.encode()).hexdigest()})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no saved game, or a damaged one: it is no readable JSON"),
        ("[1]", "is no saved game: its format must be 'patience-env game 1'"),
        ('{"format": "something else"}', "is no saved game"),
        (sealed()[:60], "is no saved game, or a damaged one"),
        (sealed().replace('"deal": 1', '"deal": 2'), "is damaged: its content does not match its checksum"),
        (sealed(actions=[0]), "cannot be replayed: action 0 of PatiencePoker-v0 "),
        (sealed(actions=[0]), "; version 0.0.1 wrote it"),
        (sealed(actions=["1"]), "an action of PatiencePoker-v0 is a whole number"),
        (sealed(actions=[10**40]), "lies outside 0 to 80"),
        (sealed(actions=None), "its 'actions' is missing or no list"),
        (sealed(deal=-1), "deal -1 lies outside"),
        (sealed(deal=True), "a deal is a whole number"),
        (sealed(game="Whist-v0"), "there is no game 'Whist-v0'"),
        (sealed(options={"side": 3}), "has no option 'side'"),
        (sealed(options={"placement": "loose"}), "placement='loose' is not allowed"),
        ("\ud800", "is no saved game, or a damaged one"),
        ("[" * 100_000, "is no saved game, or a damaged one"),
    ],
)
def test_damaged_and_foreign_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    before = path.read_bytes()
    assert message in refused("--resume", str(path))
    assert path.read_bytes() == before


def test_huge_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    with open(path, "wb") as file:
        file.truncate(play.LARGEST_FILE + 1)
    assert "it is too large" in refused("--resume", str(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which game to play"),
        (["Whist-v0"], "there is no game 'Whist-v0'"),
        ([POKER, "--deal", "-1"], "deal -1 lies outside"),
        ([POKER, "--option", "placement=loose"], "placement='loose' is not allowed"),
        ([POKER, "--hint", "nobody"], "there is no policy 'nobody'"),
        (["Sultan-v0", "--hint", "flush-rank"], "there is no policy 'flush-rank' for Sultan-v0"),
        ([POKER, "--resume", "none.json"], "'none.json' cannot be read"),
        ([POKER, "--save", "old.json"], "'old.json' is there already"),
        ([POKER, "--save", "none/game.json"], "'none/game.json' cannot be written"),
        (["--resume", "old.json", "--deal", "3"], "a saved game has its deal and its options"),
        (["--resume", "old.json", "--option", "placement=fixed"], "a saved game has its deal and its options"),
        (["Sultan-v0", "--resume", "old.json"], "is a game of PatiencePoker-v0, not of Sultan-v0"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_game(Session(POKER, {}, 1), "old.json")
    before = Path("old.json").read_bytes()
    assert message in refused(*arguments)
    assert Path("old.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_a_full_disk_is_told_and_the_game_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(play, "save_game", full)
    out = typed(POKER, "--save", str(tmp_path / "game.json"), lines="1;q")
    assert "not saved: [Errno 28] No space left on device" in out
    assert "after 1 move" in out


# -- a real terminal ---------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a pseudo-terminal")
@pytest.mark.parametrize("plain", [False, True])
def test_in_a_terminal_red_cards_are_red_unless_colours_are_unwanted(plain: bool) -> None:
    import pty

    code = "from patience_env.training.cli import main; main()"
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(Path(__file__).parent)  # not the checkout, whose package would come before PYTHONPATH's
        os.environ.pop("NO_COLOR", None)
        os.environ.update({"TERM": "xterm", **({"NO_COLOR": "1"} if plain else {})})
        os.execv(sys.executable, [sys.executable, "-c", code, "play", POKER, "--deal", "7"])
    shown = b""
    answers = [b"2\n", b"u\n", b"q\n"]
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1.0)[0]:
                continue
            try:
                read = os.read(terminal, 4096)
            except OSError:  # the child has closed its end
                break
            shown += read
            if shown.endswith(b"> ") and answers:
                os.write(terminal, answers.pop(0))
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    text = shown.decode()
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert "You place" in text
    # Where colorama is installed (mkdocs brings it), Numba lets it reset the terminal at exit.
    assert text.removesuffix("\x1b[0m").rstrip().endswith("Score 0 after 0 moves of deal 7")
    assert (re.search(r"\x1b\[31m.[HD]", text) is None) == plain
