"""An inventory that is wrong is told in one line, before anything is started."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from kvgate.drive import playbooks
from kvgate.drive.playbooks import list_inventory
from kvgate.errors import UsageError
from kvgate.inventory import inventory_from

VARIABLES: dict[str, Any] = {
    "ansible_connection": "local",
    "kvgate_rehearsal": True,
    "kvgate_contract": "rehearsal",
    "kvgate_engine_role": "rehearsal_engine",
    "kvgate_engine_host": "127.0.0.1",
    "kvgate_engine_port": 18700,
    "kvgate_store_ports": {"baseline": 18701},
}
LISTING: dict[str, Any] = {
    "_meta": {"hostvars": {h: dict(VARIABLES) for h in ("e1", "e2", "a1", "c1")}},
    "all": {"children": ["ungrouped", "engines", "appliances", "load_clients"]},
    "engines": {"children": ["rack1", "rack2"]},
    "rack1": {"hosts": ["e1"]},
    "rack2": {"hosts": ["e2"]},
    "appliances": {"hosts": ["a1"]},
    "load_clients": {"hosts": ["c1"]},
}


def changed(**variables: Any) -> dict[str, Any]:
    """The listing with variables of every host changed; ``...`` removes one."""
    listing = copy.deepcopy(LISTING)
    for values in listing["_meta"]["hostvars"].values():
        for name, value in variables.items():
            values.pop(name, None)
            if value is not ...:
                values[name] = value
    return listing


def said(listing: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        inventory_from(listing, path="lab/hosts.yml")
    line = str(caught.value)
    assert line.startswith("lab/hosts.yml: ")
    assert "\n" not in line and " -- " in line
    return line


def test_a_good_inventory_is_read_with_nested_groups() -> None:
    inventory = inventory_from(LISTING, path="lab")
    assert inventory.group("engines") == ("e1", "e2")
    assert inventory.all_hosts == ("a1", "c1", "e1", "e2")
    assert inventory.local_hosts == ("a1", "c1", "e1", "e2")
    assert inventory.store_url("baseline") == "http://127.0.0.1:18701"
    assert inventory.store_url("other") is None
    assert inventory.time_scale == 1.0


@pytest.mark.parametrize("group", ["engines", "appliances", "load_clients"])
def test_a_group_without_a_host_is_named(group: str) -> None:
    absent = {k: v for k, v in LISTING.items() if k != group}
    assert f"the group '{group}' has no host" in said(absent)
    assert f"the group '{group}' has no host" in said({**LISTING, group: {"hosts": []}})


def test_a_variable_that_differs_between_hosts_is_named() -> None:
    listing = copy.deepcopy(LISTING)
    listing["_meta"]["hostvars"]["e2"]["kvgate_engine_port"] = 18800
    assert "kvgate_engine_port differs between hosts (e2 says 18800)" in said(listing)


@pytest.mark.parametrize("variables, says", [
    ({"kvgate_speed": 3}, "kvgate_speed: unknown variable"),
    ({"kvgate_engine_role": ...}, "kvgate_engine_role: missing variable"),
    ({"kvgate_rehearsal": ...}, "kvgate_rehearsal: missing variable"),
    ({"kvgate_engine_port": 70000}, "kvgate_engine_port: "),
    ({"kvgate_engine_port": "http"}, "kvgate_engine_port: "),
    ({"kvgate_store_ports": {"x": 0}}, "kvgate_store_ports.x: "),
    ({"kvgate_time_scale": 0.5}, "kvgate_time_scale: "),
    ({"kvgate_store_metrics": "none"}, "kvgate_store_metrics: "),
    ({"kvgate_engine_role": "../x"}, "kvgate_engine_role: "),
    ({"kvgate_engine_port": True}, "kvgate_engine_port: "),
    ({"kvgate_engine_port": "18700"}, "kvgate_engine_port: "),
    ({"kvgate_rehearsal": "no"}, "kvgate_rehearsal: "),
    ({"kvgate_rehearsal": 0}, "kvgate_rehearsal: "),
    ({"kvgate_time_scale": float("nan")}, "kvgate_time_scale: Input should be a finite number"),
    ({"kvgate_waits_s": float("inf")}, "kvgate_waits_s: Input should be a finite number"),
    ({"kvgate_engine_host": "127.0.0.1\nX: y"}, "kvgate_engine_host: "),
    ({"kvgate_engine_host": "127.0.0.1/../@evil"}, "kvgate_engine_host: "),
    ({"kvgate_engine_host": "{{ lookup('pipe', 'id') }}"}, "kvgate_engine_host: "),
    ({"kvgate_engine_args": ["--x", "{{ 7 * 7 }}"]}, "kvgate_engine_args.1: holds a template"),
    ({"kvgate_store_ports": {"a": 18700}}, "must be different ports of one host"),
    ({"kvgate_rehearsal": False}, "a simulated engine or store is a rehearsal"),
    ({"kvgate_rehearsal": False, "kvgate_engine_role": "vllm", "kvgate_store_metrics": "kvstore"},
     "a simulated engine or store is a rehearsal"),
])  # fmt: skip
def test_a_wrong_variable_is_named(variables: dict[str, Any], says: str) -> None:
    assert says in said(changed(**variables))


@pytest.mark.parametrize("host", ["../../x", "a\nb", "", "a b", "x" * 300, "{{ x }}", "é"])
def test_a_host_name_that_could_name_no_file_is_refused_before_anything_runs(host: str) -> None:
    listing = copy.deepcopy(LISTING)
    listing["appliances"]["hosts"] = [host]
    assert "is not usable" in said(listing)


def test_an_inventory_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playbooks, "LISTING_TIMEOUT_S", 3)
    os.mkfifo(tmp_path / "hosts.yml")
    with pytest.raises(UsageError, match="gave no answer in 3 s -- look for a pipe"):
        list_inventory(tmp_path)


def test_an_inventory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the inventory does not exist"):
        list_inventory(tmp_path / "absent")


def test_a_file_that_is_no_yaml_is_one_line_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  children: [engines\n")
    with pytest.raises(UsageError) as caught:
        list_inventory(tmp_path / "hosts.yml")
    line = str(caught.value)
    assert "Ansible cannot read it" in line and str(tmp_path) in line
    assert "\n" not in line and "Traceback" not in line


def test_the_shipped_rehearsal_is_read() -> None:
    path = Path(__file__).parents[2] / "inventories" / "rehearsal"
    inventory = inventory_from(list_inventory(path), path=str(path))
    assert inventory.rehearsal
    assert inventory.contract == "rehearsal"
