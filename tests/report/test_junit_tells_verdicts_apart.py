"""A build server sees FAIL, INVALID and INCONCLUSIVE as three different things."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from kvgate.contract import CompareClause
from kvgate.report import render_junit
from kvgate.verdict import GateVerdict

from . import example


def suite(verdict: GateVerdict) -> ET.Element:
    return ET.fromstring(render_junit(verdict))


def test_fail_is_a_failure_with_its_figures() -> None:
    root = suite(example.gate3("fail").verdict)
    failures = root.findall("testcase/failure")
    assert [f.get("type") for f in failures] == ["FAIL", "FAIL"]
    assert "cold_restore@16" in (failures[0].text or "")
    assert root.get("failures") == "2"
    assert root.get("errors") == "0"
    assert len(root.findall("testcase")) == len(example.contract().gate(3).clause)


def test_invalid_is_an_error() -> None:
    root = suite(example.gate3("invalid").verdict)
    assert {e.get("type") for e in root.findall("testcase/error")} == {"INVALID"}
    compared = [c for c in example.contract().gate(3).clause if isinstance(c, CompareClause)]
    assert root.get("errors") == str(len(compared))
    assert root.get("failures") == "0"


def test_inconclusive_never_passes() -> None:
    root = suite(example.gate3("inconclusive").verdict)
    kinds = {f.get("type") for f in root.findall("testcase/failure")}
    assert kinds == {"INCONCLUSIVE"}


def test_properties_name_gate_verdict_decision_and_contract() -> None:
    root = suite(example.gate3("fail").verdict)
    shown = {p.get("name"): p.get("value") for p in root.findall("properties/property")}
    assert shown["gate"] == "3"
    assert shown["verdict"] == "FAIL"
    assert shown["decision"] == "STOP-LOSS"
    assert shown["contract_digest"] == example.contract().digest
    assert shown["rehearsal"] == "true"


def test_a_clause_carries_its_figures_as_properties() -> None:
    verdict = example.gate3("pass").verdict
    root = ET.fromstring(render_junit(verdict, "5" * 64))
    case = root.findall("testcase")[0]
    shown = {p.get("name"): p.get("value") for p in case.findall("properties/property")}
    figure = verdict.clauses[0].figures[0]
    assert isinstance(figure.value, float)
    assert shown["clause"] == "G3.1"
    assert shown[f"value {figure.where}"] == f"{figure.value:.6g}"
    assert shown[f"unit {figure.where}"] == "1"
    assert shown[f"n {figure.where}"] == str(figure.n)
    missing = [c for c in root.findall("testcase") if c.find("properties") is None]
    assert missing == []
    suite_says = {p.get("name"): p.get("value") for p in root.findall("properties/property")}
    assert suite_says["manifest_sha256"] == "5" * 64


def test_a_gate_without_clauses_is_an_error_not_a_pass() -> None:
    root = suite(replace(example.gate1().verdict, clauses=()))
    assert root.get("errors") == "1"
    assert root.find("testcase/error") is not None


def test_hostile_strings_leave_the_xml_whole() -> None:
    verdict = example.gate3("fail").verdict
    first = verdict.clauses[0]
    bad = "]]><x>&\x00\x1b\ud800\"'"
    figures = tuple(replace(f, where=bad) for f in first.figures)
    clause = replace(first, text={"en": bad}, figures=figures)
    root = suite(replace(verdict, campaign=bad, clauses=(clause, *verdict.clauses[1:])))
    name = root.findall("testcase")[0].get("name") or ""
    assert "]]><x>&[U+0000][U+001B][U+D800]" in name
