"""`patience play`: any of the games in the terminal, by keyboard alone.

A game is its deal number and the list of actions played: undo and resume deal anew and replay, so that the cards to
come stay as they were. A saved game is a JSON file of exactly these facts.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from gymnasium.error import InvalidAction

import patience_env
from patience_env.deals import check_deal
from patience_env.game import get_game, max_episode_steps
from patience_env.training.saved_games import FORMAT, digest_of, record_of

if TYPE_CHECKING:
    from patience_env.agents.policy import Policy

PAGE = 20
THUMB = "thumb"  # the rule of thumb that every game has
TYPED_DEALS = 1_000_000  # deals drawn here are numbers below this: short to type, and none of the standard ones
LARGEST_FILE = 10_000_000
HELP = """\
  NUMBER            play the move of that number (a place such as r2c3 will do, where moves are places)
  part of a text    list only the moves that hold it (or else all of its words); /TEXT does so for any TEXT
  Enter             the next moves of a long list, or the table and all moves once more
  u, u NUMBER       undo the last move, or as many
  h, h POLICY       a hint by the policy chosen with --hint, or by another one
  s                 the score, and where the game stands
  save, save FILE   save the game
  d NUMBER          another deal of this game
  n                 a new deal
  q                 quit
  ?                 this list
"""


# -- the game ----------------------------------------------------------------------------------------------------


class Session:
    """One game at the terminal: its deal, its actions, and the environment that has played them.

    Attributes:
        env: the environment, in the present position.
        deal: the deal number.
        actions: what was played so far.
        score: the undiscounted return so far.

    Raises:
        TypeError, ValueError: wrong options or no deal number.
    """

    def __init__(self, game_id: str, options: Mapping[str, Any], deal: int, actions: Sequence[int] = ()) -> None:
        from patience_env.env import PatienceEnv

        self.env = PatienceEnv(game_id, illegal_action="raise", render_mode="ansi", **options)
        self.limit = max_episode_steps(game_id)
        self._start(deal, actions)

    def _start(self, deal: int, actions: Sequence[int]) -> None:
        number = check_deal(deal)
        self.env.reset(options={"deal": number})
        self.deal = number
        self.actions: list[int] = []
        self.score = 0.0
        for action in actions:
            self.play(action)

    def play(self, action: int) -> None:
        """Play an action.

        Raises:
            InvalidAction: it is not legal, or the game is over; nothing changes.
        """
        if self.over:
            raise InvalidAction("the game is over")
        self.score += self.env.step(action)[1]
        self.actions.append(action)

    def undo(self, count: int = 1) -> int:
        """Take back up to `count` moves by replaying the others; return how many were taken back."""
        count = min(count, len(self.actions))
        if count > 0:
            self._start(self.deal, self.actions[:-count])
        return count

    def start(self, deal: int) -> None:
        """Start another deal under the same options.

        Raises:
            TypeError, ValueError: no deal number; nothing changes.
        """
        self._start(check_deal(deal), ())

    def legal(self) -> list[int]:
        """Return the legal actions in order; none when the game is over."""
        return [] if self.over else [int(action) for action in np.flatnonzero(self.env.action_masks())]

    @property
    def truncated(self) -> bool:
        """Whether the game has reached the number of moves after which episodes are cut."""
        return self.limit is not None and len(self.actions) >= self.limit

    @property
    def over(self) -> bool:
        """Whether no move can be made any more."""
        return self.truncated or not self.env.action_masks().any()

    @property
    def won(self) -> bool:
        """Whether the game is won."""
        from patience_env.kernels import won_rows

        won = np.zeros(1, np.bool_)
        won_rows(self.env.state_rows(), won)
        return bool(won[0])

    def record(self) -> dict[str, Any]:
        """Return the facts of a saved game."""
        return record_of(self.env.game.id, self.env.options, self.deal, self.actions)


def save_game(session: Session, path: str | Path) -> None:
    """Write a game as JSON, whole or not at all.

    Raises:
        OSError: it cannot be written; an old file stays as it is.
    """
    from patience_env.training.evaluate import write_atomically

    write_atomically(path, json.dumps(session.record(), indent=1) + "\n")


def load_game(path: str | Path) -> Session:
    """Return a saved game, replayed.

    Raises:
        ValueError: the file cannot be read, is no saved game, is damaged, or holds what these rules do not allow.
    """
    name = repr(str(path))
    try:
        if Path(path).stat().st_size > LARGEST_FILE:
            raise ValueError(f"{name} is no saved game: it is too large")
        facts = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{name} is no saved game, or a damaged one: it is no readable JSON ({error})") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"{name} is no saved game: its format must be {FORMAT!r}")
    sealed = facts.pop("sha256", None)
    if sealed != digest_of(facts):
        raise ValueError(f"{name} is damaged: its content does not match its checksum")
    try:
        given = {"game": str, "options": dict, "deal": int, "actions": list, "version": str}
        for key, kind in given.items():
            if not isinstance(facts.get(key), kind):
                raise ValueError(f"its {key!r} is missing or no {kind.__name__}")
        session = Session(facts["game"], facts["options"], facts["deal"], facts["actions"])
    except (TypeError, ValueError, InvalidAction) as error:
        version = facts.get("version")
        other = "" if version == patience_env.__version__ else f"; version {version} wrote it"
        raise ValueError(f"{name} cannot be replayed: {error}{other}") from error
    return session


# -- the terminal ------------------------------------------------------------------------------------------------


class Terminal:
    """The dialogue: shows the table and the moves, reads commands until `q` or the end of the input.

    Args:
        session: the game.
        make_policy: text -> policy; raises ValueError saying what is wrong.
        hint: the policy of hints, as text.
        save: where the game is kept after every move, or None.
        ask: prompt -> a line; raises EOFError at the end of the input.
        say: prints a line.
    """

    def __init__(
        self,
        session: Session,
        make_policy: Callable[[str], Policy],
        hint: str,
        save: str | None = None,
        ask: Callable[[str], str] = input,
        say: Callable[[str], None] = print,
    ) -> None:
        self.session = session
        self.save = save
        self._make_policy = make_policy
        self._hint = hint
        self._policies: dict[str, Policy] = {}
        self._ask = ask
        self._say = say
        self._filter = ""
        self._page = 0
        self._commands: dict[str, Callable[[str], None]] = {
            "u": self._undo,
            "undo": self._undo,
            "h": self._give_hint,
            "hint": self._give_hint,
            "s": self._score,
            "score": self._score,
            "save": self._save,
            "d": self._deal,
            "deal": self._deal,
            "n": self._new,
            "new": self._new,
            "?": self._help,
            "help": self._help,
        }

    def prepare(self, name: str) -> None:
        """Make a policy of hints, if it is not made yet.

        Raises:
            ValueError: there is no such policy, or it does not play this game.
        """
        if name not in self._policies:
            policy = self._make_policy(name)
            policy.start(0)
            self._policies[name] = policy

    def run(self) -> None:
        """Hold the dialogue."""
        self._say("Type the number of a move; ? lists what else you can type.")
        self._keep()
        self._show()
        while True:
            try:
                line = self._ask("> ").strip()
            except EOFError:
                self._say("")
                break
            if line in ("q", "quit"):
                break
            self._obey(line)
        where = f", saved in {self.save}" if self.save else ""
        self._say(f"{self._where()}{where}")

    def _obey(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if not line:
            self._next_page()
        elif word in self._commands:
            self._commands[word](rest.strip())
        elif line.isdecimal():
            self._play_number(line)
        elif line in (places := self._places()):
            self._play(places[line])
        else:
            self._filter_by(line.removeprefix("/"))

    # -- what is shown -------------------------------------------------------------------------------------------

    def _show(self) -> None:
        self._say("")
        self._say(str(self.session.env.render()))
        self._say("")
        if self.session.over:
            self._say(self._end())
        else:
            self._list()

    def _list(self) -> None:
        """List the moves of the present page that the filter lets through."""
        moves = self._moves()
        found = [(i, moves[i - 1]) for i in matching(moves, self._filter)]
        pages = max(1, -(-len(found) // PAGE))
        self._page %= pages
        for i, text in found[self._page * PAGE : (self._page + 1) * PAGE]:
            self._say(f"{i:4}  {text}")
        notes = []
        if self._filter:
            hold = "holds" if len(found) == 1 else "hold"
            back = ": Enter shows all again" if pages == 1 else ""
            notes.append(f"{len(found)} of {len(moves)} moves {hold} {self._filter!r}{back}")
        if pages > 1:
            notes.append(f"page {self._page + 1} of {pages}: Enter shows the next, part of a text chooses among them")
        if notes:
            self._say(f"      ({'; '.join(notes)})")

    def _moves(self) -> list[str]:
        return [self.session.env.describe(action) for action in self.session.legal()]

    def _places(self) -> dict[str, int]:
        """Return place -> action in games in which each action is a place of the grid."""
        layout = self.session.env.layout
        if layout.grid is None or layout.grid[0] * layout.grid[1] != layout.actions:
            return {}
        return {layout.places[action]: action for action in self.session.legal()}

    def _end(self) -> str:
        session = self.session
        if session.env.game.scores:
            what = "The game is over"
        elif session.won:
            what = "The game is won"
        elif session.truncated:
            what = f"The game ends after {session.limit:,} moves"
        else:
            what = "The game is lost: no move is left"
        return f"{what}. {self._where()}\nu takes a move back, d NUMBER and n deal anew, q quits."

    def _where(self) -> str:
        session = self.session
        moves = len(session.actions)
        return f"Score {session.score:.4g} after {moves} move{'s' * (moves != 1)} of deal {session.deal}"

    # -- commands ------------------------------------------------------------------------------------------------

    def _next_page(self) -> None:
        if not self.session.over and len(matching(self._moves(), self._filter)) > PAGE:
            self._page += 1
            self._list()
        else:
            self._filter, self._page = "", 0
            self._show()

    def _filter_by(self, text: str) -> None:
        self._filter, self._page = text.strip(), 0
        if self.session.over:
            self._filter = ""
            self._say("The game is over: u takes a move back, d NUMBER and n deal anew, q quits")
        elif not matching(self._moves(), self._filter):
            self._say(f"no move holds {self._filter!r}, which is no command either: ? lists them")
            self._filter = ""
        else:
            self._list()

    def _play_number(self, text: str) -> None:
        legal = self.session.legal()
        number = int(text) if len(text) < 10 else 0
        if not legal:
            self._say("The game is over: u takes a move back, d NUMBER and n deal anew, q quits")
        elif not 1 <= number <= len(legal):
            self._say(f"there is no move {text}: the moves are 1 to {len(legal)}")
        else:
            self._play(legal[number - 1])

    def _play(self, action: int) -> None:
        self._say(f"You {self.session.env.describe(action)}.")
        self.session.play(action)
        self._changed()

    def _changed(self) -> None:
        self._filter, self._page = "", 0
        self._keep()
        self._show()

    def _undo(self, text: str) -> None:
        if text and not (text.isdecimal() and int(text[:9]) > 0):
            self._say(f"u takes the number of moves to undo, not {text!r}")
            return
        undone = self.session.undo(int(text[:9]) if text else 1)
        if undone:
            self._changed()
        else:
            self._say("there is nothing to undo")

    def _give_hint(self, text: str) -> None:
        session = self.session
        if session.over:
            self._say("The game is over: there is no move to advise")
            return
        name = text or self._hint
        try:
            self.prepare(name)
            # `choose` shows the policy a position whose hidden cards are dealt anew: the hint knows what you know.
            action = self._policies[name].choose(session.env)
        except (ValueError, TypeError, ImportError, OSError) as error:
            self._say(f"no hint: {error}")
            return
        legal = session.legal()
        if action not in legal:
            self._say(f"no hint: {name} chose an illegal move")
        else:
            self._say(f"{name} advises {legal.index(action) + 1}: {session.env.describe(action)}")

    def _score(self, text: str) -> None:
        del text
        session = self.session
        options = ", ".join(f"{name}={json.dumps(value)}" for name, value in session.env.options.items())
        self._say(f"{session.env.game.id}{f' ({options})' if options else ''}")
        self._say(self._where())

    def _save(self, text: str) -> None:
        path = text or self.save
        if path is None:
            self._say("save FILE: say where")
            return
        try:
            if path != self.save:
                check_new(path)
            save_game(self.session, path)
        except (OSError, ValueError) as error:
            self._say(f"not saved: {error}")
            return
        self._say(f"saved in {path}: patience play --resume {path} goes on")

    def _keep(self) -> None:
        """Write the game to the file that was given for it."""
        if self.save is None:
            return
        try:
            save_game(self.session, self.save)
        except OSError as error:
            self._say(f"not saved: {error}")

    def _deal(self, text: str) -> None:
        if not text.isdecimal():
            self._say(f"d takes a deal number, not {text!r}")
            return
        try:
            self.session.start(int(text) if len(text) <= 20 else 2**64)
        except ValueError as error:
            self._say(str(error))
            return
        self._changed()

    def _new(self, text: str) -> None:
        del text
        self.session.start(new_deal())
        self._changed()

    def _help(self, text: str) -> None:
        del text
        self._say(HELP)


def matching(moves: Sequence[str], text: str) -> list[int]:
    """Return the numbers (from 1) of the moves that hold a text, or, where none does, all the words of it."""
    lower = [move.lower() for move in moves]
    for wanted in ([text.lower()], text.lower().split()):
        found = [i for i, move in enumerate(lower, 1) if all(part in move for part in wanted)]
        if found:
            break
    return found


def new_deal() -> int:
    """Draw a deal number that is short to type."""
    return secrets.randbelow(TYPED_DEALS)


def check_new(path: str) -> None:
    """Raise ValueError unless a new file can be written at `path`."""
    from patience_env.training.evaluate import check_writable

    if os.path.lexists(path):
        raise ValueError(f"{path!r} is there already: give another name, or go on with that game by --resume")
    check_writable(path)


# -- the command -------------------------------------------------------------------------------------------------


def play(
    game: Annotated[
        str | None,
        typer.Argument(help="The game, such as Calculation-v0 (not needed with --resume).", show_default=False),
    ] = None,
    deal: Annotated[
        int | None, typer.Option(metavar="N", help="The deal number (default: a random one).", show_default=False)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the game, such as placement=fixed.", show_default=False),
    ] = None,
    hint: Annotated[
        str, typer.Option(metavar="POLICY", help="Who gives hints: a policy as `patience evaluate` takes it.")
    ] = THUMB,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Keep the game in a new file, written after every move.", show_default=False),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Go on with a saved game, and keep it there unless --save says else.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Play a game in the terminal: legal moves by number, undo, hints, save and resume (type ? in the game).

    Example: patience play Calculation-v0 --deal 7 --save game.json
    """
    from patience_env.training.cli import make_player, read_options
    from patience_env.training.console import fail

    try:
        options = read_options(option or [])
        if save is not None and save != resume:
            check_new(save)
        if resume is not None:
            if deal is not None or options:
                raise ValueError("a saved game has its deal and its options: give no --deal and no --option with it")
            session = load_game(resume)
            if game not in (None, session.env.game.id):
                raise ValueError(f"{resume!r} is a game of {session.env.game.id}, not of {game}")
        elif game is None:
            raise ValueError("say which game to play, such as PatiencePoker-v0 (patience list shows all)")
        else:
            facts = get_game(game)
            session = Session(game, facts.check_options(options), new_deal() if deal is None else deal)

        def make(text: str) -> Policy:
            return make_player(text, session.env.game.id, session.env.options)

        terminal = Terminal(session, make, hint, save or resume)
        if hint != THUMB:
            terminal.prepare(hint)  # so that a wrong name is told at once
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    if sys.stdin.isatty():
        _edit_lines()
    terminal.run()


def _edit_lines() -> None:
    """Let the arrow keys edit what is typed, where the interpreter can."""
    with suppress(ImportError):
        import readline  # noqa: F401
