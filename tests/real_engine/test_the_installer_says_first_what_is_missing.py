from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .conftest import FILES, module

install_engine = module("install_engine")
make_model = module("make_model")
GIB = 1 << 30
GOOD = install_engine.Machine(
    system="Linux",
    architecture="x86_64",
    python=(3, 11),
    glibc=(2, 36),
    has_avx2=True,
    has_ensurepip=True,
    disk_free=50 * GIB,
    memory=16 * GIB,
)


def test_a_fit_machine_lacks_nothing() -> None:
    assert install_engine.missing(GOOD) == []
    assert install_engine.missing(replace(GOOD, memory=None)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": "aarch64"}, "Linux on aarch64"),
        ({"system": "Darwin"}, "Darwin on x86_64"),
        ({"has_avx2": False}, "no AVX2"),
        ({"python": (3, 10)}, "Python 3.10"),
        ({"python": (3, 14)}, "Python 3.14"),
        ({"glibc": (2, 28)}, "glibc 2.28"),
        ({"glibc": None}, "glibc none"),
        ({"has_ensurepip": False}, "python3-venv"),
        ({"disk_free": 5 * GIB}, "5.0 GiB of disk free: 6 GiB"),
        ({"memory": 4 * GIB}, "4.0 GiB of memory: 8 GiB"),
    ],
)
def test_each_thing_that_is_missing_is_named_alone(change: dict[str, object], said: str) -> None:
    lacks = install_engine.missing(replace(GOOD, **change))
    assert len(lacks) == 1
    assert said in lacks[0]


def test_all_that_is_missing_is_said_at_once() -> None:
    assert len(install_engine.missing(replace(GOOD, disk_free=0, memory=1, python=(3, 9)))) == 3


def test_a_stamp_of_other_sources_is_no_installation(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").touch()
    stamp = tmp_path / install_engine.STAMP
    assert install_engine.installed(tmp_path) is None
    stamp.write_text(json.dumps({"sources_sha256": "0" * 64}))
    assert install_engine.installed(tmp_path) is None
    stamp.write_text(json.dumps({"sources_sha256": install_engine.sources_digest()}))
    assert install_engine.installed(tmp_path) is not None
    (tmp_path / "venv" / "bin" / "python").unlink()
    assert install_engine.installed(tmp_path) is None


def test_a_failing_step_is_one_line_with_its_last_error() -> None:
    code = "import sys; sys.exit('ERROR: no matching distribution\\n')"
    with pytest.raises(install_engine.CannotInstall) as caught:
        install_engine.run([sys.executable, "-c", code], "installing x", "do y")
    said = "installing x failed: ERROR: no matching distribution -- do y"
    assert str(caught.value) == said


def test_a_folder_that_is_no_venv_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "thesis.txt").touch()
    with pytest.raises(install_engine.CannotInstall, match="is no venv"):
        install_engine.install(tmp_path)
    assert (tmp_path / "venv" / "thesis.txt").exists()


def test_every_locked_package_is_exact_and_hashed_and_no_registry_is_named() -> None:
    text = (FILES / "requirements.lock").read_text()
    packages = re.findall(r"^[A-Za-z0-9_.-]+(==\S+)?", text, flags=re.MULTILINE)
    assert len(packages) > 100
    assert all(packages)
    for block in re.split(r"\n(?=[A-Za-z0-9])", text)[1:]:
        assert "--hash=sha256:" in block, block[:80]
    for source in install_engine.SOURCES:
        assert not re.search(r"https?://|index-url|find-links", (FILES / source).read_text())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hidden", "100", "--heads", "8"), "no multiple of heads"),
        (("--heads", "8", "--kv-heads", "3"), "no multiple of kv-heads"),
        (("--layers", "0"), "at least 1"),
        (("--vocabulary", "100"), "below 512"),
    ],
)
def test_a_model_that_no_engine_could_load_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, str(FILES / "make_model.py"), str(tmp_path / "m"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "m").exists()


def test_kv_bytes_per_token_follow_from_the_shape() -> None:
    assert make_model.Shape().kv_bytes_per_token == 2 * 2 * 1 * 64 * 4
    assert make_model.Shape(dtype="bfloat16", kv_heads=2).kv_bytes_per_token == 2 * 2 * 2 * 64 * 2
