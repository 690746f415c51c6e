"""How far play is from perfect play at the end of a tableau: `python -m patience_env.training.last_cards`.

With a few cells left every card that may come, and every way to lay it, can be gone through: what each cell is worth
for the card in hand, when all the rest is played best, is then known exactly, without a network and without luck. Deals
are played by `value`, and with so many cells left every policy is asked where it would lay the card. By as much as its
cell is worth less than the best one, it falls short of perfect play for good.

What a player loses in a whole game is the sum of what its moves lose (Kakade and Langford, "Approximately optimal
approximate reinforcement learning", ICML 2002, for the sum), so these figures tell how much there is to be gained.

Example: python -m patience_env.training.last_cards --scoring english --first 400 --policy value --policy line
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patience_env.agents.board_values import ValuePolicy
from patience_env.agents.line_table import LinePolicy, new_boards
from patience_env.agents.policy import Policy, Turn, make_policy, parse_policy
from patience_env.agents.search import BOARDS, begin, expect
from patience_env.cards import PACK
from patience_env.games.patience_poker import CANVAS, CARDS, GAME
from patience_env.training.evaluate import standard_error
from patience_env.training.luck import chosen_deals, command_of, fixed_table
from patience_env.training.shares import BATCH, cut, play_deals, share_seed, warm_up

# With so many cells left the rest is gone through in milliseconds; with one more in seconds.
QUICK, MOST = 4, 5


class Exact:
    """What cells are worth when all that follows is played best.

    Args:
        options: of the game, in normal form; the scoring table must have a line table (it is not asked for its opinion,
            but sets up the positions).
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._values, facts = LinePolicy().model(options)
        self._points = np.array(facts["points"], np.float64)
        self._boards = new_boards(BOARDS)
        self._room = np.zeros(CANVAS * CANVAS)

    def worths(self, states: NDArray[Any], i: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the cells where the card in hand of position `i` may lie, and the expected final score of each.

        Raises:
            ValueError: more than `MOST` cells are left, or none.
        """
        placed = int(states[i]["placed"])
        left = CARDS - placed
        if not 1 <= left <= MOST:
            raise ValueError(f"{left} cells are left: what they are worth can be worked out for 1 to {MOST}")
        mask = np.zeros(CANVAS * CANVAS, np.int8)
        begin(states, i, self._boards, np.uint64(0), self._values, self._points, mask, self._room)
        cells = np.flatnonzero(mask)
        worths = np.zeros(len(cells))
        if left <= QUICK:
            expect(self._boards, cells, worths, self._points)
            return cells, worths
        for k, cell in enumerate(cells.tolist()):
            laid = states[i : i + 1].copy()
            deck = laid["deck"][0]
            laid["cells"][0, cell] = deck[placed]
            laid["placed"][0] = placed + 1
            for following in range(placed + 1, PACK):
                deck[placed + 1], deck[following] = deck[following], deck[placed + 1]
                worths[k] += self.worths(laid, 0)[1].max() / (PACK - placed - 1)
        return cells, worths


class Examined(Policy):
    """`value`, which plays, while other policies are asked where they would lay the card with so many cells left.

    Attributes:
        losses: of each policy, how much its cell is worth less than the best, in the order of the games.
    """

    def __init__(self, asked: Sequence[Policy], left: int, options: Mapping[str, Any]) -> None:
        self.player, self.asked, self.left = ValuePolicy(), list(asked), left
        self.name, self.version, self.game_id = self.player.name, self.player.version, GAME.id
        self.share = min(policy.share for policy in [self.player, *asked])
        self.exact = Exact(options)
        self.losses: list[list[float]] = [[] for _ in asked]

    def start(self, seed: int) -> None:
        for policy in [self.player, *self.asked]:
            policy.start(seed)

    def act(self, turn: Turn) -> NDArray[np.int64]:
        """Return the choices of `value`."""
        if int(turn.states["placed"][0]) == CARDS - self.left:
            chosen = [policy.act(turn) for policy in self.asked]
            for i in range(len(turn)):
                cells, worths = self.exact.worths(turn.states, i)
                for losses, actions in zip(self.losses, chosen, strict=True):
                    losses.append(float(worths.max() - worths[cells == actions[i]][0]))
        return self.player.act(turn)


def examine(
    texts: Sequence[str],
    options: Mapping[str, Any],
    deals: NDArray[np.uint64],
    left: int,
    show: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Return how much each policy loses with so many cells left, in points, float64, (policies, deals).

    Args:
        texts: the policies as text (see `parse_policy`).
        options: placement and scoring; a published table.
        deals: deal numbers.
        left: how many cells are left, 2 to `MOST`.
        show: is called with the number of deals finished, after each share.

    Raises:
        ValueError: options, policies or a number that are not allowed.
    """
    if not 2 <= left <= MOST:
        raise ValueError(f"left={left!r} is not allowed: give a number from 2 to {MOST}")
    game, checked = fixed_table(options)
    players = []
    for text in texts:
        name, given = parse_policy(text)
        players.append(make_policy(name, GAME.id, **given))
        players[-1].check(game, checked)
        warm_up(players[-1], game, checked, int(deals[0]))
    examined = Examined(players, left, checked)
    warm_up(examined, game, checked, int(deals[0]))
    done = 0
    for number, some in enumerate(cut(deals, examined.share)):
        play_deals(examined, "value", game, checked, some, share_seed(0, number), BATCH)
        done += len(some)
        if show is not None:
            show(done)
    return np.array(examined.losses, np.float64)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = command_of("last_cards", __doc__)
    parser.add_argument("--left", type=int, nargs="+", default=[4, 3, 2], help="how many cells are left, each 2 to 5")
    given = parser.parse_args(arguments)
    try:
        options = {"scoring": given.scoring, "placement": given.placement}
        deals = chosen_deals(given)
        found = [examine(given.policy, options, deals, left) for left in given.left]
    except (OSError, TypeError, ValueError) as error:
        print(f"last_cards: error: {error}", file=sys.stderr)
        return 2
    print("points lost by one move with so many cells left (mean +- standard error)")
    print(f"{'policy':44s}" + "".join(f"{left:>20d}" for left in given.left))
    for number, text in enumerate(given.policy):
        told = [f"{losses[number].mean():.4f} +- {standard_error(losses[number]):.4f}" for losses in found]
        print(f"{text:44s}" + "".join(f"{one:>20s}" for one in told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
