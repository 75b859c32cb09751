"""How each load generator is asked for the same load, and what it says of every request."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PROMPT_WORDS: Final = 50
OUTPUT_TOKENS: Final = 200


@dataclass(frozen=True, slots=True)
class Ask:
    """The load: ``streams`` requests in flight, ``requests`` in all, against ``url``."""

    url: str
    streams: int
    requests: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool says of one request, ms. ``key`` is the request's id or that of its answer."""

    key: str
    ttft_ms: float
    mean_itl_ms: float | None


@dataclass(frozen=True, slots=True)
class Tool:
    """``command`` makes the command line, ``results`` reads what it left, by ``key``.

    ``extra`` is added to its environment.

    ``key``: ``request`` for the x-request-id header, ``answer`` for the id of the answer,
    ``order`` where the tool keeps neither and requests are matched in the order of their start.
    """

    name: str
    program: str
    key: str
    command: Callable[[str, Ask], list[str]]
    results: Callable[[Path], Iterator[Said]]
    extra: dict[str, str] = field(default_factory=dict)


def find(program: str) -> str | None:
    """The program on PATH or in one of the environments below KVGATE_PEERS."""
    below = os.environ.get("KVGATE_PEERS")
    if below:
        for candidate in sorted(Path(below).glob(f"*/bin/{program}")):
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return shutil.which(program)


def local_tokenizer(folder: Path) -> Path:
    """A tokenizer of a few words, for tools that want one from a hub that may not be there."""
    place = folder / "tokenizer"
    place.mkdir(exist_ok=True)
    words = {"<unk>": 0, **{f"w{i}": i + 1 for i in range(2000)}}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    (place / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"})
    )
    return place


def _prompts(ask: Ask) -> list[str]:
    return [
        " ".join(f"w{(17 * i + j) % 2000}" for j in range(PROMPT_WORDS))
        for i in range(ask.requests)
    ]


# --- ours ----------------------------------------------------------------------------------------


def _kvgate(_program: str, ask: Ask) -> list[str]:
    return [
        sys.executable, "-m", "kvgate.cli", "load", "--url", ask.url, "--model", "truth",
        "--concurrency", str(ask.streams), "--requests", str(ask.requests),
        "--prompt-tokens", str(PROMPT_WORDS), "--output-tokens", str(OUTPUT_TOKENS),
        "--out", str(ask.folder / "out"),
    ]  # fmt: skip


def _kvgate_results(folder: Path) -> Iterator[Said]:
    from kvgate.evidence.tables import read_requests

    frame = read_requests(folder / "out" / "requests.parquet")
    good = frame[frame["outcome"] == "ok"]
    ttft = (good["first_token_ns"] - good["sent_ns"]) / 1e6
    itl = (good["last_token_ns"] - good["first_token_ns"]) / 1e6 / (OUTPUT_TOKENS - 1)
    for key, first, gap in zip(good["request_id"], ttft, itl, strict=True):
        yield Said(str(key), float(first), float(gap))


# --- AIPerf --------------------------------------------------------------------------------------


def _aiperf(program: str, ask: Ask) -> list[str]:
    data = ask.folder / "prompts.jsonl"
    data.write_text("".join(json.dumps({"text": p}) + "\n" for p in _prompts(ask)))
    return [
        program, "profile", "--model", "truth", "--url", ask.url, "--endpoint-type", "completions",
        "--streaming", "--concurrency", str(ask.streams), "--request-count", str(ask.requests),
        "--tokenizer", str(local_tokenizer(ask.folder)), "--input-file", str(data),
        "--custom-dataset-type", "single_turn", "--extra-inputs", f"max_tokens:{OUTPUT_TOKENS}",
        "--extra-inputs", "ignore_eos:true", "--use-server-token-count",
        "--artifact-dir", str(ask.folder / "out"), "--ui", "none",
    ]  # fmt: skip


def _aiperf_results(folder: Path) -> Iterator[Said]:
    for path in (folder / "out").rglob("profile_export.jsonl"):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            metrics: dict[str, Any] = told["metrics"]
            if told["metadata"]["benchmark_phase"] != "profiling":
                continue
            if "time_to_first_token" in metrics:
                itl = metrics.get("inter_token_latency")
                yield Said(
                    told["metadata"]["x_request_id"],
                    metrics["time_to_first_token"]["value"],
                    None if itl is None else itl["value"],
                )


# --- GuideLLM ------------------------------------------------------------------------------------


def _guidellm(program: str, ask: Ask) -> list[str]:
    data = ask.folder / "prompts.jsonl"
    lines = [json.dumps({"prompt": p, "output_tokens_count": OUTPUT_TOKENS}) for p in _prompts(ask)]
    data.write_text("\n".join(lines) + "\n")
    return [
        program, "run",
        "--backend",
        f"kind=openai_http,target={ask.url},model=truth,request_format=/v1/completions",
        "--profile", f"kind=concurrent,streams={ask.streams}",
        "--constraint", f"kind=max_requests,count={ask.requests}",
        "--data", f"kind=json_file,path={data}",
        "--tokenizer", f"kind=hf_auto,model={local_tokenizer(ask.folder)}",
        "--output", f"kind=json,path={ask.folder / 'out.json'}",
        "--disable-console",
    ]  # fmt: skip


def _guidellm_results(folder: Path) -> Iterator[Said]:
    for path in folder.glob("out.json*"):
        files = [path] if path.is_file() else sorted(path.glob("*.json"))
        for file in files:
            for benchmark in json.loads(file.read_text())["benchmarks"]:
                for told in benchmark["requests"]["successful"]:
                    yield Said(
                        told["response_id"],
                        told["time_to_first_token_ms"],
                        told["inter_token_latency_ms"],
                    )


# --- evalscope -----------------------------------------------------------------------------------


def _evalscope(program: str, ask: Ask) -> list[str]:
    data = ask.folder / "prompts.txt"
    data.write_text("\n".join(_prompts(ask)) + "\n")
    return [
        program, "perf", "--model", "truth", "--url", f"{ask.url}/v1/completions", "--api",
        "openai", "--parallel", str(ask.streams), "--number", str(ask.requests), "--dataset",
        "line_by_line", "--dataset-path", str(data), "--max-tokens", str(OUTPUT_TOKENS),
        "--stream", "--tokenizer-path", str(local_tokenizer(ask.folder)), "--outputs-dir",
        str(ask.folder / "out"), "--min-prompt-length", "1", "--no-test-connection",
    ]  # fmt: skip


def _evalscope_results(folder: Path) -> Iterator[Said]:
    for path in (folder / "out").rglob("benchmark_data.db"):
        with sqlite3.connect(path) as base:
            rows = base.execute(
                "select first_chunk_latency, time_per_output_token from result "
                "where success = 1 order by start_time"
            )
            for number, (ttft_s, tpot_s) in enumerate(rows):
                mean = None if tpot_s is None else 1000 * float(tpot_s)
                yield Said(str(number), 1000 * float(ttft_s), mean)


KVGATE: Final = Tool("kvgate", sys.executable, "request", _kvgate, _kvgate_results)
# Nobody's start-up shall be the time in which a hub does not answer; but AIPerf reads a tokenizer
# from a folder only without this.
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
PEERS: Final = (
    Tool("AIPerf", "aiperf", "request", _aiperf, _aiperf_results),
    Tool("GuideLLM", "guidellm", "answer", _guidellm, _guidellm_results, OFFLINE),
    Tool("evalscope", "evalscope", "order", _evalscope, _evalscope_results, OFFLINE),
)
WITHOUT_RUNNER: Final = (("inference-perf", "inference-perf"),)
"""Looked for and named; its package wants a newer Python than this project runs on."""
