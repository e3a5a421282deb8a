"""Connect the engine with a client: a lane for submits and a lane for final rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from tokenpipe.errors import FrameError
from tokenpipe.instance import Instance, own_output_lane, submit_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    Gap,
    LaneSender,
    Peer,
    PeerDown,
    PeerUp,
    Role,
    Waiter,
    new_incarnation,
    open_receiver,
    open_sender,
)
from tokenpipe.wire import Message, unpack_control

from .final_rows import ROWS_PER_FRAME, FinalRow, pack_final_rows

OWN_OUTPUT_BYTES = 1 << 24
_log = logging.getLogger("tokenpipe.pipeline")


class ClientLink:
    """The lanes to one client index, with or without a client."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        index: int,
        me: Peer,
        waiter: Waiter,
        clock: Callable[[], float],
    ) -> None:
        """Bind the submit lane of client `index`; add the lanes' ports to `waiter`."""
        self.index = index
        self.client = 0  # incarnation of the present client, 0 for none
        self.bad_messages = 0
        self._unopened = 0  # incarnation of a client that came, and has no lane yet
        self._told = 0  # the last client of which the log says so
        self._instance = instance
        self._clock = clock
        self._me = me
        self._waiter = waiter
        self._rows: list[FinalRow] = []
        self._output: LaneSender | None = None
        self._submits = open_receiver(
            instance,
            submit_lane(index),
            me=me,
            expects=Role("client", str(index)),
            max_frame_bytes=topology.bounds.max_frame_bytes,
            hold_bytes=topology.bounds.lane_bytes,
            gap_timeout_s=topology.timeouts.gap_s,
            clock=clock,
        )
        waiter.add(self._submits.port)

    @property
    def next_deadline(self) -> float:
        """The time at which `read` or `flush` is due next if no message comes."""
        if self._output is None:
            return self._submits.next_deadline
        return min(self._submits.next_deadline, self._output.next_deadline)

    def problem(self) -> str:
        """Return what is wrong with the lane to the client; "" if nothing is."""
        return "" if self._output is None else self._output.unheard(self._clock())

    def client_changes(self) -> Iterator[tuple[int, str]]:
        """Yield (incarnation, "") for a client that has come, (0, reason) for one that has left."""
        self._submits.tick(self._clock())
        for change in self._submits.peer_events():
            self._unopened = change.incarnation if isinstance(change, PeerUp) else 0
            if not self._unopened and self.client:
                self._leave(0.0)
                yield 0, change.reason if isinstance(change, PeerDown) else "closed"
        if self._unopened and self._open(self._unopened):
            self._unopened = 0
            yield self.client, ""

    def read(self) -> Iterator[Message]:
        """Yield the client's messages, in order."""
        if self._unopened:
            return  # the client could not get the answers
        for item in self._submits.recv():
            if isinstance(item, Gap):
                self.bad_messages += 1
                continue
            try:
                messages = unpack_control(item)[1]
            except FrameError:
                self.bad_messages += 1
                continue
            yield from messages
        self._submits.applied()

    def _open(self, incarnation: int) -> bool:
        """Open the lane to a client. Return False if no descriptor is free, say."""
        self._leave(0.0)
        try:
            self._output = open_sender(
                self._instance,
                own_output_lane(self.index),
                # Each client gets a new incarnation of this sender. The lane to the predecessor may
                # still connect to the same socket; with one route for both, they would be confused.
                me=Peer(self._me.role, self._me.rank, new_incarnation()),
                to=Role("client", str(self.index)),
                bound_bytes=OWN_OUTPUT_BYTES,
                receiver_incarnation=incarnation,
                clock=self._clock,
            )
        except OSError as error:
            if self._told != incarnation:
                self._told = incarnation
                _log.error("client %d must wait: %s; it is tried again", self.index, error.strerror)
            return False
        self.client = incarnation
        self._waiter.add(self._output.port)
        return True

    def _leave(self, timeout_s: float) -> None:
        self.client = 0
        self._rows.clear()
        lane, self._output = self._output, None
        if lane is not None:
            self._waiter.remove(lane.port)
            lane.close(timeout_s)

    def add(self, row: FinalRow) -> None:
        """Queue a final row, at most one for each live request of the client.

        A row for an earlier client is dropped: a key begins with 32 bits of its client.
        """
        if self.client and row.key >> 32 == self.client & 0xFFFFFFFF:
            self._rows.append(row)

    def flush(self) -> None:
        """Send as many queued rows as the lane's bound allows; read acknowledgements."""
        lane = self._output
        if lane is None:
            return
        lane.poll()
        if lane.lost:  # no client reads them; `client_changes` reports the loss
            self._rows.clear()
        while self._rows:
            rows = self._rows[:ROWS_PER_FRAME]
            frame = pack_final_rows(lane.next_header, rows)
            if len(frame) > lane.room:
                return
            lane.send(frame)
            del self._rows[: len(rows)]

    def close(self, timeout_s: float) -> None:
        """Close both lanes."""
        self._leave(timeout_s)
        self._waiter.remove(self._submits.port)
        self._submits.close()
