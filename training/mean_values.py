"""Make one value network of Patience Poker of several, the mean of their weights: `python -m
patience_env.training.mean_values OUT MODEL MODEL ...`.

Networks that began with the same weights (`patience train-value --start`) and were then taught differently are often
better together than each is alone. The result is measured on the validation deals. With `--placement` it is a network
of that placement, and those of the other may be among the models: what lines are worth differs little between the two.

Example: python -m patience_env.training.mean_values both first second
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from patience_env import __version__
from patience_env.agents.board_values import VALUE_MODEL, ValuePolicy, load_net, save_net
from patience_env.games.poker_hands import SCORED
from patience_env.training.line_training import PLACEMENTS
from patience_env.training.value_command import check_folder, measure, measured
from patience_env.training.value_training import CHECKPOINT


def mean_values(out: Path, folders: list[Path], placement: str | None = None) -> Any:
    """Write the mean of the networks in `folders` into `out`; return its result on the validation deals.

    It plays the given placement ("fixed" or "touching"); None: that of all the networks.

    Raises:
        ValueError: less than two networks, or they differ in shape, scoring table or, where none is given, placement;
            there is no such placement; `out` holds something.
    """
    if placement not in (None, *PLACEMENTS):
        raise ValueError(f"placement={placement!r} is not allowed: choose one of {', '.join(PLACEMENTS)}")
    if len(folders) < 2:
        raise ValueError("a mean takes two networks or more")
    models = [load_net(folder) for folder in folders]
    net, conditions, known = models[0]
    alike = ("placement", "points") if placement is None else ("points",)
    placement = placement or known["placement"]
    for folder, (other, _, facts) in zip(folders, models, strict=True):
        same = other.w1.shape == net.w1.shape and other.w2.shape == net.w2.shape
        if not same or any(facts[name] != known[name] for name in alike):
            raise ValueError(f"{str(folder)!r} and {str(folders[0])!r} differ in shape, placement or scoring table")
    check_folder(out, VALUE_MODEL, CHECKPOINT, False)
    share = np.float32(1 / len(models))

    def mean(parts: list[Any]) -> Any:
        return type(parts[0])(*(share * sum(arrays) for arrays in zip(*parts, strict=True)))

    facts = {
        "placement": placement,
        "points": known["points"],
        "version": __version__,
        "training": {
            "mean_of_weights": [
                {**facts.get("training", {}), "curve": facts.get("curve"), "validation": facts.get("validation")}
                for _, _, facts in models
            ]
        },
    }
    both = mean([model[0] for model in models])
    told = None if conditions is None else mean([model[1] for model in models])
    save_net(out, both, facts, told)
    points = known["points"]
    scoring = "random" if points is None else dict(zip(SCORED, points[1:], strict=True))
    result = measure(ValuePolicy(str(out)), scoring, placement)
    save_net(out, both, {**facts, "validation": measured(result)}, told)
    return result


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("python -m patience_env.training.mean_values", description="The mean of networks.")
    parser.add_argument("out", type=Path, help="the folder for the mean")
    parser.add_argument("models", type=Path, nargs="+", help="the folders of two networks or more")
    parser.add_argument("--placement", help="fixed or touching: what the mean plays; by default as all the networks")
    try:
        given = parser.parse_args(arguments)
        result = mean_values(given.out, given.models, given.placement)
    except (OSError, ValueError) as error:
        print(f"mean_values: error: {error}", file=sys.stderr)
        return 2
    print(f"validation deals: {result.mean:.2f} +- {result.stderr:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
