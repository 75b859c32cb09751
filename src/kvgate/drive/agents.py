"""Agents on hosts of the inventory: what they run is brought there by a play, then spoken to."""

from __future__ import annotations

import hashlib
import itertools
import shlex
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kvgate
from kvgate.drive.channel import Channel
from kvgate.drive.playbooks import Playbooks, PlayResult
from kvgate.errors import CannotMeasure

LOAD_AGENT: Final = "kvgate.load.agent"
HOST_AGENT: Final = "kvgate.observe.agent"
ROOMS: Final = ("load", "observe")
"""Rooms that go to other hosts, with the single modules that they need."""
MODULES: Final = (
    "__init__.py", "errors.py", "record.py", "talk.py",
    "evidence/__init__.py", "evidence/records.py",
)  # fmt: skip
SSH: Final = (
    "ssh", "-T", "-x",
    "-o", "BatchMode=yes",
    "-o", "StrictHostKeyChecking=yes",
    "-o", "ConnectTimeout=3",
    "-o", "ServerAliveInterval=3",
    "-o", "ServerAliveCountMax=2",
    # A master that outlives a cut link would hang whoever comes after it.
    "-o", "ControlMaster=no",
    "-o", "ControlPath=none",
)  # fmt: skip
"""The first value of an option counts: no inventory can switch the check of host keys off."""


def package(folder: Path) -> Path:
    """What agents run, as one archive that Python imports from; named by its contents."""
    root = Path(kvgate.__file__).parent
    names = [*MODULES]
    names += [
        f"{room}/{path.name}" for room in ROOMS for path in sorted((root / room).glob("*.py"))
    ]
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"kvgate-{kvgate.__version__}-{digest.hexdigest()[:16]}.zip"
    half = path.with_suffix(".half")
    with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(f"kvgate/{name}")  # dated 1980: the same bytes everywhere
            archive.writestr(entry, (root / name).read_bytes(), zipfile.ZIP_DEFLATED)
    half.replace(path)
    return path


def ssh_command(login: Mapping[str, Any], module: str) -> list[str]:
    """The command that runs an agent where a login of the role ``load_client`` leads."""
    command = [*SSH, *shlex.split(str(login["ssh_args"]))]
    if login["port"]:
        command += ["-p", str(login["port"])]
    if login["key_file"]:
        command += ["-i", str(Path(str(login["key_file"])).expanduser())]
    if login["user"]:
        command += ["-l", str(login["user"])]
    # Any login shell understands this; PYTHONSAFEPATH keeps the home folder out of the imports.
    run = [
        "env", f"PYTHONPATH={login['archive']}", "PYTHONSAFEPATH=1", "PYTHONDONTWRITEBYTECODE=1",
        str(login["python"]), "-m", module,
    ]  # fmt: skip
    return [*command, "--", str(login["address"]), shlex.join(run)]


class Agents:
    """Opens channels to agents; those of local hosts need no play and no SSH."""

    def __init__(
        self,
        playbooks: Playbooks,
        local_hosts: Sequence[str],
        run_dir: Path,
        on_play: Callable[[PlayResult], None],
    ) -> None:
        self._playbooks = playbooks
        self._local = frozenset(local_hosts)
        self._dir = run_dir / "agents"
        self._on_play = on_play
        self._logins: dict[str, Mapping[str, Any]] = {}
        self._opened = itertools.count()

    def prepare(self, hosts: Sequence[str]) -> None:
        """One play for those of ``hosts`` that are elsewhere; none where all are local.

        Raises CannotMeasure naming a host that cannot be reached or lacks what it needs.
        """
        self._dir.mkdir(parents=True, exist_ok=True)
        remote = tuple(h for h in dict.fromkeys(hosts) if h not in self._local)
        if not remote:
            return
        variables = {
            "kvgate_agent_hosts": list(remote),
            "kvgate_agent_archive": str(package(self._dir).resolve()),
        }
        play = self._playbooks.run("load", variables, hosts=remote)
        self._on_play(play)
        for host in remote:
            login = play.published.get(host, {}).get("kvgate_agent")
            if not isinstance(login, Mapping):
                raise CannotMeasure(
                    f"the role load_client did not tell how to reach {host}",
                    where="playbooks/load.yml",
                    remedy="use the playbooks of this checkout",
                )
            self._logins[host] = login

    def open(self, host: str, module: str) -> Channel:
        """A channel to a new agent. Raises CannotMeasure with the last word of SSH or Python."""
        if host in self._local:
            command = [sys.executable, "-m", module]
        else:
            command = ssh_command(self._logins[host], module)
        return Channel(host, command, self._dir / f"{next(self._opened):05d}-{host}.log")
