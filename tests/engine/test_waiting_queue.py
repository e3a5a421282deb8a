"""Who waits, who gets the next slot, and who has waited too long."""

from __future__ import annotations

from tokenpipe.engine.rank_outages import RankOutages
from tokenpipe.engine.waiting_queue import WaitingQueue
from tokenpipe.types import ErrorCode, Request, SamplingParams


def request(key: int) -> Request:
    return Request(key, f"r{key}", 0, (), SamplingParams())


def queue_of(*keys: int) -> WaitingQueue:
    queue = WaitingQueue()
    for key in keys:
        queue.add(request(key), [])
    return queue


def placed(queue: WaitingQueue, free: dict[int, list[int]]) -> dict[int, list[int]]:
    """Return the keys that got a slot, by rank."""
    return {dp: [one.request.internal_id for one in ones] for dp, ones in queue.place(free).items()}


def test_slots_go_to_the_emptiest_rank_in_the_order_of_arrival() -> None:
    queue, free = queue_of(1, 2, 3, 4), {0: [0], 1: [0, 1]}
    assert placed(queue, free) == {1: [1, 3], 0: [2]}
    assert len(queue) == 1 and free == {0: [], 1: []}
    assert placed(queue, free) == {} and placed(queue, {0: [5]}) == {0: [4]}


def test_requests_of_a_lost_rank_come_first_with_their_output() -> None:
    queue = queue_of(1, 2)
    queue.add_returned(request(3), [7, 8], None)
    queue.add_returned(request(4), [9], None)
    ((first, second, third),) = queue.place({0: [0, 1, 2]}).values()
    assert [one.request.internal_id for one in (first, second, third)] == [3, 4, 1]
    assert (first.output_token_ids, first.slot) == ([7, 8], 2)


def test_a_request_waits_for_its_home_and_keeps_nobody_else_waiting() -> None:
    queue = queue_of(1)
    queue.add_returned(request(2), [5], 1)
    assert placed(queue, {0: [0, 1]}) == {0: [1]} and len(queue) == 1
    assert placed(queue, {0: [0], 1: []}) == {}
    assert placed(queue, {0: [0], 1: [3]}) == {1: [2]} and not len(queue)


def test_an_aborted_request_waits_no_longer() -> None:
    queue = queue_of(1)
    queue.add_returned(request(2), [], None)
    assert queue.remove(1) and queue.remove(2) and not queue.remove(1)
    assert len(queue) == 0 and placed(queue, {0: [0]}) == {}


def test_who_has_waited_too_long_hears_for_what() -> None:
    queue = queue_of(1, 2)
    queue.add_returned(request(3), [7], 0)
    queue.add_returned(request(4), [], None)
    queue.add_returned(request(5), [8], None)
    outages = RankOutages(range(2), 10.0, 0.0)
    assert list(queue.take_expired(outages, 9.0)) == []
    outages.lost(0, 9.0)
    outages.up(1)
    ((first, why, code),) = queue.take_expired(outages, 10.0)
    assert (first.internal_id, code) == (3, ErrorCode.LOST) and "rank 0" in why
    assert list(queue.take_expired(outages, 1e9)) == []
    outages.lost(1, 100.0)
    rest = [(one.internal_id, code) for one, _, code in queue.take_expired(outages, 110.0)]
    unavailable, lost = ErrorCode.UNAVAILABLE, ErrorCode.LOST
    assert rest == [(4, unavailable), (5, lost), (1, unavailable), (2, unavailable)]
    assert len(queue) == 0
