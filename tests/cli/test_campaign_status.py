"""campaign status: what the bundles say, and what may be done next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import CONTRACT, DEVICE, Run, write_g1

FAILING = {**DEVICE, "serial": "ANOTHER"}


def test_a_passed_gate_leads_to_the_next_one(kvgate: Run, bundle: Path) -> None:
    ended = kvgate("campaign", "status", bundle.parent, "--as-of", "2026-03-04")
    assert ended.code == 0
    first, _, g1, g2, *_ = ended.out.splitlines()
    assert "day 2 of 70" in first
    assert g1.split()[:2] == ["G1", "1"]
    assert "PASS" in g1
    assert "day 21: 19 left" in g2
    step = ended.out.splitlines()[-1]
    assert "pytest -m gate2 --inventory inventories/rehearsal --campaign demo" in step


def test_the_document_holds_the_same(kvgate: Run, bundle: Path) -> None:
    told = json.loads(
        kvgate("campaign", "status", bundle.parent, "--as-of", "2026-03-04", "--json").out
    )
    assert (told["day"], told["campaign"]) == (2, "demo")
    assert [g["verdict"] for g in told["gates"]] == ["PASS", None, None, None]
    assert told["gates"][1]["days_left"] == 19


def test_a_missed_deadline_is_said(kvgate: Run, campaign: Path) -> None:
    write_g1(campaign, device={**DEVICE, "model": None})
    ended = kvgate("campaign", "status", campaign, "--as-of", "2026-03-20T12:00:00+00:00")
    assert "day 7: MISSED by 12" in ended.out
    row = next(line for line in ended.out.splitlines() if line.startswith("  G1")).split("  ")
    assert [c.strip() for c in row if "/" in c] == ["0/0", "1/2"]
    assert "deadline missed" in ended.out
    assert "HOLD" in ended.out


def test_a_stop_loss_leaves_nothing_to_do(kvgate: Run, campaign: Path) -> None:
    write_g1(campaign, device=FAILING)
    ended = kvgate("campaign", "status", campaign, "--as-of", "2026-03-02")
    assert "decided STOP-LOSS" in ended.out.splitlines()[-1]


def test_an_expired_pass_opens_nothing(kvgate: Run, bundle: Path) -> None:
    ended = kvgate("campaign", "status", bundle.parent, "--as-of", "2026-06-01")
    assert "expired" in ended.out.splitlines()[-1]


def test_granted_retests_are_counted(kvgate: Run, campaign: Path) -> None:
    terms = CONTRACT.read_bytes().replace(b"retests = 0", b"retests = 2", 1)
    write_g1(campaign, device=FAILING, contract=terms)
    ended = kvgate("campaign", "status", campaign, "--as-of", "2026-03-02")
    assert "1/2" in ended.out
    assert "pytest -m gate1" in ended.out.splitlines()[-1]


def test_a_run_without_a_seal_is_named_and_does_not_count(kvgate: Run, campaign: Path) -> None:
    write_g1(campaign, seal=False)
    ended = kvgate("campaign", "status", campaign, "--as-of", "2026-03-02")
    assert ended.code == 0
    assert "1 (0 counted)" in ended.out
    assert "g1-001" in ended.err


@pytest.mark.parametrize("kind", ["missing", "empty", "bundle", "file"])
def test_what_is_no_campaign_is_one_line(
    kvgate: Run, bundle: Path, tmp_path: Path, kind: str
) -> None:
    path = {"bundle": bundle}.get(kind, tmp_path / kind)
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    ended = kvgate("campaign", "status", path)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_wrong_day_is_one_line(kvgate: Run, bundle: Path) -> None:
    ended = kvgate("campaign", "status", bundle.parent, "--as-of", "tomorrow")
    assert (ended.code, ended.err.count("\n")) == (2, 1)


def test_runs_without_a_readable_contract_are_one_line(kvgate: Run, bundle: Path) -> None:
    (bundle / "contract.toml").unlink()
    ended = kvgate("campaign", "status", bundle.parent)
    assert (ended.code, ended.err.count("\n")) == (11, 1)
