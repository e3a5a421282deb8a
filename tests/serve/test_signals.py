"""The first signal ends a server in order, the second at once; a wait ends with either."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

from tokenpipe.serve.signals import SIGNALS, StopSignals, stop_signals
from tokenpipe.supervisor import Supervisor


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_counted_and_rings(number: signal.Signals) -> None:
    with stop_signals() as signals:
        assert (signals.first, signals.second) == (0, 0)
        os.kill(os.getpid(), number)
        assert (signals.first, signals.second) == (number, 0)
        assert select.select([signals], [], [], 1.0)[0]
        signals.clear()
        assert not select.select([signals], [], [], 0)[0]
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert (signals.first, signals.second) == (number, signal.SIGINT)


def test_the_handlers_before_are_there_again() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), stop_signals() as signals:
        assert signal.getsignal(signal.SIGHUP) == signals.handle
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_whoever_ends_anyway_takes_the_next_signal_for_the_second() -> None:
    with stop_signals() as signals:
        signals.expect_second()
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.second == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGHUP)
        signals.expect_second()
        assert signals.first == -1


def test_a_wait_ends_with_a_signal_that_came_before_it_or_with_the_time(tmp_path: Path) -> None:
    children = Supervisor(tmp_path)
    with stop_signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        began = time.monotonic()
        signals.wait(children, 30.0)
        assert time.monotonic() - began < 10
        began = time.monotonic()
        signals.wait(children, 0.1)  # the signal was seen
        assert time.monotonic() - began >= 0.1
    children.close()


def test_more_signals_than_the_pipe_holds_block_nothing() -> None:
    signals = StopSignals()
    for _ in range(10_000):
        signals.handle(signal.SIGTERM, None)
    signals.close()
