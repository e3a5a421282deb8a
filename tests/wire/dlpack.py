"""A framework's tensor type with the table of C functions that DLPack 1.2 describes, in ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, PYFUNCTYPE, Structure, c_int, c_int64, c_uint32, c_void_p
from typing import Any

import numpy as np

Capsule = PYFUNCTYPE(ctypes.py_object, c_void_p, c_void_p, c_void_p)
NAME = ctypes.create_string_buffer(b"dlpack_exchange_api")
CODES = {"i": 0, "u": 1, "f": 2}


class View(Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


Look = PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)


class Table(Structure):
    """DLPackExchangeAPI; its other functions are not there, and would not be called."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("older", c_void_p),
        ("functions", c_void_p * 3),
        ("look", Look),
        ("stream", c_void_p),
    ]


def tensor_type(major: int = 1, looks: bool = True, refuses: bool = False, **seen: Any) -> Any:
    """Return a new type whose table is that of `major`; a look gives `seen` for the facts."""

    class Tensor:
        def __init__(self, values: Any) -> None:
            self.array = array = np.asarray(values)
            self.looks = 0
            dims = array.ndim or 1
            facts: dict[str, Any] = {
                "data": array.__array_interface__["data"][0],
                "device_type": 1,
                "ndim": array.ndim,
                "code": CODES[array.dtype.kind],
                "bits": 8 * array.itemsize,
                "lanes": 1,
                "shape": (c_int64 * dims)(*array.shape),
                "strides": (c_int64 * dims)(*(n // array.itemsize for n in array.strides)),
            }
            self.view = View(**(facts | seen))

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            device: tuple[int, int] = self.array.__dlpack_device__()
            return device

    def look(tensor: Any, out: int) -> int:
        tensor.looks += 1
        ctypes.memmove(out, ctypes.byref(tensor.view), ctypes.sizeof(View))
        return -1 if refuses else 0

    table = Table(major, 3, None, (c_void_p * 3)(), Look(look) if looks else Look(), None)
    make = Capsule(("PyCapsule_New", ctypes.pythonapi))
    kept: Any = Tensor
    kept.table = table  # a framework's lives as long as the process
    kept.__dlpack_c_exchange_api__ = make(ctypes.addressof(table), ctypes.addressof(NAME), None)
    return kept
