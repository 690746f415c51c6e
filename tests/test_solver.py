"""The solver: wins that replay, answers that brute force over the naive oracles confirms, limits, refusals."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
import pytest
from games.test_fortress import SOURCE, wall
from test_records import Stream, module_of, oracle

import patience_env
from patience_env import jit
from patience_env.agents import guided, solver
from patience_env.agents.guided import GuidedGames
from patience_env.agents.policy import policy_names
from patience_env.agents.solver import Solution, solve
from patience_env.agents.solver_verbs import add_hooks
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.game import Entry, game_ids, get_game
from playing import is_won, legal_actions, play_at_random, scaled, strict

# No win is found in these among the few positions that a test allows.
HARD = ("Paganini-v0", "RobinPost-v0", "EmpressOfIndia-v0")
SOLVED = [game_id for game_id in game_ids() if not get_game(game_id).scores]
# Each game's search is compiled, which takes longer than its tests: those of half the games count as slow.
LIGHT = ("Calculation-v0", "Fortress-v0", "Fourteenth-v0", "Sultan-v0")
every_game = pytest.mark.parametrize(
    "game_id",
    [pytest.param(name, marks=[pytest.mark.slow] if jit.JIT and name not in LIGHT else []) for name in SOLVED],
)
VALIDATION = [int(deal) for deal in named_deals("validation", 20)]


def replay(env: Any, solution: Solution) -> float:
    """Play a solution's moves; return the rewards. The last move, and no other, ends the game."""
    total = 0.0
    for i, move in enumerate(solution.moves):
        _, reward, terminated, truncated, _ = env.step(move)
        total += float(reward)
        assert terminated == (i == len(solution.moves) - 1)
        assert not truncated
    return total


@every_game
def test_wins_replay_in_the_registered_environment_from_the_deal_number(game_id: str) -> None:
    won = 0
    for deal in VALIDATION[: scaled(4, 1)]:
        solution = solve(game_id, deal, positions=scaled(300_000, 30))
        assert solution.status in ("won", "lost", "unknown")
        assert (solution.limit == "") == (solution.status != "unknown")
        assert bool(solution.moves) == (solution.status == "won")
        if solution.status == "won":
            env = gymnasium.make(game_id, illegal_action="raise")
            env.reset(options={"deal": deal})
            assert replay(env, solution) == pytest.approx(1.0)
            won += 1
    # The others are too hard for so few positions; see docs/figures/winnability.md.
    assert won or not jit.JIT


def test_the_source_s_tableau_of_fortress_is_won() -> None:
    env = PatienceEnv("Fortress-v0", illegal_action="raise")
    env.load(wall(SOURCE))
    before = env.get_state()
    solution = solve(env, seconds=10.0 if jit.JIT else 60.0)
    assert solution.status == "won"
    assert env.get_state() == before
    assert replay(env, solution) == pytest.approx(1.0)


def test_the_oracle_is_no_policy() -> None:
    for game_id in game_ids():
        assert not any("solve" in name or "solve" in path for name, path in policy_names(game_id).items())


# -- brute force --------------------------------------------------------------------------------------------------


def follow(game_id: str, options: dict[str, Any], deal: int, actions: Sequence[int]) -> tuple[PatienceEnv, Any]:
    """Play actions from a deal on, in an environment and in the naive oracle; return both."""
    env = strict(game_id, **options)
    env.reset(options={"deal": deal})
    stream = Stream(deal)
    naive = oracle(import_module(f"naive.{module_of(game_id)}").Naive, env, deal, stream.shuffle)
    for action in actions:
        stream.state = int(env.state_rows()["rng"][0])
        naive.play(action)
        env.step(action)
    stream.state = int(env.state_rows()["rng"][0])
    return env, naive


def everything(naive: Any) -> str:
    """Return all that an oracle knows as text, the places of its streams included."""
    return repr(
        sorted((name, value.__self__.state if callable(value) else value) for name, value in vars(naive).items())
    )


def brute_force(naive: Any, most: int) -> bool | None:
    """Tell whether a win can be reached, by looking at every position; None when there are more than `most`."""
    if naive.won():
        return True
    seen = {everything(naive)}
    waiting = [naive]
    while waiting:
        here = waiting.pop()
        for action in sorted(here.legal()):
            after = copy.deepcopy(here)
            after.play(action)
            if after.won():
                return True
            text = everything(after)
            if text not in seen:
                seen.add(text)
                waiting.append(after)
                if len(seen) > most:
                    return None
    return False


def random_lines(game_id: str, options: dict[str, Any], deals: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield beginnings of random games that stop some moves before the end."""
    for deal in deals:
        env = strict(game_id, **options)
        env.reset(options={"deal": deal})
        played = [action for action, _ in play_at_random(env, np.random.default_rng(deal), 600)]
        for left in (1, 3, 6):
            yield deal, played[: max(len(played) - left, 0)]


def winning_lines(game_id: str, options: dict[str, Any], deals: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield beginnings of won games that stop some moves before the end, with up to two random moves after them."""
    for deal in deals:
        moves = list(solve(game_id, deal, options=options, positions=300_000).moves)
        rng = np.random.default_rng(deal)
        for left in (4, 8, 12):
            env, _ = follow(game_id, options, deal, moves[: max(len(moves) - left, 0)])
            further = [action for action, _ in play_at_random(env, rng, 2)]
            yield deal, [*moves[: max(len(moves) - left, 0)], *further]


def check_against_brute_force(game_id: str, options: dict[str, Any], lines: Any, most: int) -> set[bool]:
    """Compare the answers for positions, where brute force comes to an end; return which answers there were."""
    proves = solver.add_hooks(get_game(game_id))
    found = set()
    for deal, actions in lines:
        env, naive = follow(game_id, options, deal, actions)
        truth = brute_force(naive, most)
        if truth is None:
            continue
        solution = solve(env, positions=scaled(2_000_000, 2000))
        where = f"{game_id} {options} deal {deal} after {actions}"
        if truth:
            assert solution.status == "won", where
            replay(env, solution)
            assert is_won(env), where
        else:
            assert solution.status == ("lost" if proves else "unknown"), where
        found.add(truth)
    return found


def test_deals_of_fortress_end_as_brute_force_finds() -> None:
    lines = [(deal, []) for deal in VALIDATION]
    assert False in check_against_brute_force("Fortress-v0", {}, lines, scaled(400, 30))


@every_game
def test_ends_of_random_games_are_as_brute_force_finds(game_id: str) -> None:
    options = {"redeals": 0} if game_id == "Sultan-v0" else {}
    lines = random_lines(game_id, options, VALIDATION[: scaled(4, 1)])
    check_against_brute_force(game_id, options, lines, scaled(300, 20))


@pytest.mark.compiled
@every_game
def test_ends_of_won_games_are_as_brute_force_finds(game_id: str) -> None:
    found = check_against_brute_force(game_id, {}, winning_lines(game_id, {}, VALIDATION[:3]), 300)
    assert True in found or game_id in HARD


# -- guided games --


def guided_games(states: Any, game_id: str) -> GuidedGames:
    game = get_game(game_id)
    add_hooks(game)
    return GuidedGames(states, game.layout(game.check_options({})).actions, 500)


def test_guided_games_win_deals_and_are_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    game_id = "Calculation-v0"
    for deal in VALIDATION:
        states = solver.deal_states(get_game(game_id), {}, deal)
        before = states.tobytes()
        games = guided_games(states, game_id)
        line = games.play(400)
        if line:
            break
    assert states.tobytes() == before
    again = guided_games(states, game_id)
    assert again.play(400) == line
    assert again.moves == games.moves >= len(line)
    env = strict(game_id)
    env.reset(options={"deal": deal})
    assert replay(env, Solution("won", line, 0, 0.0)) == pytest.approx(1.0)
    # Its last moves are found by trying each.
    monkeypatch.setattr(guided, "PLAIN_GAMES", 0)
    env.reset(options={"deal": deal})
    for move in line[:-6]:
        env.step(move)
    states = env.state_rows()
    before = states.tobytes()
    end = guided_games(states, game_id).play(1)
    assert states.tobytes() == before
    assert replay(env, Solution("won", end, 0, 0.0)) > 0


def test_guided_games_end_where_no_move_is_left() -> None:
    env = strict("Calculation-v0")
    env.reset(options={"deal": VALIDATION[0]})
    assert list(play_at_random(env, np.random.default_rng(0), 500))
    games = guided_games(env.state_rows(), "Calculation-v0")
    assert games.play(100) == ()
    assert games.moves == 0


def test_guided_games_keep_to_the_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    deal = next(deal for deal in VALIDATION if solve("Fortress-v0", deal, positions=60).positions > 5)
    games = guided_games(solver.deal_states(get_game("Fortress-v0"), {}, deal), "Fortress-v0")
    assert games.play(10**9, until=0.0) == ()
    assert games.moves == 0
    lost = next(deal for deal in VALIDATION if solve("Fortress-v0", deal, positions=60).status == "lost")
    monkeypatch.setattr(solver, "FIRST_GUIDED", 1)
    monkeypatch.setattr(solver, "GUIDED_MOVES", 10**12)  # they would not end by themselves
    ended = solve("Fortress-v0", lost, seconds=0.2)
    assert (ended.status, ended.limit) == ("unknown", "time")


@pytest.mark.slow
@pytest.mark.skipif(not jit.JIT, reason="long games")
@pytest.mark.parametrize("game_id", ["RobinPost-v0", "Paganini-v0"])
def test_guided_games_win_what_the_queues_do_not(game_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deal = VALIDATION[0]
    assert solve(game_id, deal, positions=60_000).status == "won"
    monkeypatch.setattr(solver, "FIRST_GUIDED", 10**9)
    assert solve(game_id, deal, positions=60_000).status == "unknown"


# -- limits and refusals -----------------------------------------------------------------------------------------


def test_limits_end_a_search_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    env = strict("Fortress-v0")
    env.load(wall(SOURCE))
    few = solve(env, positions=50)
    assert (few.status, few.limit, few.moves) == ("unknown", "positions", ())
    assert few.positions >= 50
    monkeypatch.setattr(solver, "FIRST_BUDGET", 1)
    short = solve(env, seconds=1e-6)
    assert (short.status, short.limit) == ("unknown", "time")
    monkeypatch.setattr(solver, "FIRST_ROOM", 64)
    small = solve(env, memory=1e-9)
    assert (small.status, small.limit) == ("unknown", "memory")


def test_games_cut_at_their_longest_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = next(deal for deal in VALIDATION if solve("Fortress-v0", deal, positions=60).status == "lost")
    assert solve("Fortress-v0", lost).positions > 0
    deal = next(deal for deal in VALIDATION if solve("Fortress-v0", deal, positions=60).positions > 5)
    monkeypatch.setattr(solver, "max_episode_steps", lambda _: 1)
    cut = solve("Fortress-v0", deal)
    assert (cut.status, cut.limit) == ("unknown", "moves")


def test_a_table_that_grows_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    env = strict("Fortress-v0")
    env.load(wall(SOURCE))
    whole = solve(env)
    monkeypatch.setattr(solver, "FIRST_ROOM", 64)
    grown = solve(env)
    assert (grown.status, grown.moves, grown.positions) == (whole.status, whole.moves, whole.positions)


def test_keys_are_found_again_and_no_others() -> None:
    rng = np.random.default_rng(5)
    table = np.zeros((701, 2), np.uint64)
    keys = rng.integers(1, 2**63, (500, 2), dtype=np.uint64)
    for key in keys:
        row = key.copy()
        assert _add(table, row)
        assert not _add(table, row)
    stored = {tuple(row) for row in table.tolist() if any(row)}
    assert stored == {tuple(row) for row in keys.tolist()}


def _add(table: Any, key: Any) -> bool:
    """Enter one key by way of the kernel that moves tables."""
    before = int((table != 0).any(axis=1).sum())
    solver.rehash(key[None], table)
    return int((table != 0).any(axis=1).sum()) > before


def test_bad_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="only scores"):
        solve("PatiencePoker-v0", 1)
    with pytest.raises(ValueError, match="seconds=0"):
        solve("Fortress-v0", 1, seconds=0)
    with pytest.raises(ValueError, match="memory=-1"):
        solve("Fortress-v0", 1, memory=-1)
    with pytest.raises(ValueError, match="positions=0"):
        solve("Fortress-v0", 1, positions=0)
    with pytest.raises(TypeError, match="number of a deal"):
        solve("Fortress-v0")
    with pytest.raises(TypeError, match="brings its own deal"):
        solve(strict("Fortress-v0"), 1)
    with pytest.raises(TypeError, match="no option"):
        solve("Fortress-v0", 1, options={"lanes": 2})
    with pytest.raises(gymnasium.error.ResetNeeded):
        solve(strict("Fortress-v0"))


# -- a game that the solver knows nothing of ----------------------------------------------------------------------


def can_be_won(env: PatienceEnv) -> bool:
    """Tell whether a win can be reached, by trying all there is."""
    for action in legal_actions(env):
        after = env.clone()
        after.step(action)
        if is_won(after) or can_be_won(after):
            return True
    return False


def test_a_game_without_any_hooks_is_solved_too() -> None:
    patience_env.register_game(Entry("Reds-v0", "toy_patience"))
    try:
        answers = set()
        for deal in range(scaled(30, 4)):
            env = strict("Reds-v0")
            env.reset(options={"deal": deal})
            solution = solve("Reds-v0", deal)
            assert solution.status == ("won" if can_be_won(env) else "lost")
            if solution.status == "won":
                assert replay(env, solution) == pytest.approx(1.0)
            answers.add(solution.status)
        assert answers == {"won", "lost"} or not jit.JIT
    finally:
        gymnasium.registry.pop("Reds-v0")
        patience_env.game._ENTRIES.pop("Reds-v0")
