"""contract check, contract schema: the file that both parties sign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.commands.shown import document, say

if TYPE_CHECKING:
    from kvgate.contract import Contract

app = typer.Typer(no_args_is_help=True, help="Check a contract, print its schema.")


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The contract's TOML file.")],
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check a contract; an error names file and line. Prints the digest that evidence carries."""
    from kvgate.contract import load_contract
    from kvgate.plan import store_shares

    contract = load_contract(file)
    clauses = {n: [c.id for c in contract.gate(n).clause] for n in contract.gates}
    if json_output:
        document({"file": file, "id": contract.id, "digest": contract.digest,
                  "rehearsal": contract.rehearsal, "clauses": clauses,
                  "placeholders": contract.placeholders,
                  "store_shares": [{"gate": s.gate, "workload": s.workload, "level": s.level,
                                    "share": s.share, "weak": s.weak}
                                   for s in store_shares(contract)]})  # fmt: skip
        return
    kind = "a rehearsal" if contract.rehearsal else "an acceptance"
    count = sum(len(ids) for ids in clauses.values())
    say(f"{file}: contract {contract.id} for {kind}: {len(clauses)} gates, {count} clauses")
    say(f"digest {contract.digest}")
    for line in store_share_lines(contract):
        say(line)
    if contract.placeholders:
        say(f"still to be filled in before a gate opens: {', '.join(contract.placeholders)}")


def store_share_lines(contract: Contract) -> Iterator[str]:
    """How much of each cell with stored beginnings must come from the store; a warning where that
    is so little that its figures speak about the engine's own cache."""
    from kvgate.plan import WEAK_STORE_SHARE, store_shares

    for cell in store_shares(contract):
        told = f"G{cell.gate} {cell.workload}@{cell.level}: {100 * cell.share:.1f} % of its prompt "
        told += "tokens must come from the store"
        if cell.weak:
            told += f"; WARNING: below {100 * WEAK_STORE_SHARE:.0f} % it proves little of the store"
            told += ": more beginnings, or fewer requests per level"
        yield told


@app.command("schema")
def schema() -> None:
    """The JSON Schema of a contract, from the very types that check it."""
    from kvgate.contract import Contract

    document(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **Contract.model_json_schema(by_alias=True),
        }
    )
