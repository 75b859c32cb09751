"""From a bundle's files to the verdict: what was taken away or added on disk never passes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgate.adjudicate import adjudicate
from kvgate.contract import parse_contract
from kvgate.errors import CannotMeasure
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import REQUESTS_SCHEMA
from kvgate.plan import Session, pair_order, reference_sessions
from kvgate.verdict import Verdict

from .builders import ROOT, WOBBLE, facts
from .test_validity import COUNT, OUTPUT, PROMPT, good, requests

PAIRS, LEVEL = 5, 8


def small_contract() -> bytes:
    """The rehearsal's contract with one level, so that a bundle is small."""
    text = (ROOT / "gates" / "contracts" / "rehearsal.toml").read_text()
    for levels in ("[8, 16, 32]", "[8, 16]"):
        text = text.replace(f"levels = {levels}", f"levels = [{LEVEL}]")
    return text.encode()


CONTRACT = parse_contract(small_contract(), name="small")


def table(session: Session, kind: str, n: int, level: int) -> pd.DataFrame:
    """A block's requests; the tested arm is a third faster, each pair a little differently. No two
    blocks share a stamp."""
    frame = requests().iloc[: 6 * level].copy()
    begin = 1_000_000_000 * (1 + 1000 * n)
    faster = 1.5 * (1 + 0.01 * WOBBLE[(session.pair or 0) % len(WOBBLE)])
    factor = faster if session.role == "test" else 1.0
    first = int(1_000_000_000 / factor)
    gap = int(1_000_000 * (factor if factor == 1.0 else 1.001 / factor * 1.5))
    ready = [0] * level
    stamped: list[list[int]] = []
    for i in range(len(frame)):
        sent = begin + ready[i % level]
        stamps = [sent + first + gap * k for k in range(OUTPUT)]
        ready[i % level] = stamps[-1] - begin
        for column in ("intended_ns", "scheduled_ns", "connected_ns", "sent_ns"):
            frame.loc[i, column] = sent
        for column in ("first_byte_ns", "first_token_ns", "first_text_ns"):
            frame.loc[i, column] = stamps[0]
        frame.loc[i, ["last_token_ns", "end_ns"]] = stamps[-1]
        stamped.append(stamps)
    frame["token_ns"] = stamped
    frame["request_id"] = [f"b{n}-{i}" for i in range(len(frame))]
    if kind == "probe":
        frame["tokens"] = [["a"] * OUTPUT] * len(frame)
        frame["token_logprobs"] = [[-0.1] * OUTPUT] * len(frame)
        frame["top2_margin"] = [[1.0] * OUTPUT] * len(frame)
    return frame


def block_json(n: int, number: int, session: Session, cell: Any, kind: str) -> dict[str, Any]:
    block = good() | {
        "n": n, "session": number, "pair": session.pair, "role": session.role,
        "position": session.position, "arm": session.arm, "cell": asdict(cell), "kind": kind,
        "started_at": "2026-03-04T10:00:00+00:00",
    }  # fmt: skip
    targets = block["observation"]["targets"]
    engine = targets["engine"]["increase"]["delta"]
    if session.arm == "recompute" or kind == "miss":
        engine |= {"prompt_tokens_computed": engine["prompt_tokens"], "prompt_tokens_external": 0}
    for store in ("appliance", "baseline"):
        block["observation"]["coverage"][f"store-{store}"] = 1.0
        if store != session.arm or kind == "miss":
            targets[f"store-{store}"]["increase"]["delta"]["bytes_read"] = 0
    return block


def scale_counters(block: dict[str, Any], count: int) -> None:
    """What engine and stores counted, for so many requests instead of those of the good block."""
    block["moved"] = {"bytes": block["moved"]["bytes"] * count / COUNT}
    for view in block["observation"]["targets"].values():
        delta = view["increase"]["delta"]
        delta |= {name: value * count / COUNT for name, value in delta.items()}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An open bundle of G3 as a run would leave it; simulated, every figure made up."""
    root = tmp_path_factory.mktemp("bundle") / "g3-001"
    plan = CONTRACT.gate(3).pairs
    assert plan is not None
    sessions = list(reference_sessions(CONTRACT, 3))
    for pair in range(PAIRS):
        sessions.extend(pair_order(CONTRACT, 3, plan, pair, 1).sessions)
    made = facts(contract_digest=CONTRACT.digest)
    with Journal(root) as journal:
        journal.write_bytes("contract.toml", small_contract())
        journal.write_json("inventory.json", {"hosts": {}})
        journal.write_json("campaign.json", made)
        journal.write_json("plan.json", {
            "environment": {arm: {"engine_version": "1.0"} for arm in CONTRACT.arms},
        })  # fmt: skip
        n = 0
        for number, session in enumerate(sessions):
            for cell in session.cells:
                kind = CONTRACT.workloads[cell.workload].kind
                block = block_json(n, number, session, cell, kind)
                frame = table(session, kind, n, cell.level)
                block |= {
                    "requests_planned": len(frame), "requests_recorded": len(frame),
                    "prompts": {"count": len(frame)}, "output_tokens_each": OUTPUT,
                }  # fmt: skip
                scale_counters(block, len(frame))
                block["client"] |= {
                    "mean_in_flight": cell.level, "started_ns": int(frame["sent_ns"].min()),
                    "ended_ns": int(frame["end_ns"].max()),
                }  # fmt: skip
                tried = block["calibration"]["attempts"][0]
                tried |= {"level": cell.level, "held": cell.level}
                write(journal.block_dir(n) / "requests.parquet", frame)
                journal.finish_block(n, block)
                n += 1
    return root


def write(path: Path, frame: pd.DataFrame) -> None:
    rows = json.loads(frame.to_json(orient="records"))
    pq.write_table(pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA), path)


def verdict_of(root: Path) -> Verdict | None:
    """The gate's verdict; None where the bundle has none."""
    try:
        return adjudicate(root).verdict.verdict
    except CannotMeasure:
        return None


def test_the_healthy_bundle_passes(healthy: Path) -> None:
    judged = adjudicate(healthy)
    assert judged.verdict.verdict is Verdict.PASS, judged.verdict.reason
    assert judged.verdict.exclusions == ()
    assert adjudicate(healthy).verdict_json == judged.verdict_json


def edit(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def harm(block: Path) -> None:
        path = block / "requests.parquet"
        pq.write_table(change(pq.read_table(path)), path)

    return harm


def text(name: str, content: str) -> Callable[[Path], None]:
    def harm(block: Path) -> None:
        (block / name).write_text(content)

    return harm


def with_column(table: pa.Table, name: str, value: str | int | None) -> pa.Table:
    """The table with one value in every row of a column."""
    i = table.column_names.index(name)
    kind = table.schema.field(i).type
    return table.set_column(i, pa.field(name, kind), pa.array([value] * len(table), kind))


def again(block: Path) -> None:
    number = 1 + max(int(p.name) for p in block.parent.iterdir())
    shutil.copytree(block, block.with_name(str(number)))


def copied(block: Path) -> None:
    """The requests of another block in place of its own: same shape, values that are not its own"""
    mine = json.loads((block / "block.json").read_text())
    for other in sorted(block.parent.iterdir()):
        theirs = json.loads((other / "block.json").read_text())
        same = all(theirs[k] == mine[k] for k in ("cell", "arm", "role"))
        if same and other != block:
            shutil.copyfile(other / "requests.parquet", block / "requests.parquet")
            return
    raise AssertionError("no other block like it")


HARM: dict[str, Callable[[Path], None]] = {
    "folder removed": shutil.rmtree,
    "block.json removed": lambda b: (b / "block.json").unlink(),
    "requests removed": lambda b: (b / "requests.parquet").unlink(),
    "requests emptied": rows(lambda t: t.slice(0, 0)),
    "one request removed": rows(lambda t: t.slice(1)),
    "requests twice": rows(lambda t: pa.concat_tables([t, t])),
    "requests no parquet": text("requests.parquet", "no"),
    "block.json emptied": text("block.json", "{}"),
    "block.json no JSON": text("block.json", "{"),
    "cell of another kind": lambda b: edit(b / "block.json", cell=3),
    "arm unknown": lambda b: edit(b / "block.json", arm="other"),
    "pair before the first": lambda b: edit(b / "block.json", pair=-1),
    "pair that would be counted to for ever": lambda b: edit(b / "block.json", pair=10**15),
    "pair that is no number": lambda b: edit(b / "block.json", pair=True),
    "block twice": again,
    "requests of another block": copied,
}


@pytest.mark.parametrize("harm", HARM)
def test_a_bundle_with_one_block_harmed_never_passes(
    healthy: Path, tmp_path: Path, harm: str
) -> None:
    for workload, role in (("cold_restore", "test"), ("probe", "reference")):
        name = first_block(healthy, workload, role)
        root = tmp_path / workload
        shutil.copytree(healthy, root)
        HARM[harm](root / "blocks" / name)
        assert verdict_of(root) is not Verdict.PASS, (harm, workload)


def test_a_block_of_any_cell_and_role_twice_spoils_every_clause(
    healthy: Path, tmp_path: Path
) -> None:
    kinds: dict[tuple[str, str], Path] = {}
    for path in sorted((healthy / "blocks").iterdir(), key=lambda p: int(p.name)):
        block = json.loads((path / "block.json").read_text())
        kinds.setdefault((block["cell"]["workload"], block["role"]), path)
    assert len(kinds) == 2 * len({workload for workload, _ in kinds})
    for (workload, role), path in kinds.items():
        root = tmp_path / f"{workload}-{role}"
        shutil.copytree(healthy, root)
        again(root / "blocks" / path.name)
        clauses = adjudicate(root).verdict.clauses
        assert {c.verdict for c in clauses} == {Verdict.INVALID}, (workload, role)


# Harm to the values of every block that a clause rests on, in a form that a table allows.
EVERYWHERE: dict[str, Callable[[Path], None]] = {
    "no request": HARM["requests emptied"],
    "first tokens missing": rows(lambda t: with_column(t, "first_token_ns", None)),
    "stamps not in order": rows(lambda t: with_column(t, "first_token_ns", 1)),
    "no tokens": rows(lambda t: with_column(t, "output_tokens", 0)),
    "every request failed": rows(lambda t: with_column(t, "outcome", "truncated")),
    "counters missing": lambda b: edit(b / "block.json", observation={}),
    "client gone": lambda b: edit(b / "block.json", client=None),
}
CLAUSES = {c.id for c in CONTRACT.gate(3).clause}


@pytest.mark.parametrize("harm", EVERYWHERE)
@pytest.mark.parametrize("role", ["test", "reference"])
def test_a_clause_whose_evidence_was_harmed_on_disk_never_passes(
    healthy: Path, tmp_path: Path, harm: str, role: str
) -> None:
    root = tmp_path / "b"
    shutil.copytree(healthy, root)
    for path in sorted((root / "blocks").iterdir()):
        block = json.loads((path / "block.json").read_text())
        if block["role"] == role:
            EVERYWHERE[harm](path)
    try:
        verdict = adjudicate(root).verdict
    except CannotMeasure:
        return
    assert {c.clause for c in verdict.clauses} == CLAUSES
    assert {c.clause for c in verdict.clauses if c.verdict is Verdict.PASS} == set()


@pytest.mark.parametrize("column, condition", [
    ("prompt_tokens", "prompt_tokens_as_planned"), ("finish_reason", "requests_finished"),
])  # fmt: skip
def test_what_nobody_told_is_not_as_planned(
    healthy: Path, tmp_path: Path, column: str, condition: str
) -> None:
    """A missing value is not equal to anything, and not unequal either: it must be looked for."""
    root = tmp_path / "b"
    shutil.copytree(healthy, root)
    for path in (root / "blocks").iterdir():
        rows(lambda t: with_column(t, column, None))(path)
    verdict = adjudicate(root).verdict
    assert verdict.verdict is Verdict.INVALID
    # Whether requests failed is known all the same.
    assert {c.clause for c in verdict.clauses if c.verdict is Verdict.PASS} <= {"G3.6"}
    # Whose tokens the engine counted is not known then either.
    follows = {"engine_served_ours"} if column == "prompt_tokens" else set()
    assert {e.condition.name for e in verdict.exclusions} == {condition} | follows


def first_block(root: Path, workload: str, role: str) -> str:
    for path in sorted((root / "blocks").iterdir(), key=lambda p: int(p.name)):
        block = json.loads((path / "block.json").read_text())
        if (block["cell"]["workload"], block["role"]) == (workload, role):
            return path.name
    raise AssertionError(f"no {role} block of {workload}")


@pytest.mark.parametrize("name", ["contract.toml", "campaign.json", "inventory.json"])
def test_a_bundle_without_its_terms_has_no_verdict(
    healthy: Path, tmp_path: Path, name: str
) -> None:
    root = tmp_path / "b"
    shutil.copytree(healthy, root)
    (root / name).unlink()
    with pytest.raises(CannotMeasure, match=name):
        adjudicate(root)


def test_a_bundle_put_together_from_two_contracts_has_no_verdict(
    healthy: Path, tmp_path: Path
) -> None:
    root = tmp_path / "b"
    shutil.copytree(healthy, root)
    softer = small_contract().replace(b"drop_at_least = 0.25", b"drop_at_least = 0.20")
    (root / "contract.toml").write_bytes(softer)
    with pytest.raises(CannotMeasure, match="another contract"):
        adjudicate(root)


def test_prompts_of_the_table_are_as_long_as_the_plan_says() -> None:
    assert set(requests()["prompt_tokens"]) == {PROMPT}
