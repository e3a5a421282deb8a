"""Read the worker lanes of one DP rank, and find out when the rank is up or gone."""

from __future__ import annotations

from collections.abc import Callable, Container

from tokenpipe._core import peek
from tokenpipe.errors import FrameError
from tokenpipe.instance import Instance, worker_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    Gap,
    LaneReceiver,
    Peer,
    PeerDown,
    PeerEnded,
    Role,
    new_incarnation,
    open_receiver,
)
from tokenpipe.wire import Kind, RankFailed, unpack_control

from .core import Processor


class RankLanes:
    """The lanes of a DP rank, one for each TP rank. The rank is up while all workers are."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        dp_rank: int,
        incarnation: int,
        clock: Callable[[], float],
    ) -> None:
        """Bind the lanes of `dp_rank`."""
        self.dp_rank = dp_rank
        self.bad_frames = 0  # frames that could not be read, and were dropped
        self._up = False
        self._failed: set[int] = set()  # TP ranks that failed, until their next incarnation
        self._heard = 0
        me = Peer("processor", str(topology.processor_of(dp_rank)), incarnation)
        self.lanes: list[LaneReceiver] = []
        for tp_rank in range(topology.tensor_parallel_size):
            self.lanes.append(
                open_receiver(
                    instance,
                    worker_lane(dp_rank, tp_rank),
                    me=me,
                    expects=Role("worker", f"{dp_rank}.{tp_rank}"),
                    max_frame_bytes=topology.bounds.max_frame_bytes,
                    hold_bytes=topology.bounds.lane_bytes,
                    gap_timeout_s=topology.timeouts.gap_s,
                    clock=clock,
                )
            )

    def read(self, processor: Processor, lanes: Container[object], limit: int, now: float) -> bool:
        """Feed the processor from these lanes: peer events, and at most `limit` frames of each.

        Returns whether one lane had `limit` frames, so that it may have more.
        """
        full = False
        served = [(tp_rank, lane) for tp_rank, lane in enumerate(self.lanes) if lane in lanes]
        for tp_rank, lane in served:
            for change in lane.peer_events():
                self._failed.discard(tp_rank)
                if isinstance(change, PeerDown):
                    self._lost(processor, change.reason, now)
                elif isinstance(change, PeerEnded):
                    reason = f"worker {self.dp_rank}.{tp_rank} closed its lane"
                    self._lost(processor, reason, now, died=False)
        if not (self._up or self._failed) and all(lane.sender for lane in self.lanes):
            self._up = True
            processor.rank_up(self.dp_rank, new_incarnation(), now)
        for tp_rank, lane in served:
            items = lane.recv(limit)
            full = full or len(items) >= limit
            at = 0
            while at < len(items):
                at = processor.feed_run(self.dp_rank, tp_rank, items, at, now)
                if at < len(items):
                    self._take(processor, tp_rank, items[at], now)
                    at += 1
            lane.tick(now)
        if self.lanes[0].heard > self._heard:
            self._heard = self.lanes[0].heard
            processor.seen(self.dp_rank, now)
        return full

    def _take(self, processor: Processor, tp_rank: int, frame: bytes | Gap, now: float) -> None:
        if isinstance(frame, Gap):
            processor.gap(self.dp_rank, tp_rank, now)
            return
        try:
            if peek(frame)[0] == Kind.CONTROL:
                for message in unpack_control(frame)[1]:
                    if isinstance(message, RankFailed):
                        reason = f"worker {self.dp_rank}.{tp_rank} failed: {message.message}"
                        self._failed.add(tp_rank)
                        self._lost(processor, reason, now)
            else:
                processor.feed(self.dp_rank, tp_rank, frame, now)
        except FrameError:
            self.bad_frames += 1  # its lost rows show as a jump of the positions

    def _lost(self, processor: Processor, reason: str, now: float, died: bool = True) -> None:
        if self._up:
            self._up = False
            processor.rank_lost(self.dp_rank, reason, now, died=died)

    def applied(self, lanes: Container[object]) -> None:
        """Let these lanes acknowledge the frames that were read."""
        for lane in self.lanes:
            if lane in lanes:
                lane.applied()

    def close(self) -> None:
        """Close the lanes."""
        for lane in self.lanes:
            lane.close()
