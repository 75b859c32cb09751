"""Where an engine keeps KV: its own memory tiers, and the link to the external store."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from kvgate.rehearsal.wire import Client


class ChunkCache:
    """An LRU cache of chunks, by key, with a capacity in tokens."""

    def __init__(self, capacity_tokens: int, chunk_tokens: int) -> None:
        self._capacity_tokens = capacity_tokens
        self._chunk_tokens = chunk_tokens
        self._contents: OrderedDict[bytes, bytes] = OrderedDict()

    @property
    def tokens(self) -> int:
        """Tokens held now."""
        return len(self._contents) * self._chunk_tokens

    def leading(self, keys: Sequence[bytes]) -> list[bytes]:
        """Contents of the longest held run at the start of ``keys``; they become most recent."""
        contents: list[bytes] = []
        for key in keys:
            content = self._contents.get(key)
            if content is None:
                break
            self._contents.move_to_end(key)
            contents.append(content)
        return contents

    def put(
        self, keys: Sequence[bytes], contents: Sequence[bytes], reserved_tokens: int = 0
    ) -> None:
        """Hold chunks; the least recent leave where capacity less ``reserved_tokens`` ends."""
        for key, content in zip(keys, contents, strict=True):
            self._contents[key] = content
            self._contents.move_to_end(key)
        limit = max(0, self._capacity_tokens - reserved_tokens) // self._chunk_tokens
        while len(self._contents) > limit:
            self._contents.popitem(last=False)

    def clear(self) -> int:
        """Drop everything; the number of tokens dropped."""
        dropped = self.tokens
        self._contents.clear()
        return dropped


class _Held(msgspec.Struct, frozen=True):
    held: int


class _Loaded(msgspec.Struct, frozen=True):
    contents: list[str]
    end_s: float


class StoreLink:
    """Asks the external store; every call ends in its callback, also when the store is gone."""

    def __init__(self, host: str, port: int) -> None:
        self._client = Client(host, port)
        self.failures = 0
        self.unacknowledged_chunks = 0

    def lookup(
        self, keys: Sequence[bytes], answer: Callable[[int | None], None]
    ) -> Callable[[], None]:
        """``answer(held leading chunks)``, or ``answer(None)`` when the store does not answer."""

        def arrived(status: int, body: bytes) -> None:
            if status != 200:
                self.failures += 1
                answer(None)
                return
            answer(msgspec.json.decode(body, type=_Held).held)

        return self._client.post("/v1/lookup", {"keys": [key.hex() for key in keys]}, arrived)

    def load(
        self,
        keys: Sequence[bytes],
        slowdown: float,
        answer: Callable[[list[bytes] | None, float], None],
    ) -> Callable[[], None]:
        """``answer(contents, end on the monotonic clock)``, or None contents when it failed."""

        def arrived(status: int, body: bytes) -> None:
            now_s = time.monotonic()
            if status != 200:
                self.failures += 1
                answer(None, now_s)
                return
            loaded = msgspec.json.decode(body, type=_Loaded)
            # The exact end keeps our own lateness out of the simulated time; a store on another
            # host has another monotonic clock, whose end cannot be used.
            end_s = loaded.end_s if now_s - 0.05 < loaded.end_s <= now_s else now_s
            answer([bytes.fromhex(content) for content in loaded.contents], end_s)

        body = {"keys": [key.hex() for key in keys], "slowdown": slowdown}
        return self._client.post("/v1/load", body, arrived)

    def save(self, keys: Sequence[bytes], contents: Sequence[bytes], slowdown: float) -> None:
        """Hand chunks over; they count as unacknowledged until the store has answered."""
        self.unacknowledged_chunks += len(keys)

        def arrived(status: int, _: bytes) -> None:
            self.unacknowledged_chunks -= len(keys)
            if status != 200:
                self.failures += 1

        body = {
            "keys": [key.hex() for key in keys],
            "contents": [content.hex() for content in contents],
            "slowdown": slowdown,
        }
        self._client.post("/v1/store", body, arrived)
