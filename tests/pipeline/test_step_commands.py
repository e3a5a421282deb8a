"""A step's commands: collected, then one message to each processor concerned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.pipeline.test_bindings import table_with
from tokenpipe.errors import SlotBusy, TokenpipeError
from tokenpipe.pipeline.bindings import BindingTable, Entry
from tokenpipe.pipeline.step_commands import StepCommands
from tokenpipe.types import Request, SamplingParams
from tokenpipe.wire import Abort, Bind, Message, Preempt, StepBind


class Outlet:
    def __init__(self, bindings: BindingTable) -> None:
        self.bindings = bindings
        self.sent: list[tuple[int, list[Message]]] = []
        self.ended: list[Entry] = []

    def dispatch(self, dp_rank: int, messages: Sequence[Message]) -> None:
        self.sent.append((dp_rank, list(messages)))

    def incarnation(self, dp_rank: int) -> int:
        return 70 + dp_rank

    def end_unbound(self, entry: Entry) -> None:
        self.bindings.end(entry)
        self.ended.append(entry)


def test_commands_go_out_when_the_block_ends_to_the_ranks_they_are_for() -> None:
    bindings, (one, two) = table_with(1, 2)
    outlet = Outlet(bindings)
    with StepCommands(bindings, outlet, 1) as cmd:
        elsewhere = cmd.bind(one, slot=2)
        assert outlet.sent == []
    with StepCommands(bindings, outlet, 0) as cmd:
        handle = cmd.bind(two, slot=0, output_token_ids=[4], prefill=True)
        cmd.preempt(one)
    (rank, (bind,)), to_rank_0, to_rank_1 = outlet.sent
    assert rank == 1 and isinstance(bind, Bind)
    assert (bind.handle, bind.rank_incarnation, bind.max_tokens) == (elsewhere, 71, 16)
    assert to_rank_0[0] == 0 and isinstance(to_rank_0[1][0], Bind)
    assert to_rank_0[1][0].output_token_ids == (4,) and to_rank_0[1][0].prefill
    assert to_rank_1 == (1, [Preempt(elsewhere)])
    assert handle != elsewhere


def test_the_bind_of_a_plan_is_made_of_the_request() -> None:
    params = SamplingParams(max_tokens=9, seed=3)
    request = Request(5, "five", 0, (1, 2), params, extra=b"x")
    bindings = BindingTable(1, 2)
    assert bindings.add(request)
    with StepCommands(bindings, Outlet(bindings), 0) as cmd:
        handle = cmd.bind(request, slot=0)
        assert cmd.step_bind(handle) == StepBind(handle, 5, 0, (1, 2), (), 9, b"x", params)
    bindings.close(handle, output_token_ids=[7, 8])
    with StepCommands(bindings, Outlet(bindings), 0) as cmd:
        again = cmd.bind(request, slot=1)
        assert cmd.step_bind(again) == StepBind(again, 5, 2, (1, 2), (7, 8), 9, b"x", params)
        with pytest.raises(TokenpipeError, match=f"step_bind: {handle} is not bound"):
            cmd.step_bind(handle)


def test_a_block_that_raises_sends_what_it_had() -> None:
    bindings, (one, two) = table_with(1, 2)
    outlet = Outlet(bindings)
    with pytest.raises(SlotBusy), StepCommands(bindings, outlet, 0) as cmd:
        cmd.bind(one, slot=0)
        cmd.bind(two, slot=0)
    ((_, messages),) = outlet.sent
    assert len(messages) == 1


@pytest.mark.case("B38")
def test_an_abort_is_said_once_in_every_state() -> None:
    bindings, (queued, bound, ended) = table_with(1, 2, 3)
    outlet = Outlet(bindings)
    with StepCommands(bindings, outlet, 0) as cmd:
        handle = cmd.bind(bound, slot=0)
        gone = cmd.bind(ended, slot=1)
    bindings.close(gone)
    outlet.sent.clear()
    with StepCommands(bindings, outlet, 0) as cmd:
        for _ in range(100):
            for what in (queued, bound, handle, ended, gone, 1 << 40):
                cmd.abort(what)
    assert outlet.sent == [(0, [Abort(handle)])]
    assert [entry.request for entry in outlet.ended] == [queued]


def test_what_has_its_outcome_is_not_preempted() -> None:
    bindings, (queued, bound) = table_with(1, 2)
    outlet = Outlet(bindings)
    with StepCommands(bindings, outlet, 0) as cmd:
        handle = cmd.bind(bound, slot=0)
    bindings.close(handle)
    outlet.sent.clear()
    with StepCommands(bindings, outlet, 0) as cmd:
        for what in (queued, bound, handle):
            cmd.preempt(what)
    assert outlet.sent == []


@pytest.mark.parametrize("verb", ["abort", "preempt"])
def test_a_number_that_is_no_handle_is_refused(verb: str) -> None:
    bindings, _ = table_with()
    with pytest.raises(TokenpipeError, match="-1 is not a handle"):
        getattr(StepCommands(bindings, Outlet(bindings), 0), verb)(-1)
