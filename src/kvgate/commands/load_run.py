"""One run of ``kvgate load``: measured, written down, shown. And a search, which is many."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kvgate.commands.load_cold import (
    Coldness,
    Sources,
    Watched,
    coldness,
    make_cold,
    settle,
    sources,
)
from kvgate.commands.shown import note, say, table
from kvgate.errors import EXIT_FAIL, EXIT_INVALID, EXIT_PASS, CannotMeasure, UsageError
from kvgate.load.job import Closed, Job, Progress, RampConcurrency, contradiction
from kvgate.load.run import LoadResult, run_load
from kvgate.load.texts import fetch_texts
from kvgate.load.workloads import Workload, expectation, findings, warm_up_of

if TYPE_CHECKING:
    # pandas, pyarrow: a load must not wait for them to start, nor share its processor with them.
    from kvgate.analyse.block import BlockStatistics

ROWS: Final = (
    ("TTFT p50", "ttft_p50_s", "s"),
    ("TTFT p99", "ttft_p99_s", "s"),
    ("ITL p50", "itl_p50_s", "s"),
    ("ITL p99", "itl_p99_s", "s"),
    ("chunk gap p99", "chunk_gap_p99_s", "s"),
    ("TPOT p50", "tpot_p50_s", "s"),
    ("end to end p50", "e2e_p50_s", "s"),
    ("waiting in the client p99", "queue_p99_s", "s"),
    ("output throughput, steady window", "output_tok_per_s", "tok/s"),
    ("steady window", "window_s", "s"),
    ("mean in flight, steady window", "mean_in_flight_in_window", ""),
    ("prompt tokens", "prompt_tokens", ""),
    ("output tokens", "output_tokens", ""),
    ("cached prompt tokens", "cached_tokens", ""),
    ("distinct prompts", "unique_prompts", ""),
)


@dataclass(frozen=True, slots=True)
class ColdPlan:
    """How a cold restore is prepared (see :mod:`kvgate.commands.load_cold`)."""

    make_cold: str
    store: Watched | None
    kv_bytes_per_token: int | None
    settle_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run as asked for. ``job`` has no paths yet; ``cold`` only for a cold restore."""

    job: Job
    workload: Workload
    block_tokens: int
    processes: int
    warm_up: int
    by_text: bool
    engine: Watched | None
    cold: ColdPlan | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that was carried out, ``summary`` as it stands in ``summary.json``."""

    result: LoadResult
    statistics: BlockStatistics
    summary: dict[str, Any]
    findings: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 all good, 1 some requests failed, 11 nothing, a part, or not what was asked for."""
        statistics = self.statistics
        if statistics.n_ok == 0 or not self.result.complete or statistics.n_impossible:
            return EXIT_INVALID
        if self.findings:
            return EXIT_INVALID
        return EXIT_FAIL if statistics.failed_by_outcome else EXIT_PASS


def measure(plan: Plan, out: Path) -> Measured:
    """Carry out a plan; leaves ``requests.parquet`` and ``summary.json`` in ``out``.

    Raises :class:`UsageError` when ``out`` holds an earlier run or the plan contradicts itself.
    """
    if (out / "requests.parquet").exists() or (out / "requests.jsonl").exists():
        raise UsageError("holds an earlier run", where=str(out), remedy="name another --out")
    wrong = contradiction(plan.job)
    if wrong is not None:
        raise UsageError(wrong)
    out.mkdir(parents=True, exist_ok=True)
    work = out / "work"
    job = _with_files(plan.job, out)
    if plan.by_text or job.endpoint == "chat":
        path = out / "texts.jsonl"
        fetch_texts(job, path)
        job = msgspec.structs.replace(job, texts_path=str(path))
    if plan.warm_up:
        prompts = warm_up_of(job.prompts, plan.warm_up)
        _aside(job, work / "warm-up", "warm-up", prompts=prompts)
    prepared = None if plan.cold is None else _prepare_cold(job, plan.cold, work)
    before = None if plan.engine is None else plan.engine.look()
    result = run_load(
        job,
        work,
        on_progress=_shown(job.prompts.count, "measuring"),
        deadline_s=job.block_deadline_s + 60,
        processes=plan.processes,
    )
    seen = None if plan.engine is None else sources(before, plan.engine.look())
    cold = None
    if plan.cold is not None and prepared is not None:
        cold = coldness(*prepared, plan.cold.make_cold, seen)
    return _written(plan, job, result, out, seen, cold)


def _with_files(job: Job, out: Path) -> Job:
    return msgspec.structs.replace(
        job, records_path=str(out / "requests.jsonl"), report_path=str(out / "client.json")
    )


def _aside(job: Job, folder: Path, what: str, **changes: Any) -> None:
    """Requests that are not measured, at the level of those that are; all must be answered."""
    folder.mkdir(parents=True)
    aside = msgspec.structs.replace(
        _with_files(job, folder),
        request_id_prefix=f"{what}-{job.request_id_prefix}",
        duration_s=None,
        arrival=Closed(min(job.arrival.planned_in_flight, 64)),
        **changes,
    )
    texts = aside.texts_path
    if texts is not None and "prompts" in changes:
        path = folder / "texts.jsonl"
        fetch_texts(aside, path)
        aside = msgspec.structs.replace(aside, texts_path=str(path))
    result = run_load(
        aside,
        folder,
        on_progress=_shown(aside.prompts.count, what),
        deadline_s=aside.block_deadline_s + 60,
    )
    failed = None if result.report is None else result.report.requests_failed
    if not result.complete or failed != 0:
        raise CannotMeasure(
            f"the {what} failed: {failed} requests, {result.state}{_first_error(result)}",
            where=job.url,
        )


def _first_error(result: LoadResult) -> str:
    from kvgate.evidence.records import read_records

    errors = (r.error for r in read_records(result.records_path) if r.error)
    return f" ({first})" if (first := next(errors, None)) else ""


def _prepare_cold(job: Job, cold: ColdPlan, work: Path) -> tuple[int, bool | None]:
    """Prime, settle, make cold; the tokens primed and whether the store acknowledged them."""
    before = None if cold.store is None else cold.store.look()
    _aside(job, work / "prime", "priming", output_tokens=1)
    tokens = job.prompts.count * job.prompts.tokens
    acknowledged = settle(cold.store, before, tokens, cold.kv_bytes_per_token, cold.settle_s)
    make_cold(cold.make_cold, job.url)
    return tokens, acknowledged


def _shown(total: int, what: str) -> Callable[[Progress], None]:
    """Progress on a terminal, every two seconds elsewhere nothing."""
    at_terminal = os.isatty(2)
    last = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        if at_terminal and time.monotonic() - last >= 2:
            last = time.monotonic()
            note(
                f"{what}: {progress.done} of {total} done, {progress.failed} failed, "
                f"{progress.in_flight} in flight"
            )

    return show


def _written(
    plan: Plan,
    job: Job,
    result: LoadResult,
    out: Path,
    seen: Sources | None,
    cold: Coldness | None,
) -> Measured:
    from kvgate.analyse.block import block_statistics
    from kvgate.commands.load_reasons import first_errors, no_throughput
    from kvgate.evidence.tables import read_requests, write_requests

    write_requests(result.records_path, out / "requests.parquet")
    requests = read_requests(out / "requests.parquet")
    statistics = block_statistics(requests, job.arrival.planned_in_flight)
    expected = expectation(job.prompts, plan.block_tokens)
    found = findings(
        plan.workload,
        expected,
        requests=statistics.n_requests,
        planned=job.prompts.count,
        unique_prompts=statistics.unique_prompts,
        prompt_tokens=statistics.prompt_tokens,
        cached_tokens=statistics.cached_tokens,
    )
    if cold is not None:
        found += cold.sentences()
    summary = {
        "schema": "kvgate.load/1",
        "state": result.state,
        "workload": plan.workload.value,
        "job": job,
        "statistics": asdict(statistics),
        "errors": first_errors(requests),
        "no_throughput": no_throughput(
            statistics,
            requests,
            open_loop=not isinstance(job.arrival, Closed | RampConcurrency),
        ),
        "expected": {
            "prompt_tokens": expected.tokens,
            "repeated_tokens": expected.repeated_tokens,
            "repeated_share": expected.repeated_tokens / expected.tokens,
            "distinct_prompts": expected.unique,
        },
        "sources": None if seen is None else asdict(seen),
        "coldness": None if cold is None else cold.to_json(),
        "findings": list(found),
        "client": result.report,
        "processes": list(result.parts),
    }
    measured = Measured(result, statistics, summary, found)
    write_json(summary, out / "summary.json")
    return measured


def keep_only_table(measured: Measured) -> None:
    """Remove what the table was made of."""
    measured.result.records_path.unlink(missing_ok=True)
    work = measured.result.records_path.parent / "work"
    for path in work.glob("*.jsonl"):
        path.unlink()


def write_json(value: Any, path: Path) -> None:
    """A file of JSON for a person."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def show(measured: Measured, out: Path) -> None:
    """The table of a run."""
    statistics, result = measured.statistics, measured.result
    say(f"{statistics.n_ok} of {statistics.n_requests} requests good")
    values, errors = asdict(statistics), measured.summary["errors"]
    if measured.summary["no_throughput"]:
        values["output_tok_per_s"] = None
    rows = [(title, _number(values[name]), unit) for title, name, unit in ROWS]
    expected = measured.summary["expected"]["repeated_share"]
    rows.append(("repeated in the plan, at most", f"{expected:.3f}", "of the prompt tokens"))
    rows += [
        (f"failed: {kind}", str(count), f"requests  {errors.get(kind, '')}".rstrip())
        for kind, count in statistics.failed_by_outcome.items()
    ]
    if statistics.n_impossible:
        rows.append(("impossible records", str(statistics.n_impossible), "requests"))
    report = result.report
    if report is not None:
        if report.requests_skipped:
            rows.append(("turns after a failed one", str(report.requests_skipped), "not sent"))
        if report.receive_lag_p99_ns is not None:
            rows.append(("client read lag p99", f"{report.receive_lag_p99_ns / 1e6:.3f}", "ms"))
        rows.append(("client CPU", f"{report.cpu_s / max(report.wall_s, 1e-9):.0%}", "of a core"))
    table(rows, indent=2)
    if measured.summary["no_throughput"]:
        say(measured.summary["no_throughput"])
    if not result.complete:
        say(f"PARTIAL: the run ended as {result.state}")
    if measured.summary["coldness"] is not None and not measured.findings:
        say("cold: the store had acknowledged all prompts, the engine's own cache gave none")
    for sentence in measured.findings:
        say(f"INVALID: {sentence}")
    say(f"prompts: --seed {_seed(measured)} --pool {_pool(measured)}")
    say(str(out / "requests.parquet"))


def _number(value: float | int | None) -> str:
    if value is None:
        return "missing"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _seed(measured: Measured) -> str:
    job: Job = measured.summary["job"]
    return job.prompts.seed


def _pool(measured: Measured) -> str:
    job: Job = measured.summary["job"]
    return job.prompts.pool


def for_probe(plan: Plan, number: int, arrival: Any) -> Plan:
    """The plan of one probe of a search: prompts that no other probe has seen."""
    prompts = msgspec.structs.replace(
        plan.job.prompts, pool=f"{plan.job.prompts.pool}/probe-{number}"
    )
    job = msgspec.structs.replace(
        plan.job,
        arrival=arrival,
        prompts=prompts,
        request_id_prefix=f"{plan.job.request_id_prefix}-{number}",
    )
    return replace(plan, job=job)
