"""The long run of G4: one arm under steady load, faults on schedule, everything observed."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kvgate.campaign import utc_text
from kvgate.conduct.block import (
    CLIENT_GRACE_S,
    SAMPLE_PERIOD_S,
    Bench,
    block_job,
    targets,
)
from kvgate.conduct.prime import prime
from kvgate.contract import SoakPlan
from kvgate.drive.arms import Arms
from kvgate.errors import CannotMeasure, KvgateError
from kvgate.evidence.tables import write_requests
from kvgate.load.job import Job
from kvgate.load.job import Progress as Counts
from kvgate.load.run import LoadResult, run_load
from kvgate.observe.sampler import Sampler
from kvgate.plan import Cell, PromptRange

POOL_ROUNDS = 12
"""Distinct prompts per stream of the soak's pool: more than the engine's own cache holds."""

ENDLESS = 10_000_000


def measure_soak(bench: Bench, arms: Arms, plan: SoakPlan) -> None:
    """Prime the pool, run the load for the planned time, write the run as block 0."""
    cell = Cell(plan.workload, plan.level)
    pool = PromptRange(f"g{bench.gate}/{cell.label}/soak", 0, plan.level * POOL_ROUNDS)
    prime(bench, arms, plan.arm, ((cell, pool),))
    bench.progress.doing(f"soak: starting the {plan.arm} arm")
    arm = arms.start(plan.arm)
    scale = bench.inventory.time_scale
    duration_s = plan.duration_s / scale
    workload = bench.contract.workloads[plan.workload]
    job = block_job(bench, workload, pool, plan.level, "soak")
    endless = msgspec.structs.replace(job.prompts, count=ENDLESS, cycle=pool.count)
    job = msgspec.structs.replace(
        job, prompts=endless, duration_s=duration_s, block_deadline_s=duration_s * 2 + 60
    )
    folder = bench.journal.block_dir(0)
    bench.journal.write_json(
        "plan.json",
        {"gate": bench.gate, "soak": plan.model_dump(mode="json"),
         "environment": {arm.arm: dict(arm.info)}, "sessions": []},
    )  # fmt: skip
    started_at = utc_text(datetime.now(UTC))
    period_s = min(SAMPLE_PERIOD_S * 60, plan.window_s / 4) / scale if scale > 1 else 5.0
    sampler = Sampler(
        targets(bench, arm), period_s=max(0.5, period_s), timeout_s=2.0, pids=arm.store_pids
    )
    with sampler:
        started = time.monotonic()
        load = _Load(job, duration_s)
        load.start()
        try:
            events = _faults(bench, arms, plan, load, started, scale)
        finally:
            load.finish()
        lasted_s = time.monotonic() - started
    observation = sampler.stop()
    rows = write_requests([p for p in (Path(job.records_path),) if p.exists()],
                          folder / "requests.parquet")  # fmt: skip
    shutil.rmtree(Path(job.records_path).parent, ignore_errors=True)
    observation.write(folder / "engine.parquet", folder / "host.parquet")
    block = {
        "n": 0,
        "gate": bench.gate,
        "session": 0,
        "pair": None,
        "role": "soak",
        "position": 0,
        "arm": arm.arm,
        "cell": asdict(cell),
        "kind": "soak",
        "requests_recorded": rows,
        "started_at": started_at,
        "duration_s": lasted_s * scale,
        "time_scale": scale,
        "client": load.report,
        "load_state": load.state,
        "fault": load.fault,
        "events": events,
        "observation": observation.to_json(),
    }
    bench.journal.finish_block(0, block)


class _Load(threading.Thread):
    """The soak's load beside the fault schedule; its process is ended whatever happens here."""

    def __init__(self, job: Job, duration_s: float) -> None:
        super().__init__(name="soak-load", daemon=True)
        self._job = job
        self._duration_s = duration_s
        self._abandoned = threading.Event()
        self.report: Mapping[str, Any] | None = None
        self.state = "not started"
        self.fault: str | None = None
        self.counts = Counts(0, 0, 0)

    def run(self) -> None:
        try:
            result = run_load(
                self._job,
                Path(self._job.records_path).parent,
                on_progress=self._told,
                deadline_s=self._job.block_deadline_s + CLIENT_GRACE_S,
            )
        except _Abandoned:
            self.state = "interrupted"
        except KvgateError as fault:
            self.state, self.fault = "failed", str(fault)
        else:
            self._keep(result)

    def finish(self) -> None:
        """Wait for the planned end; called after the fault schedule, also when that failed."""
        self.join(self._duration_s + self._job.request_deadline_s + CLIENT_GRACE_S)
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
    told = -1
    try:
        while load.is_alive():
            now_s = (time.monotonic() - started) * scale
            part = int(10 * now_s / plan.duration_s)
            if part > told and part <= 10:
                told = part
                bench.progress.doing(
                    f"soak: {now_s:,.0f} of {plan.duration_s:,.0f} s, "
                    f"{load.counts.done} requests, {load.counts.failed} failed"
                )
                bench.progress.step()
            if waiting and now_s >= waiting[0].at_s:
                fault = waiting.pop(0)
                events.append(_inject(arms, plan.arm, fault.kind, now_s))
            elif _broken(plan, load.counts):
                said = f"{load.counts.failed} of {load.counts.done} failed"
                events.append({"at_s": now_s, "kind": "breaker", "detail": said, "proved": True})
                load.abandon()
                break
            load.join(0.1)
    except BaseException:
        load.abandon()
        raise
    return events


def _inject(arms: Arms, arm: str, kind: str, at_s: float) -> dict[str, Any]:
    """One fault; one that cannot be injected is an event without proof, and the run goes on."""
    try:
        proof = arms.inject(arm, kind)
    except CannotMeasure as fault:
        return {"at_s": at_s, "kind": kind, "detail": str(fault), "proved": False}
    return {
        "at_s": at_s,
        "kind": kind,
        "detail": str(proof.get("detail", "")),
        "proved": proof.get("proved") is True,
    }


def _broken(plan: SoakPlan, counts: Counts) -> bool:
    """The breaker: a run that is lost must not go on for three days."""
    return counts.done >= 100 and counts.failed / counts.done > plan.breaker_failed_share
