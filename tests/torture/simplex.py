"""MaskablePPO on Robin Post, whose mask has 540 entries, with torch checking the arguments of every distribution.

Five million steps by `patience train`'s own learner, in raise mode: an illegal action, or probabilities that do not sum
to one (torch's "Simplex" error), would end it. The run lies in a folder (`--set simplex=FOLDER`, else
`runs/torture-simplex`) and goes on from its checkpoint, so that it can be made in several goes; what each go found is
kept beside it, and steps that no go has told of (it was killed) are made up for. A second run is driven by a learning
rate so high that the network's outputs become extreme.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gymnasium.error import InvalidAction

from patience_env import __version__, jit
from torture.report import Budget, Section

NAME, TITLE, SHARE = "simplex", "Training with every argument checked", 0.10
GAME = "RobinPost-v0"
WANTED, WILD = 5_000_000, 100_000
FOLDER = Path(__file__).resolve().parent.parent.parent / "runs" / "torture-simplex"
GOES = "goes.json"
# The learning curve is no part of this: two deals are enough of it.
DEALS = (3_000_000, 3_000_001)
SETTINGS: dict[str, Any] = {
    "network": "mlp",
    "observation": "cards",
    "envs": 256,
    "n_steps": 64,
    "batch_size": 2048,
    "n_epochs": 1,
    "width": 64,
    "evaluate_every": 10**6,
    "checkpoint_seconds": 20.0,
    "threads": 1,
}
TINY = {"envs": 8, "n_steps": 16, "batch_size": 64}


class Checked:
    """Counts the distributions that torch makes, and whether it checks their arguments."""

    def __enter__(self) -> Checked:
        from torch.distributions import Distribution

        self.made = self.unchecked = 0
        self._class, self._before = Distribution, Distribution.__init__
        self._validates = Distribution._validate_args

        def made(distribution: Any, *arguments: Any, **named: Any) -> None:
            self._before(distribution, *arguments, **named)
            self.made += 1
            self.unchecked += not distribution._validate_args

        Distribution.set_default_validate_args(True)
        Distribution.__init__ = made  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._class.__init__ = self._before  # type: ignore[method-assign]
        self._class.set_default_validate_args(self._validates)


def go(folder: Path, steps: int, minutes: float | None, **settings: Any) -> tuple[int, float, str, Checked]:
    """Train, or go on; return the steps done, the seconds this took, what broke, and what was checked."""
    from patience_env.training.train import train

    fault = ""
    began = time.monotonic()
    with Checked() as checked:
        try:
            train(
                GAME,
                folder,
                steps=steps,
                minutes=minutes,
                resume=(folder / "checkpoint.json").exists(),
                settings={**SETTINGS, **settings},
                deals=DEALS,
                quiet=True,
            )
        except (ValueError, InvalidAction) as error:
            fault = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - began
    return _steps_in(folder)[0], seconds, fault, checked


def _steps_in(folder: Path) -> tuple[int, float]:
    """Return the steps and the seconds of a run's checkpoint."""
    try:
        facts = json.loads((folder / "checkpoint.json").read_text("utf-8"))
    except FileNotFoundError:
        return 0, 0.0
    return int(facts["steps"]), float(facts["seconds"])


def _goes(folder: Path) -> list[dict[str, Any]]:
    """Return what the goes of a run found: first and last step, seconds, distributions made and unchecked, fault."""
    try:
        found: list[dict[str, Any]] = json.loads((folder / GOES).read_text("utf-8"))
    except FileNotFoundError:
        return []
    return found


def long_run(folder: Path, wanted: int, left: float | None, **settings: Any) -> list[dict[str, Any]]:
    """Train until the goes have told of so many steps, or for `left` seconds; return the goes.

    The run lies in a folder of `folder` that is named after the version and the settings. One that a fault ended is
    begun anew.
    """
    kind = hashlib.sha256(json.dumps({**SETTINGS, **settings}, sort_keys=True).encode()).hexdigest()[:8]
    run = folder / f"{__version__}-{kind}"
    goes = _goes(run)
    if any(go["fault"] for go in goes):
        shutil.rmtree(run)
        goes = []
    told = sum(go["to"] - go["from"] for go in goes)
    if told < wanted:
        before, spent = _steps_in(run)
        minutes = None if left is None else (spent + left) / 60
        done, seconds, fault, checked = go(run, before + wanted - told, minutes, **settings)
        goes.append(
            {"from": before, "to": done, "seconds": seconds, "made": checked.made, "unchecked": checked.unchecked,
             "fault": fault, "when": time.strftime("%Y-%m-%d")}
        )  # fmt: skip
        run.mkdir(parents=True, exist_ok=True)
        (run / GOES).write_text(json.dumps(goes, indent=1), "utf-8")
    return goes


def run(budget: Budget) -> Section:
    """Train for as long as there is time."""
    section = Section(NAME, TITLE)
    if not find_spec("sb3_contrib") or (not jit.JIT and not budget.short):
        section.note("Needs the extra 'train' and compiled rules.")
        return section
    tiny = TINY if budget.short else {}
    wild_steps = 1_000 if budget.short else WILD
    with tempfile.TemporaryDirectory() as wild:
        done, _, fault, checked = go(
            Path(wild), wild_steps, max(budget.left() / 300, 0.1) if budget.bounded else None,
            learning_rate=0.05, final_learning_rate=0.05, max_grad_norm=1e6, clip_range=1.0, **tiny,
        )  # fmt: skip
    _tell(section, f"{done:,} steps at a learning rate of 0.05", fault, checked.made, checked.unchecked)
    folder = budget.folder / "run" if budget.short else Path(budget.extra.get("simplex", FOLDER))
    wanted = 1_000 if budget.short else WANTED
    goes = long_run(folder, wanted, max(budget.left() - 10, 5) if budget.bounded else None, **tiny)
    told, seconds = sum(go["to"] - go["from"] for go in goes), sum(go["seconds"] for go in goes)
    how = (
        f"{told:,} steps ({told / max(seconds, 1e-9):,.0f} a second, {len(goes)} {'go' if len(goes) == 1 else 'goes'})"
    )
    faults = "; ".join(go["fault"] for go in goes if go["fault"])
    _tell(section, how, faults, sum(go["made"] for go in goes), sum(go["unchecked"] for go in goes))
    section.amount = told / WANTED
    if told < wanted:
        section.note(
            f"{told:,} of {WANTED:,} steps were reached: the same command goes on, `--only simplex --full` to the end."
        )
    return section


def _tell(section: Section, what: str, fault: str, made: int, unchecked: int) -> None:
    section.check(f"Simplex errors, other refusals of torch, illegal actions in {what}", fault or "none", not fault)
    section.check(
        "distributions made whose arguments torch did not check", f"{unchecked} of {made:,}",
        unchecked == 0 and made > 0,
    )  # fmt: skip
