"""Hold a client's end of every lane: it receives output and sends submits and cancels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from tokenpipe.errors import LaneFull, LaneLost, TokenpipeError
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, Peer, PeerUp, Waiter
from tokenpipe.wire import Message, pack_control

from .await_port import await_port


class Sink(Protocol):
    """Takes the frames and events that the lanes receive."""

    def feed(self, frame: bytes, now: float) -> None:
        """Take an output frame that came at `now` (seconds)."""
        ...

    def gap(self, lane: str) -> None:
        """Handle that frames of a lane are lost for good."""
        ...

    def source_lost(self, now: float) -> None:
        """Handle that a processor is gone."""
        ...

    def engine_lost(self, error: TokenpipeError) -> None:
        """Handle that the engine is gone."""
        ...


class Lanes:
    """All lanes of one client. For one thread at a time."""

    def __init__(
        self,
        *,
        me: Peer,
        outputs: Sequence[LaneReceiver],
        own_output: LaneReceiver,
        submits: LaneSender,
        closing: ExitStack,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.me = me
        self.engine_gone = ""  # why the engine is gone; "" if it is not
        self.waiter = Waiter()
        self._own = own_output
        self._receivers = (*outputs, own_output)
        self._submits = submits
        self._clock = clock
        self._closing = closing
        for port in (*(receiver.port for receiver in self._receivers), submits.port):
            self.waiter.add(port)

    def read(self, sink: Sink, now: float, limit: int) -> bool:
        """Pass what came to `sink`, about `limit` frames a lane. Return whether more may wait."""
        more = False
        for receiver in self._receivers:
            for event in receiver.peer_events():
                if not isinstance(event, PeerUp):
                    self._peer_gone(receiver, sink, getattr(event, "reason", "it ended"), now)
            items = receiver.recv(limit)
            for item in items:
                if isinstance(item, Gap):
                    sink.gap(receiver.port.lane)
                else:
                    sink.feed(item, now)
            more = more or len(items) >= limit
        self._submits.poll()
        if self._submits.lost:
            self._engine_gone(sink, self._submits.lost_reason)
        return more or self.waiter.pending()

    def _peer_gone(self, receiver: LaneReceiver, sink: Sink, reason: str, now: float) -> None:
        if receiver is self._own:
            self._engine_gone(sink, reason)
        else:
            sink.source_lost(now)

    def _engine_gone(self, sink: Sink, reason: str) -> None:
        self.engine_gone = f"the engine is gone: {reason}"
        sink.engine_lost(LaneLost(self.engine_gone))

    def applied(self) -> None:
        """Let the senders forget the frames that were read: the sink has them."""
        for receiver in self._receivers:
            receiver.applied()

    def send(self, messages: Sequence[Message]) -> None:
        """Send to the engine. Raises LaneFull, LaneLost, FrameTooLarge, ValueError."""
        self._submits.send(pack_control(self._submits.next_header, messages))

    @property
    def sent(self) -> int:
        """The number of frames that were sent to the engine."""
        return self._submits.next_seq - 1

    def try_send(self, messages: Sequence[Message]) -> bool:
        """Send to the engine. Return False if the lane is full or its receiver is gone."""
        try:
            self.send(messages)
        except (LaneFull, LaneLost):
            return False
        return True

    @property
    def next_deadline(self) -> float:
        """The time at which to call `tick`, in seconds."""
        deadline = self._submits.next_deadline
        for receiver in self._receivers:
            deadline = min(deadline, receiver.next_deadline)
        return deadline

    def tick(self, now: float) -> None:
        """Send due acknowledgements and pings, and check the peers."""
        self._submits.tick(now)
        for receiver in self._receivers:
            receiver.tick(now)

    @property
    def counters(self) -> dict[str, dict[str, int]]:
        """The counts of each lane, by the lane's name."""
        counts = {receiver.port.lane: dict(receiver.counters) for receiver in self._receivers}
        counts[self._submits.port.lane] = dict(self._submits.counters)
        return counts

    async def aclose(self, timeout_s: float) -> int:
        """Do the same as `close` in an event loop. A cancellation closes at once."""
        submits, deadline = self._submits, self._clock() + timeout_s
        try:
            submits.end()
            while submits.receiver and not (submits.ended or submits.lost):
                now = self._clock()
                if now >= deadline:
                    break
                await await_port(submits.port, min(deadline, submits.next_deadline) - now)
                submits.poll()
        finally:
            unsent = self.close(0.0)
        return unsent

    def close(self, timeout_s: float) -> int:
        """End the submit lane and close all lanes. Return how many messages stay unconfirmed."""
        unsent = self._submits.close(timeout_s)
        for receiver in self._receivers:
            receiver.close()
        self.waiter.close()
        self._closing.close()
        return unsent
