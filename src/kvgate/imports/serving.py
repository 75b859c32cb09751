"""vLLM's ``bench serve`` and SGLang's ``bench_serving``: one list per metric, one entry a request.

Units: the lists are in seconds, the totals in milliseconds. Without their options for details both
write totals only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvgate.imports.imported import Imported, Source, count, kind, ns, number, record, totals_of
from kvgate.record import Lack, Outcome, RequestRecord

_NEVER: Final = frozenset(
    {
        Lack.PROMPT_IDENTITY,
        Lack.WHOLE_ANSWERS,
        Lack.CLIENT_HEALTH,
        Lack.COUNTERS,
        Lack.TOKEN_COUNTS,
    }
)
_MS: Final = 1e-3
_TOTALS: Final = {
    "ttft_p50_s": ("median_ttft_ms", _MS),
    "ttft_p99_s": ("p99_ttft_ms", _MS),
    "tpot_p50_s": ("median_tpot_ms", _MS),
    "itl_p50_s": ("median_itl_ms", _MS),
    "itl_p99_s": ("p99_itl_ms", _MS),
    "output_tok_per_s": ("output_throughput", 1.0),
    "duration_s": ("duration", 1.0),
    "requests_completed": ("completed", 1.0),
}


def vllm_bench(source: Source, _part: int | None) -> Imported:
    """A file of ``vllm bench serve --save-result [--save-detailed]``."""
    return _serving(source, "vllm bench serve", source.object())


def sglang_bench(source: Source, part: int | None) -> Imported:
    """One line of the file to which SGLang's ``bench_serving`` appends its runs."""
    runs = source.lines()
    if part is None and len(runs) > 1:
        raise source.fault(f"holds {len(runs)} runs: say which with `part = 0..{len(runs) - 1}`")
    if part is not None and part >= len(runs):
        raise source.fault(f"holds {len(runs)} runs, `part = {part}` is not among them")
    return _serving(source, "sglang bench_serving", runs[part or 0])


def _serving(source: Source, tool: str, run: Mapping[str, Any]) -> Imported:
    totals = totals_of(run, _TOTALS)
    planned = count(run.get("num_prompts"))
    if run.get("ttfts") is None:
        if not totals:
            raise source.fault(f"no figure of {tool} is in it")
        lacks = _NEVER | {Lack.REQUESTS, Lack.ISSUE_TIMES, Lack.TOKEN_TIMES}
        return Imported(tool, (), planned, totals, lacks)
    columns = {name: _column(source, run, name) for name in ("ttfts", "itls", "output_lens")}
    n = len(columns["ttfts"])
    for name in ("input_lens", "start_times", "errors"):
        columns[name] = _column(source, run, name) if run.get(name) is not None else [None] * n
    uneven = {name: len(column) for name, column in columns.items() if len(column) != n}
    if uneven:
        name, length = next(iter(uneven.items()))
        raise source.fault(f"`{name}` has {length} entries, `ttfts` has {n}: the file is cut off")
    records = tuple(_request(i, {k: c[i] for k, c in columns.items()}) for i in range(n))
    lacks = _NEVER
    notes: tuple[str, ...] = ()
    if any(number(t) is None for t in columns["start_times"]):
        lacks = lacks | {Lack.ISSUE_TIMES}
    whole = [r for r in records if r.outcome is Outcome.OK]
    if whole and all(len(r.token_ns) == 1 for r in whole if (r.output_tokens or 0) > 1):
        lacks = lacks | {Lack.TOKEN_TIMES}
    claimed = count(run.get("completed"))
    if claimed is not None and claimed != len(whole):
        notes = (f"the tool counted {claimed} completed requests, {len(whole)} have tokens",)
    return Imported(tool, records, planned if planned is not None else n, totals, lacks, notes)


def _column(source: Source, run: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = run.get(name)
    if not isinstance(found, list):
        raise source.fault(f"`{name}` must be a list, found {kind(found)}")
    return found


def _request(i: int, row: Mapping[str, Any]) -> RequestRecord:
    gaps = row["itls"] if isinstance(row["itls"], list) else []
    told = row["errors"] if isinstance(row["errors"], str) and row["errors"] else None
    tokens = count(row["output_lens"])
    ttft = number(row["ttfts"])
    outcome = Outcome.OK if told is None else Outcome.ERROR_EVENT
    if outcome is Outcome.OK and tokens is not None and tokens > 1 and not gaps and ttft:
        # A first token and no other time: the whole body came at once.
        outcome, told = Outcome.NOT_STREAMED, "several tokens and no gap between them"
    return record(
        request_id=f"import-{i}",
        load_host="unknown",
        start_ns=ns(number(row["start_times"]) or 0.0),
        ttft_s=ttft,
        gaps_s=[number(gap) for gap in gaps],
        end_ns=None,
        prompt_tokens=count(row["input_lens"]),
        output_tokens=tokens,
        outcome=outcome,
        error=None if told is None else told[:300],
    )
