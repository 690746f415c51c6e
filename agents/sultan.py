"""Policies for The Sultan."""

from __future__ import annotations

from patience_env.agents.learned import shipped
from patience_env.agents.policy import KernelPolicy, Policy
from patience_env.cards import EMPTY
from patience_env.games.sultan import DIVAN, REDEAL, TALON, TURN
from patience_env.jit import helper, kernel

SOON = 1


@helper
def lies_in_divan(state, card):  # type: ignore[no-untyped-def]
    """Tell whether the Divan holds a card equal to `card`."""
    found = False
    for place in range(DIVAN):
        found |= state.divan[place] == card
    return found


@helper
def cards_before(state, card):  # type: ignore[no-untyped-def]
    """Return how many cards must still come up, the Divan's not counted, before some packet takes `card`."""
    code = int(card) - 1
    suit, rank = code // 13, code % 13
    fewest = rank + 1
    for packet in range(2 * suit, 2 * suit + 2):
        if state.taken[packet] <= rank:
            lacking = 0
            for between in range(int(state.taken[packet]), rank):
                if not lies_in_divan(state, 13 * suit + between + 1):
                    lacking += 1
            fewest = min(fewest, lacking)
    return fewest


@helper
def divan_play(state, mask):  # type: ignore[no-untyped-def]
    """Return the Divan place to play from, or -1 to keep all cards that fit as vacancies in hand.

    A vacancy takes the talon's top and may be clogged by it for long. So the Divan plays only when that card will be
    wanted soon, when the card played is followed by one at hand, or when there is nothing to lose: no talon, or no
    stock left to turn.
    """
    top = int(state.talon[state.talon_size - 1]) if state.talon_size > 0 else EMPTY
    welcome = top == EMPTY or not mask[TURN] or cards_before(state, top) <= SOON
    chosen = -1
    for place in range(DIVAN):
        if mask[place]:
            card = int(state.divan[place])
            if welcome or top == card + 1 or lies_in_divan(state, card + 1):
                if chosen < 0 or (card - 1) % 13 < (int(state.divan[chosen]) - 1) % 13:
                    chosen = place
    return chosen


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Play the talon's top when it fits, else from the Divan where that is wise, else turn, else redeal."""
    action = TALON if mask[TALON] else divan_play(state, mask)
    if action < 0:
        action = TURN if mask[TURN] else REDEAL
    return action


@kernel
def play_by_thumb(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write the choice of the rule of thumb for every row."""
    for row in range(states.shape[0]):
        actions[row] = thumb(states[row], states, masks[row], states[row].rng)


class ThumbPolicy(KernelPolicy):
    """Plays the talon's top at once and opens a vacancy in the Divan only for a card that will be wanted soon."""

    name = "thumb"
    game_id = "Sultan-v0"
    kernel = staticmethod(play_by_thumb)


def ppo_policy() -> Policy:
    """Return the agent of `patience train Sultan-v0 --teacher thumb --minutes 18` (two redeals).

    It comes with the package: a network that looks a move ahead, taught by the rule of thumb and then trained by
    MaskablePPO (needs the `train` extra).
    """
    return shipped("sultan")


POLICIES = {"thumb": "ThumbPolicy", "ppo": "ppo_policy"}
ROLLOUTS = {"thumb": thumb}
