"""Turn signals that ask the program to end into a flag that its loop reads."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BenchSignals:
    """Remember the first of these signals. Signals after it change nothing.

    The handler does nothing else, so no signal can interrupt a clean-up. A signal that was ignored
    at the start (by nohup, or by a shell's background job) stays ignored.
    """

    def __init__(self) -> None:
        self.received = 0
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._remember)

    def _remember(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or number

    def asked(self) -> bool:
        """Return whether a signal has come."""
        return self.received != 0

    def ignore(self) -> None:
        """Ignore them all from now on. Python removes handlers while it exits, but not this."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def exit_status(self) -> int:
        """The status that shells give to a program ended by this signal: 130, 143 or 129."""
        return 128 + self.received
