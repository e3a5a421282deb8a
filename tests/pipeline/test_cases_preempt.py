"""Preemption, reuse of slots and ids, over real sockets: what a client reads is never mixed up."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tokenpipe import Finished, FinishReason, Released, Rescheduled, SamplingParams

from .case_rig import Got, rig


@pytest.mark.case("B30")
def test_only_a_drained_row_hands_a_request_back(runtime_dir: Path) -> None:
    with rig(runtime_dir) as r:
        key, other = r.submit(tokens=5), r.submit(tokens=50)
        h, o = r.bind(key, 3), r.bind(other, 0)
        r.publish([(h, [10]), (o, [20])])
        r.preempt(h)
        r.settle()  # the processor knows of it by now
        r.publish([(h, []), (o, [21])])  # nothing for it in this step: that says nothing
        r.publish([(o, [22])])  # not in the step at all: nor does that
        r.until(lambda: r.got[other].tokens == [20, 21, 22])
        assert not r.of(Rescheduled)
        r.publish([(h, [11])])  # one more real token
        r.publish([], [h])
        r.until(lambda: r.told_of(h) == ["Rescheduled", "Released"])
        (rescheduled,) = r.of(Rescheduled)
        assert rescheduled.output_token_ids == [10, 11]  # the engine counts as the client does
        r.until(lambda: r.got[key].tokens == [10, 11])
        again = r.bind(key, 3)
        r.publish([(again, [12, 13, 14]), (o, [23])])
        r.until(lambda: r.ended(key))
        assert r.got[key] == Got([10, 11, 12, 13, 14], FinishReason.LENGTH)
        assert r.got[other].tokens[:4] == [20, 21, 22, 23]


@pytest.mark.case("B32")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_preempted_at_every_step_the_stream_is_as_without(runtime_dir: Path, depth: int) -> None:
    total = 24
    with rig(runtime_dir) as r:
        key = r.submit(tokens=total)
        slot, at = 0, 0
        have: list[int] = []
        for turn in range(total):
            h = r.bind(key, slot)
            # The worker is `depth` steps ahead of the word; rows have 1 to 6 tokens.
            r.preempt(h)
            for ahead in range(depth):
                row = list(range(at, min(at + (turn + ahead) % 6 + 1, total)))
                at += len(row)
                r.publish([(h, row)])
            if turn % 3 == 1:
                r.preempt(h)  # again, before the first was answered
            r.publish([], [h])
            r.until(partial(r.was_told, h, "Released"))
            if r.of(Finished):
                break
            have = r.of(Rescheduled)[-1].output_token_ids
            assert have == list(range(at))  # what is late is all used
            slot = slot if turn % 2 else (slot + 1) % 8
        assert at == total
        r.until(lambda: r.ended(key))
        assert r.got[key] == Got(list(range(total)), FinishReason.LENGTH)


@pytest.mark.case("B36")
def test_a_late_row_never_reaches_the_slots_next_owner(runtime_dir: Path) -> None:
    with rig(runtime_dir, clients=2) as r:
        a, b = r.submit(0, tokens=2), r.submit(1, tokens=3)
        first = r.bind(a, 5)
        r.publish([(first, [1, 2])])
        r.until(lambda: r.outcome_of(first))
        second = r.bind(b, 5)  # before the first is drained
        r.publish([(first, [666]), (second, [7])])
        r.publish([(second, [8]), (first, [667])], [first])
        r.publish([(first, [668])])  # after its own last word
        r.publish([(second, [9])], [second])
        r.until(lambda: r.ended(a, b))
        assert (r.got[a].tokens, r.got[b].tokens) == ([1, 2], [7, 8, 9])
        c = r.submit(0, tokens=2)  # and the first owner's client in the same slot again
        third = r.bind(c, 5)
        r.publish([(second, [669]), (first, [670]), (third, [3, 4])], [third])
        r.until(lambda: r.ended(c) and len(r.of(Released)) == 3)
        assert r.got[c].tokens == [3, 4]
        assert len({first, second, third}) == 3


@pytest.mark.case("B35")
def test_one_external_id_many_times_is_as_many_requests(runtime_dir: Path) -> None:
    with rig(runtime_dir, clients=2) as r:
        same = [r.submit(0, tokens=2, request_id="x"), r.submit(1, tokens=2, request_id="x")]
        assert {r.requests[key].external_id for key in same} == {"x"}
        handles = [r.bind(key, slot) for slot, key in enumerate(same)]
        r.publish([(handles[0], [1]), (handles[1], [5])])
        r.publish([(handles[1], [6]), (handles[0], [2])], handles)
        r.until(lambda: r.ended(*same))
        again = r.submit(0, tokens=1, request_id="x")  # finished, and at once once more
        h = r.bind(again, 0)
        r.publish([(h, [9])], [h])
        r.until(lambda: r.ended(again))
        assert [r.got[key].tokens for key in (*same, again)] == [[1, 2], [5, 6], [9]]
        assert len({*same, again}) == 3


@pytest.mark.case("B35")
def test_samples_of_one_request_are_told_apart(runtime_dir: Path) -> None:
    with rig(runtime_dir) as r:
        params = SamplingParams(max_tokens=2, n=3)
        first = r.clients[0].submit([1], params, request_id="x")
        keys = [first, first + 1, first + 2]
        r.got.update({key: Got() for key in keys})
        r.until(lambda: all(key in r.requests for key in keys))
        requests = [r.requests[key] for key in keys]
        assert [q.sample_index for q in requests] == [0, 1, 2]
        assert {q.external_id for q in requests} == {"x"}
        assert [q.parent for q in requests] == [None, first, first]
        handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
        r.publish([(h, [10 * n, 10 * n + 1]) for n, h in enumerate(handles)][::-1], handles)
        r.until(lambda: r.ended(*keys))
        assert [r.got[key].tokens for key in keys] == [[0, 1], [10, 11], [20, 21]]
