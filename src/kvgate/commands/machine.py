"""doctor, faults: is this machine ready, and what can a rehearsal play."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.commands.shown import document, say
from kvgate.errors import EXIT_INVALID, EXIT_PASS, KvgateError

if TYPE_CHECKING:
    from kvgate.inventory import Inventory

OPEN_FILES_WANTED = 1024
OLDEST_PYTHON = (3, 11)
ANSIBLE_TIMEOUT_S = 60
REACH_S = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: what was looked at, what is there, and the remedy if it is not ok."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def doctor_command(
    inventory: Annotated[Path, typer.Option(help="Inventory whose ports must be free.")] = Path(
        "inventories/rehearsal"
    ),
    campaigns: Annotated[Path, typer.Option(help="Where campaigns are kept.")] = Path(
        "var/campaigns"
    ),
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check this machine before a gate is run. Exit code 0 when all is there, else 11."""
    checks = list(examine(inventory, campaigns))
    ok = all(check.ok for check in checks)
    if json_output:
        document({"ok": ok, "checks": checks})
    else:
        for check in checks:
            remedy = f" -- {check.remedy}" if check.remedy and not check.ok else ""
            say(f"{'ok' if check.ok else 'missing':8}{check.name}: {check.found}{remedy}")
    raise typer.Exit(EXIT_PASS if ok else EXIT_INVALID)


def examine(inventory: Path, campaigns: Path) -> Iterator[Check]:
    """Every check, in the order in which they are printed; none of them changes anything."""
    yield _python()
    yield _libraries()
    yield _open_files()
    yield _disk(campaigns)
    yield _tool("ansible-playbook", "install the distribution's requirements into this venv")
    yield _tool("ssh-keygen", "install the OpenSSH client; signatures need it")
    yield from _ports(inventory)


def _python() -> Check:
    found = ".".join(str(n) for n in sys.version_info[:3])
    wanted = ".".join(str(n) for n in OLDEST_PYTHON)
    return Check("Python", sys.version_info >= OLDEST_PYTHON, found, f"use {wanted} or newer")


def _libraries() -> Check:
    from kvgate.report.system import install_command, missing_system_libraries

    missing = missing_system_libraries()
    found = f"{', '.join(missing)} cannot be loaded" if missing else "all that a PDF needs"
    return Check("system libraries", not missing, found, install_command(missing))


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    shown = "unlimited" if unlimited else str(hard)
    return Check(
        "open files",
        unlimited or hard >= OPEN_FILES_WANTED,
        f"{soft} now, {shown} at most",
        f"raise the hard limit to {OPEN_FILES_WANTED} or more (limits.conf, or ulimit -Hn)",
    )


def _disk(campaigns: Path) -> Check:
    from kvgate.conduct.gate import FREE_BYTES_AT_START

    place = campaigns.resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    return Check(
        "free disk",
        free >= FREE_BYTES_AT_START and os.access(place, os.W_OK),
        f"{free / 1e9:.1f} GB in {place}" + ("" if os.access(place, os.W_OK) else ", not writable"),
        f"free {FREE_BYTES_AT_START / 1e6:.0f} MB there, or keep campaigns elsewhere (--campaigns)",
    )


def _tool(name: str, remedy: str) -> Check:
    """That a program starts; beside the interpreter first, since a venv need not be on the PATH."""
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        return Check(name, False, "not found", remedy)
    if not beside.exists():
        return Check(name, True, path)
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=ANSIBLE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, False, str(error), remedy)
    said = (done.stdout or done.stderr).strip().splitlines() or ["no output"]
    return Check(name, done.returncode == 0, said[0 if done.returncode == 0 else -1], remedy)


def _ports(path: Path) -> Iterator[Check]:
    """The ports of an inventory that runs on this machine; remote engines' are theirs to check."""
    from kvgate.drive.playbooks import list_inventory
    from kvgate.inventory import inventory_from

    try:
        inventory = inventory_from(list_inventory(path), path=str(path))
    except KvgateError as fault:
        yield Check("inventory", False, str(fault), "run in the checkout, or name --inventory DIR")
        return
    yield Check("inventory", True, f"{path}, {len(inventory.all_hosts)} hosts")
    remote = [host for host in inventory.all_hosts if host not in inventory.local_hosts]
    if remote:
        ssh = shutil.which("ssh")
        yield Check(
            "ssh",
            ssh is not None,
            f"{ssh or 'not found'}, for {', '.join(remote)}",
            "install the OpenSSH client; the other hosts are reached by it",
        )
    yield from way_to_engines(inventory)
    if not set(inventory.group("engines")) <= set(inventory.local_hosts):
        return
    for port in sorted(
        {inventory.engine_port, *inventory.engine_ports, *inventory.store_ports.values()}
    ):
        free = _is_free(inventory.engine_host, port)
        yield Check(
            f"port {port}",
            free,
            "free" if free else "in use",
            f"see who holds it: ss -ltnp 'sport = :{port}'; another rehearsal may be running",
        )


def way_to_engines(inventory: Inventory) -> Iterator[Check]:
    """Load that comes from elsewhere leaves priming, warm-up and metrics to this machine, which
    must reach the engines itself. A refusal is an answer: no arm is up before a gate."""
    local = set(inventory.local_hosts)
    if set(inventory.group("load_clients")) <= local and set(inventory.group("engines")) <= local:
        return
    for port in inventory.engine_ports or (inventory.engine_port,):
        fault = _unreachable(inventory.engine_host, port)
        yield Check(
            f"way to http://{inventory.engine_host}:{port}",
            fault is None,
            f"{fault or 'reached'}; priming and warm-up are sent from this machine, whoever sends "
            "the load",
            "let this machine reach the engine's host: check kvgate_engine_host, routes, firewalls",
        )


def _unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), REACH_S).close()
    except ConnectionRefusedError:
        return None
    except OSError as error:
        return str(error) or type(error).__name__
    return None


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def faults_command(
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """The faults that a rehearsal can play, and the verdict that each should lead to."""
    from kvgate.rehearsal.faults import KNOWN_FAULTS

    if json_output:
        document(
            {
                name: {"default": value, "arms": arms, "effect": effect, "leads_to": verdict}
                for name, (value, arms, effect, verdict) in KNOWN_FAULTS.items()
            }
        )
        return
    say("pytest -m gate3 --fault NAME[=VALUE][@ARM[+ARM]]")
    say()
    for name, (value, arms, effect, verdict) in KNOWN_FAULTS.items():
        say(f"{name}={value:g}@{'+'.join(arms)}")
        for label, said in (("effect", effect), ("leads to", verdict)):
            first = f"    {label:<8}  "
            for line in textwrap.wrap(first + said, 80, subsequent_indent=" " * 14):
                say(line)
