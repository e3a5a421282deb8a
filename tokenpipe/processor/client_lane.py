"""Hand a processor's output to one client within that client's window."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.instance import Instance, output_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import Peer, Role, new_incarnation, open_sender
from tokenpipe.wire import OpenClient

from .core import Processor

RESERVE_BYTES = 1 << 20  # past the window, for final rows and rows that must go before a report
FRAME_BYTES = 1 << 20
LEAST_ROOM = 1 << 12
BEHIND = 4  # the share of its window that a client may leave unacknowledged before it is behind
STILL_S = 0.05  # one that acknowledges nothing for so long is not slow but stopped


class OutputSender:
    """The lane from one processor to one client.

    Past the window nothing but urgent rows is sent, so the rest merges in the processor's own
    token buffers; past `merge_bytes` of them the processor ends the client's requests as slow.
    """

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        processor: int,
        client: OpenClient,
        clock: Callable[[], float],
    ) -> None:
        """Connect to the lane that `client` has bound for this processor."""
        self.client = client.client
        self.client_incarnation = client.incarnation
        # What the processor gave counts as sent, so it is kept until the lane has room: a frame
        # holds one token at least, and that may have a whole vocabulary of logprobs.
        self._flushed: bytes | None = None
        self._window = topology.bounds.client_window_bytes
        self._frame_bytes = min(FRAME_BYTES, topology.bounds.max_frame_bytes)
        self._clock = clock
        self._acked = 0  # the first frame that is not acknowledged
        self._acked_at = clock()
        self.lane = open_sender(
            instance,
            output_lane(processor, client.client),
            # A lane of its own for each client: the one to its predecessor, which may reach the
            # same socket until it is gone, would share its route and be taken for it.
            me=Peer("processor", str(processor), new_incarnation()),
            to=Role("client", str(client.client)),
            bound_bytes=self._window + RESERVE_BYTES,
            receiver_incarnation=client.incarnation,
            clock=clock,
        )

    @property
    def next_deadline(self) -> float:
        """When the lane wants its next tick."""
        return self.lane.next_deadline

    def behind(self, now: float) -> bool:
        """Whether the client works on what it was sent, and has much of it left.

        A stopped one is not: to wait for it would slow down everybody else for nothing.
        """
        if self.lane.unacked_bytes <= self._window // BEHIND or self.lane.lost:
            return False
        return now - self._acked_at < STILL_S

    @property
    def stuck(self) -> bool:
        """Whether a frame waits for room in the lane."""
        return self._flushed is not None

    def flush(self, processor: Processor) -> None:
        """Send what is unsent, as far as the window goes."""
        lane = self.lane
        while not lane.lost:
            if self._flushed is not None:
                if len(self._flushed) > lane.room:
                    return
                lane.send(self._flushed)
                self._flushed = None
                if not processor.unsent_bytes(self.client):
                    return  # as nearly always: one frame takes it all
            room = min(self._window - lane.unacked_bytes, lane.room)
            reserve = room < LEAST_ROOM
            if reserve:
                room = lane.room
                if room < LEAST_ROOM or not processor.urgent(self.client):
                    return
            self._flushed = processor.flush(
                self.client,
                lane.next_header,
                min(room - LEAST_ROOM // 2, self._frame_bytes),
                urgent_only=reserve,
            )
            if self._flushed is None:
                return

    def pending(self, processor: Processor) -> bool:
        """Whether the processor holds something for this client that could still be sent."""
        if self.lane.lost:
            return False
        return self._flushed is not None or processor.unsent_bytes(self.client) > 0

    def poll(self) -> None:
        """Read acknowledgements."""
        self.lane.poll()
        first = self.lane.window.first
        if first != self._acked:
            self._acked, self._acked_at = first, self._clock()

    def close(self, timeout_s: float) -> int:
        """End the lane; returns the frames the client did not acknowledge."""
        return self.lane.close(timeout_s)
