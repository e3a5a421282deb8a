"""The abort messages between API workers."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from tokenpipe.api.abort import AbortSocket


def leave_dead(path: Path) -> None:
    """Leave the socket of a worker that was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(os.fspath(path))


@pytest.mark.case("F28")
def test_the_socket_of_a_dead_worker_is_removed(tmp_path: Path) -> None:
    async def open_and_ask() -> None:
        leave_dead(tmp_path / "a00000001")
        mine, other = AbortSocket(tmp_path, len), AbortSocket(tmp_path, len)
        mine.open()
        (left,) = tmp_path.iterdir()
        other.open()
        assert left in tmp_path.iterdir()  # a living one stays
        leave_dead(tmp_path / "a00000002")
        assert await mine.abort_everywhere("four") == 4 + 4
        assert len(list(tmp_path.iterdir())) == 2
        mine.close()
        other.close()

    asyncio.run(open_and_ask())
    assert not list(tmp_path.iterdir())


def test_abort_asks_every_worker_and_bears_those_that_are_gone(tmp_path: Path) -> None:
    async def ask() -> tuple[int, int]:
        mine, other = AbortSocket(tmp_path, lambda name: 1), AbortSocket(tmp_path, len)
        other.open()
        (path,) = tmp_path.iterdir()
        mine.open()
        leave_dead(tmp_path / "a00000002")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind("")
            stranger.sendto(b"nonsense", os.fspath(path))
        both = await mine.abort_everywhere("four")
        other.close()
        alone = await mine.abort_everywhere("four")
        mine.close()
        return both, alone

    assert asyncio.run(ask()) == (1 + 4, 1)
    assert not list(tmp_path.iterdir())
