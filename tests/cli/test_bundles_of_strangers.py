"""A bundle may come from anybody: it never passes for what it is not, and never speaks to a
terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.adjudicate import adjudicate
from kvgate.commands.shown import harmless

from .conftest import Run, host_facts, write_g1


def changed(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def campaign_json(bundle: Path, **keys: Any) -> None:
    path = bundle / "campaign.json"
    changed(path, json.dumps(json.loads(path.read_bytes()) | keys).encode())


def test_evidence_and_verdict_changed_together_after_the_seal_never_end_with_zero(
    kvgate: Run, bundle: Path
) -> None:
    fact = bundle / "facts" / "rehearsal-engines.json"
    changed(fact, json.dumps({"host": host_facts(cpu_count=64)}).encode())
    changed(bundle / "verdict.json", adjudicate(bundle).verdict_json)
    ended = kvgate("judge", bundle)
    assert "byte-identical" in ended.out
    assert ended.code == 11
    assert "not what was sealed: facts/rehearsal-engines.json: " in ended.err
    assert kvgate("judge", bundle, "--json").code == 11


@pytest.mark.parametrize(
    "keys",
    [{"gate": 9}, {"gate": True}, {"gate": "1"}, {"time_scale": 0}, {"time_scale": -60},
     {"time_scale": "60"}, {"time_scale": 0.01}, {"rehearsal": False}],
)  # fmt: skip
def test_a_campaign_that_no_run_of_ours_writes_is_one_line(
    kvgate: Run, bundle: Path, keys: dict[str, Any]
) -> None:
    campaign_json(bundle, **keys)
    ended = kvgate("judge", bundle)
    assert ended.code == 11
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert "campaign.json is not usable" in ended.err


def test_a_sealed_contract_that_cannot_be_read_is_no_wrong_usage(kvgate: Run, bundle: Path) -> None:
    changed(bundle / "contract.toml", b"schema = 1\nunknown = 2\n")
    ended = kvgate("judge", bundle)
    assert ended.code == 11
    assert "the sealed contract is not usable" in ended.err
    assert "judge with the version that measured" in ended.err


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\u202eb", "a\u2028b", "\x07", "\u200b", "\ud800"])
def test_what_a_terminal_would_obey_is_spelled_out(name: str) -> None:
    shown = harmless(f"x{name}y 中文")
    assert shown.isprintable()
    assert shown.startswith("x") and shown.endswith("y 中文")
    assert "\\" in shown


@pytest.mark.parametrize("version", ["\x1b]0;owned\x07", "\ud800", "\u202e"])
def test_strings_of_a_bundle_reach_the_terminal_as_text(
    kvgate: Run, campaign: Path, version: str
) -> None:
    bundle = write_g1(campaign, seal=False)
    campaign_json(bundle, kvgate_version=version)
    ended = kvgate("judge", bundle)
    assert ended.code == 11
    assert version not in ended.out + ended.err
    assert all(line.isprintable() for line in (ended.out + ended.err).splitlines())
