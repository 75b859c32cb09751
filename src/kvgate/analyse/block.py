"""One block's requests to one row of numbers. Failed requests are counted and enter nothing else.

Quantiles are Hyndman and Fan's type 7 (numpy's ``linear``). The metrics' formulas stand in
:mod:`kvgate.record`; here they are applied to a whole table.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvgate.analyse.ragged import Bools, Ints, Ragged
from kvgate.record import DECODE, E2E, NS_PER_S, QUEUE, TTFT, TTFT_TEXT, Duration, Outcome

Floats = npt.NDArray[np.float64]

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


@dataclass(frozen=True, slots=True)
class BlockMeasured:
    """The statistics of a block with the single values behind them: TTFT and token gaps of the good
    requests, s. ``fingerprint`` is that of all its stamps; two measurements never share it."""

    statistics: BlockStatistics
    ttft_s: Floats
    itl_s: Floats
    fingerprint: str


def block_statistics(requests: pd.DataFrame, level: int) -> BlockStatistics:
    """Statistics of one block.

    ``requests``: rows of ``requests.parquet`` of the block, warm-up left out. ``level``: planned
    concurrency, for the steady window. An empty table gives counts of zero and ``None`` elsewhere.
    """
    return measure_block(requests, level).statistics


def measure_block(requests: pd.DataFrame, level: int) -> BlockMeasured:
    """`block_statistics` together with the values that they summarise."""
    claimed = (requests["outcome"] == Outcome.OK.value).to_numpy(dtype=np.bool_)
    is_good = claimed & ~impossible(requests).to_numpy(dtype=np.bool_)
    good = requests if bool(is_good.all()) else requests[is_good]
    failed = requests.loc[~claimed, "outcome"].value_counts()
    stamps = Ragged.of(good["token_ns"])
    shared = Ragged.of(good["coalesced"])
    made = good["output_tokens"].to_numpy(dtype=np.int64)
    itl, gaps, stamped = _gaps_s(stamps, shared, made)
    itl_p50, itl_p99 = quantiles(itl, (0.50, 0.99))
    # Without coalesced tokens or chunks both are the same gaps.
    gap_p50, gap_p99 = (itl_p50, itl_p99) if gaps is itl else quantiles(gaps, (0.50, 0.99))
    ttft, e2e = durations_s(good, TTFT), durations_s(good, E2E)
    ttft_p50, ttft_p99 = quantiles(ttft, (0.50, 0.99))
    e2e_p50, e2e_p99 = quantiles(e2e, (0.50, 0.99))
    window = steady_window(requests, level)
    statistics = BlockStatistics(
        level=level,
        n_requests=len(requests),
        n_ok=len(good),
        n_impossible=int(claimed.sum()) - len(good),
        failed_by_outcome={str(kind): int(n) for kind, n in sorted(failed.items())},
        ttft_p50_s=ttft_p50,
        ttft_p99_s=ttft_p99,
        ttft_text_p50_s=quantile(durations_s(good, TTFT_TEXT), 0.50),
        itl_p50_s=itl_p50,
        itl_p99_s=itl_p99,
        itl_share=stamped / len(good) if len(good) else None,
        chunk_gap_p50_s=gap_p50,
        chunk_gap_p99_s=gap_p99,
        coalesced_share=len(shared.values) / len(stamps.values) if len(stamps.values) else None,
        tpot_p50_s=quantile(tpots_s(good), 0.50),
        e2e_p50_s=e2e_p50,
        e2e_p99_s=e2e_p99,
        queue_p99_s=quantile(durations_s(good, QUEUE), 0.99),
        output_tok_per_s=_tokens_per_s(stamps, made, window),
        window_s=None if window is None else (window[1] - window[0]) / NS_PER_S,
        mean_in_flight_in_window=_mean_in_flight(requests, window),
        prompt_tokens=_total(good, "prompt_tokens"),
        output_tokens=_total(good, "output_tokens"),
        cached_tokens=_total(good, "cached_tokens"),
        unique_prompts=int(requests["prompt_digest"].nunique()),
        client_lag_p99_ns=_lag_p99(requests),
    )
    return BlockMeasured(statistics, ttft, itl, _fingerprint(requests))


def _fingerprint(requests: pd.DataFrame) -> str:
    """Of when each request was sent and ended, to the nanosecond; empty without requests."""
    if not len(requests):
        return ""
    found = hashlib.sha256()
    for column in ("sent_ns", "end_ns"):
        found.update(_column(requests, column)[0].tobytes())
    return found.hexdigest()


def impossible(requests: pd.DataFrame) -> pd.Series[bool]:
    """Rows that cannot be true of a good request: no token, no stamp, or times out of order."""
    made, counted = _column(requests, "output_tokens")
    bad = ~counted | (made <= 0)
    bad |= Ragged.of(requests["token_ns"]).lengths == 0
    first, has_first = _column(requests, "first_token_ns")
    sent, has_sent = _column(requests, "sent_ns")
    bad |= ~has_first | ~has_sent | (first <= sent)
    for before, after in _IN_ORDER:
        (a, has_a), (b, has_b) = _column(requests, before), _column(requests, after)
        bad |= has_a & has_b & (b < a)
    return pd.Series(bad, index=requests.index)


def _column(requests: pd.DataFrame, column: str) -> tuple[Ints, Bools]:
    """The column's integers (0 where missing), and where it has one."""
    values = requests[column]
    known: Bools = values.notna().to_numpy(dtype=np.bool_)
    numbers: Ints = values.to_numpy(dtype=np.int64, na_value=0)
    return numbers, known


def durations_s(requests: pd.DataFrame, metric: Duration) -> Floats:
    """The metric of each row that has both of its stamps, s."""
    (end, has_end), (start, has_start) = (
        _column(requests, metric.end),
        _column(requests, metric.start),
    )
    known = has_end & has_start
    found: Floats = (end - start)[known].astype(np.float64) / NS_PER_S
    return found


def tpots_s(requests: pd.DataFrame) -> Floats:
    """TPOT (see :func:`kvgate.record.tpot_s`) of each row with two tokens or more, s."""
    made, counted = _column(requests, "output_tokens")
    (end, has_end), (start, has_start) = (
        _column(requests, DECODE.end),
        _column(requests, DECODE.start),
    )
    several = counted & (made >= 2) & has_end & has_start
    decode: Floats = (end - start)[several] / (made[several] - 1)
    return decode / NS_PER_S


def quantile(values: Floats, share: float) -> float | None:
    """Quantile of type 7; ``None`` without values."""
    return quantiles(values, (share,))[0]


def quantiles(values: Floats, shares: tuple[float, ...]) -> tuple[float | None, ...]:
    """Quantiles of type 7, all from one pass; ``None`` without values."""
    if not len(values):
        return (None,) * len(shares)
    return tuple(float(q) for q in np.quantile(values, shares))


def steady_window(requests: pd.DataFrame, level: int) -> tuple[int, int] | None:
    """From the level-th completion to the last issue, ns; ``None`` where that is empty.

    Before it the engine fills up in step, after it it runs dry: the makespan would understate a
    gain. Failed requests count as completions and issues, for they held a place.
    """
    ends = requests["end_ns"].to_numpy(dtype=np.int64)
    sent, has_sent = _column(requests, "sent_ns")
    issues = sent[has_sent]
    if level < 1 or len(ends) < level or len(issues) == 0:
        return None
    start, stop = int(np.partition(ends, level - 1)[level - 1]), int(issues.max())
    return (start, stop) if stop > start else None


def _tokens_per_s(stamps: Ragged, made: Ints, window: tuple[int, int] | None) -> float | None:
    if window is None or not len(made):
        return None
    start, stop = window
    inside = stamps.sums((stamps.values > start) & (stamps.values <= stop))
    # Where a stamp stands for a chunk, the chunks share the server's count evenly.
    tokens = math.fsum((inside * made / stamps.lengths).tolist())
    return tokens * NS_PER_S / (stop - start)


def _mean_in_flight(requests: pd.DataFrame, window: tuple[int, int] | None) -> float | None:
    if window is None:
        return None
    start, stop = window
    sent, has_sent = _column(requests, "sent_ns")
    ends = requests["end_ns"].to_numpy(dtype=np.int64)
    since = np.maximum(sent[has_sent], start)
    until = np.minimum(ends[has_sent], stop)
    return float(np.maximum(until - since, 0).sum() / (stop - start))


def _gaps_s(stamps: Ragged, shared: Ragged, made: Ints) -> tuple[Floats, Floats, int]:
    """Gaps between tokens that each have their own stamp, gaps between chunks, both s, and the
    number of requests whose every token is stamped."""
    gaps, first = stamps.gaps()
    every: Floats = gaps.astype(np.float64) / NS_PER_S
    stamped = stamps.lengths == made
    if bool(stamped.all()) and not len(shared.values) and bool((gaps != 0).all()):
        return every, every, int(stamped.sum())
    own = np.ones(len(stamps.values), dtype=np.bool_)
    position = np.repeat(stamps.starts, shared.lengths) + shared.values
    outside = (shared.values < 0) | (shared.values >= np.repeat(stamps.lengths, shared.lengths))
    if bool(outside.any()):
        raise ValueError("a coalesced token that the request does not have")
    own[position] = False
    of_stamped = np.repeat(stamped, stamps.lengths)
    clear = of_stamped[first] & own[first] & own[first + 1]
    return every[clear], every[gaps != 0], int(stamped.sum())


def _total(good: pd.DataFrame, column: str) -> int | None:
    """Sum over the good requests; ``None`` when one of them does not know."""
    numbers, known = _column(good, column)
    return None if not len(numbers) or not known.all() else int(numbers.sum())


def _lag_p99(requests: pd.DataFrame) -> int | None:
    lags, known = _column(requests, "client_lag_ns")
    worst = quantile(lags[known].astype(np.float64), 0.99)
    return None if worst is None else round(worst)
