"""Hold the engine's two lanes to each processor: commands out, reports in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenpipe.errors import FrameError
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, Waiter
from tokenpipe.wire import ControlQueue, Message, unpack_control

MESSAGES_PER_FRAME = 256  # a bind may carry all ids of a long output


class ProcessorLink:
    """One processor as the engine sees it, from its start to its death."""

    def __init__(
        self,
        index: int,
        ranks: Sequence[int],
        commands: LaneSender,
        reports: LaneReceiver,
        waiter: Waiter,
        clock: Callable[[], float],
    ) -> None:
        """Stand on lanes that were made for it; their ports stand in `waiter`."""
        self.index = index
        self.ranks = ranks
        self.trouble = ""  # what it reported cannot be read: it is to be replaced
        self.death = ""  # how its process ended, once that is known
        self.closed = False
        self._commands = commands
        self._reports = reports
        self._waiter = waiter
        self._clock = clock
        self._waiting = ControlQueue(MESSAGES_PER_FRAME)
        waiter.add(commands.port)
        waiter.add(reports.port)

    @property
    def ready(self) -> bool:
        """Whether both lanes have said hello and welcome."""
        return self._commands.ready and self._reports.sender != 0

    @property
    def next_deadline(self) -> float:
        """When `poll` is due next without anything having come."""
        if self.closed:
            return float("inf")
        return min(self._commands.next_deadline, self._reports.next_deadline)

    def dispatch(self, messages: Sequence[Message]) -> None:
        """Send commands, or keep them while the processor is not there or its lane is full."""
        if not self.closed:
            self._waiting.extend(messages)
            self._waiting.send(self._commands)

    def poll(self) -> list[Message]:
        """Return the processor's reports; sets `trouble` where they end in something unreadable."""
        if self.closed or self.trouble:
            return []
        self._commands.poll()
        self._waiting.send(self._commands)
        self._reports.peer_events()  # that it is gone, its process says; see `died`
        reports: list[Message] = []
        for item in self._reports.recv():
            try:
                if isinstance(item, Gap):
                    raise FrameError(f"{item} are lost for good")
                reports += unpack_control(item)[1]
            except FrameError as error:
                self.trouble = f"its reports cannot be read: {error}"
                break
        self._reports.applied()
        self._reports.tick(self._clock())
        return reports

    def died(self, reason: str) -> None:
        """Hear that its process ended: what it had reported is still to be read."""
        self.death = reason
        self._reports.doubt(self._clock())

    @property
    def exhausted(self) -> bool:
        """Whether a dead processor's last report has been read."""
        return bool(self.death) and (bool(self.trouble) or not self._reports.sender)

    def close(self, timeout_s: float) -> None:
        """End the command lane, which tells the processor to finish, and close the other."""
        if self.closed:
            return
        self.closed = True
        self._waiting.clear()
        for port in (self._commands.port, self._reports.port):
            self._waiter.remove(port)
        self._commands.close(timeout_s)
        self._reports.close()
