"""Each validity condition of a block, broken by a cause of its own through real processes, and by
nothing else: `docs/validity.md` has the table.

A module's healthy stage is shared: its store is primed once, and every block gets an engine of its
own start. What depends on how busy this machine is counts only in the test that breaks it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kvgate.analyse.assemble import assemble
from kvgate.analyse.configuration import configuration
from kvgate.conduct import block as conduct_block
from kvgate.contract_tables import Distance, Parallelism, Text
from kvgate.decide.alike import arms_differ
from kvgate.load.job import Closed
from kvgate.observe import polling
from kvgate.observe.clock import ClockState, clock_state
from kvgate.verdict import About

from .stage import CONTRACT, SCALE, Measured, Stage, ask, held, limits, stage, stopped

HANGS_S = 3.2
"""Longer than a look may take, and a period more."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("healthy")) as made:
        made.prime(0, 1)
        yield made


# --- instrument ---------------------------------------------------------------------------------


def load_host(monkeypatch: pytest.MonkeyPatch, folder: Path, before: str, hook: str = "") -> None:
    """The next load process starts behind the shell line ``before`` and runs ``hook`` first."""
    (folder / "hook").mkdir(parents=True)
    (folder / "hook/sitecustomize.py").write_text(hook)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n{before}\nPYTHONPATH={folder}/hook exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("kvgate.load.process.sys", SimpleNamespace(executable=str(python)))


def tried_first(healthy: Stage) -> None:
    """The client's calibration is done, so that what follows strikes the block alone."""
    healthy.bench.calibrations.at(healthy.cell.level)


def test_a_client_that_is_killed_did_not_run(healthy: Stage) -> None:
    found = healthy.measure(during=lambda: os.kill(healthy.client_pid, signal.SIGKILL)).told()
    assert found["client_ran"] == (None, About.INSTRUMENT)
    assert found["requests_recorded"][1] is About.INSTRUMENT


def test_a_client_without_descriptors_says_so_before_the_block(
    healthy: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_first(healthy)
    load_host(monkeypatch, tmp_path, "ulimit -n 16")
    measured = healthy.measure()
    found = measured.told()
    assert found["client_ran"] == (None, About.INSTRUMENT)
    assert "file descriptors" in measured.block["fault"] and "ulimit" in measured.block["fault"]
    assert {n for n, (_, about) in found.items() if about is About.APPLIANCE} <= {
        "requests_finished"
    }


def test_a_client_that_is_stopped_stalls(healthy: Stage) -> None:
    def stop() -> None:
        stopped(healthy.client_pid, 0.8)

    found = healthy.measure(during=stop).told(but="client_stall")
    assert found == {"client_stall": (False, About.INSTRUMENT)}


BUSY_THREAD = """
import hashlib, threading
def burn():
    while True:
        hashlib.sha256(bytes(1 << 22)).digest()  # without the interpreter's lock
for _ in range(8):
    threading.Thread(target=burn, daemon=True).start()
"""


def test_a_client_that_burns_its_core_is_the_bottleneck(
    healthy: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_first(healthy)
    load_host(monkeypatch, tmp_path, ":", BUSY_THREAD)
    # A fifth of a core is many times what so few streams need, and less than the threads get even
    # on a crowded machine.
    found = healthy.measure().told(limits(client_cpu_share_at_most=0.2), but="client_cpu")
    assert found == {"client_cpu": (False, About.INSTRUMENT)}


def changed_job(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    plain = conduct_block.block_job
    monkeypatch.setattr(
        conduct_block, "block_job", lambda *given, **named: change(plain(*given, **named))
    )


def test_a_client_that_caps_its_connections_does_not_hold_the_level(
    healthy: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_job(monkeypatch, lambda job: msgspec.structs.replace(job, arrival=Closed(2)))
    found = healthy.measure().told(but="in_flight")
    assert found == {"in_flight": (False, About.INSTRUMENT)}


def test_a_client_that_asks_for_other_lengths_measures_another_workload(
    healthy: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_job(monkeypatch, lambda job: msgspec.structs.replace(job, output_tokens=32))
    assert healthy.measure().told() == {"output_tokens_as_planned": (False, About.ENVIRONMENT)}


def test_a_client_that_asks_the_same_again_repeats_prompts(
    healthy: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(job: Any) -> Any:
        prompts = msgspec.structs.replace(job.prompts, cycle=job.prompts.count // 2)
        return msgspec.structs.replace(job, prompts=prompts)

    changed_job(monkeypatch, twice)
    found = healthy.measure().told()
    # The engine's own cache answers what was asked before: that is why prompts must not repeat.
    assert found["prompts_unique"] == (False, About.INSTRUMENT)
    assert set(found) == {"prompts_unique", "declared_source", "engine_cache_cold"}
    assert {about for _, about in found.values()} == {About.INSTRUMENT, About.ENVIRONMENT}


CLOCK_HOOK = """
import time
from types import SimpleNamespace
from kvgate.load import clock
begun, plain = time.monotonic_ns(), clock.ReceiveClock.stamp
def step():  # 0.2 s forward and back again: what the kernel stamps moves with the clock
    return 200_000_000 if 500_000_000 < time.monotonic_ns() - begun < 900_000_000 else 0
clock.time = SimpleNamespace(
    monotonic_ns=time.monotonic_ns, CLOCK_REALTIME=time.CLOCK_REALTIME,
    clock_gettime_ns=lambda which: time.clock_gettime_ns(which) + step(),
)
def stamp(self, real_ns, user_ns):
    return plain(self, None if real_ns is None else real_ns + step(), user_ns)
clock.ReceiveClock.stamp = stamp
"""


def test_a_clock_that_steps_there_and_back_is_seen_by_the_client(
    healthy: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_first(healthy)
    load_host(monkeypatch, tmp_path, ":", CLOCK_HOOK)
    measured = healthy.measure()
    assert measured.told(but="clock_step") == {"clock_step": (False, About.INSTRUMENT)}
    assert measured.block["observation"]["clock_steps"] == []


def test_a_clock_that_steps_is_seen_by_whoever_observes(
    healthy: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [0]

    def stepped() -> ClockState:
        looks[0] += 1
        state, ahead_ns = clock_state(), 0 if looks[0] < 2 else 100_000_000
        return ClockState(
            state.monotonic_ns, state.realtime_ns + ahead_ns, state.offset_ns + ahead_ns
        )

    monkeypatch.setattr(polling, "clock_state", stepped)
    found = healthy.measure().told(but="clock_step")
    assert found == {"clock_step": (False, About.INSTRUMENT)}


def test_an_engine_that_hangs_answers_no_look(healthy: Stage) -> None:
    def hang() -> None:
        stopped(healthy.info["engine"]["pid"], HANGS_S)

    found = healthy.measure(during=hang).told(but="telemetry_coverage")
    assert found == {"telemetry_coverage": (False, About.INSTRUMENT)}


def test_a_store_that_hangs_answers_no_look_and_that_is_its_own(healthy: Stage) -> None:
    def hang() -> None:
        stopped(healthy.info["store"]["pid"], HANGS_S)

    found = healthy.measure(during=hang).told(but="store_telemetry")
    assert found == {"store_telemetry": (False, About.APPLIANCE)}


def test_blocks_with_other_prompts_are_no_pair(healthy: Stage) -> None:
    blocks = [healthy.measure(role="reference"), healthy.measure(role="test", pool=1)]
    for each in blocks:
        assert each.told() == {}
    found = assemble(CONTRACT, 3, [b.raw() for b in blocks], {}, {}, SCALE)
    said = [{c.name: (c.ok, c.about) for c in b.conditions} for b in found.blocks]
    assert [s["prompts_alike"] for s in said] == [(False, About.INSTRUMENT)] * 2


# --- environment --------------------------------------------------------------------------------


def test_a_healthy_block_breaks_nothing_and_a_limit_alone_breaks_its_own(healthy: Stage) -> None:
    measured = healthy.measure()
    assert measured.told() == {}
    for changed, name in (
        ({"simulator_late_s_at_most": None}, "nothing_simulated"),
        ({"store_bytes_per_s_at_most": 1.0}, "store_rate_possible"),
        ({"fill_share_at_least": 0.5}, "fill_level"),
        ({"calibration_ttft_error_s_at_most": 1e-9}, "client_holds_level"),
    ):
        found = measured.told(limits(**changed), but=name)
        assert {n: ok for n, (ok, _) in found.items()} == {name: False}
    # A limit on what this host cannot tell breaks the block: absence never passes.
    if not list(Path("/sys/class/infiniband").glob("*")):
        for key, name in (
            ("fabric_errors_at_most", "fabric_clean"),
            ("fabric_pauses_at_most", "fabric_unpaused"),
        ):
            assert measured.told(limits(**{key: 0})) == {name: (None, About.ENVIRONMENT)}


@pytest.mark.parametrize("fault, name", [
    ("preempts=0.5", "preemptions"),
    ("long-prompts", "prompt_tokens_as_planned"),
    ("warm-baseline=0.3@appliance", "engine_cache_cold"),
])  # fmt: skip
def test_a_fault_of_the_engine_breaks_its_condition(healthy: Stage, fault: str, name: str) -> None:
    found = healthy.measure(fault).told()
    # What came from a warm cache did not come from the store either.
    follows = {"declared_source"} if name == "engine_cache_cold" else set()
    assert set(found) - follows == {name}
    assert found[name] == (False, About.ENVIRONMENT)


WORDS = Text(en="made up", zh="虚构")


def test_an_engine_on_other_accelerators_is_not_the_planned_setup(healthy: Stage) -> None:
    eight = Parallelism(text=WORDS, tensor_parallel=8)
    wanted = CONTRACT.model_copy(update={"parallelism": {"default": eight}})
    measured = healthy.measure("other-parallelism")
    assert measured.told() == {}
    assert measured.told(wanted) == {"setup_as_planned": (False, About.ENVIRONMENT)}


def test_a_distance_that_is_not_there_is_not_the_planned_setup(tmp_path: Path) -> None:
    away = Distance(text=WORDS, delay_ms=6000.0, within_ms=3000.0)
    wanted = CONTRACT.model_copy(update={"distance": {"local": away}})
    with stage(tmp_path, "no-delay", level=1) as made:
        made.prime(0)
        made.setup = {"delay_ms": 6000.0, "measure": True}
        found = made.measure().told(wanted)
    assert found == {"setup_as_planned": (False, About.ENVIRONMENT)}


def test_an_engine_that_gets_no_request_shares_no_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Parallelism(text=WORDS, instances=2)
    both = CONTRACT.model_copy(update={"parallelism": {"default": two}})
    with stage(tmp_path, contract=both) as made:
        made.prime(0)
        assert made.measure().told(both) == {}
        changed_job(monkeypatch, lambda job: msgspec.structs.replace(job, urls=(job.url, job.url)))
        found = made.measure().told(both)
    assert found == {"engines_share_load": (False, About.ENVIRONMENT)}


def test_a_store_that_is_never_asked_cannot_be_blamed(tmp_path: Path) -> None:
    with stage(tmp_path, level=1) as made:
        made.prime(0)
        found = made.measure("never-hits").told()
    assert found == {"declared_source": (False, About.ENVIRONMENT)}


def test_an_engine_that_restarts_was_not_alive(healthy: Stage) -> None:
    found = healthy.measure("engine-restart=10").told()
    assert found["engine_alive"] == (False, About.ENVIRONMENT)


def test_a_store_that_nobody_primed_has_acknowledged_nothing(tmp_path: Path) -> None:
    with stage(tmp_path, level=1) as made:
        made.claims_to_be_primed()
        found = made.measure().told()
    assert found["acknowledged"] == (False, About.ENVIRONMENT)
    assert {about for _, about in found.values()} == {About.ENVIRONMENT}


def test_a_store_of_the_other_arm_that_is_read_is_not_untouched(tmp_path: Path) -> None:
    with stage(tmp_path, level=1, stores_stay_up=True) as made:
        made.start("baseline")
        made.prime(0)
        other = made.place.store_url("baseline")

        def read() -> None:
            ask(f"{other}/v1/store", {"keys": ["ab"], "contents": ["cd"]})
            ask(f"{other}/v1/lookup", {"keys": ["ab"]})

        assert made.measure(during=read).told() == {
            "untouched_baseline": (False, About.ENVIRONMENT)
        }


def test_a_silent_store_of_the_other_arm_is_not_known_to_be_untouched(tmp_path: Path) -> None:
    with stage(tmp_path, level=1, stores_stay_up=True) as made:
        made.prime(0)
        assert made.measure().told() == {"untouched_baseline": (None, About.ENVIRONMENT)}


@pytest.mark.parametrize("fault, name", [
    ("bytes-read=0.5", "bytes_read"),
    ("bytes-read=1.5", "bytes_not_too_many"),
    ("uncounted-hits=0.5", "counters_agree"),
])  # fmt: skip
def test_a_fault_of_the_stores_counters_breaks_its_condition_alone(
    tmp_path: Path, fault: str, name: str
) -> None:
    with stage(tmp_path, fault, level=1) as made:
        made.prime(0)
        assert made.measure().told() == {name: (False, About.ENVIRONMENT)}


def test_a_restore_whose_bytes_nobody_counts_is_no_restore(tmp_path: Path) -> None:
    with stage(tmp_path, level=1, store_bytes="process") as made:
        made.prime(0)
        found = made.measure().told()
    assert {n: ok for n, (ok, _) in found.items()} == dict.fromkeys(
        ("bytes_read", "bytes_not_too_many", "store_rate_possible")
    )


def counting(path: Path, stop: threading.Event) -> None:
    """A counter of the kernel that grows until it is told to stop."""
    count = 0
    while not stop.wait(0.05):
        count += 1
        path.write_text(str(count))


@pytest.mark.parametrize("reader, argument, place, key, name", [
    ("read_cpu_throttling", "cpus", "cpu0/thermal_throttle/core_throttle_count",
     "throttled_share_at_most", "no_throttling"),
    ("read_ports", "root", "mlx5_0/ports/1/counters/symbol_error",
     "fabric_errors_at_most", "fabric_clean"),
    ("read_ports", "root", "mlx5_0/ports/1/counters/port_xmit_wait",
     "fabric_pauses_at_most", "fabric_unpaused"),
])  # fmt: skip
def test_a_counter_of_the_host_that_grows_breaks_its_condition_alone(
    healthy: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, argument: str,
    place: str, key: str, name: str,
) -> None:  # fmt: skip
    counter = tmp_path / place
    counter.parent.mkdir(parents=True)
    counter.write_text("0")
    monkeypatch.setattr(polling, reader, partial(getattr(polling, reader), **{argument: tmp_path}))
    stop = threading.Event()
    thread = threading.Thread(target=counting, args=(counter, stop))
    thread.start()
    try:
        measured = healthy.measure()
    finally:
        stop.set()
        thread.join()
    assert measured.told(limits(**{key: 0})) == {name: (False, About.ENVIRONMENT)}
    assert measured.told() == {}


def test_another_engine_build_in_one_arm_is_no_comparison(healthy: Stage) -> None:
    told = {}
    for arm, faults in (("baseline", ()), ("appliance", ("other-build",))):
        told[arm] = healthy.bring_up(arm, *faults).info
    same = configuration({}, {"baseline": told["baseline"], "appliance": told["baseline"]}, ())
    assert arms_differ(CONTRACT, ("baseline", "appliance"), same) is None
    reason = arms_differ(CONTRACT, ("baseline", "appliance"), configuration({}, told, ()))
    assert reason is not None and reason.code == "arms_differ"


# --- appliance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["truncated-streams=0.5", "error-events=0.5"])
def test_requests_that_do_not_finish_are_the_appliances(healthy: Stage, fault: str) -> None:
    assert healthy.measure(fault).told() == {"requests_finished": (False, About.APPLIANCE)}


def test_a_store_that_lost_what_it_acknowledged_is_at_fault(tmp_path: Path) -> None:
    with stage(tmp_path, "store-misses", level=1) as made:
        made.prime(0)
        assert made.measure().told() == {"declared_source": (False, About.APPLIANCE)}


def test_a_store_that_counts_an_error_is_at_fault(healthy: Stage) -> None:
    def send_garbage() -> None:
        with pytest.raises(OSError, match="400"):
            ask(f"{healthy.place.store_url('appliance')}/v1/load", {"keys": "no list"})

    measured = healthy.measure(during=send_garbage)
    assert measured.told() == {"store_errors": (False, About.APPLIANCE)}


def test_a_store_that_restarts_was_not_alive(healthy: Stage) -> None:
    def restart() -> None:
        # The engine waits meanwhile, so that the block cannot end before its store does.
        with held(healthy.info["engine"]["pid"]):
            healthy.restart_store()

    found = healthy.measure(during=restart).told()
    assert found["store_alive"] == (False, About.APPLIANCE)


def test_a_store_that_is_fuller_than_planned_is_another_store(healthy: Stage) -> None:
    planned = limits(fill_share_at_most=0.5)
    assert healthy.measure().told(planned) == {}
    others = [f"{number:032x}" for number in range(6_000)]
    url = f"{healthy.place.store_url('appliance')}/v1/store"
    ask(url, {"keys": others, "contents": others, "slowdown": 1e-6})
    measured: Measured = healthy.measure()
    assert measured.told(planned) == {"fill_level": (False, About.ENVIRONMENT)}
    assert measured.told() == {}
