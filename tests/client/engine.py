"""Play the engine and its processors towards clients, over real sockets, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.client.frames import Row, output_frame
from tokenpipe.instance import Instance, output_lane, own_output_lane, submit_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    LaneReceiver,
    LaneSender,
    Peer,
    PeerUp,
    Role,
    Waiter,
    new_incarnation,
    open_receiver,
    open_sender,
)
from tokenpipe.wire import Cancel, Submit, unpack_control

Reply = Callable[["FakeEngine", int, Submit | Cancel], None]


def token(key: int, offset: int) -> int:
    return (key * 7919 + offset * 31) % 50_000


def tokens(key: int, begin: int, end: int) -> list[int]:
    return [token(key, offset) for offset in range(begin, end)]


class FakeEngine:
    """One lane set per client; `reply(engine, client, message)` runs in the engine's thread."""

    def __init__(self, base: Path, topology: Topology, reply: Reply) -> None:
        self.instance = Instance.create(base, None, {"topology": topology.to_json_dict()})
        self.endpoint = self.instance.directory
        self.heard: list[Submit | Cancel] = []
        self.gone: list[int] = []  # clients that ended or died
        self.topology = topology
        self._reply = reply
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stop = threading.Event()
        self._silent = False
        processors = [Peer("processor", str(p), new_incarnation()) for p in self._processors]
        self._me = Peer("engine", "0", new_incarnation())
        self._sources = [*processors, self._me]
        self._claims = [self.instance.claim(peer.role, peer.rank) for peer in self._sources]
        self._waiter = Waiter()
        self._submits = [self._listen(index) for index in range(topology.clients)]
        self._outputs: dict[int, list[LaneSender]] = {}
        self._unsent: list[tuple[LaneSender, tuple[Row, ...]]] = []
        self._thread = threading.Thread(target=self._run, name="fake-engine")
        self._thread.start()

    @property
    def _processors(self) -> range:
        return range(self.topology.processor_count)

    def _listen(self, index: int) -> LaneReceiver:
        lane = open_receiver(
            self.instance,
            submit_lane(index),
            me=self._me,
            expects=Role("client", str(index)),
            max_frame_bytes=1 << 24,
            hold_bytes=1 << 24,
        )
        self._waiter.add(lane.port)
        return lane

    def send(self, client: int, *rows: Row, source: int = 0) -> None:
        """Send rows as processor `source`, or as the engine itself (-1). Engine thread only."""
        self._unsent.append((self._outputs[client][source], rows))

    def knows(self, client: int) -> bool:
        """Whether this client can be sent output."""
        return client in self._outputs

    def call(self, function: Callable[[], None]) -> None:
        """Run something in the engine's thread."""
        self._calls.put(function)

    def _run(self) -> None:
        while not self._stop.is_set():
            while not self._calls.empty():
                self._calls.get()()
            if not self._silent:
                self._serve()
            self._waiter.wait(0.01)

    def _serve(self) -> None:
        for index, lane in enumerate(self._submits):
            for change in lane.peer_events():
                self._close_outputs(index)
                if isinstance(change, PeerUp):
                    self._outputs[index] = self._connect(index, change.incarnation)
                else:
                    self.gone.append(index)
            for frame in lane.recv():
                assert isinstance(frame, bytes)
                for message in unpack_control(frame)[1]:
                    assert isinstance(message, Submit | Cancel)
                    self.heard.append(message)
                    self._reply(self, index, message)
            lane.applied()
            lane.tick(lane._clock())
        for lanes in self._outputs.values():
            for output in lanes:
                output.poll()
        unsent, self._unsent = self._unsent, []
        for output, rows in unsent:
            header = output.next_header
            frame = output_frame(*rows, seq=header[3], lane=header[:3])
            if output.lost or len(frame) > output.room:
                self._unsent.append((output, rows))
            else:
                output.send(frame)

    def _connect(self, index: int, incarnation: int) -> list[LaneSender]:
        names = [output_lane(p, index) for p in self._processors] + [own_output_lane(index)]
        return [
            open_sender(
                self.instance,
                lane,
                me=me,
                to=Role("client", str(index)),
                bound_bytes=1 << 22,
                receiver_incarnation=incarnation,
            )
            for lane, me in zip(names, self._sources, strict=True)
        ]

    def _close_outputs(self, index: int) -> None:
        for lane in self._outputs.pop(index, ()):
            lane.close(0.0)

    def fall_silent(self) -> None:
        """Go as a killed process goes: no word, no lock."""

        def silence() -> None:
            self._silent = True
            for claim in self._claims:
                claim.release()

        self.call(silence)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for index in list(self._outputs):
            self._close_outputs(index)
        for lane in self._submits:
            lane.close()
        self._waiter.close()
        for claim in self._claims:
            claim.release()
        self.instance.close()


@contextmanager
def fake_engine(base: Path, reply: Reply, topology: Topology | None = None) -> Iterator[FakeEngine]:
    engine = FakeEngine(base, topology or Topology(clients=2), reply)
    try:
        yield engine
    finally:
        engine.close()


def serve(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
    """Serve at once and whole: max_tokens in rows of three; give-ups end with "abort"."""
    if isinstance(message, Cancel):
        engine.send(client, Row(message.key, 0xFFFFFFFF, [], 3), source=-1)
        return
    end = message.params.max_tokens
    for begin in range(0, end, 3):
        row = tokens(message.key, begin, min(begin + 3, end))
        engine.send(client, Row(message.key, begin, row))
    engine.send(client, Row(message.key, end, [], 2))


def only_listen(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
    """Say nothing."""
