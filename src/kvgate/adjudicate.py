"""From a bundle on disk to its verdict: reads the evidence, then calls the pure judge.

Used while a gate runs, by ``kvgate judge`` and by the report, so that all three say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pandas as pd

from kvgate.analyse.assemble import RawBlock, assemble
from kvgate.analyse.configuration import configuration
from kvgate.analyse.interrupted import interrupted_sessions, mark_interrupted
from kvgate.analyse.listed import end_in
from kvgate.analyse.results import Analysis, End
from kvgate.campaign import (
    CampaignFacts,
    Configuration,
    Mode,
    Predecessor,
    ReliedOn,
    moment_of,
)
from kvgate.canonical import canonical_json
from kvgate.contract import GATES, Contract, parse_contract
from kvgate.decide import judge
from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.bundle import BlockEvidence, Bundle, load_bundle
from kvgate.evidence.strict_json import read_object
from kvgate.evidence.tables import read_requests
from kvgate.evidence.waivers import MOST, checked
from kvgate.verdict import GateVerdict, Interruption, RunSpent
from kvgate.waiver import waiver_from

TIMES: Final = "times.json"
"""When the run ended (``ended_at``, UTC in ISO 8601); it began at campaign.json's ``as_of``."""

_NO_ROWS = pd.DataFrame({"t_ns": [], "source": [], "name": [], "value": []})


@dataclass(frozen=True, slots=True)
class Judged:
    """A bundle with all that was made of it."""

    bundle: Bundle
    contract: Contract
    campaign: CampaignFacts
    analysis: Analysis
    verdict: GateVerdict

    @property
    def verdict_json(self) -> bytes:
        """The bytes of ``verdict.json``."""
        return canonical_json(self.verdict)


def adjudicate(root: Path) -> Judged:
    """Judge the bundle in ``root`` from its own evidence alone.

    Raises CannotMeasure where contract, campaign or inventory are missing or unreadable: such a
    bundle has no verdict at all.
    """
    bundle = load_bundle(root)
    if bundle.contract is None or bundle.campaign is None or bundle.inventory is None:
        missing = [
            name
            for name, part in (
                ("contract.toml", bundle.contract),
                ("campaign.json", bundle.campaign),
                ("inventory.json", bundle.inventory),
            )
            if part is None
        ]
        raise CannotMeasure(
            f"the bundle lacks {', '.join(missing)}", where=str(root),
            remedy="a bundle without them has no verdict; run the gate again",
        )  # fmt: skip
    try:
        contract = parse_contract(bundle.contract, name=f"{root}/contract.toml")
    except UsageError as error:
        raise CannotMeasure(
            f"the sealed contract is not usable: {error.message}",
            where=error.where,
            remedy="kvgate verify says whether it was changed; else judge with the version that "
            "measured (campaign.json names it)",
        ) from error
    campaign = campaign_facts(
        bundle.campaign, where=str(root), signers=contract.parties.signers
    )  # fmt: skip
    if campaign.contract_digest != contract.digest:
        raise CannotMeasure(
            "campaign.json was made under another contract than the one in the bundle",
            where=str(root),
            remedy="the bundle was put together from two runs; it proves nothing",
        )
    analysis = assemble(
        contract,
        campaign.gate,
        _raw_blocks(bundle),
        bundle.facts,
        {g: tuple(h) for g, h in (bundle.inventory.get("hosts") or {}).items()},
        campaign.time_scale,
    )
    analysis = mark_interrupted(analysis, interrupted_sessions(bundle.plan))
    analysis = replace(
        analysis,
        configuration=under_test(bundle),
        hours=hours_of(bundle),
        end=end_of(bundle),
    )
    return Judged(bundle, contract, campaign, analysis, judge(contract, analysis, campaign))


def reopened_by_change(judged: Judged) -> bool:
    """Whether something changed for which the contract reopens a gate that this run builds on: then
    nothing more that it measures can count."""
    return judged.verdict.reason.code == "reopened"


def end_of(bundle: Bundle) -> End | None:
    """What the bundle's plan says of the run's end, beside the blocks that there are."""
    return end_in(bundle.plan, {str(b.block.get("kind")) for b in bundle.blocks if b.block})


def under_test(bundle: Bundle) -> Configuration:
    """What was under test, from the facts and the roles' answers in the bundle."""
    hosts = (bundle.inventory or {}).get("hosts") or {}
    environment = (bundle.plan or {}).get("environment")
    return configuration(
        bundle.facts,
        environment if isinstance(environment, Mapping) else {},
        tuple(str(h) for h in hosts.get("appliances") or ()),
    )


def hours_of(bundle: Bundle) -> float | None:
    """Hours from the run's begin to its end, or to that of its last block, without the time for
    which it lay interrupted; None where the evidence does not tell."""
    began = moment_of(str((bundle.campaign or {}).get("as_of")))
    if began is None:
        return None
    by_block: dict[int, datetime] = {}
    for evidence in bundle.blocks:
        block = evidence.block or {}
        start, lasted_s = moment_of(str(block.get("started_at"))), block.get("duration_s")
        if start is not None and isinstance(lasted_s, int | float):
            by_block[evidence.n] = start + timedelta(seconds=float(lasted_s))
    said = read_object(bundle.root, TIMES)
    told = None if said is None else moment_of(str(said.get("ended_at")))
    known = [end for end in (told, *by_block.values()) if end is not None and end >= began]
    if not known:
        return None
    return (max(known) - began - _idle(bundle.campaign or {}, by_block)) / timedelta(hours=1)


def _idle(campaign: Mapping[str, Any], ends: Mapping[int, datetime]) -> timedelta:
    """From the last block before each interruption until the run went on, by dates in UTC."""
    idle = timedelta()
    for noted in campaign.get("interruptions") or ():
        resumed = moment_of(str(noted["resumed_at"]))
        before = [end for n, end in ends.items() if n < int(noted["next_block"])]
        if resumed is not None and before:
            idle += max(timedelta(), resumed - max(before))
    return idle


def _raw_blocks(bundle: Bundle) -> Iterator[RawBlock]:
    """Finished blocks only; one without its block.json was never measured to the end."""
    for evidence in bundle.blocks:
        if evidence.block is None:
            continue
        if evidence.requests_path is None:
            raise CannotMeasure(
                f"block {evidence.n} has no requests.parquet",
                where=str(bundle.root),
                remedy="evidence was removed; run the gate again",
            )
        yield RawBlock(
            evidence.n, evidence.block, read_requests(evidence.requests_path), _engine(evidence)
        )


def _engine(evidence: BlockEvidence) -> pd.DataFrame:
    if evidence.block is None or evidence.block.get("kind") != "soak":
        return _NO_ROWS  # only a long run needs the series; counters stand in block.json
    if evidence.engine_path is None:
        return _NO_ROWS
    return pd.read_parquet(evidence.engine_path)


def _few(waivers: Sequence[Any]) -> Sequence[Any]:
    """Each costs two runs of ssh-keygen; raises ValueError for more than a campaign has."""
    if len(waivers) > MOST:
        raise ValueError(f"{len(waivers)} waivers, at most {MOST} are looked at")
    return waivers


def _interruption(plain: Mapping[str, Any]) -> Interruption:
    return Interruption(
        reason=str(plain["reason"]),
        resumed_at=str(plain["resumed_at"]),
        next_session=int(plain["next_session"]),
        next_block=int(plain["next_block"]),
        broken_sessions=tuple(int(n) for n in plain["broken_sessions"]),
        unfinished_blocks=tuple(int(n) for n in plain["unfinished_blocks"]),
        rebooted=None if plain["rebooted"] is None else plain["rebooted"] is True,
    )


def _plausible(plain: Mapping[str, Any]) -> None:
    """Raises ValueError for what no run of ours writes and no judge could use."""
    gate, scale = plain["gate"], plain["time_scale"]
    if isinstance(gate, bool) or gate not in GATES:
        raise ValueError(f"there is no gate {gate!r}")
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 1 <= scale < math.inf:
        raise ValueError(f"the time scale {scale!r} is none")
    if scale != 1 and plain["rehearsal"] is False:
        raise ValueError("only a rehearsal has a time scale other than 1")


def campaign_facts(
    plain: Mapping[str, Any], *, where: str, signers: Sequence[str] = ()
) -> CampaignFacts:
    """``campaign.json`` as a record; raises CannotMeasure for a missing or wrong key.

    Signatures of waivers are checked anew against ``signers``, the contract's lines: without them
    none is trusted.
    """
    try:
        _plausible(plain)
        before = plain["predecessor"]
        return CampaignFacts(
            name=str(plain["name"]),
            gate=int(plain["gate"]),
            run=int(plain["run"]),
            mode=Mode(plain["mode"]),
            rehearsal=plain["rehearsal"] is not False,
            as_of=str(plain["as_of"]),
            contract_id=str(plain["contract_id"]),
            contract_digest=str(plain["contract_digest"]),
            kvgate_version=str(plain["kvgate_version"]),
            inventory=str(plain["inventory"]),
            selected=tuple(str(c) for c in plain["selected"]),
            retests_used=int(plain["retests_used"]),
            reruns_used=int(plain["reruns_used"]),
            serials=tuple(str(s) for s in plain["serials"]),
            firmware=str(plain["firmware"]),
            predecessor=None
            if before is None
            else Predecessor(**{**before, "waived": tuple(before.get("waived") or ())}),
            faults=tuple(str(f) for f in plain["faults"]),
            time_scale=float(plain["time_scale"]),
            extends=plain["extends"],
            began=str(plain.get("began") or ""),
            earlier=tuple(RunSpent(**run) for run in plain.get("earlier") or ()),
            waivers=tuple(
                checked(waiver_from(w["waiver"]), str(w["signature"]), signers)
                for w in _few(plain.get("waivers") or ())
            ),
            relied_on=tuple(ReliedOn(**run) for run in plain.get("relied_on") or ()),
            interruptions=tuple(_interruption(i) for i in plain.get("interruptions") or ()),
            opened_sha256=str(plain.get("opened_sha256") or ""),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CannotMeasure(
            f"campaign.json is not usable: {error}", where=where, remedy="run the gate again"
        ) from error
