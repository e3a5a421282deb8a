"""A processor goes on from its journal, or says why it begins anew."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tokenpipe.processor.journal import Journal
from tokenpipe.processor.lives import new_life, next_life
from tokenpipe.topology import Topology

TOPOLOGY = Topology(data_parallel_size=3, tensor_parallel_size=2, processors={"count": 2})


@pytest.fixture
def fds() -> Iterator[list[int]]:
    made = [os.memfd_create("journal") for _ in range(2)]
    yield made
    for fd in made:
        os.close(fd)


def test_a_new_life_has_the_lanes_of_its_ranks_and_an_incarnation_of_its_own() -> None:
    one, other = new_life(0, TOPOLOGY), new_life(0, TOPOLOGY)
    assert set(one.ranks) == {0, 1}
    assert set(one.workers) == {(dp, tp) for dp in (0, 1) for tp in (0, 1)}
    assert one.incarnation != other.incarnation


def test_the_next_life_is_that_of_the_journal(fds: list[int]) -> None:
    assert next_life(0, TOPOLOGY, None)[1] == "it has no journal"
    assert next_life(0, TOPOLOGY, Journal(fds))[1] == "its journal is empty"
    one = new_life(0, TOPOLOGY)
    Journal(fds).begin(one.image())
    again, why = next_life(0, TOPOLOGY, Journal(fds))
    assert (again.incarnation, why) == (one.incarnation, "")


def test_a_journal_that_cannot_be_read_is_a_reason(
    fds: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    one = new_life(0, TOPOLOGY)
    Journal(fds).begin(one.image()[:-1])
    again, why = next_life(0, TOPOLOGY, Journal(fds))
    assert again.incarnation != one.incarnation and "joined bytes" in why
    assert "processor 0 cannot go on from its journal" in caplog.text
    assert not again.clients and not any(rank.up for rank in again.ranks.values())
