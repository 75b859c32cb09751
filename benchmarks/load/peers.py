"""Load generators side by side: the same server that knows the truth, the same load, one run.

``python benchmarks/load/peers.py [--streams 64 256] [--rounds 4] [--json FILE]``

TTFT 200 ms, a token each 10 ms, 200 tokens, ``rounds`` x streams requests. Tools are found on PATH
or as ``DIR/*/bin/TOOL`` with ``KVGATE_PEERS=DIR``; what is not installed is said. All figures come
from outside the tools: their requests and their in-flight from the server's record, processor time
and memory from /proc of the whole command. Only TTFT and ITL are the tools' own words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from tools import KVGATE, OUTPUT_TOKENS, PEERS, WITHOUT_RUNNER, Ask, Said, Tool, find
from watch import Watched, run_watched

from kvgate.load.truth import Truth

LIMIT_S: Final = 240.0
COLUMNS: Final = (
    ("good", "good", "{:.0f}"),
    ("TTFT error p50 ms", "ttft_error_p50_ms", "{:.2f}"),
    ("TTFT error p99 ms", "ttft_error_p99_ms", "{:.2f}"),
    ("mean ITL error p99 ms", "itl_error_p99_ms", "{:.4f}"),
    ("mean in flight", "mean_in_flight", "{:.1f}"),
    ("CPU s / 1,000 tokens", "cpu_s_per_1000_tokens", "{:.4f}"),
    ("peak MiB", "peak_rss_mib", "{:.0f}"),
    ("first request after s", "start_up_s", "{:.2f}"),
)
SMALLER_IS_BETTER: Final = (
    "ttft_error_p50_ms", "ttft_error_p99_ms", "itl_error_p99_ms", "cpu_s_per_1000_tokens",
    "peak_rss_mib", "start_up_s",
)  # fmt: skip


def measure(tool: Tool, program: str, streams: int, rounds: int) -> dict[str, Any]:
    """The figures of one tool; ``fault`` says why there are none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "truth.jsonl"
        server = subprocess.Popen(
            [sys.executable, "-m", "kvgate.load.truth", "--log", str(log), "--tokens",
             str(OUTPUT_TOKENS)],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            ask = Ask(f"http://127.0.0.1:{port}", streams, rounds * streams, folder)
            watched = run_watched(
                tool.command(program, ask),
                folder / "tool.log",
                limit_s=LIMIT_S,
                cwd=folder,
                extra=tool.extra,
            )
        finally:
            server.terminate()
            server.wait(10)
            if server.stdout is not None:
                server.stdout.close()
        truths = [msgspec.json.decode(line, type=Truth) for line in log.read_bytes().splitlines()]
        try:
            said = list(tool.results(folder))
        except (OSError, ValueError, KeyError, TypeError, sqlite3.Error) as fault:
            said = []
            watched_fault = f"results unreadable: {fault!r}"
        else:
            watched_fault = "no result"
        if not said or not truths:
            last = watched.said.strip().splitlines()[-3:]
            return {"tool": tool.name, "fault": f"{watched_fault}, exit {watched.exit_code}: "
                    f"{' | '.join(last)[:400]}"}  # fmt: skip
        return {"tool": tool.name, "streams": streams} | _figures(tool, watched, truths, said)


def _figures(tool: Tool, watched: Watched, truths: list[Truth], said: list[Said]) -> dict[str, Any]:
    truths = sorted(truths, key=lambda t: t.received_ns)
    if tool.key == "order":
        by_key = {str(i): t for i, t in enumerate(truths)}
    elif tool.key == "answer":
        by_key = {t.name: t for t in truths}
    else:
        by_key = {t.request_id: t for t in truths}
    ttft, itl = [], []
    for one in said:
        truth = by_key.get(one.key)
        if truth is None or truth.first_write_ns is None or truth.last_write_ns is None:
            continue
        ttft.append(one.ttft_ms - (truth.first_write_ns - truth.received_ns) / 1e6)
        if one.mean_itl_ms is not None and truth.writes > 1:
            true = (truth.last_write_ns - truth.first_write_ns) / (truth.writes - 1) / 1e6
            itl.append(abs(one.mean_itl_ms - true))
    tokens = sum(t.writes for t in truths)
    return {
        "good": len(ttft),
        "ttft_error_p50_ms": _quantile(ttft, 0.5),
        "ttft_error_p99_ms": _quantile(ttft, 0.99),
        "itl_error_p99_ms": _quantile(itl, 0.99),
        "mean_in_flight": mean_in_flight(truths),
        "cpu_s_per_1000_tokens": watched.cpu_s / tokens * 1000,
        "peak_rss_mib": watched.peak_rss_bytes / 2**20,
        "start_up_s": (truths[0].received_ns - watched.started_ns) / 1e9,
        "wall_s": watched.wall_s,
    }


def mean_in_flight(truths: list[Truth]) -> float | None:
    """Time average at the server from the first end to the last arrival: the ramp up left out."""
    ends = sorted(t.last_write_ns for t in truths if t.last_write_ns is not None)
    if not ends:
        return None
    start, stop = ends[0], max(t.received_ns for t in truths)
    if stop <= start:
        return None
    area = sum(
        max(0, min(t.last_write_ns or stop, stop) - max(t.received_ns, start)) for t in truths
    )
    return area / (stop - start)


def _quantile(values: list[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


def _shown(found: dict[str, Any], name: str, form: str) -> str:
    value = found.get(name)
    return "missing" if value is None else form.format(value)


def report(rows: list[dict[str, Any]], streams: int, rounds: int) -> None:
    """One table, and how many times ours each figure is."""
    print(f"\n{streams} streams, {rounds * streams} requests")
    good = [row for row in rows if "fault" not in row]
    widths = [max(len(title), 9) for title, _, _ in COLUMNS]
    head = "  ".join(title.rjust(w) for (title, _, _), w in zip(COLUMNS, widths, strict=True))
    print(f"{'tool':12}{head}")
    for row in good:
        cells = (
            _shown(row, name, form).rjust(w)
            for (_, name, form), w in zip(COLUMNS, widths, strict=True)
        )
        print(f"{row['tool']:12}{'  '.join(cells)}")
    for row in rows:
        if "fault" in row:
            print(f"{row['tool']:12}{row['fault']}")
    ours = next((row for row in good if row["tool"] == "kvgate"), None)
    for row in good if ours is not None else []:
        if ours is None or row is ours:
            continue
        ratios = [
            f"{name} x{row[name] / ours[name]:.1f}"
            for name in SMALLER_IS_BETTER
            if row[name] is not None and ours[name]
        ]
        print(f"{row['tool']} over kvgate: {', '.join(ratios)}")


def main() -> int:
    """Measure every tool that is there, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    everything: list[dict[str, Any]] = []
    for name, program in WITHOUT_RUNNER:
        there = find(program)
        print(f"{name}: {'installed, but not compared here' if there else 'not installed'}")
    tools = [(KVGATE, sys.executable)]
    for tool in PEERS:
        found = find(tool.program)
        if found is None:
            print(f"{tool.name}: not installed")
        else:
            print(f"{tool.name}: {found}")
            tools.append((tool, found))
    for streams in args.streams:
        rows = []
        for tool, program in tools:
            with contextlib.suppress(OSError):
                os.sync()
            rows.append(measure(tool, program, streams, args.rounds))
        report(rows, streams, args.rounds)
        everything += rows
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
