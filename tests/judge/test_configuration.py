"""What was under test is read from facts and from roles; what nobody told is not there."""

from __future__ import annotations

from typing import Any

from kvgate.analyse.configuration import configuration

HOST: dict[str, Any] = {
    "host": {
        "files": {"kernel": "6.1.0-13\n", "dmi_serial": "SN-1", "dmi_bios": "2.4"},
        "drivers": {"amdgpu": "6.10.5", "mlx5_core": ""},
    }
}
ARM: dict[str, Any] = {
    "engine": "vLLM 0.20.1",
    "packages": {"vllm": "0.20.1", "lmcache": "0.5.6"},
    "models": [{"id": "M", "created": 17}],
    "engine_args": ["--a", "--b"],
    "device": {"serial": "FX-1", "firmware": "1.0"},
    "engine_pid": 4711,
}


def test_every_kind_of_change_has_its_places() -> None:
    found = configuration({"h": HOST}, {"appliance": ARM}, ("h",))
    assert found == {
        "driver": {"h kernel": "6.1.0-13", "h amdgpu": "6.10.5"},
        "serials": {"h DMI": "SN-1", "appliance device": "FX-1"},
        "firmware": {"h DMI": "2.4", "appliance device": "1.0"},
        "engine": {
            "appliance engine": "vLLM 0.20.1",
            "appliance packages.lmcache": "0.5.6",
            "appliance packages.vllm": "0.20.1",
            "appliance models.0.id": "M",
        },
        "tuning": {"appliance engine_args": "--a --b"},
    }


def test_a_device_that_was_asked_speaks_instead_of_the_hosts_tables() -> None:
    told = {**HOST, "device": {"serial": "FX-9", "firmware": "1.1"}}
    found = configuration({"h": told}, {}, ("h",))
    assert (found["serials"], found["firmware"]) == ({"h device": "FX-9"}, {"h device": "1.1"})


def test_the_tables_of_other_hosts_are_no_appliances() -> None:
    assert set(configuration({"h": HOST}, {}, ())) == {"driver"}


def test_what_is_missing_or_of_another_shape_is_not_there() -> None:
    odd: dict[str, Any] = {"a": {}, "b": {"host": 3}, "c": {"host": {"files": None}}}
    assert configuration(odd, {"appliance": None, "baseline": {"device": 3}}, ("a", "b", "c")) == {}
