"""A peer that sends a message without an end is disconnected, and harms nobody else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.transport.rig import BOUND, Rig, seq_of, turn
from tokenpipe.transport import LaneReceiver, ZmqReceiverPort

PART = b"\x03" + (1 << 16).to_bytes(8, "big") + bytes(1 << 16)  # a long part; more parts follow
LAST = b"\x00\x03end"
MIB = 1 << 20


@pytest.fixture
def rig(base: Path) -> Iterator[Rig]:
    made = Rig("zmq", base)
    yield made
    made.close()


def stranger(rig: Rig) -> socket.socket:
    """Return a connection to the lane that has shaken hands as ZMTP 3.0 wants it."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    sock.connect(rig.instance.lane_path("w0.0"))
    sock.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 1 + 31))
    greeting = sock.recv(64, socket.MSG_WAITALL)  # libzmq reads no further before it has sent this
    assert greeting[:1] == b"\xff"
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
    sock.sendall(b"\x04" + bytes([len(ready)]) + ready)
    return sock


class Looks:
    """Let a receiver look at its connections at each call, as it does every half second."""

    def __init__(self, lane: LaneReceiver) -> None:
        self._lane = lane
        self._ahead = 0.0

    def __call__(self) -> int:
        self._ahead += 1.0
        self._lane.tick(time.monotonic() + self._ahead)
        return self._lane.counters["shut"]


@pytest.mark.case("F10")
def test_a_message_without_an_end_closes_its_connection(rig: Rig) -> None:
    sender, receiving = rig.pair()
    look = Looks(receiving)
    look()
    rig.send(sender, 3)
    with closing(stranger(rig)) as other:
        sent = 0
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 200 * MIB:
                other.sendall(PART)
                sent += len(PART)
                look()
    assert sent < 4 * BOUND + MIB  # 2 frames, 2 backlogs, and what the kernel holds
    assert receiving.counters["shut"] == 1
    rig.send(sender, 3)
    got = turn(lambda: not sender.unacked_frames, sender, receiving)
    assert [seq_of(f) for f in got] == list(range(1, 7))
    assert not sender.counters["resent"]  # its own connection stayed


@pytest.mark.case("F10")
def test_messages_that_end_close_no_connection(rig: Rig) -> None:
    sender, receiving = rig.pair()
    look = Looks(receiving)
    with closing(stranger(rig)) as other:
        for _ in range(20):
            other.sendall(PART * 8 + LAST)
            assert eventually(receiving.port.readable)
            receiving.recv()
            assert look() == 0
        assert receiving.counters["bad_frames"] >= 20
        rig.send(sender, 60, 1 << 14)
        for _ in range(3):
            assert look() == 0  # with frames that wait to be received
        got = turn(lambda: not sender.unacked_frames, sender, receiving)
        assert len(got) == 60 and look() == 0


def test_a_peer_that_was_closed_by_mistake_loses_nothing(rig: Rig) -> None:
    """A look that finds a connection guilty costs only a new connection."""
    sender, receiving = rig.pair()
    port = receiving.port
    rig.send(sender, 5)
    turn(lambda: not sender.unacked_frames, sender, receiving)
    port.tend(time.monotonic())
    assert isinstance(port, ZmqReceiverPort)
    (connection,) = port._watch._connections
    connection.shut()
    rig.send(sender, 5)
    got = turn(lambda: not sender.unacked_frames, sender, receiving)
    assert [seq_of(f) for f in got] == list(range(6, 11))


def test_a_descriptor_of_another_file_is_left_alone(rig: Rig) -> None:
    """A connection may be closed by libzmq, and the process may use its descriptor again."""
    _, receiving = rig.pair()
    port = receiving.port
    with closing(stranger(rig)):
        port.tend(time.monotonic())
        mine, yours = socket.socketpair()
        assert isinstance(port, ZmqReceiverPort)
        connection = port._watch._connections[-1]
        connection._fd = mine.fileno()
        connection.shut()
        assert not connection.update()
    yours.send(b"x")
    assert mine.recv(1) == b"x"
    mine.close()
    yours.close()
    connection._fd = os.open("/dev/null", os.O_RDONLY)
    assert not connection.update()
    os.close(connection._fd)
