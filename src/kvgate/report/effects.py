"""What a comparing clause speaks of, pair by pair: numbers for a chart, never for a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.contract import Clause, CompareClause, Contract
from kvgate.criterion import Effect, effect_of
from kvgate.numbers import interval, number, percent
from kvgate.report.texts import Texts
from kvgate.verdict import Figure

ATTRIBUTE: Final[Mapping[tuple[str, str], str]] = {
    ("ttft", "p50"): "ttft_p50_s",
    ("ttft", "p99"): "ttft_p99_s",
    ("itl", "p50"): "itl_p50_s",
    ("itl", "p99"): "itl_p99_s",
    ("throughput", "steady"): "output_tok_per_s",
}
"""Block statistic that a metric and statistic of a clause name."""

_SIGN: Final = {Effect.DROP: -1, Effect.GAIN: 1, Effect.RISE: -1, Effect.SAME: 1}


@dataclass(frozen=True, slots=True)
class PairEffect:
    """One pair's effect as the fraction that its clause speaks of; None where it is missing."""

    pair: int
    value: float | None
    valid: bool


def terms_of(contract: Contract, gate: int, clause_id: str) -> Clause | None:
    """The contract's clause, or None when the verdict names one that the contract lacks."""
    if gate not in contract.gates:
        return None
    return next((c for c in contract.gate(gate).clause if c.id == clause_id), None)


def statistic(block: BlockResult, attribute: str) -> float | None:
    """A block's number, None where it is missing or not finite."""
    value: float | None = getattr(block.statistics, attribute, None)
    return value if value is not None and math.isfinite(value) else None


def pair_effects(analysis: Analysis, clause: CompareClause, where: str) -> list[PairEffect]:
    """Effects of the pairs of one cell (its label is ``where``), in order of pairs."""
    attribute = ATTRIBUTE.get((clause.metric, clause.statistic))
    sides: dict[int, dict[str, BlockResult]] = {}
    for block in analysis.blocks:
        if block.pair is not None and block.cell.label == where:
            sides.setdefault(block.pair, {})[block.role] = block
    effects = []
    for pair, roles in sorted(sides.items()):
        both = [roles.get("reference"), roles.get("test")]
        values = [statistic(b, attribute) if b and attribute else None for b in both]
        reference, test = values
        value = None
        if reference and test and reference > 0 and test > 0:
            value = effect_of(clause.effect, _SIGN[clause.effect] * math.log(test / reference))
        effects.append(PairEffect(pair, value, all(b is not None and b.valid for b in both)))
    return effects


def is_signed(terms: Clause | None) -> bool:
    """Whether a plus is written before a rise: every effect but a drop, which has a word."""
    return isinstance(terms, CompareClause) and terms.effect is not Effect.DROP


def measured(figure: Figure, metric: str, terms: Clause | None, t: Texts) -> str:
    """The measured value as the clause words it: "falls 31.2 %", "+33.4 %", "1.92 s"."""
    value = figure.value
    if value is None:
        return t("clauses.no_value")
    if isinstance(terms, CompareClause) and isinstance(value, float) and math.isfinite(value):
        if terms.effect is Effect.DROP:
            return t("effect.falls" if value >= 0 else "effect.rises", value=percent(abs(value)))
        return percent(value, signed=True)
    return number(value, figure.unit, t.lang, metric=metric)


def span(figure: Figure, metric: str, terms: Clause | None, t: Texts) -> str:
    """The interval that the verdict rests on, in the clause's own terms."""
    return interval(
        figure.low, figure.high, figure.unit, t.lang, metric=metric, signed=is_signed(terms)
    )


def required(figure: Figure, metric: str, terms: Clause | None, t: Texts) -> str:
    """The threshold with its relation, as the contract wrote it."""
    limit = number(
        figure.threshold, figure.unit, t.lang, metric=metric, signed=is_signed(terms), exact=True
    )
    if isinstance(terms, CompareClause) and terms.effect is Effect.SAME:
        limit = number(figure.threshold, figure.unit, t.lang, metric=metric, exact=True)
        return f"±\u00a0{limit}"
    sign = {">=": "≥", "<=": "≤", "==": "="}.get(figure.relation, figure.relation)
    return f"{sign}\u00a0{limit}"


def favourable_end(figure: Figure, terms: CompareClause) -> float | None:
    """The end of the interval that speaks for the appliance."""
    return figure.low if terms.effect is Effect.RISE else figure.high


def shortfall(figure: Figure, terms: CompareClause) -> float | None:
    """By how much the estimate misses the threshold, as a fraction; None where it does not."""
    if not isinstance(figure.value, float) or not isinstance(figure.threshold, float):
        return None
    gap = figure.threshold - figure.value
    gap = -gap if terms.effect is Effect.RISE else gap
    return gap if math.isfinite(gap) and gap > 0 else None
