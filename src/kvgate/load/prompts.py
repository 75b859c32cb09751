"""Prompts as pure functions of seed, pool and index: identical on every host and in every arm."""

from __future__ import annotations

import hashlib
import sys
from array import array
from typing import Final

_WORD_BYTES: Final = 4
_WORD_RANGE: Final = 1 << 32
_CONSONANTS: Final = "bdfgklmnprstvz"
_VOWELS: Final = "aeiou"
_SYLLABLES: Final = [c + v for c in _CONSONANTS for v in _VOWELS]
_WORDS: Final = [a + b for a in _SYLLABLES for b in _SYLLABLES]


def prompt_tokens(seed: str, pool: str, index: int, length: int, low: int, high: int) -> list[int]:
    """Prompt number ``index`` of a pool: ``length`` ids, uniform over ``low <= id < high``.

    32-bit words of SHAKE-256 reduced with rejection, hence without bias. Length and range are part
    of the key, so a longer prompt never begins with a shorter one of the same pool: nothing is
    shared between cells by accident.
    """
    span = high - low
    if length < 1 or span < 1:
        raise ValueError(f"no prompt of {length} tokens from ids {low} to {high}")
    limit = _WORD_RANGE - _WORD_RANGE % span
    # Lengths before the strings keep ("a", "bc") and ("ab", "c") apart.
    parts = (seed, pool, str(index), str(length), str(low), str(high))
    key = "".join(f"{len(part)}:{part}," for part in parts).encode()
    stream = hashlib.shake_256(key)
    draws = length + 16
    while True:
        words = array("I", stream.digest(draws * _WORD_BYTES))
        if sys.byteorder == "big":
            words.byteswap()
        ids = [low + word % span for word in words if word < limit]
        if len(ids) >= length:
            del ids[length:]
            return ids
        draws *= 2


def ids_digest(ids: list[int]) -> str:
    """SHA-256 (hex) of token ids as little-endian uint32."""
    words = array("I", ids)
    if sys.byteorder == "big":
        words.byteswap()
    return hashlib.sha256(words.tobytes()).hexdigest()


def text_digest(text: str) -> str:
    """SHA-256 (hex) of a text's UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def prompt_text(seed: str, pool: str, index: int, words: int) -> str:
    """A text of so many four-letter words, for engines that take no token ids."""
    ids = prompt_tokens(seed, pool, index, words, 0, len(_WORDS))
    return " ".join([_WORDS[i] for i in ids])
