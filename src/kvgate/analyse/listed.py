"""The sessions that ``plan.json`` lists, and what it says of a run's end. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kvgate.analyse.results import INTERRUPTED, End, Ending
from kvgate.cells import Setup

RUNNING: Final = "running"
ENDED: Final = "ended"

Entry = Mapping[str, Any]
"""One session as ``plan.json`` lists it."""


def setup_in(session: Entry) -> Setup:
    """The setup of a session of ``plan.json``; the plain one where it names none."""
    named = session.get("setup")
    return Setup(**named) if isinstance(named, Mapping) else Setup()


def broken_sessions(sessions: Sequence[Entry]) -> tuple[int, ...]:
    """Numbers of the sessions that an interruption spoilt and that are not marked so yet.

    A session counts when it ran to its end and so did its partner in the same setup: two sessions
    are a pair only next to each other, so the whole half of a broken pair is measured anew. Nothing
    else is looked at, least of all what was measured.
    """
    alive = [s for s in sessions if s.get("state", RUNNING) != INTERRUPTED]
    broken = []
    for session in alive:
        partners = [
            s for s in alive if s["pair"] == session["pair"] and setup_in(s) == setup_in(session)
        ]
        needed = 1 if session["pair"] is None else 2
        whole = len(partners) == needed and all(s.get("state") == ENDED for s in partners)
        if not whole:
            broken.append(int(session["number"]))
    return tuple(broken)


def end_in(plan: Mapping[str, Any] | None, kinds: Collection[str]) -> End | None:
    """What a plan says of the run's end, ``kinds`` being those of its whole blocks; None where it
    does not say that there was one, as in a run that goes on and in evidence from before ends were
    noted."""
    if plan is None or "ended" not in plan:
        return None
    try:
        listed = [dict(s) for s in plan.get("sessions") or ()]
        broken = broken_sessions(listed)
        whole = [s for s in listed if s.get("state") == ENDED and s["number"] not in broken]
        pairs: dict[Setup, set[int]] = {Setup(**s): set() for s in plan.get("setups") or ()}
        for session in whole:
            if session["pair"] is not None:
                pairs.setdefault(setup_in(session), set()).add(int(session["pair"]))
        return End(
            Ending(plan["ended"]),
            min((len(found) for found in pairs.values()), default=0),
            tuple(int(s["number"]) for s in listed if s.get("state") == RUNNING),
            broken,
            tuple(int(s["number"]) for s in whole),
            "soak" in kinds,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return End(None)
