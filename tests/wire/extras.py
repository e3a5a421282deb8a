"""Extras as a processor sends them, for tests of who packs and who reads them."""

from __future__ import annotations

from typing import Any

from tokenpipe.wire.extras_codec import WRAP


def wrap(extras: bytes, offset: int = 0, count: int = 1, skip: int = 0) -> bytes:
    return WRAP.pack(offset, count, skip, len(extras)) + extras


def padded(values: Any, count: int) -> list[Any]:
    return [*(values or []), *[None] * (count - len(values or []))]
