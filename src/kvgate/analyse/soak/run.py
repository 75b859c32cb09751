"""A long run to windows, events and its figures. Pure; times in campaign seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from kvgate.analyse.block import durations_s
from kvgate.analyse.checks import coverage_of
from kvgate.analyse.counters import ENGINE, value
from kvgate.analyse.results import Answer, BlockResult, Observed, SoakEvent, SoakWindow
from kvgate.analyse.soak.answers import Reference, Wrong, reference_of, wrong_answers
from kvgate.analyse.soak.blame import who_failed
from kvgate.analyse.soak.faults import (
    BREAKER,
    Played,
    Recovery,
    Unexplained,
    excused,
    played,
    recovery,
    unexplained,
)
from kvgate.analyse.soak.series import Clock, Counted, Floats
from kvgate.analyse.soak.validity import (
    bytes_in,
    conditions_of_soak,
    least_restored,
    share_in,
)
from kvgate.analyse.soak.windows import (
    Stretch,
    bounds,
    drift,
    longest_silence,
    worst_share,
    worst_window,
)
from kvgate.contract import Contract, GateTerms, LimitClause, SoakPlan
from kvgate.criterion import METRICS
from kvgate.plan import Cell
from kvgate.reason import Reason
from kvgate.record import E2E, TTFT, Outcome
from kvgate.verdict import About, Condition, Exclusion

PERFORMANCE: Final = frozenset({
    "soak_ttft_drift", "soak_throughput_drift", "soak_worst_window", "soak_memory_slope",
    "fault_recovery_time",
})  # fmt: skip
"""Figures that say nothing of the appliance where the tokens did not come from it."""
SILENT_E2E: Final = 10.0
"""So many median requests long a time without a good one is silence, where a tenth of a window is
not longer."""


@dataclass(frozen=True, slots=True)
class Part:
    """One block of a long run: block.json, its request table, its finished answers in order."""

    block: Mapping[str, Any]
    requests: pd.DataFrame
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Soak:
    """What a long run showed; ``exclusions`` are the conditions that it broke."""

    windows: tuple[SoakWindow, ...]
    events: tuple[SoakEvent, ...]
    observed: tuple[Observed, ...]
    exclusions: tuple[Exclusion, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """Everything that the figures of one run are made of."""

    contract: Contract
    plan: SoakPlan
    block: Mapping[str, Any]
    requests: pd.DataFrame
    canaries: Sequence[Part]
    reference: Reference
    counted: Counted
    clock: Clock
    windows: tuple[SoakWindow, ...]
    events: tuple[SoakEvent, ...]
    faults: tuple[Played, ...]
    recoveries: tuple[Recovery, ...]
    again: Unexplained
    granted: Sequence[Stretch]
    allowed_s: float | None
    end_s: float
    observed_s: float

    @property
    def broke(self) -> bool:
        return any(e.kind == BREAKER for e in self.events)

    @property
    def counting(self) -> tuple[SoakWindow, ...]:
        """Windows after the warm-up; one that the breaker cut short has to do where there is no
        other."""
        steady = tuple(w for w in self.windows if w.start_s >= self.plan.warmup_s)
        return steady or self.windows

    @property
    def steady(self) -> tuple[SoakWindow, ...]:
        """Those that no planned fault excuses."""
        return tuple(w for w in self.counting if not w.excused)


def analyse_soak(
    contract: Contract,
    terms: GateTerms,
    plan: SoakPlan,
    n: int,
    soak: Part,
    engine: pd.DataFrame,
    canaries: Sequence[Part],
    blocks: Sequence[BlockResult],
    answers: Sequence[Answer],
    time_scale: float,
) -> Soak:
    """``soak`` is the run's block, number ``n``, and ``engine`` its counters in long form (t_ns,
    source, name, value); ``canaries`` the block of the prompts asked beside it, of which there must
    be one; ``blocks`` and ``answers`` those of the reference arm, asked before and after."""
    block, requests = soak.block, soak.requests
    start_ns = int(block["observation"]["started_ns"])
    clock = Clock(start_ns, time_scale)
    observed_s = (int(block["observation"]["ended_ns"]) - start_ns) * 1e-9 * time_scale
    end_s = min(observed_s, plan.duration_s)
    counted = Counted(engine, clock)
    store = contract.arms[plan.arm].store
    events = tuple(_event(e) for e in block.get("events") or ())
    ours = requests["outcome"].isin([o.value for o in Outcome if o.of_instrument])
    theirs = requests[~ours]
    faults = played(plan, store, block, events, counted)
    sent, ended = clock.s(_issued(theirs)), clock.s(theirs["end_ns"])
    ttft = _ttft_s(theirs, time_scale)
    recoveries = tuple(
        recovery(f, sent, ended, ttft, plan, end_s) for f in faults if f.proved
    )  # fmt: skip
    allowed_s = _allowed_s(terms)
    granted = excused(recoveries, allowed_s, end_s)
    arm = None if plan.canaries is None else plan.canaries.reference_arm
    run = _Run(
        contract=contract,
        plan=plan,
        block=block,
        requests=requests,
        canaries=canaries,
        reference=reference_of(arm, blocks, answers),
        counted=counted,
        clock=clock,
        windows=tuple(
            _windows(contract, plan, theirs, ended, ttft, counted, granted, end_s)
        ),
        events=events,
        faults=faults,
        recoveries=recoveries,
        again=unexplained(store, block, faults, counted, plan.window_s),
        granted=granted,
        allowed_s=allowed_s,
        end_s=end_s,
        observed_s=observed_s,
    )  # fmt: skip
    found = conditions_of_soak(
        contract, plan, block, requests, run.steady, counted, broke=run.broke
    )
    broken = tuple(c for c in found if c.ok is not True)
    label = Cell(**block["cell"]).label
    return Soak(
        run.windows,
        events,
        tuple(_told(o, broken) for o in _figures(run)),
        tuple(Exclusion(n, None, plan.arm, label, c) for c in broken),
    )


def _event(plain: Mapping[str, Any]) -> SoakEvent:
    return SoakEvent(
        float(plain["at_s"]), str(plain["kind"]), str(plain["detail"]),
        plain.get("proved") is True, value(plain, "ended_s"), Reason.of(plain.get("cause")),
    )  # fmt: skip


def _allowed_s(terms: GateTerms) -> float | None:
    """How long the contract lets a recovery take."""
    for clause in terms.clause:
        if isinstance(clause, LimitClause) and clause.metric == "fault_recovery_time":
            return clause.ceiling
    return None


def _issued(requests: pd.DataFrame) -> pd.Series[Any]:
    """When each request was sent; one that never got a connection, when it was due."""
    return requests["sent_ns"].fillna(requests["scheduled_ns"])


def _ttft_s(requests: pd.DataFrame, time_scale: float) -> Floats:
    """TTFT of every request, campaign seconds; NaN where it did not succeed."""
    both = [requests[name].to_numpy(dtype=np.float64, na_value=np.nan)
            for name in (TTFT.start, TTFT.end)]  # fmt: skip
    ttft = (both[1] - both[0]) * 1e-9 * time_scale
    good = (requests["outcome"] == Outcome.OK.value).to_numpy()
    return np.where(good & (ttft >= 0), ttft, np.nan)


def _windows(
    contract: Contract, plan: SoakPlan, requests: pd.DataFrame, ended_s: Floats, ttft_s: Floats,
    counted: Counted, granted: Sequence[Stretch], end_s: float,
) -> Iterator[SoakWindow]:  # fmt: skip
    memory_s, memory = counted.raw(ENGINE, "resident_bytes")
    store = contract.arms[plan.arm].store
    tokens = requests["output_tokens"].to_numpy(dtype=np.float64, na_value=0.0)
    for low, high in bounds(end_s, plan.window_s):
        inside = (ended_s >= low) & (ended_s < high)
        good = inside & np.isfinite(ttft_s)
        resident = memory[(memory_s >= low) & (memory_s < high)]
        yield SoakWindow(
            start_s=low,
            end_s=high,
            n_requests=int(inside.sum()),
            n_failed=int(inside.sum() - good.sum()),
            ttft_p50_s=float(np.median(ttft_s[good])) if good.any() else None,
            output_tok_per_s=float(tokens[good].sum()) / (high - low),
            resident_bytes=float(np.median(resident)) if len(resident) else None,
            restored_share=share_in(counted, "prompt_tokens_external", (low, high)),
            engine_cache_share=share_in(counted, "prompt_tokens_engine_cache", (low, high)),
            bytes_share=bytes_in(contract, counted, store, (low, high)),
            excused=any(a < high and b > low for a, b in granted),
        )


def _figures(run: _Run) -> Iterator[Observed]:
    steady, edge_s = run.steady, run.plan.edge_s
    crashed = About.ENVIRONMENT if run.again.engine else None
    why = run.again.why if crashed else None
    blame = who_failed(
        run.contract,
        run.plan,
        run.block,
        run.requests,
        run.again,
        run.reference,
        run.granted,
        run.counted,
    )
    yield _observed("soak_error_share", _error_share(run), blame.about, blame.why)
    yield _restored(run)
    rise = drift(steady, "ttft_p50_s", edge_s)
    yield _slowed("soak_ttft_drift", rise, run, crashed, why)
    fall = drift(steady, "output_tok_per_s", edge_s, sign=-1)
    yield _slowed("soak_throughput_drift", fall, run, crashed, why)
    yield _observed("soak_worst_window", worst_window(steady), crashed, why)
    yield _observed("soak_memory_slope", drift(steady, "resident_bytes", edge_s), crashed, why)
    yield _observed("soak_coverage", coverage_of(run.block))
    yield _observed("soak_duration", run.observed_s)
    total = run.again.total
    yield _observed(
        "soak_restarts", None if total is None else float(total), run.again.about, run.again.why
    )
    if run.plan.canaries is not None:
        wrong = _canaries(run)
        count = None if wrong.count is None else float(wrong.count)
        yield _observed("soak_wrong_answers", count, wrong.about, wrong.why)
    if run.plan.faults:
        proved = sum(p.proved for p in run.faults)
        yield _observed("fault_proved", proved / len(run.plan.faults))
        yield _recovered(run, crashed, why)


def _error_share(run: _Run) -> float | None:
    """Worst share of failed requests, canaries included, in a sliding window; or of time without a
    good one, where that is silence."""
    rows = [run.requests, *(c.requests for c in run.canaries)]
    outcomes = np.concatenate([r["outcome"].to_numpy(dtype=object) for r in rows])
    ended = np.concatenate([run.clock.s(r["end_ns"]) for r in rows])
    # A load host that failed by itself hides what the engine would have done; one that the breaker
    # ended did not.
    whole = run.block.get("load_state") == "done" or run.broke
    if not whole or (outcomes == Outcome.CLIENT_FAULT.value).any():
        return None
    theirs = ~np.isin(outcomes, [o.value for o in Outcome if o.of_instrument])
    failed = (outcomes[theirs] != Outcome.OK.value).astype(np.float64)
    share = worst_share(ended[theirs], failed, run.plan.window_s, run.end_s)
    if share is None or not len(run.requests):
        return None
    good = run.requests[run.requests["outcome"] == Outcome.OK.value]
    took = durations_s(good, E2E) * run.clock.scale
    began = float(np.nanmin(run.clock.s(_issued(run.requests))))
    quiet_s = longest_silence(run.clock.s(good["end_ns"]), began, run.end_s, run.granted)
    least_s = max(run.plan.window_s / 10, SILENT_E2E * float(np.median(took)) if len(took) else 0)
    silence = min(1.0, quiet_s / run.plan.window_s) if quiet_s >= least_s else 0.0
    return max(share, silence)


def _restored(run: _Run) -> Observed:
    window, share, about = least_restored(
        run.contract, run.plan, run.block, run.steady, run.counted
    )
    why = None
    if about is About.ENVIRONMENT:
        why = Reason("store_not_asked")
    elif window is not None:
        span = {"low": f"{window.start_s:,.0f}", "high": f"{window.end_s:,.0f}"}
        why = Reason("lowest_window", span)
    return _observed("soak_restored_share", share, about, why)


def _slowed(
    metric: str, change: float | None, run: _Run, crashed: About | None, why: Reason | None
) -> Observed:
    """A slowing that the arm without a store shows too is not the appliance's."""
    rise = run.reference.ttft_rise
    if crashed is None and change is not None and rise is not None and rise >= change / 2 > 0:
        return _observed(metric, change, About.ENVIRONMENT, Reason("engine_slows_alone"))
    return _observed(metric, change, crashed, why)


def _canaries(run: _Run) -> Wrong:
    plan = run.plan.canaries
    if plan is None or len(run.canaries) != 1:
        return Wrong(None, Reason("canary_blocks", {"n": len(run.canaries)}))
    part = run.canaries[0]
    state = part.block.get("load_state")
    if state != "done" and not run.broke:
        return Wrong(None, Reason("canary_client", {"state": str(state)}))
    return wrong_answers(
        plan, run.plan.upper_tiers_tokens,
        run.contract.validity.declared_source_share_at_least,
        part.requests, part.answers, run.reference, run.counting, run.counted, run.clock,
    )  # fmt: skip


def _recovered(run: _Run, crashed: About | None, why: Reason | None) -> Observed:
    """The longest recovery; every planned fault must have been played to know it."""
    took = [r.took_s for r in run.recoveries]
    if len(took) != len(run.plan.faults) or any(t is None for t in took):
        return _observed("fault_recovery_time", None, None, Reason("fault_not_played"))
    longest = max(t for t in took if t is not None)
    never = [r for r in run.recoveries if r.at_s is None]
    if never and run.allowed_s is not None and longest <= run.allowed_s:
        return _observed("fault_recovery_time", None, None, Reason("ended_too_early"))
    return _observed("fault_recovery_time", longest, crashed, why)


def _observed(
    metric: str, found: float | None, about: About | None = None, why: Reason | None = None
) -> Observed:
    if why is None and found is None:
        why = Reason("without_value")
    return Observed(metric, "soak", found, METRICS[metric].unit, why, about)


def _told(observed: Observed, broken: Sequence[Condition]) -> Observed:
    """A figure of a run that broke a condition speaks about whoever broke it; a wrong answer counts
    whatever else was wrong."""
    instrument = [c for c in broken if c.about is About.INSTRUMENT]
    others = [c for c in broken if c.about is About.ENVIRONMENT]
    if instrument and observed.metric != "soak_wrong_answers":
        who, names = About.INSTRUMENT, instrument
    elif others and observed.metric in PERFORMANCE:
        who, names = About.ENVIRONMENT, others
    else:
        return observed
    if observed.value is None:
        return observed
    broke = Reason("conditions_broken", {"conditions": ", ".join(c.name for c in names)})
    return replace(observed, about=who, cause=broke)
