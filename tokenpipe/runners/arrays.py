"""Take arrays as engines have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def as_array(values: Any, dtype: npt.DTypeLike) -> Any:
    """Return something with a contiguous buffer, without a copy where that is possible.

    numpy arrays and other buffers pass as they are, for the packer judges and converts them; a
    DLPack producer (a host tensor of torch or Paddle) is shared, a list is converted to `dtype`.
    """
    if isinstance(values, np.ndarray):
        return values if values.flags.c_contiguous else np.ascontiguousarray(values)
    if isinstance(values, list | tuple):
        try:
            return np.array(values, dtype=dtype)
        except OverflowError:
            return np.array(values, dtype=np.int64)  # the packer names the row
    if hasattr(values, "__dlpack__"):
        return np.ascontiguousarray(np.from_dlpack(values))
    return values
