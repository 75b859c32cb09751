"""What a host said of itself becomes a value, or "not measured" with the reason; never a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvgate.analyse.facts import observe_host


def command(stdout: str = "", rc: int | None = 0, *, cut_off: bool = False) -> dict[str, Any]:
    return {"argv": ["tool"], "rc": rc, "stdout": stdout, "stderr": "no", "cut_off": cut_off}


def value(metric: str, **commands: dict[str, Any]) -> tuple[float | str | None, str]:
    absent = ("nvme_list", "chronyc_tracking", "amd_smi_list", "npu_smi_list", "nvidia_smi_list",
              "kernel_log_24h")  # fmt: skip
    facts = {"commands": {name: command(rc=None) for name in absent} | commands, "files": {}}
    found = {o.metric: o for o in observe_host("h", facts, None)}[metric]
    return found.value, "" if found.cause is None else found.cause.text()


LOG = "usb 1-1: new device\nmce: [Hardware Error]: Machine check\nnvme0: I/O error, dev nvme0n1\n"


@pytest.mark.parametrize("said, expected", [
    (command(LOG), 2.0),
    (command("usb 1-1: new device\n"), 0.0),
    (command("-- Logs begin --\nusb 1-1: new device\n"), 0.0),
    (command("-- No entries --\n"), None),
    (command(""), None),
    (command(LOG, cut_off=True), None),
    (command(LOG, rc=1), None),
    (command(rc=None), None),
    ({"rc": 0}, None),
])  # fmt: skip
def test_errors_of_the_kernel_are_counted_only_in_a_whole_log(
    said: dict[str, Any], expected: float | None
) -> None:
    found, detail = value("kernel_errors_24h", kernel_log_24h=said)
    assert found == expected
    assert detail or expected is not None


@pytest.mark.parametrize("tool, text, expected", [
    ("amd_smi_list", json.dumps([{"gpu": 0}, {"gpu": 1}]), 2.0),
    ("amd_smi_list", json.dumps({"gpu_data": [{"gpu": 0}, {"gpu": 1}]}), 2.0),
    ("amd_smi_list", json.dumps({"error": "no driver"}), None),
    ("npu_smi_list", "  NPU ID : 0\n  NPU ID : 1\n  NPU ID : 2\n", 3.0),
    ("nvidia_smi_list", "GPU 0: NVIDIA H200 (UUID: x)\nGPU 1: NVIDIA H200 (UUID: y)\n", 2.0),
])  # fmt: skip
def test_accelerators_are_counted_in_the_shapes_that_tools_write(
    tool: str, text: str, expected: float | None
) -> None:
    assert value("gpu_count", **{tool: command(text)})[0] == expected


def test_a_host_that_has_no_tool_is_not_measured() -> None:
    found, detail = value("gpu_count")
    assert found is None
    assert "answered" in detail


@pytest.mark.parametrize("named, expected", [(True, "3"), (False, None)])
def test_a_gid_speaks_only_for_the_interface_that_was_named(
    named: bool, expected: str | None
) -> None:
    gid = {"device": "mlx5_7", "port": "1", "index": 3, "type": "RoCE v2",
           "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001"}  # fmt: skip
    link: dict[str, Any] | None = {} if named else None
    facts = {"commands": {}, "files": {}, "gids": [gid], "link": link}
    found = {o.metric: o for o in observe_host("h", facts, None)}["rocev2_gid"]
    assert found.value == expected
    assert (found.cause is None) is named
