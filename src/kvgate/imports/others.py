"""evalscope (totals only) and LMCache's multi-round question answering (CSV)."""

from __future__ import annotations

import csv
import io
from typing import Final

from kvgate.imports.imported import (
    Imported,
    Source,
    count,
    ns,
    ns_or_none,
    number,
    record,
    totals_of,
)
from kvgate.record import Lack, Outcome, RequestRecord

_ALL_BUT_CLOCK: Final = frozenset(set(Lack) - {Lack.CLOCK})
_LMCACHE: Final = (
    "prompt_tokens", "generation_tokens", "ttft", "generation_time", "launch_time", "finish_time",
)  # fmt: skip


def evalscope(source: Source, _part: int | None) -> Imported:
    """evalscope's ``benchmark_percentile.json``: percentiles, no requests."""
    rows = source.document()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise source.fault("not evalscope's benchmark_percentile.json")
    by_name = {str(row.get("Percentiles")): row for row in rows}
    totals: dict[str, float] = {}
    for label, suffix in (("50%", "p50"), ("99%", "p99")):
        totals |= totals_of(
            by_name.get(label, {}),
            {
                f"ttft_{suffix}_s": ("TTFT (ms)", 1e-3),
                f"itl_{suffix}_s": ("ITL (ms)", 1e-3),
                f"tpot_{suffix}_s": ("TPOT (ms)", 1e-3),
                f"e2e_{suffix}_s": ("Latency (s)", 1.0),
            },
        )
    if not totals:
        raise source.fault("no percentile of evalscope is in it")
    return Imported("evalscope", (), None, totals, _ALL_BUT_CLOCK)


def lmcache_multi_round(source: Source, _part: int | None) -> Imported:
    """The CSV of LMCache's multi-round question answering: one row a request, times in s."""
    table = csv.DictReader(io.StringIO(source.text()))
    missing = [name for name in _LMCACHE if name not in (table.fieldnames or ())]
    if missing:
        raise source.fault(f"columns are missing: {', '.join(missing)}")
    try:
        records = tuple(_row(i, {k: _cell(row.get(k)) for k in _LMCACHE})
                        for i, row in enumerate(table))  # fmt: skip
    except csv.Error as fault:
        raise source.fault(f"not CSV: {fault}") from None
    if not records:
        raise source.fault("the table has no rows")
    lacks = frozenset(set(Lack) - {Lack.REQUESTS, Lack.ISSUE_TIMES})
    return Imported("LMCache multi-round-qa", records, None, {}, lacks)


def _cell(text: str | None) -> float | None:
    try:
        return number(float(text or ""))
    except ValueError:
        return None


def _row(i: int, row: dict[str, float | None]) -> RequestRecord:
    launched = row["launch_time"]
    return record(
        request_id=f"import-{i}",
        load_host="unknown",
        start_ns=ns(launched or 0.0),
        ttft_s=row["ttft"] if launched is not None else None,
        gaps_s=(),
        end_ns=ns_or_none(row["finish_time"]),
        prompt_tokens=count(row["prompt_tokens"]),
        output_tokens=count(row["generation_tokens"]),
        outcome=Outcome.OK,
    )
