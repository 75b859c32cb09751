"""A truth server on loopback, and jobs against it. The simulated engine is labelled as such."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvgate.evidence.records import read_records
from kvgate.load.job import Closed, Job, Prompts
from kvgate.load.run import LoadResult, run_load
from kvgate.load.truth import Truth
from kvgate.record import RequestRecord


@dataclass
class Engine:
    """A running truth server."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def truths(self) -> dict[str, Truth]:
        """What the server wrote down, by request id."""
        lines = self.log.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Truth) for line in lines]
        return {truth.request_id: truth for truth in found}


StartEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartEngine]:
    """Start truth servers; each is ended by its own pid, whatever happens to the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str, scheme: str = "http") -> Engine:
        log = tmp_path_factory.mktemp("truth") / "truth.jsonl"
        process = subprocess.Popen(
            [sys.executable, "-m", "kvgate.load.truth", "--log", str(log), *options],
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        return Engine(port, log, process, scheme)

    yield start
    for process in started:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def engine(start_engine: StartEngine) -> Engine:
    """A quick engine: first token after 10 ms, then one a millisecond."""
    return start_engine("--ttft-s", "0.01", "--gap-s", "0.001")


MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """A small job; any field can be given."""

    def make(url: str, *, concurrency: int = 1, requests: int = 1, **fields: Any) -> Job:
        given: dict[str, Any] = {
            "model": "truth",
            "arrival": Closed(concurrency),
            "prompts": Prompts(seed="s", pool="p", count=requests, tokens=8),
            "output_tokens": 10,
            "request_deadline_s": 20.0,
            "block_deadline_s": 60.0,
            "records_path": str(tmp_path / "requests.jsonl"),
            "report_path": str(tmp_path / "client.json"),
            "load_host": "here",
            "request_id_prefix": tmp_path.name,
        }
        return Job(url=url, **(given | fields))

    return make


@dataclass
class Run:
    """A finished job."""

    result: LoadResult
    records: list[RequestRecord]

    @property
    def only(self) -> RequestRecord:
        (record,) = self.records
        return record


def run_job(job: Job, tmp_path: Path) -> Run:
    """Run a job through the real load process."""
    result = run_load(job, tmp_path, deadline_s=90)
    return Run(result, list(read_records(result.records_path)))
