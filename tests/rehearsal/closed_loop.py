"""A small closed-loop client: a fixed number of streams, each sending its next request at once."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .machine import HOST, Machine, metrics, wait_until

REQUESTS_PER_LEVEL = 6


@dataclass(frozen=True)
class Measured:
    """One block, in simulated seconds."""

    ttft_p50_s: float
    output_tokens_per_s: float


def bodies(level: int, prompt_tokens: int, output_tokens: int) -> list[bytes]:
    """The requests of a block; the same for every arm."""
    made = []
    for number in range(REQUESTS_PER_LEVEL * level):
        draw = random.Random(f"{level}/{number}")
        tokens = [draw.randrange(5000) for _ in range(prompt_tokens)]
        made.append(
            json.dumps(
                {
                    "prompt": tokens,
                    "max_tokens": output_tokens,
                    "ignore_eos": True,
                    "stream": True,
                }
            ).encode()
        )
    return made


class _Connection:
    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, extra: bytes = b"") -> tuple[float, list[float]]:
        """When it was sent, and when each token arrived."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        head = b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n%s\r\n"
        sent_s = time.monotonic()
        writer.write(head % (len(body), extra) + body)
        stamps: list[float] = []
        tail = b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(1 << 16)
            assert data, "the engine closed a stream"
            stamps += [time.monotonic()] * data.count(b'"text"')
            tail = tail[-16:] + data
        return sent_s, stamps

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def _run(
    port: int, level: int, requests: list[bytes], extra: bytes
) -> list[tuple[float, list[float]]]:
    waiting: Iterator[bytes] = iter(requests)
    records: list[tuple[float, list[float]]] = []

    async def one() -> None:
        connection = _Connection(port)
        records.extend([await connection.post(body, extra) for body in waiting])
        connection.close()

    await asyncio.gather(*(one() for _ in range(level)))
    return records


def prime(machine: Machine, requests: list[bytes]) -> None:
    """Fill the arm's store with the prompts and make the engine cold."""
    asyncio.run(_run(machine.port, 8, requests, b"x-kvgate-priming: 1\r\n"))
    machine.wait_acknowledged()
    wait_until(
        lambda: metrics(machine.store_port)["kvstore_pending_bytes"] == 0, "the store's last write"
    )
    machine.reset()


def measure(machine: Machine, level: int, requests: list[bytes]) -> Measured:
    """TTFT p50 of all requests; tokens between the level-th completion and the last issue."""
    records = asyncio.run(_run(machine.port, level, requests, b""))
    start_s = sorted(stamps[-1] for _, stamps in records)[level - 1]
    end_s = max(sent_s for sent_s, _ in records)
    tokens = sum(1 for _, stamps in records for stamp in stamps if start_s < stamp <= end_s)
    return Measured(
        statistics.median(stamps[0] - sent_s for sent_s, stamps in records) * machine.time_scale,
        tokens / (end_s - start_s) / machine.time_scale,
    )
