"""Turn what processors report in handles into events about requests. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenpipe.types import (
    FINISH_CODES,
    Aborted,
    Event,
    Finished,
    FinishReason,
    Mismatch,
    PrefillDone,
    Released,
    Rescheduled,
    RescheduleReason,
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

from .book import Book, Entry

UNKNOWN_OFFSET = 0xFFFFFFFF
"""Offset of a final row whose writer cannot know how far the stream is: it ends where it stands."""


@dataclass(frozen=True, slots=True)
class FinalRow:
    """The last output row of a request that no processor holds."""

    client: int
    key: int
    offset: int
    finish_reason: FinishReason
    error: str = ""


class Outcomes:
    """Apply reports to the book; collect the events and the final rows that follow."""

    def __init__(self, book: Book) -> None:
        """Stand beside a book."""
        self._book = book
        self._final_rows: list[FinalRow] = []
        self.late_reports = 0  # for a handle that is unknown or had its outcome

    def apply(self, report: Message) -> Event | None:
        """Turn one report into its event; None where it changes nothing."""
        book = self._book
        match report:
            case HandleFinished():
                entry = book.outcome(report.handle)
                if entry is not None:
                    return Finished(
                        entry.request,
                        report.handle,
                        FINISH_CODES[report.finish] or FinishReason.ERROR,
                        report.output_tokens,
                        None if report.stop_reason < 0 else report.stop_reason,
                        report.error or None,
                    )
            case HandleAborted():
                entry = book.outcome(report.handle)
                if entry is not None:
                    return Aborted(entry.request, report.handle, report.output_tokens)
            case HandleRescheduled():
                return self._rescheduled(report)
            case HandlePrefilled():
                entry = book.outcome(report.handle, output_token_ids=report.output_token_ids)
                if entry is not None:
                    ids = list(report.output_token_ids)
                    return PrefillDone(entry.request, report.handle, ids)
            case HandleReleased():
                entry = book.release(report.handle)
                if entry is not None:
                    return Released(entry.request, report.handle, report.reason)
            case RanksDiffer():
                return Mismatch(report.dp, report.tp, report.step, report.handle)
            case _:
                pass
        self.late_reports += 1
        return None

    def _rescheduled(self, report: HandleRescheduled) -> Event | None:
        binding = self._book.bindings.get(report.handle)
        entry = self._book.outcome(report.handle, output_token_ids=report.output_token_ids)
        if entry is None or binding is None:
            self.late_reports += 1
            return None
        if binding.aborting:  # the abort crossed the reschedule: the request is unbound now
            return self.end_unbound(entry)
        return Rescheduled(
            entry.request,
            report.handle,
            RescheduleReason(report.reason),
            list(report.output_token_ids),
        )

    def take_final_rows(self) -> list[FinalRow]:
        """Return the final rows that are due since the last call."""
        rows, self._final_rows = self._final_rows, []
        return rows

    def end_unbound(self, entry: Entry) -> Aborted:
        """Abort a request that no slot holds."""
        handle, request = entry.handle, entry.request
        offset = len(entry.output_token_ids)
        self._book.end(entry)
        self._final_rows.append(
            FinalRow(request.client, request.internal_id, offset, FinishReason.ABORT)
        )
        return Aborted(request, handle, offset)

    def reject(self, entry: Entry, error: str) -> None:
        """End an unbound request with an error."""
        request, offset = entry.request, len(entry.output_token_ids)
        self._book.end(entry)
        self._final_rows.append(
            FinalRow(request.client, request.internal_id, offset, FinishReason.ERROR, error)
        )

    def processor_lost(self, dp_ranks: Sequence[int], error: str) -> Iterable[Event]:
        """End every binding of a dead processor's ranks with an error, and release it.

        How far the clients' streams are died with the processor, so the final rows end them
        where they stand; `output_tokens` counts what the request had when it was bound.
        """
        for handle, binding in self._book.handles_of(dp_ranks):
            request = binding.entry.request
            if binding.open:
                tokens = len(binding.entry.output_token_ids)
                self._book.outcome(handle)
                self._final_rows.append(
                    FinalRow(
                        request.client,
                        request.internal_id,
                        UNKNOWN_OFFSET,
                        FinishReason.ERROR,
                        error,
                    )
                )
                yield Finished(request, handle, FinishReason.ERROR, tokens, None, error)
            self._book.release(handle)
            yield Released(request, handle, "processor_lost")
