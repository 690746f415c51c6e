"""The options of commands that play through an engine: `patience evaluate` and `patience leaderboard`."""

from __future__ import annotations

from typing import Annotated

import typer

EngineOption = Annotated[
    str, typer.Option(help="What plays: local (this process), processes (of this machine) or ray (a cluster).")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Workers of the engine; all cores if left out.", show_default=False),
]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The Ray cluster; Ray is started here if left out.", show_default=False),
]
