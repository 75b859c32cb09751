"""An agent on a host, spoken to over the pipes of an SSH connection (or of a local process)."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kvgate.errors import CannotMeasure
from kvgate.talk import Lines, Message, packed

HELLO_S: Final = 20.0
"""Connecting takes at most 3 s (the SSH options), Python's start on a busy host some more."""
ANSWER_S: Final = 12.0
"""A link that was cut is noticed by SSH within 9 s."""
_GRACE_S: Final = 5.0
_READ_BYTES: Final = 1 << 18
_GREETING_BYTES: Final = 1 << 20
_LEAST_BYTES_PER_S: Final = 1 << 16
"""A file that comes more slowly than that is given up: a host could hold a run for ever."""
MALFORMED: Final = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a message that lacks something, or has it in another shape, makes of reading it."""


class Channel:
    """``lost`` says why nothing more comes, and is None while the agent lives.

    The agent ends itself when its input ends, so closing is enough to end what it does.
    """

    def __init__(self, host: str, command: Sequence[str], log: Path) -> None:
        """Raises CannotMeasure where the agent does not greet us; ``log`` takes its last words."""
        self.host = host
        self.lost: str | None = None
        self._log = log
        self._lines = Lines()
        self._waiting: list[Message] = []
        try:
            with log.open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            raise CannotMeasure(
                f"{command[0]} cannot be started: {error.strerror}",
                where=f"host {host}",
                remedy="install the OpenSSH client on this machine",
            ) from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self.fd = self._process.stdin, self._process.stdout.fileno()
        try:
            self._greeted()
        except BaseException:
            self.close()
            raise

    def _greeted(self) -> None:
        # A shell's start-up files may print before the agent does.
        until = time.monotonic() + HELLO_S
        seen = b""
        while b'{"kind":"hello"' not in seen:
            data = self._read_raw(until - time.monotonic())
            if data is None:
                raise self.fault(self.lost or "it does not answer")
            seen += data
            # Who never stops talking is never waited for: the limits are of words and time alike.
            if len(seen) > _GREETING_BYTES or time.monotonic() >= until:
                raise self.fault("it says much and greets nobody")
        hello = seen[seen.index(b'{"kind":"hello"') :]
        self._waiting += self._parsed(hello)
        self.wait_for("hello", HELLO_S)

    def say(self, do: str, **fields: Any) -> None:
        """An order; to an agent that has gone it says nothing, and ``lost`` tells."""
        if self.lost is None:
            try:
                self._in.write(packed({"do": do, **fields}))
                self._in.flush()
            except OSError:
                self._lose()

    def read(self, timeout_s: float = 0.0) -> list[Message]:
        """What the agent has said by now, waiting so long for the first word."""
        if not self._waiting and self.lost is None:
            data = self._read_raw(timeout_s)
            if data:
                self._waiting += self._parsed(data)
        said, self._waiting = self._waiting, []
        return said

    def wait_for(self, kind: str, timeout_s: float) -> Message:
        """The next message of a kind; others wait. Raises CannotMeasure where it does not come."""
        until = time.monotonic() + timeout_s
        kept: list[Message] = []
        while True:
            said = self.read(max(0.0, until - time.monotonic()))
            for at, message in enumerate(said):
                if message.get("kind") == kind:
                    self._waiting = [*kept, *said[at + 1 :], *self._waiting]
                    return message
            kept += said
            if self.lost is not None or time.monotonic() >= until:
                self._waiting = kept
                raise self.fault(self.lost or f"no {kind} within {timeout_s:g} s")

    def clock(self) -> int:
        """The host's CLOCK_MONOTONIC, ns."""
        self.say("clock")
        return self._number(self.wait_for("clock", ANSWER_S), "ns")

    def fetch(self, path: Path) -> int:
        """The agent's file to ``path``; its bytes. Raises CannotMeasure where it breaks off, comes
        too slowly, or has no room here."""
        self.say("fetch")
        left = size = self._number(self.wait_for("file", ANSWER_S), "bytes")
        if size > shutil.disk_usage(path.parent).free:
            raise self.fault(f"its file of {size} bytes has no room in {path.parent}")
        until = time.monotonic() + ANSWER_S + size / _LEAST_BYTES_PER_S
        with path.open("wb") as out:
            while left > 0:
                chunk = self._lines.taken(left)
                if not chunk:
                    # Every word counts as a sign of life on the other side as well.
                    self.say("alive")
                    data = self._read_raw(min(ANSWER_S, until - time.monotonic()))
                    if data is None or time.monotonic() >= until:
                        raise self.fault(self.lost or f"{left} bytes of its records are missing")
                    chunk, rest = data[:left], data[left:]
                    self._waiting += self._parsed(rest)
                out.write(chunk)
                left -= len(chunk)
        return size

    def _number(self, message: Message, name: str) -> int:
        found = message.get(name)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 63:
            raise self.fault(f"its {message['kind']} has no {name}: {str(found)[:40]}")
        return found

    def fault(self, why: str) -> CannotMeasure:
        """What is wrong with this host, as an error."""
        return CannotMeasure(
            why,
            where=f"host {self.host}",
            remedy="check the network, the host and its SSH key, then run again",
        )

    def close(self) -> None:
        """End the agent by ending what it hears; kill the connection where it does not go."""
        with contextlib.suppress(OSError):
            self._in.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        if self._process.poll() is None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self.lost = self.lost or "the connection is closed"
        if self._process.returncode == 0:
            self._log.unlink(missing_ok=True)  # nothing went wrong: nothing to be told later

    def _read_raw(self, timeout_s: float) -> bytes | None:
        """Bytes, or None where none came in time or the agent has gone (then ``lost`` is set)."""
        if self.lost is not None:
            return None
        readable, _, _ = select.select([self.fd], [], [], max(0.0, timeout_s))
        if not readable:
            return None
        data = os.read(self.fd, _READ_BYTES)
        if not data:
            self._lose()
            return None
        return data

    def _parsed(self, data: bytes) -> list[Message]:
        try:
            return list(self._lines.fed(data))
        except ValueError as error:
            self.lost = f"it says what is no message: {str(error)[:100]}"
            return []

    def _lose(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        said = self._log.read_text(errors="replace").strip().splitlines()
        last = said[-1].strip()[:300] if said else "no word from it"
        self.lost = f"the connection ended ({self._process.poll()}): {last}"
