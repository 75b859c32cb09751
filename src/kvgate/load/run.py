"""Start the load processes of a block, watch them, and make sure that they end."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from kvgate.errors import CannotMeasure
from kvgate.load.job import Job, Progress
from kvgate.load.parts import PartOfRun, merge_parts, shard_job, worst_state
from kvgate.load.process import LoadProcess
from kvgate.record import ClientReport

_START_LEAD_NS: Final = 50_000_000
_READY_GRACE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the load processes left behind.

    ``state``: ``done``, ``interrupted``, ``block_deadline``, or ``killed`` when a process had to
    be ended or died without a report; then ``report`` is ``None`` and the records are partial.
    ``parts`` are the reports of several processes.
    """

    records_path: Path
    report: ClientReport | None
    state: str
    exit_code: int
    parts: tuple[ClientReport, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether the whole plan was carried out."""
        return self.state == "done"


def run_load(
    job: Job,
    work_dir: Path,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    deadline_s: float,
    processes: int = 1,
) -> LoadResult:
    """Run ``job`` in processes of its own; records and report go where the job says.

    A job for several engines is carried out by one process each at least, so that every engine gets
    its share of the level and of the prompts.

    ``work_dir`` takes the job files and the processes' logs. Several processes share the work (see
    :mod:`kvgate.load.parts`), start at the same instant, and leave one record set.

    After ``deadline_s`` (s) the processes are told to stop, then ended. On Ctrl-C too, and what was
    measured so far is returned with the state ``interrupted``: look at ``complete``. Raises
    :class:`CannotMeasure` when the load host could not carry the job or the engine could not be
    reached, :class:`UsageError` when the job is wrong.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + deadline_s
    engines = max(1, len(job.urls))
    processes = -(-processes // engines) * engines
    if processes == 1:
        jobs, names = [job], ["job"]
    else:
        _refuse_leftovers(job)
        jobs = [shard_job(job, i, processes, str(work_dir)) for i in range(processes)]
        names = [f"job-{i}" for i in range(processes)]
    running: list[LoadProcess] = []
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for one, name in zip(jobs, names, strict=True):
                running.append(LoadProcess(one, work_dir, name, await_start=processes > 1))
            if processes == 1 or _start_together(running, job):
                _watch(running, on_progress, deadline)
    finally:
        # Whatever happened, also in the callback: no load may be left running.
        for process in running:
            process.stop()
        for process in running:
            process.end()
    if processes == 1:
        report, state, code = running[0].result()
        return LoadResult(Path(job.records_path), report, state, code)
    return _together(job, running)


def _refuse_leftovers(job: Job) -> None:
    # A single process refuses by itself; several write files of other names.
    if Path(job.records_path).exists():
        raise CannotMeasure("holds an earlier run", where=job.records_path)


def _start_together(running: Sequence[LoadProcess], job: Job) -> bool:
    """Wait until all are ready, then give them one start; whether that came to pass."""
    until = time.monotonic() + job.connect_deadline_s + _READY_GRACE_S
    while not all(p.ready for p in running):
        if any(p.over for p in running) or time.monotonic() > until:
            return False
        _read_some([p for p in running if not p.ready], 1.0)
    at_ns = time.monotonic_ns() + _START_LEAD_NS
    for process in running:
        process.start(at_ns)
    return True


def _watch(
    running: Sequence[LoadProcess],
    on_progress: Callable[[Progress], None] | None,
    deadline: float,
) -> None:
    """Read progress until all processes or their time end."""
    while open_ := [p for p in running if not p.over]:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if _read_some(open_, min(left, 1.0)) and on_progress is not None:
            told = [p.progress for p in running]
            on_progress(
                Progress(
                    sum(p.done for p in told),
                    sum(p.failed for p in told),
                    sum(p.in_flight for p in told),
                )
            )
    for process in running:
        process.wait(deadline - time.monotonic())


def _read_some(processes: Sequence[LoadProcess], timeout_s: float) -> bool:
    readable, _, _ = select.select([p.fd for p in processes], [], [], timeout_s)
    changed = False
    for process in processes:
        if process.fd in readable:
            changed |= process.read()
    return changed


def _together(job: Job, running: Sequence[LoadProcess]) -> LoadResult:
    """One record set and one report. Raises CannotMeasure where a process could not begin."""
    # The one that ended by itself before it was ready knows why; the others were only called off.
    for process in running:
        if process.over and not process.ready:
            process.result()
    parts, states, codes = [], [], []
    for process in running:
        report, state, code = process.result()
        parts.append(PartOfRun(Path(process.job.records_path), report))
        states.append(state)
        codes.append(code)
    merged = merge_parts(parts, job.arrival.planned_in_flight, Path(job.records_path))
    if merged.report is not None:
        Path(job.report_path).write_bytes(
            msgspec.json.format(msgspec.json.encode(merged.report), indent=2) + b"\n"
        )
    return LoadResult(
        records_path=Path(job.records_path),
        report=merged.report,
        state=worst_state(states),
        exit_code=max(codes),
        parts=tuple(part.report for part in parts if part.report is not None),
    )
