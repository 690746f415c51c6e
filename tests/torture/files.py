"""Models and results from strangers: nothing that is loaded runs code, and what is not right is refused at once.

Every loader gets every kind of harm in a process of its own, which tells how long the refusal took and by how much the
process grew at its peak.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from torture.report import Budget, Section

NAME, TITLE, SHARE = "files", "Files from strangers", 0.25
MOST_SECONDS, MOST_BYTES = 1.0, 64 * 2**20
HUGE = 6 * 2**30


# -- what is harmed ------------------------------------------------------------------------------------------------


def _network(folder: Path) -> None:
    from patience_env.agents.line_table import MODELS

    shutil.copytree(MODELS / "poker-fixed-american", folder)


def _value(folder: Path) -> None:
    from patience_env.agents.line_table import MODELS

    shutil.copytree(MODELS / "value-fixed-american", folder)


def _line(folder: Path) -> None:
    from patience_env.agents.line_table import MODELS

    shutil.copytree(MODELS / "line-fixed-american", folder)


def _curve(folder: Path) -> None:
    folder.mkdir()
    points = [{"steps": 100 * i, "seconds": 1.0 * i, "mean": 5.0, "stderr": 1.0} for i in range(30)]
    (folder / "curve.json").write_text(json.dumps(points), "utf-8")


def _saved_game(folder: Path) -> None:
    from patience_env.training.play import Session, save_game

    folder.mkdir()
    session = Session("Calculation-v0", {}, 7, [])
    save_game(session, folder / "game.json")


def _shares() -> Any:
    from patience_env.agents.policy import make_policy
    from patience_env.game import get_game
    from patience_env.training.evaluate import shares_of

    options = get_game("Calculation-v0").check_options({})
    policy = make_policy("random", "Calculation-v0")
    return shares_of("random", policy, "Calculation-v0", options, np.arange(40, dtype=np.uint64), 0)[0]


def _played_share(folder: Path) -> None:
    from patience_env.training.leaderboard import Cache
    from patience_env.training.shares import Played

    made = folder.with_name(f"{folder.name} made")
    Cache(made).write(_shares(), Played(np.ones(40), np.full(40, 9), np.zeros(40, np.bool_), 1.0))
    folder.mkdir()
    for path in made.rglob("*.npz"):
        shutil.copy(path, folder / path.name)
    shutil.rmtree(made)


def _load_share(folder: Path) -> Any:
    from patience_env.training.leaderboard import Cache

    cache = Cache(folder.parent / f"{folder.name} read")
    target = cache._file(_shares())
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.npz"):
        os.replace(path, target)
    held = cache.read(_shares())
    if held is None:
        raise ValueError("it counts as not played")
    return held


def _load_network(folder: Path) -> Any:
    from patience_env.training.models import load_policy

    return load_policy(folder)


def _load_value(folder: Path) -> Any:
    from patience_env.agents.board_values import load_net

    return load_net(folder)


def _load_line(folder: Path) -> Any:
    from patience_env.agents.line_table import load_table

    return load_table(folder)


def _load_curve(folder: Path) -> Any:
    from patience_env.training.curve import read_curve

    return read_curve(folder)


def _load_game(folder: Path) -> Any:
    from patience_env.training.play import load_game

    return load_game(folder / "game.json")


LOADERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "network": (_network, _load_network),
    "value model": (_value, _load_value),
    "line model": (_line, _load_line),
    "learning curve": (_curve, _load_curve),
    "saved game": (_saved_game, _load_game),
    "played share of a leaderboard": (_played_share, _load_share),
}


# -- how -----------------------------------------------------------------------------------------------------------


def _files(folder: Path) -> dict[str, Path]:
    return {path.suffix: path for path in folder.iterdir()}


def _reseal(folder: Path, **changes: Any) -> None:
    """Change facts and seal them again, as a stranger can."""
    from patience_env.training.models import _seal

    path = _files(folder)[".json"]
    facts = {**json.loads(path.read_text("utf-8")), **changes}
    facts["seal"] = _seal(facts)
    path.write_text(json.dumps(facts), "utf-8")


def _tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change tensors and seal the pair again."""
    import hashlib

    from safetensors.numpy import load, save

    path = _files(folder)[".safetensors"]
    tensors = {name: np.array(array) for name, array in load(path.read_bytes()).items()}
    change(tensors)
    content = save(tensors)
    path.write_bytes(content)
    _reseal(folder, sha256=hashlib.sha256(content).hexdigest())


def _cut(suffix: str, share: float) -> Callable[[Path, np.random.Generator], None]:
    def harm(folder: Path, rng: np.random.Generator) -> None:
        del rng
        path = _files(folder)[suffix]
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    return harm


def _flip(suffix: str) -> Callable[[Path, np.random.Generator], None]:
    def harm(folder: Path, rng: np.random.Generator) -> None:
        path = _files(folder)[suffix]
        content = bytearray(path.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)

    return harm


def _swell(suffix: str) -> Callable[[Path, np.random.Generator], None]:
    def harm(folder: Path, rng: np.random.Generator) -> None:
        del rng
        os.truncate(_files(folder)[suffix], HUGE)  # a hole: it takes no room on the disk

    return harm


def _hole(folder: Path, rng: np.random.Generator) -> None:
    """A tensor file of 6 GiB with a head that fits it, under a right seal."""
    del rng
    head = json.dumps({"b1": {"dtype": "F32", "shape": [HUGE // 4], "data_offsets": [0, HUGE]}}).encode()
    path = _files(folder)[".safetensors"]
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    os.truncate(path, 8 + len(head) + HUGE)
    _reseal(folder)


def _long_head(folder: Path, rng: np.random.Generator) -> None:
    del rng
    path = _files(folder)[".safetensors"]
    path.write_bytes((2**40).to_bytes(8, "little") + b"{")
    import hashlib

    _reseal(folder, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _wide(folder: Path, rng: np.random.Generator) -> None:
    del rng
    _reseal(folder, network="mlp", network_options={"width": 4096})


def _wrong_shape(folder: Path, rng: np.random.Generator) -> None:
    def change(tensors: dict[str, Any]) -> None:
        name = sorted(tensors)[int(rng.integers(len(tensors)))]
        tensors[name] = np.zeros((3, *tensors[name].shape), tensors[name].dtype)

    _tensors(folder, change)


def _wrong_kind(folder: Path, rng: np.random.Generator) -> None:
    def change(tensors: dict[str, Any]) -> None:
        name = sorted(tensors)[int(rng.integers(len(tensors)))]
        tensors[name] = np.full(tensors[name].shape, np.nan, np.float32)

    _tensors(folder, change)


def _deep(folder: Path, rng: np.random.Generator) -> None:
    del rng
    _files(folder)[".json"].write_bytes(b"[" * 5_000_000)


def _digits(folder: Path, rng: np.random.Generator) -> None:
    del rng
    _files(folder)[".json"].write_bytes(b'{"format": ' + b"9" * 1_000_000 + b"}")


def _pickled(folder: Path, rng: np.random.Generator) -> None:
    """A pickle that would make a file, in place of everything."""
    del rng
    code = b"cos\nmkdir\n(S'" + str(folder / "owned").encode() + b"'\ntR."
    for path in _files(folder).values():
        path.write_bytes(code)


def _gone(suffix: str) -> Callable[[Path, np.random.Generator], None]:
    def harm(folder: Path, rng: np.random.Generator) -> None:
        del rng
        _files(folder)[suffix].unlink()

    return harm


def _elsewhere(folder: Path, rng: np.random.Generator) -> None:
    del rng
    _reseal(folder, tensors="../../../etc/passwd")


JSON_HARMS: dict[str, Callable[[Path, np.random.Generator], None]] = {
    "JSON cut in half": _cut(".json", 0.5),
    "JSON empty": _cut(".json", 0.0),
    "JSON of 6 GiB": _swell(".json"),
    "JSON nested five million deep": _deep,
    "JSON with a number of a million digits": _digits,
    "JSON missing": _gone(".json"),
    "a pickle": _pickled,
}
PAIR_HARMS: dict[str, Callable[[Path, np.random.Generator], None]] = {
    "a bit of the JSON flipped": _flip(".json"),
    "tensors cut in half": _cut(".safetensors", 0.5),
    "tensors empty": _cut(".safetensors", 0.0),
    "a bit of the tensors flipped": _flip(".safetensors"),
    "tensors swollen to 6 GiB": _swell(".safetensors"),
    "6 GiB of tensors under a right head": _hole,
    "a head of a terabyte": _long_head,
    "a tensor of another shape": _wrong_shape,
    "a tensor of NaN": _wrong_kind,
    "tensors missing": _gone(".safetensors"),
    "tensors named elsewhere": _elsewhere,
}


def _bomb(folder: Path, rng: np.random.Generator) -> None:
    """Compressed zeros that would fill 6 GiB."""
    del rng
    import zipfile

    path = _files(folder)[".npz"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for name in ("deals", "returns", "lengths", "won"):
            with made.open(f"{name}.npy", "w", force_zip64=True) as entry:
                head = {"descr": "<u8", "fortran_order": False, "shape": (HUGE // 8,)}
                np.lib.format.write_array_header_1_0(entry, head)  # type: ignore[arg-type]
                entry.write(bytes(2**20))


def _other_arrays(folder: Path, rng: np.random.Generator) -> None:
    del rng
    deals = np.arange(40, dtype=np.uint64)
    np.savez(_files(folder)[".npz"], deals=deals, returns=deals.astype("U8"), lengths=np.zeros((40, 3)),
             won=np.full(40, np.nan), seconds=np.zeros(4))  # fmt: skip


NPZ_HARMS: dict[str, Callable[[Path, np.random.Generator], None]] = {
    "cut in half": _cut(".npz", 0.5),
    "empty": _cut(".npz", 0.0),
    "a bit flipped": _flip(".npz"),
    "swollen to 6 GiB": _swell(".npz"),
    "a zip bomb": _bomb,
    "other arrays": _other_arrays,
    "a pickle": _pickled,
}
NETWORK_HARMS = {"a width of 4,096 under a right seal": _wide}


def refuse(load: Callable[[Path], Any], folder: Path) -> tuple[str, float, int]:
    """Load in a forked process; return the exception's name (or "taken"), CPU seconds and the growth at its peak."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        told: tuple[str, float, int] = ("killed", 0.0, 0)
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            began = time.process_time()
            try:
                load(folder)
                name = "taken"
            except BaseException as error:
                name = type(error).__name__ if str(error) else "without a word"
            seconds = time.process_time() - began
            grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            told = (name, seconds, grown)
        finally:
            os.write(write, json.dumps(told).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    name, seconds, grown = json.loads(content) if content else ("killed", 0.0, 0)
    return str(name), float(seconds), int(grown)


# -- the program ---------------------------------------------------------------------------------------------------

FORBIDDEN = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
# SB3 keeps pickles in its files: the policy `sb3` says so, and alone reads them. Engines send work to own workers.
EXCEPT = {"learned.py", "engines.py"}


def pickles() -> list[str]:
    """Return where the sources of the package import a module that runs what it loads, or load so."""
    import patience_env.agents
    import patience_env.training

    homes = {Path(patience_env.__file__).resolve().parent}
    homes |= {Path(next(iter(part.__path__))).resolve() for part in (patience_env.agents, patience_env.training)}
    found = []
    for path in sorted(path for home in homes for path in home.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").partition(".")[0]]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                called = f"{owner.id}.{node.func.attr}" if isinstance(owner, ast.Name) else ""
                unsafe = any(
                    key.arg == "allow_pickle" and not (isinstance(key.value, ast.Constant) and key.value.value is False)
                    for key in node.keywords
                )
                names = ["pickle"] if called == "torch.load" or unsafe else []
            if FORBIDDEN & set(names):
                found.append(f"{path.name}:{node.lineno}")
    return [place for place in found if place.partition(":")[0] not in EXCEPT]


def unpickled(folder: Path) -> list[str]:
    """Load everything as it should be, in a forked process; return what pickle was asked for."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        asked: list[str] = []
        hooked: list[bool] = []
        sys.addaudithook(
            lambda event, args: asked.append(str(args)) if hooked and event == "pickle.find_class" else None
        )
        try:
            for name, (make, load) in LOADERS.items():
                if name == "network" and not find_spec("sb3_contrib"):
                    continue
                for number in range(2):
                    # The first time Numba reads what it compiled, in a form of its own, from the user's cache.
                    make(folder / f"{name} {number}")
                    hooked[:] = [True] * number
                    load(folder / f"{name} {number}")
                    hooked.clear()
        except BaseException as error:
            asked.append(f"{type(error).__name__}: {error}")
        finally:
            os.write(write, json.dumps(asked).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told: list[str] = json.loads(pipe.read() or b'["killed"]')
    os.waitpid(child, 0)
    return told


def run(budget: Budget) -> Section:
    """Harm everything in every way."""
    section = Section(NAME, TITLE)
    if not find_spec("safetensors"):
        section.note("The extra 'train' is not installed: there is nothing to load.")
        return section
    rng = np.random.default_rng(budget.seed)
    section.check(
        "places of the package that load pickles, but for those of SB3, and work sent to workers", *_none(pickles())
    )
    section.check(
        "classes that pickle was asked for while all kinds of files were loaded", *_none(unpickled(budget.folder))
    )
    rows = [["what is loaded", "kinds of harm", "refused", "longest", "largest growth"]]
    for name, (make, load) in LOADERS.items():
        if name == "network" and not find_spec("sb3_contrib"):
            continue
        harms = dict(JSON_HARMS if name != "played share of a leaderboard" else NPZ_HARMS)
        if name in ("network", "value model", "line model"):
            harms |= PAIR_HARMS
        if name == "network":
            harms |= NETWORK_HARMS
        if budget.short and name in ("value model", "line model"):
            # Loaded as a network is; each kind of harm once in all.
            harms = dict(list(harms.items())[name == "line model" :: 2])
        warm = budget.folder / f"warm {name}"
        make(warm)
        load(warm)  # so that imports do not count
        longest, largest, wrong, count = 0.0, 0, [], 0
        for harm_name, harm in harms.items():
            for turn in range(1 if budget.short or "flipped" not in harm_name else 20):
                if turn and budget.left() <= 0:
                    break
                with tempfile.TemporaryDirectory(dir=budget.folder) as place:
                    folder = Path(place) / "it"
                    make(folder)
                    harm(folder, rng)
                    told, seconds, grown = refuse(load, folder)
                    count += 1
                    longest, largest = max(longest, seconds), max(largest, grown)
                    if told != "ValueError" or (folder / "owned").exists():
                        wrong.append(f"{harm_name}: {told}")
                    if seconds > MOST_SECONDS or grown > MOST_BYTES:
                        wrong.append(f"{harm_name}: {seconds:.1f} s, {grown / 2**20:.0f} MiB")
        rows.append([name, str(count), str(count - len(wrong)), f"{longest:.2f} s", f"{largest / 2**20:.0f} MiB"])
        section.check(
            f"{name}: harmed files not refused by a ValueError within {MOST_SECONDS:g} s of CPU time and "
            f"{MOST_BYTES // 2**20} MiB, of {count}",
            f"{len(wrong)} {'; '.join(wrong)[:600]}",
            not wrong,
        )
    section.tables.append(rows)
    section.amount = 0.1 if budget.short else 1.0
    return section


def _none(found: list[str]) -> tuple[str, bool]:
    return ("none" if not found else "; ".join(found)[:500]), not found
