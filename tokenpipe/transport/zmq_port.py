"""Carry a lane over ZeroMQ: a DEALER connects, a ROUTER binds.

Hot calls go directly to pyzmq's Cython class. Its Python layer would cost a third of a send.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from typing import Any

import zmq

from tokenpipe._core import FRAME_OVERHEAD, SocketRecv, SocketSend
from tokenpipe.errors import LaneError, LaneLost
from tokenpipe.instance import ForkGuard, Instance

from . import timing
from .connection_watch import ConnectionWatch
from .context import context

_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE) | _NOW
_IN = int(zmq.POLLIN)
_CLOSE_LINGER_MS = 200  # for the last message of a close; all frames were acknowledged before
_MESSAGES_BESIDE = 1024  # lane messages that may wait besides the frames
_MAX_ANSWER_BYTES = 1 << 16
# Messages that libzmq reads from the kernel before the receiver asks for them. libzmq reads into
# buffers of 18 KB, and a small read uses little of one, so further messages wait at the sender.
_READ_AHEAD = 2048


class _ZmqPort:
    """Base of both ends: socket options, the descriptor, the close."""

    idle: bool

    def __init__(
        self, kind: int, lane: str, max_frame_bytes: int, bound_bytes: int, read_ahead: int = 0
    ) -> None:
        self.lane = lane
        self._guard = ForkGuard()
        self._found = False  # the last question found a message, and it is not received yet
        try:
            self._socket = context().socket(kind)
        except zmq.ZMQError as error:  # no descriptor is free, say
            raise OSError(error.errno, error.strerror) from error
        # The high-water mark counts messages; the lane's own bound in bytes is reached first.
        messages = bound_bytes // FRAME_OVERHEAD + _MESSAGES_BESIDE
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, messages),
            (zmq.RCVHWM, read_ahead or messages),
            (zmq.MAXMSGSIZE, max_frame_bytes),
            (zmq.RECONNECT_IVL, 20),
            (zmq.RECONNECT_IVL_MAX, 200),
        ):
            self._socket.setsockopt(option, value)
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._pollset = [(self._socket, _IN)]
        backend: Any = super(zmq.Socket, self._socket)
        self._send = backend.send
        self._recv = backend.recv

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        # zmq_poll is the cheapest way to ask: 0.7 us; EVENTS takes 1.0 us, an Again 2.6 us.
        self._found = bool(zmq.zmq_poll(self._pollset, 0))
        self.idle = not self._found
        return self._found

    def close(self) -> None:
        if not self._socket.closed:
            self._guard.check(f"lane {self.lane}")
            self._socket.close(linger=_CLOSE_LINGER_MS)


class ZmqSenderPort(_ZmqPort):
    """Connect to a lane. Its receiver may come later."""

    def __init__(self, instance: Instance, lane: str, route: str, *, bound_bytes: int) -> None:
        super().__init__(zmq.DEALER, lane, _MAX_ANSWER_BYTES, bound_bytes)
        self.send = SocketSend(self._send, _NOW, zmq.Again)  # returns False at the high-water mark
        # Each socket has a routing id of its own. An older socket of this process may still be
        # connecting; a ROUTER that sees the same id twice would never read the newer connection.
        self._socket.setsockopt(zmq.ROUTING_ID, f"{route}:{secrets.token_hex(4)}".encode())
        self._socket.connect(f"ipc://{instance.lane_path(lane)}")

    @property
    def idle(self) -> bool:
        """Whether a descriptor that is not readable means that no message is there."""
        return self.send.idle

    @idle.setter
    def idle(self, idle: bool) -> None:
        self.send.idle = idle

    def recv(self) -> bytes | None:
        """Return one message, or None if there is none."""
        if not (self._found or self.readable()):
            return None
        self._found = False
        frame: bytes = self._recv(_NOW)
        return frame


class ZmqReceiverPort(_ZmqPort):
    """Bind a lane. No other process can bind it meanwhile.

    The socket is bound at a temporary path and then renamed to the lane's path. libzmq removes the
    file at a path before it binds there, and again when it closes, from another thread.
    """

    def __init__(
        self, instance: Instance, lane: str, *, max_frame_bytes: int, bound_bytes: int
    ) -> None:
        self._path = instance.lane_path(lane)
        self._instance = instance
        self._streak = 0
        self.idle = False
        self._claim = instance.claim("lane", f"-{lane}", "has bound it")
        try:
            _refuse_stranger(self._path)
            super().__init__(zmq.ROUTER, lane, max_frame_bytes, bound_bytes, _READ_AHEAD)
        except BaseException:
            self._claim.release()
            raise
        try:
            self._socket_recv = SocketRecv(self._recv, _NOW, zmq.Again)
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            # A message has one part, so that a peer's frame on its way is all that is unfinished.
            self._watch = ConnectionWatch(self._socket, 2 * max_frame_bytes, 2 * bound_bytes)
            try:
                self._inode = self._bind(instance)
            except BaseException:
                self._watch.close()
                raise
            instance.keep_socket(lane, self._bind_again)
        except BaseException:
            self._socket.close(linger=0)
            self._claim.release()
            raise

    def _bind(self, instance: Instance) -> os.stat_result:
        first = instance.lane_path(f"~{secrets.token_hex(2)}")
        try:
            self._socket.bind(f"ipc://{first}")
            os.rename(first, self._path)
            return os.lstat(self._path)
        except (FileNotFoundError, zmq.ZMQError) as error:
            if isinstance(error, zmq.ZMQError) and error.errno != errno.ENOENT:
                raise OSError(error.errno, error.strerror, first) from error
            # The owner closes the instance, or a successor cleans the directory.
            raise LaneLost(f"the instance at {instance.directory} is gone") from None

    def _bind_again(self) -> None:
        """Bind at a new file. Connections through the removed one stay."""
        self._inode = self._bind(self._instance)

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        """Append to `out` the data frame with this lane header and its direct successors.

        It stops after `limit` messages. It returns the first other message (route, frame), or None.
        """
        # For one or two messages, ask first. For more, read on; one exception ends the read.
        if self._streak < 2 and not (self._found or self.readable()):
            self._streak = 0
            return None
        self._found = False
        before = len(out)
        other = self._socket_recv.take(limit, next_header, out)
        self._streak = 0 if self._socket_recv.idle else len(out) - before + (other is not None)
        self.idle = self._socket_recv.idle
        return other

    @property
    def malformed(self) -> int:
        """How many parts have come that are not frames."""
        return self._socket_recv.malformed

    @property
    def shut(self) -> int:
        """How many connections were closed because of a message without an end."""
        return self._watch.closed

    def tend(self, now: float) -> float:
        """Close connections with too much of an unfinished message; return when to call again.

        If another program removed files of this process, make them again.
        """
        self._instance.keep()
        soon = self._watch.look(self._socket_recv.wire_bytes, self.readable())
        return now + timing.TEND_SOON_S if soon else timing.on_grid(now, timing.PROBE_S)

    def send(self, route: bytes, frame: bytes) -> bool:
        """Answer without waiting. Return False if the route is gone or full."""
        self.idle = False
        try:
            self._send(route, _MORE)
            self._send(frame, _NOW)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    def close(self) -> None:
        """Unbind the lane. The socket's file is removed when this returns."""
        if self._socket.closed:
            return
        self._guard.check(f"lane {self.lane}")
        self._instance.forget_socket(self.lane)
        self._watch.close()
        super().close()
        try:
            if os.path.samestat(os.lstat(self._path), self._inode):
                os.unlink(self._path)
        except FileNotFoundError:
            self._path = ""  # the instance was removed, with this file
        self._claim.release()


def _refuse_stranger(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise LaneError(f"{path} exists and is not a socket; tokenpipe does not remove it")
