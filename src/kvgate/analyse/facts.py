"""Raw facts of a host (files read, commands run) to observed values. Pure.

A tool that is not there, an answer that cannot be read or an unknown shape gives None with the
reason: "not measured", never "fine".
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvgate.analyse.results import Observed
from kvgate.criterion import METRICS
from kvgate.reason import Reason

Facts = Mapping[str, Any]
Reading = tuple[float | str | None, Reason | None]
"""A value, else why there is none."""


def observe_host(host: str, facts: Facts, device: Facts | None) -> Iterator[Observed]:
    """Every fact metric of one host; ``device`` is what the appliance says of itself, if asked."""
    for metric, read in _READERS.items():
        yield _observed(metric, host, *_guarded(read, facts))
    for metric, read in _DEVICE_READERS.items():
        if device is not None:
            yield _observed(metric, host, *_guarded(read, device))
    for metric, read in _DMI.items():
        if device is None:
            yield _observed(metric, host, *_guarded(read, facts))


def _observed(metric: str, host: str, value: float | str | None, cause: Reason | None) -> Observed:
    if isinstance(value, float) and not math.isfinite(value):
        value, cause = None, Reason("not_finite")
    return Observed(metric, host, value, METRICS[metric].unit, cause)


def _guarded(read: Callable[[Facts], Reading], facts: Facts) -> Reading:
    try:
        return read(facts)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        return None, Reason("unreadable", {"said": f"{type(error).__name__} {error}"[:200]})


def _of_key(key: str) -> Callable[[Facts], Reading]:
    def read(facts: Facts) -> Reading:
        found = facts.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float | str) or found == "":
            return None, Reason("fact_missing", {"what": key})
        return (found if isinstance(found, str) else float(found)), None

    return read


def _device_link_rate(facts: Facts) -> Reading:
    value, cause = _of_key("link_gbit_per_s")(facts)
    return (value * 1e9 if isinstance(value, float) else None), cause


def _memory(facts: Facts) -> Reading:
    found = re.search(r"^MemTotal:\s+(\d+) kB", facts["files"]["meminfo"] or "", re.MULTILINE)
    if found is None:
        return None, Reason("fact_missing", {"what": "MemTotal (/proc/meminfo)"})
    return float(found.group(1)) * 1024, None


def _link(name: str, factor: float) -> Callable[[Facts], Reading]:
    def read(facts: Facts) -> Reading:
        link = facts["link"]
        if link is None:
            return None, Reason("no_interface")
        number = float(link[name])
        if number < 0:
            return None, Reason("fact_negative", {"what": name, "found": f"{number:g}"})
        return number * factor, None

    return read


def _flaps(facts: Facts) -> Reading:
    value, cause = _link("carrier_changes", 1)(facts)
    return (max(0.0, value - 2) if isinstance(value, float) else None), cause


def _command(facts: Facts, name: str) -> tuple[str | None, Reason | None]:
    said = facts["commands"][name]
    rc, told = said["rc"], str(said["stderr"] or "–").strip()[:100]
    if rc is None:
        return None, Reason("tool_silent", {"tool": said["argv"][0], "said": told})
    if rc != 0:
        return None, Reason("tool_failed", {"tool": said["argv"][0], "rc": rc, "said": told})
    if said["cut_off"]:
        return None, Reason("tool_cut_off", {"tool": said["argv"][0]})
    return said["stdout"], None


def _nvme_count(facts: Facts) -> Reading:
    text, why = _command(facts, "nvme_list")
    if text is None:
        return None, why
    devices = json.loads(text).get("Devices")
    return (
        (float(len(devices)), None) if isinstance(devices, list) else (None, Reason("no_nvme_list"))
    )


def _nvme_warnings(facts: Facts) -> Reading:
    logs = facts["nvme_smart"]
    if not logs:
        return None, Reason("no_nvme")
    total = 0
    for device, said in sorted(logs.items()):
        if said["rc"] is None or not said["stdout"]:
            told = str(said["stderr"] or "–").strip()[:100]
            return None, Reason("tool_silent", {"tool": f"nvme {device}", "said": told})
        warning = json.loads(said["stdout"])["critical_warning"]
        # nvme-cli gives the bit field as a number or, since 2.0, as an object with its value.
        total += int(warning["value"] if isinstance(warning, dict) else warning)
    return float(total), None


def _gid(facts: Facts) -> Reading:
    """Index of a routable IPv4-mapped RoCE v2 GID, the lowest one."""
    if facts["link"] is None:
        # Any other card's GID would speak for the one under test.
        return None, Reason("no_interface")
    for entry in facts["gids"]:
        if entry["type"] != "RoCE v2" or not entry["gid"]:
            continue
        mapped = ipaddress.IPv6Address(entry["gid"]).ipv4_mapped
        if mapped is not None and not mapped.is_link_local:
            return str(entry["index"]), None
    return None, Reason("no_gid") if facts["gids"] else Reason("no_rdma")


def _clock_offset(facts: Facts) -> Reading:
    """``chronyc -c tracking``: field 5 is the system time's offset from NTP in seconds."""
    text, why = _command(facts, "chronyc_tracking")
    return (None, why) if text is None else (abs(float(text.strip().split(",")[4])), None)


_GPU_COUNTS: Mapping[str, Callable[[str], int]] = {
    "amd_smi_list": lambda text: _amd_gpus(json.loads(text)),
    "npu_smi_list": lambda text: len(re.findall(r"^\s*NPU ID\s*:", text, re.MULTILINE)),
    "nvidia_smi_list": lambda text: len(re.findall(r"^GPU \d+:", text, re.MULTILINE)),
}


def _amd_gpus(said: Any) -> int:
    """amd-smi lists GPUs bare or, in newer releases, under ``gpu_data``."""
    gpus = said["gpu_data"] if isinstance(said, dict) else said
    if not isinstance(gpus, list):
        raise TypeError("no list of GPUs")
    return len(gpus)


def _gpus(facts: Facts) -> Reading:
    for name, count in _GPU_COUNTS.items():
        text, _ = _command(facts, name)
        if text is not None:
            return float(count(text)), None
    return None, Reason("no_gpu_tool")


_KERNEL_ERROR = re.compile(r"mce:|Machine Check|AER:|I/O error|Hardware Error", re.IGNORECASE)


def _kernel_errors(facts: Facts) -> Reading:
    text, why = _command(facts, "kernel_log_24h")
    if text is None:
        return None, why
    # journalctl's own remarks ("-- No entries --") are no lines of the kernel.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("-- ")]
    if not lines:
        return None, Reason("kernel_log_empty")
    return float(sum(1 for line in lines if _KERNEL_ERROR.search(line))), None


def _dmi(name: str) -> Callable[[Facts], Reading]:
    def read(facts: Facts) -> Reading:
        text = (facts["files"][name] or "").strip()
        return (text, None) if text else (None, Reason("needs_root", {"what": name}))

    return read


_READERS: Mapping[str, Callable[[Facts], Reading]] = {
    "cpu_count": _of_key("cpu_count"),
    "memory": _memory,
    "disk_free": _of_key("disk_free_bytes"),
    "open_files_limit": _of_key("open_files_hard_limit"),
    "python_version": _of_key("python_version"),
    "kernel_errors_24h": _kernel_errors,
    "link_rate": _link("speed", 1e6),
    "link_mtu": _link("mtu", 1),
    "link_flaps": _flaps,
    "rocev2_gid": _gid,
    "nvme_count": _nvme_count,
    "nvme_critical_warning": _nvme_warnings,
    "gpu_count": _gpus,
    "clock_offset": _clock_offset,
}
_DEVICE: Mapping[str, str] = {
    "device_model": "model",
    "device_serial": "serial",
    "device_firmware": "firmware",
    "device_capacity": "capacity_bytes",
}
_DEVICE_READERS: Mapping[str, Callable[[Facts], Reading]] = {
    **{metric: _of_key(key) for metric, key in _DEVICE.items()},
    "device_link_rate": _device_link_rate,
}
_DMI: Mapping[str, Callable[[Facts], Reading]] = {
    "device_model": _dmi("dmi_product"),
    "device_serial": _dmi("dmi_serial"),
    "device_firmware": _dmi("dmi_bios"),
}
