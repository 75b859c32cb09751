"""The load process: ``python -m kvgate.load.client JOB.json``.

It imports neither numpy, pandas nor pyarrow, so that it starts fast and stays small. Exit codes:
0 the block ran (requests may have failed), 2 the job is wrong, 3 the load host cannot carry it,
4 the engine cannot be reached, 5 stopped by a signal; one line on standard error says why.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from kvgate import __version__
from kvgate.errors import CannotMeasure, UsageError
from kvgate.load.job import Job, read_job
from kvgate.load.links import Links, Unreachable
from kvgate.load.loop import LoadLoop
from kvgate.load.requests import RequestStock, parse_url, tls_context
from kvgate.load.spool import ProgressLines, RecordSpool
from kvgate.load.transport import Endpoint
from kvgate.record import ClientReport

EXIT_DONE: Final = 0
EXIT_USAGE: Final = 2
EXIT_CLIENT_FAULT: Final = 3
EXIT_UNREACHABLE: Final = 4
EXIT_INTERRUPTED: Final = 5
_SPARE_DESCRIPTORS: Final = 32


def main(argv: list[str] | None = None) -> int:
    """Run the job named on the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="kvgate.load.client")
    parser.add_argument("job", type=Path)
    parser.add_argument(
        "--stop-with-parent", action="store_true", help="end when the starting process is gone"
    )
    parser.add_argument(
        "--await-start",
        action="store_true",
        help="say `ready`, then read the start on CLOCK_MONOTONIC (ns) from standard input",
    )
    args = parser.parse_args(argv)
    parent = os.getppid() if args.stop_with_parent else None
    try:
        return _run(read_job(args.job), parent, await_start=args.await_start)
    except UsageError as fault:
        return _say(str(fault), EXIT_USAGE)
    except CannotMeasure as fault:
        return _say(str(fault), EXIT_CLIENT_FAULT)
    except Unreachable as fault:
        return _say(f"cannot reach the engine: {fault}", EXIT_UNREACHABLE)
    except OSError as fault:
        return _say(f"the load host failed: {fault}", EXIT_CLIENT_FAULT)


def _say(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


def ensure_descriptors(level: int) -> int:
    """Raise the soft limit to the hard one; returns it.

    Raises :class:`CannotMeasure` when the level does not fit: that is the load host's fault and
    must be known before the block.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    needed = level + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise CannotMeasure(
            f"client_fault: {level} requests in flight need {needed} file descriptors, "
            f"the hard limit is {soft}",
            where=platform.node(),
            remedy="raise `ulimit -Hn` on the load host",
        )
    return soft


def _run(job: Job, parent: int | None, *, await_start: bool) -> int:
    limit = ensure_descriptors(job.level)
    target = parse_url(job.url, job.endpoint)
    context = tls_context(job) if target.tls else None
    try:
        endpoint = Endpoint(target.host, target.port, context)
    except OSError as fault:
        raise Unreachable(f"{target.host}: {fault.strerror or fault}") from None
    stock = RequestStock(job, target, job.level)
    spool = RecordSpool(Path(job.records_path))
    links = Links(endpoint)
    loop = LoadLoop(job, links, stock, spool, ProgressLines(sys.stdout.fileno()), parent=parent)

    def stop(_signal: int, _frame: object) -> None:
        loop.stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # No cycles are made on the way of a token, and a collection would stall the loop.
    gc.collect()
    gc.freeze()
    gc.disable()
    start_up_s = _age_s()
    try:
        loop.prepare()
        used = resource.getrusage(resource.RUSAGE_SELF)
        start_at_ns = job.start_at_ns
        if await_start:
            start_at_ns = _awaited_start()
            loop.stop = loop.stop or start_at_ns is None
        state = loop.run(start_at_ns)
    finally:
        spool.close()
    _write_report(job, loop, links, state, limit, start_up_s, used)
    return EXIT_INTERRUPTED if state == "interrupted" else EXIT_DONE


def _awaited_start() -> int | None:
    """The common start of several processes, once all are ready; ``None`` when it is called off."""
    print('"ready"', flush=True)
    said = sys.stdin.readline().strip()
    return int(said) if said.isdigit() else None


def _age_s() -> float:
    """Seconds since this process was started, from the kernel's own record of it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def _peak_rss_bytes() -> int:
    """VmHWM: getrusage would carry over the size of the process that started this one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CannotMeasure("the kernel reports no VmHWM", where="/proc/self/status")


def _write_report(
    job: Job,
    loop: LoadLoop,
    links: Links,
    state: str,
    limit: int,
    start_up_s: float,
    before: resource.struct_rusage,
) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    clock, flights = loop.clock, loop.flights
    clock.offset.measure()
    report = ClientReport(
        state=state,
        started_ns=loop.started_ns,
        ended_ns=loop.ended_ns,
        requests_planned=job.requests,
        requests_done=loop.done,
        requests_failed=loop.failed,
        cpu_s=used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        wall_s=(loop.ended_ns - loop.started_ns) / 1e9,
        start_up_s=start_up_s,
        peak_rss_bytes=_peak_rss_bytes(),
        nofile_limit=limit,
        planned_in_flight=job.level,
        max_in_flight=flights.most,
        mean_in_flight=flights.mean,
        connections_opened=links.opened,
        reads=loop.reads,
        unstamped_reads=clock.unstamped,
        loop_stall_p99_ns=loop.stalls.quantile_ns(0.99),
        loop_stall_max_ns=loop.stalls.max_ns if loop.stalls.count else None,
        receive_lag_p99_ns=clock.lags.quantile_ns(0.99),
        receive_lag_max_ns=clock.lags.max_ns if clock.lags.count else None,
        clock_offset_start_ns=clock.offset.start_ns,
        clock_offset_end_ns=clock.offset.ns,
        clock_step_max_ns=clock.offset.largest_step_ns,
        clock_steps=clock.offset.steps,
        start_late_ns=loop.start_late_ns,
        requests_skipped=loop.skipped,
        versions={
            "kvgate": __version__,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "openssl": ssl.OPENSSL_VERSION,
            "msgspec": msgspec.__version__,
        },
    )
    Path(job.report_path).write_bytes(
        msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    )


if __name__ == "__main__":
    sys.exit(main())
