from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from .conftest import Home, module

supervised = module("supervised")


def test_an_arm_starts_is_described_cooled_and_stopped(home: Home) -> None:
    started = home.start()
    assert started.code == 0, started.said
    assert started.report["arm"] == "appliance"
    assert set(started.report["start_s"]) == {"lmcache", "vllm"}
    chunk = home.run_dir / "store" / "chunk.data"
    chunk.write_bytes(b"k" * 65536)

    told = home.ctl("info").report
    assert told["engine_health"] == 200
    assert told["simulated"] is False
    assert told["kv_bytes_per_token"] == 1024
    assert told["servers"]["lmcache"]["running"]
    assert told["servers"]["lmcache"]["io"]["read_bytes"] >= 0
    assert told["store"]["pending_stores"] == 0

    cold = home.ctl("cold").report
    assert cold["engine_reset"] is True
    assert cold["store"]["bytes"] == 65536
    assert cold["store"]["resident_pages_before"] == 65536 // cold["store"]["page_bytes"]
    assert cold["store"]["resident_pages_after"] == 0

    stopped = home.ctl("stop").report["stopped"]
    assert {name: one["outcome"] for name, one in stopped.items()} == {
        "vllm": "terminated",
        "lmcache": "terminated",
    }
    assert chunk.exists(), "the folder tier outlives a session"


def test_the_recompute_arm_has_no_store_and_no_connector(home: Home) -> None:
    report = home.start("recompute").report
    assert list(report["servers"]) == ["vllm"]
    assert report["connector"] is None
    assert report["store_dir"] is None
    assert "--kv-transfer-config" not in report["servers"]["vllm"]["command"]
    assert home.ctl("cold").report["store"] is None


def test_a_new_session_ends_the_one_before(home: Home) -> None:
    first = home.start().report
    second = home.start("recompute").report
    assert set(second["stopped_before"]) == {"vllm", "lmcache"}
    for server in first["servers"].values():
        assert supervised.started_ticks(server["pid"]) != server["started_ticks"]


def test_servers_see_nothing_of_the_users_home_and_no_hub(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    pid = home.start("recompute").report["servers"]["vllm"]["pid"]
    items = Path(f"/proc/{pid}/environ").read_text().split("\0")
    seen = dict(item.split("=", 1) for item in items if item)
    assert seen["HOME"] == str(home.run_dir / "home")
    assert (seen["HF_HUB_OFFLINE"], seen["PYTHONHASHSEED"]) == ("1", "0")
    assert "HF_TOKEN" not in seen


def test_a_port_in_use_is_one_line_with_the_port(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", home.engine_port))
        other.listen()
        answer = home.start("recompute")
    assert answer.code == 11
    assert f"127.0.0.1:{home.engine_port}" in answer.said
    assert len(answer.said.splitlines()) == 1
    assert answer.report["ok"] is False


@pytest.mark.parametrize("dying", ["store", "engine"])
def test_a_server_that_dies_while_starting_is_quoted_and_the_rest_is_stopped(
    home: Home, dying: str
) -> None:
    home.behave(dies=dying)
    answer = home.start()
    assert answer.code == 11
    assert "ended while starting: ValueError: no such flag" in answer.said
    assert not list(home.run_dir.glob("*.process.json"))


def test_a_server_that_never_becomes_healthy_meets_the_deadline(home: Home) -> None:
    home.behave(hangs=True)
    answer = home.start("recompute", "--deadline-s", "0.5")
    assert answer.code == 11
    assert "is not healthy after" in answer.said
    assert not list(home.run_dir.glob("*.process.json"))


def test_an_engine_that_did_not_register_with_its_store_is_no_appliance_arm(home: Home) -> None:
    home.behave(unregistered=True)
    answer = home.start()
    assert answer.code == 11
    assert "recompute silently" in answer.said


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ({"blocks_held": True}, "prefix cache was not reset"),
        ({"pending": 3}, "has not finished writing: 3 chunks"),
        ({"dram": 5}, "still holds 5 objects in DRAM"),
    ],
)
def test_what_does_not_become_cold_is_an_error(
    home: Home, behaviour: dict[str, object], reason: str
) -> None:
    assert home.start().code == 0
    home.behave(**behaviour)
    answer = home.ctl("cold")
    assert answer.code == 11
    assert reason in answer.said


def test_a_server_that_has_died_is_an_error_not_a_cold_engine(home: Home) -> None:
    pid = home.start().report["servers"]["lmcache"]["pid"]
    os.kill(pid, signal.SIGKILL)
    answer = home.ctl("cold")
    assert answer.code == 11
    assert "lmcache has died" in answer.said
    assert home.ctl("info").report["servers"]["lmcache"]["running"] is False


def test_purge_deletes_only_a_folder_with_our_mark(home: Home) -> None:
    home.start()
    store = home.run_dir / "store"
    mark = store / ".kvgate-store"
    mark.unlink()
    assert home.ctl("stop", "--purge").report["purged_bytes"] == 0
    assert store.is_dir()
    mark.touch()
    (store / "chunk.data").write_bytes(b"12345")
    assert home.ctl("stop", "--purge").report["purged_bytes"] == 5
    assert not store.exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--engine-args", "not json"), "no JSON list"),
        (("--engine-args", '["--port=1"]'), "set by the role itself"),
        (("--store-args", '["--l2-adapter", "x"]'), "set by the role itself"),
        (("--store-adapter", "[]"), "no JSON object"),
        (("--store-port", "0"), "needs a kvgate_store_port"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(
    home: Home, arguments: tuple[str, ...], reason: str
) -> None:
    answer = home.start("appliance", *arguments)
    assert answer.code == 2
    assert reason in answer.said
    assert not home.run_dir.exists()


def test_an_engine_that_is_not_installed_is_one_line_with_the_remedy(home: Home) -> None:
    (home.path / "kvgate-real-engine.json").unlink()
    answer = home.start("recompute")
    assert answer.code == 11
    assert "not installed" in answer.said
    assert "make real-engine" in answer.said


@pytest.mark.parametrize("action", ["cold", "info"])
def test_an_action_without_a_start_says_so(home: Home, action: str) -> None:
    answer = home.ctl(action)
    assert answer.code == 11
    assert "no engine was started here" in answer.said


def test_stop_twice_is_no_error(home: Home) -> None:
    home.start("recompute")
    assert home.ctl("stop").code == 0
    assert home.ctl("stop").report["stopped"] == {}


def test_damaged_settings_are_named(home: Home) -> None:
    home.run_dir.mkdir()
    (home.run_dir / "real-engine.json").write_text(json.dumps({"arm": "appliance"}))
    answer = home.ctl("info")
    assert answer.code == 11
    assert "damaged settings" in answer.said


def test_a_model_path_too_long_for_chunk_names_is_refused(home: Home) -> None:
    longer = home.path.parent / ("h" * 60) / ("h" * 60) / ("h" * 60)
    longer.parent.mkdir(parents=True)
    home.path.rename(longer)
    home.path = longer
    answer = home.start()
    assert answer.code == 11
    assert "shorter kvgate_real_engine_home" in answer.said
