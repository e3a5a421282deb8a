"""Publish a worker's sampled tokens, one frame for each step.

Here alone it is decided whether a TP rank sends its frames.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
from typing_extensions import Self

from tokenpipe._core import FRAME_OVERHEAD, SEND_FULL, SENT_LOOK, StepPacker
from tokenpipe.errors import ConfigError, LaneLost
from tokenpipe.extras import RowExtras
from tokenpipe.instance import (
    Instance,
    OwnerGuard,
    RoleLock,
    close_at_exit,
    when_dropped,
    worker_lane,
)
from tokenpipe.topology import Topology
from tokenpipe.transport import LaneSender, Peer, Role, new_incarnation, open_sender, wait_welcome
from tokenpipe.wire import RankFailed, pack_control

from .arrays import StepLogprobs, as_array, logprob_columns
from .comeback import Comeback
from .extras_columns import extras_columns
from .step_parts import StepParts, WaitingParts

BUSY_POLL_S = 0.1


class Publisher:
    """The worker's end of its lane to the processor.

    Args:
        endpoint: directory of the instance. None reads TOKENPIPE_ENDPOINT.
        dp_rank: data-parallel rank of this worker.
        tp_rank: tensor-parallel rank inside the DP rank.
        timeout_s: the longest wait for the processor. None takes the topology's `startup_s`.

    Raises `ConfigError` for a rank that the topology does not have, `LaneBusy` if a living
    process holds this rank, and `StartupError` if the processor does not answer in time.
    """

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None = None,
        dp_rank: int = 0,
        tp_rank: int = 0,
        *,
        timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._instance = Instance.attach(endpoint)
        topology = Topology.from_json_dict(self._instance.info["topology"])
        check_rank(topology, dp_rank, tp_rank)
        self.dp_rank, self.tp_rank = dp_rank, tp_rank
        self.sends = tp_rank == 0 or topology.tp_policy != "leader"
        self.incarnation = new_incarnation()
        self._close_s = topology.timeouts.close_s
        self._patience_s = topology.timeouts.publish_s if topology.backpressure == "block" else 0.0
        rank = f"{dp_rank}.{tp_rank}"
        self._claim = self._instance.claim("worker", rank)
        processor = Role("processor", str(topology.processor_of(dp_rank)))
        self._lane = open_sender(
            self._instance,
            worker_lane(dp_rank, tp_rank),
            me=Peer("worker", rank, self.incarnation),
            to=processor,
            bound_bytes=topology.bounds.lane_bytes,
            max_frame_bytes=topology.bounds.max_frame_bytes,
            clock=clock,
            alive=Comeback.of(self._instance, topology, processor.rank, clock),
        )
        slots, vocab_size = topology.slots_per_rank, topology.vocab_size or (1 << 31) - 1
        window = self._lane.window
        self._packer = StepPacker(dp_rank, tp_rank, slots, vocab_size, window, as_array)
        self._send_next: Callable[..., int] = self._packer.send_next
        self._most_bytes = _most_bytes(topology)
        self._parts: WaitingParts | None = None  # of a step that is only sent in part
        if timeout_s is None:
            timeout_s = topology.timeouts.startup_s
        try:
            wait_welcome(self._lane, self._instance, processor, timeout_s)
        except BaseException:
            self._lane.close(0.0)
            self._claim.release()
            self._instance.close()
            raise
        self._guard = OwnerGuard(partial(setattr, window, "thread"))
        self._guard.release()
        what = f"Publisher {rank}"
        self._keep = when_dropped(self, what, partial(_give_back, self._lane, self._claim))

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: StepLogprobs | tuple[Any, Any, Any] | None = None,
        drained: Any = None,
        step_ns: int | None = None,
        extras: Mapping[int, RowExtras] | None = None,
    ) -> None:
        """Send one step, in several frames if need be; return when the transport has all of it.

        Arrays are numpy's, buffers, DLPack producers on the host, or lists, of one dimension.

        Args:
            step: number of the forward pass, increasing per rank.
            handles: int64 [rows], as the engine's `bind` returned them; no slots.
            tokens: int32 or int64 [sum of counts], row after row.
            counts: tokens of each row, 0 or more, uint16, int32 or int64 [rows]; None is 1 each.
            status: `RowStatus` of each row, uint8 [rows]; None: all OK.
            logprobs: a `StepLogprobs` (its values are float32), or its first three as a tuple.
            drained: int64 handles without further rows, each named once; rows may be empty.
            step_ns: monotonic nanoseconds when the step's tokens were ready; None: now.
            extras: data beside tokens, by index of the row; dropped if it is not OK or FINISHED.

        A bad token, or a row too large for a frame, turns its own row into an error. After these
        exceptions nothing was sent or numbered:

        - `RowError` (names the wrong argument), `LaneFull` (policy `fail`, or `block` past
          `publish_s`): the step may be published again; a large step then goes on where it was.
        - `LaneLost`: the processor died, and all handles are dead. Drop the batch without drained
          rows, and call `poll` until `ready`.
        - `LaneClosed`: this publisher was closed.

        Other exceptions, such as a signal handler's, may come before or after the send. If
        `last_step` is this step, it was sent, and a repeat raises `RowError`.
        """
        if not self.sends:
            return
        # The caller has just computed, so the caches are cold: few bytecodes here, the rest in C.
        if logprobs is None and not extras:
            sent = self._send_next(step, step_ns, handles, tokens, counts, status, drained)
            if not sent:
                return
            if sent <= SENT_LOOK:
                self._lane.look(sent)
                return
        self._publish(step, step_ns, handles, tokens, counts, status, drained, logprobs, extras)

    def _publish(
        self,
        step: int,
        step_ns: int | None,
        handles: Any,
        tokens: Any,
        counts: Any,
        status: Any,
        drained: Any,
        logprobs: StepLogprobs | tuple[Any, Any, Any] | None,
        extras: Mapping[int, RowExtras] | None,
    ) -> None:
        """Publish a step with more than tokens, or one that the lane did not take at once."""
        self._guard.check("Publisher")
        if self._parts is not None:
            if self._parts.step == step and self._parts.sent:
                self._send_parts(self._parts, step_ns)
                return
            self._give_up_parts()
        if not self._lane.ready:  # the welcome of a new processor may have come by now
            self._lane.poll()
        handles = as_array(handles, np.int64, "handles")
        more: tuple[Any, ...] = logprob_columns(logprobs, len(handles))
        columns = extras_columns(extras, len(handles), counts) if extras else ()
        try:
            frame = self._packer.pack_next(
                step, step_ns, handles, tokens, counts, status, drained, *more, *columns
            )
            if len(frame) <= self._most_bytes:
                self._guard.wait(self._lane.send, frame, self._patience_s)
                return
        except BaseException:
            self._packer.withdraw()
            raise
        self._packer.withdraw()
        cut = StepParts(handles, tokens, counts, status, drained, more, extras)
        parts = WaitingParts(step, deque(cut.cut(self._most_bytes)), self._packer.last_step)
        self._send_parts(parts, step_ns)

    def _send_parts(self, parts: WaitingParts, step_ns: int | None) -> None:
        """Send the parts of a step that wait. All of its frames have its number."""
        self._parts, self._send_next = parts, _is_not_plain
        packer, lane = self._packer, self._lane
        try:
            while parts.waiting:
                packer.parts = parts.sent
                seq = lane.next_seq
                try:
                    frame = packer.pack_next(parts.step, step_ns, *parts.waiting[0])
                    self._guard.wait(lane.send, frame, self._patience_s)
                finally:
                    packer.withdraw()
                    if lane.next_seq != seq:
                        parts.waiting.popleft()
                        parts.sent = True
        except LaneLost:
            parts.waiting.clear()
            raise
        finally:
            if not parts.waiting:
                self._give_up_parts()

    def _give_up_parts(self) -> None:
        self._parts, self._send_next = None, self._packer.send_next
        self._packer.parts = False

    def poll(self) -> None:
        """Read acknowledgements, and send again what the processor asks for.

        Call it within `poll_within_s`, or every 100 ms, while nothing is published.
        """
        self._guard.check("Publisher")
        self._lane.poll()

    def wait(self, timeout_s: float) -> None:
        """Wait for a message of the processor, at most `timeout_s`, and read it."""
        self._guard.check("Publisher")
        self._guard.wait(self._lane.wait, timeout_s)

    def fail(self, error: str | BaseException) -> None:
        """Report that this rank failed. Its requests are rescheduled, with this reason."""
        self._guard.check("Publisher")
        self._packer.withdraw()  # of a publish() that was interrupted; it has no number yet
        lane = self._lane
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        message = RankFailed(self.dp_rank, self.tp_rank, text)
        lane.send(pack_control(lane.next_header, [message]), self._patience_s)

    @property
    def ready(self) -> bool:
        """Whether the processor is up. After `LaneLost`, poll until it is up again."""
        return self._lane.ready

    @property
    def poll_within_s(self) -> float:
        """The seconds until the next `poll` is due, if nothing is published before.

        These are 0.1 s while a frame is not acknowledged or the processor is not up, else more.
        """
        lane = self._lane
        if lane.unacked_frames or not lane.ready:
            return BUSY_POLL_S
        return max(0.0, lane.next_deadline - self._clock())

    @property
    def unacknowledged(self) -> int:
        """How many frames the processor has not acknowledged yet."""
        return self._lane.unacked_frames

    @property
    def last_step(self) -> int | None:
        """The newest step that was published, or None. It is with the transport, or kept for it.

        A step of which parts wait to be sent does not count.
        """
        return self._packer.last_step if self._parts is None else self._parts.before

    @property
    def bad_tokens(self) -> int:
        """How many rows had a bad token so far."""
        return self._packer.bad_tokens

    def close(self, timeout_s: float | None = None) -> int:
        """Wait until all frames are delivered, at most `timeout_s`, and close this end.

        None takes the topology's `close_s`. Returns how many frames were not delivered.
        """
        self._guard.check_close("Publisher")
        undelivered = self._lane.close(self._close_s if timeout_s is None else timeout_s)
        self._guard.release()
        self._claim.release()
        self._instance.close()
        self._keep()
        return undelivered

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        close_at_exit(self.close, error)


def _most_bytes(topology: Topology) -> int:
    """Return the most bytes of a frame that a worker's lane takes."""
    bounds = topology.bounds
    return min(bounds.max_frame_bytes, bounds.lane_bytes - FRAME_OVERHEAD)


def _is_not_plain(*_: Any) -> int:
    return SEND_FULL


def _give_back(lane: LaneSender, claim: RoleLock) -> None:
    lane.close(0.0)
    claim.release()


def check_rank(topology: Topology, dp_rank: int, tp_rank: int) -> None:
    """Raise ConfigError for a rank that the topology does not have."""
    dp, tp = topology.data_parallel_size, topology.tensor_parallel_size
    if not (0 <= dp_rank < dp and 0 <= tp_rank < tp):
        raise ConfigError(
            f"there is no worker (dp {dp_rank}, tp {tp_rank}): the topology has "
            f"data_parallel_size {dp}, tensor_parallel_size {tp}"
        )
