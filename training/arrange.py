"""What a policy leaves on the table: the best tableau of the 25 cards that came, and regrets: `patience arrange`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.arrangement import (
    RESTARTS,
    STEPS,
    Arrangement,
    Line,
    best_arrangement,
    best_arrangements,
    check_numbers,
    check_points,
)
from patience_env.agents.policy import Policy
from patience_env.cards import card_text
from patience_env.deals import check_deal, deck, named_deals
from patience_env.games.patience_poker import CARDS, GAME, SIDE
from patience_env.training.console import FAILED, fail
from patience_env.training.evaluate import (
    Evaluation,
    IllegalChoiceError,
    check_deals,
    check_writable,
    evaluate,
    standard_error,
    write_atomically,
)
from patience_env.training.line_training import read_scoring


@dataclass(frozen=True, eq=False)
class Regrets:
    """How far a policy stayed below the best arrangements of the cards that came, deal by deal.

    Attributes:
        evaluation: what the policy did.
        best: the best score found for each deal's 25 cards, all known beforehand, float64, shape (n,).
    """

    evaluation: Evaluation
    best: NDArray[np.float64]

    @property
    def regrets(self) -> NDArray[np.float64]:
        """Best score minus the policy's, float64, shape (n,). (Below 0 where the annealing missed an arrangement.)"""
        return self.best - self.evaluation.returns

    @property
    def mean(self) -> float:
        """The mean regret."""
        return float(self.regrets.mean())

    @property
    def stderr(self) -> float:
        """The standard error of the mean regret, NaN for a single deal."""
        return standard_error(self.regrets)


def regrets(
    policy: Policy | str,
    deals: Sequence[int] | NDArray[Any],
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    restarts: int = RESTARTS,
    steps: int = STEPS,
    best: NDArray[np.float64] | None = None,
) -> Regrets:
    """Let a policy play Patience Poker and compare each score with the best arrangement of the deal's 25 cards.

    Args:
        policy: a policy, or one written as text (see `parse_policy`).
        deals: deal numbers.
        options: of the game; no series (`target`) and no random table.
        seed: of the evaluation and of the annealing.
        restarts, steps: see `best_arrangement`.
        best: the best scores of the deals, where they are known already (`Regrets.best` for the same deals and table).

    Raises:
        TypeError, ValueError: as `evaluate` and `best_arrangements`, or a series.
        IllegalChoiceError: the policy chose an illegal action.
    """
    checked = GAME.check_options(options or {})
    if checked["target"] is not None:
        raise ValueError(f"target={checked['target']!r}: regrets are of single tableaus, not of a series")
    check_points(checked["scoring"])
    check_numbers(seed, restarts, steps)
    numbers = check_deals(deals)
    if best is not None and best.shape != numbers.shape:
        raise ValueError(f"best has shape {best.shape}: give one score for each of the {len(numbers)} deals")
    result = evaluate(policy, GAME.id, numbers, options=checked, seed=seed)
    if best is None:
        cards = first_cards(numbers)
        best = best_arrangements(cards, checked["scoring"], seed=seed, restarts=restarts, steps=steps)
    return Regrets(result, best)


def first_cards(deals: NDArray[np.uint64]) -> NDArray[np.int8]:
    """Return the 25 cards that each deal turns, in their order, int8 codes, shape (n, 25)."""
    return np.array([deck(int(deal))[:CARDS] for deal in deals])


def command(
    cards: Annotated[
        list[str] | None, typer.Argument(help="25 different cards, such as AS TH 7D.", show_default=False)
    ] = None,
    deal: Annotated[
        int | None, typer.Option(metavar="N", help="Take the cards that deal N turns instead.", show_default=False)
    ] = None,
    scoring: Annotated[
        str, typer.Option(help="american, american-alternate, english, or nine numbers from pair to royal.")
    ] = "american",
    prove: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Spend up to so long on a proof that nothing scores more, or on a bound.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of arranging cards: by how much this policy falls short of the best arrangements of the "
            "standard deals. May be repeated.",
            show_default=False,
        ),
    ] = None,
    deals: Annotated[str, typer.Option(help="With --policy: test, validation or smoke.")] = "test",
    first: Annotated[int, typer.Option(metavar="N", help="With --policy: play the first N of the deals.")] = 100,
    placement: Annotated[str, typer.Option(help="With --policy: touching or fixed.")] = "touching",
    seed: Annotated[int, typer.Option(help="Seed of the search, and of the policy's random choices.")] = 0,
    restarts: Annotated[int, typer.Option(help="How often the annealing begins anew.")] = RESTARTS,
    steps: Annotated[int, typer.Option(help="Exchanges that it tries each time.")] = STEPS,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="Write the result as JSON; '-': to the standard output.", show_default=False
        ),
    ] = None,
) -> None:
    """Find the best tableau of Patience Poker that 25 known cards can make, or what policies fall short of it.

    Examples: patience arrange --deal 7 --scoring english --prove 30;
    patience arrange --policy flush-rank --policy greedy --placement fixed
    """
    try:
        table = read_scoring(scoring)
        check_numbers(seed, restarts, steps)
        if json_file not in (None, "-"):
            check_writable(str(json_file))
        settings = {"seed": seed, "restarts": restarts, "steps": steps}
        if policy:
            if cards or deal is not None or prove is not None:
                raise ValueError("--policy goes with --deals and --first, not with cards, --deal or --prove")
            numbers, options = named_deals(deals, first), {"placement": placement, "scoring": table}
            found: list[Regrets] = []
            for name in policy:
                found.append(regrets(name, numbers, options, best=found[0].best if found else None, **settings))
            _show(regrets_report(found, deals), regrets_table(found, deals), json_file)
            return
        given = _given(cards or [], deal)
        best = best_arrangement(given, table, prove_seconds=prove, **settings)
        _show(report(best, table, seed), grid(best), json_file)
    except (TypeError, ValueError, ImportError, OSError) as error:
        fail(error)
    except IllegalChoiceError as error:
        fail(error, FAILED)


def _given(cards: list[str], deal: int | None) -> list[str]:
    """Return the cards given, or those of a deal."""
    if deal is None:
        return [card for text in cards for card in text.split()]
    if cards:
        raise ValueError(f"--deal {deal} and cards are both given: give one of them")
    return [card_text(int(code)) for code in deck(check_deal(deal))[:CARDS]]


def _show(facts: dict[str, Any], picture: list[Any], json_file: str | None) -> None:
    text = json.dumps(facts, allow_nan=False) + "\n"
    if json_file == "-":
        typer.echo(text, nl=False)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for part in picture:
        console.print(part)
    if json_file is not None:
        write_atomically(json_file, text)
        console.print(f"wrote {json_file}", markup=False)


def report(best: Arrangement, scoring: str | Mapping[str, float], seed: int) -> dict[str, Any]:
    """Return an arrangement as what JSON can hold."""
    return {"scoring": scoring, "seed": seed, "version": __version__, **asdict(best)}


def regrets_report(found: Sequence[Regrets], deals: str) -> dict[str, Any]:
    """Return the regrets of policies on the same standard deals as what JSON can hold."""
    one = found[0].evaluation
    return {
        "options": one.options,
        "deals": deals,
        "deal_count": len(one.deals),
        "seed": one.seed,
        "version": one.version,
        "best": found[0].best.tolist(),
        "policies": [
            {
                "policy": each.evaluation.policy,
                "mean": each.evaluation.mean,
                "regret": each.mean,
                "stderr": None if np.isnan(each.stderr) else each.stderr,
                "returns": each.evaluation.returns.tolist(),
            }
            for each in found
        ],
    }


def grid(best: Arrangement) -> list[Any]:
    """Return the picture of an arrangement, for rich: the square with the hands and points of its lines."""
    from rich.table import Table
    from rich.text import Text

    def worth(line: Line) -> str:
        return f"{line.hand} {line.points:g}"

    table = Table(show_header=False, show_lines=True)
    for _ in range(SIDE):
        table.add_column(justify="center", vertical="middle")
    table.add_column()
    for row, line in zip(best.rows, best.lines[:SIDE], strict=True):
        table.add_row(*row, Text(worth(line)))
    table.add_row(*(Text(worth(line).replace(" ", "\n")) for line in best.lines[SIDE:]), Text(f"score {best.score:g}"))
    if best.proven:
        said = "proven: no arrangement of these cards scores more"
    elif best.bound is not None:
        said = f"bound: no arrangement of these cards scores more than {best.bound:g}"
    else:
        return [table]
    return [table, Text(said)]


def regrets_table(found: Sequence[Regrets], deals: str) -> list[Any]:
    """Return a table of regrets, for rich."""
    from rich.table import Table
    from rich.text import Text

    one = found[0].evaluation
    said = ", ".join(f"{name}={value}" for name, value in one.options.items() if value is not None)
    table = Table()
    table.add_column("policy")
    for name in ("mean score", "best with all cards known", "mean regret"):
        table.add_column(name, justify="right")
    for each in found:
        score, regret = f"{each.evaluation.mean:.2f}", f"{each.mean:.2f} +- {each.stderr:.2f}"
        table.add_row(Text(each.evaluation.policy), score, f"{each.best.mean():.2f}", regret)
    return [Text(f"{GAME.id} ({said}): {len(one.deals):,} {deals} deals, seed {one.seed}"), table]
