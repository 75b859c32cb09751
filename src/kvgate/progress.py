"""What a run tells a person while it works: what is running, block n of m, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress(Protocol):
    """Told by whoever conducts a gate; steps are of about equal length."""

    def gate(self, gate: int, title: str, steps: int) -> None:
        """A gate begins and will take about ``steps`` steps."""

    def doing(self, text: str) -> None:
        """Something goes on now."""

    def requests(self, done: int, total: int) -> None:
        """Requests finished in the block that runs."""

    def step(self, count: int = 1) -> None:
        """Steps finished."""

    def note(self, text: str) -> None:
        """A line that stays."""


class Silent:
    """Tells nobody."""

    def gate(self, gate: int, title: str, steps: int) -> None: ...

    def doing(self, text: str) -> None: ...

    def requests(self, done: int, total: int) -> None: ...

    def step(self, count: int = 1) -> None: ...

    def note(self, text: str) -> None: ...


class PlainLines:
    """One line for each thing that begins: for logs and CI."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._started = time.monotonic()
        self._done, self._total = 0, 0

    def gate(self, gate: int, title: str, steps: int) -> None:
        self._started, self._done, self._total = time.monotonic(), 0, steps
        self._say(f"G{gate} {title}: about {steps} steps")

    def doing(self, text: str) -> None:
        left = time_left_s(time.monotonic() - self._started, self._done, self._total)
        more = "" if left is None else f", about {left:.0f} s left"
        self._say(f"  [{self._done}/{self._total}{more}] {text}")

    def requests(self, done: int, total: int) -> None: ...

    def step(self, count: int = 1) -> None:
        self._done += count

    def note(self, text: str) -> None:
        self._say(f"  {text}")

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveBars:
    """Two bars in a terminal: the gate's steps, and the requests of the running block."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._gate = bars.add_task("", total=1)
        self._block = bars.add_task("", total=1, visible=False)
        self._started = time.monotonic()
        self._title = ""

    def gate(self, gate: int, title: str, steps: int) -> None:
        self._started, self._title = time.monotonic(), f"[bold]G{gate}[/] {title}"
        self._bars.reset(self._gate, total=steps, description=self._title)

    def doing(self, text: str) -> None:
        task = self._bars.tasks[0]
        left = time_left_s(
            time.monotonic() - self._started, int(task.completed), int(task.total or 1)
        )
        more = "" if left is None else f"  [dim]~{left:.0f} s left[/]"
        self._bars.update(self._gate, description=self._title + more)
        self._bars.update(self._block, description=text, completed=0, total=1, visible=True)

    def requests(self, done: int, total: int) -> None:
        self._bars.update(self._block, completed=done, total=total)

    def step(self, count: int = 1) -> None:
        self._bars.advance(self._gate, count)

    def note(self, text: str) -> None:
        self._bars.console.print(f"  {text}", highlight=False, markup=False)


def time_left_s(elapsed_s: float, done: int, total: int) -> float | None:
    """Seconds left if the rest goes like what is done; None while nothing is."""
    if done <= 0 or total <= done:
        return None
    return elapsed_s / done * (total - done)


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[Progress]:
    """Live bars where ``stream`` is a terminal, plain lines elsewhere."""
    target = stream or sys.stdout
    if not target.isatty():
        yield PlainLines(target)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(file=target), transient=True) as bars:
        yield LiveBars(bars)
