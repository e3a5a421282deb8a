"""Accept arrays in the forms that engines have."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenpipe.errors import RowError


def as_array(values: Any, dtype: npt.DTypeLike, name: str = "array") -> Any:
    """Return an object with a contiguous buffer, without a copy if that is possible.

    numpy arrays and other buffers are returned as they are: the packer checks and converts them. A
    DLPack producer (a host tensor of torch or Paddle) is shared. A list of numbers is converted to
    `dtype`, or to int64 if it has larger ints. Raises a `RowError` that begins with `name` for a
    list that is no array, and for a tensor that is not on the host.
    """
    if isinstance(values, np.ndarray):
        return values if values.flags.c_contiguous else np.ascontiguousarray(values)
    if isinstance(values, list | tuple):
        try:
            made = np.array(values)
        except (ValueError, TypeError) as error:  # rows of different lengths
            raise RowError(f"{name}: {error}") from error
        wanted = np.dtype(dtype)
        if not made.size or (wanted.kind == "f" and made.dtype.kind in "iuf"):
            return made.astype(wanted)
        if wanted == np.uint8 and made.dtype.kind in "iub" and made.min() >= 0 and made.max() < 256:
            return made.astype(wanted)
        return made  # of int64, or of a type that the packer refuses
    if hasattr(values, "__dlpack__"):
        try:
            return np.ascontiguousarray(np.from_dlpack(values))
        except (BufferError, RuntimeError, TypeError) as error:
            raise RowError(f"{name}: a tensor that is not on the host: {error}") from error
    return values


class StepLogprobs(NamedTuple):
    """Log probabilities of a step, in the form of vLLM: the sampled token, then the top k.

    Args:
        token_ids: int32 or int64 [tokens, 1 + k], or flat if k differs per row.
        logprobs: float32, as token_ids.
        ranks: int32 or int64 [tokens of the rows with k >= 0]. Rank of the sampled token in the
            vocabulary, from 1 on.
        k: int32 or int64 [rows], -1 for a row without logprobs. None takes k from `token_ids`.
    """

    token_ids: Any
    logprobs: Any
    ranks: Any
    k: Any = None


def logprob_columns(
    logprobs: StepLogprobs | tuple[Any, Any, Any] | None, rows: int
) -> tuple[Any, Any, Any, Any]:
    """Return (k of each row, ids, values, ranks) in the form that the packer takes."""
    if logprobs is None:
        return (None, None, None, None)
    given = StepLogprobs(*logprobs)
    ids = as_array(given.token_ids, np.int32, "logprobs.token_ids")
    if given.k is not None:
        k = as_array(given.k, np.int32, "logprobs.k")
    else:
        shape = np.shape(ids)
        if len(shape) != 2 or shape[1] < 1:
            raise RowError(f"logprobs.token_ids: must be [tokens, 1 + k], not {list(shape)}")
        k = np.full(rows, shape[1] - 1, np.int32)
    return (
        k,
        np.ravel(ids),
        np.ravel(as_array(given.logprobs, np.float32, "logprobs.logprobs")),
        as_array(given.ranks, np.int32, "logprobs.ranks"),
    )
