"""The line table: its board against the game's, its play against a plain reading of what it says, training, files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("typer")

from patience_env import jit
from patience_env.agents import line_table
from patience_env.agents.line_table import ENTRIES, LINES, LinePolicy, load_table, new_boards
from patience_env.agents.policy import make_policy, policy_names
from patience_env.deals import RESERVED_DEALS, deck, named_deals
from patience_env.env import PatienceEnv
from patience_env.game import get_game
from patience_env.games.patience_poker import CARDS
from patience_env.games.poker_hands import SCORED, category
from patience_env.training.cli import main
from patience_env.training.evaluate import evaluate, paired
from patience_env.training.line_training import PART, read_scoring, train_lines
from playing import open_after, scaled

POKER = "PatiencePoker-v0"
PLACEMENTS = ["fixed", "touching"]
ODD = {"pair": -3, "two pairs": 4, "triplets": 2.5, "straight": 30, "flush": 1, "full hand": -9, "four": 8}
ODD |= {"straight flush": 60, "royal": 100}
POINTS = np.array([0.0, 2, 5, 10, 15, 20, 25, 50, 75, 100])


def table_of(line: LinePolicy) -> tuple[Any, Any]:
    """Return the values and the points of a line model."""
    values, facts = line._given  # type: ignore[misc]
    return values, np.array(facts["points"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of small trained models by placement, American."""
    folders = {}
    for placement in PLACEMENTS:
        folders[placement] = tmp_path_factory.mktemp(placement) / "model"
        train_lines("american", placement, games=scaled(20_000, 3), seed=1).save(folders[placement])
    return folders


def random_position(placement: str, steps: int, rng: np.random.Generator) -> PatienceEnv:
    env = PatienceEnv(POKER, placement=placement, illegal_action="raise")
    env.reset(seed=int(rng.integers(2**31)))
    for _ in range(steps):
        env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    return env


@jit.kernel
def read_one(states, boards, points):  # type: ignore[no-untyped-def]
    line_table.read_board(states[0], boards[0], points)


@jit.kernel
def fill(board_rows, masks):  # type: ignore[no-untyped-def]
    board = board_rows[0]
    for row in range(board.side):
        columns = line_table.legal_columns(board, row)
        for column in range(board.side):
            masks[row * board.side + column] = (columns >> column) & 1


@jit.kernel
def hands_of_five(cards, found):  # type: ignore[no-untyped-def]
    for i in range(cards.shape[0]):
        board = found[i]
        line_table.clear(board, 5)
        for k in range(5):
            line_table.extend(board, 0, cards[i, k])
        found[i].placed = line_table.hand_of(board, 0)


def test_hands_read_from_counts_are_the_games_categories() -> None:
    rng = np.random.default_rng(0)
    count = scaled(20_000, 300)
    cards = np.array([rng.permutation(52)[:5] for _ in range(count)])
    # Rare hands too: every straight in one suit, with an off card now and then.
    runs = [[13 * suit + (low + step) % 13 for step in range(5)] for suit in range(4) for low in range(10)]
    cards[: len(runs)] = runs
    cards[len(runs) : 2 * len(runs)] = [
        [(card + 13) % 52 if i == 2 else card for i, card in enumerate(r)] for r in runs
    ]
    found = new_boards(count)
    hands_of_five(cards, found)
    plain = getattr(category, "py_func", category)
    assert found["placed"].tolist() == [plain(*(card + 1 for card in five)) for five in cards.tolist()]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_board_of_lines_knows_the_games_legal_cells_and_score(placement: str) -> None:
    rng = np.random.default_rng(1)
    for steps in range(24):
        env = random_position(placement, steps, rng)
        boards = new_boards(1)
        read_one(env.state_rows(), boards, POINTS)
        masks = np.zeros(len(env.action_masks()), np.int8)
        fill(boards, masks)
        assert masks.tolist() == env.action_masks().astype(int).tolist()
        assert boards["score"][0] == env.state_rows()["score"][0]
        assert boards["unseen"][0].tolist() == env.state_rows()["unseen"][0].tolist()


def test_claims_count_the_incomplete_lines_that_hold_a_rank_or_collect_a_suit() -> None:
    env = PatienceEnv(POKER, placement="fixed")
    rows = ["2S 4S 8S JS 9S", "9H 9D -- -- --", "3C -- -- -- --"]
    cells = {
        f"r{i}c{j}": [card]
        for i, row in enumerate(rows, 1)
        for j, card in enumerate(row.split(), 1)
        if card not in ("--",)
    }
    env.load({**cells, "hand": ["KD"]})
    boards = new_boards(1)
    read_one(env.state_rows(), boards, POINTS)
    claims = boards["claims"][0]
    across, down = claims[:17], claims[17:]
    assert {rank + 1: n for rank, n in enumerate(across[:13].tolist()) if n} == {9: 1, 3: 1}
    assert across[13:].tolist() == [0, 0, 0, 1]  # the full row of spades wants no more
    assert {rank + 1: n for rank, n in enumerate(down[:13].tolist()) if n} == {2: 1, 9: 3, 3: 1, 4: 1, 8: 1, 11: 1}
    assert down[13:].tolist() == [3, 0, 0, 0]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_policy_takes_the_cell_of_highest_total_worth_by_a_full_recount(placement: str) -> None:
    """A recount of all lines after every legal move, both ways round, finds no better cell, nor a freer one as good."""
    rng = np.random.default_rng(2)
    values = rng.random(ENTRIES, np.float32) * 50
    for steps in rng.integers(0, 24, scaled(60, 8)).tolist():
        env = random_position(placement, steps, rng)
        actions = np.zeros(1, np.int64)
        line_table.table_cells(env.state_rows(), new_boards(1), values, POINTS, actions)
        assert env.action_masks()[actions[0]]
        totals = recounted(env, values)
        best = max(totals.values())
        assert totals[int(actions[0])] == pytest.approx(best, abs=1e-3)
        if placement == "touching":
            state = env.state_rows()[0]
            equal = [cell for cell, total in totals.items() if total == pytest.approx(best, abs=1e-6)]
            assert open_after(state, int(actions[0])) == max(open_after(state, cell) for cell in equal)


@jit.kernel
def recount(states, boards, cell, flip, values, points):  # type: ignore[no-untyped-def]
    """Return the worth of the whole board once the card in hand lies on a cell."""
    board = boards[0]
    line_table.read_board(states[0], board, points)
    line_table.lay(board, cell, int(states[0].deck[board.placed]) - 1, points)
    board.flip = flip
    total = board.score
    for axis in range(2):
        used = 0
        for i in range(board.side):
            line = 9 * axis + i
            if board.cards[line] > 0:
                used += 1
                if board.cards[line] < 5:
                    total += np.float64(values[line_table.index_of(board, line, board.placed)])
        for i in range(board.side):
            line = 9 * axis + i
            if board.cards[line] == 0 and used < 5:
                used += 1
                total += np.float64(values[line_table.index_of(board, line, board.placed)])
    return total


def recounted(env: PatienceEnv, values: Any) -> dict[int, float]:
    return {
        int(cell): max(recount(env.state_rows(), new_boards(1), int(cell), flip, values, POINTS) for flip in (0, 1))
        for cell in np.flatnonzero(env.action_masks())
    }


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_evaluation_agrees_with_the_tables_own_games(models: dict[str, Path], placement: str) -> None:
    deals = named_deals("smoke", scaled(100, 2))
    policy = LinePolicy(str(models[placement]))
    scores = np.zeros(len(deals))
    line_table.play_deals(deals, new_boards(1), *table_of(policy), int(placement == "touching"), scores)
    result = evaluate(policy, POKER, deals, options={"placement": placement})
    assert result.returns.tolist() == scores.tolist()


@pytest.mark.compiled
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_second_of_training_for_a_table_beats_a_rule_that_does_not_look_at_it(tmp_path: Path, placement: str) -> None:
    options = {"placement": placement, "scoring": "english"}
    train_lines("english", placement, games=20_000).save(tmp_path)
    deals = named_deals("validation")
    line = evaluate(f"line:path={tmp_path}", POKER, deals, options=options)
    thumb = evaluate("flush-rank", POKER, deals, options=options)
    assert paired(line, thumb).low > 0


def test_the_same_seed_gives_the_same_table_and_another_seed_another() -> None:
    games = scaled(300, 2)
    one, same, other = (train_lines("english", "fixed", games=games, seed=seed) for seed in (3, 3, 4))
    assert one.values.tobytes() == same.values.tobytes()
    assert one.visits.tobytes() == same.visits.tobytes()
    assert one.values.tobytes() != other.values.tobytes()
    assert one.made["games"] == games


def test_a_value_is_the_mean_of_what_its_lines_scored() -> None:
    """Without random moves and with a running mean, an entry visited once holds the points of one line."""
    table = train_lines("american", "fixed", games=1, seed=0)
    once = table.values[table.visits == 1]
    assert len(once) > 0
    assert set(np.unique(once).tolist()) <= set(POINTS.tolist())
    # Ten lines, each learned from after every card but the last, until it is full.
    assert table.visits.sum() <= 10 * 24


@jit.kernel
def skip(stream):  # type: ignore[no-untyped-def]
    return line_table.next_bits(stream[0])


@pytest.mark.compiled
def test_time_that_a_training_waits_does_not_count() -> None:
    """Half a second is waited for after every part, of which there are many in half a second."""
    waits = iter([0.5, 0.5])
    table = train_lines(seconds=0.5, progress=lambda *_: time.sleep(next(waits, 0)))
    assert table.made["games"] > 2 * PART
    assert 0.5 <= table.made["seconds"] < 1.0


def test_training_draws_no_reserved_deal() -> None:
    """A stream whose next number is reserved is passed over: the game played is that of the number after it."""
    # splitmix64 gives 0 from the position whose successor mixes to 0, which is position 0 itself.
    stream, boards = new_boards(1), new_boards(1)
    stream["rng"] = np.uint64(2**64 - 0x9E3779B97F4A7C15)
    first = np.uint64(skip(stream))
    assert int(first) < RESERVED_DEALS
    second = np.uint64(skip(stream))
    stream["rng"] = np.uint64(2**64 - 0x9E3779B97F4A7C15)
    tables = np.zeros(ENTRIES, np.float32), np.zeros(ENTRIES, np.int32)
    history = np.zeros((CARDS + 1, LINES), np.int64)
    line_table.train_games(1, stream, boards, history, *tables, POINTS, 0, 0.0, 0.01)
    assert boards["deck"][0][:CARDS].tolist() == deck(int(second))[:CARDS].tolist()


# Files and refusals ------------------------------------------------------------------------------------------------


def test_the_policy_is_known_by_name() -> None:
    assert policy_names(POKER)["line"].endswith(":LinePolicy")


def test_a_saved_table_comes_back_as_it_was(tmp_path: Path) -> None:
    table = train_lines(ODD, "touching", games=scaled(200, 1), seed=5)
    table.save(tmp_path / "model", note="odd")
    values, facts = load_table(tmp_path / "model")
    assert np.array_equal(values[table.visits > 0], table.values[table.visits > 0])
    assert not values[table.visits == 0].any()
    assert facts["points"] == [0.0, *(ODD[name] for name in SCORED)]
    assert (facts["placement"], facts["note"], facts["training"]["seed"]) == ("touching", "odd", 5)


def test_a_model_is_refused_for_another_table_or_placement_naming_both(models: dict[str, Path]) -> None:
    policy = LinePolicy(str(models["fixed"]))
    game = get_game(POKER)
    policy.check(game, game.check_options({"placement": "fixed"}))
    same_points = dict(zip(SCORED, POINTS[1:].tolist(), strict=True))
    policy.check(game, game.check_options({"placement": "fixed", "scoring": same_points}))
    for options, said in (
        ({"placement": "touching"}, r"placement='fixed'.*placement='touching'"),
        ({"placement": "fixed", "scoring": "english"}, r"pair 2, .*royal 100.*pair 1, .*royal 30"),
        ({"placement": "fixed", "scoring": "random"}, r"pair 2, .*scoring='random'"),
    ):
        with pytest.raises(ValueError, match=said):
            policy.check(game, game.check_options(options))
    with pytest.raises(ValueError, match=r"plays PatiencePoker-v0, not Calculation-v0"):
        policy.check(get_game("Calculation-v0"), {})


def test_missing_cut_and_changed_models_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no line model"):
        make_policy("line", POKER, path=str(tmp_path))
    for path in models["fixed"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tensors,) = tmp_path.glob("*.safetensors")
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"is damaged"):
        LinePolicy(str(tmp_path))
    tensors.write_bytes(whole)
    facts = json.loads((tmp_path / "line.json").read_text())
    facts["placement"] = "touching"
    (tmp_path / "line.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"seal does not match"):
        LinePolicy(str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"placement": "loose"}, r"placement='loose' is not allowed: choose one of touching, fixed"),
        ({"games": 0}, r"games=0 is not allowed"),
        ({"seconds": -1.0}, r"seconds=-1.0 is not allowed: give a number above 0"),
        ({"seconds": 1.0, "games": 1}, r"both given"),
        ({"seed": -1}, r"seed=-1 is not allowed"),
        ({"scoring": "random"}, r"scoring='random' is not one table"),
        ({"scoring": "scottish"}, r"scoring='scottish' is not known"),
    ],
)
def test_training_refuses(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        train_lines(**arguments)


def test_scoring_is_read_as_a_name_or_as_nine_numbers() -> None:
    assert read_scoring("english") == "english"
    assert read_scoring("1, 2 3,4,5,6,7,-8,9.5") == dict(zip(SCORED, [1, 2, 3, 4, 5, 6, 7, -8, 9.5], strict=True))
    for text in ("1,2,3", "scottish", ""):
        with pytest.raises(ValueError, match=r"nor nine numbers"):
            read_scoring(text)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return (stop.value.code, *capsys.readouterr())


@pytest.mark.compiled
def test_the_command_trains_saves_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    command = ["train-value", POKER, "--kind", "line", "--scoring", "2,5,10,15,20,25,50,75,100", "--placement", "fixed"]
    code, out, err = run(capsys, *command, "--games", "2000", "--seed", "7", "--out", str(folder))
    assert code == 0, err
    facts = json.loads((folder / "line.json").read_text())
    assert f"validation: {facts['validation']['mean']:.2f} +- " in out
    assert facts["validation"]["deals"] == len(named_deals("validation"))
    assert facts["training"]["games"] == 2000
    shown = evaluate(f"line:path={folder}", POKER, named_deals("validation"), options={"placement": "fixed"})
    assert shown.mean == facts["validation"]["mean"]
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, _, err = run(capsys, *command, "--games", "1", "--out", str(folder))
    assert (code, "holds a training already: go on with it by --resume" in err) == (2, True)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Calculation-v0"], "not of 'Calculation-v0'"),
        ([POKER, "--scoring", "1,2"], "nor nine numbers"),
        ([POKER, "--seconds", "0"], "seconds=0.0 is not allowed"),
    ],
)
def test_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, _, err = run(capsys, "train-value", *arguments, "--kind", "line", "--out", str(tmp_path / "model"))
    assert (code, said in err) == (2, True)
    assert not (tmp_path / "model").exists()
