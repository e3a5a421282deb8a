"""Pack the extras of rows. The arrays in them may be on the host or on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tokenpipe.errors import RowError
from tokenpipe.extras import RowExtras
from tokenpipe.wire import pack_extras

from .arrays import as_array


def extras_columns(extras: Mapping[int, RowExtras], rows: int, counts: Any) -> tuple[Any, bytes]:
    """Return (bytes of each row's extras, these bytes) as the packer takes them."""
    lengths = np.zeros(rows, np.uint32)
    per_row = None if counts is None else as_array(counts, np.int32, "counts")
    parts = []
    for row in sorted(extras):
        if not 0 <= row < rows:
            raise RowError(f"extras: there is no row {row} of {rows}")
        try:
            part = pack_extras(extras[row], 1 if per_row is None else int(per_row[row]))
        except (RowError, ValueError, TypeError) as error:
            raise RowError(f"extras[{row}]: {error}") from error
        lengths[row] = len(part)
        parts.append(part)
    return lengths, b"".join(parts)


def tensors_of(extras: Mapping[int, RowExtras]) -> Iterator[Any]:
    """Yield the tensors of some extras that have to be copied off a device, in a fixed order."""
    for row in sorted(extras):
        for field in fields(RowExtras):
            value = getattr(extras[row], field.name)
            for part in value if isinstance(value, tuple | list) else [value]:
                if _is_tensor(part):
                    yield part


def with_arrays(extras: Mapping[int, RowExtras], arrays: Iterator[Any]) -> dict[int, RowExtras]:
    """Return the extras with these arrays in place of their tensors."""

    def arrived(value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(arrived(part) for part in value))
        if isinstance(value, tuple | list):
            return type(value)(arrived(part) for part in value)
        return next(arrays) if _is_tensor(value) else value

    names = [field.name for field in fields(RowExtras)]
    return {
        row: replace(extras[row], **{name: arrived(getattr(extras[row], name)) for name in names})
        for row in sorted(extras)
    }


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
