"""Parts of the API server: merging, the abort post, the port."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tokenpipe.errors import ConfigError
from tokenpipe.serve.abort import AbortPost
from tokenpipe.serve.binding import bind, url_of
from tokenpipe.serve.merge import merged


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


def test_abort_asks_every_worker_and_bears_those_that_are_gone(tmp_path: Path) -> None:
    async def ask() -> tuple[int, int]:
        mine, other = AbortPost(tmp_path, lambda name: 1), AbortPost(tmp_path, len)
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
        both = await mine.ask("four")
        other.close()
        alone = await mine.ask("four")
        mine.close()
        return both, alone

    assert asyncio.run(ask()) == (1 + 4, 1)
    (tmp_path / "a2").unlink()
    assert not list(tmp_path.iterdir())


@pytest.mark.case("B15")
def test_port_is_bound_once_and_a_taken_one_is_named() -> None:
    with bind("127.0.0.1", 0, 8) as sock:
        port = sock.getsockname()[1]
        assert url_of(sock) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=rf"api\.port {port} on 127\.0\.0\.1: .*in use"):
            bind("127.0.0.1", port, 8)
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass  # it listens before anybody serves it
