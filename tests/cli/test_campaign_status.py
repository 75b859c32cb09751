"""campaign status: what the bundles say, and what may be done next."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

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
    row = [line for line in ended.out.splitlines() if line.startswith("  G1")][-1].split("  ")
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


# --- waivers, changes, costs ------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for party in ("buyer", "vendor"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / party)],
            check=True, timeout=60,
        )  # fmt: skip
    return folder


def signed_terms(keys: Path) -> bytes:
    """The rehearsal's contract with the parties' keys."""
    lines = [
        f"{party} {' '.join((keys / f'{party}.pub').read_text().split()[:2])}"
        for party in ("buyer", "vendor")
    ]
    quoted = ", ".join(f'"{line}"' for line in lines)
    text = CONTRACT.read_text().replace("[campaign]", f"signers = [{quoted}]\n\n[campaign]", 1)
    return text.encode()


def waive(kvgate: Run, campaign: Path, keys: Path, party: str, clause: str = "G1.2") -> Any:
    return kvgate(
        "campaign", "waive", campaign, "--clause", clause, "--reason", "a typing error on the bill",
        "--party", party, "--expires", "2026-04-01", "--granted", "2026-03-01T09:00:00+00:00",
        "--key", keys / party,
    )  # fmt: skip


def test_what_both_parties_waive_lifts_the_stop_and_is_shown(
    kvgate: Run, campaign: Path, keys: Path
) -> None:
    write_g1(campaign, device=FAILING, contract=signed_terms(keys))
    assert waive(kvgate, campaign, keys, "buyer").code == 0
    alone = json.loads(kvgate("campaign", "status", campaign, "--as-of", "2026-03-02",
                              "--json").out)  # fmt: skip
    assert alone["gates"][0]["state"] == "stopped"
    assert waive(kvgate, campaign, keys, "vendor").code == 0
    told = json.loads(kvgate("campaign", "status", campaign, "--as-of", "2026-03-02",
                             "--json").out)  # fmt: skip
    gate = told["gates"][0]
    assert (gate["state"], gate["verdict"], gate["decision"]) == (
        "passed under waiver", "FAIL", "PROCEED",
    )  # fmt: skip
    assert gate["under_waiver_of"] == ["G1.2"]
    assert [w["standing"] for w in told["waivers"]] == ["in force", "in force"]
    assert "pytest -m gate2" in told["next_step"]
    printed = kvgate("campaign", "status", campaign, "--as-of", "2026-03-02").out
    assert "waiver of G1.2 by buyer until 2026-04-01: in force (a typing error" in printed


def test_a_key_that_the_contract_does_not_name_signs_no_waiver(
    kvgate: Run, campaign: Path, keys: Path
) -> None:
    write_g1(campaign, device=FAILING)
    ended = waive(kvgate, campaign, keys, "buyer")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert not (campaign / "waivers").exists()


@pytest.mark.parametrize("clause", ["G1.99", "G9.1", "everything"])
def test_a_clause_that_does_not_exist_is_one_line(
    kvgate: Run, campaign: Path, keys: Path, clause: str
) -> None:
    write_g1(campaign, contract=signed_terms(keys))
    ended = waive(kvgate, campaign, keys, "buyer", clause)
    assert (ended.code, ended.err.count("\n")) == (2, 1)


def test_changes_between_runs_are_listed_with_what_they_reopen(kvgate: Run, campaign: Path) -> None:
    write_g1(campaign)
    newer = {**DEVICE, "firmware": "sim-1.1"}
    write_g1(campaign, run=2, device=newer, as_of="2026-03-02T08:00:00+00:00")
    told = json.loads(kvgate("campaign", "status", campaign, "--as-of", "2026-03-03",
                             "--json").out)  # fmt: skip
    assert [(c["kind"], c["before"], c["after"], c["reopens_gate"]) for c in told["changes"]] == [
        ("firmware", "sim-1.0", "sim-1.1", 1)
    ]


def test_days_and_their_price_are_told(kvgate: Run, bundle: Path) -> None:
    told = json.loads(kvgate("campaign", "status", bundle.parent, "--as-of",
                             "2026-03-03T08:00:00+00:00", "--json").out)  # fmt: skip
    assert told["spent"]["days"] == 2.0
    assert told["spent"]["cost"] == 2 * 20_000
    assert "2.0 days" in kvgate("campaign", "status", bundle.parent, "--as-of",
                                "2026-03-03T08:00:00+00:00").out  # fmt: skip
