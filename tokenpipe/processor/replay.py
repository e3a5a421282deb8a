"""Bring a new processor to the state of one that died, from its journal. Pure.

The image gives an old state. Then everything happens again that happened since, in the same order.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenpipe._core import peek
from tokenpipe.errors import FrameError
from tokenpipe.wire import (
    CloseClient,
    Message,
    OpenClient,
    RanksDiffer,
    Snapshot,
    unpack_control,
)

from . import records
from .core import Processor
from .rank_feed import RankFeed
from .records import LaneAt, Past, What
from .saved_state import pack_messages, unpack_messages
from .sections import join, split

_HEADER = (0, 0, 0, 1)  # of frames that get the header of a lane later
NO_LANE = LaneAt(0, 0, 1, b"")


@dataclass
class Backlog:
    """The output of one client that it has perhaps not got: packed frames, oldest first.

    Their lane headers are of no use.
    """

    incarnation: int
    frames: deque[bytes] = field(default_factory=deque)


@dataclass
class Life:
    """All that a processor knows, beside the sockets of its lanes."""

    incarnation: int
    processor: Processor
    ranks: Mapping[int, RankFeed]
    commands: LaneAt = NO_LANE
    workers: dict[tuple[int, int], LaneAt] = field(default_factory=dict)  # by (dp, tp)
    clients: dict[int, Backlog] = field(default_factory=dict)
    reports: list[Message] = field(default_factory=list)  # the engine has perhaps not got them

    def image(self) -> bytes:
        """Return the whole state as bytes, for `load`."""
        values = {
            "incarnation": self.incarnation,
            "commands": _lane_values(self.commands),
            "workers": [[*key, *_lane_values(at)] for key, at in self.workers.items()],
            "ranks": [[dp, rank.up, sorted(rank.failed)] for dp, rank in self.ranks.items()],
            "clients": [
                [index, backlog.incarnation, len(backlog.frames)]
                for index, backlog in self.clients.items()
            ],
        }
        frames = [frame for backlog in self.clients.values() for frame in backlog.frames]
        sections = [json.dumps(values).encode(), self.processor.save(), join(frames)]
        return join([*sections, join(pack_messages(self.reports))])

    def load(self, image: bytes) -> None:
        """Take the state of an image. Raises FrameError."""
        try:
            text, state, packed, reports = split(image)
            values = json.loads(text)
            self.incarnation = values["incarnation"]
            self.commands = _lane_at(values["commands"])
            for dp, tp, *lane in values["workers"]:
                self.workers[dp, tp] = _lane_at(lane)
            for dp, up, failed in values["ranks"]:
                self.ranks[dp].up = up
                self.ranks[dp].failed = set(failed)
            frames = deque(split(packed))
            for index, incarnation, count in values["clients"]:
                mine = deque(frames.popleft() for _ in range(count))
                self.clients[index] = Backlog(incarnation, mine)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise FrameError(f"journal: its image: {error!r}") from error
        self.processor.load(state)
        self.reports = unpack_messages(split(reports))

    def go_through(self, past: Past) -> None:
        """Load the image, and let everything happen again. Raises FrameError."""
        self.load(past.image)
        for batch in past.batches:
            for kind, values in records.read(batch.records):
                try:
                    self._again(kind, values, batch.now)
                except (KeyError, IndexError) as error:
                    raise FrameError(f"journal: {kind.name} {values!r:.80}: {error!r}") from error
            new = self.processor.reports()
            # The engine drops a second report on a handle. It must not get this one twice.
            self.reports += [report for report in new if not isinstance(report, RanksDiffer)]

    def _again(self, kind: What, values: tuple[Any, ...], now: float) -> None:
        processor = self.processor
        match kind:
            case What.COMMANDS:
                self._commands(values[0], now)
            case What.FRAMES:
                dp, tp, frames = values
                self.ranks[dp].frames(processor, tp, frames, now)
                self._came(dp, tp, peek(frames[-1])[4])
            case What.GAP:
                dp, tp, last = values
                processor.gap(dp, tp, now)
                self._came(dp, tp, last)
            case What.SEEN:
                processor.seen(values[0], now)
            case What.UP:
                dp, incarnation = values
                self.ranks[dp].open(processor, incarnation, now)
            case What.LOST:
                dp, died, reason = values
                self.ranks[dp].lose(processor, reason, now, died)
            case What.TICK:
                processor.tick(now)
            case What.FLUSH:
                client, max_bytes, urgent_only = values
                frame = processor.flush(client, _HEADER, max_bytes, urgent_only)
                if frame is not None:
                    self.clients[client].frames.append(frame)
            case What.ACKED:
                client, count = values
                for _ in range(count):
                    self.clients[client].frames.popleft()
            case What.LANE:
                dp, tp, at = values
                self.ranks[dp].failed.discard(tp)
                self.workers[dp, tp] = at

    def _came(self, dp: int, tp: int, last: int) -> None:
        self.workers[dp, tp] = self.workers[dp, tp]._replace(expected=last + 1)

    def _commands(self, frames: Sequence[bytes], now: float) -> None:
        for frame in frames:
            for message in unpack_control(frame)[1]:
                if isinstance(message, Snapshot):
                    continue  # nobody waits for the answer any more
                self.processor.command(message, now)
                if isinstance(message, OpenClient):
                    known = self.clients.get(message.client)
                    if known is None or known.incarnation != message.incarnation:
                        self.clients[message.client] = Backlog(message.incarnation)
                elif isinstance(message, CloseClient):
                    self.clients.pop(message.client, None)
            self.commands = self.commands._replace(expected=peek(frame)[4] + 1)


def _lane_values(at: LaneAt) -> list[Any]:
    return [at.sender, at.since_ns, at.expected, at.route.hex()]


def _lane_at(values: Sequence[Any]) -> LaneAt:
    sender, since_ns, expected, route = values
    return LaneAt(sender, since_ns, expected, bytes.fromhex(route))
