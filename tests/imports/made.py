"""Small result files of the shapes that other tools write, made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

N = 6


def vllm_run(*, n: int = N, ttft_s: float = 0.2, detailed: bool = True) -> dict[str, Any]:
    run: dict[str, Any] = {
        "backend": "vllm",
        "num_prompts": n,
        "completed": n,
        "duration": 4.0,
        "median_ttft_ms": ttft_s * 1e3,
        "p99_ttft_ms": ttft_s * 1e3,
        "output_throughput": 123.0,
    }
    if detailed:
        run |= {
            "input_lens": [64] * n,
            "output_lens": [5] * n,
            "ttfts": [ttft_s] * n,
            "itls": [[0.01] * 4 for _ in range(n)],
            "start_times": [100.0 + 0.5 * i for i in range(n)],
            "errors": [""] * n,
        }
    return run


def aiperf_line(i: int, *, phase: str = "profiling", unit: str = "ms") -> dict[str, Any]:
    start = 1_700_000_000_000_000_000 + i * 500_000_000
    return {
        "metadata": {
            "x_request_id": f"r{i}",
            "request_start_ns": start,
            "request_end_ns": start + 240_000_000,
            "benchmark_phase": phase,
            "was_cancelled": False,
        },
        "metrics": {
            "time_to_first_token": {"value": 200.0, "unit": unit},
            "inter_chunk_latency": {"value": [10.0, 10.0, 10.0, 10.0], "unit": unit},
            "usage_completion_tokens": {"value": 5, "unit": "tokens"},
            "usage_prompt_tokens": {"value": 64, "unit": "tokens"},
        },
    }


def guidellm_file(*, groups: bool = True) -> dict[str, Any]:
    rows = [
        {
            "request_id": f"g{i}",
            "request_start_time": 1_700_000_000.0 + i,
            "request_end_time": 1_700_000_000.3 + i,
            "time_to_first_token_ms": 200.0,
            "prompt_tokens": 64,
            "output_tokens": 5,
        }
        for i in range(N)
    ]
    broken = {"request_id": "bad", "request_start_time": 1_700_000_099.0, "output_tokens": 3}
    return {
        "benchmarks": [
            {
                "metrics": {"time_to_first_token_ms": {"successful": {"median": 200.0}}},
                "requests": {"successful": rows, "errored": [broken], "incomplete": []}
                if groups
                else {"successful": None, "errored": None, "incomplete": None},
            }
        ]
    }


def inference_perf_row(i: int, *, end: str = "data: [DONE]\n\n") -> dict[str, Any]:
    start = 50.0 + i
    return {
        "start_time": start,
        "end_time": start + 0.3,
        "request": json.dumps({"prompt": f"prompt {i}"}),
        "response": 'data: {"choices":[]}\n\n' + end,
        "error": None,
        "info": {
            "response_metrics": {
                "server_usage": {"prompt_tokens": 64, "completion_tokens": 3},
                "output_token_times": [start + 0.2, start + 0.21, start + 0.22],
            }
        },
    }


LMCACHE = (
    "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,"
    "finish_time\n" + "".join(f"64,5,0.2,0.1,{i},0,{100 + i},{100.3 + i}\n" for i in range(N))
)

EVALSCOPE = [
    {"Percentiles": "50%", "TTFT (ms)": 200.0, "ITL (ms)": 10.0, "Latency (s)": 0.24},
    {"Percentiles": "99%", "TTFT (ms)": 300.0, "ITL (ms)": 12.0, "Latency (s)": 0.40},
]


def write(path: Path, value: object) -> Path:
    """JSON, JSON Lines (a list of objects under .jsonl), or text as it is."""
    if isinstance(value, str):
        path.write_text(value)
    elif path.suffix == ".jsonl" and isinstance(value, list):
        path.write_text("".join(json.dumps(line) + "\n" for line in value))
    else:
        path.write_text(json.dumps(value))
    return path


def every_format(folder: Path) -> dict[str, Path]:
    """One good file of each format."""
    return {
        "vllm-bench": write(folder / "vllm.json", vllm_run()),
        "sglang-bench": write(folder / "sglang.jsonl", [vllm_run()]),
        "aiperf": write(folder / "aiperf.jsonl", [aiperf_line(i) for i in range(N)]),
        "guidellm": write(folder / "guidellm.json", guidellm_file()),
        "inference-perf": write(
            folder / "per_request.json", [inference_perf_row(i) for i in range(N)]
        ),
        "evalscope": write(folder / "percentile.json", EVALSCOPE),
        "lmcache-multi-round": write(folder / "rounds.csv", LMCACHE),
    }
