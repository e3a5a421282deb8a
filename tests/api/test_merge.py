"""Merging the outputs of several streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tokenpipe.api.merge import merged


class Numbers:
    """Yields `upto` numbers, then ends or breaks."""

    def __init__(self, upto: int, error: Exception | None = None) -> None:
        self.upto, self.error = upto, error
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(self.upto):
            self.taken += 1
            yield number
        if self.error is not None:
            raise self.error


async def collect(*outputs: Any) -> list[tuple[int, Any]]:
    return [item async for item in merged(outputs)]


def test_merged_has_everything_of_everybody_in_order() -> None:
    found = asyncio.run(collect(Numbers(3), Numbers(0), Numbers(5)))
    assert sorted(found) == [(0, n) for n in range(3)] + [(2, n) for n in range(5)]
    for which in (0, 2):
        assert [n for w, n in found if w == which] == sorted(n for w, n in found if w == which)


def test_merged_raises_what_one_raised_and_takes_no_more_than_is_asked() -> None:
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(collect(Numbers(2), Numbers(1, ValueError("broken"))))

    async def first_only() -> tuple[int, int]:
        one, two = Numbers(1000), Numbers(1000)
        items = merged([one, two])  # type: ignore[list-item]
        await anext(items)
        await asyncio.sleep(0)
        await items.aclose()  # type: ignore[attr-defined]
        return one.taken, two.taken

    assert max(asyncio.run(first_only())) < 5
