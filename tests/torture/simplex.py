"""MaskablePPO on Robin Post, whose mask has 540 entries, with torch checking the arguments of every distribution.

Five million steps by `patience train`'s own learner, in raise mode: an illegal action, or probabilities that do not sum
to one (torch's "Simplex" error), would end it. The run lies in a folder (`--set simplex=FOLDER`, else
`runs/torture-simplex`) and goes on from its checkpoint, so that it can be made in several goes. A second run is driven
by a learning rate so high that the network's outputs become extreme.
"""

from __future__ import annotations

import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gymnasium.error import InvalidAction

from patience_env import jit
from torture.report import Budget, Section

NAME, TITLE, SHARE = "simplex", "Training with every argument checked", 0.15
GAME = "RobinPost-v0"
WANTED, WILD = 5_000_000, 100_000
FOLDER = "runs/torture-simplex"
# The learning curve is no part of this: two deals are enough of it.
DEALS = (3_000_000, 3_000_001)
SETTINGS: dict[str, Any] = {
    "network": "mlp",
    "observation": "cards",
    "envs": 128,
    "n_steps": 64,
    "batch_size": 1024,
    "n_epochs": 2,
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


def run(budget: Budget) -> Section:
    """Train for as long as there is time."""
    section = Section(NAME, TITLE)
    if not find_spec("sb3_contrib") or (not jit.JIT and not budget.short):
        section.note("Needs the extra 'train' and compiled rules.")
        return section
    tiny = TINY if budget.short else {}
    wild_steps = 1_000 if budget.short else WILD
    with tempfile.TemporaryDirectory() as wild:
        done, seconds, fault, checked = go(
            Path(wild), wild_steps, None if budget.short or budget.full else max(budget.left() / 240, 0.1),
            learning_rate=0.05, final_learning_rate=0.05, max_grad_norm=1e6, clip_range=1.0, **tiny,
        )  # fmt: skip
    _tell(section, f"{done:,} steps at a learning rate of 0.05", fault, checked)
    folder = budget.folder / "run" if budget.short else Path(budget.extra.get("simplex", FOLDER))
    wanted = 1_000 if budget.short else WANTED
    before, spent = _steps_in(folder)
    minutes = None if budget.short or budget.full else (spent + max(budget.left() - 20, 10)) / 60
    if before < wanted:
        done, seconds, fault, checked = go(folder, wanted, minutes, **tiny)
        rate = (done - before) / max(seconds, 1e-9)
        _tell(section, f"{done:,} steps ({rate:,.0f} a second in this go, from {before:,})", fault, checked)
    else:
        section.check(f"a run of {before:,} steps had ended already", "as told when it was made", True)
    if done < wanted:
        section.note(
            f"{done:,} of {WANTED:,} steps were reached: the same command goes on, `--only simplex --full` to the end."
        )
    return section


def _tell(section: Section, what: str, fault: str, checked: Checked) -> None:
    section.check(f"Simplex errors, other refusals of torch, illegal actions in {what}", fault or "none", not fault)
    section.check(
        "distributions made whose arguments torch did not check", f"{checked.unchecked} of {checked.made:,}",
        checked.unchecked == 0 and checked.made > 0,
    )  # fmt: skip
