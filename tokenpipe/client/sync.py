"""The client without an event loop: it reads its lanes while somebody waits for output."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType

from typing_extensions import Self

from tokenpipe.errors import FrameError, LaneClosed, LaneError
from tokenpipe.instance import ForkGuard, Instance, when_dropped
from tokenpipe.topology import Topology
from tokenpipe.types import RequestOutput, SamplingParams
from tokenpipe.wire import Cancel, OutputFrame

from .client_core import ClientCore
from .flush import flush
from .frame_queue import FrameQueue
from .lanes import Lanes
from .opening import open_lanes
from .sending import send_requests
from .streams import SyncStream

FRAMES_PER_READ = 16  # of `frames`


class Client:
    """Submit requests and read their output, blocking. For one thread.

    Either `generate`, an iterator of RequestOutput per request, or `submit` and `frames`, which
    hands out whole frames of columns and never looks at a row. Errors are as AsyncClient has them.
    """

    def __init__(
        self, endpoint: str | os.PathLike[str] | None = None, *, name: str | None = None
    ) -> None:
        instance = Instance.attach(endpoint)
        topology = Topology.from_json_dict(instance.info["topology"])
        name = f"client-{os.getpid()}-{id(self):x}" if name is None else name
        self._serve(open_lanes(instance, topology, name), topology)

    @classmethod
    def over(cls, lanes: Lanes, topology: Topology) -> Self:
        """Return a client on lanes that are ready."""
        client = cls.__new__(cls)
        client._serve(lanes, topology)
        return client

    def _serve(self, lanes: Lanes, topology: Topology) -> None:
        self._guard = ForkGuard()
        self._lanes = lanes
        self._close_s = topology.timeouts.close_s
        self._closed = False
        what = f"Client {lanes.me.rank}"
        self._keep = when_dropped(self, what, partial(lanes.close, 0.0))
        self._queue = FrameQueue()
        self._columns = False
        self._core = ClientCore(
            incarnation=lanes.me.incarnation,
            stream_type=SyncStream,
            stream_bytes=topology.bounds.stream_bytes,
            ahead_s=topology.timeouts.client_ahead_s,
            vocab_size=topology.vocab_size,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- requests -------------------------------------------------------------------------------

    def generate(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        extra: bytes = b"",
    ) -> Iterator[RequestOutput]:
        """Submit a request and return its output; with n > 1 samples are told apart by `index`."""
        self._check()
        if self._columns:
            raise LaneError("this client hands out frames; use another one for generate()")
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
        """Submit a request whose output `frames` will bring; return its key in their `keys`.

        With n > 1 it is the first sample's; the others' follow it one by one.
        """
        self._check()
        if len(self._core):
            raise LaneError("generate() is in use; use another client for submit() and frames()")
        submits = self._core.expand(prompt_token_ids, params or SamplingParams(), request_id, extra)
        self._columns = True
        self._lanes.send(submits)
        return submits[0].key

    def cancel(self, key: int) -> None:
        """Say that a submitted request is no longer wanted; its final row still comes."""
        self._check()
        self._lanes.send([Cancel(key)])

    def abort(self, request_id: str) -> int:
        """Ask for the end of all live requests of `generate` with that id; return how many."""
        self._check()
        count = self._core.abort(request_id)
        flush(self._lanes, self._core)
        return count

    def frames(self, timeout_s: float | None = None) -> Iterator[OutputFrame]:
        """Yield frames as they come, until none came for `timeout_s` seconds.

        A frame counts as taken when the next one is asked for. Rows of one request begin at their
        `offsets`; where it was rescheduled to another processor its rows come over another lane,
        and may come before the last ones of the first: apply them by offset.
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
                yield output
            if queue.error is not None:
                error, queue.error = queue.error, None
                raise error
            if not self._wait(timeout_s):
                return

    @property
    def counters(self) -> dict[str, int]:
        """Return counts so far."""
        return self._core.counters

    # --- reading --------------------------------------------------------------------------------

    def _check(self) -> None:
        self._guard.check("Client")
        if self._closed:
            raise LaneClosed("the client was closed")

    def _wait_for_more(self) -> None:
        self._wait(None)

    def _wait(self, timeout_s: float | None) -> bool:
        """Read what is there, else wait for it; false where nothing came in time."""
        self._check()
        lanes, core = self._lanes, self._core
        sink = self._queue if self._columns else core
        most = FRAMES_PER_READ if self._columns else core.frames_at_once
        now = time.monotonic()
        until = None if timeout_s is None else now + timeout_s
        while True:
            before = self._progress()
            lanes.applied()  # what was read earlier is taken
            lanes.read(sink, now, most)
            if not self._columns:
                lanes.applied()
            lanes.tick(now)
            core.tick(now)
            flush(lanes, core)
            if self._progress() != before or sink.error is not None:
                return True
            if until is not None and now >= until:
                return False
            due = [lanes.next_deadline, until, core.next_deadline]
            lanes.waiter.wait(max(0.0, min(d for d in due if d is not None) - now))
            now = time.monotonic()

    def _progress(self) -> tuple[int, int]:
        return self._core.changes, len(self._queue.frames)

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> int:
        """Give up what is open and leave; return the messages that the engine did not confirm."""
        if self._closed:
            return 0
        self._guard.check("Client")
        self._closed = True
        gone = self._core.error is not None or self._queue.error is not None
        self._core.fail(LaneClosed("the client was closed"))
        if not self._queue.frames:
            self._lanes.applied()  # whoever leaves the loop over frames() has taken the last one
        unsent = self._lanes.close(0.0 if gone else self._close_s)
        self._keep()
        return unsent
