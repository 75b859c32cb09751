"""One block's load from several hosts: one common start, one record set, every clock accounted for.

Each host runs its share through an agent (:mod:`kvgate.load.agent`) that lives for one block. What
goes wrong with a host is a fault of the instrument: it is written into the block, whose conditions
then say so, and nothing of it is held against an appliance.
"""

from __future__ import annotations

import contextlib
import math
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate.conduct.calibration import Calibrations
from kvgate.conduct.clients import Loaded
from kvgate.contract_tables import Validity
from kvgate.drive.agents import LOAD_AGENT, Agents
from kvgate.drive.channel import MALFORMED, Channel
from kvgate.errors import CannotMeasure
from kvgate.load.calibrate import ErrorBudget
from kvgate.load.job import Job, Progress, Shard, share_of
from kvgate.load.offsets import ClockOffset, ask, estimate_offset, over_block
from kvgate.load.parts import STATES, PartOfRun, merge_parts, shard_job
from kvgate.load.run import LoadResult
from kvgate.record import ClientReport
from kvgate.talk import ALIVE_EVERY_S, Message

ROUND_TRIPS: Final = 9
START_LEAD_NS: Final = 300_000_000
"""From the order to the start: every host must have read its order before."""
_READY_S: Final = 30.0
_CALIBRATION_S: Final = 90.0
_STOPPED_S: Final = 15.0
_POLL_S: Final = 0.5
_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class Share:
    """One client of a block: its name among the records, its host, and its streams beside those of
    all clients of the host."""

    name: str
    host: str
    level: int
    host_level: int


def shares_of(hosts: Sequence[str], engines: int, level: int, requests: int) -> tuple[Share, ...]:
    """The clients that share a block, as many on each host and as many for each engine.

    Hosts are left out, from the end, while there are more clients than streams or requests.
    """
    used = len(hosts)
    while used > 1 and math.lcm(used, engines) > min(level, requests):
        used -= 1
    of = math.lcm(used, engines)
    each = of // used
    levels = [share_of(level, Shard(i, of)) for i in range(of)]
    return tuple(
        Share(
            hosts[i // each] if each == 1 else f"{hosts[i // each]}/{i % each}",
            hosts[i // each],
            levels[i],
            sum(levels[i // each * each : (i // each + 1) * each]),
        )
        for i in range(of)
    )


@dataclass(slots=True)
class Part:
    """One host's share of a block while it runs; ``fault`` is the first thing that went wrong."""

    share: Share
    job: Job
    channel: Channel | None = None
    ready: bool = False
    ended: bool = False
    stopped: bool = False
    fault: str | None = None
    state: str | None = None
    report: ClientReport | None = None
    before: ClockOffset | None = None
    after: ClockOffset | None = None
    records: int = 0
    progress: Progress = field(default_factory=lambda: Progress(0, 0, 0))

    def broke(self, why: str) -> None:
        self.fault = self.fault or why
        self.ended = True

    @property
    def offset(self) -> ClockOffset | None:
        """Of the whole block; None where it is not known at both ends."""
        if self.before is None or self.after is None:
            return None
        return over_block(self.before, self.after)

    def to_json(self, calibration: Mapping[str, Any] | None) -> dict[str, Any]:
        """A client's entry of ``load_hosts`` in ``block.json``."""
        return {
            "host": self.share.host,
            "level": self.job.level,
            "host_level": self.share.host_level,
            "requests": self.job.requests,
            "records": self.records,
            "state": self.state,
            "fault": self.fault,
            "client": _plain(self.report),
            "clock": {"before": _plain(self.before), "after": _plain(self.after)},
            "calibration": calibration,
        }


def _plain(struct: msgspec.Struct | None) -> Any:
    return None if struct is None else msgspec.to_builtins(struct)


class LoadHosts:
    """Carries jobs out on the hosts of the group ``load_clients``."""

    def __init__(
        self, agents: Agents, hosts: Sequence[str], limits: Validity, work_dir: Path
    ) -> None:
        self._agents = agents
        self._hosts = tuple(hosts)
        self._calibrations = {
            host: Calibrations(limits, work_dir, self._tries(host)) for host in self._hosts
        }

    def known(self, level: int, requests: int, engines: int = 1) -> bool:
        """Whether every host was found to hold its share already."""
        shares = shares_of(self._hosts, engines, level, requests)
        return all(self._calibrations[s.host].known(s.host_level) for s in shares)

    def calibrate(self, level: int, requests: int, engines: int = 1) -> Mapping[str, Any]:
        """What each host's client holds at the host's own share, tried where it is not known."""
        shares = shares_of(self._hosts, engines, level, requests)
        return {s.name: self._calibrations[s.host].at(s.host_level) for s in shares}

    def _tries(self, host: str) -> Callable[[int, Path], ErrorBudget]:
        def check(level: int, _folder: Path) -> ErrorBudget:
            with contextlib.closing(self._agents.open(host, LOAD_AGENT)) as channel:
                channel.say("calibrate", level=level)
                said = channel.wait_for("budget", _CALIBRATION_S)
                if said.get("error"):
                    raise CannotMeasure(str(said["error"])[:_WORDS], where=f"host {host}")
                try:
                    return msgspec.convert(said.get("budget"), type=ErrorBudget)
                except MALFORMED as fault:
                    raise channel.fault(f"its budget is none: {str(fault)[:_WORDS]}") from None

        return check

    def run(
        self,
        job: Job,
        *,
        calibration: Mapping[str, Any],
        on_progress: Callable[[Progress], None],
        deadline_s: float,
    ) -> Loaded:
        """Run ``job`` on the hosts; records go where it says, as one set.

        A host at fault ends the load of all: the block is no measurement any more. Whatever
        happens, no load is left running.
        """
        level, engines = job.arrival.planned_in_flight, max(1, len(job.urls))
        shares = shares_of(self._hosts, engines, level, job.requests)
        parts = [
            Part(share, shard_job(job, i, len(shares), "of the agent", load_host=share.name))
            for i, share in enumerate(shares)
        ]
        try:
            self._carry_out(parts, job, on_progress, time.monotonic() + deadline_s)
            # At once: an agent that hears nothing while another one's file comes would end.
            folder = Path(job.records_path).parent
            with ThreadPoolExecutor(len(parts)) as pool:
                files = list(pool.map(lambda part: self._fetch(part, folder), parts))
        finally:
            for part in parts:
                if part.channel is not None:
                    part.channel.close()
        return _together(job, parts, files, calibration)

    def _carry_out(
        self,
        parts: Sequence[Part],
        job: Job,
        on_progress: Callable[[Progress], None],
        deadline: float,
    ) -> None:
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(self._begin, parts))
        _until(parts, lambda p: p.ready, time.monotonic() + job.connect_deadline_s + _READY_S)
        for part in parts:
            if not part.ready:
                part.broke("the client was not ready in time")
        _look_at_clocks(parts, "before")
        if any(part.fault for part in parts):
            _stop(parts)
            return
        start_ns = time.monotonic_ns() + START_LEAD_NS
        for part in parts:
            if part.channel is not None and part.before is not None:
                part.channel.say("start", at_ns=start_ns + part.before.offset_ns)

        def told(_part: Part) -> bool:
            on_progress(_sum([p.progress for p in parts]))
            return any(p.fault for p in parts)

        _until(parts, lambda p: p.ended or told(p), deadline)
        if not all(part.ended for part in parts):
            if not any(part.fault for part in parts):
                for part in parts:
                    part.fault = None if part.ended else "the block's deadline passed"
            _stop(parts)
        _look_at_clocks(parts, "after")

    def _begin(self, part: Part) -> None:
        with _held_against(part):
            part.channel = self._agents.open(part.share.host, LOAD_AGENT)
            part.channel.say("load", job=msgspec.to_builtins(part.job))

    def _fetch(self, part: Part, folder: Path) -> Path:
        """The host's records; a file that breaks off is kept as far as it came."""
        path = folder / f"from-{part.job.shard.index if part.job.shard else 0}.jsonl"
        if part.channel is not None and part.channel.lost is None:
            with _held_against(part):
                part.channel.fetch(path)
        return path


@contextlib.contextmanager
def _held_against(part: Part) -> Iterator[None]:
    try:
        yield
    except CannotMeasure as fault:
        part.broke(str(fault))


def _look_at_clocks(parts: Sequence[Part], when: str) -> None:
    for part in parts:
        if part.channel is not None and part.channel.lost is None:
            with _held_against(part):
                setattr(part, when, estimate_offset(ask(part.channel.clock, ROUND_TRIPS)))


def _stop(parts: Sequence[Part]) -> None:
    for part in parts:
        if part.channel is not None and not part.ended:
            part.stopped = True
            part.channel.say("stop")
    _until(parts, lambda p: p.ended, time.monotonic() + _STOPPED_S)


def _until(parts: Sequence[Part], enough: Callable[[Part], bool], deadline: float) -> None:
    """Listen to all until each has ``enough`` or has ended, or the time is over."""
    alive_at = time.monotonic() + ALIVE_EVERY_S
    while not all(part.ended or enough(part) for part in parts):
        left = deadline - time.monotonic()
        if left <= 0:
            return
        _listen(parts, min(left, _POLL_S))
        if time.monotonic() >= alive_at:
            alive_at = time.monotonic() + ALIVE_EVERY_S
            for part in parts:
                if part.channel is not None:
                    part.channel.say("alive")


def _listen(parts: Sequence[Part], timeout_s: float) -> None:
    open_ = [p for p in parts if p.channel is not None and not p.ended]
    fds = {p.channel.fd: p for p in open_ if p.channel is not None and p.channel.lost is None}
    readable, _, _ = select.select(list(fds), [], [], timeout_s)
    for fd in readable:
        part = fds[fd]
        assert part.channel is not None
        for message in part.channel.read():
            try:
                _heard(part, message)
            except MALFORMED as fault:
                part.broke(f"it says what cannot be read: {str(fault)[:_WORDS]}")
    for part in open_:
        if part.channel is not None and part.channel.lost is not None:
            part.broke(part.channel.lost)


def _heard(part: Part, message: Message) -> None:
    kind = message.get("kind")
    if kind == "ready":
        part.ready = True
    elif kind == "progress":
        part.progress = Progress(*(int(message[k]) for k in ("done", "failed", "in_flight")))
    elif kind == "ended":
        part.ended = True
        state = message.get("state")
        part.state = None if state is None else str(state)[:_WORDS]
        if message.get("error"):
            part.broke(str(message["error"])[:_WORDS])
        elif message.get("report") is not None:
            report = msgspec.convert(message["report"], type=ClientReport)
            if report.state not in STATES:
                raise ValueError(f"its report's state is {report.state[:40]!r}")
            part.report = report
        if part.state != "done" and not part.stopped:
            part.fault = part.fault or f"the client ended as {part.state}"


def _sum(told: Sequence[Progress]) -> Progress:
    return Progress(
        sum(p.done for p in told), sum(p.failed for p in told), sum(p.in_flight for p in told)
    )


def _together(
    job: Job,
    parts: Sequence[Part],
    files: Sequence[Path],
    calibration: Mapping[str, Any],
) -> Loaded:
    level = job.arrival.planned_in_flight

    def told() -> dict[str, Any]:
        return {p.share.name: p.to_json(calibration.get(p.share.name)) for p in parts}

    try:
        merged = merge_parts(
            [
                # Without an offset nothing of this host can be placed; its conditions say so.
                PartOfRun(path, part.report, part.offset or _UNKNOWN)
                for part, path in zip(parts, files, strict=True)
            ],
            level,
            Path(job.records_path),
        )
    except CannotMeasure as fault:
        # Records that do not fit together: a host's fault, of which the run must not die.
        return Loaded(None, str(fault), hosts=told())
    for part, rows in zip(parts, merged.rows_of, strict=True):
        part.records = rows
        wanted = None if part.report is None else part.report.requests_done
        if part.fault is None and rows != wanted:
            part.broke(f"it brought {rows} of {wanted} records")
    faults = [f"load host {part.share.name}: {part.fault}" for part in parts if part.fault]
    hosts = told()
    report = None if faults else merged.report
    state = "failed" if faults else "done"
    result = LoadResult(Path(job.records_path), report, state, 0)
    lasted_s = None if report is None else report.wall_s
    return Loaded(result, "; ".join(faults) or None, hosts=hosts, lasted_s=lasted_s)


_UNKNOWN: Final = ClockOffset(offset_ns=0, uncertainty_ns=0, round_trips=0, agreed=False)
