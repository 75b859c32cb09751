"""A campaign's history is read from its bundles: what is not intact has no PASS."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kvgate.campaign import Mode, open_gate
from kvgate.conduct.workspace import Workspace, past_run, workspace
from kvgate.contract import load_contract
from kvgate.errors import GateClosed, UsageError
from kvgate.evidence.journal import Journal
from kvgate.verdict import Decision, Verdict
from made.g1 import CONTRACT, DEVICE, write_g1

TERMS = load_contract(CONTRACT)


def bundle(root: Path, run: int = 1, **more: Any) -> Path:
    """A sealed G1 run of the campaign ``root``: a PASS unless told otherwise."""
    return write_g1(root, run=run, **more)


def opens(root: Path, gate: int = 2) -> bool:
    """Whether the gate opens on what lies in the campaign's folder."""
    try:
        open_gate(
            TERMS, gate, Workspace(root).history(),
            as_of=datetime(2026, 3, 4, tzinfo=UTC), rehearsal=True,
            serials=TERMS.appliance.serials, firmware=TERMS.appliance.firmware,
        )  # fmt: skip
    except GateClosed:
        return False
    return True


def test_a_sealed_pass_is_read_back_and_opens_the_next_gate(tmp_path: Path) -> None:
    bundle(tmp_path)
    (run,) = Workspace(tmp_path).history()
    assert (run.gate, run.run, run.mode) == (1, 1, Mode.COUNTED)
    assert (run.verdict, run.decision, run.counts) == (Verdict.PASS, Decision.PROCEED, True)
    assert opens(tmp_path)


def test_an_unsealed_pass_is_none(tmp_path: Path) -> None:
    bundle(tmp_path, seal=False)
    (run,) = Workspace(tmp_path).history()
    assert (run.verdict, run.counts) == (None, False)
    assert not opens(tmp_path)


def rewrite(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


TAMPER: dict[str, Callable[[Path], object]] = {
    "verdict changed": lambda b: rewrite(b / "verdict.json", verdict="PASS", pairs_measured=9),
    "campaign changed": lambda b: rewrite(b / "campaign.json", serials=["OTHER"]),
    "run changed": lambda b: rewrite(b / "campaign.json", run=2),
    "contract changed": lambda b: (b / "contract.toml").write_bytes(b"# softer\n"),
    "file added": lambda b: (b / "extra.txt").write_bytes(b"x"),
    "contract removed": lambda b: (b / "contract.toml").unlink(),
    "verdict removed": lambda b: (b / "verdict.json").unlink(),
    "manifest removed": lambda b: (b / "manifest.json").unlink(),
    "manifest no JSON": lambda b: (b / "manifest.json").write_bytes(b"{"),
    "state reopened": lambda b: rewrite(b / "state.json", state="open"),
    "campaign no JSON": lambda b: (b / "campaign.json").write_bytes(b"["),
    "everything removed": emptied,
}


@pytest.mark.parametrize("how", TAMPER)
def test_a_tampered_pass_is_none(tmp_path: Path, how: str) -> None:
    TAMPER[how](bundle(tmp_path))
    (run,) = Workspace(tmp_path).history()
    assert (run.verdict, run.decision, run.counts) == (None, None, False)
    assert not opens(tmp_path)


def test_damaged_sealed_evidence_closes_every_gate(tmp_path: Path) -> None:
    """A STOP-LOSS must not vanish by damaging its bundle."""
    TAMPER["verdict changed"](bundle(tmp_path))
    history = Workspace(tmp_path).history()
    assert [run.damaged for run in history] == [True]
    with pytest.raises(GateClosed, match="was changed"):
        open_gate(TERMS, 1, history, as_of=datetime(2026, 3, 4, tzinfo=UTC), rehearsal=True)


def test_a_bundle_under_another_name_is_not_that_run(tmp_path: Path) -> None:
    shutil.move(bundle(tmp_path), Workspace(tmp_path).bundle(2, 1))
    assert past_run(Workspace(tmp_path).bundle(2, 1), 2, 1).verdict is None
    assert not opens(tmp_path)


def test_what_is_no_bundle_is_no_history(tmp_path: Path) -> None:
    for name in ("reports", "run", "g5-001", "g2-1", "g2-001.old"):
        (tmp_path / name).mkdir()
    assert Workspace(tmp_path).history() == ()
    assert Workspace(tmp_path / "absent").history() == ()


def test_runs_come_in_the_order_of_gates_and_runs(tmp_path: Path) -> None:
    for run in (2, 1, 3):
        bundle(tmp_path, run)
    Workspace(tmp_path).bundle(2, 1).mkdir()
    runs = [(r.gate, r.run) for r in Workspace(tmp_path).history()]
    assert runs == [(1, 1), (1, 2), (1, 3), (2, 1)]


# --- a seal alone proves nothing ---------------------------------------------------------------


def test_a_pass_of_another_campaign_opens_nothing(tmp_path: Path) -> None:
    shutil.copytree(bundle(tmp_path / "a"), tmp_path / "b" / "g1-001")
    (run,) = Workspace(tmp_path / "b").history()
    assert (run.verdict, run.damaged) == (None, True)
    assert opens(tmp_path / "a")
    assert not opens(tmp_path / "b")


def test_a_sealed_pass_that_its_evidence_does_not_give_opens_nothing(tmp_path: Path) -> None:
    wrong = DEVICE | {"serial": "ANOTHER"}
    root = bundle(tmp_path, device=wrong, seal=False)
    with Journal.open_existing(root) as journal:
        journal.write_json("verdict.json", {"verdict": "PASS", "decision": "PROCEED"})
        journal.seal(previous_manifest_sha256=None, kvgate_version="0.0.test")
    (run,) = Workspace(tmp_path).history()
    assert (run.verdict, run.damaged) == (None, True)
    assert not opens(tmp_path)


def test_a_run_that_was_taken_away_closes_the_campaign(tmp_path: Path) -> None:
    bundle(tmp_path, 1, device=DEVICE | {"serial": "ANOTHER"})
    bundle(tmp_path, 2)
    shutil.rmtree(Workspace(tmp_path).bundle(1, 1))
    with pytest.raises(GateClosed, match="G1 run 1 is missing"):
        open_gate(TERMS, 2, Workspace(tmp_path).history(),
                  as_of=datetime(2026, 3, 4, tzinfo=UTC), rehearsal=True)  # fmt: skip


def test_a_pass_from_the_future_closes_the_campaign(tmp_path: Path) -> None:
    bundle(tmp_path, as_of="2036-03-01T08:00:00+00:00")
    with pytest.raises(GateClosed, match="after now"):
        open_gate(TERMS, 2, Workspace(tmp_path).history(),
                  as_of=datetime(2026, 3, 4, tzinfo=UTC), rehearsal=True)  # fmt: skip


def test_an_interrupted_run_is_kept_and_takes_its_number(tmp_path: Path) -> None:
    bundle(tmp_path)
    path = Workspace(tmp_path).bundle(2, 1)
    with pytest.raises(KeyboardInterrupt), Journal(path) as journal:
        journal.write_json("campaign.json", {"gate": 2, "run": 1})
        raise KeyboardInterrupt
    opening = open_gate(
        TERMS, 2, Workspace(tmp_path).history(),
        as_of=datetime(2026, 3, 4, tzinfo=UTC), rehearsal=True,
    )  # fmt: skip
    assert (opening.run, opening.reruns_used) == (2, 0)


def test_a_new_campaign_moves_the_old_one_aside_and_keeps_it(tmp_path: Path) -> None:
    bundle(tmp_path / "c")
    now = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
    space = workspace(tmp_path, "c", fresh=True, now=now)
    assert space.history() == ()
    assert (tmp_path / "c.before-20260304T100000" / "g1-001" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 65, "a b"])
def test_a_campaign_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="campaign name"):
        workspace(tmp_path, name, fresh=False)


def test_two_runs_of_one_campaign_never_run_at_once(tmp_path: Path) -> None:
    campaigns = tmp_path / "campaigns"
    one, other = (workspace(campaigns, "lab", fresh=False) for _ in range(2))
    with one.held():
        with pytest.raises(UsageError, match="campaign is being written by another run"):
            other.held().__enter__()
        # Nor is it moved away under a run that is going on.
        with pytest.raises(UsageError, match="campaign is being written by another run"):
            workspace(campaigns, "lab", fresh=True)
    with other.held():
        assert one.root.is_dir()


def test_campaigns_that_are_moved_aside_in_one_second_keep_names_of_their_own(
    tmp_path: Path,
) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    for _ in range(3):
        (tmp_path / "lab").mkdir()
        workspace(tmp_path, "lab", fresh=True, now=now)
    assert len(list(tmp_path.iterdir())) == 3
