"""Ctrl-C stops a gate once; impatience costs no engine that is left running unseen."""

from __future__ import annotations

import os
import signal

import pytest

from kvgate.conduct.signals import CAUGHT, BreakOff, Signals
from kvgate.errors import Interrupted


class Told:
    def __init__(self) -> None:
        self.cancelled = 0
        self.lines: list[str] = []

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def told() -> Told:
    return Told()


def signals(told: Told) -> Signals:
    return Signals(told.cancel, told.lines.append, remedy="run it again")


def press(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_where_the_run_stands(told: Told, number: int) -> None:
    with pytest.raises(Interrupted, match="stopped by SIG") as caught, signals(told):
        press(number)
    assert told.cancelled == 1
    assert caught.value.remedy == "run it again"


def test_a_second_one_on_the_way_out_is_not_raised_again(told: Told) -> None:
    unwound = False
    with pytest.raises(Interrupted), signals(told):
        try:
            press()
        finally:
            press()
            unwound = True
    assert unwound
    assert told.cancelled == 1


def test_while_stopping_one_is_answered_and_the_next_gives_up(told: Told) -> None:
    with signals(told) as handler:
        handler.stopping()
        press()
        assert told.lines == ["stopping what was started; once more leaves it running"]
        assert told.cancelled == 0
        with pytest.raises(Interrupted, match="while engines and stores were being stopped"):
            press()
    assert told.cancelled == 1


def test_a_line_that_cannot_be_printed_just_now_stops_nothing() -> None:
    def torn(_line: str) -> None:
        raise RuntimeError("reentrant call")

    with Signals(lambda: None, torn, remedy="") as handler:
        handler.stopping()
        press()


def test_afterwards_the_handlers_are_those_of_before(told: Told) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with signals(told):
        assert signal.getsignal(signal.SIGINT) not in before
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_what_nohup_ignores_stays_ignored(told: Told) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals(told):
            press(signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not before
        assert told.cancelled == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_gone_does_not_cost_the_stopping() -> None:
    def gone(_line: str) -> None:
        raise OSError(5, "Input/output error")

    with Signals(lambda: None, gone, remedy="") as handler:
        handler.stopping()
        press(signal.SIGHUP)


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_what_can_be_taken_up_again_is_broken_off_whoever_swallows_the_signal(
    swallowed: type[BaseException],
) -> None:
    before = [signal.getsignal(number) for number in CAUGHT]
    with pytest.raises(Interrupted) as caught, BreakOff(remedy="it is kept"):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except swallowed:
            assert swallowed is BaseException
    assert str(caught.value) == "stopped by SIGTERM -- it is kept"
    assert [signal.getsignal(number) for number in CAUGHT] == before


def test_without_a_signal_nothing_is_broken_off() -> None:
    with BreakOff(remedy=""):
        pass
    with pytest.raises(ZeroDivisionError), BreakOff(remedy=""):
        _ = 1 / 0
