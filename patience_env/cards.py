"""Card codes and their two-letter text.

A card is one small integer, the same in states, observations and kernels:

* 0: an empty place (`EMPTY`),
* 1 to 52: `1 + 13 * suit + (rank - 1)`: rank 1 to 13 (ace to king), suit 0 to 3 (spades, hearts, diamonds, clubs),
* 53: a card that the player may not know (`FACE_DOWN`).

Suits 1 and 2 are red. Text is rank then suit: `TH` is the ten of hearts, `??` a face-down card, `--` an empty place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patience_env.jit import rule

RANKS = "A23456789TJQK"
SUITS = "SHDC"
EMPTY = 0
FACE_DOWN = 53
PACK = 52
# The one-hot channels of a place (see `encoding`): thirteen ranks, four suits, empty, face-down.
CHANNELS = 19
EMPTY_CHANNEL = 17
FACE_DOWN_CHANNEL = 18

NAMES: tuple[str, ...] = ("--", *(rank + suit for suit in SUITS for rank in RANKS), "??")
_CODES = {name: code for code, name in enumerate(NAMES)}


def card_text(code: int) -> str:
    """Return the two-letter text of a card code (0 to 53).

    Raises:
        ValueError: the code is none of 0 to 53.
    """
    if not 0 <= code <= FACE_DOWN:
        raise ValueError(f"card code {code!r} is none of 0 (empty), 1 to 52 (cards), 53 (face-down)")
    return NAMES[code]


def card_code(text: str) -> int:
    """Return the code of a two-letter card such as `"TH"`, `"??"` or `"--"` (letters in either case; `10H` also reads).

    Raises:
        ValueError: the text is no card.
    """
    code = _CODES.get(text.strip().upper().replace("10", "T")) if isinstance(text, str) else None
    if code is None:
        raise ValueError(f"{text!r} is no card: write a rank of {RANKS} and a suit of {SUITS}, such as 'TH'")
    return code


@rule
def next_cards(heights):  # type: ignore[no-untyped-def]
    """Return a bit, 1 << code, for the next card of each suit built up from the ace (`heights`: 0 to 13 of each)."""
    wanted = 0
    for suit in range(4):
        height = int(heights[suit])
        wanted |= (1 if height < 13 else 0) << (13 * suit + 1 + height)
    return wanted


@rule
def rank_of(card):  # type: ignore[no-untyped-def]
    """Return the rank, 1 to 13, of a card code 1 to 52."""
    return (int(card) - 1) % 13 + 1


@rule
def suit_of(card):  # type: ignore[no-untyped-def]
    """Return the suit, 0 to 3 (spades, hearts, diamonds, clubs), of a card code 1 to 52."""
    return (int(card) - 1) // 13


@rule
def is_red(card):  # type: ignore[no-untyped-def]
    """Tell whether a card code 1 to 52 is a heart or a diamond."""
    suit = (int(card) - 1) // 13
    return 1 <= suit <= 2


def pack(packs: int = 1) -> NDArray[np.int8]:
    """Return the sorted codes of one or more whole packs, shape (52 * packs,), int8."""
    return np.tile(np.arange(1, PACK + 1, dtype=np.int8), packs)
