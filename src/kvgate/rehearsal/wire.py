"""A small HTTP/1.1 server protocol and a small pooled client, both on asyncio streams of bytes.

Written for many short answers and long token streams at little CPU: no task and no future for each
request. One request at a time per connection, keep-alive, chunked streaming.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

import msgspec

_REASON: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
}
_MAX_HEAD: Final = 64 * 1024
_MAX_BODY: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One parsed request; header names are lower case."""

    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes


class Application(Protocol):
    """What answers requests. ``handle`` must end each response, at once or later."""

    def handle(self, connection: HttpConnection, request: Request) -> None:
        """Answer ``request`` on ``connection``."""


class HttpConnection(asyncio.Protocol):
    """One client connection of the server."""

    def __init__(self, app: Application, open_connections: set[HttpConnection]) -> None:
        self._app = app
        self._open = open_connections
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._keep_alive = True
        self.on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports are no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._open.discard(self)
        if self.on_lost is not None:
            lost, self.on_lost = self.on_lost, None
            lost()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next_request()

    @property
    def closed(self) -> bool:
        """The client is gone."""
        return self._transport is None

    def _next_request(self) -> None:
        while not self._busy and self._transport is not None:
            try:
                request = self._parse()
            except _BadRequestError as error:
                self._keep_alive = False
                self._busy = True
                self.send(error.status, b"text/plain", str(error).encode())
                return
            if request is None:
                return
            self._busy = True
            self._app.handle(self, request)

    def _parse(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise _BadRequestError(431, "head too long")
            return None
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        parts = lines[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            raise _BadRequestError(400, "malformed request line")
        headers: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon:
                raise _BadRequestError(400, "malformed header")
            headers[name.strip().lower()] = value.strip()
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            whole = _dechunk(self._buffer, end + 4)
            if whole is None:
                return None
            body, used = whole
        else:
            length_text = headers.get(b"content-length", b"0")
            if not length_text.isdigit():
                raise _BadRequestError(400, "malformed content-length")
            length = int(length_text)
            if length > _MAX_BODY:
                raise _BadRequestError(413, "body too long")
            used = end + 4 + length
            if len(self._buffer) < used:
                if headers.get(b"expect", b"").lower() == b"100-continue" and self._transport:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return None
            body = bytes(self._buffer[end + 4 : used])
        del self._buffer[:used]
        wants = headers.get(b"connection", b"").lower()
        self._keep_alive = wants != b"close" and (parts[2] != b"HTTP/1.0" or wants == b"keep-alive")
        path, _, query = parts[1].decode("latin-1").partition("?")
        return Request(parts[0].decode("latin-1"), path, query, headers, body)

    def _head(self, status: int, content_type: bytes, extra: bytes, framing: bytes) -> bytes:
        return (
            b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\n%s%s"
            b"x-kvgate-simulated: true\r\nx-kvgate-pid: %d\r\n%s\r\n"
        ) % (
            status,
            _REASON.get(status, "Status").encode(),
            content_type,
            framing,
            extra,
            os.getpid(),
            b"" if self._keep_alive else b"connection: close\r\n",
        )

    def send(self, status: int, content_type: bytes, body: bytes, extra: bytes = b"") -> None:
        """Answer in one piece; ``extra`` are complete header lines."""
        if self._transport is not None:
            framing = b"content-length: %d\r\n" % len(body)
            self._transport.write(self._head(status, content_type, extra, framing) + body)
        self._ended()

    def send_json(self, status: int, value: object, extra: bytes = b"") -> None:
        """Answer with JSON."""
        self.send(status, b"application/json", msgspec.json.encode(value), extra)

    def begin_stream(self, extra: bytes = b"") -> None:
        """Send the head of a ``text/event-stream`` answer with chunked framing."""
        if self._transport is not None:
            self._transport.write(
                self._head(
                    200,
                    b"text/event-stream; charset=utf-8",
                    extra,
                    b"transfer-encoding: chunked\r\n",
                )
            )

    def write(self, data: bytes) -> None:
        """One chunk of a stream."""
        if self._transport is not None:
            self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """The last chunk of a stream."""
        if self._transport is not None:
            self._transport.write(b"0\r\n\r\n")
        self._ended()

    def abort(self) -> None:
        """Cut the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _ended(self) -> None:
        self._busy = False
        self.on_lost = None
        if self._transport is None:
            return
        if not self._keep_alive:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._next_request)


class _BadRequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _dechunk(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    """Body and end offset of a chunked body that begins at ``start``, or None while incomplete."""
    body = bytearray()
    at = start
    while True:
        eol = buffer.find(b"\r\n", at)
        if eol < 0:
            return None
        try:
            size = int(bytes(buffer[at:eol]).split(b";")[0], 16)
        except ValueError as error:
            raise _BadRequestError(400, "malformed chunk") from error
        if size + len(body) > _MAX_BODY:
            raise _BadRequestError(413, "body too long")
        at = eol + 2 + size + 2
        if len(buffer) < at:
            return None
        if size == 0:
            return bytes(body), at
        body += buffer[eol + 2 : eol + 2 + size]


Answer = Callable[[int, bytes], None]
"""Called once with status and body; status 0 means that no answer came."""


class Client:
    """Keeps connections to one server open and sends one request at a time on each."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[_ClientConnection] = []
        self._opening: set[asyncio.Task[None]] = set()

    def post(self, path: str, value: object, answer: Answer) -> Callable[[], None]:
        """POST ``value`` as JSON; returns a function that gives the request up."""
        body = msgspec.json.encode(value)
        data = (
            b"POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s"
        ) % (path.encode(), self._host.encode(), len(body), body)
        call = _Call(data, answer)
        self._send(call)
        return call.give_up

    def _send(self, call: _Call) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                connection.begin(call, reused=True)
                return
        self._open(call)

    def _open(self, call: _Call) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await asyncio.wait_for(
                loop.create_connection(lambda: _ClientConnection(self), self._host, self._port), 5.0
            )
        except (OSError, TimeoutError):
            call.finish(0, b"")
            return
        connection.begin(call, reused=False)

    def release(self, connection: _ClientConnection) -> None:
        """Take a connection back after a complete answer."""
        self._idle.append(connection)

    def retry(self, call: _Call) -> None:
        """A kept connection had gone stale before any answer: once more on a fresh one."""
        self._open(call)

    def close(self) -> None:
        """Close what is idle."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


class _Call:
    __slots__ = ("_answer", "connection", "data")

    def __init__(self, data: bytes, answer: Answer) -> None:
        self.data = data
        self._answer: Answer | None = answer
        self.connection: _ClientConnection | None = None

    @property
    def given_up(self) -> bool:
        return self._answer is None

    def finish(self, status: int, body: bytes) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(status, body)

    def give_up(self) -> None:
        self._answer = None
        if self.connection is not None:
            self.connection.close()


class _ClientConnection(asyncio.Protocol):
    def __init__(self, client: Client) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._call: _Call | None = None
        self._reused = False
        self._buffer = bytearray()

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports are no subclass.
        self._transport = cast("asyncio.Transport", transport)

    def begin(self, call: _Call, *, reused: bool) -> None:
        if call.given_up:
            self._client.release(self)
            return
        self._call = call
        self._reused = reused
        call.connection = self
        if self._transport is not None:
            self._transport.write(call.data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        call, self._call = self._call, None
        if call is None:
            return
        call.connection = None
        if self._reused and not self._buffer and not call.given_up:
            self._client.retry(call)
        else:
            call.finish(0, b"")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._call is None:
            return
        head = bytes(self._buffer[:end])
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        self._buffer.clear()
        call, self._call = self._call, None
        call.connection = None
        self._client.release(self)
        call.finish(int(head[9:12]), body)
