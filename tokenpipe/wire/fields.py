"""Specs: how a field of a control message is written and checked.

A field's annotation names its spec: `Annotated[int, Int(0, 7)]`. `encode` writes a value and
`decode` reads it. Both raise ValueError for a wrong value, so a value that cannot be read back is
not sent.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import index
from typing import Annotated, Any, Protocol

import numpy as np

from tokenpipe._core import MAX_STOP_BYTES, NO_STOP

MAX_TOKEN_IDS = 1 << 24
MAX_BYTES = 1 << 26
MAX_TEXT = (1 << 16) - 1


class Spec(Protocol):
    """Writes and reads the value of a field."""

    def encode(self, value: Any) -> Any:
        """Return the value for msgpack to pack. Raises ValueError."""

    def decode(self, raw: Any) -> Any:
        """Return the field's value for a value that msgpack unpacked. Raises ValueError."""


def got(raw: object) -> str:
    """Describe a refused value of any size in a few characters."""
    text = repr(raw[:20]) if isinstance(raw, str | bytes) else repr(raw)
    return f"{type(raw).__name__} {text[:40]}"


@dataclass(frozen=True, slots=True)
class Int:
    """An integer in `low..high`, or None if `optional`. A bool is no integer."""

    low: int
    high: int
    optional: bool = False

    def encode(self, value: Any) -> int | None:
        if value is None and self.optional:
            return None
        return self.decode(index(value))

    def decode(self, raw: Any) -> int | None:
        if type(raw) is int and self.low <= raw <= self.high:
            return raw
        if raw is None and self.optional:
            return None
        raise ValueError(f"expected an integer in {self.low}..{self.high}, got {got(raw)}")


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number. An integer is accepted."""

    def encode(self, value: Any) -> float:
        return self.decode(float(value))

    def decode(self, raw: Any) -> float:
        if type(raw) in (float, int) and math.isfinite(raw):
            return float(raw)
        raise ValueError(f"expected a finite number, got {got(raw)}")


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def encode(self, value: Any) -> bool:
        return bool(value)

    def decode(self, raw: Any) -> bool:
        if type(raw) is bool:
            return raw
        raise ValueError(f"expected true or false, got {got(raw)}")


@dataclass(frozen=True, slots=True)
class Utf8:
    """A string of at most `limit` bytes of UTF-8. With `cut`, `encode` shortens a longer string."""

    limit: int = MAX_TEXT
    cut: bool = False

    def encode(self, value: Any) -> str:
        if self.cut and type(value) is str:
            raw = value.encode(errors="replace")[: self.limit]
            value = raw.decode(errors="ignore")
        return self.decode(value)

    def decode(self, raw: Any) -> str:
        if type(raw) is not str:
            raise ValueError(f"expected a string, got {got(raw)}")
        size = len(raw) if raw.isascii() else len(raw.encode())  # ValueError for a lone surrogate
        if size > self.limit:
            raise ValueError(f"expected at most {self.limit} bytes of text, got {size}")
        return raw


@dataclass(frozen=True, slots=True)
class Strings:
    """An array of at most `limit` non-empty strings of at most `size` bytes of UTF-8 in all."""

    limit: int
    size: int

    def encode(self, value: Any) -> list[str]:
        return list(self.decode(list(value)))

    def decode(self, raw: Any) -> tuple[str, ...]:
        if type(raw) is not list or len(raw) > self.limit:
            raise ValueError(f"expected at most {self.limit} strings, got {got(raw)}")
        if not all(type(text) is str and text for text in raw):
            raise ValueError("expected strings, none of them empty")
        if sum(len(text.encode()) for text in raw) > self.size:
            raise ValueError(f"expected at most {self.size} bytes of strings")
        return tuple(raw)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A member of an IntEnum."""

    members: type[IntEnum]

    def encode(self, value: Any) -> int:
        return int(self.members(value))

    def decode(self, raw: Any) -> IntEnum:
        if type(raw) is int:
            return self.members(raw)
        raise ValueError(f"expected an integer, got {got(raw)}")


@dataclass(frozen=True, slots=True)
class Blob:
    """At most `limit` bytes."""

    limit: int = MAX_BYTES

    def encode(self, value: Any) -> bytes:
        return self.decode(bytes(value))

    def decode(self, raw: Any) -> bytes:
        if type(raw) is not bytes:
            raise ValueError(f"expected bytes, got {got(raw)}")
        if len(raw) > self.limit:
            raise ValueError(f"expected at most {self.limit} bytes, got {len(raw)}")
        return raw


@dataclass(frozen=True, slots=True)
class Ints:
    """Integers >= 0 as one bin of little-endian entries: int32 ("i") or int64 ("q")."""

    typecode: str
    limit: int

    def encode(self, value: Sequence[int]) -> bytes:
        try:
            raw = array(self.typecode, value).tobytes()
        except (OverflowError, TypeError) as error:
            raise ValueError(f"expected integers of {self.typecode!r}: {error}") from error
        self.decode(raw)
        return raw

    def decode(self, raw: Any) -> tuple[int, ...]:
        if type(raw) is not bytes:
            raise ValueError(f"expected a bin of integers, got {got(raw)}")
        if not raw:
            return ()
        n, rest = divmod(len(raw), 4 if self.typecode == "i" else 8)
        if rest or n > self.limit:
            raise ValueError(f"expected at most {self.limit} integers, got {len(raw)} bytes")
        entries = np.frombuffer(raw, self.typecode)
        if entries.min() < 0:
            raise ValueError("expected integers >= 0")
        return tuple(entries.tolist())


@dataclass(frozen=True, slots=True)
class Numbers:
    """A map of short names to integers."""

    def encode(self, value: Any) -> dict[str, int]:
        return self.decode(dict(value))

    def decode(self, raw: Any) -> dict[str, int]:
        if type(raw) is not dict or not all(
            type(name) is str and type(number) is int for name, number in raw.items()
        ):
            raise ValueError(f"expected a map of names to integers, got {got(raw)}")
        return raw


U32 = Annotated[int, Int(0, (1 << 32) - 1)]
U64 = Annotated[int, Int(0, (1 << 64) - 1)]
Handle = Annotated[int, Int(1, (1 << 63) - 1)]
TokenOrNone = Annotated[int, Int(NO_STOP, (1 << 31) - 1)]
Yes = Annotated[bool, Flag()]
Words = Annotated[str, Utf8(cut=True)]  # for people to read
Name = Annotated[str, Utf8(4096)]
Extra = Annotated[bytes, Blob()]
Stops = Annotated[tuple[str, ...], Strings(MAX_STOP_BYTES, MAX_STOP_BYTES)]
TokenIds = Annotated[tuple[int, ...], Ints("i", MAX_TOKEN_IDS)]
Wide = Annotated[tuple[int, ...], Ints("q", MAX_TOKEN_IDS)]
