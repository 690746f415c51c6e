"""Perfect play of the last cards: how what it is worth is built up, and what policies are told to lose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("safetensors")
pytest.importorskip("typer")

from patience_env.deals import named_deals
from patience_env.env import PatienceEnv
from patience_env.training import last_cards
from patience_env.training.last_cards import Exact, examine, main

POKER = "PatiencePoker-v0"


def position(placement: str, seed: int, placed: int) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Return the action mask and the state of a position of random play."""
    rng = np.random.default_rng(seed)
    env = PatienceEnv(POKER, placement=placement)
    env.reset(seed=seed)
    while env.state_rows()["placed"][0] < placed:
        env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    return env.action_masks(), env.state_rows()


@pytest.mark.compiled
@pytest.mark.parametrize("placement", ["fixed", "touching"])
def test_a_card_more_is_gone_through_as_the_last_ones_are(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `expect` says of four cells (brute force: tests/test_search.py) comes of going through their cards."""
    mask, state = position(placement, 3, 21)
    exact = Exact({"placement": placement, "scoring": "american"})
    cells, worths = exact.worths(state, 0)
    assert cells.tolist() == np.flatnonzero(mask).tolist()
    monkeypatch.setattr(last_cards, "QUICK", 2)
    again, slowly = exact.worths(state, 0)
    assert again.tolist() == cells.tolist()
    assert slowly == pytest.approx(worths, abs=1e-9)
    monkeypatch.setattr(last_cards, "QUICK", 4)
    _, early = position(placement, 3, 19)
    with pytest.raises(ValueError, match="6 cells are left"):
        exact.worths(early, 0)


@pytest.mark.compiled
def test_perfect_play_loses_nothing_and_other_play_something() -> None:
    """The search plays the last three cards exactly."""
    deals = np.array(named_deals("validation", 20), np.uint64)
    options = {"placement": "fixed", "scoring": "english"}
    shows: list[int] = []
    search, random, value = examine(["search:simulations=20", "random", "value"], options, deals, 3, shows.append)
    assert shows[-1] == 20
    assert search.tolist() == pytest.approx([0.0] * 20, abs=1e-9)
    assert (random >= 0).all()
    assert random.mean() > 1.0
    assert value.mean() < random.mean()


@pytest.mark.compiled
def test_the_command_prints_a_table_or_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first", "3", "--left", "2", "--policy", "value", "--policy", "line", "--deals", "smoke"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["value", "line"]
    assert main(["--left", "9", "--policy", "value"]) == 2
    assert "left=9 is not allowed: give a number from 2 to 5" in capsys.readouterr().err
    assert main(["--scoring", "random", "--policy", "value"]) == 2
    assert "scoring='random'" in capsys.readouterr().err
    assert main(["--first", "1", "--policy", "value"]) == 2
    assert "first=1 is not allowed" in capsys.readouterr().err
