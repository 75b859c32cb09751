"""What sampling gave: rows, snapshots before and after, coverage and gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from kvgate.observe.adapters import Role
from kvgate.observe.clock import ClockState, ClockStep, detect_steps
from kvgate.observe.counters import Counters, Increase
from kvgate.observe.rows import Rows, write_hosts_parquet, write_parquet

THIS_HOST: Final = "localhost"
"""Whose rows are those of the machine that runs kvgate, in ``host.parquet``."""
LATE: Final = 1.5
"""A good look covers one period; the next may be half a period late before it is a gap."""


@dataclass(frozen=True, slots=True)
class Gap:
    """No good look at ``source`` from ``from_ns`` to ``to_ns`` (CLOCK_MONOTONIC), and why."""

    source: str
    from_ns: int
    to_ns: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """``{"source": text, "from_ns": int, "to_ns": int, "reason": text}``."""
        return {
            "source": self.source,
            "from_ns": self.from_ns,
            "to_ns": self.to_ns,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class TargetView:
    """The counters of one engine or store. ``before`` and ``after`` are None where that very look
    failed; ``increase`` runs through every look between them and is None where either is."""

    name: str
    kind: str
    role: Role
    before: Counters | None
    after: Counters | None
    increase: Increase | None

    def to_json(self) -> dict[str, Any]:
        """``{"kind", "role", "before": counters | null, "after": ..., "increase": ...}``."""
        return {
            "kind": self.kind,
            "role": self.role,
            "before": self.before.to_json() if self.before is not None else None,
            "after": self.after.to_json() if self.after is not None else None,
            "increase": self.increase.to_json() if self.increase is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed between ``started_ns`` and ``ended_ns`` (CLOCK_MONOTONIC).

    ``coverage`` is, for each source, the share of the window within one period of a good look;
    ``coverage_share`` is the smallest. ``notes`` are faults that left single rows out (a process
    that has gone). ``clock`` holds the first and last state, ``clock_steps`` each jump between.
    """

    period_s: float
    started_ns: int
    ended_ns: int
    engine: Rows
    store: Rows
    host: Rows
    targets: Mapping[str, TargetView]
    coverage: Mapping[str, float]
    coverage_share: float
    gaps: tuple[Gap, ...]
    notes: tuple[str, ...]
    clock: tuple[ClockState, ClockState] | None
    clock_steps: tuple[ClockStep, ...]

    def write(
        self, engine_path: Path, host_path: Path, elsewhere: Mapping[str, Rows] | None = None
    ) -> None:
        """Write ``engine.parquet`` (engines and stores) and ``host.parquet`` (this host and those
        ``elsewhere``); raises CannotMeasure where the disk refuses."""
        write_parquet(engine_path, self.engine, self.store)
        write_hosts_parquet(host_path, {THIS_HOST: self.host, **(elsewhere or {})})

    def to_json(self) -> dict[str, Any]:
        """The part of ``block.json`` that observation answers for; all numbers but shares and the
        period are integers."""
        return {
            "period_s": self.period_s,
            "started_ns": self.started_ns,
            "ended_ns": self.ended_ns,
            "coverage_share": self.coverage_share,
            "coverage": dict(self.coverage),
            "gaps": [gap.to_json() for gap in self.gaps],
            "notes": list(self.notes),
            "targets": {name: view.to_json() for name, view in self.targets.items()},
            "clock": None
            if self.clock is None
            else {"start": self.clock[0].to_json(), "end": self.clock[1].to_json()},
            "clock_steps": [step.to_json() for step in self.clock_steps],
        }


def find_gaps(
    source: str,
    good_ns: Sequence[int],
    faults: Sequence[tuple[int, str]],
    *,
    started_ns: int,
    ended_ns: int,
    period_s: float,
) -> tuple[tuple[Gap, ...], float]:
    """(gaps, covered share) of one source over the window.

    A good look covers the period that follows it (and the first look the time before it); what
    lies between two good looks further apart than 1.5 periods is a gap, less that one period.
    ``faults`` (t_ns, text) name the reasons.
    """
    period_ns = round(period_s * 1e9)
    window_ns = ended_ns - started_ns
    if not good_ns:
        reason = _reason(faults, started_ns, ended_ns, "no look was ever good")
        return (Gap(source, started_ns, ended_ns, reason),), 0.0
    edges = [started_ns - period_ns, *good_ns]
    if ended_ns - good_ns[-1] > LATE * period_ns:
        edges.append(ended_ns)
    gaps = tuple(
        Gap(source, a + period_ns, b, _reason(faults, a, b, "the look came late"))
        for a, b in pairwise(edges)
        if b - a > LATE * period_ns
    )
    # The first look starts with the window; what it took counts as uncovered only beyond a period.
    # Looks before and after the window are none of its losses.
    lost_ns = sum(max(0, min(gap.to_ns, ended_ns) - max(gap.from_ns, started_ns)) for gap in gaps)
    share = 1.0 if window_ns <= 0 else max(0.0, 1.0 - lost_ns / window_ns)
    return gaps, share


def _reason(faults: Sequence[tuple[int, str]], from_ns: int, to_ns: int, other: str) -> str:
    inside = [text for t_ns, text in faults if from_ns <= t_ns <= to_ns]
    return inside[-1] if inside else other


def clock_view(
    states: Sequence[ClockState],
) -> tuple[tuple[ClockState, ClockState] | None, tuple[ClockStep, ...]]:
    """(first and last state, steps between any two successive ones)."""
    if not states:
        return None, ()
    return (states[0], states[-1]), detect_steps(states)


def smallest(coverage: Mapping[str, float]) -> float:
    """The coverage of a block: that of its worst source; 0 where nothing was observed."""
    return min((share for share in coverage.values() if math.isfinite(share)), default=0.0)
