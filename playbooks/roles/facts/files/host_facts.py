"""Prints what this host says of itself as one JSON object: files read and commands run, unparsed.

Runs on the host under test with whatever Python 3.6+ it has; changes nothing. A tool that is not
there is recorded with rc null: "not measured", never "fine".
"""

import json
import os
import resource
import shutil
import subprocess
import sys

MAX_BYTES = 200000
COMMANDS = {
    "nvme_list": ["nvme", "list", "-o", "json"],
    "chronyc_tracking": ["chronyc", "-c", "tracking"],
    "rdma_link": ["rdma", "-j", "link"],
    "ip_link": ["ip", "-j", "-s", "link"],
    "amd_smi_list": ["amd-smi", "list", "--json"],
    "npu_smi_list": ["npu-smi", "info", "-l"],
    "nvidia_smi_list": ["nvidia-smi", "-L"],
    "kernel_log_24h": ["journalctl", "-k", "--since", "-24h", "-o", "cat", "--no-pager"],
}

# Drivers of accelerators, network cards and NVMe whose version a change of the host would change.
DRIVERS = [
    "amdgpu",
    "davinci_interface",
    "nvidia",
    "mlx5_core",
    "mlx5_ib",
    "irdma",
    "bnxt_re",
    "nvme",
]


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return None


def run(argv):
    if shutil.which(argv[0]) is None:
        return {"argv": argv, "rc": None, "stdout": None, "stderr": "not installed"}
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"argv": argv, "rc": None, "stdout": None, "stderr": str(error)}
    return {
        "argv": argv,
        "rc": done.returncode,
        "stdout": done.stdout[:MAX_BYTES].decode(errors="replace"),
        "stderr": done.stderr[:2000].decode(errors="replace"),
        "cut_off": len(done.stdout) > MAX_BYTES,
    }


def smart_logs():
    devices = sorted(d for d in os.listdir("/dev") if d.startswith("nvme") and d[4:].isdigit())
    return {d: run(["nvme", "smart-log", "-o", "json", "/dev/" + d]) for d in devices}


def gids(interface):
    """Every GID of every RDMA port that belongs to the interface: index, type, value."""
    root = "/sys/class/infiniband"
    found = []
    for device in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        for port in sorted(os.listdir(f"{root}/{device}/ports")):
            base = f"{root}/{device}/ports/{port}"
            for index in sorted(os.listdir(f"{base}/gids"), key=int):
                netdev = (read(f"{base}/gid_attrs/ndevs/{index}") or "").strip()
                if interface not in ("-", netdev):
                    continue
                found.append(
                    {
                        "device": device,
                        "port": port,
                        "index": int(index),
                        "type": (read(f"{base}/gid_attrs/types/{index}") or "").strip(),
                        "gid": (read(f"{base}/gids/{index}") or "").strip(),
                    }
                )
    return found


def drivers():
    """Version of each loaded driver, else what the kernel calls its source."""
    root = "/sys/module/"
    found = {}
    for name in DRIVERS:
        if os.path.isdir(root + name):
            said = read(root + name + "/version") or read(root + name + "/srcversion") or "built in"
            found[name] = said.strip()
    return found


def link(interface):
    base = f"/sys/class/net/{interface}"
    return {
        name: read(f"{base}/{name}") for name in ("speed", "mtu", "carrier_changes", "operstate")
    }


def main():
    interface = sys.argv[1] if len(sys.argv) > 1 else "-"
    disk = os.statvfs(os.environ.get("TMPDIR", "/tmp"))
    print(
        json.dumps(
            {
                "python_version": "%d.%d" % sys.version_info[:2],
                "cpu_count": len(os.sched_getaffinity(0)),
                "open_files_hard_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
                "disk_free_bytes": disk.f_bavail * disk.f_frsize,
                "files": {
                    "meminfo": read("/proc/meminfo"),
                    "cpuinfo_model": next(
                        (
                            s
                            for s in (read("/proc/cpuinfo") or "").splitlines()
                            if "model name" in s
                        ),
                        None,
                    ),
                    "kernel": read("/proc/sys/kernel/osrelease"),
                    "os_release": read("/etc/os-release"),
                    "dmi_product": read("/sys/class/dmi/id/product_name"),
                    "dmi_serial": read("/sys/class/dmi/id/product_serial"),
                    "dmi_bios": read("/sys/class/dmi/id/bios_version"),
                },
                "drivers": drivers(),
                "interface": interface,
                "link": None if interface == "-" else link(interface),
                "gids": gids(interface),
                "nvme_smart": smart_logs(),
                "commands": {name: run(argv) for name, argv in COMMANDS.items()},
            }
        )
    )


main()
