"""Do the two risks hold? Simulated campaigns under the noise one hopes for and the noise one gets.

Run from the repository's root:

    python benchmarks/decision/bench.py [--campaigns 10000] [--write docs/statistics.md]

Everything is simulated; nothing here was measured on an appliance. Prints markdown tables. Exits 1
when a bound that the rule promises is broken by more than the simulation's own error.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvgate.analyse.characteristic import (
    Characteristic,
    ClauseModel,
    clause_curve,
    simulate_clause,
    simulate_gate,
)
from kvgate.analyse.noise import Noise
from kvgate.analyse.sequential import LookPlan
from kvgate.contract import load_contract
from kvgate.criterion import Effect, benefit
from kvgate.planning_cost import pairs_of

SEED: Final = 20_250_301
PAIR_SD: Final = 0.058
RISK: Final = 0.05
SERIES: Final = 6  # two clauses at three levels share the producer's risk
LEVELS: Final = ("8", "16", "32")
MIN_PAIRS: Final = 4
BEGIN, END = "<!-- bench-decision: begin -->", "<!-- bench-decision: end -->"

_PAIRS: Final = pairs_of(
    load_contract(Path(__file__).parents[2] / "gates" / "contracts" / "fx100-mi308x.toml"), 3
)
LAB: Final = (_PAIRS.max_pairs, _PAIRS.min_pairs)
"""Most pairs and first look of the lab contract, whose rule is ``robust``."""

# Kinds under which the guarded rule promises its risks; those that only the robust one survives
# come first beyond them, then what no rule can know.
PROMISED: Final = (
    Noise("normal"),
    Noise("heavy_tails"),
    Noise("drift"),
    Noise("order_effect"),
    Noise("unequal_variance"),
    Noise("uneven_pairs"),
    Noise("carry_over"),
    Noise("skewed"),
)
BEYOND: Final = (Noise("carry_over", 0.5), Noise("effect_drift"), Noise("fixed_order"))
PROMISES: Final = {
    ("guarded", 24): PROMISED,
    ("robust", 24): (*PROMISED, *BEYOND[:2]),
    ("robust", LAB[0]): (*PROMISED, *BEYOND[:2]),
}
"""Which kinds the recommended rules must hold with so many pairs; the bench exits 1 otherwise."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    carry_over: float
    floor_share: float

    def plan(
        self, max_pairs: int, alpha_pass: float, alpha_fail: float, min_pairs: int = MIN_PAIRS
    ) -> LookPlan:
        return LookPlan(
            min_pairs,
            max_pairs,
            alpha_pass,
            alpha_fail,
            carry_over=self.carry_over,
            sd_floor=self.floor_share * PAIR_SD,
        )


PLAIN: Final = Rule("plain", 0.0, 0.0)
FLOORED: Final = Rule("floored", 0.0, 0.75)
CARRYING: Final = Rule("carrying", 0.3, 0.0)
GUARDED: Final = Rule("guarded", 0.3, 0.75)
ROBUST: Final = Rule("robust", _PAIRS.noise_carry_over, _PAIRS.noise_sd_floor / PAIR_SD)


def drop_clause(drop: float, levels: tuple[str, ...], plan: LookPlan, waived: bool) -> ClauseModel:
    """TTFT falls by at least 25 %, indifference 3 points."""
    bound = benefit(Effect.DROP, 0.25, 0.03)
    truth = -math.log1p(-drop)
    return ClauseModel(
        "ttft",
        levels,
        (truth,) * len(levels),
        (PAIR_SD,) * len(levels),
        bound.threshold,
        bound.pass_bound,
        plan,
        not waived,
    )


def gain_clause(gain: float, plan: LookPlan) -> ClauseModel:
    """Throughput rises by at least 29 %, indifference 4 points."""
    bound = benefit(Effect.GAIN, 0.29, 0.04)
    return ClauseModel(
        "throughput",
        LEVELS,
        (math.log1p(gain),) * 3,
        (PAIR_SD,) * 3,
        bound.threshold,
        bound.pass_bound,
        plan,
    )


@dataclass(frozen=True, slots=True)
class Row:
    noise: Noise
    pass_at_zone: float
    pass_waived: float
    pass_with_retest: float
    stop_at_design: float
    pairs_used: float


def row(noise: Noise, rule: Rule, max_pairs: int, campaigns: int, first: int) -> Row:
    """The figures of one kind of noise; the retested column grants one retest, 10 % exclusions."""

    def one_level(alpha: float, waived: bool, excluded: float = 0.0) -> Characteristic:
        clause = drop_clause(0.22, ("16",), rule.plan(max_pairs, alpha, RISK, first), waived)
        return simulate_gate(
            [clause], campaigns=campaigns, seed=SEED, noise=noise, excluded_share=excluded
        ).gate

    def gate(drop: float, gain: float) -> Characteristic:
        plan = rule.plan(max_pairs, RISK / 2, RISK / SERIES, first)
        clauses = [drop_clause(drop, LEVELS, plan, waived=False), gain_clause(gain, plan)]
        result = simulate_gate(
            clauses, campaigns=campaigns, seed=SEED, noise=noise, excluded_share=0.1
        )
        return result.gate

    design = gate(0.30, 0.40)
    return Row(
        noise,
        one_level(RISK, waived=False).p_pass,
        one_level(RISK, waived=True).p_pass,
        one_level(RISK / 2, waived=True, excluded=0.1).with_retests(1).p_pass,
        1.0 - design.p_pass,
        gate(0.32, 0.42).mean_pairs / max_pairs,
    )


def broken(row_: Row, campaigns: int) -> list[str]:
    """Names of the bounds that a row breaks by more than three standard errors."""
    slack = 3.0 * math.sqrt(RISK * (1.0 - RISK) / campaigns)
    checks = {
        "consumer": max(row_.pass_at_zone, row_.pass_waived, row_.pass_with_retest) > RISK + slack,
        "producer": row_.stop_at_design > RISK + slack,
        "pairs": row_.pairs_used > 0.60,
    }
    return [name for name, is_broken in checks.items() if is_broken]


def tables(campaigns: int, failures: list[str]) -> Iterator[str]:
    error = 100 * math.sqrt(RISK * (1 - RISK) / campaigns)
    yield (
        f"{campaigns} simulated campaigns a point, seed {SEED}, pair noise sd {PAIR_SD}, looks "
        f"after every pair. Percentages; the simulation's standard error at 5 % is "
        f"{error:.1f}. **Bold**: beyond its bound by three of them."
    )
    shapes = [
        (rule, max_pairs, MIN_PAIRS)
        for max_pairs in (12, 24)
        for rule in (PLAIN, FLOORED, CARRYING, GUARDED, ROBUST)
    ]
    for rule, max_pairs, first in (*shapes, (ROBUST, *LAB)):
        lab = ", as in the lab contracts" if (max_pairs, first) == LAB else ""
        yield ""
        yield (
            f"#### Rule {rule.name}, {first} to {max_pairs} pairs{lab} "
            f"(carry_over {rule.carry_over:g}, sd_floor {rule.floor_share:g} x sd)"
        )
        yield ""
        yield (
            "| noise | PASS at 22 % (bound 5) | same, estimate waived (5) | also with a "
            "retest and exclusions (5) | gate stopped at design effect (5) | pairs used at "
            "design + 2, of max (60) |"
        )
        yield "|---|---|---|---|---|---|"
        for noise in (*PROMISED, *BEYOND):
            figures = row(noise, rule, max_pairs, campaigns, first)
            hurt = broken(figures, campaigns)
            if hurt and noise in PROMISES.get((rule.name, max_pairs), ()):
                failures.append(f"{rule.name}, {max_pairs} pairs, {noise.kind}: {', '.join(hurt)}")
            yield _line(figures, campaigns)


def _line(figures: Row, campaigns: int) -> str:
    slack = 3.0 * math.sqrt(RISK * (1.0 - RISK) / campaigns)
    cells = [
        (figures.pass_at_zone, RISK + slack),
        (figures.pass_waived, RISK + slack),
        (figures.pass_with_retest, RISK + slack),
        (figures.stop_at_design, RISK + slack),
        (figures.pairs_used, 0.60),
    ]
    shown = [f"**{100 * v:.1f}**" if v > bound else f"{100 * v:.1f}" for v, bound in cells]
    size = f" {figures.noise.amount:g}" if figures.noise.amount else ""
    return f"| {figures.noise.kind}{size} | " + " | ".join(shown) + " |"


def curve_table(campaigns: int) -> Iterator[str]:
    drops = (0.20, 0.22, 0.24, 0.25, 0.26, 0.28, 0.30, 0.32)
    yield ""
    yield "#### One level, normal noise: PASS / FAIL / INCONCLUSIVE (mean pairs)"
    yield ""
    yield "| rule | " + " | ".join(f"{100 * d:.0f} %" for d in drops) + " |"
    yield "|---" * (len(drops) + 1) + "|"
    shapes = [(r, m, MIN_PAIRS) for m in (12, 24) for r in (PLAIN, GUARDED, ROBUST)]
    for rule, max_pairs, first in (*shapes, (ROBUST, *LAB)):
        clause = drop_clause(0.25, ("16",), rule.plan(max_pairs, RISK, RISK, first), waived=False)
        curve = clause_curve(
            clause, [-math.log1p(-d) for d in drops], campaigns=campaigns, seed=SEED
        )
        cells = [
            f"{100 * c.p_pass:.0f} / {100 * c.p_fail:.0f} / {100 * c.p_inconclusive:.0f} "
            f"({c.mean_pairs:.1f})"
            for c in (point.characteristic for point in curve)
        ]
        yield f"| {rule.name}, {max_pairs} | " + " | ".join(cells) + " |"
    yield ""
    yield "#### The vendor's own 26 / 32 / 26 % at three levels: PASS"
    yield ""
    yield "| correlation of levels | plain, 12 | guarded, 12 | plain, 24 | guarded, 24 |"
    yield "|---|---|---|---|---|"
    for correlation in (0.0, 0.5, 0.9):
        cells = []
        for max_pairs in (12, 24):
            for rule in (PLAIN, GUARDED):
                plan = rule.plan(max_pairs, RISK, RISK / 3)
                clause = drop_clause(0.26, LEVELS, plan, waived=False)
                effects = tuple(-math.log1p(-d) for d in (0.26, 0.32, 0.26))
                clause = ClauseModel(
                    clause.name,
                    LEVELS,
                    effects,
                    clause.pair_sd,
                    clause.threshold,
                    clause.pass_bound,
                    plan,
                )
                result = simulate_clause(
                    clause, campaigns=campaigns, seed=SEED, level_correlation=correlation
                )
                cells.append(f"{100 * result.p_pass:.0f}")
        yield f"| {correlation:g} | " + " | ".join(cells) + " |"


def patience_table(campaigns: int) -> Iterator[str]:
    """What later first looks do where the effect itself changes; one level, 12 pairs."""
    yield ""
    yield "#### An effect that drifts: PASS at 22 % (bound 5), at most 12 pairs"
    yield ""
    yield "| first look at pair | 4 | 6 | 8 | 10 | 12 |"
    yield "|---|---|---|---|---|---|"
    for rule in (PLAIN, GUARDED, ROBUST):
        cells = []
        for first in (4, 6, 8, 10, 12):
            plan = rule.plan(12, RISK, RISK, first)
            clause = drop_clause(0.22, ("16",), plan, waived=False)
            result = simulate_clause(
                clause, campaigns=campaigns, seed=SEED, noise=Noise("effect_drift")
            )
            cells.append(f"{100 * result.p_pass:.1f}")
        yield f"| {rule.name} | " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    arguments = parser.parse_args()
    started = time.monotonic()
    failures: list[str] = []
    lines = [
        *tables(arguments.campaigns, failures),
        *curve_table(arguments.campaigns),
        *patience_table(arguments.campaigns),
    ]
    text = "\n".join(lines)
    sys.stdout.write(text + "\n")
    if arguments.write is not None:
        page = arguments.write.read_text(encoding="utf-8")
        head, _, rest = page.partition(BEGIN)
        _, found, tail = rest.partition(END)
        if not found:
            parser.error(f"{arguments.write}: the marks {BEGIN} and {END} are missing")
        arguments.write.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")
    sys.stderr.write(f"{time.monotonic() - started:.0f} s\n")
    for failure in failures:
        sys.stderr.write(f"a promise is broken: {failure}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
