"""Train an agent: MaskablePPO of sb3-contrib over the compiled batch, with checkpoints that survive a kill.

A run is a folder: `checkpoint.json` and its tensors (everything that is needed to go on), `curve.json` (steps, seconds,
mean and standard error on the validation deals), `model/` (the agent so far) and `tensorboard/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.policy import Policy, make_policy, parse_policy, read_value
from patience_env.deals import check_deal, named_deals
from patience_env.game import Game, get_game
from patience_env.training.advice import MOST_CHOICES, NO_ADVICE, find_adviser
from patience_env.training.console import FAILED, fail
from patience_env.training.engines import WorkerError, check_engine, import_ray
from patience_env.training.models import ADVISED, input_space, is_left_over, network_options, read_facts

CHECKPOINT = "checkpoint.json"
CURVE = "curve.json"
MODEL_FOLDER = "model"
ENGINES = ("sb3", "rllib")


@dataclass(frozen=True)
class Setting:
    """A hyperparameter: its type, its least and greatest value, what it means."""

    kind: type
    low: float
    high: float
    help: str


SETTINGS = {
    "network": Setting(str, 0, 0, "'ahead' or 'cards' (any game), 'lines' (Patience Poker), 'mlp' (planes)"),
    "observation": Setting(str, 0, 0, "'planes' or 'cards'"),
    "steps": Setting(int, 1, 10**12, "steps of all games together, unless --steps or --minutes tells otherwise"),
    "envs": Setting(int, 1, 65_536, "games at once"),
    "n_steps": Setting(int, 1, 65_536, "steps of each game between two updates"),
    "spread_steps": Setting(int, 1, 65_536, "the games begin spread over so many steps, about the length of a game"),
    "batch_size": Setting(int, 2, 10**9, "steps in a minibatch"),
    "n_epochs": Setting(int, 1, 1000, "passes over the steps of an update"),
    "learning_rate": Setting(float, 0, 1, "Adam's, at the start"),
    "final_learning_rate": Setting(float, 0, 1, "and at the end; it falls in a straight line"),
    "gamma": Setting(float, 0, 1, "discount"),
    "gae_lambda": Setting(float, 0, 1, "generalised advantage estimation: 1 trusts the returns, 0 the critic"),
    "clip_range": Setting(float, 1e-6, 1, "how far an update may move a probability ratio"),
    "ent_coef": Setting(float, 0, 1e6, "reward for entropy"),
    "vf_coef": Setting(float, 0, 1e6, "weight of the critic's loss"),
    "max_grad_norm": Setting(float, 1e-9, 1e9, "gradients are cut to this length"),
    "target_kl": Setting(float, 0, 1e6, "an update ends once it has changed the policy by so much; 0: never"),
    "reward": Setting(str, 0, 0, "'usual', or the game's reward kind: 'progress', 'win' or 'score'"),
    "win_bonus": Setting(float, 0, 1e6, "added to the reward of the move that wins the game"),
    "temperature": Setting(float, 0, 100, "the trained agent plays its best action (0) or draws by probability (1)"),
    "warm_steps": Setting(int, 1, 10**12, "positions of the warm start, where there is a teacher"),
    "warm_learning_rate": Setting(float, 0, 1, "Adam's in the warm start; it falls to a tenth"),
    "warm_pupil": Setting(float, 0, 1, "share of the games that the pupil itself plays by the end of the warm start"),
    "reward_scale": Setting(float, 1e-9, 1e9, "factor on the rewards that the learner sees"),
    "width": Setting(int, 1, 4096, "hidden units of each layer"),
    "embedding": Setting(int, 1, 256, "cards: entries of a card's embedding"),
    "depth": Setting(int, 1, 128, "cards: how many cards at either end of a long row are shown one by one"),
    "advice": Setting(str, 0, 0, "ahead, cards: the rule of thumb whose choice the network is told, or 'none'"),
    "trust": Setting(float, 0, 100, "advice: the bonus of the advised action's logit at the start"),
    "choices": Setting(int, 0, MOST_CHOICES, "advice: choose among so many actions that it likes best; 0: all"),
    "sharpness": Setting(float, 1e-6, 1e6, "lines: factor from gains to logits at the start"),
    "keep": Setting(str, 0, 0, "the model is the agent that was 'best' on the validation deals, or the 'last'"),
    "evaluate_every": Setting(int, 1, 10**12, "steps between two evaluations on the validation deals"),
    "checkpoint_seconds": Setting(
        float, 0, 1e9, "seconds between two checkpoints (there is one after each evaluation)"
    ),
    "threads": Setting(int, 0, 1024, "threads of torch, 0 for all cores"),
}
# What RLlib does not know.
WITHOUT_RLLIB = {"win_bonus": 0.0, "target_kl": 0.0, "temperature": 0.0, "advice": NO_ADVICE}
# These may differ between a run and its continuation.
_FREE = ("steps", "warm_steps", "evaluate_every", "checkpoint_seconds", "threads")


def read_settings(env_id: str, given: Mapping[str, Any] | None = None, taught: bool = False) -> dict[str, Any]:
    """Return the settings for a game: the YAML's default, its entry for the game, then those given.

    What the YAML holds under `after_teacher` counts only where `taught`: what follows a warm start. Its advice does not
    count for a given network that takes none.

    Raises:
        ValueError: an unknown name or a value that is not allowed.
    """
    import yaml

    text = resources.files("patience_env.training").joinpath("hyperparameters.yaml").read_text("utf-8")
    table = yaml.safe_load(text)
    entries = [table["default"], table.get(env_id, {})]
    after = [entry.pop("after_teacher", {}) for entry in entries]
    merged = {}
    for part in (*entries, *(after if taught else ()), given or {}):
        merged.update(part)
    if given and "network" in given and "advice" not in given and merged["network"] not in ADVISED:
        merged["advice"] = NO_ADVICE
    return {name: _check_setting(name, value) for name, value in merged.items()}


def _check_setting(name: str, value: Any) -> Any:
    if name not in SETTINGS:
        raise ValueError(f"there is no setting {name!r}: the settings are {', '.join(SETTINGS)}")
    setting = SETTINGS[name]
    if setting.kind is str:
        if not isinstance(value, str):
            raise ValueError(f"{name}={value!r} is not allowed: give {setting.help}")
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (setting.kind is float and isinstance(value, float))) or not setting.low <= value <= setting.high:
        kind = "a whole number" if setting.kind is int else "a number"
        raise ValueError(f"{name}={value!r} is not allowed: give {kind} from {setting.low:g} to {setting.high:g}")
    return setting.kind(value)


@dataclass(frozen=True)
class Point:
    """A point of the learning curve: mean return on the validation deals, its standard error, the share of deals won.

    `won` is None for a game that only scores. Steps are PPO's: those of a warm start do not count.
    """

    steps: int
    seconds: float
    mean: float
    stderr: float
    won: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        folder: the run's folder; the model lies in `folder / "model"`.
        steps: steps of all games together.
        seconds: time it took, earlier parts included.
        curve: its evaluations, the last one at the end.
    """

    folder: Path
    steps: int
    seconds: float
    curve: tuple[Point, ...]


def level_text(point: Point) -> str:
    """Return how well an agent did: `119.52 +- 0.98`, and for a game that can be won `0.871 +- 0.002, 46.1% won`."""
    if point.won is None:
        return f"{point.mean:.2f} +- {point.stderr:.2f}"
    return f"{point.mean:.4f} +- {point.stderr:.4f}, {point.won:.1%} won"


# -- one run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What a run is. A continuation must have the same (but for the settings in `_FREE`)."""

    game: str
    options: dict[str, Any]
    seed: int
    settings: dict[str, Any]
    version: str
    teacher: str | None = None

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Say in which facts this plan and a saved one differ, naming both sides."""
        mine, other = (_flat(plan) for plan in (json.loads(json.dumps(asdict(self))), saved))
        names = sorted((mine.keys() | other.keys()) - {f"settings.{name}" for name in _FREE})
        return [
            f"{name.rpartition('.')[2]} is {other.get(name)!r} in the run, but {mine.get(name)!r} is asked for"
            for name in names
            if mine.get(name) != other.get(name)
        ]


def _flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in plan.items():
        flat |= (
            {f"{name}.{key}": one for key, one in value.items()} if name in ("options", "settings") else {name: value}
        )
    return flat


def train(
    env_id: str,
    out: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    teacher: str | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    deals: Sequence[int] | NDArray[np.uint64] | None = None,
    quiet: bool = False,
    engine: str = ENGINES[0],
    workers: int | None = None,
    address: str | None = None,
) -> Outcome:
    """Train an agent and save it in `out / "model"`.

    Args:
        env_id: which game.
        out: the run's folder, made if need be.
        options: the game's options.
        steps: stop after so many steps of all games together (rounded up to whole updates). None takes that of the
            run that is resumed, or the settings', unless `minutes` is given.
        minutes: stop after so much time (the parts before a resume count).
        seed: of the network, the games and the learner's choices.
        teacher: a policy written as text (see `patience_env.agents.policy.parse_policy`): before PPO begins, the
            network learns to play as it does. None starts from nothing.
        resume: go on with the run in `out` from its last checkpoint.
        settings: hyperparameters that override those of `hyperparameters.yaml`.
        deals: deal numbers of the learning curve; None takes the standard validation deals.
        quiet: show no progress.
        engine: "sb3" (MaskablePPO, here) or "rllib" (RLlib's PPO, whose games are spread over a Ray cluster; such a run
            keeps no checkpoint besides its model).
        workers: RLlib's environment runners; None takes as many as there are cores.
        address: of the Ray cluster (see `patience_env.training.engines`); None starts Ray on this machine.

    A resumed run draws new deals; it is as good as an uninterrupted one, but not the same step by step.

    Raises:
        ValueError: an argument that is not allowed; a teacher that is none or does not play this game under these
            options; `out` holds something else, or a run and `resume` is False; the run to be resumed differs, its
            files are damaged, or there is none; Ray is not installed, or does not answer at the address. Nothing is
            changed then.
        WorkerError: Ray cannot be started, or RLlib broke down.
    """
    check_engine(engine, workers, address, ENGINES)
    if resume and engine == "rllib":
        raise ValueError("a run of the engine 'rllib' keeps no checkpoint to resume: leave --resume out")
    game = get_game(env_id)
    chosen = read_settings(env_id, settings, teacher is not None)
    if engine == "rllib":
        chosen = _settings_for_rllib(env_id, settings or {}, teacher)
    plan = Plan(env_id, game.check_options(options or {}), _check_seed(seed), chosen, __version__, teacher)
    master = None if teacher is None else _find_teacher(teacher, plan)
    if minutes is not None and not 0 < minutes < 1e6:
        raise ValueError(f"minutes={minutes!r} is not allowed: give a number above 0")
    if steps is not None:
        _check_setting("steps", steps)
    network_options(chosen["network"], chosen)
    input_space(chosen["network"], chosen["observation"], game, plan.options)
    if chosen["advice"] != NO_ADVICE:
        find_adviser(chosen["advice"], game, plan.options)
    check_rewards(game, plan)
    if chosen["keep"] not in ("best", "last"):
        raise ValueError(f"keep={chosen['keep']!r} is not allowed: choose one of 'best', 'last'")
    if chosen["envs"] * chosen["n_steps"] % chosen["batch_size"] == 1:
        raise ValueError(
            f"batch_size={chosen['batch_size']} leaves a minibatch of a single step ({chosen['envs']} envs times "
            f"{chosen['n_steps']} n_steps make {chosen['envs'] * chosen['n_steps']}): choose another"
        )
    folder = Path(out)
    saved = _open_run(folder, plan, resume)
    if steps is None and minutes is None:
        limits = (saved["total_steps"], saved["total_seconds"]) if saved else (chosen["steps"], None)
    else:
        limits = (steps, None if minutes is None else 60.0 * minutes)
    numbers = named_deals("validation") if deals is None else np.array([check_deal(deal) for deal in deals], np.uint64)
    if engine == "rllib":
        import_ray(loopback=address is None)
        try:
            from patience_env.training import rllib
        except ImportError as error:
            raise ValueError(f"engine 'rllib' needs pip install 'patience-env[train,ray]' ({error})") from error
        return rllib.run(folder, plan, limits, numbers, quiet, workers, address)
    from patience_env.training.learner import Run

    return Run(folder, plan, limits, numbers, quiet, master).go()


def _settings_for_rllib(env_id: str, given: Mapping[str, Any], teacher: str | None) -> dict[str, Any]:
    """Return the settings for RLlib, which shows its networks observations only and knows neither teacher nor bonus."""
    if teacher is not None:
        raise ValueError("the engine 'rllib' knows no teacher: leave --teacher out, or choose --engine sb3")
    chosen = read_settings(env_id, {**WITHOUT_RLLIB, **given})
    if chosen["network"] in ("ahead", "cards"):
        if "network" in given:
            raise ValueError(
                f"network={given['network']!r} is not allowed with the engine 'rllib': choose lines or mlp, or "
                "--engine sb3"
            )
        chosen = read_settings(env_id, {**chosen, "network": "mlp", "observation": "planes", **given})
    for name, value in WITHOUT_RLLIB.items():
        if chosen[name] != value:
            raise ValueError(f"{name}={chosen[name]!r} is not allowed with the engine 'rllib': leave it out")
    return chosen


def _find_teacher(text: str, plan: Plan) -> Policy:
    """Return the policy written as `text`; refuse one that does not play the game of the plan under its options."""
    name, given = parse_policy(text)
    policy = make_policy(name, plan.game, **given)
    policy.check(get_game(plan.game), plan.options)
    return policy


def reward_kind(plan: Plan) -> str | None:
    """Return the reward kind to ask the environments for, None for the game's usual one."""
    kind: str = plan.settings["reward"]
    return None if kind == "usual" else kind


def check_rewards(game: Game, plan: Plan) -> None:
    """Raise ValueError where the reward's settings do not suit the game."""
    allowed = ("score",) if game.scores else ("progress", "win")
    if reward_kind(plan) not in (None, *allowed):
        raise ValueError(
            f"reward={plan.settings['reward']!r} is not allowed for {game.id}: choose one of "
            f"{', '.join(map(repr, ('usual', *allowed)))}"
        )
    if plan.settings["win_bonus"] and game.scores:
        raise ValueError(f"win_bonus={plan.settings['win_bonus']!r} is not allowed for {game.id}, which is never won")


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed!r} is not allowed: give a whole number from 0 to 2**63 - 1")
    return int(seed)


def _open_run(folder: Path, plan: Plan, resume: bool) -> dict[str, Any] | None:
    """Return the facts of the checkpoint in a folder, or None for a new run; refuse what does not fit."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder: give one for the run")
    there = (folder / CHECKPOINT).exists()
    if resume:
        if not there:
            raise ValueError(f"{str(folder)!r} holds no run to resume: leave --resume out to start one")
        saved = read_facts(folder / CHECKPOINT, "checkpoint")
        if differences := plan.differences(saved["plan"]):
            raise ValueError(
                f"{str(folder)!r} cannot be resumed, for it is another run: {'; '.join(differences)}. "
                "Ask for the same, or start a run in another folder"
            )
        return saved
    if there:
        saved = read_facts(folder / CHECKPOINT, "checkpoint")
        raise ValueError(
            f"{str(folder)!r} already holds a run of {saved['steps']:,} steps: go on with --resume, or choose another "
            "folder"
        )
    # A kill while the first checkpoint was written may have left parts of it.
    if folder.is_dir() and not all(is_left_over(path.name, folder / CHECKPOINT) for path in folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty and holds no run: choose another folder")
    return None


# -- the command -------------------------------------------------------------------------------------------------


def read_pairs(given: Sequence[str], what: str) -> dict[str, Any]:
    """Return the `name=value` texts of the command line as a mapping.

    Raises:
        ValueError: one is not of that form, or a name comes twice.
    """
    pairs: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"{what} {text!r} is not of the form name=value")
        if name in pairs:
            raise ValueError(f"{what} {name!r} is given twice")
        pairs[name] = read_value(value)
    return pairs


def command(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="Which game, for example PatiencePoker-v0.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the game, name=value; may be repeated.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Stop after so many steps of all games together.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the network and of the deals.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/ENV-SEED if left out.", show_default=False)
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Learn to play as this policy does before PPO begins: NAME, MODULE:ATTRIBUTE, each with :KEY=VALUE as "
            "often as wanted, or the path of a saved model.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")] = False,
    envs: Annotated[int | None, typer.Option(help="Games at once; short for --set envs=N.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A hyperparameter, name=value, such as learning_rate=3e-4; may be repeated."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    engine: Annotated[
        str, typer.Option(help="What trains: sb3 (here) or rllib (games spread over a Ray cluster; extra ray).")
    ] = ENGINES[0],
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="RLlib's environment runners; all cores if left out.", show_default=False),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The Ray cluster; Ray is started here if left out.", show_default=False),
    ] = None,
) -> None:
    """Train an agent for ENV and save it.

    MaskablePPO plays many games at once and learns from them; what it has learned is measured on the validation deals
    as it goes. The folder then holds the agent (model/), its learning curve (curve.json), TensorBoard logs
    (tensorboard/) and a checkpoint: after a kill, the same command with --resume goes on.
    """
    try:
        settings = read_pairs(set_ or (), "--set")
        if envs is not None:
            settings["envs"] = envs
        folder = out or Path("runs") / f"{env_id}-{seed}"
        done = train(
            env_id,
            folder,
            options=read_pairs(option or (), "--option"),
            steps=steps,
            minutes=minutes,
            seed=seed,
            teacher=teacher,
            resume=resume,
            settings=settings,
            quiet=quiet,
            engine=engine,
            workers=workers,
            address=address,
        )
    except (TypeError, ValueError) as error:
        fail(error)
    except WorkerError as error:
        fail(error, FAILED)
    except OSError as error:
        fail(f"the run in {str(folder)!r} cannot be written: {error}", FAILED)
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command with --resume goes on from the checkpoint in {folder}", err=True)
        raise typer.Exit(130) from None
    last = done.curve[-1]
    typer.echo(
        f"{done.steps:,} steps in {done.seconds:.0f} s; validation {level_text(last)}\n"
        f"agent: {done.folder / MODEL_FOLDER}\ncurve: {done.folder / CURVE}"
    )
