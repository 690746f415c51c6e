"""Reds: a toy game, added exactly as CONTRIBUTING.md says, to prove that a game is one module.

## Description
One pack. Three cards lie face up. Five times the player discards one of them, and the place is refilled from the stock.
The game is won when all five discards are red.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patience_env.cards import PACK, card_code, card_text, is_red
from patience_env.deals import draw_card, reshuffle
from patience_env.game import Counter, Game, Layout, Spot, Table
from patience_env.jit import helper, rule

PLACES = 3
DISCARDS = 5

STATE = np.dtype(
    [
        ("deal", np.uint64),
        ("rng", np.uint64),
        ("toy_deck", np.int8, (PACK,)),  # the first `turned` cards have been turned, the others are in any order
        ("toy_row", np.int8, (PLACES,)),  # the cards on the table
        ("turned", np.int32),
        ("reds", np.int32),
    ],
    align=True,
)


@rule
def turn(state, place):  # type: ignore[no-untyped-def]
    """Turn the next card of the stock onto a place."""
    state.toy_row[place] = draw_card(state, state.toy_deck, state.turned, PACK)
    state.turned += 1


@helper
def deal(state):  # type: ignore[no-untyped-def]
    """Turn three cards of a fresh pack."""
    state.rng = state.deal
    for i in range(PACK):
        state.toy_deck[i] = i + 1
    state.turned = 0
    state.reds = 0
    for place in range(PLACES):
        turn(state, place)


@rule
def legal(state, mask):  # type: ignore[no-untyped-def]
    """Any card may be discarded until five are."""
    going = 1 if state.turned < PLACES + DISCARDS else 0
    for place in range(PLACES):
        mask[place] = going
    return PLACES * going


@rule
def play(state, action):  # type: ignore[no-untyped-def]
    """Discard a card; a red one is a fifth of the way."""
    red = 1 if is_red(state.toy_row[action]) else 0
    state.reds += red
    turn(state, action)
    return red / DISCARDS


@rule
def is_won(state):  # type: ignore[no-untyped-def]
    """All five discards were red."""
    return state.reds == DISCARDS


@rule
def observe(state, places):  # type: ignore[no-untyped-def]
    """Show the three cards and the number of discards."""
    for place in range(PLACES):
        places[place] = state.toy_row[place]
    places[PLACES] = state.turned - PLACES


@helper
def determinize(state, key):  # type: ignore[no-untyped-def]
    """Draw the stock anew."""
    state.rng = key
    state.deal = 0
    reshuffle(state, state.toy_deck, state.turned, PACK)


def describe(state: Any, action: int) -> str:
    """Say which card goes."""
    return f"discard {card_text(int(state['toy_row'][action]))}"


def table(state: Any) -> Table:
    """Return the three cards and the stock."""
    cards = {f"place {i + 1}": [card_text(int(state["toy_row"][i]))] for i in range(PLACES)}
    return {**cards, "stock": ["??"] * (PACK - int(state["turned"]))}


def from_table(state: Any, given: Mapping[str, Sequence[str]], rng: np.random.Generator) -> None:
    """Lay three cards; the stock says how many were turned."""
    cards = [card_code(given[f"place {i + 1}"][0]) for i in range(PLACES)]
    if len(set(cards)) < PLACES:
        raise ValueError("the three cards must differ")
    rest = [card for card in range(1, PACK + 1) if card not in cards]
    turned = PACK - len(given["stock"])
    state["toy_row"] = cards
    state["toy_deck"] = [*cards, *rng.permutation(rest)]
    state["turned"] = turned
    state["rng"] = rng.integers(0, 2**64, dtype=np.uint64)


def layout(options: Mapping[str, Any]) -> Layout:
    """Three places in a row beside the stock."""
    spots = {f"place {i + 1}": Spot(i, 0.0) for i in range(PLACES)} | {"stock": Spot(PLACES + 0.5, 0.0)}
    return Layout(PLACES, tuple(spots)[:PLACES], (Counter("discards", DISCARDS),), None, spots)


def configure(state: Any, options: Mapping[str, Any]) -> None:
    """There are no options."""


GAME = Game(
    id="Reds-v0",
    title="Reds",
    state=STATE,
    packs=1,
    options=(),
    layout=layout,
    configure=configure,
    deal=deal,
    legal=legal,
    play=play,
    is_won=is_won,
    observe=observe,
    determinize=determinize,
    describe=describe,
    table=table,
    from_table=from_table,
)
