"""Two ends of a lane in one process, over memory or over ZeroMQ, and frames to send."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack

from tokenpipe.instance import Instance
from tokenpipe.transport import (
    Gap,
    LaneReceiver,
    LaneSender,
    MemoryLane,
    Peer,
    Waiter,
    ZmqReceiverPort,
    ZmqSenderPort,
    new_incarnation,
)
from tokenpipe.transport.port import ReceiverPort, SenderPort

LANE = "w0.0"
BOUND = 1 << 20


def frame(instance: int, sender: int, receiver: int, seq: int, size: int = 16) -> bytes:
    """Return a frame the transport can carry; it looks at nothing but the header."""
    return bytes(msgpack.packb([1, 1, [instance, sender, receiver, seq], {1: b"x" * size}]))


def seq_of(data: bytes | Gap) -> int:
    """Return the sequence number a frame carries."""
    assert isinstance(data, bytes)
    return int(msgpack.unpackb(data, strict_map_key=False)[2][3])


class Rig:
    """Make ends of one lane; `kind` is "memory" or "zmq"."""

    def __init__(self, kind: str, base: Path) -> None:
        self.kind = kind
        self.instance = Instance.create(base, None, {})
        self.memory = MemoryLane(LANE)
        self.worker = Peer("worker", "0.0", new_incarnation())
        self.processor = Peer("processor", "0", new_incarnation())
        self.living = {"worker", "processor"}
        self._open: list[LaneSender | LaneReceiver] = []

    def sender(
        self,
        me: Peer | None = None,
        *,
        bound: int = BOUND,
        pin: int = 0,
        instance: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> LaneSender:
        me = me or self.worker
        port: SenderPort
        if self.kind == "memory":
            port = self.memory.sender(me.route)
        else:
            port = ZmqSenderPort(self.instance, LANE, me.route, bound_bytes=bound)
        lane = LaneSender(
            port,
            instance=instance or self.instance.id,
            me=me,
            to=self.processor,
            bound_bytes=bound,
            alive=lambda: "processor" in self.living,
            receiver_incarnation=pin,
            clock=clock,
        )
        self._open.append(lane)
        return lane

    def receiver(
        self,
        me: Peer | None = None,
        *,
        expects: Peer | None = None,
        hold: int = BOUND,
        gap_timeout_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> LaneReceiver:
        port: ReceiverPort
        if self.kind == "memory":
            port = self.memory.receiver()
        else:
            port = ZmqReceiverPort(self.instance, LANE, max_frame_bytes=1 << 20, bound_bytes=BOUND)
        lane = LaneReceiver(
            port,
            instance=self.instance.id,
            me=me or self.processor,
            expects=expects or self.worker,
            hold_bytes=hold,
            alive=lambda: "worker" in self.living,
            gap_timeout_s=gap_timeout_s,
            clock=clock,
        )
        self._open.append(lane)
        return lane

    def pair(self) -> tuple[LaneSender, LaneReceiver]:
        """Return two ends that have greeted each other."""
        sender, receiver = self.sender(), self.receiver()
        turn(lambda: sender.ready, sender, receiver)
        receiver.peer_events()
        return sender, receiver

    def send(self, lane: LaneSender, count: int = 1, size: int = 16) -> None:
        for _ in range(count):
            lane.send(frame(*lane.next_header, size))

    def close(self) -> None:
        for lane in self._open:
            if isinstance(lane, LaneSender):
                lane.close(0.0)
            else:
                lane.close()
        self.instance.close()


def turn(
    until: Callable[[], bool], sender: LaneSender, *receivers: LaneReceiver, timeout_s: float = 8.0
) -> list[bytes | Gap]:
    """Let both ends work until a condition holds; return what was received (and applied)."""
    got: list[bytes | Gap] = []
    deadline = time.monotonic() + timeout_s
    with waiting(sender, *receivers) as waiter:
        while not until():
            sender.poll()
            for receiver in receivers:
                got += receiver.recv()
                receiver.applied()
                receiver.tick(time.monotonic())
            if until():
                break
            now = time.monotonic()
            assert now < deadline, "the condition never held"
            due = min([sender.next_deadline, *(lane.next_deadline for lane in receivers)])
            waiter.wait(min(max(due - now, 0.0), 0.05))
    return got


@contextmanager
def waiting(*lanes: LaneSender | LaneReceiver) -> Iterator[Waiter]:
    """Wait on the ports of some lanes."""
    waiter = Waiter()
    for lane in lanes:
        waiter.add(lane.port)
    try:
        yield waiter
    finally:
        waiter.close()
