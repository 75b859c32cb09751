"""Verdict and evidence as PDF, HTML and JUnit. The report shows what was judged; it never judges.

The renderers load WeasyPrint only when they are called, so that importing this package works on a
machine whose system libraries are still missing (see `kvgate.report.system`).
"""

from __future__ import annotations

from kvgate.report.assets import assets_dir
from kvgate.report.inputs import FileDigest, GateHistory, ReportInput
from kvgate.report.junit import render_junit
from kvgate.report.render import render_html, render_pdf
from kvgate.report.tables import blocks_csv

__all__ = [
    "FileDigest",
    "GateHistory",
    "ReportInput",
    "assets_dir",
    "blocks_csv",
    "render_html",
    "render_junit",
    "render_pdf",
]
