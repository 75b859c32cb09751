"""judge and verify: the verdict from the evidence alone, and every difference from the seal."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import DEVICE, Run, write_g1


def unlocked(path: Path) -> Path:
    path.chmod(0o644)
    return path


def test_judge_says_the_verdict_and_that_the_stored_one_is_the_same(
    kvgate: Run, bundle: Path
) -> None:
    ended = kvgate("judge", bundle)
    assert ended.code == 0
    assert ended.out.startswith("G1  PASS  PROCEED  [REHEARSAL")
    assert "byte-identical" in ended.out


def test_judge_json_prints_the_very_bytes_of_the_stored_verdict(kvgate: Run, bundle: Path) -> None:
    ended = kvgate("judge", bundle, "--json")
    assert ended.out.encode() == (bundle / "verdict.json").read_bytes()
    assert "byte-identical" in ended.err


@pytest.mark.parametrize(
    ("device", "code", "verdict"),
    [
        ({**DEVICE, "serial": "ANOTHER"}, 1, "FAIL"),
        ({**DEVICE, "link_gbit_per_s": None}, 11, "INVALID"),
    ],
)
def test_the_exit_code_is_that_of_the_verdict(
    kvgate: Run, campaign: Path, device: dict[str, object], code: int, verdict: str
) -> None:
    ended = kvgate("judge", write_g1(campaign, device=device))
    assert (ended.code, ended.out.split()[1]) == (code, verdict)


def test_a_stored_verdict_that_differs_never_ends_with_zero(kvgate: Run, bundle: Path) -> None:
    stored = unlocked(bundle / "verdict.json")
    stored.write_bytes(stored.read_bytes().replace(b'"PROCEED"', b'"HOLD"'))
    ended = kvgate("judge", bundle)
    assert ended.code == 11
    assert "DIFFERS" in ended.out


def test_a_bundle_that_was_never_sealed_never_ends_with_zero(kvgate: Run, campaign: Path) -> None:
    ended = kvgate("judge", write_g1(campaign, seal=False))
    assert ended.code == 11
    assert "counts for nothing" in ended.err


def test_verify_finds_nothing_in_an_intact_bundle(kvgate: Run, bundle: Path) -> None:
    ended = kvgate("verify", bundle)
    assert (ended.code, ended.err) == (0, "")
    assert "intact" in ended.out
    assert json.loads(kvgate("verify", bundle, "--json").out)["problems"] == []


def test_every_difference_is_one_line(kvgate: Run, bundle: Path) -> None:
    unlocked(bundle / "plan.json").write_text("{}")
    (bundle / "facts" / "rehearsal-engines.json").unlink()
    (bundle / "extra").write_text("x")
    ended = kvgate("verify", bundle)
    assert ended.code == 11
    lines = ended.out.splitlines()
    told = json.loads(kvgate("verify", bundle, "--json").out)
    assert told["intact"] is False
    assert lines[: len(told["problems"])] == told["problems"]
    assert {line.split(":")[0] for line in told["problems"]} >= {
        "plan.json", "facts/rehearsal-engines.json", "extra", "verdict.json",
    }  # fmt: skip
    assert lines[-1].endswith(f"{len(told['problems'])} problems")


def test_a_forgery_that_agrees_with_itself_is_seen_with_the_expected_digest(
    kvgate: Run, bundle: Path
) -> None:
    ended = kvgate("verify", bundle, "--expect", "0" * 64)
    assert ended.code == 11
    assert "swapped" in ended.out


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_signature_counts_only_when_an_allowed_signer_made_it(
    kvgate: Run, bundle: Path, tmp_path: Path
) -> None:
    from kvgate.evidence.signatures import sign

    keys = {}
    for name in ("buyer", "stranger"):
        keys[name] = tmp_path / name
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys[name])], check=True
        )
    allowed = tmp_path / "allowed"
    public = keys["buyer"].with_suffix(".pub").read_text()
    allowed.write_text(f"buyer {' '.join(public.split()[:2])}\n")
    unsigned = kvgate("verify", bundle, "--allowed-signers", allowed)
    assert unsigned.code == 11
    assert "nobody has signed" in unsigned.out
    sign(bundle, keys["buyer"], "buyer")
    assert kvgate("verify", bundle, "--allowed-signers", allowed).code == 0
    sign(bundle, keys["stranger"], "stranger")
    ended = kvgate("verify", bundle, "--allowed-signers", allowed)
    assert ended.code == 11
    assert "signatures/stranger.sig: untrusted" in ended.out


def test_a_missing_allowed_signers_file_is_wrong_usage(
    kvgate: Run, bundle: Path, tmp_path: Path
) -> None:
    ended = kvgate("verify", bundle, "--allowed-signers", tmp_path / "none")
    assert (ended.code, ended.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("command", ["judge", "verify", "report"])
@pytest.mark.parametrize("kind", ["missing", "empty", "file", "binary", "campaign"])
def test_what_is_no_bundle_is_one_line_and_wrong_usage(
    kvgate: Run, campaign: Path, tmp_path: Path, command: str, kind: str
) -> None:
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("hello")
    elif kind == "binary":
        path.write_bytes(bytes(range(256)))
    elif kind == "campaign":
        path = write_g1(campaign).parent
    ended = kvgate(command, path)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert str(path) in ended.err
    assert kind != "campaign" or "g1-001" in ended.err


@pytest.mark.parametrize("name", ["contract.toml", "campaign.json", "inventory.json", "state.json"])
@pytest.mark.parametrize("content", [None, b"", b"\x00\xff\xfe", b"[1, 2]", b'{"gate": "x"}'])
def test_evidence_that_was_spoilt_never_passes_and_is_never_a_traceback(
    kvgate: Run, bundle: Path, name: str, content: bytes | None
) -> None:
    if content is None:
        (bundle / name).unlink()
    else:
        unlocked(bundle / name).write_bytes(content)
    ended = kvgate("judge", bundle)
    assert ended.code in {2, 11}
    assert ended.err or "DIFFERS" in ended.out
    assert "Traceback" not in ended.err
    assert kvgate("verify", bundle).code == 11


@pytest.mark.parametrize("spoilt", ["{}", "[]", "null", '{"host": 3}', '{"host": {"files": []}}'])
def test_facts_that_were_spoilt_never_pass(kvgate: Run, bundle: Path, spoilt: str) -> None:
    unlocked(bundle / "facts" / "rehearsal-engines.json").write_text(spoilt)
    ended = kvgate("judge", bundle)
    assert ended.code not in {0, 1}


def test_the_installed_program_ends_with_the_same_code(bundle: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("kvgate")
    good = subprocess.run([program, "judge", bundle], capture_output=True, text=True, check=False)
    bad = subprocess.run([program, "judge", tmp_path], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stderr) == (0, "")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


def test_a_stop_says_what_it_cost_what_it_avoids_and_what_follows(
    kvgate: Run, campaign: Path
) -> None:
    root = write_g1(campaign, device={**DEVICE, "link_gbit_per_s": 25})
    ended = kvgate("judge", root)
    assert ended.code == 1
    assert "stop: G1.4 rehearsal-appliances: misses 100 Gbit/s by 75.0 Gbit/s" in ended.out
    assert "spent: 0.0 days" in ended.out
    assert "avoided by stopping: 70.0 days, G2, G3, G4, 2,850,000 CNY" in ended.out
    assert "what follows: Rehearsed: the buyer returns the appliance" in ended.out
