"""schema: the JSON Schemas of the files that a machine reads."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kvgate.commands.shown import document


class Schema(StrEnum):
    """Files with a schema."""

    VERDICT = "verdict"
    MANIFEST = "manifest"


def schema_command(
    name: Annotated[Schema, typer.Argument(metavar="verdict|manifest", help="Which file.")],
) -> None:
    """Print the JSON Schema of verdict.json or manifest.json (see also: contract schema)."""
    from kvgate.evidence.schema import manifest_schema, verdict_schema

    document(verdict_schema() if name is Schema.VERDICT else manifest_schema())
