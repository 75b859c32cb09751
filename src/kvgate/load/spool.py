"""Finished records go to disk as JSON lines, so memory does not grow with the length of a run."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from kvgate.load.job import Progress
from kvgate.record import RequestRecord

_FLUSH_BYTES: Final = 256 * 1024


class RecordSpool:
    """Appends records to a file that must not exist yet."""

    def __init__(self, path: Path) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._lines = bytearray()

    def add(self, record: RequestRecord) -> None:
        """Append one record."""
        self._lines += self._encode(record)
        self._lines += b"\n"
        if len(self._lines) > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered. Raises OSError when the disk is full."""
        pending = memoryview(bytes(self._lines))
        self._lines.clear()
        while pending:
            pending = pending[os.write(self._file, pending) :]

    def close(self) -> None:
        """Write the rest and make it durable."""
        self.flush()
        os.fsync(self._file)
        os.close(self._file)


class ProgressLines:
    """Progress on standard output; a reader that does not keep up loses lines, never our time."""

    def __init__(self, descriptor: int) -> None:
        self._out: int | None = descriptor
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.set_blocking(descriptor, False)

    def show(self, progress: Progress) -> None:
        """Write one line, or none."""
        if self._out is None:
            return
        try:
            os.write(self._out, msgspec.json.encode(progress) + b"\n")
        except BlockingIOError:
            pass
        except OSError:
            self._out = None
