"""``kvgate load``: one block of load against one engine, from the command line."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from kvgate.analyse.block import BlockStatistics, block_statistics
from kvgate.errors import EXIT_FAIL, EXIT_INVALID, EXIT_PASS, KvgateError, UsageError
from kvgate.evidence.tables import read_requests, write_requests
from kvgate.load.job import Arrival, Closed, Constant, Job, Poisson, Progress, Prompts
from kvgate.load.run import LoadResult, run_load
from kvgate.load.texts import fetch_texts

_ROWS = (
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
    ("unique prompts", "unique_prompts", ""),
)


class EndpointName(StrEnum):
    """Which of OpenAI's endpoints is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"


def load_command(
    url: Annotated[str, typer.Option(help="Base URL of the engine.")],
    model: Annotated[str, typer.Option(help="Model name that the engine serves.")],
    requests: Annotated[int, typer.Option(min=1, help="Requests in all (at most, with duration).")],
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of each prompt.")],
    output_tokens: Annotated[int, typer.Option(min=1, help="Length of each answer.")],
    out: Annotated[Path, typer.Option(help="New folder for requests.parquet and summary.json.")],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests in flight, all the time.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Arrivals per second instead.")] = None,
    poisson: Annotated[bool, typer.Option(help="Arrivals at random instead of evenly.")] = False,
    max_in_flight: Annotated[int, typer.Option(min=1, help="Bound for a rate.")] = 1024,
    duration: Annotated[float | None, typer.Option(help="Issue for so many seconds.")] = None,
    endpoint: EndpointName = EndpointName.COMPLETIONS,
    seed: Annotated[str, typer.Option(help="Prompts follow from seed and pool.")] = "kvgate",
    pool: Annotated[
        str, typer.Option(help="A pool that the engine has seen is no longer cold.")
    ] = "load",
    first: Annotated[int, typer.Option(min=0, help="Number of the first prompt.")] = 0,
    vocab_low: Annotated[int, typer.Option(min=0)] = 1000,
    vocab_high: Annotated[int, typer.Option(min=1)] = 30000,
    text: Annotated[
        bool, typer.Option(help="Send text, its length checked with /tokenize (chat: always).")
    ] = False,
    logprobs: Annotated[int | None, typer.Option(min=0, help="Keep tokens and logprobs.")] = None,
    token_ids: Annotated[bool, typer.Option(help="Ask for token ids (vLLM).")] = False,
    request_deadline: Annotated[float, typer.Option(help="Seconds.")] = 600.0,
    deadline: Annotated[float, typer.Option(help="Seconds for the whole block.")] = 86400.0,
    header: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VARIABLE: a header whose value is in the environment."),
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="CA of an https engine.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print summary.json only.")] = False,
) -> None:
    """Load an engine and record each request.

    Exit code 0: all requests succeeded; 1: some failed; 11: nothing was measured or the run is
    partial.
    """
    arrival = _arrival(concurrency, rate, poisson, max_in_flight, seed)
    prompts = Prompts(
        seed=seed,
        pool=pool,
        first=first,
        count=requests,
        tokens=prompt_tokens,
        vocab_low=vocab_low,
        vocab_high=vocab_high,
    )
    if vocab_high <= vocab_low:
        raise UsageError("--vocab-high must be above --vocab-low")
    job = Job(
        url=url,
        model=model,
        arrival=arrival,
        prompts=prompts,
        output_tokens=output_tokens,
        request_deadline_s=request_deadline,
        block_deadline_s=deadline,
        records_path=str(out / "requests.jsonl"),
        report_path=str(out / "client.json"),
        load_host=platform.node(),
        request_id_prefix=f"{pool}-{time.time_ns():x}",
        endpoint="chat" if endpoint is EndpointName.CHAT else "completions",
        logprobs=logprobs,
        ask_token_ids=token_ids,
        duration_s=duration,
        header_env=_headers(header or []),
        ca_file=None if ca_file is None else str(ca_file),
    )
    code = run_and_report(job, out, by_text=text, json_output=json_output)
    raise typer.Exit(code)


def run_and_report(job: Job, out: Path, *, by_text: bool, json_output: bool) -> int:
    """Run a job, leave ``requests.parquet`` and ``summary.json`` in ``out``; the exit code.

    Raises :class:`UsageError` when ``out`` holds an earlier run.
    """
    if (out / "requests.parquet").exists() or (out / "requests.jsonl").exists():
        raise UsageError("holds an earlier run", where=str(out), remedy="name another --out")
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    if by_text or job.endpoint == "chat":
        path = out / "texts.jsonl"
        fetch_texts(job, path)
        job = msgspec.structs.replace(job, texts_path=str(path))
    with console.status("connecting") as status:

        def show(progress: Progress) -> None:
            status.update(
                f"{progress.done} of {job.prompts.count} done, {progress.failed} failed, "
                f"{progress.in_flight} in flight"
            )

        result = run_load(job, out, on_progress=show, deadline_s=job.block_deadline_s + 60)
    write_requests(result.records_path, out / "requests.parquet")
    statistics = block_statistics(
        read_requests(out / "requests.parquet"), job.arrival.planned_in_flight
    )
    result.records_path.unlink()
    summary = _summary(job, result, statistics)
    line = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    (out / "summary.json").write_bytes(line + b"\n")
    if json_output:
        print(line.decode())
    else:
        _print(Console(), result, statistics, out)
    if statistics.n_ok == 0 or not result.complete or statistics.n_impossible:
        return EXIT_INVALID
    return EXIT_FAIL if statistics.failed_by_outcome else EXIT_PASS


def _arrival(
    concurrency: int | None, rate: float | None, poisson: bool, max_in_flight: int, seed: str
) -> Arrival:
    if (concurrency is None) == (rate is None):
        raise UsageError("give either --concurrency or --rate")
    if concurrency is not None:
        return Closed(concurrency)
    assert rate is not None
    if rate <= 0:
        raise UsageError("--rate must be above 0")
    if poisson:
        return Poisson(rate, seed, max_in_flight)
    return Constant(rate, max_in_flight)


def _headers(given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given:
        name, equals, variable = text.partition("=")
        if not name or not equals or not variable:
            raise UsageError(f"--header {text!r} is not NAME=VARIABLE")
        headers[name] = variable
    return headers


def _summary(job: Job, result: LoadResult, statistics: BlockStatistics) -> dict[str, Any]:
    return {
        "schema": "kvgate.load/1",
        "state": result.state,
        "job": job,
        "statistics": asdict(statistics),
        "client": result.report,
    }


def _print(console: Console, result: LoadResult, statistics: BlockStatistics, out: Path) -> None:
    table = Table(title=f"{statistics.n_ok} of {statistics.n_requests} requests good")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("unit")
    values = asdict(statistics)
    for title, name, unit in _ROWS:
        value = values[name]
        shown = "missing" if value is None else f"{value:.6g}" if unit else f"{value:,.6g}"
        table.add_row(title, shown, unit)
    for kind, count in statistics.failed_by_outcome.items():
        table.add_row(f"failed: {kind}", str(count), "requests")
    if statistics.n_impossible:
        table.add_row("impossible records", str(statistics.n_impossible), "requests")
    report = result.report
    if report is not None and report.receive_lag_p99_ns is not None:
        table.add_row("client read lag p99", f"{report.receive_lag_p99_ns / 1e6:.3f}", "ms")
        table.add_row("client CPU", f"{report.cpu_s / max(report.wall_s, 1e-9):.0%}", "of a core")
    console.print(table)
    if not result.complete:
        console.print(f"PARTIAL: the run ended as {result.state}")
    console.print(f"{out / 'requests.parquet'}", soft_wrap=True)


def main(argv: list[str] | None = None) -> int:
    """Run ``kvgate load`` with these arguments; returns the exit code."""
    app = typer.Typer(add_completion=False)
    app.command()(load_command)
    try:
        code: Any = app(argv, prog_name="kvgate load", standalone_mode=False)
    except KvgateError as fault:
        Console(stderr=True).print(str(fault), soft_wrap=True, markup=False)
        return fault.exit_code
    except typer.Abort:
        return EXIT_INVALID
    except Exception as fault:
        # Typer's own complaints about options, which carry their text and exit code.
        show = getattr(fault, "show", None)
        if show is None:
            raise
        show()
        return int(getattr(fault, "exit_code", 2))
    return int(code or 0)
