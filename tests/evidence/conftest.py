"""A small bundle, written the way a gate writes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgate.evidence.journal import Journal
from kvgate.evidence.manifest import Manifest
from kvgate.evidence.signatures import sign

from .judged import contract_with, make_key, write_run
from .reports import forged, render, slim

MakeBundle = Callable[..., Manifest]


@dataclass(frozen=True)
class Reports:
    """Two sealed runs in ``root`` (g1-001 passed and is signed by the buyer, g1-002 failed and
    follows it), keys ``buyer`` and ``vendor`` beside them, and their reports by name."""

    root: Path
    made: dict[str, Path] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """``pass.en``, ``pass.zh``, ``fail.en``, ``both.en``; rendered once."""
        if name not in self.made:
            what, lang = name.split(".")
            runs = {"pass": ["g1-001"], "fail": ["g1-002"], "both": ["g1-001", "g1-002"]}[what]
            out = self.root / f"{name}.pdf"
            self.made[name] = render([self.root / run for run in runs], lang, out)
        return self.made[name]

    def pdf(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    @cached_property
    def slim(self) -> bytes:
        """``pass.en`` cut down to page 1, intact in everything that is checked without a bundle."""
        return forged(self.pdf("pass.en"), slim)


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    root = tmp_path_factory.mktemp("demo")
    buyer, vendor = (make_key(root / party) for party in ("buyer", "vendor"))
    terms = contract_with(f"buyer {buyer}", f'vendor valid-before="20400101" {vendor}')
    first = write_run(root / "g1-001", contract=terms)
    write_run(root / "g1-002", run=2, serial="ANOTHER", contract=terms, before=(1, first))
    sign(root / "g1-001", root / "buyer", "buyer")
    return Reports(root)


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
