"""Signatures of the parties, with the SSH keys that they have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kvgate.errors import UsageError
from kvgate.evidence.signatures import read_allowed, sign, signature_states
from kvgate.evidence.sshsig import NAMESPACE
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
