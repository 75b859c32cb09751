"""A small bundle, written the way a gate writes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgate.evidence.journal import Journal
from kvgate.evidence.manifest import Manifest

MakeBundle = Callable[..., Manifest]


@pytest.fixture
def make_bundle() -> MakeBundle:
    """``make(root, blocks=2, rehearsal=True, previous=None, salt=0)`` -> manifest of the seal."""

    def make(
        root: Path,
        *,
        blocks: int = 2,
        rehearsal: bool = True,
        previous: str | None = None,
        salt: int = 0,
    ) -> Manifest:
        with Journal(root) as journal:
            fill(journal, blocks=blocks, rehearsal=rehearsal, salt=salt)
            return journal.seal(previous_manifest_sha256=previous, kvgate_version="0.0.test")

    return make


def fill(journal: Journal, *, blocks: int, rehearsal: bool, salt: int = 0) -> None:
    """Everything that a bundle holds, with numbers that depend on ``salt``."""
    journal.write_bytes("contract.toml", f"# contract {salt}\n".encode())
    journal.write_json("campaign.json", {"rehearsal": rehearsal, "name": f"c{salt}"})
    journal.write_json("inventory.json", {"hosts": ["node1", "node2"], "salt": salt})
    journal.write_json("plan.json", {"blocks": list(range(blocks)), "salt": salt})
    for n in range(blocks):
        folder = journal.block_dir(n)
        for name in ("requests", "engine", "host"):
            table = pa.table({"t_ns": [n, 1, 2], name: [salt, 4, 5]})
            pq.write_table(table, folder / f"{name}.parquet")
        journal.finish_block(n, {"arm": "baseline", "order": n, "salt": salt})
    journal.write_json("facts/node1.json", {"cpu": "one", "salt": salt})
    journal.write_json("facts/node2.json", {"cpu": "two", "salt": salt})
    journal.write_bytes("ansible/stdout.txt", b"ok=2\n")
    journal.write_json("verdict.json", {"verdict": "PASS", "salt": salt})
