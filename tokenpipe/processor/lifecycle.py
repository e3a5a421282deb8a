"""Decide what becomes of a binding: one outcome, then one release.

RUNNING -> preempt -> PREEMPTING -> drained -> rescheduled. RUNNING or PREEMPTING -> abort ->
ABORTING -> drained. RUNNING or PREEMPTING -> finished -> LINGERING -> drained. Whatever was said
of a handle that has its outcome is counted and ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenpipe._core import FINISH_ABORT, FINISH_ERROR, NO_STOP, Table
from tokenpipe.types import ErrorCode, RescheduleReason
from tokenpipe.wire import (
    Bind,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
)

from .codes import Happened, State
from .rank import Rank
from .report_queue import ReportQueue
from .row_errors import RequestError, row_error

DRAINED, RANK_LOST, DRAINED_TIMEOUT = "drained", "rank_lost", "drained_timeout"
_ACTIVE = (State.RUNNING, State.PREEMPTING)
_NO_ERROR = RequestError(ErrorCode.NONE, "")

TableEvents = Sequence[tuple[int, int, int, int, int]]


class Lifecycle:
    """Turn events of the table, commands and deadlines into outcomes and releases."""

    def __init__(self, table: Table, reports: ReportQueue, drained_s: float, park_s: float) -> None:
        self._table = table
        self._reports = reports
        self._drained_s = drained_s
        self._park_s = park_s

    # --- what rows say ------------------------------------------------------------------------

    def happened(self, rank: Rank, events: TableEvents, now: float) -> list[int]:
        """Judge the events of one frame, or of one bind. Returns the crowded clients."""
        crowded = []
        for kind, handle, a, b, step in events:
            match kind:
                case Happened.FINISHED:
                    self._finished(rank, handle, a, b, now)
                case Happened.ROW_ERROR:
                    error = row_error(a, b, handle, step, self._table.error_extras(handle))
                    self._table.set_error(handle, *error)
                    self._finished(rank, handle, FINISH_ERROR, NO_STOP, now, error)
                case Happened.DRAINED:
                    self._drained(rank, handle, now)
                case Happened.GAP:
                    self._reschedule(rank, handle, RescheduleReason.GAP, now)
                case Happened.PREFILLED:
                    message = HandlePrefilled(handle, *self._left(handle))
                    self._reports.put_for(handle, message, self._table.hold(handle))
                    self._await_marker(rank, handle, now)
                case Happened.PARKED:
                    rank.parked.set(handle, now + self._park_s)
                case Happened.PARK_LOST:
                    self._reschedule(rank, handle, RescheduleReason.PARK_LOST, now)
                case Happened.CROWDED:
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
        self._await_marker(rank, handle, now)

    def _drained(self, rank: Rank, handle: int, now: float) -> None:
        state, _ = self._table.state(handle)
        if state == State.RUNNING:  # a preempt or abort may be under way
            rank.drained.set(handle, now + self._drained_s)
            return
        if state == State.PREEMPTING:
            self._reschedule(rank, handle, RescheduleReason.PREEMPTED, now)
        self._release(rank, handle, DRAINED)

    # --- commands -----------------------------------------------------------------------------

    def bound(self, rank: Rank, handle: int, total: int, now: float) -> None:
        """Watch a binding that came soon after a gap: all rows that it will ever have may be lost.

        Rows come at most `park_s` before their bind, so a later one has lost nothing.
        """
        if now - rank.gap_at <= self._park_s:
            rank.bound_at[handle] = total
            rank.unheard.set(handle, rank.life.read(now) + self._drained_s)

    def preempt(self, rank: Rank, handle: int, now: float) -> bool:
        """Take a running binding out of its slot; False: it has its outcome already."""
        state, drained = self._table.state(handle)
        if state != State.RUNNING:
            return False
        if drained:
            self._reschedule(rank, handle, RescheduleReason.PREEMPTED, now)
            self._release(rank, handle, DRAINED)
        else:
            self._table.set_state(handle, State.PREEMPTING)
            self._await_marker(rank, handle, now)
        return True

    def abort(self, rank: Rank, handle: int, now: float) -> bool:
        """End a binding's request; False: it has its outcome already."""
        state, drained = self._table.state(handle)
        if state not in _ACTIVE:
            return False
        total = self._table.total(handle)
        self._table.finish(handle, FINISH_ABORT, State.ABORTING)
        self._reports.put_for(handle, HandleAborted(handle, total))
        if drained:
            self._release(rank, handle, DRAINED)
        else:
            self._await_marker(rank, handle, now)
        return True

    def refuse(self, bind: Bind, reason: RescheduleReason) -> None:
        """Answer a bind that cannot be."""
        handle, word = bind.handle, str(reason)
        outcome = HandleRescheduled(
            handle, word, bind.output_token_ids, annex_offset=bind.annex_offset
        )
        self._reports.put_for(handle, outcome)
        self._reports.put_for(handle, HandleReleased(handle, word))

    # --- ranks, clients, deadlines ------------------------------------------------------------

    def lose(self, rank: Rank) -> None:
        """End every binding of a rank that is gone."""
        for handle, state in self._table.bindings(rank.dp):
            if state == State.PARKED:
                self._table.drop(handle)
                continue
            if state in _ACTIVE:
                self._hand_back(handle, RescheduleReason.RANK_LOST)
            self._release(rank, handle, RANK_LOST)

    def gap(self, rank: Rank, now: float) -> None:
        """Hand back every binding of a rank of which frames are lost for good."""
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
        """Let the outcomes go that waited for their client."""
        for kind, handle, *_ in events or ():
            if kind == Happened.SENT:
                self._reports.sent(handle)

    def shed(
        self, rank: Rank, handle: int, was: int, held: bool, total: int, error: str, now: float
    ) -> None:
        """Report that a request's output was given up."""
        outcome = HandleFinished(
            handle, FINISH_ERROR, NO_STOP, total, error, error_code=ErrorCode.SLOW
        )
        if held:
            self._reports.replace(handle, outcome)
        else:
            self._reports.put_for(handle, outcome)
        if was in _ACTIVE:
            _, drained = self._table.state(handle)
            self._await_marker(rank, handle, now)
            if drained:
                self._release(rank, handle, DRAINED)

    def expire(self, rank: Rank, now: float) -> None:
        """Act on the deadlines that are reached."""
        for handle in rank.parked.expired(now):
            if self._table.state(handle)[0] == State.PARKED:
                self._table.lose_park(handle)
        for handle in rank.drained.expired(now):
            self._reschedule(rank, handle, RescheduleReason.UNSOLICITED, now)
            self._release(rank, handle, DRAINED)
        for handle in rank.unheard.expired(rank.life.read(now)):
            state, drained = self._table.state(handle)
            silent = self._table.total(handle) == rank.bound_at.pop(handle)
            if state == State.RUNNING and silent and not drained:
                self._reschedule(rank, handle, RescheduleReason.GAP, now)
        for handle in rank.markers.expired(rank.life.read(now)):
            if self._table.state(handle)[0] == State.PREEMPTING:
                self._hand_back(handle, RescheduleReason.DRAINED_TIMEOUT)
            self._release(rank, handle, DRAINED_TIMEOUT)

    # --- the two ends -------------------------------------------------------------------------

    def _hand_back(self, handle: int, reason: RescheduleReason) -> None:
        """Give a binding the outcome Rescheduled, with all its request has."""
        self._table.set_state(handle, State.LINGERING)
        message = HandleRescheduled(handle, str(reason), *self._left(handle))
        self._reports.put_for(handle, message, self._table.hold(handle))

    def _left(self, handle: int) -> tuple[tuple[int, ...], int, bytes, int]:
        """Return what the next binding of a request goes on from."""
        table = self._table
        return table.output(handle), *table.text_tail(handle), table.extras_offset(handle)

    def _reschedule(self, rank: Rank, handle: int, reason: RescheduleReason, now: float) -> None:
        self._hand_back(handle, reason)
        self._await_marker(rank, handle, now)

    def _await_marker(self, rank: Rank, handle: int, now: float) -> None:
        rank.drained.cancel(handle)
        rank.markers.set(handle, rank.life.read(now) + self._drained_s)

    def _release(self, rank: Rank, handle: int, reason: str) -> None:
        rank.forget(handle)
        self._table.drop(handle)
        self._reports.put_for(handle, HandleReleased(handle, reason))
