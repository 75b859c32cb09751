"""One gate from its opening to its sealed verdict and its report."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kvgate
from kvgate.adjudicate import TIMES, Judged, adjudicate, reopened_by_change
from kvgate.analyse.results import Ending
from kvgate.campaign import CampaignFacts, Mode, Opening, open_gate, utc_text
from kvgate.conduct.agreement import check_agreement
from kvgate.conduct.block import Bench
from kvgate.conduct.earlier import Earlier, carry_over
from kvgate.conduct.elsewhere import is_driven_here, prepare
from kvgate.conduct.finish import REMEDY, conclude, finish, note_seal, to_finish, to_publish
from kvgate.conduct.openings import note_opened
from kvgate.conduct.resume import (
    CONTINUED_GATES,
    Unfinished,
    check_interruptions,
    past_interruptions,
    resume,
    to_continue,
    told,
)
from kvgate.conduct.risks import check_risks
from kvgate.conduct.sessions import Sessions, planned_sessions
from kvgate.conduct.signals import BreakOff, Signals
from kvgate.conduct.soak import measure_soak
from kvgate.conduct.workspace import Workspace
from kvgate.conduct.world import PUT_BACK, changed_host, world_of
from kvgate.contract import Contract
from kvgate.drive.arms import Arms, play_log
from kvgate.drive.playbooks import Playbooks, PlayResult
from kvgate.errors import GateClosed, Interrupted, KvgateError, UsageError
from kvgate.evidence import layout
from kvgate.evidence.journal import Journal
from kvgate.evidence.strict_json import read_object
from kvgate.inventory import Inventory
from kvgate.progress import Progress
from kvgate.report.publish import Published, publish
from kvgate.verdict import Decision

FREE_BYTES_AT_START = 500 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asked for: everything that is fixed before a gate opens."""

    contract: Contract
    contract_bytes: bytes
    inventory: Inventory
    playbooks: Path
    workspace: Workspace
    faults: tuple[str, ...]
    engineering: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """A judged and sealed gate run with the paths of its report.

    ``published`` is None where the report could not be written; the verdict stands all the same,
    and ``report_fault`` says why.
    """

    judged: Judged
    bundle: Path
    published: Published | None
    report_fault: str = ""


def run_gate(order: Order, gate: int, selected: tuple[str, ...], progress: Progress) -> Outcome:
    """Open, measure, judge, seal and publish one gate.

    Raises GateClosed where it may not open; CannotMeasure, Interrupted and UsageError leave the
    evidence so far in the bundle, marked partial, and every process stopped.
    """
    check_order(order)
    if order.contract.gate(gate).soak is not None and not is_driven_here(order.inventory):
        raise UsageError(
            f"the long run of G{gate} is driven by exactly one load client, and that is this "
            "machine",
            where=order.inventory.path,
            remedy="leave one host in load_clients, with ansible_connection: local",
        )
    with order.workspace.held():
        return _run_gate(order, gate, selected, progress)


def _run_gate(order: Order, gate: int, selected: tuple[str, ...], progress: Progress) -> Outcome:
    contract, inventory = order.contract, order.inventory
    ended = to_finish(order.workspace, gate, contract)
    if ended is not None:
        progress.note(f"{ended.name} was measured to its end: it is judged and sealed now")
        with BreakOff(remedy=REMEDY):
            return _published(order, finish(ended), ended, progress)
    silent = to_publish(order.workspace, gate, contract)
    if silent is not None:
        progress.note(f"{silent.name} was sealed and not reported: it is reported now")
        with BreakOff(remedy=REMEDY):
            note_seal(silent)
            reported = _published(order, adjudicate(silent), silent, progress)
        again = reported.judged.verdict.decision in {Decision.EXTEND, Decision.RERUN}
        if reported.published is not None or not again:
            return reported
        # A report that cannot be written must not keep a gate from being measured.
        progress.note(f"the report of {silent.name} cannot be written: {reported.report_fault}")
    now = datetime.now(UTC)
    history = order.workspace.history()
    # What an engineering run measured before has begun no campaign.
    if not order.engineering and not any(p.mode is Mode.COUNTED for p in history):
        check_risks(contract)
    opening = open_gate(
        contract,
        gate,
        history,
        as_of=now,
        rehearsal=inventory.rehearsal,
        engineering=order.engineering,
        serials=contract.appliance.serials,
        firmware=contract.appliance.firmware,
        campaign=order.workspace.root.name,
        waivers=order.workspace.waivers(contract),
        witnesses=order.workspace.witnesses(),
    )
    facts = _campaign_facts(order, gate, opening, selected, now)
    left = _left(order, gate, opening, progress)
    bundle = order.workspace.bundle(gate, opening.run) if left is None else left.bundle.root
    with Journal(bundle) if left is None else Journal.open_existing(bundle) as journal:
        journal.ensure_space(FREE_BYTES_AT_START)
        if left is None:
            earlier = _begin(order, opening, facts, journal)
        else:
            earlier = _go_on(order, gate, opening, left, selected, journal, progress)
        _measure(order, gate, earlier, journal, progress)
        with BreakOff(remedy=REMEDY):
            judged = conclude(journal)
    with BreakOff(remedy=REMEDY):
        return _published(order, judged, bundle, progress)


def _published(order: Order, judged: Judged, bundle: Path, progress: Progress) -> Outcome:
    progress.doing("writing the report")
    try:
        published = publish(bundle, order.workspace.reports, order.workspace.history())
    except Interrupted:
        raise
    except Exception as error:  # noqa: BLE001 - a broken report must never cost the verdict
        return Outcome(judged, bundle, None, f"{type(error).__name__}: {error}")
    return Outcome(judged, bundle, published)


def _left(order: Order, gate: int, opening: Opening, progress: Progress) -> Unfinished | None:
    """The interrupted run to go on with; None where a new one begins.

    Raises GateClosed where neither is granted.
    """
    if opening.mode is not Mode.COUNTED:
        return None
    past = past_interruptions(order.workspace, gate)
    check_interruptions(order.contract, gate, past)
    left = to_continue(gate, past, world_of(order.contract, order.inventory, order.faults))
    if left is None and past.unfinished is not None:
        progress.note(
            f"{past.unfinished.name} was interrupted; G{gate} is measured anew as run {opening.run}"
        )
    return left


def _begin(order: Order, opening: Opening, facts: CampaignFacts, journal: Journal) -> Earlier:
    journal.write_bytes("contract.toml", order.contract_bytes)
    journal.write_json("inventory.json", order.inventory.model_dump(mode="json"))
    # After the folder, so that a line never names a run of which nothing is there.
    line = note_opened(order.workspace.root, facts.gate, facts.run, facts.as_of)
    journal.write_json("campaign.json", replace(facts, opened_sha256=line))
    if opening.extends is not None:
        return carry_over(journal, Path(opening.extends.path))
    return Earlier(opening.run)


def _go_on(
    order: Order,
    gate: int,
    opening: Opening,
    left: Unfinished,
    selected: tuple[str, ...],
    journal: Journal,
    progress: Progress,
) -> Earlier:
    """After an interruption: what stands of the run, marked in its bundle."""
    copied = left.bundle.plan is not None
    earlier, facts = resume(journal, left, selected=selected, now=datetime.now(UTC))
    if opening.extends is not None and not copied:
        earlier = carry_over(journal, Path(opening.extends.path))
    plan = order.contract.gate(gate).pairs
    if plan is not None:
        planned = planned_sessions(order.contract, gate, plan, extension=earlier.extension)
        progress.note(told(earlier, left, facts, planned))
    return earlier


def check_order(order: Order) -> None:
    """What contract and inventory must agree on before anything runs; raises UsageError."""
    check_agreement(order.contract, order.inventory, order.faults)


def _campaign_facts(
    order: Order, gate: int, opening: Opening, selected: tuple[str, ...], now: datetime
) -> CampaignFacts:
    contract = order.contract
    return CampaignFacts(
        name=order.workspace.root.name,
        gate=gate,
        run=opening.run,
        mode=opening.mode,
        rehearsal=order.inventory.rehearsal,
        as_of=utc_text(now),
        contract_id=contract.id,
        contract_digest=contract.digest,
        kvgate_version=kvgate.__version__,
        inventory=order.inventory.path,
        selected=selected,
        retests_used=opening.retests_used,
        reruns_used=opening.reruns_used,
        serials=contract.appliance.serials,
        firmware=contract.appliance.firmware,
        predecessor=opening.predecessor,
        faults=order.faults,
        time_scale=order.inventory.time_scale,
        extends=None if opening.extends is None else opening.extends.manifest_sha256,
        began=opening.began,
        earlier=opening.earlier,
        waivers=opening.waivers,
        relied_on=opening.relied_on,
    )


def _measure(
    order: Order, gate: int, earlier: Earlier, journal: Journal, progress: Progress
) -> None:
    terms = order.contract.gate(gate)
    run_dir = order.workspace.run_dir.resolve()
    run_dir.mkdir(parents=True, exist_ok=True)
    # Plays before an interruption keep their numbers and their files.
    numbers = itertools.count(sum(1 for _ in (journal.root / "ansible").glob("*.json")))

    def keep(play: PlayResult) -> None:
        name = f"ansible/{next(numbers):03d}-{play.playbook}.json"
        journal.write_json(name, play_log(play))

    playbooks = Playbooks(order.playbooks, Path(order.inventory.path).resolve())
    # A session needs at most its own start and one for priming.
    arms = Arms(playbooks, order.contract, order.inventory, run_dir, faults=order.faults,
                on_play=keep, starts_before=4 * len(earlier.sessions))  # fmt: skip
    bench = Bench(order.contract, order.inventory, gate, journal, run_dir / "work", progress)
    can_go_on = gate in CONTINUED_GATES
    with _stopping(arms, playbooks, run_dir, progress, can_go_on=can_go_on):
        if terms.pairs is not None or terms.soak is not None:
            limits = order.contract.validity
            others = prepare(order.inventory, limits, playbooks, run_dir, keep)
            bench = replace(bench, elsewhere=others)
        if terms.pairs is not None:
            sessions = Sessions(bench, arms, terms.pairs, earlier, lambda: adjudicate(journal.root))
            progress.gate(gate, terms.title.en, sessions.steps() + 2)
            _facts(bench, arms, device=None, went_on=bool(earlier.environment))
            # What changed so that the contract reopens an earlier gate is sealed, not measured.
            if reopened_by_change(adjudicate(journal.root)):
                sessions.end(Ending.REOPENED)
            else:
                sessions.measure()
        elif terms.soak is not None:
            progress.gate(gate, terms.title.en, 14)
            _facts(bench, arms, device=None)
            if reopened_by_change(adjudicate(journal.root)):
                journal.write_json(
                    layout.PLAN, {"gate": gate, "sessions": [], "ended": Ending.REOPENED}
                )
            else:
                measure_soak(bench, arms, terms.soak, lambda: adjudicate(journal.root))
        else:
            progress.gate(gate, terms.title.en, 3)
            environment: dict[str, Any] = {}
            device = None
            if any(c.metric.startswith("device_") for c in terms.clause):
                progress.doing("bringing up the appliance arm to ask it what it is")
                running = arms.start("appliance")
                environment["appliance"] = dict(running.info)
                device = running.info.get("device")
            progress.step()
            _facts(bench, arms, device if isinstance(device, Mapping) else None)
            journal.write_json(
                layout.PLAN,
                {"gate": gate, "sessions": [], "environment": environment, "ended": Ending.TARGET},
            )
        # Before anything is stopped: from here on nothing needs to be measured again.
        journal.write_json(TIMES, {"ended_at": utc_text(datetime.now(UTC))})


def _facts(
    bench: Bench, arms: Arms, device: Mapping[str, Any] | None, *, went_on: bool = False
) -> None:
    """The raw facts of every host; what the appliance says of itself goes to its hosts.

    A run that goes on keeps its first facts and puts the new ones beside them. Raises GateClosed
    where a host is not what it was.
    """
    bench.progress.doing("collecting facts from every host")
    root = bench.journal.root
    appliances = bench.inventory.group("appliances")
    again = sum(1 for _ in (root / "facts").glob("resumed-*")) + 1
    for host, said in arms.host_facts().items():
        record: dict[str, Any] = {"host": said}
        if device is not None and host in appliances:
            record["device"] = device
        before = read_object(root, f"facts/{host}.json") if went_on else None
        if before is None:
            bench.journal.write_json(f"facts/{host}.json", record)
            continue
        bench.journal.write_json(f"facts/resumed-{again}/{host}.json", record)
        changed = changed_host(host, before, record, appliances)
        if changed:
            raise GateClosed(
                f"{root.name} was interrupted and cannot go on: {changed}",
                where=str(root),
                remedy=PUT_BACK,
            )
    bench.progress.step()


@contextmanager
def _stopping(
    arms: Arms, playbooks: Playbooks, run_dir: Path, progress: Progress, *, can_go_on: bool
) -> Iterator[None]:
    """Whatever happens, the engines and stores that we started are stopped.

    Where the run can go on later, a store that outlives us keeps what it was primed with.
    """
    remedy = "the evidence so far is kept; " + (
        "the same command goes on at the next session" if can_go_on else "run the gate again"
    )
    with Signals(playbooks.stop, progress.note, remedy=remedy) as signals:
        broken = True
        try:
            yield
            broken = False
        finally:
            signals.stopping()
            playbooks.allow()
            progress.doing("stopping engines and stores")
            try:
                arms.stop(stores=not (broken and can_go_on))
            except KvgateError as fault:
                progress.note(f"could not stop everything: {fault} (process ids are in {run_dir})")
            shutil.rmtree(run_dir / "work", ignore_errors=True)
