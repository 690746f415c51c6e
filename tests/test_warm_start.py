"""Learning from a teacher, and the networks that play any game."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")
pytest.importorskip("safetensors")

import torch

from patience_env import get_game, jit
from patience_env.agents.policy import Policy, Turn, make_policy, see
from patience_env.cards import FACE_DOWN, card_code
from patience_env.env import PatienceEnv
from patience_env.game import Layout, game_ids
from patience_env.games.sultan import TURN
from patience_env.sb3 import PatienceVecEnv
from patience_env.training.ahead_network import OTHER_WORLD, AheadPolicy, look_ahead
from patience_env.training.card_networks import CODES, lay_out, view_cards
from patience_env.training.learner import Decisions, Lesson, Run, Validation
from patience_env.training.models import input_space, load_policy, policy_class
from patience_env.training.ship import ship
from patience_env.training.train import Plan, level_text, read_settings, train
from patience_env.training.warm_start import WarmStart
from patience_env.vector import PatienceVectorEnv

SULTAN = "Sultan-v0"
POKER = "PatiencePoker-v0"
TINY = {
    "envs": 4,
    "n_steps": 8,
    "batch_size": 16,
    "n_epochs": 1,
    "width": 8,
    "embedding": 2,
    "depth": 2,
    "warm_steps": 96,
    "spread_steps": 3,
    "evaluate_every": 64,
}
DEALS = range(3_000_000, 3_000_003)


def tiny(folder: Path, game: str = SULTAN, **keywords: Any) -> Any:
    keywords = {"steps": 64, "settings": TINY, "deals": DEALS, "quiet": True, "teacher": "thumb", **keywords}
    return train(game, folder, **keywords)


def facts_of(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "checkpoint.json").read_text())
    return facts


# -- what the networks are shown -----------------------------------------------------------------------------------


def small_layout() -> Layout:
    """Two single places, a hand of two, and a pile of seven places that is laid from its bottom."""
    names = ["stock", "waste", "hand 1", "hand 2", *(f"pile {i}" for i in range(1, 8))]
    return Layout(actions=3, places=tuple(names), counters=(), grid=None, spots={})


def test_a_long_row_shows_its_ends_and_the_top_wherever_it_lies() -> None:
    view = view_cards(small_layout(), depth=2)
    assert (view.shown, view.group_count) == (1 + 1 + 2 + 4, 1)
    ace, two, three = (card_code(card) for card in ("AS", "2S", "3S"))
    cards = np.array(
        [[9, 0, 7, 0, ace, two, three, 0, 0, 0, 0], [9, 0, 7, 0, ace, 0, 0, 0, 0, 0, 0], [9, 0, 7] + [0] * 8], np.int8
    )
    codes, counts = np.zeros((3, view.shown), np.int64), np.zeros((3, 1, CODES), np.float32)
    lay_out(cards, view.order, view.rows, view.groups, view.depth, codes, counts)
    # stock, waste, hand; the pile's first two cards; its last two, the top before the one below.
    assert codes.tolist() == [
        [9, 0, 7, 0, ace, two, three, two],
        [9, 0, 7, 0, ace, 0, ace, 0],
        [9, 0, 7, 0, 0, 0, 0, 0],
    ]
    assert counts[0, 0, [ace, two, three]].tolist() == [0.5, 0.5, 0.5]
    assert counts[0, 0, 0] == pytest.approx(0.4)
    assert counts[0, 0].sum() == pytest.approx(1.9)


@pytest.mark.parametrize("game_id", game_ids())
def test_every_layout_shows_every_row(game_id: str) -> None:
    game = get_game(game_id)
    layout = game.layout(game.check_options({}))
    view = view_cards(layout, 4)
    assert sorted(view.order.tolist()) == list(range(len(layout.places)))
    assert view.rows[:, 1].sum() == len(layout.places)
    assert view.shown <= len(layout.places)


def ahead_policy(game_id: str) -> AheadPolicy:
    torch.manual_seed(0)
    game = get_game(game_id)
    options = game.check_options({})
    maker, keywords = policy_class("ahead", {"width": 8, "embedding": 3, "depth": 3}, game, options)
    space = input_space("ahead", "cards", game, options)
    made: AheadPolicy = maker(space, PatienceVectorEnv(game_id, 1).single_action_space, lambda _: 0.0, **keywords)
    return made


def test_a_card_that_an_action_turns_up_is_shown_face_down() -> None:
    game = get_game(SULTAN)
    batch = PatienceVectorEnv(SULTAN, 6, observation="cards")
    observations, info = batch.reset(options={"deal": list(range(5_000_000, 5_000_006))})
    states = batch.states()
    rows, actions = np.nonzero(info["action_mask"])
    layout = batch.layout
    entries = len(layout.places) + len(layout.counters)
    views, facts = np.zeros((len(rows), entries), np.int8), np.zeros((len(rows), 4), np.float32)
    room = (game.new_states(3, batch.options), np.zeros(layout.actions, np.int8), np.zeros((2, entries), np.int8))
    look_ahead(states, observations, rows, actions, len(layout.places), OTHER_WORLD, *room, views, facts)
    top = layout.places.index("talon top")
    turned = views[actions == TURN, top]
    assert len(turned) == 6
    assert (turned == FACE_DOWN).sum() >= 5  # in one world of many the other world turns up the same card
    played = actions < 8
    assert (facts[played, 0] > 0).all()
    assert not facts[actions == TURN, 0].any()
    np.testing.assert_array_equal(states, batch.states())


def test_what_the_network_says_depends_on_no_hidden_card() -> None:
    policy = ahead_policy(SULTAN)
    batch = PatienceVectorEnv(SULTAN, 1)
    _, info = batch.reset(options={"deal": 5_000_000})
    told = set()
    for key in range(8):
        turn = see(batch.game, batch.options, batch.states(), info["action_mask"], key)
        seen = torch.as_tensor(turn.states.view(np.uint8).reshape(1, -1))
        with torch.no_grad():
            logits, values = policy._look(seen)
        legal = logits[0].numpy()[info["action_mask"][0] == 1]
        told.add((*legal.round(5).tolist(), round(float(values), 5)))
    assert len(told) <= 2  # two only where the card turned up is that of the other world


def test_the_sparse_first_layer_is_the_dense_one() -> None:
    tables = ahead_policy(SULTAN).tables
    view, rng = tables.view, np.random.default_rng(0)
    seen = rng.integers(0, CODES, (5, view.places + view.counters)).astype(np.int8)
    seen[:, view.places :] %= 13
    after = seen[[0, 0, 3, 4]].copy()
    after[rng.random(after.shape) < 0.2] = 0
    facts, facts_after = rng.random((5, 4), np.float32), rng.random((4, 4), np.float32)
    rows = np.array([0, 0, 3, 4])

    def dense(views: Any, facts: Any) -> torch.Tensor:
        laid = tables.lay(views)
        cards = tables.cards(torch.from_numpy(laid.codes.astype(np.int64))).flatten(1)
        parts = (cards, torch.from_numpy(laid.counts), laid.numbers, torch.from_numpy(facts))
        made: torch.Tensor = tables.first(torch.cat(parts, 1))
        return made

    weights, laid = tables.weights(), tables.lay(seen)
    before = tables.before(laid, facts, weights)
    change = tables.change(laid, facts, rows, tables.lay(after), facts_after, weights)
    wanted = [dense(seen, facts), dense(after, facts_after) - dense(seen, facts)[rows]]
    slopes = []
    for pair in ((before, change), wanted):
        tables.zero_grad()
        (pair[0].square().sum() + pair[1].square().sum()).backward()  # type: ignore[no-untyped-call]
        slopes.append([tensor.grad.clone() for tensor in (tables.cards.weight, tables.first.weight)])
    torch.testing.assert_close(before, wanted[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(change, wanted[1], atol=1e-4, rtol=1e-4)
    for mine, other in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-3, rtol=1e-3)


def test_forced_moves_get_no_look_ahead_and_illegal_ones_no_chance() -> None:
    policy = ahead_policy(SULTAN)
    batch = PatienceVectorEnv(SULTAN, 8)
    batch.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        _, _, _, _, info = batch.step(batch.sample(rng))
    masks = info["action_mask"]
    turn = see(batch.game, batch.options, batch.states(), masks, 1)
    with torch.no_grad():
        logits, _ = policy._look(torch.as_tensor(turn.states.view(np.uint8).reshape(8, -1)))
    assert (logits.numpy()[masks == 0] <= -1e8).all()
    forced = masks.sum(1) == 1
    assert forced.any()
    assert (logits.numpy()[forced][masks[forced] == 1] == 0).all()


# -- the games as the learner sees them ----------------------------------------------------------------------------


def lesson(game: str, **settings: Any) -> Lesson:
    chosen = read_settings(game, {"envs": 1, **settings})
    plan = Plan(game, get_game(game).check_options({}), 0, chosen, "0")
    return Lesson(PatienceVecEnv(game, 1, observation=chosen["observation"]), plan)


def test_a_won_game_brings_the_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    games = lesson(SULTAN, win_bonus=2.0, reward_scale=10.0)
    games.reset()

    def ends(total: float) -> Any:
        info = {"episode": {"r": total}, "TimeLimit.truncated": True}
        return np.zeros((1, 123), np.int8), np.array([0.25], np.float32), np.array([True]), [info]

    for total, reward in ((1.0, 22.5), (0.99, 2.5)):
        monkeypatch.setattr(games.venv, "step_wait", lambda total=total: ends(total))
        _, rewards, dones, infos = games.step_wait()
        assert rewards.tolist() == [reward]
        assert dones.all()
        assert infos[0]["TimeLimit.truncated"] is False


def test_the_buffer_keeps_decisions_and_a_quarter_of_forced_moves() -> None:
    from gymnasium.spaces import Box, Discrete

    buffer = Decisions(400, Box(0, 1, (1,), np.float32), Discrete(3), device="cpu", n_envs=1)
    for step in range(400):
        mask = np.array([[1, 1, step % 2]]) if step < 200 else np.array([[0, 1, 0]])
        zeros = np.zeros(1, np.float32)
        buffer.add(np.full((1, 1), step), zeros, zeros, zeros, torch.zeros(1), torch.zeros(1), action_masks=mask)
    buffer.compute_returns_and_advantage(torch.zeros(1), np.zeros(1))
    np.random.seed(0)  # noqa: NPY002 - SB3 draws its minibatches from NumPy's global state
    given = np.concatenate([part.observations.numpy()[:, 0] for part in buffer.get(50)])
    assert set(range(200)) <= set(given.astype(int).tolist())
    assert 25 < (given >= 200).sum() < 75


# -- the warm start ------------------------------------------------------------------------------------------------


class LowestPolicy(Policy):
    """Plays the first legal action: a teacher that is easy to copy."""

    name = "lowest"

    def act(self, turn: Turn) -> np.ndarray:
        return turn.masks.argmax(axis=1)


@pytest.mark.parametrize("network", ["cards", "ahead"])
def test_the_pupil_comes_to_play_as_its_teacher(tmp_path: Path, network: str) -> None:
    rounds = 60 if jit.JIT else 25
    settings = {
        **read_settings(SULTAN, taught=True),
        **TINY,
        "network": network,
        "width": 32,
        "embedding": 4,
        "warm_learning_rate": 0.01,
    }
    plan = Plan(SULTAN, get_game(SULTAN).check_options({}), 0, settings, "0", "lowest")
    run = Run(tmp_path / "run", plan, (1, None), np.array(DEALS, np.uint64), True, LowestPolicy())
    start = WarmStart(run._model, plan, LowestPolicy())
    measures = [start.round(i / rounds) for i in range(rounds)]
    first, last = (np.mean([part["cross_entropy"] for part in some]) for some in (measures[:3], measures[-3:]))
    assert last < 0.7 * first
    assert measures[-1]["games_of_the_pupil"] == 2
    assert measures[-1]["agreement"] > measures[0]["agreement"]


def test_a_taught_run_warms_up_then_learns_and_leaves_its_traces(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = tiny(tmp_path / "run")
    assert [point.steps for point in done.curve] == [0, 64]
    assert all(point.won is not None for point in done.curve)
    facts = facts_of(tmp_path / "run")
    assert (facts["warm_steps"], facts["warmed"], facts["steps"]) == (96, True, 64)
    assert 0 < facts["warm_seconds"] < facts["seconds"]
    model = load_policy(tmp_path / "run" / "model")
    assert model.facts["training"]["teacher"] == "thumb"
    (events,) = (tmp_path / "run" / "tensorboard").glob("events*")
    log = EventAccumulator(str(events))
    log.Reload()
    assert [event.step for event in log.Scalars("warm_start/cross_entropy")] == [32, 64, 96]
    assert "validation/won" in log.Tags()["scalars"]


def test_the_same_seed_gives_the_same_taught_run(tmp_path: Path) -> None:
    first, again, other = (tiny(tmp_path / str(i), seed=seed) for i, seed in enumerate((5, 5, 6)))
    weights = [load_policy(run.folder / "model").policy.state_dict() for run in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_a_run_stopped_in_the_warm_start_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(BaseException):
        pass

    def stop_at_the_third(self: WarmStart, share: float) -> Any:
        if share > 0.6:
            raise Stopped
        return go_on(self, share)

    go_on = WarmStart.round
    settings = {**TINY, "checkpoint_seconds": 0.0}
    with monkeypatch.context() as patch:
        patch.setattr(WarmStart, "round", stop_at_the_third)
        with pytest.raises(Stopped):
            tiny(tmp_path / "run", settings=settings)
    facts = facts_of(tmp_path / "run")
    assert (facts["warm_steps"], facts["warmed"], facts["steps"], facts["curve"]) == (64, False, 0, [])
    with pytest.raises(ValueError, match="teacher is 'thumb' in the run, but 'greedy' is asked for"):
        tiny(tmp_path / "run", settings=settings, resume=True, teacher="greedy")
    same = {**read_settings(SULTAN, taught=True), **settings}
    with pytest.raises(ValueError, match="teacher is 'thumb' in the run, but None is asked for"):
        tiny(tmp_path / "run", settings=same, resume=True, teacher=None)
    done = tiny(tmp_path / "run", settings=settings, resume=True)
    facts = facts_of(tmp_path / "run")
    assert (facts["warm_steps"], facts["warmed"], facts["steps"]) == (96, True, 64)
    assert [point.steps for point in done.curve] == [0, 64]


@pytest.mark.slow
def test_a_run_killed_in_the_warm_start_goes_on_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {**TINY, "checkpoint_seconds": 0.0, "warm_steps": 10**9}
    code = (
        "from patience_env.training.train import train\n"
        f"train({SULTAN!r}, {str(folder)!r}, steps=64, settings={settings!r}, deals={list(DEALS)!r}, quiet=True, "
        "teacher='thumb')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            path = folder / "checkpoint.json"
            if path.exists() and json.loads(path.read_text())["warm_steps"] >= 64:
                break
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    before = facts_of(folder)
    assert 64 <= before["warm_steps"] < 10**9
    total = before["warm_steps"] + 64
    # The length of a run may change from part to part, so may that of its warm start.
    done = tiny(folder, settings={**settings, "warm_steps": total}, resume=True)
    after = facts_of(folder)
    assert (after["warm_steps"], after["warmed"], after["steps"]) == (total, True, 64)
    assert done.seconds > before["seconds"]
    assert len(list(folder.glob("checkpoint-*.safetensors"))) == 1


def test_the_best_agent_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = iter([(0.5, 0.1, 0.2), (0.4, 0.1, 0.4), (0.6, 0.1, 0.1)])
    monkeypatch.setattr(Validation, "measure", lambda self, policy: next(levels))
    settings = {**TINY, "win_bonus": 1.0, "evaluate_every": 32}
    done = tiny(tmp_path / "run", settings=settings)
    assert [point.steps for point in done.curve] == [0, 32, 64]
    # 0.4 and a bonus for 40% won is more than 0.6 and a bonus for 10%.
    assert load_policy(tmp_path / "run" / "model").facts["training"]["steps"] == 32


def test_training_with_a_teacher_refuses_reserved_deals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reserved(rng: np.random.Generator) -> Any:
        return rng.integers(0, 2**32, 64, dtype=np.uint64)

    monkeypatch.setattr("patience_env.vector.draw_deals", reserved)
    with pytest.raises(ValueError, match="reserved for comparing policies"):
        tiny(tmp_path / "run")


def test_a_wrong_teacher_is_refused_and_nothing_written(tmp_path: Path) -> None:
    poker = tmp_path / "poker"
    settings = {**TINY, "network": "ahead", "observation": "cards"}
    train(POKER, poker, options={"placement": "fixed"}, steps=32, settings=settings, deals=DEALS, quiet=True)
    for keywords, says in (
        ({"teacher": "nobody"}, r"no policy 'nobody' for Sultan-v0: choose .*thumb"),
        ({"teacher": "model:path=nowhere"}, "'nowhere' holds no model"),
        ({"teacher": str(poker)}, "plays PatiencePoker-v0, not Sultan-v0"),
        ({"teacher": str(poker), "game": POKER}, r"placement='fixed', but .* placement='touching'"),
        ({"settings": {**TINY, "observation": "planes"}}, "reads observation='cards', not observation='planes'"),
        ({"settings": {**TINY, "keep": "all"}}, "keep='all' is not allowed: choose one of 'best', 'last'"),
        ({"settings": {**TINY, "reward": "score"}}, "'score' is not allowed for Sultan-v0: choose one of 'usual'"),
        ({"settings": {**TINY, "win_bonus": 1.0}, "game": POKER}, "which is never won"),
    ):
        with pytest.raises(ValueError, match=says):
            tiny(tmp_path / "run", **keywords)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("network", ["cards", "ahead"])
@pytest.mark.slow
@pytest.mark.parametrize("game", game_ids())
def test_every_game_trains_on_either_network(tmp_path: Path, game: str, network: str) -> None:
    settings = {**TINY, "network": network, "observation": "cards", "warm_steps": 32}
    done = tiny(tmp_path / "run", game, settings=settings, steps=32, deals=DEALS[:1])
    assert done.steps == 32
    make_policy("model", game, path=str(done.folder))


# -- what ships ----------------------------------------------------------------------------------------------------


def test_a_shipped_model_is_small_and_plays_the_same(tmp_path: Path) -> None:
    done = tiny(tmp_path / "run")
    size = ship(done.folder, tmp_path / "small")
    whole = sum(file.stat().st_size for file in (done.folder / "model").iterdir())
    assert size < 0.8 * whole
    small = load_policy(tmp_path / "small")
    assert len(small.facts["training"]["curve"]) == 1
    plan = Plan(SULTAN, get_game(SULTAN).check_options({}), 0, read_settings(SULTAN, TINY), "0")
    mean, _, won = Validation(plan, np.array(DEALS, np.uint64)).measure(small.policy)
    measured = small.facts["training"]["curve"][-1]
    assert mean == pytest.approx(measured["mean"], abs=0.05)
    assert won == measured["won"]
    with pytest.raises(ValueError, match="is not empty"):
        ship(done.folder, tmp_path / "small")
    assert "won" in level_text(done.curve[-1])


def test_an_agent_plays_a_single_environment(tmp_path: Path) -> None:
    done = tiny(tmp_path / "run")
    player = make_policy("model", SULTAN, path=str(done.folder))
    env = PatienceEnv(SULTAN, illegal_action="raise")
    env.reset(options={"deal": 5_000_000})
    for _ in range(10):
        env.step(player.choose(env))
    assert env.table()
