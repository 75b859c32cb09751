"""Starts simulated engines and stores for a test, and talks to them over raw sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

HOST = "127.0.0.1"
WAIT_S = 30.0
#: A recompute of 2,048 tokens takes 11.5 simulated seconds, hence 6 ms.
FAST = 2000.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when ``condition`` holds; fails naming ``what`` after half a minute."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer as it came: ``complete`` means that its framing ended properly."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The ``data:`` events of a stream; ``[DONE]`` stays a string."""
        found: list[Any] = []
        for block in self.body.decode().split("\n\n"):
            if block.startswith("data: "):
                text = block.removeprefix("data: ")
                found.append(text if text == "[DONE]" else json.loads(text))
        return found


def send_request(
    connection: socket.socket, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    """Write one request."""
    lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def read_answer(connection: socket.socket) -> Answer:
    """Read one answer, by content-length or chunked, up to its end or the end of the connection."""
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    headers: dict[str, str] = {}
    while (line := file.readline().strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") != "chunked":
        length = int(headers["content-length"])
        body = file.read(length)
        return Answer(status, headers, body, len(body) == length)
    body = b""
    while True:
        try:
            size_line = file.readline()
        except ConnectionResetError:
            size_line = b""
        if not size_line:
            return Answer(status, headers, body, complete=False)
        size = int(size_line, 16)
        data = file.read(size + 2)
        if size == 0:
            return Answer(status, headers, body, complete=True)
        body += data[:-2]


def call(
    port: int,
    method: str,
    path: str,
    value: object = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own; ``value`` is JSON unless it is bytes."""
    body = (
        value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
    )
    with socket.create_connection((HOST, port), timeout=WAIT_S) as connection:
        send_request(connection, method, path, body, headers or {})
        return read_answer(connection)


def metrics(port: int) -> dict[str, float]:
    """Samples of /metrics: name, or name{source} where a sample has a source."""
    samples: dict[str, float] = {}
    for line in call(port, "GET", "/metrics").body.decode().splitlines():
        if line.startswith("#"):
            continue
        left, _, value = line.rpartition(" ")
        name, _, labels = left.partition("{")
        for label in ("source", "finished_reason"):
            if f'{label}="' in labels:
                name += "{" + labels.split(f'{label}="')[1].split('"')[0] + "}"
        samples[name] = float(value)
    return samples


def by_source(port: int) -> dict[str, int]:
    """Prompt tokens by source."""
    head = "vllm:prompt_tokens_by_source_total{"
    found = metrics(port)
    return {key[len(head) : -1]: int(found[key]) for key in found if key.startswith(head)}


def prompt(number: int, tokens: int = 2048) -> list[int]:
    """A prompt of its own for each ``number``."""
    return [(number * 7919 + at * 31) % 5000 for at in range(tokens)]


@dataclass
class Machine:
    """One arm; as a context manager it ends what it started."""

    arm: str = "appliance"
    faults: Sequence[str] = ()
    calibration: str = "healthy"
    time_scale: float = FAST
    seed: int = 0
    port: int = 0
    store_port: int = 0
    engine: subprocess.Popen[bytes] | None = None
    store: subprocess.Popen[bytes] | None = None
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Machine:
        try:
            if self.arm != "recompute":
                self.start_store()
            self.start_engine()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", f"kvgate.rehearsal.{module}", *arguments]
        argv += ["--calibration", self.calibration, "--time-scale", str(self.time_scale)]
        argv += ["--exit-with", str(os.getpid())]
        for fault in self.faults:
            argv += ["--fault", fault]
        process = subprocess.Popen(argv)
        self._started.append(process)
        return process

    def start_store(self) -> None:
        """Start the store and wait for it."""
        self.store_port = free_port()
        self.store = self._start("store", "--port", str(self.store_port), "--name", self.arm)
        self._wait(self.store, self.store_port)

    def start_engine(self) -> None:
        """Start the engine, on the port it had before if any, and wait for it."""
        self.port = self.port or free_port()
        arguments = ["--port", str(self.port), "--arm", self.arm, "--seed", str(self.seed)]
        arguments += ["--prime-speedup", "1000"]
        if self.store_port:
            arguments += ["--store", f"http://{HOST}:{self.store_port}"]
        self.engine = self._start("engine", *arguments)
        self._wait(self.engine, self.port)

    def _wait(self, process: subprocess.Popen[bytes], port: int) -> None:
        def up() -> bool:
            assert process.poll() is None, f"ended with {process.returncode} while starting"
            return self.healthy(port)

        wait_until(up, f"port {port}")

    @staticmethod
    def healthy(port: int) -> bool:
        """Somebody answers /health there."""
        try:
            return call(port, "GET", "/health").status == 200
        except OSError:
            return False

    def complete(self, tokens: list[int], **more: object) -> Answer:
        """POST /v1/completions; 8 output tokens unless told otherwise."""
        body = {"prompt": tokens, "max_tokens": 8, "ignore_eos": True, **more}
        return call(self.port, "POST", "/v1/completions", body)

    def stream(self, tokens: list[int], **more: object) -> Answer:
        """The same as a stream with usage."""
        return self.complete(tokens, stream=True, stream_options={"include_usage": True}, **more)

    def prime(self, tokens: list[int]) -> None:
        """Compute and store a prompt, wait for the acknowledgement, and make the engine cold."""
        body = {"prompt": tokens, "max_tokens": 1}
        headers = {"x-kvgate-priming": "1"}
        assert call(self.port, "POST", "/v1/completions", body, headers).status == 200
        self.wait_acknowledged()
        self.reset()

    def wait_acknowledged(self) -> None:
        """Wait until nothing that the engine handed over is still on its way."""
        wait_until(
            lambda: metrics(self.port)["kvgate_rehearsal_unacknowledged_chunks"] == 0,
            "acknowledgement",
        )

    def reset(self) -> None:
        """Reset the engine's prefix cache."""
        assert call(self.port, "POST", "/reset_prefix_cache").status == 200
