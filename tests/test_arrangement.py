"""The best arrangement of known cards: against brute force and constructions, its bounds, and the command."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from patience_env import agents, jit
from patience_env.agents import arrangement, arrangement_proof
from patience_env.agents.arrangement import (
    Arrangement,
    best_arrangement,
    best_arrangements,
    best_tableau,
    can_be_laid,
    hand_of,
    keys_of,
    tableau_bound,
)
from patience_env.cards import PACK, card_code, card_text
from patience_env.deals import deck, named_deals
from patience_env.env import PatienceEnv
from patience_env.games.patience_poker import CARDS, SIDE
from patience_env.games.poker_hands import CATEGORIES, SCORED, TABLES, category, points_table
from playing import scaled

POKER = "PatiencePoker-v0"
FEW: dict[str, int] = {"restarts": scaled(2, 1), "steps": scaled(200_000, 300)}
ODD = {"pair": -3, "two pairs": 4.5, "triplets": 2.25, "straight": 30, "flush": 1, "full hand": -9, "four": 8}
ODD |= {"straight flush": 60, "royal": 100}
ROYALS = [f"{rank}{suit}" for suit in "SHDC" for rank in "AKQJT"] + ["9S", "8S", "7S", "6S", "5S"]


def cards_of(deal: int) -> list[str]:
    return [card_text(int(code)) for code in deck(deal)[:CARDS]]


def score_of(rows: Any, scoring: Any = "american") -> float:
    """Return what five rows of cards score by the game's own reading of hands."""
    points = points_table(scoring)
    square = [[card_code(card) for card in row] for row in rows]
    lines = square + [list(column) for column in zip(*square, strict=True)]
    return float(sum(points[int(category(*line))] for line in lines))


def test_hands_read_from_keys_are_the_games_categories() -> None:
    hand = getattr(hand_of, "py_func", hand_of)
    named = ["AS KS QS JS TS", "AS 2S 3S 4S 5S", "AS 2S 3S 4S 5D", "KS AS 2S 3S 4S", "2S 2H 2D 2C AS", "2S 2H 2D AC AS"]
    hands = [[card_code(card) for card in text.split()] for text in named]
    rng = np.random.default_rng(0)
    hands += [rng.permutation(PACK)[:5] + 1 for _ in range(scaled(3000, 300))]
    hands += [rng.permutation(13)[:5] + 1 + 13 * rng.integers(4) for _ in range(scaled(1000, 100))]
    hands += [np.arange(1, 6) + rng.integers(9) + 13 * rng.integers(0, 4, 5) for _ in range(99)]
    met = set()
    for codes in hands:
        found = hand(int(keys_of(np.asarray(codes)).sum()))
        assert found == category(*map(int, codes)), [card_text(int(code)) for code in codes]
        met.add(found)
    assert met == set(range(10))


@pytest.mark.parametrize("scoring", [*TABLES, ODD], ids=[*TABLES, "odd"])
def test_an_arrangement_holds_the_cards_and_its_lines_add_up(scoring: Any) -> None:
    cards = cards_of(7)
    best = best_arrangement(cards, scoring, **FEW)
    assert sorted(card for row in best.rows for card in row) == sorted(cards)
    assert best.score == pytest.approx(score_of(best.rows, scoring))
    assert best.score == pytest.approx(sum(line.points for line in best.lines))
    columns = list(zip(*best.rows, strict=True))
    assert [line.cards for line in best.lines] == [*best.rows, *columns]
    assert [line.name for line in best.lines] == [f"{kind} {i}" for kind in ("row", "column") for i in range(1, 6)]
    assert all(line.hand == CATEGORIES[category(*map(card_code, line.cards))] for line in best.lines)
    assert (best.bound, best.proven) == (None, False)


@pytest.mark.parametrize("scoring", [*TABLES, ODD], ids=[*TABLES, "odd"])
def test_no_exchange_of_two_cards_gains(scoring: Any) -> None:
    """Brute force over all 300 neighbours."""
    best = best_arrangement(cards_of(11), scoring, **FEW)
    flat = [card for row in best.rows for card in row]
    for a, b in itertools.combinations(range(CARDS), 2):
        other = list(flat)
        other[a], other[b] = other[b], other[a]
        assert score_of([other[i : i + SIDE] for i in range(0, CARDS, SIDE)], scoring) <= best.score + 1e-9


@pytest.mark.compiled
def test_annealing_matches_brute_force_over_the_last_seven_cards() -> None:
    """With 18 cards in place no order of the other seven beats what the search finds for all 25 alike."""
    best = best_arrangement(cards_of(3))
    square = np.array([[card_code(card) for card in row] for row in best.rows]).ravel()
    cells = np.random.default_rng(5).permutation(CARDS)[:7]
    points = np.array(points_table("american"))
    keys = keys_of(square)
    for order in itertools.permutations(range(7)):
        trial = keys.copy()
        trial[cells] = keys[cells[list(order)]]
        rows = trial.reshape(SIDE, SIDE)
        assert sum(points[hand_of(line)] for line in [*rows.sum(0), *rows.sum(1)]) <= best.score


@pytest.mark.compiled
@pytest.mark.parametrize("scoring", TABLES)
def test_the_cards_of_the_best_tableau_give_it(scoring: str) -> None:
    """Four royals across, fours down."""
    best = best_arrangement(ROYALS, scoring)
    assert best.score == score_of([ROYALS[i : i + SIDE] for i in range(0, CARDS, SIDE)], scoring)
    assert best.score == {"american": 725, "american-alternate": 330, "english": 230}[scoring]


@pytest.mark.compiled
@pytest.mark.parametrize("scoring", TABLES)
def test_the_best_tableau_of_all_reaches_the_bound(scoring: str) -> None:
    best = best_tableau(scoring)
    assert best.score == best.bound == {"american": 725, "american-alternate": 330, "english": 230}[scoring]
    assert best.proven
    assert best.score == score_of(best.rows, scoring)


def test_the_bound_of_all_tableaus_holds_for_other_tables() -> None:
    rng = np.random.default_rng(1)
    for _ in range(scaled(20, 2)):
        table = dict(zip(SCORED, rng.integers(-128, 128, 9).tolist(), strict=True))
        best = best_tableau(table, restarts=3, steps=scaled(20_000, 50))
        assert best.bound == tableau_bound(np.array(points_table(table)))
        assert best.score <= best.bound
        assert best.score == score_of(best.rows, table)


def test_a_few_points_of_the_bound_by_hand() -> None:
    only_royals = [0.0] * 9 + [7.0]
    assert tableau_bound(only_royals) == 28  # one a suit
    only_flushes = [0.0] * 5 + [1.0, 0, 0, 0, 0]
    assert tableau_bound(only_flushes) == 5
    only_fours = [0.0] * 7 + [1.0, 0, 0]
    assert tableau_bound(only_fours) == 10  # no tight bound: more than six fours take more than 25 cards


def test_the_order_of_the_cards_plays_no_part() -> None:
    cards = cards_of(12)
    best = best_arrangement(cards, **FEW)
    assert best_arrangement(sorted(cards), **FEW) == best
    assert best_arrangement(" ".join(reversed(cards)).lower(), **FEW) == best
    assert best_arrangement([card_code(card) for card in cards], **FEW) == best
    assert best_arrangement(deck(12)[:CARDS], **FEW) == best


def test_the_same_seed_gives_the_same_arrangement() -> None:
    weak = {"restarts": 1, "steps": 100}
    found = [best_arrangement(cards_of(1), seed=seed, **weak) for seed in (5, 5, 6, 2**64 - 1)]
    assert found[0] == found[1]
    assert found[0].rows != found[2].rows


def test_many_at_once_are_each_alone() -> None:
    codes = np.array([deck(deal)[:CARDS] for deal in range(20, 23)])
    scores = best_arrangements(codes, "english", **FEW)
    assert scores.tolist() == [best_arrangement(row, "english", **FEW).score for row in codes]
    assert best_arrangements(np.zeros((0, CARDS), np.int8)).shape == (0,)


@pytest.mark.compiled
def test_more_steps_find_no_less_on_average() -> None:
    codes = np.array([deck(int(deal))[:CARDS] for deal in named_deals("smoke", 30)])
    hasty = best_arrangements(codes, restarts=1, steps=3000).mean()
    usual = best_arrangements(codes, restarts=2, steps=300_000).mean()
    assert hasty + 10 < usual
    assert usual > 205  # random cards of annealing reach 215.8 +- 2.1 on many deals


@pytest.mark.parametrize(
    ("cards", "error", "said"),
    [
        (ROYALS[:24], ValueError, "24 cards given: an arrangement takes 25"),
        ([*ROYALS, "2C"], ValueError, "26 cards"),
        ([*ROYALS[:24], "AS"], ValueError, "AS given more than once"),
        ([*ROYALS[:24], "1S"], ValueError, "'1S' is no card"),
        ([*ROYALS[:24], "??"], ValueError, "no known card"),
        ([*range(1, 25), 53], ValueError, "53 is no known card"),
        ([*range(1, 25), 25.0], TypeError, "25.0 is no card"),
        ([*range(2, 26), True], TypeError, "True is no card"),
    ],
)
def test_wrong_cards_are_refused(cards: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said.replace("?", r"\?")):
        best_arrangement(cards)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"scoring": "random"}, ValueError, "draws a table for each deal"),
        ({"scoring": "french"}, ValueError, "scoring='french' is not known"),
        ({"scoring": {"pair": 2}}, ValueError, "lacks two pairs"),
        ({"seed": -1}, ValueError, "seed=-1"),
        ({"restarts": 0}, ValueError, "restarts=0"),
        ({"steps": 0}, ValueError, "steps=0"),
        ({"steps": 1e6}, TypeError, "steps=1000000.0 is no whole number"),
        ({"prove_seconds": 0}, ValueError, "prove_seconds=0"),
        ({"prove_seconds": float("nan")}, ValueError, "prove_seconds=nan"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        best_arrangement(ROYALS, **arguments)


@pytest.mark.parametrize(
    "cards", [np.ones((2, 24), int), np.ones(25, int), np.ones((2, 25)), np.ones((2, 25), int)], ids=str
)
def test_wrong_batches_are_refused(cards: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"give card codes of shape|given more than once"):
        best_arrangements(cards)


def lines_met(cells: tuple[int, ...]) -> list[int]:
    """Return how many of the cells lie in each of the ten lines."""
    lines = [cell // SIDE for cell in cells] + [SIDE + cell % SIDE for cell in cells]
    return np.bincount(lines, minlength=2 * SIDE).tolist()


def test_the_cuts_hold_for_every_way_to_place_cards() -> None:
    """Brute force over all places that two to six (interpreted: four) cards can have in a square; each limit is met."""
    for size in range(2, scaled(7, 5)):
        cuts = [(weight, limit) for of, weight, limit in arrangement_proof.CUTS if of == size]
        held = np.array([lines_met(cells) for cells in itertools.combinations(range(CARDS), size)])
        for weight, limit in cuts:
            assert np.array(weight)[held].sum(axis=1).max() == limit, (size, weight)


def test_breaches_are_found_where_there_are_any() -> None:
    """Two whole squares, half of each, are no square: some pair is held by more than one line."""
    rng = np.random.default_rng(2)
    squares = [rng.permutation(CARDS).reshape(SIDE, SIDE) for _ in range(2)]
    masks = np.array([sum(1 << int(card) for card in line) for square in squares for line in [*square, *square.T]])
    half = np.full(len(masks), 0.5)
    for size, weight, limit in arrangement_proof.CUTS[:3]:
        weights, top = np.array(weight, float), scaled(10_000, 200)
        cuts, breaches = np.zeros(top, np.int64), np.zeros(top)
        one = arrangement_proof.find_breaches(
            masks[:10], half[:10] * 2, size, weights, float(limit), arrangement_proof.COUNT, cuts, breaches
        )
        assert one == 0  # a square breaks none
        pair = arrangement_proof.find_breaches(
            np.tile(masks[:1], 3), half[:3], size, weights, float(limit), arrangement_proof.COUNT, cuts, breaches
        )
        assert pair > 0  # one and a half times the same line
        for cut, breach in zip(cuts[:pair].tolist(), breaches[:pair].tolist(), strict=True):
            assert cut.bit_count() == size
            assert breach == pytest.approx(1.5 * weight[(cut & int(masks[0])).bit_count()] - limit)
        if size == 3 and not jit.JIT:
            return


@pytest.mark.compiled
def test_the_search_finds_what_beats_a_poor_square() -> None:
    """Without a linear programme: hands cost what they fall short of the best hand, so the bound is ten times that."""
    codes = np.array([card_code(card) for card in ROYALS])
    hands, _ = arrangement_proof.all_hands()
    worths = np.zeros(len(hands))
    arrangement_proof.weigh_hands(keys_of(codes), hands, np.array(points_table("american")), worths)
    search = arrangement_proof._Search(worths.max() - worths, worths, 10 * worths.max(), 715.0, 5.0)
    assert search.know.tolist()[:2] == [715, pytest.approx(280)]
    while (better := search.square()) is None:
        assert not search.run(0.0)  # one step at a time
    assert search.know[0] == 725
    assert score_of([[card_text(int(codes[number])) for number in row] for row in better]) == 725


@pytest.mark.compiled
@pytest.mark.parametrize("scoring", ["american", "english"])
def test_a_proof_agrees_with_the_annealing(scoring: str) -> None:
    pytest.importorskip("ortools")
    best = best_arrangement(ROYALS, scoring)
    proven = best_arrangement(ROYALS, scoring, prove_seconds=300)
    assert proven.proven
    assert proven.score == proven.bound == best.score


@pytest.mark.compiled
def test_a_proof_finds_what_the_annealing_missed() -> None:
    """From a poor start the search goes on to the best of all, which the annealing finds from a good one."""
    pytest.importorskip("ortools")
    cards = cards_of(1000003)
    poor = best_arrangement(cards, restarts=1, steps=20_000)
    proven = best_arrangement(cards, restarts=1, steps=20_000, prove_seconds=300)
    assert poor.score < best_arrangement(cards).score == 272
    assert proven.proven
    assert proven.score == proven.bound == score_of(proven.rows) == 272


@pytest.mark.compiled
def test_a_bound_is_never_below_a_score() -> None:
    """With little time there is a bound all the same; with fractions in the table it is not rounded."""
    pytest.importorskip("ortools")
    for deal in range(3):
        best = best_arrangement(cards_of(deal), ODD)
        hasty = best_arrangement(cards_of(deal), ODD, restarts=1, steps=1000, prove_seconds=0.2)
        assert hasty.bound is not None
        assert hasty.bound >= best.score - 1e-6
        assert hasty.proven == (hasty.score >= hasty.bound - 1e-6)


def test_units_of_scores() -> None:
    assert arrangement_proof.unit_of(np.array(points_table("american"))) == 1
    assert arrangement_proof.unit_of(np.array([0.0, 4, -6, 0, 8, 0, 0, 0, 0, 10])) == 2
    assert arrangement_proof.unit_of(np.array(points_table(ODD))) == 0


def test_a_proof_without_or_tools_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.linear_solver", None)
    with pytest.raises(ImportError, match=r"pip install 'patience-env\[solve\]'"):
        best_arrangement(ROYALS, restarts=1, steps=10, prove_seconds=1)


def test_what_can_be_laid_touching() -> None:
    rows = [ROYALS[i : i + SIDE] for i in range(0, CARDS, SIDE)]
    assert can_be_laid(rows, ROYALS)
    assert can_be_laid(rows, ROYALS[::-1])
    apart = [ROYALS[0], ROYALS[24], *ROYALS[1:24]]  # opposite corners first
    assert not can_be_laid(rows, apart)
    with pytest.raises(ValueError, match="other cards"):
        can_be_laid(rows, ["2C", *ROYALS[1:]])


def test_what_can_be_laid_is_what_the_game_allows() -> None:
    """Lay random squares in random orders in the touching game: it goes through exactly where `can_be_laid` says so."""
    rng = np.random.default_rng(3)
    went = 0
    for deal in range(scaled(60, 8)):
        codes = deck(deal)[:CARDS]
        env = PatienceEnv(POKER, illegal_action="raise")
        env.reset(options={"deal": deal})
        cells = rng.permutation(CARDS)
        if deal % 2:  # outwards from a corner, some a little disturbed
            cells = np.argsort([cell // SIDE + cell % SIDE + rng.random() * (deal % 4 - 1) for cell in range(CARDS)])
        square = np.zeros(CARDS, int)
        square[cells] = codes
        rows = [[card_text(int(code)) for code in row] for row in square.reshape(SIDE, SIDE)]
        row, column = divmod(int(cells[0]), SIDE)
        done = True
        for cell in cells[1:]:
            action = 9 * (4 + cell // SIDE - row) + 4 + cell % SIDE - column
            if not env.action_masks()[action]:
                done = False
                break
            env.step(int(action))
        assert done == can_be_laid(rows, codes)
        went += done
    assert 0 < went < scaled(60, 8)


def test_they_are_found_in_the_package() -> None:
    assert agents.best_arrangement is best_arrangement
    assert agents.Arrangement is Arrangement


def test_temperatures_follow_the_table() -> None:
    usual = arrangement.temperatures(np.array(points_table("american")))
    tenfold = arrangement.temperatures(10 * np.array(points_table("american")))
    assert tenfold == pytest.approx(10 * usual)
    assert (arrangement.temperatures(np.zeros(10)) > 0).all()
    assert best_arrangement(ROYALS, dict.fromkeys(SCORED, 0), restarts=1, steps=10).score == 0


class Ran:
    """What a command line printed, and its exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        pytest.importorskip("typer")
        pytest.importorskip("safetensors")
        from patience_env.training.cli import main

        with pytest.raises(SystemExit) as stop:
            main(["arrange", *arguments, *(f"--{name}={value}" for name, value in FEW.items())])
        self.code = stop.value.code
        self.out, self.err = capsys.readouterr()


def test_the_command_shows_the_square(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, *cards_of(7), "--scoring", "english")
    best = best_arrangement(cards_of(7), "english", **FEW)
    assert ran.code == 0, ran.err
    assert all(card in ran.out for card in cards_of(7))
    assert f"score {best.score:g}" in ran.out
    assert Ran(capsys, "--deal", "7", "--scoring", "english").out == ran.out


def test_the_command_writes_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    best = best_arrangement(cards_of(7), **FEW)
    facts = json.loads(Ran(capsys, "--deal", "7", "--json", "-").out)
    assert facts["rows"] == [list(row) for row in best.rows]
    assert facts["score"] == best.score == sum(line["points"] for line in facts["lines"])
    assert (facts["scoring"], facts["proven"], facts["bound"]) == ("american", False, None)
    file = tmp_path / "best.json"
    assert Ran(capsys, "--deal", "7", "--json", str(file)).code == 0
    assert json.loads(file.read_text()) == facts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["AS", "KS"], "2 cards given"),
        ([], "0 cards given"),
        (["AS", "--deal", "7"], "give one of them"),
        (["--deal", "-1"], "outside 0 to"),
        (["--deal", "7", "--scoring", "random"], "random"),
        (["--deal", "7", "--prove", "0"], "prove_seconds=0"),
        (["--policy", "greedy", "--deal", "7"], "not with cards"),
        (["--policy", "nobody"], "no policy 'nobody'"),
        (["--policy", "greedy", "--placement", "free"], "placement"),
        (["--deal", "7", "--json", "/nowhere/at/all"], "cannot be written"),
    ],
)
def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    ran = Ran(capsys, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert ran.out == ""


def test_regrets_are_the_best_scores_less_the_policys() -> None:
    pytest.importorskip("typer")
    pytest.importorskip("safetensors")
    from patience_env.training.arrange import regrets
    from patience_env.training.evaluate import evaluate

    deals = named_deals("smoke", scaled(20, 2))
    options = {"placement": "fixed", "scoring": "english"}
    found = regrets("flush-rank", deals, options, **FEW)
    played = evaluate("flush-rank", POKER, deals, options=options)
    best = best_arrangements(np.array([deck(int(deal))[:CARDS] for deal in deals]), "english", **FEW)
    assert found.regrets.tolist() == (best - played.returns).tolist()
    assert found.mean == pytest.approx(best.mean() - played.mean)
    if jit.JIT:
        assert (found.regrets >= 0).all()
        assert found.stderr > 0
    assert regrets("greedy", deals, options, best=found.best).best is found.best
    with pytest.raises(ValueError, match="not of a series"):
        regrets("greedy", deals, {"target": 500})
    with pytest.raises(ValueError, match="one score for each"):
        regrets("greedy", deals, options, best=found.best[:1])


def test_the_command_shows_regrets(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--policy", "flush-rank", "--policy", "greedy", "--deals", "smoke", "--first", "2", "--placement", "fixed"]
    ran = Ran(capsys, *given)
    assert ran.code == 0, ran.err
    assert "mean regret" in ran.out
    assert "flush-rank" in ran.out
    facts = json.loads(Ran(capsys, *given, "--json", "-").out)
    assert [each["policy"] for each in facts["policies"]] == ["flush-rank", "greedy"]
    for each in facts["policies"]:
        assert each["regret"] == pytest.approx(np.mean(facts["best"]) - each["mean"])
