"""One block by several load processes, on one host or on many: job files in, part files out.

``shard_job`` makes the job of each process: write it with ``write_job``, run
``python -m kvgate.load.client JOB.json`` where the process belongs, bring ``records_path`` and
``report_path`` back, and give them to ``merge_parts``. Arrivals, prompts and level are split
exactly: together the processes send what one would have sent. The common start is an instant on
each host's own CLOCK_MONOTONIC: ours plus the host's offset (see :mod:`kvgate.load.offsets`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.records import read_records
from kvgate.load.in_flight import InFlight
from kvgate.load.job import Job, Shard, contradiction
from kvgate.load.offsets import SAME_HOST, ClockOffset
from kvgate.record import ClientReport

_Times: TypeAlias = "tuple[array[int], array[int]]"
"""When the requests of a part were issued and when they ended, ns on our clock."""
STATES: Final = ("done", "interrupted", "block_deadline", "killed")


def shard_job(
    job: Job,
    index: int,
    of: int,
    folder: str,
    *,
    load_host: str | None = None,
    start_at_ns: int | None = None,
) -> Job:
    """The job of process ``index`` out of ``of``; its files go into ``folder`` on its host.

    ``start_at_ns`` is on that host's clock. Of several engines the processes take one after the
    other: ``of`` must be a multiple of their number. Raises :class:`UsageError` where the level or
    the requests do not suffice for so many processes.
    """
    part = msgspec.structs.replace(
        job,
        # Every engine's processes have the same share, since there are as many of each.
        url=job.urls[index % len(job.urls)] if job.urls else job.url,
        urls=(),
        shard=Shard(index, of),
        records_path=f"{folder}/requests-{index}.jsonl",
        report_path=f"{folder}/client-{index}.json",
        load_host=load_host or job.load_host,
        start_at_ns=start_at_ns,
    )
    wrong = contradiction(part)
    if wrong is not None:
        raise UsageError(
            f"{of} load processes are too many: {wrong}", remedy="give fewer --processes"
        )
    return part


@dataclass(frozen=True, slots=True)
class PartOfRun:
    """What one load process left behind; ``offset`` is its host's clock minus ours.

    ``report`` is ``None`` where the process ended without one.
    """

    records_path: Path
    report: ClientReport | None
    offset: ClockOffset = SAME_HOST


@dataclass(frozen=True, slots=True)
class Merged:
    """One record set, each row on its own host's clock, and what the whole was on ours.

    ``rows_of`` are the records of each part. ``report`` is ``None`` where some part has none.
    """

    rows_of: tuple[int, ...]
    report: ClientReport | None
    uncertainty_ns: int

    @property
    def rows(self) -> int:
        return sum(self.rows_of)


def merge_parts(parts: Sequence[PartOfRun], level: int, records_path: Path) -> Merged:
    """Write all parts' records to ``records_path`` as they are, and say what they were together:
    what was in flight at once is counted on our clock, its mean over each part's own time.

    ``level``: requests in flight as planned for the whole. Raises :class:`CannotMeasure` when two
    parts hold the same request, or a file is unreadable.
    """
    encode = msgspec.json.Encoder().encode
    times: list[_Times] = []
    seen: set[str] = set()
    rows_of: list[int] = []
    with records_path.open("xb") as out:
        for part in parts:
            rows_of.append(0)
            starts, ends = array("q"), array("q")
            times.append((starts, ends))
            if not part.records_path.exists():
                continue
            for record in read_records(part.records_path):
                if record.request_id in seen:
                    raise CannotMeasure(
                        f"request {record.request_id} is in two parts",
                        where=str(part.records_path),
                        remedy="give each load process its own shard",
                    )
                seen.add(record.request_id)
                try:
                    starts.append(record.scheduled_ns - part.offset.offset_ns)
                    ends.append(record.end_ns - part.offset.offset_ns)
                except OverflowError:
                    raise CannotMeasure(
                        f"request {record.request_id} has a time beyond 64 bits",
                        where=str(part.records_path),
                        remedy="no clock shows it: look at the load host, then measure again",
                    ) from None
                rows_of[-1] += 1
                out.write(encode(record) + b"\n")
    reports = [part.report for part in parts if part.report is not None]
    whole = len(reports) == len(parts) and bool(reports)
    return Merged(
        rows_of=tuple(rows_of),
        report=_merge_reports(parts, reports, times, level) if whole else None,
        uncertainty_ns=max((part.offset.uncertainty_ns for part in parts), default=0),
    )


def _flights(starts: array[int], ends: array[int], level: int) -> InFlight:
    flights = InFlight(level)
    waiting = sorted(ends)
    gone = 0
    for start in sorted(starts):
        # Ends first: a place is free before it is taken again.
        while gone < len(waiting) and waiting[gone] <= start:
            flights.ended(waiting[gone])
            gone += 1
        flights.issued(start)
    return flights


def _held(times: Sequence[_Times], levels: Sequence[int]) -> float | None:
    """The mean in flight of all parts, each up to its own last issue: a part behind a slower engine
    sends for longer, and must not look like a level that was not held.

    All count from the moment at which the first of them reached its share of the level, so that a
    part that began late shows. None where a part never reached its share, or issued nothing after.
    """
    alone = [_flights(*of, level) for of, level in zip(times, levels, strict=True)]
    reached = [f.full_since_ns for f in alone if f.mean is not None and f.full_since_ns is not None]
    if not reached or len(reached) < len(alone):
        return None
    since = min(reached)
    held = 0.0
    for starts, ends in times:
        last = max(starts)
        if last <= since:
            return None
        inside = (min(e, last) - max(s, since) for s, e in zip(starts, ends, strict=True))
        held += sum(max(0, ns) for ns in inside) / (last - since)
    return held


def _merge_reports(
    parts: Sequence[PartOfRun], reports: Sequence[ClientReport], times: Sequence[_Times], level: int
) -> ClientReport:
    """Sums where things add up, else the worst; the quantiles of all are at most the worst one."""
    flights = _flights(
        array("q", (ns for starts, _ in times for ns in starts)),
        array("q", (ns for _, ends in times for ns in ends)),
        level,
    )
    moves = [p.offset.offset_ns for p in parts if p.report is not None]
    started = min(r.started_ns - by for r, by in zip(reports, moves, strict=True))
    ended = max(r.ended_ns - by for r, by in zip(reports, moves, strict=True))
    first = reports[0]
    return ClientReport(
        state=worst_state([r.state for r in reports]),
        started_ns=started,
        ended_ns=ended,
        requests_planned=sum(r.requests_planned for r in reports),
        requests_done=sum(r.requests_done for r in reports),
        requests_failed=sum(r.requests_failed for r in reports),
        cpu_s=sum(r.cpu_s for r in reports),
        wall_s=(ended - started) / 1e9,
        start_up_s=max(r.start_up_s for r in reports),
        peak_rss_bytes=sum(r.peak_rss_bytes for r in reports),
        nofile_limit=min(r.nofile_limit for r in reports),
        planned_in_flight=level,
        max_in_flight=flights.most,
        mean_in_flight=_held(times, [r.planned_in_flight for r in reports]),
        connections_opened=sum(r.connections_opened for r in reports),
        reads=sum(r.reads for r in reports),
        unstamped_reads=sum(r.unstamped_reads for r in reports),
        loop_stall_p99_ns=_worst([r.loop_stall_p99_ns for r in reports]),
        loop_stall_max_ns=_worst([r.loop_stall_max_ns for r in reports]),
        receive_lag_p99_ns=_worst([r.receive_lag_p99_ns for r in reports]),
        receive_lag_max_ns=_worst([r.receive_lag_max_ns for r in reports]),
        clock_offset_start_ns=first.clock_offset_start_ns,
        clock_offset_end_ns=first.clock_offset_end_ns,
        clock_steps=sum(r.clock_steps for r in reports),
        clock_step_max_ns=max(r.clock_step_max_ns for r in reports),
        versions=first.versions,
        start_late_ns=max(r.start_late_ns for r in reports),
        requests_skipped=sum(r.requests_skipped for r in reports),
    )


def worst_state(states: Sequence[str]) -> str:
    """The state of a run whose processes ended so."""
    return max(states, key=STATES.index)


def _worst(values: Sequence[int | None]) -> int | None:
    """None where one does not say: what is not known of a part is not known of the whole."""
    known = [v for v in values if v is not None]
    return max(known) if known and len(known) == len(values) else None
