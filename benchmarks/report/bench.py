"""How long a report takes: seconds and pages of PDF and HTML, and whether bytes repeat.

    python benchmarks/report/bench.py [--rounds N] [BUNDLE...]

Without bundles the made gates of the report's own tests are rendered, as one campaign of four gates
and as a gate that stops. Seconds are the median of the rounds after a first one that also loads the
libraries; CPU seconds tell a busy machine from a slow report.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOAL_S, GOAL_PAGES = 4.0, 20


def main() -> int:
    """Print one line a document and language; exit 1 where bytes differ between rounds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    started = time.perf_counter()
    documents = from_bundles(given.bundles) if given.bundles else made()
    print(f"inputs ready after {time.perf_counter() - started:.1f} s")
    print(f"{'document':<22} {'pages':>5} {'first s':>8} {'s':>7} {'CPU s':>7} {'s/20 pages':>11}"
          f" {'kB':>6}  bytes")  # fmt: skip
    steady = True
    with tempfile.TemporaryDirectory() as folder:
        for name, inputs in documents.items():
            for lang in ("en", "zh"):
                for form in ("pdf", "html"):
                    out = Path(folder) / f"report.{lang}.{form}"
                    steady &= line(f"{name} {lang} {form}", inputs, lang, out, given.rounds)
    print(f"goal: {GOAL_PAGES} pages in at most {GOAL_S:g} s")
    return 0 if steady else 1


def line(name: str, inputs: Sequence[object], lang: str, out: Path, rounds: int) -> bool:
    """Render ``rounds`` + 1 times; whether all gave the same bytes."""
    from kvgate.report import render_html, render_pdf

    render: Callable[..., Path] = render_pdf if out.suffix == ".pdf" else render_html
    walls, cpus, digests = [], [], set()
    for _ in range(rounds + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        data = render(inputs, lang, out).read_bytes()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        digests.add(hashlib.sha256(data).hexdigest())
    pages = count_pages(data) if out.suffix == ".pdf" else 0
    wall, cpu = statistics.median(walls[1:]), statistics.median(cpus[1:])
    per = f"{wall * GOAL_PAGES / pages:.2f}" if pages else "-"
    same = "identical" if len(digests) == 1 else f"{len(digests)} DIFFERENT"
    print(f"{name:<22} {pages or '-':>5} {walls[0]:>8.2f} {wall:>7.2f} {cpu:>7.2f} {per:>11} "
          f"{len(data) // 1000:>6}  {same}", flush=True)  # fmt: skip
    return len(digests) == 1


def count_pages(data: bytes) -> int:
    import io

    import pypdf

    return len(pypdf.PdfReader(io.BytesIO(data)).pages)


def made() -> dict[str, list[object]]:
    """The made gates of the report's tests."""
    sys.path.insert(0, str(ROOT))
    from tests.report import example

    stop = [example.gate3("fail")]
    four = [example.gate1(hosts=8), example.gate2(), example.gate3("pass"), example.gate4()]
    return {"four gates": list(four), "stop": list(stop)}


def from_bundles(bundles: Sequence[Path]) -> dict[str, list[object]]:
    from kvgate.adjudicate import adjudicate
    from kvgate.conduct.workspace import Workspace
    from kvgate.report.publish import report_input

    inputs: list[object] = [
        report_input(adjudicate(b), Workspace(b.resolve().parent).history()) for b in bundles
    ]
    return {"bundles": inputs}


if __name__ == "__main__":
    raise SystemExit(main())
