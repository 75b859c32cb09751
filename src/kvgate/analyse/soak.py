"""A long run to windows, events and its figures. Pure; times in campaign seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvgate.analyse.block import durations_s
from kvgate.analyse.counters import ENGINE, restarts, targets, value
from kvgate.analyse.estimate import slope_interval
from kvgate.analyse.results import Observed, SoakEvent, SoakWindow
from kvgate.contract import SoakPlan
from kvgate.criterion import METRICS
from kvgate.record import TTFT, Outcome

MIN_WINDOWS = 4
"""Fewer windows than this have no trend worth the name."""


@dataclass(frozen=True, slots=True)
class Soak:
    """What a long run showed."""

    windows: tuple[SoakWindow, ...]
    events: tuple[SoakEvent, ...]
    observed: tuple[Observed, ...]


def analyse_soak(
    plan: SoakPlan,
    block: Mapping[str, Any],
    requests: pd.DataFrame,
    engine: pd.DataFrame,
    time_scale: float,
) -> Soak:
    """``requests`` and ``engine`` are the tables of the run's block; ``engine`` is in long form
    (t_ns, source, name, value)."""
    start_ns = int(block["observation"]["started_ns"])
    end_ns = int(block["observation"]["ended_ns"])
    duration_s = (end_ns - start_ns) * 1e-9 * time_scale
    client_failed = bool((requests["outcome"] == Outcome.CLIENT_FAULT.value).any())
    ours = requests["outcome"].isin([o.value for o in Outcome if o.of_instrument])
    windows = tuple(_windows(plan, requests[~ours], engine, start_ns, duration_s, time_scale))
    events = tuple(
        SoakEvent(
            float(e["at_s"]), str(e["kind"]), str(e["detail"]), e.get("proved") is True
        )
        for e in block.get("events") or ()
    )  # fmt: skip
    return Soak(
        windows, events, tuple(_figures(plan, block, windows, events, duration_s, client_failed))
    )


def _windows(
    plan: SoakPlan,
    requests: pd.DataFrame,
    engine: pd.DataFrame,
    start_ns: int,
    duration_s: float,
    time_scale: float,
) -> Iterator[SoakWindow]:
    ended_s = (requests["end_ns"].to_numpy(dtype=np.float64) - start_ns) * 1e-9 * time_scale
    memory = (
        engine[(engine["source"] == ENGINE) & (engine["name"] == "resident_bytes")]
        if len(engine)
        else engine
    )
    memory_s = (
        (memory["t_ns"].to_numpy(dtype=np.float64) - start_ns) * 1e-9 * time_scale
        if len(memory)
        else np.empty(0)
    )
    for k in range(int(min(duration_s, plan.duration_s) // plan.window_s)):
        low, high = k * plan.window_s, (k + 1) * plan.window_s
        inside = requests[(ended_s >= low) & (ended_s < high)]
        good = inside[inside["outcome"] == Outcome.OK.value]
        ttft = durations_s(good, TTFT)
        resident = memory[(memory_s >= low) & (memory_s < high)]["value"] if len(memory_s) else None
        yield SoakWindow(
            start_s=low,
            end_s=high,
            n_requests=len(inside),
            n_failed=len(inside) - len(good),
            ttft_p50_s=float(np.median(ttft)) * time_scale if len(ttft) else None,
            output_tok_per_s=float(good["output_tokens"].sum()) / plan.window_s,
            resident_bytes=float(resident.median())
            if resident is not None and len(resident)
            else None,
        )


def _figures(
    plan: SoakPlan,
    block: Mapping[str, Any],
    windows: tuple[SoakWindow, ...],
    events: tuple[SoakEvent, ...],
    duration_s: float,
    client_failed: bool,
) -> Iterator[Observed]:
    steady = [w for w in windows if w.start_s >= plan.warmup_s]
    shares = [w.n_failed / w.n_requests for w in windows if w.n_requests]
    # A window without a single finished request is a hang, not a window without errors.
    idle = any(w.n_requests == 0 for w in windows)
    share = 1.0 if idle else max(shares, default=None)
    # A load host that failed by itself hides what the engine would have done; one that the breaker
    # ended did not.
    broke = any(e.kind == "breaker" for e in events)
    ended_well = block.get("load_state") == "done" or broke
    known = ended_well and not client_failed and bool(shares)
    yield _observed("soak_error_share", share if known else None)
    yield _observed("soak_ttft_drift", _change(steady, "ttft_p50_s"))
    yield _observed("soak_memory_slope", _change(steady, "resident_bytes"))
    yield _observed("soak_coverage", _coverage(block))
    yield _observed("soak_duration", duration_s)
    yield _observed("soak_restarts", _unexplained_restarts(block, events))
    if plan.faults:
        proved = [e for e in events if e.proved]
        yield _observed("fault_proved", float(len(proved)) / len(plan.faults))


def _coverage(block: Mapping[str, Any]) -> float | None:
    """Coverage of engine and host. A store that an injected fault took down is no gap of ours."""
    coverage: Mapping[str, Any] = (block.get("observation") or {}).get("coverage") or {}
    shares = [value(coverage, source) for source in (ENGINE, "host")]
    return None if None in shares else min(s for s in shares if s is not None)


def _unexplained_restarts(block: Mapping[str, Any], events: tuple[SoakEvent, ...]) -> float | None:
    """Restarts of engine and stores beyond those that a proved fault explains."""
    counted = [restarts(block, target) for target in sorted(targets(block))]
    if not counted or None in counted:
        return None
    explained = sum(1 for e in events if e.proved and e.kind == "store-restart")
    return float(max(0, sum(c for c in counted if c is not None) - explained))


def _change(windows: list[SoakWindow], field: str) -> float | None:
    """Relative change over the run: Theil-Sen slope times its length, over the median; None where
    fewer than MIN_WINDOWS windows have a value or any lacks one."""
    values = [getattr(w, field) for w in windows]
    if len(values) < MIN_WINDOWS or any(v is None or not math.isfinite(v) for v in values):
        return None
    times = [w.start_s for w in windows]
    slope = slope_interval(times, values).slope
    median = float(np.median(values))
    if slope is None or median <= 0:
        return None
    return slope * (times[-1] - times[0]) / median


def _observed(metric: str, found: float | None) -> Observed:
    detail = "" if found is not None else "no value"
    return Observed(metric, "soak", found, METRICS[metric].unit, detail)
