"""Request bodies of a job, made ahead of their time so that sending costs one system call."""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kvgate.errors import UsageError
from kvgate.load.answer import Answer
from kvgate.load.job import Conversation, Job, Shard, Trace
from kvgate.load.said import Said
from kvgate.load.shapes import parts_of
from kvgate.load.trace import read_trace, trace_parts

_STOCK_BYTES: Final = 48 * 1024 * 1024


class Target(NamedTuple):
    """The parts of a job's URL that a connection needs."""

    host: str
    port: int
    tls: bool
    path: str


class Request(NamedTuple):
    """One request, ready for the wire. ``said`` is kept only where a later turn builds on it."""

    request_id: str
    prompt_digest: str
    wire: bytes
    output_tokens: int
    number: int
    said: Said | None


def parse_url(url: str, endpoint: str) -> Target:
    """Host, port and path of an endpoint below a base URL, with or without its ``/v1``.

    Raises :class:`UsageError` for anything but http and https.
    """
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise UsageError("not an http(s) URL", where=url, remedy="write http://host:port")
    tls = parts.scheme == "https"
    base = parts.path.rstrip("/")
    if not base.endswith("/v1"):
        base += "/v1"
    path = base + ("/chat/completions" if endpoint == "chat" else "/completions")
    return Target(parts.hostname, port or (443 if tls else 80), tls, path)


def tls_context(job: Job) -> ssl.SSLContext:
    """A client context that trusts the job's CA file, or the system's store."""
    try:
        context = ssl.create_default_context(cafile=job.ca_file)
    except OSError as fault:
        raise UsageError(f"cannot load the CA file: {fault}", where=str(job.ca_file)) from None
    if not job.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _headers(job: Job, target: Target) -> bytes:
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {host}:{target.port}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
    ]
    for name, variable in job.header_env.items():
        value = os.environ.get(variable)
        if not value:
            raise UsageError(
                f"header {name} needs the environment variable {variable}, which is not set",
                remedy=f"export {variable} on the load host",
            )
        if "\r" in value or "\n" in value:
            raise UsageError(f"the value of {variable} holds a line break")
        lines.append(f"{name}: {value}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n"


def _body_after_prompt(job: Job, output_tokens: int) -> bytes:
    fields: dict[str, Any] = {
        "model": job.model,
        "max_tokens": output_tokens,
        "temperature": job.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if job.ignore_eos:
        fields["ignore_eos"] = True
    if job.ask_token_ids:
        fields["return_token_ids"] = True
    if job.cache_salt is not None:
        fields["cache_salt"] = job.cache_salt
    if job.logprobs is not None:
        if job.endpoint == "chat":
            fields |= {"logprobs": True, "top_logprobs": job.logprobs}
        else:
            fields["logprobs"] = job.logprobs
    return b"," + msgspec.json.encode(fields)[1:]


class RequestStock:
    """The requests of a job (or of its shard) in order, some made in advance.

    ``refill`` makes one more where there is room (48 MiB or ``ahead`` requests); ``take`` hands out
    the next, making it on the spot if it must, ``None`` when the job is exhausted. Turns that need
    an answer first come from ``follow``.
    """

    def __init__(self, job: Job, target: Target, ahead: int) -> None:
        self._job = job
        self._head = _headers(job, target)
        self._tails: dict[int, bytes] = {}
        self._planned = _planned(job)
        shape = job.prompts.shape
        self._turns = shape.turns if isinstance(shape, Conversation) else 1
        self._left = job.requests // self._turns
        self._ahead = ahead
        self._stock: deque[Request] = deque()
        self._stock_bytes = 0

    @property
    def exhausted(self) -> bool:
        """Whether every request of the job was handed out, later turns apart."""
        return not self._stock and self._left == 0

    def refill(self) -> bool:
        """Make one request ahead; whether there was room and need for it."""
        full = len(self._stock) >= self._ahead or self._stock_bytes >= _STOCK_BYTES
        if full or self._left == 0:
            return False
        request = self._make()
        self._stock.append(request)
        self._stock_bytes += len(request.wire)
        return True

    def take(self) -> Request | None:
        """The next request."""
        if self._stock:
            request = self._stock.popleft()
            self._stock_bytes -= len(request.wire)
            return request
        return None if self.exhausted else self._make()

    def turns_after(self, request: Request) -> int:
        """How many turns of its conversation come after a request."""
        return 0 if request.said is None else self._turns - 1 - request.number % self._turns

    def follow(self, request: Request, answer: Answer) -> Request | None:
        """The turn after ``request``, whose answer it contains; ``None`` after the last one.

        Raises :class:`CannotMeasure` when the answer cannot be put into a prompt.
        """
        said = request.said
        if said is None or self.turns_after(request) == 0:
            return None
        index = request.number + 1
        parts = parts_of(self._job.prompts, index)
        return self._finish(index, said.after(answer, self._job, parts), self._job.output_tokens)

    def _make(self) -> Request:
        index, said, output_tokens = next(self._planned)
        self._left -= 1
        return self._finish(index, said, output_tokens)

    def _finish(self, index: int, said: Said, output_tokens: int) -> Request:
        prompt, digest = said.encoded()
        tail = self._tails.get(output_tokens)
        if tail is None:
            tail = self._tails[output_tokens] = _body_after_prompt(self._job, output_tokens)
        request_id = f"{self._job.request_id_prefix}-{index}"
        wire = b"%bContent-Length: %d\r\nx-request-id: %b\r\n\r\n%b%b" % (
            self._head,
            len(prompt) + len(tail),
            request_id.encode("latin-1"),
            prompt,
            tail,
        )
        keep = said if self._turns > 1 else None
        return Request(request_id, digest, wire, output_tokens, index, keep)


def _planned(job: Job) -> Iterator[tuple[int, Said, int]]:
    """Index, prompt and output length of each request that needs no answer first."""
    spec = job.prompts
    texts = _texts(job)
    if isinstance(spec.shape, Trace):
        if job.endpoint == "chat" or texts is not None:
            raise UsageError("a trace is replayed as token ids: use --endpoint completions")
        for number, line in read_trace(spec.shape.path, job.shard):
            parts = trace_parts(spec, spec.shape, number, line)
            yield number, Said.of(job, parts, None), line.output_tokens
        return
    turns = spec.shape.turns if isinstance(spec.shape, Conversation) else 1
    shard = job.shard or Shard(0, 1)
    for place in range(shard.index, spec.count // turns, shard.of):
        index = spec.first + turns * (place if spec.cycle is None else place % spec.cycle)
        lines = None if texts is None else [text for _, text in islice(texts, turns)]
        yield index, Said.of(job, parts_of(spec, index), lines), job.output_tokens


def _texts(job: Job) -> Iterator[tuple[int, str]] | None:
    """Number and text of the shard's lines of the job's texts; read as they are needed."""
    if job.texts_path is None:
        return None
    shape = job.prompts.shape
    turns = shape.turns if isinstance(shape, Conversation) else 1
    shard = job.shard or Shard(0, 1)
    return _own_texts(Path(job.texts_path), turns, shard, job.prompts.count)


def _own_texts(path: Path, turns: int, shard: Shard, count: int) -> Iterator[tuple[int, str]]:
    number = -1
    with path.open("rb") as lines:
        for number, line in enumerate(lines):
            if number // turns % shard.of == shard.index:
                yield number, msgspec.json.decode(line, type=str)
    raise UsageError(f"{number + 1} texts for {count} requests", where=str(path))
