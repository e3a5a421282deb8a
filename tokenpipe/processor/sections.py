"""Join byte strings so that they can be split again."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tokenpipe.errors import FrameError

_COUNT = struct.Struct("<I")


def join(sections: Sequence[bytes]) -> bytes:
    """Return one byte string of many."""
    sizes = struct.pack(f"<I{len(sections)}Q", len(sections), *map(len, sections))
    return b"".join((sizes, *sections))


def split(joined: bytes) -> list[bytes]:
    """Return what was joined. Raises FrameError for other bytes."""
    try:
        (count,) = _COUNT.unpack_from(joined)
        if 8 * count > len(joined):
            raise FrameError(f"joined bytes: {count} sections in {len(joined)} bytes")
        sizes = struct.unpack_from(f"<{count}Q", joined, _COUNT.size)
    except struct.error as error:
        raise FrameError(f"joined bytes: {error}") from error
    at = _COUNT.size + 8 * count
    if at + sum(sizes) != len(joined):
        raise FrameError(f"joined bytes: {at + sum(sizes)} expected, {len(joined)} found")
    sections = []
    for size in sizes:
        sections.append(joined[at : at + size])
        at += size
    return sections
