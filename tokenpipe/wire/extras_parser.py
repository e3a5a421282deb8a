"""Parse the records of extras. Every length is checked."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenpipe.errors import FrameError

from .extras_format import (
    CACHED,
    CUSTOM,
    DRAFT_LOGPROBS,
    DRAFTS,
    ERROR,
    F32,
    I32,
    MASKS,
    MOST_DIMENSIONS,
    MOST_VALUES,
    NO_MASK,
    POOLED,
    PROMPT_LOGPROBS,
    REASONING,
    RECORD,
    SHAPE,
    U8,
    U32,
    Scores,
)

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Payload:
    """Reads the payload of one record from its beginning. FrameError if it is too short."""

    __slots__ = ("_at", "_data", "_end", "_name")

    def __init__(self, data: bytes, at: int, end: int, name: str) -> None:
        self._data, self._at, self._end, self._name = data, at, end, name

    def take(self, size: int) -> int:
        """Return where the next `size` bytes begin."""
        at = self._at
        if size > self._end - at:
            raise FrameError(f"{self._name}: {size} bytes are needed, {self._end - at} are there")
        self._at = at + size
        return at

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        """Return the next integers."""
        return form.unpack_from(self._data, self.take(form.size))

    def ints(self, n: int) -> I32:
        """Return the next n int32 values, a view."""
        at = self.take(4 * n)
        return np.frombuffer(self._data, "<i4", n, at) if n else np.empty(0, np.int32)

    def floats(self, n: int) -> F32:
        """Return the next n float32 values, a view."""
        at = self.take(4 * n)
        return np.frombuffer(self._data, "<f4", n, at) if n else np.empty(0, np.float32)

    def text(self, n: int) -> str:
        """Return the next n bytes as UTF-8. Invalid bytes are replaced."""
        at = self.take(n)
        return self._data[at : at + n].decode(errors="replace")

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        at = self._at
        self._at = self._end
        return self._data[at : self._end]

    def scores(self) -> Scores:
        """Return logprobs."""
        n, each = self.unpack(SHAPE)
        if each < 1:
            raise FrameError(f"{self._name}: no entry for the token itself")
        ids, values = self.ints(n * each), self.floats(n * each)
        return Scores(ids.reshape(n, each), values.reshape(n, each), self.ints(n))

    def end(self) -> None:
        """Raise FrameError if bytes are left."""
        if self._at != self._end:
            raise FrameError(f"{self._name}: {self._end - self._at} bytes too many")


def _frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return an aligned, read-only copy."""
    copied: NDArray[_Scalar] = array.copy()
    copied.flags.writeable = False
    return copied


def _prompt_logprobs(payload: Payload) -> tuple[int, Scores]:
    (position,) = payload.unpack(U32)
    return position, payload.scores()


def _pooled(payload: Payload) -> F32:
    (dimensions,) = payload.unpack(U8)
    if dimensions > MOST_DIMENSIONS:
        raise FrameError(f"pooled: {dimensions} dimensions")
    shape = payload.unpack(struct.Struct(f"<{dimensions}I"))
    if math.prod(n for n in shape if n) > MOST_VALUES:
        raise FrameError(f"pooled: a shape of {list(shape)}")
    return _frozen(payload.floats(math.prod(shape)).reshape(shape))


def _masks(payload: Payload) -> list[I32 | None]:
    (n,) = payload.unpack(U32)
    sizes = payload.ints(n).view(np.uint32).tolist()
    return [None if size == NO_MASK else _frozen(payload.ints(size)) for size in sizes]


def _drafts(payload: Payload) -> I32:
    raw = payload.rest()
    if len(raw) % 4:
        raise FrameError(f"draft_token_ids: {len(raw)} bytes")
    return np.frombuffer(raw, "<i4") if raw else np.empty(0, np.int32)


def _error(payload: Payload) -> tuple[str, str]:
    (size,) = payload.unpack(U8)
    field = payload.text(size)
    return payload.rest().decode(errors="replace"), field


def _number(payload: Payload) -> int:
    return payload.unpack(U32)[0]


KINDS: dict[int, tuple[str, Callable[[Payload], Any]]] = {
    PROMPT_LOGPROBS: ("prompt_logprobs", _prompt_logprobs),
    POOLED: ("pooled", _pooled),
    MASKS: ("sampling_masks", _masks),
    DRAFTS: ("draft_token_ids", _drafts),
    DRAFT_LOGPROBS: ("draft_logprobs", Payload.scores),
    REASONING: ("reasoning_tokens", _number),
    CUSTOM: ("custom", Payload.rest),
    CACHED: ("cached_tokens", _number),
    ERROR: ("error", _error),
}
"""Name and reader of each kind of record."""


def records(data: bytes, at: int, end: int) -> Iterator[tuple[int, Any]]:
    """Yield (kind, value) of the records in data[at:end]. Raises FrameError.

    Records of unknown kinds are skipped. Arrays are read-only; logprobs and drafts may be views of
    `data`.
    """
    seen = set()
    while at < end:
        if end - at < RECORD.size:
            raise FrameError(f"{end - at} bytes are no record")
        kind, size = RECORD.unpack_from(data, at)
        at += RECORD.size
        if size > end - at:
            raise FrameError(f"a record of {size} bytes in {end - at}")
        if kind in seen:
            raise FrameError(f"record {kind} comes twice")
        seen.add(kind)
        known = KINDS.get(kind)
        if known is not None:
            name, read = known
            payload = Payload(data, at, at + size, name)
            value = read(payload)
            payload.end()
            yield kind, value
        at += size


def unpack_error(data: bytes) -> tuple[str, str]:
    """Return (error, name of the field to blame) from a row's records, ("", "") without an error.

    Raises FrameError if the records are malformed.
    """
    for kind, value in records(data, 0, len(data)):
        if kind == ERROR:
            error, field = value
            return error, field
    return "", ""
