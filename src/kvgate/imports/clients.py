"""AIPerf, GuideLLM and inference-perf: one object a request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from kvgate.imports.imported import (
    UNKNOWN_PROMPT,
    Imported,
    Source,
    count,
    kind,
    ns,
    ns_or_none,
    number,
    record,
    totals_of,
)
from kvgate.record import Lack, Outcome, RequestRecord

_NEVER: Final = frozenset({Lack.CLIENT_HEALTH, Lack.COUNTERS})
_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def aiperf(source: Source, _part: int | None) -> Imported:
    """AIPerf's ``profile_export.jsonl``: one line a request, wall-clock times in ns."""
    rows = source.lines()
    records: list[RequestRecord] = []
    warmups = 0
    for number_, row in enumerate(rows, 1):
        about, metrics = row.get("metadata"), row.get("metrics")
        if not isinstance(about, Mapping) or not isinstance(metrics, Mapping):
            raise source.fault("not a line of AIPerf's profile_export.jsonl", number_)
        if (about.get("benchmark_phase") or about.get("credit_phase")) == "warmup":
            warmups += 1
            continue
        records.append(_aiperf_request(source, number_, row, about, metrics))
    notes = (f"{warmups} warm-up requests left out",) if warmups else ()
    lacks = _NEVER | {Lack.PROMPT_IDENTITY, Lack.WHOLE_ANSWERS, Lack.CLOCK}
    if any("usage_completion_tokens" not in (row.get("metrics") or {}) for row in rows):
        lacks = lacks | {Lack.TOKEN_COUNTS}
    return Imported("AIPerf", tuple(records), None, {}, lacks, notes)


def _aiperf_request(
    source: Source,
    line: int,
    row: Mapping[str, Any],
    about: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> RequestRecord:
    start = count(about.get("request_start_ns") or about.get("timestamp_ns"))
    if start is None:
        raise source.fault("a request without a start time", line)
    outcome, told = Outcome.OK, None
    fault = row.get("error")
    if about.get("was_cancelled") is True:
        outcome, told = Outcome.INTERRUPTED, "cancelled by the client"
    elif isinstance(fault, Mapping):
        code = count(fault.get("code"))
        told = str(fault.get("message") or fault.get("type") or "error")[:300]
        outcome = _by_status(code)
        if fault.get("type") == "RequestCancellationError":
            outcome = Outcome.INTERRUPTED
    gaps = _measured(metrics, "inter_chunk_latency")
    tokens = metrics.get("usage_completion_tokens") or metrics.get("output_token_count")
    prompt = metrics.get("usage_prompt_tokens") or metrics.get("input_sequence_length")
    return record(
        request_id=str(about.get("x_request_id") or f"import-{line}"),
        load_host=str(about.get("worker_id") or "unknown"),
        start_ns=start,
        ttft_s=_one(_measured(metrics, "time_to_first_token")),
        gaps_s=gaps,
        end_ns=count(about.get("request_end_ns")),
        intended_ns=count(about.get("credit_issued_ns")),
        prompt_tokens=_whole(prompt),
        output_tokens=_whole(tokens),
        cached_tokens=_whole(metrics.get("usage_prompt_cache_read_tokens")),
        outcome=outcome,
        error=told,
    )


def _measured(metrics: Mapping[str, Any], name: str) -> list[float | None]:
    """A metric's values in seconds, by the unit that stands beside them; [] where it is missing."""
    found = metrics.get(name)
    if not isinstance(found, Mapping):
        return []
    factor = _UNIT_S.get(str(found.get("unit")))
    values = found.get("value")
    if factor is None:
        return []
    listed = values if isinstance(values, list) else [values]
    return [None if (v := number(x)) is None else v * factor for x in listed]


def _one(values: Sequence[float | None]) -> float | None:
    return values[0] if len(values) == 1 else None


def _whole(metric: object) -> int | None:
    return count(metric.get("value")) if isinstance(metric, Mapping) else None


def _by_status(code: int | None) -> Outcome:
    if code is not None and 400 <= code < 500:
        return Outcome.HTTP_4XX
    return Outcome.HTTP_5XX if code is not None and 500 <= code < 600 else Outcome.ERROR_EVENT


def guidellm(source: Source, part: int | None) -> Imported:
    """One benchmark of GuideLLM's ``benchmarks.json``; wall-clock times in s."""
    benchmarks = source.object().get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise source.fault("no `benchmarks` of GuideLLM in it")
    if part is None and len(benchmarks) > 1:
        last = len(benchmarks) - 1
        raise source.fault(f"holds {len(benchmarks)} benchmarks: say which with `part = 0..{last}`")
    if (part or 0) >= len(benchmarks):
        raise source.fault(f"holds {len(benchmarks)} benchmarks, `part = {part}` is not among them")
    one = benchmarks[part or 0]
    groups = one.get("requests") if isinstance(one, Mapping) else None
    lacks = _NEVER | {Lack.PROMPT_IDENTITY, Lack.WHOLE_ANSWERS, Lack.CLOCK, Lack.TOKEN_TIMES}
    lists = {
        name: groups.get(name)
        for name in ("successful", "errored", "incomplete")
        if isinstance(groups, Mapping) and isinstance(groups.get(name), list)
    }
    if not lists:
        totals = _guidellm_totals(one)
        if not totals:
            raise source.fault("neither requests nor figures of GuideLLM are in it")
        return Imported("GuideLLM", (), None, totals, lacks | {Lack.REQUESTS, Lack.ISSUE_TIMES})
    outcomes = {
        "successful": Outcome.OK,
        "errored": Outcome.ERROR_EVENT,
        "incomplete": Outcome.INTERRUPTED,
    }
    records = tuple(
        _guidellm_request(source, i, row, outcomes[name])
        for name, rows in lists.items()
        for i, row in enumerate(rows or [])
    )
    return Imported("GuideLLM", records, None, {}, lacks)


def _guidellm_totals(one: object) -> dict[str, float]:
    metrics = one.get("metrics") if isinstance(one, Mapping) else None
    totals: dict[str, float] = {}
    for ours, theirs, factor in (
        ("ttft_p50_s", "time_to_first_token_ms", 1e-3),
        ("itl_p50_s", "inter_token_latency_ms", 1e-3),
        ("output_tok_per_s", "output_tokens_per_second", 1.0),
    ):
        group = metrics.get(theirs) if isinstance(metrics, Mapping) else None
        good = group.get("successful") if isinstance(group, Mapping) else None
        key = "mean" if ours == "output_tok_per_s" else "median"
        if isinstance(good, Mapping):
            totals |= totals_of(good, {ours: (key, factor)})
    return totals


def _guidellm_request(source: Source, i: int, row: object, outcome: Outcome) -> RequestRecord:
    if not isinstance(row, Mapping):
        raise source.fault(f"request {i} must be an object, found {kind(row)}")
    start = number(row.get("request_start_time"))
    info = row.get("info") if isinstance(row.get("info"), Mapping) else {}
    if start is None and outcome is Outcome.OK:
        raise source.fault(f"request {i} has no request_start_time")
    ttft_ms = number(row.get("time_to_first_token_ms"))
    timings = info.get("timings") if isinstance(info, Mapping) else None
    targeted = number(timings.get("targeted_start")) if isinstance(timings, Mapping) else None
    told = info.get("error") if isinstance(info, Mapping) else None
    return record(
        request_id=str(row.get("request_id") or f"import-{outcome}-{i}"),
        load_host="unknown",
        start_ns=ns(start or 0.0),
        ttft_s=None if ttft_ms is None else ttft_ms * 1e-3,
        gaps_s=(),
        end_ns=ns_or_none(number(row.get("request_end_time"))),
        intended_ns=ns_or_none(targeted),
        prompt_tokens=count(row.get("prompt_tokens")),
        output_tokens=count(row.get("output_tokens")),
        cached_tokens=count(row.get("cached_tokens")),
        outcome=outcome,
        error=None if not told else str(told)[:300],
    )


def inference_perf(source: Source, _part: int | None) -> Imported:
    """inference-perf's ``per_request_lifecycle_metrics.json``; monotonic times in s.

    It keeps request and response, so prompts are told apart and a cut-off stream is seen.
    """
    rows = source.document()
    if not isinstance(rows, list) or not rows:
        raise source.fault("not inference-perf's per_request_lifecycle_metrics.json")
    records = tuple(_inference_perf_request(source, i, row) for i, row in enumerate(rows))
    lacks = set(_NEVER)
    if any(r.prompt_digest == UNKNOWN_PROMPT for r in records):
        lacks.add(Lack.PROMPT_IDENTITY)
    if any(not (isinstance(row, Mapping) and row.get("response")) for row in rows):
        lacks.add(Lack.WHOLE_ANSWERS)
    return Imported("inference-perf", records, None, {}, frozenset(lacks))


def _inference_perf_request(source: Source, i: int, row: object) -> RequestRecord:
    start = number(row.get("start_time")) if isinstance(row, Mapping) else None
    if not isinstance(row, Mapping) or start is None:
        raise source.fault(f"request {i} has no start_time")
    info = row.get("info")
    answer = info.get("response_metrics") if isinstance(info, Mapping) else None
    answer = answer if isinstance(answer, Mapping) else {}
    times = answer.get("output_token_times")
    stamps = [number(t) for t in times] if isinstance(times, list) else []
    usage = answer.get("server_usage") if isinstance(answer.get("server_usage"), Mapping) else {}
    outcome, told = Outcome.OK, row.get("error")
    response, request = row.get("response"), row.get("request")
    if told:
        outcome = Outcome.ERROR_EVENT
    elif isinstance(response, str) and response and "data: [DONE]" not in response[-200:]:
        outcome, told = Outcome.TRUNCATED, "the stream has no [DONE]"
    first = stamps[0] if stamps else None
    gaps = [None if a is None or b is None else b - a for a, b in pairwise(stamps)]
    return record(
        request_id=f"import-{i}",
        load_host="unknown",
        start_ns=ns(start),
        ttft_s=None if first is None else first - start,
        gaps_s=gaps,
        end_ns=ns_or_none(number(row.get("end_time"))),
        prompt_tokens=count((usage or {}).get("prompt_tokens")),
        output_tokens=count((usage or {}).get("completion_tokens")),
        outcome=outcome,
        error=None if not told else str(told)[:300],
        prompt_digest=hashlib.sha256(request.encode()).hexdigest()
        if isinstance(request, str) and request
        else UNKNOWN_PROMPT,
    )
