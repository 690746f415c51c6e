"""Saved models: a JSON of facts beside a safetensors file of numbers; nothing that is loaded can run code.

A *sealed pair* is one JSON file that names its tensor file, that file's SHA-256 and, as `seal`, the SHA-256 of all its
other facts. The tensor file is named after its own hash and written first, the JSON replaces its predecessor in one
step, so that a kill at any moment leaves a whole pair behind. Training's checkpoints and models are such pairs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.policy import Policy, Turn
from patience_env.encoding import observation_space
from patience_env.game import Game, get_game
from patience_env.training.advice import ENTRIES, MOST_CHOICES, NO_ADVICE, ask, find_adviser

if TYPE_CHECKING:
    from torch import nn

FORMAT = 1
MODEL = "model.json"
NETWORKS = ("lines", "ahead", "cards", "mlp")
_SHAPING = {
    "lines": ("width", "sharpness"),
    "ahead": ("width", "embedding", "depth"),
    "cards": ("width", "embedding", "depth"),
    "mlp": ("width",),
}
# The networks that can be told what a rule of thumb would play (`patience_env.training.advice`).
ADVISED = ("ahead", "cards")
_NEEDED = {
    "game": str,
    "options": dict,
    "observation": str,
    "shape": list,
    "actions": int,
    "network": str,
    "network_options": dict,
    "version": str,
}
BATCH = 4096
# No file of facts is larger; a larger tensor file is read only when its head fits its size and what it is to hold.
MOST_FACTS, MOST_UNSEEN, MOST_HEAD = 16 * 2**20, 64 * 2**20, 2**20
_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
_BITS |= {"I8": 8, "U8": 8, "BOOL": 8}
Shapes = Mapping[str, tuple[int, ...]]


# -- sealed pairs ------------------------------------------------------------------------------------------------


def _seal(facts: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in facts.items() if name != "seal"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at any moment either the old or the new content is there whole, even after a power cut."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        # On a full disk the part would take the room that is missing.
        fresh.unlink(missing_ok=True)
        raise


def course_of(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the trainings that a value network went through, the first one first, from the facts of its file."""
    parts = ("training", "curve", "stages", "validation")
    return [*facts.get("history", []), {name: facts[name] for name in parts if name in facts}]


def write_pair(path: Path, tensors: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts as a sealed pair whose JSON is `path`; the pair it replaces is removed afterwards."""
    from safetensors.numpy import save

    content = save({name: np.array(tensor, order="C") for name, tensor in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"{path.stem}-{digest[:16]}.safetensors"
    sealed = {"format": FORMAT, **json.loads(json.dumps(facts)), "tensors": name, "sha256": digest}
    sealed["seal"] = _seal(sealed)
    for other in path.parent.iterdir():
        if other.name.startswith(".") and is_left_over(other.name, path):
            other.unlink(missing_ok=True)  # what a kill left
    replace_file(path.with_name(name), content)
    replace_file(path, (json.dumps(sealed, indent=1) + "\n").encode())
    for other in path.parent.iterdir():
        if other.name != name and is_left_over(other.name, path):
            other.unlink(missing_ok=True)


def is_left_over(name: str, path: Path) -> bool:
    """Tell whether a file beside the sealed pair `path` may be left over from writing it: tensors, or a part of a file.

    (The tensors that the JSON names at present are told so too.)
    """
    tensors = rf"{re.escape(path.stem)}-[0-9a-f]{{16}}\.safetensors"
    return re.fullmatch(rf"{tensors}|\.({tensors}|{re.escape(path.name)})\.\d+", name) is not None


def read_facts(path: Path, what: str) -> dict[str, Any]:
    """Return the facts of a sealed pair, their seal checked.

    Raises:
        ValueError: the file is missing, cut short, of another format or changed since it was written.
    """
    try:
        size = path.stat().st_size
        facts = json.loads(path.read_text("utf-8")) if size <= MOST_FACTS else None
    except FileNotFoundError:
        raise ValueError(f"{str(path.parent)!r} holds no {what}: there is no {path.name} in it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} {str(path)!r} is damaged: it is no readable JSON ({error})") from None
    if size > MOST_FACTS:
        raise ValueError(f"{str(path)!r} is no {what}: its {size:,} bytes are more than the {MOST_FACTS:,} allowed")
    if not isinstance(facts, dict) or "format" not in facts or "seal" not in facts:
        raise ValueError(f"{str(path)!r} is no {what}: it has no format and no seal")
    if facts["format"] != FORMAT:
        raise ValueError(f"{what} {str(path)!r} has format {facts['format']!r}, but this version reads format {FORMAT}")
    if facts["seal"] != _seal(facts):
        raise ValueError(f"{what} {str(path)!r} was changed after it was written: its seal does not match its content")
    return facts


def _shapes_in(file: Path, size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the head of a safetensors file tells; ValueError where they do not fill its size."""
    with open(file, "rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if length > MOST_HEAD or 8 + length > size:
            raise ValueError(f"a head of {length:,} bytes in a file of {size:,}")
        head = json.loads(content.read(length))
    if not isinstance(head, dict):
        raise ValueError("its head is no JSON object")
    shapes: dict[str, tuple[int, ...]] = {}
    filled = 0
    for name, facts in head.items():
        if name == "__metadata__":
            continue
        shape = facts["shape"]
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"tensor {name!r:.80} has the shape {shape!r:.80}")
        shapes[name] = tuple(shape)
        filled += math.prod(shape) * _BITS[facts["dtype"]] // 8
    if 8 + length + filled != size:
        raise ValueError(f"it has {size:,} bytes, but its tensors fill {8 + length + filled:,}")
    return shapes


def read_pair(
    path: Path, what: str, fits: Callable[[Mapping[str, Any], Shapes], None] | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the facts and the tensors of a sealed pair.

    `fits(facts, shapes)` raises ValueError where tensors of these shapes are not what is wanted; it is asked before a
    large file is read.

    Raises:
        ValueError: as `read_facts`, or the tensor file is missing, cut short, changed or not what `fits` wants.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    facts = read_facts(path, what)
    name = facts.get("tensors")
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError(f"{what} {str(path)!r} names no tensor file beside it, but {name!r}")
    file = path.with_name(name)
    try:
        size = file.stat().st_size
        if size > MOST_UNSEEN:
            try:
                shapes = _shapes_in(file, size)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ValueError(f"{what} file {str(file)!r} is damaged or no safetensors file: {error}") from None
            if fits is not None:
                fits(facts, shapes)
        content = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{what} {str(path)!r} lacks its tensor file {name!r}: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != facts.get("sha256"):
        raise ValueError(
            f"{what} file {str(file)!r} is damaged: its SHA-256 begins with {digest[:16]}, "
            f"but {str(facts.get('sha256'))[:16]} is right"
        )
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"{what} file {str(file)!r} is no safetensors file: {error}") from None
    if fits is not None:
        fits(facts, {name: array.shape for name, array in tensors.items()})
    return facts, tensors


def small(facts: Mapping[str, Any], shapes: Shapes) -> None:
    """Raise ValueError where tensors are larger than any model's for which there is no other measure."""
    del facts
    numbers = sum(math.prod(shape) for shape in shapes.values())
    if numbers > MOST_UNSEEN // 4:
        raise ValueError(f"{numbers:,} numbers are more than any such model holds")


# -- networks ----------------------------------------------------------------------------------------------------


def network_options(network: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that shape a network: what must be known to build it again.

    The advice and the trust in it are told only where there is some.

    Raises:
        ValueError: no such network, or a setting out of range.
    """
    if network not in NETWORKS:
        raise ValueError(f"network={network!r} is not allowed: choose one of {', '.join(NETWORKS)}")
    chosen = {name: settings[name] for name in _SHAPING[network]}
    for name, most in (("width", 4096), ("embedding", 256), ("depth", 128)):
        if name in chosen and not 1 <= chosen[name] <= most:
            raise ValueError(f"{name}={chosen[name]!r} is not allowed: give a whole number from 1 to {most}")
    advice = settings.get("advice", NO_ADVICE)
    if advice == NO_ADVICE:
        return chosen
    trust = settings["trust"]
    if not isinstance(advice, str) or isinstance(trust, bool) or not isinstance(trust, (int, float)):
        raise ValueError(f"advice={advice!r} with trust={trust!r} is not allowed: give a policy's name and a number")
    if network not in ADVISED:
        raise ValueError(
            f"advice={advice!r} is not allowed for the {network} network: choose advice={NO_ADVICE!r} or one of the "
            f"networks {', '.join(ADVISED)}"
        )
    told = {"advice": advice, "trust": trust}
    choices = settings.get("choices", 0)
    if choices == 0:
        return {**chosen, **told}
    if isinstance(choices, bool) or not isinstance(choices, int) or not 0 < choices <= MOST_CHOICES:
        raise ValueError(f"choices={choices!r} is not allowed: give a whole number from 0 to {MOST_CHOICES}")
    return {**chosen, **told, "choices": choices}


def told_choices(shaping: Mapping[str, Any]) -> int:
    """Return how many choices of an adviser a network that is shaped so is told: 0 without one."""
    return max(shaping.get("choices", 0), 1) if "advice" in shaping else 0


def policy_class(
    network: str, shaping: Mapping[str, Any], game: Game, options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the policy class of a network, for MaskablePPO, and its keywords; `options` are the game's.

    Raises:
        ValueError: the game has no such adviser.
    """
    if network == "lines":
        from patience_env.training.networks import AfterstatePolicy

        return AfterstatePolicy, dict(shaping)
    shape = {name: shaping[name] for name in _SHAPING[network]}
    told = {}
    if "advice" in shaping:
        told = {"adviser": find_adviser(shaping["advice"], game, options), "trust": shaping["trust"]}
    if "choices" in shaping:
        told["choices"] = shaping["choices"]
    if network == "ahead":
        from patience_env.training.ahead_network import AheadPolicy

        return AheadPolicy, {"game_id": game.id, "game_options": dict(options), **shape, **told}
    if network == "cards":
        from patience_env.training.card_networks import CardPolicy, card_keywords

        return CardPolicy, {**card_keywords(game.layout(options), shape, told_choices(shaping)), **told}
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

    return MaskableActorCriticPolicy, {"net_arch": [shaping["width"], shaping["width"]]}


def input_space(network: str, observation: str, game: Game, options: Mapping[str, Any], advice: int = 0) -> Box:
    """Return the Box of what a network reads (see `network_input`), with so many choices of an adviser.

    Raises:
        ValueError: the network does not read observations of this kind.
    """
    layout = game.layout(options)
    space = observation_space(layout, observation)
    if network in ("ahead", "cards") and observation != "cards":
        raise ValueError(f"the {network} network reads observation='cards', not observation={observation!r}")
    more = ENTRIES * advice
    if network == "cards":
        low = np.zeros(layout.actions + more, np.int8)
        high = np.concatenate([np.ones(layout.actions, np.int8), np.full(more, 127, np.int8)])
        return Box(np.concatenate([space.low, low]), np.concatenate([space.high, high]), dtype=np.int8)
    if network == "ahead":
        return Box(0, 255, (game.state.itemsize + more,), np.uint8)
    return space


def network_input(policy: Any, turn: Turn, observation: str) -> NDArray[Any]:
    """Return what a policy's network reads of positions, shape (n, ...).

    That is the observations; for "cards" the mask of legal actions behind them; for "ahead", which plays the legal
    actions, the bytes of the records, whose hidden cards a turn has dealt anew. Where the network has an adviser, the
    action that this would play comes last (or the several that it likes best).
    """
    extractor = policy.features_extractor
    parts: list[NDArray[Any]] = []
    if getattr(extractor, "sees_states", False):
        parts.append(np.ascontiguousarray(turn.states).view(np.uint8).reshape(len(turn), -1))
    else:
        parts.append(turn.observations(observation))
    if getattr(extractor, "sees_masks", False):
        parts.append(turn.masks)
    if (adviser := getattr(policy, "adviser", None)) is not None:
        parts.append(ask(adviser, turn, max(policy.choices, 1)).astype(parts[0].dtype))
    return np.concatenate(parts, 1) if len(parts) > 1 else parts[0]


# -- models ------------------------------------------------------------------------------------------------------


def tensors_of(policy: nn.Module) -> dict[str, NDArray[Any]]:
    """Return the learned numbers of a policy by name."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in policy.state_dict().items()}


def save_model(folder: str | os.PathLike[str], policy: nn.Module, facts: Mapping[str, Any]) -> None:
    """Save a policy into a folder (made if need be), replacing the model there.

    `facts` must hold `game`, `options`, `observation`, `shape`, `actions`, `network`, `network_options` and `version`;
    more may follow (how it was trained, say).

    Raises:
        ValueError: a fact is missing or of the wrong type.
    """
    _check_facts(facts, "these facts")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_pair(target / MODEL, tensors_of(policy), facts)


def _check_facts(facts: Mapping[str, Any], what: str) -> None:
    for name, kind in _NEEDED.items():
        if not isinstance(facts.get(name), kind):
            raise ValueError(f"{what} must hold {name!r} as {kind.__name__}, not {facts.get(name)!r}")


@dataclass(frozen=True)
class Model:
    """A loaded model.

    Attributes:
        folder: where it came from.
        facts: what its JSON tells.
        policy: the network, an SB3 policy in evaluation mode.
    """

    folder: str
    facts: dict[str, Any]
    policy: Any

    def actions(
        self, turn: Turn, temperature: float = 0.0, rng: np.random.Generator | None = None
    ) -> NDArray[np.int64]:
        """Return a legal action for each position, int64, shape (n,): see `choose_actions`."""
        seen = network_input(self.policy, turn, self.facts["observation"])
        return choose_actions(self.policy, seen, turn.masks, temperature, rng)


def choose_actions(
    policy: Any,
    seen: NDArray[Any],
    masks: NDArray[Any],
    temperature: float = 0.0,
    rng: np.random.Generator | None = None,
) -> NDArray[np.int64]:
    """Return a legal action for each position, int64, shape (n,); `seen` is what the network reads of it.

    At temperature 0 (or without `rng`) it is the one of highest logit, the first among equals; at 1 it is drawn by the
    network's probabilities, between them by sharper ones.
    """
    import torch

    chosen = np.zeros(len(seen), np.int64)
    for start in range(0, len(seen), BATCH):
        part = slice(start, start + BATCH)
        with torch.no_grad():
            obs = torch.as_tensor(seen[part], device=policy.device)
            # Logits that are no log probabilities yet will do, and cost less.
            raw = getattr(policy, "logits", None)
            logits = policy.get_distribution(obs).distribution.logits if raw is None else raw(obs)
        logits = logits.cpu().numpy()
        if rng is not None and temperature > 0:
            # The Gumbel-max trick: the greatest of log-probabilities plus Gumbel noise is a draw by the probabilities.
            logits = logits + temperature * rng.gumbel(size=logits.shape)
        chosen[part] = np.where(masks[part], logits, -np.inf).argmax(1)
    return chosen


def load_policy(folder: str | os.PathLike[str]) -> Model:
    """Return the model that `save_model` wrote into a folder.

    Raises:
        ValueError: it is missing, damaged, changed, of another format, or does not fit this version's observations.
    """
    path = Path(folder) / MODEL
    shape: list[Shape] = []

    def fits(facts: Mapping[str, Any], shapes: Shapes) -> None:
        shape[:] = [_shape_of(facts, str(path))]
        _compare_shapes(shapes, _wanted_shapes(shape[0]), str(path))

    facts, tensors = read_pair(path, "model", fits)
    return Model(str(folder), facts, _build(shape[0], tensors, str(path)))


@dataclass(frozen=True)
class Shape:
    """What must be known to build a model's network: the game, its options, the network and what shapes it."""

    game: Game
    options: dict[str, Any]
    network: str
    shaping: dict[str, Any]
    observation: str


def _shape_of(facts: Mapping[str, Any], path: str) -> Shape:
    """Return what a model's facts tell of its network; or raise ValueError."""
    _check_facts(facts, f"model {path!r}")
    game = get_game(facts["game"])
    try:
        options = game.check_options(facts["options"])
    except TypeError as error:
        raise ValueError(f"model {path!r} does not fit this version: {error}") from error
    layout = game.layout(options)
    space = observation_space(layout, facts["observation"])
    for name, saved, now in (
        ("observations of shape", tuple(facts["shape"]), space.shape),
        ("an action space of", facts["actions"], layout.actions),
    ):
        if saved != now:
            raise ValueError(
                f"model {path!r} was saved by version {facts['version']} for {name} {saved}, but {game.id} of this "
                f"version, {__version__}, has {now}"
            )
    shaping = network_options(facts["network"], _Required(facts["network_options"], path))
    return Shape(game, options, facts["network"], shaping, facts["observation"])


class _Required(dict[str, Any]):
    """Facts of which a missing one is a ValueError."""

    def __init__(self, given: Mapping[str, Any], path: str) -> None:
        super().__init__(given)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"model {self._path!r} does not tell the {name} of its network")


@contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Leave the global random states as they were: the weights that are drawn are replaced at once by the file's.

    Stable-Baselines3 draws from `random` when it is imported.
    """
    import torch

    before = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(before)


def _make(made: Shape, width: int | None = None) -> Any:
    from gymnasium.spaces import Discrete

    with _nothing_drawn():
        shaping = network_options(made.network, made.shaping if width is None else {**made.shaping, "width": width})
        maker, keywords = policy_class(made.network, shaping, made.game, made.options)
        space = input_space(made.network, made.observation, made.game, made.options, told_choices(shaping))
        actions = Discrete(made.game.layout(made.options).actions)
        return maker(space, actions, lambda _: 0.0, **keywords)


def _wanted_shapes(made: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's tensors without making it: from two small ones, since they grow with the width.

    What a file asks for may be immense.
    """
    one, two = (_make(made, width).state_dict() for width in (1, 2))
    more = made.shaping["width"] - 1
    return {
        name: tuple(a + (b - a) * more for a, b in zip(one[name].shape, two[name].shape, strict=True)) for name in one
    }


def _compare_shapes(found: Shapes, wanted: Shapes, path: str) -> None:
    for name in sorted(wanted.keys() | found.keys()):
        have = tuple(found[name]) if name in found else "nothing"
        if have != wanted.get(name, "nothing"):
            raise ValueError(
                f"model {path!r} does not fit its network: it holds {have} for tensor {name!r}, "
                f"but {wanted.get(name, 'nothing')} is needed"
            )


def _build(made: Shape, tensors: Mapping[str, NDArray[Any]], path: str) -> Any:
    import torch

    policy = _make(made)
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise ValueError(f"model {path!r} holds numbers that are not finite")
    policy.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in tensors.items()})
    policy.set_training_mode(False)
    return policy


class ModelPolicy(Policy):
    """Plays a model that `patience train` saved.

    Args:
        path: the folder of the model (or of the run that holds it, in `model`).
        temperature: 0 plays the legal action that the network likes best, 1 draws by its probabilities; None takes what
            the model was trained for (games in which positions repeat need chance to get out of circles).

    Raises:
        ValueError: as `load_policy`, or a temperature that is not allowed.
    """

    name = "model"

    def __init__(self, path: str, temperature: float | None = None) -> None:
        folder = Path(path)
        if not (folder / MODEL).is_file() and (folder / "model" / MODEL).is_file():
            folder = folder / "model"
        self.model = load_policy(folder)
        given = self.model.facts.get("temperature", 0.0) if temperature is None else temperature
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= 100:
            raise ValueError(f"temperature={given!r} is not allowed: give a number from 0 to 100")
        self._temperature = float(given)
        self._rng = np.random.default_rng(0)

    def start(self, seed: int) -> None:
        """Seed the draws."""
        self._rng = np.random.default_rng(seed)

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        """Return the folder of the model."""
        del options
        return [Path(self.model.folder)]

    def check(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raise ValueError where the model was trained for another game or under other options."""
        facts = self.model.facts
        if facts["game"] != game.id:
            raise ValueError(f"model {self.model.folder!r} plays {facts['game']}, not {game.id}")
        learned = json.loads(json.dumps(game.check_options(facts["options"])))
        asked = json.loads(json.dumps(dict(options)))
        for name in asked:
            if learned.get(name) != asked[name]:
                raise ValueError(
                    f"model {self.model.folder!r} was trained with {name}={learned.get(name)!r}, but the game is "
                    f"played with {name}={asked[name]!r}"
                )

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return a legal action for every position."""
        return self.model.actions(turn, self._temperature, self._rng)
