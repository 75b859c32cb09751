"""Each fault knob changes what a client or a scrape sees, and nothing else does."""

from __future__ import annotations

import json
import socket
import statistics
import time

import pytest

from kvgate.errors import UsageError
from kvgate.rehearsal.engine import EXIT_DIED, speed_factor
from kvgate.rehearsal.faults import ARMS, KNOWN_FAULTS, active_in, parse_fault, parse_faults
from kvgate.rehearsal.scheduler import Pace

from .machine import (
    HOST,
    WAIT_S,
    Machine,
    by_source,
    metrics,
    prompt,
    send_request,
    wait_until,
)


def _restore_s(machine: Machine, number: int) -> float:
    """Simulated seconds of the transfer of one restore."""
    machine.prime(prompt(number))
    name = "kvstore_transfer_simulated_seconds_total"
    before = metrics(machine.store_port)[name]
    assert machine.complete(prompt(number)).status == 200
    return metrics(machine.store_port)[name] - before


def test_a_slow_tier_takes_longer_by_its_factor() -> None:
    seconds = []
    for faults in (["noisy=0"], ["noisy=0", "slow-tier=2"]):
        with Machine(faults=faults) as machine:
            seconds.append(_restore_s(machine, 30))
    assert seconds[1] / seconds[0] == pytest.approx(2.0, rel=1e-3)


def test_the_baseline_is_not_slowed_by_a_slow_appliance() -> None:
    seconds = []
    for faults in (["noisy=0"], ["noisy=0", "slow-tier=2"]):
        with Machine(arm="baseline", faults=faults) as machine:
            seconds.append(_restore_s(machine, 30))
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-3)


def test_a_tier_that_never_hits_sees_no_lookups() -> None:
    with Machine(faults=["never-hits"]) as machine:
        machine.prime(prompt(31))
        machine.complete(prompt(31))
        assert by_source(machine.port)["external_kv_transfer"] == 0
        assert metrics(machine.store_port)["kvstore_lookup_tokens_total"] == 0


def test_a_store_that_loses_chunks_is_asked_and_misses() -> None:
    with Machine(faults=["store-misses"]) as machine:
        machine.prime(prompt(32))
        machine.complete(prompt(32))
        store = metrics(machine.store_port)
        assert store["kvstore_stored_tokens_total"] >= 2048
        assert store["kvstore_lookup_tokens_total"] == 2 * 2048
        assert store["kvstore_hit_tokens_total"] == 0
        assert by_source(machine.port)["local_compute"] == 2 * 2048


def test_a_warm_baseline_answers_from_its_own_cache_after_a_reset() -> None:
    with Machine(arm="baseline", faults=["warm-baseline=0.5"]) as machine:
        machine.prime(prompt(33))
        machine.complete(prompt(33))
        assert by_source(machine.port) == {
            "local_compute": 2048 + 1,
            "local_cache_hit": 1024,
            "external_kv_transfer": 1023,
        }


def test_wrong_answers_differ_and_still_count_as_hits() -> None:
    answers = []
    for faults in ([], ["wrong-answers=1"]):
        with Machine(faults=faults) as machine:
            machine.prime(prompt(34))
            answers.append(machine.complete(prompt(34), logprobs=1).json()["choices"][0])
            assert by_source(machine.port)["external_kv_transfer"] == 2047
    right, wrong = answers
    assert wrong["text"] != right["text"]
    assert wrong["logprobs"]["token_logprobs"] == [None] * 8


def test_truncated_streams_just_end() -> None:
    with Machine(arm="recompute", faults=["truncated-streams=1"]) as machine:
        answer = machine.stream(prompt(35))
        assert answer.complete
        assert len(answer.events()) == 4
        assert "[DONE]" not in answer.events()
        assert all(event["choices"][0]["finish_reason"] is None for event in answer.events())
        assert metrics(machine.port)["vllm:num_requests_running"] == 0


def test_error_events_come_inside_a_good_response() -> None:
    with Machine(faults=["error-events=1"]) as machine:
        answer = machine.stream(prompt(36))
        assert answer.status == 200
        assert answer.events()[-1] == "[DONE]"
        assert answer.events()[-2]["error"]["code"] == 500


def test_a_share_of_streams_is_a_share() -> None:
    with Machine(arm="recompute", faults=["truncated-streams=0.5"]) as machine:
        whole = ["[DONE]" in machine.stream(prompt(0, 16)).events() for _ in range(60)]
        assert 10 < sum(whole) < 50


def test_an_engine_restart_shows_in_its_start_time() -> None:
    with Machine(faults=["engine-restart=2"]) as machine:
        before = metrics(machine.port)["process_start_time_seconds"]
        machine.complete(prompt(37))
        machine.complete(prompt(38))

        def restarted() -> bool:
            try:
                return metrics(machine.port)["process_start_time_seconds"] > before
            except (OSError, ValueError, IndexError):
                return False

        wait_until(restarted, "the engine to be back")
        assert metrics(machine.port)["vllm:prompt_tokens_total"] == 0
        for number in (37, 38, 39):
            assert machine.complete(prompt(number)).status == 200


def test_an_engine_that_dies_stays_dead() -> None:
    with Machine(faults=["engine-dies=1"]) as machine:
        machine.complete(prompt(39))
        assert machine.engine is not None
        assert machine.engine.wait(timeout=WAIT_S) == EXIT_DIED
        assert not machine.healthy(machine.port)


def test_drift_makes_a_later_restore_slower() -> None:
    with Machine(faults=["noisy=0", "drift=0.5"]) as machine:
        first = _restore_s(machine, 40)
        assert _restore_s(machine, 41) > first
    pace = Pace(100.0, 1.0, 0.5, 1.0, 0.0)
    # 1.2 real seconds are two simulated minutes at a scale of 100.
    assert pace.slowdown_at(1.2) == pytest.approx(2.0)


def test_a_hanging_restore_never_answers_and_frees_its_slot_when_given_up() -> None:
    with Machine(faults=["hang=1"]) as machine:
        machine.prime(prompt(42))
        with socket.create_connection((HOST, machine.port), timeout=WAIT_S) as connection:
            body = json.dumps({"prompt": prompt(42)}).encode()
            send_request(connection, "POST", "/v1/completions", body, {})
            wait_until(lambda: metrics(machine.store_port)["kvstore_loads_total"] == 1, "the load")
            assert machine.complete(prompt(43, 100)).status == 200
            assert metrics(machine.port)["vllm:num_requests_waiting"] == 1
        wait_until(lambda: metrics(machine.port)["vllm:num_requests_waiting"] == 0, "a free slot")


def test_a_slow_start_does_not_answer_before_its_time() -> None:
    began_s = time.monotonic()
    with Machine(arm="recompute", faults=["slow-start=0.4"]):
        assert time.monotonic() - began_s >= 0.4


def test_noise_is_drawn_for_each_start_from_seed_and_arm() -> None:
    factors = [speed_factor(seed, "appliance", 0.25) for seed in range(400)]
    assert factors[7] == speed_factor(7, "appliance", 0.25) != speed_factor(7, "baseline", 0.25)
    assert 0.2 < statistics.stdev(factors) / statistics.mean(factors) < 0.3
    assert speed_factor(7, "appliance", 0.0) == 1.0


@pytest.mark.parametrize("name", KNOWN_FAULTS)
def test_a_fault_is_written_as_it_is_read_and_is_off_in_other_arms(name: str) -> None:
    fault = parse_fault(name)
    assert parse_fault(fault.spec()) == fault
    assert fault.value == KNOWN_FAULTS[name][0]
    healthy = active_in((), "appliance")
    for arm in ARMS:
        assert (active_in([fault], arm) != healthy) == (arm in fault.arms)


def test_value_and_arms_can_be_chosen() -> None:
    (fault,) = parse_faults(["wrong-answers=0.5@baseline+appliance"])
    assert fault.arms == ("baseline", "appliance")
    assert active_in([fault], "baseline").corrupt_share == 0.5


@pytest.mark.parametrize(
    "spec", ["melts", "hang=2", "hang=x", "drift=nan", "hang@moon", "hang@", "slow-tier=-1"]
)
def test_a_wrong_fault_is_one_line_that_helps(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_fault(spec)
    assert "\n" not in str(caught.value)
    if spec == "melts":
        assert all(name in str(caught.value) for name in KNOWN_FAULTS)
