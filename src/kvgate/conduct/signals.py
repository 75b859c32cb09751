"""What Ctrl-C, SIGTERM and a lost terminal do to a run: stop once and leave nothing running."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from kvgate.errors import Interrupted

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """The first signal raises Interrupted where the run stands. While everything is being stopped,
    the next one is answered with a line and the one after that gives the stopping up.

    ``cancel`` ends the play that runs; ``tell`` says a line to the person.
    """

    def __init__(
        self, cancel: Callable[[], None], tell: Callable[[str], None], *, remedy: str
    ) -> None:
        self._cancel = cancel
        self._tell = tell
        self._remedy = remedy
        self._stopping = False
        self._impatient = 0
        self._raised = False
        self._previous: list[tuple[int, Any]] = []

    def __enter__(self) -> Self:
        self._previous = _caught_by(self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous:
            signal.signal(number, handler)

    def stopping(self) -> None:
        """From here on engines and stores are being stopped."""
        self._stopping = True

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self._stopping:
            if not self._raised:
                self._raised = True
                self._cancel()
                raise Interrupted(f"stopped by {name}", remedy=self._remedy)
            return  # on the way out already
        self._impatient += 1
        if self._impatient == 1:
            # A line that is being printed just now, or a terminal that is gone, must not cost the
            # stopping.
            with contextlib.suppress(RuntimeError, OSError):
                self._tell("stopping what was started; once more leaves it running")
            return
        self._cancel()
        raise Interrupted(f"stopped by {name} while engines and stores were being stopped")


class _Broken(BaseException):
    """No Exception: libraries that draw and judge for us catch those."""


class BreakOff:
    """Work that can be taken up again is broken off by any signal, at once, with one line.

    Whatever swallowed the signal on its way, leaving raises Interrupted.
    """

    def __init__(self, *, remedy: str) -> None:
        self._remedy = remedy
        self._by = ""
        self._previous: list[tuple[int, Any]] = []

    def __enter__(self) -> Self:
        self._previous = _caught_by(self._caught)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._previous:
            signal.signal(number, handler)
        if self._by and (kind is None or issubclass(kind, _Broken)):
            raise Interrupted(f"stopped by {self._by}", remedy=self._remedy) from None

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        self._by = signal.Signals(number).name
        raise _Broken


def _caught_by(handler: Callable[[int, FrameType | None], None]) -> list[tuple[int, Any]]:
    """Install ``handler`` for every signal that we catch; returns the former handlers."""
    # What nohup told us to ignore stays ignored.
    kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    caught = [n for n in CAUGHT if not (kept and n == signal.SIGHUP)]
    return [(number, signal.signal(number, handler)) for number in caught]
