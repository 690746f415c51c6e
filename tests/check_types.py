"""Type-check what ships: build the wheel, install it into an empty folder, run `mypy --strict` on it there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Build, install without dependencies into a folder of its own, and check."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL
        )
        (wheel,) = folder.glob("*.whl")
        site = folder / "site"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel], check=True
        )
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", site / "patience_env"],
            cwd=folder,
            check=False,
        )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
