"""Names that the evidence uses, said for a reader: cells, arms, metrics."""

from __future__ import annotations

import re
from typing import Final

from kvgate.report.texts import Texts

_CELL: Final = re.compile(r"^(?P<workload>[a-z0-9_.-]+)@(?P<level>[0-9]+)(?P<rest>(/[^/@]+)*)$")


def cell_name(where: str, t: Texts) -> str:
    """ "cold_restore@16/tp8" as "cold restore · 16 streams · tp8"; anything else unchanged."""
    match = _CELL.match(where)
    if match is None:
        return where
    workload = t.find(f"workload.{match['workload']}", match["workload"])
    key = "cell.stream" if match["level"] == "1" else "cell.streams"
    parts = [workload, t(key, n=match["level"]), *match["rest"].split("/")[1:]]
    return " · ".join(parts)


def metric_name(metric: str, statistic: str, t: Texts) -> str:
    """A metric with its statistic, as in "TTFT p50"."""
    name = t.find(f"metric.{metric}", metric)
    return f"{name} {statistic}" if statistic in {"p50", "p99"} else name


def sentence(text: str, lang: str) -> str:
    """A reason's words as a sentence: capital and full stop."""
    stop = "。" if lang == "zh" else "."
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "。", "!", "?")) else stop)


def arm_name(arm: str, t: Texts) -> str:
    return t.find(f"arm.{arm}", arm)
