"""Close connections whose peers send a message without an end.

libzmq keeps the parts of a message until the last part has come, without a bound. It gives out no
part before, and it does not say how much it keeps. But the kernel counts the bytes that were read
from a connection, and the port counts the bytes that it received. The difference is unfinished.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct

import zmq

from .context import context

SO_PEEK_OFF = (
    42  # an offset for MSG_PEEK, which libzmq never uses; each read reduces it by its size
)
SO_COOKIE = 57  # a number that the kernel gives to one socket only
_START = (1 << 31) - 1  # the largest offset
_SLACK = 1 << 16  # unfinished bytes that mean nothing: handshakes, and reads while this looks
_EVENT = struct.Struct("=HI")  # the first part of a monitor's message: event, descriptor


class _Connection:
    """One accepted connection. libzmq owns its descriptor and may close it at any time."""

    def __init__(self, fd: int) -> None:
        self.read = 0  # bytes that libzmq has read from it
        self.before = 0  # the same at the last look that found nothing unfinished
        self._fd = fd
        self._counted = 0
        with self._borrow() as sock:
            self._cookie = _cookie(sock)
            sock.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, _START)

    def _borrow(self) -> socket.socket:
        fd = os.dup(self._fd)
        try:
            return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
        except OSError:  # the number is another file's by now
            os.close(fd)
            raise

    def update(self) -> bool:
        """Read the kernel's count. Return False if the connection is closed."""
        try:
            with self._borrow() as sock:
                if _cookie(sock) != self._cookie:
                    return False
                left = sock.getsockopt(socket.SOL_SOCKET, SO_PEEK_OFF)
                self.read = self._counted + _START - left
                if left < _START // 2:
                    sock.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, _START)
                    self._counted = self.read
        except OSError:
            return False
        return True

    def shut(self) -> None:
        """End the connection. libzmq then closes it and drops the message without an end."""
        with self._borrow() as sock:
            if _cookie(sock) == self._cookie:
                sock.shutdown(socket.SHUT_RDWR)


def _cookie(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)


class ConnectionWatch:
    """Watch the connections that a bound socket accepts.

    More than `bound` unfinished bytes close the connections that sent them. While messages wait to
    be received, they count as unfinished too; then the bound is higher by `backlog` bytes. With
    several connections, those that sent little stay. A peer of a lane that is closed by mistake
    connects again, and the lane sends again what is missing.
    """

    def __init__(self, watched: zmq.Socket[bytes], bound: int, backlog: int) -> None:
        self.closed = 0
        self._bound = bound
        self._backlog = backlog
        self._taken = 0  # bytes that had been received at the last look with nothing unfinished
        self._connections: list[_Connection] = []
        self._watched = watched
        address = f"inproc://watch-{secrets.token_hex(8)}"
        watched.monitor(address, zmq.EVENT_ACCEPTED)
        self._events = context().socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.RCVHWM, 0)  # with a bound, libzmq would wait for this reader
        self._events.connect(address)

    def look(self, taken: int, waiting: bool) -> bool:
        """Close what is above the bound. Return whether much is unfinished: then look again soon.

        `taken`: bytes that were received so far. `waiting`: whether messages wait to be received.
        """
        self._accept()
        connections = self._connections = [c for c in self._connections if c.update()]
        unfinished = sum(c.read - c.before for c in connections) - (taken - self._taken)
        if unfinished <= _SLACK:
            self._taken = taken
            for connection in connections:
                connection.before = connection.read
            return False
        if unfinished > self._bound + self._backlog * waiting:
            share = unfinished // len(connections)
            for connection in [c for c in connections if c.read - c.before >= share]:
                connection.shut()
                connections.remove(connection)
                self.closed += 1
        return unfinished > self._bound // 8

    def _accept(self) -> None:
        while self._events.poll(0):
            event, fd = _EVENT.unpack(self._events.recv_multipart()[0])
            if event == zmq.EVENT_ACCEPTED:
                try:
                    self._connections.append(_Connection(fd))
                except OSError:
                    continue  # it is closed already

    def close(self) -> None:
        """Stop watching. Call it before the watched socket is closed."""
        self._watched.monitor(None, 0)
        self._events.close(linger=0)
