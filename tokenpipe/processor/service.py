"""Run one processor on its lanes, a turn at a time.

The same service runs in a process of its own (`__main__`) or inside the engine's process. It reads
and sends on the lanes. `core` decides what the rows mean, and `cadence` when to read and send.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tokenpipe.errors import FrameError, LaneError
from tokenpipe.instance import Instance
from tokenpipe.postprocess import load_vocabulary
from tokenpipe.topology import Topology
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, PeerUp, Port
from tokenpipe.wire import CloseClient, ControlQueue, Message, OpenClient, unpack_control

from .anomaly_log import AnomalyLog
from .cadence import FRAMES_PER_TURN, Ask, Cadence, End
from .client_lane import OutputSender
from .core import Processor
from .listener import Listener
from .rank_lanes import RankLanes

_log = logging.getLogger(__name__)

CONTROL_BYTES = 1 << 26  # bound of the commands, and of the reports, that are not acknowledged
OPEN_AGAIN_S = 0.5  # between two attempts to open a client's lane
MESSAGES_PER_FRAME = 64  # one message may hold all token ids of a long output


class ProcessorService:
    """A processor with its lanes: rows and commands in, output and reports out."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        index: int,
        commands: LaneReceiver,
        reports: LaneSender,
        *,
        incarnation: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the worker lanes of processor `index`. `commands` and `reports` are open lanes."""
        self.index = index
        self.incarnation = incarnation
        self.stopping = False
        self.processor = _make_processor(index, topology)
        self._instance = instance
        self._topology = topology
        self._clock = clock
        self._commands = commands
        self._reports = reports
        self._unreported = ControlQueue(MESSAGES_PER_FRAME)
        self._anomalies = AnomalyLog(index, clock)
        self._clients: dict[int, OutputSender] = {}
        self._unopened: dict[int, OpenClient] = {}  # clients that have no lane yet
        self._open_at = 0.0
        self._ranks = [
            RankLanes(instance, topology, dp, incarnation, clock) for dp in topology.ranks_of(index)
        ]
        workers = [lane for rank in self._ranks for lane in rank.lanes]
        self._cadence = Cadence(workers)
        self._cadence.used(commands, reports, self.processor)
        self._listener = Listener()
        for lane in workers:
            self._listener.add(lane.port, lane, worker=True)
        self._listener.add(commands.port, commands)
        self._listener.add(reports.port, reports)

    def turn(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for messages, and do what is due. Return whether any came."""
        cadence, clock = self._cadence, self._clock
        ask = cadence.ask(clock(), timeout_s, self._behind)
        ready = self._listener.ready(ask, lambda: cadence.seconds(clock()))
        now = clock()
        served = cadence.serve(now, ready)
        self._read_commands(served, now)  # first, so that rows of a new binding are not parked
        ranks = self._read_workers(served, now)
        self._tick(served, now)
        self._flush(served)
        for rank in ranks:
            rank.applied(served)
        self._report(served)
        return bool(ready) or ask is Ask.NOBODY

    @property
    def problem(self) -> str:
        """What is wrong with a client's lane; "" where nothing is."""
        now = self._clock()
        said = [client.lane.unheard(now) for client in self._clients.values()]
        return "; ".join(filter(None, said))

    @property
    def ports(self) -> list[Port]:
        """The ports that an outer loop waits on. It leaves out clients; each turn asks theirs."""
        workers = [lane.port for rank in self._ranks for lane in rank.lanes]
        return [*workers, self._commands.port, self._reports.port]

    @property
    def next_deadline(self) -> float:
        """When a turn is due although nothing came."""
        return self._cadence.next_deadline

    def _behind(self, now: float) -> bool:
        return any(client.behind(now) for client in self._clients.values())

    def _read_workers(self, served: set[End], now: float) -> list[RankLanes]:
        ranks = [rank for rank in self._ranks if not served.isdisjoint(rank.lanes)]
        if ranks:
            full = [rank.read(self.processor, served, FRAMES_PER_TURN, now) for rank in ranks]
            self._cadence.fed(now, any(full))
            self._cadence.used(self.processor)
        return ranks

    def _tick(self, served: set[End], now: float) -> None:
        if self.processor in served:
            self.processor.tick(now)
        if self._unopened:
            self._open_waiting(now)
        if now >= self._anomalies.due:
            self._anomalies.look(self.processor.counters, now)

    def _flush(self, served: set[End]) -> None:
        dirty = self.processor.dirty_clients()
        for index, client in self._clients.items():
            if client in served or client.stuck:
                client.poll()
            if index in dirty or client.stuck:
                client.flush(self.processor)
                self._cadence.used(client, self.processor)

    def _report(self, served: set[End]) -> None:
        self._unreported.extend(self.processor.reports())
        if self._unreported or self._reports in served:
            self._reports.poll()
            self._unreported.send(self._reports)
            self._cadence.used(self._reports)

    def _read_commands(self, served: set[End], now: float) -> None:
        lane = self._commands
        if lane not in served:
            return
        for event in lane.peer_events():
            if not isinstance(event, PeerUp):
                self.stopping = True
        for item in lane.recv(FRAMES_PER_TURN):
            try:
                if isinstance(item, Gap):
                    raise FrameError(f"{item} are lost for good")
                messages = unpack_control(item)[1]
            except FrameError as error:
                # A lost bind or abort would leave a request waiting. A new processor starts clean.
                raise LaneError(f"processor {self.index}: commands: {error}") from error
            for message in messages:
                self._command(message, now)
        lane.applied()
        lane.tick(now)

    def _command(self, message: Message, now: float) -> None:
        self.processor.command(message, now)
        self._cadence.used(self.processor)
        if isinstance(message, OpenClient):
            self._open_client(message)
        elif isinstance(message, CloseClient):
            self._close_client(message.client)

    def _open_client(self, message: OpenClient, *, again: bool = False) -> None:
        known = self._clients.get(message.client)
        if known is not None and known.client_incarnation == message.incarnation:
            return  # it is open; a second lane would number its frames from 1 again
        self._close_client(message.client)
        try:
            client = OutputSender(self._instance, self._topology, self.index, message, self._clock)
        except OSError as error:  # no descriptor is free, say: the other clients go on
            self._unopened[message.client] = message
            if not again:
                said = "processor %d: client %d must wait: %s; it is tried again"
                _log.error(said, self.index, message.client, error.strerror)
            return
        self._clients[message.client] = client
        self._listener.add(client.lane.port, client)
        self._cadence.used(client)

    def _open_waiting(self, now: float) -> None:
        if now >= self._open_at:
            self._open_at = now + OPEN_AGAIN_S
            for message in list(self._unopened.values()):
                self._open_client(message, again=True)

    def _close_client(self, index: int) -> None:
        self._unopened.pop(index, None)
        client = self._clients.pop(index, None)
        if client is not None:
            self._listener.remove(client.lane.port)
            self._cadence.forget(client)
            client.close(0.0)

    def close(self, timeout_s: float) -> None:
        """Send remaining output and reports within `timeout_s`, then close all lanes."""
        deadline = self._clock() + timeout_s
        while self._clock() < deadline and (
            self._unreported or any(c.pending(self.processor) for c in self._clients.values())
        ):
            if not self.turn(min(0.05, timeout_s)) and not self._reports.ready:
                break
        for client in self._clients.values():
            client.close(max(0.0, deadline - self._clock()))
        for rank in self._ranks:
            rank.close()
        self._reports.close(max(0.0, deadline - self._clock()))
        self._commands.close()
        self._listener.close()


def _make_processor(index: int, topology: Topology) -> Processor:
    tokenizer = topology.tokenizer
    vocabulary = None if tokenizer is None else load_vocabulary(tokenizer)
    if vocabulary is not None and vocabulary.no_table_reason:
        why = vocabulary.no_table_reason
        _log.warning("%s: %s; the tokenizer decodes one token at a time", tokenizer, why)
    return Processor(
        index=index,
        ranks=topology.ranks_of(index),
        tp_size=topology.tensor_parallel_size,
        tp_policy=topology.tp_policy,
        slots=topology.slots_per_rank,
        vocab_size=topology.vocab_size,
        eos_token_ids=topology.eos_token_ids,
        drained_timeout_s=topology.timeouts.drained_s,
        park_timeout_s=topology.timeouts.park_s,
        park_bytes=topology.bounds.park_bytes,
        merge_bytes=topology.bounds.merge_bytes,
        vocab=None if vocabulary is None else vocabulary.table,
    )
