"""Drive one processor: lanes in, lanes out, one turn at a time.

The same service runs as a process of its own (`__main__`) and inline in the engine's process. It
is the only part of this room that knows sockets, and it decides nothing about rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tokenpipe.errors import FrameError, LaneError
from tokenpipe.instance import Instance
from tokenpipe.postprocess import load_vocabulary
from tokenpipe.topology import Topology
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, PeerUp, Port, Waiter
from tokenpipe.wire import CloseClient, ControlQueue, Message, OpenClient, unpack_control

from .core import Processor
from .oddities import Oddities
from .outlets import ClientOutlet
from .ranks import RankLanes

_log = logging.getLogger(__name__)

CONTROL_BYTES = 1 << 26  # commands or reports that the other side has not applied
MESSAGES_PER_FRAME = 64  # each may carry all ids of a long output
FRAMES_PER_TURN = 32  # of one lane: keeps a turn short, and an item of a slow reader small
# Between two reads of the workers, where one floods and a client is behind. 16 steps a ms are more
# than any model makes; where somebody makes more, it goes out in small items instead of in heaps.
PACE_S = 0.002
# How often a turn that follows another at once looks at what only time or the other side changes;
# under a flood, at commands and acknowledgements too.
LOOK_S = 0.001


class ProcessorService:
    """A processor with its lanes: workers and commands in, clients and reports out."""

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
        """Bind the worker lanes of processor `index`; `commands` and `reports` are handed in."""
        self.index = index
        self.incarnation = incarnation
        self._instance = instance
        self._topology = topology
        self._clock = clock
        self._commands = commands
        self._reports = reports
        self._unreported = ControlQueue(MESSAGES_PER_FRAME)
        self._waiter = Waiter()
        self._beside = Waiter()  # all but the workers
        self._read_due = 0.0
        self._look_due = 0.0
        self._oddities = Oddities(index, clock)
        tokenizer = topology.tokenizer
        vocabulary = None if tokenizer is None else load_vocabulary(tokenizer)
        if vocabulary is not None and vocabulary.no_table_reason:
            why = vocabulary.no_table_reason
            _log.warning("%s: %s; the tokenizer decodes one token at a time", tokenizer, why)
        self.processor = Processor(
            index=index,
            ranks=topology.ranks_of(index),
            tp_size=topology.tensor_parallel_size,
            tp_policy=topology.tp_policy,
            slots=topology.slots_per_rank,
            vocab_size=topology.vocab_size,
            eos_token_ids=topology.eos_token_ids,
            marker_timeout_s=topology.timeouts.drained_s,
            park_timeout_s=topology.timeouts.park_s,
            park_bytes=topology.bounds.park_bytes,
            merge_bytes=topology.bounds.merge_bytes,
            vocab=None if vocabulary is None else vocabulary.table,
        )
        self._ranks = [
            RankLanes(instance, topology, dp, self.incarnation, clock)
            for dp in topology.ranks_of(index)
        ]
        self._outlets: dict[int, ClientOutlet] = {}
        for rank in self._ranks:
            for lane in rank.lanes:
                self._waiter.add(lane.port)
        for waiter in (self._waiter, self._beside):
            waiter.add(commands.port)
            waiter.add(reports.port)
        self.stopping = False

    def turn(self, timeout_s: float) -> bool:
        """Wait for something to do, do it; False when nothing had come in `timeout_s`."""
        now = self._clock()
        pause_s = self._read_due - now if timeout_s > 0 else 0.0
        if pause_s > 0 and any(outlet.behind(now) for outlet in self._outlets.values()):
            flood = False
            busy = self._beside.wait(min(pause_s, self._wait_s(timeout_s)))
        else:
            pause_s = 0.0
            flood = self._read_due > 0.0  # a worker had more than was read: nothing to ask for
            busy = flood or self._waiter.pending() or self._waiter.wait(self._wait_s(timeout_s))
        now = self._clock()
        look = not busy or now >= self._look_due
        if look:
            self._look_due = now + LOOK_S
        ask = look or not flood  # a flood leaves no time to ask each socket with each turn
        if look or (ask and self._commands.port.readable()):
            self._read_commands(now)  # first: rows of a bind that is there need not be parked
        if not pause_s or now >= self._read_due:
            full = [rank.read(self.processor, FRAMES_PER_TURN, now) for rank in self._ranks]
            self._read_due = now + PACE_S if any(full) else 0.0
        if look and (deadline := self.processor.next_deadline) is not None and deadline <= now:
            self.processor.tick(now)
        if now >= self._oddities.due:
            self._oddities.look(self.processor.counters, now)
        dirty = self.processor.dirty_clients()
        for client, outlet in self._outlets.items():
            if ask or outlet.stuck:
                outlet.poll()
            if client in dirty or outlet.stuck:
                outlet.flush(self.processor)
        for rank in self._ranks:
            rank.applied()
        self._unreported.extend(self.processor.reports())
        if look or self._unreported or (ask and self._reports.port.readable()):
            self._send_reports()
        return busy

    @property
    def ports(self) -> list[Port]:
        """What to wait on where the service runs inline; clients' lanes are polled."""
        workers = [lane.port for rank in self._ranks for lane in rank.lanes]
        return [*workers, self._commands.port, self._reports.port]

    @property
    def next_deadline(self) -> float:
        """When a turn is due though nothing came."""
        deadlines = [self._commands.next_deadline, self._reports.next_deadline]
        deadlines += [lane.next_deadline for rank in self._ranks for lane in rank.lanes]
        deadlines += [outlet.next_deadline for outlet in self._outlets.values()]
        if (own := self.processor.next_deadline) is not None:
            deadlines.append(own)
        return min(deadlines)

    def _wait_s(self, timeout_s: float) -> float:
        return max(0.0, min(timeout_s, self.next_deadline - self._clock()))

    def _read_commands(self, now: float) -> None:
        lane = self._commands
        for change in lane.peer_events():
            if not isinstance(change, PeerUp):
                self.stopping = True
        for item in lane.recv(FRAMES_PER_TURN):
            try:
                if isinstance(item, Gap):
                    raise FrameError(f"{item} are lost for good")
                messages = unpack_control(item)[1]
            except FrameError as error:
                # Going on without a bind or an abort would hang a request; a new life does not.
                raise LaneError(f"processor {self.index}: commands: {error}") from error
            for message in messages:
                self._command(message, now)
        lane.applied()
        lane.tick(now)

    def _command(self, message: Message, now: float) -> None:
        self.processor.command(message, now)
        if isinstance(message, OpenClient):
            known = self._outlets.get(message.client)
            if known is not None and known.client_incarnation == message.incarnation:
                return  # said twice; a second lane from us would begin at 1 again
            self._close_outlet(message.client)
            outlet = ClientOutlet(self._instance, self._topology, self.index, message, self._clock)
            self._outlets[message.client] = outlet
            self._waiter.add(outlet.lane.port)
            self._beside.add(outlet.lane.port)
        elif isinstance(message, CloseClient):
            self._close_outlet(message.client)

    def _close_outlet(self, client: int) -> None:
        outlet = self._outlets.pop(client, None)
        if outlet is not None:
            self._waiter.remove(outlet.lane.port)
            self._beside.remove(outlet.lane.port)
            outlet.close(0.0)

    def _send_reports(self) -> None:
        self._reports.poll()
        self._unreported.send(self._reports)

    def close(self, timeout_s: float) -> None:
        """Hand out what is left within `timeout_s`, then close every lane."""
        deadline = self._clock() + timeout_s
        while self._clock() < deadline and (
            self._unreported or any(o.pending(self.processor) for o in self._outlets.values())
        ):
            if not self.turn(min(0.05, timeout_s)) and not self._reports.ready:
                break
        for outlet in self._outlets.values():
            outlet.close(max(0.0, deadline - self._clock()))
        for rank in self._ranks:
            rank.close()
        self._reports.close(max(0.0, deadline - self._clock()))
        self._commands.close()
