"""A plan as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvgate.analyse.characteristic import Characteristic
from kvgate.commands.plan_words import gate_sentence, sentence
from kvgate.commands.spread import Spreads
from kvgate.planning import FloorPlan, GatePlan


def _outcomes(at: Characteristic | None) -> dict[str, Any] | None:
    if at is None:
        return None
    return {
        "pass": at.p_pass,
        "fail": at.p_fail,
        "inconclusive": at.p_inconclusive,
        "mean_pairs": at.mean_pairs,
        "pairs_if_pass": at.pairs_if_pass,
        "pairs_if_fail": at.pairs_if_fail,
        "pairs_if_inconclusive": at.pairs_if_inconclusive,
    }


def gate_document(
    plan: GatePlan, upper: GatePlan, noise: Spreads, named: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    cost, most = plan.cost, plan.pairs.max_pairs
    return {
        "gate": plan.gate,
        "accepted": plan.accepted,
        "wanted": plan.wanted,
        "at_design": _outcomes(plan.at_design),
        "at_design_upper_spread": _outcomes(upper.at_design),
        "at_truth": _outcomes(plan.at_truth),
        "sentence": gate_sentence(plan),
        "leading": plan.leading.id,
        "curve": [{"effect": effect, **(_outcomes(at) or {})} for effect, at in plan.curve],
        "truth": named if plan.at_truth is not None else None,
        "hours": {
            "fixed": cost.fixed_h,
            "per_pair": cost.pair_h,
            "at_most": cost.hours(most),
            "expected_at_design": cost.hours(plan.at_design.mean_pairs),
            "at_most_blockwise": cost.blockwise_hours(most),
            "at_most_blockwise_fresh_prompts": cost.fresh_hours(most),
            "between_deadlines": 24 * plan.window_days,
        },
        "clauses": [
            {
                "clause": item.clause.id,
                "sentence": sentence(item),
                "spreads": [
                    {
                        "level": cell.level,
                        "cell": cell.label,
                        "sd": s.sd,
                        "origin": s.origin,
                        "pairs": s.pairs,
                    }
                    for cell in item.cells
                    for s in (noise.of(item.clause, cell),)
                ],
                "at_indifference": _outcomes(item.at_zone),
                "at_design": _outcomes(item.at_design),
                "at_truth": _outcomes(item.at_truth),
                "curve": [
                    {"effect": effect, **(_outcomes(point.characteristic) or {})}
                    for effect, point in zip(item.effects, item.curve, strict=True)
                ],
            }
            for item in plan.clauses
        ],
    }


def floor_document(floor: FloorPlan) -> dict[str, Any]:
    return {
        "clause": floor.clause.id,
        "pairs": floor.pairs,
        "spread": floor.spread,
        "pass": floor.p_pass,
    }
