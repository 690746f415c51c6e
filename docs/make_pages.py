"""The pages that are made, not written: one for each game, and the reference of public names.

MkDocs calls `on_config` and `on_files` when it builds the site (`make docs`). `python docs/make_pages.py FOLDER` writes
the same pages into a folder. What they say comes from where it is said once: the docstrings, the games' options and
layouts, the rule sheets, the renderer, and the results in `docs/figures`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium

from patience_env.agents.policy import make_policy, policy_names
from patience_env.encoding import cards_length, planes_shape
from patience_env.game import Game, game_ids, get_game, max_episode_steps

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "figures" / "leaderboard.json"  # what `patience leaderboard` writes

# The picture of a game: a deal, and how many moves its rule of thumb has made.
PICTURE_DEAL = 7
PICTURE_STEPS = 18

# The reference: modules in reading order, and the public names of each (None: those in its `__all__`).
REFERENCE: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    ("patience_env", ("game_ids", "get_game", "register_game")),
    ("patience_env.env", ("PatienceEnv",)),
    ("patience_env.vector", ("PatienceVectorEnv",)),
    ("patience_env.sb3", ("PatienceVecEnv",)),
    ("patience_env.wrappers", ("RLlibDict", "PettingZooDict")),
    ("patience_env.game", ("Game", "Option", "Layout", "Counter", "Spot", "Entry", "one_of", "whole_number")),
    ("patience_env.encoding", ("channel_names", "planes_shape", "cards_length", "observation_space")),
    ("patience_env.kernels", ("sample",)),
    ("patience_env.deals", ("deck", "named_deals", "standard_deals", "check_deal")),
    ("patience_env.agents", None),
    ("patience_env.training.evaluate", ("evaluate", "paired", "Evaluation", "Paired", "Tableaus", "wilson")),
    ("patience_env.training.train", ("train", "Outcome", "Point")),
    ("patience_env.competition", ("parallel_env", "aec_env", "CompetitionEnv")),
)
LINE = 80  # as many letters as a line of code may have before it is broken
HEADINGS = ("Args", "Attributes", "Class attributes", "Raises", "Returns", "Yields")


# -- games ---------------------------------------------------------------------------------------------------------


def module_name(game: Game) -> str:
    """Return the last part of the module that a game lives in: the name of its page and of its rule sheet."""
    return game.deal.__module__.rpartition(".")[2]


def anywhere(title: str) -> str:
    """Return a heading's title as one line of a table can hold it."""
    return title.replace("|", "\\|")


def named(given: Mapping[str, Any]) -> str:
    """Return options as Python would be given them, `placement="fixed"`, as the first cell of a table's line."""
    shown = (f"{name}={json.dumps(value) if isinstance(value, str) else value}" for name, value in given.items())
    return f"`{', '.join(shown)}`" if given else "the defaults"


def picture(game_id: str) -> tuple[str, str]:
    """Return the SVG of a fixed deal some moves into a game of its rule of thumb, and what it shows in words."""
    env: Any = gymnasium.make(game_id, illegal_action="raise").unwrapped
    env.reset(options={"deal": PICTURE_DEAL})
    policy = make_policy("thumb", game_id)
    moves = 0
    while moves < PICTURE_STEPS:
        action = policy.choose(env)
        twin = env.clone()
        if twin.step(action)[2]:  # the picture is of a game, not of its end
            break
        env.step(action)
        moves += 1
    return env.svg(), f"Deal {PICTURE_DEAL} after {moves} moves of the rule of thumb"


def option_table(game: Game) -> str:
    """Return the options of a game as a Markdown table, or a sentence where there are none."""
    if not game.options:
        return "Only those of every environment: `observation`, `reward`, `illegal_action`, `render_mode`.\n"
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in game.options:
        default = json.dumps(option.default) if isinstance(option.default, str) else option.default
        meaning = f"{option.help}: {option.allowed}".removesuffix(": ")
        lines.append(f"| `{option.name}` | `{default}` | {anywhere(meaning)} |")
    return "\n".join(lines) + "\n"


def results_of(game: Game, board: Mapping[str, Any]) -> list[tuple[dict[str, Any], list[Mapping[str, Any]]]]:
    """Return the results of a game: options that are not the defaults, and what each policy reached under them."""
    defaults = game.check_options({})
    found: list[tuple[dict[str, Any], list[Mapping[str, Any]]]] = []
    for entry in board["entries"]:
        if entry["env"] == game.id:
            given = {name: value for name, value in entry["options"].items() if value != defaults[name]}
            if not found or found[-1][0] != given:
                found.append((given, []))
            found[-1][1].append(entry)
    return found


def size_table(game: Game, cases: list[dict[str, Any]]) -> str:
    """Return the sizes of a game's spaces under the given options as a Markdown table."""
    lines = [
        '| options | actions | `observation="planes"` | `observation="cards"` | step limit |',
        "|---|---|---|---|---|",
    ]
    limit = max_episode_steps(game.id)
    for given in cases:
        layout = game.layout(game.check_options(given))
        shape = " x ".join(map(str, planes_shape(layout)))
        cells = [named(given), layout.actions, shape, cards_length(layout), f"{limit:,}" if limit else "none"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def result_cells(entry: Mapping[str, Any]) -> list[str]:
    """Return what a policy reached as the cells of a table: wins with their interval, the mean and its error, deals."""
    mean = f"{entry['mean']:.2f}" if entry["win_rate"] is None else f"{entry['mean']:.3f}"
    error = "" if entry["stderr"] is None else f" ± {entry['stderr']:.2g}"
    cells = [f"`{entry['policy']}`", mean + error, f"{entry['deals']:,}"]
    if entry["win_rate"] is None:
        return cells
    return [*cells[:1], f"{entry['win_rate']:.1%} [{entry['wilson_low']:.1%}, {entry['wilson_high']:.1%}]", *cells[1:]]


def result_table(game: Game, board: Mapping[str, Any]) -> str:
    """Return what policies reached in a game as Markdown tables, the command that made them beside them."""
    parts = []
    for given, entries in results_of(game, board):
        heads = ["policy", "mean score" if game.scores else "mean return", "deals"]
        if entries[0]["win_rate"] is not None:
            heads.insert(1, "games won [95%]")
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        lines += [f"| {' | '.join(result_cells(entry))} |" for entry in entries]
        parts.append(f"With {named(given)}:\n\n" + "\n".join(lines))
    return (
        "\n\n".join(parts)
        + f"\n\nPlayed on the {board['deals']} deals from {board['first_deal']} on, version {board['version']}; mean ± "
        + f"standard error, and the interval of E. B. Wilson. Made by `{board['command']}`.\n"
    )


def rule_sheet(game: Game) -> tuple[str, str]:
    """Return the path of a game's rule sheet and its text, its title left out and its headings a level lower."""
    path = f"rules/{module_name(game)}.md"
    text = resources.files("patience_env.seeds").joinpath(path).read_text("utf-8")
    body = re.sub(r"\A# .*\n", "", text)
    return f"seeds/{path}", re.sub(r"^(#+) ", r"#\1 ", body, flags=re.MULTILINE)


def game_page(game_id: str, shown: str, board: Mapping[str, Any]) -> str:
    """Return the page of one game; `shown` says what its picture shows."""
    game = get_game(game_id)
    document = import_module(game.deal.__module__).__doc__ or ""
    title, _, body = document.strip().partition("\n")
    sections = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", body.strip() + "\n", re.MULTILINE | re.DOTALL))
    where, rules = rule_sheet(game)
    policies = ", ".join(f"`{name}`" for name in policy_names(game_id))
    parts = [
        f"# {title.rstrip('.')}",
        f'```python\nimport gymnasium as gym\nimport patience_env\n\nenv = gym.make("{game_id}")\n```',
        f"![{shown}]({module_name(game)}.svg)",
        f"*{shown} (`env.unwrapped.svg()`).*",
    ]
    for heading, text in sections.items():
        if heading == "Version History":
            continue
        parts.append(f"## {heading}\n{text.strip()}")
        if heading == "Arguments":
            parts.append(option_table(game))
        if heading == "Observation Space":
            parts.append(size_table(game, [given for given, _ in results_of(game, board)]))
    parts += [
        f"## Policies and results\n{policies} (`patience list`).",
        result_table(game, board),
        f"## Version History\n{sections['Version History'].strip()}",
        f"## Rule sheet\nThe whole of `{where}`, from which the game and its oracle were written.",
        rules,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def games_page() -> str:
    """Return the overview of the games: a picture and the first sentences of each."""
    figures = []
    for game_id in game_ids():
        game = get_game(game_id)
        name = module_name(game)
        figures.append(
            f'<figure><a href="{name}.html"><img src="{name}.svg" alt="A table of {game.title}" loading="lazy"></a>'
            f'<figcaption><a href="{name}.html">{game.title}</a><br><code>{game_id}</code></figcaption></figure>'
        )
    return (
        f"# All games\n\n{len(figures)} games, each with its rule sheet, options, spaces and results.\n\n"
        f'<div class="games">{"".join(figures)}</div>\n'
    )


# -- the reference -------------------------------------------------------------------------------------------------


def source_of(module: str) -> ast.Module:
    """Return a module's parsed source, without importing it (it may need an extra)."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"{module} is not installed")
    return ast.parse(Path(spec.origin).read_text("utf-8"))


def as_markdown(document: str) -> str:
    """Return a docstring as Markdown: sections such as `Args:` become lists, indented code stays code."""
    lines = document.split("\n")
    out: list[str] = []
    inside = False
    for line in lines:
        heading = line.strip().rstrip(":")
        if line.endswith(":") and not line.startswith(" ") and heading in HEADINGS:
            out += ["", f"**{heading}**", ""]
            inside = True
        elif inside and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            out.append(f"* `{name}`: {rest}" if colon else f"* {line.strip()}")
        elif inside and line.startswith("     "):
            out.append("  " + line.strip())
        else:
            inside = inside and not line.strip()
            out.append(line)
    return "\n".join(out).strip()


def signature(node: ast.FunctionDef, *, method: bool = False, name: str = "") -> str:
    """Return how a function is called, as its source says it: in one line, or an argument a line."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    pieces = [_argument(one, default) for one, default in zip(plain, defaults, strict=True)][1 if method else 0 :]
    if given.vararg or given.kwonlyargs:
        pieces.append(f"*{ast.unparse(given.vararg)}" if given.vararg else "*")
    pieces += [_argument(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        pieces.append(f"**{ast.unparse(given.kwarg)}")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and not name else ""
    line = f"{name or node.name}({', '.join(pieces)}){returns}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{name or node.name}(", *(f"    {piece}," for piece in pieces), f"){returns}"])


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(one)
    return f"{ast.unparse(one)}{' = ' if one.annotation else '='}{ast.unparse(default)}"


def is_property(node: ast.FunctionDef) -> bool:
    """Tell whether a method is read like an attribute."""
    return any(
        isinstance(mark, ast.Name) and mark.id in ("property", "cached_property") for mark in node.decorator_list
    )


def entry(node: ast.stmt, level: int) -> Iterator[str]:
    """Yield the Markdown of a class (its public methods too) or of a function."""
    if isinstance(node, ast.FunctionDef):
        yield described(level, node.name, signature(node), node)
    elif isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base).partition("[")[0] for base in node.bases)
        made = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
        call = f"class {node.name}{f'({bases})' if bases else ''}"
        for item in made:
            call += f"\n\n{signature(item, method=True, name=node.name)}"
        yield described(level, node.name, call, node)
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") and ast.get_docstring(item):
                shown = item.name if is_property(item) else signature(item, method=True)
                yield described(level + 1, f"{node.name}.{item.name}", shown, item)


def described(level: int, name: str, call: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a heading, how a thing is called, and its docstring."""
    return f"{'#' * level} {name}\n\n```python\n{call}\n```\n\n{as_markdown(ast.get_docstring(node) or '')}"


def definition(module: str, name: str) -> ast.stmt:
    """Return where a public name is defined, followed through the imports of the module that offers it.

    Raises:
        ImportError: it is defined nowhere.
    """
    for node in ast.walk(source_of(module)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return definition(node.module, name)
    raise ImportError(f"{module} has no class or function {name}")


def reference_page() -> str:
    """Return the reference of all public names."""
    parts = [
        "# Python reference",
        "Made from the docstrings. Arrays are NumPy arrays; shapes and dtypes are told where they matter.",
    ]
    for module, names in REFERENCE:
        document = ast.get_docstring(source_of(module)) or ""
        parts.append(f"## {module}\n\n{as_markdown(document)}")
        for name in import_module(module).__all__ if names is None else names:
            parts += entry(definition(module, name), 3)
    return "\n\n".join(parts) + "\n"


# -- all of them ---------------------------------------------------------------------------------------------------


def made_pages() -> dict[str, str]:
    """Return all pages and pictures that are made: path within the site's sources -> text."""
    board = json.loads(RESULTS.read_text("utf-8"))
    made = {"games/index.md": games_page(), "api.md": reference_page()}
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = (ROOT / f"{name}.md").read_text("utf-8")
        made[f"{name.lower()}.md"] = text.replace("](docs/", "](")  # links as seen from the site's sources
    for game_id in game_ids():
        name = module_name(get_game(game_id))
        drawing, shown = picture(game_id)
        made[f"games/{name}.svg"] = drawing
        made[f"games/{name}.md"] = game_page(game_id, shown, board)
    return made


def on_config(config: Any) -> Any:
    """Add the pages that mkdocs.yml does not list, such as those that commands write, to the section of results."""
    listed = {page for part in config.nav for page in _listed(part)}
    (results,) = (part["Results"] for part in config.nav if "Results" in part)
    docs = ROOT / "docs"
    for path in sorted([*docs.glob("*.md"), *docs.glob("figures/*.md")]):
        name = path.relative_to(docs).as_posix()
        if name not in listed:
            first = path.read_text("utf-8").partition("\n")[0]
            results.append({first.removeprefix("# ") if first.startswith("# ") else path.stem.capitalize(): name})
    return config


def _listed(part: Any) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for inside in part.values():
            yield from _listed(inside)
    else:
        for inside in part:
            yield from _listed(inside)


def on_files(files: Any, config: Any) -> Any:
    """Add the made pages to those that MkDocs found."""
    from mkdocs.structure.files import File

    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def main(folder: Path) -> None:
    """Write the made pages into a folder."""
    for path, text in made_pages().items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
        print(f"wrote {place}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/make_pages.py FOLDER")
    main(Path(sys.argv[1]))
