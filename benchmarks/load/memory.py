"""A long run must not grow: memory of the load process over millions of tokens.

``python benchmarks/load/memory.py [--tokens 10000000] [--streams 64] [--per-request 2000]``

One job against a server that knows the truth and packs five tokens, with their ids, into an event,
so that a machine of two cores makes millions of them in minutes; every token has its own entry in
the record. Printed are the resident size of the load process as it goes, its peak as the kernel
counted it (VmHWM) and the growth over the second half. Exit 1 above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from kvgate.load.job import Closed, Job, Progress, Prompts
from kvgate.load.run import run_load

LIMIT_MIB: Final = 300.0
LOOKS: Final = 20


def resident_mib(parent: int) -> float | None:
    """Resident size of the load process that this process started."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            if b"kvgate.load.client" in Path(f"/proc/{pid}/cmdline").read_bytes():
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        return int(line.split()[1]) / 1024
        except OSError:
            continue
    return None


def main() -> int:
    """Run the job and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--per-request", type=int, default=2000, help="tokens of an answer")
    args = parser.parse_args()
    requests = -(-args.tokens // args.per_request)
    seen: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = subprocess.Popen(
            [sys.executable, "-m", "kvgate.load.truth", "--ttft-s", "0.01", "--gap-s", "0.0001",
             "--misbehave", "packed=1"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            job = Job(
                url=f"http://127.0.0.1:{port}",
                model="truth",
                arrival=Closed(args.streams),
                prompts=Prompts(seed="memory", pool="truth", count=requests, tokens=64),
                output_tokens=args.per_request,
                request_deadline_s=600.0,
                block_deadline_s=3600.0,
                records_path=str(folder / "requests.jsonl"),
                report_path=str(folder / "client.json"),
                load_host="here",
                request_id_prefix="memory",
            )
            started = time.monotonic()

            def look(progress: Progress) -> None:
                if progress.done * LOOKS >= requests * len(seen):
                    found = resident_mib(os.getpid())
                    if found is not None:
                        seen.append((progress.done * args.per_request, found))

            result = run_load(job, folder, on_progress=look, deadline_s=3600.0)
            took_s = time.monotonic() - started
            written = (folder / "requests.jsonl").stat().st_size
        finally:
            server.terminate()
            server.wait(10)
            if server.stdout is not None:
                server.stdout.close()
    report = result.report
    if report is None or not result.complete:
        print(f"the run ended as {result.state}")
        return 1
    for tokens, mib in seen:
        print(f"  {tokens:>12,} tokens  {mib:7.1f} MiB")
    made = report.requests_done * args.per_request
    half = [mib for tokens, mib in seen if tokens >= made / 2]
    growth = half[-1] - half[0] if len(half) > 1 else None
    peak = report.peak_rss_bytes / 2**20
    print(
        f"{made:,} tokens in {took_s:.1f} s, {report.requests_failed} failed, "
        f"{report.cpu_s / made * 1000:.4f} CPU s per 1,000, "
        f"{written / 2**20:.0f} MiB of records"
    )
    shown = "missing" if growth is None else f"{growth:+.1f} MiB"
    print(f"peak {peak:.1f} MiB (limit {LIMIT_MIB:.0f}), growth over the second half {shown}")
    return 0 if peak < LIMIT_MIB and report.requests_failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
