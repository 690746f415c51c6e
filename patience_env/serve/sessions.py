"""Games and matches in progress, and what a player is told of them. No networking here."""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from patience_env.agents.policy import Policy, Turn, key_of, see
from patience_env.deals import LAST_DEAL, check_deal
from patience_env.env import PatienceEnv
from patience_env.game import Game, Layout, Option, get_game
from patience_env.kernels import won_rows
from patience_env.render.layout import board_of, facts
from patience_env.serve.moves import Move, Observer, Seen
from patience_env.table import Rows
from patience_env.training.saved_games import record_of

MOST_ACTIONS = 10_000
MOST_DEALS = 100
MOST_OPPONENTS = 4
WORLDS = 32
FIRST_DRAWN, DRAWN = 100_000_000, 900_000_000


class Refusal(Exception):  # noqa: N818  (not an error of the program: an answer)
    """What a request asked for cannot be done; nothing has changed.

    Attributes:
        status: the HTTP status: 404 unknown, 409 out of date, 422 bad, 500 damaged, 503 try again.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def new_name() -> str:
    """Return a name that nobody guesses: who knows it may play the session."""
    return secrets.token_urlsafe(18)


def draw_deal() -> int:
    """Return a deal number of nine digits: short enough to be read out, and none that policies are compared on."""
    return FIRST_DRAWN + secrets.randbelow(DRAWN)


@lru_cache(maxsize=32)
def _observer(game_id: str, options: str) -> Observer:
    return Observer(get_game(game_id), json.loads(options))


def observer_of(game: Game, options: Mapping[str, Any]) -> Observer:
    """Return the observer of a game under checked options (kept from call to call)."""
    return _observer(game.id, json.dumps(options, sort_keys=True))


def find_game(game_id: Any) -> Game:
    """Return a game, or refuse."""
    if not isinstance(game_id, str):
        raise Refusal(422, f"a game is named by a string such as 'Sultan-v0', not {game_id!r:.60}")
    try:
        return get_game(game_id)
    except ValueError as error:
        raise Refusal(422, str(error)) from error


def check_options(game: Game, options: Any) -> dict[str, Any]:
    """Return the options of a game in normal form, or refuse."""
    if not isinstance(options, dict):
        raise Refusal(422, f"options are an object of names and values, not {options!r:.60}")
    try:
        checked = game.check_options(options)
        game.new_states(1, checked)  # refuses options that do not go together
    except (TypeError, ValueError) as error:
        raise Refusal(422, str(error)) from error
    return checked


def read_deal(deal: Any) -> int:
    """Return a deal number that is given as a number or, since it may exceed JavaScript's, as digits; or refuse."""
    try:
        if isinstance(deal, str) and deal.isascii() and deal.isdigit() and len(deal) <= len(str(LAST_DEAL)):
            deal = int(deal)
        return check_deal(deal)
    except (TypeError, ValueError) as error:
        raise Refusal(422, str(error)) from error


def check_actions(actions: Any) -> list[int]:
    """Return a list of actions, or refuse."""
    if not isinstance(actions, list) or any(type(action) is not int for action in actions):
        raise Refusal(422, "actions are a list of whole numbers")
    if len(actions) > MOST_ACTIONS:
        raise Refusal(422, f"the game has {len(actions)} actions: at most {MOST_ACTIONS} are taken")
    return actions


class Play:
    """One game being played: the environment and the actions so far.

    Raises:
        Refusal: the options are not allowed.
    """

    def __init__(self, game: Game, options: Mapping[str, Any], deal: int) -> None:
        self.game, self.options, self.deal = game, dict(options), deal
        self._observer = observer_of(game, self.options)
        self._env = PatienceEnv(game, observation="cards", illegal_action="raise", **self.options)
        self._start()

    def _start(self) -> None:
        self._observation, _ = self._env.reset(options={"deal": self.deal})
        self.actions: list[int] = []
        self.total = 0.0
        self.last = ""
        self._seen: Seen | None = None
        self._moves: list[Move] | None = None

    @property
    def layout(self) -> Layout:
        """The sizes and names of the game."""
        return self._env.layout

    @property
    def seen(self) -> Seen:
        """What the player sees now."""
        if self._seen is None:
            self._seen = self._observer.see(self._env.state_rows(), self._env.action_masks(), self._observation)
        return self._seen

    @property
    def moves(self) -> list[Move]:
        """The legal actions."""
        if self._moves is None:
            self._moves = self._observer.moves(self.seen)
        return self._moves

    @property
    def over(self) -> bool:
        """Whether no action is left."""
        return not self.seen.mask.any()

    @property
    def won(self) -> bool:
        """Whether the game is won."""
        won = np.zeros(1, np.bool_)
        won_rows(self._env.state_rows(), won)
        return bool(won[0])

    def describe(self, action: int) -> str:
        """Say what an action does."""
        return self._observer.describe(self.seen, action)

    def play(self, action: Any) -> None:
        """Play a legal action.

        Raises:
            Refusal: it is not legal, or there have been too many.
        """
        if type(action) is not int:
            raise Refusal(422, f"an action is a whole number, not {action!r:.60}")
        if len(self.actions) >= MOST_ACTIONS:
            raise Refusal(422, f"this game has had {MOST_ACTIONS} actions, the most that are kept: start another")
        if self.over:
            raise Refusal(422, "the game is over: there is nothing to play")
        if not 0 <= action < self.layout.actions:
            raise Refusal(422, f"action {action} lies outside 0 to {self.layout.actions - 1}")
        text = self.describe(action)
        try:
            self._observation, reward, *_ = self._env.step(action)
        except InvalidAction as error:
            raise Refusal(422, f"not legal here: {text}") from error
        self.actions.append(action)
        self.total += float(reward)
        self.last = text
        self._seen = self._moves = None

    def replay(self, actions: Sequence[int]) -> None:
        """Go back to the start and play these actions.

        Raises:
            Refusal: one of them is not legal; the game stays where it was.
        """
        before = self.actions
        self._start()
        try:
            self._play_all(actions)
        except Refusal:
            self._start()
            self._play_all(before)
            raise

    def _play_all(self, actions: Sequence[int]) -> None:
        for action in actions:
            try:
                self.play(action)
            except Refusal as refusal:
                raise Refusal(refusal.status, f"action {len(self.actions) + 1} of the record: {refusal}") from refusal

    def turn(self) -> Turn:
        """Return what a policy is shown: the position with its hidden cards dealt anew."""
        seen = self.seen
        return see(self.game, self.options, seen.states, seen.mask[None], seen.key)

    def record(self) -> dict[str, Any]:
        """Return the game as `patience play --save` writes it, so that `patience play --resume` goes on with it."""
        return record_of(self.game.id, self.options, self.deal, self.actions)

    def counters(self) -> dict[str, float]:
        """Return the numbers that the game shows beside its cards."""
        row = self.seen.states[0]
        return {name.replace("_", " "): float(row[name]) for name in self.layout.summary}

    def message(self) -> str:
        """Return what to say when the game is over, else an empty text."""
        if not self.over:
            return ""
        count = len(self.actions)
        moves = f"{count} move{'s' * (count != 1)}"
        if self.game.scores:
            score = self.counters().get("score", self.total)
            return f"The series is won, in {moves}." if self.won else f"Finished with {score:g} points."
        if self.won:
            return f"Won, in {moves}!"
        return f"No legal move is left after {moves}: {self.total:.0%} of the game is done."

    def view(self, *, moves: bool = True) -> dict[str, Any]:
        """Return all that a page shows of the position; nothing in it depends on a hidden card."""
        seen = self.seen
        own = self.game.picture(seen.states[0])
        layout = own.layout if own else self.layout
        table = own.table if own else seen.table
        board = board_of(layout)
        return {
            "game": self.game.id,
            "title": self.game.title,
            "options": self.options,
            "deal": str(self.deal),
            "step": len(self.actions),
            "table": {name: cards for name, cards in table.items() if name in board.names},
            "facts": facts(board, table),
            "counters": self.counters(),
            "done": self.total,
            "scores": self.game.scores,
            "board": board_facts(layout),
            "moves": [[m.action, m.text, m.sources, m.targets] for m in self.moves] if moves else [],
            "last": self.last,
            "over": self.over,
            "won": self.won,
            "message": self.message(),
            "caption": own.caption if own else "",
        }


def board_facts(layout: Layout) -> dict[str, Any]:
    """Return where the piles lie: lengths in cards, across and down, from the top left of what is drawn."""
    board = board_of(layout)
    places = [
        {
            "name": place.name,
            "x": round(place.spot.x - board.left, 4),
            "y": round(place.spot.y - board.top, 4),
            "dx": place.spot.dx,
            "dy": place.spot.dy,
            "steps": round(place.steps, 4),
            "label": place.spot.label,
            "labelY": None if place.label_y is None else round(place.label_y - board.top, 4),
        }
        for place in board.places
    ]
    return {
        "width": round(board.right - board.left, 4),
        "height": round(board.bottom - board.top, 4),
        "grid": list(layout.grid) if layout.grid and layout.grid[0] * layout.grid[1] == layout.actions else None,
        "places": places,
    }


def play_of_record(record: Any, step: int | None = None) -> tuple[Play, list[int]]:
    """Return the game of a recorded file as it stands after `step` actions (None: all), and the actions that follow.

    Raises:
        Refusal: it is no such record, or its actions are not legal.
    """
    if not isinstance(record, dict):
        raise Refusal(422, "a recorded game is a JSON object with game, options, deal and actions")
    missing = [name for name in ("game", "options", "deal", "actions") if name not in record]
    if missing:
        raise Refusal(422, f"the recorded game lacks {', '.join(missing)}: it needs game, options, deal and actions")
    game = find_game(record["game"])
    actions = check_actions(record["actions"])
    if step is not None and not 0 <= step <= len(actions):
        raise Refusal(422, f"step {step} lies outside 0 to {len(actions)}")
    play = Play(game, check_options(game, record["options"]), read_deal(record["deal"]))
    shown = len(actions) if step is None else step
    play.replay(actions[:shown])
    return play, actions[shown:]


def act(policy: Policy, turn: Turn) -> int:
    """Return the action that a policy chooses, once it is found to be legal.

    Raises:
        Refusal: it is not.
    """
    action = int(policy.act(turn)[0])
    if not 0 <= action < turn.masks.shape[1] or not turn.masks[0, action]:
        raise Refusal(500, f"the policy {policy.name!r} chose action {action}, which is not legal")
    return action


@dataclass(frozen=True)
class Values:
    """What a policy expects of each legal action.

    Attributes:
        values: action -> expected final score.
        errors: action -> standard error; empty where the policy itself tells the values.
        method: how they were found, in words.
    """

    values: dict[int, float]
    errors: dict[int, float]
    method: str


def cell_values(policy: Policy, turn: Turn, score: float) -> Values:
    """Return the final score that a policy expects of each legal action in the one position of `turn`.

    A policy that has a method `values(turn) -> float array (n, actions)`, the expected final score of each action, is
    asked. Of any other the mean is taken over games that it plays to the end from what the player sees, in the same
    `WORLDS` orders of the hidden cards for every action, so that actions are compared card by card.
    """
    legal = np.flatnonzero(turn.masks[0]).tolist()
    own: Callable[[Turn], NDArray[np.float64]] | None = getattr(policy, "values", None)
    if callable(own):
        told = np.asarray(own(turn), np.float64)
        if told.shape == turn.masks.shape:
            finite = {a: float(told[0, a]) for a in legal if np.isfinite(told[0, a])}
            return Values(finite, {}, f"as {policy.name} itself values them")
    rows = Rows(turn.game, turn.options, WORLDS * len(legal), "cards", False)
    # From what the player sees: the bytes of a record also hold those between its fields, which mean nothing.
    key = key_of(turn.observations("cards"))
    worlds = see(turn.game, turn.options, np.repeat(turn.states, WORLDS), np.repeat(turn.masks, WORLDS, 0), key)
    rows.states[:] = np.tile(worlds.states, len(legal))
    rows.show(rows.all_rows)
    actions = np.repeat(np.array(legal, np.int64), WORLDS)
    totals = np.full(len(actions), score)
    live = np.ones(len(actions), np.bool_)
    for later in range(MOST_ACTIONS):
        rows.step(actions, ~live)
        totals += np.where(live, rows.rewards, 0.0)
        live &= rows.masks.any(axis=1)
        if not live.any():
            break
        on = np.flatnonzero(live)
        actions[on] = policy.act(see(turn.game, turn.options, rows.states[on], rows.masks[on], key + 1 + later))
    each = totals.reshape(len(legal), WORLDS)
    means = each.mean(axis=1)
    errors = each.std(axis=1, ddof=1) / np.sqrt(WORLDS)
    return Values(
        dict(zip(legal, map(float, means), strict=True)),
        dict(zip(legal, map(float, errors), strict=True)),
        f"mean of {WORLDS} games that {policy.name} played to the end from here",
    )


class Match:
    """A player against policies: the same cards called to all, over an agreed number of deals.

    Attributes:
        game, options: what is played.
        first, deals: the first deal number and how many consecutive ones are played.
        opponents: the names of the policies.
        done: the actions of the finished deals: for each deal a list for each seat, the player's first.
        seats: the games of the present deal, the player's first.
    """

    def __init__(
        self, game: Game, options: Mapping[str, Any], first: int, deals: int, opponents: Sequence[str]
    ) -> None:
        self.game, self.options, self.first, self.deals = game, dict(options), first, deals
        self.opponents = list(opponents)
        self.done: list[list[list[int]]] = []
        self.scores: list[list[float]] = []
        self.seats = self._deal()
        self.thinking = False

    def _deal(self) -> list[Play]:
        number = (self.first + len(self.done)) % (LAST_DEAL + 1)
        return [Play(self.game, self.options, number) for _ in range(1 + len(self.opponents))]

    @property
    def round(self) -> int:
        """Which deal is on, from 0."""
        return len(self.done)

    @property
    def over(self) -> bool:
        """Whether the last deal is finished."""
        return self.seats[0].over and self.round + 1 == self.deals

    def play(self, actions: Sequence[int]) -> None:
        """Play an action for each seat.

        Raises:
            Refusal: one is not legal; no seat has moved.
        """
        for seat, action in zip(self.seats, actions, strict=True):
            if not (type(action) is int and 0 <= action < len(seat.seen.mask) and seat.seen.mask[action]):
                seat.play(action)  # refuses in its own words
        for seat, action in zip(self.seats, actions, strict=True):
            seat.play(action)

    def next(self) -> None:
        """Go on to the next deal.

        Raises:
            Refusal: the present one is not finished, or it was the last.
        """
        if not self.seats[0].over:
            raise Refusal(409, "this deal is not finished yet")
        if self.over:
            raise Refusal(409, "that was the last deal of the match")
        self.scores.append([seat.total for seat in self.seats])
        self.done.append([seat.actions for seat in self.seats])
        self.seats = self._deal()

    def totals(self) -> list[float]:
        """Return the points of each seat over all deals so far, the present one included."""
        return [sum(deal[i] for deal in self.scores) + seat.total for i, seat in enumerate(self.seats)]

    def facts(self) -> dict[str, Any]:
        """Return what the match is rebuilt from."""
        return {
            "kind": "match",
            "game": self.game.id,
            "options": self.options,
            "first": self.first,
            "deals": self.deals,
            "opponents": self.opponents,
            "played": [*self.done, [seat.actions for seat in self.seats]],
        }

    def message(self) -> str:
        """Return what to say at the end of a deal, else an empty text."""
        if not self.seats[0].over:
            return ""
        if not self.over:
            return f"Deal {self.round + 1} of {self.deals} is finished: {self.seats[0].total:g} points for you."
        mine, *theirs = self.totals()
        best = max(theirs, default=mine)
        if mine == best:
            return f"The match is drawn: {mine:g} points each."
        verb = "won" if mine > best else "lost"
        return f"The match is {verb}: {mine:g} points to {best:g}."

    def view(self) -> dict[str, Any]:
        """Return all that a page shows of the match."""
        mine = self.seats[0].view()
        names = ["you", *self.opponents]
        totals = self.totals()
        players = [
            {
                "name": names[i],
                "score": seat.total,
                "total": totals[i],
                "table": seat.seen.table,
                "last": seat.actions[-1] if seat.actions else None,
            }
            for i, seat in enumerate(self.seats)
        ]
        step = mine["step"]
        return {
            **mine,
            "kind": "match",
            "first": str(self.first),
            "deals": self.deals,
            "round": self.round,
            "step": step,
            "players": players,
            "history": [{"deal": str(self.first + i), "scores": scores} for i, scores in enumerate(self.scores)],
            "dealOver": self.seats[0].over,
            "matchOver": self.over,
            "message": self.message(),
        }


def game_facts(play: Play) -> dict[str, Any]:
    """Return what a game is rebuilt from."""
    return {
        "kind": "game",
        "game": play.game.id,
        "options": play.options,
        "deal": play.deal,
        "actions": play.actions,
    }


def new_match(game: Game, options: dict[str, Any], first: int, deals: Any, opponents: Any) -> Match:
    """Return a new match, or refuse."""
    if not game.scores:
        raise Refusal(422, f"matches are for games that score, such as PatiencePoker-v0, not for {game.id}")
    if options.get("target") is not None:
        raise Refusal(422, "a match has an agreed number of deals: leave the target of a series out")
    if type(deals) is not int or not 1 <= deals <= MOST_DEALS:
        raise Refusal(422, f"deals={deals!r:.40} is not allowed: give a whole number from 1 to {MOST_DEALS}")
    named = isinstance(opponents, list) and all(isinstance(name, str) for name in opponents)
    if not named or not 1 <= len(opponents) <= MOST_OPPONENTS:
        raise Refusal(422, f"opponents are a list of 1 to {MOST_OPPONENTS} names of policies")
    return Match(game, options, first, deals, opponents)


def restore(stored: Mapping[str, Any]) -> Play | Match:
    """Return the session of stored facts, replayed.

    Raises:
        Refusal: the facts are damaged, or the rules no longer allow what they tell.
    """
    try:
        game = get_game(stored["game"])
        options = game.check_options(stored["options"])
        if stored["kind"] == "game":
            play = Play(game, options, read_deal(stored["deal"]))
            play.replay(check_actions(stored["actions"]))
            return play
        match = new_match(game, options, read_deal(stored["first"]), stored["deals"], stored["opponents"])
        *finished, present = stored["played"]
        for seats in finished:
            _replay_seats(match, seats)
            match.next()
        _replay_seats(match, present)
        return match
    except (KeyError, TypeError, ValueError, Refusal) as error:
        raise Refusal(
            500, f"the record of this game in the data file is damaged; other games are not ({error})"
        ) from error


def _replay_seats(match: Match, actions: Sequence[Any]) -> None:
    for seat, mine in zip(match.seats, actions, strict=True):
        seat.replay(check_actions(mine))


def _literals(text: str) -> list[Any]:
    return [ast.literal_eval(part) for part in text.split(", ")]


def form_field(option: Option) -> dict[str, Any]:
    """Return what a form needs to ask for an option: its name, default, help, and what `check` says is allowed.

    By contract a check that refuses a value says what is allowed: `choose one of 'a', 'b'` or `a whole number from 0 to
    99, or None`. Where it says neither, the field is free text, which the server reads as JSON and checks.
    """
    field: dict[str, Any] = {"name": option.name, "default": option.default, "help": option.help, "kind": "text"}
    allowed = option.allowed
    literal = r"(?:'[^']*'|True|False|None|-?\d+)"
    if found := re.search(rf"choose one of ({literal}(?:, {literal})*)", allowed):
        field |= {"kind": "choice", "choices": _literals(found.group(1)), "free": "or give" in allowed}
    elif found := re.search(rf"whole number from (\d+) to (\d+)((?:, or {literal})*)", allowed):
        also = _literals(found.group(3).replace(", or ", ", ").removeprefix(", ")) if found.group(3) else []
        field |= {"kind": "number", "low": int(found.group(1)), "high": int(found.group(2)), "also": also}
    return field
