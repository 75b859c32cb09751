"""A small sealed campaign: G1 of the rehearsal's contract, from hand-written facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvgate.cli import main
from made.g1 import AS_OF, CLAUSES, CONTRACT, DEVICE, ROOT, host_facts, write_g1

__all__ = [
    "AS_OF",
    "CLAUSES",
    "CONTRACT",
    "DEVICE",
    "ROOT",
    "Ended",
    "Run",
    "host_facts",
    "write_g1",
]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def kvgate(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return tmp_path / "campaigns" / "demo"


@pytest.fixture
def bundle(campaign: Path) -> Path:
    """A sealed G1 run with a PASS."""
    return write_g1(campaign)
