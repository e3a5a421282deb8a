"""The client without an event loop. It reads its lanes while the caller waits for output."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tokenpipe.errors import FrameError, LaneClosed, LaneError, LaneLost
from tokenpipe.instance import Instance, OwnerGuard, close_at_exit, when_dropped
from tokenpipe.topology import Topology
from tokenpipe.types import RequestOutput, SamplingParams
from tokenpipe.wire import Cancel, Message, OutputFrame

from .client_core import ClientCore
from .engine_return import EngineReturn
from .frame_queue import FrameQueue
from .lanes import Lanes
from .live_rows import LiveRows
from .opening import open_lanes
from .send_outgoing import send_outgoing
from .sending import send_requests
from .streams import SyncStream

FRAMES_PER_READ = 16  # of `frames`


class Client:
    """Submits requests and reads their output; the calls block.

    For one thread: the first one that calls a method owns it. A call in another thread raises
    WrongThread. Another thread may close it while its owner does not wait in a call.

    There are two ways. `generate` returns an iterator of RequestOutput. `submit` sends a request,
    and `frames` yields whole frames of columns and reads no row. Errors are those of AsyncClient.
    """

    def __init__(
        self, endpoint: str | os.PathLike[str] | None = None, *, name: str | None = None
    ) -> None:
        instance = Instance.attach(endpoint)
        topology = Topology.from_json_dict(instance.info["topology"])
        self._name = f"client-{os.getpid()}-{id(self):x}" if name is None else name
        lanes = open_lanes(instance, topology, self._name)
        self._serve(lanes, topology, instance.directory)

    @classmethod
    def over(cls, lanes: Lanes, topology: Topology) -> Self:
        """Return a client on lanes that are ready."""
        client = cls.__new__(cls)
        client._serve(lanes, topology)
        return client

    def _serve(self, lanes: Lanes, topology: Topology, endpoint: Path | None = None) -> None:
        self._guard = OwnerGuard()
        self._endpoint = endpoint
        self._return: EngineReturn | None = None  # from the engine's death on
        self._close_s = topology.timeouts.close_s
        self._recover_s = topology.recover_s
        self._closed = False
        self._read_from(lanes)
        self._queue = FrameQueue()
        self._live = LiveRows()
        self._columns = False
        self._core = ClientCore(
            incarnation=lanes.me.incarnation,
            stream_type=SyncStream,
            stream_bytes=topology.bounds.stream_bytes,
            ahead_s=topology.timeouts.client_ahead_s,
            vocab_size=topology.vocab_size,
            max_frame_bytes=topology.bounds.max_frame_bytes,
            restarts=topology.policies.engine == "restart" and endpoint is not None,
            most_waiting=topology.max_queued_requests,
        )

    def _read_from(self, lanes: Lanes) -> None:
        self._lanes = lanes
        what = f"Client {lanes.me.rank}"
        self._cancel_release = when_dropped(self, what, partial(lanes.close, 0.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        close_at_exit(self.close, error)

    # --- requests -------------------------------------------------------------------------------

    def generate(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        extra: bytes = b"",
    ) -> Iterator[RequestOutput]:
        """Submit a request and return its output. With n > 1 `index` is the sample.

        Arguments and errors are those of `AsyncClient.generate`.
        """
        self._check()
        self._attached(None)
        if self._columns:
            raise LaneError("this client reads frames(); use another client for generate()")
        submits = self._core.expand(prompt_token_ids, params or SamplingParams(), request_id, extra)
        streams = send_requests(self._lanes, self._core, submits)
        for stream in streams:
            stream.wait = self._wait_for_more
        return streams[0] if len(streams) == 1 else self._samples(deque(streams))

    def _samples(self, streams: deque[SyncStream]) -> Iterator[RequestOutput]:
        while streams:
            items = [(stream, stream.take()) for stream in streams]
            for stream, item in items:
                if stream.over:
                    streams.remove(stream)
                if item is not None:
                    yield item
            if all(item is None for _, item in items) and streams:
                self._wait(None)

    def submit(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        extra: bytes = b"",
    ) -> int:
        """Submit a request and return its key. `frames` yields its rows; their `keys` have it.

        With n > 1 the samples have this key, this key + 1, and so on.
        """
        self._check()
        if len(self._core):
            raise LaneError("generate() is in use; use another client for submit() and frames()")
        wanted = params or SamplingParams()
        submits = self._core.expand(prompt_token_ids, wanted, request_id, extra, streamed=False)
        self._columns = True
        self._send(submits)
        self._live.add(submit.key for submit in submits)
        return submits[0].key

    def cancel(self, key: int) -> None:
        """Ask the engine to end a submitted request. Its final row still comes."""
        self._check()
        self._send([Cancel(key)])

    def abort(self, request_id: str) -> int:
        """Ask the engine to end all live requests of `generate` with this id; return how many."""
        self._check()
        count = self._core.abort(request_id)
        if self._return is None:
            send_outgoing(self._lanes, self._core)
        return count

    def frames(self, timeout_s: float | None = None) -> Iterator[OutputFrame]:
        """Yield frames as they come. Return when none came for `timeout_s` seconds.

        A frame counts as taken when the next frame is asked for. `offsets` says where each row
        begins in its request. Apply rows by offset: after a reschedule to another processor a
        request's rows come over another lane and may overtake earlier ones, and after a processor's
        death tokens, text and extras may come again. A request has one final row, and no row after
        it. The offset of a final row is 2^32-1 if nobody knows it: the request ends where it is.
        """
        self._check()
        self._columns = True
        queue = self._queue
        while True:
            while queue.frames:
                frame = queue.frames.popleft()
                try:
                    output = OutputFrame.unpack(frame)
                except FrameError:
                    queue.bad_frames += 1
                    continue
                self._live.careful = queue.repeats
                live = self._live.take(output)
                if live is not None:
                    yield live
            if queue.error is not None:
                error, queue.error = queue.error, None
                raise error
            if not self._wait(timeout_s):
                return

    @property
    def counters(self) -> dict[str, int]:
        """The counts so far, by name."""
        return self._core.counters

    # --- reading --------------------------------------------------------------------------------

    def _check(self) -> None:
        self._guard.check("Client")
        if self._closed:
            raise LaneClosed("the client was closed")

    def _wait_for_more(self) -> None:
        self._wait(None)

    def _wait(self, timeout_s: float | None) -> bool:
        """Read the lanes, and wait if nothing is there. Return False if nothing came in time."""
        self._check()
        core = self._core
        if not self._attached(None if timeout_s is None else time.monotonic() + timeout_s):
            return core.error is not None
        lanes = self._lanes
        sink = self._queue if self._columns else core
        most = FRAMES_PER_READ if self._columns else core.frames_at_once
        now = time.monotonic()
        until = None if timeout_s is None else now + timeout_s
        while True:
            before = self._progress()
            lanes.applied()  # the consumer has the frames of the last read
            lanes.read(sink, now, most)
            if not self._columns:
                lanes.applied()
            lanes.tick(now)
            core.tick(now)
            send_outgoing(lanes, core)
            if lanes.engine_gone and core.restarts:
                self._leave(lanes)
                return True
            if self._progress() != before or sink.error is not None:
                return True
            if until is not None and now >= until:
                return False
            due = [lanes.next_deadline, until, core.next_deadline]
            wait_s = max(0.0, min(d for d in due if d is not None) - now)
            self._guard.wait(lanes.waiter.wait, wait_s)
            now = time.monotonic()

    def _send(self, messages: Sequence[Message]) -> None:
        """Send to the engine, or to the next one if it died and is started again."""
        if self._attached(None):
            try:
                self._lanes.send(messages)
            except LaneLost as error:
                if not self._core.restarts:
                    raise
                self._lanes.engine_gone = f"the engine is gone: {error}"
                self._leave(self._lanes)
            else:
                return
        if not self._attached(None):
            raise self._core.error or LaneClosed("the client was closed")
        self._lanes.send(messages)

    def _leave(self, lanes: Lanes) -> None:
        """Close the lanes to a dead engine. The next call looks for another engine."""
        gone = LaneLost(lanes.engine_gone)
        self._core.engine_lost(gone)
        if self._columns:
            self._queue.fail(gone)
        self._cancel_release()
        lanes.close(0.0)
        assert self._endpoint is not None
        self._return = looking = EngineReturn(
            self._endpoint, self._name, lanes.me.incarnation, self._recover_s, lanes.engine_gone
        )
        self._cancel_release = when_dropped(self, f"Client {lanes.me.rank}", looking.close)

    def _attached(self, until: float | None) -> bool:
        """Wait for the engine that is started again. Return False if it was not there in time."""
        while (looking := self._return) is not None:
            try:
                lanes = looking.step()
            except LaneLost as error:
                self._core.give_up(error)
                if self._columns:
                    self._queue.fail(error)
                return False
            now = time.monotonic()
            if lanes is not None:
                self._return = None
                self._cancel_release()
                self._core.engine_back()
                self._read_from(lanes)
            elif until is not None and now >= until:
                return False
            else:
                left = looking.next_s if until is None else min(looking.next_s, until - now)
                self._guard.wait(time.sleep, left)
        return True

    def _progress(self) -> tuple[int, int]:
        return self._core.changes, len(self._queue.frames)

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> int:
        """Cancel all open requests and close the lanes. Return how many messages stay unconfirmed.

        It waits up to `timeouts.close_s` for the engine's confirmation.
        """
        if self._closed:
            return 0
        self._guard.check_close("Client")
        self._closed = True
        gone = self._core.error is not None or self._queue.error is not None
        self._core.fail(LaneClosed("the client was closed"))
        if self._return is not None:
            self._return.close()
            self._cancel_release()
            return 0
        if not self._queue.frames:
            self._lanes.applied()  # a caller that left the loop over frames() has the last frame
        unsent = self._lanes.close(0.0 if gone else self._close_s)
        self._cancel_release()
        self._guard.release()
        return unsent
