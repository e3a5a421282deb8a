"""Decide the outcome of each binding, and when its slot is released.

docs/design.md draws the states of a binding. Each binding has exactly one outcome and then exactly
one release. A command for a handle that has its outcome is counted and ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenpipe._core import FINISH_ABORT, FINISH_ERROR, NO_STOP, Table
from tokenpipe.postprocess import TextOptions
from tokenpipe.types import ErrorCode, RescheduleReason
from tokenpipe.wire import (
    Bind,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
)

from .codes import EventKind, State
from .rank import Rank
from .report_queue import ReportQueue
from .row_errors import RequestError, row_error

DRAINED, RANK_LOST, DRAINED_TIMEOUT = "drained", "rank_lost", "drained_timeout"
_ACTIVE = (State.RUNNING, State.PREEMPTING)
_NO_ERROR = RequestError(ErrorCode.NONE, "")

TableEvents = Sequence[tuple[int, int, int, int, int]]


class Lifecycle:
    """Turns events of the table, commands and deadlines into outcomes and releases."""

    def __init__(self, table: Table, reports: ReportQueue, drained_s: float, park_s: float) -> None:
        self._table = table
        self._reports = reports
        self._drained_s = drained_s
        self._park_s = park_s
        self.texts: dict[int, TextOptions] = {}  # of the handles that are not released

    # --- events of the table ------------------------------------------------------------------

    def apply_events(self, rank: Rank, events: TableEvents, now: float) -> list[int]:
        """Act on the events of one frame or one bind.

        Returns the clients whose unsent output has exceeded its bound.
        """
        crowded = []
        for kind, handle, a, b, step in events:
            match kind:
                case EventKind.FINISHED:
                    self._finished(rank, handle, a, b, now)
                case EventKind.ROW_ERROR:
                    error = row_error(a, b, handle, step, self._table.error_extras(handle))
                    self._table.set_error(handle, *error)
                    self._finished(rank, handle, FINISH_ERROR, NO_STOP, now, error)
                case EventKind.DRAINED:
                    self._drained(rank, handle, now)
                case EventKind.GAP:
                    self._reschedule(rank, handle, RescheduleReason.GAP, now)
                case EventKind.PREFILLED:
                    message = HandlePrefilled(handle, *self._progress(handle))
                    self._reports.put_for(handle, message, self._table.hold(handle))
                    self._await_drained(rank, handle, now)
                case EventKind.PARKED:
                    rank.parked.set(handle, now + self._park_s)
                case EventKind.PARK_LOST:
                    self._reschedule(rank, handle, RescheduleReason.PARK_LOST, now)
                case EventKind.CROWDED:
                    crowded.append(handle)
        return crowded

    def _finished(
        self,
        rank: Rank,
        handle: int,
        finish: int,
        stop_reason: int,
        now: float,
        error: RequestError = _NO_ERROR,
    ) -> None:
        total, string = self._table.total(handle), self._table.stop_string(handle)
        outcome = HandleFinished(
            handle, finish, stop_reason, total, error.text, string, error.code, error.field
        )
        self._reports.put_for(handle, outcome)
        self._await_drained(rank, handle, now)

    def _drained(self, rank: Rank, handle: int, now: float) -> None:
        state, _ = self._table.state(handle)
        if state == State.RUNNING:  # a preempt or an abort may be on its way
            rank.unasked.set(handle, now + self._drained_s)
            return
        if state == State.PREEMPTING:
            self._reschedule(rank, handle, RescheduleReason.PREEMPTED, now)
        self._release(rank, handle, DRAINED)

    # --- commands -----------------------------------------------------------------------------

    def bound(self, rank: Rank, handle: int, total: int, now: float) -> None:
        """Set a deadline for the first row of a binding that comes soon after a gap.

        All of its rows may have been lost in the gap. Rows come at most `park_s` before their
        bind, so a later binding has lost none.
        """
        if now - rank.gap_at <= self._park_s:
            rank.bound_at[handle] = total
            rank.unheard.set(handle, rank.life.read(now) + self._drained_s)

    def preempt(self, rank: Rank, handle: int, now: float) -> bool:
        """Take a running binding out of its slot. Return False if it has its outcome."""
        state, drained = self._table.state(handle)
        if state != State.RUNNING:
            return False
        if drained:
            self._reschedule(rank, handle, RescheduleReason.PREEMPTED, now)
            self._release(rank, handle, DRAINED)
        else:
            self._table.set_state(handle, State.PREEMPTING)
            self._await_drained(rank, handle, now)
        return True

    def abort(self, rank: Rank, handle: int, now: float) -> bool:
        """End a binding's request. Return False if it has its outcome."""
        state, drained = self._table.state(handle)
        if state not in _ACTIVE:
            return False
        total = self._table.total(handle)
        self._table.finish(handle, FINISH_ABORT, State.ABORTING)
        self._reports.put_for(handle, HandleAborted(handle, total))
        if drained:
            self._release(rank, handle, DRAINED)
        else:
            self._await_drained(rank, handle, now)
        return True

    def refuse(self, bind: Bind, reason: RescheduleReason) -> None:
        """Reschedule and release a bind that cannot be done."""
        handle, word = bind.handle, str(reason)
        outcome = HandleRescheduled(
            handle, word, bind.output_token_ids, extras_offset=bind.extras_offset
        )
        self._reports.put_for(handle, outcome)
        self._reports.put_for(handle, HandleReleased(handle, word))

    # --- ranks, clients, deadlines ------------------------------------------------------------

    def lose(self, rank: Rank, died: bool = True) -> None:
        """Give each binding of a rank that is gone its outcome and its release."""
        why = RescheduleReason.RANK_LOST if died else RescheduleReason.RANK_CLOSED
        for handle, state in self._table.bindings(rank.dp):
            if state == State.PARKED:
                self._table.drop(handle)
                continue
            if state in _ACTIVE:
                self._rescheduled(handle, why)
            self._release(rank, handle, RANK_LOST)

    def gap(self, rank: Rank, now: float) -> None:
        """Reschedule each binding of a rank whose lane lost frames for good."""
        rank.gap_at = now
        for handle, state in self._table.bindings(rank.dp):
            if state == State.PARKED:
                self._table.lose_park(handle)
            elif state in _ACTIVE:
                _, drained = self._table.state(handle)
                self._reschedule(rank, handle, RescheduleReason.GAP, now)
                if drained:
                    self._release(rank, handle, DRAINED)

    def sent(self, events: TableEvents | None) -> None:
        """Report the outcomes that waited until their client was sent all tokens."""
        for kind, handle, *_ in events or ():
            if kind == EventKind.SENT:
                self._reports.sent(handle)

    def shed(
        self, rank: Rank, handle: int, was: int, held: bool, total: int, error: str, now: float
    ) -> None:
        """Report a request that ended because its client reads too slowly."""
        outcome = HandleFinished(
            handle, FINISH_ERROR, NO_STOP, total, error, error_code=ErrorCode.SLOW
        )
        if held:
            self._reports.replace(handle, outcome)
        else:
            self._reports.put_for(handle, outcome)
        if was in _ACTIVE:
            _, drained = self._table.state(handle)
            self._await_drained(rank, handle, now)
            if drained:
                self._release(rank, handle, DRAINED)

    def expire(self, rank: Rank, now: float) -> None:
        """Act on the deadlines that are reached."""
        for handle in rank.parked.expired(now):
            if self._table.state(handle)[0] == State.PARKED:
                self._table.lose_park(handle)
        for handle in rank.unasked.expired(now):
            self._reschedule(rank, handle, RescheduleReason.UNSOLICITED, now)
            self._release(rank, handle, DRAINED)
        for handle in rank.unheard.expired(rank.life.read(now)):
            state, drained = self._table.state(handle)
            silent = self._table.total(handle) == rank.bound_at.pop(handle)
            if state == State.RUNNING and silent and not drained:
                self._reschedule(rank, handle, RescheduleReason.GAP, now)
        for handle in rank.undrained.expired(rank.life.read(now)):
            if self._table.state(handle)[0] == State.PREEMPTING:
                self._rescheduled(handle, RescheduleReason.DRAINED_TIMEOUT)
            self._release(rank, handle, DRAINED_TIMEOUT)

    # --- outcome and release ------------------------------------------------------------------

    def _rescheduled(self, handle: int, reason: RescheduleReason) -> None:
        """Give a binding the outcome "rescheduled", with all that its request has so far."""
        self._table.set_state(handle, State.LINGERING)
        message = HandleRescheduled(handle, str(reason), *self._progress(handle))
        self._reports.put_for(handle, message, self._table.hold(handle))

    def _progress(self, handle: int) -> tuple[tuple[int, ...], int, bytes, int]:
        """Return the state from which the next binding of a request continues."""
        table = self._table
        return table.output(handle), *table.text_tail(handle), table.extras_offset(handle)

    def _reschedule(self, rank: Rank, handle: int, reason: RescheduleReason, now: float) -> None:
        self._rescheduled(handle, reason)
        self._await_drained(rank, handle, now)

    def _await_drained(self, rank: Rank, handle: int, now: float) -> None:
        rank.unasked.cancel(handle)
        rank.undrained.set(handle, rank.life.read(now) + self._drained_s)

    def _release(self, rank: Rank, handle: int, reason: str) -> None:
        rank.forget(handle)
        self.texts.pop(handle, None)
        self._table.drop(handle)
        self._reports.put_for(handle, HandleReleased(handle, reason))
