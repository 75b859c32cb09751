"""Recorded traces as load: Mooncake's JSON lines and Azure's CSV, brought into one form.

Mooncake: ``timestamp`` (ms from the start), ``input_length``, ``output_length``, ``hash_ids``: one
id for each block of 512 tokens, the last one perhaps not full; equal ids stand for equal tokens
after equal tokens. Azure: ``TIMESTAMP`` (of the day), ``ContextTokens``, ``GeneratedTokens``;
nothing is known to be shared, so nothing is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from kvgate.errors import UsageError
from kvgate.load.job import Prompts, Replay, Shard, Trace
from kvgate.load.shapes import Part
from kvgate.record import NS_PER_S

_AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_FORMS: Final = "Mooncake's JSON lines or Azure's CSV"
_Count = Annotated[int, msgspec.Meta(ge=1)]


class TraceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request: ``at_ns`` after the trace's first, lengths in tokens, ids of its blocks."""

    at_ns: Annotated[int, msgspec.Meta(ge=0)]
    input_tokens: _Count
    output_tokens: _Count
    hash_ids: list[int] = []


class TraceSummary(NamedTuple):
    """What a trace asks for in all."""

    requests: int
    lasts_s: float
    longest_input: int
    longest_output: int
    input_tokens: int
    left_out: int


class _Mooncake(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: _Count
    output_length: Annotated[int, msgspec.Meta(ge=0)]
    hash_ids: list[int] = []


def import_trace(source: Path, to: Path, *, limit: int | None, longest: int | None) -> TraceSummary:
    """Write ``source`` as lines of :class:`TraceLine` in the order of time.

    The first ``limit`` requests; those with more than ``longest`` tokens in and out are left out
    and counted. A request that made nothing (an output length of 0) is asked for one token.
    Raises :class:`UsageError` with file and line for what is no trace.
    """
    try:
        with source.open("rb") as file:
            head = file.read(4096).lstrip()
        read = _mooncake(source) if head.startswith(b"{") else _azure(source)
        lines = sorted(read, key=lambda line: line.at_ns)
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"cannot read the trace: {fault}", where=str(source)) from None
    kept = [
        line
        for line in lines
        if longest is None or line.input_tokens + line.output_tokens <= longest
    ]
    left_out = len(lines) - len(kept)
    kept = kept[:limit]
    if not kept:
        raise UsageError(
            f"no request to replay ({left_out} left out as too long)",
            where=str(source),
            remedy=f"give a trace in {_FORMS}, or a larger --max-tokens",
        )
    start_ns = kept[0].at_ns
    with to.open("wb") as out:
        for line in kept:
            moved = msgspec.structs.replace(line, at_ns=line.at_ns - start_ns)
            out.write(msgspec.json.encode(moved) + b"\n")
    return TraceSummary(
        requests=len(kept),
        lasts_s=(kept[-1].at_ns - start_ns) / NS_PER_S,
        longest_input=max(line.input_tokens for line in kept),
        longest_output=max(line.output_tokens for line in kept),
        input_tokens=sum(line.input_tokens for line in kept),
        left_out=left_out,
    )


def _mooncake(source: Path) -> Iterator[TraceLine]:
    decode = msgspec.json.Decoder(_Mooncake).decode
    with source.open("rb") as lines:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                said = decode(text)
            except msgspec.DecodeError as fault:
                raise UsageError(
                    f"not a line of a trace: {fault}",
                    where=f"{source}:{number}",
                    remedy=f"give {_FORMS}",
                ) from None
            yield TraceLine(
                at_ns=round(said.timestamp * 1_000_000),
                input_tokens=said.input_length,
                output_tokens=max(1, said.output_length),
                hash_ids=said.hash_ids,
            )


def _azure(source: Path) -> Iterator[TraceLine]:
    with source.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        if tuple(name.strip() for name in next(rows, [])) != _AZURE:
            raise UsageError(
                f"neither JSON lines nor a table with the columns {', '.join(_AZURE)}",
                where=f"{source}:1",
                remedy=f"give {_FORMS}",
            )
        for row in rows:
            if not row:
                continue
            try:
                moment, asked, made = row
                line = TraceLine(
                    at_ns=_wall_ns(moment), input_tokens=int(asked), output_tokens=max(1, int(made))
                )
            except ValueError as fault:
                raise UsageError(
                    f"not a line of a trace: {fault}", where=f"{source}:{rows.line_num}"
                ) from None
            if line.input_tokens < 1:
                raise UsageError("a request without a token", where=f"{source}:{rows.line_num}")
            yield line


def _wall_ns(text: str) -> int:
    """A wall time without zone as ns; seven digits of a second, which datetime would not take."""
    whole, _, fraction = text.strip().partition(".")
    whole, _, _zone = whole.partition("+")
    digits = fraction.partition("+")[0]
    seconds = datetime.fromisoformat(whole + "+00:00").timestamp()
    return int(seconds) * NS_PER_S + int((digits + "0" * 9)[:9] or 0)


def read_trace(path: str, shard: Shard | None = None) -> Iterator[tuple[int, TraceLine]]:
    """Number and content of each line of an imported trace, a shard's every ``of``-th."""
    decode = msgspec.json.Decoder(TraceLine).decode
    with Path(path).open("rb") as lines:
        numbered = enumerate(lines)
        mine = numbered if shard is None else islice(numbered, shard.index, None, shard.of)
        for number, text in mine:
            try:
                yield number, decode(text)
            except msgspec.DecodeError as fault:
                raise UsageError(f"not an imported trace: {fault}", where=path) from None


def trace_times(replay: Replay, trace: Trace, shard: Shard | None) -> Iterator[int]:
    """Offsets from the start in ns at the replay's speed."""
    return (round(line.at_ns / replay.speed) for _, line in read_trace(trace.path, shard))


def trace_parts(prompts: Prompts, trace: Trace, number: int, line: TraceLine) -> tuple[Part, ...]:
    """One part for each block, named by its hash id; tokens without a block are the request's own.

    A block that is not full takes its length into its name, so it shares nothing with a full one.
    """
    parts: list[Part] = []
    left = line.input_tokens
    for block in line.hash_ids:
        if left <= 0:
            break
        tokens = min(trace.block_tokens, left)
        parts.append(Part(f"{prompts.pool}/block", block, tokens))
        left -= tokens
    if left > 0:
        parts.append(Part(f"{prompts.pool}/own", number, left))
    return tuple(parts)
