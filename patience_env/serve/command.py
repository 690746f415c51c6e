"""`patience serve`: the games in a web page."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from patience_env.training.console import FAILED, fail

DAY = 24 * 3600.0
KEEP = 3600.0
MOST_CONNECTIONS = 1000


def command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Only this machine reaches 127.0.0.1; 0.0.0.0 is for all.")
    ] = "127.0.0.1",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The SQLite file that keeps the games [default: games.sqlite3 in the user's data folder].",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A further policy to offer for hints and matches, such as line:path=runs/line (any number of times).",
            show_default=False,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A host name by which browsers reach this server, beside localhost.",
            show_default=False,
        ),
    ] = None,
    max_games: Annotated[int, typer.Option(min=1, help="How many games and matches are kept.")] = 10_000,
    max_days: Annotated[
        float, typer.Option(min=0.001, help="After how many days without a move one is forgotten.")
    ] = 30.0,
) -> int:
    """Serve a web page in which all games can be played, also against the agents, and recorded games replayed."""
    try:
        import uvicorn

        from patience_env.serve.guard import patient_protocol
        from patience_env.serve.server import create_app
    except ImportError as error:
        fail(f"{error}: the web page needs the 'serve' extra: pip install 'patience-env[serve]'", FAILED)
    from patience_env.serve.store import Store, StoreError, default_path

    for text in policy or ():
        if fault := fault_of(text):
            fail(f"--policy {text}: {fault}", FAILED)
    try:
        store = Store(data or default_path(), max_games, max_days * DAY, KEEP)
    except StoreError as error:
        fail(error, FAILED)
    hosts = [*(allow_host or ()), host]
    app = create_app(store, policies=policy or (), hosts=hosts)
    settings: dict[str, Any] = {
        "host": host,
        "port": port,
        "http": patient_protocol(),
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "limit_concurrency": MOST_CONNECTIONS,
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": 5,
        "server_header": False,
    }
    config = uvicorn.Config(app, **settings)
    try:
        listening = config.bind_socket()
        listening.listen(config.backlog)  # who comes before the server is ready waits
    except (OSError, SystemExit):
        store.close()
        fail(f"port {port} of {host} cannot be listened on: is it in use? Choose another with --port", FAILED)
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"patience: http://{shown}:{listening.getsockname()[1]}/ (games in {store.path}; stop with Ctrl-C)")
    sys.stdout.flush()
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        store.close()
    if app.state.desk.busy:
        # The interpreter would wait for threads that compile or think; all that is to be kept is in the store.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def fault_of(text: str) -> str:
    """Say why a policy, as the command line writes it, cannot be made for any game; "" where it can."""
    from patience_env.agents.policy import make_policy, parse_policy
    from patience_env.game import game_ids

    name, given = parse_policy(text)
    faults = []
    for game_id in game_ids():
        try:
            make_policy(name, game_id, **given)
        except (ImportError, ValueError, TypeError, OSError) as error:
            faults.append(str(error))
        else:
            return ""
    return faults[0]
