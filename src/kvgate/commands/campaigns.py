"""campaign status: where a campaign stands, read from its bundles alone; campaign waive: let go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.commands.shown import document, note, say, table
from kvgate.errors import CannotMeasure, KvgateError, UsageError

if TYPE_CHECKING:
    from kvgate.campaign import PastRun
    from kvgate.commands.campaign_state import Campaign
    from kvgate.contract import Contract

app = typer.Typer(no_args_is_help=True, help="Where a campaign stands, and what is let go in it.")
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A campaign's folder.")]


@app.callback()
def _group() -> None:
    """Where a campaign stands, and what is let go in it."""


@app.command("status")
def status(
    folder: Folder,
    as_of: Annotated[
        str | None, typer.Option(help="Day to count from, ISO 8601 (default: now).")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Each gate's state, verdict, decision, days left, grants used, hours; waivers, changes, costs;
    the next step.

    Day 0 is the contract's date; without one, that of the first run. A missed deadline is shown
    with the decision that the contract names for it.
    """
    from kvgate.commands.campaign_state import (
        change_documents,
        gate_document,
        spent_document,
        waiver_documents,
    )

    campaign, inventory, day = _campaign(folder, _moment(as_of))
    contract = campaign.contract
    gates = [gate_document(campaign, n) for n in contract.gates]
    step = _next_step(campaign, folder, gates, inventory)
    told = {
        "campaign": campaign.name,
        "contract": contract.id,
        "digest": contract.digest,
        "rehearsal": contract.rehearsal,
        "as_of": campaign.as_of,
        "day": day,
        "weeks": contract.campaign.weeks,
        "gates": gates,
        "waivers": waiver_documents(campaign),
        "changes": change_documents(campaign),
        "spent": spent_document(campaign),
        "next_step": step,
    }
    if json_output:
        document(told)
    else:
        _print(told, campaign)


def _campaign(folder: Path, now: datetime) -> tuple[Campaign, str, int | None]:
    """The campaign, its newest run's inventory, and the day of ``now``."""
    from kvgate.campaign import day_zero
    from kvgate.commands.campaign_state import Campaign
    from kvgate.conduct.workspace import Workspace

    if not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), remedy="see var/campaigns/")
    space = Workspace(folder)
    history = space.history()
    if not history:
        raise UsageError(
            "no gate run here", where=str(folder), remedy="give a campaign's folder, not a bundle"
        )
    contract, inventory = _terms(history)
    began = day_zero(contract, [p.as_of for p in history])
    name = folder.resolve().name
    waivers = space.waivers(contract)
    campaign = Campaign(name, contract, history, waivers, now, space.witnesses())
    return campaign, inventory, None if began is None else (now - began).days


def _moment(text: str | None, option: str = "--as-of") -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no date", where=option, remedy="write it like 2026-03-01"
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


def _print(told: dict[str, Any], campaign: Campaign) -> None:
    contract, day = campaign.contract, told["day"]
    since = "unknown" if day is None else f"day {day} of {7 * contract.campaign.weeks}"
    mark = "  [REHEARSAL]" * contract.rehearsal
    say(f"{campaign.name}: contract {contract.id}, {since}{mark}")
    head = ("gate", "runs", "verdict", "decision", "state", "deadline")
    table([head, *(_row(g) for g in told["gates"])], indent=2)
    head = ("used", "retests", "extensions", "reruns", "pairs", "hours")
    table([head, *(_used(g) for g in told["gates"])], indent=2)
    for waiver in told["waivers"]:
        say(
            f"  waiver of {waiver['clause']} by {waiver['party']} until {waiver['expires'][:10]}: "
            f"{waiver['standing']} ({waiver['reason']})"
        )
    for change in told["changes"]:
        gate = change["reopens_gate"]
        follows = "reopens nothing" if gate is None else f"reopens G{gate}"
        say(
            f"  change of {change['kind']}, {change['where']}: {change['before']} -> "
            f"{change['after']}, seen in {change['seen_in']}; {follows}"
        )
    spent = told["spent"]
    price = "" if spent["cost"] is None else f", {spent['cost']:,.0f} {spent['currency']}"
    say(f"  spent: {spent['days']:.1f} days, {spent['hours']:.1f} h of the platform{price}")
    for run in campaign.history:
        if run.verdict is None:
            note(f"{run.path}: {_unsealed(Path(run.path), campaign.name)}; it does not count")
    say(f"next: {told['next_step']}")


def _unsealed(bundle: Path, campaign: str) -> str:
    """Why a run has no verdict that counts, as far as its folder tells."""
    from kvgate.conduct.finish import has_ended
    from kvgate.evidence.bundle import load_bundle

    with suppress(KvgateError):  # a stranger's folder
        name = (load_bundle(bundle).campaign or {}).get("name", campaign)
        if name != campaign:
            return f"a run of the campaign {name!r}, and this folder is called {campaign!r}"

    with suppress(KvgateError):  # a stranger's folder
        if has_ended(bundle):
            return f"measured to its end, not sealed (kvgate report {bundle} finishes it)"
    return "no sealed verdict (partial, changed or unreadable)"


def _row(gate: dict[str, Any]) -> tuple[str, ...]:
    left = gate["days_left"]
    if gate["proceeds"] or left is None:
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
        gate["state"],
        deadline,
    )


def _used(gate: dict[str, Any]) -> tuple[str, ...]:
    """What a gate has taken of what the contract grants it."""
    pairs = "-" if gate["pairs"] is None else f"{gate['pairs']}/{gate['max_pairs']}"
    return (
        f"G{gate['gate']}",
        f"{gate['retests_used']}/{gate['retests']}",
        str(gate["extensions_used"]),
        f"{gate['reruns_used']}/{gate['reruns']}",
        pairs,
        f"{gate['hours']:.1f}",
    )


def _next_step(
    campaign: Campaign, folder: Path, gates: Sequence[dict[str, Any]], inventory: str
) -> str:
    """What may be done now, by the very rule that opens gates.

    A deadline that was missed is a decision about the whole campaign: to measure an earlier gate
    anew would not undo it.
    """
    for gate in gates:
        if gate["deadline_missed"] and gate["closed_because"]:
            return str(gate["closed_because"])
    for gate in gates:
        closed = gate["closed_because"]
        if closed:
            return str(closed)
        if closed == "":
            where = folder.resolve()
            options = f"--campaign {where.name} --campaigns {where.parent}"
            named = f" --inventory {inventory}" if inventory else ""
            return f"pytest -m gate{gate['gate']}{named} {options}"
    return "nothing: every gate of the contract is passed"


@app.command("waive")
def waive(
    folder: Folder,
    clause: Annotated[str, typer.Option(help="What is let go: G3.3, or G3.deadline.")],
    reason: Annotated[str, typer.Option(help="Why, in a sentence; it is shown on the report.")],
    party: Annotated[str, typer.Option(help="Who signs, as in the contract's parties.signers.")],
    expires: Annotated[str, typer.Option(help="Last day on which it counts, ISO 8601.")],
    key: Annotated[Path, typer.Option(help="SSH key that signs (or its .pub with an agent).")],
    granted: Annotated[
        str | None, typer.Option(help="From when it counts, ISO 8601 (default: now).")
    ] = None,
) -> None:
    """Sign a waiver of one clause (or of a gate's deadline) into the campaign's folder.

    It counts from the next run on, and for runs that ended already, until it expires. The clause
    keeps its verdict: the gate proceeds under waiver, and every page says so. A wrong answer cannot
    be waived.
    """
    from kvgate.campaign import utc_text
    from kvgate.evidence.waivers import checked, sign_waiver, write_waiver
    from kvgate.waiver import Signed, waiver_from

    campaign, _, _ = _campaign(folder, _moment(granted, "--granted"))
    until = _moment(expires, "--expires")
    if len(expires) == len("2026-03-01"):
        until += timedelta(days=1, seconds=-1)  # a day is meant as a whole
    if until <= campaign.as_of:
        raise UsageError(f"it would expire on {expires}, before it counts", where="--expires")
    known = {c.id for n in campaign.contract.gates for c in campaign.contract.gate(n).clause}
    known |= {f"G{n}.deadline" for n in campaign.contract.gates}
    if clause not in known:
        raise UsageError(
            f"the contract has no clause {clause!r}", where="--clause",
            remedy="kvgate contract check --json lists them; a deadline is G3.deadline",
        )  # fmt: skip
    try:
        waiver = waiver_from(
            {
                "campaign": campaign.name,
                "contract_digest": campaign.contract.digest,
                "clause": clause,
                "reason": reason,
                "party": party,
                "granted": utc_text(campaign.as_of),
                "expires": utc_text(until),
            }
        )
    except ValueError as error:
        raise UsageError(str(error), remedy="see kvgate campaign waive --help") from error
    signature = sign_waiver(waiver, key)
    signed = checked(waiver, signature, campaign.contract.parties.signers).signed
    if signed is not Signed.VALID:
        raise UsageError(
            f"the contract gives this key to no party named {party!r}: such a waiver has no effect",
            where=str(key),
            remedy="sign with a key of parties.signers, which the signed contract fixes",
        )
    say(str(write_waiver(folder, waiver, signature)))
