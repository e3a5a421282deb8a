"""Name the parts of extras: record kinds, sizes and limits. docs/wire.md describes the format."""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

PROMPT_LOGPROBS, POOLED, MASKS, DRAFTS, DRAFT_LOGPROBS, REASONING, CUSTOM, CACHED = range(1, 9)
ERROR = 9

RECORD = struct.Struct("<BI")  # kind, bytes of its payload
WRAP = struct.Struct("<IIII")  # output tokens before, its tokens, entries to skip, bytes of records
SHAPE = struct.Struct("<II")  # rows, entries of each
U8 = struct.Struct("<B")
U32 = struct.Struct("<I")

MOST_DIMENSIONS = 8
MOST_VALUES = 1 << 28
MOST_FIELD = (1 << 8) - 1  # bytes of a field's name
NO_MASK = (1 << 32) - 1

I32: TypeAlias = NDArray[np.int32]
F32: TypeAlias = NDArray[np.float32]


class Scores(NamedTuple):
    """Logprobs of some tokens."""

    ids: I32  # [tokens, 1 + k]
    values: F32  # [tokens, 1 + k]
    ranks: I32  # [tokens]
