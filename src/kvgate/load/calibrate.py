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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from kvgate.errors import CannotMeasure
from kvgate.evidence.tables import read_records
from kvgate.load.job import Closed, Job, Prompts
from kvgate.load.run import run_load
from kvgate.load.truth import Truth
from kvgate.record import ClientReport, Outcome

_GRACE_S: Final = 5.0


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
    return float(np.quantile(values, share)) if values else None
