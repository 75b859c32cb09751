"""What `make bench-judge` times is a gate that passes: an excluded block costs the judge little."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from kvgate.adjudicate import adjudicate
from kvgate.verdict import Verdict

from .builders import ROOT


def test_the_bundle_of_the_bench_passes_with_every_block(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("bench", ROOT / "benchmarks/judge/bench.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    bench.write_bundle(tmp_path / "g3-001", 5_000)
    verdict = adjudicate(tmp_path / "g3-001").verdict
    assert (verdict.verdict, verdict.exclusions) == (Verdict.PASS, ())
