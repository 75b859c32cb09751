"""Pause frames by priority, from what drivers print; and the program asked as a host has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.observe.fabric import fabric_of
from kvgate.observe.pauses import Ethtool, is_pause, parse_ethtool
from kvgate.observe.rows import Rows

MLX5 = """NIC statistics:
     rx_packets: 120034
     rx_prio3_bytes: 998877
     rx_prio3_pause: 17
     rx_prio3_pause_duration: 4021
     tx_prio3_pause: 5
     rx_prio3_pause_transition: 8
     tx_pause_storm_warning_events: 1
     rx_pause_ctrl_phy: 17
"""
BNXT = """NIC statistics:
     [0]: rx_ucast_packets: 12
     rx_pfc_ena_frames_pri3: 9
     tx_pfc_ena_frames_pri3: 0
     pfc_pri3_rx_duration_us: 77
"""
ICE = """NIC statistics:
     rx_priority_3_xoff.nic: 4
     tx_priority_3_xon.nic: 2
     rx_bytes.nic: 7
"""
HNS3 = """NIC statistics:
     mac_rx_pfc_pri3_pkt_num: 6
     mac_tx_pause_xoff_time: not a number
"""


@pytest.mark.parametrize("text, found", [
    (MLX5, {"rx_prio3_pause": 17, "tx_prio3_pause": 5, "rx_pause_ctrl_phy": 17}),
    (BNXT, {"rx_pfc_ena_frames_pri3": 9, "tx_pfc_ena_frames_pri3": 0}),
    (ICE, {"rx_priority_3_xoff.nic": 4, "tx_priority_3_xon.nic": 2}),
    (HNS3, {"mac_rx_pfc_pri3_pkt_num": 6}),
    ("no stats available\n", {}),
])  # fmt: skip
def test_pauses_by_priority_are_read_and_nothing_else_is(text: str, found: dict[str, int]) -> None:
    readings = list(parse_ethtool(text, "rdma:mlx5_0/1"))
    assert {name: value for _, name, value in readings} == found
    assert {source for source, _, _ in readings} <= {"rdma:mlx5_0/1"}


def test_how_long_a_pause_lasted_is_no_pause() -> None:
    assert not is_pause("rx_prio3_pause_duration")


def test_pauses_of_a_priority_count_as_pauses_of_the_fabric() -> None:
    rows = Rows()
    for t_ns, value in ((0, 17.0), (1, 20.0)):
        rows.add(t_ns, "rdma:mlx5_0/1", "rx_prio3_pause", value)
    assert fabric_of(rows)["pauses"] == 3


def test_the_interface_behind_each_port_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = tmp_path / "infiniband"
    (ports / "mlx5_0" / "ports" / "1").mkdir(parents=True)
    (ports / "mlx5_0" / "device" / "net" / "enp1s0").mkdir(parents=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    program = tools / "ethtool"
    program.write_text('#!/bin/sh\n[ "$2" = enp1s0 ] || exit 1\necho "  rx_prio3_pause: 3"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    asked = Ethtool.of_host(ports)
    assert asked is not None
    assert asked.look() == ([("rdma:mlx5_0/1", "rx_prio3_pause", 3.0)], None)
    broken = Ethtool(str(program), {"rdma:x/1": "gone"})
    readings, fault = broken.look()
    assert readings == []
    assert fault is not None and "gone" in fault
    assert Ethtool.of_host(tmp_path / "none") is None
