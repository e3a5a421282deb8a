"""Turn the signals that ask a program to end into a question that its loop asks."""

from __future__ import annotations

import signal
from types import FrameType

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Remember the first signal that asks us to end; the ones after it change nothing.

    The handler does nothing else, so no signal, nor a second one, can break into a clean-up.
    Signals that were ignored (nohup, a shell's background) stay so.
    """

    def __init__(self) -> None:
        self.received = 0
        for number in ASKING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    def _take(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or number

    def asked(self) -> bool:
        """Whether a signal came."""
        return self.received != 0

    def ignore(self) -> None:
        """Ignore them all from now on: Python lets go of handlers while it exits, not of this."""
        for number in ASKING:
            signal.signal(number, signal.SIG_IGN)

    @property
    def exit_status(self) -> int:
        """The status that shells give to a program that such a signal ended: 130, 143, 129."""
        return 128 + self.received
