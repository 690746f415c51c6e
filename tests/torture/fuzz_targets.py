"""The parsers of states and of positions as text, called with arbitrary bytes.

`state(data)` and `text(data)` raise only where something is broken: an exception that is not documented, a refusal that
left a trace, a position accepted in which a card is missing or double, an environment that cannot be played on. They
need no Hypothesis and no atheris; `python -P fuzz_targets.py TARGET CORPUS [options]` runs a target under atheris.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from patience_env import cards, deals, env, game, table
from patience_env.cards import NAMES, card_code, card_text
from patience_env.env import MAGIC, PatienceEnv
from patience_env.game import game_ids, get_game

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((game_id, {}) for game_id in game_ids()),
    ("PatiencePoker-v0", {"placement": "fixed"}),
    ("PatiencePoker-v0", {"target": 40}),
    ("Fourteenth-v0", {"exchanges": 2, "close_gaps": True}),
    ("Calculation-v0", {"open_stock": True}),
    ("Sultan-v0", {"redeals": 1}),
]
DEPTHS = (0, 3, 20)


class BrokenError(AssertionError):
    """Something that must not happen."""


@cache
def subject(number: int) -> tuple[PatienceEnv, list[bytes], list[dict[str, list[str]]]]:
    """Return an environment, and states and tables of some of its positions."""
    game_id, options = VARIANTS[number % len(VARIANTS)]
    env = PatienceEnv(game_id, observation="cards", illegal_action="raise", **options)
    states, tables = [], []
    for depth in DEPTHS:
        env.reset(seed=number, options={"deal": 7_000_000 + number})
        for _ in range(depth):
            if not env._live:
                break
            env.step(env.sample())
        states.append(env.get_state())
        tables.append(env.table())
    return env, states, tables


class Bytes:
    """Reads small numbers from bytes, zeros after their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, below: int) -> int:
        """Return the next number, from 0 to below - 1."""
        width = 1 if below <= 256 else 4
        part = self._data[self._at : self._at + width]
        self._at += width
        return int.from_bytes(part, "big") % below

    @property
    def over(self) -> bool:
        """Whether all has been read."""
        return self._at >= len(self._data)

    def rest(self) -> bytes:
        """Return what has not been read."""
        return self._data[self._at :]


def playable(env: PatienceEnv, what: str) -> None:
    """Raise BrokenError unless the environment can be played on, saved and started anew."""
    for _ in range(3):
        if not env._live:
            break
        observation, *_ = env.step(env.sample())
        if not env.observation_space.contains(observation):
            raise BrokenError(f"{what}: an observation outside its space")
    env.table()
    env.get_state()
    env.reset(options={"deal": 5})


def sealed(head: bytes, record: bytes) -> bytes:
    """Return a state with a right checksum around any head and record."""
    body = MAGIC + len(head).to_bytes(4, "big") + head + record
    return body + hashlib.sha256(body).digest()


def _parts(state: bytes) -> tuple[bytes, bytes]:
    start = len(MAGIC) + 4
    length = int.from_bytes(state[len(MAGIC) : start], "big")
    return state[start : start + length], state[start + length : -32]


def state(data: bytes) -> None:
    """Give `set_state` arbitrary bytes, a damaged state, or one with a made-up head under a right checksum."""
    given = Bytes(data)
    env, states, _ = subject(given.number(256))
    saved = states[given.number(len(states))]
    way = given.number(4)
    if way == 0:
        tried = given.rest()
    elif way == 1:
        damaged = bytearray(saved)
        for _ in range(8):
            damaged[given.number(len(damaged))] ^= given.number(256)
        tried = bytes(damaged[: len(damaged) - given.number(256)] if given.number(2) else damaged)
    elif way == 2:
        tried = sealed(given.rest(), _parts(saved)[1])
    else:
        head, record = _parts(saved)
        facts = json.loads(head)
        _change(facts, given)
        tried = sealed(json.dumps(facts).encode(), record)
    _try(env, lambda: env.set_state(tried), "set_state", saved)


_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**63, 2**64, 2**64 - 1, -(2**70), 10**400, 1.5, 1e308, "", "x", "PCG64", "MT19937",
    "Generator", "seed", "Sultan-v0", [], [1], {}, {"state": 1}, {"deal": 1}, "9" * 5000,
)  # fmt: skip


def _change(facts: Any, given: Bytes) -> None:
    """Change some entries of nested facts to values of any kind."""
    for _ in range(1 + given.number(3)):
        at = facts
        while True:
            key = sorted(at)[given.number(len(at))]
            inner = at[key]
            if isinstance(inner, dict) and inner and given.number(3):
                at = inner
                continue
            break
        what = given.number(3)
        if what == 0:
            del at[key]
        elif what == 1 and isinstance(inner, int):
            at[key] = inner + given.number(512) - 256
        else:
            at[key] = _VALUES[given.number(len(_VALUES))]


def text(data: bytes) -> None:
    """Give `load` any JSON, or a position changed here and there; and `card_code` any text."""
    given = Bytes(data)
    env, states, tables = subject(given.number(256))
    number = given.number(len(tables))
    if given.number(4) == 0:
        raw = given.rest()
        _try_card(raw.decode("utf-8", "replace"))
        try:
            table = json.loads(raw)
        except (ValueError, RecursionError):
            return
    else:
        table = {place: list(cards) for place, cards in tables[number].items()}
        for _ in range(1 + given.number(6)):
            _edit(table, given)
    _try(env, lambda: env.load(table), f"load {table!r:.2000}", states[number])


_ODD = ("??", "--", "10H", "th", " AS ", "1X", "", "A", "ASAS", "\N{SNOWMAN}", "r1c1", "-1", "3", "9" * 20,
        "1e3", "0x1", "9" * 5000, "\x00", "1_0", "\N{ARABIC-INDIC DIGIT THREE}")  # fmt: skip


def _edit(table: dict[str, Any], given: Bytes) -> None:
    places = list(table)
    if not places:
        return
    place = places[given.number(256) % len(places)]
    cards = table[place]
    what = given.number(9)
    if not isinstance(cards, list) or what == 0:
        table.pop(place)
    elif what == 1 and cards:
        cards.pop(given.number(256) % len(cards))
    elif what == 2:
        cards.insert(given.number(256) % (len(cards) + 1), NAMES[given.number(len(NAMES))])
    elif what == 3 and cards:
        cards[given.number(256) % len(cards)] = NAMES[given.number(len(NAMES))]
    elif what == 4:
        other = table[places[given.number(256) % len(places)]]
        if cards and isinstance(other, list):
            other.append(cards.pop(given.number(256) % len(cards)))
    elif what == 5:
        other = places[given.number(256) % len(places)]
        table[place], table[other] = table[other], table[place]
    elif what == 6:
        cards.insert(given.number(256) % (len(cards) + 1), _ODD[given.number(len(_ODD))])
    elif what == 7:
        table[_ODD[given.number(len(_ODD))] if given.number(2) else place.upper()] = cards
    else:
        kinds: tuple[Any, ...] = (None, 5, "AS", (), ("AS",), [5], [None], {}, [["AS"]], b"AS", ["AS"] * 300)
        table[place] = kinds[given.number(len(kinds))]


def _try_card(raw: str) -> None:
    try:
        code = card_code(raw)
    except ValueError:
        return
    if card_code(card_text(code)) != code:
        raise BrokenError(f"card {raw!r} does not come back from its text")


def _try(env: PatienceEnv, act: Any, what: str, ready: bytes) -> None:
    """Do something that may be refused: a refusal leaves no trace, success leaves a whole game."""
    env.set_state(ready)
    before = env.get_state()
    try:
        act()
    except (TypeError, ValueError) as error:
        if not str(error):
            raise BrokenError(f"{what}: a refusal without a word") from error
        if env.get_state() != before:
            raise BrokenError(f"{what}: a refusal left a trace") from error
        return
    except Exception as error:
        raise BrokenError(f"{what}: {type(error).__name__}: {error}") from error
    try:
        if what.startswith("load"):
            from torture.steps import is_whole

            if not is_whole(env.game, env.state_rows()[0]):
                raise BrokenError(f"{what}: accepted although a card is missing or double")
        playable(env, what)
    except BrokenError:
        raise
    except Exception as error:
        raise BrokenError(f"{what}: afterwards {type(error).__name__}: {error}") from error


TARGETS = {"state": state, "text": text}


def seeds(target: str) -> list[bytes]:
    """Return inputs to begin with: some of each game and way."""
    rng = np.random.default_rng(0)
    found = [
        bytes([number, depth, way]) + rng.bytes(24)
        for number in range(len(VARIANTS))
        for depth in range(3)
        for way in range(4)
    ]
    for number in range(len(VARIANTS)):
        _, states, tables = subject(number)
        if target == "state":
            found.append(bytes([number, 0, 0]) + states[0])
            found.append(bytes([number, 0, 2]) + _parts(states[1])[0])
        else:
            found.append(bytes([number, 0, 0]) + json.dumps(tables[1]).encode())
    return found


def plain_functions() -> list[FunctionType]:
    """Return the functions and methods that run as plain Python: the parsers, and all around them but the rules."""
    modules = [cards, deals, env, game, table, *(sys.modules[get_game(known).deal.__module__] for known in game_ids())]
    found: list[FunctionType] = []
    for module in modules:
        own = [one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__]
        found += [one for one in own if isinstance(one, FunctionType)]
        for one in own:
            if isinstance(one, type):
                found += [method for method in vars(one).values() if isinstance(method, FunctionType)]
    return found


def main() -> None:
    """Run a target under atheris: its name, then what libFuzzer takes."""
    import atheris

    target = TARGETS[sys.argv.pop(1)]
    # What is compiled is left alone: it is quick, and is checked by random steps.
    for function in plain_functions():
        atheris.instrument_func(function)
    print(f"{len(plain_functions())} functions tell their coverage", flush=True)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
