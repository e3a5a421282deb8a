"""Requests by the caller's id."""

from __future__ import annotations

from tokenpipe.client.request_ids import RequestIds


def test_requests_of_one_id_are_found_until_each_is_over() -> None:
    ids = RequestIds()
    for key, name in ((1, "a"), (2, "a"), (3, "b")):
        ids.add(name, key)
    assert sorted(ids.keys("a")) == [1, 2] and ids.keys("c") == []
    ids.forget("a", 1)
    ids.forget("a", 1)
    assert ids.keys("a") == [2] and sorted(ids.names) == ["a", "b"]
    ids.forget("a", 2)
    assert ids.keys("a") == [] and ids.names == ["b"]


def test_an_abort_is_new_once_and_forgotten_with_its_request() -> None:
    ids = RequestIds()
    ids.add("a", 1)
    assert ids.abort(1) and not ids.abort(1) and ids.aborting == [1]
    ids.forget("a", 1)
    assert ids.aborting == []
