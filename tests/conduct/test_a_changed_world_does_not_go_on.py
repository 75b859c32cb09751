"""A run goes on only in the world that it was begun in; one line says what changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kvgate
from kvgate.adjudicate import Judged, hours_of
from kvgate.conduct.resume import (
    PastInterruptions,
    check_interruptions,
    past_interruptions,
    to_continue,
)
from kvgate.conduct.workspace import Workspace
from kvgate.conduct.world import world_of
from kvgate.contract import parse_contract
from kvgate.errors import GateClosed
from kvgate.evidence.journal import Journal
from kvgate.evidence.verify import verify
from kvgate.verdict import Verdict

from .stage import Stage, contract_bytes, inventory, refused

Change = Callable[[Stage, pytest.MonkeyPatch], None]


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Killed in the second pair."""
    stage = Stage(tmp_path, monkeypatch)
    stage.killed_at(8, "before", monkeypatch)
    return stage


def other_contract(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    stage.bytes = contract_bytes(max_pairs=8)


def other_flags(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    stage.inventory = inventory(engine_args=("--enforce-eager",))


def other_version(_stage: Stage, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kvgate, "__version__", "9.9.9")


def other_faults(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    stage.faults = ("slow-tier=1.24@appliance",)


def other_kernel(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    stage.kernel = "6.9.0"


def other_engine(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    stage.engine = "2.0"


def changed_block(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    path = stage.bundle() / "blocks" / "3" / "block.json"
    path.write_bytes(path.read_bytes() + b" ")


def torn_block(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    path = stage.bundle() / "blocks" / "3" / "requests.parquet"
    path.write_bytes(path.read_bytes()[:40])


def lost_block(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    (stage.bundle() / "blocks" / "3" / "block.json").unlink()


def lost_plan(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    (stage.bundle() / "plan.json").unlink()


def lost_campaign(stage: Stage, _patch: pytest.MonkeyPatch) -> None:
    (stage.bundle() / "campaign.json").unlink()


CHANGES: list[tuple[Change, str]] = [
    (other_contract, "the contract changed"),
    (other_flags, "the inventory changed (engine_args)"),
    (other_version, f"it was begun with kvgate {kvgate.__version__}, this is 9.9.9"),
    (other_faults, "other faults are played"),
    (other_kernel, "the driver changed (e kernel: 6.8.0 -> 6.9.0)"),
    (other_engine, "engine_version: 1.0 -> 2.0)"),
    (changed_block, "block 3 is not what was measured"),
    (torn_block, "the interrupted run g3-001 cannot be read: not a Parquet file"),
    (lost_block, "block 3 is not what was measured"),
    (lost_plan, "its plan.json is missing"),
    (lost_campaign, "campaign.json is not usable"),
]


@pytest.mark.parametrize("change, says", CHANGES, ids=[c.__name__ for c, _ in CHANGES])
def test_what_changed_is_said_and_nothing_is_measured(
    broken: Stage, monkeypatch: pytest.MonkeyPatch, change: Change, says: str
) -> None:
    change(broken, monkeypatch)
    blocks = broken.blocks
    line = refused(broken)
    assert says in line
    assert "or start a new campaign with --campaign NAME" in line
    assert broken.blocks == blocks
    assert not broken.bundle(2).exists()


@pytest.mark.parametrize("change", [other_flags, other_kernel, other_engine])
def test_what_is_brought_back_lets_it_go_on_and_counts_one_interruption(
    broken: Stage, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    good = (broken.inventory, broken.kernel, broken.engine)
    change(broken, monkeypatch)
    for _ in range(4):
        refused(broken)
    broken.inventory, broken.kernel, broken.engine = good
    verdict = broken.run().judged.verdict
    assert (verdict.verdict, len(verdict.interruptions)) == ("PASS", 1)


def test_the_same_inventory_in_another_folder_is_the_same(broken: Stage) -> None:
    broken.inventory = inventory(path="elsewhere")
    assert broken.run().judged.verdict.verdict == "PASS"


def test_where_nothing_was_measured_a_changed_world_begins_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    stage.killed_at(0, "before", monkeypatch)
    other_flags(stage, monkeypatch)
    judged = stage.run().judged
    assert (judged.campaign.run, judged.verdict.interruptions) == (2, ())


def test_a_running_gate_is_not_gone_on_with_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    lines: list[str] = []

    def beside(n: int, when: str) -> None:
        if (n, when) == (5, "before"):
            stage.on_block = lambda n, when: None
            lines.append(refused(stage))

    stage.on_block = beside
    assert stage.run().judged.verdict.verdict == "PASS"
    assert "is being written by another run" in lines[0]


# --- reboots -------------------------------------------------------------------------------------


def test_a_reboot_is_noted_and_no_time_is_taken_across_it(
    broken: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("resume", "sessions"):
        monkeypatch.setattr(f"kvgate.conduct.{module}.boot_id", lambda: "another-boot")
    judged = broken.run().judged
    (note,) = judged.verdict.interruptions
    assert note.rebooted is True
    assert "the machine was rebooted" in broken.told.notes[0]
    plan = json.loads((broken.bundle() / "plan.json").read_text())
    boots = {s["boot_id"] for s in plan["sessions"] if s["state"] == "ended"}
    assert len(boots) == 2
    # A pair lies within one boot: its two sessions are next to each other or it is broken.
    for pair in range(3):
        of_pair = [s for s in plan["sessions"] if s["pair"] == pair and s["state"] == "ended"]
        assert len({s["boot_id"] for s in of_pair}) == 1


def test_hours_leave_out_the_time_for_which_a_run_lay_interrupted() -> None:
    def at(hour: int) -> str:
        return f"2026-03-03T{hour:02d}:00:00+00:00"

    def bundle(**campaign: object) -> Any:
        blocks = [
            SimpleNamespace(n=n, block={"started_at": at(hour), "duration_s": 3600})
            for n, hour in enumerate((10, 11, 20))
        ]
        return SimpleNamespace(campaign={"as_of": at(10)} | campaign, blocks=blocks, root=Path("x"))

    assert hours_of(bundle()) == 11
    note = {"resumed_at": at(19), "next_block": 2}
    assert hours_of(bundle(interruptions=[note])) == 11 - 7


def test_a_kernel_that_names_no_boot_leaves_it_open(
    broken: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kvgate.conduct.world.BOOT_ID", tmp_path / "absent")
    assert broken.run().judged.verdict.interruptions[0].rebooted is None


# --- gates that begin anew -----------------------------------------------------------------------


def test_an_engineering_run_neither_goes_on_nor_uses_anything_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    stage.killed_at(8, "before", monkeypatch)
    campaign = stage.bundle() / "campaign.json"
    campaign.write_text(
        campaign.read_text().replace('"mode": "counted"', '"mode": "engineering"')
    )  # fmt: skip
    assert "engineering" in campaign.read_text()
    judged = stage.run().judged
    assert (judged.campaign.run, judged.verdict.interruptions) == (2, ())


def test_only_the_main_gate_goes_on(broken: Stage) -> None:
    past = past_interruptions(broken.space, 3)
    now = world_of(broken.contract, broken.inventory, ())
    assert to_continue(3, past, now) is not None
    for gate in (1, 2, 4):
        assert to_continue(gate, PastInterruptions(1, past.unfinished), now) is None


def test_an_interrupted_soak_is_counted_and_begins_anew(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    contract = parse_contract(contract_bytes(), name="quick")
    for run in (1, 2, 3):
        assert past_interruptions(space, 4).count == run - 1
        with Journal(space.bundle(4, run)) as journal:
            journal.write_json("campaign.json", _facts(run, contract.digest))
            # A soak writes its block at the end: that it began to is all there is to see.
            journal.block_dir(0)
            journal.mark_partial("interrupted: stopped by SIGINT")
    past = past_interruptions(space, 4)
    assert past.count == 3
    with pytest.raises(GateClosed, match="interrupted 3 times, the contract grants 2"):
        check_interruptions(contract, 3, past)


def _facts(run: int, digest: str) -> dict[str, object]:
    return {
        "name": "c", "gate": 4, "run": run, "mode": "counted", "rehearsal": True,
        "as_of": "2026-03-03T10:00:00+00:00", "contract_id": "c", "contract_digest": digest,
        "kvgate_version": "0", "inventory": "i", "selected": [], "retests_used": 0,
        "reruns_used": 0, "serials": [], "firmware": "", "predecessor": None, "faults": [],
        "time_scale": 1.0, "extends": None,
    }  # fmt: skip


# --- a change that reopens an earlier gate ------------------------------------------------------


def test_an_arm_that_reopens_a_gate_is_seen_when_it_comes_up_and_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)

    def changed(judged: Judged) -> bool:
        return "appliance" in ((judged.bundle.plan or {}).get("environment") or {})

    monkeypatch.setattr("kvgate.conduct.sessions.reopened_by_change", changed)
    ended = stage.run()
    blocks = [json.loads(p.read_text()) for p in stage.bundle().glob("blocks/*/block.json")]
    assert "appliance" not in {b["arm"] for b in blocks}
    assert len(blocks) <= 4  # the reference session, and the other arm where it came first
    assert any(note.startswith("nothing more is measured: ") for note in stage.told.notes)
    assert ended.judged.verdict.verdict is Verdict.INVALID
    assert verify(stage.bundle()) == []
