"""Tables of the evidence: blocks, validity, hosts, arms. Long ones are capped and say so."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.numbers import number, significant
from kvgate.report.effects import statistic
from kvgate.report.inputs import ReportInput
from kvgate.report.said import condition_name, condition_remedy, condition_value
from kvgate.report.texts import Texts
from kvgate.report.words import arm_name, cell_name
from kvgate.verdict import Condition, Exclusion, Verdict

Row = TypeVar("Row")

CAP: Final = 120
"""Rows of one table in a report; the bundle has all of them."""

PAPER_FILES: Final = 24
"""Digests of files on paper; the manifest inside the PDF has all of them."""

HOSTS_ABREAST: Final = 5
COLUMNS_ABREAST: Final = 4


@dataclass(frozen=True, slots=True)
class Capped(Generic[Row]):
    """At most CAP rows of a table and how many there are."""

    rows: tuple[Row, ...]
    total: int

    @property
    def cut(self) -> bool:
        return self.total > len(self.rows)


def capped(rows: Sequence[Row]) -> Capped[Row]:
    """The first CAP rows."""
    return Capped(tuple(rows[:CAP]), len(rows))


@dataclass(frozen=True, slots=True)
class BlockRow:
    n: str
    pair: str
    session: str
    arm: str
    cell: str
    requests: str
    ttft_p50: str
    ttft_p99: str
    itl_p50: str
    rate: str
    in_flight: str
    valid: bool
    broken: str


STATISTICS: Final = (
    ("ttft_p50_s", "s"),
    ("ttft_p99_s", "s"),
    ("itl_p50_s", "s"),
    ("itl_p99_s", "s"),
    ("tpot_p50_s", "s"),
    ("output_tok_per_s", "tok/s"),
    ("window_s", "s"),
    ("mean_in_flight_in_window", "count"),
    ("n_requests", "count"),
    ("n_ok", "count"),
    ("prompt_tokens", "count"),
    ("output_tokens", "count"),
    ("unique_prompts", "count"),
    ("client_lag_p99_ns", "count"),
)
"""Numbers of a block that the CSV carries, with their unit."""


def block_rows(analysis: Analysis, t: Texts) -> Capped[BlockRow]:
    """Blocks in order of measurement; when there are too many, invalid ones are kept first."""
    blocks = sorted(analysis.blocks, key=lambda b: b.n)
    kept = sorted(sorted(blocks, key=lambda b: b.valid)[:CAP], key=lambda b: b.n)
    return Capped(tuple(_block(b, t) for b in kept), len(blocks))


def _block(block: BlockResult, t: Texts) -> BlockRow:
    def show(name: str) -> str:
        value = statistic(block, name)
        return "–" if value is None else significant(value)

    lag = statistic(block, "itl_p50_s")
    asked, done = statistic(block, "n_requests"), statistic(block, "n_ok")
    broken = [condition_name(c.name, t) for c in block.conditions if c.ok is not True]
    return BlockRow(
        n=str(block.n),
        pair="–" if block.pair is None else str(block.pair + 1),
        session=str(block.session),
        arm=arm_name(block.arm, t),
        cell=cell_name(block.cell.label, t),
        requests=f"{_whole(done)}/{_whole(asked)}",
        ttft_p50=show("ttft_p50_s"),
        ttft_p99=show("ttft_p99_s"),
        itl_p50="–" if lag is None else f"{lag * 1e3:.1f}",
        rate=show("output_tok_per_s"),
        in_flight=show("mean_in_flight_in_window"),
        valid=block.valid,
        broken=t("list").join(broken),
    )


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def blocks_csv(analysis: Analysis) -> bytes:
    """Every block as CSV (UTF-8, header first); an absent number is an empty field, never 0."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [name for name, _ in STATISTICS]
    head = ["block", "session", "pair", "role", "position", "arm", "workload", "level"]
    writer.writerow([*head, "kind", "started_at", "valid", "broken_conditions", *names])
    for b in sorted(analysis.blocks, key=lambda block: block.n):
        broken = ";".join(c.name for c in b.conditions if c.ok is not True)
        place = [b.n, b.session, b.pair, b.role, b.position, b.arm, b.cell.workload, b.cell.level]
        numbers = [_field(getattr(b.statistics, name, None)) for name in names]
        valid = "true" if b.valid else "false"
        writer.writerow([*place, b.kind, b.started_at, valid, broken, *numbers])
    return out.getvalue().encode()


def _field(value: float | None) -> float | str:
    return "" if value is None or not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One validity condition over all blocks."""

    name: str
    about: str
    held: int
    broken: int
    unknown: int
    worst: str
    limit: str
    remedy: str


@dataclass(frozen=True, slots=True)
class BreachRow:
    """One block that broke one condition."""

    block: str
    pair: str
    arm: str
    cell: str
    name: str
    about: str
    value: str
    limit: str


def condition_rows(
    analysis: Analysis, t: Texts, exclusions: Sequence[Exclusion] = ()
) -> tuple[ConditionRow, ...]:
    """Each condition with how often it held, and the worst value seen.

    ``exclusions`` of the verdict count where they speak of a block that the analysis does not hold:
    a long run is no block of a pair. A broken condition says once what to do about it.
    """
    by_name: dict[str, list[Condition]] = {}
    for block in analysis.blocks:
        for condition in block.conditions:
            by_name.setdefault(condition.name, []).append(condition)
    known = {block.n for block in analysis.blocks}
    for exclusion in exclusions:
        if exclusion.block not in known:
            by_name.setdefault(exclusion.condition.name, []).append(exclusion.condition)
    rows = []
    for name, conditions in by_name.items():
        states = Counter(c.ok for c in conditions)
        shown = _worst(conditions)
        rows.append(
            ConditionRow(
                name=condition_name(name, t),
                about=t(f"about.{shown.about.value}"),
                held=states[True],
                broken=states[False],
                unknown=states[None],
                worst=condition_value(shown.value, shown, t),
                limit=_limit(shown, t),
                remedy="" if shown.ok is True else condition_remedy(shown, t),
            )
        )
    return tuple(rows)


def _worst(conditions: Sequence[Condition]) -> Condition:
    """Of one condition over all blocks: what broke it by most; else one that nobody could tell;
    else what came nearest to the limit. On which side of a limit the wrong lies, its own outcomes
    say; where both sides are wrong, the farther value is the worse one."""
    broken = [c for c in conditions if c.ok is False]
    pool = broken or [c for c in conditions if c.ok is None] or list(conditions)
    sides = {
        (gap > 0) == (c.ok is False)
        for c in conditions
        if c.ok is not None and (gap := _gap(c)) is not None and gap != 0
    }

    def wrong(condition: Condition) -> float:
        gap = _gap(condition)
        if gap is None:
            return 0.0
        return abs(gap) if len(sides) != 1 else gap if True in sides else -gap

    return max(pool, key=wrong)


def _gap(condition: Condition) -> float | None:
    """How far the value lies above its limit, as a share of the limit; None without two numbers."""
    value, limit = condition.value, condition.limit
    if not isinstance(value, int | float) or not isinstance(limit, int | float):
        return None
    return (value - limit) / (abs(limit) or 1.0)


def _limit(condition: Condition, t: Texts) -> str:
    if condition.limit is None:
        return "–"
    if isinstance(condition.limit, str):
        return condition_value(condition.limit, condition, t)
    name = "untouched" if condition.name.startswith("untouched_") else condition.name
    return number(condition.limit, condition.unit, t.lang, metric=name, exact=True)


def breach_rows(source: ReportInput, t: Texts) -> Capped[BreachRow]:
    """Every broken condition of every block, then exclusions that the verdict names beyond them."""
    seen: set[tuple[int, str]] = set()
    rows: list[BreachRow] = []

    def add(n: int, pair: int | None, arm: str, cell: str, condition: Condition) -> None:
        if (n, condition.name) in seen:
            return
        seen.add((n, condition.name))
        rows.append(
            BreachRow(
                block=str(n),
                pair="–" if pair is None else str(pair + 1),
                arm=arm_name(arm, t),
                cell=cell_name(cell, t),
                name=condition_name(condition.name, t),
                about=t(f"about.{condition.about.value}"),
                value=condition_value(condition.value, condition, t),
                limit=_limit(condition, t),
            )
        )

    for e in source.verdict.exclusions:
        add(e.block, e.pair, e.arm, e.cell, e.condition)
    for b in source.analysis.blocks:
        for condition in b.conditions:
            if condition.ok is not True:
                add(b.n, b.pair, b.arm, b.cell.label, condition)
    return capped(rows)


@dataclass(frozen=True, slots=True)
class MatrixCell:
    value: str
    verdict: Verdict | None
    differs: bool


@dataclass(frozen=True, slots=True)
class MatrixRow:
    clause: str
    check: str
    required: str
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Checks by hosts, as many hosts abreast as a page holds."""

    hosts: tuple[str, ...]
    rows: tuple[MatrixRow, ...]


def matrices(
    hosts: Sequence[str], rows: Iterable[tuple[str, str, str, Mapping[str, tuple[str, Verdict]]]]
) -> tuple[Matrix, ...]:
    """Rows are (clause, check, required, {host: (value, verdict)}); unlike values are marked.

    Hosts that the same checks concern stand together.
    """
    full: list[tuple[str, str, str, dict[str, MatrixCell]]] = []
    for clause, check, required, values in rows:
        usual = Counter(v for v, _ in values.values()).most_common(1)
        common = usual[0][0] if usual and usual[0][1] > 1 else None
        cells = {
            host: MatrixCell(value, verdict, common is not None and value != common)
            for host, (value, verdict) in values.items()
        }
        full.append((clause, check, required, cells))
    nothing = MatrixCell("", None, False)
    alike: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        asked = tuple(clause for clause, _, _, cells in full if host in cells)
        alike.setdefault(asked, []).append(host)
    alike.pop((), None)
    pages = [
        group[i : i + HOSTS_ABREAST]
        for group in alike.values()
        for i in range(0, len(group), HOSTS_ABREAST)
    ]
    return tuple(
        Matrix(
            tuple(page),
            tuple(
                MatrixRow(clause, check, required, tuple(cells.get(h, nothing) for h in page))
                for clause, check, required, cells in full
                if any(h in cells for h in page)
            ),
        )
        for page in pages
    )


@dataclass(frozen=True, slots=True)
class ComparedRow:
    key: str
    values: tuple[str, ...]
    same: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Versions and flags of some arms or hosts side by side."""

    names: tuple[str, ...]
    rows: Capped[ComparedRow]


def _item_name(key: str, t: Texts) -> str:
    """What was recorded, by its whole name or by the last part of it; else the name itself."""
    return t.find(f"item.{key}", t.find(f"item.{key.rpartition('.')[2]}", key))


def _item_value(key: str, value: str, t: Texts) -> str:
    if key.endswith("_bytes") and value.isdigit():
        return number(float(value), "B", t.lang)
    return t.find(f"state.{value}", value)


def abreast(hosts: Sequence[str]) -> list[Sequence[str]]:
    """Hosts in groups that fit beside each other on a page."""
    return [hosts[i : i + COLUMNS_ABREAST] for i in range(0, len(hosts), COLUMNS_ABREAST)]


def compare(
    environment: Mapping[str, Mapping[str, str]],
    names: Sequence[str],
    t: Texts,
    *,
    by_difference: bool = True,
) -> Comparison:
    """Every key over ``names``; unlike values first where ``by_difference``."""
    keys = sorted({key for name in names for key in environment[name]})
    rows = []
    for key in keys:
        values = tuple(environment[name].get(key, number(None, "", t.lang)) for name in names)
        said = tuple(_item_value(key, v, t) for v in values)
        rows.append(ComparedRow(_item_name(key, t), said, len(set(values)) == 1))
    if by_difference:
        rows.sort(key=lambda row: row.same)
    return Comparison(tuple(arm_name(name, t) for name in names), capped(rows))
