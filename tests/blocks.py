"""The code blocks of README and of the guides in docs/, as the tests run them.

Comments on the lines just before a block (which no reader of the page sees) tell the tests more:

* `<!-- needs: ray, torch -->`: packages without which the block is skipped;
* `<!-- test: --minutes 5 => --steps 640 -->`: what is replaced, so that the block takes little time;
* `<!-- file: my_policy.py -->`: the file that the page asks the reader to keep the block in.

A block of `text` that follows a block of `python` is what that block prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(
    r"(?P<comments>(?:^<!-- [^\n]* -->\n)*)^```(?:\{\.)?(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"^<!-- (needs|test|file): (.*) -->$", re.MULTILINE)
# Commands that set a machine up (`make demo` and `make check-install` show what they do), and a program that has a test
# of its own.
NOT_RUN = ("pip ", "make ", "tensorboard ", "python docs/masked_ppo.py")


@dataclass(frozen=True)
class Block:
    """A code block: where it stands, its language and text, and what its comments tell.

    Attributes:
        page, line: the file, relative to the repository, and the line of the block's first line of text.
        language: `python`, `sh`, `text` and so on.
        text: what it holds, with the replacements that its comments ask for.
        needs: packages that it needs.
        file: the name of the file that it is kept in, or None.
        output: what it should print, None where the page does not tell.
    """

    page: str
    line: int
    language: str
    text: str
    needs: tuple[str, ...] = ()
    file: str | None = None
    output: str | None = None

    @property
    def missing(self) -> list[str]:
        """The packages that it needs and that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def blocks_of(path: Path) -> list[Block]:
    """Return the code blocks of a Markdown page in their order."""
    page = path.read_text("utf-8")
    blocks: list[Block] = []
    end = 0
    for match in FENCE.finditer(page):
        told = COMMENT.findall(match["comments"])
        text = match["text"]
        for kind, change in told:
            if kind == "test":
                old, _, new = change.partition(" => ")
                if old not in text:
                    raise ValueError(f"{path.name}: the test replaces {old!r}, which the block does not hold")
                text = text.replace(old, new)
        needs = tuple(name.strip() for kind, names in told if kind == "needs" for name in names.split(","))
        line = page[: match.start("text")].count("\n") + 1
        previous = blocks[-1] if blocks else None
        if match["language"] == "text" and previous is not None and previous.language == "python":
            if not page[end : match.start()].strip():
                blocks[-1] = replace(previous, output=text)
        file = next((name for kind, name in told if kind == "file"), None)
        blocks.append(Block(str(path.relative_to(ROOT)), line, match["language"], text, needs, file))
        end = match.end()
    return blocks


def fences(path: Path) -> int:
    """Return how many fences a page has, indented ones and those of tildes included: two a block."""
    return len(re.findall(r"^\s*(?:```|~~~)", path.read_text("utf-8"), re.MULTILINE))


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python in the given namespace; check what it prints where the page tells that."""
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    if block.output is not None:
        assert printed.getvalue() == block.output, f"{block.page}, line {block.line}"


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the `patience` commands of a block of shell, as lists of arguments.

    Raises:
        ValueError: another command, which nothing would run.
    """
    for line in block.text.replace("\\\n", " ").splitlines():
        command = line.partition("  #")[0].strip()
        if command.startswith("patience "):
            yield shlex.split(command)[1:]
        elif command and not command.startswith(("#", *NOT_RUN)):
            raise ValueError(f"{block.page}: the tests run no such command: {command}")


def run_alone(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the blocks of Python of a page in a process of their own, in a folder.

    For pages that register a game: from then on compiled code is kept elsewhere, and all would be compiled anew.
    """
    tests = str(Path(__file__).resolve().parent)
    paths = [tests, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return subprocess.run(
        [sys.executable, *(["-P"] * getattr(sys.flags, "safe_path", False)), str(Path(__file__).resolve()), str(path)],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


if __name__ == "__main__":
    scope: dict[str, Any] = {"__name__": "guide"}
    for one in blocks_of(Path(sys.argv[1])):
        if one.language == "python" and "--8<--" not in one.text:
            run_python(one, scope)
