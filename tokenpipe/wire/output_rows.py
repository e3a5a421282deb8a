"""Pick rows of an OutputFrame's columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .columns import OutputColumn

_RAGGED = {OutputColumn.TEXT, OutputColumn.ERROR, OutputColumn.EXTRAS}
_OF_ENTRIES = {OutputColumn.LP_IDS, OutputColumn.LP_VALUES}
_LENGTHS = {
    OutputColumn.TEXT: (OutputColumn.TEXT_LEN, np.uint32),
    OutputColumn.ERROR: (OutputColumn.ERROR_LEN, np.uint16),
    OutputColumn.EXTRAS: (OutputColumn.EXTRAS_LEN, np.uint32),
}


def pick_rows(
    columns: Mapping[int, bytes],
    rows: int,
    counts: NDArray[np.uint32],
    lp_k: NDArray[np.int32],
    keep: NDArray[np.bool_],
) -> dict[int, bytes]:
    """Return the columns of the rows for which `keep` is true, bool [rows]."""
    scored = np.where(lp_k >= 0, counts, 0)
    picked = {}
    for number, data in columns.items():
        if number in _RAGGED:
            length, kind = _LENGTHS[OutputColumn(number)]
            each = np.frombuffer(columns[length], np.dtype(kind).newbyteorder("<"))
            picked[number] = _pick(data, 1, np.repeat(keep, each))
        elif number == OutputColumn.TOKENS:
            picked[number] = _pick(data, 4, np.repeat(keep, counts))
        elif number == OutputColumn.LP_RANKS:
            picked[number] = _pick(data, 4, np.repeat(keep, scored))
        elif number in _OF_ENTRIES:
            picked[number] = _pick(data, 4, np.repeat(keep, scored * (lp_k + 1)))
        elif number in list(OutputColumn):
            picked[number] = _pick(data, len(data) // rows, keep)
    return {number: data for number, data in picked.items() if data}


def _pick(data: bytes, width: int, keep: NDArray[np.bool_]) -> bytes:
    return np.frombuffer(data, f"V{width}")[keep].tobytes()
