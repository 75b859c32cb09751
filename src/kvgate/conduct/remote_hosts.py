"""Telemetry of hosts other than this one during a block, through their agents.

A connection that is lost is made again, and what was not seen is a gap. A host that is not observed
to the end has a fault: its block is no measurement where the contract wants telemetry.
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
from kvgate.drive.channel import ANSWER_S, MALFORMED, Channel
from kvgate.errors import CannotMeasure
from kvgate.load.offsets import ClockOffset, ask, estimate_offset, refreshed
from kvgate.observe.clock import ClockState, detect_steps
from kvgate.observe.fabric import fabric_of
from kvgate.observe.observation import find_gaps
from kvgate.observe.rows import Rows
from kvgate.observe.throttling import throttling_of
from kvgate.talk import ALIVE_EVERY_S, Message

ROUND_TRIPS: Final = 7
_BEGIN_S: Final = 30.0
_END_S: Final = 40.0
_POLL_S: Final = 0.2
AGAIN_S: Final = 3.0
"""From a lost connection to the next attempt."""


@dataclass(slots=True)
class Seen:
    """What one host's agents told of a block, on our clock.

    ``whole`` says that the last agent took its last looks; ``faults`` are lost connections too.
    """

    rows: Rows = field(default_factory=Rows)
    good_ns: array[int] = field(default_factory=lambda: array("q"))
    faults: list[tuple[int, str]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    before: ClockOffset | None = None
    after: ClockOffset | None = None
    whole: bool = False

    def to_json(
        self, host: str, group: str, period_s: float, started_ns: int, ended_ns: int
    ) -> dict[str, Any]:
        """A host's entry of ``hosts`` in ``block.json``; the window is the block's."""
        gaps, coverage = find_gaps(
            host,
            self.good_ns,
            self.faults,
            started_ns=started_ns,
            ended_ns=ended_ns,
            period_s=period_s,
        )
        last = self.faults[-1][1] if self.faults else "its agent did not end in time"
        return {
            "group": group,
            "fault": None if self.whole else last,
            "coverage": coverage,
            "gaps": [gap.to_json() for gap in gaps],
            "notes": list(self.notes),
            "clock": {"before": _plain(self.before), "after": _plain(self.after)},
            "clock_steps": self.steps,
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
        self._started_ns = self._ended_ns = 0
        self._watches = {
            host: _Watch(agents, host, period_s, tuple(pids.get(host, ()))) for host in groups
        }

    def __enter__(self) -> Self:
        for watch in self._watches.values():
            watch.start()
        until_s = time.monotonic() + _BEGIN_S
        try:
            for watch in self._watches.values():
                watch.begun.wait(max(0.0, until_s - time.monotonic()))
        except BaseException:
            self.__exit__()
            raise
        self._started_ns = time.monotonic_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended_ns = time.monotonic_ns()
        for watch in self._watches.values():
            watch.over.set()
        until_s = time.monotonic() + _END_S
        for watch in self._watches.values():
            watch.join(max(0.0, until_s - time.monotonic()))

    def rows(self) -> Mapping[str, Rows]:
        """Rows of every host on our clock; after the exit."""
        return {host: watch.result().rows for host, watch in self._watches.items()}

    def to_json(self) -> Mapping[str, Any]:
        """``hosts`` of ``block.json``; after the exit."""
        return {
            host: watch.result().to_json(
                host, self._groups[host], self._period_s, self._started_ns, self._ended_ns
            )
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
        return Seen() if self.is_alive() else self._seen

    def run(self) -> None:
        """One agent after the other until the block is over: a connection that is lost costs a gap.

        Only an agent that took its last looks makes what was seen whole."""
        while not self._seen.whole:
            try:
                with contextlib.closing(self._agents.open(self._host, HOST_AGENT)) as channel:
                    self._watch(channel)
            except (CannotMeasure, *MALFORMED) as fault:
                said = str(fault)[:300] or type(fault).__name__
                self._seen.faults.append((time.monotonic_ns(), said))
            self.begun.set()
            if self.over.wait(0.0 if self._seen.whole else AGAIN_S):
                return

    def _watch(self, channel: Channel) -> None:
        seen, told = self._seen, _Told(self._seen)
        told.offset = estimate_offset(ask(channel.clock, ROUND_TRIPS))
        seen.before = seen.before or told.offset
        channel.say("observe", period_s=self._period_s, pids=self._pids)
        channel.wait_for("observing", ANSWER_S)
        self.begun.set()
        alive_at, ended_at = time.monotonic() + ALIVE_EVERY_S, None
        while not seen.whole:
            now_s = time.monotonic()
            if ended_at is None and self.over.is_set():
                ended_at = now_s
                channel.say("end")
            elif ended_at is None and now_s >= alive_at:
                alive_at = now_s + ALIVE_EVERY_S
                # Over three days two clocks drift apart by seconds.
                new = estimate_offset(ask(channel.clock, 1))
                told.offset = refreshed(told.offset, new)
            for message in channel.read(_POLL_S):
                told.take(message)
            if channel.lost is not None:
                raise channel.fault(channel.lost)
            if ended_at is not None and now_s - ended_at > _END_S:
                raise channel.fault("it did not tell what it saw")
        seen.after = estimate_offset(ask(channel.clock, ROUND_TRIPS))


def _text(said: object) -> str:
    """Half a surrogate, as JSON can escape one, has no place in a table of text."""
    return str(said).encode("utf-8", "replace").decode()


class _Told:
    """Turns what one agent says into what was seen; another boot of the host is another clock."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._clocks: list[ClockState] = []
        self.offset: ClockOffset | None = None

    def take(self, message: Message) -> None:
        seen, ahead = self._seen, 0 if self.offset is None else self.offset.offset_ns
        if message["kind"] == "rows":
            keys = [(_text(source), _text(name)) for source, name in message["keys"]]
            columns = zip(message["t_ns"], message["at"], message["value"], strict=True)
            for t_ns, at, value in columns:
                source, name = keys[at]
                seen.rows.add(int(t_ns) - ahead, source, name, float(value))
        elif message["kind"] == "looks":
            seen.good_ns.extend(int(t_ns) - ahead for t_ns in message["good_ns"])
            seen.faults += [(int(t_ns) - ahead, str(text)) for t_ns, text in message["faults"]]
            looks = [(int(at), int(real)) for at, real in message["clocks"]]
            states = [ClockState(at, real, real - at) for at, real in looks]
            for step in detect_steps([*self._clocks[-1:], *states]):
                seen.steps.append({**step.to_json(), "monotonic_ns": step.monotonic_ns - ahead})
            self._clocks = states[-1:] or self._clocks
        elif message["kind"] == "observed":
            seen.notes.update(dict.fromkeys(str(note) for note in message["notes"]))
            seen.whole = True
