"""An inconclusive run is gone on from: its pairs are kept, nothing is measured twice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.campaign import Mode, PastRun, open_gate
from kvgate.conduct.earlier import carry_over
from kvgate.contract import load_contract
from kvgate.errors import GateClosed
from kvgate.evidence.bundle import load_bundle
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import write_requests
from kvgate.verdict import Decision, Verdict

CONTRACT = load_contract(Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml")
NOW = datetime(2026, 3, 4, tzinfo=UTC)


def past(gate: int, verdict: Verdict, decision: Decision, digest: str = "") -> PastRun:
    return PastRun(
        gate, 1, Mode.COUNTED, verdict, decision, "2026-03-03T10:00:00+00:00",
        digest or CONTRACT.digest, CONTRACT.appliance.serials, CONTRACT.appliance.firmware,
        "ab" * 32, True, f"g{gate}-001",
    )  # fmt: skip


def test_a_run_after_extend_goes_on_from_it() -> None:
    history = [
        past(2, Verdict.PASS, Decision.PROCEED),
        past(3, Verdict.INCONCLUSIVE, Decision.EXTEND),
    ]
    opening = open_gate(CONTRACT, 3, history, as_of=NOW, rehearsal=True)
    assert opening.extends is history[1]
    assert opening.run == 2


def test_an_extension_keeps_its_contract() -> None:
    history = [
        past(2, Verdict.PASS, Decision.PROCEED),
        past(3, Verdict.INCONCLUSIVE, Decision.EXTEND, digest="other"),
    ]
    with pytest.raises(GateClosed, match="another contract"):
        open_gate(CONTRACT, 3, history, as_of=NOW, rehearsal=True)


def test_blocks_are_copied_whole_and_numbers_go_on(tmp_path: Path) -> None:
    with Journal(tmp_path / "g3-001") as first:
        first.write_bytes("contract.toml", b"schema = 1\n")
        first.write_json("campaign.json", {"rehearsal": True})
        first.write_json("plan.json", {"order_run": 1, "sessions": [{"number": 0}, {"number": 1}]})
        for n, pair in ((0, None), (1, 0), (2, 0), (3, 1)):
            write_requests([], first.block_dir(n) / "requests.parquet")
            first.finish_block(n, {"n": n, "pair": pair})
        first.seal(previous_manifest_sha256=None, kvgate_version="0")
    with Journal(tmp_path / "g3-002") as second:
        earlier = carry_over(second, tmp_path / "g3-001")
        assert (earlier.order_run, earlier.next_block, earlier.next_pair) == (1, 4, 2)
        assert len(earlier.sessions) == 2
    before, after = load_bundle(tmp_path / "g3-001"), load_bundle(tmp_path / "g3-002")
    assert [b.block for b in after.blocks] == [b.block for b in before.blocks]
    for old, new in zip(before.blocks, after.blocks, strict=True):
        assert old.requests_path is not None
        assert new.requests_path is not None
        assert old.requests_path.read_bytes() == new.requests_path.read_bytes()
