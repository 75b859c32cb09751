"""From the end of a measurement to its seal: judge, write the verdict, seal, note it.

Nothing here measures, and every step may be cut off and taken again: what was measured to its end
is never measured twice and never lost. That a measurement ended is said by ``times.json`` and by
``plan.json``, and borne out by what was measured: else it was broken off.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import kvgate
from kvgate.adjudicate import TIMES, Judged, adjudicate, campaign_facts, end_of
from kvgate.campaign.complete import PUT_BACK
from kvgate.conduct.earlier import changed_block
from kvgate.conduct.openings import note_sealed
from kvgate.conduct.workspace import Workspace
from kvgate.contract import Contract
from kvgate.decide.ended import broken_off
from kvgate.errors import GateClosed
from kvgate.evidence import layout
from kvgate.evidence.bundle import Bundle, load_bundle
from kvgate.evidence.journal import Journal
from kvgate.evidence.seal import read_state
from kvgate.evidence.strict_json import read_object
from kvgate.evidence.verify import verify

REMEDY: Final = (
    "what was measured is complete and kept; the same command judges, seals and reports it"
)


def has_ended(root: Path) -> bool:
    """Whether the bundle says that its measurement ran to its end, and nobody sealed it."""
    state = read_state(root)
    if state is None or state.state == "sealed":
        return False
    if (read_object(root, TIMES) or {}).get("ended_at") is None:
        return False
    end = end_of(load_bundle(root))
    return end is not None and end.why is not None and not end.running


def in_its_campaign(root: Path) -> bool:
    """Whether the bundle lies in the campaign that opened it, and a seal can be noted there."""
    bundle = load_bundle(root)
    facts = campaign_facts(bundle.campaign or {}, where=str(root))
    folder = root.resolve().parent
    writable = os.access(folder, os.W_OK) and os.access(root, os.W_OK)
    return (
        writable
        and facts.name == folder.name
        and any(
            (noted.gate, noted.run, noted.sha256) == (facts.gate, facts.run, facts.opened_sha256)
            for noted in Workspace(folder).witnesses().noted
        )
    )


def to_finish(space: Workspace, gate: int, contract: Contract) -> Path | None:
    """The gate's newest bundle where it was measured to its end and not sealed; else None, also
    where its sessions and pairs do not bear out the end that it notes: that run was broken off.

    Raises GateClosed where it was measured under another contract, its blocks were changed, or it
    was sealed before.
    """
    newest = space.bundles(gate)[-1:]
    if not newest or not has_ended(newest[0][1]):
        return None
    run, root = newest[0]
    for noted in space.witnesses().noted:
        if (noted.gate, noted.run) == (gate, run) and noted.manifest_sha256 is not None:
            raise GateClosed(
                f"{root.name} was sealed and is not any more", where=str(root), remedy=PUT_BACK
            )
    bundle = load_bundle(root)
    said = (bundle.campaign or {}).get("contract_digest")
    if said != contract.digest:
        raise GateClosed(
            f"{root.name} was measured to its end under another contract and is not sealed",
            where=str(root),
            remedy=f"finish it first: kvgate report {root}",
        )
    check_unchanged(bundle)
    return None if broken_off(adjudicate(root).verdict) else root


def check_unchanged(bundle: Bundle) -> None:
    """Raises GateClosed where a block is not the bytes that were noted when it was measured."""
    block = changed_block(bundle)
    if block is not None:
        raise GateClosed(
            f"{bundle.root.name} was measured to its end, but block {block} is not what was "
            "measured",
            where=str(bundle.root),
            remedy="restore it from a copy, or start a new campaign with --campaign NAME",
        )


def conclude(journal: Journal) -> Judged:
    """Judge what was measured, write the verdict, seal the bundle and note the seal.

    Raises CannotMeasure where the evidence cannot be judged or the disk refuses; a second call on
    the reopened bundle does the rest.
    """
    return _concluded(journal, adjudicate(journal.root))


def _concluded(journal: Journal, judged: Judged) -> Judged:
    root = journal.root
    journal.write_bytes(layout.VERDICT, judged.verdict_json)
    facts = judged.campaign
    before = facts.predecessor
    manifest = journal.seal(
        previous_manifest_sha256=None if before is None else before.manifest_sha256,
        kvgate_version=kvgate.__version__,
    )
    if facts.opened_sha256 and manifest.partial_reason is None:
        note_sealed(root.parent, facts.gate, facts.run, manifest.sha256)
    return judged


def finish(root: Path) -> Judged:
    """Conclude a bundle that was measured to its end. Raises as :func:`conclude`, GateClosed where
    a block was changed or it was broken off, UsageError while another run writes it."""
    check_unchanged(load_bundle(root))
    judged = adjudicate(root)
    if broken_off(judged.verdict):
        raise GateClosed(
            f"{root.name} notes an end that its sessions and pairs do not bear out: it was broken "
            "off and is not sealed",
            where=str(root),
            remedy="run the gate again: it goes on with what stands",
        )
    with Journal.open_existing(root) as journal:
        return _concluded(journal, judged)


def note_seal(root: Path) -> None:
    """Note a seal that was set when the process ended before it could note it; once.

    Raises CannotMeasure where the disk refuses.
    """
    bundle = load_bundle(root)
    facts = campaign_facts(bundle.campaign or {}, where=str(root))
    sealed = bundle.manifest_sha256
    if facts.opened_sha256 and sealed is not None and bundle.partial_reason is None:
        note_sealed(root.parent, facts.gate, facts.run, sealed)


def to_publish(space: Workspace, gate: int, contract: Contract) -> Path | None:
    """The gate's newest bundle where it is intact, of this contract, and has no report yet."""
    newest = space.bundles(gate)[-1:]
    if not newest:
        return None
    root = newest[0][1]
    state = read_state(root)
    if state is None or state.state != "sealed":
        return None
    said = (read_object(root, layout.CAMPAIGN) or {}).get("contract_digest")
    written = all(
        (space.reports / f"{root.name}.{kind}").is_file() for kind in ("junit.xml", "blocks.csv")
    )
    return None if written or said != contract.digest or verify(root) else root
