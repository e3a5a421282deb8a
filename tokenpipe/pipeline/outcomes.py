"""Turn the reports of processors into events. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.events import (
    Aborted,
    Event,
    Finished,
    Mismatch,
    PrefillDone,
    Released,
    Rescheduled,
)
from tokenpipe.types import (
    FINISH_CODES,
    ErrorCode,
    FinishReason,
    RescheduleReason,
    split_handle,
)
from tokenpipe.wire import (
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
    Message,
    RanksDiffer,
)

from .bindings import BindingTable, Entry
from .final_rows import FinalRow, RecentlyEnded


class Outcomes:
    """Apply reports to the table; make the events and the final rows."""

    def __init__(self, table: BindingTable, max_deaths: int | None = None) -> None:
        """Start without events. `max_deaths`: so many deaths of its workers a request survives.

        The next one ends it. None is no bound.
        """
        self._table = table
        self._max_deaths = max_deaths
        self._final_rows: list[FinalRow] = []
        self._recently_ended = RecentlyEnded()
        self.late_reports = 0  # reports on a handle that is unknown or has its outcome

    def apply(self, report: Message) -> Event | None:
        """Return the event of a report, None if the report changes nothing."""
        event: Event | None = None
        match report:
            case HandleFinished():
                event = self._finished(report)
            case HandleAborted():
                event = self._aborted(report)
            case HandleRescheduled():
                event = self._rescheduled(report)
            case HandlePrefilled():
                event = self._prefilled(report)
            case HandleReleased():
                event = self._released(report)
            case RanksDiffer():
                event = Mismatch(report.dp, report.tp, report.step, report.handle)
            case _:
                pass
        if event is None:
            self.late_reports += 1
        return event

    def _finished(self, report: HandleFinished) -> Event | None:
        entry = self._close(report.handle)
        if entry is None:
            return None
        return Finished(
            entry.request,
            report.handle,
            FINISH_CODES[report.finish] or FinishReason.ERROR,
            report.output_tokens,
            _stop_reason(entry, report),
            report.error or None,
            report.error_code,
            report.error_field or None,
        )

    def _aborted(self, report: HandleAborted) -> Event | None:
        entry = self._close(report.handle)
        if entry is None:
            return None
        return Aborted(entry.request, report.handle, report.output_tokens)

    def _close(self, handle: int) -> Entry | None:
        """End the request of a handle. Its processor has sent the final row."""
        binding = self._table.close(handle)
        if binding is None:
            return None
        self._recently_ended.add(binding.entry.request, split_handle(handle)[0])
        return binding.entry

    def _rescheduled(self, report: HandleRescheduled) -> Event | None:
        """Hand a request back, or end it if too many of its workers died."""
        handle, ids = report.handle, list(report.output_token_ids)
        reason = RescheduleReason(report.reason)
        entry = self._handed_back(report)
        if not isinstance(entry, Entry):
            return entry
        if reason is RescheduleReason.RANK_LOST and self._table.died(handle):
            entry.deaths += 1
            if self._max_deaths is not None and entry.deaths > self._max_deaths:
                return self._crashes(entry, handle)
        return Rescheduled(entry.request, handle, reason, ids, entry.deaths)

    def _crashes(self, entry: Entry, handle: int) -> Finished:
        """End an unbound request whose workers died again and again."""
        error = (
            f"its worker died {entry.deaths} time(s) while it ran the request; policies.max_deaths "
            f"is {self._max_deaths}"
        )
        code = ErrorCode.CRASHES
        self.reject(entry, code, error)
        tokens, reason = len(entry.output_token_ids), FinishReason.ERROR
        return Finished(entry.request, handle, reason, tokens, None, error, code)

    def _prefilled(self, report: HandlePrefilled) -> Event | None:
        entry = self._handed_back(report)
        if not isinstance(entry, Entry):
            return entry
        return PrefillDone(entry.request, report.handle, list(report.output_token_ids))

    def _handed_back(self, report: HandleRescheduled | HandlePrefilled) -> Entry | Aborted | None:
        """Take a request back from its binding. Return its entry, None for a late report.

        The engine may have sent an abort that the processor read after this outcome and dropped.
        The request then ends here, and the result is its event.
        """
        known = self._table.bindings.get(report.handle)
        had = 0 if known is None else len(known.entry.output_token_ids)
        binding = self._table.close(report.handle, output_token_ids=report.output_token_ids)
        if binding is None:
            return None
        binding.entry.extras_offset = report.extras_offset
        if len(report.output_token_ids) > had:  # otherwise its text has not changed
            binding.entry.text = report.text_offset, report.text_tail
        if binding.aborting:
            return self.end_unbound(binding.entry, report.handle)
        return binding.entry

    def _released(self, report: HandleReleased) -> Event | None:
        entry = self._table.release(report.handle)
        return None if entry is None else Released(entry.request, report.handle, report.reason)

    def take_final_rows(self) -> list[FinalRow]:
        """Return the final rows since the last call."""
        rows, self._final_rows = self._final_rows, []
        return rows

    def end_unbound(self, entry: Entry, handle: int | None = None) -> Aborted:
        """Abort an unbound request. `handle` is the handle that it has just lost, if any."""
        request, offset = entry.request, len(entry.output_token_ids)
        self._end(entry, offset, FinishReason.ABORT)
        return Aborted(request, handle, offset)

    def reject(self, entry: Entry, code: ErrorCode, error: str, field: str = "") -> None:
        """End an unbound request with an error. `field` names its wrong field, or is empty."""
        self._end(entry, len(entry.output_token_ids), FinishReason.ERROR, code, error, field)

    def _end(
        self,
        entry: Entry,
        offset: int,
        reason: FinishReason,
        code: ErrorCode = ErrorCode.NONE,
        error: str = "",
        field: str = "",
    ) -> None:
        request, key = entry.request, entry.request.internal_id
        self._table.end(entry)
        self._final_rows.append(
            FinalRow(request.client, key, offset, reason, code, error, field, *entry.text)
        )

    def processor_lost(self, dp_ranks: Sequence[int], error: str) -> Iterable[Event]:
        """End every binding of a dead processor's ranks as `ErrorCode.LOST`, and release it.

        Only the dead processor knew how far the clients' streams are. So the final rows have no
        offset and end a stream where it is. `output_tokens` counts the tokens at the bind.
        """
        reason, code = FinishReason.ERROR, ErrorCode.LOST
        for handle, binding in self._table.handles_of(dp_ranks):
            entry = binding.entry
            if binding.open:
                tokens = len(entry.output_token_ids)
                self._table.close(handle)
                entry.text = 0, b""
                self._end(entry, OFFSET_UNKNOWN, reason, code, error)
                yield Finished(entry.request, handle, reason, tokens, None, error, code)
            self._table.release(handle)
            yield Released(entry.request, handle, "processor_lost")
        for client, key in self._recently_ended.take(dp_ranks):
            self._final_rows.append(FinalRow(client, key, OFFSET_UNKNOWN, reason, code, error))


def _stop_reason(entry: Entry, report: HandleFinished) -> int | str | None:
    stops = entry.request.params.stop
    if 0 <= report.stop_string < len(stops):
        return stops[report.stop_string]
    return None if report.stop_reason < 0 else report.stop_reason
