"""How well players of Patience Poker do with the luck of the cards taken out: `python -m patience_env.training.luck`.

The deals are played as `patience evaluate` plays them. Before each card is turned, the network of `value` says what the
board will be worth with each of the cards that may come, laid best; with the one that came it is worth more or less
than with the mean of them, and that is luck. What all the moves of a game had of it is taken off its score. The mean of
luck is nothing whatever the network thinks and however the player plays (only that which of the cards comes is equally
likely is used), so that a player's mean stays what it was; but where the network knows the game well, hardly anything
else than the player's skill is left of the differences between games: some 400 games then tell as much as 40,000.
(Burch, Schmid, Moravcik, Morrill and Bowling, "AIVAT: a new variance reduction technique for agent evaluation in
imperfect information games", AAAI 2018, do so for poker.)

Example: python -m patience_env.training.luck --scoring english --first 400 --policy value --policy search
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.board_values import ValuePolicy, net_for, rate_cells, room_for, turn_board
from patience_env.agents.line_table import new_boards, read_board, see_card
from patience_env.agents.policy import Policy, Turn, make_policy, parse_policy
from patience_env.cards import PACK
from patience_env.deals import named_deals
from patience_env.game import Game, get_game
from patience_env.games.patience_poker import CANVAS, CARDS, GAME
from patience_env.jit import kernel, rule
from patience_env.training.evaluate import standard_error, write_atomically
from patience_env.training.shares import BATCH, cut, fingerprint, play_deals, share_seed, warm_up


@rule
def unsee_card(board, card):  # type: ignore[no-untyped-def]
    """Take back that a card (0 to 51) was turned."""
    board.unseen[card % 13] += 1
    board.unseen[13 + card // 13] += 1
    board.pack |= 1 << card


@kernel
def luck_of_cards(states, boards, net, space, points, worths, luck):  # type: ignore[no-untyped-def]
    """Add to `luck`, float64, (positions,), by how much the card in hand is better than those that might have come.

    Each position's board is taken with its best cell for the card; `worths`, float64, (81,), is scratch.
    """
    board = boards[0]
    for i in range(states.shape[0]):
        read_board(states[i], board, points)
        hand = int(states[i].deck[board.placed]) - 1
        unsee_card(board, hand)
        # Before the card is turned: which axis plays which part must not depend on it.
        turn_board(board, net, space, points)
        total = 0.0
        own = 0.0
        for card in range(PACK):
            if (board.pack >> card) & 1:
                see_card(board, card)
                best = worths[rate_cells(boards, net, space, card, points, worths)]
                unsee_card(board, card)
                total += best
                if card == hand:
                    own = best
        luck[i] += own - total / (PACK - board.placed)


class Watched(Policy):
    """A player of Patience Poker whose luck is watched; every game of a share must be played from its beginning.

    Attributes:
        luck: of the games of the share, float64, in their order.
        seconds: of CPU time that the player took.
    """

    def __init__(self, player: Policy) -> None:
        self.player, self.judge = player, ValuePolicy()
        self.name, self.version, self.game_id = player.name, player.version, GAME.id
        self.share = player.share
        self.boards = new_boards(2)
        self.luck = np.zeros(0)
        self.seconds = 0.0

    def start(self, seed: int) -> None:
        self.player.start(seed)
        self.luck = np.zeros(0)
        self.seconds = 0.0

    def files(self, options: Mapping[str, Any]) -> list[Path]:
        return [*self.player.files(options), *self.judge.files(options)]

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the player's choices."""
        if len(self.luck) == 0:
            self.luck = np.zeros(len(turn))
        net, conditions, _ = self.judge.model(turn.options)
        points = np.array(turn.states["points"][0], np.float64)
        weights = net if conditions is None else net_for(net, conditions, points)
        room = room_for(net), points, np.zeros(CANVAS * CANVAS)
        luck_of_cards(turn.states, self.boards, weights, *room, self.luck)
        started = time.process_time()
        actions = self.player.act(turn)
        self.seconds += time.process_time() - started
        return actions


def fixed_table(options: Mapping[str, Any]) -> tuple[Game, dict[str, Any]]:
    """Return Patience Poker and its options in normal form.

    Raises:
        ValueError: options that are not allowed, among them random tables and a target.
    """
    game = get_game(GAME.id)
    checked = game.check_options(dict(options))
    if checked["scoring"] == "random" or checked["target"] is not None:
        raise ValueError("single tableaus under one scoring table are wanted, not scoring='random' or a target")
    return game, checked


def play(
    text: str,
    options: Mapping[str, Any],
    deals: NDArray[np.uint64],
    keep: Path | None = None,
    show: Callable[[int], None] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Let a policy play deals, as `patience_env.training.evaluate.evaluate` does with seed 0.

    Args:
        text: the policy as text (see `parse_policy`).
        options: placement and scoring; the scoring must be one for all deals.
        deals: deal numbers.
        keep: a file for what was played so far, from which an interrupted run goes on; None: it is not kept.
        show: is called with the number of deals finished, after each share.

    Returns:
        The scores and the luck of the games, float64, and the seconds of CPU time that the player took.

    Raises:
        ValueError: options or a policy that are not allowed, or `keep` holds something else.
    """
    game, checked = fixed_table(options)
    name, given = parse_policy(text)
    player = make_policy(name, GAME.id, **given)
    player.check(game, checked)
    watched = Watched(player)
    about = [text, fingerprint(watched, game, checked), len(deals), int(deals[0]), int(deals[-1])]
    parts: list[dict[str, Any]] = []
    if keep is not None and keep.exists():
        try:
            kept = json.loads(keep.read_text("utf-8"))
            same, parts = kept["about"] == about, list(kept["parts"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{str(keep)!r} holds no games that can be gone on with: {error}") from error
        if not same:
            raise ValueError(f"{str(keep)!r} holds other games, or those of another version: give another file")
    warm_up(watched, game, checked, int(deals[0]))
    for number, some in enumerate(cut(deals, player.share)):
        if number >= len(parts):
            played = play_deals(watched, text, game, checked, some, share_seed(0, number), BATCH)
            luck = watched.luck.tolist()
            parts.append({"scores": played.returns.tolist(), "luck": luck, "seconds": watched.seconds})
            if keep is not None:
                write_atomically(keep, json.dumps({"about": about, "parts": parts}))
        if show is not None:
            show(sum(len(part["scores"]) for part in parts[: number + 1]))
    scores, lucks = (np.array([one for part in parts for one in part[key]], np.float64) for key in ("scores", "luck"))
    return scores, lucks, sum(part["seconds"] for part in parts)


def row(policy: str, *cells: str) -> str:
    """Return a line of the table."""
    return f"{policy:44s}" + "".join(f" {cell:>{width}s}" for cell, width in zip(cells, (16, 16, 12, 24), strict=True))


def command_of(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return what reads the arguments of a command that lets policies play deals of Patience Poker."""
    parser = argparse.ArgumentParser(
        prog=f"python -m patience_env.training.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scoring", default="american")
    parser.add_argument("--placement", default="fixed", choices=("fixed", "touching"))
    parser.add_argument("--deals", default="test", choices=("test", "validation", "smoke"))
    parser.add_argument("--first", type=int, default=400, help="how many of the deals")
    parser.add_argument("--policy", action="append", required=True, help="as `patience evaluate` takes it; several")
    return parser


def chosen_deals(given: argparse.Namespace) -> NDArray[np.uint64]:
    """Return the deals that the arguments of such a command ask for.

    Raises:
        ValueError: more than there are, or fewer than two.
    """
    deals = np.array(named_deals(given.deals), np.uint64)
    if not 1 < given.first <= len(deals):
        raise ValueError(f"first={given.first} is not allowed: give a number from 2 to {len(deals)}")
    return deals[: given.first]


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = command_of("luck", __doc__)
    parser.add_argument("--keep", default="", help="start of the names of files, one a policy, to go on from")
    given = parser.parse_args(arguments)
    options = {"scoring": given.scoring, "placement": given.placement}
    results: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    try:
        deals = chosen_deals(given)
        print(row("policy", "mean +- stderr", "luck taken out", "time a move", "minus the first [95%]"))
        for number, text in enumerate(given.policy):
            keep = Path(f"{given.keep}{number}.json") if given.keep else None
            scores, luck, seconds = play(text, options, deals, keep)
            skill = scores - luck
            results.append((scores, skill))
            difference = ""
            if number:
                gain = skill - results[0][1]
                half = 1.96 * standard_error(gain)
                difference = f"{gain.mean():+.2f} [{gain.mean() - half:+.2f}, {gain.mean() + half:+.2f}]"
            told = [f"{one.mean():.2f} +- {standard_error(one):.2f}" for one in (scores, skill)]
            moves = len(scores) * (CARDS - 1 if given.placement == "touching" else CARDS)
            print(row(text, *told, f"{1e3 * seconds / moves:.2f} ms", difference), flush=True)
    except (OSError, TypeError, ValueError) as error:
        print(f"luck: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
