"""JUnit of a judged gate: one test case per clause, so that a build server shows the verdict.

FAIL is a failure, INCONCLUSIVE a failure of that type (it must not pass), INVALID an error (the
measurement was at fault).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from kvgate.canonical import round_significant
from kvgate.numbers import interval, number
from kvgate.verdict import ClauseVerdict, Figure, GateVerdict, Verdict

_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    """``text`` with what XML 1.0 forbids shown by its code."""
    return _FORBIDDEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def _attributes(**values: object) -> str:
    return "".join(f" {key}={quoteattr(_clean(str(value)))}" for key, value in values.items())


def _figure_line(clause: ClauseVerdict, figure: Figure) -> str:
    value = number(figure.value, figure.unit, "en", metric=clause.metric)
    limit = number(figure.threshold, figure.unit, "en", metric=clause.metric, exact=True)
    span = interval(figure.low, figure.high, figure.unit, "en", metric=clause.metric)
    shown = f" [{span}]" if span else ""
    return (
        f"{figure.where}: {value}{shown}, required {figure.relation} {limit}: "
        f"{figure.verdict.value}, {figure.reason.text('en')}"
    )


def _case(verdict: GateVerdict, clause: ClauseVerdict) -> str:
    name = f"{clause.clause} {clause.text.get('en', clause.metric)}"
    head = f"  <testcase{_attributes(classname=f'gate{verdict.gate}', name=name)}>\n"
    head += _properties(_measured(clause), indent="    ")
    if clause.verdict is Verdict.PASS:
        return f"{head}  </testcase>\n"
    tag = "error" if clause.verdict is Verdict.INVALID else "failure"
    lines = "\n".join(_figure_line(clause, figure) for figure in clause.figures)
    attributes = _attributes(type=clause.verdict.value, message=clause.reason.text("en"))
    body = escape(_clean(lines))
    return f"{head}    <{tag}{attributes}>{body}</{tag}>\n  </testcase>\n"


def _measured(clause: ClauseVerdict) -> dict[str, object]:
    """A clause's figures by name, unrounded beyond the verdict's six digits; what is absent is
    left out, never 0."""
    rows: dict[str, object] = {"clause": clause.clause, "metric": clause.metric}
    if clause.waived_by:
        rows["waived_by"] = ", ".join(clause.waived_by)
    for figure in clause.figures:
        told = {
            "value": figure.value,
            "low": figure.low,
            "high": figure.high,
            "threshold": figure.threshold,
        }
        for name, value in told.items():
            if value is not None:
                plain = round_significant(value) if isinstance(value, float) else value
                rows[f"{name} {figure.where}"] = plain
        rows[f"unit {figure.where}"] = figure.unit
        rows[f"n {figure.where}"] = figure.n
    return rows


def _properties(rows: Mapping[str, object], *, indent: str) -> str:
    listed = "".join(
        f"{indent}  <property{_attributes(name=key, value=value)}/>\n"
        for key, value in rows.items()
    )
    return f"{indent}<properties>\n{listed}{indent}</properties>\n"


def render_junit(verdict: GateVerdict, manifest_sha256: str | None = None) -> bytes:
    """JUnit XML, UTF-8, with what identifies the run as properties of the suite and every figure
    as properties of its clause. A gate without clauses has one case, in error: nothing was judged.

    ``manifest_sha256`` is the digest of the sealed evidence, left out for a run that is not sealed.
    """
    verdicts = [clause.verdict for clause in verdict.clauses] or [Verdict.INVALID]
    errors = verdicts.count(Verdict.INVALID)
    failures = len(verdicts) - verdicts.count(Verdict.PASS) - errors
    properties = {
        "gate": verdict.gate,
        "verdict": verdict.verdict.value,
        "decision": verdict.decision.value if verdict.decision else "does not count",
        "campaign": verdict.campaign,
        "run": verdict.run,
        "mode": verdict.mode,
        "contract_id": verdict.contract_id,
        "contract_digest": verdict.contract_digest,
        "rehearsal": str(verdict.rehearsal).lower(),
        "as_of": verdict.as_of,
        "judged_by": verdict.judged_by,
        **({} if manifest_sha256 is None else {"manifest_sha256": manifest_sha256}),
    }
    rows = _properties(properties, indent="  ")
    cases = "".join(_case(verdict, clause) for clause in verdict.clauses)
    if not verdict.clauses:
        error = f"<error{_attributes(type='INVALID', message=verdict.reason.text('en'))}/>"
        head = f"<testcase{_attributes(classname=f'gate{verdict.gate}', name='clauses')}>"
        cases = f"  {head}{error}</testcase>\n"
    suite = _attributes(
        name=f"kvgate gate {verdict.gate}",
        tests=len(verdicts),
        failures=failures,
        errors=errors,
        skipped=0,
        timestamp=verdict.as_of,
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite{suite}>\n{rows}{cases}</testsuite>\n'
    ).encode()
