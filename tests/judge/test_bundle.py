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
from kvgate.plan import Session, pair_order, reference_session
from kvgate.verdict import Verdict

from .builders import ROOT, WOBBLE, facts
from .test_validity import OUTPUT, PROMPT, good, requests

PAIRS, LEVEL = 5, 8


def small_contract() -> bytes:
    """The rehearsal's contract with one level, so that a bundle is small."""
    text = (ROOT / "gates" / "contracts" / "rehearsal.toml").read_text()
    for levels in ("[8, 16, 32]", "[8, 16]"):
        text = text.replace(f"levels = {levels}", f"levels = [{LEVEL}]")
    return text.encode()


CONTRACT = parse_contract(small_contract(), name="small")


def table(session: Session, kind: str) -> pd.DataFrame:
    """A block's requests; the tested arm is a third faster, each pair a little differently."""
    frame = requests()
    faster = 1.5 * (1 + 0.01 * WOBBLE[(session.pair or 0) % len(WOBBLE)])
    factor = faster if session.role == "test" else 1.0
    first = int(1_000_000_000 / factor)
    gap = int(1_000_000 * (factor if factor == 1.0 else 1.001 / factor * 1.5))
    ready = [0] * LEVEL
    stamped: list[list[int]] = []
    for i in range(len(frame)):
        sent = 1_000_000_000 + ready[i % LEVEL]
        stamps = [sent + first + gap * k for k in range(OUTPUT)]
        ready[i % LEVEL] = stamps[-1] - 1_000_000_000
        for column in ("intended_ns", "scheduled_ns", "connected_ns", "sent_ns"):
            frame.loc[i, column] = sent
        for column in ("first_byte_ns", "first_token_ns", "first_text_ns"):
            frame.loc[i, column] = stamps[0]
        frame.loc[i, ["last_token_ns", "end_ns"]] = stamps[-1]
        stamped.append(stamps)
    frame["token_ns"] = stamped
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
    if session.arm == "recompute":
        engine |= {"prompt_tokens_computed": engine["prompt_tokens"], "prompt_tokens_external": 0}
    for store in ("appliance", "baseline"):
        if store != session.arm:
            targets[f"store-{store}"]["increase"]["delta"]["bytes_read"] = 0
    return block


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An open bundle of G3 as a run would leave it; simulated, every figure made up."""
    root = tmp_path_factory.mktemp("bundle") / "g3-001"
    plan = CONTRACT.gate(3).pairs
    assert plan is not None
    sessions = [s for s in [reference_session(CONTRACT, 3)] if s is not None]
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
                frame = table(session, kind)
                if kind == "probe":
                    frame = frame.iloc[: 6 * cell.level]
                    block |= {
                        "requests_planned": len(frame), "requests_recorded": len(frame),
                        "prompts": {"count": len(frame)}, "output_tokens_each": OUTPUT,
                    }  # fmt: skip
                    block["client"]["mean_in_flight"] = cell.level
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


def again(block: Path) -> None:
    number = 1 + max(int(p.name) for p in block.parent.iterdir())
    shutil.copytree(block, block.with_name(str(number)))


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
    "block twice": again,
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
        if harm == "block twice" and workload == "probe":
            continue  # a probe more is no evidence more: answers are counted by block and prompt
        assert verdict_of(root) is not Verdict.PASS, (harm, workload)


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
