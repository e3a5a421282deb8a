"""Hold the state of one client's requests, without a socket, a clock or a thread.

The caller feeds frames, consumers read streams, and the caller sends the messages that come out.
The work per row is in C (`_core.Inbox`). Here are the rare events: a request begins, ends, is
cancelled, or fails.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tokenpipe._core import (
    FINISH_ABORT,
    FINISH_ERROR,
    NOTE_AHEAD,
    NOTE_APART,
    NOTE_ENDED,
    NOTE_SLOW,
    NOTE_TORN,
    Inbox,
    Stream,
)
from tokenpipe.errors import FrameError, TokenpipeError, afresh
from tokenpipe.types import ErrorCode, SamplingParams
from tokenpipe.wire import Cancel, ExtrasReader, OutputFrame, Submit

from .reorder import ReorderBuffer, final_error
from .request_ids import RequestIds
from .requests import RequestKeys, expand
from .sizes import SizeLimits
from .unstarted import Unstarted

NO_ROOM = "and there was no room to keep the later output"

# Frames to feed before consumers run. More than one share the cost of a turn. Under a flood a row
# has DEEP tokens or more; then one frame is enough work for a turn and enough text for an item.
FRAMES_AT_ONCE = 2
DEEP = 8

S = TypeVar("S", bound=Stream)


class ClientCore(Generic[S]):
    """The requests of one client: open, feed, cancel, fail."""

    def __init__(
        self,
        *,
        incarnation: int,
        stream_type: type[S],
        stream_bytes: int,
        ahead_s: float,
        vocab_size: int | None = None,
        max_frame_bytes: int = (1 << 32) - 1,
        loop: AbstractEventLoop | None = None,
        on_outgoing: Callable[[], None] = lambda: None,
        restarts: bool = False,
        most_waiting: int = 0,
    ) -> None:
        """`restarts`: a dead engine is started again, and up to `most_waiting` requests wait."""
        self._stream_type = stream_type
        self._stream_bytes = stream_bytes
        self._ahead_s = ahead_s
        self._limits = SizeLimits(max_frame_bytes, stream_bytes, vocab_size)
        self._request_keys = RequestKeys(incarnation)
        self._inbox = Inbox(stream_bytes, loop, self._stream_dropped, ExtrasReader)
        self._ids = RequestIds()
        self._held = ReorderBuffer(stream_bytes, ahead_s)
        self._outgoing: list[Cancel | Submit] = []
        self.restarts = restarts
        self._unstarted = Unstarted(self._received, most_waiting)
        self._away: TokenpipeError | None = None  # why the engine is away that is started again
        self._on_outgoing = on_outgoing
        self._error: TokenpipeError | None = None
        self._changes = 0
        self._counts = {"bad_frames": 0, "slow_streams": 0, "lost_streams": 0, "cancelled": 0}

    # --- requests -------------------------------------------------------------------------------

    def expand(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams,
        request_id: str | None = None,
        extra: bytes = b"",
        *,
        streamed: bool = True,
    ) -> list[Submit]:
        """Return the messages that submit a request. `streamed`: its output goes into a stream.

        Raises FieldError for a wrong argument, or the error that ended this client.
        """
        if self._error is not None:
            raise afresh(self._error)
        if self._away is not None:
            self._unstarted.check_room(self._away)
        keys, limits = self._request_keys, self._limits
        return expand(keys, prompt_token_ids, params, request_id, extra, limits, streamed=streamed)

    def open(self, submits: Iterable[Submit]) -> list[S]:
        """Return a stream for each message. A stream that is dropped cancels its request."""
        streams: list[S] = []
        try:
            for submit in submits:
                streams.append(self._open(submit))
                self._ids.add(submit.external_id, submit.key)
                if self.restarts:
                    self._unstarted.add(submit)
        except BaseException:
            self.withdraw(streams)
            raise
        return streams

    def withdraw(self, streams: Iterable[S]) -> None:
        """Forget the streams of requests that were not sent. The engine gets no message."""
        for stream in streams:
            stream.end(FINISH_ERROR, ErrorCode.UNAVAILABLE, "the request was not sent")
            self._forget(stream.key, stream.request_id)

    def _open(self, submit: Submit) -> S:
        return self._stream_type(
            self._inbox,
            submit.key,
            submit.external_id,
            submit.sample_index,
            len(submit.prompt_token_ids),
            submit.params.stop,
            submit.params.output_kind,
        )

    def abort(self, request_id: str) -> int:
        """Ask the engine to end every live request with this id; return how many there are.

        Their streams stay open for the final output, which has the finish reason "abort".
        """
        keys = self._ids.keys(request_id)
        for key in keys:
            if self._ids.abort(key):
                self._cancel(key)
        if self._away is not None:
            self._end_all(keys, FINISH_ABORT, ErrorCode.NONE)
        return len(keys)

    def __len__(self) -> int:
        return len(self._inbox)

    # --- what comes in --------------------------------------------------------------------------

    def feed(self, frame: bytes, now: float) -> None:
        """Apply an OutputFrame. `now` is in seconds. A malformed frame is counted and dropped."""
        self._changes += 1
        try:
            notes = self._inbox.feed(frame)
        except FrameError:
            self._counts["bad_frames"] += 1
            return
        if self._held and (made_ns := OutputFrame.unpack(frame).mono_ns):
            self._held.extend_deadlines(made_ns / 1e9, now)
        if notes is not None:
            ahead = self._take_notes(notes)
            if ahead and not self._held.add(frame, ahead, now):
                self._end_waiting(frame, ahead, NO_ROOM)
        if self._held:
            self._apply_held()

    @property
    def frames_at_once(self) -> int:
        """The number of frames to feed before consumers run."""
        return 1 if self._inbox.depth >= DEEP else FRAMES_AT_ONCE

    @property
    def changes(self) -> int:
        """A counter that grows when a consumer may have new output."""
        return self._changes

    def wake(self, at_once: bool = False) -> None:
        """Wake the consumers that wait for the output that was fed.

        The event loop runs them soon. With `at_once` they run before this returns; no task may call
        it so. If a consumer raises KeyboardInterrupt, the others are woken by the next call.
        """
        self._inbox.wake(at_once)

    def _take_notes(self, notes: list[tuple[int, Stream, int]]) -> dict[int, int]:
        """Handle notes of the inbox. Return key and offset of each row that came too early."""
        ahead: dict[int, int] = {}
        for kind, stream, offset in notes:
            if kind == NOTE_ENDED:
                self._forget(stream.key, stream.request_id)
                ahead.pop(stream.key, None)
            elif kind == NOTE_AHEAD:
                ahead.setdefault(stream.key, offset)
            elif kind == NOTE_TORN:
                self._counts["lost_streams"] += 1
                self._end(stream, ErrorCode.GAP, f"gap: the text before byte {offset} is missing")
            elif kind == NOTE_APART:
                self._counts["lost_streams"] += 1
                what = f"gap: the extras before output token {offset} are missing"
                self._end(stream, ErrorCode.GAP, what)
            elif kind == NOTE_SLOW:
                self._counts["slow_streams"] += 1
                what = f"slow_consumer: more than {self._stream_bytes} bytes were not taken"
                self._end(stream, ErrorCode.SLOW, what)
        return ahead

    def _apply_held(self) -> None:
        while (held := self._held.pop_due(self._received)) is not None:
            notes = self._inbox.feed(held.frame)
            ahead = self._take_notes(notes or [])
            if ahead and not self._held.put_back(held, ahead):
                self._end_waiting(held.frame, ahead, NO_ROOM)

    def _received(self, key: int) -> int | None:
        stream = self._inbox.find(key)
        return None if stream is None else stream.received

    # --- trouble --------------------------------------------------------------------------------

    def gap(self, lane: str) -> None:
        """End every open request, because frames of a lane are lost.

        Their rows could belong to any request. A request whose final row is lost would never end.
        """
        for stream in self._inbox.streams():
            self._counts["lost_streams"] += 1
            self._end(stream, ErrorCode.GAP, f"gap: output was lost on lane {lane}")

    def source_lost(self, now: float) -> None:
        """Wait only 1 s more for missing rows, because a processor died and sends no more."""
        self._held.shorten_deadlines(1.0, now)

    def fail(self, error: TokenpipeError) -> None:
        """End this client: streams raise `error` after their output, and later calls raise it."""
        self._error = error
        for stream in self._inbox.streams():
            self._forget(stream.key, stream.request_id)
            stream.fail(afresh(error))
        self._held.clear()
        self._outgoing.clear()

    def engine_lost(self, error: TokenpipeError) -> None:
        """End each request that has output as `ErrorCode.LOST`, because the engine is gone.

        If it is started again, the others wait for `engine_back`. Otherwise they end too.
        """
        if self._error is not None or self._away is not None:
            return
        if self.restarts:
            self._away = error
            self._end_all(self._ids.aborting, FINISH_ABORT, ErrorCode.NONE)
        else:
            self._error = error
        kept = self._unstarted.sweep() if self.restarts else ()
        for stream in self._inbox.streams():
            if stream.key not in kept:
                self._counts["lost_streams"] += 1
                self._over(stream, FINISH_ERROR, ErrorCode.LOST, str(error))
        self._held.clear()
        self._outgoing.clear()

    def engine_back(self) -> None:
        """Submit the requests that waited to the new engine."""
        self._away = None
        self._outgoing[:] = self._unstarted.sweep().values()
        self._on_outgoing()

    def give_up(self, error: TokenpipeError) -> None:
        """Note that no new engine came. All requests end, and later calls raise `error`."""
        self.restarts, self._away = False, None
        self.engine_lost(error)

    @property
    def away(self) -> TokenpipeError | None:
        """Why the engine is away while it is started again. Otherwise None."""
        return self._away

    def refuse(self, messages: Iterable[Cancel | Submit], why: str) -> None:
        """End the requests of messages that the new engine cannot take."""
        keys = [message.key for message in messages]
        self._end_all(keys, FINISH_ERROR, ErrorCode.INVALID, why)

    def _end_all(self, keys: Iterable[int], finish: int, code: int, error: str = "") -> None:
        for key in keys:
            if (stream := self._inbox.find(key)) is not None:
                self._over(stream, finish, code, error)

    def _over(self, stream: Stream, finish: int, code: int, error: str, field: str = "") -> None:
        self._changes += 1
        self._forget(stream.key, stream.request_id)
        stream.end(finish, code, error, field)

    @property
    def error(self) -> TokenpipeError | None:
        """The error that ended this client, or None. Each call returns a new exception."""
        return None if self._error is None else afresh(self._error)

    @property
    def next_deadline(self) -> float | None:
        """The time at which to call `tick`, in seconds; None for never."""
        return self._held.next_deadline

    def tick(self, now: float) -> None:
        """End the requests whose missing rows did not come in time."""
        self._unstarted.tick(now)
        for held in self._held.pop_expired(now):
            self._end_waiting(held.frame, held.waits, f"{self._ahead_s:g} s after later output")

    def _end_waiting(self, frame: bytes, waits: dict[int, int], why: str) -> None:
        for key, offset in waits.items():
            stream = self._inbox.find(key)
            if stream is not None and stream.received < offset:
                self._counts["lost_streams"] += 1
                missing = f"gap: output tokens {stream.received}..{offset - 1} are missing, {why}"
                self._end(stream, *final_error(frame, key) or (ErrorCode.GAP, missing))

    def _end(self, stream: Stream, code: int, error: str, field: str = "") -> None:
        self._over(stream, FINISH_ERROR, code, error, field)
        self._cancel(stream.key)

    # --- what goes out --------------------------------------------------------------------------

    def take_outgoing(self) -> list[Cancel | Submit]:
        """Return the messages to send to the engine. The caller puts unsent ones back."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def put_back(self, messages: list[Cancel | Submit]) -> None:
        """Keep messages for a later attempt."""
        self._outgoing[:0] = messages

    def _stream_dropped(self, key: int, request_id: str) -> None:
        self._forget(key, request_id)
        self._cancel(key)

    def _cancel(self, key: int) -> None:
        if self._error is None and self._away is None:
            self._counts["cancelled"] += 1
            self._outgoing.append(Cancel(key))
            self._on_outgoing()

    def _forget(self, key: int, request_id: str) -> None:
        self._unstarted.forget(key)
        self._ids.forget(request_id, key)

    @property
    def counters(self) -> dict[str, int]:
        """The counts so far. `late_rows` came after their request had ended or was cancelled."""
        return {**self._inbox.counters(), **self._counts}
