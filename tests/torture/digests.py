"""The same seed gives the same numbers: golden digests, in every way of running that there is.

A digest covers every action, reward, mask and observation of random play from deal numbers. `tests/data/digests.json`
holds those of 1,000 games of each id (`python tests/torture/digests.py --record` writes it); here they are made again
in processes of their own: twice, without compilation (of all games by `--full` only), with one thread and two, and by
other interpreters (name them by `--set pythons=PYTHON,PYTHON`; each needs numpy, numba and gymnasium only).
`--set ways=one,two,plain,networks,pythons,states` goes those ways alone and keeps the figures of the others; `--set
games=GAME,GAME` then plays those alone without compilation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from numpy.typing import NDArray

from patience_env import jit
from patience_env.env import PatienceEnv
from patience_env.game import game_ids, get_game, max_episode_steps
from patience_env.kernels import OVER, sample_rows
from patience_env.table import Rows
from torture.report import Budget, Section

NAME, TITLE, SHARE = "digests", "The same numbers everywhere", 0.22
GOLDEN = Path(__file__).resolve().parent.parent / "data" / "digests.json"
FIRST_DEAL, GAMES, FEW = 9_000_000, 1_000, 20
PLAYED = 12  # deals that each agent plays
AGENTS = ("random", "greedy", "thumb")
LEAST = 40.0  # seconds without which another process is not begun


def bits(deals: NDArray[np.uint64], step: int) -> NDArray[np.uint32]:
    """Return random bits for a step of each deal; of wrapping arithmetic alone, so that no library can change them."""
    with np.errstate(over="ignore"):
        mixed = deals * np.uint64(0x9E3779B97F4A7C15) + np.uint64(step + 1) * np.uint64(0xD1B54A32D192ED03)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(mixed >> np.uint64(32), np.uint32)


def play_digests(game_id: str, count: int, observation: str) -> list[bytes]:
    """Return the digest of random play of each of `count` deals."""
    game = get_game(game_id)
    rows = Rows(game, game.check_options({}), count, observation, False)
    deals = np.arange(FIRST_DEAL, FIRST_DEAL + count, dtype=np.uint64)
    rows.reset(rows.all_rows, deals)
    digests = [hashlib.sha256() for _ in range(count)]
    live = np.ones(count, np.bool_)
    actions = np.zeros(count, np.int64)
    for step in range(max_episode_steps(game_id) or 10**6):
        for row in np.flatnonzero(live):
            digests[row].update(rows.masks[row].tobytes() + rows.flat[row].tobytes())
        sample_rows(rows.masks, bits(deals, step), actions)
        rows.step(actions, ~live)
        for row in np.flatnonzero(live):
            digests[row].update(int(actions[row]).to_bytes(4, "big", signed=True) + rows.rewards[row].tobytes())
        live &= (rows.status & OVER) == 0
        if not live.any():
            break
    return [digest.digest() for digest in digests]


def joined(digests: list[bytes]) -> str:
    """Return the digest of digests."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def seed_digest(game_id: str) -> str:
    """Return the digest of what seeds give: deal numbers and sampled actions."""
    digest = hashlib.sha256()
    env = PatienceEnv(game_id)
    for number in range(FEW):
        env.reset(seed=number)
        for _ in range(3):
            digest.update(f"{env.deal} {env.sample()} ".encode())
            env.step(env.sample())
            _, info = env.reset()
            digest.update(f"{int(info['deal'])}\n".encode())
    return digest.hexdigest()


def agent_digest(game_id: str, name: str) -> str:
    """Return the digest of the returns of an agent on some deals."""
    from patience_env.training.evaluate import evaluate

    options = {"placement": "fixed"} if game_id == "PatiencePoker-v0" else {}
    deals = list(range(FIRST_DEAL, FIRST_DEAL + PLAYED))
    result = evaluate(name, game_id, deals, options=options, seed=3)
    return hashlib.sha256(np.asarray(result.returns, np.float64).tobytes()).hexdigest()


def measure(whole: bool, agents: bool, games: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Return all digests, of 1,000 games (`whole`) or the first 20; of all ids or those named."""
    found: dict[str, dict[str, str]] = {}
    for game_id in games or game_ids():
        cards = play_digests(game_id, GAMES if whole else FEW, "cards")
        found[game_id] = {
            "few": joined(cards[:FEW]),
            "planes": joined(play_digests(game_id, FEW, "planes")),
            "seeds": seed_digest(game_id),
        }
        if whole:
            found[game_id]["games"] = joined(cards)
        if agents:
            found[game_id] |= {f"agent {name}": agent_digest(game_id, name) for name in AGENTS}
    return found


def network_digest(threads: int) -> dict[str, dict[str, str]]:
    """Return the digest of the games of the agents that are networks, torch running with so many threads."""
    import torch

    torch.set_num_threads(threads)
    return {"PatiencePoker-v0": {f"agent {name}": agent_digest("PatiencePoker-v0", name) for name in ("ppo", "value")}}


def installed_tree() -> Path:
    """Return a folder with the package as it would be installed, for interpreters that do not have it.

    It is the same one for the same sources: Numba's cache tells files apart by where they lie too.
    """
    import patience_env
    import patience_env.agents
    import patience_env.seeds
    import patience_env.training

    folder = Path(tempfile.gettempdir()) / f"patience-torture-{jit.source_hash()}"
    if folder.is_dir():
        return folder
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    target = made / "patience_env"
    ignored = shutil.ignore_patterns("__pycache__", "agents", "training", "seeds")
    shutil.copytree(Path(patience_env.__file__).parent, target, ignore=ignored)
    for part in (patience_env.agents, patience_env.training, patience_env.seeds):
        source = Path(next(iter(part.__path__)))
        shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    made.chmod(0o755)
    made.rename(folder)
    return folder


def ask(python: str, tree: Path | None, words: list[str], seconds: float | None, **variables: str) -> dict[str, Any]:
    """Let another process make the digests, with the package of `tree` or this one's; return them, or an error.

    After `seconds` it is ended, and TimeoutExpired is raised.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    done = subprocess.run(
        [python, "-P" if _knows_safe_path(python) else "-s", str(Path(__file__).resolve()), *words],
        capture_output=True, text=True, env=environment, timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr[-600:]}
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _knows_safe_path(python: str) -> bool:
    code = "import sys; print(sys.version_info >= (3, 11))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip() == "True"


def differences(found: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """Say where digests differ from the golden ones."""
    if "error" in found:
        return [found["error"]]
    return [
        f"{game_id} {kind}"
        for game_id, kinds in found.items()
        for kind, digest in kinds.items()
        if golden[game_id].get(kind) != digest
    ]


STATES = """
import hashlib, json, random, sys
import numpy as np
try:
    import torch
except ImportError:
    torch = None
from patience_env.agents.policy import policy_names
from patience_env.env import PatienceEnv
from patience_env.game import game_ids
from patience_env.training.evaluate import evaluate
from patience_env.training.leaderboard import SLOW, WITH_PATH
from patience_env.vector import PatienceVectorEnv
def states():
    found = [random.getstate(), [str(part) for part in np.random.get_state()]]
    return repr(found) + (str(torch.get_rng_state().tolist()) if torch else "")
few, played, touched = int(sys.argv[1]), 0, []
slow = (*SLOW, *WITH_PATH)
for game_id in game_ids():
    before = states()
    env = PatienceEnv(game_id)
    env.reset(seed=1)
    for _ in range(20):
        if not env.action_masks().any():
            break
        env.step(env.sample())
    env.clone().determinize(1)
    if states() != before:
        touched.append(game_id + " environment")
    batch = PatienceVectorEnv(game_id, 3)
    batch.reset(seed=1)
    for _ in range(20):
        batch.step(batch.sample(np.random.default_rng(0)))
    if states() != before:
        touched.append(game_id + " batch")
    options = {"placement": "fixed"} if game_id == "PatiencePoker-v0" else {}
    for name in policy_names(game_id):
        if name in slow:
            continue
        before = states()
        try:
            evaluate(name, game_id, list(range(5_000_000, 5_000_000 + few)), options=options)
        except (TypeError, ImportError):
            continue  # it needs an argument, or an extra that is not installed
        played += 1
        if states() != before:
            touched.append(game_id + " " + name)
print(json.dumps({"played": played, "touched": touched}))
"""


@dataclass(frozen=True)
class Way:
    """A way of running that must not change the numbers.

    Attributes:
        name: by which `--set ways=NAME` chooses it.
        what: as the page tells it.
        game: the only game that is played, "" for all.
        words, variables: for the process that makes the digests.
        python: the interpreter, where it is another.
    """

    name: str
    what: str
    game: str = ""
    words: tuple[str, ...] = ("--whole", "--agents")
    variables: dict[str, str] = field(default_factory=dict)
    python: str = ""


def ways_of(budget: Budget) -> list[Way]:
    """Return the ways in the order of the page."""
    plain = {"NUMBA_DISABLE_JIT": "1"}
    found = [
        Way("one", "a process with one thread", variables=_threads(1)),
        Way("two", "another process, with two threads", variables={**_threads(2), "PYTHONHASHSEED": "7"}),
    ]
    if budget.full:
        games = budget.extra.get("games", "").split(",")
        what = f"without compilation, {GAMES:,} games an id"
        found += [
            Way("plain", what, game_id, ("--whole", "--games", game_id), plain)
            for game_id in game_ids()
            if games == [""] or game_id in games
        ]
    else:
        found.append(Way("plain", f"without compilation, {FEW} games an id", words=(), variables=plain))
    for count in (1, 2):
        found.append(Way("networks", f"networks, torch with {count} threads", words=("--networks", str(count))))
    pythons = [python for python in budget.extra.get("pythons", "").split(",") if python]
    return [*found, *(Way("pythons", versions_of(python), words=("--whole",), python=python) for python in pythons)]


def versions_of(python: str) -> str:
    """Return the versions of an interpreter and what it has installed."""
    code = (
        "import sys, numpy, numba, gymnasium; print(sys.version.split()[0], numpy.__version__, "
        "numba.__version__, gymnasium.__version__)"
    )
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.split()
    return "Python {}, numpy {}, numba {}, gymnasium {}".format(*told) if len(told) == 4 else "another Python"


def run(budget: Budget) -> Section:
    """Make the digests in every way and compare them with the golden ones."""
    section = Section(NAME, TITLE)
    golden = json.loads(GOLDEN.read_text("utf-8"))["games"]
    if budget.short:
        found = measure(False, jit.JIT)
        section.check(
            "digests of 20 games an id that differ from the golden ones, in this process",
            _told(found, golden),
            not differences(found, golden),
        )
        section.check(*_states(budget, None))
        return section
    chosen = [name for name in budget.extra.get("ways", "").split(",") if name]
    if chosen:
        section.data = dict(budget.previous)
        section.parts = dict.fromkeys(section.data, False)
    late = []
    for way in ways_of(budget):
        if chosen and way.name not in chosen:
            continue
        try:
            if budget.left() < LEAST:
                raise subprocess.TimeoutExpired(way.what, 0)
            tree = installed_tree() if way.python else None
            found = ask(way.python or sys.executable, tree, list(way.words), _timeout(budget), **way.variables)
        except subprocess.TimeoutExpired:
            late.append(way.what)
            continue
        part = f"{way.what}: {way.game}" if way.game else way.what
        wrong = differences(found, golden)
        count = sum(len(kinds) for kinds in found.values()) if "error" not in found else 0
        section.data[part] = {"what": way.what, "game": way.game, "count": count, "wrong": wrong}
        section.parts[part] = True
        print(f"  {part}: {len(wrong)} of {count} differ", flush=True)
    if not chosen or "states" in chosen:
        try:
            if budget.left() < LEAST:
                raise subprocess.TimeoutExpired("states", 0)
            section.data["states"] = {"line": _states(budget, _timeout(budget))}
            section.parts["states"] = True
        except subprocess.TimeoutExpired:
            late.append("the global random states")
    for what in dict.fromkeys(part.get("what", "") for part in section.data.values()):
        if not what:
            section.check(*section.data["states"]["line"])
            continue
        parts = [part for part in section.data.values() if part.get("what") == what]
        games = f" ({len(parts)} of {len(game_ids())} ids)" if parts[0]["game"] else ""
        wrong = [name for part in parts for name in part["wrong"]]
        told = f"{len(wrong)} of {sum(part['count'] for part in parts)}" + (
            f": {'; '.join(wrong)[:400]}" if wrong else ""
        )
        section.check(f"digests that differ from the golden ones: {what}{games}", told, not wrong)
    # Without compilation, 1,000 games of an id are worth as much as all ids otherwise.
    section.amount = 0.1 * len(section.data)
    if late:
        section.note(f"No time was left for: {'; '.join(late)}.")
    if "pythons" not in budget.extra and not any(what.startswith("Python ") for what in section.data):
        section.note("Other interpreters were not named (`--set pythons=PYTHON,PYTHON`).")
    return section


def _timeout(budget: Budget) -> float | None:
    return budget.left() if budget.bounded else None


def _states(budget: Budget, seconds: float | None) -> list[Any]:
    """Return the line about the global random states."""
    done = subprocess.run([sys.executable, "-c", STATES, "1" if budget.short else "3"], capture_output=True, text=True,
                          cwd=budget.folder, check=False, timeout=seconds)  # fmt: skip
    told = json.loads(done.stdout) if done.returncode == 0 else {"played": 0, "touched": [done.stderr[-500:]]}
    return [
        "environments and agents that touch the global states of random, numpy.random or torch",
        f"{', '.join(told['touched']) or 'none'} ({len(game_ids())} games, {told['played']} agents)",
        not told["touched"] and told["played"] > 0,
    ]


def _threads(count: int) -> dict[str, str]:
    names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(count))


def _told(found: dict[str, Any], golden: dict[str, Any]) -> str:
    wrong = differences(found, golden)
    count = 0 if "error" in found else sum(len(kinds) for kinds in found.values())
    return f"{len(wrong)} of {count}" + (f": {'; '.join(wrong)[:400]}" if wrong else "")


def main() -> None:
    """Print the digests as JSON, or record them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="1,000 games of each id, not 20")
    parser.add_argument("--games", default="", help="these ids alone, separated by commas")
    parser.add_argument("--agents", action="store_true", help="agents too")
    parser.add_argument("--networks", type=int, default=0, help="the networks alone, torch with so many threads")
    parser.add_argument("--record", action="store_true", help="write tests/data/digests.json")
    given = parser.parse_args()
    if given.record:
        found = measure(True, True)
        for game_id, kinds in network_digest(1).items():
            found[game_id] |= kinds
        facts = {"first_deal": FIRST_DEAL, "count": GAMES, "few": FEW, "games": found}
        GOLDEN.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    elif given.networks:
        print(json.dumps(network_digest(given.networks)))
    else:
        print(json.dumps(measure(given.whole, given.agents, [name for name in given.games.split(",") if name])))


if __name__ == "__main__":
    main()
