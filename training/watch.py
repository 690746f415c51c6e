"""`patience render`: a policy plays a deal, and the game becomes a picture or a film.

Pictures (`.svg`, `.txt`, `.png`) show one table, films (`.gif`, `.mp4`) the whole game. Text and SVG need no extra;
pixels need pygame-ce, `.png` and `.gif` Pillow too, `.mp4` the binary of ffmpeg that imageio-ffmpeg brings along.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from patience_env.deals import check_deal
from patience_env.game import get_game, max_episode_steps
from patience_env.render import faces
from patience_env.render.faces import Colour

if TYPE_CHECKING:
    from patience_env.agents.policy import Policy
    from patience_env.env import PatienceEnv

PICTURES = (".svg", ".txt", ".png")
FILMS = (".gif", ".mp4")
SHADES = 14  # steps from one colour to another in a GIF
LAST_FRAME = 2.0  # seconds that a film shows the end of the game

Frames = Iterable[NDArray[np.uint8]]


def positions(env: PatienceEnv, policy: Policy, deal: int) -> Iterator[PatienceEnv]:
    """Let a policy play a deal; yield the environment at the start and after every move.

    The game ends as its registered environment would: also after `max_episode_steps` moves.

    Raises:
        InvalidAction: the policy chose an illegal action (`env` must raise on them).
    """
    env.reset(options={"deal": deal})
    limit = max_episode_steps(env.game.id)
    moves = 0
    yield env
    while env.action_masks().any() and (limit is None or moves < limit):
        env.step(policy.choose(env))
        moves += 1
        yield env


def position_after(env: PatienceEnv, policy: Policy, deal: int, moves: int | None) -> PatienceEnv:
    """Return the environment after so many moves, or at the end of the game.

    Raises:
        ValueError: the game is shorter.
        InvalidAction: as for `positions`.
    """
    played = -1
    for position in positions(env, policy, deal):
        played += 1
        if played == moves:
            return position
    if moves is not None:
        raise ValueError(f"step {moves} does not exist: the game has {played} moves")
    return env


# -- files -------------------------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the name of a file to write beside `path`; it replaces `path` at the end, or vanishes after an error."""
    fresh = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield fresh
        with open(fresh, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def write_png(path: Path, frame: NDArray[np.uint8]) -> None:
    """Write one frame, uint8, shape (height, width, 3).

    Raises:
        ImportError: Pillow is missing.
        OSError: the file cannot be written.
    """
    image = _pillow()
    with whole_file(path) as fresh:
        image.fromarray(frame).save(fresh, "PNG")


def write_gif(path: Path, frames: Frames, fps: float) -> None:
    """Write frames, uint8, all of one shape (height, width, 3), as an animated GIF that runs for ever.

    Raises:
        ImportError: Pillow is missing.
        OSError: the file cannot be written.
    """
    image = _pillow()
    # One palette for all frames: what does not change from frame to frame then takes next to no room.
    colours = image.new("P", (1, 1))
    colours.putpalette([part for colour in palette() for part in colour])
    pause = max(20, 10 * round(100 / fps))  # milliseconds; a GIF counts hundredths of a second

    def pictures() -> Iterator[Any]:
        held = None
        for frame in frames:
            if held is not None:
                yield held
            held = image.fromarray(frame).quantize(palette=colours, dither=image.Dither.NONE)
            held.info["duration"] = pause
        if held is not None:
            held.info["duration"] = max(pause, int(1000 * LAST_FRAME))
            yield held

    # Pillow takes the frames one by one, so that of a long game no more than its own copies lie in memory.
    following = pictures()
    with whole_file(path) as fresh:
        next(following).save(fresh, "GIF", save_all=True, append_images=following, loop=0, disposal=1, optimize=False)


def write_mp4(path: Path, frames: Frames, fps: float) -> None:
    """Write frames, uint8, all of one shape (height, width, 3), both even, as an H.264 film.

    Raises:
        ImportError: imageio-ffmpeg is missing.
        OSError: the file cannot be written.
    """
    ffmpeg = _ffmpeg()
    with whole_file(path) as fresh:
        writer: Any = None
        try:
            for frame in _held(frames, round(LAST_FRAME * fps)):
                if writer is None:
                    size = frame.shape[1], frame.shape[0]
                    writer = ffmpeg.write_frames(str(fresh), size, fps=fps, macro_block_size=2, quality=8)
                    writer.send(None)
                writer.send(np.ascontiguousarray(frame))
        finally:
            if writer is not None:
                writer.close()


def palette() -> list[Colour]:
    """Return at most 256 colours: those of the pictures, and mixtures where one meets another at a smooth edge."""
    felt, paper = faces.FELT, faces.PAPER
    meeting = [(felt, other) for other in (faces.OUTLINE, faces.LABEL, faces.NOTE, faces.LIT, faces.EDGE, paper)]
    meeting += [(paper, other) for other in (faces.RED, faces.BLACK, faces.EDGE, faces.BACK, faces.LIT)]
    meeting += [
        (faces.FELT_DARK, faces.CAPTION),
        (faces.BACK, faces.BACK_LINE),
        (faces.RED_TINT, faces.RED),
        (faces.BLACK_TINT, faces.BLACK),
        (faces.LIT_FILL, faces.LIT),
    ]
    mixed = [
        tuple(round(((SHADES - i) * a + i * b) / SHADES) for a, b in zip(one, other, strict=True))
        for one, other in meeting
        for i in range(SHADES + 1)
    ]
    return list(dict.fromkeys(mixed))  # type: ignore[arg-type]


def _held(frames: Frames, more: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames, the last one so many times more."""
    frame: NDArray[np.uint8] | None = None
    for frame in frames:
        yield frame
    for _ in range(more):
        assert frame is not None
        yield frame


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('PNG and GIF files need Pillow: pip install "patience-env[render]"') from error
    return Image


def _ffmpeg() -> Any:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError('MP4 files need imageio-ffmpeg: pip install "patience-env[render,video]"') from error
    return imageio_ffmpeg


def check_tools(suffix: str) -> None:
    """Raise ImportError, naming the pip command, where what a kind of file needs is not installed."""
    if suffix in (".svg", ".txt"):
        return
    import_module("patience_env.render.raster")
    _ffmpeg() if suffix == ".mp4" else _pillow()


# -- the command -------------------------------------------------------------------------------------------------


def render(
    game: Annotated[str, typer.Argument(help="The game, such as Calculation-v0.", show_default=False)],
    policy: Annotated[
        str, typer.Option(help="Who plays: a policy as `patience evaluate` takes it.", show_default=False)
    ],
    deal: Annotated[int, typer.Option(metavar="N", help="The deal number.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The file to write: .gif or .mp4 for the whole game, .png, .svg or .txt for one table.",
            show_default=False,
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the game, such as placement=fixed.", show_default=False),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(metavar="K", min=0, help="Show the table after K moves, not the final one.", show_default=False),
    ] = None,
    fps: Annotated[float, typer.Option(min=0.1, max=50, help="Moves a second in a film.")] = 2.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the policy's own random choices.")] = 0,
) -> None:
    """Let a policy play a deal, and write the game as a film or its table as a picture.

    Example: patience render PatiencePoker-v0 --policy flush-rank --deal 3 --out game.gif
    """
    from patience_env.env import PatienceEnv
    from patience_env.training.cli import make_player, read_options
    from patience_env.training.console import FAILED, fail
    from patience_env.training.evaluate import check_writable

    suffix = out.suffix.lower()
    try:
        if suffix not in (*PICTURES, *FILMS):
            raise ValueError(
                f"{str(out)!r} ends in none of {', '.join((*FILMS, *PICTURES))}: the ending says what to write"
            )
        if step is not None and suffix in FILMS:
            raise ValueError(f"--step chooses the table of a picture: a {suffix} file shows the whole game")
        options = get_game(game).check_options(read_options(option or []))
        check_deal(deal)
        check_tools(suffix)
        check_writable(out)
        env = PatienceEnv(
            game, illegal_action="raise", render_mode="ansi" if suffix == ".txt" else "rgb_array", **options
        )
        player = make_player(policy, game, options)
        player.start(seed)
    except (ValueError, TypeError, OSError, ImportError) as error:
        fail(error)
    try:
        if suffix in FILMS:
            frames = (position.render() for position in positions(env, player, deal))
            write_film: Callable[[Path, Frames, float], None] = write_gif if suffix == ".gif" else write_mp4
            write_film(out, frames, fps)
        else:
            _write_picture(out, suffix, position_after(env, player, deal, step))
    except (InvalidAction, OSError) as error:
        fail(f"{policy!r}: {error}" if isinstance(error, InvalidAction) else f"{str(out)!r}: {error}", FAILED)
    except ValueError as error:
        fail(error)
    typer.echo(f"wrote {out}")


def _write_picture(path: Path, suffix: str, env: PatienceEnv) -> None:
    from patience_env.training.evaluate import write_atomically

    if suffix == ".png":
        write_png(path, env.render())
    else:
        write_atomically(path, env.svg() if suffix == ".svg" else f"{env.render()}\n")
