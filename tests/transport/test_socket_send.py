"""A SocketSend says whether a socket took a frame."""

from __future__ import annotations

import pytest

from tokenpipe._core import SocketSend


def test_gives_frame_and_flags_and_is_busy_from_then_on() -> None:
    given: list[tuple[bytes, int]] = []
    hand = SocketSend(lambda frame, flags: given.append((frame, flags)), 7, BlockingIOError)
    hand.idle = True
    assert hand(b"x") is True
    assert given == [(b"x", 7)] and hand.idle is False


def test_again_is_false_and_any_other_error_is_an_error() -> None:
    raised: list[BaseException] = [BlockingIOError("full"), OSError("gone")]

    def send(frame: bytes, flags: int) -> None:
        raise raised.pop(0)

    hand = SocketSend(send, 0, BlockingIOError)
    assert hand(b"x") is False
    with pytest.raises(OSError, match="gone"):
        hand(b"x")
    with pytest.raises(TypeError):
        hand(frame=b"x")  # type: ignore[call-arg]
