"""Install what ships into clean environments: `python tests/check_install.py`.

Builds the source distribution and, from that, the wheel. Installs the wheel without any extra: the README's first
example must run from an empty folder, and whatever needs an extra must say the pip command that installs it. Then adds
the `cli` extra alone: the command line must work, and say the same for what needs more; then `render`, for what needs
`video`. At last the source distribution is installed in another environment, where the same example must run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the core may bring along; everything else would be a dependency that nobody decided on.
CORE = {
    "patience-env", "numpy", "gymnasium", "numba",
    "llvmlite", "cloudpickle", "farama-notifications", "typing-extensions", "pip", "setuptools",
}  # fmt: skip
NEEDED = (
    "patience_env/py.typed",
    "patience_env/seeds/deals/standard.json",
    "patience_env/seeds/rules/patience_poker.md",
    "patience_env/training/hyperparameters.yaml",
    "patience_env/agents/models/poker-fixed-american/model.json",
)

# Python code that needs an extra, and the pip command that its error must name.
EXTRAS = {
    "import patience_env.competition": 'pip install "patience-env[multiplayer]"',
    "import patience_env.sb3": 'pip install "patience-env[train]"',
    "import gymnasium, patience_env\n"
    "env = gymnasium.make('Sultan-v0', render_mode='rgb_array')\n"
    "env.reset(seed=1)\nenv.render()": 'pip install "patience-env[render]"',
    "import gymnasium, patience_env\n"
    "env = gymnasium.make('Sultan-v0', render_mode='human')\n"
    "env.reset(seed=1)": 'pip install "patience-env[render]"',
    "from patience_env.agents import make_policy\n"
    "make_policy('ppo', 'PatiencePoker-v0')": "pip install 'patience-env[train]'",
}
COMMANDS = {
    "train PatiencePoker-v0 --steps 64 --out run": "pip install 'patience-env[train]'",
    "train-value PatiencePoker-v0 --kind line --games 1 --out table": "pip install 'patience-env[train]'",
    "evaluate PatiencePoker-v0 --option placement=fixed --policy ppo --first 1": "pip install 'patience-env[train]'",
    "serve --port 0": "pip install 'patience-env[serve]'",
    "play PatiencePoker-v0 --option placement=fixed --hint ppo": "pip install 'patience-env[train]'",
    "render Sultan-v0 --policy greedy --deal 1 --out game.gif": 'pip install "patience-env[render]"',
    "render Sultan-v0 --policy greedy --deal 1 --out game.mp4": 'pip install "patience-env[render]"',
    "evaluate Sultan-v0 --policy greedy --first 1 --engine ray": "pip install 'patience-env[ray]'",
    "arrange --deal 7 --prove 1": "pip install 'patience-env[solve]'",
    "figures poker --deals 50 --search-deals 0 --out figures": "pip install 'patience-env[train]'",
}
WITH_RENDER = {
    "render Sultan-v0 --policy greedy --deal 1 --out game.mp4": 'pip install "patience-env[render,video]"',
}


FAILURES: list[str] = []


class Place:
    """A virtual environment, and an empty folder in which everything is run."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self.empty = folder / "empty"
        self.empty.mkdir()
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(self, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the empty folder."""
        first, *others = command
        return subprocess.run(
            [str(self.bin / first), *others],
            cwd=self.empty, env=self.variables, input=given, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip

    def install(self, what: str) -> None:
        """Install with the tested versions."""
        constraints = str(ROOT / "constraints.txt")
        done = self.run("python", "-m", "pip", "install", "--quiet", "--constraint", constraints, what)
        require(done.returncode == 0, f"pip install {what}", done)

    def packages(self) -> set[str]:
        """Return the names of what is installed."""
        listed = self.run("python", "-m", "pip", "list", "--format=freeze").stdout
        return {line.split("==")[0].split(" @ ")[0].lower().replace("_", "-") for line in listed.split("\n") if line}


def require(fact: bool, what: str, done: subprocess.CompletedProcess[str] | None = None) -> None:
    """Print what was checked; what failed is noted, so that all failures are told at once."""
    print(f"{'ok' if fact else 'FAILED'}: {what}", flush=True)
    if not fact:
        FAILURES.append(what)
        if done is not None:
            print(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}", flush=True)


def refuses(place: Place, command: Sequence[str], pip_command: str, what: str) -> None:
    """Check that a command fails with an error whose last line names the pip command."""
    done = place.run(*command)
    last = done.stderr.strip().split("\n")[-1]
    require(done.returncode != 0 and pip_command in last, f"{what} says {pip_command}", done)


def main() -> None:
    """Build, install, check."""
    readme = (ROOT / "README.md").read_text("utf-8")
    example = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]  # the wheel from the sdist
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = folder.glob("*.whl")
        (source,) = folder.glob("*.tar.gz")
        require(True, f"{source.name} and {wheel.name} are built")
        names = zipfile.ZipFile(wheel).namelist()
        tops = {path.split("/")[0] for path in names if ".dist-info/" not in path}
        require(tops == {"patience_env"}, f"the wheel installs {', '.join(sorted(tops))} alone")
        require(not set(NEEDED) - set(names), "the wheel holds rule sheets, deals, settings, the agent")

        place = Place(folder)
        place.install(str(wheel))
        more = place.packages() - CORE
        require(not more, f"no dependency beyond the core's{', but ' if more else ''}{', '.join(sorted(more))}")
        done = place.run("python", "-c", example)
        require(done.returncode == 0, "the README's first example runs from an empty folder", done)
        for code, pip_command in EXTRAS.items():
            refuses(place, ["python", "-c", code], pip_command, repr(code.split("\n")[-1]))
        refuses(place, ["patience", "list"], "pip install 'patience-env[cli]'", "patience")

        place.install(f"{wheel}[cli]")
        done = place.run("patience", "list")
        require(done.returncode == 0 and "PatiencePoker-v0" in done.stdout, "patience list", done)
        done = place.run("patience", "play", "Calculation-v0", "--deal", "1", given="1\nu\nh\nq\n")
        require(done.returncode == 0 and "thumb advises" in done.stdout, "patience play", done)
        picture = "render Sultan-v0 --policy greedy --deal 1 --out game.svg"
        done = place.run("patience", *picture.split())
        require(done.returncode == 0 and (place.empty / "game.svg").exists(), "patience render to SVG", done)
        for command, pip_command in COMMANDS.items():
            refuses(place, ["patience", *command.split()], pip_command, f"patience {command}")
        place.install(f"{wheel}[render]")
        for command, pip_command in WITH_RENDER.items():
            refuses(place, ["patience", *command.split()], pip_command, f"patience {command}")

        (folder / "source").mkdir()
        other = Place(folder / "source")
        other.install(str(source))
        done = other.run("python", "-c", example)
        require(
            done.returncode == 0, "the README's first example runs where the source distribution is installed", done
        )
    if FAILURES:
        sys.exit(f"{len(FAILURES)} checks failed")


if __name__ == "__main__":
    main()
