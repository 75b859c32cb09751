"""No English is left in the Chinese report where a person reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from kvgate.analyse import validity
from kvgate.reason import TEXTS, Param, Reason
from kvgate.record import Lack, Outcome
from kvgate.report import ReportInput, render_html
from kvgate.report.said import (
    condition_name,
    condition_remedy,
    condition_value,
    reason_text,
)
from kvgate.report.texts import texts
from kvgate.verdict import About, Condition
from kvgate.waiver import Standing

from . import example

ZH = texts("zh")
# Names of the field, units, verdicts beside their Chinese word, names that people gave things.
KEPT = frozenset(
    """
    TTFT ITL token tok nat GiB TiB Gbit UTC SHA CNY Theil Sen Hwang Shih DeCani Python RoCE MTU
    NVMe PFC GID kvgate STOP LOSS RERUN PROCEED EXTEND HOLD INVALID INCONCLUSIVE PASS FAIL SIM sim
    simulated rehearsal engine load usage json block requests parquet outcome chronyd makestep
    ignore_eos
    """.split()  # noqa: SIM905 - a list to read
)
CASES: dict[str, Callable[[], list[ReportInput]]] = {
    "stop": lambda: [example.gate3("fail")],
    "invalid": lambda: [example.gate3("invalid")],
    "campaign": lambda: [example.gate1(failing=True, hosts=3), example.gate2(),
                         example.gate3("inconclusive"), example.gate4(gap=True)],
}  # fmt: skip


def english(page: str) -> set[str]:
    """Latin words of a page that are neither code, nor a reference, nor among those kept."""
    page = re.sub(r"<(style|script|head)\b[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r'<ul class="references">.*?</ul>', "", page, flags=re.DOTALL)
    page = re.sub(r'<(td|span)[^>]* class="code">.*?</\1>', " ", page, flags=re.DOTALL)
    read = [*re.findall(r">([^<>]+)<", page), *re.findall(r'aria-label="([^"]*)"', page)]
    return {w for text in read for w in re.findall(r"[A-Za-z_]{3,}", unescape(text))} - KEPT


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_chinese_report_has_no_english_words(case: str, tmp_path: Path) -> None:
    page = render_html(CASES[case](), "zh", tmp_path / "zh.html").read_text(encoding="utf-8")
    pieces_of_digests = {w for w in english(page) if re.fullmatch("[a-f]+", w)}
    assert english(page) - pieces_of_digests == set()


def names_of_conditions() -> set[str]:
    """Every name that the sources give a condition, read from the calls themselves."""
    found: set[str] = set()
    folder = Path(validity.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "id", "")
            first = node.args[0]
            if called in {"at_most", "at_least", "Condition", "check"} and isinstance(
                first, ast.Constant
            ):
                found.add(str(first.value))
    return found | {f"file_has_{lack.value}" for lack in Lack}


def test_every_condition_has_a_name_and_a_remedy_in_both_languages() -> None:
    names = names_of_conditions() | {"untouched_baseline", "prompt_tokens_as_planned",
                                     "output_tokens_as_planned", "bytes_read"}  # fmt: skip
    assert len(names) > 20
    for lang in ("en", "zh"):
        t = texts(lang)
        for name in sorted(names):
            bare = Condition(name, About.INSTRUMENT, False, 1.0, 0.0, "1", "")
            assert condition_name(name, t) != name, name
            assert condition_remedy(bare, t), name


def test_every_outcome_and_standing_has_its_word() -> None:
    for outcome in Outcome:
        assert f"outcome.{outcome.value}" in ZH.sentences
    for standing in Standing:
        key = standing.value.replace(",", "_").replace(" ", "_")
        assert f"standing.{key}" in ZH.sentences


def test_codes_inside_a_reason_become_words() -> None:
    params: dict[str, Param] = {
        "n": 2,
        "needed": 4,
        "conditions": "engine_cache_cold, untouched_baseline",
    }
    said = reason_text(Reason("too_few_pairs", params), ZH)
    assert "引擎缓存为冷、未触及存储 baseline" in said
    failed: dict[str, Param] = {
        "count": 3,
        "n": 40,
        "kinds": "reset 1, timeout 2",
        "reference": "baseline",
    }
    said = reason_text(Reason("appliance_errors", failed), ZH)
    assert "连接中断\u00a01、超时\u00a02" in said
    assert "基线组" in said
    where = {"where": "G3.1 cold_restore@16", "value": "0.4"}
    assert "G3.1 · 冷恢复 · 16 路并发" in reason_text(Reason("lag1", where), ZH)


def test_every_reason_has_chinese_words() -> None:
    for code, (english_text, chinese) in TEXTS.items():
        assert re.search("[\u4e00-\u9fff]", chinese), code
        assert chinese != english_text


def test_a_remedy_that_only_the_evidence_knows_is_shown_as_it_is() -> None:
    one = Condition("made_up", About.INSTRUMENT, False, 1.0, 0.0, "1", "ask the maker")
    assert condition_remedy(one, ZH) == "ask the maker"
    source = example.gate3("pass")
    block = source.analysis.blocks[0]
    odd = replace(source.analysis, blocks=(replace(block, conditions=(one,)),))
    assert odd.blocks[0].conditions[0].name == condition_name("made_up", ZH)


def states() -> set[str]:
    """Every word that a condition of unit "text" may have as value or limit; 2 for any number."""
    found = set()
    for path in Path(validity.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Condition"):
                continue
            if [getattr(a, "value", "") for a in node.args[5:6]] != ["text"]:
                continue
            inside = [n for a in node.args[3:5] for n in ast.walk(a)]
            made = [n for n in inside if isinstance(n, ast.JoinedStr)]
            parts = [v for n in made for v in n.values]
            found |= {
                n.value for n in inside if isinstance(n, ast.Constant) and n not in parts
            }  # fmt: skip
            found |= {"".join(str(getattr(v, "value", 2)) if isinstance(v, ast.Constant) else "2"
                              for v in n.values) for n in made}  # fmt: skip
    return {s for s in found if isinstance(s, str) and re.search("[a-z]{2}", s)}


@pytest.mark.parametrize("state", sorted(states()))
def test_a_state_of_a_condition_is_said_in_chinese(state: str) -> None:
    condition = Condition("engine_alive", About.INSTRUMENT, False, state, state, "text", "-")
    assert re.search(r"[\u4e00-\u9fff]", condition_value(state, condition, texts("zh")))
