"""plan: what a contract's own rule would decide, before anybody signs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.commands.shown import document, say, table
from kvgate.errors import UsageError

if TYPE_CHECKING:
    from kvgate.analyse.characteristic import Characteristic
    from kvgate.commands.spread import Spreads
    from kvgate.contract import Contract
    from kvgate.planning import ClausePlan, FloorPlan, GatePlan
    from kvgate.planning_cost import Calendar, Durations

BAR = 20
START_MINUTES, PRIME_S, REQUEST_S = 13.0, 16.0, 1.15
"""Of a 480B engine, assumed: one start, one computed prompt, one restored request."""


def plan_command(
    contract: Annotated[Path, typer.Option(metavar="FILE", help="The contract's TOML file.")],
    from_g2: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="Measure the noise in this run of G2.")
    ] = None,
    pair_sd: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[METRIC.STATISTIC=]SD",
            help="Spread of one pair's log ratio, such as 0.058 or ttft.p99=0.12.",
        ),
    ] = None,
    truth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLAUSE=X[,X...]",
            help="True effects to try, one for all levels or one each: G3.1=0.26,0.32,0.26.",
        ),
    ] = None,
    start_minutes: Annotated[
        float | None, typer.Option(min=0, help="Minutes of one engine start.")
    ] = None,
    prime_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds to compute one prompt, as priming does.")
    ] = None,
    request_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds per restored request: level / throughput.")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it all into this .svg or .html.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every curve instead of one page.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Print on one page what a contract's rule would decide, what it costs, and the calendar;
    with --all the operating characteristic of every comparing clause and gate.

    Refuses, with exit code 2, a contract whose gate would accept an appliance at the design effects
    less often than 1 - producer's risk, or whose pairs do not fit between the deadlines. Simulated
    with a fixed seed: the same input gives the same answer. Without options, spread and times are
    those of the contract's [planning], else assumptions for a 480B engine; it is said which.
    """
    from kvgate.commands.contracts import store_share_lines
    from kvgate.commands.plan_document import floor_document, gate_document
    from kvgate.commands.plan_page import print_calendar, print_page
    from kvgate.commands.spread import spreads
    from kvgate.contract import load_contract
    from kvgate.planning import CAMPAIGNS, SEED, comparing, noise_floors
    from kvgate.planning_cost import calendar

    terms = load_contract(contract)
    gates = [n for n in terms.gates if comparing(terms, n)]
    clauses = [c for n in gates for c in comparing(terms, n)]
    floors = [c for n in terms.gates for c in noise_floors(terms, n)]
    if not clauses:
        raise UsageError(
            "no clause compares two arms: there is nothing to plan",
            where=str(contract),
            remedy="a limit is either kept or not; the plan is for comparing clauses",
        )
    named = truths(truth or (), [c.id for c in clauses])
    noise = spreads(pair_sd or (), from_g2, [*clauses, *floors], terms.planning)
    durations = durations_of(terms, start_minutes, prime_seconds, request_seconds)
    plans = [_planned(terms, n, noise, named, durations, upper=False) for n in gates]
    measured = any(
        noise.of(c.clause, cell).pairs is not None
        for plan in plans
        for c in plan.clauses
        for cell in c.cells
    )
    uppers = plans
    if measured:  # else the bound is the spread itself
        uppers = [_planned(terms, n, noise, {}, durations, upper=True) for n in gates]
    floor_plans = _floors(terms, noise)
    days = calendar(terms, durations)
    refusals = [_refusal(p) for p in plans if not p.accepted]
    refusals += [_no_time(d) for d in days if not d.fits]
    if chart is not None:
        from kvgate.commands.plan_chart import write_chart

        write_chart(chart, terms, plans, noise.source)
    if json_output:
        document(
            {
                "contract": terms.id,
                "digest": terms.digest,
                "spread_source": noise.source,
                "campaigns": CAMPAIGNS,
                "seed": SEED,
                "gates": [
                    gate_document(p, u, noise, named) for p, u in zip(plans, uppers, strict=True)
                ],
                "noise_floors": [floor_document(f) for f in floor_plans],
                "times_s": durations,
                "calendar": days,
                "weeks": terms.campaign.weeks,
                "refused": refusals,
            }
        )
    else:
        if everything:
            say(f"Contract {terms.id}, digest {terms.digest}")
            say(f"Spread (sd) of one pair's log ratio: {noise.source}")
            say(f"{CAMPAIGNS:,} simulated campaigns a point, seed {SEED}; normal noise")
            for plan, upper in zip(plans, uppers, strict=True):
                _print_gate(terms, plan, upper, noise, named)
            _print_floors(floor_plans)
            for line in store_share_lines(terms):
                say(line)
            say()
            print_calendar(terms, durations, days)
        else:
            both = list(zip(plans, uppers, strict=True))
            print_page(terms, both, noise, floor_plans, durations, days, _tried(named))
        if chart is not None:
            say(f"chart: {chart}")
    if refusals:
        raise UsageError(
            f"refused: {'; '.join(refusals)}",
            where=str(contract),
            remedy="raise max_pairs, widen indifference or design_effect, quiet the platform or "
            "allow more days",
        )


def durations_of(
    terms: Contract, start_minutes: float | None, prime_s: float | None, request_s: float | None
) -> Durations:
    """Times from the options, else from the contract's [planning], else of a 480B engine."""
    from kvgate.planning_cost import Durations

    agreed = terms.planning
    minutes = START_MINUTES if agreed is None else agreed.start_minutes or START_MINUTES
    prime = PRIME_S if agreed is None or agreed.prime_seconds is None else agreed.prime_seconds
    request = REQUEST_S if agreed is None else agreed.request_seconds or REQUEST_S
    return Durations(
        60 * (minutes if start_minutes is None else start_minutes),
        prime if prime_s is None else prime_s,
        request if request_s is None else request_s,
    )


def truths(given: Sequence[str], known: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """``--truth`` parsed; raises UsageError for an unknown clause or what is no fraction."""
    named: dict[str, tuple[float, ...]] = {}
    for text in given:
        clause, _, numbers = text.partition("=")
        try:
            effects = tuple(float(n) for n in numbers.split(","))
        except ValueError:
            effects = ()
        if not effects or not all(-0.9 <= e <= 9.0 for e in effects):
            raise UsageError(
                f"{text!r} names no true effects",
                where="--truth",
                remedy="write fractions: G3.1=0.26 or G3.1=0.26,0.32,0.26",
            )
        if clause not in known:
            raise UsageError(
                f"no comparing clause {clause!r}",
                where="--truth",
                remedy=f"known here: {', '.join(known)}",
            )
        named[clause] = effects
    return named


def _planned(
    terms: Contract,
    gate: int,
    noise: Spreads,
    named: dict[str, tuple[float, ...]],
    durations: Durations,
    *,
    upper: bool,
) -> GatePlan:
    from kvgate.decide.compare import look_plan
    from kvgate.planning import comparing, plan_gate

    pairs = terms.gate(gate).pairs
    if pairs is None:
        raise UsageError(f"gate {gate} compares arms but plans no pairs", remedy="add its plan")
    ids = {c.id for c in comparing(terms, gate)}
    plan = plan_gate(
        terms,
        gate,
        look_plan(terms, gate, pairs),
        noise.upper if upper else noise.sd,
        durations,
        truth={k: v for k, v in named.items() if k in ids},
    )
    if plan is None:
        raise UsageError(f"gate {gate} compares no arms")
    return plan


def _floors(terms: Contract, noise: Spreads) -> list[FloorPlan]:
    from kvgate.planning import cells_of_clause, noise_floors, plan_floor

    found = []
    for gate in terms.gates:
        pairs = terms.gate(gate).pairs
        if pairs is not None:
            found += [
                plan_floor(c, cells_of_clause(terms, gate, c), pairs.planned_pairs, noise.sd)
                for c in noise_floors(terms, gate)
            ]
    return found


def _refusal(plan: GatePlan) -> str:
    from kvgate.commands.plan_words import of_100

    return (
        f"G{plan.gate} would accept an appliance at the design effects in "
        f"{of_100(plan.at_design.p_pass)} of 100 campaigns, at least {of_100(plan.wanted)} wanted"
    )


def _print_gate(
    terms: Contract,
    plan: GatePlan,
    upper: GatePlan,
    noise: Spreads,
    named: dict[str, tuple[float, ...]],
) -> None:
    from kvgate.commands.plan_page import print_ways
    from kvgate.commands.plan_words import gate_sentence, of_100

    pairs, gate = plan.pairs, terms.gate(plan.gate)
    say()
    say(f"G{plan.gate} {gate.title.en}")
    say(
        f"  looks after each pair from {pairs.min_pairs} to {pairs.max_pairs}; "
        f"{gate.retests} retests; noise_carry_over {pairs.noise_carry_over:g}, "
        f"noise_sd_floor {pairs.noise_sd_floor:g}"
    )
    if pairs.planned_pairs < pairs.max_pairs:
        say(f"  one run measures {pairs.planned_pairs} pairs; without a crossing it ends in EXTEND")
    at = plan.at_design
    say(
        f"  An appliance at the design effects of all clauses would be accepted in "
        f"{of_100(at.p_pass)} of 100 campaigns (at least {of_100(plan.wanted)} wanted), failed "
        f"in {of_100(at.p_fail)}, undecided in {of_100(at.p_inconclusive)}."
    )
    if upper.at_design.p_pass != at.p_pass:
        say(
            f"  If the noise is as large as its 80 % upper bound: accepted in "
            f"{of_100(upper.at_design.p_pass)} of 100."
        )
    if plan.at_truth is not None:
        say(
            f"  With the true effects named ({_tried(named)}): accepted in "
            f"{of_100(plan.at_truth.p_pass)} of 100, failed in {of_100(plan.at_truth.p_fail)}, "
            f"undecided in {of_100(plan.at_truth.p_inconclusive)}."
        )
    say(f"  {gate_sentence(plan)}")
    say(f"  {_calendar(plan)}")
    print_ways(plan, indent=4)
    say()
    say(f"  The whole gate, by the true effect of {plan.leading.id}:")
    _print_curve(plan.curve, plan)
    for clause in plan.clauses:
        _print_clause(clause, plan, noise)


def _calendar(plan: GatePlan) -> str:
    from kvgate.commands.plan_words import of_hours

    cost, at = plan.cost, plan.at_design
    outcomes = (
        ("accepted", at.pairs_if_pass),
        ("failed", at.pairs_if_fail),
        ("undecided", at.pairs_if_inconclusive),
    )
    parts = [f"{n:.1f} pairs, {of_hours(cost.hours(n))} h if {word}" for word, n in outcomes if n]
    return f"At the design effects: {'; '.join(parts)}."


def _no_time(day: Calendar) -> str:
    return (
        f"G{day.gate} takes up to {day.hours or 0:.0f} h, its deadlines leave "
        f"{24 * day.window_days} h"
    )


def _print_clause(item: ClausePlan, plan: GatePlan, noise: Spreads) -> None:
    from kvgate.commands.plan_words import of_100, sentence

    clause = item.clause
    say()
    say(f"  {clause.id} {clause.text.en}")
    spread = [noise.of(clause, cell) for cell in item.cells]
    shown = dict.fromkeys(f"{s.sd:.4g} ({s.origin})" for s in spread)
    say(f"    spread of a pair: {', '.join(shown)}")
    say(f"    {sentence(item)}")
    say(
        f"    At the edge of indifference: {of_100(item.at_zone.p_pass)} of 100; at the design "
        f"effect: {of_100(item.at_design.p_pass)} of 100."
    )
    points = [p.characteristic for p in item.curve]
    _print_curve(list(zip(item.effects, points, strict=True)), plan)


def _print_curve(curve: Sequence[tuple[float, Characteristic]], plan: GatePlan) -> None:
    from kvgate.commands.plan_words import of_100, of_hours

    rows = [("true", "PASS", "FAIL", "open", "pairs", "hours", "PASS")]
    for effect, at in curve:
        rows.append(
            (
                f"{100 * effect:.3g} %",
                of_100(at.p_pass),
                of_100(at.p_fail),
                of_100(at.p_inconclusive),
                f"{at.mean_pairs:.1f}",
                of_hours(plan.cost.hours(at.mean_pairs)),
                "#" * round(BAR * at.p_pass),
            )
        )
    table(rows, indent=4)


def _print_floors(floors: Sequence[FloorPlan]) -> None:
    from kvgate.commands.plan_words import of_100

    for floor in floors:
        say()
        say(
            f"{floor.clause.id} {floor.clause.text.en}: an arm that equals itself is found so in "
            f"{of_100(floor.p_pass)} of 100 runs of {floor.pairs} pairs "
            f"(spread {floor.spread:.4g})."
        )


def _tried(named: Mapping[str, Sequence[float]]) -> str:
    """The effects of ``--truth`` in words: "G3.1 26 % / 32 %"."""
    return "; ".join(
        f"{clause} {' / '.join(f'{100 * e:g} %' for e in effects)}"
        for clause, effects in named.items()
    )
