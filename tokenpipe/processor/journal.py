"""Keep what happens to a processor in memory that outlives its process.

The engine makes two files in memory for each processor and passes them to each process of it. One
file has the processor's state (the image) and behind it everything that happened since, in batches.
If this becomes long, a new image is written to the other file. Only appended bytes are new, so a
file ends with whole batches and at most one torn batch, which its size shows.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from tokenpipe.errors import FrameError

from .records import Batch, Past

LEAST_LOG = 1 << 21
"""Bytes of batches after which a new image is written, or as many as the image has. So writing
images costs no more than writing batches, and reading them all takes a fraction of a second."""

_MAGIC = b"tpjrnl01"
_HEAD = struct.Struct("<8sQQ")  # magic, generation, bytes of the image
_BATCH = struct.Struct("<Id")  # bytes of the records, time in seconds


class Journal:
    """The journal of one processor. After an error it is `broken` and empty until `begin`."""

    def __init__(self, fds: Sequence[int]) -> None:
        """Use these two files."""
        self.broken = False
        self.error = ""  # the last error
        self._fds = fds
        self._at = 0  # index in _fds of the present file
        self._generation = 0
        self._size = 0
        self._image_bytes = 0
        self._parts: list[bytes] = []

    # --- reading --------------------------------------------------------------------------------

    def read(self) -> Past | None:
        """Return what the last process wrote, None if there is no whole image.

        Raises FrameError, OSError.
        """
        found: Past | None = None
        for index, fd in enumerate(self._fds):
            data = _read_all(fd)
            if len(data) < _HEAD.size:
                continue
            magic, generation, size = _HEAD.unpack_from(data)
            if magic != _MAGIC:
                raise FrameError("journal: its file begins with other bytes")
            if generation > self._generation and _HEAD.size + size <= len(data):
                self._at, self._generation = index, generation
                found = Past(data[_HEAD.size : _HEAD.size + size], _batches(data, size))
        return found

    # --- writing --------------------------------------------------------------------------------

    def add(self, record: Sequence[bytes]) -> None:
        """Append a record, in parts, to the next batch."""
        self._parts += record

    def write(self, now: float) -> None:
        """Write the batch, if there are records."""
        parts = self._parts
        if not parts:
            return
        size = sum(map(len, parts))
        data = b"".join((_BATCH.pack(size, now), *parts))
        parts.clear()
        if self.broken:
            return
        try:
            _write_all(self._fds[self._at], data, self._size)
        except OSError as error:
            self._break(error)
            return
        self._size += len(data)

    @property
    def long(self) -> bool:
        """Whether it is time for a new image."""
        log = self._size - _HEAD.size - self._image_bytes
        return not self.broken and log > max(LEAST_LOG, self._image_bytes)

    def begin(self, image: bytes) -> None:
        """Write an image. It holds the effect of all records so far, so they are dropped."""
        self._parts.clear()
        other = 1 - self._at
        data = _HEAD.pack(_MAGIC, self._generation + 1, len(image)) + image
        try:
            os.ftruncate(self._fds[other], 0)
            _write_all(self._fds[other], data, 0)
            os.ftruncate(self._fds[self._at], 0)
        except OSError as error:
            self._break(error)
            return
        self.broken = False
        self._at = other
        self._generation += 1
        self._size = len(data)
        self._image_bytes = len(image)

    def clear(self) -> None:
        """Drop all, so that the next process begins without requests."""
        for fd in self._fds:
            os.ftruncate(fd, 0)

    def _break(self, error: OSError) -> None:
        # Half a journal would be worse than none: the next process would go on from an old state.
        self.broken = True
        self.error = str(error)
        self.clear()


def _batches(data: bytes, image_size: int) -> list[Batch]:
    batches = []
    at = _HEAD.size + image_size
    while at + _BATCH.size <= len(data):
        size, now = _BATCH.unpack_from(data, at)
        at += _BATCH.size
        if at + size > len(data):
            break
        batches.append(Batch(now, data[at : at + size]))
        at += size
    return batches


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts = []
    at = 0
    while at < size and (part := os.pread(fd, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _write_all(fd: int, data: bytes, at: int) -> None:
    written = os.pwrite(fd, data, at)
    while written < len(data):
        written += os.pwrite(fd, memoryview(data)[written:], at + written)
