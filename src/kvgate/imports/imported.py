"""What a foreign result file said, and what it could not say.

A tool that does not write a thing down has not proved it. Every guarantee that a format lacks is
named, travels with the block and is a broken validity condition there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvgate.errors import UsageError
from kvgate.record import NS_PER_S, Lack, Outcome, RequestRecord

MAX_FILE_BYTES: Final = 512 << 20
_BEYOND: Final = 1 << 63
UNKNOWN_PROMPT: Final = ""
"""The digest of a prompt that the file does not identify: equal for all, so never unique."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One run of a foreign tool.

    ``records``: its requests; empty where the file holds totals only. ``requests_planned``: as many
    as the tool was asked for, None where the file does not say. ``totals``: the tool's own figures
    by name with their unit in the name; shown, never judged. ``notes``: what was found odd.
    """

    tool: str
    records: tuple[RequestRecord, ...]
    requests_planned: int | None
    totals: Mapping[str, float]
    lacks: frozenset[Lack]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was read: its bytes and where it lies, for messages."""

    path: Path
    data: bytes

    def fault(self, message: str, line: int | None = None) -> UsageError:
        """The one line for a file that cannot be used."""
        where = str(self.path) if line is None else f"{self.path}:{line}"
        return UsageError(message, where=where, remedy="export the run again, or leave it out")

    def document(self) -> Any:
        """The file as one JSON value; NaN and Infinity are read as missing."""
        return self._loads(self.data, None)

    def object(self) -> dict[str, Any]:
        """The file as one JSON object."""
        found = self.document()
        if not isinstance(found, dict):
            raise self.fault(f"a JSON object is expected, found {kind(found)}")
        return found

    def lines(self) -> list[dict[str, Any]]:
        """The file as JSON Lines, blank lines left out; each must be an object."""
        found: list[dict[str, Any]] = []
        for number, line in enumerate(self.data.split(b"\n"), 1):
            if not line.strip():
                continue
            value = self._loads(line, number)
            if not isinstance(value, dict):
                raise self.fault(f"a JSON object is expected, found {kind(value)}", number)
            found.append(value)
        if not found:
            raise self.fault("the file is empty")
        return found

    def text(self) -> str:
        """The file as UTF-8 text."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise self.fault("not UTF-8 text") from None

    def _loads(self, data: bytes, line: int | None) -> Any:
        if not data.strip():
            raise self.fault("the file is empty", line)
        try:
            return json.loads(data, parse_constant=lambda _name: None)
        except (ValueError, RecursionError) as fault:
            what = str(fault) if isinstance(fault, json.JSONDecodeError) else type(fault).__name__
            raise self.fault(f"not JSON: {what}", line) from None


def read_source(path: Path) -> Source:
    """The bytes of ``path``; raises UsageError where it is missing, no file, or too large."""
    try:
        if not path.is_file():
            problem = "no such file" if not path.exists() else "not a plain file"
            raise UsageError(problem, where=str(path), remedy="correct `file` in the manifest")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UsageError(
                f"{size:,} bytes are more than the {MAX_FILE_BYTES:,} that are read",
                where=str(path),
                remedy="export fewer requests in one file",
            )
        return Source(path, path.read_bytes())
    except OSError as fault:
        raise UsageError(
            f"cannot read: {fault.strerror}", where=str(path), remedy="check its permissions"
        ) from None


def kind(value: object) -> str:
    """How JSON calls a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def number(value: object) -> float | None:
    """A finite number, else None: text, true, null and NaN are no measurement."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def count(value: object) -> int | None:
    """A whole number >= 0, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value  # exact, where a float has no room for nanoseconds of a date
    found = number(value)
    return None if found is None or found < 0 or found != int(found) else int(found)


def totals_of(found: Mapping[str, Any], names: Mapping[str, tuple[str, float]]) -> dict[str, float]:
    """The figures that are there: ``names`` maps our name to the file's and a factor."""
    totals: dict[str, float] = {}
    for ours, (theirs, factor) in names.items():
        value = number(found.get(theirs))
        if value is not None:
            totals[ours] = value * factor
    return totals


def ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * NS_PER_S)


def ns_or_none(seconds: float | None) -> int | None:
    """Seconds as whole nanoseconds where there are any."""
    return None if seconds is None else ns(seconds)


def record(
    *,
    request_id: str,
    load_host: str,
    start_ns: int,
    ttft_s: float | None,
    gaps_s: Iterable[float | None],
    end_ns: int | None,
    prompt_tokens: int | None,
    output_tokens: int | None,
    outcome: Outcome,
    error: str | None = None,
    intended_ns: int | None = None,
    prompt_digest: str = UNKNOWN_PROMPT,
    cached_tokens: int | None = None,
    finish_reason: str | None = None,
) -> RequestRecord:
    """A record from a start, a first token and gaps.

    Starts are whole nanoseconds: a date in seconds has no room for microseconds in a float.
    ``gaps_s`` are the gaps after the first token; a gap that is no number ends the stamps there.
    ``end_ns`` None: the last stamp. An OK without a positive TTFT or without tokens becomes EMPTY:
    a time of zero is a time that was not taken. Raises OverflowError beyond 64 bits.
    """
    stamps: list[int] = []
    if ttft_s is not None and ttft_s > 0:
        after_s = ttft_s
        stamps = [start_ns + ns(after_s)]
        for gap in gaps_s:
            if gap is None or gap < 0:
                break
            after_s += gap
            stamps.append(start_ns + ns(after_s))
    if outcome is Outcome.OK and (not stamps or not output_tokens):
        outcome, error = Outcome.EMPTY, error or "no token or no time to first token"
    last = stamps[-1] if stamps else None
    whole = (start_ns, end_ns, intended_ns, prompt_tokens, output_tokens, cached_tokens, last)
    if any(value is not None and not -_BEYOND <= value < _BEYOND for value in whole):
        raise OverflowError
    end = last if end_ns is None else end_ns
    return RequestRecord(
        request_id=request_id,
        load_host=load_host,
        prompt_digest=prompt_digest,
        intended_ns=start_ns if intended_ns is None else intended_ns,
        scheduled_ns=start_ns,
        sent_ns=start_ns,
        first_token_ns=stamps[0] if stamps else None,
        last_token_ns=last,
        end_ns=start_ns if end is None else end,
        token_ns=stamps,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        finish_reason=finish_reason,
        outcome=outcome,
        error=error,
    )
