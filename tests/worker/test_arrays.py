"""Whatever an engine has its arrays in, the packer gets a contiguous buffer of it."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

from tokenpipe.errors import RowError
from tokenpipe.types import RowStatus
from tokenpipe.worker import StepLogprobs
from tokenpipe.worker.arrays import as_array, logprob_columns


class Tensor:
    """A DLPack producer that is nothing else."""

    def __init__(self, values: Any) -> None:
        self.array = np.asarray(values)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device


def test_numpy_arrays_and_buffers_pass_as_they_are() -> None:
    values = np.arange(5, dtype=np.int64)
    assert as_array(values, np.int32) is values  # the packer converts, in its own pass
    buffer = array("i", [1, 2])
    assert as_array(buffer, np.int32) is buffer


def test_what_is_not_contiguous_is_made_so() -> None:
    made = as_array(np.arange(10, dtype=np.int32)[::2], np.int32)
    assert made.flags.c_contiguous and made.tolist() == [0, 2, 4, 6, 8]


def test_lists_get_a_type_of_their_column() -> None:
    for made in (as_array([1, 2], np.int32), as_array((1, 2), np.int64)):
        assert made.dtype == np.int64 and made.tolist() == [1, 2]  # the packer takes either
    assert as_array([1, 1 << 31], np.int32).tolist() == [1, 1 << 31]  # and names the row
    assert as_array([], np.int32).dtype == np.int32
    assert as_array([0, RowStatus.ERROR], np.uint8).dtype == np.uint8
    assert as_array([0, -1], "f").dtype == np.float32


def test_lists_are_not_cut_to_a_type_that_they_are_not_of() -> None:
    assert as_array([1.5, 2], np.int32).dtype == np.float64  # the packer refuses it
    assert as_array([256], np.uint8).dtype == np.int64
    assert as_array([1, None], np.int32).dtype == object


def test_what_is_no_array_is_named() -> None:
    with pytest.raises(RowError, match=r"^counts: .*inhomogeneous"):
        as_array([[1], [2, 3]], np.int32, "counts")

    class Far(Tensor):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not here")

    with pytest.raises(RowError, match=r"^tokens: a tensor that is not on the host: not here"):
        as_array(Far([1]), np.int32, "tokens")


def test_a_dlpack_producer_is_shared_and_not_copied() -> None:
    tensor = Tensor(np.arange(4, dtype=np.int32))
    made = as_array(tensor, np.int32)
    assert np.shares_memory(made, tensor.array) and made.tolist() == [0, 1, 2, 3]
    strided = Tensor(np.arange(8, dtype=np.int32)[::2])
    assert as_array(strided, np.int32).flags.c_contiguous


def test_no_logprobs_are_four_absent_columns() -> None:
    assert logprob_columns(None, 3) == (None, None, None, None)


def test_logprobs_of_one_k_for_all_rows() -> None:
    k, ids, values, ranks = logprob_columns(([[1, 2], [3, 4]], [[-1.0, -2.0], [0, -3]], [1, 2]), 2)
    assert k.tolist() == [1, 1] and ids.tolist() == [1, 2, 3, 4]
    assert values.dtype == np.float32 and values.tolist() == [-1.0, -2.0, 0.0, -3.0]
    assert ranks.tolist() == [1, 2]


def test_logprobs_with_a_k_of_their_own_are_flat() -> None:
    given = StepLogprobs([1, 2, 3], [-1.0, -2.0, -3.0], [1, 1], k=[1, 0, -1])
    k, ids, _, _ = logprob_columns(given, 3)
    assert k.tolist() == [1, 0, -1] and ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("ids", [[1, 2, 3], [[[1]]], np.empty((2, 0), np.int32)])
def test_logprobs_whose_k_cannot_be_seen_are_refused(ids: Any) -> None:
    with pytest.raises(RowError, match=r"\[tokens, 1 \+ k\]"):
        logprob_columns(StepLogprobs(ids, [0.0], [1]), 1)
