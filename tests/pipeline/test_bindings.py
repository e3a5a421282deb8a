"""The engine's book: who sits where, and what may not be."""

from __future__ import annotations

import pytest

from tokenpipe.errors import SlotBusy, TokenpipeError
from tokenpipe.pipeline.bindings import Book
from tokenpipe.types import Request, SamplingParams, split_handle


def request(key: int, client: int = 0) -> Request:
    return Request(key, f"r{key}", client, (1, 2), SamplingParams())


def book_with(*keys: int) -> tuple[Book, list[Request]]:
    book = Book(data_parallel_size=2, slots=4)
    requests = [request(key) for key in keys]
    for one in requests:
        assert book.add(one)
    return book, requests


def test_a_key_enters_once() -> None:
    book, (one,) = book_with(1)
    assert not book.add(one)
    book.end(book.requests[1])
    assert book.entry(one) is None


def test_every_bind_of_a_slot_is_a_new_generation() -> None:
    book, (one, two) = book_with(1, 2)
    first, _ = book.bind(one, 1, 3)
    assert split_handle(first) == (1, 3, 1)
    book.close(first)
    second, entry = book.bind(two, 1, 3)
    assert split_handle(second) == (1, 3, 2) and entry.handle == second
    assert book.floors(1) == (0, 0, 0, 2) and book.floors(0) == (0, 0, 0, 0)


@pytest.mark.parametrize(("dp", "slot"), [(2, 0), (-1, 0), (0, 4), (0, -1)])
def test_a_place_that_there_is_not_is_refused(dp: int, slot: int) -> None:
    book, (one,) = book_with(1)
    with pytest.raises(TokenpipeError, match="bind: "):
        book.bind(one, dp, slot)
    assert book.requests[1].handle is None


def test_a_slot_with_a_running_request_is_busy_until_its_outcome_or_abort() -> None:
    book, (one, two, three) = book_with(1, 2, 3)
    first, _ = book.bind(one, 0, 0)
    with pytest.raises(SlotBusy, match="'r1'"):
        book.bind(two, 0, 0)
    book.bindings[first].aborting = True
    second, _ = book.bind(two, 0, 0)  # the generation tells the rows apart
    book.close(second)
    book.bind(three, 0, 0)


def test_a_request_is_bound_once_at_a_time_and_never_after_its_end() -> None:
    book, (one,) = book_with(1)
    handle, _ = book.bind(one, 0, 0)
    with pytest.raises(TokenpipeError, match="is bound to dp 0 slot 0"):
        book.bind(one, 0, 1)
    book.close(handle)
    with pytest.raises(TokenpipeError, match="unknown or has ended"):
        book.bind(one, 0, 1)


def test_a_binding_has_one_outcome_and_one_release() -> None:
    book, (one,) = book_with(1)
    handle, _ = book.bind(one, 0, 0)
    closed = book.close(handle, output_token_ids=[7, 8])
    assert closed is not None and closed.entry.output_token_ids == (7, 8)
    assert book.entry(one) is closed.entry and closed.entry.handle is None
    assert book.close(handle) is None
    assert book.release(handle) is closed.entry
    assert book.release(handle) is None


def test_find_knows_requests_and_handles_and_refuses_what_never_is_one() -> None:
    book, (one, two) = book_with(1, 2)
    handle, _ = book.bind(one, 0, 0)
    assert book.find(one) is book.find(handle) is book.bindings[handle]
    assert book.find(two) is None and book.find(handle + 1) is None
    for number in (0, -1):
        with pytest.raises(TokenpipeError, match=f"{number} is not a handle"):
            book.find(number)


def test_handles_of_a_rank_stand_until_they_are_released() -> None:
    book, (one, two) = book_with(1, 2)
    first, _ = book.bind(one, 0, 0)
    second, _ = book.bind(two, 1, 0)
    book.close(first)
    assert [handle for handle, _ in book.handles_of([0])] == [first]
    assert {handle for handle, _ in book.handles_of([0, 1])} == {first, second}
    book.release(first)
    assert [handle for handle, _ in book.handles_of([0, 1])] == [second]


def test_requests_of_a_client() -> None:
    book, _ = book_with(1)
    book.add(request(2, client=5))
    assert [entry.request.internal_id for entry in book.of_client(5)] == [2]
