"""Foreign files go through the same judge; what they do not prove makes the clauses INVALID."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvgate.cli import main

from . import made

CONTRACT = Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml"


def manifest(folder: Path, formats: dict[str, Path], extra: str = "") -> Path:
    blocks = []
    for i, (name, path) in enumerate(formats.items()):
        arm = ("baseline", "appliance")[i % 2]
        blocks.append(
            f'[[block]]\nfile = "{path.name}"\nformat = "{name}"\narm = "{arm}"\n'
            f'workload = "cold_restore"\nlevel = 8\npair = {i // 2}\norder = {i % 2}\n{extra}'
        )
    path = folder / "manifest.toml"
    path.write_text('name = "vendor"\ngate = 3\n' + "\n".join(blocks))
    return path


def run(path: Path, out: Path, *more: str) -> int:
    return main(["import", str(path), "--contract", str(CONTRACT), "--out", str(out), *more])


def test_every_format_becomes_one_sealed_bundle_that_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bundle"
    assert run(manifest(tmp_path, made.every_format(tmp_path)), out) == 11
    told = capsys.readouterr().out
    assert "not in these files: client_health, clock, counters" in told
    assert "never counts in a campaign" in told
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["verdict"] == "INVALID"
    assert verdict["decision"] is None
    assert main(["verify", str(out)]) == 0
    assert main(["judge", str(out)]) == 11


def test_the_verdict_names_what_the_file_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = {k: v for k, v in made.every_format(tmp_path).items() if k == "vllm-bench"}
    out = tmp_path / "bundle"
    assert run(manifest(tmp_path, formats), out, "--json") == 11
    block = json.loads(capsys.readouterr().out)["blocks"][0]
    assert block["ttft_p50_s"] == pytest.approx(0.2)
    verdict = json.loads((out / "verdict.json").read_text())
    named = {e["condition"]["name"] for e in verdict["exclusions"]}
    assert {"file_has_counters", "file_has_client_health", "file_has_prompt_identity"} <= named


def test_metrics_pages_stand_for_the_missing_counters(tmp_path: Path) -> None:
    page = (
        'vllm:prompt_tokens_total{{engine="0"}} {0}\n'
        "process_start_time_seconds 1000\n"
    )  # fmt: skip
    (tmp_path / "a.prom").write_text(page.format(0))
    (tmp_path / "b.prom").write_text(page.format(384))
    formats = {k: v for k, v in made.every_format(tmp_path).items() if k == "vllm-bench"}
    extra = 'engine_before = "a.prom"\nengine_after = "b.prom"\n'
    out = tmp_path / "bundle"
    assert run(manifest(tmp_path, formats, extra), out) == 11
    verdict = json.loads((out / "verdict.json").read_text())
    named = {e["condition"]["name"] for e in verdict["exclusions"]}
    assert "file_has_counters" not in named
    block = json.loads((out / "blocks/0/block.json").read_text())
    assert block["observation"]["targets"]["engine"]["increase"]["delta"]["prompt_tokens"] == 384


def test_without_token_times_there_is_no_throughput(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = {k: v for k, v in made.every_format(tmp_path).items() if k == "guidellm"}
    assert run(manifest(tmp_path, formats), tmp_path / "bundle", "--json") == 11
    block = json.loads(capsys.readouterr().out)["blocks"][0]
    assert block["ttft_p50_s"] == pytest.approx(0.2, abs=1e-6)
    assert block["output_tok_per_s"] is None


WRONG = {
    "no file": ('file = "gone.json"', "no such file"),
    "a folder": ('file = "."', "not a plain file"),
    "unknown format": ('format = "wrk2"', "unknown format"),
    "unknown arm": ('arm = "recompute"', "unknown arm"),
    "unknown workload": ('workload = "hot"', "unknown workload"),
    "level 0": ("level = 0", "level"),
    "order 2": ("order = 2", "order"),
    "a date without zone": ('started_at = "2026-11-02"', "time zone"),
    "one page of two": ('engine_before = "a.prom"', "belong together"),
    "an unknown key": ("colour = 1", "colour"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_manifest_is_one_line_and_leaves_no_bundle(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, told = WRONG[what]
    good = {
        "file": '"vllm.json"', "format": '"vllm-bench"', "arm": '"baseline"',
        "workload": '"cold_restore"', "level": "8", "pair": "0", "order": "0",
    }  # fmt: skip
    key, value = line.split(" = ", 1)
    lines = "\n".join(f"{k} = {v}" for k, v in (good | {key: value}).items())
    made.write(tmp_path / "vllm.json", made.vllm_run())
    path = tmp_path / "manifest.toml"
    path.write_text(f'name = "x"\ngate = 3\n[[block]]\n{lines}\n')
    out = tmp_path / "bundle"
    assert run(path, out) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (out / "manifest.json").exists()


def test_a_place_is_taken_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write(tmp_path / "vllm.json", made.vllm_run())
    block = (
        '[[block]]\nfile = "vllm.json"\nformat = "vllm-bench"\narm = "baseline"\n'
        'workload = "cold_restore"\nlevel = 8\npair = 0\norder = 0\n'
    )
    path = tmp_path / "manifest.toml"
    path.write_text('name = "x"\ngate = 3\n' + block * 2)
    assert run(path, tmp_path / "bundle") == 2
    assert "second block" in capsys.readouterr().err


def test_a_broken_result_file_leaves_the_bundle_partial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = made.write(tmp_path / "bad.json", '{"ttfts": [0.1')
    assert run(manifest(tmp_path, {"vllm-bench": bad}), tmp_path / "bundle") == 2
    assert "bad.json" in capsys.readouterr().err
    assert main(["judge", str(tmp_path / "bundle")]) != 0
