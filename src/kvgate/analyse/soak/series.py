"""Counters of a long run over time: what they grew by between two moments, and restarts.

Times are campaign seconds since the run's observation began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]

SAME_PROCESS_MS: Final = 10.0
"""Start times are read from the kernel's tick counter; closer ones are one process."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Monotonic nanoseconds to campaign seconds since the run began."""

    start_ns: int
    scale: float

    def s(self, stamps: Any) -> Floats:
        """``stamps``: a column or number of nanoseconds; a missing one becomes NaN."""
        plain = pd.to_numeric(pd.Series(stamps), errors="coerce").to_numpy(
            dtype=np.float64, na_value=np.nan
        )
        return (plain - self.start_ns) * 1e-9 * self.scale


@dataclass(frozen=True, slots=True)
class Series:
    """One counter: moments (s) and what it had counted since the first of them, restarts of the
    process included (what a process counted between its last look and its end is lost)."""

    at_s: Floats
    counted: Floats

    def grown(self, low_s: float, high_s: float) -> float | None:
        """Growth between two moments, linear between looks; None with fewer than two looks."""
        if len(self.at_s) < 2:
            return None
        low, high = np.interp([low_s, high_s], self.at_s, self.counted)
        return float(high - low)


class Counted:
    """The counters of engine and stores of one run, each looked up when it is asked for."""

    def __init__(self, engine: pd.DataFrame, clock: Clock) -> None:
        """``engine``: long form (t_ns, source, name, value), as in ``engine.parquet``."""
        self._rows: Mapping[tuple[str, str], pd.DataFrame] = (
            {(str(s), str(n)): rows for (s, n), rows in engine.groupby(["source", "name"])}
            if len(engine)
            else {}
        )
        self._clock = clock
        self._known: dict[tuple[str, str], Series | None] = {}

    def raw(self, source: str, name: str) -> tuple[Floats, Floats]:
        """(moments, values as they were read), by time; empty where nobody looked."""
        rows = self._rows.get((source, name))
        if rows is None:
            return np.empty(0), np.empty(0)
        rows = rows.sort_values("t_ns", kind="stable")
        return self._clock.s(rows["t_ns"]), rows["value"].to_numpy(dtype=np.float64)

    def series(self, source: str, name: str) -> Series | None:
        """A counter over the run; None where it was never seen."""
        key = (source, name)
        if key not in self._known:
            at_s, values = self.raw(source, name)
            steps = np.diff(values)
            # A counter that fell began anew: it has counted what it shows.
            grown = np.where(steps < 0, values[1:], steps)
            self._known[key] = (
                Series(at_s, np.concatenate([[0.0], np.cumsum(grown)])) if len(at_s) else None
            )
        return self._known[key]

    def grown(self, source: str, name: str, low_s: float, high_s: float) -> float | None:
        """Growth of a counter between two moments; None where it cannot be told."""
        series = self.series(source, name)
        return None if series is None else series.grown(low_s, high_s)

    def restarts_s(self, source: str) -> tuple[float, ...]:
        """When another process was first seen under a target's name."""
        at_s, starts = self.raw(source, "process_start_time_ms")
        changed = np.abs(np.diff(starts)) > SAME_PROCESS_MS
        return tuple(float(t) for t in at_s[1:][changed])
