"""Agents over pipes, against a truth server: what each host does alone, right and wrong.

A host of its own clock is a process in a time namespace of its own.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import msgspec
import pytest

from kvgate.conduct import remote_hosts
from kvgate.conduct.clients import Loaded
from kvgate.conduct.load_hosts import LoadHosts
from kvgate.conduct.remote_hosts import HostWatches
from kvgate.contract import parse_contract
from kvgate.drive import channel as channel_module
from kvgate.drive.agents import HOST_AGENT, LOAD_AGENT, Agents
from kvgate.drive.channel import Channel
from kvgate.errors import CannotMeasure, Interrupted
from kvgate.evidence.records import read_records
from kvgate.load.job import Closed, Job, Progress, Prompts
from kvgate.load.offsets import ask, estimate_offset
from kvgate.record import RequestRecord

QUICK = Path(__file__).parents[1] / "outcomes" / "quick.toml"
LIMITS = parse_contract(QUICK.read_bytes(), name="quick").validity
DOCTORED = Path(__file__).with_name("doctored.py")
AHEAD_S = 100_000
OTHER_CLOCK = ["unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child"]
COUNT, LEVEL = 24, 4


class Pipes:
    """Stands for Agents: every host is a process here, one of them perhaps with a fault."""

    def __init__(self, root: Path, *, fault: str = "", clock_of: str = "") -> None:
        self._root = root
        self._fault = fault
        self._clock_of = clock_of

    def open(self, host: str, module: str) -> Channel:
        command = [sys.executable, "-m", module]
        if self._fault and host == "load-2":
            command = [sys.executable, str(DOCTORED), self._fault]
        if host == self._clock_of:
            command = [*OTHER_CLOCK, *command]
        # An agent that is killed leaves its folder behind.
        return Channel(host, ["env", f"TMPDIR={self._root}", *command], self._root / f"{host}.log")


def agents(root: Path, *, fault: str = "", clock_of: str = "") -> Agents:
    return cast(Agents, Pipes(root, fault=fault, clock_of=clock_of))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import json

    log = tmp_path_factory.mktemp("truth") / "truth.jsonl"
    argv = [sys.executable, "-m", "kvgate.load.truth", "--log", str(log)]
    process = subprocess.Popen(
        [*argv, "--ttft-s", "0.05", "--gap-s", "0.002"], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def job_at(root: Path, url: str, tokens: int) -> Job:
    return Job(
        url=url, model="truth", arrival=Closed(LEVEL),
        prompts=Prompts(seed="s", pool="p", count=COUNT, tokens=8), output_tokens=tokens,
        request_deadline_s=20.0, block_deadline_s=60.0, records_path=str(root / "records.jsonl"),
        report_path=str(root / "client.json"), load_host="here", request_id_prefix="b0",
        connect_deadline_s=1.0,
    )  # fmt: skip


def run(
    root: Path,
    url: str,
    made: Agents,
    *,
    deadline_s: float = 60.0,
    tokens: int = 20,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Loaded:
    hosts = LoadHosts(made, ("load-1", "load-2"), LIMITS, root / "work")
    job = job_at(root, url, tokens)
    return hosts.run(job, calibration={}, on_progress=on_progress, deadline_s=deadline_s)


def records(loaded: Loaded) -> list[RequestRecord]:
    assert loaded.result is not None
    return list(read_records(loaded.result.records_path))


def test_two_hosts_send_together_what_one_would_have_sent(tmp_path: Path, url: str) -> None:
    loaded = run(tmp_path, url, agents(tmp_path))
    assert loaded.fault is None
    found = records(loaded)
    assert {int(r.request_id.rpartition("-")[2]) for r in found} == set(range(COUNT))
    assert len({r.prompt_digest for r in found}) == COUNT
    assert loaded.result is not None and loaded.result.report is not None
    report = loaded.result.report
    assert (report.requests_done, report.planned_in_flight) == (COUNT, LEVEL)
    assert report.max_in_flight == LEVEL
    assert report.start_late_ns < 100_000_000
    hosts = loaded.hosts or {}
    assert [hosts[h]["client"]["planned_in_flight"] for h in sorted(hosts)] == [2, 2]


def test_two_engines_have_as_many_clients_each_on_one_host_and_on_two(
    tmp_path: Path, url: str
) -> None:
    engines = (url, url.replace("127.0.0.1", "localhost"))
    for names in (("load-1",), ("load-1", "load-2")):
        root = tmp_path / str(len(names))
        root.mkdir()
        job = msgspec.structs.replace(job_at(root, url, 20), urls=engines)
        hosts = LoadHosts(agents(root), names, LIMITS, root / "work")
        loaded = hosts.run(job, calibration={}, on_progress=lambda _: None, deadline_s=60.0)
        assert loaded.fault is None
        found = records(loaded)
        assert len({r.request_id for r in found}) == len({r.prompt_digest for r in found}) == COUNT
        assert set(loaded.hosts or {}) == (
            {"load-1/0", "load-1/1"} if len(names) == 1 else {"load-1", "load-2"}
        )


def test_a_host_whose_clock_began_at_another_time_starts_with_the_others(
    tmp_path: Path, url: str
) -> None:
    tried = subprocess.run([*OTHER_CLOCK, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no time namespaces here: {tried.stderr.strip()}")
    loaded = run(tmp_path, url, agents(tmp_path, clock_of="load-2"))
    assert loaded.fault is None
    assert loaded.hosts is not None and loaded.result is not None
    for end in loaded.hosts["load-2"]["clock"].values():
        assert end["agreed"] is True
        assert abs(end["offset_ns"] - AHEAD_S * 10**9) <= end["uncertainty_ns"]
    started = {
        h: min(r.scheduled_ns for r in records(loaded) if r.load_host == h) for h in loaded.hosts
    }
    # Each row keeps its own host's clock; the report has them together on ours.
    apart = started["load-2"] - started["load-1"] - AHEAD_S * 10**9
    known = sum(
        loaded.hosts["load-2"]["clock"][end]["uncertainty_ns"] for end in ("before", "after")
    )
    late = sum(loaded.hosts[h]["client"]["start_late_ns"] for h in started)
    assert abs(apart) <= known + late + 1_000_000
    report = loaded.result.report
    assert report is not None
    assert report.max_in_flight == LEVEL
    assert report.wall_s < 60


@pytest.mark.parametrize("fault, said, state", [
    ("short", "it brought 11 of 12 records", "done"),
    ("dies", "the connection ended (9): no word from it", None),
    ("nonsense", "it says what is no message", None),
    ("half a message", "it says what cannot be read: 'failed'", None),
    ("nested", "it says what is no message: a line nested too deeply", None),
    ("no clock", "its clock has no ns: noon", None),
    ("client dies", "the client ended as killed", "killed"),
    ("unreachable engine", "cannot reach the engine", None),
    ("clockless after", "the connection ended (7)", "done"),
])  # fmt: skip
def test_a_host_at_fault_ends_the_block_and_is_named(
    tmp_path: Path, url: str, fault: str, said: str, state: str | None
) -> None:
    loaded = run(tmp_path, url, agents(tmp_path, fault=fault))
    assert loaded.fault is not None and loaded.hosts is not None and loaded.result is not None
    assert loaded.fault.startswith("load host load-2: ")
    assert said in loaded.fault
    assert "load-1" not in loaded.fault
    assert loaded.result.report is None, "of the whole nothing is said"
    assert loaded.hosts["load-2"]["state"] == state
    assert loaded.hosts["load-1"]["fault"] is None


def test_records_with_a_time_that_no_clock_shows_are_no_measurement(
    tmp_path: Path, url: str
) -> None:
    loaded = run(tmp_path, url, agents(tmp_path, fault="beyond all clocks"))
    assert loaded.fault is not None and "has a time beyond 64 bits" in loaded.fault
    assert loaded.to_json()["client"] is None
    assert set(loaded.hosts or {}) == {"load-1", "load-2"}


def test_a_late_host_says_by_how_much(tmp_path: Path, url: str) -> None:
    loaded = run(tmp_path, url, agents(tmp_path, fault="late"))
    assert loaded.fault is None and loaded.hosts is not None
    assert loaded.hosts["load-2"]["client"]["start_late_ns"] > 200_000_000


def test_a_block_beyond_its_deadline_is_stopped_on_every_host(tmp_path: Path, url: str) -> None:
    loaded = run(tmp_path, url, agents(tmp_path), deadline_s=2.0, tokens=2000)
    assert loaded.fault is not None
    assert loaded.fault.count("the block's deadline passed") == 2
    assert loaded.hosts is not None
    assert {h["state"] for h in loaded.hosts.values()} == {"interrupted"}


def clients_of(folder: Path) -> list[int]:
    """Load clients whose agents' private folders lie below ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                said = (entry / "cmdline").read_bytes()
                if b"kvgate.load.client" in said and str(folder).encode() in said:
                    found.append(int(entry.name))
    return found


def wait_until_none(folder: Path) -> None:
    until = time.monotonic() + 20
    while left := clients_of(folder):
        assert time.monotonic() < until, f"load clients are left: {left}"
        time.sleep(0.02)


def test_an_interrupted_block_leaves_no_load_behind(tmp_path: Path, url: str) -> None:
    seen: list[int] = []

    def interrupt(_: Progress) -> None:
        seen.extend(clients_of(tmp_path))
        raise Interrupted("stopped by SIGINT")

    with pytest.raises(Interrupted):
        run(tmp_path, url, agents(tmp_path), on_progress=interrupt, tokens=2000)
    assert len(seen) == 2
    wait_until_none(tmp_path)
    assert not list(tmp_path.glob("kvgate-load-*")), "an agent's folder is gone with it"


def test_an_agent_that_hears_nobody_ends_its_load(tmp_path: Path, url: str) -> None:
    deaf = (
        "import sys, kvgate.talk as t; t.SILENCE_S = 0.4; "
        "from kvgate.load import agent; sys.exit(agent.main())"
    )
    command = ["env", f"TMPDIR={tmp_path}", sys.executable, "-c", deaf]
    channel = Channel("load-1", command, tmp_path / "log")
    with closing(channel):
        channel.say("load", job=msgspec.to_builtins(job_at(tmp_path, url, tokens=2000)))
        until = time.monotonic() + 20.0
        while not any(message["kind"] == "ready" for message in channel.read(0.1)):
            assert channel.lost is None and time.monotonic() < until
            channel.say("alive")
        assert len(clients_of(tmp_path)) == 1
        with pytest.raises(CannotMeasure, match=r"the connection ended \(1\)"):
            channel.wait_for("ended", 20.0)
        wait_until_none(tmp_path)


def test_an_agent_that_cannot_start_says_its_last_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('No module named msgspec')"]
    with pytest.raises(CannotMeasure) as caught:
        Channel("load-9", command, tmp_path / "log")
    assert "host load-9: " in str(caught.value)
    assert "No module named msgspec" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_host_that_talks_for_ever_and_greets_nobody_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_GRACE_S", 0.1)
    with pytest.raises(CannotMeasure, match="it says much and greets nobody"):
        Channel("load-9", ["yes"], tmp_path / "log")


def agent_that(does: str) -> list[str]:
    """Greets, then does something once it is asked for its file."""
    script = (
        "import sys; say = lambda t: print(t, flush=True)\n"
        'say(\'{"kind":"hello"}\')\n'
        f"sys.stdin.readline(); {does}; sys.stdin.read()"
    )
    return [sys.executable, "-c", script]


def test_a_file_that_drips_or_has_no_room_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "ANSWER_S", 0.5)
    monkeypatch.setattr(channel_module, "_GRACE_S", 0.1)
    huge = agent_that('say(\'{"kind":"file","bytes":9000000000000000000}\')')
    with (
        closing(Channel("load-1", huge, tmp_path / "log")) as channel,
        pytest.raises(CannotMeasure, match="has no room"),
    ):
        channel.fetch(tmp_path / "file")
    drips = agent_that(
        'import time; say(\'{"kind":"file","bytes":99}\'); '
        "[(say('x'), time.sleep(0.1)) for _ in range(40)]"
    )
    with (
        closing(Channel("load-1", drips, tmp_path / "log")) as channel,
        pytest.raises(CannotMeasure, match="bytes of its records are missing"),
    ):
        channel.fetch(tmp_path / "file")


def test_what_a_login_shell_prints_first_is_not_heard(tmp_path: Path) -> None:
    greeting = 'echo Welcome; echo \'{"not": "ours"}\'; exec'
    command = ["sh", "-c", f"{greeting} {sys.executable} -m {LOAD_AGENT}"]
    with closing(Channel("load-1", command, tmp_path / "log")) as channel:
        found = estimate_offset(ask(channel.clock, 5))
    assert abs(found.offset_ns) <= found.uncertainty_ns


def test_a_watched_host_tells_its_kernel_s_figures_and_one_that_cannot_is_a_gap(
    tmp_path: Path,
) -> None:
    class Half(Pipes):
        def open(self, host: str, module: str) -> Channel:
            if host == "gone":
                raise CannotMeasure("Connection refused", where="host gone")
            assert module == HOST_AGENT
            return super().open(host, module)

    groups = {"e1": "engines", "gone": "engines"}
    watches = HostWatches(cast(Agents, Half(tmp_path)), groups, 0.05, {"e1": [1]})
    with watches:
        pass
    told = watches.to_json()
    assert told["e1"]["fault"] is None
    assert told["e1"]["coverage"] == 1.0
    assert told["e1"]["clock"]["after"]["agreed"] is True
    rows = watches.rows()
    assert {"host", "pid:1", "clock"} <= set(rows["e1"].sources())
    assert len(rows["e1"].series("host", "cpu_busy_s")) >= 2, "a look before and one after"
    assert told["gone"]["fault"] == "host gone: Connection refused"
    assert told["gone"]["coverage"] == 0.0
    assert len(rows["gone"]) == 0


def test_a_lost_connection_is_made_again_and_leaves_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hosts, "AGAIN_S", 0.3)
    opened: list[Channel] = []

    class Kept(Pipes):
        def open(self, host: str, module: str) -> Channel:
            opened.append(super().open(host, module))
            return opened[-1]

    watches = HostWatches(cast(Agents, Kept(tmp_path)), {"e1": "engines"}, 0.05, {})
    with watches:
        opened[0]._process.kill()
        until = time.monotonic() + 20
        while len(opened) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
    told = watches.to_json()["e1"]
    assert told["fault"] is None, "it was observed to the end"
    assert told["coverage"] < 1.0
    assert len(watches.rows()["e1"]) > 0
    assert "the connection ended (-9)" in " ".join(gap["reason"] for gap in told["gaps"])


def test_a_watched_host_whose_times_no_clock_shows_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hosts, "AGAIN_S", 0.1)
    script = (
        "import json, sys, time\n"
        "def say(kind, **fields): print(json.dumps({'kind': kind, **fields}), flush=True)\n"
        'print(\'{"kind":"hello"}\', flush=True)\n'
        "for line in sys.stdin:\n"
        "    order = json.loads(line)['do']\n"
        "    if order == 'clock': say('clock', ns=time.monotonic_ns())\n"
        "    if order == 'observe':\n"
        "        say('observing')\n"
        "        say('rows', keys=[['host', 'x']], at=[0], t_ns=[1 << 70], value=[1])\n"
    )

    class Odd(Pipes):
        def open(self, host: str, module: str) -> Channel:
            return Channel(host, [sys.executable, "-c", script], tmp_path / "log")

    watches = HostWatches(cast(Agents, Odd(tmp_path)), {"e1": "engines"}, 0.05, {})
    with watches:
        time.sleep(0.1)
    told = watches.to_json()["e1"]
    assert "too big" in told["fault"] or "too large" in told["fault"]
    assert told["coverage"] == 0.0
