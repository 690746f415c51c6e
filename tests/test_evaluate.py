"""Evaluation: every number is checked against play by hand or against published values."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import patience_env
from patience_env import jit
from patience_env.agents.policy import Policy, Turn, make_policy
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.game import Entry
from patience_env.training.evaluate import (
    Evaluation,
    IllegalChoiceError,
    check_writable,
    evaluate,
    paired,
    standard_error,
    tableaus_to_500,
    wilson,
    write_atomically,
)

POKER = "PatiencePoker-v0"
FIXED = {"placement": "fixed"}
DEALS = named_deals("smoke", 40 if jit.JIT else 6)


def played_by_hand(name: str, deals: Any, **options: Any) -> tuple[list[float], list[int]]:
    """Return the return and the moves of each deal, from the single environment."""
    env = PatienceEnv(POKER, illegal_action="raise", **options)
    policy = make_policy(name, POKER)
    returns, lengths = [], []
    for deal in deals:
        env.reset(options={"deal": int(deal)})
        total, moves, over = 0.0, 0, False
        while not over:
            _, reward, over, _, _ = env.step(policy.choose(env))
            total += reward
            moves += 1
        returns.append(total)
        lengths.append(moves)
    return returns, lengths


class First(Policy):
    """Plays the first legal action, and whatever it is told at one of its turns."""

    name = "first"

    def __init__(self, at: int = -1, then: Any = None) -> None:
        self._at, self._then, self._turn = at, then, 0
        self.sizes: list[int] = []

    def start(self, seed: int) -> None:
        self._turn, self.sizes = 0, []

    def act(self, turn: Turn) -> NDArray[np.int64]:
        self.sizes.append(len(turn))
        actions = turn.masks.argmax(axis=1)
        if self._turn == self._at:
            actions = self._then(actions)
        self._turn += 1
        return actions


# Playing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, FIXED, {**FIXED, "scoring": "english"}, {**FIXED, "target": 150}])
def test_returns_and_moves_are_those_of_the_single_environment(options: dict[str, Any]) -> None:
    deals = DEALS[:6]
    result = evaluate("flush-rank", POKER, deals, options=options)
    returns, lengths = played_by_hand("flush-rank", deals, **options)
    assert result.returns.tolist() == returns
    assert result.lengths.tolist() == lengths
    assert result.moves == sum(lengths)
    assert result.mean == np.mean(returns)
    assert result.stderr == pytest.approx(np.std(returns, ddof=1) / math.sqrt(len(returns)))


@pytest.mark.parametrize("batch", [1, 4, 1024])
def test_the_batch_changes_nothing_and_stays_full(batch: int) -> None:
    # Series end at different times, so that rows are dealt anew while others go on.
    options = {**FIXED, "target": 60}
    policy = First()
    result = evaluate(policy, POKER, DEALS[:6], options=options, batch=batch)
    assert result.returns.tolist() == evaluate(First(), POKER, DEALS[:6], options=options, batch=2).returns.tolist()
    assert max(policy.sizes) == min(batch, 6)
    assert sum(policy.sizes) == result.moves  # nothing is asked about finished deals


def test_the_result_says_what_was_played() -> None:
    result = evaluate("random", POKER, [5, 6, 7], options=FIXED, seed=4)
    assert (result.policy, result.env, result.seed) == ("random", POKER, 4)
    assert result.options == {"placement": "fixed", "scoring": "american", "target": None}
    assert result.deals.tolist() == [5, 6, 7]
    assert result.version == patience_env.__version__
    assert result.cores == os.cpu_count()
    assert result.seconds > 0
    assert result.seconds_per_move == result.seconds / 75


def test_the_seed_decides_random_choices() -> None:
    returns = [evaluate("random", POKER, DEALS, options=FIXED, seed=seed).returns.tolist() for seed in (1, 1, 2)]
    assert returns[0] == returns[1] != returns[2]


def test_a_game_that_only_scores_has_no_win_rate_and_a_series_has() -> None:
    single = evaluate("flush-rank", POKER, DEALS[:3], options=FIXED)
    assert single.win_rate is None
    assert single.win_interval is None
    series = evaluate("flush-rank", POKER, DEALS[:3], options={**FIXED, "target": 50})
    assert series.win_rate == 1.0
    assert series.tableaus is None


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    evaluate(First(), POKER, DEALS[:5], options=FIXED, batch=2, progress=lambda done, moves: told.append((done, moves)))
    assert told == sorted(told)
    assert told[-1] == (5, 125)


@pytest.fixture
def short_game() -> Iterator[str]:
    """The toy game, truncated after three of its five moves."""
    patience_env.register_game(Entry("Reds-v0", "toy_patience", max_episode_steps=3))
    yield "Reds-v0"
    gymnasium.registry.pop("Reds-v0")
    patience_env.game._ENTRIES.pop("Reds-v0")


def test_episodes_are_truncated_as_registered(short_game: str) -> None:
    result = evaluate("random", short_game, range(1, 8), batch=3)
    assert result.lengths.tolist() == [3] * 7
    assert result.win_rate == 0.0
    assert result.tableaus is None


# Illegal choices and wrong arguments ---------------------------------------------------------------------------


def test_an_illegal_choice_names_policy_deal_and_action() -> None:
    def second_on_the_first(actions: NDArray[np.int64]) -> NDArray[np.int64]:
        actions[1] = 0  # the cell that the first move filled
        return actions

    with pytest.raises(
        IllegalChoiceError, match=r"policy 'first' .* action 0 \(place .. in row 1, column 1\)"
    ) as error:
        evaluate(First(1, second_on_the_first), POKER, [11, 12, 13], options=FIXED)
    assert "at move 2 of deal 12 of PatiencePoker-v0" in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda actions: actions + 25, "illegal action 25, outside 0 to 24, at move 1 of deal 11"),
        (lambda actions: actions - 1, "illegal action -1, outside 0 to 24,"),
        (lambda actions: actions[:-1], r"int64 actions of shape \(2,\) for 3 positions"),
        (lambda actions: actions / 2, r"float64 actions of shape \(3,\).*whole numbers of shape \(3,\)"),
        (lambda actions: None, r"object actions of shape \(\)"),
    ],
)
def test_what_is_no_action_at_all_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(IllegalChoiceError, match=message):
        evaluate(First(0, wrong), POKER, [11, 12, 13], options=FIXED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("greedy", "Nope-v0", [1]), "there is no game 'Nope-v0'"),
        (("nobody", POKER, [1]), "there is no policy 'nobody'"),
        (("patience_env.agents:FlushRankPolicy", "Fortress-v0", [1]), "plays PatiencePoker-v0, not Fortress-v0"),
        (("greedy", POKER, []), "there are no deals"),
        (("greedy", POKER, [-1]), "deal -1 lies outside"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(*arguments)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(TypeError, match="has no option 'side'"):
        evaluate("greedy", POKER, [1], options={"side": 5})
    with pytest.raises(ValueError, match="batch=0 is not allowed"):
        evaluate("greedy", POKER, [1], batch=0)


# Statistics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"),
    # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_wilson_interval_has_its_published_values(wins: int, games: int, low: float, high: float) -> None:
    assert wilson(wins, games) == pytest.approx((low, high), abs=5e-5)
    assert wilson(games - wins, games) == pytest.approx((1 - high, 1 - low), abs=5e-5)


@pytest.mark.parametrize(("wins", "games"), [(0, 0), (3, 2), (-1, 5)])
def test_the_wilson_interval_refuses_impossible_counts(wins: int, games: int) -> None:
    with pytest.raises(ValueError, match=f"{wins} wins in {games} games"):
        wilson(wins, games)


def made_up(policy: str, returns: list[float], deals: list[int], **options: Any) -> Evaluation:
    size = len(returns)
    return Evaluation(
        policy=policy,
        policy_version=1,
        env=POKER,
        options=options,
        deals=np.array(deals, np.uint64),
        returns=np.array(returns, np.float64),
        lengths=np.full(size, 25),
        won=None,
        seconds=1.0,
        seed=0,
        version="0",
        cores=1,
    )


def test_policies_are_compared_deal_by_deal() -> None:
    first, second = made_up("a", [10, 30, 50, 80], [1, 2, 3, 4]), made_up("b", [8, 29, 47, 78], [1, 2, 3, 4])
    result = paired(first, second)
    assert result.difference == 2.0
    # Differences 2, 1, 3, 2: variance 2/3, standard error sqrt(2/3) / 2.
    assert result.stderr == pytest.approx(math.sqrt(2 / 3) / 2)
    assert (result.low, result.high) == pytest.approx((2 - 1.959964 * result.stderr, 2 + 1.959964 * result.stderr))
    back = paired(second, first)
    assert (back.difference, back.low, back.high) == (-2.0, -result.high, -result.low)


def test_results_on_other_deals_or_options_are_not_compared() -> None:
    first = made_up("a", [10, 30], [1, 2], placement="fixed")
    with pytest.raises(ValueError, match=r"a and b played different deals \(2 from 1 to 2; 2 from 2 to 1\)"):
        paired(first, made_up("b", [10, 30], [2, 1], placement="fixed"))
    with pytest.raises(ValueError, match="different deals"):
        paired(first, made_up("b", [10], [1], placement="fixed"))
    with pytest.raises(ValueError, match="the same game under the same options"):
        paired(first, made_up("b", [10, 30], [1, 2], placement="touching"))


def test_tableaus_are_laid_end_to_end_until_a_series_reaches_500() -> None:
    # 250 + 250 | 100 + 400 | 499 + 1 + ... the last series is not finished.
    result = tableaus_to_500([250, 250, 100, 150, 250, 499, 0, 1, 300, 100])
    assert result is not None
    assert (result.mean, result.series) == (pytest.approx(8 / 3), 3)
    assert result.stderr == pytest.approx(math.sqrt(1 / 3) / math.sqrt(3))
    assert tableaus_to_500([499.0]) is None
    assert tableaus_to_500([500.0]) is not None


def test_one_value_has_no_standard_error() -> None:
    assert math.isnan(standard_error(np.array([3.0])))
    assert math.isnan(evaluate(First(), POKER, [1], options=FIXED).stderr)


@pytest.mark.compiled
def test_tableaus_of_single_games_agree_with_the_series_of_the_environment() -> None:
    deals = named_deals("test", 1000)
    single = evaluate("flush-rank", POKER, deals, options=FIXED).tableaus
    series = evaluate("flush-rank", POKER, deals, options={**FIXED, "target": 500})
    assert single is not None
    assert single.mean == pytest.approx(-series.mean, abs=4 * math.hypot(single.stderr, series.stderr))


# Files ---------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640

    def stop(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(OSError, match="the disk is full"):
        write_atomically(path, "half")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_a_place_that_cannot_be_written_is_refused_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="is no regular file"):
        check_writable(tmp_path)
    with pytest.raises(ValueError, match="cannot be written: No such file or directory"):
        check_writable(tmp_path / "none" / "file")
    with pytest.raises(ValueError, match="is no regular file"):
        check_writable("/dev/null")
