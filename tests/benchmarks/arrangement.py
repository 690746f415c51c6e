"""How good the search for best arrangements is: `python tests/benchmarks/arrangement.py` prints a Markdown table.

The mean of the best scores found on the first test deals, the CPU time a deal, and on the first few of them how many
are proven best within a limit of CPU time, the mean time of those proofs, and how far the annealing and the bounds lie
from what is best known.
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer

from patience_env.agents import arrangement_proof
from patience_env.agents.arrangement import best_arrangement, best_arrangements
from patience_env.deals import deck, named_deals
from patience_env.games.patience_poker import CARDS
from patience_env.games.poker_hands import TABLES


class _ProcessTime:
    """Stands in for the module `time`, so that limits are of CPU time: the machine may be busy with other work."""

    monotonic = staticmethod(time.process_time)


def main(
    deals: Annotated[int, typer.Option(help="Test deals to anneal.")] = 200,
    proofs: Annotated[int, typer.Option(help="Of these, how many to prove.")] = 20,
    seconds: Annotated[float, typer.Option(help="CPU seconds for a proof.")] = 30.0,
    scoring: Annotated[list[str] | None, typer.Option(help="Tables; all when not given.")] = None,
) -> None:
    """Measure the annealing and the proofs."""
    arrangement_proof.time = _ProcessTime  # type: ignore[assignment]
    codes = np.array([deck(int(number))[:CARDS] for number in named_deals("test", deals)])
    best_arrangement(codes[0], restarts=1, steps=100, prove_seconds=0.1)  # compiles
    typer.echo("| table | mean +- stderr | CPU a deal | proven | CPU a proof | annealing short by | bounds above by |")
    typer.echo("|---|---|---|---|---|---|---|")
    for name in scoring or list(TABLES):
        begun = time.process_time()
        scores = best_arrangements(codes, name)
        each = (time.process_time() - begun) / deals
        found, times = [], []
        for row in codes[:proofs]:
            begun = time.process_time()
            found.append(best_arrangement(row, name, prove_seconds=seconds))
            times.append(time.process_time() - begun)
        best = np.array([one.score for one in found])
        bounds = np.array([one.bound for one in found], float)
        proven = np.array([one.proven for one in found])
        short, above = 1 - scores[:proofs].sum() / best.sum(), bounds.sum() / best.sum() - 1
        taken = f"{np.array(times)[proven].mean():.1f} s" if proven.any() else "-"
        typer.echo(
            f"| {name} | {scores.mean():.2f} +- {scores.std(ddof=1) / np.sqrt(deals):.2f} | {1000 * each:.0f} ms "
            f"| {proven.sum()} of {proofs} | {taken} | {short:.2%} | {above:.2%} |"
        )


if __name__ == "__main__":
    typer.run(main)
