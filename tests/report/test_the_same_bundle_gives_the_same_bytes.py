"""A report can be compared byte by byte: nothing in it depends on when, where or how often."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from kvgate.report import render_html, render_pdf

from .conftest import CASES

ROOT = Path(__file__).parents[2]
# Another process: another seed of hashes, another place, another time zone, another locale.
ELSEWHERE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kvgate.report import render_html, render_pdf
from tests.report.conftest import CASES
out = Path(sys.argv[2])
render_pdf(CASES["g4"](), "en", out / "r.pdf")
render_html(CASES["fail"](), "zh", out / "r.html")
"""


def digests(folder: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("r.pdf", "r.html")
    }


def test_another_process_in_another_place_gives_the_same_bytes(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there" / "deeper"
    here.mkdir()
    there.mkdir(parents=True)
    render_pdf(CASES["g4"](), "en", here / "r.pdf")
    render_html(CASES["fail"](), "zh", here / "r.html")  # with everything that is simulated
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(ROOT), str(there)],
        check=True,
        cwd=there,
        timeout=300,
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Shanghai", "LC_ALL": "C"},
    )
    assert digests(there) == digests(here)


def test_rendering_again_in_one_process_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("r.html", "again.html"):
        render_html(CASES["g4"](), "zh", tmp_path / name)
    assert (tmp_path / "r.html").read_bytes() == (tmp_path / "again.html").read_bytes()
