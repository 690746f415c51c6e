"""Search: the last cards against brute force, what it sees, what it costs, and what it refuses."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("typer")

from patience_env import jit
from patience_env.agents import board_values, line_table
from patience_env.agents.board_values import FEATURES, Net, load_net, new_space, save_net
from patience_env.agents.line_table import LinePolicy, new_boards
from patience_env.agents.policy import make_policy, policy_names, see
from patience_env.agents.search import (
    LOOKED_AT,
    MARGIN,
    SearchPolicy,
    agree,
    begin,
    expect,
    look_ahead,
    new_firsts,
    pick,
    simulate,
)
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.game import get_game
from patience_env.games.poker_hands import TABLES, category
from patience_env.table import Rows
from patience_env.training.evaluate import evaluate
from patience_env.training.line_training import train_lines
from patience_env.verbs import play
from playing import open_after, scaled

POKER = "PatiencePoker-v0"
PLACEMENTS = ["fixed", "touching"]
HAND = getattr(category, "py_func", category)


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
        train_lines("american", placement, games=scaled(20_000, 2), seed=1).save(folders[placement])
    return folders


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of untrained networks by placement, American."""
    rng = np.random.default_rng(2)
    shapes = {"w1": (2, FEATURES, 4), "b1": (2, 4), "w2": (2, 3, 4, 4), "b2": (2, 4), "w3": (2, 4), "b3": (2,)}
    folders = {}
    for placement in PLACEMENTS:
        folders[placement] = tmp_path_factory.mktemp(placement) / "value"
        net = Net(**{name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()})
        points = [0.0, *map(float, TABLES["american"])]
        save_net(folders[placement], net, {"placement": placement, "points": points})
    return folders


def ending(placement: str, placed: int, rng: np.random.Generator) -> PatienceEnv:
    """Return a random position with so many cards placed."""
    env = PatienceEnv(POKER, placement=placement, illegal_action="raise")
    env.reset(seed=int(rng.integers(2**31)))
    while env.state_rows()["placed"][0] < placed:
        env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    return env


# Brute force: cells and cards as Python objects, all orders of the cards to come, no shared code but `category` ------


class Ending:
    """The end of a game, worked out by trying everything."""

    def __init__(self, env: PatienceEnv) -> None:
        self.side = 9 if env.options["placement"] == "touching" else 5
        state = env.state_rows()[0]
        cells = np.asarray(state["cells"])[: self.side**2].reshape(self.side, self.side)
        self.board = {(int(r), int(c)): int(cells[r, c]) for r, c in np.argwhere(cells)}
        self.hand = int(state["deck"][state["placed"]])
        known = {*self.board.values(), self.hand}
        self.unseen = [card for card in range(1, 53) if card not in known]

    def free(self, board: dict[tuple[int, int], int]) -> list[tuple[int, int]]:
        """Return the empty cells of the square that the next card may take."""
        if self.side == 5:
            return [cell for cell in itertools.product(range(5), range(5)) if cell not in board]
        rows, columns = sorted({r for r, _ in board}), sorted({c for _, c in board})
        assert (len(rows), len(columns)) == (5, 5)
        around = list(itertools.product((-1, 0, 1), (-1, 0, 1)))
        return [
            (r, c)
            for r, c in itertools.product(rows, columns)
            if (r, c) not in board and any((r + i, c + j) in board for i, j in around)
        ]

    def score(self, board: dict[tuple[int, int], int]) -> float:
        """Return the points of a full board."""
        points = (0.0, *map(float, TABLES["american"]))
        total = 0.0
        for axis in (0, 1):
            for line in {cell[axis] for cell in board}:
                total += points[HAND(*(card for cell, card in board.items() if cell[axis] == line))]
        return total

    def expected(self, board: dict[tuple[int, int], int], unseen: list[int]) -> float:
        """Return the expected score before the next card is turned."""
        if len(board) == 25:
            return self.score(board)
        return sum(
            max(self.values(board, card, [other for other in unseen if other != card]).values()) for card in unseen
        ) / len(unseen)

    def values(self, board: dict[tuple[int, int], int], card: int, unseen: list[int]) -> dict[tuple[int, int], float]:
        """Return the expected score of each cell for the card in hand."""
        return {cell: self.expected({**board, cell: card}, unseen) for cell in self.free(board)}

    def all_values(self) -> dict[int, float]:
        """Return the expected score of each action."""
        return {r * self.side + c: v for (r, c), v in self.values(self.board, self.hand, self.unseen).items()}


def exact_values(env: PatienceEnv, policy: SearchPolicy) -> dict[int, float]:
    states = env.state_rows()
    cells = np.flatnonzero(env.action_masks())
    line = policy.line
    mask, gains, worths = (
        np.zeros(len(env.action_masks()), np.int8),
        np.zeros(len(env.action_masks())),
        np.zeros(len(cells)),
    )
    begin(states, 0, policy._boards, np.uint64(1), *table_of(line), mask, gains)
    expect(policy._boards, cells, worths, table_of(line)[1])
    return dict(zip(cells.tolist(), worths.tolist(), strict=True))


def endings(count: int, placed: int, seed: int) -> Iterator[PatienceEnv]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        yield ending(PLACEMENTS[number % 2], placed, rng)


def check_endings(models: dict[str, Path], count: int, seed: int) -> None:
    policies = {placement: SearchPolicy(str(models[placement]), simulations=1) for placement in PLACEMENTS}
    for env in endings(count, 22, seed):
        policy = policies[env.options["placement"]]
        wanted = Ending(env).all_values()
        assert exact_values(env, policy) == pytest.approx(wanted, abs=1e-9)
        assert wanted[policy.choose(env)] == pytest.approx(max(wanted.values()), abs=1e-9)


@pytest.mark.compiled
def test_the_last_three_cards_are_played_as_brute_force_plays_them(models: dict[str, Path]) -> None:
    check_endings(models, 24, 5)


@pytest.mark.slow
@pytest.mark.compiled
def test_a_thousand_endings_of_three_cards_are_played_as_brute_force_plays_them(models: dict[str, Path]) -> None:
    check_endings(models, 1000, 6)


@pytest.mark.parametrize("placed", [23, 24])
def test_the_last_two_cards_and_the_last_are_exact(models: dict[str, Path], placed: int) -> None:
    for env in endings(scaled(20, 2), placed, 7):
        policy = SearchPolicy(str(models[env.options["placement"]]), simulations=1)
        assert exact_values(env, policy) == pytest.approx(Ending(env).all_values(), abs=1e-9)


@pytest.mark.slow
@pytest.mark.compiled
def test_four_cards_to_go_are_exact(models: dict[str, Path]) -> None:
    """With four to go each card's best play afterwards is the exact search of three (tested above)."""
    rng = np.random.default_rng(8)
    for placement in PLACEMENTS:
        policy = SearchPolicy(str(models[placement]), simulations=1)
        env = ending(placement, 21, rng)
        found = exact_values(env, policy)
        for action in list(found)[:2]:
            best = []
            following = env.clone()
            following.step(action)
            unseen = Ending(env).unseen
            for card in unseen:
                rows = following.state_rows()
                deck = rows["deck"][0].tolist()
                place = int(rows["placed"][0])
                other = deck.index(card)
                deck[place], deck[other] = deck[other], deck[place]
                rows["deck"][0] = deck
                mask = following.action_masks()
                cells = np.flatnonzero(mask)
                worths, gains = np.zeros(len(cells)), np.zeros(len(mask))
                line = policy.line
                begin(rows, 0, policy._boards, np.uint64(1), *table_of(line), mask.astype(np.int8), gains)
                expect(policy._boards, cells, worths, table_of(line)[1])
                best.append(worths.max())
            assert found[action] == pytest.approx(np.mean(best), abs=1e-9)


# Simulations -------------------------------------------------------------------------------------------------------


def midgame(placement: str, seed: int) -> PatienceEnv:
    return ending(placement, 12, np.random.default_rng(seed))


@jit.kernel
def table_choice(states, boards, flip, values, points):  # type: ignore[no-untyped-def]
    board = boards[0]
    line_table.read_board(states[0], board, points)
    board.flip = flip
    line_table.weigh(board, int(states[0].deck[states[0].placed]) - 1, values, points)
    return line_table.best_cell(board)[0]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_simulated_scores_are_those_of_the_table_playing_the_game_on(models: dict[str, Path], placement: str) -> None:
    """The deck of a simulation, played in the environment with the board set up anew for each card."""
    for seed in range(scaled(10, 1)):
        env = midgame(placement, seed)
        line = LinePolicy(str(models[placement]))
        cells = np.flatnonzero(env.action_masks())[: scaled(81, 2)]
        boards, totals = new_boards(5), np.zeros((1, len(cells)))
        mask, gains = np.zeros(len(env.action_masks()), np.int8), np.zeros(len(env.action_masks()))
        begin(env.state_rows(), 0, boards, np.uint64(4), *table_of(line), mask, gains)
        flip = int(boards["flip"][0])
        simulate(boards, cells, totals, *table_of(line))
        for cell, total in zip(cells.tolist(), totals[0].tolist(), strict=True):
            rows = Rows(env.game, env.options, 1, "cards", False)
            rows.states[:] = env.state_rows()
            played = int(rows.states["placed"][0])
            action, score = cell, 0.0
            for place in range(played, 25):
                score = step_with(rows.states, action, int(boards["deck"][0, min(place + 1, 24)]))
                if place < 24:
                    action = int(table_choice(rows.states, new_boards(1), flip, *table_of(line)))
            assert total == score


@jit.kernel
def step_with(states, action, following):  # type: ignore[no-untyped-def]
    """Place the card in hand; the next card turned is `following`; return the score."""
    state = states[0]
    play(state, action)
    if state.placed < 25:
        for i in range(state.placed, 52):
            if state.deck[i] == following:
                state.deck[i] = state.deck[state.placed]
                state.deck[state.placed] = following
    return state.score


@jit.kernel
def rate(states, boards, flip, table_flip, values, points, net, space, worths, gains):  # type: ignore[no-untyped-def]
    """Write what the network thinks of each cell, and what the table does."""
    board = boards[0]
    line_table.read_board(states[0], board, points)
    card = int(states[0].deck[states[0].placed]) - 1
    board.flip = table_flip
    line_table.weigh(board, card, values, points)
    for cell in range(gains.shape[0]):
        gains[cell] = board.gain[cell // board.side] + board.gain[9 + cell % board.side]
    board.flip = flip
    board_values.rate_cells(boards, net, space, card, points, worths)


def room_after(state: Any, action: int, largest: float) -> float:
    """Return what it counts under the touching rule how many cells are open after an action."""
    if not state["touching"]:
        return 0.0
    return board_values.FREEDOM * largest * (open_after(state, action) - (24 - int(state["placed"])))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    ("depth", "asked", "beyond"), [(1, 0, 1.0), (3, 0, 1.0), (3, 2, 1.0), (3, 2, 0.25), (1, 1, 0.5)]
)
def test_looking_ahead_tells_what_the_network_thinks_of_the_boards_that_games_come_to(
    models: dict[str, Path], networks: dict[str, Path], placement: str, depth: int, asked: int, beyond: float
) -> None:
    """The decks of a round, played in the environment by table or network: each unseen card comes next once."""
    env = midgame(placement, 11)
    table, (net, _, _) = table_of(LinePolicy(str(models[placement]))), load_net(networks[placement])
    cells = np.flatnonzero(env.action_masks())[:2]
    boards, size, firsts = new_boards(5), len(env.action_masks()), new_firsts()
    begin(env.state_rows(), 0, boards, np.uint64(4), *table, np.zeros(size, np.int8), np.zeros(size))
    decks = 52 - 13
    margin = MARGIN * np.abs(table[1]).max()
    came = []
    # What is known of the first card is used where it comes again.
    for number in [*range(0, decks, scaled(1, 13)), 0]:
        scores, space, worths = np.zeros((1, 2)), new_space(4), np.zeros(81)
        way = depth, asked, beyond, np.array([1, 0])
        look_ahead(boards, cells, number, scores, *way, *table, net, space, worths, firsts)
        came.append(int(boards["deck"][3, 13]))
        for cell, score in zip(cells.tolist(), scores[0].tolist(), strict=True):
            rows = Rows(env.game, env.options, 1, "cards", False)
            rows.states[:] = env.state_rows()
            action, wanted, left = cell, 0.0, 1.0
            for ahead in range(depth):
                step_with(rows.states, action, int(boards["deck"][3, 13 + ahead]))
                worths, gains = np.full(size, -np.inf), np.zeros(size)
                rate(rows.states, new_boards(2), 0, 1, *table, net, new_space(4), worths, gains)
                rated = np.flatnonzero(worths > -np.inf)
                liked = rated[np.argsort(-gains[rated], kind="stable")]
                liked = liked[gains[liked] >= gains[liked[0]] - margin]
                liked = liked[: LOOKED_AT if ahead in (0, depth - 1) else asked]
                if asked or ahead == depth - 1:
                    action = int(liked[worths[liked].argmax()])
                    worth = worths[action] - room_after(rows.states[0], action, np.abs(table[1]).max())
                    share = 1.0 if ahead == depth - 1 else 1 - beyond
                    wanted += left * share * worth
                    left *= beyond
                else:
                    action = int(table_choice(rows.states, new_boards(1), 1, *table))
            assert score == pytest.approx(wanted, abs=1e-3)
    assert len(set(came[:-1])) == len(came) - 1
    assert (firsts.cells[cells] >= 0).sum() == (0 if asked == 0 and depth > 1 else 2 * (len(came) - 1))


@jit.kernel
def picked(states, boards, values, points, net, space, worths):  # type: ignore[no-untyped-def]
    """Return the cell that is picked when the network is asked about all."""
    line_table.read_board(states[0], boards[0], points)
    card = int(states[0].deck[states[0].placed]) - 1
    line_table.weigh(boards[0], card, values, points)
    return pick(boards, 0, card, worths.shape[0], points, net, space, worths)[0]


def test_of_cells_that_are_alike_the_one_that_leaves_most_open_is_taken(
    models: dict[str, Path], networks: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With table and network blank, under the touching rule: in looking ahead, by the network alone, by the search."""
    net, _, facts = load_net(networks["touching"])
    blank = Net(*(np.zeros_like(array) for array in net))
    save_net(tmp_path / "blank", blank, facts)
    policy = SearchPolicy(str(models["touching"]), simulations=40, value=str(tmp_path / "blank"), width=81, depth=1)
    values, points = table_of(policy.line)
    for seed in range(scaled(10, 2)):
        env = ending("touching", 5, np.random.default_rng(seed))
        state = env.state_rows()[0]
        count = {int(cell): open_after(state, int(cell)) for cell in np.flatnonzero(env.action_masks())}
        assert len(set(count.values())) > 1
        way = new_boards(2), np.zeros_like(values), points, blank, new_space(4), np.zeros(81)
        assert count[int(picked(env.state_rows(), *way))] == max(count.values())
        assert policy.value is not None
        assert count[policy.value.choose(env)] == max(count.values())
        with monkeypatch.context() as patch:  # the search knows by itself
            patch.setattr(policy.value, "values", lambda turn: np.where(turn.masks == 1, 0.0, -np.inf))
            assert count[policy.choose(env)] == max(count.values())


def test_looking_ahead_to_the_end_tells_the_score(models: dict[str, Path], networks: dict[str, Path]) -> None:
    env = ending("fixed", 21, np.random.default_rng(9))
    table, (net, _, _) = table_of(LinePolicy(str(models["fixed"]))), load_net(networks["fixed"])
    cells = np.flatnonzero(env.action_masks())
    boards = new_boards(5)
    begin(env.state_rows(), 0, boards, np.uint64(4), *table, np.zeros(25, np.int8), np.zeros(25))
    scores = np.zeros((3, len(cells)))
    for asked in (0, 2):
        way = 9, asked, 1.0, np.zeros(2, np.int64)
        look_ahead(boards, cells, 0, scores, *way, *table, net, new_space(4), np.zeros(81), new_firsts())
        assert (scores == np.round(scores)).all()
        assert scores.min() >= 0


def test_network_and_table_agree_on_rows_and_columns(networks: dict[str, Path], models: dict[str, Path]) -> None:
    """A network whose parts are exchanged takes rows for columns."""
    table = table_of(LinePolicy(str(models["fixed"])))
    net, _, _ = load_net(networks["fixed"])
    deals = np.arange(2**32, 2**32 + scaled(40, 4), dtype=np.uint64)
    found = set()
    for one in (net, Net(*(np.ascontiguousarray(array[::-1]) for array in net))):
        found.add(int(agree(new_boards(2), deals, one, new_space(4), *table, 0, np.zeros(81))))
    assert found == {0, 1}


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_same_seed_and_budget_give_the_same_choices_whatever_lies_hidden(
    models: dict[str, Path], networks: dict[str, Path], placement: str, network: bool
) -> None:
    env = midgame(placement, 3)
    value = str(networks[placement]) if network else None
    policy = SearchPolicy(str(models[placement]), simulations=scaled(200, 2), value=value)
    choices = set()
    for key in range(scaled(10, 2)):
        policy.start(5)
        turn = see(env.game, env.options, env.state_rows(), env.action_masks()[None].astype(np.int8), key)
        choices.add(int(policy.act(turn)[0]))
    assert len(choices) == 1


def test_a_position_is_played_the_same_alone_and_in_a_batch(models: dict[str, Path]) -> None:
    envs = [midgame("fixed", seed) for seed in range(scaled(4, 2))]
    policy = SearchPolicy(str(models["fixed"]), simulations=scaled(100, 2))
    states = envs[0].game.new_states(len(envs), envs[0].options)
    states[:] = np.concatenate([env.state_rows() for env in envs])
    masks = np.stack([env.action_masks() for env in envs]).astype(np.int8)
    together = policy.act(see(envs[0].game, envs[0].options, states, masks, 0))
    alone = [
        policy.act(see(env.game, env.options, env.state_rows(), masks[i : i + 1], 1)) for i, env in enumerate(envs)
    ]
    assert together.tolist() == [int(action[0]) for action in alone]


@pytest.mark.compiled
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_search_plays_whole_games(
    models: dict[str, Path], networks: dict[str, Path], placement: str, network: bool
) -> None:
    """`evaluate` refuses an illegal choice."""
    value = str(networks[placement]) if network else None
    policy = SearchPolicy(str(models[placement]), simulations=40, value=value)
    deals = named_deals("smoke", 10)
    one, same = (evaluate(policy, POKER, deals, options={"placement": placement}, batch=batch) for batch in (1, 10))
    assert one.returns.tolist() == same.returns.tolist()


@pytest.mark.compiled
def test_a_budget_of_time_is_kept(models: dict[str, Path]) -> None:
    env = midgame("fixed", 4)
    policy = SearchPolicy(str(models["fixed"]), milliseconds=20)
    policy.choose(env)
    started = time.perf_counter()
    assert env.action_masks()[policy.choose(env)]
    # A busy machine may stretch it; a search that does not look at the clock would take far longer or far shorter.
    # (Cells that are clearly worse are dropped early, so that the last rounds may not be needed.)
    assert 0.004 <= time.perf_counter() - started < 2.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"simulations": 0}, r"simulations=0 is not allowed: give a whole number above 0"),
        ({"simulations": -5}, r"simulations=-5 is not allowed"),
        ({"simulations": 1.5}, r"simulations=1.5 is not allowed"),
        ({"milliseconds": 0}, r"milliseconds=0 is not allowed: give a number above 0"),
        ({"milliseconds": -0.1}, r"milliseconds=-0.1 is not allowed"),
        ({"simulations": 1, "milliseconds": 1}, r"both given"),
        ({"width": 0}, r"width=0 is not allowed"),
        ({"prior": -1}, r"prior=-1 is not allowed"),
        ({"depth": 0}, r"depth=0 is not allowed: give a whole number above 0"),
        ({"beyond": 1.5}, r"beyond=1.5 is not allowed: give a number from 0 to 1"),
        ({"beyond": True}, r"beyond=True is not allowed"),
    ],
)
def test_budgets_that_are_none_are_refused(models: dict[str, Path], arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_policy("search", POKER, path=str(models["fixed"]), **arguments)


def test_a_table_for_another_placement_is_refused(models: dict[str, Path]) -> None:
    assert policy_names(POKER)["search"].endswith(":SearchPolicy")
    game = get_game(POKER)
    with pytest.raises(ValueError, match=r"placement='fixed'.*placement='touching'"):
        SearchPolicy(str(models["fixed"])).check(game, game.check_options({}))
