"""Refining a value network by looking ahead: what is recorded, what is learned, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tensorboard")

import torch

from patience_env.agents.board_values import ALL_FEATURES, Net, load_net, save_net
from patience_env.agents.line_table import points_of, shipped_folder
from patience_env.training.curve import draw_courses
from patience_env.training.refining import (
    LAST_PLACED,
    LIKELY,
    Fit,
    join,
    keep_looks,
    look,
    main,
    read_looks,
    refine,
    validate,
    widen,
)

pytestmark = pytest.mark.compiled
PLACEMENTS = ["fixed", "touching"]


POINTS = points_of("american-alternate")


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of networks by placement: that for the touching rule, alternate table, plays both."""
    shipped = shipped_folder("value", {"scoring": "american-alternate", "placement": "touching"})
    net, _, facts = load_net(shipped)
    fixed = tmp_path_factory.mktemp("fixed") / "model"
    save_net(fixed, net, {**facts, "placement": "fixed"})
    return {"touching": shipped, "fixed": fixed}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_is_recorded_fits_what_the_network_thinks(networks: dict[str, Path], placement: str) -> None:
    """The worth some cards ahead is near the network's own; the same seed gives the same."""
    net, _, _ = load_net(networks[placement])
    looks, again = (look(net, "american-alternate", placement, 3, 5) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(looks, again, strict=True))
    assert looks.sizes.sum() == len(looks.targets) == len(looks.inputs) == len(looks.weights)
    assert looks.sizes.min() >= 2
    assert looks.sizes.max() <= LIKELY + 1
    assert len(looks.sizes) <= 3 * LAST_PLACED
    fit = Fit(net, POINTS, looks, 0)
    with torch.no_grad():
        errors, centred = fit.errors(fit.net, np.arange(len(looks.sizes)))
    assert float(errors.abs().mean()) < 3.0
    assert float(centred[: looks.sizes[0]].sum()) == pytest.approx(0.0, abs=1e-3)


def test_learning_makes_the_errors_smaller(networks: dict[str, Path]) -> None:
    net, _, _ = load_net(networks["fixed"])
    looks = look(net, "american-alternate", "fixed", 4, 6)
    fit = Fit(net, POINTS, looks, 0)
    fit.kept_back = len(looks.sizes) // 2
    positions = np.arange(len(looks.sizes))[: -fit.kept_back]
    before = float(fit.errors(fit.net, positions)[1].detach().square().mean())
    fit.run(150)
    assert float(fit.errors(fit.net, positions)[1].detach().square().mean()) < before


def test_a_widened_network_plays_the_same_and_learns(networks: dict[str, Path]) -> None:
    net, _, _ = load_net(networks["fixed"])
    wide = widen(net, 40, 3)
    assert wide.b1.shape == (2, 40)
    assert np.array_equal(
        validate(wide, "american-alternate", "fixed")[:50], validate(net, "american-alternate", "fixed")[:50]
    )
    looks = look(net, "american-alternate", "fixed", 2, 6)
    fit, same = Fit(net, POINTS, looks, 0, 40), Fit(net, POINTS, looks, 0)
    positions = np.arange(len(looks.sizes))
    with torch.no_grad():
        assert torch.allclose(fit.errors(fit.net, positions)[0], same.errors(same.net, positions)[0], atol=1e-3)
    fit.run(5)
    assert float(fit.net.w2.detach()[:, :, 32:, :32].abs().max()) > 0
    with pytest.raises(ValueError, match="width=8 is not allowed"):
        widen(net, 8, 0)
    told = widen(net, 34, 4, ALL_FEATURES, True)
    assert told.w1.shape == (2, ALL_FEATURES, 34)
    assert np.array_equal(
        validate(told, "american-alternate", "fixed")[:50], validate(net, "american-alternate", "fixed")[:50]
    )
    with pytest.raises(ValueError, match="a network of stages cannot be widened"):
        widen(Net(*(np.concatenate([array] * 24) for array in net)), 40, 0)


def test_what_was_found_is_kept_and_learned_from_again(networks: dict[str, Path], tmp_path: Path) -> None:
    net, _, _ = load_net(networks["fixed"])
    looks = look(net, "american-alternate", "fixed", 1, 5)
    keep_looks(tmp_path / "looks.npz", looks, "fixed, american-alternate")
    again = read_looks(tmp_path / "looks.npz", "fixed, american-alternate")
    assert all(np.array_equal(one, other) for one, other in zip(looks, again, strict=True))
    both = join([looks, again])
    assert len(both.sizes) == 2 * len(looks.sizes)
    assert len(both.inputs) == both.sizes.sum()
    assert [path.name for path in tmp_path.iterdir()] == ["looks.npz"]
    with pytest.raises(ValueError, match="was found in fixed, american-alternate"):
        read_looks(tmp_path / "looks.npz", "touching, american-alternate")
    (tmp_path / "looks.npz").write_bytes((tmp_path / "looks.npz").read_bytes()[:-400])
    with pytest.raises(ValueError, match="holds nothing that can be learned from"):
        read_looks(tmp_path / "looks.npz", "fixed, american-alternate")


def test_a_refined_network_plays(networks: dict[str, Path], tmp_path: Path) -> None:
    said: list[str] = []
    kept = str(tmp_path / "looks.npz")
    start = str(networks["fixed"])
    refine(tmp_path / "first", "american-alternate", "fixed", 1, epochs=1, width=40, keep=kept, start=start)
    settings = {"epochs": 1, "start": str(tmp_path / "first"), "also": [kept]}
    result = refine(tmp_path / "model", "american-alternate", "fixed", 2, **settings, show=said.append)  # type: ignore[arg-type]
    assert result.mean > 45
    _, _, facts = load_net(tmp_path / "model")
    assert facts["training"]["games"] == 2
    assert facts["training"]["width"] == 40
    assert [part["training"]["games"] for part in facts["history"]][-1] == 1
    assert facts["curve"][1]["validation"] == pytest.approx(result.mean, abs=1.5)
    draw_courses([tmp_path / "model"], tmp_path / "course.png")
    assert (tmp_path / "course.png").stat().st_size > 5000
    assert facts["validation"]["mean"] == pytest.approx(result.mean)
    with pytest.raises(ValueError, match="already holds a model"):
        refine(tmp_path / "model", "american-alternate", "fixed", 2, start=start)


def test_what_is_not_allowed_is_told(
    networks: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, kept, there = (
        ["--scoring", "american-alternate"],
        str(tmp_path / "looks.npz"),
        ["--out", str(tmp_path / "c")],
    )
    assert main(["--games", "0", "--out", str(tmp_path / "a")]) == 2
    assert "games=0 is not allowed" in capsys.readouterr().err
    net, _, facts = load_net(networks["fixed"])
    save_net(tmp_path / "staged", Net(*(np.concatenate([array] * 24) for array in net)), facts)
    assert not main(
        ["--games", "1", "--epochs", "1", "--start", str(networks["fixed"]), *table, "--keep", kept, *there]
    )
    save_net(tmp_path / "told", widen(net, 32, 0, ALL_FEATURES, True), facts)
    first = ["--start", str(networks["fixed"])]
    for wrong, said in (
        (
            ["--start", str(tmp_path / "staged"), *table],
            "has stages, as patience_env.training.sweeping makes",
        ),
        (["--start", str(tmp_path / "told"), *table, "--also", kept], "tells other features of a line"),
        (["--start", str(networks["touching"]), "--scoring", "american"], "was trained for the scoring table"),
        ([*first, *table, "--width", "8"], "width=8 is not allowed"),
        ([*first, *table, "--asked", "26"], "asked=26 is not allowed"),
        ([*first, *table, "--also", str(tmp_path / "none.npz")], "none.npz"),
    ):
        assert main([*wrong, "--out", str(tmp_path / "b")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "b").exists()
