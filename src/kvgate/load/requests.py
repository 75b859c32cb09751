"""Request bodies of a job, made ahead of their time so that sending costs one system call."""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kvgate.errors import UsageError
from kvgate.load.job import Job
from kvgate.load.prompts import ids_digest, prompt_text, prompt_tokens, text_digest

_STOCK_BYTES: Final = 48 * 1024 * 1024


class Target(NamedTuple):
    """The parts of a job's URL that a connection needs."""

    host: str
    port: int
    tls: bool
    path: str


class Request(NamedTuple):
    """One request, ready for the wire."""

    request_id: str
    prompt_digest: str
    wire: bytes


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


def _body_after_prompt(job: Job) -> bytes:
    fields: dict[str, Any] = {
        "model": job.model,
        "max_tokens": job.output_tokens,
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
    """The requests of a job in order, some made in advance.

    ``refill`` makes one more where there is room (48 MiB or ``ahead`` requests); ``take`` hands out
    the next, making it on the spot if it must. ``None`` when the job is exhausted.
    """

    def __init__(self, job: Job, target: Target, ahead: int) -> None:
        self._job = job
        self._head = _headers(job, target)
        self._tail = _body_after_prompt(job)
        self._texts = self._read_texts(job)
        self._next = 0
        self._ahead = ahead
        self._stock: deque[Request] = deque()
        self._stock_bytes = 0

    @property
    def exhausted(self) -> bool:
        """Whether every request of the job was handed out."""
        return not self._stock and self._next >= self._job.prompts.count

    def refill(self) -> bool:
        """Make one request ahead; whether there was room and need for it."""
        full = len(self._stock) >= self._ahead or self._stock_bytes >= _STOCK_BYTES
        if full or self._next >= self._job.prompts.count:
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

    @staticmethod
    def _read_texts(job: Job) -> Iterator[str] | None:
        if job.texts_path is None:
            return None
        lines = Path(job.texts_path).read_bytes().splitlines()
        if len(lines) < job.prompts.count:
            raise UsageError(
                f"{len(lines)} texts for {job.prompts.count} requests", where=job.texts_path
            )
        return iter([msgspec.json.decode(line, type=str) for line in lines])

    def _make(self) -> Request:
        spec = self._job.prompts
        index = spec.first + (self._next if spec.cycle is None else self._next % spec.cycle)
        self._next += 1
        if self._job.endpoint == "completions" and self._texts is None:
            ids = prompt_tokens(
                spec.seed, spec.pool, index, spec.tokens, spec.vocab_low, spec.vocab_high
            )
            digest = ids_digest(ids)
            prompt = b'{"prompt":' + msgspec.json.encode(ids)
        else:
            text = (
                next(self._texts)
                if self._texts is not None
                else prompt_text(spec.seed, spec.pool, index, spec.tokens)
            )
            digest = text_digest(text)
            if self._job.endpoint == "chat":
                said = [{"role": "user", "content": text}]
                prompt = b'{"messages":' + msgspec.json.encode(said)
            else:
                prompt = b'{"prompt":' + msgspec.json.encode(text)
        request_id = f"{self._job.request_id_prefix}-{index}"
        body = prompt + self._tail
        wire = b"%bContent-Length: %d\r\nx-request-id: %b\r\n\r\n%b" % (
            self._head,
            len(body),
            request_id.encode("latin-1"),
            body,
        )
        return Request(request_id, digest, wire)
