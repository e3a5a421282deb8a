"""Hold the engine's two lanes to each client: submits in, final rows of unbound requests out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from tokenpipe._core import pack_output
from tokenpipe.errors import FrameError
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    Gap,
    Instance,
    LaneSender,
    Peer,
    PeerDown,
    PeerUp,
    Role,
    open_receiver,
    open_sender,
    own_output_lane,
    submit_lane,
)
from tokenpipe.types import FINISH_CODES
from tokenpipe.wire import Message, unpack_control

from .outcomes import FinalRow

OWN_OUTPUT_BYTES = 1 << 24
ROWS_PER_FRAME = 4096
ERROR_BYTES = 2048  # so that a full frame fits the lane
PIPELINE = 0xFFFF  # the "processor" of an OutputFrame that the pipeline itself wrote


class ClientLink:
    """One client's place in the engine, taken or free."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        index: int,
        me: Peer,
        clock: Callable[[], float],
    ) -> None:
        """Bind the submit lane of client `index`."""
        self.index = index
        self.client = 0  # incarnation of the client that is there, 0 for none
        self.bad_messages = 0
        self._instance = instance
        self._clock = clock
        self._me = me
        self._rows: list[FinalRow] = []
        self.output: LaneSender | None = None
        self.submits = open_receiver(
            instance,
            submit_lane(index),
            me=me,
            expects=Role("client", str(index)),
            max_frame_bytes=topology.bounds.max_frame_bytes,
            hold_bytes=topology.bounds.lane_bytes,
            gap_timeout_s=topology.timeouts.gap_s,
            clock=clock,
        )

    @property
    def next_deadline(self) -> float:
        """When `read` or `flush` is due next without anything having come."""
        if self.output is None:
            return self.submits.next_deadline
        return min(self.submits.next_deadline, self.output.next_deadline)

    def changes(self) -> Iterator[tuple[int, str]]:
        """Yield (incarnation, "") for a client that came, (0, reason) for one that went."""
        self.submits.tick(self._clock())
        for change in self.submits.changes():
            if isinstance(change, PeerUp):
                self._open(change.incarnation)
                yield change.incarnation, ""
            elif self.client:
                self._close()
                yield 0, change.reason if isinstance(change, PeerDown) else "closed"

    def read(self) -> Iterator[Message]:
        """Yield what the client asked for, in order."""
        for item in self.submits.recv():
            if isinstance(item, Gap):
                self.bad_messages += 1
                continue
            try:
                messages = unpack_control(item)[1]
            except FrameError:
                self.bad_messages += 1
                continue
            yield from messages
        self.submits.applied()

    def _open(self, incarnation: int) -> None:
        self._close()
        self.client = incarnation
        self.output = open_sender(
            self._instance,
            own_output_lane(self.index),
            me=self._me,
            to=Role("client", str(self.index)),
            bound_bytes=OWN_OUTPUT_BYTES,
            receiver_incarnation=incarnation,
            clock=self._clock,
        )

    def _close(self) -> None:
        self.client = 0
        self._rows.clear()
        if self.output is not None:
            self.output.close(0.0)
            self.output = None

    def add(self, row: FinalRow) -> None:
        """Queue a final row; one for each live request of the client at most."""
        if self.client:
            self._rows.append(row)

    def flush(self) -> None:
        """Send queued rows as far as the lane's bound goes; read acknowledgements."""
        lane = self.output
        if lane is None:
            return
        lane.poll()
        while self._rows:
            rows = self._rows[:ROWS_PER_FRAME]
            frame = pack_final_rows(
                (self._instance.id, self._me.incarnation, lane.receiver, lane.next_seq), rows
            )
            if len(frame) > lane.room:
                return
            lane.send(frame)
            del self._rows[: len(rows)]

    @property
    def pending(self) -> bool:
        """Whether rows wait that the client could still get."""
        return bool(self._rows)

    def close(self, timeout_s: float) -> None:
        """Close both lanes."""
        if self.output is not None:
            self.output.close(timeout_s)
        self.submits.close()


def pack_final_rows(lane: tuple[int, int, int, int], rows: list[FinalRow]) -> bytes:
    """Pack final rows without tokens into an OutputFrame."""
    n = len(rows)
    errors = [row.error.encode()[:ERROR_BYTES].decode(errors="ignore").encode() for row in rows]
    client = rows[0].client
    return pack_output(
        (*lane, PIPELINE, client, n, 0, 0),
        {
            1: struct.pack(f"<{n}Q", *(row.key for row in rows)),
            2: bytes(4 * n),
            4: struct.pack(f"<{n}I", *(row.offset for row in rows)),
            5: bytes(FINISH_CODES.index(row.finish_reason) for row in rows),
            11: struct.pack(f"<{n}H", *(len(error) for error in errors)),
            12: b"".join(errors),
        },
    )
