"""Words of a host that no evidence can hold are refused where they are read, host by host: they
must not end the run of all."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from kvgate.canonical import canonical_json
from kvgate.conduct.load_hosts import Part, Share, _heard
from kvgate.conduct.remote_hosts import Seen, _Told
from kvgate.drive.channel import MALFORMED
from kvgate.load.job import Closed, Job, Prompts
from kvgate.load.offsets import SAME_HOST
from kvgate.observe.rows import write_hosts_parquet
from kvgate.record import ClientReport
from kvgate.talk import Lines, packed

REPORT: dict[str, object] = {
    name: 1 for name in ClientReport.__struct_fields__ if name not in ("state", "versions")
}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + "0" * 40])
def test_what_is_no_number_is_no_message(number: str) -> None:
    with pytest.raises(ValueError, match="no number that can be judged"):
        list(Lines().fed(b'{"kind":"progress","done":' + number.encode() + b"}\n"))


@pytest.mark.parametrize("said", [
    {"kind": "rows", "keys": [["rdma:\ud800", "rx_bytes"]], "at": [0, 0], "t_ns": [1, 2],
     "value": [-1e308, 1e308]},
    {"kind": "looks", "good_ns": [1], "faults": [[1, "\ud800"]],
     "clocks": [[0, -1e308], [1, 1e308]]},
    {"kind": "observed", "notes": ["\ud800", None, {}]},
])  # fmt: skip
def test_whatever_an_observed_host_says_the_block_can_be_written(
    said: dict[str, object], tmp_path: Path
) -> None:
    seen = Seen()
    told = _Told(seen)
    told.offset = SAME_HOST
    for message in Lines().fed(packed(said)):
        told.take(message)
    plain = json.loads(canonical_json(seen.to_json("h", "engines", 1.0, 0, 10**9)))
    assert plain["fabric"]["rx_bytes"] is None, "a growth without end is none"
    write_hosts_parquet(tmp_path / "host.parquet", {"h": seen.rows})
    assert len(pd.read_parquet(tmp_path / "host.parquet")) == len(seen.rows)


def test_a_report_in_a_state_that_no_client_has_is_its_hosts_fault() -> None:
    job = Job(
        url="http://127.0.0.1:1", model="m", arrival=Closed(1), output_tokens=1,
        prompts=Prompts(seed="s", pool="p", count=1, tokens=8), request_deadline_s=1.0,
        block_deadline_s=1.0, records_path="r", report_path="c", load_host="h",
        request_id_prefix="b0",
    )  # fmt: skip
    for state, refused in (("done", False), ("splendid", True)):
        part = Part(Share("h", "h", 1, 1), job)
        message = {"kind": "ended", "error": None, "state": "done", "code": 0,
                   "report": {**REPORT, "versions": {}, "state": state}}  # fmt: skip
        try:
            _heard(part, message)
        except MALFORMED:
            assert refused
        assert (part.report is None) is refused
