"""campaign status: where a campaign stands, read from its bundles alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.commands.shown import document, note, say, table
from kvgate.errors import CannotMeasure, GateClosed, KvgateError, UsageError

if TYPE_CHECKING:
    from kvgate.campaign import PastRun
    from kvgate.contract import Contract

app = typer.Typer(no_args_is_help=True, help="Where a campaign stands.")


@app.callback()
def _group() -> None:
    """Where a campaign stands."""


@app.command("status")
def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A campaign's folder.")],
    as_of: Annotated[
        str | None, typer.Option(help="Day to count from, ISO 8601 (default: now).")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Each gate's runs, verdict, decision, days left, retests and reruns used; the next step.

    The campaign's day 0 is that of its first run, since nothing earlier is on record.
    """
    from kvgate.conduct.workspace import Workspace

    if not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), remedy="see var/campaigns/")
    now = _moment(as_of)
    history = Workspace(folder).history()
    if not history:
        raise UsageError(
            "no gate run here", where=str(folder), remedy="give a campaign's folder, not a bundle"
        )
    contract, inventory = _terms(history)
    starts = [datetime.fromisoformat(p.as_of) for p in history if p.as_of]
    day = (now - min(starts)).days if starts else None
    gates = [_gate(contract, n, history, day) for n in contract.gates]
    step = _next_step(contract, folder, history, inventory, now)
    if json_output:
        document({"campaign": folder.resolve().name, "contract": contract.id, "day": day,
                  "weeks": contract.campaign.weeks, "gates": gates, "next_step": step})  # fmt: skip
        return
    since = "unknown" if day is None else f"day {day} of {7 * contract.campaign.weeks}"
    mark = "  [REHEARSAL]" * contract.rehearsal
    say(f"{folder.resolve().name}: contract {contract.id}, {since}{mark}")
    head = ("gate", "runs", "verdict", "decision", "deadline", "retests", "reruns")
    table([head, *(_row(g) for g in gates)], indent=2)
    broken = [p for p in history if p.verdict is None]
    for run in broken:
        note(f"{run.path}: no sealed verdict (partial, changed or unreadable); it does not count")
    say(f"next: {step}")


def _moment(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no date", where="--as-of", remedy="write it like 2026-03-01"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _terms(history: Sequence[PastRun]) -> tuple[Contract, str]:
    """The contract of the newest run that has a readable one, and that run's inventory."""
    from kvgate.contract import parse_contract
    from kvgate.evidence.bundle import load_bundle

    for run in sorted(history, key=lambda p: (p.as_of, p.gate, p.run), reverse=True):
        try:
            bundle = load_bundle(Path(run.path))
            if bundle.contract is not None:
                inventory = str((bundle.campaign or {}).get("inventory", ""))
                return parse_contract(bundle.contract, name=f"{run.path}/contract.toml"), inventory
        except KvgateError:
            continue
    raise CannotMeasure(
        "no run has a readable contract",
        where=str(Path(history[0].path).parent),
        remedy="kvgate verify BUNDLE says what happened to it",
    )


def _gate(
    contract: Contract, gate: int, history: Sequence[PastRun], day: int | None
) -> dict[str, Any]:
    from kvgate.verdict import Verdict

    terms = contract.gate(gate)
    runs = [p for p in history if p.gate == gate]
    counted = [p for p in runs if p.counts]
    # The first PASS stays: a gate that has been passed is only repeated.
    last = next((p for p in counted if p.verdict is Verdict.PASS), counted[-1] if counted else None)
    passed = last is not None and last.verdict is Verdict.PASS
    return {
        "gate": gate,
        "runs": len(runs),
        "counted": len(counted),
        "verdict": None if last is None else last.verdict,
        "decision": None if last is None else last.decision,
        "passed": passed,
        "deadline_day": terms.deadline_day,
        "days_left": None if day is None else terms.deadline_day - day,
        "retests_used": sum(p.verdict is Verdict.FAIL for p in counted),
        "retests": terms.retests,
        "reruns_used": sum(p.verdict is Verdict.INVALID for p in counted),
        "reruns": terms.reruns,
        "contract_changed": last is not None and last.contract_digest != contract.digest,
    }


def _row(gate: dict[str, Any]) -> tuple[str, ...]:
    left = gate["days_left"]
    if gate["passed"] or left is None:
        deadline = f"day {gate['deadline_day']}"
    elif left < 0:
        deadline = f"day {gate['deadline_day']}: MISSED by {-left}"
    else:
        deadline = f"day {gate['deadline_day']}: {left} left"
    return (
        f"G{gate['gate']}",
        f"{gate['runs']} ({gate['counted']} counted)",
        str(gate["verdict"] or "not run"),
        str(gate["decision"] or "-"),
        deadline,
        f"{gate['retests_used']}/{gate['retests']}",
        f"{gate['reruns_used']}/{gate['reruns']}",
    )


def _next_step(
    contract: Contract, folder: Path, history: Sequence[PastRun], inventory: str, now: datetime
) -> str:
    """What may be done now, by the very rule that opens gates."""
    from kvgate.campaign import Mode, open_gate

    for gate in contract.gates:
        try:
            opening = open_gate(
                contract,
                gate,
                history,
                as_of=now,
                rehearsal=contract.rehearsal,
                serials=contract.appliance.serials,
                firmware=contract.appliance.firmware,
            )
        except GateClosed as closed:
            return str(closed)
        if opening.mode is Mode.COUNTED:
            where = folder.resolve()
            options = f"--campaign {where.name} --campaigns {where.parent}"
            named = f" --inventory {inventory}" if inventory else ""
            return f"pytest -m gate{gate}{named} {options}"
    return "nothing: every gate of the contract is passed"
