"""Tokens, chunk keys, KV contents and answers: all follow from the prompt, none from chance."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

#: Token ids from here on are the words that answers are made of; ids below are other text.
FIRST_WORD_ID: Final = 1000
_ONSET: Final = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "h")
_VOWEL: Final = ("a", "e", "i", "o")
_SYLLABLES: Final = tuple(onset + vowel for onset in _ONSET for vowel in _VOWEL)
#: 4,096 words of two syllables with a leading space; all are plain ASCII, safe inside JSON strings.
WORDS: Final = tuple(f" {first}{second}" for first in _SYLLABLES for second in _SYLLABLES)
WORD_BYTES: Final = tuple(word.encode() for word in WORDS)
VOCABULARY: Final = FIRST_WORD_ID + len(WORDS)
_WORD_ID: Final = {word: FIRST_WORD_ID + at for at, word in enumerate(WORDS)}
_PIECE: Final = re.compile(r"\s?\w+|\s?[^\w\s]|\s+")


def tokenize(text: str) -> list[int]:
    """Token ids of ``text``; the words of an answer map back to the ids that made them."""
    ids = []
    for piece in _PIECE.findall(text):
        known = _WORD_ID.get(piece)
        ids.append(zlib.crc32(piece.encode()) % FIRST_WORD_ID if known is None else known)
    return ids


def chunk_keys(tokens: Sequence[int], chunk_tokens: int, salt: str = "") -> list[bytes]:
    """One 16-byte key per whole chunk, each chained over the chunks before it and ``salt``."""
    raw = memoryview(array("I", tokens)).cast("B")
    size = chunk_tokens * array("I").itemsize
    keys: list[bytes] = []
    previous = blake2b(salt.encode(), digest_size=16).digest()
    for start in range(0, len(raw) - size + 1, size):
        previous = blake2b(raw[start : start + size], digest_size=16, key=previous).digest()
        keys.append(previous)
    return keys


def content_of(key: bytes, taint: bytes = b"") -> bytes:
    """The 8 bytes that stand for a chunk's KV; ``taint`` when it was computed on wrong content."""
    return blake2b(key, digest_size=8, person=b"kv-content", salt=taint[:16]).digest()


def corrupted(content: bytes) -> bytes:
    """Other content of the same size."""
    return bytes(byte ^ 0xFF for byte in content)


def share_of(key: bytes) -> float:
    """A fixed number in [0, 1) for a key: the same chunks are hit by a fault each time."""
    return int.from_bytes(key[4:8], "big") / 2**32


class AnswerSource:
    """The answer to one prompt: token ids and log probabilities by position."""

    __slots__ = ("_seed", "_words")

    def __init__(self, tokens: Sequence[int], taint: bytes, variation: bytes) -> None:
        prompt = blake2b(array("I", tokens).tobytes(), digest_size=16)
        self._seed = blake2b(prompt.digest() + variation, digest_size=16, key=taint[:16]).digest()
        self._words: list[int] = []

    def word(self, at: int) -> int:
        """Index into ``WORDS`` of output token ``at``."""
        while len(self._words) <= at:
            block = len(self._words).to_bytes(4, "big")
            draws = array("H", blake2b(self._seed + block, digest_size=64).digest())
            self._words.extend(draw % len(WORDS) for draw in draws)
        return self._words[at]

    def token_id(self, at: int) -> int:
        """Token id of output token ``at``."""
        return FIRST_WORD_ID + self.word(at)

    def natural_length(self) -> int:
        """Where the answer would end by itself."""
        return 16 + self._seed[0]

    def logprob(self, at: int) -> float:
        """Log probability of output token ``at``."""
        return -0.01 - (self.word(at) % 97) / 100.0

    def alternatives(self, at: int, count: int) -> list[tuple[int, float]]:
        """``count`` most likely (word, log probability), the chosen one first."""
        word, top = self.word(at), self.logprob(at)
        return [((word + 37 * rank) % len(WORDS), top - 0.7 * rank) for rank in range(count)]


def json_text(text: str) -> bytes:
    """``text`` as a JSON string, quotes included."""
    return msgspec.json.encode(text)
