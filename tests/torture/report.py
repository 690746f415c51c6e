"""What the sections are given and what they give back, and the page made of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


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
    again: list[str] = field(default_factory=list)

    def check(self, what: str, found: object, held: bool) -> None:
        """Add a line and print it."""
        line = Line(what, str(found), bool(held))
        self.lines.append(line)
        print(f"  [{'held' if line.held else 'BROKEN'}] {line.what}: {line.found}", flush=True)

    def note(self, text: str) -> None:
        """Add a note and print it."""
        self.notes.append(text)
        print(f"  note: {text}", flush=True)

    @property
    def held(self) -> bool:
        """Whether every line held."""
        return all(line.held for line in self.lines)


def read_sections(path: Path) -> dict[str, Section]:
    """Return the sections of an earlier run's JSON, or none."""
    if not path.is_file():
        return {}
    found = json.loads(path.read_text("utf-8"))["sections"]
    return {
        name: Section(**{**facts, "lines": [Line(**line) for line in facts["lines"]]}) for name, facts in found.items()
    }


def settle(known: Section | None, fresh: Section) -> Section:
    """Return what the page shall tell: the fresh section, or one of an earlier and longer run that is still true."""
    if known is None or known.version != fresh.version or not (known.held and fresh.held):
        return fresh
    if known.amount <= fresh.amount:
        return fresh
    told = f"`{fresh.command}` ({fresh.when.split(', Python')[0]}; {fresh.seconds:.0f} s)"
    return replace(known, again=[*(one for one in known.again if not one.startswith(f"`{fresh.command}` ")), told])


def as_json(sections: Mapping[str, Section]) -> str:
    """Return the sections as JSON."""
    facts: dict[str, Any] = {name: asdict(section) for name, section in sections.items()}
    return json.dumps({"sections": facts}, indent=1) + "\n"


def table(rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a Markdown table."""
    head, *body = [list(row) for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def as_markdown(sections: Iterable[Section], missing: Iterable[str] = ()) -> str:
    """Return the page; `missing` names the sections that have not been run."""
    out = [
        "# Reliability",
        "",
        "What `make torture` found. The program (`tests/torture/run.py`) wrote this page: each section names the",
        "command that made its figures, and a line that did not hold says so. Where a longer run of the same version",
        "is known, its figures stay, and the shorter runs in which every line held again are named below them.",
        "Continuous integration runs the short form of every section (`tests/torture/test_torture.py`).",
    ]
    for section in sections:
        out += ["", f"## {section.title}", "", f"`{section.command}` ({section.when}; {section.seconds:.0f} s)", ""]
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
