"""One invocation of the gates: which clauses were asked for, each gate run once, what to print."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgate.campaign import Mode
from kvgate.conduct.gate import Order, Outcome, check_order, run_gate
from kvgate.conduct.resume import times
from kvgate.conduct.workspace import Workspace, workspace
from kvgate.contract import Contract, parse_contract, read_contract
from kvgate.drive.playbooks import list_inventory
from kvgate.errors import CannotMeasure, Interrupted, KvgateError, UsageError
from kvgate.evidence.files import DISK_REFUSES
from kvgate.evidence.seal import cannot_write
from kvgate.inventory import inventory_from
from kvgate.progress import shown
from kvgate.rehearsal.faults import parse_faults
from kvgate.verdict import ClauseVerdict, Verdict


@dataclass(frozen=True, slots=True)
class Selection:
    """The clauses whose tests were collected, by gate."""

    by_gate: dict[int, tuple[str, ...]]

    @classmethod
    def of(cls, ids: Sequence[str]) -> Selection:
        gates = sorted({gate_of(i) for i in ids})
        return cls({g: tuple(i for i in ids if gate_of(i) == g) for g in gates})


def gate_of(clause: str) -> int:
    """The gate of a clause id: "G3.1" stands in gate 3."""
    return int(clause[1 : clause.index(".")])


class Console:
    """Runs gates on demand and remembers how each ended."""

    def __init__(self, order: Order, faults_from: int, *, fresh: bool = False) -> None:
        self._order = order
        self._faults_from = faults_from
        self._fresh = fresh
        self._selection = Selection({})
        self._ended: dict[int, Outcome | KvgateError] = {}
        self.interrupted: Interrupted | None = None

    @classmethod
    def from_options(cls, options: Any, root: Path) -> Console:
        """From the command line's options; raises UsageError before anything is started."""
        inventory_path = Path(options.inventory)
        inventory = inventory_from(list_inventory(inventory_path), path=str(inventory_path))
        contract_path = contract_file(options.contract or inventory.contract, root)
        contract_bytes = read_contract(contract_path)
        contract = parse_contract(contract_bytes, name=str(contract_path))
        faults = tuple(fault.spec() for fault in parse_faults(options.fault))
        order = Order(
            contract=contract,
            contract_bytes=contract_bytes,
            inventory=inventory,
            playbooks=root / "playbooks",
            workspace=Workspace(Path(options.campaigns)),
            faults=faults,
            engineering=bool(options.engineering),
        )
        check_order(order)
        name = options.campaign or contract.id
        space = workspace(Path(options.campaigns), name, fresh=False)
        return cls(_with(order, space, faults), int(options.fault_from), fresh=options.new_campaign)

    @property
    def contract(self) -> Contract:
        return self._order.contract

    @property
    def known_clauses(self) -> frozenset[str]:
        contract = self.contract
        return frozenset(c.id for g in contract.gates for c in contract.gate(g).clause)

    def select(self, selection: Selection, written: frozenset[str] | None) -> None:
        """Take note of what will run; only then an earlier campaign is moved aside where asked.

        ``written`` are the clauses that have a test, whether it was selected or not; None where the
        command named single tests, so that nobody can know. A deselected clause is INVALID; one
        that no test stands for could never be accepted.
        Raises UsageError when a selected gate's contract has such a clause.
        """
        untested = [
            clause.id
            for gate in selection.by_gate
            for clause in self.contract.gate(gate).clause
            if written is not None and clause.id not in written
        ]
        if untested:
            raise UsageError(
                f"the contract {self.contract.id} has clauses without a test: "
                f"{', '.join(untested)}",
                where="gates/",
                remedy=f'write a test marked @clause("{untested[0]}"), or collect all of gates/',
            )
        if self._fresh:
            root = self._order.workspace.root
            before = set(root.parent.iterdir()) if root.parent.is_dir() else set()
            space = workspace(root.parent, root.name, fresh=True)
            for kept in sorted(set(root.parent.glob(f"{root.name}.before-*")) - before):
                print(f"the earlier campaign is kept as {kept}")
            self._order = _with(self._order, space, self._order.faults)
            self._fresh = False
        self._selection = selection

    def verdict_of(self, clause: str) -> ClauseVerdict:
        """The clause's verdict; the first clause asked for runs its gate."""
        gate = gate_of(clause)
        told_before = gate in self._ended
        if not told_before:
            # Whatever breaks out of the run (a time-out of another plugin), it is not run again.
            self._ended[gate] = CannotMeasure(
                f"the run of G{gate} was broken off", remedy="see what pytest said, run it again"
            )
            self._ended[gate] = self._run(gate)
        ended = self._ended[gate]
        if isinstance(ended, KvgateError):
            if told_before:
                raise CannotMeasure(f"{clause} has no verdict, as said above of G{gate}")
            raise ended
        return next(c for c in ended.judged.verdict.clauses if c.clause == clause)

    def _run(self, gate: int) -> Outcome | KvgateError:
        faults = self._order.faults if gate >= self._faults_from else ()
        order = _with(self._order, self._order.workspace, faults)
        if self.interrupted is not None:
            return self.interrupted
        try:
            with shown() as progress:
                ended = run_gate(order, gate, self._selection.by_gate.get(gate, ()), progress)
                # Later gates take days: what this one said must stand on the screen by then.
                verdict = ended.judged.verdict
                progress.note(
                    f"G{gate}  {verdict.verdict}  {verdict.decision or 'no decision'}: "
                    f"{ended.bundle}"
                )
                return ended
        except Interrupted as error:
            self.interrupted = error
            return error
        except KvgateError as error:
            return error
        except Exception as error:  # noqa: BLE001 - our own fault is no verdict, and is kept
            if isinstance(error, OSError) and error.errno in DISK_REFUSES:
                return cannot_write(order.workspace.root, error)
            return self._own_fault(error)

    def _own_fault(self, error: Exception) -> KvgateError:
        """A fault of kvgate itself: one line for the reader, the details in a file."""
        path = self._order.workspace.root / "internal-fault.txt"
        details = "".join(traceback.format_exception(error))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(details)
        except OSError:
            path = Path("(the details could not be written)")
        return CannotMeasure(
            f"kvgate itself failed: {type(error).__name__}: {error}",
            where=str(path),
            remedy="nothing was judged; send that file to the maintainers",
        )

    def all_passed(self) -> bool:
        """Every selected gate ended with a PASS; no gate selected is no success, nor is a run out
        of order, whatever its evidence says."""
        ended = [self._ended.get(gate) for gate in self._selection.by_gate]
        return bool(ended) and all(
            isinstance(e, Outcome)
            and e.judged.verdict.verdict is Verdict.PASS
            and e.judged.campaign.mode is not Mode.ENGINEERING
            and e.published is not None
            for e in ended
        )

    def unasked(self, asked: AbstractSet[str]) -> frozenset[str]:
        """Clauses of the selected gates whose test did not pass: skipped, broken off, never run."""
        wanted = {c.id for gate in self._selection.by_gate for c in self.contract.gate(gate).clause}
        return frozenset(wanted - asked)

    def summary(self) -> Iterator[str]:
        """Each gate's verdict, decision and files; the last line is a path to verdict.json."""
        if not self._selection.by_gate:
            yield f"no clause of the contract {self.contract.id} was selected"
        for gate in self._selection.by_gate:
            ended = self._ended.get(gate)
            if ended is None:
                yield f"G{gate}  not run"
            elif isinstance(ended, KvgateError):
                yield f"G{gate}  NO VERDICT  {ended}"
            else:
                yield from _lines(gate, ended)


def _lines(gate: int, outcome: Outcome) -> Iterator[str]:
    verdict = outcome.judged.verdict
    decision = verdict.decision or "no decision"
    mark = "  [REHEARSAL: simulated appliance, never acceptance evidence]" * verdict.rehearsal
    why = f"{verdict.reason}; {verdict.decision_reason}"
    yield f"G{gate}  {verdict.verdict}  {decision}  {why}{mark}"
    for clause in verdict.clauses:
        if clause.verdict is not Verdict.PASS:
            yield f"      {clause.clause} {clause.verdict}: {clause.reason}"
    if verdict.interruptions:
        granted = outcome.judged.contract.gate(gate).interruptions
        yield (
            f"      interrupted {times(len(verdict.interruptions))}, {granted} granted: whole "
            "pairs were kept, what was broken off is excluded and was measured anew"
        )
    if outcome.published is None:
        yield f"      the report could not be written: {outcome.report_fault}"
        yield f"      the verdict stands; try again: kvgate report {outcome.bundle}"
    else:
        for pdf in outcome.published.pdf:
            yield f"      PDF      {pdf}"
        yield f"      HTML     {outcome.published.html[0]}"
        yield f"      JUnit    {outcome.published.junit}"
    if outcome.judged.campaign.mode is Mode.ENGINEERING:
        yield (
            f"      an engineering run proves nothing: G{gate} stays as it was, and pytest ends "
            "with 1 whatever this run says"
        )
    yield f"      verdict  {outcome.bundle / 'verdict.json'}"


def _with(order: Order, space: Workspace, faults: tuple[str, ...]) -> Order:
    return Order(
        order.contract,
        order.contract_bytes,
        order.inventory,
        order.playbooks,
        space,
        faults,
        order.engineering,
    )


def contract_file(name: str, root: Path) -> Path:
    """A path as it is, or the shipped contract of that name."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    shipped = root / "gates" / "contracts"
    found = shipped / f"{name}.toml"
    if not found.exists():
        known = ", ".join(sorted(p.stem for p in shipped.glob("*.toml"))) or "none"
        raise UsageError(f"no contract {name!r}", where=str(shipped), remedy=f"known: {known}")
    return found
