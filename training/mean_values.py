"""Make one value network of Patience Poker of several, the mean of their weights: `python -m
patience_env.training.mean_values OUT MODEL MODEL ...`.

Networks that began with the same weights (`patience train-value --start`) and were then taught differently are often
better together than each is alone. The result is measured on the validation deals.

Example: python -m patience_env.training.mean_values both first second
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from patience_env import __version__
from patience_env.agents.board_values import VALUE_MODEL, ValuePolicy, load_net, save_net
from patience_env.games.poker_hands import SCORED
from patience_env.training.value_command import check_folder, measure, measured
from patience_env.training.value_training import CHECKPOINT


def mean_values(out: Path, folders: list[Path]) -> Any:
    """Write the mean of the networks in `folders` into `out`; return its result on the validation deals.

    Raises:
        ValueError: less than two networks, or they differ in width, placement or scoring table; `out` holds something.
    """
    if len(folders) < 2:
        raise ValueError("a mean takes two networks or more")
    models = [load_net(folder) for folder in folders]
    net, conditions, known = models[0]
    for folder, (other, _, facts) in zip(folders, models, strict=True):
        if other.w2.shape != net.w2.shape or any(facts[name] != known[name] for name in ("placement", "points")):
            raise ValueError(f"{str(folder)!r} and {str(folders[0])!r} differ in width, placement or scoring table")
    check_folder(out, VALUE_MODEL, CHECKPOINT, False)
    share = np.float32(1 / len(models))

    def mean(parts: list[Any]) -> Any:
        return type(parts[0])(*(share * sum(arrays) for arrays in zip(*parts, strict=True)))

    facts = {
        "placement": known["placement"],
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
    result = measure(ValuePolicy(str(out)), scoring, known["placement"])
    save_net(out, both, {**facts, "validation": measured(result)}, told)
    return result


def main(arguments: list[str]) -> int:
    """Run the command."""
    try:
        if len(arguments) < 3:
            raise ValueError("give a folder for the mean, and two models or more")
        result = mean_values(Path(arguments[0]), [Path(folder) for folder in arguments[1:]])
    except (OSError, ValueError) as error:
        print(f"mean_values: error: {error}", file=sys.stderr)
        return 2
    print(f"validation deals: {result.mean:.2f} +- {result.stderr:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
