"""Make the notebook of the first guide: `python docs/make_notebook.py` writes docs/first-steps.ipynb.

Text becomes cells of Markdown, blocks of Python become cells of code; what they print is left to the reader to see.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parent / "first-steps.md"
PARTS = re.compile(r"^```python\n(.*?)^```\n|^```text\n.*?^```\n", re.MULTILINE | re.DOTALL)


def cells_of(guide: str) -> list[dict[str, Any]]:
    """Return the cells of a guide written in Markdown."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, text: str) -> None:
        if text.strip():
            more = {"execution_count": None, "outputs": []} if kind == "code" else {}
            source = text.strip().splitlines(keepends=True)
            cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, **more, "source": source})

    end = 0
    for part in PARTS.finditer(guide):
        add("markdown", guide[end : part.start()])
        add("code", part[1] or "")
        end = part.end()
    add("markdown", guide[end:])
    return cells


def notebook_text(guide: str) -> str:
    """Return a guide as the text of a notebook (nbformat 4.5)."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    facts = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": cells_of(guide), "metadata": facts, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    place = GUIDE.with_suffix(".ipynb")
    place.write_text(notebook_text(GUIDE.read_text("utf-8")), "utf-8")
    print(f"wrote {place}")
