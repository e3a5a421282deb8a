"""Name everything that happens to a processor, as records of its journal.

A processor to which the same happens in the same order has the same state. Each function returns a
record in parts, which are bytes to be joined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from tokenpipe.errors import FrameError

_HEAD = struct.Struct("<BI")  # kind, bytes that follow
_FRAMES = struct.Struct("<HHI")  # dp, tp, number of frames; then their sizes, then the frames
_GAP = struct.Struct("<HHQ")  # dp, tp, last lost number
_UP = struct.Struct("<HQ")
_DP = struct.Struct("<H")
_LOST = struct.Struct("<H?")
_FLUSH = struct.Struct("<IQ?")  # client, most bytes, only urgent rows
_ACKED = struct.Struct("<II")  # client, frames
_LANE = struct.Struct("<HHQQQ")  # dp, tp, then as LaneAt; its route follows


class What(IntEnum):
    """The kinds of records."""

    COMMANDS = 1
    FRAMES = 2
    GAP = 3
    SEEN = 4
    UP = 5
    LOST = 6
    TICK = 7
    FLUSH = 8
    ACKED = 9
    LANE = 10


class LaneAt(NamedTuple):
    """How far a lane is: its sender, and the number of the frame that comes next."""

    sender: int  # incarnation, 0 if there is none
    since_ns: int
    expected: int
    route: bytes


class Batch(NamedTuple):
    """Joined records that were written together, and the time at which they were."""

    now: float
    records: bytes


class Past(NamedTuple):
    """All that a journal has: the image and the batches after it."""

    image: bytes
    batches: list[Batch]


class Record(NamedTuple):
    """A record that was read. `values` depend on the kind, as the arguments of its function."""

    kind: What
    values: tuple[Any, ...]


def _record(kind: What, *parts: bytes) -> list[bytes]:
    return [_HEAD.pack(kind, sum(map(len, parts))), *parts]


def _frames(kind: What, dp: int, tp: int, frames: Sequence[bytes]) -> list[bytes]:
    sizes = struct.pack(f"<{len(frames)}I", *map(len, frames))
    return _record(kind, _FRAMES.pack(dp, tp, len(frames)), sizes, *frames)


def commands(frames: Sequence[bytes]) -> list[bytes]:
    """Frames of commands came."""
    return _frames(What.COMMANDS, 0, 0, frames)


def frames(dp: int, tp: int, frames: Sequence[bytes]) -> list[bytes]:
    """Frames of a worker came."""
    return _frames(What.FRAMES, dp, tp, frames)


def gap(dp: int, tp: int, last: int) -> list[bytes]:
    """Frames of a worker up to the number `last` are lost."""
    return _record(What.GAP, _GAP.pack(dp, tp, last))


def seen(dp: int) -> list[bytes]:
    """A worker showed that it lives."""
    return _record(What.SEEN, _DP.pack(dp))


def rank_up(dp: int, incarnation: int) -> list[bytes]:
    """A rank is up."""
    return _record(What.UP, _UP.pack(dp, incarnation))


def rank_lost(dp: int, reason: str, died: bool) -> list[bytes]:
    """A rank is gone. `died`: its worker did not close its lane in order."""
    return _record(What.LOST, _LOST.pack(dp, died), reason.encode())


def tick() -> list[bytes]:
    """A deadline was reached."""
    return _record(What.TICK)


def flush(client: int, max_bytes: int, urgent_only: bool) -> list[bytes]:
    """Output was packed for a client."""
    return _record(What.FLUSH, _FLUSH.pack(client, max_bytes, urgent_only))


def acked(client: int, count: int) -> list[bytes]:
    """A client acknowledged its `count` oldest frames."""
    return _record(What.ACKED, _ACKED.pack(client, count))


def lane(dp: int, tp: int, at: LaneAt) -> list[bytes]:
    """A worker's lane has another sender, or none."""
    numbers = _LANE.pack(dp, tp, at.sender, at.since_ns, at.expected)
    return _record(What.LANE, numbers, at.route)


def read(batch: bytes) -> Iterator[Record]:
    """Yield the records of joined bytes. Raises FrameError."""
    at = 0
    try:
        while at < len(batch):
            kind, size = _HEAD.unpack_from(batch, at)
            at += _HEAD.size
            if at + size > len(batch):
                raise FrameError(f"journal: a record of {size} bytes ends outside of its batch")
            yield Record(What(kind), _values(What(kind), batch[at : at + size]))
            at += size
    except (struct.error, ValueError) as error:
        raise FrameError(f"journal: {error}") from error


def _values(kind: What, body: bytes) -> tuple[Any, ...]:
    match kind:
        case What.COMMANDS:
            return (_read_frames(body)[2],)
        case What.FRAMES:
            return _read_frames(body)
        case What.GAP:
            return _GAP.unpack(body)
        case What.SEEN:
            return _DP.unpack(body)
        case What.UP:
            return _UP.unpack(body)
        case What.LOST:
            dp, died = _LOST.unpack_from(body)
            return dp, died, body[_LOST.size :].decode()
        case What.TICK:
            return ()
        case What.FLUSH:
            return _FLUSH.unpack(body)
        case What.ACKED:
            return _ACKED.unpack(body)
        case What.LANE:
            dp, tp, sender, since_ns, expected = _LANE.unpack_from(body)
            return dp, tp, LaneAt(sender, since_ns, expected, body[_LANE.size :])


def _read_frames(body: bytes) -> tuple[int, int, list[bytes]]:
    dp, tp, count = _FRAMES.unpack_from(body)
    sizes = struct.unpack_from(f"<{count}I", body, _FRAMES.size)
    at = _FRAMES.size + 4 * count
    if at + sum(sizes) != len(body):
        raise FrameError("journal: the sizes of frames do not fit their record")
    found = []
    for size in sizes:
        found.append(body[at : at + size])
        at += size
    return dp, tp, found
