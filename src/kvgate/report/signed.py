"""Who has signed the evidence, as the report says it; a missing signature is said as well."""

from __future__ import annotations

from typing import Final

from kvgate.report.inputs import ReportInput
from kvgate.report.texts import Texts

PARTIES: Final = ("buyer", "vendor")
"""Whose signature is looked for; of others is said only what is there."""


def signature_rows(source: ReportInput, t: Texts) -> tuple[tuple[str, str], ...]:
    """Party and what is known of its signature; empty for a run that is not sealed."""
    if source.manifest_json is None:
        return ()
    known = {state.party: state for state in source.signed}
    rows = []
    for party in (*PARTIES, *(name for name in known if name not in PARTIES)):
        name = t.find(f"facts.{party}", party)
        state = known.get(party)
        if state is None:
            said = t("signed.unsigned" if party not in source.signatures else "signed.unchecked")
        elif state.fault == "no-signers":
            said = t("signed.no-signers", key=state.key)
        else:
            said = t(f"signed.{state.status}", key=state.key)
        rows.append((t("evidence.signature", party=name), said))
    return tuple(rows)
