"""The load client against a truth server on the same host: what it adds to what is true.

``python benchmarks/load/bench.py [--streams 256 1024] [--rounds 4] [--repeat 3] [--json FILE]``

TTFT 200 ms, a token each 10 ms, 200 tokens, ``rounds`` x streams requests. The server is simulated
and writes down when it had each request and when it wrote each first token, on the same
CLOCK_MONOTONIC. TTFT error = the client's TTFT minus (first write - request received). Receive
lag = the client's first-token time minus the first write. ITL error = the client's mean ITL of a
request minus the server's. Each repeat is printed: the host's other work shows in the spread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from kvgate.analyse.block import block_statistics
from kvgate.evidence.tables import read_records, read_requests, write_requests
from kvgate.load.job import Closed, Job, Prompts
from kvgate.load.run import run_load
from kvgate.load.truth import Truth
from kvgate.record import Outcome

TOKENS: Final = 200
LIMITS: Final[dict[int, dict[str, tuple[str, float]]]] = {
    256: {
        "ttft_error_p99_ms": ("<=", 10.0),
        "receive_lag_p99_ms": ("<=", 0.1),
        "itl_error_p99_ms": ("<=", 0.02),
        "mean_in_flight": (">=", 254.0),
        "cpu_s_per_1000_tokens": ("<=", 0.015),
        "peak_rss_mib": ("<=", 120.0),
        "start_up_s": ("<=", 1.0),
    },
    1024: {"ttft_error_p99_ms": ("<=", 30.0), "max_in_flight": (">=", 1000.0)},
}


def measure(streams: int, rounds: int, folder: Path) -> dict[str, Any]:
    """One block; returns the figures by name, the unit in the name."""
    truth_log = folder / "truth.jsonl"
    options = ["--ttft-s", "0.2", "--gap-s", "0.01", "--log", str(truth_log)]
    server = subprocess.Popen(
        [sys.executable, "-m", "kvgate.load.truth", *options], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        job = Job(
            url=f"http://127.0.0.1:{port}",
            model="truth",
            arrival=Closed(streams),
            prompts=Prompts(seed="bench", pool="load", count=rounds * streams, tokens=128),
            output_tokens=TOKENS,
            request_deadline_s=120,
            block_deadline_s=300,
            records_path=str(folder / "requests.jsonl"),
            report_path=str(folder / "client.json"),
            load_host="localhost",
            request_id_prefix="bench",
        )
        result = run_load(job, folder, deadline_s=330)
    finally:
        server.terminate()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
    report = result.report
    assert report is not None
    truths = {
        t.request_id: t
        for t in (
            msgspec.json.decode(line, type=Truth) for line in truth_log.read_bytes().splitlines()
        )
    }
    errors: list[float] = []
    lags: list[float] = []
    itl_errors: list[float] = []
    tokens = 0
    for record in read_records(result.records_path):
        if record.outcome is not Outcome.OK:
            continue
        truth = truths[record.request_id]
        first, last, sent = record.first_token_ns, record.last_token_ns, record.sent_ns
        assert first is not None and last is not None and sent is not None
        assert truth.first_write_ns is not None and truth.last_write_ns is not None
        errors.append(((first - sent) - (truth.first_write_ns - truth.received_ns)) / 1e6)
        lags.append((first - truth.first_write_ns) / 1e6)
        true_itl = (truth.last_write_ns - truth.first_write_ns) / (TOKENS - 1)
        itl_errors.append(abs((last - first) / (TOKENS - 1) - true_itl) / 1e6)
        tokens += TOKENS
    write_requests(result.records_path, folder / "requests.parquet")
    found = block_statistics(read_requests(folder / "requests.parquet"), streams)
    return {
        "streams": streams,
        "good": found.n_ok,
        "failed": found.n_requests - found.n_ok,
        "ttft_error_p50_ms": float(np.quantile(errors, 0.5)),
        "ttft_error_p99_ms": float(np.quantile(errors, 0.99)),
        "receive_lag_p50_ms": float(np.quantile(lags, 0.5)),
        "receive_lag_p99_ms": float(np.quantile(lags, 0.99)),
        "itl_error_p99_ms": float(np.quantile(itl_errors, 0.99)),
        "coalesced_share": found.coalesced_share,
        "mean_in_flight": report.mean_in_flight,
        "max_in_flight": report.max_in_flight,
        "read_lag_p99_ms": (report.receive_lag_p99_ns or 0) / 1e6,
        "loop_stall_p99_ms": (report.loop_stall_p99_ns or 0) / 1e6,
        "cpu_s_per_1000_tokens": report.cpu_s / tokens * 1000,
        "peak_rss_mib": report.peak_rss_bytes / 2**20,
        "start_up_s": report.start_up_s,
    }


def verdicts(figures: dict[str, Any]) -> list[str]:
    """The limits that these figures break."""
    broken = []
    for name, (relation, limit) in LIMITS.get(figures["streams"], {}).items():
        value = figures[name]
        good = value is not None and (value <= limit if relation == "<=" else value >= limit)
        if not good:
            broken.append(f"{name} {value} not {relation} {limit}")
    return broken


def main() -> int:
    """Print all figures; exit 1 when the best repeat of a level breaks a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    everything: list[dict[str, Any]] = []
    failed = False
    for streams in args.streams:
        runs: list[tuple[list[str], dict[str, Any]]] = []
        for number in range(args.repeat):
            with tempfile.TemporaryDirectory() as folder:
                before = os.getloadavg()[0]
                figures = measure(streams, args.rounds, Path(folder))
            figures |= {"repeat": number, "host_load_before": before}
            broken = verdicts(figures)
            runs.append((broken, figures))
            everything.append(figures | {"broken": broken})
            print(f"{streams} streams, repeat {number}, host load {before:.1f}")
            for name, value in figures.items():
                shown = f"{value:.4f}" if isinstance(value, float) else str(value)
                print(f"  {name:24} {shown:>12}")
            for line in broken:
                print(f"  BROKEN: {line}")
        if all(broken for broken, _ in runs):
            failed = True
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=2) + "\n")
    print("limits broken in every repeat of a level" if failed else "limits held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
