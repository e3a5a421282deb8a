"""The client for asyncio: one reader on one descriptor and one timer. It starts no task."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from weakref import WeakMethod

from typing_extensions import Self

from tokenpipe.errors import ForkError, LaneClosed, LaneLost, TokenpipeError, afresh
from tokenpipe.instance import Instance, OwnerGuard, when_dropped
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams

from .await_port import await_port
from .client_core import ClientCore
from .engine_return import EngineReturn
from .lanes import Lanes
from .opening import Opening
from .send_outgoing import send_outgoing
from .sending import send_requests
from .streams import AsyncSamples, AsyncStream


class AsyncClient:
    """Submits requests and returns iterators over their output.

    `generate` submits the request; iterating only reads. If the engine refuses a request or ends it
    with an error, or is gone, the last output has the `finish_reason` "error". To cancel a request,
    close its iterator or drop the last reference to it.

    If `policies.engine` says that a dead engine is started again, the client attaches to the new
    engine by itself. Requests without output go there.
    """

    def __init__(
        self, endpoint: str | os.PathLike[str] | None = None, *, name: str | None = None
    ) -> None:
        self._endpoint = endpoint
        self._name = f"client-{os.getpid()}-{id(self):x}" if name is None else name
        self._guard = OwnerGuard()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # kept here, because uvloop's handle forgets its time when it is due
        self._scheduled = False
        self._lanes: Lanes | None = None
        self._return: EngineReturn | None = None  # while the engine is started again
        self._engines_lost = 0
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
        try:
            await self.aclose()
        except ForkError:  # a forked child leaves the block of its parent
            if error is None:
                raise

    async def open(self) -> None:
        """Connect to the instance. Raises ConfigError, LaneLost, LaneBusy, StartupError."""
        instance = Instance.attach(self._endpoint)
        self._endpoint = instance.directory
        topology = Topology.from_json_dict(instance.info["topology"])
        # The engine may run in this loop, so nothing blocks. No thread waits for the engine: the
        # exit of the loop would wait for the thread.
        opening = Opening(instance, topology, self._name)
        try:
            while (lanes := opening.lanes()) is None:
                await await_port(opening.submits.port, opening.next_s)
            self.attach(lanes, topology)
        finally:
            opening.close()

    def attach(self, lanes: Lanes, topology: Topology) -> None:
        """Begin to read lanes that are ready."""
        self._loop = asyncio.get_running_loop()
        self._guard.check("AsyncClient")  # the loop's thread owns it
        self._close_s = topology.timeouts.close_s
        self._recover_s = topology.recover_s
        self._core = ClientCore(
            incarnation=lanes.me.incarnation,
            stream_type=AsyncStream,
            stream_bytes=topology.bounds.stream_bytes,
            ahead_s=topology.timeouts.client_ahead_s,
            vocab_size=topology.vocab_size,
            max_frame_bytes=topology.bounds.max_frame_bytes,
            loop=self._loop,
            on_outgoing=self._soon,
            restarts=topology.policies.engine == "restart" and self._endpoint is not None,
            most_waiting=topology.max_queued_requests,
        )
        self._read_from(lanes)

    def _read_from(self, lanes: Lanes) -> None:
        self._lanes = lanes
        what = f"AsyncClient {lanes.me.rank}"
        self._cancel_release = when_dropped(self, what, partial(_release, self._loop, lanes))
        # The loop must not keep a dropped client alive. A consumer that waits keeps its client.
        self._loop.add_reader(lanes.waiter.fileno(), _weak(self._readable))
        self._turn()  # the descriptor is not readable for frames that came before add_reader

    # --- requests -------------------------------------------------------------------------------

    def generate(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        extra: bytes = b"",
    ) -> AsyncStream | AsyncSamples:
        """Submit a request and return its output; read it with `async for`.

        With n > 1 the outputs of all samples come in the order in which they are made; `index` is
        the sample. Raises ValueError for a wrong argument, such as a prompt token outside of
        `vocab_size`; LaneFull if the engine is too slow; LaneLost.

        Args:
            prompt_token_ids: token ids, each at least 0 and less than `vocab_size`.
            params: how to sample and when to end; None for the defaults.
            request_id: the id of the outputs; None for a new one.
            extra: bytes for the engine's executor, at most 64 MiB.
        """
        self._check_open()
        submits = self._core.expand(prompt_token_ids, params or SamplingParams(), request_id, extra)
        streams = send_requests(self._lanes, self._core, submits)
        return streams[0] if len(streams) == 1 else AsyncSamples(streams, self._loop)

    def abort(self, request_id: str) -> int:
        """Ask the engine to end all live requests with this id; return how many there are.

        Each request still gets its final output, with the finish reason "abort". A second call
        changes nothing.
        """
        self._check_open()
        return self._core.abort(request_id)

    @property
    def open_requests(self) -> int:
        """The number of requests that have not ended."""
        return len(self._core)

    @property
    def lost(self) -> TokenpipeError | None:
        """The error that ended this client, None while it can be used.

        After LaneLost a new client may find another engine.
        """
        if self._lanes is None and self._return is None:
            return LaneClosed("this client is not open")
        return self._core.error

    @property
    def away(self) -> TokenpipeError | None:
        """Why the engine is away while it is started again, None while it is there.

        Requests wait for it meanwhile, at most `timeouts.recover_s`.
        """
        return None if self._return is None else self._core.away

    @property
    def engines_lost(self) -> int:
        """How often the engine died and was looked for again. It may be away for a moment only."""
        return self._engines_lost

    @property
    def counters(self) -> dict[str, int]:
        """The counts so far, by name."""
        return self._core.counters

    @property
    def index(self) -> int:
        """The client's index in the instance. It may change when the engine is started again."""
        self._check_open()
        if self._lanes is None:
            raise afresh(self._core.away or LaneClosed("this client is not open"))
        return int(self._lanes.me.rank)

    # --- the loop -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._guard.check("AsyncClient")
        if self._lanes is None and self._return is None:
            raise LaneClosed("this client is not open")

    def _readable(self) -> None:
        if not self._scheduled:  # else the next turn is scheduled to run after the consumers
            self._turn()

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self._turn()

    def _turn(self) -> None:
        """Read a bounded number of frames and wake their consumers."""
        lanes, core = self._lanes, self._core
        if lanes is None:
            return
        try:
            now = time.monotonic()
            more = core.error is None and lanes.read(core, now, core.frames_at_once)
            lanes.applied()
            send_outgoing(lanes, core)
            if core.away is not None:
                self._leave(lanes)
            elif more:
                self._soon()
            self._arm(now)
        except BaseException as error:
            # After this no turn would wake the consumers again, so they get the error now.
            core.fail(LaneLost(f"the client failed: {error!r}"))
            core.wake()
            raise
        try:
            core.wake(at_once=True)
        except BaseException:
            self._soon()  # a consumer stopped the loop; if the loop goes on, the others still wake
            raise

    def _tick(self) -> None:
        self._timer = None
        if self._return is not None:
            self._try_return(self._return)
        elif self._lanes is not None:
            now = time.monotonic()
            self._lanes.tick(now)
            self._core.tick(now)
            self._readable()

    def _leave(self, lanes: Lanes) -> None:
        """Close the lanes to a dead engine, and begin to look for the next one."""
        self._lanes = None
        self._engines_lost += 1
        self._cancel_release()
        self._loop.remove_reader(lanes.waiter.fileno())
        lanes.close(0.0)
        assert self._endpoint is not None
        self._return = EngineReturn(
            self._endpoint, self._name, lanes.me.incarnation, self._recover_s, lanes.engine_gone
        )
        what = f"AsyncClient {lanes.me.rank}"
        self._cancel_release = when_dropped(self, what, self._return.close)

    def _try_return(self, looking: EngineReturn) -> None:
        """Attach to the new engine if it is there."""
        try:
            lanes = looking.step()
        except LaneLost as error:
            self._core.give_up(error)
            self._core.wake()
            return
        if lanes is None:
            self._arm(time.monotonic())
            return
        self._return = None
        self._cancel_release()
        self._core.engine_back()
        self._read_from(lanes)

    def _arm(self, now: float) -> None:
        """Schedule `_tick` for the earliest deadline."""
        if self._return is not None:
            deadline = now + self._return.next_s
        else:
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
        """Schedule `_turn` for the loop's next iteration. Any thread may call this."""
        if self._scheduled or self._lanes is None or self._loop.is_closed():
            return
        self._scheduled = True
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(self._scheduled_turn)
        else:  # another thread dropped a stream
            self._loop.call_soon_threadsafe(self._scheduled_turn)

    # --- the end --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Cancel all open requests and close the lanes, within `timeouts.close_s`."""
        if self._lanes is None and self._return is None:
            return
        self._guard.check("AsyncClient")  # the loop's selector is shared with the parent
        lanes, self._lanes = self._lanes, None
        looking, self._return = self._return, None
        self._cancel_release()
        if looking is not None:
            looking.close()
        if lanes is not None:
            self._loop.remove_reader(lanes.waiter.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gone = self._core.error is not None
        self._core.fail(LaneClosed("the client was closed"))
        self._core.wake()
        if lanes is not None:
            await lanes.aclose(0.0 if gone else self._close_s)


def _weak(method: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `method` while its object is alive."""
    known = WeakMethod(method)

    def call() -> None:
        if (there := known()) is not None:
            there()

    return call


def _release(loop: asyncio.AbstractEventLoop, lanes: Lanes) -> None:
    """Close the lanes of a dropped client, in the thread of its loop if the loop runs."""
    if loop.is_running() and asyncio._get_running_loop() is not loop:
        loop.call_soon_threadsafe(_release, loop, lanes)
        return
    if not loop.is_closed():
        loop.remove_reader(lanes.waiter.fileno())
    lanes.close(0.0)
