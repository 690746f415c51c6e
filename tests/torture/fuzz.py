"""The public interface in any order with any arguments, and the parsers of states and text with any bytes.

Hypothesis drives the single and the batched environment through everything that they offer; whatever is refused must be
refused by an exception that the documentation names, and must leave no trace. The parsers are fuzzed with coverage as
the guide where atheris is installed (name its Python by `--set atheris=PYTHON`), else with random mutations.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import Error, InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from patience_env import jit
from patience_env.cards import NAMES
from patience_env.env import PatienceEnv
from patience_env.vector import PatienceVectorEnv
from torture import fuzz_targets
from torture.report import Budget, Section

NAME, TITLE, SHARE = "fuzz", "Fuzzing", 0.17
WANTED = 300.0  # seconds of each parser
MACHINE = 100.0  # seconds of each environment, where time is not scarce
STEPS = 40
MODES = [None, "ansi", "rgb_array", *(["human"] if find_spec("pygame") else [])]
COUNTS = {"calls": 0, "refusals": 0}

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=40),
    st.lists(st.integers(-5, 2000), max_size=4),
    st.dictionaries(st.sampled_from(["deal", "seed", "x", "reset_mask"]), st.integers(-2, 2**65), max_size=2),
    st.sampled_from(
        [np.int8(3), np.uint64(2**63), np.float32(1.0), np.array(2), np.array([1]), np.array([1, 2]), object]
    ),
)
DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=6)
EDITS = st.binary(min_size=2, max_size=24)


def says(error: Exception) -> None:
    """Fail where a refusal does not say what was wrong."""
    assert str(error), f"{type(error).__name__} without a word"


class Everything(RuleBasedStateMachine):
    """The single environment."""

    @initialize(
        number=st.integers(0, len(fuzz_targets.VARIANTS) - 1),
        observation=st.sampled_from(["planes", "cards"]),
        illegal=st.sampled_from(["raise", "forfeit"]),
        mode=st.sampled_from(MODES),
    )
    def begin(self, number: int, observation: str, illegal: Any, mode: str | None) -> None:
        """Make an environment, not yet reset."""
        game_id, options = fuzz_targets.VARIANTS[number]
        self.env = PatienceEnv(game_id, observation=observation, illegal_action=illegal, render_mode=mode, **options)
        self.env.metadata = {**self.env.metadata, "render_fps": 10_000}  # a window is not waited for
        self.illegal = illegal
        self.states: list[bytes] = []
        self.tables: list[dict[str, list[str]]] = []
        self.fresh = True

    def _expect(self, call: Any, *allowed: type[Exception]) -> Any:
        """Call; an allowed exception must say something and leave no trace, any other is a failure."""
        COUNTS["calls"] += 1
        before = None if self.fresh else self.env.get_state()
        try:
            return call()
        except allowed as error:
            COUNTS["refusals"] += 1
            says(error)
            if before is None:
                # Nothing was dealt before, and a refused call deals nothing.
                assert not self.env._started
            else:
                assert self.env.get_state() == before
            return None

    @rule(number=st.one_of(st.none(), st.integers(0, 2**32)), deal=st.one_of(st.none(), st.integers(0, 2**64 - 1)))
    def reset(self, number: int | None, deal: int | None) -> None:
        """Start a game."""
        observation, info = self.env.reset(seed=number, options=None if deal is None else {"deal": deal})
        assert self.env.observation_space.contains(observation)
        assert deal is None or info["deal"] == deal
        COUNTS["calls"] += 1
        self.fresh = False

    @rule(number=ANYTHING, options=ANYTHING)
    def reset_with_anything(self, number: Any, options: Any) -> None:
        """Start a game with arguments of any kind."""
        if self._expect(lambda: self.env.reset(seed=number, options=options), TypeError, ValueError, Error) is not None:
            self.fresh = False

    @precondition(lambda self: not self.fresh)
    @rule(bits=st.integers(0, 10**6), times=st.integers(1, 8))
    def play(self, bits: int, times: int) -> None:
        """Play legal actions."""
        for i in range(times):
            legal = np.flatnonzero(self.env.action_masks())
            if not len(legal):
                break
            COUNTS["calls"] += 1
            observation, reward, over, truncated, info = self.env.step(int(legal[(bits + i) % len(legal)]))
            assert self.env.observation_space.contains(observation)
            assert np.isfinite(reward)
            assert not truncated
            assert over == (not info["action_mask"].any())

    @rule(action=ANYTHING)
    def step_anything(self, action: Any) -> None:
        """Play an action of any kind."""
        self._expect(lambda: self.env.step(action), ResetNeeded, TypeError, InvalidAction)

    @rule()
    def sample(self) -> None:
        """Play what `sample` draws."""
        if self.fresh or not self.env._live:
            self._expect(lambda: self.env.step(self.env.sample()), ResetNeeded)
        elif self.env.action_masks().any():
            assert self.env.action_masks()[self.env.sample()]

    @rule(action=ANYTHING)
    def describe_anything(self, action: Any) -> None:
        """Ask for an action in words."""
        self._expect(lambda: self.env.describe(action), ResetNeeded, TypeError, ValueError)

    @precondition(lambda self: not self.fresh)
    @rule()
    def keep(self) -> None:
        """Keep state and table for later."""
        self.states = [*self.states[-3:], self.env.get_state()]
        self.tables = [*self.tables[-3:], self.env.table()]

    @precondition(lambda self: bool(self.states))
    @rule(number=st.integers(0, 3))
    def go_back(self, number: int) -> None:
        """Go back to a kept state."""
        saved = self.states[number % len(self.states)]
        self.env.set_state(saved)
        assert self.env.get_state() == saved
        self.fresh = False

    @precondition(lambda self: bool(self.states))
    @rule(number=st.integers(0, 3), damage=DAMAGE)
    def go_back_damaged(self, number: int, damage: list[tuple[int, int]]) -> None:
        """Try damaged bytes of a kept state."""
        saved = bytearray(self.states[number % len(self.states)])
        for place, bits in damage:
            saved[place % len(saved)] ^= bits
        if bytes(saved) not in self.states:
            before = self.env.get_state() if not self.fresh else None
            try:
                self.env.set_state(bytes(saved))
            except ValueError:
                COUNTS["refusals"] += 1
            else:
                raise AssertionError("damaged bytes were taken")
            assert before is None or self.env.get_state() == before

    @rule(state=ANYTHING)
    def set_anything(self, state: Any) -> None:
        """Try anything as a state."""
        self._expect(lambda: self.env.set_state(state), TypeError, ValueError)

    @precondition(lambda self: bool(self.tables))
    @rule(number=st.integers(0, 3), edits=EDITS)
    def load(self, number: int, edits: bytes) -> None:
        """Load a kept position, changed here and there."""
        table = {place: list(cards) for place, cards in self.tables[number % len(self.tables)].items()}
        given = fuzz_targets.Bytes(edits)
        for _ in range(given.number(4)):
            fuzz_targets._edit(table, given)
        self._expect(lambda: self.env.load(table), TypeError, ValueError)

    @rule(table=ANYTHING)
    def load_anything(self, table: Any) -> None:
        """Load anything."""
        if self._expect(lambda: self.env.load(table), TypeError, ValueError) is not None:
            self.fresh = False

    @rule(place=st.text(max_size=8), cards=st.lists(st.one_of(st.sampled_from(NAMES), st.text(max_size=4)), max_size=4))
    def load_text(self, place: str, cards: list[str]) -> None:
        """Load a table of one pile."""
        if self._expect(lambda: self.env.load({place: cards}), TypeError, ValueError) is not None:
            self.fresh = False

    @precondition(lambda self: not self.fresh)
    @rule(way=st.integers(0, 3))
    def copies(self, way: int) -> None:
        """Clone, pickle or copy: the copy is alike and apart."""
        before = self.env.get_state()
        makers = (self.env.clone, lambda: copy.deepcopy(self.env), lambda: pickle.loads(pickle.dumps(self.env)))
        twin = makers[way % 3]()
        assert twin.get_state() == before
        if twin._live:
            twin.step(twin.sample())
        twin.close()
        assert self.env.get_state() == before
        COUNTS["calls"] += 1

    @rule(key=ANYTHING)
    def determinize(self, key: Any) -> None:
        """Deal anew what is hidden: the player sees no difference."""
        shown = None if self.fresh else self.env.table()
        self._expect(lambda: self.env.determinize(key), ResetNeeded, TypeError)
        assert shown is None or self.env.table() == shown

    @rule()
    def render(self) -> None:
        """Draw the table in the environment's mode, and as SVG."""
        allowed = (ResetNeeded,) if self.fresh else ()
        frame = self._expect(self.env.render, *allowed)
        if self.env.render_mode == "rgb_array" and frame is not None:
            assert frame.dtype == np.uint8
            assert frame.shape[2] == 3
        if not jit.JIT:
            return
        picture = self._expect(self.env.svg, *allowed)
        assert picture is None or picture.startswith("<svg")

    @rule()
    def close(self) -> None:
        """Close twice: the environment can still be reset."""
        self.env.close()
        self.env.close()

    @invariant()
    def usable(self) -> None:
        """What is live has a legal action, or is a deal that was over before it began."""
        if getattr(self, "env", None) is not None and not self.fresh:
            assert self.env._live or not self.env.action_masks().any()

    def teardown(self) -> None:
        """Whatever happened: a new game can be played."""
        if getattr(self, "env", None) is None:
            return
        self.env.reset(seed=1)
        for _ in range(5):
            if self.env._live:
                self.env.step(self.env.sample())
        self.env.close()


class Many(RuleBasedStateMachine):
    """The batched environment."""

    @initialize(
        number=st.integers(0, len(fuzz_targets.VARIANTS) - 1),
        games=st.integers(1, 4),
        mode=st.sampled_from(list(AutoresetMode)),
        illegal=st.sampled_from(["raise", "forfeit"]),
        kept=st.booleans(),
        limit=st.sampled_from([None, 1, 7]),
    )
    def begin(self, number: int, games: int, mode: AutoresetMode, illegal: Any, kept: bool, limit: int | None) -> None:
        """Make a batch, not yet reset."""
        game_id, options = fuzz_targets.VARIANTS[number]
        self.batch = PatienceVectorEnv(
            game_id,
            games,
            observation="cards",
            autoreset_mode=mode,
            illegal_action=illegal,
            copy=kept,
            max_episode_steps=limit,
            **options,
        )
        self.fresh = True
        self.rng = np.random.default_rng(number)

    def _refusable(self, call: Any, *allowed: type[Exception]) -> Any:
        COUNTS["calls"] += 1
        before = self.batch.states()
        try:
            return call()
        except allowed as error:
            COUNTS["refusals"] += 1
            says(error)
            assert (self.batch.states() == before).all()
            return None

    @rule(number=st.one_of(st.none(), st.integers(0, 2**32)))
    def reset(self, number: int | None) -> None:
        """Start all games."""
        self.batch.reset(seed=number)
        self.fresh = False

    @rule(number=ANYTHING, options=ANYTHING)
    def reset_with_anything(self, number: Any, options: Any) -> None:
        """Start games with arguments of any kind."""
        call = lambda: self.batch.reset(seed=number, options=options)  # noqa: E731
        if self._refusable(call, TypeError, ValueError, Error) is not None:
            self.fresh = False

    @precondition(lambda self: not self.fresh)
    @rule(times=st.integers(1, 12))
    def play(self, times: int) -> None:
        """Play random legal actions."""
        for _ in range(times):
            if self.batch.autoreset_mode == AutoresetMode.DISABLED and self.batch._ended.any():
                self.batch.reset(options={"reset_mask": self.batch._ended.copy()})
            observations, rewards, *_ = self.batch.step(self.batch.sample(self.rng))
            assert self.batch.observation_space.contains(np.array(observations))
            assert np.isfinite(rewards).all()
            COUNTS["calls"] += 1

    @rule(actions=st.one_of(ANYTHING, st.lists(st.integers(-3, 2**40), min_size=1, max_size=4)))
    def step_anything(self, actions: Any) -> None:
        """Play anything."""
        self._refusable(lambda: self.batch.step(actions), ResetNeeded, TypeError, ValueError, InvalidAction)

    @rule()
    def copies(self) -> None:
        """Pickle: the copy goes on alike."""
        twin = pickle.loads(pickle.dumps(self.batch))
        assert (twin.states() == self.batch.states()).all()
        twin.close()
        COUNTS["calls"] += 1

    @rule()
    def close(self) -> None:
        """Close twice."""
        self.batch.close()
        self.batch.close()

    def teardown(self) -> None:
        """Whatever happened: new games can be played."""
        if getattr(self, "batch", None) is not None:
            self.batch.reset(seed=1)
            self.batch.step(self.batch.sample(self.rng))


MACHINES = {"single": Everything, "batched": Many}


def drive(name: str, examples: int, number: int) -> None:
    """Drive a machine through so many random courses; raise where something breaks."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    level = gymnasium.logger.min_level
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    try:
        run_state_machine_as_test(seed(number)(MACHINES[name]), settings=chosen)
    finally:  # a test of the same process may ask for a warning
        gymnasium.logger.min_level = level


def mutate(target: str, seconds: float, number: int, most: int | None = None) -> tuple[int, list[str]]:
    """Give a parser inputs mutated at random for some seconds; return how many, and what broke."""
    rng = np.random.default_rng(number)
    pool, faults, count = fuzz_targets.seeds(target), [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and count != most and len(faults) < 5:
        data = bytearray(pool[rng.integers(len(pool))])
        for _ in range(rng.integers(0, 12)):
            way = rng.integers(3)
            if way == 0 or not data:
                data.insert(int(rng.integers(len(data) + 1)), int(rng.integers(256)))
            elif way == 1:
                data[rng.integers(len(data))] = rng.integers(256)
            else:
                del data[rng.integers(len(data))]
        count += 1
        try:
            fuzz_targets.TARGETS[target](bytes(data))
        except fuzz_targets.BrokenError as error:
            faults.append(f"{target} {bytes(data[:60])!r}: {error!s:.400}")
    return count, faults


def guided(python: str, target: str, seconds: float, folder: Path) -> tuple[int, list[str]]:
    """Fuzz a parser under atheris; return how many inputs were tried, and what broke."""
    corpus = folder / f"corpus-{target}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(fuzz_targets.seeds(target)):
        (corpus / f"seed{number}").write_bytes(data)
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [python, "-P", str(Path(fuzz_targets.__file__)), target, str(corpus), f"-max_total_time={int(seconds)}",
         "-print_final_stats=1", "-rss_limit_mb=4096", f"-artifact_prefix={folder}/"],
        capture_output=True, text=True, errors="replace", timeout=seconds + 600, check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    told = done.stdout + done.stderr
    counts = [int(line.split()[-1]) for line in told.splitlines() if line.startswith("stat::number_of_executed_units")]
    faults = [] if done.returncode == 0 else [told[-1500:]]
    return (counts or [0])[0], faults


def atheris_python(budget: Budget) -> str | None:
    """Return a Python that has atheris, or None."""
    named = budget.extra.get("atheris")
    return named or (sys.executable if find_spec("atheris") else None)


def run(budget: Budget) -> Section:
    """Run machines and parsers."""
    section = Section(NAME, TITLE)
    python = None if budget.short else atheris_python(budget)
    for share, name in ((1 / 4, "single"), (1 / 6, "batched")):
        COUNTS.update(calls=0, refusals=0)
        courses, fault, slowest = 0, "", 0.0
        end = time.monotonic() + (MACHINE if budget.full else min(budget.left() * share, MACHINE))
        # Few at a time, so that the time is kept.
        few = 25 if budget.short and jit.JIT else 5
        try:
            while courses == 0 or (time.monotonic() + slowest < end and not budget.short):
                began = time.monotonic()
                drive(name, few, budget.seed + courses)
                courses += few
                slowest = max(slowest, time.monotonic() - began)
        except Exception as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            fault = f"{type(error).__name__}: {error} {notes}"
        section.check(
            f"{name} environment: calls in any order with any arguments that fail other than as documented",
            f"{1 if fault else 0} of {COUNTS['calls']:,} ({COUNTS['refusals']:,} refused, {courses:,} courses)",
            not fault,
        )
        if fault:
            section.note(f"fault: {fault:.1500}")
    for rest, target in ((2, "state"), (1, "text")):
        seconds = WANTED if budget.full else max(10.0, min(WANTED, (budget.left() - (15 if python else 0)) / rest))
        if python:
            count, faults = guided(python, target, seconds, budget.folder)
        else:
            count, faults = mutate(target, seconds, budget.seed, 150 if budget.short and not jit.JIT else None)
        how = "guided by coverage (atheris)" if python else "random mutations (atheris is not installed)"
        section.check(
            f"{'set_state' if target == 'state' else 'load and card_code'}: inputs that break something, {how}",
            f"{len(faults)} of {count:,} in {seconds:.0f} s",
            not faults and count > 0,
        )
        # Without coverage as the guide a second is worth a tenth.
        section.amount += min(seconds / WANTED, 1.0) / 2 * (1.0 if python else 0.1)
        for fault in faults[:3]:
            section.note(f"fault: {json.dumps(fault)[:1500]}")
        if not budget.short and seconds < WANTED - 1:
            section.note(
                f"{target}: {seconds:.0f} of {WANTED:.0f} s; `--only fuzz --full` gives each parser 5 minutes."
            )
    return section
