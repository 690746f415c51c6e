"""Random legal steps of every game by the million: one game at a time and a thousand, in raise mode.

Four kinds of steps, each counted by itself:

* *compiled*: one game at a time in a compiled loop around the very call that `PatienceEnv.step` makes; the mask is
  worked out anew after every step.
* *single*: `PatienceEnv.step` in raise mode; after every thousandth step (later every five thousandth) illegal actions
  are tried too, and must be refused without a change.
* *batched*: `PatienceVectorEnv.step` with 1,024 games; one of them at a time is followed through an episode and
  replayed in a single environment.
* *oracle*: every mask, table and reward beside those of the slow plain rules in `tests/naive`.

After every thousandth step all cards are counted, hidden ones included; after every ten thousandth the position goes
through text and back, which works out anew whatever the state keeps in step. `--set games=GAME,GAME` plays those alone
and keeps the figures of the others.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from patience_env import jit
from patience_env.cards import NAMES, card_text
from patience_env.deals import RESERVED_DEALS, advance, bits_at
from patience_env.env import PatienceEnv
from patience_env.game import Game, game_ids, get_game, max_episode_steps
from patience_env.jit import kernel
from patience_env.kernels import DEAL, ILLEGAL, OVER, STEP, advance_rows, count_legal, nth_legal
from patience_env.table import Rows
from patience_env.vector import PatienceVectorEnv
from patience_env.verbs import legal
from torture.report import Budget, Section, TimeUpError

NAME, TITLE, SHARE = "steps", "Random legal steps", 0.30
WANTED = 10_000_000
EVERY = 1_000
FEW = 100_000
BATCH = 1_024
CARDS = frozenset(NAMES[1:-1])
# Where the cards lie that a table shows as `??`: the field, and the field (or number) of the first that is hidden.
HIDDEN = {
    "PatiencePoker-v0": ("deck", lambda state: int(state["placed"]) + (int(state["placed"]) < 25)),
    "RobinPost-v0": ("deck", lambda state: int(state["first"])),
    "Fourteenth-v0": ("deck", lambda state: int(state["turned"])),
    "Sultan-v0": ("pack", lambda state: int(state["turned"])),
    "Calculation-v0": ("deck", lambda state: int(state["hand_at"]) + 1),
    "EmpressOfIndia-v0": ("pack", lambda state: int(state["dealt"])),
}


def all_cards(game: Game, state: Any) -> Counter[str]:
    """Return how often each card occurs in a position, hidden cards included."""
    shown = [card for pile in game.table(state).values() for card in pile]
    if game.id == "Nivernaise-v0":
        hidden = [int(card) for card in state["cards"][state["hidden"] != 0]]
    elif game.id in HIDDEN and "??" in shown:
        name, first = HIDDEN[game.id]
        hidden = [int(card) for card in state[name][first(state) :]]
    else:
        hidden = []
    if shown.count("??") != len(hidden):
        raise AssertionError(f"{game.id}: the table shows {shown.count('??')} hidden cards, the state {len(hidden)}")
    return Counter([card for card in shown if card in CARDS] + [card_text(card) for card in hidden])


def is_whole(game: Game, state: Any) -> bool:
    """Tell whether every card occurs exactly as often as there are packs."""
    try:
        found = all_cards(game, state)
    except AssertionError:
        return False
    wanted = Counter(dict.fromkeys(CARDS, game.packs))
    if game.id == "EmpressOfIndia-v0":
        wanted["QC"] = 1  # the Empress herself: no other black queen is in the game
        del wanted["QS"]
    return found == wanted


def resident() -> int:
    """Return the resident size of this process in bytes."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


@dataclass
class Tally:
    """What happened in one game by one kind of steps."""

    steps: int = 0
    episodes: int = 0
    refused: int = 0
    wrong_masks: int = 0
    counted: int = 0
    torn: int = 0
    reloaded: int = 0
    replayed: int = 0
    differences: int = 0
    illegal_tried: int = 0
    illegal_taken: int = 0
    growth: float = 0.0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Watch:
    """Tells by how much the resident size has grown since the first tenth of the steps."""

    def __init__(self, wanted: int) -> None:
        self._at = wanted // 10
        self._base = 0

    def look(self, steps: int) -> None:
        """Note the size when the warm-up is over."""
        if not self._base and steps >= self._at:
            self._base = resident()

    def growth(self) -> float:
        """Return the growth as a share."""
        return resident() / self._base - 1 if self._base else 0.0


def check_position(env: PatienceEnv, tally: Tally, states: NDArray[Any], mask: NDArray[Any]) -> None:
    """Count the cards of a position; take the first and then each tenth through text and back, mask and all."""
    state = states[0]
    tally.counted += 1
    if not is_whole(env.game, state):
        tally.torn += 1
        tally.faults.append(f"{env.game.id} deal {int(state['deal'])}: cards {all_cards(env.game, state)}")
    if tally.counted % 10 != 1:
        return
    tally.reloaded += 1
    env.load(env.game.table(state))
    if (env.action_masks() != mask.astype(np.bool_)).any():
        tally.wrong_masks += 1
        tally.faults.append(f"{env.game.id} deal {int(state['deal'])}: the mask differs after a trip through text")


@kernel
def play_on(  # type: ignore[no-untyped-def]
    states,
    modes,
    deals,
    actions,
    rewards,
    status,
    held,
    masks,
    observations,
    scratch,
    sizes,
    stream,
    steps,
    limit,
    spare,
    tally,
):
    """Play random legal actions in the one row; count episodes, refused actions and wrong masks in `tally`."""
    over = tally[3] == 0
    elapsed = tally[4]
    for _ in range(steps):
        stream[0] = advance(int(stream[0]))
        if over or (limit > 0 and elapsed >= limit):
            modes[0] = DEAL
            deals[0] = bits_at(int(stream[0])) | np.uint64(RESERVED_DEALS)
            advance_rows(
                states,
                modes,
                deals,
                actions,
                rewards,
                status,
                held,
                masks,
                observations,
                scratch,
                sizes,
            )
            tally[0] += 1
            elapsed = 0
            stream[0] = advance(int(stream[0]))
        count = count_legal(masks[0])
        actions[0] = nth_legal(masks[0], (np.int64(bits_at(int(stream[0])) >> 32) * count) >> 32)
        modes[0] = STEP
        seen = advance_rows(
            states,
            modes,
            deals,
            actions,
            rewards,
            status,
            held,
            masks,
            observations,
            scratch,
            sizes,
        )
        elapsed += 1
        if seen & ILLEGAL:
            tally[1] += 1
        over = (seen & OVER) != 0
        count = legal(states[0], spare)
        for i in range(spare.shape[0]):
            if (spare[i] != 0) != (masks[0, i] != 0):
                tally[2] += 1
    tally[3] = 0 if over else 1
    tally[4] = elapsed


def compiled_steps(game_id: str, wanted: int, deadline: float, seed: int) -> Tally:
    """Play in the compiled loop."""
    game, tally, watch = get_game(game_id), Tally(), Watch(wanted)
    checker = PatienceEnv(game, observation="cards", illegal_action="raise")
    checker.reset(seed=seed)
    rows = Rows(game, checker.options, 1, "planes", False)
    modes, deals, actions = np.zeros(1, np.uint8), np.zeros(1, np.uint64), np.zeros(1, np.int64)
    stream, spare, counts = np.array([seed], np.uint64), np.zeros(rows.masks.shape[1], np.int8), np.zeros(5, np.int64)
    arguments = rows.arguments(modes, deals, actions)
    began = time.monotonic()
    while tally.steps < wanted and (tally.steps == 0 or time.monotonic() < deadline):
        play_on(*arguments, stream, EVERY, max_episode_steps(game_id) or 0, spare, counts)
        tally.steps += EVERY
        check_position(checker, tally, rows.states, rows.masks[0])
        watch.look(tally.steps)
    tally.episodes, tally.refused = int(counts[0]), int(counts[1])
    tally.wrong_masks += int(counts[2])
    tally.seconds, tally.growth = time.monotonic() - began, watch.growth()
    return tally


def single_steps(game_id: str, wanted: int, deadline: float, seed: int) -> Tally:
    """Play through `PatienceEnv.step`; every thousandth time an illegal action is tried first."""
    tally, watch, rng = Tally(), Watch(wanted), np.random.default_rng(seed)
    env = PatienceEnv(game_id, observation="cards", illegal_action="raise")
    checker = PatienceEnv(game_id, observation="cards", illegal_action="raise")
    checker.reset(seed=seed)
    limit = max_episode_steps(game_id) or 10**9
    began, elapsed, over = time.monotonic(), 0, True
    step, sample = env.step, env.sample
    env.reset(seed=seed)
    while tally.steps < wanted:
        if over or elapsed >= limit:
            env.reset()
            tally.episodes += 1
            elapsed = 0
        try:
            _, _, over, _, _ = step(sample())
        except InvalidAction as error:
            tally.refused += 1
            tally.faults.append(str(error))
            over = True
        tally.steps += 1
        elapsed += 1
        if tally.steps % EVERY == 0:
            check_position(checker, tally, env.state_rows(), env.action_masks())
            if not over and (tally.steps <= FEW or tally.steps % (5 * EVERY) == 0):
                try_illegal(env, tally, rng)
            watch.look(tally.steps)
            if time.monotonic() > deadline:
                break
    tally.seconds, tally.growth = time.monotonic() - began, watch.growth()
    return tally


def try_illegal(env: PatienceEnv, tally: Tally, rng: np.random.Generator) -> None:
    """Try an action that the mask forbids: it must be refused, and nothing may change."""
    forbidden = np.flatnonzero(~env.action_masks())
    outside = (-1, int(env.layout.actions), -(2**70), 2**70)
    chosen = [int(rng.choice(forbidden))] if len(forbidden) else []
    for action in (*chosen, outside[tally.illegal_tried % 4]):
        before = env.get_state()
        tally.illegal_tried += 1
        try:
            env.step(action)
        except InvalidAction:
            if env.get_state() == before:
                continue
        tally.illegal_taken += 1
        tally.faults.append(f"{env.game.id}: the illegal action {action} was taken, or left a trace")


class Followed:
    """One game of the batch, followed through an episode and replayed alone."""

    def __init__(self, batch: PatienceVectorEnv) -> None:
        self._batch = batch
        self._single = PatienceEnv(batch.game, observation=batch._rows.observation, illegal_action="raise")
        self._single.reset(seed=0)
        self._told: list[tuple[int, bytes, float, bool, bytes]] = []
        self._deal: int | None = None
        self._row = -1

    def choose(self, row: int) -> None:
        """Follow a game that has just been dealt."""
        self._row, self._deal, self._told = row, int(self._batch._deals[row]), []

    def see(self, action: int, answer: Any, tally: Tally) -> bool:
        """Note a step; at the end of the episode replay it. Return whether it has ended."""
        observations, rewards, terminated, truncated, info = answer
        row = self._row
        self._told.append(
            (
                action,
                observations[row].tobytes(),
                float(rewards[row]),
                bool(terminated[row]),
                info["action_mask"][row].tobytes(),
            )
        )
        if not (terminated[row] or truncated[row]):
            return False
        self._single.reset(options={"deal": self._deal})
        for number, told in enumerate(self._told):
            observation, reward, over, _, facts = self._single.step(told[0])
            if (observation.tobytes(), reward, over, facts["action_mask"].tobytes()) != told[1:]:
                tally.differences += 1
                tally.faults.append(f"{self._batch.game.id} deal {self._deal}: batch and single differ at {number}")
                break
        tally.replayed += len(self._told)
        return True


def batched_steps(game_id: str, wanted: int, deadline: float, seed: int, games: int = BATCH) -> Tally:
    """Play many games at once, in raise mode and with the registered step limit."""
    tally, watch, rng = Tally(), Watch(wanted), np.random.default_rng(seed)
    batch = PatienceVectorEnv(
        game_id, games, observation="cards", illegal_action="raise", max_episode_steps=max_episode_steps(game_id)
    )
    checker = PatienceEnv(game_id, observation="cards", illegal_action="raise")
    checker.reset(seed=seed)
    followed = Followed(batch)
    batch.reset(seed=seed)
    followed.choose(0)
    waiting = False
    ended = np.zeros(games, np.bool_)
    began, since = time.monotonic(), 0
    while tally.steps < wanted and time.monotonic() < deadline:
        actions = batch.sample(rng)
        try:
            answer = batch.step(actions)
        except InvalidAction as error:
            tally.refused += 1
            tally.faults.append(str(error))
            batch.reset()
            followed.choose(0)
            continue
        played = games - int(ended.sum())
        row = followed._row
        if waiting:
            # The step after an end deals anew: from here on it is followed.
            followed.choose(row)
            waiting = False
        elif followed.see(int(actions[row]), answer, tally):
            row = int(rng.integers(games))
            # Go on with a game that ended in this step too, so that its next deal is followed from its start.
            over = np.flatnonzero(answer[2] | answer[3])
            followed._row, waiting = int(rng.choice(over)), True
        ended = answer[2] | answer[3]
        tally.episodes += int(ended.sum())
        tally.steps += played
        since += played
        if since >= EVERY:
            since -= EVERY
            chosen = int(rng.integers(games))
            check_position(checker, tally, batch._rows.states[chosen : chosen + 1], batch.action_masks()[chosen])
        watch.look(tally.steps)
    tally.seconds, tally.growth = time.monotonic() - began, watch.growth()
    return tally


def oracle_steps(game_id: str, wanted: int, deadline: float, seed: int) -> Tally:
    """Play beside the slow plain rules."""
    from test_records import Stream, module_of, oracle, without_empty

    tally, rng = Tally(), np.random.default_rng(seed)
    module = import_module(f"naive.{module_of(game_id)}")
    env = PatienceEnv(game_id, illegal_action="raise")
    limit = max_episode_steps(game_id) or 10**9
    began = time.monotonic()
    env.reset(seed=seed)
    while tally.steps < wanted and (tally.steps == 0 or time.monotonic() < deadline):
        _, info = env.reset()
        deal = int(info["deal"])
        stream = Stream(deal)
        naive = oracle(module.Naive, env, deal, stream.shuffle)
        tally.episodes += 1
        for _ in range(limit):
            choices = [int(action) for action in np.flatnonzero(env.action_masks())]
            if naive.legal() != set(choices):
                tally.wrong_masks += 1
                tally.faults.append(f"{game_id} deal {deal}: the oracle allows other actions")
            if without_empty(naive.table()) != without_empty(env.table()) or naive.over() != (not choices):
                tally.differences += 1
                tally.faults.append(f"{game_id} deal {deal}: the oracle's table differs")
            if not choices or (tally.steps and time.monotonic() > deadline):
                break
            action = choices[rng.integers(len(choices))]
            stream.state = int(env.state_rows()["rng"][0])
            expected = naive.play(action)
            tally.differences += abs(env.step(action)[1] - expected) > 1e-9
            tally.steps += 1
    tally.seconds = time.monotonic() - began
    return tally


KINDS = {"compiled": compiled_steps, "single": single_steps, "batched": batched_steps, "oracle": oracle_steps}
# The share of the time that a kind takes where all its steps do not fit, and how many steps are wanted of it.
PLAN = {
    "compiled": (0.10, 3_000_000),
    "batched": (0.28, WANTED),
    "single": (0.55, WANTED),
    "oracle": (0.07, 100_000),
}
SHORT = {"compiled": (4_000, 1_000), "batched": (20_000, 600), "single": (3_000, 300), "oracle": (200, 20)}


def run(budget: Budget) -> Section:
    """Play every game by every kind of steps; what does not fit in the time is told with the number reached."""
    section = Section(NAME, TITLE)
    games = [game_id for game_id in budget.extra.get("games", "").split(",") if game_id] or list(game_ids())
    known = {kind: dict(budget.previous.get(kind, {})) for kind in PLAN} if "games" in budget.extra else {}
    section.data = {kind: known.get(kind, {}) for kind in PLAN}
    section.parts = dict.fromkeys(section.data["oracle"], False)
    with contextlib.suppress(TimeUpError):
        for number, game_id in enumerate(games):
            if section.parts and budget.left() <= 0:
                break
            for rest, kind in enumerate(PLAN):
                # What quick games leave is shared by those to come.
                shares = [share for share, _ in PLAN.values()]
                coming = sum(shares[rest:]) + sum(shares) * (len(games) - number - 1)
                played = _play(kind, game_id, budget, shares[rest] / coming, budget.seed + number)
                section.data[kind][game_id] = asdict(played)
                print(f"  {game_id} {kind}: {played.steps:,} in {played.seconds:.0f} s {played.faults[:2]}", flush=True)
            section.parts[game_id] = True
    totals = {
        kind: {game_id: Tally(**section.data[kind][game_id]) for game_id in game_ids() if game_id in section.parts}
        for kind in PLAN
    }
    if not section.parts:
        section.note("No time was left for a game.")
        return section
    section.tables.append(
        [["game", *PLAN, "episodes", "replayed", "cards counted", "growth of memory"]]
        + [_row(game_id, totals) for game_id in totals["oracle"]]
    )
    _judge(section, totals, budget)
    done = [min(one.steps / PLAN[kind][1], 1.0) for kind, of_kind in totals.items() for one in of_kind.values()]
    section.amount = sum(done) / (len(PLAN) * len(game_ids()))
    return section


def _play(kind: str, game_id: str, budget: Budget, share: float, seed: int) -> Tally:
    """Play a game by a kind of steps for a share of the time that is left."""
    end = time.monotonic() + 5.0 if budget.full and kind == "oracle" else float("inf")
    if budget.bounded:
        end = time.monotonic() + max(budget.left(), 0.0) * share
    amount = PLAN[kind][1] if not budget.short else SHORT[kind][0 if jit.JIT else 1]
    arguments: dict[str, Any] = {"games": 16} if budget.short and kind == "batched" else {}
    KINDS[kind](game_id, 1, time.monotonic() + 1, 1, **arguments)  # compiles
    return KINDS[kind](game_id, amount, max(end, time.monotonic() + 1.0), seed, **arguments)


def _row(game_id: str, totals: dict[str, dict[str, Tally]]) -> list[str]:
    mine = [totals[kind][game_id] for kind in PLAN]
    cells = [game_id, *(f"{one.steps:,} ({one.steps / max(one.seconds, 1e-9):,.0f}/s)" for one in mine)]
    cells += [f"{sum(getattr(one, name) for one in mine):,}" for name in ("episodes", "replayed", "counted")]
    return [*cells, f"{100 * max(one.growth for one in mine):.2f}%"]


def _judge(section: Section, totals: dict[str, dict[str, Tally]], budget: Budget) -> None:
    everything = [one for of_kind in totals.values() for one in of_kind.values()]

    def total(name: str, *kinds: str) -> int:
        return sum(getattr(one, name) for kind in kinds or totals for one in totals[kind].values())

    for kind in PLAN:
        least = min(one.steps for one in totals[kind].values())
        section.check(
            f"{kind}: legal actions refused, in {total('steps', kind):,} steps (at least {least:,} of each of "
            f"{len(totals[kind])} games)",
            total("refused", kind),
            total("refused", kind) == 0,
        )
        if kind != "oracle" and least < PLAN[kind][1] and not budget.short:
            section.note(
                f"The time did not suffice for {PLAN[kind][1]:,} {kind} steps of every game: {least:,} were reached by "
                "the slowest; `--only steps --full` plays all."
            )
    section.check(
        "masks that differ from those worked out anew after the step or through text",
        *_zero(
            total("wrong_masks", "compiled", "batched", "single"),
            f"{total('steps', 'compiled'):,} steps and {total('counted'):,} positions",
        ),
    )
    section.check(
        "masks, tables or rewards that differ from the oracle's",
        *_zero(total("wrong_masks", "oracle") + total("differences", "oracle"), f"{total('steps', 'oracle'):,} steps"),
    )
    section.check(
        "illegal actions taken, or refused with a trace, in raise mode",
        *_zero(total("illegal_taken"), f"{total('illegal_tried'):,} tried"),
    )
    section.check(
        "positions, one in a thousand steps, in which a card is missing or double",
        *_zero(total("torn"), f"{total('counted'):,} counted"),
    )
    section.check(
        "episodes of the batch that differ from the single game replayed",
        *_zero(total("differences", "batched"), f"{total('replayed', 'batched'):,} steps replayed"),
    )
    if missing := [game_id for game_id in game_ids() if game_id not in totals["single"]]:
        section.note(f"Not played for this page: {', '.join(missing)}.")
    growth = max(one.growth for one in everything)
    bound = 0.01 if not budget.short else 1.0
    section.check(
        "growth of the resident size after a tenth of the steps, at most", f"{100 * growth:.2f}%", growth < bound
    )
    for one in everything:
        for fault in one.faults[:3]:
            section.note(f"fault: {fault:.300}")


def _zero(count: int, of: str) -> tuple[str, bool]:
    return f"{count} in {of}", count == 0
