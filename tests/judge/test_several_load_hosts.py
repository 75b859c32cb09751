"""A block of several load hosts: one timeline, and for each host what alone can break."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kvgate.analyse.block import block_statistics
from kvgate.analyse.load_hosts import on_one_clock
from kvgate.verdict import About

from .test_validity import COUNT, LEVEL, Block, broken, good, requests

AHEAD = {"load-1": 0, "load-2": 7_000_000_000_000}
"""How far each host's clock is ahead of the controller's, ns."""


def offset(ahead: int, uncertain: int = 100_000) -> dict[str, Any]:
    return {"offset_ns": ahead, "uncertainty_ns": uncertain, "round_trips": 9, "agreed": True}


def shared() -> Block:
    """The good block, its load from two hosts at half the level each."""
    block = copy.deepcopy(good())
    calibration = block.pop("calibration")
    for attempt in calibration["attempts"]:
        attempt.update(level=LEVEL // 2, held=LEVEL / 2)
    block["calibration"] = None
    block["load_hosts"] = {
        host: {
            "level": LEVEL // 2, "requests": COUNT // 2, "records": COUNT // 2, "state": "done",
            "fault": None, "client": {**block["client"], "start_late_ns": 50_000},
            "clock": {"before": offset(ahead), "after": offset(ahead + 1000)},
            "calibration": copy.deepcopy(calibration),
        }
        for host, ahead in AHEAD.items()
    }  # fmt: skip
    return block


def table() -> pd.DataFrame:
    """The good block's requests, every second one seen by the second host's clock."""
    frame = requests()
    there = np.arange(len(frame)) % 2 == 1
    frame["load_host"] = np.where(there, "load-2", "load-1")
    for column in [
        c for c in frame.columns if c.endswith("_ns") and c not in {"token_ns", "client_lag_ns"}
    ]:
        frame.loc[there, column] = frame.loc[there, column] + AHEAD["load-2"]
    frame["token_ns"] = [
        [t + AHEAD[host] for t in stamps]
        for stamps, host in zip(frame["token_ns"], frame["load_host"], strict=True)
    ]
    return frame


def test_clocks_that_are_far_apart_make_one_timeline() -> None:
    moved = on_one_clock(shared(), table())
    mine, alone = block_statistics(moved, LEVEL), block_statistics(requests(), LEVEL)
    assert mine.window_s == pytest.approx(alone.window_s, abs=1e-5)
    assert mine.mean_in_flight_in_window == pytest.approx(alone.mean_in_flight_in_window, rel=1e-4)
    assert mine.output_tok_per_s == pytest.approx(alone.output_tok_per_s, rel=1e-3)
    assert (mine.ttft_p50_s, mine.itl_p99_s) == (alone.ttft_p50_s, alone.itl_p99_s)
    assert mine.n_impossible == 0
    apart = block_statistics(table(), LEVEL).mean_in_flight_in_window
    assert apart is not None and alone.mean_in_flight_in_window is not None
    assert apart < 0.6 * alone.mean_in_flight_in_window, "without offsets nothing overlaps"


def test_a_block_of_the_local_client_is_left_alone() -> None:
    frame = requests()
    assert on_one_clock(good(), frame) is frame
    assert broken(good()) == {}


def test_two_healthy_hosts_break_nothing() -> None:
    assert broken(shared(), on_one_clock(shared(), table())) == {}


def test_requests_of_several_hosts_without_their_entries_are_no_measurement() -> None:
    assert {"load_hosts_whole", "load_clock_offset", "load_clock_drift", "load_start"} <= set(
        broken(good(), table())
    )


def _second(block: Block) -> dict[str, Any]:
    found: dict[str, Any] = block["load_hosts"]["load-2"]
    return found


def _after(host: dict[str, Any], *, drift: int = 0, uncertain: int = 100_000) -> None:
    host["clock"]["after"] = offset(AHEAD["load-2"] + drift, uncertain)


def _no_calibration(host: dict[str, Any]) -> None:
    host["calibration"] = None


BREAKS: dict[str, tuple[set[str], Callable[[dict[str, Any]], object], bool]] = {
    "it died": ({"load_hosts_whole"}, lambda h: h.update(fault="the connection ended"), False),
    "it did not finish": ({"load_hosts_whole"}, lambda h: h.update(state="interrupted"), False),
    "its file is short": ({"load_hosts_whole"}, lambda h: h.update(records=COUNT // 2 - 1), False),
    "it was late": ({"load_start"}, lambda h: h["client"].update(start_late_ns=150_000_000), False),
    "its offset is vague":
        ({"load_clock_offset"}, lambda h: _after(h, uncertain=20_000_000), False),
    "its round trips contradict":
        ({"load_clock_offset"}, lambda h: h["clock"]["after"].update(agreed=False), True),
    "its clock ran away":
        ({"load_clock_drift"}, lambda h: _after(h, drift=30_000_000), False),
    "its offset after is missing":
        ({"load_clock_offset", "load_clock_drift"}, lambda h: h["clock"].update(after=None), True),
    "its offset before is missing":
        ({"load_clock_offset", "load_clock_drift"}, lambda h: h["clock"].update(before=None), True),
    "its wall clock stepped":
        ({"clock_step"}, lambda h: h["client"].update(clock_offset_end_ns=10**9), False),
    "its processor was full": ({"client_cpu"}, lambda h: h["client"].update(cpu_s=0.99), False),
    "it cannot hold its share":
        ({"client_holds_level"}, lambda h: h["calibration"]["attempts"][0].update(held=2.0), False),
    "it was not tried": ({"client_holds_level"}, _no_calibration, True),
}  # fmt: skip


@pytest.mark.parametrize("why", BREAKS)
def test_one_host_breaks_its_condition_alone(why: str) -> None:
    names, break_it, unknown = BREAKS[why]
    block = shared()
    break_it(_second(block))
    found = broken(block, on_one_clock(block, table()))
    assert set(found) == names
    assert all(c.about is About.INSTRUMENT for c in found.values())
    assert all((c.ok is None) == unknown for c in found.values())


def test_shares_that_are_not_the_level_are_held_by_nobody() -> None:
    block = shared()
    _second(block)["level"] = LEVEL // 4
    assert broken(block, on_one_clock(block, table()))["client_holds_level"].ok is None


def test_a_host_that_no_entry_names_is_found() -> None:
    block = shared()
    del block["load_hosts"]["load-2"]
    found = broken(block, on_one_clock(block, table()))
    assert "load-2: requests of a host that no entry names" in str(found["load_hosts_whole"].value)


def test_several_clients_of_one_host_are_held_by_it_together() -> None:
    block = shared()
    for said in block["load_hosts"].values():
        said["host_level"] = LEVEL
        said["calibration"]["attempts"][0].update(level=LEVEL, held=float(LEVEL))
    assert broken(block, on_one_clock(block, table())) == {}
    # Tried at the share of one client alone, the host was not tried at what it had to hold.
    _second(block)["calibration"]["attempts"][0].update(level=LEVEL // 2, held=LEVEL / 2)
    found = broken(block, on_one_clock(block, table()))
    assert {name: c.ok for name, c in found.items()} == {"client_holds_level": None}
