"""Whether the first page of a PDF says what the verdict inside it says.

Compared are words, as a program reads them out of the page: the decision, the verdict, campaign,
contract and manifest. What is drawn over them, and every other page, is not compared here; that
takes the bundle and a second rendering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvgate.report.moments import as_of_text, decision_key
from kvgate.report.texts import LANGUAGES, Texts, texts
from kvgate.verdict import Decision, Verdict


def language(said: str) -> str | None:
    """The report's language ("en", "zh") of a PDF that calls itself "en" or "zh-CN"; else None."""
    lang = said.partition("-")[0].lower()
    return lang if lang in LANGUAGES else None


def first_page_faults(
    page: str, verdicts: Sequence[Mapping[str, Any]], manifests: Sequence[str], lang: str
) -> list[str]:
    """What the text of page 1 lacks, or says otherwise than the embedded verdicts.

    ``manifests`` are their digests, in the same order. Of several runs, page 1 speaks of the one
    that leads: the newest of the first gate that does not proceed, else of the last gate; where no
    run counts, of any.
    """
    lead = _leading(verdicts)
    speaking = range(len(verdicts)) if lead is None else [lead]
    found = [_faults(page, verdicts[i], manifests, lang) for i in speaking]
    return min(found, key=len)


def _faults(
    page: str, verdict: Mapping[str, Any], manifests: Sequence[str], lang: str
) -> list[str]:
    t = texts(lang)
    text = _squeezed(page)
    key = decision_key(str(verdict.get("decision")))
    word, code = t(f"decision.{key}.word"), t(f"decision.{key}.code")
    # Other gates' decisions stand on page 1 as well: this one stands before its verdict.
    decision = f"{word}{'' if code == word else code}{t('verdict.of_gate')}"
    gate = t("gate", n=_int(verdict, "gate"))
    wanted = {
        "the gate": f"{t('title.kind')} / {gate} /",
        "the decision": decision,
        "the campaign": str(verdict.get("campaign")),
        "the time": as_of_text(str(verdict.get("as_of"))),
        "the contract's digest": str(verdict.get("contract_digest"))[:16],
    }
    faults = [
        f"page 1 does not say {what} ({(word if words is decision else words)[:80]})"
        for what, words in wanted.items()
        if not words or _squeezed(words) not in text
    ]
    if not any(digest[:16] in text for digest in manifests):
        faults.append("page 1 does not say the manifest's digest")
    said = _said_verdicts(text, _squeezed(t("verdict.of_gate")), t)
    if said != [str(verdict.get("verdict"))]:
        told = ", ".join(said) or "nothing"
        faults.append(f"page 1 says {told} as verdict of the gate, not {verdict.get('verdict')}")
    return faults


def _said_verdicts(text: str, label: str, t: Texts) -> list[str]:
    """The verdicts that stand behind the words "verdict of the gate", each time they appear."""
    words = sorted(
        ((_squeezed(t(f"verdict.{v.value}")), v.value) for v in Verdict), key=lambda w: -len(w[0])
    )
    found = []
    for piece in text.split(label)[1:]:
        rest = piece.lstrip(":：")
        found.append(next((value for word, value in words if rest.startswith(word)), "?"))
    return found


def _leading(verdicts: Sequence[Mapping[str, Any]]) -> int | None:
    """The counterpart of :func:`kvgate.report.front.leading` for plain verdicts; None where no run
    counts."""
    order = sorted(range(len(verdicts)), key=lambda i: (_int(verdicts[i], "gate"),
                                                        _int(verdicts[i], "run")))  # fmt: skip
    newest = {
        _int(verdicts[i], "gate"): i for i in order if verdicts[i].get("decision") is not None
    }
    for gate in sorted(newest):
        if verdicts[newest[gate]].get("decision") != Decision.PROCEED:
            return newest[gate]
    return newest[max(newest)] if newest else None


def _int(verdict: Mapping[str, Any], key: str) -> int:
    value = verdict.get(key)
    return value if isinstance(value, int) else 0


def _squeezed(text: str) -> str:
    """Without white space: where a page breaks its lines says nothing."""
    return "".join(text.split())
