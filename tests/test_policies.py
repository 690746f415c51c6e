"""Policies: what greed and the rule of thumb do on drawn positions, how policies are named, and that none peeks."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patience_env.agents
from patience_env import jit
from patience_env.agents.policy import Policy, Turn, make_policy, parse_policy, policy_names, read_value, see
from patience_env.cards import card_text
from patience_env.env import PatienceEnv
from patience_env.game import get_game

POKER = "PatiencePoker-v0"
TABLE = {"pair": 3, "two pairs": -1, "triplets": 2.5, "straight": 4, "flush": 7, "full hand": 1, "four": 40}
ODD_TABLE = {**TABLE, "straight flush": -20, "royal": 0}


def drawn(picture: str, hand: str, **options: Any) -> PatienceEnv:
    """Return an environment in the position of a drawn square (`--` an empty cell), with a card in hand."""
    env = PatienceEnv(POKER, illegal_action="raise", **{"placement": "fixed", **options})
    rows = [line.split() for line in picture.strip().splitlines()]
    cells = {
        f"r{i}c{j}": [card]
        for i, row in enumerate(rows, 1)
        for j, card in enumerate(row, 1)
        if card not in ("--", "..")
    }
    env.load({**cells, "hand": [hand]})
    return env


def chosen_cell(policy: Policy | str, env: PatienceEnv) -> str:
    """Return the name of the cell that a policy (or one by that name) chooses."""
    player = make_policy(policy, POKER) if isinstance(policy, str) else policy
    return env.layout.places[player.choose(env)]


def midgame(rng: np.random.Generator, steps: int, **options: Any) -> PatienceEnv:
    env = PatienceEnv(POKER, illegal_action="raise", **options)
    env.reset(seed=int(rng.integers(2**31)))
    for _ in range(steps):
        env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    return env


# Greed -----------------------------------------------------------------------------------------------------------


def test_greedy_completes_the_flush_that_pays_most() -> None:
    env = drawn(
        """
        2S 4S -- 8S JS
        9H 9D -- -- --
        -- -- -- -- --
        -- -- -- -- --
        3C -- -- -- --
        """,
        "9S",
    )
    assert chosen_cell("greedy", env) == "r1c3"


def test_greedy_counts_what_a_partial_line_already_holds() -> None:
    env = drawn(
        """
        KS -- -- -- --
        -- 7H 7D -- --
        -- -- -- -- --
        -- -- -- 7C --
        -- -- -- -- KD
        """,
        "7S",
    )
    # Triplets of sevens (10 for a pair's 2) and a pair with the third seven (2) meet in the fourth column.
    assert chosen_cell("greedy", env) == "r2c4"


def test_greedy_does_not_break_what_it_holds_when_every_cell_but_one_costs_points() -> None:
    env = drawn(
        """
        5S 5H 2D 9C --
        -- -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        """,
        "2S",
        scoring={**ODD_TABLE, "pair": 3, "two pairs": -1},
    )
    # Two pairs cost points in this table, so the deuce goes below its twin, for a second pair.
    assert chosen_cell("greedy", env)[2:] == "c3"


def naive_holding(cards: list[str], points: dict[str, float]) -> float:
    """Return what a line holds, in points: pairs and the like at any length, straights and flushes of five only."""
    groups = sorted(Counter(card[0] for card in cards).values(), reverse=True) + [0, 0]
    ranks = sorted({"A23456789TJQK".index(card[0]) for card in cards})
    straight = len(ranks) == 5 and (ranks[4] - ranks[0] == 4 or ranks == [0, 9, 10, 11, 12])
    flush = len(cards) == 5 and len({card[1] for card in cards}) == 1
    name = None
    if straight and flush:
        name = "royal" if ranks == [0, 9, 10, 11, 12] else "straight flush"
    elif groups[0] == 4:
        name = "four"
    elif groups[:2] == [3, 2]:
        name = "full hand"
    elif flush:
        name = "flush"
    elif straight:
        name = "straight"
    elif groups[0] == 3:
        name = "triplets"
    elif groups[:2] == [2, 2]:
        name = "two pairs"
    elif groups[0] == 2:
        name = "pair"
    return points[name] if name else 0.0


def naive_gains(env: PatienceEnv, points: dict[str, float]) -> dict[int, float]:
    """Return the gain of every legal cell, worked out from the table's text."""
    side = 9 if env.options["placement"] == "touching" else 5
    table = env.table()
    board = {name: cards[0] for name, cards in table.items() if name.startswith("r") and cards}
    gains = {}
    for action in np.flatnonzero(env.action_masks()):
        row, column = int(action) // side + 1, int(action) % side + 1
        gain = 0.0
        for line in ([f"r{row}c{j}" for j in range(1, side + 1)], [f"r{i}c{column}" for i in range(1, side + 1)]):
            held = [board[cell] for cell in line if cell in board]
            gain += naive_holding([*held, *table["hand"]], points) - naive_holding(held, points)
        gains[int(action)] = gain
    return gains


@pytest.mark.parametrize("placement", ["fixed", "touching"])
@pytest.mark.parametrize("scoring", ["english", ODD_TABLE], ids=["english", "odd"])
def test_greedy_takes_one_of_the_best_cells_by_a_plain_count(placement: str, scoring: Any) -> None:
    english = {"pair": 1, "two pairs": 3, "triplets": 6, "straight": 12, "flush": 5, "full hand": 10, "four": 16}
    points = {**english, "straight flush": 30, "royal": 30} if scoring == "english" else scoring
    rng = np.random.default_rng(3)
    policy = make_policy("greedy", POKER)
    for steps in range(0, 24):
        env = midgame(rng, steps, placement=placement, scoring=scoring)
        gains = naive_gains(env, points)
        assert gains[policy.choose(env)] == max(gains.values())


def test_greedy_breaks_ties_at_random_and_again_the_same_from_the_same_seed() -> None:
    env = PatienceEnv(POKER, placement="fixed")
    env.reset(seed=1)
    policy = make_policy("greedy", POKER)
    policy.start(5)
    first = [policy.choose(env) for _ in range(60)]
    assert len(set(first)) > 15  # all 25 cells of the empty square are equally good
    policy.start(5)
    assert [policy.choose(env) for _ in range(60)] == first


# The rule of thumb -----------------------------------------------------------------------------------------------


def test_thumb_builds_flushes_down_the_column_of_the_suit() -> None:
    env = drawn(
        """
        2S 4H -- -- --
        6S TH -- -- --
        9S -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        """,
        "KH",
    )
    assert chosen_cell("flush-rank", env)[2:] == "c2"


def test_thumb_lays_equal_ranks_along_the_row_within_the_column_of_the_suit() -> None:
    env = drawn(
        """
        2S 4H -- -- --
        6S TH -- -- --
        9S -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        """,
        "9H",
    )
    assert chosen_cell("flush-rank", env) == "r3c2"


def test_thumb_opens_no_second_column_for_a_suit_and_breaks_none_while_it_can_help_it() -> None:
    env = drawn(
        """
        2S 4H 5D 3C --
        6S TH 8D QC --
        -- -- -- -- --
        -- -- -- -- --
        -- -- -- -- --
        """,
        "KC",
    )
    assert chosen_cell("flush-rank", env)[2:] == "c4"


def test_thumb_throws_an_odd_card_into_the_column_that_is_broken_already() -> None:
    env = drawn(
        """
        2S 4H 5D 3C 7C
        6S TH 8D QC 9H
        8S KH TD AC --
        9S 2H KD 5C --
        TS AH QD 6C --
        """,
        "JS",
    )
    assert chosen_cell("flush-rank", env)[2:] == "c5"


@pytest.mark.compiled
@pytest.mark.parametrize(("placement", "least"), [("fixed", 108.0), ("touching", 106.0)])
def test_thumb_reaches_its_level(placement: str, least: float) -> None:
    from patience_env.deals import named_deals
    from patience_env.training.evaluate import evaluate

    result = evaluate("flush-rank", POKER, named_deals("test", 2000), options={"placement": placement})
    assert result.mean - 2 * result.stderr > least


@pytest.mark.parametrize("options", [{"placement": "touching"}, {"placement": "fixed"}, {"scoring": "random"}])
@pytest.mark.parametrize("name", ["random", "greedy", "flush-rank"])
def test_every_choice_is_legal_to_the_last_card(name: str, options: dict[str, Any]) -> None:
    env = PatienceEnv(POKER, illegal_action="raise", **options)
    policy = make_policy(name, POKER)
    _, info = env.reset(options={"deal": 77})
    while info["action_mask"].any():
        *_, info = env.step(policy.choose(env))
    assert env._rows.states[0]["placed"] == 25


# One position, one player --------------------------------------------------------------------------------------


class Peeker(Policy):
    """Notes the cards behind the one in hand, as far as it is shown any."""

    name = "peeker"

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def act(self, turn: Turn) -> Any:
        start = int(turn.states[0]["placed"]) + 1
        self.seen.append(tuple(int(card) for card in turn.states[0]["deck"][start:]))
        return turn.masks.argmax(axis=1)


def test_choose_leaves_the_environment_as_it_was_and_repeats_itself() -> None:
    env = midgame(np.random.default_rng(1), 9)
    before = env.get_state()
    policy = make_policy("flush-rank", POKER)
    assert policy.choose(env) == policy.choose(env)
    assert env.get_state() == before


def test_choose_shows_a_policy_other_cards_than_those_that_lie_hidden() -> None:
    env = midgame(np.random.default_rng(2), 9)
    policy = Peeker()
    policy.choose(env)
    policy.choose(env)
    true_order = tuple(int(card) for card in env.state_rows()[0]["deck"][11:])
    assert policy.seen[0] == policy.seen[1]
    assert policy.seen[0] != true_order
    assert sorted(policy.seen[0]) == sorted(true_order)


@pytest.mark.parametrize("placement", ["fixed", "touching"])
def test_the_choice_does_not_depend_on_the_hidden_cards(placement: str) -> None:
    for name in ("random", "greedy", "flush-rank"):
        env = midgame(np.random.default_rng(2), 9, placement=placement)
        choices = set()
        for other in (env, env.clone().determinize(1), env.clone().determinize(2)):
            policy = make_policy(name, POKER)
            policy.start(3)
            choices.add(policy.choose(other))
        assert len(choices) == 1


def test_see_deals_hidden_cards_anew_and_keeps_what_is_seen() -> None:
    game = get_game(POKER)
    env = midgame(np.random.default_rng(4), 6)
    rows, masks = env.state_rows(), env.action_masks()[None]
    turns = [see(game, env.options, rows, masks, key) for key in (1, 1, 2)]
    orders = [turn.states[0]["deck"].tolist() for turn in turns]
    assert orders[0] == orders[1] != orders[2]
    for turn in turns:
        assert (turn.observations("planes")[0] == env._observation).all()
        assert (turn.masks == masks).all()


def test_choose_says_what_is_wrong() -> None:
    policy = make_policy("flush-rank", POKER)
    env = PatienceEnv(POKER)
    with pytest.raises(ValueError, match=r"no episode is in progress, call reset\(\)"):
        policy.choose(env)
    with pytest.raises(TypeError, match="choose needs an environment of patience_env, not str"):
        policy.choose("PatiencePoker-v0")
    other = PatienceEnv("Fortress-v0")
    other.reset(seed=1)
    with pytest.raises(ValueError, match="policy 'flush-rank' plays PatiencePoker-v0, not Fortress-v0"):
        policy.choose(other)


# Names ---------------------------------------------------------------------------------------------------------


def test_policies_are_found_by_name() -> None:
    assert {"random", "greedy", "flush-rank", "thumb", "sb3", "model"} <= set(policy_names(POKER))
    assert type(make_policy("thumb", POKER)) is type(make_policy("flush-rank", POKER))
    # A game's own greed comes before the general one.
    assert type(make_policy("greedy", POKER)).__module__ == "patience_env.agents.patience_poker"
    assert type(make_policy("greedy", "Fortress-v0")).__module__ == "patience_env.agents.basic"
    assert make_policy("patience_env.agents.basic:RandomPolicy", POKER, seed=3).name == "random"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("best", {}, "there is no policy 'best' for PatiencePoker-v0: choose random"),
        ("no_such_module:Policy", {}, "cannot be imported: No module named 'no_such_module'"),
        ("patience_env.agents.basic:Nobody", {}, "has no attribute 'Nobody'"),
        ("flush-rank", {"depth": 3}, "'flush-rank' cannot be made with depth=3: .*unexpected keyword"),
        ("sb3", {}, "'sb3' cannot be made with no options: missing a required argument: 'path'"),
        ("collections:Counter", {}, "made a Counter, not a Policy"),
    ],
)
def test_a_wrong_name_says_what_is_right(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(name, POKER, **options)


def test_a_learned_policy_without_its_packages_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ValueError, match=r"policy 'ppo' needs a package .* pip install 'patience-env\[train\]'"):
        make_policy("ppo", POKER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greedy", ("greedy", {})),
        ("search:milliseconds=40", ("search", {"milliseconds": 40})),
        ("search:milliseconds=40:rule=thumb", ("search", {"milliseconds": 40, "rule": "thumb"})),
        ("search:milliseconds=40,rule=thumb", ("search", {"milliseconds": 40, "rule": "thumb"})),
        ("package.module:Policy", ("package.module:Policy", {})),
        ('m:P:table={"pair":1,"four":[2,3]}:on=true', ("m:P", {"table": {"pair": 1, "four": [2, 3]}, "on": True})),
        ("sb3:path=C:/models/a.zip", ("sb3", {"path": "C:/models/a.zip"})),
        ("runs/best.zip", ("sb3", {"path": "runs/best.zip"})),
        ("runs/best.zip:deterministic=false", ("sb3", {"path": "runs/best.zip", "deterministic": False})),
    ],
)
def test_policies_are_written_as_text(text: str, expected: tuple[str, dict[str, Any]]) -> None:
    assert parse_policy(text) == expected


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    assert parse_policy(str(tmp_path)) == ("model", {"path": str(tmp_path)})


def test_values_are_json_where_they_are_json() -> None:
    assert [read_value(text) for text in ("3", "0.5", "null", '"3"', "fixed", "NaN", "")] == [
        3,
        0.5,
        None,
        "3",
        "fixed",
        "NaN",
        "",
    ]


def test_the_package_exports_its_names_and_loads_no_torch() -> None:
    code = (
        "import sys, patience_env.agents as agents\n"
        "for name in agents.__all__: getattr(agents, name)\n"
        "print('torch' in sys.modules, 'stable_baselines3' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = patience_env.agents.Nothing


# Saved models --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Untrained models of three kinds, saved: name of the algorithm -> path."""
    sb3 = pytest.importorskip("stable_baselines3")
    contrib = pytest.importorskip("sb3_contrib")
    folder = tmp_path_factory.mktemp("models")
    env = PatienceEnv(POKER, placement="fixed", observation="cards")
    made = {
        "PPO": sb3.PPO("MlpPolicy", env, seed=1, device="cpu"),
        "DQN": sb3.DQN("MlpPolicy", env, seed=1, device="cpu", buffer_size=10),
        "MaskablePPO": contrib.MaskablePPO("MlpPolicy", env, seed=1, device="cpu"),
        "RecurrentPPO": contrib.RecurrentPPO("MlpLstmPolicy", env, seed=1, device="cpu"),
    }
    for name, model in made.items():
        model.save(folder / f"{name}.zip")
    return {name: str(folder / f"{name}.zip") for name in made}


def a_turn(steps: int, count: int = 5, placement: str = "fixed") -> Turn:
    rng = np.random.default_rng(6)
    envs = [midgame(rng, steps, placement=placement) for _ in range(count)]
    states = np.concatenate([env.state_rows() for env in envs])
    states = states if jit.JIT else states.view(np.recarray)
    masks = np.array([env.action_masks() for env in envs])
    return see(envs[0].game, envs[0].options, states, masks, 1)


@pytest.mark.parametrize("kind", ["PPO", "DQN", "MaskablePPO"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_saved_model_plays_legally(models: dict[str, str], kind: str, deterministic: bool) -> None:
    policy = make_policy("sb3", POKER, path=models[kind], deterministic=deterministic)
    for steps in (0, 12, 22, 24):
        turn = a_turn(steps)
        policy.check(turn.game, turn.options)
        actions = policy.act(turn)
        assert turn.masks[np.arange(len(turn)), actions].all()


def test_a_maskable_model_plays_what_its_own_predict_says(models: dict[str, str]) -> None:
    from sb3_contrib import MaskablePPO

    model = MaskablePPO.load(models["MaskablePPO"], device="cpu")
    turn = a_turn(12)
    expected, _ = model.predict(turn.observations("cards"), action_masks=turn.masks.astype(bool), deterministic=True)
    assert (make_policy("sb3", POKER, path=models["MaskablePPO"]).act(turn) == expected).all()


def test_a_plain_model_plays_its_most_probable_legal_action(models: dict[str, str]) -> None:
    from stable_baselines3 import PPO

    model = PPO.load(models["PPO"], device="cpu")
    turn = a_turn(20)
    seen, _ = model.policy.obs_to_tensor(turn.observations("cards"))
    shares = model.policy.get_distribution(seen).distribution.probs.detach().numpy() * turn.masks
    assert (make_policy("sb3", POKER, path=models["PPO"]).act(turn) == shares.argmax(axis=1)).all()


def test_a_model_that_draws_repeats_itself_from_the_same_seed(models: dict[str, str]) -> None:
    policy = make_policy("sb3", POKER, path=models["PPO"], deterministic=False)
    turn = a_turn(3)
    policy.start(1)
    first = [policy.act(turn).tolist() for _ in range(10)]
    policy.start(1)
    assert [policy.act(turn).tolist() for _ in range(10)] == first
    assert len({tuple(actions) for actions in first}) > 1


def test_a_model_says_what_it_cannot_play(models: dict[str, str], tmp_path: Path) -> None:
    policy = make_policy("sb3", POKER, path=models["PPO"])
    game = get_game(POKER)
    with pytest.raises(ValueError, match=r"action space Discrete\(25\), but .* has Discrete\(81\)"):
        policy.check(game, game.check_options({}))
    with pytest.raises(ValueError, match=r"observations of shape \(43,\), but .* gives \(21, 5, 5\)"):
        policy.check(game, game.check_options({"placement": "fixed", "scoring": "random"}))
    with pytest.raises(ValueError, match="recurrent policy: policies here keep no memory"):
        make_policy("sb3", POKER, path=models["RecurrentPPO"])
    with pytest.raises(ValueError, match="there is no file"):
        make_policy("sb3", POKER, path=str(tmp_path / "none.zip"))
    cut = tmp_path / "cut.zip"
    cut.write_bytes(Path(models["PPO"]).read_bytes()[:3000])
    with pytest.raises(ValueError, match="no readable SB3 model"):
        make_policy("sb3", POKER, path=str(cut))


def test_cards_are_named_in_the_pictures_above() -> None:
    env = drawn("2S 4H -- -- --\n" + "-- -- -- -- --\n" * 4, "KH")
    assert [card_text(int(card)) for card in env.state_rows()[0]["cells"][:3]] == ["2S", "4H", "--"]
