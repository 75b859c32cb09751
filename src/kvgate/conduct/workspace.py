"""Where a campaign lies on disk, and its history read back from its bundles.

``<campaigns>/<name>/g<gate>-<run>/`` is an evidence bundle, ``.../reports/`` its reports and
``.../run/`` what running processes need. The bundles are the only record: there is no state file
that could disagree with them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kvgate.adjudicate import adjudicate, hours_of, under_test
from kvgate.campaign import Mode, PastRun, Witnesses, deadline_of
from kvgate.conduct.openings import witnesses
from kvgate.contract import Contract
from kvgate.decide.waived import ABOUT_ANSWERS
from kvgate.errors import KvgateError, UsageError
from kvgate.evidence.bundle import Bundle, load_bundle
from kvgate.evidence.files import FolderLock
from kvgate.evidence.seal import cannot_write
from kvgate.evidence.verify import verify
from kvgate.evidence.waivers import read_waivers
from kvgate.verdict import Decision, RunSpent, Verdict
from kvgate.waiver import SignedWaiver

_BUNDLE: Final = re.compile(r"g([1-4])-([0-9]{3})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Workspace:
    """One campaign's folder."""

    root: Path

    def bundle(self, gate: int, run: int) -> Path:
        return self.root / f"g{gate}-{run:03d}"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @contextmanager
    def held(self) -> Iterator[None]:
        """One run a campaign at a time: a second one would stop the first one's engines.

        Raises UsageError while another process runs a gate of it, CannotMeasure where the folder
        cannot be made.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(self.root, "campaign")
        except OSError as error:
            raise cannot_write(self.root, error) from error
        try:
            yield
        finally:
            lock.release()

    def history(self) -> tuple[PastRun, ...]:
        """Every earlier run in order of gate and run; an unsealed or broken one has no verdict."""
        return tuple(past_run(path, gate, run) for gate, run, path in self._bundles())

    def bundles(self, gate: int) -> tuple[tuple[int, Path], ...]:
        """Run and folder of every bundle of a gate, in order."""
        return tuple((run, path) for of, run, path in self._bundles() if of == gate)

    def witnesses(self) -> Witnesses:
        """What else in the folder speaks of runs, so that one cannot be taken away unseen."""
        return witnesses(self.root, self.reports)

    def _bundles(self) -> Iterator[tuple[int, int, Path]]:
        if not self.root.is_dir():
            return
        for path in sorted(self.root.iterdir()):
            match = _BUNDLE.fullmatch(path.name)
            if match:
                yield int(match.group(1)), int(match.group(2)), path

    def waivers(self, contract: Contract) -> tuple[SignedWaiver, ...]:
        """The waivers in ``waivers/``, checked against the contract's keys."""
        return read_waivers(self.root, contract.parties.signers)


def workspace(campaigns: Path, name: str, *, fresh: bool, now: datetime | None = None) -> Workspace:
    """The campaign's folder; ``fresh`` moves an earlier campaign of that name aside, keeping it.

    Raises UsageError for a name that is no plain file name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"campaign name {name!r} is not usable",
            remedy="use letters, digits, '.', '_' and '-'",
        )
    root = campaigns / name
    if fresh and root.exists():
        with Workspace(root).held():
            root.rename(_aside(root, now or datetime.now(UTC)))
    return Workspace(root)


def _aside(root: Path, now: datetime) -> Path:
    """A name that no earlier campaign was moved to."""
    stem = f"{root.name}.before-{now:%Y%m%dT%H%M%S}"
    names = (stem if n == 0 else f"{stem}-{n}" for n in itertools.count())
    return next(path for name in names if not (path := root.with_name(name)).exists())


def past_run(path: Path, gate: int, run: int) -> PastRun:
    """What a bundle says of its run. Only an intact seal makes its verdict count."""
    try:
        bundle = load_bundle(path)
        intact = bundle.manifest_sha256 is not None and not verify(path)
    except KvgateError:
        # Only a seal writes a manifest: with one, this was a finished bundle once.
        return _unreadable(path, gate, run, damaged=(path / "manifest.json").exists())
    if bundle.state == "sealed" and not intact:
        return _unreadable(path, gate, run, damaged=True)
    campaign: Mapping[str, Any] = bundle.campaign or {}
    verdict: Mapping[str, Any] = (bundle.verdict or {}) if intact else {}
    if campaign.get("gate") != gate or campaign.get("run") != run:
        return _unreadable(path, gate, run)
    if intact and not _its_own(path, campaign, verdict):
        return _unreadable(path, gate, run, damaged=True)
    try:
        return PastRun(
            gate=gate,
            run=run,
            mode=Mode(campaign["mode"]),
            verdict=Verdict(verdict["verdict"]) if verdict else None,
            decision=Decision(verdict["decision"]) if verdict.get("decision") else None,
            as_of=str(campaign["as_of"]),
            contract_digest=str(campaign["contract_digest"]),
            serials=tuple(campaign["serials"]),
            firmware=str(campaign["firmware"]),
            manifest_sha256=_digest(bundle, intact=intact),
            rehearsal=bundle.rehearsal,
            path=str(path),
            hours=hours_of(bundle),
            configuration=under_test(bundle),
            pairs=verdict.get("pairs_measured"),
            earlier=tuple(RunSpent(**seen) for seen in campaign.get("earlier") or ()),
            opened_sha256=str(campaign.get("opened_sha256") or ""),
            unmet=_unmet(gate, verdict),
            unwaivable=_unwaivable(verdict),
            waived={
                w["clause"]: str(w["expires"]) for w in verdict.get("waivers") or () if w["used"]
            },
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return _unreadable(path, gate, run)


def _its_own(path: Path, campaign: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether a sealed bundle is of this campaign and its evidence gives the verdict it claims.

    A seal only says that nothing was changed since; anybody can seal a folder that says PASS.
    """
    if campaign.get("name") != path.parent.name:
        return False
    try:
        found = adjudicate(path).verdict
    except KvgateError:
        return False
    return (found.verdict, found.decision) == (stored.get("verdict"), stored.get("decision"))


def _unmet(gate: int, verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """What kept the run from letting the next gate open, waived clauses left out."""
    found = [
        str(c["clause"])
        for c in verdict.get("clauses") or ()
        if c["verdict"] != Verdict.PASS and not c.get("waived_by")
    ]
    late = (verdict.get("decision_reason") or {}).get("code") == "deadline_missed"
    return (*found, deadline_of(gate)) if late else tuple(found)


def _unwaivable(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of them that no waiver lifts: wrong answers, what was not measured, and a gate that a
    change reopened."""
    found = [
        str(c["clause"])
        for c in verdict.get("clauses") or ()
        if c["verdict"] == Verdict.INVALID
        or (c["verdict"] != Verdict.PASS and c["metric"] in ABOUT_ANSWERS)
    ]
    changed = (verdict.get("decision_reason") or {}).get("code") == "reopened"
    return (*found, "configuration") if changed else tuple(found)


def _digest(bundle: Bundle, *, intact: bool) -> str | None:
    return bundle.manifest_sha256 if intact and bundle.partial_reason is None else None


def _unreadable(path: Path, gate: int, run: int, *, damaged: bool = False) -> PastRun:
    """A run that says nothing; ``damaged`` where it once was sealed."""
    return PastRun(
        gate, run, Mode.COUNTED, None, None, "", "", (), "", None, True, str(path), damaged
    )
