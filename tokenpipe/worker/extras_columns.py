"""Take what rows carry beside their tokens: by row, from the host or from a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tokenpipe.errors import RowError
from tokenpipe.extras import RowAnnex
from tokenpipe.wire import pack_annex

from .arrays import as_array


def annex_columns(annexes: Mapping[int, RowAnnex], rows: int, counts: Any) -> tuple[Any, bytes]:
    """Return (bytes of each row's annex, these bytes) as the packer takes them."""
    lengths = np.zeros(rows, np.uint32)
    per_row = None if counts is None else as_array(counts, np.int32, "counts")
    parts = []
    for row in sorted(annexes):
        if not 0 <= row < rows:
            raise RowError(f"annexes: there is no row {row} of {rows}")
        try:
            part = pack_annex(annexes[row], 1 if per_row is None else int(per_row[row]))
        except (RowError, ValueError, TypeError) as error:
            raise RowError(f"annexes[{row}]: {error}") from error
        lengths[row] = len(part)
        parts.append(part)
    return lengths, b"".join(parts)


def tensors_of(annexes: Mapping[int, RowAnnex]) -> Iterator[Any]:
    """Yield what of some annexes has to be copied off a device, always in the same order."""
    for row in sorted(annexes):
        for field in fields(RowAnnex):
            value = getattr(annexes[row], field.name)
            for part in value if isinstance(value, tuple | list) else [value]:
                if _is_tensor(part):
                    yield part


def with_arrays(annexes: Mapping[int, RowAnnex], arrays: Iterator[Any]) -> dict[int, RowAnnex]:
    """Return the annexes with these arrays in place of their tensors."""

    def arrived(value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(arrived(part) for part in value))
        if isinstance(value, tuple | list):
            return type(value)(arrived(part) for part in value)
        return next(arrays) if _is_tensor(value) else value

    names = [field.name for field in fields(RowAnnex)]
    return {
        row: replace(annexes[row], **{name: arrived(getattr(annexes[row], name)) for name in names})
        for row in sorted(annexes)
    }


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
