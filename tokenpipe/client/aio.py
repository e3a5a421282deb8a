"""The client in an event loop: one reader on one descriptor, one timer, no task of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from weakref import WeakMethod

from typing_extensions import Self

from tokenpipe.errors import LaneClosed, LaneLost, TokenpipeError
from tokenpipe.instance import ForkGuard, Instance, when_dropped
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams

from .client_core import ClientCore
from .flush import flush
from .lanes import Lanes
from .opening import open_lanes
from .sending import send_requests
from .streams import AsyncSamples, AsyncStream


class AsyncClient:
    """Submit requests and iterate over their output.

    The request is submitted by `generate` itself, not by its first item. A request that the engine
    ends with an error, or refuses, ends with an output whose `finish_reason` is "error"; where the
    engine itself is gone, LaneLost is raised after what had arrived. Leaving an iterator early (and
    letting it go) gives the request up.
    """

    def __init__(
        self, endpoint: str | os.PathLike[str] | None = None, *, name: str | None = None
    ) -> None:
        self._endpoint = endpoint
        self._name = f"client-{os.getpid()}-{id(self):x}" if name is None else name
        self._guard = ForkGuard()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # kept here: uvloop's handle of a time that has come does not know it
        self._scheduled = False
        self._lanes: Lanes | None = None
        self._weak_tick = _weak(self._tick)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Find the instance and wait for its welcome. Raises LaneLost, LaneBusy, StartupError."""
        instance = Instance.attach(self._endpoint)
        topology = Topology.from_json_dict(instance.info["topology"])
        self._loop = loop = asyncio.get_running_loop()
        # In a thread, because it waits for the engine, which may live in this very loop.
        opening = loop.run_in_executor(None, open_lanes, instance, topology, self._name)
        try:
            lanes = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        self.attach(lanes, topology)

    def attach(self, lanes: Lanes, topology: Topology) -> None:
        """Begin to serve over lanes that are ready."""
        self._loop = asyncio.get_running_loop()
        self._lanes = lanes
        self._close_s = topology.timeouts.close_s
        self._core = ClientCore(
            incarnation=lanes.me.incarnation,
            stream_type=AsyncStream,
            stream_bytes=topology.bounds.stream_bytes,
            ahead_s=topology.timeouts.client_ahead_s,
            vocab_size=topology.vocab_size,
            loop=self._loop,
            on_outgoing=self._soon,
        )
        what = f"AsyncClient {lanes.me.rank}"
        self._keep = when_dropped(self, what, partial(_give_back, self._loop, lanes))
        # The loop holds nobody who was let go; who waits for a stream holds its client.
        self._loop.add_reader(lanes.waiter.fileno(), _weak(self._readable))
        self._turn()  # what came before the reader was there rings no bell

    # --- requests -------------------------------------------------------------------------------

    def generate(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        extra: bytes = b"",
    ) -> AsyncStream | AsyncSamples:
        """Submit a request and return its output, to be read with `async for`.

        With n > 1 the outputs of all samples come as they are made, told apart by `index`. Raises
        ValueError for a wrong argument, a prompt token outside of `vocab_size` among them, LaneFull
        where the engine does not keep up, LaneLost.
        """
        lanes = self._open_lanes()
        submits = self._core.expand(prompt_token_ids, params or SamplingParams(), request_id, extra)
        streams = send_requests(lanes, self._core, submits)
        return streams[0] if len(streams) == 1 else AsyncSamples(streams, self._loop)

    def abort(self, request_id: str) -> int:
        """Ask for the end of all live requests of that id; return how many there are.

        Each still gets its final output, finish reason "abort". Asking again changes nothing.
        """
        self._open_lanes()
        return self._core.abort(request_id)

    @property
    def open_requests(self) -> int:
        """How many requests have not ended."""
        return len(self._core)

    @property
    def lost(self) -> TokenpipeError | None:
        """What ended this client, None while it can be used; a new one may find the next engine."""
        if self._lanes is None:
            return LaneClosed("this client is not open")
        return self._core.error

    @property
    def counters(self) -> dict[str, int]:
        """Return counts so far."""
        return self._core.counters

    @property
    def index(self) -> int:
        """The client's place in the instance."""
        return int(self._open_lanes().me.rank)

    # --- the loop -------------------------------------------------------------------------------

    def _open_lanes(self) -> Lanes:
        self._guard.check("AsyncClient")
        if self._lanes is None:
            raise LaneClosed("this client is not open")
        return self._lanes

    def _readable(self) -> None:
        if not self._scheduled:  # else a turn is on its way, behind the consumers it must not pass
            self._turn()

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self._turn()

    def _turn(self) -> None:
        """Read a bounded number of frames and let their consumers run."""
        lanes, core = self._lanes, self._core
        if lanes is None:
            return
        try:
            now = time.monotonic()
            more = core.error is None and lanes.read(core, now, core.frames_at_once)
            lanes.applied()
            flush(lanes, core)
            if more:
                self._soon()
            self._arm(now)
        except BaseException as error:
            # Nobody would ever wake the consumers again: they hear of it before the loop does.
            core.fail(LaneLost(f"the client failed: {error!r}"))
            core.wake()
            raise
        try:
            core.wake(at_once=True)
        except BaseException:
            self._soon()  # one consumer stops the loop; the others' turn comes if it goes on
            raise

    def _tick(self) -> None:
        self._timer = None
        if self._lanes is not None:
            now = time.monotonic()
            self._lanes.tick(now)
            self._core.tick(now)
            self._readable()

    def _arm(self, now: float) -> None:
        """Have `_tick` called at the earliest deadline."""
        assert self._lanes is not None
        deadline = self._lanes.next_deadline
        if (own := self._core.next_deadline) is not None:
            deadline = min(deadline, own)
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._weak_tick)

    def _soon(self) -> None:
        """Have `_turn` called when this turn of the loop is over, from whatever thread."""
        if self._scheduled or self._lanes is None or self._loop.is_closed():
            return
        self._scheduled = True
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(self._scheduled_turn)
        else:  # a stream was let go elsewhere
            self._loop.call_soon_threadsafe(self._scheduled_turn)

    # --- the end --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give up what is open and leave; the lanes are ended within the topology's deadline."""
        if self._lanes is None:
            return
        lanes, self._lanes = self._lanes, None
        self._keep()
        self._loop.remove_reader(lanes.waiter.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gone = self._core.error is not None
        self._core.fail(LaneClosed("the client was closed"))
        self._core.wake()
        # Not in the loop: it waits for the engine's word.
        await asyncio.to_thread(lanes.close, 0.0 if gone else self._close_s)


def _close_unwanted(opening: asyncio.Future[Lanes]) -> None:
    with suppress(Exception):  # it failed to open, so there is nothing to close
        opening.result().close(0.0)


def _weak(method: Callable[[], None]) -> Callable[[], None]:
    """Return what calls a method as long as its object is there."""
    known = WeakMethod(method)

    def call() -> None:
        if (there := known()) is not None:
            there()

    return call


def _give_back(loop: asyncio.AbstractEventLoop, lanes: Lanes) -> None:
    """Close the lanes of a client that was let go, where its loop does not look at them."""
    if loop.is_running() and asyncio._get_running_loop() is not loop:
        loop.call_soon_threadsafe(_give_back, loop, lanes)
        return
    if not loop.is_closed():
        loop.remove_reader(lanes.waiter.fileno())
    lanes.close(0.0)
