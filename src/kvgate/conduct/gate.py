"""One gate from its opening to its sealed verdict and its report."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import kvgate
from kvgate.adjudicate import Judged, adjudicate
from kvgate.campaign import CampaignFacts, Opening, open_gate, utc_text
from kvgate.conduct.block import Bench
from kvgate.conduct.sessions import Earlier, Sessions, carry_over
from kvgate.conduct.soak import measure_soak
from kvgate.conduct.workspace import Workspace
from kvgate.contract import Contract
from kvgate.drive.arms import Arms, play_log
from kvgate.drive.playbooks import Playbooks, PlayResult
from kvgate.errors import Interrupted, KvgateError, UsageError
from kvgate.evidence.journal import Journal
from kvgate.inventory import Inventory
from kvgate.progress import Progress
from kvgate.report.publish import Published, publish

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
    contract, inventory = order.contract, order.inventory
    now = datetime.now(UTC)
    opening = open_gate(
        contract,
        gate,
        order.workspace.history(),
        as_of=now,
        rehearsal=inventory.rehearsal,
        engineering=order.engineering,
        serials=contract.appliance.serials,
        firmware=contract.appliance.firmware,
    )
    facts = _campaign_facts(order, gate, opening, selected, now)
    with Journal(order.workspace.bundle(gate, opening.run)) as journal:
        journal.ensure_space(FREE_BYTES_AT_START)
        journal.write_bytes("contract.toml", order.contract_bytes)
        journal.write_json("inventory.json", inventory.model_dump(mode="json"))
        journal.write_json("campaign.json", facts)
        earlier = Earlier(opening.run)
        if opening.extends is not None:
            earlier = carry_over(journal, Path(opening.extends.path))
        _measure(order, gate, earlier, journal, progress)
        judged = adjudicate(journal.root)
        journal.write_bytes("verdict.json", judged.verdict_json)
        before = opening.predecessor
        journal.seal(
            previous_manifest_sha256=None if before is None else before.manifest_sha256,
            kvgate_version=kvgate.__version__,
        )
    progress.doing("writing the report")
    bundle = order.workspace.bundle(gate, opening.run)
    try:
        published = publish(bundle, order.workspace.reports, order.workspace.history())
    except Exception as error:  # noqa: BLE001 - a broken report must never cost the verdict
        return Outcome(judged, bundle, None, f"{type(error).__name__}: {error}")
    return Outcome(judged, bundle, published)


def check_order(order: Order) -> None:
    """What contract and inventory must agree on before anything runs; raises UsageError."""
    contract, inventory = order.contract, order.inventory
    if contract.rehearsal != inventory.rehearsal:
        kinds = ("a rehearsal", "a real acceptance")
        mine, theirs = kinds if contract.rehearsal else kinds[::-1]
        raise UsageError(
            f"the contract {contract.id} is for {mine}, the inventory for {theirs}",
            where=inventory.path,
            remedy="use a contract and an inventory of the same kind",
        )
    if order.faults and not inventory.rehearsal:
        raise UsageError(
            "faults can be played in a rehearsal only", where=inventory.path, remedy="drop --fault"
        )
    if inventory.time_scale != 1 and not inventory.rehearsal:
        raise UsageError(
            "kvgate_time_scale must be 1 on real hardware",
            where=inventory.path,
            remedy="remove it from group_vars/all.yml",
        )
    remote = [h for h in inventory.group("load_clients") if h not in inventory.local_hosts]
    if remote or len(inventory.group("load_clients")) != 1:
        raise UsageError(
            "the load is driven from exactly one load client, and that is this machine",
            where=inventory.path,
            remedy="run kvgate on the load host: one host in load_clients with "
            "ansible_connection: local",
        )
    for name, arm in contract.arms.items():
        if arm.store != "none" and arm.store not in inventory.store_ports:
            raise UsageError(
                f"the arm {name} needs the store {arm.store!r}, which the inventory does not have",
                where=inventory.path,
                remedy="add it to kvgate_store_ports",
            )


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
    )


def _measure(
    order: Order, gate: int, earlier: Earlier, journal: Journal, progress: Progress
) -> None:
    terms = order.contract.gate(gate)
    run_dir = order.workspace.run_dir.resolve()
    run_dir.mkdir(parents=True, exist_ok=True)
    plays: list[PlayResult] = []

    def keep(play: PlayResult) -> None:
        journal.write_json(f"ansible/{len(plays):03d}-{play.playbook}.json", play_log(play))
        plays.append(play)

    playbooks = Playbooks(order.playbooks, Path(order.inventory.path).resolve())
    arms = Arms(playbooks, order.contract, order.inventory, run_dir,
                faults=order.faults, on_play=keep)  # fmt: skip
    bench = Bench(order.contract, order.inventory, gate, journal, run_dir / "work", progress)
    with _stopping(arms, run_dir, progress), _signals(playbooks):
        if terms.pairs is not None:
            sessions = Sessions(bench, arms, terms.pairs, earlier, lambda: adjudicate(journal.root))
            progress.gate(gate, terms.title.en, sessions.steps() + 2)
            _facts(bench, arms, device=None)
            sessions.measure()
        elif terms.soak is not None:
            progress.gate(gate, terms.title.en, 14)
            _facts(bench, arms, device=None)
            measure_soak(bench, arms, terms.soak)
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
                "plan.json",
                {"gate": gate, "sessions": [], "environment": environment},
            )


def _facts(bench: Bench, arms: Arms, device: Mapping[str, Any] | None) -> None:
    """The raw facts of every host; what the appliance says of itself goes to its hosts."""
    bench.progress.doing("collecting facts from every host")
    for host, said in arms.host_facts().items():
        record: dict[str, Any] = {"host": said}
        if device is not None and host in bench.inventory.group("appliances"):
            record["device"] = device
        bench.journal.write_json(f"facts/{host}.json", record)
    bench.progress.step()


@contextmanager
def _stopping(arms: Arms, run_dir: Path, progress: Progress) -> Iterator[None]:
    """Whatever happens, the engines and stores that we started are stopped."""
    try:
        yield
    finally:
        progress.doing("stopping engines and stores")
        try:
            arms.stop(stores=True)
        except KvgateError as fault:
            progress.note(f"could not stop everything: {fault} (process ids are in {run_dir})")
        shutil.rmtree(run_dir / "work", ignore_errors=True)


@contextmanager
def _signals(playbooks: Playbooks) -> Iterator[None]:
    """Ctrl-C and SIGTERM become Interrupted at a safe place; a running play is cancelled first."""

    def stop(number: int, _frame: FrameType | None) -> None:
        playbooks.stop()
        raise Interrupted(
            f"stopped by {signal.Signals(number).name}",
            remedy="the evidence so far is kept, marked partial; run the gate again",
        )

    caught = (signal.SIGINT, signal.SIGTERM)
    previous = [(number, signal.signal(number, stop)) for number in caught]
    try:
        yield
    finally:
        for number, handler in previous:
            signal.signal(number, handler)
        playbooks.allow()
