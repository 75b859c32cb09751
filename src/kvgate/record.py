"""What one request did, what the load process did, and every latency metric, each defined once.

All times are integers in nanoseconds on the load host's CLOCK_MONOTONIC, taken from the kernel's
receive stamp where there is one. A value that was not observed is ``None``, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec

NS_PER_S: Final = 1_000_000_000


class Outcome(StrEnum):
    """How a request ended. Only ``OK`` enters a percentile or a throughput."""

    OK = "ok"
    TRUNCATED = "truncated"  # the body, the finish reason or [DONE] is missing
    ERROR_EVENT = "error_event"  # the stream itself reported an error or an abort
    EMPTY = "empty"  # a complete answer without a token
    SHORT = "short"  # fewer tokens than asked for
    LONG = "long"  # more tokens than asked for
    NO_USAGE = "no_usage"  # the server did not say how many tokens it made
    NOT_STREAMED = "not_streamed"  # one JSON body: it has no first token
    BAD_STREAM = "bad_stream"  # neither HTTP nor server-sent events nor JSON
    RESET = "reset"  # the connection broke
    TIMEOUT = "timeout"  # the request's deadline passed
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    HTTP_OTHER = "http_other"  # an answer that is neither 2xx, 4xx nor 5xx
    CONNECT_FAILED = "connect_failed"
    CLIENT_FAULT = "client_fault"  # the load host itself: descriptors, ports, memory
    INTERRUPTED = "interrupted"  # we stopped: a signal or the block's deadline

    @property
    def of_instrument(self) -> bool:
        """Whether the outcome speaks about the load host and not about the server."""
        return self in (Outcome.CLIENT_FAULT, Outcome.INTERRUPTED)


class Lack(StrEnum):
    """What another tool's result file does not prove; each is a broken condition of its block."""

    REQUESTS = "requests"  # totals only: no single request
    ISSUE_TIMES = "issue_times"  # when each request was sent
    TOKEN_TIMES = "token_times"  # noqa: S105 - when each token or chunk came
    TOKEN_COUNTS = "token_counts"  # noqa: S105 - the server's own counts, not a retokenised text
    PROMPT_IDENTITY = "prompt_identity"  # that prompts differ, and are the same over arms
    WHOLE_ANSWERS = "whole_answers"  # finish reason, full length and [DONE] of each answer
    CLIENT_HEALTH = "client_health"  # that the load host was not the bottleneck
    CLOCK = "clock"  # that durations come from a clock that cannot step
    COUNTERS = "counters"  # where the prompt tokens came from: coldness


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request; the fields are the columns of ``requests.parquet``, in that order.

    ``intended_ns``: when the arrival process wanted it (fixed concurrency: when its predecessor
    ended). ``scheduled_ns``: when the loop took it up. ``connected_ns``: when the connection it
    used was ready (before the block, as a rule). ``sent_ns``: directly before its first byte was
    handed to the kernel. ``first_byte_ns``: first byte of the response. ``first_token_ns``: first
    token of any kind (text, reasoning, tool call), never a role chunk. ``first_text_ns``: first
    non-empty text. ``end_ns``: the whole body was there, or the request failed.

    ``token_ns`` has one entry a token where ``len(token_ns) == output_tokens``; otherwise the
    server did not tell how many tokens its chunks held and there is one entry a chunk.
    ``coalesced`` holds the indices into ``token_ns`` that shared a receive stamp: those times are
    upper bounds.

    ``client_lag_ns`` is the largest difference, over the request's reads, between the moment this
    process had the bytes and the kernel's receive stamp of them. ``prompt_digest`` and
    ``answer_digest`` are SHA-256 in hex; the answer's covers its token ids where the server gave
    them (little-endian uint32), else its UTF-8 text with reasoning and tool arguments in order.

    Only probes (log probabilities asked for) carry ``tokens``, ``token_logprobs`` (nat) and
    ``top2_margin`` (nat: best minus second best).
    """

    request_id: str
    load_host: str
    prompt_digest: str
    intended_ns: int
    scheduled_ns: int
    connected_ns: int | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_text_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int
    token_ns: list[int] = []
    coalesced: list[int] = []
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    outcome: Outcome
    error: str | None = None
    client_lag_ns: int | None = None
    answer_digest: str | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top2_margin: list[float | None] | None = None


class ClientReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the load process knows about itself; validity reads it before anybody is blamed.

    ``loop_stall``: how long the loop was away from its poll in one round, or overslept in it.
    ``receive_lag``: user space stamp minus kernel stamp over all reads. Quantiles come from a
    histogram with 6 % wide buckets (upper edges); the maxima are exact. ``mean_in_flight`` is the
    time average from the moment the planned concurrency was first reached to the last issue,
    ``None`` if it never was; of several processes each up to its own last issue, since one may
    stand before a slower engine. ``clock_offset_*_ns`` is CLOCK_REALTIME minus CLOCK_MONOTONIC;
    ``clock_steps`` counts jumps of more than 1 ms in it, ``clock_step_max_ns`` is the largest.
    ``unstamped_reads`` are reads without a kernel stamp. ``start_late_ns``: how long after the
    common start of several processes this one began. ``requests_skipped``: turns of conversations
    that were never issued, since a turn before them failed.
    """

    state: str  # done, interrupted or block_deadline
    started_ns: int
    ended_ns: int
    requests_planned: int
    requests_done: int
    requests_failed: int
    cpu_s: float
    wall_s: float
    start_up_s: float
    peak_rss_bytes: int
    nofile_limit: int
    planned_in_flight: int
    max_in_flight: int
    mean_in_flight: float | None
    connections_opened: int
    reads: int
    unstamped_reads: int
    loop_stall_p99_ns: int | None
    loop_stall_max_ns: int | None
    receive_lag_p99_ns: int | None
    receive_lag_max_ns: int | None
    clock_offset_start_ns: int
    clock_offset_end_ns: int
    clock_steps: int
    versions: dict[str, str]
    start_late_ns: int = 0
    requests_skipped: int = 0
    clock_step_max_ns: int = 0


# --- metrics -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duration:
    """A metric that is the difference of two stamps of a record, in seconds.

    The definition serves single records and whole tables alike: both take ``start`` and ``end``.
    """

    name: str
    start: str
    end: str
    meaning: str

    def of(self, record: RequestRecord) -> float | None:
        """Seconds; ``None`` for a failed request, a missing stamp or a negative difference."""
        if record.outcome is not Outcome.OK:
            return None
        start: int | None = getattr(record, self.start)
        end: int | None = getattr(record, self.end)
        if start is None or end is None or end < start:
            return None
        return (end - start) / NS_PER_S


TTFT: Final = Duration(
    "ttft",
    "sent_ns",
    "first_token_ns",
    "first token of any kind after the request's first byte went out (vLLM's `bench serve` and "
    "AIPerf start their clock at the same place)",
)
TTFT_TEXT: Final = Duration(
    "ttft_text", "sent_ns", "first_text_ns", "first visible text; later than TTFT by the reasoning"
)
TTFT_INTENDED: Final = Duration(
    "ttft_intended",
    "intended_ns",
    "first_token_ns",
    "first token after the moment the arrival process wanted the request: waiting in the client "
    "counts (no coordinated omission, Tene 2013)",
)
FIRST_BYTE: Final = Duration(
    "first_byte", "sent_ns", "first_byte_ns", "response headers; many engines send them at once"
)
E2E: Final = Duration("e2e", "sent_ns", "end_ns", "whole body after the request's first byte")
DECODE: Final = Duration("decode", "first_token_ns", "last_token_ns", "first to last token")
QUEUE: Final = Duration("queue", "intended_ns", "sent_ns", "waiting inside the load host")


def ttft_s(record: RequestRecord) -> float | None:
    """Time to first token, s: ``first_token_ns - sent_ns``."""
    return TTFT.of(record)


def ttft_text_s(record: RequestRecord) -> float | None:
    """Time to first text token, s: ``first_text_ns - sent_ns``."""
    return TTFT_TEXT.of(record)


def e2e_s(record: RequestRecord) -> float | None:
    """End-to-end latency, s: ``end_ns - sent_ns``."""
    return E2E.of(record)


def tpot_s(record: RequestRecord) -> float | None:
    """Time per output token, s: ``(last_token_ns - first_token_ns) / (output_tokens - 1)``.

    The divisor is the server's own count, never a retokenised text. ``None`` below two tokens.
    Source: vLLM's serving benchmark, ``(latency - ttft) / (output_len - 1)``.
    """
    decode = DECODE.of(record)
    if decode is None or record.output_tokens is None or record.output_tokens < 2:
        return None
    return decode / (record.output_tokens - 1)


def chunk_gaps_s(record: RequestRecord) -> list[float]:
    """Gaps between successive distinct receive stamps, s; a burst counts as one arrival.

    Always defined for a good request, whatever the server packs into an event, and never hides a
    pause of the server. It is not an inter-token latency.
    """
    if record.outcome is not Outcome.OK:
        return []
    return [(b - a) / NS_PER_S for a, b in pairwise(record.token_ns) if b != a]


def token_gaps_s(record: RequestRecord) -> list[float]:
    """Inter-token latencies (ITL), s: gaps between tokens that each have a stamp of their own.

    Empty unless every token is stamped (``len(token_ns) == output_tokens``); gaps that touch a
    coalesced token are left out, for its time is only an upper bound.
    """
    if record.outcome is not Outcome.OK or len(record.token_ns) != record.output_tokens:
        return []
    shared = set(record.coalesced)
    return [
        (b - a) / NS_PER_S
        for i, (a, b) in enumerate(pairwise(record.token_ns))
        if i not in shared and i + 1 not in shared
    ]
