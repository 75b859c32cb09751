"""The contract: the TOML file that both parties sign; the only place where a threshold stands.

:func:`load_contract` refuses unknown keys, missing numbers and wrong units with file and line.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from kvgate.cells import AXES
from kvgate.contract_gates import (
    AnswersClause,
    CellPlan,
    Clause,
    CompareClause,
    ErrorsClause,
    Fault,
    GateTerms,
    LimitClause,
    PairPlan,
    SoakPlan,
)
from kvgate.contract_lines import line_of
from kvgate.contract_rules import inconsistencies
from kvgate.contract_tables import (
    Appliance,
    Arm,
    Changes,
    Costs,
    Distance,
    Follows,
    Frozen,
    Model,
    Name,
    Parallelism,
    Parties,
    Planning,
    Risk,
    Strategy,
    Terms,
    Text,
    Validity,
    Workload,
)
from kvgate.errors import UsageError
from kvgate.reuse import unfit_workloads

__all__ = [
    "GATES",
    "AnswersClause",
    "CellPlan",
    "Clause",
    "CompareClause",
    "Contract",
    "ErrorsClause",
    "Fault",
    "GateTerms",
    "LimitClause",
    "PairPlan",
    "SoakPlan",
    "load_contract",
    "parse_contract",
    "read_contract",
]
GATES: Final = (1, 2, 3, 4)
MAX_BYTES: Final = 4 << 20
"""Of a contract file: the largest that ships has 20 kB."""

_NAME = "a name of small letters, digits, '.', '_' and '-'"
_FORMS: Final = {
    "id": _NAME,
    "[key]": _NAME,
    "clause.id": 'gate and number, as "G3.1"',
    "begins": 'a date, as "2026-03-02"',
    "signers": 'a party and its public key, as "buyer ssh-ed25519 AAAA..."',
}
"""What a text must be, for a person who does not read regular expressions; by its key."""


class Contract(Frozen):
    """The whole contract, validated; ``digest`` is over its canonical form."""

    schema_version: Literal[1] = Field(alias="schema")
    id: Name
    title: Text
    rehearsal: bool
    seed: Annotated[str, Field(min_length=1)]
    appliance: Appliance
    parties: Parties
    campaign: Terms
    risk: Risk
    costs: Costs = Costs()
    follows: Follows = Follows()
    changes: Changes = Changes()
    planning: Planning | None = None
    model: Model
    arms: dict[Name, Arm]
    parallelism: dict[Name, Parallelism] = Field(default_factory=dict)
    strategy: dict[Name, Strategy] = Field(default_factory=dict)
    distance: dict[Name, Distance] = Field(default_factory=dict)
    workloads: dict[Name, Workload]
    validity: Validity
    gate1: GateTerms | None = None
    gate2: GateTerms | None = None
    gate3: GateTerms | None = None
    gate4: GateTerms | None = None
    _digest: str = PrivateAttr(default="")

    def store_rate_at_most(self, arm: str) -> float:
        """Bytes per second that the store of ``arm`` can physically deliver."""
        own = self.arms[arm].store_bytes_per_s_at_most
        return self.validity.store_bytes_per_s_at_most if own is None else own

    def gate(self, number: int) -> GateTerms:
        terms: GateTerms | None = getattr(self, f"gate{number}")
        if terms is None:
            raise UsageError(f"the contract {self.id} has no gate {number}")
        return terms

    def instances(self, parallelism: str) -> int:
        """Engines on the host in that parallelism; one where the contract does not define it."""
        found = self.parallelism.get(parallelism)
        return 1 if found is None else found.instances

    @property
    def gates(self) -> tuple[int, ...]:
        return tuple(n for n in GATES if getattr(self, f"gate{n}") is not None)

    @property
    def digest(self) -> str:
        """SHA-256 of what the parties wrote, in canonical form: comments and layout do not change
        it, numbers do, and a later version of kvgate with more keys does not either."""
        return self._digest

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names of an example that the parties have not replaced yet; with one, no gate opens."""
        parties = self.parties
        named = (
            self.seed, *self.appliance.serials,
            parties.buyer.en, parties.vendor.en, parties.site.en,
        )  # fmt: skip
        return tuple(name for name in named if "EXAMPLE" in name or "to be named" in name)

    @model_validator(mode="after")
    def _consistent(self) -> Contract:
        gates = {number: self.gate(number) for number in self.gates}
        axes = {axis: dict(getattr(self, axis)) for axis in AXES}
        days = 7 * self.campaign.weeks
        found = next(
            itertools.chain(
                (
                    (f"gate{n}.deadline_day", f"the campaign ends on day {days}")
                    for n, terms in gates.items()
                    if terms.deadline_day > days
                ),
                unfit_workloads(self.workloads, self.model.chunk_tokens),
                inconsistencies(gates, self.arms, self.workloads, axes),
            ),
            None,
        )
        if found is not None:
            path, message = found
            raise ValueError(f"@{path}@{message}")
        return self


def parse_contract(data: bytes, *, name: str) -> Contract:
    """Contract from TOML bytes; ``name`` is the file shown in errors.

    Raises UsageError with file:line, what is wrong and what is expected.
    """
    raw, text = _toml(data, name)
    try:
        contract = Contract.model_validate_json(_plain(raw, name))
    except ValidationError as error:
        path, message = _first_problem(error)
        raise UsageError(
            f"{path}: {message}",
            where=f"{name}:{line_of(text, path)}",
            remedy="correct the contract; `kvgate contract check FILE` checks it",
        ) from error
    contract._digest = hashlib.sha256(
        json.dumps(raw, sort_keys=True, ensure_ascii=False, default=str).encode()
    ).hexdigest()
    return contract


def read_contract(path: Path) -> bytes:
    """The bytes of a contract file; raises UsageError with place and remedy.

    Only a regular file of at most MAX_BYTES is read: a pipe would keep us waiting, a device would
    never end.
    """
    remedy = "name one with --contract FILE; the shipped ones are in gates/contracts/"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError("the contract is no regular file", where=str(path), remedy=remedy)
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"the contract cannot be read: {told}", where=str(path), remedy=remedy
        ) from error
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"the contract is larger than {MAX_BYTES:,} bytes", where=str(path), remedy=remedy
        )
    return data


def load_contract(path: Path) -> Contract:
    """Read and check a contract file; raises UsageError with place and remedy."""
    return parse_contract(read_contract(path), name=str(path))


def _toml(data: bytes, name: str) -> tuple[dict[str, Any], str]:
    """The tables and the text of a contract; whatever is not TOML is one line."""
    try:
        text = data.decode()
        if text.startswith("\ufeff"):
            raise UsageError(
                "the contract begins with a byte order mark",
                where=name,
                remedy="save it as UTF-8 without BOM",
            )
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        raise UsageError(
            "the contract is not UTF-8", where=name, remedy="save it as UTF-8 text"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not TOML: {error}", where=name, remedy="correct that line") from error
    except RecursionError as error:
        raise UsageError(
            "nested too deeply to be a contract", where=name, remedy="see docs/contract.md"
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise UsageError(f"not TOML: {error}"[:200], where=name, remedy="correct it") from error


def _plain(raw: dict[str, Any], name: str) -> str:
    try:
        return json.dumps(raw, default=str)
    except RecursionError as error:
        raise UsageError(
            "nested too deeply to be a contract", where=name, remedy="see docs/contract.md"
        ) from error


def _first_problem(error: ValidationError) -> tuple[str, str]:
    """Key path and message of the most telling problem pydantic found."""
    problems = error.errors(include_url=False)
    # A list whose entries are all wrong is counted as empty: what is wrong is an entry.
    places = [problem["loc"] for problem in problems]
    problems = [p for p in problems if not any(_within(place, p["loc"]) for place in places)]
    # A clause is tried against every form: the form that fits best has the fewest problems.
    tried: dict[tuple[int | str, ...], dict[str, list[tuple[tuple[int | str, ...], str]]]] = {}
    for problem in problems:
        loc = problem["loc"]
        form = next((str(p) for p in loc if "Clause" in str(p)), "")
        plain = tuple(p for p in loc if "Clause" not in str(p))
        clause = plain[: loc.index(form)] if form else ()
        message = _message(problem["type"], problem["msg"], plain)
        tried.setdefault(clause, {}).setdefault(form, []).append((plain, message))
    found = [told for forms in tried.values() for told in min(forms.values(), key=len)]
    # An unknown key has a place in the file; a missing one beside it often is the same, misspelt.
    table = found[0][0][:-1]
    beside = [told for told in found if told[0][:-1] == table]
    loc, message = min(beside, key=lambda told: told[1] != "unknown key")
    if message.startswith("@"):
        _, path, message = message.split("@", 2)
        return path, message
    return ".".join(str(p) for p in loc), message


def _within(place: tuple[int | str, ...], of: tuple[int | str, ...]) -> bool:
    """``place`` lies inside ``of``, and is not ``of`` itself."""
    return len(place) > len(of) and place[: len(of)] == of


def _message(kind: str, message: str, place: tuple[int | str, ...]) -> str:
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "missing":
        return "missing key"
    if kind == "too_short" and " 1 " in message:
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        key = next((str(p) for p in reversed(place) if isinstance(p, str)), "")
        form = _FORMS.get("clause.id" if "clause" in place and key == "id" else key)
        return f"must be {form}" if form else message
    if kind in {"less_than", "less_than_equal"} and message.rpartition(" ")[2] in {"1", "0.5"}:
        return f"{message} (a fraction: write 0.25 for 25 %)"
    return message.removeprefix("Value error, ")
