"""Reading a stranger's folder gives plain data or one line, and nothing else."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import layout
from kvgate.evidence.bundle import check_parquet, load_bundle
from kvgate.evidence.files import UnsafeFile, open_safely, read_safely
from kvgate.evidence.strict_json import parse_strict
from kvgate.evidence.tables import read_requests

from .conftest import MakeBundle


def test_a_bundle_gives_back_what_was_written(tmp_path: Path, make_bundle: MakeBundle) -> None:
    make_bundle(tmp_path / "b", blocks=12, rehearsal=False)
    bundle = load_bundle(tmp_path / "b")
    assert bundle.state == "sealed" and bundle.rehearsal is False
    assert [block.n for block in bundle.blocks] == list(range(12))
    assert bundle.blocks[3].block == {"arm": "baseline", "order": 3, "salt": 0}
    assert bundle.blocks[3].requests_path == tmp_path / "b/blocks/3/requests.parquet"
    assert bundle.contract == b"# contract 0\n"
    assert bundle.plan == {"blocks": list(range(12)), "salt": 0}
    assert set(bundle.facts) == {"node1", "node2"}
    assert bundle.verdict is not None and bundle.campaign is not None


def test_what_is_missing_is_none_and_a_rehearsal(tmp_path: Path) -> None:
    (tmp_path / "b/blocks/4").mkdir(parents=True)
    (tmp_path / "b/blocks/4/block.json").write_text("{}")
    bundle = load_bundle(tmp_path / "b")
    assert (bundle.contract, bundle.plan, bundle.campaign, bundle.verdict) == (None,) * 4
    assert bundle.rehearsal is True
    assert bundle.state == "partial"
    assert bundle.blocks[0].n == 4 and bundle.blocks[0].host_path is None
    with pytest.raises(UsageError, match="no evidence bundle"):
        load_bundle(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": 9223372036854775808}', "out of range"),
        ('{"a": -' + "9" * 400 + "}", "out of range"),
        ('{"a": ' + "9" * 5000 + "}", "out of range"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"x": {"b": 1, "b": 1}}', "twice"),
        ("[" * 100_000, "deeply"),
        ("null", "object"),
        ("", "strict JSON"),
        ("{}{}", "strict JSON"),
        ('{"a": ' + "9" * 5000 + "}", "strict JSON"),
        ("\ufeff{}", "strict JSON"),
    ],
)
def test_loose_json_is_refused_in_one_line(
    tmp_path: Path, make_bundle: MakeBundle, text: str, told: str
) -> None:
    make_bundle(tmp_path / "b")
    path = tmp_path / "b/plan.json"
    path.unlink()
    path.write_text(text)
    with pytest.raises(CannotMeasure, match=told) as caught:
        load_bundle(tmp_path / "b")
    assert "plan.json" in str(caught.value) and "\n" not in str(caught.value)


def test_json_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(CannotMeasure, match="strict JSON"):
        parse_strict(b'{"a": "\xff"}', "x")


@pytest.mark.parametrize("place", ["plan.json", "facts/node1.json", "facts", "blocks/0", "extra"])
def test_a_link_anywhere_is_refused(tmp_path: Path, make_bundle: MakeBundle, place: str) -> None:
    make_bundle(tmp_path / "b")
    make_bundle(tmp_path / "other")
    path = tmp_path / "b" / place
    if path.exists():
        path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(UnsafeFile, match="link"):
        load_bundle(tmp_path / "b")


def test_a_pipe_does_not_block_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFile, match="no regular file"):
        open_safely(tmp_path, "pipe")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b/plan.json")
    with pytest.raises(UnsafeFile, match="special"):
        load_bundle(tmp_path / "b")


@pytest.mark.parametrize("rel", ["../secret", "/etc/passwd", "a/../../secret", "inside/secret"])
def test_no_path_leaves_the_folder(tmp_path: Path, rel: str) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/inside").symlink_to(tmp_path)
    with pytest.raises(UnsafeFile):
        open_safely(tmp_path / "root", rel)


def test_a_huge_json_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "plan.json").open("wb") as stream:
        stream.truncate(1 << 36)
    with pytest.raises(UnsafeFile, match="larger"):
        read_safely(tmp_path, "plan.json", layout.MAX_JSON_BYTES)
    with pytest.raises(CannotMeasure, match="bytes"):
        load_bundle(tmp_path)


def test_more_files_than_a_bundle_may_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MAX_FILES", 50)
    for n in range(60):
        (tmp_path / str(n)).touch()
    with pytest.raises(UnsafeFile, match="more than 50"):
        load_bundle(tmp_path)


@pytest.mark.parametrize("name", ["01", "-1", "x", "1e3", "12345678"])
def test_blocks_are_numbered(tmp_path: Path, name: str) -> None:
    (tmp_path / "blocks" / name).mkdir(parents=True)
    with pytest.raises(CannotMeasure, match="numbered"):
        load_bundle(tmp_path)


def test_a_parquet_bomb_and_a_non_parquet_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "host.parquet"
    pq.write_table(pa.table({"a": pa.array([0] * 100_000)}), path)
    check_parquet(path)
    assert path.stat().st_size < 5_000
    monkeypatch.setattr(layout, "MAX_PARQUET_VALUES", 99_999)
    with pytest.raises(CannotMeasure, match="claims 100000"):
        check_parquet(path)
    path.write_bytes(b"PAR1 no PAR1")
    with pytest.raises(CannotMeasure, match="not a Parquet"):
        check_parquet(path)


class _Payload:
    """What a pickle would run: it makes the file ``proof``."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.proof),))


@pytest.mark.parametrize("name", ["arrow.py_extension_type", "pandas"])
def test_a_pickle_inside_a_table_is_never_opened(tmp_path: Path, name: str) -> None:
    proof = tmp_path / "proof"
    poison = pickle.dumps(_Payload(proof))
    marks = {"ARROW:extension:name": name, "ARROW:extension:metadata": poison}
    field = pa.field("request_id", pa.binary(), metadata=marks)
    schema = pa.schema([field], metadata={"pandas": poison} if name == "pandas" else None)
    path = tmp_path / "requests.parquet"
    pq.write_table(pa.table({"request_id": [poison]}, schema=schema), path)
    check_parquet(path)
    for read in (read_requests, pd.read_parquet):
        with contextlib.suppress(CannotMeasure, ValueError):
            read(path)
    assert not proof.exists()
    pickle.loads(poison)
    assert proof.exists()


def test_half_written_files_are_not_evidence(tmp_path: Path, make_bundle: MakeBundle) -> None:
    make_bundle(tmp_path / "b")
    (tmp_path / "b/facts/.writing-abc").write_text("{")
    assert set(load_bundle(tmp_path / "b").facts) == {"node1", "node2"}
