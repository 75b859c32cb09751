"""``kvgate load`` for a person at a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvgate.cli import main as kvgate
from kvgate.evidence.tables import read_requests

from .conftest import Engine


def main(options: list[str]) -> int:
    return kvgate(["load", *options])


def _options(engine: Engine, out: Path, **more: str) -> list[str]:
    given = {
        "url": engine.url,
        "model": "truth",
        "concurrency": "2",
        "requests": "8",
        "prompt-tokens": "9",
        "output-tokens": "4",
        "out": str(out),
    }
    return [part for k, v in (given | more).items() for part in (f"--{k}", v)]


def test_a_good_run_leaves_its_table_and_summary(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_options(engine, tmp_path / "out")) == 0
    assert "TTFT p50" in capsys.readouterr().out
    assert len(read_requests(tmp_path / "out" / "requests.parquet")) == 8
    summary = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert summary["state"] == "done"
    assert summary["statistics"]["n_ok"] == 8
    assert summary["client"]["planned_in_flight"] == 2


def test_failed_requests_show_in_the_table_and_in_the_exit_code(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_options(engine, tmp_path / "out", model="misbehave:truncated")) == 11
    said = capsys.readouterr().out
    assert "failed: truncated" in said
    assert "missing" in said


def test_json_is_the_summary_and_nothing_else(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_options(engine, tmp_path / "out", endpoint="chat"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statistics"]["prompt_tokens"] == 72


def test_an_earlier_run_and_wrong_options_are_one_line_and_exit_2(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requests.parquet").touch()
    assert main(_options(engine, tmp_path)) == 2
    assert "another --out" in capsys.readouterr().err
    assert main([*_options(engine, tmp_path / "b"), "--rate", "3"]) == 2
    assert main([*_options(engine, tmp_path / "b"), "--header", "x"]) == 2
    assert main(["--url", "x"]) == 2


def test_an_engine_that_is_not_there_exits_11(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_options(engine, tmp_path / "out", url="http://no.such.host.invalid:1")) == 11
    said = capsys.readouterr().err.strip()
    assert "cannot reach the engine" in said
    assert "Traceback" not in said


def test_every_workload_runs_by_its_name(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The simulated engine reports no cached token: nothing is hit, and nothing is claimed.
    for workload, more in (
        ("multi-turn", {"turns": "2", "user-tokens": "5"}),
        ("shared-prefix", {"hit-ratio": "0.4", "block-tokens": "1"}),
        ("long-documents", {"documents": "2", "question-tokens": "3", "block-tokens": "1"}),
        ("miss-only", {"warm-up": "2"}),
    ):
        out = tmp_path / workload
        assert main(_options(engine, out, workload=workload, **more)) == 0, workload
        summary = json.loads((out / "summary.json").read_bytes())
        assert summary["workload"] == workload
        assert summary["statistics"]["n_ok"] == 8
        assert summary["expected"]["distinct_prompts"] == 8
    assert "repeated in the plan, at most" in capsys.readouterr().out


def test_a_trace_brings_its_own_times_lengths_and_number(engine: Engine, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.97,12,4\n2023-11-16 18:17:04.07,7,2\n"
    )
    given = ["--url", engine.url, "--model", "truth", "--out", str(tmp_path / "out")]
    assert main([*given, "--workload", "trace", "--trace", str(trace), "--speed", "10"]) == 0
    frame = read_requests(tmp_path / "out" / "requests.parquet").sort_values("intended_ns")
    assert list(frame["prompt_tokens"]) == [12, 7]
    assert list(frame["output_tokens"]) == [4, 2]
    assert list(frame["intended_ns"].diff().dropna()) == [10_000_000]


def test_ramps_and_several_processes_are_options(engine: Engine, tmp_path: Path) -> None:
    more = {"ramp-from": "1", "ramp-seconds": "0.05", "processes": "2", "concurrency": "3"}
    assert main(_options(engine, tmp_path / "a", **more)) == 0
    summary = json.loads((tmp_path / "a" / "summary.json").read_bytes())
    assert len(summary["processes"]) == 2
    assert summary["job"]["arrival"]["kind"] == "ramp_concurrency"
    assert sorted(p.name for p in (tmp_path / "a").glob("**/*.jsonl")) == []


@pytest.mark.parametrize(
    "more",
    [
        {"workload": "trace"},
        {"trace": "x"},
        {"workload": "multi-turn", "turns": "3"},
        {"workload": "shared-prefix", "hit-ratio": "1.5"},
        {"workload": "shared-prefix", "prefix-order": "sideways", "block-tokens": "1"},
        {"ramp-from": "-1"},
        {"vocab-high": "5"},
        {"processes": "9"},
        {"engine-kind": "other"},
    ],
)
def test_options_that_do_not_fit_are_one_line_and_exit_2(
    more: dict[str, str], engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_options(engine, tmp_path / "out", **more)) == 2
    said = capsys.readouterr().err.strip()
    assert said
    assert "\n" not in said
    assert "Traceback" not in said


def test_what_a_workload_needs_is_named(engine: Engine, tmp_path: Path) -> None:
    given = ["--url", engine.url, "--model", "m", "--out", str(tmp_path / "o")]
    assert main([*given, "--concurrency", "1", "--requests", "3"]) == 2


def test_a_poisson_rate_is_seeded(engine: Engine, tmp_path: Path) -> None:
    given = ["--url", engine.url, "--model", "truth", "--requests", "6", "--rate", "500"]
    given += ["--poisson", "--prompt-tokens", "8", "--output-tokens", "2"]
    times = []
    for name in ("a", "b"):
        assert main([*given, "--out", str(tmp_path / name)]) == 0
        frame = read_requests(tmp_path / name / "requests.parquet").sort_values("intended_ns")
        times.append(list(frame["intended_ns"].diff().dropna()))
    assert times[0] == times[1]
    assert len(set(times[0])) > 1


def test_the_help_is_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for group in ("Engine", "How much, when", "Workload", "Cold restore", "Search", "Load host"):
        assert group in said
