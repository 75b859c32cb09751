"""Telemetry of hosts other than this one during a block, through their agents.

A host that cannot be reached, dies or stops answering gives a fault and no coverage: its block is
no measurement where the contract wants telemetry.
"""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from kvgate.drive.agents import HOST_AGENT, Agents
from kvgate.drive.channel import ANSWER_S, Channel
from kvgate.errors import CannotMeasure
from kvgate.load.offsets import ClockOffset, ask, estimate_offset, over_block
from kvgate.observe.clock import ClockState
from kvgate.observe.fabric import fabric_of
from kvgate.observe.observation import clock_view, find_gaps
from kvgate.observe.rows import Rows
from kvgate.observe.throttling import throttling_of
from kvgate.talk import ALIVE_EVERY_S, Message

ROUND_TRIPS: Final = 7
_BEGIN_S: Final = 30.0
_END_S: Final = 40.0
_POLL_S: Final = 0.2


@dataclass(slots=True)
class Seen:
    """What one host's agent told of a block; times are on that host's clock until :meth:`moved`."""

    rows: Rows = field(default_factory=Rows)
    before: ClockOffset | None = None
    after: ClockOffset | None = None
    told: Message | None = None
    fault: str | None = None

    def take(self, message: Message) -> None:
        """Keep a message of rows."""
        keys = [(str(source), str(name)) for source, name in message["keys"]]
        columns = zip(message["t_ns"], message["at"], message["value"], strict=True)
        for t_ns, at, value in columns:
            source, name = keys[at]
            self.rows.add(int(t_ns), source, name, float(value))

    @property
    def offset_ns(self) -> int:
        """Of the host's clock to ours; 0 where it is not known, which ``to_json`` shows."""
        known = [end for end in (self.before, self.after) if end is not None]
        if len(known) == 2:
            return over_block(*known).offset_ns
        return known[0].offset_ns if known else 0

    def moved(self) -> Rows:
        """The rows on our clock."""
        moved, by = Rows(), self.offset_ns
        for row in self.rows:
            moved.add(row.t_ns - by, row.source, row.name, row.value)
        return moved

    def to_json(self, host: str, group: str, period_s: float) -> dict[str, Any]:
        """A host's entry of ``hosts`` in ``block.json``."""
        gaps: list[dict[str, Any]] = []
        coverage: float | None = None
        steps: tuple[Any, ...] = ()
        if self.told is not None:
            found, coverage = find_gaps(
                host,
                array("q", self.told["good_ns"]),
                [(int(t_ns), str(text)) for t_ns, text in self.told["faults"]],
                started_ns=int(self.told["started_ns"]),
                ended_ns=int(self.told["ended_ns"]),
                period_s=period_s,
            )
            by = self.offset_ns
            gaps = [
                gap.to_json() | {"from_ns": gap.from_ns - by, "to_ns": gap.to_ns - by}
                for gap in found
            ]
            _, steps = clock_view(
                [ClockState(at, real, real - at) for at, real in self.told["clocks"]]
            )
        return {
            "group": group,
            "fault": self.fault,
            "coverage": coverage,
            "gaps": gaps,
            "notes": [] if self.told is None else list(self.told["notes"]),
            "clock": {"before": _plain(self.before), "after": _plain(self.after)},
            "clock_steps": [step.to_json() for step in steps],
            "fabric": fabric_of(self.rows),
            "throttling": throttling_of(self.rows),
        }


def _plain(offset: ClockOffset | None) -> Any:
    return None if offset is None else msgspec.to_builtins(offset)


class HostWatches:
    """Watches hosts from entry to exit, each in a thread of its own; all faults end in ``Seen``."""

    def __init__(
        self,
        agents: Agents,
        groups: Mapping[str, str],
        period_s: float,
        pids: Mapping[str, Sequence[int]],
    ) -> None:
        """``groups``: host to its group of the inventory; ``pids``: processes wanted on a host."""
        self._groups = dict(groups)
        self._period_s = period_s
        self._watches = {
            host: _Watch(agents, host, period_s, tuple(pids.get(host, ()))) for host in groups
        }

    def __enter__(self) -> Self:
        for watch in self._watches.values():
            watch.start()
        until_s = time.monotonic() + _BEGIN_S
        for watch in self._watches.values():
            watch.begun.wait(max(0.0, until_s - time.monotonic()))
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches.values():
            watch.over.set()
        until_s = time.monotonic() + _END_S
        for watch in self._watches.values():
            watch.join(max(0.0, until_s - time.monotonic()))

    def rows(self) -> Mapping[str, Rows]:
        """Rows of every host on our clock; after the exit."""
        return {host: watch.result().moved() for host, watch in self._watches.items()}

    def to_json(self) -> Mapping[str, Any]:
        """``hosts`` of ``block.json``; after the exit."""
        return {
            host: watch.result().to_json(host, self._groups[host], self._period_s)
            for host, watch in self._watches.items()
        }


class _Watch(threading.Thread):
    """One host's agent, spoken to until ``over`` is set."""

    def __init__(self, agents: Agents, host: str, period_s: float, pids: Sequence[int]) -> None:
        super().__init__(name=f"watch-{host}", daemon=True)
        self.begun = threading.Event()
        self.over = threading.Event()
        self._agents = agents
        self._host = host
        self._period_s = period_s
        self._pids = list(pids)
        self._seen = Seen()

    def result(self) -> Seen:
        """What was seen; a thread that is stuck has left nothing that counts."""
        if self.is_alive():
            return Seen(fault="its agent did not end in time")
        return self._seen

    def run(self) -> None:
        seen = self._seen
        try:
            with contextlib.closing(self._agents.open(self._host, HOST_AGENT)) as channel:
                seen.before = estimate_offset(ask(channel.clock, ROUND_TRIPS))
                channel.say("observe", period_s=self._period_s, pids=self._pids)
                channel.wait_for("observing", ANSWER_S)
                self.begun.set()
                self._listen(channel)
                seen.after = estimate_offset(ask(channel.clock, ROUND_TRIPS))
        except (CannotMeasure, LookupError, TypeError, ValueError) as fault:
            seen.fault = str(fault) or type(fault).__name__
        finally:
            self.begun.set()

    def _listen(self, channel: Channel) -> None:
        seen = self._seen
        alive_at, ended_at = 0.0, None
        while seen.told is None:
            now_s = time.monotonic()
            if ended_at is None and self.over.is_set():
                ended_at = now_s
                channel.say("end")
            elif now_s >= alive_at:
                alive_at = now_s + ALIVE_EVERY_S
                channel.say("alive")
            for message in channel.read(_POLL_S):
                if message["kind"] == "rows":
                    seen.take(message)
                elif message["kind"] == "observed":
                    seen.told = message
            if channel.lost is not None:
                raise channel.fault(channel.lost)
            if ended_at is not None and now_s - ended_at > _END_S:
                raise channel.fault("it did not tell what it saw")
