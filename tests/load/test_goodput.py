"""The highest load that keeps a service level, found by bisection from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.cli import main as kvgate
from kvgate.errors import UsageError
from kvgate.load.goodput import (
    Probe,
    ServiceLevel,
    bracket,
    judge_probe,
    next_value,
    parse_service_level,
)
from kvgate.record import Outcome, RequestRecord

from .conftest import StartEngine

MS = 1_000_000


def record(number: int, *, wait_ms: int = 0, ttft_ms: int = 100, **fields: Any) -> RequestRecord:
    """A request each second; wanted, sent ``wait_ms`` later, two tokens 10 ms apart."""
    wanted = number * 1000 * MS
    sent = wanted + wait_ms * MS
    first = sent + ttft_ms * MS
    given: dict[str, Any] = {
        "request_id": f"r{number}",
        "load_host": "h",
        "prompt_digest": "d",
        "intended_ns": wanted,
        "scheduled_ns": sent,
        "sent_ns": sent,
        "first_token_ns": first,
        "first_text_ns": first,
        "last_token_ns": first + 10 * MS,
        "end_ns": first + 10 * MS,
        "token_ns": [first, first + 10 * MS],
        "output_tokens": 2,
        "outcome": Outcome.OK,
    }
    return RequestRecord(**(given | fields))


LEVEL = ServiceLevel(limits_s={"ttft": 0.2, "tpot": 0.02}, share=0.75)


def test_a_request_keeps_the_level_only_with_every_limit() -> None:
    slow_decode = record(3, last_token_ns=3100 * MS + 30 * MS, end_ns=3130 * MS)
    probe = judge_probe(5.0, [record(0), record(1), record(2, ttft_ms=300), slow_decode], LEVEL)
    assert (probe.requests, probe.kept, probe.failed) == (4, 2, 0)
    assert probe.missed == {"ttft": 1, "tpot": 1}
    assert not probe.holds
    assert probe.keeping_per_s == pytest.approx(2 / 3.13)
    assert judge_probe(5.0, [record(i) for i in range(3)] + [record(3, ttft_ms=201)], LEVEL).holds


def test_waiting_in_the_client_counts_against_the_level() -> None:
    probe = judge_probe(1.0, [record(0, wait_ms=150)], LEVEL)
    assert probe.missed["ttft"] == 1


def test_a_failed_request_keeps_nothing_and_an_empty_run_holds_nothing() -> None:
    rows = [record(i) for i in range(2)] + [record(9, outcome=Outcome.TRUNCATED)]
    probe = judge_probe(1.0, rows, LEVEL)
    assert (probe.failed, probe.kept, probe.holds) == (1, 2, False)
    empty = judge_probe(1.0, [], LEVEL)
    assert (empty.requests, empty.holds, empty.keeping_per_s) == (0, False, None)


def test_a_missing_time_keeps_no_limit_and_a_single_token_has_no_tpot() -> None:
    blind = record(0, first_token_ns=None)
    assert judge_probe(1.0, [blind], LEVEL).missed == {"ttft": 1, "tpot": 1}
    assert judge_probe(1.0, [record(0, output_tokens=1)], LEVEL).holds


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        ([], 0.9), (["ttft"], 0.9), (["ttft=x"], 0.9), (["ttft=nan"], 0.9), (["ttft=0"], 0.9),
        (["speed=1"], 0.9), (["ttft=1"], 0.0), (["ttft=1"], 1.1),
    ],
)  # fmt: skip
def test_what_is_no_service_level_is_one_line(texts: list[str], share: float) -> None:
    with pytest.raises(UsageError, match="--sla"):
        parse_service_level(texts, share)


def test_a_service_level_says_itself() -> None:
    level = parse_service_level(["ttft=2", "tpot=0.05"], 0.99)
    assert level.sentence == "0.99 of all requests with ttft <= 2 s and tpot <= 0.05 s"


def searched(truth: float, low: float, high: float, *, whole: bool) -> list[Probe]:
    """The probes of a search where everything up to ``truth`` holds."""
    probes: list[Probe] = []
    while (value := next_value(probes, low, high, tolerance=0.05, whole=whole)) is not None:
        probes.append(
            Probe(value=value, requests=1, failed=0, kept=1, missed={}, keeping_per_s=None,
                  holds=value <= truth)
        )  # fmt: skip
        assert len(probes) < 20
    return probes


def test_bisection_ends_within_the_tolerance_on_the_right_side() -> None:
    for truth in (1.0, 7.3, 20.0, 99.9):
        best, worst = bracket(searched(truth, 1.0, 100.0, whole=False))
        assert best is not None
        assert worst is not None
        assert best <= truth < worst
        assert worst - best <= 0.05 * worst


def test_whole_numbers_are_found_exactly_where_they_are_small() -> None:
    for truth in range(1, 16):
        best, worst = bracket(searched(truth, 1.0, 16.0, whole=True))
        assert (best, worst) == (truth, truth + 1)


def test_the_ends_are_said_and_not_guessed() -> None:
    assert bracket(searched(0.5, 1.0, 100.0, whole=False)) == (None, 1.0)
    assert bracket(searched(1000.0, 1.0, 100.0, whole=False)) == (100.0, None)


def test_a_value_that_holds_above_one_that_does_not_is_not_believed() -> None:
    made = [
        Probe(value=v, requests=1, failed=0, kept=1, missed={}, keeping_per_s=None, holds=h)
        for v, h in ((1, True), (64, True), (8, False))
    ]
    assert bracket(made) == (1, 8)


def test_a_search_records_every_probe_and_names_its_level(
    start_engine: StartEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The simulated engine answers each request in 30 ms whatever the load: all of it holds.
    engine = start_engine("--ttft-s", "0.03", "--gap-s", "0.001")
    options = ["load", "--url", engine.url, "--model", "truth", "--requests", "12"]
    options += ["--prompt-tokens", "8", "--output-tokens", "3", "--search", "concurrency"]
    options += ["--search-low", "1", "--search-high", "4", "--out", str(tmp_path / "out")]
    assert kvgate([*options, "--sla", "ttft=10", "--sla", "e2e=20", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "out" / "search.json").read_bytes())
    assert said["highest"] == 4
    assert said["lowest_failing"] is None
    assert said["service_level"]["sentence"] == (
        "0.99 of all requests with ttft <= 10 s and e2e <= 20 s"
    )
    assert [p["value"] for p in said["probes"]] == [1, 4]
    folders = sorted((tmp_path / "out").glob("probe-*"))
    assert len(folders) == 2
    pools = [
        json.loads((f / "summary.json").read_bytes())["job"]["prompts"]["pool"] for f in folders
    ]
    assert len(set(pools)) == 2
    assert all((f / "requests.parquet").exists() for f in folders)


def test_a_search_that_finds_nothing_exits_11_and_says_why(
    start_engine: StartEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = start_engine("--ttft-s", "0.03", "--gap-s", "0.001")
    options = ["load", "--url", engine.url, "--model", "truth", "--requests", "4"]
    options += ["--prompt-tokens", "8", "--output-tokens", "3", "--search", "rate"]
    options += ["--search-low", "50", "--search-high", "90", "--out", str(tmp_path / "out")]
    assert kvgate([*options, "--sla", "ttft=0.001"]) == 11
    said = capsys.readouterr().out
    assert "4 too late in ttft" in said
    assert "no rate from 50 keeps it" in said
    assert kvgate([*options[:-1], str(tmp_path / "b")]) == 2
    assert kvgate([*options[:-1], str(tmp_path / "b"), "--sla", "ttft=1", "--rate", "3"]) == 2
