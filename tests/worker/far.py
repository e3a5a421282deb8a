"""An instance without an engine: the far ends of a worker's lanes, in the test's own hands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tokenpipe._core import peek
from tokenpipe.instance import Instance, worker_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import Gap, LaneReceiver, Peer, Role, new_incarnation, open_receiver
from tokenpipe.wire import Message, StepFrame, unpack_control
from tokenpipe.worker import Publisher, StepLane

T = TypeVar("T")


class Far:
    """The processor's end of every worker lane, and what came over it."""

    def __init__(self, base: Path, *, listens: bool = True, **topology: Any) -> None:
        self.topology = Topology(slots_per_rank=8, **topology)
        self.instance = Instance.create(base, None, {"topology": self.topology.to_json_dict()})
        self.endpoint = self.instance.directory
        self.acks = True  # whether what comes is acknowledged
        self.frames: list[bytes] = []
        self._claims = [self.instance.claim("processor", "0"), self.instance.claim("engine", "0")]
        self.lanes: list[LaneReceiver] = []
        for dp, tp in self.topology.workers if listens else ():
            self.lanes.append(
                open_receiver(
                    self.instance,
                    worker_lane(dp, tp),
                    me=Peer("processor", "0", new_incarnation()),
                    expects=Role("worker", f"{dp}.{tp}"),
                    max_frame_bytes=1 << 20,
                    hold_bytes=1 << 20,
                )
            )

    def turn(self) -> None:
        """Read what is there."""
        for lane in self.lanes:
            lane.peer_events()
            if self.acks or not lane.sender:
                frames = lane.recv()
                assert not any(isinstance(frame, Gap) for frame in frames)
                self.frames += [frame for frame in frames if isinstance(frame, bytes)]
                lane.applied()
                lane.tick(time.monotonic())

    def beside(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, done in a thread while this one reads."""
        done: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(work())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self.turn()
            thread.join(0.002)
        if failed:
            raise failed[0]
        return done[0]

    def publisher(self, dp: int = 0, tp: int = 0, **more: Any) -> Publisher:
        """Open a publisher."""
        return self.beside(lambda: Publisher(self.endpoint, dp, tp, **more))

    def step_lane(self, dp: int = 0) -> StepLane:
        """Open the engine's end of a step lane."""
        return StepLane(self.instance, self.topology, dp)

    def until(self, fact: Callable[[], object], *poll: Callable[[], object]) -> None:
        """Read, and poll what is given, until the fact holds."""
        deadline = time.monotonic() + 20
        while not fact():
            assert time.monotonic() < deadline
            for one in poll:
                one()
            self.turn()
            time.sleep(0.001)

    def steps(self) -> list[StepFrame]:
        """Return the frames that came, as steps."""
        newest: dict[int, StepFrame] = {}  # of each sender
        steps = []
        for frame in self.frames:
            step = StepFrame.unpack(frame, newest.get(peek(frame)[2]))
            steps.append(step)
            newest[step.header.sender] = step
        return steps

    def messages(self) -> list[Message]:
        """Return the frames that came, as control messages."""
        return [message for frame in self.frames for message in unpack_control(frame)[1]]

    def engine_dies(self) -> None:
        """Let go what says that the engine lives."""
        self._claims.pop().release()

    def close(self) -> None:
        """Close every end and the instance."""
        for lane in self.lanes:
            lane.close()
        for claim in self._claims:
            claim.release()
        self.instance.close()
