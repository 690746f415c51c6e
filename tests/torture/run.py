"""Try whether anything breaks, and write docs/reliability.md.

python tests/torture/run.py [--minutes 20] [--short] [--only steps,fuzz] [--full] [--set name=value]

Without `--only` all sections share the time; what did not fit is told with the number that was reached. `--full` does
the whole amount of the sections that `--only` names, however long it takes. The figures of sections that do not run
now are kept from the JSON beside the page. So are those of a longer run of the same version in which every line held,
if every line of this shorter one held too, which the page then names below them; a line that does not hold now is told
in any case.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from patience_env import __version__, jit
from torture.report import (
    JOURNAL,
    Budget,
    Section,
    TimeUpError,
    as_json,
    as_markdown,
    from_journal,
    read_section,
    read_sections,
    read_whole,
    settle,
)

ROOT = Path(__file__).resolve().parent.parent.parent
SECTIONS = ("steps", "fuzz", "processes", "kills", "files", "server", "digests", "simplex")
# What takes its time whatever there is comes first, what can use any time last: so that all of it ends in time.
ORDER = ("files", "processes", "server", "digests", "kills", "simplex", "fuzz", "steps")
LEAST = 20.0  # seconds without which a section is not begun
OVER = 2.0  # seconds by which a section may miss its time before it is told to end
GRACE = 5.0  # seconds that it then has to tell what it found
RESERVE = 15.0  # seconds of the whole time that no section is given


def run_section(name: str, budget: Budget) -> Section:
    """Run a section; what it did not foresee is a line that did not hold."""
    module = import_module(f"torture.{name}")
    print(f"{module.TITLE}{f' ({budget.seconds:.0f} s)' if budget.bounded else ''}", flush=True)
    began = time.monotonic()
    if budget.bounded and budget.seconds < LEAST:
        section = Section(name, module.TITLE)
        section.note("The sections before it left no time.")
        return section
    section = (run_bounded if budget.bounded else run_module)(module, budget)
    section.seconds = round(time.monotonic() - began, 1)
    return section


def run_module(module: ModuleType, budget: Budget) -> Section:
    """Run a section in this process."""
    try:
        section: Section = module.run(budget)
    except Exception as error:
        section = Section(module.NAME, module.TITLE)
        section.check("the section runs to its end", f"{type(error).__name__}: {error}", False)
    return section


def run_bounded(module: ModuleType, budget: Budget) -> Section:
    """Run a section in a process that is ended, with all that it started, when its time is over."""
    done, journal = budget.folder.with_suffix(".json"), budget.folder.with_suffix(".journal")
    child = os.fork()
    if child == 0:
        _work(module, budget, done, journal)
    end = budget.began + budget.seconds + OVER
    for sign, until in ((signal.SIGTERM, end), (signal.SIGKILL, end + GRACE)):
        while time.monotonic() < until and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.1)
        # Also what a section that came to its end has left running.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, sign)
    os.waitpid(child, 0)
    _unmount(budget.folder)
    if done.is_file():
        return read_section(json.loads(done.read_text("utf-8")))
    section = from_journal(journal, module.NAME, module.TITLE)
    if time.monotonic() < end:
        section.check("the section runs to its end", "its process died", False)
    else:
        section.note("Its time was over before it came to its end.")
    return section


def _work(module: ModuleType, budget: Budget, done: Path, journal: Path) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TimeUpError

    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, stop)
        JOURNAL[:] = [journal]
        section = run_module(module, budget)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        part = done.with_suffix(".part")
        part.write_text(json.dumps(asdict(section)), "utf-8")
        part.rename(done)
        code = 0
    finally:
        os._exit(code)


def _unmount(folder: Path) -> None:
    """Give back the small disks that a section which was ended has left."""
    mounts = Path("/proc/mounts")
    for line in mounts.read_text("utf-8").splitlines() if mounts.is_file() else []:
        place = line.split(" ")[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False)


def machine() -> str:
    """Return in a few words what the figures were made on."""
    import gymnasium
    import numba
    import numpy

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = f"numpy {numpy.__version__}, numba {numba.__version__}, gymnasium {gymnasium.__version__}"
    sources = f"sources {jit.source_hash(core=True)[:8]}"
    made = f"patience-env {__version__}, {sources}, {time.strftime('%Y-%m-%d')}, Python {platform.python_version()}"
    return f"{made}, {versions}, {cores} {'core' if cores == 1 else 'cores'}"


def shown(value: str) -> str:
    """Return a setting as the page tells it: of files only the names, for the folders are this machine's alone."""
    parts = (Path(part).name if os.path.isabs(part) else part for part in value.split(","))
    return shlex.quote(",".join(parts))


def main() -> int:
    """Run the sections and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all sections together")
    parser.add_argument("--short", action="store_true", help="little of everything, as continuous integration does")
    parser.add_argument("--full", action="store_true", help="the whole amount, however long it takes")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of a section")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--json", type=Path, default=None, help="the figures as JSON [default: beside the page]")
    given = parser.parse_args()
    asked = given.only.split(",")
    for name in asked:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}: the sections are {', '.join(SECTIONS)}")
    names = [name for name in ORDER if name in asked]
    extra = dict(pair.partition("=")[::2] for pair in given.set)
    record = given.json or given.out.with_suffix(".json")
    sections, whole = read_sections(record), read_whole(record)
    shares = {name: import_module(f"torture.{name}").SHARE for name in names}
    began = time.monotonic()
    end = began + 60 * given.minutes - RESERVE
    command = "python tests/torture/run.py"
    command += "" if len(names) == len(SECTIONS) else f" --only {given.only}"
    command += " --full" if given.full else " --short" if given.short else f" --minutes {given.minutes:g}"
    command += "".join(f" --set {name}={shown(value)}" for name, value in extra.items())
    when = machine()  # now: sources may change while it runs
    broken: list[str] = []
    for number, name in enumerate(names):
        # What a quick section leaves is shared by those to come.
        seconds = (end - time.monotonic()) * shares[name] / sum(shares[one] for one in names[number:])
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            folder = Path(place) / "work"
            folder.mkdir()
            known = sections.get(name)
            data = known.data if known and known.version == __version__ else {}
            budget = Budget(max(seconds, 1.0), folder, given.short, given.full, given.seed, extra, data)
            section = run_section(name, budget)
        section.sign(command, when, __version__, known)
        broken += [] if section.held else [name]
        sections[name] = settle(known, section)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        if not extra and len(names) == len(SECTIONS) and number == len(names) - 1:
            whole = f"All sections in one run: `{command}` ({when}) took {time.monotonic() - began:.0f} s"
            whole += f", and {'every line held' if not broken else 'not every line held'}."
        record.write_text(as_json(sections, whole), "utf-8")
        told = [sections[one] for one in SECTIONS if one in sections]
        missing = [one for one in SECTIONS if one not in sections]
        given.out.write_text(as_markdown(told, missing, whole), "utf-8")
    print(f"{given.out}: {'everything held' if not broken else 'broken: ' + ', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
