"""Pack and read the lane's own messages: frames of kind 0, MessagePack maps (docs/lanes.md).

`[0, version, [instance, from, to, 0], {"type": ..., ...}]`; `from` and `to` are incarnations.
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
    """A message of the lane itself. `fields` has the checked fields of its type."""

    instance: int
    source: int  # incarnation of who sends it
    target: int  # incarnation of who shall read it, 0 if not known yet
    type: str
    fields: dict[str, Any]


def pack(instance: int, source: int, target: int, type_: str, **fields: object) -> bytes:
    """Return the frame of a lane message."""
    header = (instance, source, target, 0)
    packed: bytes = msgpack.packb((_core.KIND_LANE, VERSION, header, {"type": type_, **fields}))
    return packed


def unpack(frame: bytes) -> LaneMessage:
    """Read a lane message. Raises FrameError.

    Unknown fields are skipped. A message of an unknown type is returned without fields.
    """
    if len(frame) > MAX_MESSAGE_BYTES:
        raise FrameError(f"lane message of {len(frame)} bytes (at most {MAX_MESSAGE_BYTES})")
    try:
        kind, version, (instance, source, target, *_), body = msgpack.unpackb(frame)
    except Exception as error:  # msgpack raises many types of errors on malformed bytes
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
    """Return the version of a lane message if it is not ours, else None."""
    # Every version begins so: an array of four whose first two items are small integers.
    if len(frame) > 3 and frame[0] == 0x94 and frame[1] == _core.KIND_LANE and frame[2] < 0x80:
        return frame[2] if frame[2] != VERSION else None
    return None
