"""contract check and contract schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvgate.contract import load_contract

from .conftest import CONTRACT, Run


def test_a_good_contract_is_named_with_its_digest(kvgate: Run) -> None:
    ended = kvgate("contract", "check", CONTRACT)
    assert (ended.code, ended.err) == (0, "")
    assert load_contract(CONTRACT).digest in ended.out
    told = json.loads(kvgate("contract", "check", CONTRACT, "--json").out)
    assert told["digest"] == load_contract(CONTRACT).digest
    assert told["clauses"]["1"][0] == "G1.1"


def test_what_the_parties_have_not_filled_in_is_listed(kvgate: Run) -> None:
    assert "to be filled in" not in kvgate("contract", "check", CONTRACT).out
    lab = CONTRACT.with_name("fx100-mi308x.toml")
    wanted = load_contract(lab).placeholders
    assert wanted
    assert f"before a gate opens: {', '.join(wanted)}" in kvgate("contract", "check", lab).out
    assert json.loads(kvgate("contract", "check", lab, "--json").out)["placeholders"] == [*wanted]


@pytest.mark.parametrize("prefixes, share, weak", [(1, 100 * 0.75 / 48, True), (12, 18.75, False)])
def test_a_cell_that_hardly_asks_the_store_is_warned_of(
    kvgate: Run, tmp_path: Path, prefixes: int, share: float, weak: bool
) -> None:
    path = tmp_path / "c.toml"
    workload = (
        '[workloads.shared]\nkind = "shared_prefix"\nprompt_tokens = 2048\noutput_tokens = 64\n'
        f"hit_ratio = 0.75\nprefixes = {prefixes}\nrequests_per_level = 6\n\n"
    )
    before = 'cells = [\n  { workload = "'
    text = CONTRACT.read_text().replace("[validity]", f"{workload}[validity]", 1)
    text = text.replace(before, f'{before}shared", levels = [8] }},\n  {{ workload = "')
    path.write_text(text)
    ended = kvgate("contract", "check", path)
    (line,) = (s for s in ended.out.splitlines() if s.startswith("G3 shared@8"))
    assert f"{share:.1f} % of its prompt tokens" in line
    assert ("WARNING" in line) is weak
    told = json.loads(kvgate("contract", "check", path, "--json").out)["store_shares"]
    (cell,) = (c for c in told if c["gate"] == 3)
    assert (cell["workload"], cell["level"], cell["weak"]) == ("shared", 8, weak)
    assert cell["share"] == pytest.approx(share / 100)


def test_a_contract_without_shared_beginnings_says_nothing_of_them(kvgate: Run) -> None:
    assert "from the store" not in kvgate("contract", "check", CONTRACT).out


@pytest.mark.parametrize("command", [["contract", "check"], ["plan", "--contract"]])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "binary", "not toml", "deep"])
def test_what_is_no_contract_is_one_line(
    kvgate: Run, tmp_path: Path, command: list[str], kind: str
) -> None:
    path = tmp_path / "contract.toml"
    content = {"empty": b"", "binary": bytes(range(256)), "not toml": b"a = = 1\n",
               "deep": b"a = " + b"[" * 50_000}.get(kind)  # fmt: skip
    if kind == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    ended = kvgate(*command, path)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "contract" in ended.err


def test_the_schema_is_json_schema_of_every_table(kvgate: Run) -> None:
    told = json.loads(kvgate("contract", "schema").out)
    assert told["$schema"].startswith("https://json-schema.org/")
    assert {"schema", "arms", "validity", "gate1", "gate3"} <= set(told["properties"])
    assert told["additionalProperties"] is False
    assert "noise_carry_over" in told["$defs"]["PairPlan"]["properties"]
