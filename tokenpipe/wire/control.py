"""Pack and unpack control frames: [3, version, lane header, [[tag, {field: value}], ...]]."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import msgpack

from tokenpipe import _core
from tokenpipe.errors import FrameError

from .lane import Kind, LaneHeader
from .messages import TAGS, Message
from .schema import MapSpec, map_spec

MAX_MESSAGES = 1 << 16
MAX_DEPTH = 8

_SPECS: dict[int, MapSpec] = {tag: map_spec(cls) for tag, cls in TAGS.items()}
_BY_CLASS: dict[type[Message], tuple[int, MapSpec]] = {
    cls: (tag, _SPECS[tag]) for tag, cls in TAGS.items()
}


def pack_control(header: tuple[int, int, int, int], messages: Sequence[Message]) -> bytes:
    """Return the frame. FieldError names message and field of a value that cannot be sent.

    Raises ValueError for more messages than a frame may hold.
    """
    return join_messages(header, [pack_message(message) for message in messages])


def pack_message(message: Message) -> bytes:
    """Return a message packed for `join_messages`. FieldError names a field that cannot be sent."""
    tag, spec = _BY_CLASS[type(message)]
    packed: bytes = msgpack.packb((tag, spec.encode(message)))
    return packed


def join_messages(header: tuple[int, int, int, int], packed: Sequence[bytes]) -> bytes:
    """Return the frame of messages that are packed already: they may go to several lanes.

    Raises ValueError for more messages than a frame may hold.
    """
    if len(packed) > MAX_MESSAGES:
        raise ValueError(f"{len(packed)} messages, a frame holds at most {MAX_MESSAGES}")
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(4)
    packer.pack(Kind.CONTROL.value)
    packer.pack(_core.WIRE_VERSION)
    packer.pack(tuple(header))
    packer.pack_array_header(len(packed))
    return b"".join((packer.bytes(), *packed))


def pack_control_within(
    header: tuple[int, int, int, int], messages: Sequence[Message], limit: int
) -> tuple[bytes, int]:
    """Return a frame of at most `limit` bytes, and how many of the first messages it holds.

    Where the first message does not fit, return the frame of this message alone and 0.
    """
    n = len(messages)
    while True:
        frame = pack_control(header, messages[:n])
        if len(frame) <= limit:
            return frame, n
        if n == 1:
            return frame, 0
        n = max(1, min(n // 2, n * limit // len(frame)))


def unpack_control(
    frame: bytes, counters: MutableMapping[str, int] | None = None
) -> tuple[LaneHeader, list[Message]]:
    """Return lane header and messages. FrameError names index and field of a malformed message.

    A message with an unknown tag is skipped; `counters["unknown_messages"]` counts it.
    """
    kind, *lane = _core.peek(frame)
    if kind != Kind.CONTROL:
        raise FrameError(f"control frame: its kind is {kind}")
    _core.check_value(frame, MAX_DEPTH)
    try:
        _, _, header, body = msgpack.unpackb(frame)
    except ValueError as error:
        raise FrameError(f"control frame: {error}") from error
    if not all(type(extra) is int and extra >= 0 for extra in header[4:]):
        raise FrameError("control frame: the header has a value that is no unsigned integer")
    if type(body) is not list or len(body) > MAX_MESSAGES:
        raise FrameError(f"control frame: the body is no array of at most {MAX_MESSAGES} messages")
    messages = []
    for i, entry in enumerate(body):
        tag, raw = _split(i, entry)
        spec = _SPECS.get(tag)
        if spec is None:
            if counters is not None:
                counters["unknown_messages"] = counters.get("unknown_messages", 0) + 1
            continue
        try:
            messages.append(spec.decode(raw))
        except ValueError as error:
            raise FrameError(f"control frame: message {i}: {error}") from error
    return LaneHeader(*lane), messages


def _split(i: int, entry: Any) -> tuple[int, dict[str, Any]]:
    if type(entry) is list and len(entry) == 2 and type(entry[0]) is int and type(entry[1]) is dict:
        return entry[0], entry[1]
    raise FrameError(f"control frame: message {i}: expected [tag, map]")
