"""Send a processor's output to one client, within the window of that client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from tokenpipe.instance import Instance, output_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import Peer, Role, new_incarnation, open_sender
from tokenpipe.wire import OpenClient, readdressed

from . import records
from .core import Processor
from .journal import Journal

RESERVE_BYTES = 1 << 20  # beyond the window, for urgent rows only
FRAME_BYTES = 1 << 20  # the largest frame to send
LEAST_ROOM = 1 << 12  # with less room than this, nothing is packed
BEHIND = 4  # a client is behind when more than 1/4 of its window is unacknowledged
STOPPED_S = 0.05  # a client that acknowledges nothing for so long has stopped


class OutputSender:
    """The lane from one processor to one client.

    Where the window is full, it sends urgent rows only: final rows, and rows that a report waits
    for. All other output stays in the processor, where rows of a request merge. When this exceeds
    `merge_bytes`, the processor ends the client's requests with the error "slow".
    """

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        processor: int,
        client: OpenClient,
        clock: Callable[[], float],
        journal: Journal | None = None,
        backlog: Iterable[bytes] = (),
    ) -> None:
        """Connect to the lane that `client` has bound for this processor.

        `backlog` are frames of an earlier lane, to be sent first.
        """
        self.client = client.client
        self.client_incarnation = client.incarnation
        # The processor counts a packed frame as sent, so it is kept here until the lane has room.
        # It has one token at least, and may be large: logprobs of the whole vocabulary.
        self._flushed: bytes | None = None
        self._backlog = deque(backlog)
        self._journal = journal
        self._window = topology.bounds.client_window_bytes
        self._frame_bytes = min(FRAME_BYTES, topology.bounds.max_frame_bytes)
        self._clock = clock
        self._first = 1  # the number of the oldest frame that is not acknowledged
        self._acked_at = clock()  # when that number last grew
        self.lane = open_sender(
            instance,
            output_lane(processor, client.client),
            # Each lane has an incarnation of its own. The lane to an earlier client of this index
            # may still reach the same socket, and must not be confused with this one.
            me=Peer("processor", str(processor), new_incarnation()),
            to=Role("client", str(client.client)),
            bound_bytes=self._window + RESERVE_BYTES,
            receiver_incarnation=client.incarnation,
            clock=clock,
        )

    @property
    def next_deadline(self) -> float:
        """The time at which `poll` must be called if no message comes."""
        return self.lane.next_deadline

    def behind(self, now: float) -> bool:
        """Return whether the client reads, and has much left to read.

        A client that has stopped is not behind: waiting for it would only slow down all others.
        """
        if self.lane.unacked_bytes <= self._window // BEHIND or self.lane.lost:
            return False
        return now - self._acked_at < STOPPED_S

    @property
    def stuck(self) -> bool:
        """Whether a packed frame waits for room in the lane."""
        return self._flushed is not None or bool(self._backlog)

    @property
    def unacknowledged(self) -> list[bytes]:
        """The frames that the client has perhaps not got, oldest first."""
        window = self.lane.window
        frames = [*window.between(window.first, window.next_seq), *self._backlog]
        return frames if self._flushed is None else [*frames, self._flushed]

    def flush(self, processor: Processor) -> None:
        """Send the client's unsent output, as far as the window allows."""
        lane = self.lane
        while self._backlog and not lane.lost:
            frame = readdressed(self._backlog[0], lane.next_header)
            if len(frame) > lane.room:
                return
            lane.send(frame)
            self._backlog.popleft()
        while not lane.lost:
            if self._flushed is not None:
                if len(self._flushed) > lane.room:
                    return
                lane.send(self._flushed)
                self._flushed = None
                if not processor.unsent_bytes(self.client):
                    return  # the usual case: one frame took all
            room = min(self._window - lane.unacked_bytes, lane.room)
            reserve = room < LEAST_ROOM
            if reserve:
                room = lane.room
                if room < LEAST_ROOM or not processor.urgent(self.client):
                    return
            most = min(room - LEAST_ROOM // 2, self._frame_bytes)
            self._flushed = processor.flush(
                self.client, lane.next_header, most, urgent_only=reserve
            )
            if self._flushed is None:
                return
            if self._journal is not None:
                self._journal.add(records.flush(self.client, most, reserve))

    def pending(self, processor: Processor) -> bool:
        """Return whether output for this client is left that could still be sent."""
        if self.lane.lost:
            return False
        return self.stuck or processor.unsent_bytes(self.client) > 0

    def poll(self) -> None:
        """Read what the client said, acknowledgements above all, and do what is due."""
        self.lane.poll()
        first = self.lane.window.first
        if first != self._first:
            if self._journal is not None:
                self._journal.add(records.acked(self.client, first - self._first))
            self._first, self._acked_at = first, self._clock()

    def close(self, timeout_s: float) -> int:
        """End the lane within `timeout_s`. Return how many frames were not acknowledged."""
        return self.lane.close(timeout_s)
