"""The value network of Patience Poker: compiled play against torch, symmetry, the policy, files, training."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tensorboard")

import torch

from patience_env import jit
from patience_env.agents import board_values
from patience_env.agents.board_values import (
    ALL_FEATURES,
    FEATURES,
    RANK_PARTS,
    STAGES,
    Net,
    ValuePolicy,
    load_net,
    net_for,
    new_space,
    relative_points,
    room_for,
    save_net,
)
from patience_env.agents.line_table import lay, new_boards, points_of, read_board
from patience_env.agents.policy import Turn, make_policy, see
from patience_env.cards import card_code
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.games.patience_poker import CANVAS, SIDE
from patience_env.games.poker_hands import SCORED
from patience_env.training import mean_values, value_command
from patience_env.training.cli import main
from patience_env.training.evaluate import evaluate
from patience_env.training.value_training import (
    PART,
    RISING,
    SHARED,
    Plan,
    ValueNet,
    ValueTraining,
    conditions_of,
    net_of,
)
from playing import scaled

POKER = "PatiencePoker-v0"
PLACEMENTS = ["fixed", "touching"]
POINTS = points_of("american")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of untrained networks by placement, American."""
    folders = {}
    for number, placement in enumerate(PLACEMENTS):
        network = ValueNet(8, number)
        folders[placement] = tmp_path_factory.mktemp(placement) / "model"
        facts = {"placement": placement, "points": POINTS.tolist()}
        save_net(folders[placement], net_of(dict(network.named_parameters()), 25.0), facts)
    return folders


def midgame(placement: str, steps: int, seed: int) -> PatienceEnv:
    env = PatienceEnv(POKER, placement=placement, illegal_action="raise")
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    return env


def turn_of(env: PatienceEnv) -> Turn:
    masks = env.action_masks()[None].astype(np.int8)
    return see(env.game, env.options, env.state_rows(), masks, 3)


@jit.kernel
def show_board(states, boards, net, space, points, inputs, weights, owners, worths):  # type: ignore[no-untyped-def]
    """Export the lines of a position, and its worth without and with exchanged axes."""
    read_board(states[0], boards[0], points)
    board_values.export(boards[0], space, inputs[0], weights[0], owners[0])
    worths[0] = board_values.embed_board(boards[0], net, space, boards[0].placed)
    boards[0].flip = 1
    worths[1] = board_values.embed_board(boards[0], net, space, boards[0].placed)
    worths[2] = boards[0].score


@jit.kernel
def place(states, boards, net, space, points, cell, worths):  # type: ignore[no-untyped-def]
    """Write the worth of a position with the card in hand on a cell, all lines described anew."""
    read_board(states[0], boards[0], points)
    card = int(states[0].deck[boards[0].placed]) - 1
    lay(boards[0], cell, card, points)
    worths[0] = board_values.embed_board(boards[0], net, space, boards[0].placed)


@jit.kernel
def rate(states, boards, net, space, points, flip, worths):  # type: ignore[no-untyped-def]
    """Rate the cells of a position with given parts of the axes."""
    read_board(states[0], boards[0], points)
    boards[0].flip = flip
    board_values.rate_cells(boards, net, space, int(states[0].deck[boards[0].placed]) - 1, points, worths)


def rated(env: PatienceEnv, net: Any, flip: int) -> Any:
    worths = np.zeros(len(env.action_masks()))
    rate(env.state_rows(), new_boards(2), net, room_for(net), POINTS, flip, worths)
    return worths


def shown(env: PatienceEnv, net: Any, points: Any = POINTS) -> tuple[Any, Any, Any, Any]:
    inputs = np.zeros((1, 10, net.w1.shape[1]), np.float32)
    weights, owners, worths = np.zeros((1, 10), np.float32), np.zeros((1, 10), np.int8), np.zeros(3)
    space = room_for(net)
    show_board(env.state_rows(), new_boards(2), net, space, points, inputs, weights, owners, worths)
    return inputs, weights, owners, worths


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_compiled_play_values_a_board_as_torch_does(models: dict[str, Path], placement: str) -> None:
    net, _, _ = load_net(models[placement])
    network = ValueNet(8, PLACEMENTS.index(placement))
    for steps in range(1, 23, scaled(3, 7)):
        inputs, weights, owners, worths = shown(midgame(placement, steps, steps), net)
        with torch.no_grad():
            lines = network(torch.from_numpy(inputs), torch.from_numpy(weights)).numpy() * 25.0
        assert worths[0] == pytest.approx(worths[2] + float((lines * weights).sum()), rel=1e-4, abs=1e-3)
        assert np.isfinite(inputs).all()
        assert np.abs(inputs).max() < 5
        assert sorted(set(owners[0].tolist()) - {-1}) == sorted(x for x in owners[0].tolist() if x >= 0)


def opened(env: PatienceEnv, owners: Any) -> Any:
    """Return where rows and columns cross at an empty cell, (1, 5, 5), from what the environment shows."""
    table, found = env.table(), np.ones((1, 5, 5), np.float32)
    for i, row in enumerate(owners[0, :5].tolist()):
        for j, column in enumerate(owners[0, 5:].tolist()):
            if row >= 0 and column >= 0 and table.get(f"r{row + 1}c{column - CANVAS + 1}"):
                found[0, i, j] = 0.0
    return found


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_network_of_stages_is_for_each_number_of_cards_its_own(placement: str, tmp_path: Path) -> None:
    """All features are told, and lines hear those that cross them; compiled play does as torch does, stage by stage."""
    stages = [ValueNet(8, seed, features=ALL_FEATURES, crossed=True) for seed in range(STAGES)]
    with torch.no_grad():
        for network in stages:
            network.w2[:, 3] *= 10
            for weights in network.parameters():
                weights.copy_(weights.half())
    nets = [net_of(dict(network.named_parameters()), 32.0) for network in stages]
    whole = Net(*(np.concatenate(arrays) for arrays in zip(*nets, strict=True)))
    save_net(tmp_path, whole, {"placement": placement, "points": POINTS.tolist()})
    net, _, facts = load_net(tmp_path)
    assert set(RANK_PARTS) < set(facts["features"])
    assert net.w1.shape == (48, ALL_FEATURES, 8)
    assert net.w2.shape == (48, 4, 8, 8)
    assert all(np.array_equal(one, other) for one, other in zip(net, whole, strict=True))
    policy = ValuePolicy(str(tmp_path))
    with pytest.raises(ValueError, match=r"sweeping has made another kind of network of it"):
        Plan(placement=placement, start=str(tmp_path), width=8).check()
    for steps in range(1, 24 if placement == "fixed" else 23, scaled(2, 8)):
        env = midgame(placement, steps, steps)
        inputs, going, owners, worths = shown(env, net)
        stage = stages[int(env.state_rows()["placed"][0]) - 1]
        with torch.no_grad():
            told = (torch.from_numpy(inputs), torch.from_numpy(going))
            lines = stage(*told, opened=torch.from_numpy(opened(env, owners))).numpy() * 32.0
        assert worths[0] == pytest.approx(worths[2] + float((lines * going).sum()), rel=1e-4, abs=1e-3)
        assert np.array_equal(np.isfinite(policy.values(turn_of(env))[0]), env.action_masks())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_is_told_of_the_ranks_of_a_line(placement: str) -> None:
    """The features of each rank, counted anew from what the environment shows."""
    net = net_of(dict(ValueNet(4, 0, features=ALL_FEATURES).named_parameters()), 1.0)
    for steps in range(2, 23, scaled(2, 9)):
        env = midgame(placement, steps, steps)
        inputs, weights, owners, _ = shown(env, net)
        cards = {name: card_code(texts[0]) for name, texts in env.table().items() if texts and texts[0] != "??"}
        unseen = [4 - sum((card - 1) % 13 == rank for card in cards.values()) for rank in range(13)]
        ranks: list[list[int]] = [[] for _ in range(10)]
        for slot, owner in enumerate(owners[0].tolist()):
            for k in range(CANVAS):
                cell = f"r{owner + 1}c{k + 1}" if slot < 5 else f"r{k + 1}c{owner - CANVAS + 1}"
                if owner >= 0 and cell in cards:
                    ranks[slot].append((cards[cell] - 1) % 13)
        empty = opened(env, owners)[0]
        for slot, held in enumerate(ranks):
            if not weights[0, slot]:
                continue
            wanted = set()
            if len(set(held)) == len(held) > 0:
                for low in range(10):
                    window = {(low + i) % 13 for i in range(5)}
                    missing = window - set(held)
                    if set(held) <= window and all(unseen[rank] for rank in missing):
                        wanted |= missing
            others = (np.flatnonzero(empty[slot]) + 5 if slot < 5 else np.flatnonzero(empty[:, slot - 5])).tolist()
            crossing = [sum(rank in ranks[one] and weights[0, one] > 0 for one in others) for rank in range(13)]
            expected = [
                *(0.5 * held.count(rank) for rank in range(13)),
                *(0.25 * held.count(rank) * unseen[rank] for rank in range(13)),
                *(0.25 * unseen[rank] * (rank in wanted) for rank in range(13)),
                *(0.25 * unseen[rank] * (rank in wanted) * crossing[rank] for rank in range(13)),
            ]
            assert inputs[0, slot, FEATURES:] == pytest.approx(np.array(expected, np.float32))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_transposed_board_is_worth_the_same_with_its_axes_exchanged(models: dict[str, Path], placement: str) -> None:
    net, _, _ = load_net(models[placement])
    side = SIDE if placement == "fixed" else CANVAS
    for steps in range(2, 22, scaled(4, 9)):
        env = midgame(placement, steps, steps)
        table = env.table()
        turned = PatienceEnv(POKER, placement=placement)
        turned.reset(seed=1)
        swapped = {
            f"r{column + 1}c{row + 1}": table[f"r{row + 1}c{column + 1}"]
            for row in range(side)
            for column in range(side)
            if f"r{row + 1}c{column + 1}" in table
        }
        turned.load({**swapped, "hand": table["hand"]})
        worths, others = shown(env, net)[3], shown(turned, net)[3]
        assert worths[0] == pytest.approx(others[1], rel=1e-4, abs=1e-3)
        assert worths[1] == pytest.approx(others[0], rel=1e-4, abs=1e-3)
        one, other = (rated(where, net, flip).reshape(side, side) for where, flip in ((env, 0), (turned, 1)))
        assert np.array_equal(np.isfinite(one), np.isfinite(other.T))
        free = np.isfinite(one)
        assert one[free] == pytest.approx(other.T[free], rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_policy_rates_legal_cells_and_takes_the_best(models: dict[str, Path], placement: str) -> None:
    policy = ValuePolicy(str(models[placement]))
    for steps in range(0, 24, scaled(2, 8)):
        env = midgame(placement, steps, 50 + steps)
        turn = turn_of(env)
        worths, action = policy.values(turn)[0], int(policy.act(turn)[0])
        assert np.array_equal(np.isfinite(worths), env.action_masks())
        assert worths[action] == worths.max()
        if placement == "fixed":
            # Empty rows are alike, and so are empty columns.
            board = np.array([bool(env.table().get(f"r{r + 1}c{c + 1}")) for r in range(5) for c in range(5)])
            grid, values = board.reshape(5, 5), worths.reshape(5, 5)
            bare = np.flatnonzero(~grid.any(1))
            for row in bare[1:]:
                assert np.array_equal(values[row], values[bare[0]])


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_cell_is_rated_by_what_the_board_with_the_card_is_worth(models: dict[str, Path], placement: str) -> None:
    """Under the touching rule the cells count that are open then, beyond the cards to come."""
    net, _, _ = load_net(models[placement])
    exact = np.zeros(1)
    last = 24 if placement == "fixed" else 23  # the first card lies already
    for steps in range(1, last, scaled(3, 11)):
        env = midgame(placement, steps, 5 + steps)
        worths = rated(env, net, 0)
        for cell in np.flatnonzero(np.isfinite(worths)):
            place(env.state_rows(), new_boards(2), net, new_space(8), POINTS, int(cell), exact)
            extra = 0.0
            if placement == "touching":
                after = deepcopy(env)
                after.step(int(cell))
                to_come = 25 - int(after.state_rows()["placed"][0])
                extra = board_values.FREEDOM * POINTS.max() * (int(after.action_masks().sum()) - to_come)
            assert worths[cell] == pytest.approx(exact[0] + extra, rel=1e-5, abs=1e-4)
    env = midgame(placement, last, 5)
    worths = rated(env, net, 0)
    cell = int(np.flatnonzero(np.isfinite(worths))[0])
    env.step(cell)
    assert worths[cell] == float(env.state_rows()["score"][0])


def test_one_network_plays_for_any_table(tmp_path: Path) -> None:
    """Compiled play under a table values boards as torch does when told the table; random tables go by the state's."""
    network = ValueNet(8, 3, conditional=True)
    weights = dict(network.named_parameters())
    facts = {"placement": "fixed", "points": None}
    found = conditions_of(weights)
    found = found._replace(c3=found.c3 / np.float32(4), c4=found.c4 / np.float32(4))
    save_net(tmp_path, net_of(weights, 0.25), facts, found)
    net, conditions, _ = load_net(tmp_path)
    assert conditions is not None
    policy = ValuePolicy(str(tmp_path))
    env = PatienceEnv(POKER, placement="fixed", scoring="random")
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(8):
            env.step(int(np.flatnonzero(env.action_masks())[seed]))
        points = env.state_rows()["points"][0].copy()
        table, largest = relative_points(points)
        inputs, going, _, worths = shown(env, net_for(net, conditions, points), points)
        with torch.no_grad():
            told = (torch.from_numpy(inputs), torch.from_numpy(going), torch.from_numpy(table[None]))
            lines = network(*told).numpy() * largest / 4
        assert worths[0] == pytest.approx(worths[2] + float((lines * going).sum()), rel=1e-3, abs=1e-2)
        rated = policy.values(turn_of(env))[0]
        assert np.array_equal(np.isfinite(rated), env.action_masks())
        same = PatienceEnv(POKER, placement="fixed", scoring=dict(zip(SCORED, points[1:].tolist(), strict=True)))
        same.reset(options={"deal": int(env.state_rows()["deal"][0])})
        for _ in range(8):
            same.step(int(np.flatnonzero(same.action_masks())[seed]))
        assert np.array_equal(policy.values(turn_of(same))[0], rated)


def test_the_policy_does_not_see_hidden_cards(models: dict[str, Path]) -> None:
    policy = ValuePolicy(str(models["touching"]))
    env = midgame("touching", 9, 4)
    masks = env.action_masks()[None].astype(np.int8)
    first = policy.values(see(env.game, env.options, env.state_rows(), masks, 1))
    assert np.array_equal(first, policy.values(see(env.game, env.options, env.state_rows(), masks, 2)))


def test_a_model_for_another_game_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    env = PatienceEnv(POKER, placement="fixed")
    policy = make_policy("value", POKER, path=str(models["touching"]))
    with pytest.raises(ValueError, match=r"trained for placement='touching'"):
        policy.check(env.game, env.options)
    policy = make_policy("value", POKER, path=str(models["fixed"]))
    with pytest.raises(ValueError, match=r"trained for the scoring table pair 2, two pairs 5"):
        policy.check(env.game, {**env.options, "scoring": "english"})
    with pytest.raises(ValueError, match=r"holds no value model"):
        make_policy("value", POKER, path=str(tmp_path))


def test_damaged_models_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    for path in models["fixed"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tensors,) = tmp_path.glob("*.safetensors")
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"is damaged"):
        ValuePolicy(str(tmp_path))
    tensors.write_bytes(whole)
    facts = json.loads((tmp_path / "value.json").read_text())
    (tmp_path / "value.json").write_text(json.dumps({**facts, "points": [0] * 10}))
    with pytest.raises(ValueError, match=r"seal does not match"):
        ValuePolicy(str(tmp_path))
    net, _, _ = load_net(models["fixed"])
    known = {"placement": "fixed", "points": facts["points"]}
    save_net(tmp_path, net._replace(b3=np.array([np.nan, 0], np.float32)), known)
    with pytest.raises(ValueError, match=r"not finite"):
        ValuePolicy(str(tmp_path))
    save_net(tmp_path, net._replace(b2=np.zeros((2, 3), np.float32)), known)
    with pytest.raises(ValueError, match=r"weights of a network of this version"):
        ValuePolicy(str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"placement": "loose"}, r"placement='loose' is not allowed"),
        ({"games": 3}, r"games=3 is not allowed: give a whole number from 500"),
        ({"scoring": "random", "teacher": "ppo"}, r"teacher='ppo' is not allowed with scoring='random'"),
        ({"teacher": "nobody"}, r"there is no policy 'nobody'"),
        ({"device": "abacus"}, r"device='abacus' is not to be had here"),
        ({"width": True}, r"width=True is not allowed"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**arguments).check()


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.compiled
@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_and_ends_after_as_many_games(tmp_path: Path) -> None:
    plan = Plan("english", "fixed", 4000, width=8, attempts=2, teacher="flush-rank")
    training = ValueTraining(tmp_path, plan)

    def kill(share: float, _: str) -> None:
        if share > 0.5:
            training.save_checkpoint()
            raise KilledError

    with pytest.raises(KilledError):
        training.run(kill)
    games = training.done
    assert games < 4000
    with pytest.raises(ValueError, match=r"belongs to another training"):
        ValueTraining(tmp_path, Plan("english", "fixed", 4500, width=8, attempts=2, teacher="flush-rank"), resume=True)
    again = ValueTraining(tmp_path, plan, resume=True)
    assert again.done == games
    assert again.curve == training.curve
    again.run()
    assert again.done == 4000
    played = [point["games"] for point in again.curve]
    assert played == sorted(set(played))
    assert list((tmp_path / "tensorboard").iterdir())
    assert len(again.results) == 2
    options = {"placement": "fixed", "scoring": "english"}
    deals = named_deals("smoke")
    learned = evaluate(f"value:path={tmp_path}", POKER, deals, options=options).mean
    assert learned > evaluate("random", POKER, deals, options=options).mean + 10


@pytest.mark.parametrize("kind", ["value", "line"])
def test_a_training_killed_before_its_first_checkpoint_was_due_goes_on(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are written from the beginning: without a checkpoint beside them the folder could not be used again."""

    def kill(*_: object, **__: object) -> Any:
        raise KilledError

    where = "value_training.ValueTraining._part" if kind == "value" else "line_training._Log._write"
    monkeypatch.setattr(f"patience_env.training.{where}", kill)

    def train(resume: bool) -> None:
        if kind == "value":
            plan = Plan("english", "fixed", 500, width=8, attempts=1, teacher="")
            value_command.train_value_model(tmp_path, plan, resume=resume)
        else:
            value_command.train_line_model(tmp_path, "english", "fixed", games=10, resume=resume)

    with pytest.raises(KilledError):
        train(False)
    assert (tmp_path / "tensorboard").is_dir()
    with pytest.raises(ValueError, match="go on with it by --resume"):
        train(False)
    with pytest.raises(KilledError):
        train(True)


def test_parts_of_a_first_checkpoint_hinder_no_training(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.json.7").write_bytes(b"half")
    value_command.check_folder(tmp_path, "value.json", "checkpoint.json", False)
    (tmp_path / "notes").write_bytes(b"")
    with pytest.raises(ValueError, match="is not empty"):
        value_command.check_folder(tmp_path, "value.json", "checkpoint.json", False)


@pytest.mark.compiled
def test_games_of_random_tables_are_remembered_with_their_hands_and_points(tmp_path: Path) -> None:
    training = ValueTraining(tmp_path, Plan("random", "fixed", 500, width=8, attempts=1, teacher=""))
    training._part()
    memory = training.memory
    last = memory.hands[:, -1].astype(np.int64)
    assert np.allclose(np.take_along_axis(memory.points, last, 1).sum(1), memory.scores, atol=1e-2)
    assert len(np.unique(memory.points, axis=0)) == PART // SHARED
    assert np.allclose(memory.tables * memory.largest[:, None], memory.points[:, 1:], atol=1e-4)
    assert np.allclose(np.abs(memory.tables).max(1), 1)
    _, weights, targets, hands, tables = (one.numpy() for one in memory.draw(np.random.default_rng(0)))
    assert weights.shape == targets.shape == hands.shape
    assert np.allclose(targets, np.take_along_axis(np.pad(tables, ((0, 0), (1, 0))), hands.astype(np.int64), 1))


def test_some_tables_of_a_training_rise_with_the_hands(tmp_path: Path) -> None:
    training = ValueTraining(tmp_path, Plan("random", "fixed", 500, width=8, attempts=1, teacher=""))
    drawn = np.array([training._draw_table() for _ in range(2000)])
    rising = (drawn != drawn.round()).any(1)
    assert np.allclose(drawn[rising].max(1), 100)
    assert (drawn[rising, 1:] > 0).all()
    assert np.mean(rising) == pytest.approx(RISING, abs=0.05)
    assert drawn[rising, 9].mean() > 5 * drawn[rising, 1].mean()
    assert drawn[~rising].min() == -128
    assert drawn[~rising].max() == 127


@pytest.mark.compiled
def test_the_mean_of_two_networks_is_that_of_their_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = named_deals("validation", 5)
    monkeypatch.setattr(value_command, "named_deals", lambda _: few)
    for seed, name in enumerate(("one", "other")):
        weights = dict(ValueNet(8, seed, conditional=True).named_parameters())
        facts = {"placement": "fixed", "points": None, "training": {"seed": seed}}
        save_net(tmp_path / name, net_of(weights, 0.25), facts, conditions_of(weights))
    folders = [tmp_path / "one", tmp_path / "other"]
    assert mean_values.main([str(tmp_path / "mean"), *map(str, folders)]) == 0
    assert "validation deals: " in capsys.readouterr().out
    (one, told, _), (other, others, _), (net, conditions, facts) = map(load_net, [*folders, tmp_path / "mean"])
    assert net.w2 == pytest.approx((one.w2 + other.w2) / 2, abs=1e-6)
    assert conditions.c3 == pytest.approx((told.c3 + others.c3) / 2, abs=1e-6)
    assert [part["seed"] for part in facts["training"]["mean_of_weights"]] == [0, 1]
    save_net(tmp_path / "other", other, {"placement": "touching", "points": None}, others)
    assert mean_values.main([str(tmp_path / "again"), *map(str, folders)]) == 2
    assert "differ in shape, placement or scoring table" in capsys.readouterr().err
    assert mean_values.main([str(tmp_path / "again"), str(tmp_path / "one")]) == 2
    assert "a mean takes two networks or more" in capsys.readouterr().err
    assert mean_values.main([str(tmp_path / "again"), *map(str, folders), "--placement", "round"]) == 2
    assert "placement='round' is not allowed: choose one of" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()
    assert mean_values.main([str(tmp_path / "again"), *map(str, folders), "--placement", "touching"]) == 0
    again, _, facts = load_net(tmp_path / "again")
    assert facts["placement"] == "touching"
    assert (again.w2 == net.w2).all()


@pytest.mark.compiled
@pytest.mark.slow
def test_a_conditional_network_learns(tmp_path: Path) -> None:
    training = ValueTraining(tmp_path, Plan("random", "fixed", 3000, width=16, attempts=1, teacher=""))
    before = training.validate()
    training.run()
    assert training.validate() > before + 10
    options = {"placement": "fixed", "scoring": "random"}
    result = evaluate(f"value:path={tmp_path}", POKER, named_deals("validation"), options=options)
    # The policy may turn a board, which the training never does.
    assert result.mean == pytest.approx(training.validate(), abs=8.0)


@pytest.mark.compiled
@pytest.mark.slow
def test_the_command_trains_saves_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train-value", POKER, "--placement", "fixed", "--games", "1000", "--width", "8", "--attempts", "1"]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--out", str(tmp_path / "model")])
    told = capsys.readouterr()
    assert stop.value.code == 0, told.err
    facts = json.loads((tmp_path / "model" / "value.json").read_text())
    assert f"validation: {facts['validation']['mean']:.2f} +- " in told.out
    with pytest.raises(SystemExit) as stop:
        main([*command, "--out", str(tmp_path / "model")])
    assert stop.value.code == 2
    assert "go on with it by --resume" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main([*command, "--out", str(tmp_path / "other"), "--resume"])
    assert stop.value.code == 2
    assert "holds no checkpoint to resume" in capsys.readouterr().err
