"""Tensors are read from where they lie, or go the way that says what is wrong with them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.wire.dlpack import tensor_type
from tests.wire.test_packer import handle
from tests.wire.test_packer_next import end
from tokenpipe.errors import RowError

HANDLES = np.array([handle(slot) for slot in range(3)], np.int64)


def packed(tokens: Any, handles: Any = HANDLES) -> list[int]:
    """Return the tokens of the frame that is sent for these."""
    wire, _, packer = end()
    packer.send_next(1, None, handles, tokens)
    tokens_sent: list[int] = wire.newest().columns["tokens"].tolist()
    return tokens_sent


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_ids_are_read_without_asking_for_an_array(dtype: str) -> None:
    class Own(tensor_type()):  # type: ignore[misc]
        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("the table says all")

    tensor = Own(np.array([5, 6, 7], dtype))
    assert packed(tensor) == [5, 6, 7] and tensor.looks == 1
    assert packed(Own(np.arange(9, dtype=dtype)[3:6])) == [3, 4, 5]
    assert packed(tensor, Own(HANDLES)) == [5, 6, 7]


def test_its_reference_is_all_that_holds_a_tensor() -> None:
    tensor = tensor_type()(np.arange(3))
    before = sys.getrefcount(tensor)
    packed(tensor)
    assert sys.getrefcount(tensor) == before


@pytest.mark.parametrize(
    "values", [np.arange(6)[::2], np.arange(3, dtype=np.int16), np.ones(3), np.ones((3, 1), int)]
)
def test_what_a_look_does_not_settle_is_as_without_one(values: Any) -> None:
    class Plain:
        def __dlpack__(self, **options: Any) -> Any:
            return values.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return values.__dlpack_device__()

    def outcome(tokens: Any) -> Any:
        try:
            return packed(tokens)
        except RowError as error:
            return str(error)

    tensor = tensor_type()(values)
    assert outcome(tensor) == outcome(Plain()) and tensor.looks == 1


@pytest.mark.parametrize(
    "seen",
    [
        {"device_type": 2},
        {"device_type": 3},  # page-locked: a copy may be under way
        {"code": 1},
        {"bits": 16},
        {"lanes": 2},
        {"ndim": 0},
        {"ndim": 2},
        {"data": None},
    ],
    ids=str,
)
def test_no_other_memory_is_read(seen: dict[str, Any]) -> None:
    """What the look says is false here, so the other way, which is asked then, gives the ids."""
    kind = tensor_type(**seen)
    assert packed(kind([5, 6, 7])) == [5, 6, 7]
    kind.__dlpack__ = lambda self, **options: (_ for _ in ()).throw(BufferError("on gpu:0"))
    with pytest.raises(RowError, match=r"^tokens: a tensor that is not on the host: on gpu:0"):
        packed(kind([5, 6, 7]))


@pytest.mark.parametrize(
    ("told", "looks"), [({"major": 2}, 0), ({"looks": False}, 0), ({"refuses": True}, 1)], ids=str
)
def test_a_table_that_does_not_serve_is_left_alone(told: dict[str, Any], looks: int) -> None:
    tensor = tensor_type(**told)([5, 6, 7])
    assert packed(tensor) == [5, 6, 7] and tensor.looks == looks


def test_types_take_turns() -> None:
    first, second = tensor_type(), tensor_type()
    wire, _, packer = end()
    for step in range(1, 7):
        tensor = (first, second)[step % 2]([step, step, step])
        packer.send_next(step, None, HANDLES, tensor)
        assert wire.newest().columns["tokens"].tolist() == [step] * 3 and tensor.looks == 1
