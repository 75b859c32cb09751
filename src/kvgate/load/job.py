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


Arrival = Closed | Constant | Poisson


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts ``first`` to ``first + count - 1`` of a pool; a pure function makes them anywhere.

    With ``cycle`` only that many are distinct: a long run goes round over a primed pool.
    ``tokens`` is the length of each in tokens, drawn from ids ``vocab_low <= id < vocab_high``.
    """

    seed: str
    pool: str
    first: NotNegative = 0
    count: Positive
    tokens: Positive
    vocab_low: NotNegative = 1000
    vocab_high: Positive = 30000
    cycle: Positive | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One block of load against one engine.

    ``header_env`` maps a header to the environment variable that holds its value.
    ``ask_token_ids`` asks for ``return_token_ids`` (vLLM), which makes every token countable even
    where its text is empty. ``stall_deadline_s``: a request without a byte for so long has failed.
    ``idle_limit_s``: connections idle for longer are replaced before a request meets a server that
    closes them. Paths are on the load host.
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
        return msgspec.json.decode(raw, type=Job)
    except msgspec.DecodeError as fault:
        raise UsageError(f"not a load job: {fault}", where=str(path)) from None


def write_job(job: Job, path: Path) -> None:
    """Write a job as JSON for :func:`read_job`."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(job), indent=2))
