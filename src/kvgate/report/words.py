"""Names that the evidence uses, said for a reader: cells, arms, metrics."""

from __future__ import annotations

import re
from typing import Final

from kvgate.report.texts import Texts

_KINDS: Final = {"cold": "cold_restore", "shared": "shared_prefix"}
"""How names of workloads begin that a contract makes up."""

_CLAUSE: Final = re.compile(r"^G[1-4]\.[0-9a-z]+$")
_CELL: Final = re.compile(r"^(?P<workload>[a-z0-9_.-]+)@(?P<level>[0-9]+)(?P<rest>(/[^/@]+)*)$")


def cell_name(where: str, t: Texts) -> str:
    """ "cold_restore@16/tp8" as "cold restore · 16 streams · tp8"; anything else unchanged."""
    match = _CELL.match(where)
    if match is None:
        head, slash, setup = where.partition("/")
        if slash and f"workload.{head}" in t.sentences:
            return " · ".join([workload_name(head, t), *setup.split("/")])
        return t.find(f"workload.{where}", t.find(f"place.{where.replace(' ', '_')}", where))
    workload = workload_name(match["workload"], t)
    key = "cell.stream" if match["level"] == "1" else "cell.streams"
    parts = [workload, t(key, n=match["level"]), *match["rest"].split("/")[1:]]
    return " · ".join(parts)


def workload_name(name: str, t: Texts) -> str:
    """A workload; a contract's own "cold_2k" is "cold restore 2k"."""
    known = t.sentences.get(f"workload.{name}")
    if known is not None:
        return known
    kind, _, rest = name.partition("_")
    kind = t.find(f"workload.{_KINDS.get(kind, kind)}", "")
    return f"{kind} {rest}" if kind and rest else name


def place(where: str, t: Texts) -> str:
    """Where a reason speaks of: a cell, a host, or a clause with its cell ("G3.1 miss@1")."""
    head, _, tail = where.partition(" ")
    if _CLAUSE.match(head) and tail:
        return f"{head} · {cell_name(tail, t)}"
    return cell_name(where, t)


def metric_words(metric: str, t: Texts) -> str:
    """A metric as a reason names it, with its statistic where it has one ("ttft p50")."""
    name, _, statistic = metric.partition(" ")
    return metric_name(name, statistic, t)


def metric_name(metric: str, statistic: str, t: Texts) -> str:
    """A metric with its statistic, as in "TTFT p50"."""
    name = t.find(f"metric.{metric}", metric)
    return f"{name} {statistic}" if statistic in {"p50", "p99"} else name


def sentence(text: str, lang: str) -> str:
    """A reason's words as a sentence: capital and full stop. Chinese has no capitals, and a host's
    name keeps its own."""
    stop = "。" if lang == "zh" else "."
    first = text[:1] if lang == "zh" else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "。", "!", "?")) else stop)


def arm_name(arm: str, t: Texts) -> str:
    return t.find(f"arm.{arm}", arm)


def standing_name(standing: str, t: Texts) -> str:
    """What became of a waiver, `kvgate.waiver.Standing`."""
    key = standing.replace(",", "_").replace(" ", "_")
    return t.find(f"standing.{key}", standing)
