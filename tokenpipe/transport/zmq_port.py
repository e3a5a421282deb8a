"""Carry a lane over ZeroMQ: a DEALER that connects, a ROUTER that binds.

The hot calls go to pyzmq's Cython class directly; its Python layer on top costs a third of a send.
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

from .context import context

_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE) | _NOW
_IN = int(zmq.POLLIN)
_CLOSE_LINGER_MS = 200  # for the last word of a closing; what matters was acknowledged before
_MESSAGES_BESIDE = 1024  # room for lane messages above the bound
_MAX_ANSWER_BYTES = 1 << 16
# Messages that libzmq takes out of the kernel before the receiver asks for them. It reads them into
# buffers of 18 KB, of which a small read fills little: what waits longer does so at the sender.
_READ_AHEAD = 2048


class _ZmqPort:
    """What both ends share: options, the descriptor, the close."""

    idle: bool

    def __init__(
        self, kind: int, lane: str, max_frame_bytes: int, bound_bytes: int, read_ahead: int = 0
    ) -> None:
        self.lane = lane
        self._guard = ForkGuard()
        self._socket = context().socket(kind)
        # The high-water mark counts messages; the lane's own bound in bytes bites before.
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
        # zmq_poll is the cheapest question pyzmq has: 0.7 us, EVENTS 1.0, an Again 2.6.
        self.idle = not zmq.zmq_poll(self._pollset, 0)
        return not self.idle

    def close(self) -> None:
        if not self._socket.closed:
            self._guard.check(f"lane {self.lane}")
            self._socket.close(linger=_CLOSE_LINGER_MS)


class ZmqSenderPort(_ZmqPort):
    """Connect to a lane, whether its receiver is there already or not."""

    def __init__(self, instance: Instance, lane: str, route: str, *, bound_bytes: int) -> None:
        super().__init__(zmq.DEALER, lane, _MAX_ANSWER_BYTES, bound_bytes)
        self.send = SocketSend(self._send, _NOW, zmq.Again)  # False at the high-water mark
        # Of this socket alone: an older one of the same life may still be on its way here, and a
        # ROUTER that takes both for one leaves the connection of the younger unread for good.
        self._socket.setsockopt(zmq.ROUTING_ID, f"{route}:{secrets.token_hex(4)}".encode())
        self._socket.connect(f"ipc://{instance.lane_path(lane)}")

    @property
    def idle(self) -> bool:
        """Whether a silent descriptor means that nothing is there."""
        return self.send.idle

    @idle.setter
    def idle(self, idle: bool) -> None:
        self.send.idle = idle

    def recv(self) -> bytes | None:
        """Take one message, or None."""
        if not self.readable():
            return None
        frame: bytes = self._recv(_NOW)
        return frame


class ZmqReceiverPort(_ZmqPort):
    """Bind a lane; nobody else can while this process has it.

    The socket is bound under a name of its own and moved to the lane's: libzmq deletes whatever is
    at the path it binds, and, later and from another thread, at the path it had bound.
    """

    def __init__(
        self, instance: Instance, lane: str, *, max_frame_bytes: int, bound_bytes: int
    ) -> None:
        self._path = instance.lane_path(lane)
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
            self._inode = self._bind(instance)
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
                raise
            # Its owner is closing, or a successor in the same directory clears it out.
            raise LaneLost(f"the instance at {instance.directory} is gone") from None

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        """Append the data frame with that lane header and those that follow it in number.

        Stops after `limit` messages; returns the first other message, or None.
        """
        # One or two messages: ask first. A row of them: take, and pay one exception at its end.
        if self._streak < 2 and not self.readable():
            self._streak = 0
            return None
        before = len(out)
        other = self._socket_recv.take(limit, next_header, out)
        self._streak = 0 if self._socket_recv.idle else len(out) - before + (other is not None)
        self.idle = self._socket_recv.idle
        return other

    def realign(self) -> None:
        """Drop what is left of a message with more parts than ours have."""
        while self._socket.getsockopt(zmq.RCVMORE):
            self._recv(_NOW)

    def send(self, route: bytes, frame: bytes) -> bool:
        """Answer without waiting; False where the route is gone or full."""
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
        """Take the lane down: its socket's file is gone when this returns."""
        if self._socket.closed:
            return
        super().close()
        try:
            if os.path.samestat(os.lstat(self._path), self._inode):
                os.unlink(self._path)
        except FileNotFoundError:
            self._path = ""  # the instance is gone, and this file with it
        self._claim.release()


def _refuse_stranger(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise LaneError(f"{path} exists and is not a socket; it is left as it is")
