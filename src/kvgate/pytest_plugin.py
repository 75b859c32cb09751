"""pytest as the lab engineer's console: options, markers, fixtures. No logic of its own.

A FAIL is a failing test. INVALID, a gate that does not open and a run that could not measure are
errors before the test body. The exit status is 0 only if every selected gate has a PASS in a run
that is in order: an engineering run ends with 1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from kvgate.conduct.console import Console, Selection
from kvgate.errors import KvgateError
from kvgate.verdict import ClauseVerdict, Verdict

clause = pytest.mark.clause
_CONSOLE: pytest.StashKey[Console] = pytest.StashKey()
_ANSWERED: pytest.StashKey[set[str]] = pytest.StashKey()
_FOUND: pytest.StashKey[bool] = pytest.StashKey()
_WRITTEN: pytest.StashKey[frozenset[str] | None] = pytest.StashKey()
_UNOPENED: pytest.StashKey[dict[str, str]] = pytest.StashKey()
"""Tests whose gate has no verdict, by node id, with the gate ("G4")."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvgate", "gated acceptance testing")
    add = group.addoption
    add("--inventory", metavar="DIR", default="inventories/rehearsal",
        help="Ansible inventory of the campaign (default: the rehearsal)")  # fmt: skip
    add("--contract", metavar="FILE", default=None,
        help="contract TOML (default: the one the inventory names)")  # fmt: skip
    add("--campaign", metavar="NAME", default=None, help="campaign (default: the contract's id)")
    add("--campaigns", metavar="DIR", default="var/campaigns", help="where campaigns are kept")
    add("--new-campaign", action="store_true",
        help="start afresh; an earlier campaign of that name is kept under another")  # fmt: skip
    add("--engineering", action="store_true",
        help="run a gate out of order; it never counts and pytest ends with 1")  # fmt: skip
    add("--fault", action="append", default=[], metavar="NAME[=VALUE][@ARM[+ARM]]",
        help="play a fault (rehearsal only), from G3 on; see also --fault-from")  # fmt: skip
    add("--fault-from", type=int, default=3, metavar="GATE", help="first gate that plays faults")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_ANSWERED] = set()
    config.stash[_UNOPENED] = {}
    config.pluginmanager.register(_OneLineAGate(config.stash[_UNOPENED]), "kvgate-one-line-a-gate")
    for gate in (1, 2, 3, 4):
        config.addinivalue_line("markers", f"gate{gate}: clauses of gate G{gate}")
    config.addinivalue_line("markers", "clause(id): the contract's clause that a test stands for")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Note which clauses have a test before anything is deselected, and arrange what is left."""
    written = frozenset(_clause_id(item) for item in items if item.get_closest_marker("clause"))
    yield
    config.stash[_WRITTEN] = None if any("::" in arg for arg in config.args) else written
    _arrange(config, items)


def _arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out clauses that this contract does not have, and run gates in their order."""
    ours = [item for item in items if item.get_closest_marker("clause")]
    config.stash[_FOUND] = bool(ours)
    if not ours or config.option.collectonly:
        return
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError("gates run in one process, in their order -- leave out -n")
    try:
        console = Console.from_options(config.option, Path.cwd())
    except KvgateError as error:
        raise pytest.UsageError(str(error)) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise pytest.UsageError(f"{place}{error.strerror or error} -- check the path") from error
    config.stash[_CONSOLE] = console
    absent = [item for item in ours if _clause_id(item) not in console.known_clauses]
    if absent:
        config.hook.pytest_deselected(items=absent)
    kept = [item for item in items if item not in absent]
    kept.sort(key=lambda item: _clause_id(item) if item in ours else "")
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """The clauses that will really run; what is missing here can never pass."""
    console = session.config.stash.get(_CONSOLE, None)
    if console is None or session.config.option.collectonly:
        return
    # A test that is marked to be left out, or to fail, asks nothing of the appliance.
    ids = [
        _clause_id(item)
        for item in session.items
        if item.get_closest_marker("clause")
        and not any(item.get_closest_marker(mark) for mark in ("skip", "skipif", "xfail"))
    ]
    try:
        console.select(Selection.of(ids), session.config.stash[_WRITTEN])
    except KvgateError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> Iterator[ClauseVerdict]:
    """The clause's verdict from sealed evidence; runs the gate when it is first asked for."""
    console = request.config.stash.get(_CONSOLE, None)
    if console is None:
        pytest.fail("a clause was asked for outside a gate's test", pytrace=False)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    fault = ""
    try:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            found = console.verdict_of(_clause_id(request.node))
    except KvgateError as error:
        fault = str(error)
    if console.interrupted is not None:
        pytest.exit(fault, returncode=1)
    if fault:
        request.config.stash[_UNOPENED][request.node.nodeid] = _clause_id(request.node).split(".")[
            0
        ]
        pytest.fail(fault, pytrace=False)
    request.node.user_properties.append(("verdict", str(found.verdict)))
    if found.verdict is Verdict.INVALID:
        pytest.fail(f"{found.clause} INVALID: {found.reason}", pytrace=False)
    yield found


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failing clause shows its reason, not the Python that asserted it."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.passed and item.get_closest_marker("clause"):
        item.config.stash[_ANSWERED].add(_clause_id(item))
    if report.when == "call" and report.failed and item.get_closest_marker("clause"):
        found = item.funcargs.get("verdict")  # type: ignore[attr-defined]
        if isinstance(found, ClauseVerdict):
            report.longrepr = f"{found.clause} {found.verdict}: {found.reason}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """0 only if every gate that was asked for has a PASS; nothing run is never a success."""
    console = session.config.stash.get(_CONSOLE, None)
    if console is not None and session.exitstatus in {0, 1, 5}:
        tests_failed = session.exitstatus != 0
        answered: set[str] = session.config.stash[_ANSWERED]
        unasked = console.unasked(answered)
        session.exitstatus = 1 if tests_failed or unasked or not console.all_passed() else 0
    elif console is None and session.config.stash.get(_FOUND, False) and session.exitstatus == 0:
        # Only collected: no gate was run, and what was not run is no success.
        session.exitstatus = 5


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    console = terminalreporter.config.stash.get(_CONSOLE, None)
    if console is None and terminalreporter.config.stash.get(_FOUND, False):
        terminalreporter.write_line("no gate was run: nothing passed")
    if console is not None:
        terminalreporter.section("gates")
        for line in console.summary():
            terminalreporter.write_line(line)


class _OneLineAGate:
    """On the terminal a gate without a verdict says so once, not once a clause; JUnit and the count
    of errors keep every clause."""

    def __init__(self, unopened: dict[str, str]) -> None:
        self._unopened = unopened

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, object, object]:
        every = terminalreporter.stats.get("error", [])
        shown: list[pytest.TestReport] = []
        alike: dict[str, int] = {}
        for report in every:
            gate = self._unopened.get(report.nodeid, "")
            if not gate or gate not in alike:
                shown.append(report)
            alike[gate] = alike.get(gate, 0) + 1
        for report in shown:
            gate = self._unopened.get(report.nodeid, "")
            if gate and alike[gate] > 1:
                report.longrepr = f"{report.longrepr}\n(so for all {alike[gate]} clauses of {gate})"
        if every:
            terminalreporter.stats["error"] = shown
        try:
            return (yield)
        finally:
            if every:
                terminalreporter.stats["error"] = every


def _clause_id(item: pytest.Item) -> str:
    marker = item.get_closest_marker("clause")
    return str(marker.args[0]) if marker is not None and marker.args else ""
