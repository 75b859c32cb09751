"""A waiver counts only with the signature of a party to whom the contract gives a key."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvgate.contract import parse_contract
from kvgate.errors import UsageError
from kvgate.evidence.waivers import checked, read_waivers, sign_waiver, write_waiver
from kvgate.waiver import Signed, Waiver, waiver_from

ROOT = Path(__file__).parents[2]
PLAIN = {
    "campaign": "demo", "contract_digest": "ab" * 32, "clause": "G3.3", "reason": "agreed",
    "party": "buyer", "granted": "2026-03-01T00:00:00+00:00",
    "expires": "2026-04-01T00:00:00+00:00",
}  # fmt: skip
WAIVER = Waiver(**PLAIN)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    made = {}
    for party in ("buyer", "vendor", "stranger"):
        made[party] = folder / party
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made[party])],
            check=True, timeout=60,
        )  # fmt: skip
    return made


def line(keys: dict[str, Path], party: str, options: str = "") -> str:
    kind, key, *_ = keys[party].with_suffix(".pub").read_text().split()
    return f"{party} {options}{kind} {key}"


def signers(keys: dict[str, Path]) -> list[str]:
    return [line(keys, "buyer"), line(keys, "vendor")]


def test_a_signature_by_the_partys_key_is_valid(keys: dict[str, Path]) -> None:
    found = checked(WAIVER, sign_waiver(WAIVER, keys["buyer"]), signers(keys))
    assert found.signed is Signed.VALID


def test_the_lines_are_those_of_a_contract(keys: dict[str, Path]) -> None:
    text = (ROOT / "gates" / "contracts" / "rehearsal.toml").read_text()
    quoted = ", ".join(f'"{s}"' for s in signers(keys))
    terms = text.replace("[campaign]", f"signers = [{quoted}]\n\n[campaign]", 1)
    contract = parse_contract(terms.encode(), name="terms")
    signature = sign_waiver(WAIVER, keys["buyer"])
    assert checked(WAIVER, signature, contract.parties.signers).signed is Signed.VALID


@pytest.mark.parametrize("changed", [
    {"clause": "G3.4"}, {"expires": "2026-05-01T00:00:00+00:00"}, {"reason": "other"},
    {"campaign": "other"}, {"contract_digest": "cd" * 32}, {"granted": "2026-02-01T00:00:00+00:00"},
])  # fmt: skip
def test_a_signature_fits_only_the_very_waiver(
    keys: dict[str, Path], changed: dict[str, str]
) -> None:
    signature = sign_waiver(WAIVER, keys["buyer"])
    other = Waiver(**{**PLAIN, **changed})
    assert checked(other, signature, signers(keys)).signed is Signed.INVALID


def test_a_stranger_the_other_party_and_nobody_are_not_the_party(keys: dict[str, Path]) -> None:
    for who in ("stranger", "vendor"):
        found = checked(WAIVER, sign_waiver(WAIVER, keys[who]), signers(keys))
        assert found.signed is Signed.UNTRUSTED
    assert checked(WAIVER, "", signers(keys)).signed is Signed.UNSIGNED
    assert checked(WAIVER, "-----BEGIN", signers(keys)).signed is Signed.INVALID
    assert checked(WAIVER, sign_waiver(WAIVER, keys["buyer"]), ()).signed is Signed.UNTRUSTED


def test_a_signature_for_evidence_is_none_for_a_waiver(
    keys: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "w").write_bytes(WAIVER.to_sign)
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(keys["buyer"]), "-n", "kvgate-manifest",
         str(tmp_path / "w")],
        check=True, timeout=60,
    )  # fmt: skip
    signature = (tmp_path / "w.sig").read_text()
    assert checked(WAIVER, signature, signers(keys)).signed is Signed.INVALID


def test_a_key_is_looked_at_as_of_the_day_of_the_waiver(keys: dict[str, Path]) -> None:
    signature = sign_waiver(WAIVER, keys["buyer"])
    for until, state in (("20260302", Signed.VALID), ("20260201", Signed.UNTRUSTED)):
        lines = [line(keys, "buyer", f'valid-before="{until}" ')]
        assert checked(WAIVER, signature, lines).signed is state


def test_a_campaigns_waivers_are_read_back(keys: dict[str, Path], tmp_path: Path) -> None:
    assert read_waivers(tmp_path, signers(keys)) == ()
    write_waiver(tmp_path, WAIVER, sign_waiver(WAIVER, keys["buyer"]))
    unsigned = Waiver(**{**PLAIN, "party": "vendor"})
    write_waiver(tmp_path, unsigned, "")
    found = read_waivers(tmp_path, signers(keys))
    assert [(w.waiver, w.signed) for w in found] == [
        (WAIVER, Signed.VALID), (unsigned, Signed.UNSIGNED),
    ]  # fmt: skip


@pytest.mark.parametrize("content", [
    "{", "[]", "{}", json.dumps({**PLAIN, "more": "x"}), json.dumps({**PLAIN, "clause": "all"}),
    json.dumps({**PLAIN, "expires": "2026-04-01"}), json.dumps({**PLAIN, "reason": " "}),
    json.dumps({**PLAIN, "party": 3}),
])  # fmt: skip
def test_what_is_no_waiver_is_one_line_and_never_overlooked(tmp_path: Path, content: str) -> None:
    (tmp_path / "waivers").mkdir()
    (tmp_path / "waivers" / "x.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        read_waivers(tmp_path, ())
    assert "\n" not in str(caught.value)


def test_a_waiver_is_a_text_in_every_field() -> None:
    assert waiver_from(PLAIN) == WAIVER
    wrong: dict[str, Any] = {**PLAIN, "granted": None}
    with pytest.raises(ValueError, match="text"):
        waiver_from(wrong)
