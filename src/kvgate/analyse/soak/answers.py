"""Canaries of a long run: answers after a restore against the recomputed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kvgate.analyse.agreement import differs
from kvgate.analyse.counters import ENGINE
from kvgate.analyse.results import Answer, BlockResult, SoakWindow
from kvgate.analyse.soak.series import Clock, Counted
from kvgate.contract_gates import Canaries
from kvgate.reason import Reason
from kvgate.record import Outcome
from kvgate.verdict import About

_NEEDED = frozenset({"declared_source", "engine_alive", "client_ran"})
"""Conditions without which a block of the reference arm is no reference."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The arm without a store, asked before and after the soak.

    ``answers`` are the right ones by prompt, ``others`` those of later blocks. ``healthy_before``
    and ``healthy_after``: whether every request of that block was answered, None: not asked.
    """

    answers: Mapping[str, Answer]
    others: tuple[Answer, ...]
    healthy_before: bool | None
    healthy_after: bool | None
    ttft_rise: float | None

    @property
    def both_healthy(self) -> bool:
        """The engine answered without the store right before and right after the soak."""
        return self.healthy_before is True and self.healthy_after is True


def reference_of(
    arm: str | None, blocks: Sequence[BlockResult], answers: Sequence[Answer]
) -> Reference:
    """The reference from the probe blocks of an arm; the first usable block holds the answers."""
    own = sorted((b for b in blocks if b.arm == arm and b.kind == "probe"), key=lambda b: b.n)
    usable = [b.n for b in own if {c.name for c in b.conditions if c.ok is True} >= _NEEDED]
    first = usable[0] if usable else None
    healthy = [b.n in usable and b.failed_share == 0.0 for b in own]
    ttft = [b.statistics.ttft_p50_s for b in own if b.n in usable]
    rise = None
    if len(ttft) > 1 and ttft[0] and ttft[-1] is not None:
        rise = ttft[-1] / ttft[0] - 1
    return Reference(
        answers={a.prompt_digest: a for a in answers if a.block == first},
        others=tuple(a for a in answers if a.block in usable and a.block != first),
        healthy_before=healthy[0] if healthy else None,
        healthy_after=healthy[-1] if len(healthy) > 1 else None,
        ttft_rise=rise,
    )


@dataclass(frozen=True, slots=True)
class Wrong:
    """How many canary answers are wrong; ``count`` None: nothing can be said, ``why`` says why."""

    count: int | None
    why: Reason | None
    about: About = About.APPLIANCE


def wrong_answers(
    plan: Canaries,
    upper_tiers_tokens: int,
    restored_share: float,
    rows: pd.DataFrame,
    answers: Sequence[Answer],
    reference: Reference,
    windows: Sequence[SoakWindow],
    counted: Counted,
    clock: Clock,
) -> Wrong:
    """``answers`` are those of the finished ``rows``, in their order; ``windows`` those that count.

    An answer is wrong where it differs from the recomputed one beyond the tolerance, or is that of
    another prompt. It speaks of the appliance where its window's tokens were restored, at least
    ``restored_share`` of them, or are excused by a fault. Right ones count only where they were
    restored: their prompt's last use lies so far back that the engine's own tiers cannot hold it.
    """
    if not len(rows):
        return Wrong(None, Reason("no_canary"))
    if not reference.answers:
        return Wrong(None, Reason("no_reference", {"arm": plan.reference_arm}))
    if not reference.others:
        return Wrong(None, Reason("reference_not_asked_again", {"arm": plan.reference_arm}))
    tolerance = plan.logprob_tolerance
    known = reference.answers
    own = [differs(known[a.prompt_digest], a, tolerance)
           for a in reference.others if a.prompt_digest in known]  # fmt: skip
    if any(own) or not own:
        return Wrong(None, Reason("engine_unlike_itself", {"count": sum(own), "n": len(own)}))
    unknown = sum(a.prompt_digest not in known for a in answers)
    if unknown:
        return Wrong(None, Reason("canaries_without_reference", {"n": unknown}))
    texts: dict[tuple[str, ...], str] = {}
    for digest, right in known.items():
        texts.setdefault(right.tokens, digest)
    told = list(_told(rows, answers, counted, clock, upper_tiers_tokens))
    appliance, unclear = 0, 0
    sound = dict.fromkeys(range(len(windows)), 0)
    for answer, ended_s, cold in told:
        right = known[answer.prompt_digest]
        of_other = answer.tokens != right.tokens and answer.tokens in texts
        at = next((i for i, w in enumerate(windows) if w.start_s <= ended_s < w.end_s), None)
        share = None if at is None else windows[at].restored_share
        restored = share is not None and share >= restored_share
        if of_other or differs(right, answer, tolerance):
            if restored or (at is not None and windows[at].excused):
                appliance += 1
            else:
                unclear += 1
        elif at is not None and restored and cold:
            sound[at] += 1
    if appliance:
        return Wrong(appliance, Reason("canaries_wrong", {"count": appliance, "n": len(told)}))
    if unclear:
        return Wrong(unclear, Reason("canaries_not_restored"), About.ENVIRONMENT)
    bare = [w for i, w in enumerate(windows) if not w.excused and not sound[i]]
    if bare:
        span = {"low": f"{bare[0].start_s:,.0f}", "high": f"{bare[0].end_s:,.0f}"}
        return Wrong(None, Reason("window_without_canary", span))
    if (n := sum(sound.values())) < plan.min_answers:
        return Wrong(None, Reason("few_canaries", {"n": n, "needed": plan.min_answers}))
    return Wrong(0, None)


def _told(
    rows: pd.DataFrame, answers: Sequence[Answer], counted: Counted, clock: Clock, tiers: int
) -> Iterator[tuple[Answer, float, bool]]:
    """Each finished canary with the moment of its end, and whether its prompt was cold: since it
    was last used, the engine has seen more tokens than its own tiers hold."""
    finished = rows[rows["outcome"] == Outcome.OK.value]
    ended = clock.s(finished["end_ns"])
    sent = clock.s(rows["sent_ns"])
    used: dict[str, list[tuple[float, float]]] = {}
    for digest, a, b in zip(rows["prompt_digest"], sent, clock.s(rows["end_ns"]), strict=True):
        used.setdefault(str(digest), []).append((float(a), float(b)))
    for answer, end_s, sent_s in zip(answers, ended, clock.s(finished["sent_ns"]), strict=True):
        earlier = [b for a, b in used[answer.prompt_digest] if a < sent_s and np.isfinite(a)]
        grown = (
            None
            if not earlier
            else counted.grown(ENGINE, "prompt_tokens", max(earlier), float(sent_s))
        )
        cold = not earlier or (grown is not None and grown > tiers)
        yield answer, float(end_s), cold
