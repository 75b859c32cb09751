"""Non-blocking connections with the kernel's receive stamps, in clear or under TLS."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import time
from typing import Any, Final

from kvgate.record import NS_PER_S

# Python 3.11 does not name it; the number is Linux's (asm-generic/socket.h).
SO_TIMESTAMPNS: Final = 35
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(16)
_BUFFER_BYTES: Final = 256 * 1024
_LOCAL_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EPERM}
)

# One buffer for all connections: the loop copies out what arrived before it reads again.
_view = memoryview(bytearray(_BUFFER_BYTES))
_targets = [_view]
_unpack_timespec = struct.Struct("qq").unpack
_monotonic_ns = time.monotonic_ns


def is_local_fault(fault: OSError) -> bool:
    """Whether the load host ran out of something: descriptors, ports, buffers."""
    return fault.errno in _LOCAL_ERRNOS


def _check(code: int) -> None:
    if code not in (0, errno.EINPROGRESS):
        raise OSError(code, os.strerror(code))


class Endpoint:
    """Where to connect, resolved once: a block must not wait for a name server."""

    __slots__ = ("address", "context", "family", "host")

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.family = found[0][0]
        self.address = found[0][4]
        self.host = host
        self.context = context


class Connection:
    """One TCP connection; it may serve once ``ready``.

    ``stamp_real_ns`` is the kernel's CLOCK_REALTIME stamp of the last read, ``None`` where the
    kernel gave none (a segment read in two parts has its stamp on the second); ``user_ns`` is the
    CLOCK_MONOTONIC moment at which this process had the bytes.
    """

    __slots__ = (
        "_incoming",
        "_out",
        "_outgoing",
        "_tcp_done",
        "_tls",
        "connected_ns",
        "fd",
        "idle_since_ns",
        "load",
        "opened_ns",
        "ready",
        "sock",
        "stamp_real_ns",
        "user_ns",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self.sock = socket.socket(endpoint.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.fd = self.sock.fileno()
        self.opened_ns = _monotonic_ns()
        self.connected_ns: int | None = None
        self.idle_since_ns = self.opened_ns
        self.ready = False
        self.load: Any = None
        self.stamp_real_ns: int | None = None
        self.user_ns = 0
        self._tcp_done = False
        self._out: memoryview | None = None
        self._tls: ssl.SSLObject | None = None
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            if endpoint.context is not None:
                self._incoming = ssl.MemoryBIO()
                self._outgoing = ssl.MemoryBIO()
                self._tls = endpoint.context.wrap_bio(
                    self._incoming, self._outgoing, server_hostname=endpoint.host
                )
            _check(self.sock.connect_ex(endpoint.address))
        except BaseException:
            self.sock.close()
            raise

    @property
    def wants_write(self) -> bool:
        """Whether the loop should say when the socket takes bytes."""
        return self._out is not None or not self._tcp_done

    def advance(self) -> None:
        """Go on with the TCP and TLS handshakes after an event. Raises OSError."""
        if not self._tcp_done:
            _check(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            self._tcp_done = True
        elif self._out is not None:
            self.flush()
        if self._tls is not None:
            self._pull_ciphertext()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._push_ciphertext()
                return
            self._push_ciphertext()
        self.ready = True
        self.connected_ns = self.idle_since_ns = _monotonic_ns()

    def send(self, data: bytes) -> None:
        """Hand over bytes; what the kernel does not take now goes out with ``flush``."""
        if self._tls is not None:
            self._tls.write(data)
            self._push_ciphertext()
            return
        self._out = memoryview(data)
        self.flush()

    def flush(self) -> None:
        """Send what is left over."""
        out = self._out
        try:
            while out is not None:
                sent = self.sock.send(out)
                out = out[sent:] if sent < len(out) else None
        except BlockingIOError:
            pass
        self._out = out

    def receive(self) -> bytes | None:
        """What arrived; ``b""`` when the peer closed, ``None`` when there is nothing to hand on."""
        try:
            size, ancillary, _, _ = self.sock.recvmsg_into(_targets, _ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        self.user_ns = _monotonic_ns()
        if ancillary:
            seconds, ns = _unpack_timespec(ancillary[0][2])
            self.stamp_real_ns = seconds * NS_PER_S + ns
        else:
            self.stamp_real_ns = None
        if self._tls is None or size == 0:
            return _view[:size].tobytes()
        self._incoming.write(_view[:size])
        return self._decrypt(self._tls)

    def close(self) -> None:
        """Close without a farewell: the peer sees the connection end."""
        self.sock.close()

    def _decrypt(self, tls: ssl.SSLObject) -> bytes | None:
        pieces: list[bytes] = []
        try:
            while piece := tls.read(65_536):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            if self._outgoing.pending:
                self._push_ciphertext()
            return b"".join(pieces) or None
        except ssl.SSLZeroReturnError:
            pass
        # A closed TLS session with data before it: the data first, the end with the next read.
        return b"".join(pieces)

    def _pull_ciphertext(self) -> None:
        try:
            data = self.sock.recv(65_536)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
        self._incoming.write(data)

    def _push_ciphertext(self) -> None:
        data = self._outgoing.read()
        if not data:
            return
        if self._out is not None:
            data = bytes(self._out) + data
        self._out = memoryview(data)
        self.flush()
