"""Times and decisions as the report writes them."""

from __future__ import annotations

from datetime import UTC, datetime

from kvgate.verdict import Decision


def moment(text: str) -> datetime:
    """``as_of`` as a time in UTC; the epoch where it is no time, so that bytes stay fixed."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def as_of_text(text: str) -> str:
    at = moment(text)
    return text if at.timestamp() == 0 else at.strftime("%Y-%m-%d %H:%M UTC")


def decision_key(decision: str) -> str:
    return decision if decision in set(Decision) else "NONE"
