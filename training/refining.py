"""Let a value network of Patience Poker learn from looking ahead: `python -m patience_env.training.refining`.

Games are played by looking some cards ahead on random decks, as the search does (`patience_env.agents.search`). What
the likeliest cells, and one other, turned out to be worth is known far better then than the score of one game tells it,
and better than the network knew. That is what the network learns: the worth of the board and, above all, the
differences between the cells of one position.

A network may be begun wider than the one that it comes from: it plays the same at first (the new units tell nothing
yet) and has more room to learn. What was found in one round can be kept in a file, and learned from again in the next.

Example: python -m patience_env.training.refining --scoring english --placement touching --games 1500 --out runs/refined
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from patience_env import __version__
from patience_env.agents.board_values import (
    ALL_FEATURES,
    FEATURES,
    VALUE_MODEL,
    Net,
    ValuePolicy,
    deal_board,
    export,
    load_net,
    new_space,
    play_values,
    rate_cells,
    room_for,
    save_net,
)
from patience_env.agents.line_table import (
    LinePolicy,
    check_fit,
    copy_board,
    lay,
    new_boards,
    points_of,
    see_card,
    shipped_folder,
)
from patience_env.agents.search import AGREED_ON, ASKED, BOARDS, HOPELESS, ROOT, agree, depth_at, look_ahead, new_firsts
from patience_env.cards import PACK
from patience_env.deals import RESERVED_DEALS, draw_card, named_deals
from patience_env.games.patience_poker import CANVAS, CARDS, CENTRE, SIDE
from patience_env.jit import kernel
from patience_env.training.models import course_of
from patience_env.training.value_command import check_folder, measure, measured
from patience_env.training.value_training import CHECKPOINT, LINES, QUARTERS, ValueNet, net_of

# With how many cards placed (from 1 on) positions are learned from; how many of the likeliest cells at most, and one
# more.
LAST_PLACED, LIKELY = 21, 4
# Cards ahead, and the share of games in which one move is random.
DEPTH, CHANCE = 3, 0.4
# Rounds through all positions, positions of a step, learning rates, and how slowly the mean of the weights moves.
EPOCHS, BATCH, FIRST_RATE, LAST_RATE, WARM_STEPS, SMOOTHING = 15, 200, 8e-4, 1e-5, 100, 0.995
# How much more the differences between cells count than the worth of the board.
CENTRED = 2.0
# The share of positions that is kept back, to tell what was learned.
KEPT_BACK = 0.07
TRIAL = BOARDS


@kernel
def begin_deal(boards, deal, side):  # type: ignore[no-untyped-def]
    """Begin a deal on the first board."""
    deal_board(boards[ROOT], deal, side)


@kernel
def turn_card(boards):  # type: ignore[no-untyped-def]
    """Turn the next card."""
    board = boards[ROOT]
    see_card(board, int(draw_card(board, board.deck, board.placed, PACK)) - 1)


@kernel
def place_card(boards, cell, points):  # type: ignore[no-untyped-def]
    """Lay the card in hand on a cell."""
    board = boards[ROOT]
    lay(board, cell, int(board.deck[board.placed]) - 1, points)


@kernel
def rate_hand(boards, net, space, points, worths):  # type: ignore[no-untyped-def]
    """Write what the network thinks of the cells for the card in hand."""
    board = boards[ROOT]
    return rate_cells(boards, net, space, int(board.deck[board.placed]) - 1, points, worths)


@kernel
def show_cell(boards, cell, points, space, inputs, weights, owners, opened):  # type: ignore[no-untyped-def]
    """Write the lines with the card in hand on a cell (see `export`); return the points of those complete.

    `opened` is uint8, (5, 5), and gets 1 where a row and a column cross at an empty cell.
    """
    board = boards[ROOT]
    trial = boards[TRIAL]
    copy_board(trial, board)
    lay(trial, cell, int(board.deck[board.placed]) - 1, points)
    export(trial, space, inputs, weights, owners)
    for i in range(SIDE):
        for j in range(SIDE):
            row = int(owners[i])
            column = int(owners[SIDE + j]) - CANVAS
            begun = row >= 0 and column >= 0
            opened[i, j] = 0 if begun and (trial.filled[row] >> column) & 1 else 1
    return trial.score


class Looks(NamedTuple):
    """What was found: one row a cell, the cells of a position one after the other.

    Attributes:
        inputs: the features of the ten lines, float16, (n, 10, FEATURES or ALL_FEATURES).
        weights: 1 for an incomplete line, float32, (n, 10).
        opened: 1 where a row and a column cross at an empty cell, uint8, (n, 5, 5).
        targets: what the incomplete lines are worth together, float32, (n,).
        sizes: how many cells each position has, int64, (positions,).
        scores: of the games without a random move, float64.
    """

    inputs: NDArray[np.float16]
    weights: NDArray[np.float32]
    opened: NDArray[np.uint8]
    targets: NDArray[np.float32]
    sizes: NDArray[np.int64]
    scores: NDArray[np.float64]


class Record:
    """Takes down what cells turned out to be worth, one position of the first board after the other."""

    def __init__(self, points: NDArray[np.float64], features: int) -> None:
        self.points, self.space = points, new_space(1, features)
        self.owners = np.zeros(LINES, np.int8)
        self.inputs: list[NDArray[np.float16]] = []
        self.weights: list[NDArray[np.float32]] = []
        self.opened: list[NDArray[np.uint8]] = []
        self.targets: list[float] = []
        self.sizes: list[int] = []

    def add(self, boards: NDArray[Any], cells: NDArray[np.int64], worths: NDArray[np.float64]) -> None:
        """Take down what the board is worth with the card in hand on each of some cells."""
        shown = np.zeros((LINES, self.space.features.shape[1]), np.float32)
        for cell, worth in zip(cells.tolist(), worths.tolist(), strict=True):
            weights, opened = np.zeros(LINES, np.float32), np.zeros((SIDE, SIDE), np.uint8)
            done = show_cell(boards, cell, self.points, self.space, shown, weights, self.owners, opened)
            self.inputs.append(shown.astype(np.float16))
            self.weights.append(weights)
            self.opened.append(opened)
            self.targets.append(worth - done)
        self.sizes.append(len(cells))

    def looks(self, scores: Sequence[float] = ()) -> Looks:
        """Return all that was taken down, and the scores of games."""
        return Looks(
            np.array(self.inputs),
            np.array(self.weights),
            np.array(self.opened),
            np.array(self.targets, np.float32),
            np.array(self.sizes),
            np.array(scores, np.float64),
        )


def likely_cells(worths: NDArray[np.float64], largest: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the legal cells, the likeliest first, and how many of them are worth to be looked at."""
    likely = np.flatnonzero(worths > -np.inf)
    likely = likely[np.argsort(-worths[likely], kind="stable")]
    tried = likely[:LIKELY]
    return likely, tried[worths[tried] >= worths[likely[0]] - HOPELESS * largest]


def look(
    net: Net,
    scoring: str,
    placement: str,
    games: int,
    seed: int,
    depth: int = DEPTH,
    asked: int = ASKED,
    show: Callable[[int], None] | None = None,
) -> Looks:
    """Play games by looking ahead, and return what was found. No standard deal is played."""
    points = points_of(scoring)
    values, _ = LinePolicy().model({"scoring": scoring, "placement": placement})
    rng, boards, touching = np.random.default_rng(seed), new_boards(BOARDS + 1), int(placement == "touching")
    space, worths = room_for(net), np.zeros(CANVAS * CANVAS)
    turned = int(agree(boards, AGREED_ON, net, space, values, points, touching, worths))
    flips, room = np.array([turned, 0]), np.zeros(CANVAS * CANVAS)
    record, largest, scores = Record(points, net.w1.shape[1]), float(np.abs(points).max()), []
    for game in range(games):
        begin_deal(
            boards, np.uint64(rng.integers(RESERVED_DEALS, 2**64, dtype=np.uint64)), CANVAS if touching else SIDE
        )
        odd = int(rng.integers(1, LAST_PLACED)) if rng.random() < CHANCE else -1
        for placed in range(CARDS):
            turn_card(boards)
            if touching and placed == 0:
                place_card(boards, CENTRE, points)
                continue
            worths[:] = -np.inf
            cell = int(rate_hand(boards, net, space, points, worths))
            likely, tried = likely_cells(worths, largest)
            if 0 < placed <= LAST_PLACED and len(likely) > 1:
                if len(likely) > len(tried):
                    tried = np.append(tried, rng.choice(likely[len(tried) :]))
                found = np.zeros((PACK - 1 - placed, len(tried)))
                kept = boards["rng"][ROOT]
                boards["rng"][ROOT] = rng.integers(2**64, dtype=np.uint64)
                ahead = depth_at(depth, placed)
                way = ahead, asked, 1.0, flips
                look_ahead(boards, tried, 0, found, *way, values, points, net, space, room, new_firsts())
                boards["rng"][ROOT] = kept
                means = found.mean(0)
                record.add(boards, tried, means)
                cell = int(rng.choice(likely)) if placed == odd else int(tried[means.argmax()])
            place_card(boards, cell, points)
        if odd < 0:
            scores.append(float(boards["score"][ROOT]))
        if show is not None:
            show(game + 1)
    return record.looks(scores)


def keep_looks(path: Path, looks: Looks, about: str) -> None:
    """Write what was found into a file; `about` tells what game it is of."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez(file, about=np.array(about), **looks._asdict())
    os.replace(part, path)


def read_looks(path: Path, about: str) -> Looks:
    """Return what a file of `keep_looks` holds.

    Raises:
        ValueError: it is damaged, or of another game than `about`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        own = str(found.pop("about"))
        looks = Looks(**found)
        fits = looks.inputs.shape[1:] in ((LINES, FEATURES), (LINES, ALL_FEATURES))
        fits &= looks.sizes.sum() == len(looks.inputs) == len(looks.opened)
    except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{str(path)!r} holds nothing that can be learned from: {error}") from error
    if own != about or not fits:
        raise ValueError(f"{str(path)!r} was found in {own}, not in {about}, or by another version: leave it out")
    return looks


def join(parts: Sequence[Looks]) -> Looks:
    """Return all that was found, in order."""
    return parts[0] if len(parts) == 1 else Looks(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def widen(net: Net, width: int, seed: int, features: int = 0, crossed: bool = False) -> Net:
    """Return a network of another width that plays the same: its new units see something and tell nothing yet.

    It may be told more features of a line (0: as many), and hear the lines that cross empty cells.

    Raises:
        ValueError: the network is wider already, or one of stages.
    """
    old, told, kinds = net.b1.shape[1], net.w1.shape[1], net.w2.shape[1]
    if width < old:
        raise ValueError(f"width={width!r} is not allowed: the network has width {old} already")
    if len(net.w1) > 2:
        raise ValueError("a network of stages cannot be widened: give one that has the same weights for all boards")
    fresh = ValueNet(width, seed, features=max(features, told), crossed=crossed or kinds > 3)
    arrays = {name: value.detach().numpy().copy() for name, value in fresh.named_parameters()}
    for name in ("w3", "b1", "b2"):
        arrays[name][:] = 0.0
    arrays["w1"][:, :, :old] = 0.0
    arrays["w1"][:, :told, :old] = net.w1
    arrays["w2"][:, :, old:] = 0.0
    arrays["w2"][:, kinds:] = 0.0
    arrays["w2"][:, :kinds, :old, :old] = net.w2
    for name in ("b1", "b2", "w3"):
        arrays[name][:, :old] = getattr(net, name)
    return Net(**{**arrays, "b3": net.b3})


class Fit:
    """A network that learns what was found, begun as another one, or wider (0: as wide)."""

    def __init__(self, start: Net, points: NDArray[np.float64], looks: Looks, seed: int, width: int = 0) -> None:
        net = widen(start, width, seed) if width > start.b1.shape[1] else start
        self.shape = {"features": net.w1.shape[1], "crossed": net.w2.shape[1] > 3}
        self.net = ValueNet(net.b1.shape[1], 0, **self.shape)
        self.net.begin_with(net, None, {"points": points})
        self.largest = float(np.abs(points).max())
        self.scale = self.largest / QUARTERS
        self.mean = {name: value.detach().clone() for name, value in self.net.named_parameters()}
        self.looks, self.rng = looks, np.random.default_rng(seed)
        self.starts = np.cumsum(looks.sizes) - looks.sizes
        self.kept_back = max(1, int(KEPT_BACK * len(looks.sizes)))  # of the latest

    def errors(self, net: nn.Module, positions: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the errors of the cells of some positions, and those less the mean error of the position."""
        sizes = self.looks.sizes[positions]
        own = np.repeat(np.arange(len(positions)), sizes)
        rows = np.arange(len(own)) + np.repeat(self.starts[positions] - (np.cumsum(sizes) - sizes), sizes)
        inputs = torch.from_numpy(self.looks.inputs[rows].astype(np.float32))
        weights, targets = (torch.from_numpy(array[rows]) for array in (self.looks.weights, self.looks.targets))
        opened = torch.from_numpy(self.looks.opened[rows].astype(np.float32))
        errors = (net(inputs, weights, opened=opened) * weights).sum(1) * self.scale - targets
        means = torch.zeros(len(positions)).index_add(0, torch.from_numpy(own), errors) / torch.from_numpy(sizes)
        return errors, errors - means[own]

    def measure(self) -> tuple[float, float]:
        """Return the root mean square of both errors over the positions kept back (of the mean of the weights)."""
        net = ValueNet(self.net.b1.shape[1], 0, **self.shape)
        net.load_state_dict(self.mean)
        with torch.no_grad():
            both = self.errors(net, np.arange(len(self.starts))[-self.kept_back :])
        return float(both[0].square().mean().sqrt()), float(both[1].square().mean().sqrt())

    def run(self, epochs: int, show: Callable[[int, tuple[float, float]], None] | None = None) -> None:
        """Learn for so many rounds through all positions."""
        positions = np.arange(len(self.starts))[: -self.kept_back]
        steps, step = epochs * math.ceil(len(positions) / BATCH), 0
        optimizer = torch.optim.Adam(self.net.parameters(), lr=FIRST_RATE)
        for epoch in range(epochs):
            self.rng.shuffle(positions)
            for first in range(0, len(positions), BATCH):
                rate = min(1.0, step / WARM_STEPS) * (1 + math.cos(math.pi * step / steps)) / 2
                for group in optimizer.param_groups:
                    group["lr"] = LAST_RATE + FIRST_RATE * rate
                errors, centred = self.errors(self.net, positions[first : first + BATCH])
                loss: Any = (errors.square().mean() + CENTRED * centred.square().mean()) * 100 / self.largest**2
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
                optimizer.step()
                step += 1
                keep = min(SMOOTHING, step / (step + 10))
                with torch.no_grad():
                    for name, value in self.net.named_parameters():
                        self.mean[name].lerp_(value, 1 - keep)
            if show is not None:
                show(epoch + 1, self.measure())


def validate(net: Net, scoring: str, placement: str) -> NDArray[np.float64]:
    """Return the scores of a network on the validation deals."""
    deals = np.array(named_deals("validation"), np.uint64)
    scores, space, touching = np.zeros(len(deals)), room_for(net), int(placement == "touching")
    play_values(deals, new_boards(2), net, space, points_of(scoring), touching, np.zeros(CANVAS * CANVAS), scores)
    return scores


def refine(
    out: str | Path,
    scoring: str,
    placement: str,
    games: int,
    *,
    start: str = "",
    epochs: int = EPOCHS,
    depth: int = DEPTH,
    asked: int = ASKED,
    width: int = 0,
    seed: int = 0,
    keep: str = "",
    also: Sequence[str] = (),
    show: Callable[[str], None] | None = None,
) -> Any:
    """Refine a network, save it in `out`, and measure it.

    Args:
        out: the folder for it.
        scoring, placement: of the games.
        games: how many are looked ahead in.
        start: the folder of the network to begin with, of the same table but perhaps of the other placement; "" the one
            that comes with the package.
        epochs: rounds through all positions.
        depth: cards ahead (above 1 two more early in the game).
        asked: how many cells the network is asked about for each of them; 0: the line table plays them.
        width: of the new network; 0: as wide as the first.
        seed: of deals, decks and the order of learning.
        keep: a file for what was found; "" it is not kept.
        also: such files of the same game, to learn from too.
        show: is called with lines of text.

    Raises:
        ValueError: something that is not allowed, or `out` holds something.
    """
    for name, value in (("games", games), ("epochs", epochs), ("depth", depth)):
        if value < 1:
            raise ValueError(f"{name}={value!r} is not allowed: give a whole number above 0")
    folder = Path(start) if start else shipped_folder("value", {"scoring": scoring, "placement": placement})
    net, conditions, facts = load_net(folder)
    if conditions is not None:
        raise ValueError(f"{str(folder)!r} plays for any table: give a network for one")
    if len(net.w1) > 2:
        raise ValueError(f"{str(folder)!r} has stages, as patience_env.training.sweeping makes them: give another")
    check_fit(
        f"value model {str(folder)!r}", {**facts, "placement": placement}, {"scoring": scoring, "placement": placement}
    )
    if not 0 <= asked <= CARDS:
        raise ValueError(f"asked={asked!r} is not allowed: give a whole number from 0 to {CARDS}")
    if width and width < net.b1.shape[1]:
        raise ValueError(f"width={width!r} is not allowed: the network has width {net.b1.shape[1]} already")
    about = f"{placement}, {scoring}"
    older = [read_looks(Path(one), about) for one in also]
    for path, one in zip(also, older, strict=True):
        if one.inputs.shape[2] != net.w1.shape[1]:
            raise ValueError(f"{path!r} tells other features of a line than the network is told: leave it out")
    check_folder(Path(out), VALUE_MODEL, CHECKPOINT, False)
    say = show or (lambda text: None)
    torch.set_num_threads(1)
    torch.manual_seed(seed)

    def tell_game(number: int) -> None:
        if number % max(1, games // 10) == 0:
            say(f"{number:,} of {games:,} games")

    looks = look(net, scoring, placement, games, seed, depth, asked, tell_game)
    say(f"{len(looks.sizes):,} positions")
    if len(looks.scores):
        mean, error = looks.scores.mean(), looks.scores.std() / len(looks.scores) ** 0.5
        say(f"games without a random move score {mean:.2f} +- {error:.2f}")
    if keep:
        keep_looks(Path(keep), looks, about)
    fit = Fit(net, points_of(scoring), join([*older, looks]), seed, width)
    curve: list[dict[str, Any]] = []

    def tell_epoch(number: int, errors: tuple[float, float]) -> None:
        score = float(validate(net_of(fit.mean, fit.scale), scoring, placement).mean())
        curve.append({"round": number, "errors": list(errors), "validation": score})
        say("round {}: {:.3f}, {:.3f}; validation deals {:.2f}".format(number, *errors, score))

    say("errors of the network, of a board's worth and of differences:")
    tell_epoch(0, fit.measure())
    fit.run(epochs, tell_epoch)
    plan = {
        "scoring": scoring,
        "placement": placement,
        "games": games,
        "epochs": epochs,
        "depth": depth,
        "asked": asked,
        "width": fit.net.b1.shape[1],
        "seed": seed,
        "positions": len(fit.starts),
    }
    made = {
        "placement": placement,
        "points": facts["points"],
        "version": __version__,
        "training": {**plan, "start": folder.name, "started_as": facts.get("training")},
        "curve": curve,
        # What was learned before, for pictures of the whole course.
        "history": course_of(facts),
    }
    refined = net_of(fit.mean, fit.scale)
    save_net(out, refined, made)
    result = measure(ValuePolicy(str(out)), scoring, placement)
    save_net(out, refined, {**made, "validation": measured(result)})
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m patience_env.training.refining", description=__doc__)
    parser.add_argument("--scoring", default="american", help="american, american-alternate or english")
    parser.add_argument("--placement", default="fixed", choices=("fixed", "touching"))
    parser.add_argument("--games", type=int, default=1500, help="games to look ahead in")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="rounds of learning")
    parser.add_argument("--depth", type=int, default=DEPTH, help="cards ahead (above 1 two more early in the game)")
    parser.add_argument("--asked", type=int, default=ASKED, help="cells the network is asked about; 0: the table plays")
    parser.add_argument("--start", default="", help="folder of the network; by default the one in the package")
    parser.add_argument("--width", type=int, default=0, help="of the new network; by default as wide as the first")
    parser.add_argument("--keep", default="", help="file for what was found")
    parser.add_argument("--also", nargs="*", default=(), help="such files, to learn from too")
    parser.add_argument("--seed", type=int, default=0, help="of deals, decks and the order of learning")
    parser.add_argument("--out", required=True, help="folder for the model")
    given = parser.parse_args(arguments)
    try:
        result = refine(show=lambda text: print(text, flush=True), **vars(given))
    except (OSError, TypeError, ValueError) as error:
        print(f"refining: error: {error}", file=sys.stderr)
        return 2
    print(f"validation deals: {result.mean:.2f} +- {result.stderr:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
