"""What the evidence names, said in the reader's language: reasons, conditions, places.

A reason carries codes ("engine_cache_cold", "cold_restore@16", "baseline"), so that one verdict
serves both languages; here each code becomes words. A name that no text knows stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kvgate.numbers import NBSP, number
from kvgate.reason import Param, Reason
from kvgate.report.texts import Texts
from kvgate.report.words import metric_words, place, standing_name
from kvgate.verdict import Condition

_BEFORE_UNIT: Final = re.compile(r"(?<=[0-9]) (?=%|(?:[kMGT]?(?:B|bit)(?:/s)?|m?s|tok/s|nat)\b)")
_COUNTED: Final = (
    (re.compile(r"^(1) restarts$"), "state.restart"),
    (re.compile(r"^([0-9]+) restarts$"), "state.restarts"),
    (re.compile(r"^([0-9]+) hosts$"), "state.hosts"),
    (re.compile(r"^session ([0-9]+) was broken off$"), "state.session_cut"),
)
"""States that carry a number, as the evidence writes them."""


def reason_text(reason: Reason, t: Texts) -> str:
    """The reason's sentence with every code in it as words."""
    return replace(reason, params=_said(reason.params, t)).text(t.lang)


def _said(params: Mapping[str, Param], t: Texts) -> dict[str, Param]:
    return {key: _param(key, value, t) for key, value in params.items()}


def _param(key: str, value: Param, t: Texts) -> Param:
    if isinstance(value, Reason):
        return reason_text(value, t)
    if not isinstance(value, str):
        return value
    say = _SAYERS.get(key)
    return say(value, t) if say is not None else _BEFORE_UNIT.sub(NBSP, value)


def _arm(value: str, t: Texts) -> str:
    return t.find(f"arm.{value}", value)


def _each(prefix: str) -> Callable[[str, Texts], str]:
    def say(value: str, t: Texts) -> str:
        return t("list").join(_named(prefix, name, t) for name in value.split(", "))

    return say


def _named(prefix: str, name: str, t: Texts) -> str:
    """One of a list; an outcome carries its count behind it: "timeout 3"."""
    word, _, count = name.partition(" ")
    if prefix == "condition":
        return condition_name(name, t)
    return f"{t.find(f'{prefix}.{word}', word)}{NBSP}{count}".removesuffix(NBSP)


def _decision(value: str, t: Texts) -> str:
    return t.find(f"decision.{value}.word", value)


_SAYERS: Final[Mapping[str, Callable[[str, Texts], str]]] = {
    "where": place,
    "metric": metric_words,
    "statistic": lambda v, t: t.find(f"statistic.{v}", v),
    "arm": _arm,
    "reference": _arm,
    "conditions": _each("condition"),
    "kinds": _each("outcome"),
    "clauses": lambda v, t: t("list").join(v.split(", ")),
    "cause": lambda v, t: t.find(f"cause.{v}", v),
    "mode": lambda v, t: t.find(f"mode.{v}", v),
    "verdict": lambda v, t: t.find(f"verdict.{v}", v),
    "decision": _decision,
    "kind": lambda v, t: t.find(f"change.{v}", v),
    "party": lambda v, t: t.find(f"facts.{v}", v),
    "parties": lambda v, t: t("list").join(t.find(f"facts.{p}", p) for p in v.split(", ")),
    "why": standing_name,
    "group": lambda v, t: t.find(f"group.{v}", v),
    "state": lambda v, t: t.find(f"state.{v}", v),
}


def condition_name(name: str, t: Texts) -> str:
    """A validity condition; "untouched_baseline" names the store it speaks of."""
    found = t.sentences.get(f"condition.{name}")
    if found is not None and "{" not in found:
        return found
    stem, _, store = name.partition("_")
    if stem == "untouched" and store:
        return t("condition.untouched", store=store)
    return name


def condition_remedy(condition: Condition, t: Texts) -> str:
    """What to do about it. The evidence says it in English, whose words win where the reader's
    language has none."""
    name = condition.name
    stem = "untouched" if name.startswith("untouched_") else name
    if t.lang == "en" and condition.remedy:
        return condition.remedy
    return t.find(f"remedy.{stem}", condition.remedy)


def condition_value(value: float | str | None, condition: Condition, t: Texts) -> str:
    """A condition's value or limit; its states ("done", "2 restarts") as words."""
    if isinstance(value, str):
        for shape, key in _COUNTED:
            if (found := shape.match(value)) is not None:
                return t(key, n=found[1])
        return t.find(f"state.{value.replace(' ', '_')}", value)
    name = "untouched" if condition.name.startswith("untouched_") else condition.name
    return number(value, condition.unit, t.lang, metric=name)
