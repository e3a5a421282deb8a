"""Pack the extras of one row into records."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tokenpipe._core import MAX_ERROR
from tokenpipe.errors import RowError
from tokenpipe.extras import RowExtras

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
    MOST_FIELD,
    NO_MASK,
    POOLED,
    PROMPT_LOGPROBS,
    REASONING,
    RECORD,
    SHAPE,
    U32,
)

_Payload = tuple[bytes, ...]


def pack_extras(extras: RowExtras, count: int) -> bytes:
    """Return the records of a row with `count` tokens. RowError names a part that does not fit."""
    records: list[tuple[int, _Payload]] = []
    if extras.prompt_logprobs is not None:
        records.append((PROMPT_LOGPROBS, _prompt_logprobs(*extras.prompt_logprobs)))
    if extras.pooled is not None:
        records.append((POOLED, _pooled(extras.pooled)))
    if extras.sampling_masks is not None:
        records.append((MASKS, _masks(extras.sampling_masks, count)))
    if extras.draft_token_ids is not None:
        drafts = _ints("draft_token_ids", extras.draft_token_ids)
        _at_most(count, drafts.size, "draft_token_ids")
        records.append((DRAFTS, (drafts.tobytes(),)))
    if extras.draft_logprobs is not None:
        scores = _scores("draft_logprobs", extras.draft_logprobs)
        _at_most(count, SHAPE.unpack(scores[0])[0], "draft_logprobs")
        records.append((DRAFT_LOGPROBS, scores))
    if extras.reasoning_tokens is not None:
        records.append((REASONING, _number("reasoning_tokens", extras.reasoning_tokens)))
    if extras.custom:
        records.append((CUSTOM, (bytes(extras.custom),)))
    if extras.cached_tokens is not None:
        records.append((CACHED, _number("cached_tokens", extras.cached_tokens)))
    if extras.error or extras.error_field:
        records.append((ERROR, _error(extras.error, extras.error_field)))
    parts: list[bytes] = []
    for kind, payload in records:
        parts.extend((RECORD.pack(kind, sum(map(len, payload))), *payload))
    return b"".join(parts)


def _prompt_logprobs(position: int, *arrays: Any) -> _Payload:
    if not 0 <= position < 1 << 31:
        raise RowError(f"prompt_logprobs: there is no position {position}")
    return U32.pack(position), *_scores("prompt_logprobs", arrays)


def _pooled(given: Any) -> _Payload:
    pooled = _floats("pooled", given)
    if pooled.ndim > MOST_DIMENSIONS:
        raise RowError(f"pooled: {pooled.ndim} dimensions, {MOST_DIMENSIONS} are the most")
    shape = bytes([pooled.ndim]) + struct.pack(f"<{pooled.ndim}I", *pooled.shape)
    return shape, pooled.tobytes()


def _masks(given: Any, count: int) -> _Payload:
    masks = [None if m is None else np.asarray(m) for m in given]
    _at_most(count, len(masks), "sampling_masks")
    sizes = [NO_MASK if mask is None else mask.size for mask in masks]
    filled = [mask for mask in masks if mask is not None and mask.size]
    if any(mask.ndim != 1 for mask in filled):
        raise RowError("sampling_masks: int32 or int64 [ids] is needed for each token")
    ids = _ints("sampling_masks", np.concatenate(filled)).tobytes() if filled else b""
    return struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes), ids


def _at_most(count: int, entries: int, name: str) -> None:
    if entries > count:
        raise RowError(f"{name}: {entries} entries for a row of {count} tokens")


def _number(name: str, value: int) -> _Payload:
    if value < 0:
        raise RowError(f"{name}: {value} is negative")
    return (U32.pack(min(value, (1 << 32) - 1)),)


def _error(error: str, field: str) -> _Payload:
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


def _scores(name: str, arrays: Any) -> _Payload:
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
