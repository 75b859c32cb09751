"""Blocks of pairs and the figures they give."""

from __future__ import annotations

import math
import random
import statistics as st
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kvgate.analyse.block import BlockStatistics
from kvgate.analyse.results import Analysis, BlockResult
from kvgate.contract import CompareClause
from kvgate.criterion import METRICS, Effect, effect_of
from kvgate.decide.wording import percent, spell_interval
from kvgate.plan import Cell
from kvgate.reason import Reason
from kvgate.report.effects import ATTRIBUTE, pair_effects
from kvgate.verdict import About, Condition, Figure, Verdict

Means = Mapping[tuple[str, int], tuple[float, float]]
"""TTFT p50 of baseline and appliance by workload and level, s."""

HEALTHY: Means = {
    ("cold_restore", 8): (10.17, 7.02), ("cold_restore", 16): (17.4, 11.7),
    ("cold_restore", 32): (35.73, 24.6),
}  # fmt: skip
SLOW: Means = {
    ("cold_restore", 8): (10.17, 8.31), ("cold_restore", 16): (17.4, 14.4),
    ("cold_restore", 32): (35.73, 29.1),
}  # fmt: skip
ALIKE = (9.31, 9.36)
"""Of a cell in which the arms do the same work."""


def block_statistics(**values: Any) -> BlockStatistics:
    """Statistics with the given numbers, every other one missing."""
    blank: dict[str, Any] = {field.name: None for field in fields(BlockStatistics)}
    return BlockStatistics(**{**blank, "failed_by_outcome": {}, "n_impossible": 0, **values})


def conditions(**broken: Condition) -> tuple[Condition, ...]:
    """The conditions of a healthy block, some of them replaced."""
    held = [
        Condition("engine_cache_cold", About.ENVIRONMENT, True, 0.002, 0.01, "1", ""),
        Condition("declared_source", About.ENVIRONMENT, True, 0.996, 0.95, "1", ""),
        Condition("in_flight", About.INSTRUMENT, True, 0.984, 0.90, "1", ""),
        Condition("client_stall", About.INSTRUMENT, True, 0.004, 0.25, "s", ""),
        Condition("telemetry_coverage", About.INSTRUMENT, True, 1.0, 0.99, "1", ""),
        Condition("engine_alive", About.ENVIRONMENT, True, "alive", "alive", "text", ""),
        Condition("requests_finished", About.ENVIRONMENT, True, 0.0, 0.0, "1", ""),
    ]
    return tuple(broken.get(c.name, c) for c in held)


WARM_ENGINE = Condition(
    "engine_cache_cold", About.ENVIRONMENT, False, 0.412, 0.01, "1",
    "restart the engine or reset its prefix cache before the block",
)  # fmt: skip
NO_TELEMETRY = Condition(
    "telemetry_coverage", About.INSTRUMENT, None, None, 0.99, "1",
    "see why the sampler wrote nothing: its log is in the block's folder",
)  # fmt: skip


def paired_blocks(
    ttft: Means, pairs: int, noise: float, seed: int,
    broken: Mapping[int, Condition] | None = None, gain: float = 1.0,
) -> list[BlockResult]:  # fmt: skip
    """Cold restores of baseline and appliance at each level; ``broken`` by pair (its baseline)."""
    rng = random.Random(seed)
    blocks: list[BlockResult] = []
    session = 1
    for pair in range(pairs):
        for position, role in enumerate(rng.sample(["reference", "test"], 2)):
            side = 0 if role == "reference" else 1
            session += 1
            for (workload, level), means in ttft.items():
                p50 = means[side] * math.exp(rng.gauss(0, noise))
                n = 6 * level
                rate = 64 * level / (p50 * 1.04 + 64 * 0.021) * (gain if side else 1.0)
                bad = (broken or {}).get(pair) if side == 0 else None
                blocks.append(
                    BlockResult(
                        n=len(blocks) + 1,
                        session=session,
                        pair=pair,
                        role=role,
                        position=position,
                        arm="appliance" if side else "baseline",
                        cell=Cell(workload, level),
                        kind=workload,
                        statistics=block_statistics(
                            level=level,
                            n_requests=n,
                            n_ok=n,
                            ttft_p50_s=p50,
                            ttft_p99_s=p50 * math.exp(abs(rng.gauss(0.16, 0.03))),
                            itl_p50_s=0.021 * math.exp(rng.gauss(0, 0.02)),
                            itl_p99_s=0.044 * math.exp(rng.gauss(0, 0.05)),
                            output_tok_per_s=rate,
                            window_s=p50 * 5,
                            mean_in_flight_in_window=level * 0.985,
                            prompt_tokens=8192 * n,
                            output_tokens=64 * n,
                            unique_prompts=n,
                            client_lag_p99_ns=41_000,
                        ),
                        conditions=conditions(**({bad.name: bad} if bad else {})),
                        counters={"prompt_tokens_external": 8192.0 * n},
                        started_at=f"2026-03-04T0{pair % 9}:1{position}:00Z",
                    )
                )
    return blocks


def compare_figure(a: Analysis, terms: CompareClause, where: str, factor: float) -> Figure:
    """Mean of the pairs with an interval of ``factor`` standard errors, judged by the book."""
    sign = {"drop_at_least": -1, "rise_at_most": -1}.get(terms.effect.value, 1)
    values = [e.value for e in pair_effects(a, terms, where) if e.valid and e.value is not None]
    logs = [
        sign * math.log(1 - v if terms.effect.value == "drop_at_least" else 1 + v) for v in values
    ]
    mean = st.mean(logs)
    half = factor * st.stdev(logs) / math.sqrt(len(logs))
    ends = sorted(effect_of(terms.effect, x) for x in (mean - half, mean + half))
    value, zone = effect_of(terms.effect, mean), terms.indifference or 0.0
    rise = terms.effect.value == "rise_at_most"
    bad, good = (ends[1], ends[0]) if rise else (ends[0], ends[1])
    misses = good > terms.threshold if rise else good < terms.threshold
    clears = bad < terms.threshold + zone if rise else bad > terms.threshold - zone
    reached = value <= terms.threshold if rise else value >= terms.threshold

    span = spell_interval(*ends)
    if misses:
        params = {
            "value": percent(value),
            "threshold": percent(terms.threshold, exact=True),
            "bound": percent(good),
        }
        verdict, reason = Verdict.FAIL, Reason("below_threshold", params)
    elif clears and reached:
        verdict, reason = Verdict.PASS, Reason("met")
    else:
        verdict = Verdict.INCONCLUSIVE
        reason = Reason("open", {"n": len(values), "interval": span})
    sides = {role: st.mean(_statistic(a, terms, where, role)) for role in ("reference", "test")}
    unit = METRICS[terms.metric].unit
    details: dict[str, float | str | None] = {"unit": unit, "statistic": terms.statistic, **sides}
    return Figure(where, value, "1", "<=" if rise else ">=", terms.threshold, verdict, reason,
                  len(values), ends[0], ends[1], details)  # fmt: skip


def _statistic(a: Analysis, terms: CompareClause, where: str, role: str) -> list[float]:
    name = ATTRIBUTE[terms.metric, terms.statistic]
    blocks = [b for b in a.blocks if b.cell.label == where and b.role == role]
    return [float(getattr(b.statistics, name)) for b in blocks]


def invalid_figure(where: str, terms: CompareClause, n: int) -> Figure:
    reason = Reason("too_few_pairs", {"n": n, "needed": 4, "conditions": "engine_cache_cold"})
    relation = "<=" if terms.effect is Effect.RISE else ">="
    return Figure(where, None, "1", relation, terms.threshold, Verdict.INVALID, reason, n)
