"""Refining a value network by looking ahead: what is recorded, what is learned, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tensorboard")

import torch

from patience_env.agents.board_values import load_net
from patience_env.agents.line_table import shipped_folder
from patience_env.training.refining import LAST_PLACED, LIKELY, Fit, look, main, refine

pytestmark = pytest.mark.compiled
PLACEMENTS = ["fixed", "touching"]


def network(placement: str) -> Path:
    return shipped_folder("value", {"scoring": "english", "placement": placement})


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_is_recorded_fits_what_the_network_thinks(placement: str) -> None:
    """The worth some cards ahead is near the network's own; the same seed gives the same."""
    net, _, _ = load_net(network(placement))
    looks, again = (look(net, "english", placement, 3, 5) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(looks, again, strict=True))
    assert looks.sizes.sum() == len(looks.targets) == len(looks.inputs) == len(looks.weights)
    assert looks.sizes.min() >= 2
    assert looks.sizes.max() <= LIKELY + 1
    assert len(looks.sizes) <= 3 * LAST_PLACED
    fit = Fit(network(placement), looks, 0)
    with torch.no_grad():
        errors, centred = fit.errors(fit.net, np.arange(len(looks.sizes)))
    assert float(errors.abs().mean()) < 3.0
    assert float(centred[: looks.sizes[0]].sum()) == pytest.approx(0.0, abs=1e-3)


def test_learning_makes_the_errors_smaller() -> None:
    net, _, _ = load_net(network("fixed"))
    looks = look(net, "english", "fixed", 4, 6)
    fit = Fit(network("fixed"), looks, 0)
    fit.kept_back = len(looks.sizes) // 2
    positions = np.arange(len(looks.sizes))[: -fit.kept_back]
    before = float(fit.errors(fit.net, positions)[1].detach().square().mean())
    fit.run(150)
    assert float(fit.errors(fit.net, positions)[1].detach().square().mean()) < before


def test_a_refined_network_plays(tmp_path: Path) -> None:
    said: list[str] = []
    result = refine(tmp_path / "model", "english", "fixed", 2, epochs=1, show=said.append)
    assert result.mean > 45
    _, _, facts = load_net(tmp_path / "model")
    assert facts["training"]["games"] == 2
    assert facts["validation"]["mean"] == pytest.approx(result.mean)
    with pytest.raises(ValueError, match="already holds a model"):
        refine(tmp_path / "model", "english", "fixed", 2)


def test_what_is_not_allowed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--games", "0", "--out", str(tmp_path / "a")]) == 2
    assert "games=0 is not allowed" in capsys.readouterr().err
    wrong = ["--start", str(network("touching")), "--scoring", "english", "--out", str(tmp_path / "b")]
    assert main(wrong) == 2
    assert "placement" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
