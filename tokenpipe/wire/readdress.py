"""Give a packed frame the header of another lane."""

from __future__ import annotations

import msgpack

from tokenpipe.errors import FrameError


def readdressed(frame: bytes, header: tuple[int, int, int, int]) -> bytes:
    """Return the frame with these four lane integers. Nothing else of it changes.

    Raises FrameError for bytes that do not begin as a frame.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(frame))
    unpacker.feed(frame)
    try:
        if unpacker.read_array_header() != 4:
            raise FrameError("frame: it is no array of four")
        unpacker.skip()  # kind
        unpacker.skip()  # version
        count = unpacker.read_array_header()
        begin = unpacker.tell()
        for _ in range(4):
            unpacker.skip()
    except (ValueError, msgpack.OutOfData) as error:
        raise FrameError(f"frame: {error!r}") from error
    if count < 4:
        raise FrameError(f"frame: its header has {count} values")
    ints = b"".join(msgpack.packb(value) for value in header)
    return frame[:begin] + ints + frame[unpacker.tell() :]
