"""Give a column of a frame as a numpy array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
U8: TypeAlias = NDArray[np.uint8]
U16: TypeAlias = NDArray[np.uint16]
U32: TypeAlias = NDArray[np.uint32]
U64: TypeAlias = NDArray[np.uint64]
F32: TypeAlias = NDArray[np.float32]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def column_view(
    columns: Mapping[int, bytes], column: int, dtype: type[_Scalar], n: int, default: int = 0
) -> NDArray[_Scalar]:
    """Return a read-only view of a column, or `n` times `default` if it is absent."""
    raw = columns.get(column)
    if raw is not None:
        return np.frombuffer(raw, dtype)
    filled = np.full(n, default, dtype)
    filled.flags.writeable = False
    return filled
