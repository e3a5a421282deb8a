"""Run one processor on its lanes, a turn at a time.

The same service runs in a process of its own (`__main__`) or inside the engine's process. It reads
and sends on the lanes. `core` decides what the rows mean, and `cadence` when to read and send.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable

from tokenpipe.errors import FrameError, LaneError
from tokenpipe.instance import Instance
from tokenpipe.topology import Topology
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, PeerUp, Port
from tokenpipe.wire import (
    CloseClient,
    ControlQueue,
    Message,
    OpenClient,
    ProcessorStarted,
    unpack_control,
)

from . import records
from .anomaly_log import AnomalyLog
from .cadence import FRAMES_PER_TURN, Ask, Cadence, End
from .client_lane import OutputSender
from .journal import Journal
from .listener import Listener
from .rank_lanes import RankLanes
from .records import LaneAt
from .replay import Backlog, Life
from .saved_state import unpack_messages

_log = logging.getLogger(__name__)

CONTROL_BYTES = 1 << 26  # bound of the commands, and of the reports, that are not acknowledged
OPEN_AGAIN_S = 0.5  # between two attempts to open a client's lane
MESSAGES_PER_FRAME = 64  # one message may hold all token ids of a long output
PAUSE_S = 0.05  # without frames for so long, what was sent is written by itself
RETRY_S = 5.0  # between two attempts to begin a journal if memory lacks


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
        life: Life,
        journal: Journal | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the worker lanes of processor `index`. `commands` and `reports` are open lanes.

        `life` is a new one (`new_life`), or one that went through a journal.
        """
        self.index = index
        self.stopping = False
        self.processor = life.processor
        self._incarnation = life.incarnation
        self._journal = journal
        self._due = clock()  # when a broken journal is begun again
        self._stepped = 0.0  # when the workers were last read
        self._instance = instance
        self._topology = topology
        self._clock = clock
        self._commands = commands
        self._reports = reports
        self._unreported = ControlQueue(MESSAGES_PER_FRAME)
        self._anomalies = AnomalyLog(index, clock)
        self._unreported.extend(life.reports)
        self._clients: dict[int, OutputSender] = {}
        # Clients that have no lane yet, and the output of an earlier lane.
        self._unopened: dict[int, tuple[OpenClient, list[bytes]]] = {}
        self._open_at = 0.0
        self._ranks = [
            RankLanes(instance, topology, rank, life.incarnation, clock, journal)
            for rank in life.ranks.values()
        ]
        workers = [lane for rank in self._ranks for lane in rank.lanes]
        self._cadence = Cadence(workers)
        self._cadence.used(commands, reports, self.processor)
        self._listener = Listener()
        for lane in workers:
            self._listener.add(lane.port, lane, worker=True)
        self._listener.add(commands.port, commands)
        self._listener.add(reports.port, reports)
        self._go_on(life)

    def turn(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for messages, and do what is due. Return whether any came."""
        cadence, clock = self._cadence, self._clock
        ask = cadence.ask(clock(), timeout_s, self._behind)
        ready = self._listener.ready(ask, lambda: cadence.seconds(clock()))
        now = clock()
        served = cadence.serve(now, ready)
        messages = self._read_commands(served, now)
        ranks = self._read_workers(served, now)
        self._write(served, now)
        for message in messages:  # first, so that rows of a new binding are not parked
            self._command(message, now)
        for rank in ranks:
            rank.feed(self.processor, now)
        self._tick(served, now)
        self._flush(served)
        self._applied(served, ranks, now)
        self._report(served)
        if self._journal is not None:
            if ranks:
                self._stepped = now
            elif now - self._stepped > PAUSE_S:  # else the next frames take what was sent along
                self._journal.write(now)
            if self._journal.long or self._journal.broken:
                self._save(now)
        return bool(ready) or ask is Ask.NOBODY

    @property
    def problem(self) -> str:
        """What is wrong with a client's lane; "" if nothing is."""
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
            full = [rank.read(served, FRAMES_PER_TURN, now) for rank in ranks]
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

    def _read_commands(self, served: set[End], now: float) -> list[Message]:
        lane = self._commands
        if lane not in served:
            return []
        for event in lane.peer_events():
            if not isinstance(event, PeerUp):
                self.stopping = True
        frames: list[bytes] = []
        messages: list[Message] = []
        for item in lane.recv(FRAMES_PER_TURN):
            try:
                if isinstance(item, Gap):
                    raise FrameError(f"{item} are lost for good")
                messages += unpack_control(item)[1]
            except FrameError as error:
                # A lost bind or abort would leave a request waiting. A new processor starts clean.
                if self._journal is not None:
                    self._journal.clear()
                raise LaneError(f"processor {self.index}: commands: {error}") from error
            frames.append(item)
        if frames and self._journal is not None:
            self._journal.add(records.commands(frames))
        lane.tick(now)
        return messages

    # --- the journal ----------------------------------------------------------------------------

    def _write(self, served: set[End], now: float) -> None:
        """Write what is about to happen. Its effects leave this process only after that."""
        if self._journal is not None:
            if self.processor in served:
                self._journal.add(records.tick())
            self._journal.write(now)

    def _applied(self, served: set[End], ranks: list[RankLanes], now: float) -> None:
        """Acknowledge what has happened: it is in the state, and in the journal."""
        if self._commands in served:
            self._commands.applied()
        for rank in ranks:
            rank.applied(served)

    def _save(self, now: float) -> None:
        """Begin the journal with an image of the present state."""
        journal = self._journal
        if journal is None or (journal.broken and now < self._due):
            return
        try:
            image = self._life().image()
        except MemoryError:  # the old image and all that follows it are there
            return
        journal.begin(image)
        if journal.broken:
            self._due = now + RETRY_S
            _log.error("processor %d has no journal: %s", self.index, journal.error)

    def _life(self) -> Life:
        reports = self._reports.window
        unread = unpack_messages(reports.between(reports.first, reports.next_seq))
        return Life(
            self._incarnation,
            self.processor,
            {rank.dp_rank: rank.rank for rank in self._ranks},
            LaneAt(*self._commands.position),
            {
                (rank.dp_rank, tp_rank): LaneAt(*lane.position)
                for rank in self._ranks
                for tp_rank, lane in enumerate(rank.lanes)
            },
            {
                **{
                    index: Backlog(message.incarnation, deque(backlog))
                    for index, (message, backlog) in self._unopened.items()
                },
                **{
                    index: Backlog(client.client_incarnation, deque(client.unacknowledged))
                    for index, client in self._clients.items()
                },
            },
            [m for m in (*unread, *self._unreported) if not isinstance(m, ProcessorStarted)],
        )

    def _go_on(self, life: Life) -> None:
        """Take up the lanes of a life that went through a journal, then begin a new journal."""
        self._commands.resume(*life.commands)
        for rank in self._ranks:
            for tp_rank, lane in enumerate(rank.lanes):
                lane.resume(*life.workers[rank.dp_rank, tp_rank])
        for index, backlog in life.clients.items():
            self._open_client(OpenClient(index, backlog.incarnation), backlog.frames)
        self._flush(set())
        self._save(self._clock())

    # --- clients --------------------------------------------------------------------------------

    def _command(self, message: Message, now: float) -> None:
        self.processor.command(message, now)
        self._cadence.used(self.processor)
        if isinstance(message, OpenClient):
            self._open_client(message)
        elif isinstance(message, CloseClient):
            self._close_client(message.client)

    def _open_client(
        self, message: OpenClient, backlog: Iterable[bytes] = (), *, again: bool = False
    ) -> None:
        known = self._clients.get(message.client)
        if known is not None and known.client_incarnation == message.incarnation:
            return  # it is open; a second lane would number its frames from 1 again
        self._close_client(message.client)
        try:
            client = OutputSender(
                self._instance,
                self._topology,
                self.index,
                message,
                self._clock,
                self._journal,
                backlog,
            )
        except OSError as error:  # no descriptor is free, say: the other clients go on
            self._unopened[message.client] = message, list(backlog)
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
            for message, backlog in list(self._unopened.values()):
                self._open_client(message, backlog, again=True)

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
