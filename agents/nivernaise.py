"""Rule-of-thumb play of La Nivernaise."""

from __future__ import annotations

from patience_env.agents.policy import KernelPolicy
from patience_env.agents.twin_signs import FAR, build, read_heights, waits_for
from patience_env.cards import EMPTY, PACK, rank_of, suit_of
from patience_env.games.nivernaise import (
    DEPTH,
    FLANKS,
    LINE,
    PACKET_TO_FLANK,
    REDEAL,
    ROUND,
    TRANSFER,
    vacancies,
)
from patience_env.games.twin_foundations import FOUNDATIONS, fits
from patience_env.jit import helper, kernel, rule
from patience_env.lanes import words


@helper
def first_marked(mask, first, end):  # type: ignore[no-untyped-def]
    """Return the first legal action from `first` on and before `end`, or -1."""
    for action in range(first, end):
        if mask[action]:
            return action
    return -1


@rule
def reach(state, card):  # type: ignore[no-untyped-def]
    """Return how far a suit's two foundations, which can pass cards, are from taking a card: > 0 if `up` must grow."""
    apart = rank_of(card) - int(state.up[suit_of(card)])
    return apart if apart < 0 else apart - 1


@helper
def helpful_transfer(state, mask):  # type: ignore[no-untyped-def]
    """Return the transfer that leads by the fewest steps to a foundation's taking an available card, or -1.

    Each step brings the same card nearer, so this never goes to and fro.
    """
    best = FAR
    chosen = -1
    for i in range(FLANKS + LINE):
        card = EMPTY
        if i < FLANKS:
            card = int(state.flank[i])
        elif state.height[i - FLANKS]:
            card = int(state.cards[DEPTH * (i - FLANKS) + state.height[i - FLANKS] - 1])
        if card != EMPTY:
            suit = suit_of(card)
            apart = reach(state, card)
            giver = 1 if apart > 0 else 0
            action = TRANSFER + 2 * suit + giver
            if apart != 0 and abs(apart) < best and mask[action]:
                best = abs(apart)
                chosen = action
    return chosen


@helper
def shallowest_dig(state, mask, vacant):  # type: ignore[no-untyped-def]
    """Return the packet whose top to set aside to reach a seen card that fits, if vacancies suffice, or -1."""
    best = vacant + 1
    chosen = -1
    for p in range(LINE):
        height = int(state.height[p]) if mask[PACKET_TO_FLANK + p] else 0
        for depth in range(1, min(height, best)):
            i = DEPTH * p + height - 1 - depth
            if not state.hidden[i] and (fits(state, state.cards[i], 0) or fits(state, state.cards[i], 1)):
                best = depth
                chosen = p
                break
    return chosen


@helper
def lowest_packet(state, mask):  # type: ignore[no-untyped-def]
    """Return the move to a Flank from the packet of fewest cards, or -1."""
    fewest = FAR
    chosen = -1
    for p in range(LINE):
        if mask[PACKET_TO_FLANK + p] and state.height[p] < fewest:
            fewest = int(state.height[p])
            chosen = PACKET_TO_FLANK + p
    return chosen


@helper
def thumb(state, spare, mask, bits):  # type: ignore[no-untyped-def]
    """Play what fits; dig only for a card that fits; keep vacancies until stock and redeal are spent."""
    action = first_marked(mask, 0, PACKET_TO_FLANK)
    if action < 0:
        action = helpful_transfer(state, mask)
    vacant = vacancies(state)
    if action < 0 and vacant:
        p = shallowest_dig(state, mask, vacant)
        action = PACKET_TO_FLANK + p if p >= 0 else -1
    if action < 0:
        action = first_marked(mask, ROUND, REDEAL + 1)
    if action < 0:
        action = lowest_packet(state, mask)
    return first_marked(mask, 0, REDEAL + 1) if action < 0 else action


@kernel
def thumb_rows(states, masks, actions):  # type: ignore[no-untyped-def]
    """Write an action for every row."""
    for row in range(states.shape[0]):
        actions[row] = thumb(states[row], states, masks[row], states[row].rng)


class ThumbPolicy(KernelPolicy):
    """Plays every card that fits, digs for seen cards that fit, and keeps vacancies as long as it can."""

    name = "thumb"
    game_id = "Nivernaise-v0"
    kernel = staticmethod(thumb_rows)


# -- signs ---------------------------------------------------------------------------------------------------------

SIGN_COUNT = 16
PACKETS = FLANKS + len(FOUNDATIONS)  # where the packets begin in what the player sees, each top first
LONG = 4  # a card that waits for so many others clogs a flank


@helper
def play_out(view, built, below):  # type: ignore[no-untyped-def]
    """Play what fits, again and again; return (cards played, a bit for each flank that is vacant then).

    `below` gets how many cards each packet has lost. Face-down cards stop a packet.
    """
    vacant = 0
    for f in range(FLANKS):
        vacant |= (1 if view[f] == EMPTY else 0) << f
    count = 0
    going = True
    while going:
        going = False
        for f in range(FLANKS):
            if not (vacant >> f) & 1 and waits_for(built, view[f]) == 0:
                build(built, view[f])
                vacant |= 1 << f
                count += 1
                going = True
        for p in range(LINE):
            while below[p] < DEPTH:
                card = view[PACKETS + DEPTH * p + below[p]]
                if not EMPTY < card <= PACK or waits_for(built, card) > 0:
                    break
                build(built, card)
                below[p] += 1
                count += 1
                going = True
    return count, vacant


@helper
def signs(state, view, signs):  # type: ignore[no-untyped-def]
    """Write what can be played at once and how things lie then: vacancies, cards that wait long, cards to dig for."""
    built, below = words(), words()
    signs[0] = 0.02 * read_heights(view, FLANKS, built)
    for p in range(LINE):
        below[p] = 0
    for f in range(FLANKS):
        signs[1] += 0.25 if view[f] == EMPTY else 0.0
    played, vacant = play_out(view, built, below)
    signs[2] = 0.1 * played
    for f in range(FLANKS):
        if (vacant >> f) & 1:
            signs[3] += 0.25
        else:
            wait = waits_for(built, view[f])
            signs[4] += 0.05 * min(wait, 12)
            signs[5] += 0.25 if wait >= LONG else 0.0
            signs[6] += 0.25 if wait == FAR else 0.0
            signs[7] += 0.25 if wait == 1 else 0.0
    signs[8] = 1.0 if vacant == 0 else 0.0
    for p in range(LINE):
        first = int(below[p])
        if first == DEPTH or view[PACKETS + DEPTH * p + first] == EMPTY:
            signs[9] += 0.25
            continue
        for depth in range(DEPTH - first):
            card = view[PACKETS + DEPTH * p + first + depth]
            if card == EMPTY:
                break
            if card <= PACK:
                wait = waits_for(built, card)
                if depth == 0:
                    signs[10] += 0.05 * min(wait, 12)
                    signs[11] += 0.25 if wait == 1 else 0.0
                elif wait == 0:
                    signs[11 + min(depth, 4)] += 0.25


POLICIES = {"thumb": "ThumbPolicy"}
ROLLOUTS = {"thumb": thumb}
SIGNS = (SIGN_COUNT, signs)
