"""Signatures of the parties, with the SSH keys that they have."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.signatures import read_allowed, sign, signature_states, states_of
from kvgate.evidence.sshsig import NAMESPACE, NoSignature, parse_signature
from kvgate.evidence.verify import verify

from .conftest import MakeBundle


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with keys ``buyer`` and ``vendor`` and an ``allowed`` file that names both."""
    folder = tmp_path / "keys"
    folder.mkdir()
    lines = []
    for party in ("buyer", "vendor"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / party)]
        subprocess.run(make, check=True, timeout=30)
        lines.append(f'{party} namespaces="{NAMESPACE}" {(folder / f"{party}.pub").read_text()}')
    (folder / "allowed").write_text("".join(lines))
    return folder


def _states(root: Path, keys: Path) -> dict[str, str]:
    found = signature_states(root, ["buyer", "vendor"], read_allowed(keys / "allowed"))
    return {state.party: state.status for state in found}


def test_a_bundle_may_be_signed_after_the_seal_by_both(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    assert _states(root, keys) == {"buyer": "unsigned", "vendor": "unsigned"}
    sign(root, keys / "buyer", "buyer")
    assert _states(root, keys) == {"buyer": "valid", "vendor": "unsigned"}
    sign(root, keys / "vendor", "vendor")
    assert _states(root, keys) == {"buyer": "valid", "vendor": "valid"}
    assert verify(root) == []


def test_one_party_cannot_sign_for_the_other(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    sign(root, keys / "vendor", "buyer")
    assert _states(root, keys) == {"buyer": "untrusted", "vendor": "unsigned"}
    assert signature_states(root, ["buyer"], None)[0].status == "untrusted"


def test_a_signature_of_another_bundle_or_a_broken_one_is_invalid_and_found(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    root, other = tmp_path / "b", tmp_path / "other"
    make_bundle(root)
    make_bundle(other, salt=1)
    sign(other, keys / "buyer", "buyer")
    shutil.copytree(other / "signatures", root / "signatures")
    (root / "signatures/vendor.sig").write_bytes(b"nonsense")
    assert _states(root, keys) == {"buyer": "invalid", "vendor": "invalid"}
    found = {(problem.path, problem.kind) for problem in verify(root)}
    assert found == {
        ("signatures/buyer.sig", "signature"),
        ("signatures/vendor.sig", "signature"),
    }


def _one(root: Path, allowed: str, *, party: str = "buyer", at: datetime | None = None) -> str:
    return signature_states(root, [party], allowed.encode(), at=at)[0].fault


def test_each_fault_of_a_signature_has_its_name(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    root, other = tmp_path / "b", tmp_path / "other"
    make_bundle(root)
    make_bundle(other, salt=1)
    mine, theirs = ((keys / f"{name}.pub").read_text() for name in ("buyer", "vendor"))
    assert _one(root, f"buyer {mine}") == "unsigned"
    sign(root, keys / "buyer", "buyer")
    assert _one(root, f"buyer {mine}") == ""
    assert _one(root, f"buyer {theirs}") == "other-key"
    assert _one(root, f"vendor {mine}") == "not-allowed"
    assert _one(root, f"vendor {theirs}") == "not-allowed"
    assert _one(root, "") == "not-allowed"
    assert _one(root, "\0garbage\n") == "not-allowed"
    assert _one(root, f'buyer valid-before="20200101" {mine}') == "expired"
    assert _one(root, f'buyer valid-after="20900101" {mine}') == "not-yet-valid"
    assert _one(root, f'buyer namespaces="git" {mine}') == "not-for-manifests"
    then = datetime(2019, 6, 1, tzinfo=UTC)
    assert _one(root, f'buyer valid-before="20200101" {mine}', at=then) == ""
    sign(other, keys / "buyer", "buyer")
    there = root / "signatures/buyer.sig"
    there.write_bytes((other / "signatures/buyer.sig").read_bytes())
    assert _one(root, f"buyer {mine}") == "other-manifest"
    make = ["ssh-keygen", "-Y", "sign", "-f", str(keys / "buyer"), "-n", "git"]
    made = subprocess.run(
        make, input=(root / "manifest.json").read_bytes(), capture_output=True, check=True
    )
    there.write_bytes(made.stdout)
    assert _one(root, f"buyer {mine}") == "wrong-namespace"
    assert "'git'" in signature_states(root, ["buyer"], None)[0].detail


def test_a_signature_changed_anywhere_is_never_valid(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    good = sign(root, keys / "buyer", "buyer").read_bytes()
    blob = base64.b64decode(b"".join(good.split(b"\n")[1:-2]))
    chance = random.Random(3)
    for _ in range(60):
        data = bytearray(blob)
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        text = base64.encodebytes(bytes(data))
        armoured = b"-----BEGIN SSH SIGNATURE-----\n" + text + b"-----END SSH SIGNATURE-----\n"
        states = states_of(
            (root / "manifest.json").read_bytes(),
            {"buyer": armoured},
            ["buyer"],
            read_allowed(keys / "allowed"),
        )
        assert states[0].status == "invalid", (at, states[0])


@pytest.mark.parametrize("text", [None, "", "U1NIU0lH", "U1NIU0lHAAAAAf////8=", "%%%"])
def test_what_is_no_signature_is_told_in_a_sentence(text: str | None) -> None:
    head, foot = b"-----BEGIN SSH SIGNATURE-----\n", b"\n-----END SSH SIGNATURE-----\n"
    data = b"\0" * 1000 if text is None else head + text.encode() + foot
    with pytest.raises(NoSignature, match="SSH signature"):
        parse_signature(data)


def test_the_fingerprint_is_that_of_ssh_keygen(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    make_bundle(tmp_path / "b")
    key = parse_signature(sign(tmp_path / "b", keys / "buyer", "buyer").read_bytes()).key
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(keys / "buyer.pub")], capture_output=True, text=True, check=True
    )
    assert key.split()[1] == shown.stdout.split()[1]


def test_a_private_key_reaches_neither_evidence_nor_output(
    tmp_path: Path,
    make_bundle: MakeBundle,
    keys: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    root = tmp_path / "b"
    make_bundle(root)
    secret = (keys / "buyer").read_text().splitlines()[1:-1]
    sign(root, keys / "buyer", "buyer")
    locked = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(keys / "buyer")]
    subprocess.run(locked, check=True, timeout=30, capture_output=True)
    with pytest.raises(UsageError) as caught:
        sign(root, keys / "buyer", "buyer")
    shown = capfd.readouterr()
    everything = [shown.out, shown.err, str(caught.value)]
    everything += [p.read_bytes().decode("latin-1") for p in root.rglob("*") if p.is_file()]
    for line in [*secret, "PRIVATE KEY"]:
        assert not any(line in text for text in everything)
    assert list(scratch.iterdir()) == []


def test_a_key_inside_the_bundle_is_refused(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    make_bundle(tmp_path / "b")
    (keys / "buyer").rename(tmp_path / "b/buyer")
    with pytest.raises(UsageError, match="not belong into evidence"):
        sign(tmp_path / "b", tmp_path / "b/buyer", "buyer")


def test_without_ssh_keygen_nothing_is_said_to_be_wrong_and_nothing_valid(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    sign(root, keys / "buyer", "buyer")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert verify(root) == []
    with pytest.raises(CannotMeasure, match="ssh-keygen is missing"):
        _states(root, keys)
    (root / "signatures/buyer.sig").write_bytes(b"nonsense")
    assert [p.kind for p in verify(root)] == ["signature"]


def test_only_signatures_may_lie_in_their_folder(tmp_path: Path, make_bundle: MakeBundle) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    (root / "signatures/sub").mkdir(parents=True)
    (root / "signatures/readme.txt").write_text("hello")
    (root / "signatures/evil.sig").symlink_to("/etc/passwd")
    kinds = {problem.path: problem.kind for problem in verify(root)}
    assert set(kinds) == {"signatures/sub", "signatures/readme.txt", "signatures/evil.sig"}


def test_signing_needs_a_seal_a_party_and_a_key(
    tmp_path: Path, make_bundle: MakeBundle, keys: Path
) -> None:
    with pytest.raises(UsageError, match="not sealed"):
        sign(tmp_path, keys / "buyer", "buyer")
    make_bundle(tmp_path / "b")
    with pytest.raises(UsageError, match="cannot sign"):
        sign(tmp_path / "b", keys / "allowed", "buyer")
    with pytest.raises(UsageError, match="party"):
        sign(tmp_path / "b", keys / "buyer", "../buyer")
    locked = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(keys / "buyer")]
    subprocess.run(locked, check=True, timeout=30, capture_output=True)
    with pytest.raises(UsageError, match="ssh-agent"):
        sign(tmp_path / "b", keys / "buyer", "buyer")
