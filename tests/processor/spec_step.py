"""One step of the specification: what each action changes, and the reports that follow."""

from __future__ import annotations

from tests.processor.spec import (
    MAX_TOKENS,
    Action,
    Bound,
    Given,
    Handle,
    Pen,
    Phase,
    Report,
    Row,
    World,
)

ACTIVE = (Phase.RUNNING, Phase.PREEMPTING)


def act(world: World, action: Action) -> tuple[World, list[Report]]:
    """Return the world after an action, and the reports that the scheduler gets for it."""
    step = Step(world)
    getattr(step, action.what.replace(" ", "_"))(action)
    return step.end()


class Step:
    """The parts of a world while an action changes them."""

    def __init__(self, world: World) -> None:
        self.requests = list(world.requests)
        self.ranks = list(world.ranks)
        self.given = dict(world.given)
        self.pens = dict(world.pens)
        self.bound = dict(world.bound)
        self.held = dict(world.held)
        self.client = world.client
        self.reports: list[Report] = []

    def end(self) -> tuple[World, list[Report]]:
        """Let the scheduler read the reports; return the new world and the reports."""
        for report in self.reports:
            r = self.given[report.handle].request
            request = self.requests[r]
            if report.what == "rescheduled":
                assert request.handle == report.handle and not request.over
                self.requests[r] = request._replace(have=report.tokens, handle=None)
            elif report.what != "released":
                assert request.handle == report.handle and not request.over
                self.requests[r] = request._replace(handle=None, over=True)
        return World(
            tuple(self.requests),
            tuple(self.ranks),
            tuple(self.given.items()),
            tuple(sorted(self.pens.items())),
            tuple(sorted(self.bound.items(), key=lambda item: item[0])),
            tuple(sorted(self.held.items())),
            self.client,
        ), self.reports

    # --- the scheduler ------------------------------------------------------------------------

    def give(self, action: Action) -> None:
        """Give a slot to a request. The worker starts at once; the bind is on its way."""
        handle, rank = _handle(action), self.ranks[_handle(action).dp]
        request = self.requests[action.request]
        used = _with(rank.used, handle.slot, handle.generation)
        self.ranks[handle.dp] = rank._replace(used=used)
        self.given[handle] = Given(action.request, rank.life)
        self.pens[handle] = Pen(request.have)
        self.requests[action.request] = request._replace(handle=handle)

    def bind(self, action: Action) -> None:
        """Deliver the bind of a handle."""
        handle, rank = _handle(action), self.ranks[_handle(action).dp]
        about = self.given[handle]
        self.given[handle] = about._replace(bound=True)
        in_slot = [b for h, b in self.bound.items() if h[:2] == handle[:2]]
        base = self.requests[action.request].have
        if about.life != rank.life:
            self._dead_on_arrival(handle, base, "rank_lost")
        elif any(b.phase in ACTIVE for b in in_slot):
            self._dead_on_arrival(handle, base, "slot_busy")
        else:
            parked = self.bound.pop(handle, Bound())
            self._raise_floor(handle)
            fresh = Bound(Phase.RUNNING, base, base, parked.drained, awaited=rank.gap)
            self.bound[handle] = fresh
            self._replay(handle, parked)
            if parked.drained:
                self._drained(handle)

    def _replay(self, handle: Handle, parked: Bound) -> None:
        if parked.lost:
            self._reschedule(handle, "park_lost")
            return
        self._append(handle, parked.total)
        if self.bound[handle].phase is not Phase.RUNNING:
            return
        if parked.fault == "error":
            self._finish(handle, "error")
        elif parked.fault == "gap":
            self._reschedule(handle, "gap")

    def _dead_on_arrival(self, handle: Handle, base: int, why: str) -> None:
        self._raise_floor(handle)
        self._report(Report("rescheduled", handle, why, base))
        self._report(Report("released", handle, why))

    def _raise_floor(self, handle: Handle) -> None:
        rank = self.ranks[handle.dp]
        floors = _with(rank.floors, handle.slot, handle.generation)
        self.ranks[handle.dp] = rank._replace(floors=floors)
        for other, b in list(self.bound.items()):
            if other[:2] == handle[:2] and other <= handle and b.phase is Phase.PARKED:
                del self.bound[other]

    def preempt(self, action: Action) -> None:
        """Take a request out of its slot."""
        handle = _handle(action)
        b = self.bound.get(handle)
        if b is None or b.phase is not Phase.RUNNING:
            return
        if b.drained:
            self._reschedule(handle, "preempted")
            self._release(handle, "drained")
        else:
            self._change(handle, phase=Phase.PREEMPTING)

    def abort(self, action: Action) -> None:
        """End a request."""
        handle = _handle(action)
        b = self.bound.get(handle)
        if b is None or b.phase not in ACTIVE:
            return
        self._end_for_client(handle, "abort")
        self._change(handle, phase=Phase.ENDED)
        self._report(Report("aborted", handle, "", b.total))
        if b.drained:
            self._release(handle, "drained")

    # --- the workers --------------------------------------------------------------------------

    def row(self, action: Action) -> None:
        """Write one more token and deliver it."""
        pen = self._write(_handle(action))
        self._deliver(Row(_handle(action), pen.written - 1))

    def lose_a_row(self, action: Action) -> None:
        """Write one more token, which is lost."""
        self._write(_handle(action))

    def repeat_a_row(self, action: Action) -> None:
        """Send the newest token again, in a new frame."""
        self._deliver(Row(_handle(action), self.pens[_handle(action)].written - 1))

    def fail(self, action: Action) -> None:
        """Send an error row."""
        self._deliver(Row(_handle(action), self.pens[_handle(action)].written, 0, "error"))

    def drain(self, action: Action) -> None:
        """Send the drained row."""
        handle, pen = _handle(action), self.pens[_handle(action)]
        self.pens[handle] = pen._replace(over=True)
        self._deliver(Row(handle, pen.written, 0, "drained"))

    def repeat_a_frame(self, action: Action) -> None:
        """Feed the newest frame of a rank once more."""
        row = self.ranks[action.dp].newest
        assert row is not None
        self._feed(row._replace(again=True))

    def _write(self, handle: Handle) -> Pen:
        pen = self.pens[handle]
        self.pens[handle] = pen._replace(written=pen.written + 1)
        return self.pens[handle]

    def _deliver(self, row: Row) -> None:
        dp = row.handle.dp
        self.ranks[dp] = self.ranks[dp]._replace(newest=row)
        self._feed(row)

    # --- rows in the processor ----------------------------------------------------------------

    def _feed(self, row: Row) -> None:
        handle = row.handle
        if handle not in self.bound:
            if handle.generation <= self.ranks[handle.dp].floors[handle.slot]:
                return  # stale
            self.bound[handle] = Bound()
        b = self.bound[handle]
        if b.drained:
            return
        if not (b.lost or b.fault or b.phase is Phase.ENDED):
            self._take(row, b)
        if row.status == "drained":
            self._change(handle, drained=True)
            if b.phase is not Phase.PARKED:
                self._drained(handle)

    def _take(self, row: Row, b: Bound) -> None:
        have = b.total - b.base
        fault = "gap" if row.position > have else "error" if row.status == "error" else ""
        if b.phase is Phase.PARKED and fault:
            self._change(row.handle, fault=fault)
        elif fault == "gap":
            self._reschedule(row.handle, "gap")
        elif fault == "error":
            self._finish(row.handle, "error")
        elif not row.again:
            self._append(row.handle, max(0, row.position + row.tokens - have))

    def _append(self, handle: Handle, count: int) -> None:
        b = self._change(handle, total=min(MAX_TOKENS, self.bound[handle].total + count))
        if b.phase is not Phase.PARKED:
            r = self.given[handle].request
            made = max(self.requests[r].made, b.total)
            self.requests[r] = self.requests[r]._replace(made=made)
            if b.total == MAX_TOKENS and count:
                self._finish(handle, "length")

    def _finish(self, handle: Handle, why: str) -> None:
        self._end_for_client(handle, why)
        b = self._change(handle, phase=Phase.ENDED)
        self._report(Report("finished", handle, why, b.total))

    def _drained(self, handle: Handle) -> None:
        b = self.bound[handle]
        if b.phase is Phase.RUNNING:
            return  # a preempt or an abort may be on its way
        if b.phase is Phase.PREEMPTING:
            self._reschedule(handle, "preempted")
        self._release(handle, "drained")

    # --- losses, deaths, time, the client -------------------------------------------------------

    def gap(self, action: Action) -> None:
        """Tell the processor that frames of a rank are lost."""
        self.ranks[action.dp] = self.ranks[action.dp]._replace(gap=True)
        for handle, b in self._of_rank(action.dp):
            if b.phase is Phase.PARKED:
                self._change(handle, total=0, lost=True, fault="")
            elif b.phase in ACTIVE:
                self._reschedule(handle, "gap")
                if b.drained:
                    self._release(handle, "drained")

    def die(self, action: Action) -> None:
        """Kill a rank's worker and start another one."""
        dp = action.dp
        for handle, b in self._of_rank(dp):
            if b.phase is Phase.PARKED:
                del self.bound[handle]
                continue
            if b.phase in ACTIVE:
                self._reschedule(handle, "rank_lost")
            self._release(handle, "rank_lost")
        rank = self.ranks[dp]
        self.ranks[dp] = rank._replace(life=rank.life + 1, gap=False, newest=None)
        self.pens = {h: pen for h, pen in self.pens.items() if h.dp != dp}

    def wait(self, action: Action) -> None:
        """Let the time of each deadline pass."""
        for handle, b in list(self.bound.items()):
            if b.phase is Phase.PARKED:
                self._change(handle, total=0, lost=True, fault="")
            elif b.phase is Phase.RUNNING and b.drained:
                self._reschedule(handle, "unsolicited")
                self._release(handle, "drained")
            elif b.phase is Phase.RUNNING and b.awaited and b.total == b.base:
                self._reschedule(handle, "gap")  # its own deadline begins now
            elif b.phase is not Phase.RUNNING:
                if b.phase is Phase.PREEMPTING:
                    self._reschedule(handle, "drained_timeout")
                self._release(handle, "drained_timeout")
            else:
                self._change(handle, awaited=False)
        self.ranks = [rank._replace(gap=False) for rank in self.ranks]

    def flush(self, action: Action) -> None:
        """Send the client all output."""
        for r, request in enumerate(self.requests):
            self.requests[r] = request._replace(seen=request.made, seen_end=request.end)
        self._let_go_of_held()

    def leave(self, action: Action) -> None:
        """Close the client. Nothing is sent any more, and no report waits for it."""
        self.client = False
        self._let_go_of_held()

    def _let_go_of_held(self) -> None:
        for reports in self.held.values():
            self.reports += reports
        self.held.clear()

    # --- outcomes and releases ----------------------------------------------------------------

    def _reschedule(self, handle: Handle, why: str) -> None:
        b = self._change(handle, phase=Phase.ENDED)
        request = self.requests[self.given[handle].request]
        hold = self.client and request.made > request.seen
        self._report(Report("rescheduled", handle, why, b.total), hold)

    def _release(self, handle: Handle, why: str) -> None:
        del self.bound[handle]
        self._report(Report("released", handle, why))

    def _report(self, report: Report, hold: bool = False) -> None:
        if hold or report.handle in self.held:
            self.held[report.handle] = (*self.held.get(report.handle, ()), report)
        else:
            self.reports.append(report)

    def _end_for_client(self, handle: Handle, end: str) -> None:
        r = self.given[handle].request
        self.requests[r] = self.requests[r]._replace(end=end)

    def _change(self, handle: Handle, **fields: object) -> Bound:
        self.bound[handle] = self.bound[handle]._replace(**fields)  # type: ignore[arg-type]
        return self.bound[handle]

    def _of_rank(self, dp: int) -> list[tuple[Handle, Bound]]:
        return [(h, b) for h, b in self.bound.items() if h.dp == dp]


def _handle(action: Action) -> Handle:
    assert action.handle is not None
    return action.handle


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
