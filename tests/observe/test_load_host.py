"""Accelerators, throttling and ports of the load host: read tolerantly, judged by growth."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kvgate.observe.accelerators import (
    TOOLS,
    Tool,
    installed,
    number,
    parse_amd,
    parse_npu,
    parse_nvidia,
    parse_rocm,
)
from kvgate.observe.fabric import fabric_of, read_ports
from kvgate.observe.host import Reading
from kvgate.observe.rows import Rows
from kvgate.observe.sampler import Sampler
from kvgate.observe.throttling import read_cpu_throttling, throttling_of

NVIDIA = """\
index, utilization.gpu [%], memory.used [MiB], temperature.gpu, {power} [W], {reasons}
0, 97 %, 71000 MiB, 61, 402.50 W, 0x0000000000000004
1, 12 %, 900 MiB, 91, [N/A], 0x0000000000000044
2, [N/A], 900 MiB, 40, 70.00 W, [N/A]
"""
AMD = """[{"gpu": 0, "usage": {"gfx_activity": {"value": 3, "unit": "%"}},
 "power": {"socket_power": {"value": 134, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
 "temperature": {"edge": "N/A", "hotspot": {"value": 45, "unit": "C"}},
 "mem_usage": {"used_vram": {"value": 285, "unit": "MB"}}},
 {"gpu": 1, "usage": "N/A", "power": {"socket_power": "N/A", "throttle_status": "THROTTLED"}}]"""
ROCM = """{"card0": {"Temperature (Sensor junction) (C)": "60.0", "GPU use (%)": "99",
 "Current Socket Graphics Package Power (W)": "266.0",
 "VRAM Total Used Memory (B)": "200804560896"},
 "card1": {"Temperature (Sensor edge) (C)": "50.0", "GPU use (%)": "N/A",
 "Average Graphics Package Power (W)": "87.0"}, "system": {"Driver version": "6.14.14"}}"""
NPU = """\
+---------------------------+---------------+--------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)         Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)      |
+===========================+===============+==================================================+
| 0     910B3               | OK            | 90.4        32                0    / 0           |
| 0                         | 0000:C1:00.0  | 11          0    / 0          41697/ 65536       |
+===========================+===============+==================================================+
| 1     Ascend910           | OK            | -           35                0    / 0           |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3395 / 65536       |
+---------------------------+---------------+--------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)    |
| 0       0                 | 3072791       | worker                   | 28170                 |
"""


def table(readings: list[Reading]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for source, name, value in readings:
        found.setdefault(source, {})[name] = value
    return found


@pytest.mark.parametrize("power", ["power.draw", "power.draw.instant", "power.draw.average"])
@pytest.mark.parametrize(
    "reasons", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"]
)
def test_row_68_every_spelling_of_a_driver_is_found_and_n_a_is_missing(
    power: str, reasons: str
) -> None:
    found = table(list(parse_nvidia(NVIDIA.format(power=power, reasons=reasons))))
    assert found["accelerator:0"] == {
        "power_w": 402.5, "used_share": 0.97, "memory_used_bytes": 71000 * 1024**2,
        "temperature_c": 61, "throttled": 0,
    }  # fmt: skip
    assert "power_w" not in found["accelerator:1"] and found["accelerator:1"]["throttled"] == 1
    assert set(found["accelerator:2"]) == {"power_w", "memory_used_bytes", "temperature_c"}


def test_row_68_two_spellings_on_one_page_are_one_figure() -> None:
    text = (
        "index, power.draw.average [W], power.draw.instant [W]\n0, [N/A], 70.5 W\n1, 60 W, 99 W\n"
    )
    found = table(list(parse_nvidia(text)))
    assert [found[f"accelerator:{n}"]["power_w"] for n in (0, 1)] == [70.5, 60]


@pytest.mark.parametrize("told", [AMD, '{"gpu_data": ' + AMD + "}"], ids=["list", "gpu_data"])
def test_amd_smi_is_read_in_both_shapes(told: str) -> None:
    found = table(list(parse_amd(told)))
    assert found["accelerator:0"] == {
        "power_w": 134, "used_share": 0.03, "memory_used_bytes": 285 * 1024**2,
        "temperature_c": 45, "throttled": 0,
    }  # fmt: skip
    assert found["accelerator:1"] == {"throttled": 1}


def test_rocm_smi_and_npu_smi_are_read_and_what_they_do_not_say_is_missing() -> None:
    rocm = table(list(parse_rocm(ROCM)))
    assert rocm["accelerator:0"]["power_w"] == 266 and rocm["accelerator:0"]["used_share"] == 0.99
    assert rocm["accelerator:1"] == {"power_w": 87, "temperature_c": 50}
    npu = table(list(parse_npu(NPU)))
    assert npu == {
        "accelerator:0": {"power_w": 90.4, "temperature_c": 32, "used_share": 0.11,
                          "memory_used_bytes": 41697 * 1024**2},
        "accelerator:1": {"temperature_c": 35, "used_share": 0,
                          "memory_used_bytes": 3395 * 1024**2},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "N/A", "[N/A]", "-", "[Not Supported]", None, True])
def test_what_is_no_figure_is_missing(text: object) -> None:
    assert number(text) is None


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for an older driver's tool, which does not know the newest fields."""
    program = tmp_path / "nvidia-smi"
    answer = NVIDIA.format(power="power.draw", reasons="clocks_throttle_reasons.active")
    program.write_text(
        '#!/bin/sh\ncase "$1" in *event_reasons*) echo "not a valid field"; exit 2;; esac\n'
        f"cat <<'END'\n{answer}END\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return program


def test_row_68_an_older_driver_is_asked_again_in_its_own_words(nvidia: Path) -> None:
    [tool] = [t for t in installed() if t.name == "nvidia-smi"]
    readings, fault = tool.look()
    assert fault is None and table(readings)["accelerator:1"]["throttled"] == 1


def test_a_tool_that_fails_hangs_or_babbles_is_a_note_and_no_error(tmp_path: Path) -> None:
    assert "FileNotFoundError" in (Tool("no-such-tool", ((),), parse_amd).look()[1] or "")
    assert Tool("echo", (("{",),), parse_amd).look()[0] == []
    assert {t.name for t in TOOLS} == {"nvidia-smi", "amd-smi", "rocm-smi", "npu-smi"}


def test_a_blocks_rows_hold_what_the_tools_said(nvidia: Path) -> None:
    sampler = Sampler([], period_s=0.05, timeout_s=1.0)
    with sampler:
        pass
    observation = sampler.stop()
    throttling = throttling_of(observation.host)
    assert (throttling["accelerators"], throttling["accelerators_told"]) == (3, 2)
    assert throttling["throttled_looks"] >= 1 and 0 < throttling["share"] <= 1
    assert set(observation.coverage) == {"host"}


# -- network ports -------------------------------------------------------------------------------


def port(root: Path, **counters: int) -> Path:
    folder = root / "mlx5_0" / "ports" / "1"
    for place in ("counters", "hw_counters"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    for name, value in counters.items():
        place = "counters" if name.startswith("port_") else "hw_counters"
        (folder / place / name).write_text(f"{value}\n")
    return root


def over(root: Path, *looks: dict[str, int]) -> Rows:
    rows = Rows()
    for at, look in enumerate(looks):
        for reading in read_ports(port(root, **look)):
            rows.add(at, *reading)
    return rows


def test_row_67_pauses_count_by_their_growth_although_no_frame_was_dropped(tmp_path: Path) -> None:
    first = {"port_rcv_data": 10**12, "port_xmit_discards": 0, "port_xmit_wait": 9 * 10**15}
    found = fabric_of(over(tmp_path, first, first | {"port_xmit_wait": 9 * 10**15 + 217}))
    assert (found["errors"], found["pauses"]) == (0, 217)
    found = fabric_of(over(tmp_path, first, first))
    assert (found["errors"], found["pauses"], found["rx_bytes"]) == (0, 0, 0)


def test_bytes_received_are_four_times_the_counter(tmp_path: Path) -> None:
    rows = over(tmp_path, {"port_rcv_data": 10**15}, {"port_rcv_data": 10**15 + 250})
    assert fabric_of(rows)["rx_bytes"] == 1000


def test_a_host_without_ports_or_with_a_counter_that_fell_says_nothing(tmp_path: Path) -> None:
    assert fabric_of(Rows()) == {
        "ports": 0, "rx_bytes": None, "errors": None, "pauses": None, "by_counter": {},
    }  # fmt: skip
    assert fabric_of(over(tmp_path, {"out_of_buffer": 5}, {"out_of_buffer": 2}))["errors"] is None


def test_processors_that_were_slowed_are_counted_by_intervals(tmp_path: Path) -> None:
    cpu = tmp_path / "cpu0" / "thermal_throttle"
    cpu.mkdir(parents=True)
    rows = Rows()
    for at, count in enumerate((7, 7, 9, 9)):
        (cpu / "core_throttle_count").write_text(str(count))
        for reading in read_cpu_throttling(tmp_path, tmp_path / "no-cgroup"):
            rows.add(at, *reading)
    assert throttling_of(rows)["share"] == pytest.approx(1 / 3)
    assert throttling_of(Rows())["share"] is None
    # An accelerator whose tool tells its power and not whether it was slowed down.
    rows.add(0, "accelerator:0", "power_w", 300.0)
    found = throttling_of(rows)
    assert (found["accelerators"], found["accelerators_told"]) == (1, 0)
    assert list(read_cpu_throttling(tmp_path / "none", tmp_path / "none")) == []
