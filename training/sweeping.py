"""A value network of Patience Poker learned backwards, in stages: `python -m patience_env.training.sweeping`.

A network that learns what it says itself of the boards one card later is consistent from card to card, and may still be
wrong over twenty of them: what the last cards teach reaches the first ones only after as many rounds. Here each number
of cards on the board is a stage with weights of its own, and the last is learned first. With two to four cells left a
board's worth is worked out; what a board of an earlier stage is worth is the mean over all cards that may come of what
the next stage, learned already, says of the best cell for each. So one sweep from the 24th card to the first carries
everything back (fitted value iteration over a finite horizon; Bertsekas and Tsitsiklis, "Neuro-Dynamic Programming",
1996, section 6.10).

The boards are those of games that a network plays, with a move away from its best now and then. No standard deal is
played.

Example: python -m patience_env.training.sweeping --scoring english --games 20000 --out runs/swept
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from patience_env import __version__
from patience_env.agents.board_values import (
    ALL_FEATURES,
    STAGES,
    VALUE_MODEL,
    Net,
    ValuePolicy,
    deal_board,
    load_net,
    rate_cells,
    room_for,
    save_net,
)
from patience_env.agents.line_table import LinePolicy, check_fit, lay, new_boards, points_of, see_card, shipped_folder
from patience_env.agents.search import (
    AGREED_ON,
    ASKED,
    BOARDS,
    EXACT_FROM,
    ROOT,
    agree,
    expect,
    look_ahead,
    new_firsts,
)
from patience_env.cards import PACK
from patience_env.deals import RESERVED_DEALS, draw_below, draw_card
from patience_env.games.patience_poker import CANVAS, CARDS, CENTRE, GAME, SIDE
from patience_env.jit import kernel
from patience_env.training.figures import progress as progress_bar
from patience_env.training.models import course_of, read_pair, write_pair
from patience_env.training.refining import Fit, Looks, Record, join, likely_cells, rate_hand, widen
from patience_env.training.value_command import check_folder, measure, measured
from patience_env.training.value_training import CHECKPOINT, net_of

# Per cent: games with one move far from the best, games played loosely, and moves of those that are near the best only;
# how near, as a share of the largest points, and how much farther the one move may be.
ODD, LOOSE, LOOSE_MOVES = 30, 50, 25
NEAR, FARTHER = 0.01, 6.0
# With no more cards than this positions are alike enough for a third of the games.
FEW = 8
GAMES, EPOCHS, WIDTH = 20_000, 16, 48
# Games that one process looks at in one go; each such block has random numbers of its own.
BLOCK = 1000
LOOKING = 0.7  # that share of the time of a stage, or so


@kernel
def play_loosely(deals, stream, boards, net, space, points, touching, worths, near, cells):  # type: ignore[no-untyped-def]
    """Play deals by a network, now and then not its best cell; write the cells, int64, (deals, 25)."""
    board = boards[0]
    rng = stream[0]
    for game in range(deals.shape[0]):
        deal_board(board, deals[game], CANVAS if touching else SIDE)
        odd = -1
        if draw_below(rng, 100) < ODD:
            odd = int(draw_below(rng, CARDS - 3))
        loose = draw_below(rng, 100) < LOOSE
        for placed in range(CARDS):
            card = int(draw_card(board, board.deck, placed, PACK)) - 1
            see_card(board, card)
            cell = CENTRE
            if placed > 0 or not touching:
                cell = rate_cells(boards, net, space, card, points, worths)
                if placed == odd or (loose and draw_below(rng, 100) < LOOSE_MOVES):
                    least = worths[cell] - (near * FARTHER if placed == odd else near)
                    count = 0
                    for other in range(board.side * board.side):
                        if worths[other] > least:
                            count += 1
                    drawn = int(draw_below(rng, count))
                    for other in range(board.side * board.side):
                        if worths[other] > least:
                            if drawn == 0:
                                cell = other
                            drawn -= 1
            cells[game, placed] = cell
            lay(board, cell, card, points)


@kernel
def set_up(boards, deal, cells, count, side, points):  # type: ignore[no-untyped-def]
    """Put the first cards of a deal on cells of the first board, and turn the next one."""
    board = boards[ROOT]
    deal_board(board, deal, side)
    for placed in range(count + 1):
        card = int(draw_card(board, board.deck, placed, PACK)) - 1
        see_card(board, card)
        if placed < count:
            lay(board, cells[placed], card, points)


@dataclass(frozen=True)
class Sweep:
    """What is to be learned.

    Attributes:
        scoring: the name of a scoring table.
        placement: "fixed" or "touching".
        games: whose positions each stage learns from (a third of them with few cards).
        epochs: rounds through all positions of a stage.
        width: of the network; 0: as wide as the one begun with, and not less than `WIDTH`.
        seed: of deals, moves and the order of learning.
        start: the folder of the network that plays, and whose weights are begun with; "" the one in the package.
    """

    scoring: str = "american"
    placement: str = "fixed"
    games: int = GAMES
    epochs: int = EPOCHS
    width: int = 0
    seed: int = 0
    start: str = ""

    def first(self) -> tuple[Net, dict[str, Any]]:
        """Return the network to begin with, and the facts of its file.

        Raises:
            ValueError: something is not allowed, or the network is for another game.
        """
        points_of(self.scoring)
        for name in ("games", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r} is not allowed: give a whole number above 0")
        options = {"scoring": self.scoring, "placement": self.placement}
        folder = Path(self.start) if self.start else shipped_folder("value", options)
        net, conditions, facts = load_net(folder)
        if conditions is not None:
            raise ValueError(f"{str(folder)!r} plays for any table: give a network for one")
        check_fit(f"value model {str(folder)!r}", facts, options)
        if self.width:
            weights_for(net, STAGES, self.width, 0)
        return net, facts


def weights_for(net: Net, stage: int, width: int, seed: int) -> Net:
    """Return the weights of one stage (1 to 24), all features and the crossing lines heard; wider, if need be.

    Raises:
        ValueError: the network is wider.
    """
    if len(net.w1) > 2:
        net = Net(*(array[2 * stage - 2 : 2 * stage] for array in net))
    return widen(net, width, seed, ALL_FEATURES, True)


@dataclass(frozen=True)
class Task:
    """What one process is to look at: positions of one stage, and what the cells are worth there."""

    plan: Sweep
    stage: int
    net: Net  # that plays, and names the likely cells
    following: Net | None  # the next stage; None where the rest is worked out
    deals: NDArray[np.uint64]
    cells: NDArray[np.int64]
    seed: tuple[int, ...]

    def run(self) -> Looks:
        """Return what the likely cells, and sometimes one other, are worth for the card in hand."""
        plan, stage = self.plan, self.stage
        options = {"scoring": plan.scoring, "placement": plan.placement}
        points, values = points_of(plan.scoring), LinePolicy().model(options)[0]
        touching = int(plan.placement == "touching")
        side, largest, rng = CANVAS if touching else SIDE, float(np.abs(points).max()), np.random.default_rng(self.seed)
        boards, worths, room = new_boards(BOARDS + 1), np.zeros(CANVAS * CANVAS), np.zeros(CANVAS * CANVAS)
        space, record = room_for(self.net), Record(points, ALL_FEATURES)
        ahead = None if self.following is None else room_for(self.following)
        flips = np.array([agree(boards, AGREED_ON, self.net, space, values, points, touching, worths), 0], np.int64)
        for deal, cells in zip(self.deals, self.cells, strict=True):
            set_up(boards, deal, cells, stage - 1, side, points)
            likely = tried = np.array([CENTRE])
            if stage > 1 or not touching:
                worths[:] = -np.inf
                rate_hand(boards, self.net, space, points, worths)
                likely, tried = likely_cells(worths, largest)
            if len(likely) > len(tried) and rng.random() < 0.5:
                tried = np.append(tried, rng.choice(likely[len(tried) :]))
            if self.following is None:
                means = np.zeros(len(tried))
                expect(boards, tried, means, points)
            else:
                found = np.zeros((PACK - stage, len(tried)))
                way = 1, ASKED, 1.0, flips
                look_ahead(boards, tried, 0, found, *way, values, points, self.following, ahead, room, new_firsts())
                means = found.mean(0)
            record.add(boards, tried, means)
        return record.looks()


def run_task(task: Task) -> Looks:
    """Run a task, perhaps in another process."""
    return task.run()


@contextmanager
def workers(processes: int) -> Iterator[Callable[[list[Task]], Iterator[Looks]]]:
    """Give what runs tasks, in so many processes; what they find does not depend on how many."""
    if processes == 1:
        yield partial(map, run_task)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield partial(pool.map, run_task)


def _tell(tell: Callable[[str, float], None], stage: int, share: float) -> None:
    tell("learning backwards", (STAGES - stage + share) / STAGES)


class SweepTraining:
    """A sweep in a folder: stopped at any moment, it goes on after the last stage that was finished.

    Args:
        folder: of the model, the checkpoint and TensorBoard's files.
        plan: what to learn.
        resume: go on from the folder's checkpoint.

    Raises:
        ValueError: as `Sweep.first`; or the checkpoint is damaged or belongs to another plan.
    """

    def __init__(self, folder: str | os.PathLike[str], plan: Sweep, resume: bool = False) -> None:
        self.folder = Path(folder)
        self.net, self.facts = plan.first()
        self.plan = plan = replace(plan, width=plan.width or max(WIDTH, self.net.b1.shape[1]))
        self.points = points_of(plan.scoring)
        self.stages: dict[int, Net] = {}
        self.curve: list[dict[str, Any]] = []
        if resume:
            self._restore()

    def run(
        self,
        processes: int = 1,
        show: Callable[[str], None] | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """Learn all stages that are left.

        Args:
            processes: that look at positions side by side.
            show: is called with a line of text after each stage.
            progress: is called with what is done and which share of it.
        """
        from torch.utils.tensorboard import SummaryWriter

        say, tell = show or (lambda text: None), progress or (lambda name, share: None)
        torch.set_num_threads(1)
        self.save_checkpoint()
        deals, cells = self._play()
        writer = SummaryWriter(str(self.folder / "tensorboard"))
        try:
            with workers(processes) as run:
                for stage in range(STAGES, 0, -1):
                    if stage not in self.stages:
                        told = self._learn(stage, deals, cells, run, partial(_tell, tell, stage))
                        for name, errors in told.items():
                            if name.endswith("after"):
                                writer.add_scalar(name, errors, STAGES - stage)
                        self.curve.append({"cards": stage, **told})
                        self.save_checkpoint()
                        say(
                            f"{stage:2d} cards, {told['positions']:,} positions: errors {told['worth before']:.3f} to "
                            f"{told['worth after']:.3f}, of differences {told['differences before']:.3f} to "
                            f"{told['differences after']:.3f}"
                        )
        finally:
            writer.close()

    def _play(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Play the games whose positions are learned from."""
        plan, rng = self.plan, np.random.default_rng(self.plan.seed)
        deals = rng.integers(RESERVED_DEALS, 2**64, size=plan.games, dtype=np.uint64)
        cells, stream = np.zeros((plan.games, CARDS), np.int64), new_boards(1)
        stream["rng"] = rng.integers(2**64, dtype=np.uint64)
        near = NEAR * np.abs(self.points).max()
        room = room_for(self.net), self.points, int(plan.placement == "touching"), np.zeros(CANVAS * CANVAS)
        play_loosely(deals, stream, new_boards(2), self.net, *room, near, cells)
        return deals, cells

    def _learn(
        self,
        stage: int,
        deals: NDArray[np.uint64],
        cells: NDArray[np.int64],
        run: Callable[[list[Task]], Iterator[Looks]],
        tell: Callable[[float], None],
    ) -> dict[str, Any]:
        """Learn one stage; return its errors. `tell` is called with the share that is done."""
        plan = self.plan
        games = plan.games if stage > FEW else max(1, plan.games // 3)
        # `expect` works out a card in hand and three more cells.
        following = None if stage > EXACT_FROM - 1 else self.stages[stage + 1]
        tasks = [
            Task(plan, stage, self.net, following, deals[one], cells[one], (plan.seed, stage, one.start))
            for one in (slice(first, min(first + BLOCK, games)) for first in range(0, games, BLOCK))
        ]
        parts = []
        for part in run(tasks):
            parts.append(part)
            tell(LOOKING * len(parts) / len(tasks))
        looks = join(parts)
        begun = self.net if len(self.net.w1) > 2 or stage == STAGES else self.stages[stage + 1]
        fit = Fit(weights_for(begun, stage, plan.width, plan.seed), self.points, looks, plan.seed)
        before = fit.measure()
        fit.run(plan.epochs, lambda epoch, _: tell(LOOKING + (1 - LOOKING) * epoch / plan.epochs))
        after = fit.measure()
        self.stages[stage] = net_of(fit.mean, fit.scale)
        names = ("worth", "differences")
        told: dict[str, Any] = {"positions": len(looks.sizes)}
        for when, errors in (("before", before), ("after", after)):
            told |= {f"{name} {when}": error for name, error in zip(names, errors, strict=True)}
        return told

    def whole(self) -> Net:
        """Return the network of all stages."""
        return Net(
            *(np.concatenate(arrays) for arrays in zip(*(self.stages[k + 1] for k in range(STAGES)), strict=True))
        )

    def save_checkpoint(self) -> None:
        """Write what has been learned so far."""
        tensors = {f"{k}.{name}": array for k, net in self.stages.items() for name, array in net._asdict().items()}
        facts = {"game": GAME.id, "kind": "sweep", "plan": asdict(self.plan), "curve": self.curve}
        write_pair(self.folder / CHECKPOINT, tensors or {"nothing": np.zeros(1, np.float32)}, facts)

    def _restore(self) -> None:
        path = self.folder / CHECKPOINT
        facts, tensors = read_pair(path, "checkpoint")
        if facts.get("kind") != "sweep" or facts.get("plan") != asdict(self.plan):
            raise ValueError(f"checkpoint {str(path)!r} is of {facts.get('plan')}: go on with that, or begin elsewhere")
        self.curve = facts["curve"]
        for told in self.curve:
            self.stages[told["cards"]] = Net(*(tensors[f"{told['cards']}.{name}"] for name in Net._fields))

    def save(self, **facts: Any) -> None:
        """Write the model."""
        made: Mapping[str, Any] = {
            "placement": self.plan.placement,
            "points": self.points.tolist(),
            "version": __version__,
            "training": {
                **asdict(self.plan),
                "start": Path(self.plan.start).name,
                "kind": "sweep",
                "started_as": self.facts.get("training"),
            },
            "stages": self.curve,
            "history": course_of(self.facts),
        }
        save_net(self.folder, self.whole(), {**made, **facts})


def sweep(
    out: str | os.PathLike[str],
    plan: Sweep,
    *,
    resume: bool = False,
    processes: int = 1,
    show: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Any:
    """Learn a network of stages, save it in `out`, and return its result on the validation deals (see `SweepTraining`).

    Raises:
        ValueError: something that is not allowed, or `out` holds something. Nothing is changed then.
    """
    if processes < 1:
        raise ValueError(f"processes={processes!r} is not allowed: give a whole number above 0")
    plan.first()
    folder = Path(out)
    check_folder(folder, VALUE_MODEL, CHECKPOINT, resume)
    training = SweepTraining(folder, plan, resume)
    training.run(processes, show, progress)
    training.save()
    result = measure(ValuePolicy(str(folder)), plan.scoring, plan.placement)
    training.save(validation=measured(result))
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m patience_env.training.sweeping", description=__doc__)
    parser.add_argument("--scoring", default="american", help="american, american-alternate or english")
    parser.add_argument("--placement", default="fixed", choices=("fixed", "touching"))
    parser.add_argument("--games", type=int, default=GAMES, help="games whose positions each stage learns from")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="rounds of learning")
    parser.add_argument("--width", type=int, default=0, help="of the network; by default as wide as the first")
    parser.add_argument(
        "--start", default="", help="folder of the network that plays; by default the one in the package"
    )
    parser.add_argument("--seed", type=int, default=0, help="of deals, moves and the order of learning")
    parser.add_argument("--processes", type=int, default=1, help="that look at positions side by side")
    parser.add_argument("--resume", action="store_true", help="go on with a training in --out, same settings")
    parser.add_argument("--out", required=True, help="folder for the model")
    given = vars(parser.parse_args(arguments))
    out, resume, processes = (given.pop(name) for name in ("out", "resume", "processes"))
    try:
        plan = Sweep(**given)
        with progress_bar(False) as bar:
            say = partial(print, flush=True)
            result = sweep(out, plan, resume=resume, processes=processes, show=say, progress=bar)
    except (OSError, TypeError, ValueError) as error:
        print(f"sweeping: error: {error}", file=sys.stderr)
        return 2
    print(f"validation deals: {result.mean:.2f} +- {result.stderr:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
