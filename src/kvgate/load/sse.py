"""Server-sent events, read piece by piece (WHATWG HTML, "Interpreting an event stream")."""

from __future__ import annotations

import re
from typing import Final

from kvgate.load.http import ProtocolFault

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """One event stream. The events do not depend on how the bytes were split on their way.

    ``named_error`` is the data of the first event of the type ``error``.
    """

    __slots__ = ("_data", "_first", "_name", "_rest", "_skip_lf", "named_error")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = b""
        self._skip_lf = False
        self._first = True
        self.named_error: bytes | None = None

    @property
    def unfinished(self) -> bool:
        """Whether bytes of an event without its end are left."""
        return bool(self._rest or self._data)

    def feed(self, body: bytes) -> list[bytes]:
        """Take body bytes, return the data of each event that they complete."""
        if (
            not self._rest
            and not self._data
            and not self._skip_lf
            and body.startswith(b"data: ")
            and body.endswith(b"\n\n")
            and b"\r" not in body
        ):
            # What engines send: whole events of one line each.
            blocks = body[6:-2].split(b"\n\ndata: ")
            for block in blocks:
                if b"\n" in block:
                    return self._general(body)
            self._first = False
            return blocks
        return self._general(body)

    def _general(self, body: bytes) -> list[bytes]:
        if not body:
            return []
        if self._skip_lf:
            # The line ended at the carriage return already; its line feed came later.
            self._skip_lf = False
            if body.startswith(b"\n"):
                body = body[1:]
                if not body:
                    return []
        text = self._rest + body
        lines = _LINE_END.split(text)
        self._rest = lines.pop()
        self._skip_lf = text.endswith(b"\r")
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise ProtocolFault("an event larger than 64 MiB")
        events: list[bytes] = []
        for line in lines:
            if self._first:
                self._first = False
                line = line.removeprefix(_BOM)
            if not line:
                self._dispatch(events)
                continue
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._data.append(value)
            elif name == b"event":
                self._name = value
        return events

    def _dispatch(self, events: list[bytes]) -> None:
        if self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            if self._name == b"error" and self.named_error is None:
                self.named_error = data
            events.append(data)
        self._name = b""
