"""Whether anything of a campaign was taken away, from what is left of it. Pure.

Four witnesses speak of runs beside their own bundles: the numbering, what later runs saw
(``earlier`` in their ``campaign.json``), the list of runs that were opened, and the reports. Who
takes a bundle away has to take all of them. Whoever deletes a whole campaign leaves nothing here;
then only the copies that the other party holds speak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kvgate.campaign.calendar import moment_of
from kvgate.campaign.records import PastRun
from kvgate.errors import GateClosed

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""Clocks of two controllers differ by less."""
OPENED: Final = "opened.jsonl"
PUT_BACK: Final = "put it back from a copy; a campaign that loses runs proves nothing"


@dataclass(frozen=True, slots=True)
class Noted:
    """One line of the list of runs: that a run was opened (``as_of``), or how it was sealed.

    ``sha256`` is the digest of the line's bytes; every line names that of the line before.
    """

    gate: int
    run: int
    sha256: str
    as_of: str = ""
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What the campaign's folder says of its runs beside the bundles.

    ``fault`` is why the list cannot be believed, empty where it can; ``reported`` are the runs
    (gate, run) of which a report is left.
    """

    noted: tuple[Noted, ...] = ()
    fault: str = ""
    reported: tuple[tuple[int, int], ...] = ()


NONE: Final = Witnesses()


def check_complete(history: Sequence[PastRun], witnesses: Witnesses, *, as_of: datetime) -> None:
    """Raises GateClosed where a run is dated after now or something was taken away."""
    for past in history:
        moment = moment_of(past.as_of)
        if moment is not None and moment > as_of + CLOCK_TOLERANCE:
            raise GateClosed(
                f"{past.name} is dated {past.as_of}, after now",
                where=past.path,
                remedy="set this machine's clock; the order of runs is part of the evidence",
            )
    lost = next(_lost(history, witnesses), None)
    if lost is not None:
        raise GateClosed(lost, remedy=PUT_BACK)


def _lost(history: Sequence[PastRun], witnesses: Witnesses) -> Iterator[str]:
    """What is missing or was replaced, a sentence each."""
    here = {(p.gate, p.run): p for p in history}
    for gate in sorted({p.gate for p in history}):
        numbers = {p.run for p in history if p.gate == gate}
        for run in sorted(set(range(1, max(numbers))) - numbers):
            yield f"the evidence of G{gate} run {run} is missing"
    for past in history:
        for seen in past.earlier:
            found = here.get((seen.gate, seen.run))
            if found is None:
                yield f"the evidence of G{seen.gate} run {seen.run} is missing: {past.name} saw it"
            elif seen.verdict is not None and found.verdict != seen.verdict:
                yield (
                    f"{found.name} says {found.verdict or 'nothing'}, and {past.name} saw it say "
                    f"{seen.verdict}"
                )
    if witnesses.fault:
        yield f"{OPENED}, the list of the runs that were opened, was changed: {witnesses.fault}"
    known = {line.sha256 for line in witnesses.noted}
    for past in history:
        if past.opened_sha256 and past.opened_sha256 not in known:
            yield f"{OPENED} does not know {past.name}: lines were taken away, or the whole list"
    sealed = {(n.gate, n.run) for n in witnesses.noted if n.manifest_sha256 is not None}
    for past in history:
        if past.opened_sha256 and past.manifest_sha256 and (past.gate, past.run) not in sealed:
            yield f"{OPENED} does not say how {past.name} was sealed: a line was taken away"
    for line in witnesses.noted:
        found = here.get((line.gate, line.run))
        if found is None:
            when = f", opened {line.as_of}," if line.as_of else ""
            yield f"the evidence of G{line.gate} run {line.run}{when} is missing"
        elif line.manifest_sha256 is not None and found.manifest_sha256 != line.manifest_sha256:
            yield f"{found.name} is not what was sealed: {OPENED} names another manifest"
    for gate, run in witnesses.reported:
        if (gate, run) not in here:
            yield f"the evidence of G{gate} run {run} is missing: a report of it is left"
