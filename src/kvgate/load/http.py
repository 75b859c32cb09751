"""HTTP/1.1 responses, read piece by piece from a non-blocking socket (RFC 9112)."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

_MAX_HEAD_BYTES: Final = 65_536
_MAX_LINE_BYTES: Final = 4_096
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_STATUS: Final = re.compile(rb"[1-9][0-9][0-9]").fullmatch
_LENGTH: Final = re.compile(rb"[0-9]{1,18}").fullmatch


class ProtocolFault(Exception):  # noqa: N818 - what went wrong, not who raised it
    """The peer's bytes are not what the protocol allows."""


class _Place(IntEnum):
    HEAD = 0
    LENGTH = 1
    UNTIL_CLOSE = 2
    SIZE = 3
    DATA = 4
    DATA_END = 5
    TRAILER = 6
    DONE = 7


class ResponseReader:
    """One response. Feed it what arrives; it returns the body's bytes as they come.

    ``status`` is ``None`` until the head is complete. ``complete`` says that the body is whole;
    ``keep_alive`` that the connection may serve another request.
    """

    __slots__ = ("_left", "_pending", "_place", "content_type", "keep_alive", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.keep_alive = False
        self.content_type = ""
        self._place = _Place.HEAD
        self._pending = b""
        self._left = 0

    @property
    def complete(self) -> bool:
        """Whether the whole body was read."""
        return self._place is _Place.DONE

    def feed(self, data: bytes) -> bytes:
        """Take bytes, return the body bytes among them. Raises :class:`ProtocolFault`."""
        place = self._place
        if place is _Place.HEAD:
            data = self._head(data)
            if not data:
                return b""
            place = self._place
        if place >= _Place.SIZE:
            return self._chunked(data)
        if place is _Place.UNTIL_CLOSE:
            return data
        return self._counted(data)

    def close(self) -> None:
        """The peer closed: that ends a body without a length, and cuts off any other."""
        if self._place is _Place.UNTIL_CLOSE:
            self._place = _Place.DONE

    def _counted(self, data: bytes) -> bytes:
        if len(data) > self._left:
            raise ProtocolFault("bytes after the end of the body")
        self._left -= len(data)
        if self._left == 0:
            self._place = _Place.DONE
        return data

    def _head(self, data: bytes) -> bytes:
        data = self._pending + data
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > _MAX_HEAD_BYTES:
                    raise ProtocolFault("response head larger than 64 KiB")
                # A server of another protocol is told from a slow one at once.
                if not b"HTTP/1.".startswith(data[:7]):
                    raise ProtocolFault(f"not an HTTP/1.x response: {data[:20]!r}")
                self._pending = data
                return b""
            status = self._parse_head(data[:end])
            data = data[end + 4 :]
            if status >= 200:
                break
        self._pending = b""
        self.status = status
        return data

    def _parse_head(self, head: bytes) -> int:
        lines = head.split(b"\r\n")
        parts = lines[0].split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not _STATUS(parts[1]):
            raise ProtocolFault(f"not an HTTP/1.x response: {lines[0][:60]!r}")
        status = int(parts[1])
        if status < 200:
            return status
        fields: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon:
                raise ProtocolFault(f"not a header: {line[:60]!r}")
            key = name.strip().lower()
            value = value.strip()
            if key == b"content-length" and fields.get(key, value) != value:
                raise ProtocolFault("two different Content-Length headers")
            fields[key] = value
        self.content_type = fields.get(b"content-type", b"").decode("latin-1").lower()
        connection = fields.get(b"connection", b"").lower()
        self.keep_alive = parts[0] != b"HTTP/1.0" and b"close" not in connection
        if fields.get(b"content-encoding", b"identity").lower() != b"identity":
            raise ProtocolFault("a content encoding that was not asked for")
        coding = fields.get(b"transfer-encoding", b"").lower()
        if coding:
            if coding != b"chunked":
                raise ProtocolFault(f"unknown transfer encoding {coding[:40]!r}")
            self._place = _Place.SIZE
        elif b"content-length" in fields:
            length = fields[b"content-length"]
            if not _LENGTH(length):
                raise ProtocolFault(f"not a length: {length[:40]!r}")
            self._left = int(length)
            self._place = _Place.LENGTH if self._left else _Place.DONE
        elif status in (204, 304):
            self._place = _Place.DONE
        else:
            self.keep_alive = False
            self._place = _Place.UNTIL_CLOSE
        return status

    def _chunked(self, data: bytes) -> bytes:
        # Only an unfinished size, line end or trailer is ever kept back; data goes out at once.
        if self._pending:
            data = self._pending + data
            self._pending = b""
        pieces: list[bytes] = []
        pos = 0
        size = len(data)
        while pos < size:
            place = self._place
            if place is _Place.SIZE:
                end = data.find(b"\r\n", pos)
                if end < 0:
                    break
                digits = data[pos:end]
                if b";" in digits:
                    digits = digits.partition(b";")[0]
                digits = digits.strip()
                if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
                    raise ProtocolFault(f"not a chunk size: {data[pos : pos + 40]!r}")
                self._left = int(digits, 16)
                pos = end + 2
                self._place = _Place.DATA if self._left else _Place.TRAILER
            elif place is _Place.DATA:
                piece = data[pos : pos + self._left]
                pieces.append(piece)
                pos += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._place = _Place.DATA_END
            elif place is _Place.DATA_END:
                if size - pos < 2:
                    break
                if data[pos : pos + 2] != b"\r\n":
                    raise ProtocolFault("chunk without its line end")
                pos += 2
                self._place = _Place.SIZE
            elif place is _Place.TRAILER:
                end = data.find(b"\r\n", pos)
                if end < 0:
                    break
                if end == pos:
                    self._place = _Place.DONE
                pos = end + 2
            else:
                raise ProtocolFault("bytes after the end of the body")
        if pos < size:
            self._pending = data[pos:]
            if len(self._pending) > _MAX_LINE_BYTES:
                raise ProtocolFault("chunk size or trailer line larger than 4 KiB")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
