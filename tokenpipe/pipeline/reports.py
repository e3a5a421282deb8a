"""Turn what processors report, and their deaths, into events for the engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from tokenpipe.errors import ProcessorFailed
from tokenpipe.events import (
    Event,
    Finished,
    ProcessorLost,
    ProcessorRestarted,
    ProcessorUp,
    RankLost,
    RankUp,
)
from tokenpipe.wire import Counters, Message, OpenRank, RankClosed, RankOpened

from .bindings import BindingTable
from .outcomes import Outcomes
from .processors import Death, WentOn
from .resources import Resources

_log = logging.getLogger("tokenpipe.pipeline")


class Reports:
    """Reads all processors. `failure` is set once a dead processor is not started again."""

    def __init__(self, table: BindingTable, outcomes: Outcomes, resources: Resources) -> None:
        self.failure: ProcessorFailed | None = None
        self._table = table
        self._outcomes = outcomes
        self._resources = resources
        self._processors = resources.processors

    def read(self) -> Iterator[Event]:
        """Yield what happened, in order."""
        for report in self._processors.reports():
            match report:
                case Death():
                    yield from self._died(report)
                case WentOn():
                    yield ProcessorRestarted(report.processor, report.reason)
                case _:
                    yield from self._report(report)
        for death in self._processors.deaths():
            yield from self._died(death)
        yield from self._started()

    def _report(self, report: Message) -> Iterator[Event]:
        match report:
            case RankOpened() | RankClosed() if not self._table.rank_changes(report):
                pass  # the next process of a processor repeats reports of the one before it
            case RankOpened():
                self._resources.step_lanes.renew(report.dp)
                yield RankUp(report.dp, report.incarnation)
            case RankClosed():
                self._resources.step_lanes.reset(report.dp)
                yield RankLost(report.dp, report.reason)
            case Counters():
                self._processors.counts.hear(report)
            case _:
                event = self._outcomes.apply(report)
                if event is not None:
                    yield event

    def _died(self, death: Death) -> Iterator[Event]:
        """End the requests of a processor that cannot go on."""
        yield ProcessorLost(death.processor, death.reason)
        error = f"processor {death.processor} was lost: {death.reason}"
        ends = list(self._outcomes.processor_lost(death.ranks, error))
        yield from ends
        for dp_rank in death.ranks:
            if incarnation := self._table.incarnations[dp_rank]:
                reason = f"processor {death.processor} was lost"
                yield from self._report(RankClosed(dp_rank, reason, incarnation))
        ended = sum(isinstance(event, Finished) for event in ends)
        also = f"{ended} request(s) end with an error"
        if death.why:
            _log.error("processor %d cannot go on: %s; %s", death.processor, death.why, also)
            self._processors.begin_again(death, self._first_commands(death.ranks))
            yield ProcessorUp(death.processor)
            return
        try:
            if death.failure is not None:
                raise death.failure
            self._processors.replace(death, also)
        except ProcessorFailed as failure:
            self.failure = failure

    def _started(self) -> Iterator[Event]:
        """Tell the processors that were started again what they need to know."""
        try:
            started = self._processors.take_started()
        except ProcessorFailed as failure:
            self.failure, started = failure, []
        for link in started:
            link.dispatch(self._first_commands(link.ranks))
            yield ProcessorUp(link.index)

    def _first_commands(self, dp_ranks: Sequence[int]) -> list[Message]:
        opened = [OpenRank(dp, self._table.floors(dp)) for dp in dp_ranks]
        return [*opened, *self._resources.clients.present()]
