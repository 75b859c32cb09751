"""``kvgate load --workload cold-restore``: primed, settled, made cold, and what is proved of it.

Engine and store are the rehearsal's, simulated behind the real interfaces.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kvgate.cli import main as kvgate
from kvgate.commands.load_cold import Sources, coldness, holds, make_cold, settle
from kvgate.errors import CannotMeasure, UsageError
from kvgate.observe.scrape import scrape

from .conftest import Engine

MODEL = "Qwen3-Coder-480B-FP8-simulated"


class Simulated(NamedTuple):
    """Addresses of a simulated engine and its store."""

    engine: str
    store: str


def free_ports(count: int) -> list[int]:
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
    finally:
        for one in taken:
            one.close()


def await_page(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while not scrape(f"{url}/metrics", 1.0).ok:
        assert process.poll() is None, "a simulated process ended"
        assert time.monotonic() < end, f"{url} never answered"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def simulated() -> Iterator[Simulated]:
    """An engine in the appliance's arm; both are ended by their own pids."""
    store_port, engine_port = free_ports(2)
    found = Simulated(f"http://127.0.0.1:{engine_port}", f"http://127.0.0.1:{store_port}")
    common = ["--time-scale", "200"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for module, options, url in (
            ("store", ["--port", str(store_port), "--name", "appliance"], found.store),
            ("engine", ["--port", str(engine_port), "--arm", "appliance", "--store", found.store],
             found.engine),
        ):  # fmt: skip
            command = [sys.executable, "-m", f"kvgate.rehearsal.{module}", *options, *common]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            started.append(process)
            await_page(url, process)
        yield found
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def options(simulated: Simulated, out: Path, *more: str) -> list[str]:
    given = ["load", "--url", simulated.engine, "--model", MODEL, "--out", str(out)]
    given += ["--concurrency", "2", "--requests", "4", "--prompt-tokens", "1024"]
    return [*given, "--output-tokens", "4", *more]


COLD = ["--workload", "cold-restore", "--make-cold", "/reset_prefix_cache"]


def test_a_restore_is_proved_cold_by_the_stores_and_the_engines_counters(
    simulated: Simulated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = ["--store-metrics", f"{simulated.store}/metrics", "--store-kind", "kvstore"]
    assert kvgate(options(simulated, tmp_path / "out", *COLD, *watched)) == 0
    assert "cold: the store had acknowledged all prompts" in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    cold = summary["coldness"]
    assert cold["proved"] is True
    assert cold["primed_tokens"] == 4 * 1024
    assert cold["engine_cache_share"] == 0
    assert cold["external_share"] > 0.9
    assert summary["statistics"]["n_ok"] == 4


def test_a_restore_whose_store_nobody_watches_is_said_to_be_unproved(
    simulated: Simulated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kvgate(options(simulated, tmp_path / "out", *COLD, "--settle", "0.3")) == 11
    said = capsys.readouterr().out
    assert "INVALID: not proved: nobody watched whether the store holds" in said
    assert "--store-metrics" in said


def test_a_restore_that_was_not_made_cold_is_found(
    simulated: Simulated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = ["--store-metrics", f"{simulated.store}/metrics", "--store-kind", "kvstore"]
    warm = ["--workload", "cold-restore", "--make-cold", f"{sys.executable} -c pass"]
    assert kvgate(options(simulated, tmp_path / "out", *warm, *watched)) == 11
    assert "INVALID: not cold: " in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert summary["coldness"]["cold"] is False


def test_row_01_the_same_pool_again_is_no_run_of_misses(
    simulated: Simulated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--pool", "looped"]
    assert kvgate(options(simulated, tmp_path / "a", *again)) == 0
    assert kvgate(options(simulated, tmp_path / "b", *again)) == 11
    assert "the cache was warm" in capsys.readouterr().out
    # Without a name every run has a pool of its own.
    assert kvgate(options(simulated, tmp_path / "c")) == 0
    assert kvgate(options(simulated, tmp_path / "d")) == 0


def test_a_warm_up_is_answered_before_the_block_and_leaves_no_row(
    simulated: Simulated, tmp_path: Path
) -> None:
    assert kvgate(options(simulated, tmp_path / "a", "--warm-up", "3")) == 0
    summary = json.loads((tmp_path / "a" / "summary.json").read_bytes())
    assert summary["statistics"]["n_requests"] == 4
    # The engine's counters were looked at after the warm-up.
    assert summary["sources"]["prompt_tokens"] == 4 * 1024


def test_a_way_to_make_cold_is_needed_and_must_work(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="HTTP 404"):
        make_cold("/reset_prefix_cache", engine.url)
    with pytest.raises(CannotMeasure, match="exit 3"):
        make_cold(f"{sys.executable} -c 'raise SystemExit(3)'", engine.url)
    with pytest.raises(UsageError, match="no program"):
        make_cold("/no/such program", engine.url)
    with pytest.raises(UsageError, match="no command"):
        make_cold("a 'b", engine.url)
    with pytest.raises(UsageError, match="empty"):
        make_cold(" ", engine.url)
    given = ["load", "--url", engine.url, "--model", "m", "--out", str(tmp_path / "x")]
    given += ["--concurrency", "1", "--requests", "1", "--prompt-tokens", "8"]
    given += ["--output-tokens", "1"]
    assert kvgate([*given, "--workload", "cold-restore"]) == 2
    assert kvgate([*given, "--make-cold", "/x"]) == 2


def test_what_is_not_known_is_never_proved() -> None:
    seen = Sources(1000.0, 10.0, 980.0, 0)
    assert coldness(1000, True, "x", seen).proved
    assert coldness(1000, True, "x", seen).sentences() == ()
    for acknowledged, sources_ in (
        (None, seen),
        (False, seen),
        (True, None),
        (True, Sources(1000.0, None, 980.0, 0)),
        (True, Sources(None, 0.0, 980.0, 0)),
        (True, Sources(0.0, 0.0, 0.0, 0)),
        (True, Sources(1000.0, 11.0, 980.0, 0)),
        (True, Sources(1000.0, 0.0, 980.0, 1)),
    ):
        found = coldness(1000, acknowledged, "x", sources_)
        assert not found.proved
        assert len(found.sentences()) == 1


def test_a_store_has_acknowledged_when_it_grew_by_what_was_primed_and_nothing_waits() -> None:
    before: dict[str, float | None] = {"stored_tokens": 500.0, "used_bytes": 100.0}
    assert holds(before, {"stored_tokens": 1400.0}, 1000, None) is True
    assert holds(before, {"stored_tokens": 1399.0}, 1000, None) is False
    assert holds(before, {"stored_tokens": 1500.0, "pending_bytes": 1.0}, 1000, None) is False
    assert holds({}, {"used_bytes": 10_000.0}, 1000, 8) is None
    assert holds({"used_bytes": 100.0}, {"used_bytes": 7300.0}, 1000, 8) is True
    assert holds({"used_bytes": 100.0}, {"used_bytes": 7299.0}, 1000, 8) is False
    assert holds({"used_bytes": 100.0}, {"used_bytes": 7300.0}, 1000, None) is None


def test_without_a_store_to_watch_all_the_time_is_waited_and_nothing_is_known() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    assert settle(None, None, 10, None, 5.0, clock=lambda: now, sleep=sleep) is None
    assert now == pytest.approx(5.0)
