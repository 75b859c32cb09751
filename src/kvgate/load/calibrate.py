"""The client measured against the truth, on the same host and at the level of a block.

A simulated engine writes down what it did; what the client says beyond that is the client's error.
A host that cannot hold a level shows it here, before an appliance is blamed for it.
"""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kvgate.errors import CannotMeasure
from kvgate.evidence.records import read_records
from kvgate.load.job import Closed, Job, Prompts
from kvgate.load.run import run_load
from kvgate.load.truth import Truth
from kvgate.record import ClientReport, Outcome

_GRACE_S: Final = 5.0
_TOKENS_PER_S: Final = 25_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """Error budget of the client at one level; ``None`` where there is no data.

    ``ttft_error``: the client's TTFT minus (first write - request received), ms.
    ``first_token_lag``: the client's first-token time minus the server's first write, ms.
    ``itl_error``: absolute difference of a request's mean ITL to the server's, ms.
    ``coalesced_share``: tokens that shared a receive stamp.
    """

    level: int
    n_requests: int
    n_ok: int
    ttft_error_p50_ms: float | None
    ttft_error_p99_ms: float | None
    first_token_lag_p50_ms: float | None
    first_token_lag_p99_ms: float | None
    itl_error_p99_ms: float | None
    coalesced_share: float | None
    cpu_s_per_1000_tokens: float | None
    report: ClientReport


class BudgetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may add to what is true before a block is void.

    ``held_share``: mean requests in flight over the level. ``cpu_share``: of one core.
    """

    ttft_error_p99_ms: float
    first_token_lag_p99_ms: float
    held_share: float = 0.97
    cpu_share: float = 0.9

    @classmethod
    def at(cls, level: int) -> BudgetLimits:
        """The limits that hold by default: wider where one process has more streams to serve."""
        if level <= 256:
            return cls(ttft_error_p99_ms=10.0, first_token_lag_p99_ms=5.0)
        return cls(ttft_error_p99_ms=30.0, first_token_lag_p99_ms=15.0)


class ErrorBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What the client added to the truth at one level, just now on this host; see Calibration.

    ``held``: mean requests in flight once the level was reached; ``cpu_share``: of one core in the
    run; ``took_s``: the whole check. ``None`` where there is no data, which holds nothing.
    """

    level: int
    requests: int
    failed: int
    ttft_error_p99_ms: float | None
    first_token_lag_p99_ms: float | None
    itl_error_p99_ms: float | None
    held: float | None
    cpu_share: float | None
    loop_stall_p99_ms: float | None
    took_s: float

    def broken(self, level: int, limits: BudgetLimits | None = None) -> tuple[str, ...]:
        """The limits that a block at ``level`` would break, each in words; a missing figure breaks
        its limit, and so does a level higher than the one that was tried."""
        kept = limits or BudgetLimits.at(level)
        found = []
        if level > self.level:
            found.append(f"level {level} was not tried, only {self.level}")
        if self.failed or not self.requests:
            found.append(f"{self.failed} of {self.requests} requests to the truth server failed")
        for name, value, limit in (
            ("TTFT error p99, ms", self.ttft_error_p99_ms, kept.ttft_error_p99_ms),
            ("first-token lag p99, ms", self.first_token_lag_p99_ms, kept.first_token_lag_p99_ms),
            ("share of a core", self.cpu_share, kept.cpu_share),
        ):
            if value is None or value > limit:
                shown = "missing" if value is None else f"{value:.3g}"
                found.append(f"{name} {shown}, at most {limit:g}")
        if self.held is None or self.held < kept.held_share * self.level:
            shown = "missing" if self.held is None else f"{self.held:.1f}"
            least = kept.held_share * self.level
            found.append(f"mean requests in flight {shown}, at least {least:.1f}")
        return tuple(found)

    def holds(self, level: int, limits: BudgetLimits | None = None) -> bool:
        """Whether a block at ``level`` may be measured from this host."""
        return not self.broken(level, limits)


def check_client(level: int, work_dir: Path) -> ErrorBudget:
    """The client's error budget at a block's level, in two to three seconds.

    Two rounds against a truth server on loopback; up to 256 streams a token each 10 ms, above that
    25,000 tokens a second in all, since server and client share this host. ``work_dir`` must be
    new. Raises :class:`CannotMeasure` when the host cannot carry the level at all.
    """
    started = time.monotonic()
    gap_s = max(0.01, level / _TOKENS_PER_S)
    found = calibrate(
        level,
        work_dir,
        rounds=2,
        output_tokens=max(8, round(0.5 / gap_s)),
        gap_s=gap_s,
        deadline_s=30.0,
    )
    report = found.report
    return ErrorBudget(
        level=level,
        requests=found.n_requests,
        failed=found.n_requests - found.n_ok,
        ttft_error_p99_ms=found.ttft_error_p99_ms,
        first_token_lag_p99_ms=found.first_token_lag_p99_ms,
        itl_error_p99_ms=found.itl_error_p99_ms,
        held=report.mean_in_flight,
        cpu_share=report.cpu_s / report.wall_s if report.wall_s > 0 else None,
        loop_stall_p99_ms=(
            None if report.loop_stall_p99_ns is None else report.loop_stall_p99_ns / 1e6
        ),
        took_s=time.monotonic() - started,
    )


def calibrate(
    level: int,
    work_dir: Path,
    *,
    rounds: int = 4,
    output_tokens: int = 200,
    prompt_tokens: int = 128,
    ttft_s: float = 0.2,
    gap_s: float = 0.01,
    deadline_s: float = 300.0,
) -> Calibration:
    """Run ``rounds`` x ``level`` requests against a truth server on loopback.

    ``work_dir`` must hold no earlier calibration. Raises :class:`CannotMeasure` when the client
    cannot carry the level or does not end in time.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    log = work_dir / "truth.jsonl"
    command = [sys.executable, "-m", "kvgate.load.truth", "--log", str(log)]
    command += ["--ttft-s", str(ttft_s), "--gap-s", str(gap_s)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        hello = server.stdout.readline()
        if not hello:
            raise CannotMeasure("the truth server did not start", where=platform.node())
        job = Job(
            url=f"http://127.0.0.1:{json.loads(hello)['port']}",
            model="truth",
            arrival=Closed(level),
            prompts=Prompts(
                seed="calibration", pool="truth", count=rounds * level, tokens=prompt_tokens
            ),
            output_tokens=output_tokens,
            request_deadline_s=deadline_s,
            block_deadline_s=deadline_s,
            records_path=str(work_dir / "requests.jsonl"),
            report_path=str(work_dir / "client.json"),
            load_host=platform.node(),
            request_id_prefix="calibration",
        )
        result = run_load(job, work_dir, deadline_s=deadline_s + 10)
    finally:
        _end(server)
    if result.report is None or not result.complete:
        raise CannotMeasure(
            f"the calibration at level {level} ended as {result.state}", where=platform.node()
        )
    return _compare(level, result.records_path, log, result.report)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_GRACE_S)
    if server.stdout is not None:
        server.stdout.close()


def _compare(level: int, records: Path, log: Path, report: ClientReport) -> Calibration:
    decode = msgspec.json.Decoder(Truth).decode
    truths = {t.request_id: t for t in map(decode, log.read_bytes().splitlines())}
    ttft_errors: list[float] = []
    lags: list[float] = []
    itl_errors: list[float] = []
    n_requests = n_ok = tokens = coalesced = 0
    for record in read_records(records):
        n_requests += 1
        truth = truths.get(record.request_id)
        if record.outcome is not Outcome.OK or truth is None:
            continue
        n_ok += 1
        tokens += len(record.token_ns)
        coalesced += len(record.coalesced)
        first, last, sent = record.first_token_ns, record.last_token_ns, record.sent_ns
        true_first, true_last = truth.first_write_ns, truth.last_write_ns
        if None in (first, last, sent, true_first, true_last):
            continue
        assert first is not None and last is not None and sent is not None
        assert true_first is not None and true_last is not None
        ttft_errors.append(((first - sent) - (true_first - truth.received_ns)) / 1e6)
        lags.append((first - true_first) / 1e6)
        if len(record.token_ns) > 1:
            gaps = len(record.token_ns) - 1
            itl_errors.append(abs((last - first) - (true_last - true_first)) / gaps / 1e6)
    return Calibration(
        level=level,
        n_requests=n_requests,
        n_ok=n_ok,
        ttft_error_p50_ms=_quantile(ttft_errors, 0.50),
        ttft_error_p99_ms=_quantile(ttft_errors, 0.99),
        first_token_lag_p50_ms=_quantile(lags, 0.50),
        first_token_lag_p99_ms=_quantile(lags, 0.99),
        itl_error_p99_ms=_quantile(itl_errors, 0.99),
        coalesced_share=coalesced / tokens if tokens else None,
        cpu_s_per_1000_tokens=report.cpu_s / tokens * 1000 if tokens else None,
        report=report,
    )


def _quantile(values: list[float], share: float) -> float | None:
    """Hyndman and Fan's type 7."""
    if not values:
        return None
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
