"""The reader of frames: what it counts, which frames it keeps, what it cancels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.client.frames import Row, output_frame
from tokenpipe.bench.client_results import ClientResults, PlannedRequest
from tokenpipe.bench.column_reader import EARLY_WAIT_S, ColumnReader
from tokenpipe.bench.oracle import logprobs_of, sequence
from tokenpipe.types import FINISH_CODES, FinishReason
from tokenpipe.wire import OutputFrame

BASE = 0xABCD << 32
LENGTH, ABORT, ERROR = map(
    FINISH_CODES.index, (FinishReason.LENGTH, FinishReason.ABORT, FinishReason.ERROR)
)
Entry = tuple[list[int], list[float], int]


class ScriptedClient:
    """A client whose keys count up and whose frames were made before."""

    def __init__(self, frames: list[bytes] | None = None) -> None:
        self.coming = frames or []
        self.submitted: list[int] = []
        self.cancelled: list[int] = []

    def submit(self, prompt: list[int], params: Any) -> int:
        assert params.ignore_eos
        self.submitted.append(params.max_tokens)
        return BASE + len(self.submitted)

    def cancel(self, key: int) -> None:
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
    requests: list[PlannedRequest], frames: list[bytes], k: int | None = None
) -> tuple[ClientResults, ScriptedClient]:
    results, client = ClientResults(requests, k), ScriptedClient(frames)
    ColumnReader(client, results, patience_s=0.0).run()  # type: ignore[arg-type]
    return results, client


def test_counts_what_ended_and_why() -> None:
    results, client = run(
        [PlannedRequest(0.0, 5), PlannedRequest(0.0, 3)],
        [
            output_frame(row(1, 0, 2), row(2, 0, 3, LENGTH)),
            output_frame(row(1, 2, 3, LENGTH)),
        ],
    )
    assert client.submitted == [5, 3]
    report = results.report()
    assert (report["tokens"], report["reasons"], report["short"]) == (8, {"length": 2}, 0)
    assert results.checker.verdict().wrong == 0


def test_a_request_that_ends_early_by_itself_is_short() -> None:
    results, _ = run([PlannedRequest(0.0, 5)], [output_frame(row(1, 0, 2, LENGTH))])
    assert results.short == 1
    results, _ = run([PlannedRequest(0.0, 5)], [output_frame(row(1, 0, 2, ABORT))])
    assert results.short == 0 and results.reasons == {"abort": 1}


def test_cancels_at_the_planned_token_and_once() -> None:
    requests = [PlannedRequest(0.0, 9, 4), PlannedRequest(0.0, 9, 0), PlannedRequest(0.0, 9)]
    frames = [
        output_frame(row(1, 0, 3), row(2, 0, 1), row(3, 0, 9, LENGTH)),
        output_frame(row(1, 3, 2)),
        output_frame(row(1, 5, 1, ABORT), row(2, 1, 0, ABORT)),
    ]
    results, client = run(requests, frames[:1])
    assert client.cancelled == [BASE + 2]  # at once; the first request has too few tokens yet
    results, client = run(requests, frames)
    assert client.cancelled == [BASE + 2, BASE + 1]
    assert results.cancelled == 2 and results.reasons == {"abort": 2, "length": 1}
    assert results.checker.verdict().wrong == 0


def test_a_row_that_comes_early_waits_for_the_one_before_it() -> None:
    results, _ = run(
        [PlannedRequest(0.0, 6)],
        [
            output_frame(row(1, 4, 2, LENGTH)),
            output_frame(row(1, 2, 2)),
            output_frame(row(1, 0, 2)),
        ],
    )
    assert results.reasons == {"length": 1} and results.checker.verdict().wrong == 0


def test_tokens_that_never_come_are_lost_in_the_end() -> None:
    results, _ = run([PlannedRequest(0.0, 6)], [output_frame(row(1, 4, 2, LENGTH))])
    assert results.reasons == {"length": 1} and results.checker.verdict().lost == 4


def test_an_early_frame_does_not_wait_longer_than_its_time() -> None:
    results = ClientResults([PlannedRequest(0.0, 6)])
    reader = ColumnReader(ScriptedClient(), results)  # type: ignore[arg-type]
    reader._expect(BASE + 1, results.requests[0])
    reader.take(OutputFrame.unpack(output_frame(row(1, 4, 2, LENGTH))))
    until = reader._early[0].until
    reader._check_early(until - EARLY_WAIT_S / 2)
    assert not results.reasons
    reader._check_early(until)
    assert results.reasons == {"length": 1} and results.checker.verdict().lost == 4


def test_a_lane_that_is_read_late_makes_the_frame_wait_longer() -> None:
    results = ClientResults([PlannedRequest(0.0, 6), PlannedRequest(0.0, 2)])
    reader = ColumnReader(ScriptedClient(), results)  # type: ignore[arg-type]
    for key, request in enumerate(results.requests, 1):
        reader._expect(BASE + key, request)
    reader.take(OutputFrame.unpack(output_frame(row(1, 4, 2, LENGTH))))
    (early,) = reader._early
    until = early.until
    reader.take(OutputFrame.unpack(output_frame(row(2, 0, 1))))  # made at an unknown time
    assert early.until == until
    early.until = early.came
    reader.take(OutputFrame.unpack(output_frame(row(2, 1, 1), made_s=early.came - 9.0)))
    assert early.until >= early.came + EARLY_WAIT_S and not results.reasons
    reader.take(OutputFrame.unpack(output_frame(row(1, 0, 4), made_s=early.came - 1.0)))
    assert results.reasons == {"length": 1} and results.checker.verdict().wrong == 0


def test_silence_ends_the_run_and_the_request_has_no_end() -> None:
    results, _ = run([PlannedRequest(0.0, 6), PlannedRequest(0.0, 2)], [output_frame(row(1, 0, 2))])
    assert not results.reasons


def test_an_end_of_an_unknown_request_is_an_error() -> None:
    results, _ = run(
        [PlannedRequest(0.0, 2)], [output_frame(row(7, 0, 1, LENGTH), row(1, 0, 2, LENGTH))]
    )
    assert results.reasons == {"error": 1, "length": 1}
    assert "ended twice" in results.errors[0] and results.checker.verdict().misattributed == 1


def test_a_final_row_with_an_unknown_offset_ends_where_the_stream_stands() -> None:
    end = Row(BASE + 1, 0xFFFFFFFF, [], ERROR, error="processor 0 was lost")
    results, _ = run([PlannedRequest(0.0, 6)], [output_frame(row(1, 0, 2)), output_frame(end)])
    assert results.reasons == {"error": 1} and results.errors == ["processor 0 was lost"]
    assert results.checker.verdict().wrong == 0


@pytest.mark.parametrize("k", [0, 3])
def test_logprobs_are_checked_token_by_token(k: int) -> None:
    tokens = sequence(BASE + 1, 0, 4)
    right = scored(tokens, k)
    wrong = [*right[:2], ([tokens[2]] * (k + 1), [0.5] * (k + 1), right[2][2]), right[3]]
    for entries, misscored in ((right, 0), (wrong, 1), (right[:2] + right[:2], 2)):
        made = output_frame(row(1, 0, 4, LENGTH, logprobs=entries))
        results, _ = run([PlannedRequest(0.0, 4)], [made], k)
        assert results.report()["misscored"] == misscored
        assert results.checker.verdict().wrong == misscored
    other_rank = [*right[:3], (*right[3][:2], right[3][2] + 1)]
    results, _ = run(
        [PlannedRequest(0.0, 4)], [output_frame(row(1, 0, 4, LENGTH, logprobs=other_rank))], k
    )
    assert results.report()["misscored"] == 1


def test_missing_and_unwanted_logprobs_are_counted() -> None:
    tokens = sequence(BASE + 1, 0, 4)
    results, _ = run([PlannedRequest(0.0, 4)], [output_frame(row(1, 0, 4, LENGTH))], 2)
    assert results.report()["misscored"] == 4
    unwanted = output_frame(row(1, 0, 4, LENGTH, logprobs=scored(tokens, 2)))
    results, _ = run([PlannedRequest(0.0, 4)], [unwanted])
    assert results.report()["misscored"] == 4
    results, _ = run([PlannedRequest(0.0, 4)], [unwanted], 1)
    assert results.report()["misscored"] == 4
