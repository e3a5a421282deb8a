"""The processor does what the specification says, in every state that few actions can reach.

The search is breadth first. Each way from a state to another one is played to a processor of its
own, from the start. So each order of binds, preempts, aborts, rows, losses, repeats, deaths and
deadlines within the bounds is compared once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processor.rig import Rig, Row
from tests.processor.spec import Action, Handle, Phase, Report, World, actions
from tests.processor.spec_step import act
from tokenpipe.processor.codes import State
from tokenpipe.types import RowStatus, make_handle, split_handle
from tokenpipe.wire import (
    Abort,
    Bind,
    CloseClient,
    HandleAborted,
    HandleFinished,
    HandleReleased,
    HandleRescheduled,
    Preempt,
)

DEPTH = 5
FINISHES = {2: "length", 3: "abort", 4: "error", 0: ""}
PHASES = {
    State.PARKED: Phase.PARKED,
    State.RUNNING: Phase.RUNNING,
    State.PREEMPTING: Phase.PREEMPTING,
    State.ABORTING: Phase.ENDED,
    State.LINGERING: Phase.ENDED,
}
About = HandleFinished | HandleAborted | HandleReleased | HandleRescheduled
Way = tuple["Way", World, Action] | None  # how a world was reached


def tokens(request: int, count: int) -> list[int]:
    return [10 * (request + 1) + i for i in range(count)]


class Real:
    """A processor, to which the actions of the specification are played."""

    def __init__(self) -> None:
        self.rig = Rig(ranks=2, clients=1, slots=2)
        self.frames: dict[int, bytes] = {}

    def play(self, world: World, action: Action) -> list[Report]:
        """Do what `action` says in `world`; return the reports about handles."""
        rig, dp = self.rig, action.dp
        match action:
            case Action("give"):
                pass
            case Action("bind", Handle() as h, request):
                life = dict(world.given)[h].life
                have = tuple(tokens(request, world.requests[request].have))
                bind = Bind(number(h), 70 + h.dp + 10 * life, request, 0, 2, output_token_ids=have)
                rig.command(bind)
            case Action("preempt", Handle() as h):
                rig.command(Preempt(number(h)))
            case Action("abort", Handle() as h):
                rig.command(Abort(number(h)))
            case Action("gap"):
                rig.processor.gap(dp, 0, rig.now)
            case Action("die"):
                life = world.ranks[dp].life + 1
                rig.processor.rank_lost(dp, "killed", rig.now)
                rig.processor.rank_up(dp, 70 + dp + 10 * life, rig.now)
            case Action("wait"):
                rig.pass_time(12.0)
            case Action("flush"):
                rig.flush()
            case Action("leave"):
                rig.command(CloseClient(0))
            case Action("repeat a frame"):
                rig.processor.feed(dp, 0, self.frames[dp], rig.now)
            case Action(what, Handle() as h):
                self.write(world, what, h)
        return [report_of(m) for m in rig.reports() if isinstance(m, About)]

    def write(self, world: World, what: str, handle: Handle) -> None:
        """Send one row of a handle, unless it is to be lost."""
        pen, request = dict(world.pens)[handle], dict(world.given)[handle].request
        position = pen.written - (what == "repeat a row")
        told = tokens(request, 2)[pen.base + position :][:1]
        status = {"drain": RowStatus.DRAINED, "fail": RowStatus.ERROR}.get(what, RowStatus.OK)
        row = Row(number(handle), told if status is RowStatus.OK else [], status, position)
        frame = self.rig.frame([row], handle.dp)
        if what != "lose a row":
            self.frames[handle.dp] = frame
            self.rig.processor.feed(handle.dp, 0, frame, self.rig.now)

    def bindings(self) -> dict[Handle, Phase]:
        """Return the handles that the processor knows, and their phases."""
        table = self.rig.processor._table
        return {
            Handle(*split_handle(handle)): PHASES[State(state)]
            for dp in range(2)
            for handle, state in table.bindings(dp)
        }


def number(handle: Handle) -> int:
    return make_handle(*handle)


def report_of(message: About) -> Report:
    handle = Handle(*split_handle(message.handle))
    match message:
        case HandleFinished():
            return Report("finished", handle, FINISHES[message.finish], message.output_tokens)
        case HandleAborted():
            return Report("aborted", handle, "", message.output_tokens)
        case HandleReleased():
            return Report("released", handle, message.reason)
        case HandleRescheduled():
            ids = list(message.output_token_ids)
            assert ids == tokens(ids[0] // 10 - 1, len(ids)) if ids else True
            return Report("rescheduled", handle, message.reason, len(ids))


def of_handle(reports: list[Report]) -> dict[Handle, list[Report]]:
    """Return the reports of each handle. Only within a handle their order counts."""
    found: dict[Handle, list[Report]] = {}
    for report in reports:
        found.setdefault(report.handle, []).append(report)
    return found


def steps(way: Way) -> list[tuple[World, Action]]:
    """Return the worlds and actions of a way, from the start."""
    found = []
    while way is not None:
        way, world, action = way
        found.append((world, action))
    return found[::-1]


def ways(depth: int, binds: int, deaths: int) -> Iterator[tuple[Way, World, list[Report]]]:
    """Yield each way from a world that `depth` actions can reach, with the world behind it."""
    front: list[tuple[World, Way]] = [(World(), None)]
    seen = {World()}
    for _ in range(depth):
        behind: list[tuple[World, Way]] = []
        for world, way in front:
            for action in actions(world, binds, deaths):
                after, reports = act(world, action)
                yield (way, world, action), after, reports
                if after not in seen:
                    seen.add(after)
                    behind.append((after, (way, world, action)))
        front = behind


def check(way: Way, after: World, expected: list[Report]) -> None:
    """Play a way to a new processor and compare the reports, the bindings and the streams."""
    real = Real()
    for world, action in steps(way):
        reports = real.play(world, action)
    assert of_handle(reports) == of_handle(expected), steps(way)
    assert real.bindings() == {h: b.phase for h, b in after.bound}, steps(way)
    for r, request in enumerate(after.requests):
        stream = real.rig.clients[0].streams.get(r)
        got = (stream.tokens, FINISHES[stream.finish]) if stream is not None else ([], "")
        assert got == (tokens(r, request.seen), request.seen_end), steps(way)


def check_all(depth: int, binds: int, deaths: int) -> int:
    """Check each way; return how many there are."""
    count = 0
    for way, after, reports in ways(depth, binds, deaths):
        check(way, after, reports)
        count += 1
    return count


@pytest.mark.parametrize(("binds", "deaths"), [(2, 1), (4, 0)])
def test_every_short_history(binds: int, deaths: int) -> None:
    count = check_all(DEPTH, binds, deaths)
    assert count > 3**DEPTH


@pytest.mark.soak
@pytest.mark.parametrize(("binds", "deaths"), [(2, 1), (3, 0), (3, 2)])
def test_every_longer_history(binds: int, deaths: int) -> None:
    assert check_all(7, binds, deaths) > 3**7


def test_each_handle_has_one_outcome_and_then_one_release() -> None:
    for way, _, _ in ways(DEPTH, 2, 1):
        reports: list[Report] = []
        for world, action in steps(way):
            reports += act(world, action)[1]
        for told in of_handle(reports).values():
            assert [r.what == "released" for r in told] in ([False], [False, True]), steps(way)


def test_each_world_comes_to_its_end() -> None:
    seen = set()
    for _, world, _ in ways(DEPTH, 2, 1):
        if world in seen:
            continue
        seen.add(world)
        for name in ("bind", "drain", "flush", "wait", "flush", "wait", "flush"):
            while True:
                found = [a for a in actions(world, 2, 1) if a.what == name]
                if not found:
                    break
                world, _ = act(world, found[0])
                if name in ("flush", "wait"):
                    break
        assert not world.bound and not world.held, world
