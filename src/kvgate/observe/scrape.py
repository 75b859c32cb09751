"""One look at a metrics page, over in a set time whatever the server does."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kvgate.observe.exposition import Sample, parse

MAX_PAGE_BYTES: Final = 32 << 20
_RECEIVE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a look gave. Exactly one of ``samples`` and ``error`` is None.

    ``monotonic_ns`` is when the page was complete (or the look failed) on CLOCK_MONOTONIC,
    ``took_s`` how long the look took.
    """

    url: str
    monotonic_ns: int
    took_s: float
    samples: tuple[Sample, ...] | None
    error: str | None

    @property
    def ok(self) -> bool:
        """Whether there is a page."""
        return self.samples is not None


class _Failed(Exception):  # noqa: N818 - never leaves this module
    pass


def scrape(url: str, timeout_s: float) -> Scrape:
    """Fetch and parse ``url`` (http or https) in at most ``timeout_s``; every fault is in
    ``error``, nothing is raised. Proxies are ignored and redirects not followed."""
    started_ns = time.monotonic_ns()
    samples: tuple[Sample, ...] | None = None
    error: str | None = None
    try:
        page = _get(url, time.monotonic() + timeout_s)
        samples = parse(page.decode("utf-8"))
        if not samples:
            samples, error = None, "the page is empty"
    except TimeoutError:
        error = f"no whole page in {timeout_s:g} s"
    except (_Failed, OSError, ValueError) as fault:
        error = " ".join(str(fault).split())[:300] or type(fault).__name__
    ended_ns = time.monotonic_ns()
    return Scrape(url, ended_ns, (ended_ns - started_ns) / 1e9, samples, error)


def _get(url: str, deadline_s: float) -> bytes:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Failed("not an http or https address")
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(c <= " " or c > "~" for c in path + host):
        raise _Failed("the address holds a character that must be escaped")
    # HTTP/1.0: the answer is neither chunked nor kept alive, so its end is its end.
    request = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: text/plain\r\n\r\n"
    connection = socket.create_connection((parts.hostname, port), timeout=_left(deadline_s))
    try:
        if tls:
            connection.settimeout(_left(deadline_s))
            context = ssl.create_default_context()
            connection = context.wrap_socket(connection, server_hostname=parts.hostname)
        connection.settimeout(_left(deadline_s))
        connection.sendall(request.encode("ascii"))
        return _body(_receive(connection, deadline_s))
    finally:
        connection.close()


def _left(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _receive(connection: socket.socket, deadline_s: float) -> bytes:
    # The deadline is for the whole page: a server that drips a byte a second must not hold us.
    received = bytearray()
    while True:
        connection.settimeout(_left(deadline_s))
        piece = connection.recv(_RECEIVE_BYTES)
        if not piece:
            return bytes(received)
        received += piece
        if len(received) > MAX_PAGE_BYTES:
            raise _Failed(f"the page is larger than {MAX_PAGE_BYTES} bytes")
        if _complete(received):
            return bytes(received)


def _complete(received: bytearray) -> bool:
    # A server that keeps the connection open although we did not ask for it.
    head, found, body = received.partition(b"\r\n\r\n")
    length = _length(bytes(head)) if found else None
    return length is not None and len(body) >= length


def _length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def _body(received: bytes) -> bytes:
    head, found, body = received.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if not found or len(status) < 2 or not status[0].startswith(b"HTTP/"):
        raise _Failed("the answer is no HTTP")
    if status[1] != b"200":
        raise _Failed(f"HTTP {status[1].decode('latin-1')}")
    length = _length(head)
    if length is not None and len(body) < length:
        raise _Failed(f"the page broke off after {len(body)} of {length} bytes")
    if b"transfer-encoding" in head.lower():
        raise _Failed("the answer is chunked although HTTP/1.0 was asked for")
    return body if length is None else body[:length]
