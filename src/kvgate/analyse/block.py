"""One block's requests to one row of numbers. Failed requests are counted and enter nothing else.

Quantiles are Hyndman and Fan's type 7 (numpy's ``linear``). The metrics' formulas stand in
:mod:`kvgate.record`; here they are applied to a whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvgate.record import DECODE, E2E, NS_PER_S, QUEUE, TTFT, TTFT_TEXT, Duration, Outcome

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_IN_ORDER: Final = (
    ("sent_ns", "first_byte_ns"),
    ("first_byte_ns", "first_token_ns"),
    ("first_token_ns", "last_token_ns"),
    ("last_token_ns", "end_ns"),
    ("intended_ns", "sent_ns"),
)


@dataclass(frozen=True, slots=True)
class BlockStatistics:
    """Numbers of one block; ``None`` where there is no data, never zero.

    Latencies (s), token counts and rates come from the ``n_ok`` good requests alone.
    ``n_impossible`` counts requests that call themselves good but have no token, no first token
    time, or times out of order: such a block is INVALID. ITL is known only where every token has a
    stamp of its own (``itl_share`` of the good requests); the chunk gap always is.
    ``output_tok_per_s`` and ``mean_in_flight_in_window`` belong to the steady window of
    ``window_s``, from the level-th completion to the last issue.
    """

    level: int
    n_requests: int
    n_ok: int
    n_impossible: int
    failed_by_outcome: dict[str, int]
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_text_p50_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    itl_share: float | None
    chunk_gap_p50_s: float | None
    chunk_gap_p99_s: float | None
    coalesced_share: float | None
    tpot_p50_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    queue_p99_s: float | None
    output_tok_per_s: float | None
    window_s: float | None
    mean_in_flight_in_window: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    unique_prompts: int
    client_lag_p99_ns: int | None


def block_statistics(requests: pd.DataFrame, level: int) -> BlockStatistics:
    """Statistics of one block.

    ``requests``: rows of ``requests.parquet`` of the block, warm-up left out. ``level``: planned
    concurrency, for the steady window. An empty table gives counts of zero and ``None`` elsewhere.
    """
    claimed = requests[requests["outcome"] == Outcome.OK.value]
    possible = ~impossible(claimed)
    good = claimed[possible]
    failed = requests.loc[requests["outcome"] != Outcome.OK.value, "outcome"].value_counts()
    itl, stamped = _pooled_itl(good)
    gaps = _pooled_chunk_gaps(good)
    ttft = durations_s(good, TTFT)
    e2e = durations_s(good, E2E)
    window = steady_window(requests, level)
    return BlockStatistics(
        level=level,
        n_requests=len(requests),
        n_ok=len(good),
        n_impossible=len(claimed) - len(good),
        failed_by_outcome={str(kind): int(n) for kind, n in sorted(failed.items())},
        ttft_p50_s=quantile(ttft, 0.50),
        ttft_p99_s=quantile(ttft, 0.99),
        ttft_text_p50_s=quantile(durations_s(good, TTFT_TEXT), 0.50),
        itl_p50_s=quantile(itl, 0.50),
        itl_p99_s=quantile(itl, 0.99),
        itl_share=stamped / len(good) if len(good) else None,
        chunk_gap_p50_s=quantile(gaps, 0.50),
        chunk_gap_p99_s=quantile(gaps, 0.99),
        coalesced_share=_coalesced_share(good),
        tpot_p50_s=quantile(tpots_s(good), 0.50),
        e2e_p50_s=quantile(e2e, 0.50),
        e2e_p99_s=quantile(e2e, 0.99),
        queue_p99_s=quantile(durations_s(good, QUEUE), 0.99),
        output_tok_per_s=_tokens_per_s(good, window),
        window_s=None if window is None else (window[1] - window[0]) / NS_PER_S,
        mean_in_flight_in_window=_mean_in_flight(requests, window),
        prompt_tokens=_total(good, "prompt_tokens"),
        output_tokens=_total(good, "output_tokens"),
        cached_tokens=_total(good, "cached_tokens"),
        unique_prompts=int(requests["prompt_digest"].nunique()),
        client_lag_p99_ns=_lag_p99(requests),
    )


def impossible(requests: pd.DataFrame) -> pd.Series[bool]:
    """Rows that cannot be true of a good request: no token, no stamp, or times out of order."""
    bad = requests["output_tokens"].fillna(0) <= 0
    bad |= requests["token_ns"].map(len) == 0
    bad |= requests["first_token_ns"].isna() | requests["sent_ns"].isna()
    bad |= (requests["first_token_ns"] <= requests["sent_ns"]).fillna(False)
    for before, after in _IN_ORDER:
        bad |= (requests[after] < requests[before]).fillna(False)
    return bad.astype(bool)


def durations_s(requests: pd.DataFrame, metric: Duration) -> Floats:
    """The metric of each row that has both of its stamps, s."""
    difference = (requests[metric.end] - requests[metric.start]).dropna()
    return difference.to_numpy(dtype=np.float64) / NS_PER_S


def tpots_s(requests: pd.DataFrame) -> Floats:
    """TPOT (see :func:`kvgate.record.tpot_s`) of each row with two tokens or more, s."""
    several = requests[(requests["output_tokens"] >= 2).fillna(False)]
    decode = (several[DECODE.end] - several[DECODE.start]) / (several["output_tokens"] - 1)
    return decode.dropna().to_numpy(dtype=np.float64) / NS_PER_S


def quantile(values: Floats, share: float) -> float | None:
    """Quantile of type 7; ``None`` without values."""
    return float(np.quantile(values, share)) if len(values) else None


def steady_window(requests: pd.DataFrame, level: int) -> tuple[int, int] | None:
    """From the level-th completion to the last issue, ns; ``None`` where that is empty.

    Before it the engine fills up in step, after it it runs dry: the makespan would understate a
    gain. Failed requests count as completions and issues, for they held a place.
    """
    ends = np.sort(requests["end_ns"].to_numpy(dtype=np.int64))
    issues = requests["sent_ns"].dropna().to_numpy(dtype=np.int64)
    if level < 1 or len(ends) < level or len(issues) == 0:
        return None
    start, stop = int(ends[level - 1]), int(issues.max())
    return (start, stop) if stop > start else None


def _tokens_per_s(good: pd.DataFrame, window: tuple[int, int] | None) -> float | None:
    if window is None or not len(good):
        return None
    start, stop = window
    tokens = 0.0
    for stamps, made in zip(_lists(good, "token_ns"), good["output_tokens"], strict=True):
        inside = int(np.count_nonzero((stamps > start) & (stamps <= stop)))
        # Where a stamp stands for a chunk, the chunks share the server's count evenly.
        tokens += inside * (int(made) / len(stamps))
    return tokens * NS_PER_S / (stop - start)


def _mean_in_flight(requests: pd.DataFrame, window: tuple[int, int] | None) -> float | None:
    if window is None:
        return None
    start, stop = window
    sent = requests[requests["sent_ns"].notna()]
    since = np.maximum(sent["sent_ns"].to_numpy(dtype=np.int64), start)
    until = np.minimum(sent["end_ns"].to_numpy(dtype=np.int64), stop)
    return float(np.maximum(until - since, 0).sum() / (stop - start))


def pooled_itl_s(good: pd.DataFrame) -> Floats:
    """Inter-token latencies (see :func:`kvgate.record.token_gaps_s`) of good requests, s."""
    return _pooled_itl(good)[0]


def _lists(requests: pd.DataFrame, column: str) -> list[Ints]:
    return [np.asarray(values, dtype=np.int64) for values in requests[column]]


def _pooled_itl(good: pd.DataFrame) -> tuple[Floats, int]:
    """All gaps between tokens that each have their own stamp, s, and the requests with stamps."""
    pools: list[Ints] = []
    stamped = 0
    columns = zip(
        _lists(good, "token_ns"), _lists(good, "coalesced"), good["output_tokens"], strict=True
    )
    for stamps, shared, made in columns:
        if len(stamps) != int(made):
            continue
        stamped += 1
        own = np.ones(len(stamps), dtype=bool)
        own[shared] = False
        pools.append(np.diff(stamps)[own[:-1] & own[1:]])
    pooled: Ints = np.concatenate(pools) if pools else np.empty(0, dtype=np.int64)
    return pooled.astype(np.float64) / NS_PER_S, stamped


def _pooled_chunk_gaps(good: pd.DataFrame) -> Floats:
    pools = [np.diff(stamps) for stamps in _lists(good, "token_ns")]
    pooled: Ints = np.concatenate(pools) if pools else np.empty(0, dtype=np.int64)
    gaps: Floats = pooled[pooled != 0].astype(np.float64) / NS_PER_S
    return gaps


def _coalesced_share(good: pd.DataFrame) -> float | None:
    stamps = int(good["token_ns"].map(len).sum())
    return float(good["coalesced"].map(len).sum() / stamps) if stamps else None


def _total(good: pd.DataFrame, column: str) -> int | None:
    """Sum over the good requests; ``None`` when one of them does not know."""
    values = good[column]
    return None if not len(values) or values.isna().any() else int(values.sum())


def _lag_p99(requests: pd.DataFrame) -> int | None:
    lags = requests["client_lag_ns"].dropna().to_numpy(dtype=np.float64)
    worst = quantile(lags, 0.99)
    return None if worst is None else round(worst)
