"""Extras: what rows carry beside their tokens. The form is in docs/wire.md; C carries the bytes.

The extras of a row are records, `[kind, size, payload]`. The processor wraps them in the tokens of
their row. So it can merge rows, or cut a row off at an end, and each entry keeps its token.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenpipe._core import MAX_ERROR
from tokenpipe.errors import FrameError, RowError
from tokenpipe.extras import RowExtras

PROMPT_LOGPROBS, POOLED, MASKS, DRAFTS, DRAFT_LOGPROBS, REASONING, CUSTOM, CACHED = range(1, 9)
ERROR = 9

RECORD = struct.Struct("<BI")  # kind, bytes of its payload
WRAP = struct.Struct("<IIII")  # output tokens before, its tokens, entries to skip, bytes of records
SHAPE = struct.Struct("<II")  # rows, entries of each
MOST_DIMENSIONS = 8
MOST_VALUES = 1 << 28
MOST_FIELD = (1 << 8) - 1  # bytes of the name of a field
NO_MASK = (1 << 32) - 1
_U8 = struct.Struct("<B")
_U32 = struct.Struct("<I")

I32: TypeAlias = NDArray[np.int32]
F32: TypeAlias = NDArray[np.float32]
_Scalar = TypeVar("_Scalar", bound=np.generic)


class Scores(NamedTuple):
    """Logprobs of some tokens: ids and values [tokens, 1 + k], ranks [tokens]."""

    ids: I32
    values: F32
    ranks: I32


# --- making -------------------------------------------------------------------------------------


def pack_extras(extras: RowExtras, count: int) -> bytes:
    """Return the records of a row with `count` tokens. RowError says what does not fit."""
    parts: list[bytes] = []

    def put(kind: int, *payload: bytes) -> None:
        parts.extend((RECORD.pack(kind, sum(map(len, payload))), *payload))

    if extras.prompt_logprobs is not None:
        position, *arrays = extras.prompt_logprobs
        if not 0 <= position < 1 << 31:
            raise RowError(f"prompt_logprobs: there is no position {position}")
        put(PROMPT_LOGPROBS, _U32.pack(position), *_scores("prompt_logprobs", arrays))
    if extras.pooled is not None:
        pooled = _floats("pooled", extras.pooled)
        if pooled.ndim > MOST_DIMENSIONS:
            raise RowError(f"pooled: {pooled.ndim} dimensions, {MOST_DIMENSIONS} are the most")
        shape = bytes([pooled.ndim]) + struct.pack(f"<{pooled.ndim}I", *pooled.shape)
        put(POOLED, shape, pooled.tobytes())
    if extras.sampling_masks is not None:
        masks = [None if m is None else np.asarray(m) for m in extras.sampling_masks]
        _at_most(count, len(masks), "sampling_masks")
        sizes = [NO_MASK if mask is None else mask.size for mask in masks]
        filled = [mask for mask in masks if mask is not None and mask.size]
        if any(mask.ndim != 1 for mask in filled):
            raise RowError("sampling_masks: int32 or int64 [ids] is needed for each token")
        ids = _ints("sampling_masks", np.concatenate(filled)).tobytes() if filled else b""
        put(MASKS, struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes), ids)
    if extras.draft_token_ids is not None:
        drafts = _ints("draft_token_ids", extras.draft_token_ids)
        _at_most(count, drafts.size, "draft_token_ids")
        put(DRAFTS, drafts.tobytes())
    if extras.draft_logprobs is not None:
        scores = _scores("draft_logprobs", extras.draft_logprobs)
        _at_most(count, SHAPE.unpack(scores[0])[0], "draft_logprobs")
        put(DRAFT_LOGPROBS, *scores)
    if extras.reasoning_tokens is not None:
        put(REASONING, _number("reasoning_tokens", extras.reasoning_tokens))
    if extras.custom:
        put(CUSTOM, bytes(extras.custom))
    if extras.cached_tokens is not None:
        put(CACHED, _number("cached_tokens", extras.cached_tokens))
    if extras.error or extras.error_field:
        put(ERROR, *_error_parts(extras.error, extras.error_field))
    return b"".join(parts)


def _at_most(count: int, entries: int, name: str) -> None:
    if entries > count:
        raise RowError(f"{name}: {entries} entries for a row of {count} tokens")


def _number(name: str, value: int) -> bytes:
    if value < 0:
        raise RowError(f"{name}: {value} is negative")
    return _U32.pack(min(value, (1 << 32) - 1))


def _error_parts(error: str, field: str) -> tuple[bytes, bytes, bytes]:
    name = field.encode(errors="replace")
    if len(name) > MOST_FIELD:
        name = b""
    text = error.encode(errors="replace")[: MAX_ERROR - len(name)]
    return bytes([len(name)]), name, text.decode(errors="ignore").encode()  # no half character


def _ints(name: str, values: Any) -> I32:
    given = np.asarray(values)
    if not given.size:
        return np.empty(0, np.int32)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise RowError(f"{name}: int32 or int64 [n] is needed, not {given.dtype} {given.shape}")
    fitting = given.astype(np.int32, copy=False)
    if fitting is not given and not (fitting == given).all():
        raise RowError(f"{name}: a value does not fit int32")
    return fitting


def _floats(name: str, values: Any) -> F32:
    given = np.asarray(values)
    if given.dtype.kind not in "fiu":
        raise RowError(f"{name}: float32 is needed, not {given.dtype}")
    return given.astype(np.float32, copy=False)


def _scores(name: str, arrays: Any) -> tuple[bytes, ...]:
    if len(arrays) != 3:
        raise RowError(f"{name}: token_ids, logprobs and ranks are needed")
    shape = np.shape(arrays[0])
    if len(shape) != 2 or shape[1] < 1:
        raise RowError(f"{name}.token_ids: must be [tokens, 1 + k], not {list(shape)}")
    values = _floats(f"{name}.logprobs", arrays[1])
    ids = _ints(f"{name}.token_ids", np.ravel(arrays[0]))
    ranks = _ints(f"{name}.ranks", np.ravel(arrays[2]))
    if values.shape != shape or ranks.size != shape[0]:
        raise RowError(
            f"{name}: logprobs {list(values.shape)} and ranks [{ranks.size}] do not fit "
            f"token_ids {list(shape)}"
        )
    return SHAPE.pack(*shape), ids.tobytes(), values.tobytes(), ranks.tobytes()


# --- parsing ------------------------------------------------------------------------------------


class ExtrasRecord:
    """The payload of one record, read from its beginning; every length is checked."""

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
        """Return the next n int32."""
        at = self.take(4 * n)
        return np.frombuffer(self._data, "<i4", n, at) if n else np.empty(0, np.int32)

    def floats(self, n: int) -> F32:
        """Return the next n float32."""
        at = self.take(4 * n)
        return np.frombuffer(self._data, "<f4", n, at) if n else np.empty(0, np.float32)

    def text(self, n: int) -> str:
        """Return the next n bytes as UTF-8; a byte that is none is replaced."""
        at = self.take(n)
        return self._data[at : at + n].decode(errors="replace")

    def rest(self) -> bytes:
        """Return what is left."""
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
        """Refuse what nobody read."""
        if self._at != self._end:
            raise FrameError(f"{self._name}: {self._end - self._at} bytes too many")


def _frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return a copy that is aligned and its own, and stays as it is."""
    copied: NDArray[_Scalar] = array.copy()
    copied.flags.writeable = False
    return copied


def _prompt_logprobs(record: ExtrasRecord) -> tuple[int, Scores]:
    (position,) = record.unpack(_U32)
    return position, record.scores()


def _pooled(record: ExtrasRecord) -> F32:
    (dimensions,) = record.unpack(_U8)
    if dimensions > MOST_DIMENSIONS:
        raise FrameError(f"pooled: {dimensions} dimensions")
    shape = record.unpack(struct.Struct(f"<{dimensions}I"))
    if math.prod(n for n in shape if n) > MOST_VALUES:
        raise FrameError(f"pooled: a shape of {list(shape)}")
    return _frozen(record.floats(math.prod(shape)).reshape(shape))


def _masks(record: ExtrasRecord) -> list[I32 | None]:
    (n,) = record.unpack(_U32)
    sizes = record.ints(n).view(np.uint32).tolist()
    return [None if size == NO_MASK else _frozen(record.ints(size)) for size in sizes]


def _drafts(record: ExtrasRecord) -> I32:
    raw = record.rest()
    if len(raw) % 4:
        raise FrameError(f"draft_token_ids: {len(raw)} bytes")
    return np.frombuffer(raw, "<i4") if raw else np.empty(0, np.int32)


def _error(record: ExtrasRecord) -> tuple[str, str]:
    (size,) = record.unpack(_U8)
    field = record.text(size)
    return record.rest().decode(errors="replace"), field


def _one(record: ExtrasRecord) -> int:
    return record.unpack(_U32)[0]


KINDS: dict[int, tuple[str, Callable[[ExtrasRecord], Any]]] = {
    PROMPT_LOGPROBS: ("prompt_logprobs", _prompt_logprobs),
    POOLED: ("pooled", _pooled),
    MASKS: ("sampling_masks", _masks),
    DRAFTS: ("draft_token_ids", _drafts),
    DRAFT_LOGPROBS: ("draft_logprobs", ExtrasRecord.scores),
    REASONING: ("reasoning_tokens", _one),
    CUSTOM: ("custom", ExtrasRecord.rest),
    CACHED: ("cached_tokens", _one),
    ERROR: ("error", _error),
}


def records(data: bytes, at: int, end: int) -> Iterator[tuple[int, Any]]:
    """Yield (kind, value) of the records in data[at:end]; FrameError says what is malformed.

    Records of unknown kinds are skipped. Arrays are read-only, and views of `data`.
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
            record = ExtrasRecord(data, at, at + size, name)
            value = read(record)
            record.end()
            yield kind, value
        at += size


def unpack_error(data: bytes) -> tuple[str, str]:
    """Return (error, field to blame) of a row's records; ("", "") where there is none.

    FrameError says what is malformed.
    """
    for kind, value in records(data, 0, len(data)):
        if kind == ERROR:
            error, field = value
            return error, field
    return "", ""
