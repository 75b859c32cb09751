"""What a load process is asked to do. It travels as JSON and carries no prompt and no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from kvgate.errors import UsageError

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Rate = Annotated[float, msgspec.Meta(gt=0)]


class Closed(msgspec.Struct, frozen=True, tag="closed", tag_field="kind"):
    """Fixed concurrency: a request is issued whenever one ends."""

    concurrency: Positive

    @property
    def planned_in_flight(self) -> int:
        """Requests in flight at most."""
        return self.concurrency


class Constant(msgspec.Struct, frozen=True, tag="constant", tag_field="kind"):
    """Evenly spaced arrivals, whatever the server does, up to ``max_in_flight``."""

    rate_per_s: Rate
    max_in_flight: Positive = 1024

    @property
    def planned_in_flight(self) -> int:
        """Requests in flight at most."""
        return self.max_in_flight


class Poisson(msgspec.Struct, frozen=True, tag="poisson", tag_field="kind"):
    """Exponential gaps from a seed, so that two arms meet the same arrivals."""

    rate_per_s: Rate
    seed: str
    max_in_flight: Positive = 1024

    @property
    def planned_in_flight(self) -> int:
        """Requests in flight at most."""
        return self.max_in_flight


class RampConcurrency(msgspec.Struct, frozen=True, tag="ramp_concurrency", tag_field="kind"):
    """Concurrency that goes from ``first`` to ``last`` in equal steps of time, then stays."""

    first: Positive
    last: Positive
    over_s: Seconds

    @property
    def planned_in_flight(self) -> int:
        """Requests in flight at most."""
        return max(self.first, self.last)


class RampRate(msgspec.Struct, frozen=True, tag="ramp_rate", tag_field="kind"):
    """A rate that changes linearly over ``over_s``, then stays; with a seed at random (Poisson)."""

    from_per_s: Annotated[float, msgspec.Meta(ge=0)]
    to_per_s: Rate
    over_s: Seconds
    seed: str | None = None
    max_in_flight: Positive = 1024

    @property
    def planned_in_flight(self) -> int:
        """Requests in flight at most."""
        return self.max_in_flight


class Replay(msgspec.Struct, frozen=True, tag="replay", tag_field="kind"):
    """The times of the job's trace, ``speed`` times as fast."""

    speed: Rate = 1.0
    max_in_flight: Positive = 1024

    @property
    def planned_in_flight(self) -> int:
        """Requests in flight at most."""
        return self.max_in_flight


Arrival = Closed | Constant | Poisson | RampConcurrency | RampRate | Replay


class Shared(msgspec.Struct, frozen=True, tag="shared", tag_field="kind"):
    """Requests of one group begin with the same ``prefix_tokens`` tokens.

    ``order``: ``round`` goes over the groups in turn (the longest distance between two uses of a
    prefix), ``runs`` asks one group after the other, ``shuffled`` mixes them by the seed.
    """

    prefix_tokens: Positive
    groups: Positive
    order: Literal["round", "runs", "shuffled"] = "round"


class Conversation(msgspec.Struct, frozen=True, tag="conversation", tag_field="kind"):
    """Conversations of ``turns`` requests; each contains the answer to the one before it.

    The first turn has the prompts' length; every further one adds the answer and ``user_tokens``.
    It is issued ``think_s`` after the end of its predecessor, never before.
    """

    turns: Positive
    user_tokens: Positive
    think_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Trace(msgspec.Struct, frozen=True, tag="trace", tag_field="kind"):
    """Lengths and shared blocks of a recorded trace (see :mod:`kvgate.load.trace`)."""

    path: str
    block_tokens: Positive = 512


Shape = Shared | Conversation | Trace


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts ``first`` to ``first + count - 1`` of a pool; a pure function makes them anywhere.

    With ``cycle`` only that many are distinct: a long run goes round over a primed pool.
    ``tokens`` is the length of each in tokens, drawn from ids ``vocab_low <= id < vocab_high``.
    ``shape`` says what the prompts have in common; ``None``: nothing.
    """

    seed: str
    pool: str
    first: NotNegative = 0
    count: Positive
    tokens: Positive
    vocab_low: NotNegative = 1000
    vocab_high: Positive = 30000
    cycle: Positive | None = None
    shape: Shape | None = None


class Shard(msgspec.Struct, frozen=True):
    """Which of ``of`` load processes this is: it takes every ``of``-th request or conversation."""

    index: NotNegative
    of: Positive


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One block of load against one engine, or against several that share it evenly: with ``urls``
    the job is for at least one process an engine, and ``url`` is the first of them.

    ``header_env`` maps a header to the environment variable that holds its value.
    ``ask_token_ids`` asks for ``return_token_ids`` (vLLM), which makes every token countable even
    where its text is empty. ``stall_deadline_s``: a request without a byte for so long has failed.
    ``idle_limit_s``: connections idle for longer are replaced before a request meets a server that
    closes them. ``start_at_ns`` is the common start of several processes on this host's
    CLOCK_MONOTONIC; ``arrival`` and ``prompts`` are those of the whole, ``shard`` picks the part.
    Paths are on the load host.
    """

    url: str
    model: str
    arrival: Arrival
    prompts: Prompts
    output_tokens: Positive
    request_deadline_s: Seconds
    block_deadline_s: Seconds
    records_path: str
    report_path: str
    load_host: str
    request_id_prefix: str
    endpoint: Literal["completions", "chat"] = "completions"
    ignore_eos: bool = True
    temperature: float = 0.0
    logprobs: NotNegative | None = None
    ask_token_ids: bool = False
    cache_salt: str | None = None
    duration_s: Seconds | None = None
    stall_deadline_s: Seconds | None = None
    connect_deadline_s: Seconds = 10.0
    idle_limit_s: Seconds = 3.0
    header_env: dict[str, str] = {}
    ca_file: str | None = None
    verify_tls: bool = True
    texts_path: str | None = None
    shard: Shard | None = None
    start_at_ns: int | None = None
    urls: tuple[str, ...] = ()

    @property
    def level(self) -> int:
        """Requests that this process has in flight at most: its share of the whole."""
        return share_of(self.arrival.planned_in_flight, self.shard)

    @property
    def requests(self) -> int:
        """Requests of this process: its share of the whole, conversations undivided."""
        shape = self.prompts.shape
        turns = shape.turns if isinstance(shape, Conversation) else 1
        return share_of(self.prompts.count // turns, self.shard) * turns


def share_of(whole: int, shard: Shard | None) -> int:
    """How many of ``whole`` numbered things belong to a shard."""
    if shard is None:
        return whole
    return len(range(shard.index, whole, shard.of))


class Progress(msgspec.Struct, frozen=True):
    """A line on the load process's standard output."""

    done: int
    failed: int
    in_flight: int


def read_job(path: Path) -> Job:
    """Read a job file; raises :class:`UsageError` naming the file and the field."""
    try:
        raw = path.read_bytes()
    except OSError as fault:
        raise UsageError(f"cannot read the job: {fault.strerror}", where=str(path)) from None
    try:
        job = msgspec.json.decode(raw, type=Job)
    except msgspec.DecodeError as fault:
        raise UsageError(f"not a load job: {fault}", where=str(path)) from None
    wrong = contradiction(job)
    if wrong is not None:
        raise UsageError(f"not a load job: {wrong}", where=str(path))
    return job


def contradiction(job: Job) -> str | None:
    """What in a job contradicts itself, in words; ``None`` where nothing does."""
    prompts, shape = job.prompts, job.prompts.shape
    if prompts.vocab_high <= prompts.vocab_low:
        return "vocab_high is not above vocab_low"
    if isinstance(job.arrival, Replay) and not isinstance(shape, Trace):
        return "a replay needs the prompts of a trace"
    if isinstance(shape, Shared) and shape.prefix_tokens > prompts.tokens:
        return "the shared prefix is longer than the prompt"
    if isinstance(shape, Conversation):
        if prompts.count % shape.turns:
            return f"{prompts.count} requests are no whole conversations of {shape.turns} turns"
        if prompts.first % shape.turns:
            return "the first request is not the first turn of a conversation"
        if prompts.cycle is not None:
            return "conversations do not go round"
    if job.shard is not None and (job.shard.index >= job.shard.of or job.requests < 1):
        return "the shard has no part of the job"
    if job.level < 1:
        return "the shard has no part of the concurrency"
    if len(job.urls) > 1:
        return "one process cannot share a load over several engines"
    return None


def write_job(job: Job, path: Path) -> None:
    """Write a job as JSON for :func:`read_job`."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(job), indent=2))
