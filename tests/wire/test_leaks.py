"""Nothing that crosses into C stays there: every function, in its good and its bad way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count, pairwise

import numpy as np
import pytest

from tests.wire.dlpack import tensor_type
from tokenpipe import _core
from tokenpipe.errors import FrameError, RowError
from tokenpipe.extras import RowExtras
from tokenpipe.wire import ExtrasReader, pack_extras
from tokenpipe.wire.extras_format import WRAP

HANDLES = np.array([1 << 35 | 1, 1], np.int64)
TOKENS = np.array([5, -1], np.int32)
HEADER = (1 << 60, 2, 3, 4, 0, 0, 1 << 50, 2, 2, 9)
STEP = _core.pack_step(HEADER, {1: HANDLES, 3: TOKENS})
OUTPUT = _core.pack_output((1, 2, 3, 4, 0, 0, 0, 0, 0), {})
PACKER = _core.StepPacker(0, 0, 4)
WINDOW = _core.SendWindow(1 << 12, 1, 2, lambda frame: True)
WINDOW.receiver = 3
SENDER = _core.StepPacker(0, 0, 4, 100, WINDOW, lambda value, letter, name: np.array(value, letter))
TENSORS = [kind(HANDLES[1:]) for kind in (tensor_type(), tensor_type(major=2))]
STEPS = count(2)  # a rank's steps grow
TABLE = _core.Table(0, [0], 4, 100, [], 1 << 16, 1 << 16)
SOCKET_SEND = _core.SocketSend(lambda frame, flags: None, 1, ValueError)

EXTRAS = pack_extras(RowExtras(pooled=[1.0], custom=b"x"), 1)


def stream_of(extras: bytes, last: bool = True) -> object:
    """Take what a stream has from a frame with one token and extras."""
    inbox = _core.Inbox(1 << 20, None, None, ExtrasReader)
    stream = _core.Stream(inbox, 7, "a", 0, 3)
    wrapped = WRAP.pack(0, 1, 0, len(extras)) + extras
    columns: dict[int, bytes] = {1: (7).to_bytes(8, "little"), 3: b"\5\0\0\0", 4: bytes(4)}
    columns |= {5: bytes([last]), 18: len(wrapped).to_bytes(4, "little"), 19: wrapped}
    inbox.feed(_core.pack_output((1, 2, 3, 4, 0, 0, 1, 1, 0), columns))
    return stream.take()


CALLS: dict[str, Callable[[], object]] = {
    "peek": lambda: _core.peek(STEP),
    "peek, refused": lambda: _core.peek(b"\x94"),
    "check_value": lambda: _core.check_value(STEP, 8),
    "check_value, refused": lambda: _core.check_value(STEP, 1),
    "unpack_step": lambda: _core.unpack_step(STEP),
    "unpack_step, refused": lambda: _core.unpack_step(OUTPUT),
    "unpack_output": lambda: _core.unpack_output(OUTPUT),
    "pack_step": lambda: _core.pack_step(HEADER, {1: HANDLES, 3: TOKENS}),
    "pack_step, refused": lambda: _core.pack_step(HEADER, {1: HANDLES, 3: HANDLES}),
    "pack_step, no such column": lambda: _core.pack_step(HEADER, {1: HANDLES, 99: TOKENS}),
    "pack_step, no buffer": lambda: _core.pack_step(HEADER, {1: HANDLES, 3: "x"}),
    "pack": lambda: PACKER.pack(*HEADER[:6], HANDLES, TOKENS, drained=HANDLES),
    "pack, refused": lambda: PACKER.pack(*HEADER[:6], HANDLES, HANDLES[:1]),
    "pack, no buffer": lambda: PACKER.pack(*HEADER[:6], HANDLES, [1]),  # type: ignore[arg-type]
    "send_next": lambda: (SENDER.send_next(1, None, HANDLES[1:], TOKENS[:1]), WINDOW.ack(1 << 60)),
    "send_next, tensors": lambda: (
        [SENDER.send_next(next(STEPS), 2, tensor, tensor) for tensor in TENSORS],
        WINDOW.ack(1 << 60),
    ),
    "send_next, a list": lambda: (SENDER.send_next(1, 2, [1], [5]), WINDOW.forget()),
    "send_next, full": lambda: SENDER.send_next(1, 2, HANDLES[1:], TOKENS[:1]),
    "send_next, refused": lambda: SENDER.send_next(1, 2, HANDLES, HANDLES[:1]),
    "pack_next": lambda: SENDER.pack_next(1, 2, HANDLES[1:], TOKENS[:1]),
    "SendWindow": lambda: _core.SendWindow(1 << 12).push(STEP),
    "SendWindow, between": lambda: WINDOW.between(1, 9),
    "SendWindow, misaddressed": lambda: WINDOW.send(STEP),
    "SendWindow, no frame": lambda: WINDOW.send(b"x"),
    "SocketSend": lambda: SOCKET_SEND(STEP),
    "SocketSend, refused": lambda: _core.SocketSend(len, 1, ValueError)(STEP),  # type: ignore[arg-type]
    "SocketRecv": lambda: _core.SocketRecv(lambda flags: STEP, 0, ValueError).take(
        2, (1, 2, 3, 4), []
    ),
    "SocketRecv, taken": lambda: _core.SocketRecv(lambda flags: STEP, 0, ValueError).take(
        1, (1 << 60, 2, 3, 4), []
    ),
    "SocketRecv, nothing": lambda: _core.SocketRecv(len, 0, TypeError).take(2, (1, 2, 3, 4), []),  # type: ignore[arg-type]
    "feed_run": lambda: TABLE.feed_run(0, [STEP, OUTPUT, None], 0),
    "StepPacker": lambda: _core.StepPacker(0, 0, 4),
    "pack, extras": lambda: PACKER.pack(
        *HEADER[:6], HANDLES, TOKENS, extras_len=np.array([2, 1], np.uint32), extras=b"abc"
    ),
    "pack, other extras": lambda: PACKER.pack(
        *HEADER[:6], HANDLES, TOKENS, extras_len=np.array([2, 2], np.uint32), extras=b"abc"
    ),
    "take": lambda: stream_of(EXTRAS),
    "take, goes on": lambda: stream_of(EXTRAS, last=False),
    "take, malformed": lambda: stream_of(b"junk"),
    "StepPacker, refused": lambda: _core.StepPacker(0, 0, 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_leaves_nothing_behind(name: str) -> None:
    call = CALLS[name]

    def many() -> int:
        for _ in range(200):
            with suppress(FrameError, RowError, ValueError, TypeError):
                call()
        return sys.getallocatedblocks()

    many()
    references = sys.getrefcount(HANDLES), sys.getrefcount(STEP)
    held = [many() for _ in range(6)]  # first calls fill free lists, and more than one round does
    growth = [after - before for before, after in pairwise(held)]
    assert min(growth) < 50, growth  # a leak of one block a call would be 200 in each
    assert (sys.getrefcount(HANDLES), sys.getrefcount(STEP)) == references
