"""Time a bare pyzmq send, which is what publish and a hand-off are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import zmq

from tokenpipe.bench.samples import Samples

from .processes import START_S, BenchProcess
from .rivals.links import ZmqLinks

LINK = "bare"


class BareSend:
    """Send `size` bytes at each call, and time the send alone."""

    def __init__(self, links: ZmqLinks, size: int, clock: Callable[[], int]) -> None:
        """Connect to the reader. `clock` returns ns."""
        self.took = Samples()
        self._socket: zmq.Socket[bytes] = links.sender(LINK)
        self._size = size
        self._clock = clock

    def __call__(self) -> None:
        """Send one message."""
        clock, send = self._clock, self._socket.send  # not looked up within the time
        frame = bytes(self._size)
        begin = clock()
        send(frame)
        self.took.add(clock() - begin)

    def end(self) -> None:
        """Tell the reader that no message follows."""
        self._socket.send(b"")


def read(pipe: Connection, links: ZmqLinks) -> None:
    """Read the messages of a BareSend until its end."""
    receiver = links.receiver(LINK)
    pipe.send("ready")
    while receiver.recv():
        pass
    pipe.recv()


@contextmanager
def bare_reader(links: ZmqLinks) -> Iterator[None]:
    """Run a process that reads the messages of a BareSend."""
    process = BenchProcess("bare reader", read, links)
    try:
        process.receive(START_S)
        yield
    finally:
        process.stop()
