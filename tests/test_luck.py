"""The luck of the cards at Patience Poker: that it is none on average, and that scores are those of `evaluate`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("typer")

from patience_env.agents.board_values import ValuePolicy, room_for
from patience_env.agents.line_table import new_boards
from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.training.evaluate import evaluate
from patience_env.training.luck import luck_of_cards, main, play

POKER = "PatiencePoker-v0"


@pytest.mark.compiled
@pytest.mark.parametrize("placement", ["fixed", "touching"])
def test_the_luck_of_all_cards_that_may_come_is_none_together(placement: str) -> None:
    """Every card that may be the next, put in hand in turn; the board may be any, and the axes turned."""
    net, _, facts = ValuePolicy().model({"placement": placement, "scoring": "american"})
    points = np.array(facts["points"])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        env = PatienceEnv(POKER, placement=placement)
        env.reset(seed=seed)
        while env.state_rows()["placed"][0] < 3 + 6 * seed:
            env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
        state = env.state_rows()
        placed = int(state["placed"][0])
        states = np.repeat(state, 52 - placed)
        for i in range(len(states)):
            deck = states[i]["deck"]
            deck[placed], deck[placed + i] = deck[placed + i], deck[placed]
        luck = np.zeros(len(states))
        luck_of_cards(states, new_boards(2), net, room_for(net), points, np.zeros(81), luck)
        assert luck.sum() == pytest.approx(0.0, abs=1e-3)
        assert luck.std() > 0.1


@pytest.mark.compiled
def test_games_are_played_as_they_are_evaluated_and_gone_on_with(tmp_path: Path) -> None:
    deals = np.array(named_deals("validation", 30), np.uint64)
    options = {"placement": "fixed", "scoring": "english"}
    keep = tmp_path / "games.json"
    play("value", options, deals[:30], keep)
    shows: list[int] = []
    scores, luck, seconds = play("value", options, deals, keep, shows.append)
    wanted = evaluate("value", POKER, deals, options=options)
    assert scores.tolist() == wanted.returns.tolist()
    assert luck.shape == (30,)
    assert seconds > 0
    # Games differ by a fourth of what they differ by with luck, and by less.
    assert (scores - luck).std() < 0.25 * scores.std() + 1
    assert shows[-1] == 30
    with pytest.raises(ValueError, match="other games"):
        play("line", options, deals, keep)
    keep.write_text("{")
    with pytest.raises(ValueError, match="no games that can be gone on with"):
        play("value", options, deals, keep)


def test_what_cannot_be_told_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="one scoring table"):
        play("value", {"placement": "fixed", "scoring": "random"}, np.array([1], np.uint64))
    assert main(["--policy", "value", "--first", "1"]) == 2
    assert "first=1 is not allowed" in capsys.readouterr().err


@pytest.mark.compiled
def test_the_command_prints_a_line_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scoring", "english", "--first", "10", "--policy", "value", "--policy", "line"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["policy", "value", "line"]
    assert lines[2].rstrip().endswith("]")
