"""What the made gates share: contract, judged clauses, environment. No number is a measurement."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.campaign import CampaignFacts, Mode
from kvgate.contract import Contract, load_contract
from kvgate.decide.stop import spent, stop_record
from kvgate.reason import Reason
from kvgate.report import FileDigest, GateHistory, ReportInput
from kvgate.verdict import (
    ClauseVerdict,
    DeadlineState,
    Decision,
    Figure,
    GateVerdict,
    RunSpent,
    Verdict,
    worst,
)

CONTRACT = Path(__file__).parents[3] / "gates" / "contracts" / "rehearsal.toml"
DIGEST = "5f0c3c1d9a7e4b26a1d8e37f94c05b6e2d7a8190c4f3be5d6a7b8c9d0e1f2a3b"
BEGAN = "2026-02-02T08:00:00Z"
AS_OF = "2026-03-04T10:22:31Z"


@lru_cache(maxsize=1)
def contract() -> Contract:
    return load_contract(CONTRACT)


def samples(block: BlockResult) -> dict[str, NDArray[np.float64]]:
    """Single requests and token gaps around the block's own medians, the same every time."""
    rng = np.random.Generator(np.random.PCG64(block.n))
    ttft, itl = block.statistics.ttft_p50_s, block.statistics.itl_p50_s
    found = {}
    for name, middle, n in (("ttft_s", ttft, block.statistics.n_ok), ("itl_s", itl, 300)):
        if middle is not None:
            found[name] = middle * np.exp(rng.normal(0.0, 0.12, n) + rng.exponential(0.05, n))
    return found


def analysis(blocks: list[BlockResult], **values: Any) -> Analysis:
    given: dict[str, Any] = {
        "samples": {b.n: samples(b) for b in blocks}, "answers": (), "observed": (), "windows": (),
        "events": (),
        "expected_hosts": {"engines": ("engine-1",), "appliances": ("fx100-a",)},
        "time_scale": 60.0,
    }  # fmt: skip
    return Analysis(blocks=tuple(blocks), **{**given, **values})


def clause_verdict(
    terms: Any, figures: list[Figure], reason: Reason | None = None
) -> ClauseVerdict:
    verdict = worst(f.verdict for f in figures)
    if reason is None:
        reason = next((f.reason for f in figures if f.verdict is verdict), Reason("met"))
    form = type(terms).__name__
    text = {"en": terms.text.en, "zh": terms.text.zh}
    return ClauseVerdict(terms.id, form, terms.metric, text, verdict, reason, tuple(figures))


def gate_verdict(
    gate: int, clauses: list[ClauseVerdict], decision: Decision | None, why: Reason, **values: Any
) -> GateVerdict:
    verdict = worst(c.verdict for c in clauses)
    bad = ", ".join(c.clause for c in clauses if c.verdict is verdict)
    reason = Reason("clauses_decide", {"verdict": verdict.value, "clauses": bad})
    if verdict is Verdict.PASS:
        reason = Reason("all_clauses_met", {"n": len(clauses)})
    given: dict[str, Any] = {
        "campaign": "rehearsal-2026-03", "run": 1, "mode": "counted", "rehearsal": True,
        "as_of": AS_OF, "contract_id": contract().id, "contract_digest": contract().digest,
        "judged_by": "kvgate 0.1.0", "exclusions": (), "findings": (), "pairs_measured": 0,
        "blocks_measured": 0,
    }  # fmt: skip
    given = campaign_around(gate, clauses, decision, why) | given
    return GateVerdict(
        gate=gate, verdict=verdict, reason=reason, decision=decision, decision_reason=why,
        clauses=tuple(clauses), **{**given, **values},
    )  # fmt: skip


def campaign_around(
    gate: int, clauses: list[ClauseVerdict], decision: Decision | None, why: Reason
) -> dict[str, Any]:
    """Calendar, what was spent and what stands behind a stop, as the judge himself makes them."""
    terms = contract().gate(gate)
    earlier = tuple(
        RunSpent(h.gate, 1, "counted", h.verdict, h.decision, h.as_of, 2.5 + 14.0 * (h.gate > 1))
        for h in HISTORY[: gate - 1]
    )
    facts = CampaignFacts(
        name="rehearsal-2026-03", gate=gate, run=1, mode=Mode.COUNTED, rehearsal=True, as_of=AS_OF,
        contract_id=contract().id, contract_digest=contract().digest, kvgate_version="0.1.0",
        inventory="rehearsal", selected=tuple(c.clause for c in clauses), retests_used=0,
        reruns_used=0, serials=contract().appliance.serials, firmware="sim-1.0", predecessor=None,
        faults=(), time_scale=60.0, extends=None, began=BEGAN, earlier=earlier,
    )  # fmt: skip
    deadline = DeadlineState(BEGAN, 30, max(terms.deadline_day, 30), 0)
    verdict = worst(c.verdict for c in clauses)
    so_far = spent(contract(), facts, verdict, decision, 21.4, deadline)
    return {
        "spent": so_far, "deadline": deadline,
        "stop": stop_record(contract(), facts, clauses, decision, why, so_far),
    }  # fmt: skip


ENVIRONMENT = {
    "baseline": {"engine": "vllm 0.20.1", "connector": "LMCacheV1", "store_version": "nvme",
                 "model_digest": DIGEST[:32], "max_num_seqs": "64", "kv_cache_dtype": "fp8"},
    "appliance": {"engine": "vllm 0.20.1", "connector": "LMCacheV1", "store_version": "fx100",
                  "model_digest": DIGEST[:32], "max_num_seqs": "64", "kv_cache_dtype": "fp8"},
    "engine-1": {"kernel": "6.8.0-45-generic", "os": "Ubuntu 24.04", "processor": "EPYC 9654",
                 "processors": "192", "python": "3.11.9"},
    "load-1": {"kernel": "6.8.0-45-generic", "os": "Ubuntu 24.04", "python": "3.11.9"},
}  # fmt: skip
FILES = tuple(
    FileDigest(f"blocks/{n:04d}/{name}", 18_412 + 731 * n, f"{n * 7919 + i:064x}")
    for n in range(1, 7)
    for i, name in enumerate(("block.json", "requests.parquet", "engine.parquet", "host.parquet"))
)
HISTORY = (
    GateHistory(1, "PASS", "PROCEED", "2026-02-09T09:00:00Z", DIGEST),
    GateHistory(2, "PASS", "PROCEED", "2026-02-21T15:40:00Z", DIGEST[::-1]),
)


def report_input(verdict: GateVerdict, a: Analysis, **values: Any) -> ReportInput:
    given: dict[str, Any] = {
        "environment": ENVIRONMENT, "manifest_sha256": DIGEST, "files": FILES,
        "bundle": f"campaigns/rehearsal-2026-03/g{verdict.gate}-run{verdict.run}",
        "campaign_history": HISTORY[: verdict.gate - 1],
    }  # fmt: skip
    return ReportInput(verdict=verdict, contract=contract(), analysis=a, **{**given, **values})
