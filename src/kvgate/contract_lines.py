"""Where a key of a TOML file stands, since the standard parser keeps no line numbers."""

from __future__ import annotations

import re

_TABLE = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-\"'.]+)\s*=")


def line_of(text: str, path: str) -> int:
    """1-based line of the dotted ``path`` ("gate3.clause.0.metric"), or of its nearest parent.

    Array items carry their index. A key inside an inline table is reported at the table's line.
    """
    wanted = path.split(".")
    best_line, best_depth = 1, 0
    prefix: list[str] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        table = _TABLE.match(line)
        if table:
            prefix = _expand(table.group(2), table.group(1) == "[[", counts)
            here = prefix
        else:
            key = _KEY.match(line)
            if not key:
                continue
            here = prefix + [part.strip("\"'") for part in key.group(1).split(".")]
        depth = _shared(here, wanted)
        if depth > best_depth and depth == len(here):
            best_line, best_depth = number, depth
    return best_line


def _expand(name: str, is_array: bool, counts: dict[str, int]) -> list[str]:
    """Table name as path, with the running index behind every array of tables."""
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    path: list[str] = []
    for i, part in enumerate(parts):
        path.append(part)
        dotted = ".".join(path)
        last = i == len(parts) - 1
        if last and is_array:
            counts[dotted] = counts.get(dotted, -1) + 1
        if dotted in counts:
            path.append(str(counts[dotted]))
    return path


def _shared(here: list[str], wanted: list[str]) -> int:
    depth = 0
    for a, b in zip(here, wanted, strict=False):
        if a != b:
            break
        depth += 1
    return depth
