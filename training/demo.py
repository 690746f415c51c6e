"""The demonstration: train an agent for Patience Poker briefly, compare it with the baselines, draw a finished tableau.

`make demo` runs it after installation; it takes about three minutes on two cores. Everything lies in the folder `demo`
afterwards: the run (with its TensorBoard logs and the agent), the results as JSON, and the pictures.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import typer

import patience_env  # noqa: F401  (registers the environments)
from patience_env.agents.policy import Policy, make_policy
from patience_env.training.train import MODEL_FOLDER, train

ENV_ID = "PatiencePoker-v0"
OPTIONS: dict[str, Any] = {"placement": "fixed"}
PICTURED_DEAL = 1


def play(policy: Policy, deal: int) -> Any:
    """Let a policy play one deal to its end and return the environment."""
    env: Any = gymnasium.make(ENV_ID, illegal_action="raise", render_mode="rgb_array", **OPTIONS)
    env.reset(options={"deal": deal})
    terminated = False
    while not terminated:
        terminated = env.step(policy.choose(env))[2]
    return env


def save_pictures(policy: Policy, folder: Path) -> list[Path]:
    """Save a finished tableau as SVG and, where pygame-ce is installed, as PNG; return the files."""
    env = play(policy, PICTURED_DEAL)
    files = [folder / "tableau.svg"]
    files[0].write_text(env.unwrapped.svg(), encoding="utf-8")
    try:
        import pygame
    except ImportError:
        return files
    frame = env.render()
    files.append(folder / "tableau.png")
    pygame.image.save(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), str(files[1]))
    return files


def main(
    folder: Annotated[
        Path, typer.Option(help="Where everything is written; an old demonstration there is replaced.")
    ] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="How long to train.")] = 1.5,
    first: Annotated[int, typer.Option(help="How many of the 10,000 test deals to play.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
) -> None:
    """Train an agent briefly, compare it with the baselines on the standard deals, and draw a finished tableau."""
    from patience_env.training.cli import evaluate_policies

    run = folder / "run"
    if run.exists():
        shutil.rmtree(run)
    folder.mkdir(parents=True, exist_ok=True)
    typer.echo(f"Training an agent for {ENV_ID} ({OPTIONS['placement']} placement) for {minutes:g} minutes ...")
    done = train(ENV_ID, run, options=OPTIONS, minutes=minutes, seed=seed)
    typer.echo(
        f"{done.steps:,} steps in {done.seconds:.0f} s. Comparing it with the baselines on {first:,} test deals ..."
    )
    agent = f"model:path={run / MODEL_FOLDER}"
    evaluate_policies(
        env=ENV_ID,
        policy=[agent, "flush-rank", "greedy", "random"],
        deals="test",
        first=first,
        option=[f"{name}={value}" for name, value in OPTIONS.items()],
        seed=seed,
        json_file=str(folder / "results.json"),
    )
    for file in save_pictures(make_policy("model", ENV_ID, path=str(run / MODEL_FOLDER)), folder):
        typer.echo(f"wrote {file}: the agent's tableau of deal {PICTURED_DEAL}")
    typer.echo(
        f"See the learning curve: {Path(sys.executable).with_name('tensorboard')} --logdir {run / 'tensorboard'}"
    )


if __name__ == "__main__":
    typer.run(main)
