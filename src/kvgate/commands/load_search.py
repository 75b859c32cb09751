"""``kvgate load --search``: the highest load that keeps a service level, every probe recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate.commands.load_run import Plan, for_probe, keep_only_table, measure, write_json
from kvgate.commands.shown import say, table
from kvgate.errors import EXIT_INVALID, EXIT_PASS, CannotMeasure, UsageError
from kvgate.load.goodput import Probe, ServiceLevel, bracket, judge_probe, next_value
from kvgate.load.job import Arrival

MOST_PROBES: Final = 24


def find_highest(
    plan: Plan,
    level: ServiceLevel,
    arrival: Callable[[float], Arrival],
    *,
    what: str,
    low: float,
    high: float,
    tolerance: float,
    out: Path,
    quiet: bool,
) -> tuple[dict[str, Any], int]:
    """Bisect between ``low`` and ``high`` (a rate in 1/s, or a concurrency).

    Leaves a folder for each probe and ``search.json``; returns its content and the exit code: 0
    when a highest value was found, 11 when not even ``low`` keeps the level or a probe is void.
    """
    if not 0 < low < high:
        raise UsageError("--search-low must be above 0 and below --search-high")
    if (out / "search.json").exists():
        raise UsageError("holds an earlier search", where=str(out), remedy="name another --out")
    whole = what == "concurrency"
    probes: list[Probe] = []
    if not quiet:
        say(f"goodput: the highest {what} at which {level.sentence}")
    while len(probes) < MOST_PROBES:
        value = next_value(probes, low, high, tolerance=tolerance, whole=whole)
        if value is None:
            break
        number = len(probes) + 1
        probe = _probe(plan, level, arrival(value), value, number, out)
        probes.append(probe)
        if not quiet:
            _say(probe, number, what)
    found = _result(probes, level, what, low, high, tolerance)
    write_json(found, out / "search.json")
    if not quiet:
        say(found["sentence"])
        say(str(out / "search.json"))
    return found, EXIT_PASS if found["highest"] is not None else EXIT_INVALID


def _probe(
    plan: Plan, level: ServiceLevel, arrival: Arrival, value: float, number: int, out: Path
) -> Probe:
    from kvgate.evidence.records import read_records

    folder = out / f"probe-{number:02d}"
    measured = measure(for_probe(plan, number, arrival), folder)
    if not measured.result.complete:
        raise CannotMeasure(f"the probe ended as {measured.result.state}", where=str(folder))
    if measured.findings:
        raise CannotMeasure(f"the probe is void: {measured.findings[0]}", where=str(folder))
    probe = judge_probe(value, read_records(measured.result.records_path), level)
    measured.summary["probe"] = probe
    write_json(measured.summary, folder / "summary.json")
    keep_only_table(measured)
    return probe


def _say(probe: Probe, number: int, what: str) -> None:
    missed = ", ".join(f"{n} too late in {name}" for name, n in probe.missed.items() if n)
    table(
        [
            (
                f"{number:2d}",
                f"{what} {probe.value:.4g}",
                f"{probe.kept} of {probe.requests} keep it",
                f"{probe.failed} failed",
                missed or "none too late",
                "holds" if probe.holds else "does not hold",
            )
        ],
        indent=2,
    )


def _result(
    probes: list[Probe], level: ServiceLevel, what: str, low: float, high: float, tolerance: float
) -> dict[str, Any]:
    best, worst = bracket(probes)
    if best is None:
        sentence = f"no {what} from {low:g} keeps it"
    elif worst is None:
        sentence = f"{what} {best:.4g} keeps it, and nothing higher was allowed"
    else:
        sentence = f"{what} {best:.4g} keeps it, {worst:.4g} does not"
    kept = next((p for p in probes if p.value == best), None)
    if kept is not None and kept.keeping_per_s is not None:
        sentence += f"; {kept.keeping_per_s:.4g} requests/s keep it there"
    return {
        "schema": "kvgate.search/1",
        "service_level": msgspec.to_builtins(level) | {"sentence": level.sentence},
        "what": what,
        "low": low,
        "high": high,
        "tolerance": tolerance,
        "highest": best,
        "lowest_failing": worst,
        "sentence": sentence,
        "probes": msgspec.to_builtins(probes),
    }
