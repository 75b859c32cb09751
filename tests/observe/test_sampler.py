"""Sampling keeps its schedule, records its gaps and always ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from kvgate.canonical import canonical_json
from kvgate.errors import CannotMeasure, UsageError
from kvgate.observe.adapters import adapter_for
from kvgate.observe.clock import ClockState, clock_state, detect_steps
from kvgate.observe.host import read_host
from kvgate.observe.observation import find_gaps
from kvgate.observe.rows import Rows, write_parquet
from kvgate.observe.sampler import Sampler, Target

from .conftest import MetricsServer, page, silence

S = 1_000_000_000


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never came true"
        time.sleep(0.005)


def _vllm(tokens: int, start_s: float = 1.79e9) -> str:
    return (
        f'vllm:prompt_tokens_total{{engine="0"}} {tokens}\n'
        f'vllm:generation_tokens_total{{engine="0"}} {tokens // 2}\n'
        f"process_start_time_seconds {start_s}\n"
    )


def test_snapshots_before_and_after_and_the_increase_between(
    server: MetricsServer, tmp_path: Path
) -> None:
    server.answer = page(_vllm(1000))
    target = Target("engine-0", adapter_for("vllm"), server.url)
    sampler = Sampler([target], period_s=0.05, timeout_s=5.0, pids=[os.getpid()]).start()
    assert server.looks >= 1
    server.answer = page(_vllm(1600))
    _until(lambda: server.looks >= 4)
    seen = sampler.stop()
    view = seen.targets["engine-0"]
    assert view.before is not None and view.before.to_json()["prompt_tokens"] == 1000
    assert view.after is not None and view.after.to_json()["prompt_tokens"] == 1600
    assert view.increase is not None and view.increase.delta["prompt_tokens"] == 600
    assert view.increase.restarts == 0
    assert sampler.stop() is seen

    seen.write(tmp_path / "engine.parquet", tmp_path / "host.parquet")
    engine = pd.read_parquet(tmp_path / "engine.parquet")
    assert list(engine.columns) == ["t_ns", "source", "name", "value"]
    assert engine.t_ns.is_monotonic_increasing
    tokens = engine[(engine.source == "engine-0") & (engine.name == "prompt_tokens")]
    assert tokens.value.iloc[0] == 1000 and tokens.value.iloc[-1] == 1600
    raw = engine[engine.source == "engine-0:raw"]
    assert 'vllm:prompt_tokens_total{engine="0"}' in set(raw.name)
    host = pd.read_parquet(tmp_path / "host.parquet")
    names = set(host[host.source == f"pid:{os.getpid()}"].name)
    assert {"read_bytes", "resident_bytes", "cpu_s", "descriptors"} <= names
    assert {"cpu_busy_s", "memory_available_bytes"} <= set(host[host.source == "host"].name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["engine.parquet", "host.parquet"]


def test_row_35_restarts_between_the_snapshots_are_counted(server: MetricsServer) -> None:
    server.answer = page(_vllm(1000, start_s=1.0e9))
    target = Target("e", adapter_for("vllm"), server.url)
    sampler = Sampler([target], period_s=0.03, timeout_s=5.0, host=False).start()
    for start_s in (1.1e9, 1.2e9):
        server.answer = page(_vllm(50, start_s=start_s))
        seen = server.looks
        _until(lambda seen=seen: server.looks >= seen + 3)  # type: ignore[misc]
    view = sampler.stop().targets["e"]
    assert view.increase is not None
    assert (view.increase.restarts, view.increase.delta["prompt_tokens"]) == (2, 100)


def test_a_dead_server_is_a_gap_delays_nobody_and_never_blocks(server: MetricsServer) -> None:
    server.answer = silence
    targets = [Target("store", adapter_for("kvstore"), server.url)]
    sampler = Sampler(targets, period_s=0.05, timeout_s=0.2).start()
    _until(lambda: server.looks >= 2)
    seen = sampler.stop()
    view = seen.targets["store"]
    assert (view.before, view.after, view.increase) == (None, None, None)
    assert seen.coverage["store"] == seen.coverage_share == 0.0
    [gap] = [gap for gap in seen.gaps if gap.source == "store"]
    assert "no whole page" in gap.reason
    assert (gap.from_ns, gap.to_ns) == (seen.started_ns, seen.ended_ns)
    assert seen.coverage["host"] > 0.0
    assert {value for _, value in seen.store.series("store", "up")} == {0.0}


def test_a_missing_first_snapshot_is_not_replaced_by_a_later_one(server: MetricsServer) -> None:
    server.answer = page("")
    target = Target("e", adapter_for("vllm"), server.url)
    sampler = Sampler([target], period_s=0.03, timeout_s=5.0, host=False).start()
    server.answer = page(_vllm(10))
    seen = server.looks
    _until(lambda: server.looks >= seen + 3)
    view = sampler.stop().targets["e"]
    assert view.before is None and view.after is not None and view.increase is None


def test_the_context_manager_ends_every_thread_also_after_an_exception(
    server: MetricsServer,
) -> None:
    server.answer = page(_vllm(1))
    target = Target("e", adapter_for("vllm"), server.url)
    sampler = Sampler([target], period_s=0.05, timeout_s=5.0)
    with pytest.raises(RuntimeError), sampler:
        raise RuntimeError
    assert not [t for t in threading.enumerate() if t.name.startswith("observe-")]


def test_an_observation_is_canonical_json(server: MetricsServer) -> None:
    server.answer = page(_vllm(13_290_000_123))
    with Sampler(
        [Target("e", adapter_for("vllm"), server.url)], timeout_s=5.0, pids=[0]
    ) as sampler:
        pass
    plain = json.loads(canonical_json(sampler.stop().to_json()))
    assert plain["targets"]["e"]["before"]["prompt_tokens"] == 13_290_000_123
    assert plain["targets"]["e"]["before"]["process_start_time_ms"] == 1_790_000_000_000
    assert plain["targets"]["e"]["before"]["running"] is None
    assert any(note.startswith("pid:0:") for note in plain["notes"])


def test_names_and_times_are_checked() -> None:
    target = Target("e", adapter_for("vllm"), "http://127.0.0.1:9/")
    for make in (
        lambda: Sampler([target, target]),
        lambda: Sampler([Target("host", adapter_for("vllm"), "x")]),
        lambda: Sampler([], period_s=0),
        lambda: Sampler([]).stop(),
    ):
        with pytest.raises(UsageError):
            make()


# -- gaps ----------------------------------------------------------------------------------------


def _gaps(good_s: list[float]) -> tuple[list[tuple[float, float]], float]:
    gaps, share = find_gaps(
        "x", [int(t * S) for t in good_s], [(int(5.5 * S), "refused")],
        started_ns=0, ended_ns=10 * S, period_s=1.0,
    )  # fmt: skip
    return [(gap.from_ns / S, gap.to_ns / S) for gap in gaps], share


def test_looks_on_schedule_leave_no_gap() -> None:
    assert _gaps([0.1, 1, 2.3, 3, 4.1, 5, 6.4, 7, 8, 9, 10]) == ([], 1.0)


def test_a_gap_is_what_no_look_covers() -> None:
    assert _gaps([0, 1, 2, 3, 4, 5, 8, 9, 10]) == ([(6.0, 8.0)], 0.8)
    assert _gaps([3, 4, 5, 6, 7, 8, 9, 10]) == ([(0.0, 3.0)], 0.7)
    assert _gaps([0, 1, 2, 3, 4]) == ([(5.0, 10.0)], 0.5)
    assert _gaps([]) == ([(0.0, 10.0)], 0.0)


def test_what_was_not_seen_outside_the_window_is_no_loss_of_the_window() -> None:
    every = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert _gaps([-9, *every])[1] == 1.0
    assert _gaps([*every, 15])[1] == 1.0
    assert _gaps([-9])[1] == _gaps([15])[1] == 0.0, "never seen in it"


def test_a_gap_names_its_reason() -> None:
    gaps, _ = find_gaps("x", [0, 8 * S], [(5 * S, "refused")], started_ns=0, ended_ns=8 * S,
                        period_s=1.0)  # fmt: skip
    assert gaps[0].reason == "refused"


# -- clocks --------------------------------------------------------------------------------------


def _clock(monotonic_s: float, wall_s: float) -> ClockState:
    monotonic_ns, realtime_ns = int(monotonic_s * S), int(wall_s * S)
    return ClockState(monotonic_ns, realtime_ns, realtime_ns - monotonic_ns)


def test_row_78_a_step_of_the_wall_clock_is_found_and_changes_no_duration() -> None:
    states = [_clock(t, 1000 + t) for t in range(5)] + [_clock(t, 970 + t) for t in range(5, 9)]
    [step] = detect_steps(states)
    assert (step.monotonic_ns, step.step_ns) == (5 * S, -30 * S)
    assert states[-1].monotonic_ns - states[0].monotonic_ns == 8 * S


def test_row_78_slow_drift_is_no_step() -> None:
    assert detect_steps([_clock(t, 1000 + t * 1.0001) for t in range(60)]) == ()


def test_row_78_both_clocks_are_read_close_together() -> None:
    one, two = clock_state(), clock_state()
    assert two.monotonic_ns >= one.monotonic_ns
    assert one.offset_ns == one.realtime_ns - one.monotonic_ns


def test_row_78_sampling_uses_the_monotonic_clock_and_records_the_step(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = page(_vllm(1))
    true_time_ns = time.time_ns
    sampler = Sampler(
        [Target("e", adapter_for("vllm"), server.url)], period_s=0.03, timeout_s=5.0
    ).start()
    monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() - 30 * S)
    looks = server.looks
    _until(lambda: server.looks >= looks + 3)
    seen = sampler.stop()
    assert 0 < seen.ended_ns - seen.started_ns < 30 * S
    [step] = seen.clock_steps
    assert abs(step.step_ns + 30 * S) < S


# -- host ----------------------------------------------------------------------------------------


def _proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    (proc / "net").mkdir(parents=True)
    (proc / "7/fd").mkdir(parents=True)
    (proc / "7/fd/0").touch()
    (proc / "stat").write_text("cpu  100 0 50 800 50 0 0 10 0 0\ncpu0 1 2 3\n")
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 400 kB\nCached: 30 kB\n")
    (proc / "net/dev").write_text(
        "Inter-|   Receive  |  Transmit\n face |bytes\n  eth0: 11 1 2 3 0 0 0 0 22 1 4 5 0 0 0 0\n"
    )
    (proc / "diskstats").write_text(
        "259 0 nvme0n1 1 0 8 0 1 0 16 0 0 0 0\n259 1 nvme0n1p1 1 0 8 0 1 0 16 0 0 0 0\n"
        "7 0 loop0 1 0 8 0 1 0 16 0 0 0 0\n"
    )
    stat = " ".join(["S", *["0"] * 10, "200", "100", *["0"] * 4, "5", "0", "777", "0", "3"])
    (proc / "7/stat").write_text(f"7 (odd ) name) {stat}\n")
    (proc / "7/io").write_text("rchar: 9\nwchar: 8\nread_bytes: 4096\nwrite_bytes: 0\nsyscr: 1\n")
    (tmp_path / "block/nvme0n1").mkdir(parents=True)
    return proc


def test_host_readings_carry_their_unit_and_count_no_partition_twice(tmp_path: Path) -> None:
    proc = _proc(tmp_path)
    readings, faults = read_host([7], proc=proc, sys_block=tmp_path / "block")
    assert faults == []
    found = {(source, name): value for source, name, value in readings}
    ticks = os.sysconf("SC_CLK_TCK")
    assert found["host", "cpu_busy_s"] == 160 / ticks
    assert found["host", "cpu_total_s"] == 1010 / ticks
    assert found["host", "memory_available_bytes"] == 400 * 1024
    assert (found["net:eth0", "rx_bytes"], found["net:eth0", "tx_dropped"]) == (11, 5)
    assert found["disk:nvme0n1", "read_bytes"] == 8 * 512
    assert found["disk:nvme0n1", "written_bytes"] == 16 * 512
    assert {source for source, _ in found if source.startswith("disk:")} == {"disk:nvme0n1"}
    assert found["pid:7", "read_bytes"] == 4096
    assert (found["pid:7", "threads"], found["pid:7", "start_ticks"]) == (5, 777)
    assert found["pid:7", "cpu_s"] == 300 / ticks
    assert found["pid:7", "descriptors"] == 1


def test_a_process_that_has_gone_gives_no_reading_and_a_note(tmp_path: Path) -> None:
    readings, faults = read_host([8], proc=_proc(tmp_path), sys_block=tmp_path)
    assert not [source for source, _, _ in readings if source == "pid:8"]
    assert len(faults) == 1 and faults[0].startswith("pid:8:")


# -- rows ----------------------------------------------------------------------------------------


def test_rows_that_cannot_be_written_are_cannot_measure(tmp_path: Path) -> None:
    rows = Rows()
    rows.add(1, "s", "n", 2.0)
    with pytest.raises(CannotMeasure, match="cannot write"):
        write_parquet(tmp_path / "absent" / "host.parquet", rows)
    write_parquet(tmp_path / "empty.parquet", Rows())
    assert len(pd.read_parquet(tmp_path / "empty.parquet")) == 0
