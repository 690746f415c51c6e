"""The command line: `patience list`, `evaluate`, `play`, `render`, `solve`, `train`, `train-value`, `figures`.

Heavy modules are imported inside the commands, so that `patience --help` and `patience list` are quick.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise SystemExit(
        f"patience: error: {error}; the command line needs the 'cli' extra: pip install 'patience-env[cli]'"
    ) from error

import patience_env
from patience_env.deals import named_deals, standard_deals
from patience_env.game import game_ids, get_game, max_episode_steps
from patience_env.training import play, watch
from patience_env.training.console import BAD_INPUT, FAILED, fail
from patience_env.training.engine_options import AddressOption, EngineOption, WorkersOption

if TYPE_CHECKING:
    from patience_env.agents.policy import Policy
    from patience_env.training.evaluate import Evaluation, Paired

WIDTH_OF_FILES = 160  # a table that goes to a file or a pipe is not squeezed to 80 columns

app = typer.Typer(
    name="patience",
    help="Nine old patience games for reinforcement learning: play, watch, train agents, compare policies.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    return console


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(patience_env.__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command("list")
def list_all() -> None:
    """Show the games with their options and policies, and the standard deals."""
    from patience_env.agents.policy import policy_names

    console = _console()
    for game_id in game_ids():
        game = get_game(game_id)
        limit = max_episode_steps(game_id)
        console.print(Text(f"{game_id}  {game.title}", style="bold"))
        if limit is not None:
            console.print(Text(f"  truncated after {limit:,} moves"))
        if game.options:
            table = Table("option", "default", "meaning", box=None, pad_edge=False, padding=(0, 2))
            for option in game.options:
                meaning = f"{option.help}: {option.allowed}".removesuffix(": ")
                table.add_row(Text("  " + option.name), Text(json.dumps(option.default)), Text(meaning))
            console.print(table)
        console.print(Text(f"  policies: {', '.join(policy_names(game_id))}\n"))
    console.print(Text("Standard deals", style="bold"))
    for deals in standard_deals().values():
        last = deals.first + deals.count - 1
        console.print(Text(f"  {deals.name}: {deals.count:,} deals, {deals.first} to {last}"))


@app.command("evaluate")
def evaluate_policies(
    env: Annotated[str, typer.Argument(help="The game, such as PatiencePoker-v0.", show_default=False)],
    policy: Annotated[
        list[str],
        typer.Option(
            help="A policy: NAME, MODULE:ATTRIBUTE, each with :KEY=VALUE as often as wanted, or the path of a saved "
            "model (our folder, or an SB3 .zip). Give it several times to compare with the first one.",
            show_default=False,
        ),
    ],
    deals: Annotated[str, typer.Option(help="The standard deals to play: test, validation or smoke.")] = "test",
    first: Annotated[
        int | None, typer.Option(metavar="N", help="Play only the first N of the deals.", show_default=False)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="An option of the game, such as placement=fixed; the value is read as JSON where it is JSON.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the policies' own random choices.")] = 0,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    address: AddressOption = None,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the results with the return of every deal as JSON; '-' writes them to the standard output.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compare policies on the same deals: mean, standard error, win rate, tableaus to 500, CPU time a move.

    Whatever the engine and its workers, the results are the same to the last digit (but for the time).

    Example: patience evaluate PatiencePoker-v0 --policy flush-rank --policy greedy --option placement=fixed
    """
    from patience_env.training.engines import WorkerError, check_engine, open_engine
    from patience_env.training.evaluate import IllegalChoiceError, check_writable, evaluate, paired, write_atomically

    try:
        check_engine(engine, workers, address)
        game = get_game(env)
        options = game.check_options(read_options(option or []))
        game.new_states(1, options)  # refuses options that do not go together
        numbers = named_deals(deals, first)
        if json_file not in (None, "-"):
            check_writable(str(json_file))
        players = [(text, make_player(text, env, options)) for text in policy]
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    results = []
    try:
        with nullcontext() if engine == "local" else open_engine(engine, workers, address) as players_engine:
            for text, player in players:
                played = player if players_engine is None else text
                with _progress(text, len(numbers)) as progress:
                    results.append(
                        evaluate(
                            played,
                            env,
                            numbers,
                            options=options,
                            seed=seed,
                            name=text,
                            progress=progress,
                            engine=players_engine,
                        )
                    )
    except (IllegalChoiceError, WorkerError) as error:
        fail(error, FAILED)
    except ValueError as error:
        fail(error)
    if json_file == "-":
        sys.stdout.write(report(results, deals))
        return
    differences = [paired(result, results[0]) for result in results[1:]]
    count = f"{len(numbers):,} {deals} deal{'s' if len(numbers) > 1 else ''}"
    title = f"{env}{_options_text(options)}: {count}, seed {seed}, {results[0].cores} cores"
    console = _console()
    console.print(Text(title))
    console.print(_table(results, differences))
    if json_file is not None:
        try:
            write_atomically(json_file, report(results, deals))
        except OSError as error:
            fail(f"{json_file!r} cannot be written: {error}", FAILED)
        console.print(Text(f"wrote {json_file}"))


def read_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the options written as `key=value`."""
    from patience_env.agents.policy import read_value

    options: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"option {text!r} is not of the form KEY=VALUE, such as placement=fixed")
        if key in options:
            raise ValueError(f"option {key!r} is given twice")
        options[key] = read_value(value)
    return options


def make_player(text: str, env: str, options: Mapping[str, Any]) -> Policy:
    """Return a policy that plays the game under these options."""
    from patience_env.agents.policy import make_policy, parse_policy

    name, given = parse_policy(text)
    policy = make_policy(name, env, **given)
    policy.check(get_game(env), options)
    return policy


@contextmanager
def _progress(text: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr while it is a terminal; yield what tells it how far things are."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = _console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[moves]:,} moves"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=total, moves=0)
        yield lambda finished, moves: bar.update(task, completed=finished, moves=moves)


def _options_text(options: Mapping[str, Any]) -> str:
    shown = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options.items()]
    return f" ({', '.join(shown)})" if shown else ""


def _decimals(stderr: float) -> int:
    """Return how many decimals show two digits of a standard error (four where there is none)."""
    return 4 if math.isnan(stderr) or stderr <= 0 else min(max(1 - math.floor(math.log10(stderr)), 0), 8)


def _spread(mean: float, stderr: float) -> str:
    places = _decimals(stderr)
    return f"{mean:.{places}f}" if math.isnan(stderr) else f"{mean:.{places}f} +- {stderr:.{places}f}"


def _difference(paired: Paired) -> str:
    places = _decimals(paired.stderr)
    interval = "" if math.isnan(paired.stderr) else f" [{paired.low:+.{places}f}, {paired.high:+.{places}f}]"
    return f"{paired.difference:+.{places}f}{interval}"


def time_text(seconds: float) -> str:
    """Return a duration in the unit that suits it: `1.2 us`, `3.4 ms`, `5.6 s`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 1e-6:.1f} us"


def _table(results: Sequence[Evaluation], differences: Sequence[Paired]) -> Table:
    """Return the table of results; columns that no result fills are left out."""
    rows: list[dict[str, str]] = []
    for i, result in enumerate(results):
        row = {"policy": result.policy, "mean +- stderr": _spread(result.mean, result.stderr)}
        if result.win_rate is not None and result.win_interval is not None:
            low, high = result.win_interval
            row["win rate [95%]"] = f"{result.win_rate:.2%} [{low:.2%}, {high:.2%}]"
        if result.tableaus is not None:
            row["tableaus to 500"] = _spread(result.tableaus.mean, result.tableaus.stderr)
        row["moves"] = f"{result.moves:,}"
        row["time a move"] = time_text(result.seconds_per_move)
        if i > 0:
            row["minus the first [95%]"] = _difference(differences[i - 1])
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table()
    for name in names:
        table.add_column(Text(name), justify="left" if name == "policy" else "right")
    for row in rows:
        table.add_row(*(Text(row.get(name, "")) for name in names))
    return table


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value


def _result(result: Evaluation, first: Evaluation) -> dict[str, Any]:
    from patience_env.training.evaluate import paired

    tableaus = result.tableaus
    low, high = result.win_interval or (None, None)
    difference = None if result is first else paired(result, first)
    return {
        "policy": result.policy,
        "policy_version": result.policy_version,
        "mean": result.mean,
        "stderr": _or_null(result.stderr),
        "win_rate": result.win_rate,
        "wilson_low": low,
        "wilson_high": high,
        "tableaus_to_500": tableaus
        and {"mean": tableaus.mean, "stderr": _or_null(tableaus.stderr), "series": tableaus.series},
        "moves": result.moves,
        "seconds_per_move": result.seconds_per_move,
        "paired": difference
        and {
            "minus": first.policy,
            "difference": difference.difference,
            "stderr": _or_null(difference.stderr),
            "low": _or_null(difference.low),
            "high": _or_null(difference.high),
        },
        "returns": result.returns.tolist(),
    }


def report(results: Sequence[Evaluation], deals: str) -> str:
    """Return the results of policies on the same deals (of the standard range `deals`) as JSON text."""
    first = results[0]
    facts = {
        "env": first.env,
        "options": first.options,
        "deals": deals,
        "first_deal": int(first.deals[0]),
        "deal_count": len(first.deals),
        "version": first.version,
        "seed": first.seed,
        "cores": first.cores,
        "results": [_result(result, first) for result in results],
    }
    return json.dumps(facts, allow_nan=False) + "\n"


app.command("play")(play.play)
app.command("render")(watch.render)


# Everything after `train` or `train-value` is read by the command that a module of training/ defines, which may load
# torch: it is imported only when it runs, or when its own --help is asked for.
_LAZY: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    "add_help_option": False,
}


def _run_lazily(module: str, name: str, arguments: list[str]) -> None:
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    try:
        command.command()(import_module(module).command)
        code = typer.main.get_command(command).main(arguments, f"patience {name}", standalone_mode=False)
    except ImportError as error:
        # Whatever knows better what it needs says so itself.
        told = "pip install" in str(error)
        fail(error if told else f"{name} needs the 'train' extra, pip install 'patience-env[train]': {error}")
    if code:
        raise typer.Exit(code)


@app.command("train", **_LAZY)
def _train(context: typer.Context) -> None:
    """Train an agent for a game and save it (patience train --help)."""
    _run_lazily("patience_env.training.train", "train", context.args)


@app.command("train-value", **_LAZY)
def _train_value(context: typer.Context) -> None:
    """Train a value network or a line table for Patience Poker and save it (patience train-value --help)."""
    _run_lazily("patience_env.training.value_command", "train-value", context.args)


@app.command("figures", **_LAZY)
def _figures(context: typer.Context) -> None:
    """Write figures: of strong Patience Poker (poker, tables), or of which deals can be won (winnability)."""
    subject = context.args[0] if context.args else ""
    if subject in ("tables", "winnability"):
        _run_lazily(f"patience_env.training.{subject}", f"figures {subject}", context.args[1:])
    else:
        _run_lazily("patience_env.training.figures", "figures", context.args)


@app.command("solve", **_LAZY)
def _solve(context: typer.Context) -> None:
    """Tell whether a deal can be won when every card is known, and how (patience solve --help)."""
    _run_lazily("patience_env.training.solve", "solve", context.args)


@app.command("leaderboard", **_LAZY)
def _leaderboard(context: typer.Context) -> None:
    """Let the policies of every game play the standard deals; write JSON, a table and a plot (... --help)."""
    _run_lazily("patience_env.training.leaderboard", "leaderboard", context.args)


@app.command("arrange", **_LAZY)
def _arrange(context: typer.Context) -> None:
    """Find the best tableau of Patience Poker that 25 known cards can make (patience arrange --help)."""
    _run_lazily("patience_env.training.arrange", "arrange", context.args)


@app.command("serve", **_LAZY)
def _serve(context: typer.Context) -> None:
    """Serve a web page to play in, also against the agents (patience serve --help)."""
    _run_lazily("patience_env.serve.command", "serve", context.args)


def _open_streams() -> None:
    """Give the standard streams that were closed at the start to nobody: nothing is read, what is written is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 bad input (one line on stderr says what)."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _open_streams()
    with suppress(FileNotFoundError):  # a folder that has been removed
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # so that MODULE:ATTRIBUTE finds the modules of the folder where one works
    # Typer's usage errors derive from Click's, which newer versions carry inside: found without importing either.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        code = typer.main.get_command(app).main(given, "patience", standalone_mode=False)
        sys.stdout.flush()
    except OSError as error:
        # What is printed goes to a full disk. (Who reads no more, as `head` does, ends the command without a word.)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        sys.stderr.write(f"patience: error: {' '.join(str(error).split())}\n")
        code = FAILED
    except typer.Abort:
        sys.stderr.write("patience: stopped\n")
        code = 130
    except usage_error as error:
        message = error.format_message()  # type: ignore[attr-defined]
        sys.stderr.write(f"patience: error: {' '.join(message.split())} (see patience --help)\n")
        code = BAD_INPUT
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
