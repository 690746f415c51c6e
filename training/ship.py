"""Make a small model of a run's agent, to be shipped: `python -m patience_env.training.ship RUN FOLDER`.

Its numbers are halved in length (float16), and of the learning curve only the last point is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from patience_env.training.models import MODEL, load_policy, read_pair, write_pair


def ship(run: Path, folder: Path) -> int:
    """Write the small model of the run (or model) in `run` into `folder`; return its size in bytes.

    Raises:
        ValueError: there is no model, or it is damaged; `folder` holds something already.
    """
    source = run / "model" if (run / "model" / MODEL).is_file() else run
    facts, tensors = read_pair(source / MODEL, "model")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty: choose another folder")
    kept = {name: value for name, value in facts.items() if name not in ("format", "tensors", "sha256", "seal")}
    if isinstance(kept.get("training"), dict):
        kept["training"] = {**kept["training"], "curve": kept["training"].get("curve", [])[-1:]}
    folder.mkdir(parents=True, exist_ok=True)
    write_pair(folder / MODEL, {name: tensor.astype(np.float16) for name, tensor in tensors.items()}, kept)
    load_policy(folder)
    return sum(file.stat().st_size for file in folder.iterdir())


def main(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of its model.")],
    folder: Annotated[Path, typer.Argument(help="Where to write the small model.")],
) -> None:
    """Write a small model of a run's agent."""
    try:
        size = ship(run, folder)
    except (OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{folder}: {size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
