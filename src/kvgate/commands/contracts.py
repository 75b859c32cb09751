"""contract check, contract schema: the file that both parties sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvgate.commands.shown import document, say

app = typer.Typer(no_args_is_help=True, help="Check a contract, print its schema.")


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The contract's TOML file.")],
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check a contract; an error names file and line. Prints the digest that evidence carries."""
    from kvgate.contract import load_contract

    contract = load_contract(file)
    clauses = {n: [c.id for c in contract.gate(n).clause] for n in contract.gates}
    if json_output:
        document({"file": file, "id": contract.id, "digest": contract.digest,
                  "rehearsal": contract.rehearsal, "clauses": clauses})  # fmt: skip
        return
    kind = "a rehearsal" if contract.rehearsal else "an acceptance"
    count = sum(len(ids) for ids in clauses.values())
    say(f"{file}: contract {contract.id} for {kind}: {len(clauses)} gates, {count} clauses")
    say(f"digest {contract.digest}")


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
