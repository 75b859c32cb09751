"""The setups of a gate: what their names stand for, in the contract's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvgate.cells import AXES, cells_of
from kvgate.contract import Contract
from kvgate.numbers import plain
from kvgate.report.inputs import ReportInput
from kvgate.report.tables import Comparison, compare
from kvgate.report.texts import Texts


def setup_rows(contract: Contract, gate: int, t: Texts) -> tuple[tuple[str, ...], ...]:
    """(name, axis, the contract's text, what is demanded) of every name that the gate's plan uses
    and the contract defines."""
    plan = contract.gate(gate).pairs if gate in contract.gates else None
    if plan is None:
        return ()
    cells = cells_of((*plan.cells, *plan.reference_cells))
    rows = []
    for axis in AXES:
        defined = getattr(contract, axis)
        for name in dict.fromkeys(getattr(cell, axis) for cell in cells):
            if name in defined:
                text = defined[name].text.in_(t.lang)
                rows.append((name, t(f"setup.{axis}"), text, _demanded(contract, axis, name)))
    return tuple(rows)


def _demanded(contract: Contract, axis: str, name: str) -> str:
    """In signs and the contract's own names, which need no language."""
    if axis == "parallelism":
        terms = contract.parallelism[name]
        size = "" if terms.tensor_parallel is None else f" TP {terms.tensor_parallel}"
        return f"{terms.instances} ×{size}"
    if axis == "strategy":
        settings = contract.strategy[name].settings
        return ", ".join(f"{key} = {value}" for key, value in sorted(settings.items())) or "–"
    distance = contract.distance[name]
    before = distance.round_trip_ms_at_most
    limit = "" if before is None else f", RTT0 ≤ {before:g} ms"
    return f"RTT +{plain(distance.delay_ms, 1)} ±{plain(distance.within_ms, 1)} ms{limit}"


def arms_of(environment: Mapping[str, object], arms: Sequence[str]) -> dict[str, list[str]]:
    """The entries of arms in an environment ("appliance/tp8") by the label of their setup."""
    found: dict[str, list[str]] = {}
    for arm in arms:
        for name in environment:
            of_arm, _, label = name.partition("/")
            if of_arm == arm:
                found.setdefault(label, []).append(name)
    return found


def arms_compared(source: ReportInput, t: Texts) -> tuple[tuple[str, Comparison], ...]:
    """The arms side by side, setup by setup: (label of the setup, the comparison)."""
    found = []
    for label, names in sorted(arms_of(source.environment, list(source.contract.arms)).items()):
        told = {name.partition("/")[0]: source.environment[name] for name in names}
        found.append((" · ".join(label.split("/")) if label else "", compare(told, list(told), t)))
    return tuple(found)
