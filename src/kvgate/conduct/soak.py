"""The long run of G4: one arm under steady load, canaries and faults, everything observed.

Blocks: 0 and 1 are the arm without a store, asked for the canaries' right answers before and after;
2 is the long run, 3 the canaries asked beside it.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate.adjudicate import Judged, reopened_by_change
from kvgate.analyse.results import Ending
from kvgate.campaign import utc_text
from kvgate.cells import cell_in, soak_setup
from kvgate.conduct.block import (
    BYTES_PER_REQUEST,
    CLIENT_GRACE_S,
    SAMPLE_PERIOD_S,
    Bench,
    Place,
    block_job,
    measure_block,
    moved_bytes,
    targets,
)
from kvgate.conduct.breaker import Breaker
from kvgate.conduct.elsewhere import Watched
from kvgate.conduct.prime import Primed, prime
from kvgate.contract import Contract, SoakPlan
from kvgate.contract_gates import Canaries
from kvgate.drive.arms import Arms, RunningArm
from kvgate.errors import CannotMeasure, KvgateError
from kvgate.evidence.tables import write_requests
from kvgate.load.job import Constant, Job
from kvgate.load.job import Progress as Counts
from kvgate.load.run import LoadResult, run_load
from kvgate.observe.sampler import Sampler
from kvgate.plan import PromptRange, Session, prompts_of

REFERENCE_BEFORE: Final = 0
REFERENCE_AFTER: Final = 1
SOAK: Final = 2
CANARIES: Final = 3
BEYOND: Final = 1.5
"""How many times what the engine's own tiers hold the pool of prompts is, so that a cache that
forgets the longest unused first has forgotten each prompt long before its turn."""
ENDLESS: Final = 10_000_000
PARTS: Final = 8
"""Steps in which the progress of the long run is told."""


def measure_soak(bench: Bench, arms: Arms, plan: SoakPlan, judge_now: Callable[[], Judged]) -> None:
    """Ask the reference, prime the pools, run load and canaries for the planned time, ask the
    reference again. Nothing runs for days on an arm that is not what an earlier gate saw, where
    the contract reopens that gate."""
    bench.journal.ensure_space(_bytes_needed(plan))
    environment: dict[str, Any] = {}
    _write_plan(bench, plan, environment)
    _reference(bench, arms, plan, REFERENCE_BEFORE, environment)
    setup = soak_setup(plan)
    cell = cell_in(setup, plan.workload, plan.level)
    pool = PromptRange(f"g{bench.gate}/{cell.label}/soak", 0, pool_size(bench.contract, plan))
    pools = [(cell, pool)]
    if plan.canaries is not None:
        session = _reference_session(plan, plan.canaries)
        pools.append((session.cells[0], _canary_prompts(bench, session)))
    primed = prime(bench, arms, plan.arm, tuple(pools), setup.stored)
    bench.progress.doing(f"soak: starting the {plan.arm} arm")
    arm = arms.start(plan.arm, setup)
    environment[setup.of(arm.arm)] = dict(arm.info)
    _write_plan(bench, plan, environment)
    judged = judge_now()
    if reopened_by_change(judged):
        bench.progress.note(f"nothing more is measured: {judged.verdict.reason}")
        _write_plan(bench, plan, environment, Ending.REOPENED)
        return
    _run(bench, arms, plan, arm, pool, primed)
    try:
        _reference(bench, arms, plan, REFERENCE_AFTER, environment)
    except CannotMeasure as fault:
        # What was measured stands; without this witness less of it can be held against anybody.
        bench.progress.note(f"the reference could not be asked again after the soak: {fault}")
    _write_plan(bench, plan, environment, Ending.TARGET)


def pool_size(contract: Contract, plan: SoakPlan) -> int:
    """Prompts of the long run: more than the engine's own tiers hold, and one a stream more."""
    tokens = contract.workloads[plan.workload].prompt_tokens
    return math.ceil(BEYOND * plan.upper_tiers_tokens / tokens) + plan.level


def _reference_session(plan: SoakPlan, canaries: Canaries) -> Session:
    cell = cell_in(soak_setup(plan), canaries.workload, canaries.level)
    return Session(canaries.reference_arm, "reference", None, 0, 0, (cell,))


def _canary_prompts(bench: Bench, session: Session) -> PromptRange:
    """The very prompts that the reference answers."""
    return prompts_of(bench.contract, bench.gate, session, session.cells[0])


def _reference(
    bench: Bench, arms: Arms, plan: SoakPlan, n: int, environment: dict[str, Any]
) -> None:
    """The canaries' prompts, answered without a store."""
    if plan.canaries is None:
        return
    session = _reference_session(plan, plan.canaries)
    when = "before" if n == REFERENCE_BEFORE else "after"
    bench.progress.doing(f"the {session.arm} arm answers the canaries, {when} the soak")
    arm = arms.start(session.arm, session.setup)
    environment[session.setup.of(arm.arm)] = dict(arm.info)
    _write_plan(bench, plan, environment)
    measure_block(bench, arm, Place(n, n, session, 0), session.cells[0])


def _write_plan(
    bench: Bench, plan: SoakPlan, environment: Mapping[str, Any], ended: Ending | None = None
) -> None:
    bench.journal.write_json(
        "plan.json",
        {"gate": bench.gate, "soak": plan.model_dump(mode="json"),
         "environment": dict(environment), "sessions": [],
         **({} if ended is None else {"ended": ended})},
    )  # fmt: skip


def _bytes_needed(plan: SoakPlan) -> int:
    """Evidence of the run, were every request as quick as a second."""
    return int(plan.level * min(plan.duration_s, 3600.0)) * BYTES_PER_REQUEST // 16


def _run(
    bench: Bench, arms: Arms, plan: SoakPlan, arm: RunningArm, pool: PromptRange, primed: Primed
) -> None:
    """Load, canaries and faults for the planned time; writes both blocks.

    Raises CannotMeasure before anything is measured where the load host cannot hold the level.
    """
    calibration = bench.calibrations.at(plan.level)
    if not bench.calibrations.known(plan.level):
        raise CannotMeasure(
            f"the load client cannot hold {plan.level} streams: {calibration['attempts'][-1]}",
            where=bench.inventory.group("load_clients")[0],
            remedy="free the load host or use a faster one, then run the gate again",
        )
    scale = bench.inventory.time_scale
    duration_s = plan.duration_s / scale
    job = _endless(bench, plan.workload, pool, plan.level, "soak", duration_s)
    folder = bench.journal.block_dir(SOAK)
    started_at = utc_text(datetime.now(UTC))
    period_s = min(SAMPLE_PERIOD_S * 60, plan.window_s / 4) / scale if scale > 1 else 5.0
    period_s = max(0.5, period_s)
    watched = Watched(bench.inventory, bench.elsewhere, arm.store_pids, period_s)
    sampler = Sampler(
        targets(bench, arm), period_s=period_s, timeout_s=2.0, pids=watched.local_pids
    )
    with watched, sampler:
        started = time.monotonic()
        load = _Load(job, duration_s)
        beside = _canaries(bench, plan, duration_s)
        load.start()
        if beside is not None:
            beside.start()
        try:
            events = _faults(bench, arms, plan, load, started, scale)
        finally:
            load.finish()
            if beside is not None:
                if load.state != "done":
                    beside.abandon()
                beside.finish()
        lasted_s = time.monotonic() - started
    observation = sampler.stop()
    observation.write(folder / "engine.parquet", folder / "host.parquet", watched.rows)
    cell = cell_in(soak_setup(plan), plan.workload, plan.level)
    common = {
        "gate": bench.gate, "session": 2, "pair": None, "position": 0, "arm": arm.arm,
        "started_at": started_at, "duration_s": lasted_s * scale, "time_scale": scale,
    }  # fmt: skip
    block = common | {
        "n": SOAK,
        "role": "soak",
        "cell": asdict(cell),
        "setup": arm.info.get("setup"),
        "kind": "soak",
        "requests_recorded": _keep(job, folder),
        "prompts": asdict(pool),
        "primed_tokens": primed.tokens,
        "primed_by": primed.by,
        "primed_started_ms": primed.started_ms,
        "client": load.report,
        "calibration": calibration,
        "load_state": load.state,
        "fault": load.fault,
        "events": events,
        "observation": observation.to_json(),
        "moved": moved_bytes(bench, arm, observation, watched.engine_rows(observation)),
        **watched.to_json(),
    }
    bench.journal.finish_block(SOAK, block)
    if beside is None or plan.canaries is None:
        return
    canaries = common | {
        "n": CANARIES,
        "role": "canary",
        "cell": asdict(_reference_session(plan, plan.canaries).cells[0]),
        "kind": "canary",
        "requests_recorded": _keep(beside.job, bench.journal.block_dir(CANARIES)),
        "prompts": asdict(_canary_prompts(bench, _reference_session(plan, plan.canaries))),
        "client": beside.report,
        "load_state": beside.state,
        "fault": beside.fault,
    }
    bench.journal.finish_block(CANARIES, canaries)


def _endless(
    bench: Bench, workload: str, prompts: PromptRange, level: int, prefix: str, duration_s: float
) -> Job:
    """A job that goes round over its prompts until its time is over."""
    job = block_job(bench, bench.contract.workloads[workload], prompts, level, prefix)
    endless = msgspec.structs.replace(job.prompts, count=ENDLESS, cycle=prompts.count)
    deadline_s = duration_s * 2 + 60
    return msgspec.structs.replace(
        job, prompts=endless, duration_s=duration_s, block_deadline_s=deadline_s
    )


def _canaries(bench: Bench, plan: SoakPlan, duration_s: float) -> _Load | None:
    """The canaries' load: one prompt after the other, evenly spaced, whatever the engine does."""
    canaries = plan.canaries
    if canaries is None:
        return None
    prompts = _canary_prompts(bench, _reference_session(plan, canaries))
    job = _endless(bench, canaries.workload, prompts, canaries.level, "canary", duration_s)
    arrival = Constant(rate_per_s=bench.inventory.time_scale / canaries.every_s)
    return _Load(msgspec.structs.replace(job, arrival=arrival), duration_s)


def _keep(job: Job, folder: Path) -> int:
    """The records of a load as the block's table; how many there are."""
    records = Path(job.records_path)
    rows = write_requests([records] if records.exists() else [], folder / "requests.parquet")
    shutil.rmtree(records.parent, ignore_errors=True)
    return rows


class _Load(threading.Thread):
    """A load beside the fault schedule; its process is ended whatever happens here."""

    def __init__(self, job: Job, duration_s: float) -> None:
        super().__init__(name=f"{job.request_id_prefix}-load", daemon=True)
        self.job = job
        self._duration_s = duration_s
        self._abandoned = threading.Event()
        self.report: Mapping[str, Any] | None = None
        self.state = "not started"
        self.fault: str | None = None
        self.counts = Counts(0, 0, 0)

    def run(self) -> None:
        try:
            result = run_load(
                self.job,
                Path(self.job.records_path).parent,
                on_progress=self._told,
                deadline_s=self.job.block_deadline_s + CLIENT_GRACE_S,
            )
        except _Abandoned:
            self.state = "interrupted"
        except KvgateError as fault:
            self.state, self.fault = "failed", str(fault)
        else:
            self._keep(result)

    def finish(self) -> None:
        """Wait for the planned end; called after the fault schedule, also when that failed."""
        self.join(self._duration_s + self.job.request_deadline_s + CLIENT_GRACE_S)
        if self.is_alive():
            self._abandoned.set()
            self.join(CLIENT_GRACE_S)

    def abandon(self) -> None:
        self._abandoned.set()

    def _told(self, counts: Counts) -> None:
        self.counts = counts
        if self._abandoned.is_set():
            raise _Abandoned

    def _keep(self, result: LoadResult) -> None:
        self.state = result.state
        self.report = None if result.report is None else msgspec.to_builtins(result.report)


class _Abandoned(Exception):  # noqa: N818 - never leaves this module
    """The run was given up; the load process is ended by run_load on the way out."""


def _faults(
    bench: Bench, arms: Arms, plan: SoakPlan, load: _Load, started: float, scale: float
) -> list[dict[str, Any]]:
    """Inject every planned fault at its time; watch the breaker and the clock in between."""
    events: list[dict[str, Any]] = []
    waiting = sorted(plan.faults, key=lambda fault: fault.at_s)
    breaker = Breaker(plan.window_s, plan.breaker_failed_share, plan.level)
    told = -1

    def now_s() -> float:
        return (time.monotonic() - started) * scale

    try:
        while load.is_alive():
            part = int(PARTS * now_s() / plan.duration_s)
            if part > told and part <= PARTS:
                told = part
                bench.progress.doing(
                    f"soak: {now_s():,.0f} of {plan.duration_s:,.0f} s, "
                    f"{load.counts.done} requests, {load.counts.failed} failed"
                )
                bench.progress.step()
            lost = breaker.tell(now_s(), load.counts.done, load.counts.failed)
            if lost:
                told_by = {"detail": lost.text(), "cause": asdict(lost)}
                events.append({"at_s": now_s(), "kind": "breaker", "proved": True, **told_by})
                load.abandon()
                break
            if waiting and now_s() >= waiting[0].at_s:
                fault = waiting.pop(0)
                at_s = now_s()
                event = _inject(arms, plan.arm, fault.kind)
                events.append(event | {"at_s": at_s, "ended_s": now_s()})
            load.join(0.1)
    except BaseException:
        load.abandon()
        raise
    return events


def _inject(arms: Arms, arm: str, kind: str) -> dict[str, Any]:
    """One fault; one that cannot be injected is an event without proof, and the run goes on."""
    try:
        proof = arms.inject(arm, kind)
    except CannotMeasure as fault:
        return {"kind": kind, "detail": str(fault), "proved": False}
    return {
        "kind": kind,
        "detail": str(proof.get("detail", "")),
        "cause": proof.get("cause"),
        "proved": proof.get("proved") is True,
    }
