"""Keep the requests that wait for a slot, in order. No clock, no pipeline."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tokenpipe.types import ErrorCode, Request

from .rank_outages import RankOutages


class Waiting(NamedTuple):
    """A request that waits, the output that it has, and the only rank that may serve it."""

    request: Request
    output_token_ids: list[int]
    home: int | None = None  # None: any rank

    @property
    def code(self) -> ErrorCode:
        """The code of the error that ends it if no rank comes up."""
        return ErrorCode.LOST if self.output_token_ids else ErrorCode.UNAVAILABLE


class Placed(NamedTuple):
    """A request that got a slot."""

    request: Request
    output_token_ids: list[int]
    slot: int


class WaitingQueue:
    """Requests of lost ranks come first, then all others; each group in the order of arrival."""

    def __init__(self) -> None:
        self._returned: OrderedDict[int, Waiting] = OrderedDict()  # their rank was lost
        self._others: OrderedDict[int, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._returned) + len(self._others)

    def add(self, request: Request, output_token_ids: list[int]) -> None:
        """Add a request at the end."""
        self._others[request.internal_id] = Waiting(request, output_token_ids)

    def add_returned(self, request: Request, output_token_ids: list[int], home: int | None) -> None:
        """Add a request whose rank was lost. It goes before all others, because it had a slot."""
        self._returned[request.internal_id] = Waiting(request, output_token_ids, home)

    def remove(self, key: int) -> bool:
        """Remove a request. Return whether it waited."""
        found = self._returned.pop(key, None) or self._others.pop(key, None)
        return found is not None

    def place(self, free: Mapping[int, list[int]]) -> dict[int, list[Placed]]:
        """Give requests a rank and a slot while there are free slots; return them by rank.

        `free` has the free slots of each rank that is up; the slots that are given leave it. A
        request gets the rank with the most free slots, or its home.
        """
        placed: dict[int, list[Placed]] = {}
        if self._returned and any(free.values()):
            for waiting in list(self._returned.values()):
                if _place(waiting, free, placed):
                    del self._returned[waiting.request.internal_id]
        while self._others and any(free.values()):
            _, waiting = self._others.popitem(last=False)
            _place(waiting, free, placed)
        return placed

    def take_expired(
        self, outages: RankOutages, now: float
    ) -> Iterator[tuple[Request, str, ErrorCode]]:
        """Remove the requests that have waited too long for a rank; yield why, and the code."""
        for waiting in list(self._returned.values()):
            if why := outages.over(waiting.home, now):
                del self._returned[waiting.request.internal_id]
                yield waiting.request, why, waiting.code
        while self._others and (why := outages.over(None, now)):
            _, waiting = self._others.popitem(last=False)
            yield waiting.request, why, waiting.code


def _place(
    waiting: Waiting, free: Mapping[int, list[int]], placed: dict[int, list[Placed]]
) -> bool:
    dp = waiting.home
    if dp is None:
        dp = max(free, key=lambda rank: len(free[rank]), default=None)
    slots = None if dp is None else free.get(dp)
    if dp is None or not slots:
        return False
    one = Placed(waiting.request, waiting.output_token_ids, slots.pop())
    placed.setdefault(dp, []).append(one)
    return True
