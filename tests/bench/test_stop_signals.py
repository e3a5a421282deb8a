"""Stop signals are remembered, and do nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tokenpipe.bench.stop_signals import SIGNALS, BenchSignals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the handlers after the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_exit_status_is_that_of_the_first_signal(number: int, status: int) -> None:
    signals = BenchSignals()
    assert not signals.asked()
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.asked() and signals.exit_status == status


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = BenchSignals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert not signals.asked()


def test_at_the_end_all_are_ignored() -> None:
    signals = BenchSignals()
    signals.ignore()
    for number in SIGNALS:
        os.kill(os.getpid(), number)
    assert not signals.asked()
