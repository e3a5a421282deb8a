"""Hold the engine's two lanes to each processor: commands out, reports in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tokenpipe.errors import FrameError, LaneError
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, Peer, PeerDown, PeerUp
from tokenpipe.wire import LaneHeader, Message, pack_control, unpack_control

MESSAGES_PER_FRAME = 256  # a bind may carry all ids of a long output


class ProcessorLink:
    """One processor as the engine sees it."""

    def __init__(
        self,
        index: int,
        ranks: Sequence[int],
        me: Peer,
        instance_id: int,
        commands: LaneSender,
        reports: LaneReceiver,
        clock: Callable[[], float],
    ) -> None:
        """Stand on lanes that were made for it."""
        self.index = index
        self.ranks = ranks
        self.commands = commands
        self.reports = reports
        self.lost = ""  # why, once it is gone
        self._me = me
        self._instance_id = instance_id
        self._clock = clock
        self._waiting: deque[Message] = deque()

    @property
    def ready(self) -> bool:
        """Whether both lanes have said hello and welcome."""
        return self.commands.ready and self.reports.sender != 0

    @property
    def next_deadline(self) -> float:
        """When `poll` is due next without anything having come."""
        return min(self.commands.next_deadline, self.reports.next_deadline)

    def dispatch(self, messages: Sequence[Message]) -> None:
        """Send commands, or keep them while the processor is not there or its lane is full."""
        self._waiting.extend(messages)
        self._send()

    def _send(self) -> None:
        lane = self.commands
        while self._waiting and lane.ready:
            messages = list(islice(self._waiting, MESSAGES_PER_FRAME))
            header = LaneHeader(
                self._instance_id, self._me.incarnation, lane.receiver, lane.next_seq
            )
            frame = pack_control(header, messages)
            if len(frame) > lane.room:
                return
            lane.send(frame)
            for _ in messages:
                self._waiting.popleft()

    def poll(self) -> Iterator[Message]:
        """Yield the processor's reports; sets `lost` when it is gone."""
        now = self._clock()
        self.commands.poll()
        self._send()
        for change in self.reports.changes():
            if not isinstance(change, PeerUp):
                self.lost = change.reason if isinstance(change, PeerDown) else "closed its lane"
        for item in self.reports.recv():
            if isinstance(item, Gap):
                raise LaneError(f"processor {self.index}: reports {item} are lost for good")
            try:
                messages = unpack_control(item)[1]
            except FrameError as error:
                raise LaneError(
                    f"processor {self.index}: a report is unreadable: {error}"
                ) from None
            yield from messages
        self.reports.applied()
        self.reports.tick(now)

    @property
    def pending(self) -> bool:
        """Whether commands are unsent or unacknowledged."""
        return bool(self._waiting) or self.commands.unacked_frames > 0

    def close(self, timeout_s: float) -> None:
        """End the command lane, which tells the processor to finish, and close the other."""
        self.commands.close(timeout_s)
        self.reports.close()
