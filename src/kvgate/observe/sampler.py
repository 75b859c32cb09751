"""Sampling engine, store and host on a schedule, with every gap on record.

One thread a source, so that a dead server delays nobody; each works on absolute deadlines
``start + k * period``, so that a late look is not pushed on to all later ones. The first look is
the snapshot before the block, the last one the snapshot after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from kvgate.errors import UsageError
from kvgate.observe.adapters import Adapter
from kvgate.observe.exposition import Sample
from kvgate.observe.observation import (
    Gap,
    Observation,
    TargetView,
    clock_view,
    find_gaps,
    smallest,
)
from kvgate.observe.polling import TOOL_PERIOD_S, Look, Poller, host_look, tool_look, tools_of_host
from kvgate.observe.rows import Row, Rows
from kvgate.observe.scrape import scrape

HOST: Final = "host"
_MAX_RAW: Final = 5_000
_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """A metrics page to look at. ``name`` is unique in a block, for instance ``engine-0``."""

    name: str
    adapter: Adapter
    url: str


class Sampler:
    """Samples from :meth:`start` to :meth:`stop`; also a context manager that always ends.

    ``period_s`` is the schedule, ``timeout_s`` what one look may take. ``pids`` are processes of
    this host whose I/O, memory and CPU are wanted; ``host=False`` leaves all but its clock out.
    Raises UsageError for two targets of one name or a period that is not positive.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        period_s: float = 1.0,
        timeout_s: float = 1.0,
        pids: Sequence[int] = (),
        host: bool = True,
        proc: Path = Path("/proc"),
    ) -> None:
        names = [target.name for target in targets]
        tools = tools_of_host() if host else ()
        reserved = {HOST, *(tool.name for tool in tools)}
        if len(set(names)) != len(names) or reserved & set(names):
            raise UsageError(f"targets {names} need unique names other than {HOST!r}")
        if not (period_s > 0 and timeout_s > 0):
            raise UsageError(f"period {period_s} s and time-out {timeout_s} s must be positive")
        self._targets = tuple(targets)
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._stop = threading.Event()
        self._started_ns = 0
        self._observation: Observation | None = None
        looks: dict[str, Callable[[bool], Look]] = {
            target.name: _target_look(target, timeout_s) for target in targets
        }
        looks[HOST] = host_look(tuple(pids), proc if host else None)
        self._pollers = {
            name: Poller(name, look, period_s, self._stop) for name, look in looks.items()
        }
        # What is beside the point of a block delays neither its begin nor its coverage.
        self._beside = {
            tool.name: Poller(tool.name, tool_look(tool), max(period_s, TOOL_PERIOD_S), self._stop)
            for tool in tools
        }

    def start(self) -> Self:
        """Begin, and return when every source had its first look or its time is up."""
        if self._started_ns:
            raise UsageError("a sampler starts once")
        self._started_ns = time.monotonic_ns()
        for poller in (*self._pollers.values(), *self._beside.values()):
            poller.thread.start()
        until_s = time.monotonic() + self._timeout_s + _GRACE_S
        for poller in self._pollers.values():
            poller.first.wait(max(0.0, until_s - time.monotonic()))
        return self

    def stop(self) -> Observation:
        """Take the last looks and end; a second call returns the same observation.

        Waits at most two time-outs and a second. A thread that is stuck longer (a name server that
        never answers) is left behind; its source has no snapshot after the block.
        """
        if self._observation is not None:
            return self._observation
        if not self._started_ns:
            raise UsageError("the sampler was not started")
        self._stop.set()
        until_s = time.monotonic() + 2 * self._timeout_s + _GRACE_S
        for poller in (*self._pollers.values(), *self._beside.values()):
            poller.thread.join(max(0.0, until_s - time.monotonic()))
        self._observation = self._collect(time.monotonic_ns())
        return self._observation

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _collect(self, ended_ns: int) -> Observation:
        rows = {"engine": Rows(), "store": Rows(), HOST: Rows()}
        targets: dict[str, TargetView] = {}
        coverage: dict[str, float] = {}
        gaps: list[Gap] = []
        notes: dict[str, None] = {}
        roles = {target.name: target.adapter.role for target in self._targets}
        for name, poller in self._pollers.items():
            with poller.lock:
                poller.ended = True
            rows[roles.get(name, HOST)].extend(poller.rows)
            notes.update(dict.fromkeys(poller.notes))
            found, coverage[name] = find_gaps(
                name,
                poller.good_ns,
                poller.faults,
                started_ns=self._started_ns,
                ended_ns=ended_ns,
                period_s=self._period_s,
            )
            gaps += found
        for beside in self._beside.values():
            with beside.lock:
                beside.ended = True
            rows[HOST].extend(beside.rows)
            notes.update(dict.fromkeys([*beside.notes, *(fault for _, fault in beside.faults[:3])]))
        for target in self._targets:
            poller = self._pollers[target.name]
            whole = poller.before is not None and poller.after is not None
            targets[target.name] = TargetView(
                name=target.name,
                kind=target.adapter.name,
                role=target.adapter.role,
                before=poller.before,
                after=poller.after,
                increase=poller.growth if whole else None,
            )
        clock, steps = clock_view(self._pollers[HOST].clocks)
        return Observation(
            period_s=self._period_s,
            started_ns=self._started_ns,
            ended_ns=ended_ns,
            engine=rows["engine"],
            store=rows["store"],
            host=rows[HOST],
            targets=targets,
            coverage=coverage,
            coverage_share=smallest(coverage),
            gaps=tuple(sorted(gaps, key=lambda gap: (gap.from_ns, gap.source))),
            notes=tuple(notes),
            clock=clock,
            clock_steps=steps,
        )


def _target_look(target: Target, timeout_s: float) -> Callable[[bool], Look]:
    def look(raw: bool) -> Look:
        page = scrape(target.url, timeout_s)
        t_ns, name = page.monotonic_ns, target.name
        rows = [Row(t_ns, name, "up", float(page.ok)), Row(t_ns, name, "scrape_s", page.took_s)]
        if page.samples is None:
            return Look(t_ns, rows, error=page.error or "no page")
        counters = target.adapter.read(page.samples)
        for field, value in counters.to_json().items():
            if value is not None:
                rows.append(Row(t_ns, name, field, value))
        if raw:
            rows += _raw(t_ns, target, page.samples)
        return Look(t_ns, rows, counters=counters)

    return look


def _raw(t_ns: int, target: Target, samples: Sequence[Sample]) -> list[Row]:
    # Kept before and after a block under the source `<name>:raw`, so that anybody can map the
    # names again; the buckets of histograms would be nine tenths of it.
    own = [
        sample
        for sample in samples
        if sample.name.startswith(target.adapter.prefixes) and not sample.name.endswith("_bucket")
    ]
    return [
        Row(t_ns, f"{target.name}:raw", _spelled(sample), sample.value) for sample in own[:_MAX_RAW]
    ]


def _spelled(sample: Sample) -> str:
    if not sample.labels:
        return sample.name
    labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}"
