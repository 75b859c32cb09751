"""Whose fault are the failed requests of a long run? No other arm runs beside it that could tell.

Two witnesses can: the arm without a store, which answered the canaries right before and right after
(the same engine, host and client; only the store differs), and the store's own counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from kvgate.analyse.counters import ENGINE, STORE_PREFIX, grown, value
from kvgate.analyse.soak.answers import Reference
from kvgate.analyse.soak.faults import Unexplained
from kvgate.analyse.soak.series import Counted
from kvgate.analyse.soak.windows import Stretch
from kvgate.contract import Contract, SoakPlan
from kvgate.reason import Reason
from kvgate.record import Outcome
from kvgate.verdict import About

HALF: Final = 0.5
"""Of the failed requests' prompts: so much must the store have promised and not delivered."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Whom the failures speak about, and why."""

    about: About
    why: Reason


def who_failed(
    contract: Contract,
    plan: SoakPlan,
    block: Mapping[str, Any],
    requests: pd.DataFrame,
    again: Unexplained,
    reference: Reference,
    granted: Sequence[Stretch],
    counted: Counted,
) -> Blame:
    """Whom failed requests of the run speak about. What cannot be told is the environment's: it
    makes the clause INVALID, never a FAIL."""
    coverage: Mapping[str, Any] = (block.get("observation") or {}).get("coverage") or {}
    seen = value(coverage, ENGINE)
    if again.engine:
        return Blame(About.ENVIRONMENT, again.why)
    if seen is None or seen < contract.validity.telemetry_coverage_at_least:
        return Blame(About.ENVIRONMENT, Reason("engine_silent"))
    if False in (reference.healthy_before, reference.healthy_after):
        return Blame(About.ENVIRONMENT, Reason("engine_fails_alone"))
    if again.store_alone:
        return Blame(About.APPLIANCE, again.why)
    store = STORE_PREFIX + contract.arms[plan.arm].store
    shown = _shown_by_store(contract, plan, block, requests, store, granted, counted)
    if shown is not None:
        return Blame(About.APPLIANCE, shown)
    if reference.both_healthy:
        return Blame(About.APPLIANCE, Reason("engine_answers_alone"))
    return Blame(About.ENVIRONMENT, Reason("nobody_tells"))


def _shown_by_store(
    contract: Contract, plan: SoakPlan, block: Mapping[str, Any], requests: pd.DataFrame,
    store: str, granted: Sequence[Stretch], counted: Counted,
) -> Reason | None:  # fmt: skip
    """What the store's own counters show against it; None where nothing."""
    errors = grown(block, store, "errors") or 0.0
    # A restart that was planned may leave one behind.
    errors -= sum(counted.grown(store, "errors", a, b) or 0.0 for a, b in granted)
    if errors >= 1:
        return Reason("store_errors")
    observation: Mapping[str, Any] = block.get("observation") or {}
    silent_s = _silent_s(block, observation, store, granted)
    lasted_s = value(block, "duration_s")
    limit = contract.validity.telemetry_coverage_at_least
    if lasted_s and silent_s / lasted_s > 1 - limit:
        return Reason("store_silent")
    hits = grown(block, store, "hit_tokens")
    got = [grown(block, ENGINE, f"prompt_tokens_{s}") for s in ("external", "engine_cache")]
    failed = int((~requests["outcome"].isin([Outcome.OK.value])).sum())
    if hits is None or None in got or not failed:
        return None
    prompt = contract.workloads[plan.workload].prompt_tokens
    # What was under way when the run ended is no broken promise.
    owed = hits - sum(g for g in got if g is not None) - plan.level * prompt
    if owed >= HALF * failed * prompt:
        return Reason("store_broke_promise")
    return None


def _silent_s(
    block: Mapping[str, Any], observation: Mapping[str, Any], store: str,
    granted: Sequence[Stretch],
) -> float:  # fmt: skip
    """Campaign seconds in which the store gave no good look, outside granted recoveries."""
    start, scale = value(observation, "started_ns"), value(block, "time_scale")
    if start is None or scale is None:
        return 0.0
    total = 0.0
    for gap in observation.get("gaps") or ():
        if gap.get("source") != store:
            continue
        low, high = ((float(gap[k]) - start) * 1e-9 * scale for k in ("from_ns", "to_ns"))
        away = sum(max(0.0, min(high, b) - max(low, a)) for a, b in granted)
        total += max(0.0, high - low - away)
    return total
