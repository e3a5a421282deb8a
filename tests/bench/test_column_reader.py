"""The reader of frames: what it books, what it holds, what it gives up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.client.frames import Row, output_frame
from tokenpipe.bench.client_results import ClientResults, PlannedRequest
from tokenpipe.bench.column_reader import AHEAD_S, ColumnReader
from tokenpipe.bench.oracle import logprobs_of, sequence
from tokenpipe.types import FINISH_CODES, FinishReason
from tokenpipe.wire import OutputFrame

BASE = 0xABCD << 32
LENGTH, ABORT, ERROR = map(
    FINISH_CODES.index, (FinishReason.LENGTH, FinishReason.ABORT, FinishReason.ERROR)
)
Entry = tuple[list[int], list[float], int]


class Face:
    """A client's face: keys count up, and frames come that were made beforehand."""

    def __init__(self, frames: list[bytes] | None = None) -> None:
        self.coming = frames or []
        self.submitted: list[int] = []
        self.cancelled: list[int] = []

    def submit(self, prompt: list[int], params: Any) -> int:
        assert params.ignore_eos
        self.submitted.append(params.max_tokens)
        return BASE + len(self.submitted)

    def give_up(self, key: int) -> None:
        self.cancelled.append(key)

    def frames(self, timeout_s: float) -> Iterator[OutputFrame]:
        while self.coming:
            yield OutputFrame.unpack(self.coming.pop(0))


def scored(tokens: list[int], k: int) -> list[Entry]:
    columns = logprobs_of(np.array(tokens, dtype=np.int32), k)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def row(key: int, offset: int, count: int, finish: int = 0, **more: Any) -> Row:
    return Row(BASE + key, offset, sequence(BASE + key, offset, count), finish, **more)


def run(
    work: list[PlannedRequest], frames: list[bytes], k: int | None = None
) -> tuple[ClientResults, Face]:
    me, face = ClientResults(work, k), Face(frames)
    ColumnReader(face, me, patience_s=0.0).run()  # type: ignore[arg-type]
    return me, face


def test_books_what_ended_and_how() -> None:
    me, face = run(
        [PlannedRequest(0.0, 5), PlannedRequest(0.0, 3)],
        [
            output_frame(row(1, 0, 2), row(2, 0, 3, LENGTH)),
            output_frame(row(1, 2, 3, LENGTH)),
        ],
    )
    assert face.submitted == [5, 3]
    report = me.report()
    assert (report["tokens"], report["reasons"], report["short"]) == (8, {"length": 2}, 0)
    assert me.checker.verdict().wrong == 0


def test_a_request_that_ends_early_by_itself_is_short() -> None:
    me, _ = run([PlannedRequest(0.0, 5)], [output_frame(row(1, 0, 2, LENGTH))])
    assert me.short == 1
    me, _ = run([PlannedRequest(0.0, 5)], [output_frame(row(1, 0, 2, ABORT))])
    assert me.short == 0 and me.reasons == {"abort": 1}


def test_gives_up_at_its_token_and_once() -> None:
    work = [PlannedRequest(0.0, 9, 4), PlannedRequest(0.0, 9, 0), PlannedRequest(0.0, 9)]
    frames = [
        output_frame(row(1, 0, 3), row(2, 0, 1), row(3, 0, 9, LENGTH)),
        output_frame(row(1, 3, 2)),
        output_frame(row(1, 5, 1, ABORT), row(2, 1, 0, ABORT)),
    ]
    me, face = run(work, frames[:1])
    assert face.cancelled == [BASE + 2]  # at once; the first has not had its tokens
    me, face = run(work, frames)
    assert face.cancelled == [BASE + 2, BASE + 1]
    assert me.cancelled == 2 and me.reasons == {"abort": 2, "length": 1}
    assert me.checker.verdict().wrong == 0


def test_a_row_that_comes_early_waits_for_the_one_before_it() -> None:
    me, _ = run(
        [PlannedRequest(0.0, 6)],
        [
            output_frame(row(1, 4, 2, LENGTH)),
            output_frame(row(1, 2, 2)),
            output_frame(row(1, 0, 2)),
        ],
    )
    assert me.reasons == {"length": 1} and me.checker.verdict().wrong == 0


def test_a_row_whose_predecessor_never_comes_is_counted_in_the_end() -> None:
    me, _ = run([PlannedRequest(0.0, 6)], [output_frame(row(1, 4, 2, LENGTH))])
    assert me.reasons == {"length": 1} and me.checker.verdict().lost == 4


def test_a_held_row_is_not_waited_for_longer_than_its_time() -> None:
    me = ClientResults([PlannedRequest(0.0, 6)])
    reader = ColumnReader(Face(), me)  # type: ignore[arg-type]
    reader._expect(BASE + 1, me.work[0])
    reader.take(OutputFrame.unpack(output_frame(row(1, 4, 2, LENGTH))))
    held = reader._held[0].until
    reader._check_what_fits(held - AHEAD_S / 2)
    assert not me.reasons
    reader._check_what_fits(held)
    assert me.reasons == {"length": 1} and me.checker.verdict().lost == 4


def test_a_lane_that_is_read_late_is_waited_for() -> None:
    me = ClientResults([PlannedRequest(0.0, 6), PlannedRequest(0.0, 2)])
    reader = ColumnReader(Face(), me)  # type: ignore[arg-type]
    for key, work in enumerate(me.work, 1):
        reader._expect(BASE + key, work)
    reader.take(OutputFrame.unpack(output_frame(row(1, 4, 2, LENGTH))))
    (held,) = reader._held
    until = held.until
    reader.take(OutputFrame.unpack(output_frame(row(2, 0, 1))))  # nobody knows when it was made
    assert held.until == until
    held.until = held.came
    reader.take(OutputFrame.unpack(output_frame(row(2, 1, 1), made_s=held.came - 9.0)))
    assert held.until >= held.came + AHEAD_S and not me.reasons
    reader.take(OutputFrame.unpack(output_frame(row(1, 0, 4), made_s=held.came - 1.0)))
    assert me.reasons == {"length": 1} and me.checker.verdict().wrong == 0


def test_silence_ends_the_wait_and_the_request_has_not_ended() -> None:
    me, _ = run([PlannedRequest(0.0, 6), PlannedRequest(0.0, 2)], [output_frame(row(1, 0, 2))])
    assert not me.reasons


def test_an_end_of_a_request_nobody_made_is_an_error() -> None:
    me, _ = run(
        [PlannedRequest(0.0, 2)], [output_frame(row(7, 0, 1, LENGTH), row(1, 0, 2, LENGTH))]
    )
    assert me.reasons == {"error": 1, "length": 1}
    assert "ended twice" in me.errors[0] and me.checker.verdict().misattributed == 1


def test_an_end_whose_writer_did_not_know_the_offset() -> None:
    end = Row(BASE + 1, 0xFFFFFFFF, [], ERROR, error="processor 0 was lost")
    me, _ = run([PlannedRequest(0.0, 6)], [output_frame(row(1, 0, 2)), output_frame(end)])
    assert me.reasons == {"error": 1} and me.errors == ["processor 0 was lost"]
    assert me.checker.verdict().wrong == 0


@pytest.mark.parametrize("k", [0, 3])
def test_logprobs_are_checked_token_by_token(k: int) -> None:
    tokens = sequence(BASE + 1, 0, 4)
    right = scored(tokens, k)
    wrong = [*right[:2], ([tokens[2]] * (k + 1), [0.5] * (k + 1), right[2][2]), right[3]]
    for entries, misscored in ((right, 0), (wrong, 1), (right[:2] + right[:2], 2)):
        made = output_frame(row(1, 0, 4, LENGTH, logprobs=entries))
        me, _ = run([PlannedRequest(0.0, 4)], [made], k)
        assert me.report()["misscored"] == misscored
        assert me.checker.verdict().wrong == misscored
    other_rank = [*right[:3], (*right[3][:2], right[3][2] + 1)]
    me, _ = run(
        [PlannedRequest(0.0, 4)], [output_frame(row(1, 0, 4, LENGTH, logprobs=other_rank))], k
    )
    assert me.report()["misscored"] == 1


def test_logprobs_that_are_missing_or_unasked_for_are_counted() -> None:
    tokens = sequence(BASE + 1, 0, 4)
    me, _ = run([PlannedRequest(0.0, 4)], [output_frame(row(1, 0, 4, LENGTH))], 2)
    assert me.report()["misscored"] == 4
    unasked = output_frame(row(1, 0, 4, LENGTH, logprobs=scored(tokens, 2)))
    me, _ = run([PlannedRequest(0.0, 4)], [unasked])
    assert me.report()["misscored"] == 4
    me, _ = run([PlannedRequest(0.0, 4)], [unasked], 1)
    assert me.report()["misscored"] == 4
