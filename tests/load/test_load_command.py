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
