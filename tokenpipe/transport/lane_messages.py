"""The lane's own messages: frames of kind 0, small maps in MessagePack (docs/lanes.md).

`[0, version, [instance, from, to, 0], {"type": ..., ...}]` where `from` and `to` are incarnations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from tokenpipe import _core
from tokenpipe.errors import FrameError

VERSION: int = _core.WIRE_VERSION
MAX_MESSAGE_BYTES = 4096

_U64 = (1 << 64) - 1
_FIELDS: dict[str, dict[str, type]] = {
    # sender to receiver
    "hello": {
        "role": str,
        "rank": str,
        "next_seq": int,
        "first_retained": int,
        "since_ns": int,
        "pinned": bool,
    },
    "ping": {"next_seq": int, "first_retained": int},
    "end": {"next_seq": int, "first_retained": int},
    # receiver to sender
    "welcome": {"role": str, "rank": str, "applied": int, "expects": int},
    "refuse": {"code": str, "detail": str},
    "who": {},
    "ack": {"applied": int},
    "resend": {"first": int, "last": int},
    "ended": {"applied": int},
    "bye": {"applied": int},
}


class LaneMessage(NamedTuple):
    """A message of the lane itself; `fields` were checked against its type's."""

    instance: int
    source: int  # incarnation that says it
    target: int  # incarnation it is meant for, 0 where not known yet
    type: str
    fields: dict[str, Any]


def pack(instance: int, source: int, target: int, type_: str, **fields: object) -> bytes:
    """Return the frame of a lane message."""
    header = (instance, source, target, 0)
    packed: bytes = msgpack.packb((_core.KIND_LANE, VERSION, header, {"type": type_, **fields}))
    return packed


def unpack(frame: bytes) -> LaneMessage:
    """Read a lane message. Raises FrameError; unknown fields are skipped, unknown types kept."""
    if len(frame) > MAX_MESSAGE_BYTES:
        raise FrameError(f"lane message of {len(frame)} bytes (at most {MAX_MESSAGE_BYTES})")
    try:
        kind, version, (instance, source, target, *_), body = msgpack.unpackb(frame)
    except Exception as error:  # msgpack raises what it likes on bytes it does not like
        raise FrameError(f"lane message: {type(error).__name__}: {error}") from None
    if kind != _core.KIND_LANE or version != VERSION:
        raise FrameError(f"lane message: kind {kind}, version {version}")
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise FrameError("lane message: no map with a type")
    name = body["type"]
    fields: dict[str, Any] = {}
    for field, wanted in _FIELDS.get(name, {}).items():
        value = body.get(field)
        if type(value) is not wanted or (isinstance(value, int) and not 0 <= value <= _U64):
            raise FrameError(f"lane message {name}: {field} is not {wanted.__name__}")
        fields[field] = value
    return LaneMessage(instance, source, target, name, fields)


def foreign_version(frame: bytes) -> int | None:
    """Return the version of a lane message of another version than ours, else None."""
    # [0, version, ...: an array of four, then two small ints; true of every version to come.
    if len(frame) > 3 and frame[0] == 0x94 and frame[1] == _core.KIND_LANE and frame[2] < 0x80:
        return frame[2] if frame[2] != VERSION else None
    return None
