"""Where a run goes on: after nothing, an inconclusive run, or an interruption of its own.

One mechanism for both: ``plan.json`` lists every session with its state and the digests of its
blocks; what stands is read from there, never from a result.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvgate.analyse.listed import ENDED, Entry, broken_sessions, setup_in
from kvgate.analyse.results import INTERRUPTED
from kvgate.cells import Setup
from kvgate.errors import CannotMeasure
from kvgate.evidence import layout
from kvgate.evidence.bundle import Bundle, load_bundle
from kvgate.evidence.journal import Journal


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a run keeps of what was measured before.

    ``order_run`` seeds the order of arms, so that a couple begun earlier is completed; ``sessions``
    lists every session so far, ``next_pair`` counts the pairs that are whole in every setup,
    ``primed`` and ``environment`` are those of ``plan.json``. ``extension``: the run goes on to the
    contract's ``max_pairs``; its first ``carried_blocks`` blocks were copied from the run that it
    goes on from.
    """

    order_run: int
    next_block: int = 0
    next_pair: int = 0
    extension: bool = False
    carried_blocks: int = 0
    sessions: tuple[dict[str, Any], ...] = ()
    primed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def standing(self) -> int:
        """Sessions that count: measured to their end, in a whole pair."""
        return sum(session.get("state", ENDED) == ENDED for session in self.sessions)

    def attempt(self, pair: int | None, setup: Setup) -> int:
        """How often the sessions of ``pair`` in a setup were begun and broken off; None: the
        reference."""
        broken = [
            int(session.get("attempt", 0)) + 1
            for session in self._of(pair, setup)
            if session.get("state") == INTERRUPTED
        ]
        return max(broken, default=0)

    def stands(self, pair: int | None, setup: Setup) -> bool:
        """Whether the sessions of ``pair`` (None: the reference) in a setup were measured whole."""
        return any(s.get("state", ENDED) == ENDED for s in self._of(pair, setup))

    def _of(self, pair: int | None, setup: Setup) -> Iterator[Entry]:
        return (s for s in self.sessions if s["pair"] == pair and setup_in(s) == setup)


def after_interruption(plan: Entry, finished_blocks: Iterable[int], *, extension: bool) -> Earlier:
    """What stands of an interrupted run, from its ``plan.json``; spoilt sessions come out marked.

    Raises CannotMeasure where the list of sessions is not one that a run could have left.
    """
    try:
        listed = [dict(s) for s in plan.get("sessions") or ()]
        broken = broken_sessions(listed)
        for session in listed:
            if session["number"] in broken:
                session["state"] = INTERRUPTED
        standing = [s for s in listed if s["state"] == ENDED]
        planned = [Setup(**s) for s in plan.get("setups") or [{}]]
        by_setup = {
            setup: {int(s["pair"]) for s in standing
                    if s["pair"] is not None and setup_in(s) == setup}
            for setup in dict.fromkeys((*planned, *(setup_in(s) for s in standing
                                                    if s["pair"] is not None)))
        }  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise CannotMeasure(
            f"plan.json is not usable: {type(error).__name__} {error}",
            where=layout.PLAN,
            remedy="restore it from a copy, or start a new campaign",
        ) from error
    for pairs in by_setup.values():
        if pairs != set(range(len(pairs))):
            raise CannotMeasure(
                f"plan.json lists the pairs {sorted(pairs)}, which no run measures in that order",
                where=layout.PLAN,
                remedy="restore it from a copy, or start a new campaign",
            )
    return Earlier(
        order_run=int(plan.get("order_run", 1)),
        next_block=max(finished_blocks, default=-1) + 1,
        next_pair=min(len(pairs) for pairs in by_setup.values()),
        extension=extension,
        carried_blocks=int(plan.get("carried_blocks") or 0),
        sessions=tuple(listed),
        primed=plan.get("primed") or {},
        environment=plan.get("environment") or {},
    )


def carry_over(journal: Journal, bundle: Path) -> Earlier:
    """Copy the measured blocks of an inconclusive run into this bundle, under their own numbers.

    May be called again where it was cut short; ``plan.json`` is written last and says that all is
    there. Raises CannotMeasure where the evidence cannot be read or a copy differs.
    """
    source = load_bundle(bundle)
    plan: Mapping[str, Any] = source.plan or {}
    there = set(journal.finished_blocks())
    numbers, pairs = [-1], [-1]
    interrupted = {
        s.get("number") for s in plan.get("sessions") or () if s.get("state") == INTERRUPTED
    }
    for block in source.blocks:
        if block.block is None:
            continue
        if block.n not in there:
            folder = journal.block_dir(block.n)
            for path in (block.requests_path, block.engine_path, block.host_path):
                if path is not None:
                    shutil.copyfile(path, folder / path.name)
            journal.finish_block(block.n, block.block)
        copied = block_digests(journal.root, block.n)
        if copied != block_digests(bundle, block.n):
            raise CannotMeasure(
                f"the copy of block {block.n} differs from the one in {bundle.name}",
                where=str(journal.root),
                remedy="restore both from a copy, or start a new campaign",
            )
        numbers.append(block.n)
        if block.block["pair"] is not None and block.block.get("session") not in interrupted:
            pairs.append(int(block.block["pair"]))
    earlier = Earlier(
        order_run=int(plan.get("order_run", 1)),
        next_block=max(numbers) + 1,
        next_pair=max(pairs) + 1,
        extension=True,
        carried_blocks=max(numbers) + 1,
        # Whatever a sealed run lists without a mark was measured to its end.
        sessions=tuple(
            {**s, "state": s.get("state", ENDED)} for s in plan.get("sessions") or ()
        ),
    )  # fmt: skip
    journal.write_json(
        layout.PLAN,
        {**without_end(plan), "sessions": list(earlier.sessions), "primed": {}, "environment": {},
         "carried_blocks": earlier.next_block},
    )  # fmt: skip
    return earlier


def without_end(plan: Entry) -> dict[str, Any]:
    """``plan`` of a run that goes on: what it said of its end is no longer so."""
    return {key: said for key, said in plan.items() if key != "ended"}


def block_digests(root: Path, n: int) -> dict[str, str]:
    """SHA-256 of every file of a measured block, by name."""
    folder = root / layout.BLOCKS / str(n)
    return {
        path.name: _sha256(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(layout.TEMPORARY_PREFIX)
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def changed_block(bundle: Bundle) -> int | None:
    """The first block whose files are not the bytes that ``plan.json`` noted; None where all are.

    A block without a note was cut off before it could be noted: its session did not end.
    """
    for session in (bundle.plan or {}).get("sessions") or ():
        for number, noted in sorted((session.get("blocks") or {}).items(), key=lambda b: int(b[0])):
            n = int(number)
            found = next((b for b in bundle.blocks if b.n == n), None)
            if found is None or found.block is None or block_digests(bundle.root, n) != noted:
                return n
    return None
