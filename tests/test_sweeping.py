"""A network learned backwards in stages: what it learns from, resuming, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tensorboard")

from patience_env.agents.board_values import STAGES, Net, ValuePolicy, load_net, save_net
from patience_env.agents.line_table import shipped_folder
from patience_env.agents.policy import Turn, see
from patience_env.cards import NAMES, card_code
from patience_env.deals import RESERVED_DEALS
from patience_env.env import PatienceEnv
from patience_env.training.refining import Looks
from patience_env.training.sweeping import Sweep, SweepTraining, Task, main, sweep, weights_for, workers

pytestmark = pytest.mark.compiled
POKER = "PatiencePoker-v0"
PLACEMENTS = ["fixed", "touching"]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the folders of networks by placement: that for the touching rule, alternate table, plays both."""
    shipped = shipped_folder("value", {"scoring": "american-alternate", "placement": "touching"})
    net, _, facts = load_net(shipped)
    found = {}
    for placement in PLACEMENTS:
        folder = tmp_path_factory.mktemp(placement) / "model"
        save_net(folder, net, {**facts, "placement": placement})
        found[placement] = str(folder)
    return found


def plan_of(starts: dict[str, str], placement: str, **settings: int) -> Sweep:
    settings = {"games": 6, "epochs": 1, "width": 34, **settings}
    return Sweep("american-alternate", placement, start=starts[placement], **settings)


def turn_of(env: PatienceEnv) -> Turn:
    return see(env.game, env.options, env.state_rows(), env.action_masks()[None].astype(np.int8), 3)


def task_of(training: SweepTraining, stage: int, following: Net | None, games: int) -> Task:
    deals, cells = training._play()
    return Task(training.plan, stage, training.net, following, deals[:games], cells[:games], (1, 2))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_games_are_legal_and_of_no_standard_deal(starts: dict[str, str], tmp_path: Path, placement: str) -> None:
    training = SweepTraining(tmp_path, plan_of(starts, placement, games=30))
    deals, cells = training._play()
    assert deals.min() >= RESERVED_DEALS
    again = training._play()
    assert np.array_equal(deals, again[0])
    assert np.array_equal(cells, again[1])
    env = PatienceEnv(POKER, placement=placement, scoring="american-alternate", illegal_action="raise")
    best = 0
    for deal, played in zip(deals.tolist(), cells, strict=True):
        env.reset(options={"deal": deal})
        policy = ValuePolicy(starts[placement])
        for cell in played[1 if placement == "touching" else 0 :].tolist():
            best += int(policy.values(turn_of(env))[0].argmax()) == cell
            env.step(cell)
        assert env.state_rows()["placed"][0] == 25
    assert 0.6 < best / cells.size < 0.99


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_last_stage_learns_the_mean_over_all_cards(starts: dict[str, str], tmp_path: Path, placement: str) -> None:
    """With one cell left a board is worth the mean score over the 28 unseen cards, which the environment tells."""
    training = SweepTraining(tmp_path, plan_of(starts, placement))
    task = task_of(training, STAGES, None, 4)
    looks = task.run()
    assert looks.sizes.sum() == len(looks.targets)
    env = PatienceEnv(POKER, placement=placement, scoring="american-alternate", illegal_action="raise")
    first, seen = 0, 0
    for deal, cells, size in zip(task.deals.tolist(), task.cells, looks.sizes.tolist(), strict=True):
        worths: set[float] = set()
        env.reset(options={"deal": deal})
        for cell in cells[1 if placement == "touching" else 0 : STAGES - 1].tolist():
            env.step(cell)
        for cell in np.flatnonzero(env.action_masks()).tolist():
            trial = env.clone()
            trial.step(cell)
            table = trial.table()
            known = {card_code(text) for texts in table.values() for text in texts if text != "??"}
            known -= {card_code(text) for text in table["hand"]}
            totals = []
            for card in sorted(set(range(1, 53)) - known):
                last = trial.clone()
                last.load({**table, "hand": [NAMES[card]]})
                last.step(int(np.flatnonzero(last.action_masks())[0]))
                totals.append(float(last.state_rows()["score"][0]))
            assert len(totals) == 28
            worths.add(round(float(np.mean(totals)) - float(trial.state_rows()["score"][0]), 3))
        found = {round(float(target), 3) for target in looks.targets[first : first + size]}
        assert found <= worths
        seen += len(found)
        first += size
    assert seen > 4


def test_an_earlier_stage_learns_what_the_next_says_of_the_best_cells(starts: dict[str, str], tmp_path: Path) -> None:
    """Over all cards that may come: the mean of the best worth by the network, here that of all stages."""
    training = SweepTraining(tmp_path, plan_of(starts, "fixed"))
    task = task_of(training, 20, weights_for(training.net, 21, 34, 0), 2)
    looks = task.run()
    policy, env = ValuePolicy(starts["fixed"]), PatienceEnv(POKER, placement="fixed", scoring="american-alternate")
    expected: list[float] = []
    for deal, cells in zip(task.deals.tolist(), task.cells, strict=True):
        env.reset(options={"deal": deal})
        for cell in cells[:19].tolist():
            env.step(cell)
        for cell in np.flatnonzero(env.action_masks()).tolist():
            trial = env.clone()
            trial.step(cell)
            table = trial.table()
            known = {card_code(text) for name, texts in table.items() if name[0] == "r" for text in texts}
            best = []
            for card in sorted(set(range(1, 53)) - known):
                trial.load({**table, "hand": [NAMES[card]]})
                best.append(policy.values(turn_of(trial))[0].max())
            expected.append(float(np.mean(best)) - float(trial.state_rows()["score"][0]))
    # The table names the cells that are asked about, so that now and then a better one is not seen.
    nearest = [min(abs(target - other) for other in expected) for target in looks.targets.tolist()]
    assert np.mean(nearest) < 0.1


def test_what_is_found_does_not_depend_on_the_processes(starts: dict[str, str], tmp_path: Path) -> None:
    training = SweepTraining(tmp_path, plan_of(starts, "fixed"))
    tasks = [task_of(training, 12, weights_for(training.net, 13, 34, 0), count) for count in (2, 3)]

    def same(one: list[Looks], other: list[Looks]) -> bool:
        return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))

    with workers(1) as run, workers(2) as apart:
        assert same(list(run(tasks)), list(apart(tasks)))


def test_a_sweep_that_was_killed_ends_as_one_that_was_not(starts: dict[str, str], tmp_path: Path) -> None:
    plan = plan_of(starts, "touching", seed=3)
    said: list[str] = []
    shares: list[float] = []
    sweep(tmp_path / "whole", plan, show=said.append, progress=lambda _, share: shares.append(share))
    assert len(said) == STAGES
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(set(shares)) == 2 * STAGES  # one block of positions, one round of learning

    def kill(text: str) -> None:
        if text.startswith("19 cards"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "killed", plan, show=kill)
    with pytest.raises(ValueError, match="holds a training already"):
        sweep(tmp_path / "killed", plan)
    with pytest.raises(ValueError, match="go on with that, or begin elsewhere"):
        sweep(tmp_path / "killed", plan_of(starts, "touching", seed=4), resume=True)
    said.clear()
    result = sweep(tmp_path / "killed", plan, resume=True, show=said.append)
    assert len(said) == 18
    nets = [load_net(tmp_path / name) for name in ("whole", "killed")]
    assert all(np.array_equal(one, other) for one, other in zip(nets[0][0], nets[1][0], strict=True))
    facts = nets[1][2]
    assert facts["validation"]["mean"] == pytest.approx(result.mean)
    assert [told["cards"] for told in facts["stages"]] == list(range(STAGES, 0, -1))
    assert facts["training"]["kind"] == "sweep"
    assert list((tmp_path / "killed" / "tensorboard").iterdir())
    # It can be the start of the next.
    sweep(tmp_path / "next", Sweep("american-alternate", "touching", 2, 1, 34, start=str(tmp_path / "killed")))
    assert load_net(tmp_path / "next")[0].w1.shape[0] == 2 * STAGES


def test_what_is_not_allowed_is_told(
    starts: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong, said in (
        (["--games", "0"], "games=0 is not allowed"),
        (["--processes", "0"], "processes=0 is not allowed"),
        (["--start", starts["touching"]], "was trained for"),
        (["--width", "8"], "width=8 is not allowed"),
        (["--resume"], "holds no checkpoint to resume"),
        (["--scoring", "random"], "random"),
        (["--start", str(shipped_folder("value", {"scoring": "random", "placement": "fixed"}))], "plays for any table"),
    ):
        assert main([*wrong, "--out", str(tmp_path / "b")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "b").exists()
