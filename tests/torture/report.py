"""What the sections are given and what they give back, and the page made of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


class TimeUpError(BaseException):
    """The time of a section is over: it is to tell at once what it has."""


JOURNAL: list[Path] = []  # the file, if any, into which what a section finds is written at once


@dataclass
class Budget:
    """What a section may spend.

    Attributes:
        seconds: roughly how long it may take in all.
        folder: an empty folder of its own.
        short: True for the form that continuous integration runs: every kind of check once, little of each.
        full: True to do the whole amount that the section names, however long it takes.
        seed: of whatever is random.
        extra: further settings of single sections (`--set name=value`).
        previous: the `data` of the section's last run.
    """

    seconds: float
    folder: Path
    short: bool = False
    full: bool = False
    seed: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)
    previous: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds that are left; without end where the whole amount is asked for."""
        return float("inf") if self.full else self.seconds - (time.monotonic() - self.began)

    @property
    def bounded(self) -> bool:
        """Whether the time decides how much is done."""
        return not (self.short or self.full)


@dataclass
class Line:
    """One line of the page: what must hold, what was found, and whether it held."""

    what: str
    found: str
    held: bool


@dataclass
class Section:
    """The outcome of a section.

    Attributes:
        name, title: as in its module.
        lines: what was checked.
        tables: Markdown tables of figures, each a list of rows, the first the head.
        notes: what was not reached, or left out and why.
        data: figures that a later run of a part of the section needs.
        amount: how much of the whole was done, 0 to 1 (more where more than that was tried).
        version: of the package.
        command, when, seconds: how the figures were made.
        parts: the parts that can be run one by one (games, commands), and whether each was run now or is an earlier
            run's.
        made: command, when and seconds of each part's run.
        again: shorter runs of the same version, made since, in which every line held too.
    """

    name: str
    title: str
    lines: list[Line] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    command: str = ""
    when: str = ""
    version: str = ""
    amount: float = 0.0
    parts: dict[str, bool] = field(default_factory=dict)
    made: dict[str, list[Any]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)

    def check(self, what: str, found: object, held: bool) -> None:
        """Add a line and print it."""
        line = Line(what, str(found), bool(held))
        self.lines.append(line)
        _write_down(line=asdict(line))
        print(f"  [{'held' if line.held else 'BROKEN'}] {line.what}: {line.found}", flush=True)

    def note(self, text: str) -> None:
        """Add a note and print it."""
        self.notes.append(text)
        _write_down(note=text)
        print(f"  note: {text}", flush=True)

    @property
    def held(self) -> bool:
        """Whether every line held."""
        return all(line.held for line in self.lines)

    def sign(self, command: str, when: str, version: str, known: Section | None) -> None:
        """Say how the figures were made; those of parts that were not run now come from `known`."""
        self.command, self.when, self.version = command, when, version
        for part, now in self.parts.items():
            if now or known is None:
                self.made[part] = [command, when, self.seconds]
            else:
                self.made[part] = known.made.get(part) or [known.command, known.when, known.seconds]

    def origin(self) -> list[str]:
        """Return the lines of the page that tell which commands made the figures."""
        runs: dict[str, dict[str, float]] = {}
        for command, when, seconds in self.made.values() or [[self.command, self.when, self.seconds]]:
            runs.setdefault(when, {})[command] = seconds
        told = [
            f"{', '.join(f'`{command}`' for command in commands)} ({when}; {sum(commands.values()):.0f} s)"
            for when, commands in runs.items()
        ]
        return told if len(told) == 1 else [f"* {one}" for one in told]


def _write_down(**found: Any) -> None:
    for path in JOURNAL:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def from_journal(path: Path, name: str, title: str) -> Section:
    """Return what a section had found until it was ended."""
    section = Section(name, title)
    for text in path.read_text("utf-8").splitlines() if path.is_file() else []:
        found = json.loads(text)
        if "line" in found:
            section.lines.append(Line(**found["line"]))
        else:
            section.notes.append(found["note"])
    return section


def read_sections(path: Path) -> dict[str, Section]:
    """Return the sections of an earlier run's JSON, or none."""
    if not path.is_file():
        return {}
    found = json.loads(path.read_text("utf-8"))["sections"]
    return {name: read_section(facts) for name, facts in found.items()}


def read_whole(path: Path) -> str:
    """Return what an earlier JSON tells of the last run of all sections."""
    return str(json.loads(path.read_text("utf-8")).get("whole", "")) if path.is_file() else ""


def read_section(facts: dict[str, Any]) -> Section:
    """Return a section from JSON."""
    return Section(**{**facts, "lines": [Line(**line) for line in facts["lines"]]})


def settle(known: Section | None, fresh: Section) -> Section:
    """Return what the page shall tell: the fresh section, or one of an earlier and longer run that is still true."""
    if known is None or known.version != fresh.version or not (known.held and fresh.held):
        return fresh
    if known.amount <= fresh.amount:
        return fresh
    told = f"`{fresh.command}` ({fresh.when.split(', Python')[0]}; {fresh.seconds:.0f} s)"
    return replace(known, again=[*(one for one in known.again if not one.startswith(f"`{fresh.command}` ")), told])


def as_json(sections: Mapping[str, Section], whole: str = "") -> str:
    """Return the sections as JSON, and what is to be told of the last run of all of them."""
    facts: dict[str, Any] = {name: asdict(section) for name, section in sections.items()}
    return json.dumps({"whole": whole, "sections": facts}, indent=1) + "\n"


def table(rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a Markdown table."""
    head, *body = [list(row) for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def as_markdown(sections: Iterable[Section], missing: Iterable[str] = (), whole: str = "") -> str:
    """Return the page; `missing` names the sections that have not been run, `whole` tells of a run of all."""
    out = [
        "# Reliability",
        "",
        "What `make torture` found. The program (`tests/torture/run.py`) wrote this page: each section names the",
        "command that made its figures, and a line that did not hold says so. Where a longer run of the same version",
        "is known, its figures stay, and the shorter runs in which every line held again are named below them.",
        "Continuous integration runs the short form of every section (`tests/torture/test_torture.py`).",
    ]
    if whole:
        out += ["", whole]
    for section in sections:
        out += ["", f"## {section.title}", "", *section.origin(), ""]
        rows = [["what must hold", "found", "held"]]
        rows += [[line.what, line.found, "yes" if line.held else "**NO**"] for line in section.lines]
        out += table(rows)
        for figures in section.tables:
            out += ["", *table(figures)]
        out += [line for note in section.notes for line in ("", note)]
        if section.again:
            out += ["", f"Every line held again: {'; '.join(section.again)}."]
    if names := ", ".join(missing):
        out += ["", f"Sections without figures here, as they have not been run for this page: {names}."]
    return "\n".join(out) + "\n"
