"""A client's lanes to a played engine, without the client on top."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.client.engine import FakeEngine
from tests.conftest import eventually
from tokenpipe._core import Stream
from tokenpipe.client import ClientCore
from tokenpipe.client.lanes import Lanes
from tokenpipe.client.opening import open_lanes
from tokenpipe.errors import TokenpipeError
from tokenpipe.instance import Instance


class Kept:
    """A sink that keeps what the lanes bring."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.gaps: list[str] = []
        self.sources_lost = 0
        self.errors: list[TokenpipeError] = []

    def feed(self, frame: bytes, now: float) -> None:
        self.frames.append(frame)

    def gap(self, lane: str) -> None:
        self.gaps.append(lane)

    def source_lost(self, now: float) -> None:
        self.sources_lost += 1

    def engine_lost(self, error: TokenpipeError) -> None:
        self.errors.append(error)

    def read(self, lanes: Lanes, limit: int = 64) -> bool:
        """Read once and do what is due."""
        more = lanes.read(self, time.monotonic(), limit)
        lanes.tick(time.monotonic())
        return more


@contextmanager
def opened(engine: FakeEngine, name: str = "a") -> Iterator[Lanes]:
    """Open the lanes of a client."""
    lanes = open_lanes(Instance.attach(engine.endpoint), engine.topology, name)
    try:
        assert eventually(lambda: engine.knows(int(lanes.me.rank)))
        yield lanes
    finally:
        lanes.close(0.0)


def core_of(lanes: Lanes, **options: Any) -> ClientCore[Stream]:
    """Return the core of a client on these lanes."""
    return ClientCore(
        incarnation=lanes.me.incarnation,
        stream_type=Stream,
        stream_bytes=1 << 20,
        ahead_s=5.0,
        **options,
    )
