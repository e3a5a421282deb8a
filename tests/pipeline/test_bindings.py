"""The engine's bindings: who sits where, and what may not be."""

from __future__ import annotations

import pytest

from tokenpipe.errors import SlotBusy, TokenpipeError
from tokenpipe.pipeline.bindings import BindingTable
from tokenpipe.types import Request, SamplingParams, split_handle


def request(key: int, client: int = 0) -> Request:
    return Request(key, f"r{key}", client, (1, 2), SamplingParams())


def table_with(*keys: int) -> tuple[BindingTable, list[Request]]:
    bindings = BindingTable(data_parallel_size=2, slots=4)
    requests = [request(key) for key in keys]
    for one in requests:
        assert bindings.add(one)
    return bindings, requests


def test_a_key_enters_once() -> None:
    bindings, (one,) = table_with(1)
    assert not bindings.add(one)
    bindings.end(bindings.requests[1])
    assert bindings.entry(one) is None


def test_every_bind_of_a_slot_is_a_new_generation() -> None:
    bindings, (one, two) = table_with(1, 2)
    first, _ = bindings.bind(one, 1, 3)
    assert split_handle(first) == (1, 3, 1)
    bindings.close(first)
    second, entry = bindings.bind(two, 1, 3)
    assert split_handle(second) == (1, 3, 2) and entry.handle == second
    assert bindings.floors(1) == (0, 0, 0, 2) and bindings.floors(0) == (0, 0, 0, 0)


@pytest.mark.parametrize(("dp", "slot"), [(2, 0), (-1, 0), (0, 4), (0, -1)])
def test_a_place_that_there_is_not_is_refused(dp: int, slot: int) -> None:
    bindings, (one,) = table_with(1)
    with pytest.raises(TokenpipeError, match="bind: "):
        bindings.bind(one, dp, slot)
    assert bindings.requests[1].handle is None


def test_a_slot_with_a_running_request_is_busy_until_its_outcome_or_abort() -> None:
    bindings, (one, two, three) = table_with(1, 2, 3)
    first, _ = bindings.bind(one, 0, 0)
    with pytest.raises(SlotBusy, match="'r1'"):
        bindings.bind(two, 0, 0)
    bindings.bindings[first].aborting = True
    second, _ = bindings.bind(two, 0, 0)  # the generation tells the rows apart
    bindings.close(second)
    bindings.bind(three, 0, 0)


def test_a_request_is_bound_once_at_a_time_and_never_after_its_end() -> None:
    bindings, (one,) = table_with(1)
    handle, _ = bindings.bind(one, 0, 0)
    with pytest.raises(TokenpipeError, match="is bound to dp 0 slot 0"):
        bindings.bind(one, 0, 1)
    bindings.close(handle)
    with pytest.raises(TokenpipeError, match="unknown or has ended"):
        bindings.bind(one, 0, 1)


def test_a_binding_has_one_outcome_and_one_release() -> None:
    bindings, (one,) = table_with(1)
    handle, _ = bindings.bind(one, 0, 0)
    closed = bindings.close(handle, output_token_ids=[7, 8])
    assert closed is not None and closed.entry.output_token_ids == (7, 8)
    assert bindings.entry(one) is closed.entry and closed.entry.handle is None
    assert bindings.close(handle) is None
    assert bindings.release(handle) is closed.entry
    assert bindings.release(handle) is None


def test_find_knows_requests_and_handles_and_refuses_what_never_is_one() -> None:
    bindings, (one, two) = table_with(1, 2)
    handle, _ = bindings.bind(one, 0, 0)
    assert bindings.find(one) is bindings.find(handle) is bindings.bindings[handle]
    assert bindings.find(two) is None and bindings.find(handle + 1) is None
    for number in (0, -1):
        with pytest.raises(TokenpipeError, match=f"{number} is not a handle"):
            bindings.find(number)


def test_handles_of_a_rank_stand_until_they_are_released() -> None:
    bindings, (one, two) = table_with(1, 2)
    first, _ = bindings.bind(one, 0, 0)
    second, _ = bindings.bind(two, 1, 0)
    bindings.close(first)
    assert [handle for handle, _ in bindings.handles_of([0])] == [first]
    assert {handle for handle, _ in bindings.handles_of([0, 1])} == {first, second}
    bindings.release(first)
    assert [handle for handle, _ in bindings.handles_of([0, 1])] == [second]


def test_requests_of_a_client() -> None:
    bindings, _ = table_with(1)
    bindings.add(request(2, client=5))
    assert [entry.request.internal_id for entry in bindings.of_client(5)] == [2]
