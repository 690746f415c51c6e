"""Draw learning curves of runs: mean return on the validation deals against steps and against time.

`python -m patience_env.training.curve runs/poker --out curve.png`

Of value networks of Patience Poker (folders with a `value.json`) the whole course is drawn: the score on the validation
deals while they learned from their own games and then from looking ahead, and the error that refining makes smaller.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from patience_env.agents.board_values import VALUE_MODEL, load_net
from patience_env.training.console import fail
from patience_env.training.models import MOST_FACTS, course_of
from patience_env.training.train import CURVE, Point


def read_curve(run: str | os.PathLike[str]) -> list[Point]:
    """Return the learning curve of a run's folder (or of a `curve.json`).

    Raises:
        ValueError: there is none, or it is damaged.
    """
    path = Path(run)
    path = path / CURVE if path.is_dir() else path
    try:
        if path.stat().st_size > MOST_FACTS:
            raise ValueError(f"it has {path.stat().st_size:,} bytes, more than the {MOST_FACTS:,} allowed")
        points = [Point(**point) for point in json.loads(path.read_text("utf-8"))]
    except FileNotFoundError:
        raise ValueError(f"{str(run)!r} is no run: there is no {str(path)!r}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no learning curve: {error}") from None
    if not points:
        raise ValueError(f"{str(path)!r} holds no points yet")
    return points


def draw_curves(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Draw the curves of some runs, with bands of two standard errors, into a picture (.png, .svg or .pdf).

    Raises:
        ValueError: a run has no curve, or the picture's kind is unknown.
    """
    curves = {Path(run).name: read_curve(run) for run in runs}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes: Any = figure.subplots(1, 2, sharey=True)
    for name, points in curves.items():
        means = [point.mean for point in points]
        low = [point.mean - 2 * point.stderr for point in points]
        high = [point.mean + 2 * point.stderr for point in points]
        for axis, places in (
            (axes[0], [point.steps / 1e6 for point in points]),
            (axes[1], [point.seconds / 60 for point in points]),
        ):
            axis.plot(places, means, marker=".", label=name)
            axis.fill_between(places, low, high, alpha=0.25)
    axes[0].set(xlabel="million steps", ylabel="mean return, validation deals")
    axes[1].set(xlabel="minutes")
    axes[1].legend()
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(out, dpi=120)


def read_course(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the trainings that a value network went through: dicts with `training`, `curve` and perhaps `validation`.

    Raises:
        ValueError: as `load_net`.
    """
    _, _, facts = load_net(folder)
    return course_of(facts)


def draw_courses(folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Draw the course of some value networks, a row of two each, into a picture (.png, .svg or .pdf).

    Raises:
        ValueError: as `read_course`, or the picture's kind is unknown.
    """
    courses = {Path(folder).resolve().name: read_course(folder) for folder in folders}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4 * len(courses)), layout="constrained")
    axes: Any = figure.subplots(len(courses), 2, squeeze=False)
    for (name, course), (left, right) in zip(courses.items(), axes, strict=True):
        scores: list[float] = []
        place = 0
        shown: list[int] = []
        for part in course:
            points = part.get("curve", [])
            backwards = part.get("stages", [])
            measured = {place + i: point["validation"] for i, point in enumerate(points) if "validation" in point}
            last = place + max(len(points) + len(backwards) - 1, 0)
            if "validation" in part:
                measured[last] = part["validation"]["mean"]
            shown += measured
            scores += measured.values()
            errors = [point["errors"][1] for point in points if "errors" in point]
            errors += [stage["differences after"] for stage in backwards]
            if errors:
                label = "each number of cards, 24 first" if backwards else "each round through all games"
                colour = "tab:orange" if backwards else "tab:blue"
                right.plot(range(last + 1 - len(errors), last + 1), errors, marker=".", color=colour, label=label)
            place = last + 1
            for axis in (left, right):
                axis.axvline(place - 0.5, color="grey", linewidth=0.6, linestyle=":")
        left.plot(shown, scores, marker=".", color="tab:green")
        left.set(title=name, ylabel="mean score, validation deals")
        right.set(title=name, ylabel="error of differences, points")
        lines, labels = right.get_legend_handles_labels()
        once = dict(zip(labels, lines, strict=True))
        right.legend(once.values(), once.keys())
        for axis in (left, right):
            axis.set(xlabel="measures, in order (dotted: a training ends)", xlim=(-1, place))
            axis.grid(alpha=0.3)
    figure.savefig(out, dpi=110)


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of value networks.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("curve.png"),
) -> None:
    """Print the learning curves of training runs and draw them."""
    try:
        if all((run / VALUE_MODEL).is_file() for run in runs):
            for run in runs:
                typer.echo(f"{run}")
                for part in read_course(run):
                    plan, scored = part["training"], part.get("validation", {}).get("mean", math.nan)
                    how = "looking ahead" if "epochs" in plan else "its own games"
                    how = "backwards" if "stages" in part else how
                    typer.echo(f"{plan['games']:9,} games, {how}: validation deals {scored:.2f}")
            draw_courses(runs, out)
            typer.echo(f"picture: {out}")
            return
        for run in runs:
            typer.echo(f"{run}\n{'steps':>14} {'seconds':>9} {'mean':>9} {'stderr':>7}")
            for point in read_curve(run):
                typer.echo(f"{point.steps:14,} {point.seconds:9.0f} {point.mean:9.2f} {point.stderr:7.2f}")
        draw_curves(runs, out)
    except ValueError as error:
        fail(error)
    typer.echo(f"picture: {out}")


if __name__ == "__main__":
    typer.run(command)
