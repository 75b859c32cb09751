"""What an arm of the real engine is made of: programs, flags, ports, environment."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ARMS = ("recompute", "appliance")
HOST = "127.0.0.1"
MODEL_NAME = "kvgate-real"
MODEL_STAMP = "kvgate-model.json"
INSTALL_STAMP = "kvgate-real-engine.json"
# Flags that this module sets itself: a second value would contradict what the evidence records.
OWN_ENGINE_FLAGS = ("--model", "--host", "--port", "--served-model-name", "--kv-transfer-config")
OWN_STORE_FLAGS = (
    *("--host", "--port", "--http-host", "--http-port", "--prometheus-port", "--l2-adapter"),
    *("--shm-name", "--l1-size-gb", "--l1-init-size-gb", "--l1-use-lazy", "--no-l1-use-lazy"),
)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own place for named shared memory
SHARED_MEMORY_AT_LEAST = 768 << 20  # the DRAM tier and what vLLM's processes share
# Far below what any plan restores, so that DRAM cannot stand in for the folder.
DRAM_TIER_GB = 0.25
FILE_NAME_BYTES = 255  # what Linux file systems allow
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class Fault(Exception):  # noqa: N818 - the word that the rest of the house uses
    """Could not start, cool or describe the engine: what, where, remedy, in one line."""

    def __init__(
        self, message: str, *, where: str = "", remedy: str = "", is_usage: bool = False
    ) -> None:
        super().__init__(message)
        self.message, self.where, self.remedy = message, where, remedy
        self.is_usage = is_usage

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" -- {self.remedy}" if self.remedy else ""
        return " ".join(f"{place}{self.message}{remedy}".split())


@dataclass(frozen=True, slots=True)
class Settings:
    """One arm on this host. Ports are TCP ports on 127.0.0.1; ``queue_port`` (engine to store) and
    ``exporter_port`` (the store's metrics once more; it cannot be turned off) are found free at
    start. ``adapter`` is merged over LMCache's own description of the folder tier."""

    arm: str
    run_dir: Path
    home: Path
    store_dir: Path
    engine_port: int
    store_port: int
    queue_port: int
    exporter_port: int
    engine_args: tuple[str, ...]
    store_args: tuple[str, ...]
    adapter: str
    deadline_s: float
    cold_deadline_s: float

    @property
    def has_store(self) -> bool:
        return self.arm == "appliance"

    @property
    def servers(self) -> tuple[str, ...]:
        return ("lmcache", "vllm") if self.has_store else ("vllm",)

    @property
    def engine_url(self) -> str:
        return f"http://{HOST}:{self.engine_port}"

    @property
    def store_url(self) -> str:
        return f"http://{HOST}:{self.store_port}"

    @property
    def shm_name(self) -> str:
        return f"kvgate-{self.store_port}"

    @property
    def shm_file(self) -> Path:
        """The store's segment; it stays behind when the store had to be killed."""
        return SHARED_MEMORY / f"lmcache_l1_pool_{self.shm_name}"

    @property
    def model(self) -> Path:
        return self.home / "model"

    @property
    def chunk_name_bytes(self) -> int:
        """Length of a chunk's file name: the model's path with ``-SEP-`` for each slash, then rank,
        group, digest and ending. A longer one could not be written, and nothing would say so."""
        return len(str(self.model).replace("/", "-SEP-").encode()) + 100

    @property
    def venv(self) -> Path:
        return self.home / "venv"

    @classmethod
    def from_arguments(cls, given: argparse.Namespace, run_dir: Path) -> Settings:
        queue_port, exporter_port = free_ports(2, but={given.engine_port, given.store_port})
        return cls(
            arm=given.arm,
            run_dir=run_dir,
            home=given.home.resolve(),
            store_dir=(given.store_dir or run_dir / "store").resolve(),
            engine_port=given.engine_port,
            store_port=given.store_port,
            queue_port=queue_port,
            exporter_port=exporter_port,
            engine_args=json_strings(given.engine_args, "--engine-args"),
            store_args=json_strings(given.store_args, "--store-args"),
            adapter=json.dumps(json_object(given.store_adapter, "--store-adapter"), sort_keys=True),
            deadline_s=given.deadline_s,
            cold_deadline_s=given.cold_deadline_s,
        )

    def as_json(self) -> dict[str, object]:
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, content: dict[str, object]) -> Settings:
        """Raises KeyError, TypeError or ValueError when ``content`` is not what was written."""
        values: dict[str, object] = {}
        for field in fields(cls):
            value = content[field.name]
            if field.type == "Path":
                value = Path(str(value))
            elif isinstance(value, list):
                value = tuple(str(item) for item in value)
            values[field.name] = value
        return cls(**values)  # type: ignore[arg-type]  # names and kinds come from our own file

    def check_ports(self) -> None:
        wanted = {"engine": self.engine_port}
        if self.has_store:
            wanted["store"] = self.store_port
        for what, port in wanted.items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise Fault(
                        f"port {port} for the {what} cannot be had ({error.strerror})",
                        where=f"{HOST}:{port}",
                        remedy=f"end what listens there or choose another kvgate_{what}_port",
                    ) from error

    def store_command(self) -> list[str]:
        adapter = {"type": "fs_native", "base_path": str(self.store_dir)}
        adapter |= json.loads(self.adapter)
        return [
            *(str(self.venv / "bin" / "lmcache"), "server"),
            *("--host", HOST, "--port", str(self.queue_port)),
            *("--http-host", HOST, "--http-port", str(self.store_port)),
            *("--prometheus-port", str(self.exporter_port)),
            # KV travels through shared memory: pickled over the queue, restores are 3 times slower.
            *("--shm-name", self.shm_name, "--no-l1-use-lazy"),
            *("--l1-size-gb", str(DRAM_TIER_GB)),
            *("--l2-adapter", json.dumps(adapter, sort_keys=True)),
            *self.store_args,
        ]

    def engine_command(self) -> list[str]:
        command = [
            *(str(self.venv / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(self.model), "--served-model-name", MODEL_NAME),
            *("--host", HOST, "--port", str(self.engine_port)),
            *self.engine_args,
        ]
        if self.has_store:
            command += ["--kv-transfer-config", json.dumps(self.connector(), sort_keys=True)]
        return command

    def connector(self) -> dict[str, object]:
        # Not LMCacheConnectorV1: without a GPU it serves in a silent "degraded mode". A short
        # heartbeat lets the engine notice a lost store in seconds.
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": f"tcp://{HOST}",
                "lmcache.mp.port": self.queue_port,
                "lmcache.mp.mq_timeout": 10,
                "lmcache.mp.heartbeat_interval": 2,
            },
        }

    def environment(self) -> dict[str, str]:
        """A small, known environment: nothing of the user's home, no hub, no telemetry."""
        home = str(self.run_dir / "home")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in INHERITED or name.startswith("OPENBLAS_")
        }
        return kept | {
            "HOME": home,
            "XDG_CACHE_HOME": f"{home}/.cache",
            "XDG_CONFIG_HOME": f"{home}/.config",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "LMCACHE_TRACK_USAGE": "false",
            "LMCACHE_DISABLE_BANNER": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # brings /reset_prefix_cache
            "VLLM_HOST_IP": HOST,
            "GLOO_SOCKET_IFNAME": "lo",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "2",
            # The same chunk must have the same name in every process and after every restart.
            "PYTHONHASHSEED": "0",
        }

    def identity(self) -> dict[str, object]:
        """What the evidence needs to say that two arms are the same but for the connector."""
        model = read_json(self.model / MODEL_STAMP)
        installed = read_json(self.home / INSTALL_STAMP)
        return {
            "model": MODEL_NAME,
            "model_digest": model.get("sha256"),
            "kv_bytes_per_token": model.get("kv_bytes_per_token"),
            "engine_version": installed.get("vllm"),
            "store_version": installed.get("lmcache") if self.has_store else None,
            "engine_args": list(self.engine_args),
            "store_args": list(self.store_args) if self.has_store else None,
            "connector": "LMCacheMPConnector" if self.has_store else None,
        }


def read_json(path: Path) -> dict[str, object]:
    """A stamp of the installation; Fault when it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Fault(
            "the real engine is not installed, or not wholly",
            where=str(path),
            remedy="run make real-engine",
        ) from error
    if not isinstance(content, dict):
        raise Fault("no JSON object", where=str(path), remedy="run make real-engine")
    return content


def free_ports(count: int, *, but: set[int]) -> list[int]:
    """Ports that nobody listens on now, found by binding port 0, none of ``but``."""
    held: list[socket.socket] = []
    found: list[int] = []
    try:
        while len(found) < count:
            held.append(socket.socket())
            held[-1].bind((HOST, 0))
            port = int(held[-1].getsockname()[1])
            if port not in but:
                found.append(port)
    finally:
        for one in held:
            one.close()
    return found


def json_strings(text: str, flag: str) -> tuple[str, ...]:
    """A JSON list of strings: flags survive the way through Ansible without a shell's quoting."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, list) or not all(isinstance(item, str) for item in content):
        raise Fault(f"{flag} is no JSON list of strings: {text}", is_usage=True)
    return tuple(content)


def json_object(text: str, flag: str) -> dict[str, object]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Fault(f"{flag} is no JSON object: {text}", is_usage=True)
    return content


def check_arguments(settings: Settings) -> None:
    """Raises Fault when the arm cannot be started as asked; nothing has been touched then."""
    for given, own, name in (
        (settings.engine_args, OWN_ENGINE_FLAGS, "kvgate_engine_args"),
        (settings.store_args, OWN_STORE_FLAGS, "kvgate_store_args"),
    ):
        for argument in given:
            if argument.partition("=")[0] in own:
                raise Fault(
                    f"{argument} in {name} is set by the role itself",
                    remedy="leave it out",
                    is_usage=True,
                )
    if settings.has_store and not settings.store_port:
        raise Fault("the appliance arm needs a kvgate_store_port", is_usage=True)
    if settings.engine_port == settings.store_port:
        raise Fault(
            f"engine and store are both to listen on port {settings.engine_port}",
            remedy="choose another kvgate_store_port",
            is_usage=True,
        )
    if settings.has_store and settings.chunk_name_bytes > FILE_NAME_BYTES:
        raise Fault(
            "the path of the model is too long: LMCache writes it into each chunk's file name",
            where=str(settings.model),
            remedy="choose a shorter kvgate_real_engine_home",
        )
    room = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    if settings.has_store and room < SHARED_MEMORY_AT_LEAST:
        raise Fault(
            f"{room >> 20} MiB of shared memory free, {SHARED_MEMORY_AT_LEAST >> 20} are needed",
            where=str(SHARED_MEMORY),
            remedy="mount a larger one (docker: --shm-size 1g), or delete what is left there",
        )
    read_json(settings.home / INSTALL_STAMP)
    read_json(settings.model / MODEL_STAMP)
    for program in ("python", "lmcache"):
        if not (settings.venv / "bin" / program).exists():
            raise Fault(
                f"{program} is missing from the real engine's venv",
                where=str(settings.venv),
                remedy="run make real-engine",
            )


def port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 65536:
        raise ValueError(text)
    return number


def arguments_of(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--home", type=Path, required=True, help="folder with venv/ and model/")
    parser.add_argument("--store-dir", type=Path, help="the disk tier; default RUN_DIR/store")
    parser.add_argument("--engine-port", type=port, required=True)
    parser.add_argument("--store-port", type=port, default=0, help="LMCache's HTTP port")
    parser.add_argument("--engine-args", default="[]", help="JSON list of vLLM flags")
    parser.add_argument("--store-args", default="[]", help="JSON list of LMCache flags")
    parser.add_argument("--store-adapter", default="{}", help="JSON merged over the folder tier")
    parser.add_argument("--controller-pid", type=int, default=0, help="0: outlive everybody")
    parser.add_argument("--deadline-s", type=float, default=180.0, help="for each server's health")
    parser.add_argument("--cold-deadline-s", type=float, default=20.0)
