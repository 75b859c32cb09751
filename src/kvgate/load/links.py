"""The connections of a block: opened ahead, kept alive, replaced before a server drops them."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any, Final

from kvgate.load.transport import Connection, Endpoint
from kvgate.record import NS_PER_S

_OPEN_AT_ONCE: Final = 64
_READ: Final = select.EPOLLIN
_READ_WRITE: Final = select.EPOLLIN | select.EPOLLOUT


class Unreachable(Exception):  # noqa: N818 - what the engine is
    """No connection could be opened before the block."""


class Links:
    """All connections of a process and the epoll that watches them.

    ``opened`` counts connections that became ready, ``last_error`` says why the last one did not.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._epoll = select.epoll()
        self._all: dict[int, Connection] = {}
        self._idle: dict[int, Connection] = {}
        self.get = self._all.get
        self.poll = self._epoll.poll
        self.opened = 0
        self.last_error = ""

    def open(self, load: Any) -> Connection:
        """Begin to connect; ``load`` is what it will carry, ``None`` to keep it idle.

        Raises OSError.
        """
        try:
            connection = Connection(self._endpoint)
        except OSError as fault:
            self.last_error = str(fault)
            raise
        connection.load = load
        self._all[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLOUT)
        return connection

    def open_ahead(
        self,
        wanted: int,
        deadline_ns: int,
        handle: Callable[[Connection, int], None],
        stopped: Callable[[], bool],
    ) -> None:
        """Open idle connections until there are ``wanted`` or the time is over.

        Raises :class:`Unreachable` where not one was opened.
        """
        while len(self._idle) < wanted and not stopped():
            if time.monotonic_ns() > deadline_ns:
                break
            # Few at a time: a full accept queue costs each newcomer a second.
            for _ in range(min(_OPEN_AT_ONCE, wanted - len(self._all))):
                try:
                    self.open(None)
                except OSError:
                    break
            for fd, mask in self.poll(0.02):
                connection = self.get(fd)
                if connection is not None:
                    handle(connection, mask)
            if len(self._all) < wanted:
                time.sleep(0.005)
        if not self._idle and not stopped():
            raise Unreachable(self.last_error or "no connection in time")

    def take(self) -> Connection | None:
        """The connection that became idle last: the one least likely to be dropped."""
        return self._idle.popitem()[1] if self._idle else None

    def keep(self, connection: Connection, since_ns: int) -> None:
        """Keep a connection for a later request."""
        connection.load = None
        connection.idle_since_ns = since_ns
        self._idle[connection.fd] = connection

    def close(self, connection: Connection) -> None:
        """Close and forget a connection."""
        self._all.pop(connection.fd, None)
        self._idle.pop(connection.fd, None)
        connection.load = None
        connection.close()

    def close_all(self) -> None:
        """The end of the block."""
        for connection in list(self._all.values()):
            self.close(connection)

    def send(self, connection: Connection, data: bytes) -> None:
        """Hand over a request. Raises OSError."""
        connection.send(data)
        if connection.wants_write:
            self._epoll.modify(connection.fd, _READ_WRITE)

    def flush(self, connection: Connection) -> None:
        """Send what is left over, after an event. Raises OSError."""
        connection.flush()
        if not connection.wants_write:
            self._epoll.modify(connection.fd, _READ)

    def advance(self, connection: Connection) -> bool:
        """Go on with the handshakes; whether the connection is ready now. Raises OSError."""
        try:
            connection.advance()
        except OSError as fault:
            self.last_error = str(fault)
            raise
        self._epoll.modify(connection.fd, _READ_WRITE if connection.wants_write else _READ)
        if not connection.ready:
            return False
        self.opened += 1
        if connection.load is None:
            self._idle[connection.fd] = connection
        return True

    def replace_old(self, now_ns: int, limit_s: float) -> None:
        """Replace connections that were idle for longer than ``limit_s``."""
        limit_ns = now_ns - int(limit_s * NS_PER_S)
        for connection in [c for c in self._idle.values() if c.idle_since_ns < limit_ns]:
            self.close(connection)
            try:
                self.open(None)
            except OSError:
                return
