"""Read the worker lanes of one DP rank, and find out when the rank is up or gone."""

from __future__ import annotations

from collections.abc import Callable, Container

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

from . import records
from .core import Processor
from .journal import Journal
from .rank_feed import RankFeed
from .records import LaneAt

Act = Callable[[Processor, float], None]


class RankLanes:
    """The lanes of a DP rank, one for each TP rank. The rank is up while all workers are.

    `read` finds what came, and writes it into the journal. `feed` lets it happen.
    """

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        feed: RankFeed,
        incarnation: int,
        clock: Callable[[], float],
        journal: Journal | None = None,
    ) -> None:
        """Bind the lanes of the rank of `feed`."""
        self.rank = feed
        self.dp_rank = dp_rank = feed.dp_rank
        self._journal = journal
        self._acts: list[Act] = []
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

    def read(self, lanes: Container[object], limit: int, now: float) -> bool:
        """Read peer events of these lanes, and at most `limit` frames of each.

        Returns whether one lane had `limit` frames, so that it may have more.
        """
        full = False
        rank = self.rank
        up = rank.up
        served = [(tp_rank, lane) for tp_rank, lane in enumerate(self.lanes) if lane in lanes]
        for tp_rank, lane in served:
            if events := lane.peer_events():
                rank.failed.discard(tp_rank)
            for change in events:
                if isinstance(change, PeerDown):
                    up = self._lost(change.reason)
                elif isinstance(change, PeerEnded):
                    reason = f"worker {self.dp_rank}.{tp_rank} closed its lane"
                    up = self._lost(reason, died=False)
            if events:
                self._note(records.lane(self.dp_rank, tp_rank, LaneAt(*lane.position)))
        if not (up or rank.failed) and all(lane.sender for lane in self.lanes):
            self._up(new_incarnation())
        for tp_rank, lane in served:
            items = lane.recv(limit)
            full = full or len(items) >= limit
            if items:
                self._came(tp_rank, items)
            lane.tick(now)
        if self.lanes[0].heard > self._heard:
            self._heard = self.lanes[0].heard
            self._note(records.seen(self.dp_rank))
            self._acts.append(lambda processor, now: processor.seen(self.dp_rank, now))
        return full

    def _note(self, record: list[bytes]) -> None:
        if self._journal is not None:
            self._journal.add(record)

    def _lost(self, reason: str, died: bool = True) -> bool:
        self._note(records.rank_lost(self.dp_rank, reason, died))
        self._acts.append(lambda processor, now: self.rank.lose(processor, reason, now, died))
        return False

    def _up(self, incarnation: int) -> None:
        self._note(records.rank_up(self.dp_rank, incarnation))
        self._acts.append(lambda processor, now: self.rank.open(processor, incarnation, now))

    def _came(self, tp_rank: int, items: list[bytes | Gap]) -> None:
        """Note frames, and gaps among them."""
        frames: list[bytes] = []
        for item in items:
            if isinstance(item, bytes):
                frames.append(item)
            else:
                self._frames(tp_rank, frames)
                self._gap(tp_rank, item)
                frames = []
        self._frames(tp_rank, frames)

    def _frames(self, tp_rank: int, frames: list[bytes]) -> None:
        if frames:
            self._note(records.frames(self.dp_rank, tp_rank, frames))
            self._acts.append(
                lambda processor, now: self.rank.frames(processor, tp_rank, frames, now)
            )

    def _gap(self, tp_rank: int, gap: Gap) -> None:
        self._note(records.gap(self.dp_rank, tp_rank, gap.last))
        self._acts.append(lambda processor, now: processor.gap(self.dp_rank, tp_rank, now))

    def feed(self, processor: Processor, now: float) -> None:
        """Let happen what `read` found."""
        acts, self._acts = self._acts, []
        for act in acts:
            act(processor, now)

    def applied(self, lanes: Container[object]) -> None:
        """Let these lanes acknowledge the frames that were read."""
        for lane in self.lanes:
            if lane in lanes:
                lane.applied()

    def close(self) -> None:
        """Close the lanes."""
        for lane in self.lanes:
            lane.close()
