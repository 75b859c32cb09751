"""A plan on one page: what a reader must know before signing. ``--all`` prints every curve."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvgate.commands.contracts import store_share_lines
from kvgate.commands.plan_words import does, gate_sentence, of_100, of_hours
from kvgate.commands.shown import say, table
from kvgate.plan import planned_setups
from kvgate.planning import designed, just_beyond, zone_edge

if TYPE_CHECKING:
    from kvgate.analyse.characteristic import Characteristic
    from kvgate.commands.spread import Spreads
    from kvgate.contract import CompareClause, Contract
    from kvgate.planning import FloorPlan, GatePlan
    from kvgate.planning_cost import Calendar, Durations

COLUMNS: Final = 80


def print_page(
    terms: Contract,
    plans: Sequence[tuple[GatePlan, GatePlan]],
    noise: Spreads,
    floors: Sequence[FloorPlan],
    times: Durations,
    days: Sequence[Calendar],
    named: str,
) -> None:
    """The sentence, the risks, pairs and hours of every gate, then the calendar.

    ``plans`` are (with the spread, with its upper bound); ``named`` are the true effects that
    ``--truth`` gave, in words.
    """
    say(terms.title.en)
    say(f"Contract {terms.id}, digest {terms.digest[:12]}{', a REHEARSAL' * terms.rehearsal}")
    prose(f"Spread (sd) of one pair's log ratio: {noise.source}.")
    for plan, upper in plans:
        _gate(terms, plan, upper, noise, named)
    for floor in floors:
        prose(
            f"{floor.clause.id} Noise floor: an arm that equals itself is found so in "
            f"{of_100(floor.p_pass)} of 100 runs of {floor.pairs} pairs."
        )
    for line in store_share_lines(terms):
        prose(line)
    say()
    print_calendar(terms, times, days, brief=True)
    prose("All curves: --all. Drawn: --chart FILE.svg. For a machine: --json.")


def prose(text: str, *, indent: int = 0) -> None:
    """A paragraph that fits an ordinary terminal."""
    margin = " " * indent
    for line in textwrap.wrap(
        text, COLUMNS, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False,
        break_long_words=False,
    ):  # fmt: skip
        say(line)


def _gate(terms: Contract, plan: GatePlan, upper: GatePlan, noise: Spreads, named: str) -> None:
    pairs, at = plan.pairs, plan.at_design
    say()
    say(f"G{plan.gate} {terms.gate(plan.gate).title.en}")
    prose(gate_sentence(plan), indent=2)
    prose(
        f"At the design effects of all clauses: accepted in {of_100(at.p_pass)} of 100 (at least "
        f"{of_100(plan.wanted)} wanted{_with_upper(plan, upper)}), failed in {of_100(at.p_fail)}, "
        f"open in {of_100(at.p_inconclusive)}.",
        indent=2,
    )
    if plan.at_truth is not None:
        prose(
            f"With the true effects named ({named}): accepted in {of_100(plan.at_truth.p_pass)} "
            f"of 100, failed in {of_100(plan.at_truth.p_fail)}, open in "
            f"{of_100(plan.at_truth.p_inconclusive)}.",
            indent=2,
        )
    rows: list[tuple[str, ...]] = [
        (f"the whole gate, truly {_leading(plan)}", "PASS", "FAIL", "open", "pairs", "hours")
    ]
    for effect, word in _points(plan.leading):
        found = next(c for e, c in plan.curve if abs(e - effect) < 1e-6)
        rows.append((f"{100 * effect:4.3g} %  {word}", *_outcomes(found, plan)))
    table(rows, indent=2)
    zone = f"edge ({of_100(terms.risk.consumer)})"
    head = ("each clause alone accepts one that truly", "PASS", zone, "design", "sd")
    table([head, *(_clause(c.clause.id, plan, noise) for c in plan.clauses)], indent=2)
    if any(noise.of(c.clause, cell).borrowed for c in plan.clauses for cell in c.cells):
        prose("* not measured in this workload: the noisiest of the others", indent=2)
    retests = terms.gate(plan.gate).retests
    setups = planned_setups(pairs.cells)
    references = len(planned_setups(pairs.reference_cells))
    each = f" in each of {len(setups)} setups" if len(setups) > 1 else ""
    prose(
        f"{pairs.min_pairs} to {pairs.max_pairs} pairs{each} in random AB/BA couples of sessions, "
        f"a look after each; a run measures {pairs.planned_pairs}; {retests or 'no'} retests; at "
        f"most {2 * len(setups) * pairs.max_pairs + references} sessions.",
        indent=2,
    )
    print_ways(plan, indent=2)


def _with_upper(plan: GatePlan, upper: GatePlan) -> str:
    """What the 80 % upper bound of a measured spread would make of it."""
    p_pass = upper.at_design.p_pass
    return "" if p_pass == plan.at_design.p_pass else f"; {of_100(p_pass)} if noisier, 80 % bound"


def _leading(plan: GatePlan) -> str:
    """ "lowers TTFT p50 by", the effect left out."""
    return does(plan.leading, 0.0).removesuffix(" 0 %")


def _points(clause: CompareClause) -> list[tuple[float, str]]:
    """The effects that the contract names, and the one of the sentence, in their order."""
    points = {
        zone_edge(clause): "edge of indifference",
        clause.threshold: "threshold",
        just_beyond(clause): "one point beyond",
        designed(clause): "design effect",
    }
    return sorted(points.items())


def _outcomes(at: Characteristic, plan: GatePlan) -> tuple[str, ...]:
    return (
        of_100(at.p_pass),
        of_100(at.p_fail),
        of_100(at.p_inconclusive),
        f"{at.mean_pairs:.1f}",
        of_hours(plan.cost.hours(at.mean_pairs)),
    )


def _clause(clause_id: str, plan: GatePlan, noise: Spreads) -> tuple[str, ...]:
    item = next(c for c in plan.clauses if c.clause.id == clause_id)
    clause = item.clause
    beyond = item.at(just_beyond(clause))
    borrowed = any(noise.of(clause, cell).borrowed for cell in item.cells)
    sds = sorted({f"{noise.of(clause, cell).sd:.3g}" for cell in item.cells})
    return (
        f"{clause.id} {does(clause, just_beyond(clause))}",
        "-" if beyond is None else of_100(beyond.p_pass),
        of_100(item.at_zone.p_pass),
        of_100(item.at_design.p_pass),
        (sds[0] if len(sds) == 1 else f"{sds[0]}..{sds[-1]}") + "*" * borrowed,
    )


def print_ways(plan: GatePlan, *, indent: int) -> None:
    """The ways to measure the same pairs, with their hours."""
    cost, most = plan.cost, plan.pairs.max_pairs
    mean, fewest = plan.at_design.mean_pairs, plan.pairs.min_pairs
    head = ("hours of", f"{fewest} pairs", f"{mean:.1f} (mean)", f"{most} (most)")
    rows: list[tuple[str, ...]] = [head]
    for words, hours in (
        ("sessions, pools primed once (this plan)", cost.hours),
        ("the engine started for every block", cost.blockwise_hours),
        ("the same, prompts primed for each block", cost.fresh_hours),
    ):
        rows.append((words, *(f"{of_hours(hours(n))} h" for n in (fewest, mean, most))))
    table(rows, indent=indent)


def print_calendar(
    terms: Contract, durations: Durations, days: Sequence[Calendar], *, brief: bool = False
) -> None:
    """Every gate's days and hours, and what all of them take of the campaign."""
    weeks = terms.campaign.weeks
    prose(
        f"Calendar of {weeks} week{'s' * (weeks != 1)}; one engine start "
        f"{durations.start_s / 60:.3g} min, one computed prompt {durations.prime_s:.3g} s, one "
        f"restored request {durations.request_s:.3g} s"
    )
    rows = [("gate", "by day", "days", "one run at most", "with every retest and rerun", "")]
    for day in days:
        hours = "facts only" if day.hours is None else f"{of_hours(day.hours)} h"
        granted = "-" if day.granted_hours is None else f"{of_hours(day.granted_hours)} h"
        fits = "" if day.fits else "DOES NOT FIT"
        rows.append(
            (f"G{day.gate}", str(day.deadline_day), str(day.window_days), hours, granted, fits)
        )
    table(rows, indent=2)
    total = sum(d.hours for d in days if d.hours is not None)
    say(
        f"  all gates once, at most: {of_hours(total)} h of {24 * 7 * weeks} h; "
        f"{total / 8:.1f} days of 8 h or {total / 24:.1f} of 24 h"
    )
