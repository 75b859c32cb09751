"""Two SSH servers on 127.0.0.11 and 127.0.0.12 with host keys of their own, and their inventory."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvgate.drive.descendants import below, end, only

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
ADDRESSES = {"load-1": "127.0.0.11", "load-2": "127.0.0.12"}
UP_S = 10.0


@dataclass
class Lab:
    """The servers by host, each with its pid and port; ``inventory`` is Ansible's folder."""

    root: Path
    ports: dict[str, int] = field(default_factory=dict)
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def inventory(self) -> Path:
        return self.root / "inventory"

    @property
    def known_hosts(self) -> Path:
        return self.inventory / "known_hosts"

    def start(self, host: str) -> None:
        """Start a host's server on the port that it has; returns once it answers."""
        address, port, folder = ADDRESSES[host], self.ports[host], self.root / host
        (folder / "sshd_config").write_text(
            f"ListenAddress {address}\nPort {port}\nHostKey {folder / 'host_key'}\n"
            f"AuthorizedKeysFile {self.root / 'authorized_keys'}\nPidFile none\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        assert SSHD is not None
        with (folder / "sshd.log").open("ab") as log:
            self.servers[host] = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until = time.monotonic() + UP_S
        while not _answers(address, port):
            said = (folder / "sshd.log").read_text()
            assert self.servers[host].poll() is None and time.monotonic() < until, said
            time.sleep(0.02)

    def kill(self, host: str) -> None:
        """What a power cut does: the server and every session of it are gone at once."""
        server = self.servers.pop(host)
        sessions = below(server.pid)
        server.kill()
        server.wait()
        end(sessions)

    def stop(self) -> None:
        for host in list(self.servers):
            server = self.servers.pop(host)
            end((*below(server.pid), *only(server.pid)))
            server.wait()

    def write_inventory(self, text: str) -> None:
        (self.inventory / "hosts.yml").write_text(text)


def _answers(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as listener:
        found: int = listener.getsockname()[1]
        return found


def _keygen(path: Path) -> str:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True
    )
    return path.with_suffix(".pub").read_text().strip()


@contextmanager
def lab(root: Path) -> Iterator[Lab]:
    """Both servers up; each is ended by its own pid, whatever happens."""
    found = Lab(root)
    found.inventory.mkdir(parents=True)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd gives its rights up
    (root / "authorized_keys").write_text(_keygen(root / "id") + "\n")
    known = []
    for host, address in ADDRESSES.items():
        (root / host).mkdir()
        found.ports[host] = _free_port(address)
        known.append(f"[{address}]:{found.ports[host]} {_keygen(root / host / 'host_key')}")
    found.known_hosts.write_text("\n".join(known) + "\n")
    try:
        for host in ADDRESSES:
            found.start(host)
        yield found
    finally:
        found.stop()


def hosts_yml(found: Lab, groups: Mapping[str, Mapping[str, str]]) -> str:
    """An inventory: group -> host -> the server that it is on; ``""`` is this machine."""
    lines = ["all:", "  children:"]
    for group, hosts in groups.items():
        lines += [f"    {group}:", "      hosts:"]
        for host, server in hosts.items():
            if not server:
                lines += [f"        {host}: {{ansible_connection: local}}"]
                continue
            lines += [f"        {host}:", f"          ansible_host: {ADDRESSES[server]}",
                      f"          ansible_port: {found.ports[server]}"]  # fmt: skip
    lines += [
        "  vars:",
        f"    ansible_user: {getpass.getuser()}",
        f"    ansible_ssh_private_key_file: {found.root / 'id'}",
        "    ansible_ssh_common_args: >-",
        "      -o StrictHostKeyChecking=yes",
        "      -o UserKnownHostsFile={{ inventory_dir }}/known_hosts",
        "      -o IdentitiesOnly=yes",
        f"    ansible_python_interpreter: {sys.executable}",
    ]
    return "\n".join(lines) + "\n"
