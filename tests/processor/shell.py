"""An instance in which a processor's outer part runs, with the far ends of its lanes at hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.processor.rig import Rig, Row
from tokenpipe import _core
from tokenpipe.instance import Instance, RoleLock, output_lane, worker_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    LaneReceiver,
    Peer,
    Role,
    new_incarnation,
    open_receiver,
    open_sender,
)
from tokenpipe.wire import Message, OutputFrame, pack_control

INCARNATION = 77


class Worker:
    """One life of a worker rank: its lane and the lock that says that it lives."""

    def __init__(self, shell: Shell, dp: int, tp: int, bound_bytes: int = 1 << 20) -> None:
        self.dp, self.tp = dp, tp
        self.me = Peer("worker", f"{dp}.{tp}", new_incarnation())
        self._shell = shell
        self._pen = Rig(ranks=dp + 1, tp_size=tp + 1)
        self.claim: RoleLock | None = shell.instance.claim("worker", f"{dp}.{tp}")
        self.lane = open_sender(
            shell.instance,
            worker_lane(dp, tp),
            me=self.me,
            to=Role("processor", "0"),
            bound_bytes=bound_bytes,
        )

    def send(self, *rows: Row) -> None:
        """Send a step of these rows."""
        frame = self._pen.frame(rows, self.dp, self.tp)
        self.lane.send(_addressed(frame, self.lane.next_header))

    def tell(self, *messages: Message) -> None:
        """Send control messages."""
        self.lane.send(pack_control(self.lane.next_header, list(messages)))

    def send_raw(self, make: Callable[[tuple[int, int, int, int]], bytes]) -> None:
        """Send whatever `make` returns for a header."""
        self.lane.send(make(self.lane.next_header))

    def die(self) -> None:
        """Go without a word: only the lock tells."""
        assert self.claim is not None
        self.claim.release()
        self.claim = None
        self.lane.port.close()

    def close(self) -> None:
        if self.claim is not None:
            self.lane.close(0.0)
            self.claim.release()


def _addressed(frame: bytes, header: tuple[int, int, int, int]) -> bytes:
    values, columns = _core.unpack_step(frame)
    return _core.pack_step((*header, *values[4:]), columns)


class Client:
    """The client's end of one output lane."""

    def __init__(self, shell: Shell, index: int = 0, hold_bytes: int = 1 << 20) -> None:
        self.me = Peer("client", str(index), new_incarnation())
        self.claim = shell.instance.claim("client", str(index))
        self.frames: list[OutputFrame] = []
        self.acks = True
        self.lane: LaneReceiver = open_receiver(
            shell.instance,
            output_lane(0, index),
            me=self.me,
            expects=Role("processor", "0"),
            max_frame_bytes=1 << 20,
            hold_bytes=hold_bytes,
        )

    def read(self) -> None:
        """Take what is there, unless `acks` is off."""
        self.lane.peer_events()
        if self.acks or not self.lane.sender:
            self.frames += [OutputFrame.unpack(f) for f in self.lane.recv() if isinstance(f, bytes)]
            self.lane.applied()
            self.lane.tick(time.monotonic())

    def tokens(self) -> dict[int, list[int]]:
        """Return what came, by key; rows must follow one another."""
        got: dict[int, list[int]] = {}
        for frame in self.frames:
            at = 0
            for i, key in enumerate(frame.keys.tolist()):
                mine = got.setdefault(key, [])
                assert int(frame.offsets[i]) == len(mine)
                mine += frame.tokens[at : at + int(frame.counts[i])].tolist()
                at += int(frame.counts[i])
        return got

    def close(self) -> None:
        self.lane.close()
        self.claim.release()


class Shell:
    """The instance, and whoever takes part in it."""

    def __init__(self, base: Path, **topology: Any) -> None:
        self.topology = Topology(slots_per_rank=4, vocab_size=1000, **topology)
        self.instance = Instance.create(base, None, {"topology": self.topology.to_json_dict()})
        self._claims = [self.instance.claim("processor", "0"), self.instance.claim("engine", "0")]
        self._open: list[Worker | Client] = []

    def worker(self, dp: int = 0, tp: int = 0, **more: Any) -> Worker:
        """Bring a worker to life."""
        self._open.append(Worker(self, dp, tp, **more))
        return self._open[-1]  # type: ignore[return-value]

    def client(self, index: int = 0, **more: Any) -> Client:
        """Bring a client to life."""
        self._open.append(Client(self, index, **more))
        return self._open[-1]  # type: ignore[return-value]

    def until(self, fact: Callable[[], object], *turns: Callable[[], object]) -> None:
        """Let everybody take turns until the fact holds."""
        deadline = time.monotonic() + 20
        while not fact():
            assert time.monotonic() < deadline
            for turn in turns:
                turn()
            time.sleep(0.001)

    def close(self) -> None:
        for one in self._open:
            one.close()
        for claim in self._claims:
            claim.release()
        self.instance.close()
