"""How a block is shared out over hosts and engines: pure."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.conduct.elsewhere import group_here, grown_together, is_driven_here, observed_hosts
from kvgate.conduct.load_hosts import shares_of
from kvgate.inventory import Inventory
from kvgate.load.job import Closed, Job, Prompts
from kvgate.load.offsets import ClockOffset, RoundTrip, estimate_offset, over_block
from kvgate.load.parts import shard_job
from kvgate.observe.rows import Rows

HOSTS = tuple(f"load-{i}" for i in range(1, 9))


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 200), st.integers(1, 6))
def test_nothing_is_lost_doubled_or_uneven(
    hosts: int, engines: int, level: int, rounds: int
) -> None:
    requests = level * rounds
    shares = shares_of(HOSTS[:hosts], engines, level, requests)
    names = [share.name for share in shares]
    assert len(set(names)) == len(names)
    assert sum(share.level for share in shares) == level
    used = {share.host for share in shares}
    assert len(shares) % engines == 0, "every engine has as many clients"
    assert len({sum(s.host == host for s in shares) for host in used}) == 1
    for host in used:
        streams = sum(s.level for s in shares if s.host == host)
        assert {s.host_level for s in shares if s.host == host} == {streams}
    if len(shares) <= min(level, requests):
        job = Job(
            url="http://e0", urls=tuple(f"http://e{i}" for i in range(engines)), model="m",
            arrival=Closed(level), prompts=Prompts(seed="s", pool="p", count=requests, tokens=8),
            output_tokens=4, request_deadline_s=1.0, block_deadline_s=1.0, records_path="r",
            report_path="c", load_host="h", request_id_prefix="b",
        )  # fmt: skip
        if engines == 1:
            job = msgspec.structs.replace(job, urls=())
        parts = [shard_job(job, i, len(shares), "f") for i in range(len(shares))]
        assert [p.level for p in parts] == [s.level for s in shares]
        assert sum(p.requests for p in parts) == requests
        assert len({sum(p.url == url for p in parts) for url in {p.url for p in parts}}) == 1


def test_a_block_smaller_than_the_hosts_leaves_the_last_ones_out() -> None:
    assert [s.name for s in shares_of(HOSTS[:3], 1, 2, 48)] == ["load-1", "load-2"]
    assert [s.name for s in shares_of(HOSTS[:3], 1, 8, 1)] == ["load-1"]


def test_two_engines_and_three_hosts_are_six_clients() -> None:
    shares = shares_of(HOSTS[:3], 2, 12, 72)
    assert [s.name for s in shares][:3] == ["load-1/0", "load-1/1", "load-2/0"]
    assert len(shares) == math.lcm(3, 2)


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=9),
)
def test_the_true_offset_lies_in_what_is_estimated(
    true: int, delays: list[tuple[int, int]]
) -> None:
    trips, now = [], 0
    for there, back in delays:
        trips.append(RoundTrip(now, now + there + true, now + there + back))
        now += there + back + 1
    found = estimate_offset(trips)
    assert found.agreed
    assert abs(found.offset_ns - true) <= found.uncertainty_ns
    assert 2 * found.uncertainty_ns <= min(a + b for a, b in delays) + 1


@given(*[st.integers(-(10**12), 10**12) for _ in range(2)], *[st.integers(0, 10**9)] * 2)
def test_over_a_block_both_ends_and_what_lies_between_are_covered(
    before: int, after: int, sure: int, unsure: int
) -> None:
    ends = [
        ClockOffset(offset_ns=at, uncertainty_ns=by, round_trips=1, agreed=True)
        for at, by in ((before, sure), (after, unsure))
    ]
    found = over_block(*ends)
    for end in ends:
        assert found.offset_ns - found.uncertainty_ns <= end.offset_ns - end.uncertainty_ns
        assert found.offset_ns + found.uncertainty_ns >= end.offset_ns + end.uncertainty_ns


def place(local: tuple[str, ...], **groups: tuple[str, ...]) -> Inventory:
    return Inventory(
        path="made-up", hosts={"appliances": ("a",), **groups}, local_hosts=local, rehearsal=True,
        contract="quick", engine_role="rehearsal_engine", engine_host="127.0.0.1", engine_port=1,
    )  # fmt: skip


@pytest.mark.parametrize("local, groups, alone, observed", [
    (("c", "e"), {"engines": ("e",), "load_clients": ("c",)}, True, {}),
    (("c",), {"engines": ("e",), "load_clients": ("c",)}, True, {"e": "engines"}),
    (("c",), {"engines": ("e",), "load_clients": ("c", "d")}, False,
     {"e": "engines", "d": "load_clients"}),
    ((), {"engines": ("e",), "load_clients": ("e",)}, False, {"e": "engines"}),
])  # fmt: skip
def test_who_drives_and_who_is_observed(
    local: tuple[str, ...],
    groups: dict[str, tuple[str, ...]],
    alone: bool,
    observed: dict[str, str],
) -> None:
    made = place(local, **groups)
    assert is_driven_here(made) is alone
    assert observed_hosts(made) == observed


@pytest.mark.parametrize("local, group", [
    (("e1",), "engines"), (("c",), "load_clients"), (("c", "e2"), "engines"), ((), None),
    (("elsewhere",), None),
])  # fmt: skip
def test_a_block_says_what_this_machine_is_in_it(local: tuple[str, ...], group: str | None) -> None:
    assert group_here(place(local, engines=("e1", "e2"), load_clients=("c",))) == group


def port(*values: float) -> Rows:
    rows = Rows()
    for t_ns, value in enumerate(values):
        rows.add(t_ns, "rdma:mlx5_0/1", "rx_bytes", value)
    return rows


def test_bytes_over_all_engine_hosts_are_known_only_where_each_host_tells() -> None:
    def grown(*hosts: Rows) -> float | None:
        return grown_together(hosts, "rx_bytes", lambda rows: rows.sources())

    assert grown(port(5.0, 25.0), port(0.0, 7.0)) == 27.0
    assert grown(port(5.0, 25.0), port(0.0)) is None
    assert grown(port(5.0, 25.0), Rows()) is None
    assert grown(port(5.0, 25.0), port(9.0, 0.0, 99.0)) is None, "a driver that began anew"
    assert grown() is None
