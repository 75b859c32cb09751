"""kvgate import: other tools' result files through the same judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.commands.shown import document, say

if TYPE_CHECKING:
    from kvgate.adjudicate import Judged
    from kvgate.imports.bundle import Kept


def import_command(
    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="TOML: file, arm, level, pair of each block.")
    ],
    contract: Annotated[Path, typer.Option("--contract", help="The contract to judge by.")],
    out: Annotated[Path, typer.Option("--out", help="New folder for the evidence bundle.")],
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Read result files of other load generators into a sealed bundle and judge it.

    Formats: vllm-bench, sglang-bench, aiperf, guidellm, inference-perf, evalscope,
    lmcache-multi-round. What a file cannot prove is named and makes the clauses that need it
    INVALID; the result never counts in a campaign. Exit codes as for judge.
    """
    import kvgate
    from kvgate.adjudicate import adjudicate
    from kvgate.contract import load_contract
    from kvgate.evidence.journal import Journal
    from kvgate.imports.bundle import write_blocks
    from kvgate.imports.manifest import load_manifest

    terms = load_contract(contract)
    wanted = load_manifest(manifest, terms)
    clauses = tuple(c.id for c in terms.gate(wanted.gate).clause)
    with Journal(out) as journal:
        kept = write_blocks(journal, terms, contract.read_bytes(), wanted, manifest.parent, clauses)
        judged = adjudicate(journal.root)
        journal.write_bytes("verdict.json", judged.verdict_json)
        journal.seal(previous_manifest_sha256=None, kvgate_version=kvgate.__version__)
    if json_output:
        document({"bundle": out, "verdict": judged.verdict.verdict,
                  "blocks": [_plain(one, judged) for one in kept]})  # fmt: skip
    else:
        _show(out, kept, judged)
    raise typer.Exit(judged.verdict.exit_code)


def _plain(one: Kept, judged: Judged) -> dict[str, object]:
    statistics = next(b.statistics for b in judged.analysis.blocks if b.n == one.n)
    return {
        "n": one.n,
        "file": one.block.file,
        "tool": one.imported.tool,
        "requests": statistics.n_requests,
        "requests_ok": statistics.n_ok,
        "ttft_p50_s": statistics.ttft_p50_s,
        "output_tok_per_s": statistics.output_tok_per_s,
        "totals_of_the_tool": dict(one.imported.totals),
        "lacks": sorted(one.imported.lacks),
        "notes": list(one.imported.notes),
    }


def _show(out: Path, kept: tuple[Kept, ...], judged: Judged) -> None:
    say(f"{'pair':>4} {'arm':<10} {'cell':<18} {'ok/all':>9} {'TTFT p50 s':>10} {'tok/s':>8}  file")
    for one in kept:
        b = next(b for b in judged.analysis.blocks if b.n == one.n)
        s = b.statistics
        ttft, rate = _figure(s.ttft_p50_s), _figure(s.output_tok_per_s)
        say(f"{one.block.pair:>4} {one.block.arm:<10} {b.cell.label:<18} "
            f"{f'{s.n_ok}/{s.n_requests}':>9} {ttft:>10} {rate:>8}  {one.block.file}")  # fmt: skip
        for note in one.imported.notes:
            say(f"     note: {note}")
    lacks = sorted({lack.value for one in kept for lack in one.imported.lacks})
    say(f"not in these files: {', '.join(lacks)}")
    say(f"G{judged.verdict.gate}  {judged.verdict.verdict}  imported: never counts in a campaign")
    for clause in judged.verdict.clauses:
        say(f"    {clause.clause}  {clause.verdict}  {clause.reason}")
    say(f"bundle: {out}")


def _figure(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4g}"
