"""What kvgate and the agents that it starts on other hosts say to each other, over pipes or SSH.

One JSON object a line. A message with ``bytes`` is followed by so many raw bytes: a file. It needs
the standard library alone, for an engine host may have nothing else.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

Message = Mapping[str, Any]

MAX_LINE_BYTES: Final = 64 << 20
SILENCE_S: Final = 20.0
"""An agent that hears nothing for so long is alone: it ends, and what it started with it."""
ALIVE_EVERY_S: Final = 2.0
_CHUNK: Final = 1 << 20
_MOST: Final = 1 << 100
"""No clock and no counter comes near it; what does would be infinite in a later difference."""


def packed(message: Message) -> bytes:
    """A message as the line that is sent."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Bytes as they come, to messages. Raises ValueError for what is no message."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def fed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole now; stops after one that announces a file."""
        self._pending += data
        while (end := self._pending.find(b"\n")) >= 0:
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            try:
                message = json.loads(
                    line, parse_float=_finite, parse_int=_whole, parse_constant=_no_number
                )
            except RecursionError:
                raise ValueError("a line nested too deeply") from None
            if not isinstance(message, dict):
                raise ValueError("a line that is no object")  # noqa: TRY004 - it came from elsewhere
            yield message
            if "bytes" in message:
                return
        if len(self._pending) > MAX_LINE_BYTES:
            raise ValueError("a line without end")

    def taken(self, most: int) -> bytes:
        """What has come already of a file that was announced, at most so many bytes."""
        raw = bytes(self._pending[:most])
        del self._pending[:most]
        return raw


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _whole(text: str) -> int:
    value = int(text)
    return value if abs(value) < _MOST else int(_no_number(text))


def _no_number(text: str) -> float:
    # A NaN is below no limit and above none: it would pass where it is compared.
    raise ValueError(f"{text[:40]}, which is no number that can be judged")


class Silence(Exception):  # noqa: N818 - the word of this module
    """Nothing was heard for SILENCE_S, or nothing will be heard any more."""


class Listener:
    """An agent's end: orders on standard input, answers on standard output."""

    def __init__(self) -> None:
        self.fd = sys.stdin.fileno()
        self.closed = False
        self._out = sys.stdout.fileno()
        self._lines = Lines()
        # A host that is shut down, or a session that ends: tidy up as well.
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _silent)
        self.heard()

    def heard(self) -> None:
        """Begin to count the silence anew. It interrupts a write that nobody reads, too."""
        signal.setitimer(signal.ITIMER_REAL, SILENCE_S)

    def patient(self, seconds: float) -> None:
        """Until the next word, so much silence is granted: nobody listens meanwhile."""
        signal.setitimer(signal.ITIMER_REAL, seconds + SILENCE_S)

    def read(self) -> list[Message]:
        """Orders that are whole; ``closed`` once there will be none any more."""
        data = os.read(self.fd, 65_536)
        if not data:
            self.closed = True
            return []
        self.heard()
        return list(self._lines.fed(data))

    def say(self, kind: str, **fields: Any) -> None:
        self._write(packed({"kind": kind, **fields}))

    def say_clock(self) -> None:
        """This host's CLOCK_MONOTONIC, ns, as late as can be."""
        self.say("clock", ns=time.monotonic_ns())

    def send_file(self, path: Path) -> None:
        """The file's bytes; one that is not there is 0 bytes long."""
        try:
            with path.open("rb") as stream:
                left = os.fstat(stream.fileno()).st_size
                self.say("file", bytes=left)
                while left > 0 and (chunk := stream.read(min(left, _CHUNK))):
                    self._write(chunk)
                    left -= len(chunk)
                    self.heard()
        except FileNotFoundError:
            self.say("file", bytes=0)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._out, view) :]


def _silent(_number: int, _frame: FrameType | None) -> None:
    raise Silence
