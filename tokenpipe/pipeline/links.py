"""Connect the engine with a processor: a lane for commands and a lane for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenpipe.errors import FrameError
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, Waiter
from tokenpipe.wire import ControlQueue, Message, unpack_control

MESSAGES_PER_FRAME = 256  # a bind can hold all ids of a long output


class ProcessorLink:
    """The lanes to one processor. They outlive its process if the next one goes on.

    `going_on`: its process died, and the next one has not said yet whether it goes on.
    """

    def __init__(
        self,
        index: int,
        ranks: Sequence[int],
        commands: LaneSender,
        reports: LaneReceiver,
        waiter: Waiter,
        clock: Callable[[], float],
    ) -> None:
        """Use these two lanes; add their ports to `waiter`."""
        self.index = index
        self.ranks = ranks
        self.trouble = ""  # why its reports cannot be read; it must then be replaced
        self.death = ""  # how its process ended; empty while it runs
        self.going_on = False
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
        """Whether both lanes are connected and welcomed."""
        return self._commands.ready and self._reports.sender != 0 and not self.going_on

    @property
    def next_deadline(self) -> float:
        """The time at which `poll` is due next if no message comes."""
        if self.closed:
            return float("inf")
        return min(self._commands.next_deadline, self._reports.next_deadline)

    def dispatch(self, messages: Sequence[Message]) -> None:
        """Send commands. They wait here while the processor is not ready or its lane is full."""
        if not self.closed:
            self._waiting.extend(messages)
            self._send()

    def _send(self) -> None:
        if not self.going_on:  # else the next process may not know what they are about
            self._waiting.send(self._commands)

    def poll(self) -> list[Message]:
        """Return the processor's reports. Set `trouble` if a report cannot be read."""
        if self.closed or self.trouble:
            return []
        self._commands.poll()
        self._send()
        self._reports.peer_events()  # the process's end is reported to `died`
        reports: list[Message] = []
        for item in self._reports.recv():
            try:
                if isinstance(item, Gap):
                    raise FrameError(f"{item} are lost")
                reports += unpack_control(item)[1]
            except FrameError as error:
                self.trouble = f"its reports cannot be read: {error}"
                break
        self._reports.applied()
        self._reports.tick(self._clock())
        return reports

    def died(self, reason: str) -> None:
        """Note that its process has ended. Its last reports can still be read."""
        self.death = reason
        self._reports.doubt(self._clock())

    def go_on(self) -> None:
        """Keep the lanes for the next process. Commands wait for its first report."""
        self.going_on = True

    def gone_on(self) -> None:
        """Note that the next process has the requests. The commands that waited are sent."""
        self.death, self.going_on = "", False
        self._send()

    def begin_again(self, messages: Sequence[Message]) -> None:
        """Note that the next process has no requests. It gets these commands, and no older ones."""
        self.death, self.going_on = "", False
        self._waiting.clear()
        self.dispatch(messages)

    @property
    def exhausted(self) -> bool:
        """Whether the processor is dead and its last report was read."""
        return (
            bool(self.death)
            and not self.going_on
            and (bool(self.trouble) or not self._reports.sender)
        )

    def close(self, timeout_s: float) -> None:
        """End the command lane, which makes the processor finish; close the report lane."""
        if self.closed:
            return
        self.closed = True
        self._waiting.clear()
        for port in (self._commands.port, self._reports.port):
            self._waiter.remove(port)
        self._commands.close(timeout_s)
        self._reports.close()
