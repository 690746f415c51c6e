"""`patience train-value`: train a player of Patience Poker that knows what partial tableaus are worth.

Two kinds: `value`, a network over the whole board (minutes to train, some 45 microseconds a move), and `line`, a table
of partial lines (seconds to train, some microseconds a move; it names the cells that the search tries).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from patience_env.agents.board_values import VALUE_MODEL, ValuePolicy
from patience_env.agents.line_table import MODEL, LinePolicy
from patience_env.deals import named_deals
from patience_env.games.patience_poker import GAME
from patience_env.games.poker_hands import TABLES
from patience_env.training.console import fail
from patience_env.training.evaluate import Evaluation, evaluate
from patience_env.training.line_training import CHECKPOINT as LINE_CHECKPOINT
from patience_env.training.line_training import SECONDS, LineTable, check_line_plan, read_scoring, train_lines
from patience_env.training.models import is_left_over

KINDS = {"value": VALUE_MODEL, "line": MODEL}


def check_folder(folder: Path, model: str, checkpoint: str, resume: bool) -> None:
    """Raise ValueError where a model cannot go into a folder without something being lost; make the folder."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder: give one for the model")
    if resume:
        if not (folder / checkpoint).is_file():
            raise ValueError(f"{str(folder)!r} holds no checkpoint to resume: there is no {checkpoint} in it")
    elif (folder / checkpoint).exists():
        raise ValueError(f"{str(folder)!r} holds a training already: go on with it by --resume, or choose another")
    elif (folder / model).exists():
        raise ValueError(f"{str(folder)!r} already holds a model ({model}): choose another folder, or remove it first")
    # A kill while the first checkpoint was written may have left parts of it.
    elif folder.is_dir() and not all(is_left_over(path.name, folder / checkpoint) for path in folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{str(folder)!r} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{str(folder)!r} cannot be written into")


def measure(policy: Any, scoring: str | Mapping[str, float], placement: str) -> Evaluation:
    """Return a policy's result on the validation deals."""
    return evaluate(policy, GAME.id, named_deals("validation"), options={"placement": placement, "scoring": scoring})


def measured(result: Evaluation) -> dict[str, Any]:
    """Return a result as a model's facts tell it."""
    return {"deals": len(result.deals), "mean": result.mean, "stderr": result.stderr}


def train_line_model(
    out: str | os.PathLike[str],
    scoring: str | dict[str, float] = "american",
    placement: str = "touching",
    *,
    games: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    resume: bool = False,
    progress: Callable[[float, int, float], None] | None = None,
) -> tuple[LineTable, Evaluation]:
    """Train a table (see `train_lines`), save it in `out` and measure it on the validation deals.

    Raises:
        TypeError, ValueError: an argument that is not allowed, or `out` holds something. Nothing is changed then.
    """
    check_line_plan(scoring, placement, games, seconds, seed)
    import_module("safetensors")  # tables are saved with it: where it is missing, that is told before the training
    folder = Path(out)
    check_folder(folder, MODEL, LINE_CHECKPOINT, resume)
    table = train_lines(
        scoring, placement, games=games, seconds=seconds, seed=seed, progress=progress, folder=folder, resume=resume
    )
    table.save(folder)
    result = measure(LinePolicy(str(folder)), scoring, placement)
    table.save(folder, validation=measured(result))
    return table, result


def train_value_model(
    out: str | os.PathLike[str],
    plan: Any,
    *,
    resume: bool = False,
    show: Callable[[float, str], None] | None = None,
) -> tuple[Any, Evaluation]:
    """Train a network (see `value_training.Plan`), save it in `out` and measure it on the validation deals.

    Raises:
        TypeError, ValueError: something in the plan is not allowed, or `out` holds something. Nothing is changed then.
    """
    from patience_env.training.value_training import CHECKPOINT, ValueTraining

    plan.check()
    folder = Path(out)
    check_folder(folder, VALUE_MODEL, CHECKPOINT, resume)
    training = ValueTraining(folder, plan, resume)
    training.run(show)
    result = measure(ValuePolicy(str(folder)), plan.scoring, plan.placement)
    training.save_model(validation=measured(result))
    return training, result


def command(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="The game: PatiencePoker-v0.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.", show_default=False)],
    kind: Annotated[str, typer.Option(help="value: a network over the whole board; line: a table of lines.")] = "value",
    scoring: Annotated[
        str,
        typer.Option(
            help=f"The table to play for: {', '.join(TABLES)}, or nine numbers such as 2,5,10,15,20,25,50,75,100 "
            "(from pair to royal); random: one network for any table (--kind value)."
        ),
    ] = "american",
    placement: Annotated[str, typer.Option(help="touching or fixed.")] = "touching",
    games: Annotated[
        int | None, typer.Option(help="Train for so many games; 300,000 for --kind value.", show_default=False)
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help=f"Train for so long, of one core's time (--kind line); {SECONDS:.0f} without --games.",
            show_default=False,
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Width of the network (--kind value).")] = 32,
    attempts: Annotated[int, typer.Option(help="Short trainings that compete at first (--kind value).")] = 4,
    teacher: Annotated[
        str, typer.Option(help="Whose games the first attempt begins with (--kind value): a policy, or none: ''.")
    ] = "line",
    start: Annotated[
        str, typer.Option(help="Folder of a value model whose weights the first attempt begins with (--kind value).")
    ] = "",
    device: Annotated[str, typer.Option(help="Where torch learns (--kind value): cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of the deals, the random moves and the first weights.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the folder.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a value network, or a table of partial lines, for Patience Poker.

    The model is saved in the folder and measured on the validation deals. It plays as the policy value:path=FOLDER or
    line:path=FOLDER, and the search uses it by search:path=FOLDER (lines) and search:value=FOLDER. TensorBoard's files
    and a checkpoint lie in the folder too; a killed training goes on with --resume and the same options.

    Example: patience train-value PatiencePoker-v0 --kind line --scoring english --placement fixed --out english
    """
    try:
        if env_id != GAME.id:
            raise ValueError(f"train-value trains players of {GAME.id}, not of {env_id!r}")
        if kind not in KINDS:
            raise ValueError(f"--kind {kind!r} is not allowed: choose one of {', '.join(KINDS)}")
        any_table = kind == "value" and scoring == "random"
        table: str | dict[str, float] = "random" if any_table else read_scoring(scoring)
        if start and not any_table and teacher == "line":
            teacher = ""
        with _Bar(quiet) as show:
            if kind == "line":
                trained, result = train_line_model(
                    out,
                    table,
                    placement,
                    games=games,
                    seconds=seconds,
                    seed=seed,
                    resume=resume,
                    progress=lambda share, done, mean: show(share, f"{done:,} games, mean {mean:.1f}"),
                )
                made = trained.made
                told = f"{made['games']:,} games in {made['seconds']:.1f} s"
            else:
                from patience_env.training.value_training import GAMES, Plan

                if seconds is not None:
                    raise ValueError("--seconds goes with --kind line: give --games to a value network")
                count = GAMES if games is None else games
                plan = Plan(table, placement, count, width, seed, attempts, teacher, start, device)
                training, result = train_value_model(out, plan, resume=resume, show=show)
                told = f"{training.done:,} games in {training.seconds:.1f} s"
    except (TypeError, ValueError) as error:
        fail(error)
    except KeyboardInterrupt:
        typer.echo("stopped; --resume goes on from the last checkpoint, if one was written", err=True)
        raise typer.Exit(130) from None
    typer.echo(
        f"{told}\nvalidation: {result.mean:.2f} +- {result.stderr:.2f} ({len(result.deals):,} deals)\nmodel: {out}"
    )


class _Bar:
    """A progress bar on stderr while it is a terminal."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=1.0, text="")

    def __enter__(self) -> Callable[[float, str], None]:
        self._progress.start()
        return lambda share, text: self._progress.update(self._task, completed=share, text=text)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
