"""G1, arrival acceptance: what arrived is what was ordered, healthy and configured."""

import pytest

from kvgate.pytest_plugin import clause
from kvgate.verdict import ClauseVerdict

pytestmark = pytest.mark.gate1


@clause("G1.1")
def test_the_model_is_the_one_ordered(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.2")
def test_the_serial_number_is_on_the_bill(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.3")
def test_the_firmware_is_the_agreed_one(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.4")
def test_the_appliance_links_at_full_rate(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.5")
def test_engine_hosts_have_their_processors(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.6")
def test_engine_hosts_have_their_memory(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.7")
def test_load_clients_may_open_enough_files(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.8")
def test_the_roce_port_negotiated_its_rate(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.9")
def test_the_roce_port_has_its_mtu(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.10")
def test_the_roce_port_did_not_flap(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.11")
def test_a_routable_rocev2_gid_is_there(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.12")
def test_every_nvme_device_is_there(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.13")
def test_no_nvme_device_warns(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.14")
def test_every_accelerator_is_there(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.15")
def test_clocks_are_in_step(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G1.16")
def test_the_kernel_reports_no_hardware_error(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason
