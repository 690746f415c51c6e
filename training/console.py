"""How the commands of `patience` end: the exit codes, and the one line on stderr that says what was wrong."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

BAD_INPUT = 2
FAILED = 1


def fail(message: object, code: int = BAD_INPUT) -> NoReturn:
    """Say in one line on stderr what was wrong, and exit."""
    sys.stderr.write(f"patience: error: {' '.join(str(message).split())}\n")
    raise typer.Exit(code)
