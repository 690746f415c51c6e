"""The README's examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.compiled
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    code = EXAMPLES[number]
    if "sb3" in code:
        pytest.importorskip("sb3_contrib")
    exec(compile(code, f"README.md example {number + 1}", "exec"), {"__name__": "readme"})


def test_no_figure_is_left_to_be_filled_in() -> None:
    assert "@@" not in README.read_text("utf-8")
