"""The load client against a truth server on the same host: what it adds to what is true.

``python benchmarks/load/bench.py [--streams 256 1024] [--rounds 4] [--repeat 3] [--json FILE]``

TTFT 200 ms, a token each 10 ms, 200 tokens, ``rounds`` x streams requests against a simulated
engine. The figures are those of :class:`kvgate.load.calibrate.Calibration`. Each repeat is printed:
the host's other work shows in the spread. Exit 1 when every repeat of a level breaks a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from kvgate.load.calibrate import Calibration, calibrate

LIMITS: Final[dict[int, dict[str, tuple[str, float]]]] = {
    256: {
        "ttft_error_p99_ms": ("<=", 10.0),
        "first_token_lag_p99_ms": ("<=", 0.1),
        "itl_error_p99_ms": ("<=", 0.02),
        "mean_in_flight": (">=", 254.0),
        "cpu_s_per_1000_tokens": ("<=", 0.015),
        "peak_rss_mib": ("<=", 120.0),
        "start_up_s": ("<=", 1.0),
    },
    1024: {"ttft_error_p99_ms": ("<=", 30.0), "mean_in_flight": (">=", 1000.0)},
}


def figures_of(found: Calibration) -> dict[str, Any]:
    """The figures by name, the unit in the name."""
    report = found.report
    return {
        "streams": found.level,
        "good": found.n_ok,
        "failed": found.n_requests - found.n_ok,
        "ttft_error_p50_ms": found.ttft_error_p50_ms,
        "ttft_error_p99_ms": found.ttft_error_p99_ms,
        "first_token_lag_p50_ms": found.first_token_lag_p50_ms,
        "first_token_lag_p99_ms": found.first_token_lag_p99_ms,
        "itl_error_p99_ms": found.itl_error_p99_ms,
        "coalesced_share": found.coalesced_share,
        "mean_in_flight": report.mean_in_flight,
        "max_in_flight": report.max_in_flight,
        "read_lag_p99_ms": _ms(report.receive_lag_p99_ns),
        "loop_stall_p99_ms": _ms(report.loop_stall_p99_ns),
        "cpu_s_per_1000_tokens": found.cpu_s_per_1000_tokens,
        "peak_rss_mib": report.peak_rss_bytes / 2**20,
        "start_up_s": report.start_up_s,
    }


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6


def broken_limits(figures: dict[str, Any]) -> list[str]:
    """The limits that these figures break; a missing figure breaks its limit."""
    broken = []
    for name, (relation, limit) in LIMITS.get(figures["streams"], {}).items():
        value = figures[name]
        good = value is not None and (value <= limit if relation == "<=" else value >= limit)
        if not good:
            broken.append(f"{name} {value} not {relation} {limit}")
    return broken


def main() -> int:
    """Print all figures; the exit code says whether some repeat of each level held its limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    everything: list[dict[str, Any]] = []
    failed = False
    for streams in args.streams:
        held = False
        for number in range(args.repeat):
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory() as folder:
                figures = figures_of(calibrate(streams, Path(folder), rounds=args.rounds))
            broken = broken_limits(figures)
            held = held or not broken
            everything.append(
                figures | {"repeat": number, "host_load_before": load, "broken": broken}
            )
            print(f"{streams} streams, repeat {number}, host load before {load:.1f}")
            for name, value in figures.items():
                shown = f"{value:.4f}" if isinstance(value, float) else str(value)
                print(f"  {name:24} {shown:>12}")
            for line in broken:
                print(f"  BROKEN: {line}")
        failed = failed or not held
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=2) + "\n")
    print("a level broke a limit in every repeat" if failed else "limits held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
