"""``kvgate load``: one block of load against one engine, from the command line."""

from __future__ import annotations

import platform
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from kvgate.commands.load_cold import Watched
from kvgate.commands.load_options import Arrivals, cold_plan, headers_of, metrics_of
from kvgate.commands.load_run import Plan, keep_only_table, measure, show
from kvgate.commands.load_search import find_highest
from kvgate.commands.shown import say
from kvgate.errors import UsageError
from kvgate.load.goodput import ServiceLevel, parse_service_level
from kvgate.load.job import (
    Closed,
    Job,
    Prompts,
    Trace,
)
from kvgate.load.trace import import_trace
from kvgate.load.workloads import Sizes, Workload, prompts_for

ENGINE: Final = "Engine"
LOAD: Final = "How much, when"
WORKLOAD: Final = "Workload"
COLD: Final = "Cold restore"
SEARCH: Final = "Search for the highest load within a service level"
CLIENT: Final = "Load host"
OUTPUT: Final = "Output"


class EndpointName(StrEnum):
    """Which of OpenAI's endpoints is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"


class SearchFor(StrEnum):
    """What a search turns up."""

    RATE = "rate"
    CONCURRENCY = "concurrency"


def _in(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def load_command(
    url: Annotated[str, _in(ENGINE, "Base URL.")],
    model: Annotated[str, _in(ENGINE, "Model name that the engine serves.")],
    out: Annotated[Path, _in(OUTPUT, "New folder for requests.parquet and summary.json.")],
    endpoint: Annotated[EndpointName, _in(ENGINE, "Which endpoint.")] = EndpointName.COMPLETIONS,
    text: Annotated[
        bool, _in(ENGINE, "Send text, its length checked with /tokenize (chat: always).")
    ] = False,
    token_ids: Annotated[bool, _in(ENGINE, "Ask for token ids (vLLM).")] = False,
    logprobs: Annotated[int | None, _in(ENGINE, "Keep tokens and logprobs.", min=0)] = None,
    header: Annotated[
        list[str] | None,
        _in(ENGINE, "NAME=VARIABLE: a header whose value is in the environment."),
    ] = None,
    ca_file: Annotated[Path | None, _in(ENGINE, "CA of an https engine.")] = None,
    engine_metrics: Annotated[
        str | None, _in(ENGINE, "Metrics page. Default: /metrics of the URL.")
    ] = None,
    engine_kind: Annotated[str, _in(ENGINE, "Whose metrics: vllm or sglang.")] = "vllm",
    concurrency: Annotated[
        int | None, _in(LOAD, "Requests in flight, all the time.", min=1)
    ] = None,
    rate: Annotated[float | None, _in(LOAD, "Arrivals per second instead.")] = None,
    poisson: Annotated[bool, _in(LOAD, "Arrivals at random instead of evenly.")] = False,
    ramp_from: Annotated[
        float | None, _in(LOAD, "Begin with this concurrency or rate, end with the one above.")
    ] = None,
    ramp_seconds: Annotated[float, _in(LOAD, "How long the ramp takes.")] = 60.0,
    speed: Annotated[float, _in(LOAD, "A trace so many times as fast.")] = 1.0,
    max_in_flight: Annotated[int, _in(LOAD, "Bound for a rate or a trace.", min=1)] = 1024,
    requests: Annotated[
        int | None, _in(LOAD, "Requests in all (at most, with a duration).", min=1)
    ] = None,
    duration: Annotated[float | None, _in(LOAD, "Issue for so many seconds.")] = None,
    warm_up: Annotated[
        int, _in(LOAD, "So many requests before, of a pool of their own, not measured.", min=0)
    ] = 0,
    request_deadline: Annotated[float, _in(LOAD, "Seconds.")] = 600.0,
    deadline: Annotated[float, _in(LOAD, "Seconds for the whole block.")] = 86400.0,
    workload: Annotated[Workload, _in(WORKLOAD, "What the requests are.")] = Workload.MISS_ONLY,
    prompt_tokens: Annotated[int | None, _in(WORKLOAD, "Length of each prompt.", min=1)] = None,
    output_tokens: Annotated[int | None, _in(WORKLOAD, "Length of each answer.", min=1)] = None,
    seed: Annotated[str, _in(WORKLOAD, "Prompts follow from seed and pool.")] = "kvgate",
    pool: Annotated[
        str | None,
        _in(WORKLOAD, "Name it to get the same prompts again. Default: a new one each time."),
    ] = None,
    first: Annotated[int, _in(WORKLOAD, "Number of the first prompt.", min=0)] = 0,
    vocab_low: Annotated[int, _in(WORKLOAD, "Lowest token id.", min=0)] = 1000,
    vocab_high: Annotated[int, _in(WORKLOAD, "Token ids are below it.", min=1)] = 30000,
    block_tokens: Annotated[
        int, _in(WORKLOAD, "Smallest piece that the engine's cache keeps.", min=1)
    ] = 16,
    hit_ratio: Annotated[
        float, _in(WORKLOAD, "shared-prefix: share of prompt tokens that repeat.")
    ] = 0.5,
    prefixes: Annotated[int, _in(WORKLOAD, "shared-prefix: how many.", min=1)] = 1,
    prefix_order: Annotated[
        str, _in(WORKLOAD, "shared-prefix, long-documents: round, runs or shuffled.")
    ] = "round",
    turns: Annotated[int, _in(WORKLOAD, "multi-turn: requests of a conversation.", min=1)] = 4,
    user_tokens: Annotated[
        int, _in(WORKLOAD, "multi-turn: what the user adds in each turn.", min=1)
    ] = 64,
    think: Annotated[
        float, _in(WORKLOAD, "multi-turn: seconds between answer and next turn.", min=0)
    ] = 0.0,
    documents: Annotated[int, _in(WORKLOAD, "long-documents: how many.", min=1)] = 8,
    question_tokens: Annotated[
        int, _in(WORKLOAD, "long-documents: end of the prompt that is new each time.", min=1)
    ] = 64,
    trace: Annotated[
        Path | None, _in(WORKLOAD, "trace: Mooncake's JSON lines or Azure's CSV.")
    ] = None,
    max_tokens: Annotated[
        int | None, _in(WORKLOAD, "trace: leave out requests longer than the engine takes.", min=2)
    ] = None,
    make_cold: Annotated[
        str | None,
        _in(COLD, "URL or path to POST to (/reset_prefix_cache, /flush_cache), or a command."),
    ] = None,
    store_metrics: Annotated[
        str | None, _in(COLD, "Store's metrics page: proves that it holds what was primed.")
    ] = None,
    store_kind: Annotated[str, _in(COLD, "Whose: lmcache or kvstore.")] = "lmcache",
    kv_bytes_per_token: Annotated[
        int | None, _in(COLD, "For a store that counts bytes only.", min=1)
    ] = None,
    settle: Annotated[float, _in(COLD, "Seconds to wait for the store at most.", min=0)] = 60.0,
    search: Annotated[SearchFor | None, _in(SEARCH, "What to turn up.")] = None,
    sla: Annotated[
        list[str] | None,
        _in(SEARCH, "METRIC=SECONDS for each request: ttft, ttft_text, tpot, e2e. Repeatable."),
    ] = None,
    sla_share: Annotated[float, _in(SEARCH, "Share of all requests that must keep it.")] = 0.99,
    search_low: Annotated[float, _in(SEARCH, "Where to begin.")] = 1.0,
    search_high: Annotated[float, _in(SEARCH, "Where to end at the latest.")] = 256.0,
    search_tolerance: Annotated[float, _in(SEARCH, "Stop within this share.")] = 0.05,
    processes: Annotated[
        int, _in(CLIENT, "Load processes that share the work and start together.", min=1)
    ] = 1,
    json_output: Annotated[bool, _in(OUTPUT, "Print the summary only.", "--json")] = False,
) -> None:
    """Load an engine and record each request.

    Exit code 0: all requests succeeded; 1: some failed; 11: nothing was measured, the run is
    partial, or it is not proved to be what its workload says.
    """
    given_trace = trace if workload is Workload.TRACE else None
    if (workload is Workload.TRACE) != (trace is not None):
        raise UsageError("--workload trace and --trace FILE go together")
    pool = pool or f"load-{time.time_ns():x}"
    base = Prompts(
        seed=seed, pool=pool, first=first, count=1, tokens=1,
        vocab_low=vocab_low, vocab_high=vocab_high,
    )  # fmt: skip
    if vocab_high <= vocab_low:
        raise UsageError("--vocab-high must be above --vocab-low")
    _refuse_earlier(out)
    if given_trace is not None:
        out.mkdir(parents=True, exist_ok=True)
        found = import_trace(given_trace, out / "trace.jsonl", limit=requests, longest=max_tokens)
        if not json_output:
            say(
                f"{found.requests} requests over {found.lasts_s:.6g} s, up to "
                f"{found.longest_input} tokens in and {found.longest_output} out; "
                f"{found.left_out} left out as too long"
            )
        prompts = msgspec.structs.replace(
            base,
            count=found.requests,
            tokens=found.longest_input,
            shape=Trace(str(out / "trace.jsonl")),
        )
        output_tokens = found.longest_output
    else:
        needed = {
            "requests": requests, "prompt-tokens": prompt_tokens, "output-tokens": output_tokens,
        }  # fmt: skip
        missing = [f"--{name}" for name, value in needed.items() if value is None]
        if missing or requests is None or prompt_tokens is None:
            raise UsageError(f"the workload {workload.value} needs {', '.join(missing)}")
        prompts = prompts_for(
            workload,
            base,
            Sizes(
                prompt_tokens=prompt_tokens,
                requests=requests,
                hit_ratio=hit_ratio,
                prefixes=prefixes,
                order=prefix_order,
                block_tokens=block_tokens,
                turns=turns,
                user_tokens=user_tokens,
                think_s=think,
                documents=documents,
                question_tokens=question_tokens,
            ),
        )
    assert output_tokens is not None
    clock = Arrivals(concurrency, rate, poisson, ramp_from, ramp_seconds, speed, max_in_flight,
                      seed, replay=given_trace is not None)  # fmt: skip
    by_text = text or endpoint is EndpointName.CHAT
    job = Job(
        url=url,
        model=model,
        arrival=clock.searched() if search is not None else clock.arrival(),
        prompts=prompts,
        output_tokens=output_tokens,
        request_deadline_s=request_deadline,
        block_deadline_s=deadline,
        records_path="",
        report_path="",
        load_host=platform.node(),
        request_id_prefix=f"{pool}-{time.time_ns():x}",
        endpoint="chat" if endpoint is EndpointName.CHAT else "completions",
        logprobs=logprobs,
        ask_token_ids=token_ids or (workload is Workload.MULTI_TURN and not by_text),
        duration_s=duration,
        header_env=headers_of(header or []),
        ca_file=None if ca_file is None else str(ca_file),
    )
    plan = Plan(
        job=job,
        workload=workload,
        block_tokens=block_tokens,
        processes=processes,
        warm_up=warm_up,
        by_text=by_text,
        engine=Watched(engine_metrics or metrics_of(url), engine_kind),
        cold=cold_plan(workload, make_cold, store_metrics, store_kind, kv_bytes_per_token, settle),
    )
    if search is not None:
        code = _search(
            plan,
            clock,
            search,
            parse_service_level(sla or [], sla_share),
            (search_low, search_high, search_tolerance),
            out,
            quiet=json_output,
        )
        raise typer.Exit(code)
    measured = measure(plan, out)
    keep_only_table(measured)
    if json_output:
        sys.stdout.write((out / "summary.json").read_text())
    else:
        show(measured, out)
    raise typer.Exit(measured.exit_code)


def _search(
    plan: Plan,
    clock: Arrivals,
    what: SearchFor,
    level: ServiceLevel,
    span: tuple[float, float, float],
    out: Path,
    *,
    quiet: bool,
) -> int:
    if plan.workload is Workload.TRACE:
        raise UsageError("a trace has its own times: use --speed instead of --search")
    low, high, tolerance = span
    if what is SearchFor.CONCURRENCY:
        low, high = float(round(low)), float(round(high))
    out.mkdir(parents=True, exist_ok=True)
    _, code = find_highest(
        plan,
        level,
        clock.of_rate if what is SearchFor.RATE else lambda value: Closed(round(value)),
        what=what.value,
        low=low,
        high=high,
        tolerance=tolerance,
        out=out,
        quiet=quiet,
    )
    if quiet:
        sys.stdout.write((out / "search.json").read_text())
    return code


def _refuse_earlier(out: Path) -> None:
    if any((out / name).exists() for name in ("requests.parquet", "requests.jsonl", "search.json")):
        raise UsageError("holds an earlier run", where=str(out), remedy="name another --out")
