"""Planned faults of a long run: each proved by itself, what it explains, when all is as before.

Times are campaign seconds since the run's observation began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kvgate.analyse.counters import ENGINE, STORE_PREFIX, restarts, targets
from kvgate.analyse.results import SoakEvent
from kvgate.analyse.soak.series import Counted, Floats
from kvgate.analyse.soak.windows import Stretch
from kvgate.contract import Fault, SoakPlan
from kvgate.reason import Reason
from kvgate.verdict import About

BREAKER: Final = "breaker"
EARLY_S: Final = 1.0
"""By how much an event may seem to precede its plan."""


@dataclass(frozen=True, slots=True)
class Played:
    """A planned fault and the event that stands for it; ``proved`` where it took effect, which for
    a restart the target's own counters must not contradict. ``restart_s`` is when they show it."""

    fault: Fault
    event: SoakEvent | None
    target: str | None
    proved: bool
    restart_s: float | None = None

    @property
    def began_s(self) -> float:
        return self.fault.at_s if self.event is None else self.event.at_s

    @property
    def ended_s(self) -> float:
        """When the injection was over, as far as it told."""
        ended = None if self.event is None else self.event.ended_s
        return self.began_s if ended is None else max(ended, self.began_s)


def played(
    plan: SoakPlan, store: str, block: Mapping[str, Any], events: Sequence[SoakEvent],
    counted: Counted,
) -> tuple[Played, ...]:  # fmt: skip
    """The planned faults in order of time, each with an event of its own.

    An event stands for a fault of its kind that was due at most a window before it. ``store`` is
    the store of the arm under test.
    """
    free = sorted((e for e in events if e.kind != BREAKER), key=lambda e: e.at_s)
    seen = {t: list(counted.restarts_s(t)) for t in targets(block)}
    found = []
    for fault in sorted(plan.faults, key=lambda f: f.at_s):
        target = STORE_PREFIX + store if fault.kind == "store-restart" else None
        event = next(
            (e for e in free if e.kind == fault.kind
             and fault.at_s - EARLY_S <= e.at_s <= fault.at_s + plan.window_s), None,
        )  # fmt: skip
        if event is None:
            found.append(Played(fault, None, target, proved=False))
            continue
        free.remove(event)
        proved, restart_s = event.proved is True, None
        again = None if target is None else restarts(block, target)
        if proved and target is not None and again is not None:
            ended_s = event.at_s if event.ended_s is None else event.ended_s
            near = [t for t in seen.get(target, []) if event.at_s <= t <= ended_s + plan.window_s]
            if near:
                restart_s = near[0]
                seen[target].remove(restart_s)
            # Without a series the counter of the whole run must have room for this one.
            used = sum(1 for p in found if p.proved and p.target == target)
            proved = bool(near) or (not counted.restarts_s(target) and again > used)
        found.append(Played(fault, event, target, proved, restart_s))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Restarts that no proved fault of their own target explains, by target; None where it cannot
    be told. ``about``: who is to blame for them."""

    by_target: Mapping[str, int | None]
    about: About
    why: Reason

    @property
    def total(self) -> int | None:
        counts = list(self.by_target.values())
        return None if not counts or None in counts else sum(c for c in counts if c is not None)

    @property
    def engine(self) -> bool:
        """Whether the engine restarted by itself, or nobody can tell."""
        return self.by_target.get(ENGINE) != 0

    @property
    def store_alone(self) -> bool:
        return self.about is About.APPLIANCE


def unexplained(
    store: str, block: Mapping[str, Any], faults: Sequence[Played], counted: Counted,
    window_s: float,
) -> Unexplained:  # fmt: skip
    """What restarted without being asked to, and whom that speaks about.

    The appliance is to blame only where its store restarted while the engine beside it lived on: an
    engine that restarts with a healthy store, or both within a window (a host that rebooted), is
    the environment's.
    """
    counts: dict[str, int | None] = {}
    left: dict[str, list[float]] = {}
    for target in sorted(targets(block)):
        own = [p for p in faults if p.proved and p.target == target]
        again = restarts(block, target)
        counts[target] = None if again is None else max(0, again - len(own))
        planned = [p.restart_s for p in own]
        left[target] = [t for t in counted.restarts_s(target) if t not in planned]
    name = STORE_PREFIX + store
    ours = counts.get(name)
    engine_too = counts.get(ENGINE) != 0
    alone = bool(ours) and (
        not engine_too
        or any(
            all(abs(t - other) > window_s for other in left.get(ENGINE, []))
            for t in left.get(name, [])
        )
    )
    if alone:
        return Unexplained(counts, About.APPLIANCE, Reason("store_restarted"))
    why = (
        Reason("restarted_together")
        if ours and engine_too
        else Reason("engine_restarted")
        if engine_too
        else Reason("other_store_restarted")
    )
    return Unexplained(counts, About.ENVIRONMENT, why)


@dataclass(frozen=True, slots=True)
class Recovery:
    """When service was as before after a fault; ``at_s`` None: not before the run ended."""

    began_s: float
    at_s: float | None
    took_s: float | None


def recovery(
    fault: Played, sent_s: Floats, ended_s: Floats, ttft_s: Floats, plan: SoakPlan, end_s: float
) -> Recovery:
    """From the begin of an injection to the first request at normal TTFT after its end.

    ``sent_s``, ``ended_s``, ``ttft_s`` (NaN: failed) are those of every request. Normal is the
    median before the fault, within the contract's share; a request counts as normal when the median
    of it and the next, two rounds of the level, is. ``took_s`` is a lower bound where service was
    never as before, and None where that cannot be told.
    """
    began_s = fault.began_s
    before = ttft_s[(sent_s >= plan.warmup_s) & (ended_s < began_s) & np.isfinite(ttft_s)]
    if not len(before):
        return Recovery(began_s, None, None)
    limit = float(np.median(before)) * (1 + plan.recovered_within)
    after = np.flatnonzero(sent_s >= fault.ended_s)
    after = after[np.argsort(sent_s[after], kind="stable")]
    rounds = 2 * plan.level
    for i in range(len(after) - rounds + 1):
        some = ttft_s[after[i : i + rounds]]
        if np.all(np.isfinite(some)) and float(np.median(some)) <= limit:
            # The first of them that is normal itself: the others only vouch for it.
            first = next(j for j in after[i : i + rounds] if ttft_s[j] <= limit)
            at_s = float(ended_s[first])
            return Recovery(began_s, at_s, at_s - began_s)
    return Recovery(began_s, None, max(0.0, end_s - began_s))


def excused(found: Sequence[Recovery], allowed_s: float | None, end_s: float) -> list[Stretch]:
    """Stretches of recovery that the contract grants: as long as it lasted, and no longer than the
    limit of the clause on recovery. Without such a clause nothing is granted."""
    if allowed_s is None:
        return []
    return [
        (r.began_s, min(end_s if r.at_s is None else r.at_s, r.began_s + allowed_s)) for r in found
    ]
