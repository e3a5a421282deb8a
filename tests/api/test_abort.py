"""The abort messages between API workers."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from tokenpipe.api.abort import AbortSocket


def test_abort_asks_every_worker_and_bears_those_that_are_gone(tmp_path: Path) -> None:
    async def ask() -> tuple[int, int]:
        mine, other = AbortSocket(tmp_path, lambda name: 1), AbortSocket(tmp_path, len)
        other.open()
        path = tmp_path / f"a{os.getpid()}"
        path.rename(tmp_path / "a1")  # as if it were another process's
        other._path = tmp_path / "a1"
        mine.open()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind(os.fspath(tmp_path / "a2"))  # nobody listens there any more
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind("")
            stranger.sendto(b"nonsense", os.fspath(path))
        both = await mine.abort_everywhere("four")
        other.close()
        alone = await mine.abort_everywhere("four")
        mine.close()
        return both, alone

    assert asyncio.run(ask()) == (1 + 4, 1)
    (tmp_path / "a2").unlink()
    assert not list(tmp_path.iterdir())
