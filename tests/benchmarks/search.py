"""How fast are the generic rollouts, and by how much does UCT play better than the policy of its rollouts?

`python tests/benchmarks/search.py` times, in CPU time, random games from the deal through the generic rollouts beside
the barest loop of deal, legal and play, in turns within one run. `--strength` plays test deals instead: each game by a
rollout policy and by UCT with rollouts of that policy, compared deal by deal. The settings were chosen on validation
deals, and the number of deals before any of them was played.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import patience_env
from patience_env.agents.policy import make_policy, parse_policy
from patience_env.agents.rollouts import GREEDY, RANDOM, ROLLOUTS, THUMB, roll_out
from patience_env.deals import advance, bits_at, named_deals
from patience_env.game import game_ids, get_game
from patience_env.jit import kernel
from patience_env.kernels import nth_legal
from patience_env.training.cli import time_text
from patience_env.training.evaluate import Z_95, evaluate, standard_error, wilson, write_atomically
from patience_env.verbs import deal, legal, play

# Moves of a timed game at most: some can go on for ever.
MOST = 500
# Deals that are kept at a time.
CHUNK = 4
# For each game that is won or lost: the rollout policy, further settings, and how many deals tell enough.
MATCHES: dict[str, tuple[str, str, int]] = {
    "Fourteenth-v0": ("random", "", 20),
    "Calculation-v0": ("greedy", "", 40),
    "Sultan-v0": ("greedy", "", 40),
    "EmpressOfIndia-v0": ("thumb", ":depth=40", 40),
    "Fortress-v0": ("thumb", ":depth=4:discount=0.9", 320),
    "Nivernaise-v0": ("thumb", "", 60),
    "Paganini-v0": ("thumb", ":depth=10", 12),
    "RobinPost-v0": ("thumb", ":depth=40", 12),
}


# -- speed -------------------------------------------------------------------------------------------------------


@kernel
def bare_games(states, mask, stream, games):  # type: ignore[no-untyped-def]
    """Play random games from the deal with nothing around the rules; return the moves."""
    state = states[0]
    rng = int(stream[0])
    total = 0
    for _ in range(games):
        rng = advance(rng)
        state.deal = np.uint64(bits_at(rng))
        deal(state)
        moves = 0
        while moves < MOST:
            count = legal(state, mask)
            if count == 0:
                break
            rng = advance(rng)
            play(state, nth_legal(mask, (np.int64(bits_at(rng) >> 32) * count) >> 32))
            moves += 1
        total += moves
    stream[0] = rng
    return total


@kernel
def rollout_games(states, spare, mask, stream, games, policy):  # type: ignore[no-untyped-def]
    """Play games from the deal by a rollout policy; return the moves."""
    state = states[0]
    total = 0
    for _ in range(games):
        stream[0] = advance(int(stream[0]))
        state.deal = np.uint64(bits_at(int(stream[0])))
        deal(state)
        total += roll_out(state, spare, mask, stream, policy, 0.0, MOST, 1.0, 1.0)[1]
    return total


class Player:
    """Plays a game in the two compiled loops and tells steps a second of CPU time."""

    def __init__(self, game_id: str) -> None:
        game = get_game(game_id)
        options = game.check_options({})
        self.states, self.spare = game.new_states(1, options), game.new_states(1, options)
        self.mask = np.zeros(game.layout(options).actions, np.int8)

    def play(self, games: int, policy: int | None) -> int:
        """Play so many games, by a rollout policy or (None) at random in the barest loop; return the moves."""
        stream = np.array([games], np.uint64)
        if policy is None:
            return int(bare_games(self.states, self.mask, stream, games))
        return int(rollout_games(self.states, self.spare, self.mask, stream, games, policy))

    def enough(self, seconds: float, policy: int | None) -> int:
        """Return a number of games that take about so long."""
        games = 1
        while True:
            started = time.process_time()
            self.play(games, policy)
            spent = time.process_time() - started
            if spent > seconds / 4:
                return max(1, round(games * seconds / spent))
            games *= 4

    def rates(self, runs: int, seconds: float) -> dict[int | None, float]:
        """Return the median steps a second of each loop over several runs, taken in turns."""
        kinds = (None, RANDOM, GREEDY, THUMB)
        for kind in kinds:
            self.play(1, kind)
        games = {kind: self.enough(seconds, kind) for kind in kinds}
        found: dict[int | None, list[float]] = {kind: [] for kind in kinds}
        for _ in range(runs):
            for kind in kinds:
                started = time.process_time()
                steps = self.play(games[kind], kind)
                found[kind].append(steps / (time.process_time() - started))
        return {kind: statistics.median(rates) for kind, rates in found.items()}


def speed_line(game_id: str, runs: int, seconds: float) -> str:
    """Return a game's line of the table of speeds."""
    rates = Player(game_id).rates(runs, seconds)
    cells = [f"{rate / 1e6:.2f}" for rate in rates.values()]
    return f"| {game_id} | {' | '.join(cells)} | {rates[RANDOM] / rates[None]:.2f} |"


# -- strength ----------------------------------------------------------------------------------------------------


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided p-value that deals won by only one of two policies fall so unevenly by chance.

    Exact: Q. McNemar, "Note on the sampling error of the difference between correlated proportions", 1947.
    """
    total = better + worse
    tail = sum(math.comb(total, k) for k in range(min(better, worse) + 1)) / 2**total
    return min(1.0, 2 * tail)


class Played:
    """Deals that were played: [won, return, moves, seconds] of each, kept in a JSON file, a few at a time.

    So a command that is killed goes on where it was. What was played under another seed or by another version of the
    search counts for nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.kept: dict[str, dict[str, list[float]]] = {}
        if path is not None and path.is_file():
            self.kept = json.loads(path.read_text("utf-8"))

    def play(self, policy: str, game_id: str, deals: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
        """Let a policy play deals, or what is missing of them; return a row for each."""
        version = make_policy(parse_policy(policy)[0], game_id).version
        known = self.kept.setdefault(f"{patience_env.__version__} {game_id} {policy} {version} {seed}", {})
        missing = [int(deal) for deal in deals if str(deal) not in known]
        for first in range(0, len(missing), CHUNK):
            result = evaluate(policy, game_id, missing[first : first + CHUNK], seed=seed)
            if result.won is None:
                raise ValueError(f"{game_id} is not won or lost")
            # Which deal took how long is not told: all moves of a chunk count alike.
            seconds = result.lengths * result.seconds_per_move
            rows = np.column_stack([result.won, result.returns, result.lengths, seconds]).tolist()
            known.update(zip(map(str, missing[first : first + CHUNK]), rows, strict=True))
            if self.path is not None:
                write_atomically(self.path, json.dumps(self.kept))
        return np.array([known[str(deal)] for deal in deals])


def share(won: NDArray[np.float64]) -> str:
    """Return a win rate with its interval."""
    low, high = wilson(int(won.sum()), len(won))
    return f"{won.mean():.1%} [{low:.1%}, {high:.1%}]"


def strength_line(
    game_id: str, simulations: int, deals_of: str, skip: int, first: int | None, seed: int, played: Played
) -> str:
    """Play a game by a rollout policy and by UCT with it; return its line of the table of strengths."""
    rollout, settings, count = MATCHES[game_id]
    deals = named_deals(deals_of, skip + (first or count))[skip:]
    name = f"uct:simulations={simulations}:rollout={rollout}{settings}"
    plain, search = (played.play(policy, game_id, deals, seed) for policy in (rollout, name))
    gains = search[:, 0] - plain[:, 0]
    mean, half = float(gains.mean()), Z_95 * standard_error(gains)
    chance = mcnemar(int((gains > 0).sum()), int((gains < 0).sum()))
    cells: list[Any] = [game_id, f"`{name}`", len(deals), share(plain[:, 0]), share(search[:, 0])]
    cells += [f"{mean:+.1%} [{mean - half:+.1%}, {mean + half:+.1%}]", f"{chance:.2g}"]
    cells += [f"{plain[:, 1].mean():.3f}", f"{search[:, 1].mean():.3f}"]
    cells.append(time_text(search[:, 3].sum() / search[:, 2].sum()))
    return f"| {' | '.join(map(str, cells))} |"


def main(
    strength: Annotated[bool, typer.Option("--strength", help="Play whole games and compare win rates.")] = False,
    game: Annotated[list[str] | None, typer.Option(help="Only this game; may be repeated.")] = None,
    simulations: Annotated[int, typer.Option(min=1, help="Simulations a move.")] = 1000,
    deals: Annotated[str, typer.Option(help="Which standard deals: test or validation.")] = "test",
    skip: Annotated[int, typer.Option(min=0, help="So many deals are left out first.")] = 0,
    first: Annotated[int | None, typer.Option(min=2, help="Deals of each game, instead of its own number.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all policies.")] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="JSON file that keeps what was played: a killed run goes on.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs of each loop.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.01, help="CPU time of a timed run.")] = 0.2,
) -> None:
    """Print how fast the generic rollouts are, or (--strength) how much UCT gains over its rollout policy."""
    games = game or [name for name in game_ids() if not strength or name in MATCHES]
    for name in games:
        if name not in (MATCHES if strength else game_ids()):
            raise typer.BadParameter(f"there is no game {name!r} here: choose {', '.join(MATCHES)}")
    if strength:
        heads = ["game", "search", "deals", "rollout policy wins", "search wins", "gain [95%]", "p"]
        heads += ["progress without", "progress with", "CPU a move"]
    else:
        heads = ["game", "bare loop", *ROLLOUTS, "random / bare"]
    typer.echo(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    played = Played(keep)
    for name in games:
        typer.echo(
            strength_line(name, simulations, deals, skip, first, seed, played)
            if strength
            else speed_line(name, runs, seconds)
        )


if __name__ == "__main__":
    typer.run(main)
