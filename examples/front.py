"""Connect an engine that schedules by itself: each of its requests has a slot.

Such an engine preempts and resumes on its own. A preempted request keeps its slot and handle, and
nobody has to be told: no row comes for a while, and then the next token comes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from tokenpipe import (
    Aborted,
    AbortRequested,
    ErrorCode,
    Finished,
    Pipeline,
    RankLost,
    RankUp,
    Released,
    Request,
    Rescheduled,
    Submitted,
)


class Front:
    """Bind submitted requests while slots are free, and tell the engine what it must know.

    Args:
        pipe: the pipeline, with one DP rank. This object reads its events.
        refuse: returns why the engine cannot serve a request, or None if it can.
        start: takes a handle and its request into the engine.
        cancel: tells the engine that a handle is over. The worker answers with a drained row, as
            for a request that ended by itself.
    """

    def __init__(
        self,
        pipe: Pipeline,
        refuse: Callable[[Request], str | None],
        start: Callable[[int, Request], None],
        cancel: Callable[[int], None],
    ) -> None:
        self._pipe = pipe
        self._refuse = refuse
        self._start = start
        self._cancel = cancel
        self._waiting: deque[Request] = deque()
        self.free: set[int] = set()
        self.bound: dict[int, int] = {}  # handle to slot, until released
        self.released = Counter[str]()  # by reason; each but "drained" is a missing drained row
        self.up = False

    def turn(self, timeout_s: float) -> None:
        """Wait for events, at most `timeout_s`, and handle them."""
        self._pipe.wait(timeout_s)
        for event in self._pipe.poll():
            match event:
                case RankUp():
                    self.up = True
                    slots = set(range(self._pipe.topology.slots_per_rank))
                    self.free = slots - set(self.bound.values())
                case RankLost():
                    self.up = False
                case Submitted(request):
                    self._submitted(request)
                case AbortRequested(request):
                    with self._pipe.commands() as commands:
                        commands.abort(request)
                case Finished(_, handle):
                    self._cancel(handle)
                case Aborted(request, handle):
                    if handle is not None:
                        self._cancel(handle)
                    elif request in self._waiting:
                        self._waiting.remove(request)
                case Rescheduled(request, handle, reason):
                    self._cancel(handle)
                    self._pipe.reject(request, f"the engine lost it: {reason}", ErrorCode.LOST)
                case Released(_, handle, reason) if handle in self.bound:
                    self.released[reason] += 1
                    self.free.add(self.bound.pop(handle))
        while self.up and self.free and self._waiting:
            request, slot = self._waiting.popleft(), self.free.pop()
            with self._pipe.commands() as commands:
                handle = commands.bind(request, slot)
            self.bound[handle] = slot
            self._start(handle, request)

    def refuse_all(self, why: str) -> None:
        """End all waiting requests with an error."""
        while self._waiting:
            self._pipe.reject(self._waiting.popleft(), why, ErrorCode.UNAVAILABLE)

    def _submitted(self, request: Request) -> None:
        why = self._refuse(request)
        if why is None:
            self._waiting.append(request)
        else:
            self._pipe.reject(request, why)
