"""Errors in OpenAI's form, with the status that the code of the error has."""

from __future__ import annotations

import json

import pytest

from tokenpipe.api.problems import STATUS, Problem, of_output, unavailable
from tokenpipe.types import ErrorCode, FinishReason, RequestOutput


def failed(code: ErrorCode, error: str | None, field: str | None = None) -> RequestOutput:
    return RequestOutput(
        "r", 0, 0, [], FinishReason.ERROR, error=error, error_code=code, error_field=field
    )


def test_each_code_of_a_failure_has_a_status() -> None:
    assert set(STATUS) == set(ErrorCode) - {ErrorCode.NONE}
    assert {code for code, status in STATUS.items() if status < 500} == {ErrorCode.INVALID}


@pytest.mark.parametrize(
    ("status", "kind", "headers"),
    [
        (400, "invalid_request_error", {}),
        (413, "invalid_request_error", {}),
        (500, "server_error", {}),
        (503, "service_unavailable", {"retry-after": "1"}),
    ],
)
def test_the_kind_and_the_headers_follow_from_the_status(
    status: int, kind: str, headers: dict[str, str]
) -> None:
    problem = Problem(status, "is wrong", param="n", code="x")
    assert problem.body == {
        "error": {"message": "is wrong", "type": kind, "param": "n", "code": "x"}
    }
    assert dict(problem.headers) == headers and str(problem) == "is wrong"


def test_the_last_event_of_a_stream_is_the_same_json() -> None:
    problem = unavailable("the engine is\n\nnot there")
    assert problem.status == 503 and problem.code == "unavailable"
    head, _, tail = problem.event.partition(b"data: ")
    assert (head, tail[-2:]) == (b"", b"\n\n") and tail.count(b"\n") == 2
    assert json.loads(tail) == problem.body


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_an_output_that_failed_has_the_status_of_its_code(code: ErrorCode) -> None:
    problem = of_output(failed(code, "it failed\nTraceback"), "prompt")
    assert (problem.status, problem.code) == (STATUS[code], code.name.lower())
    wanted = "it failed\nTraceback" if code is ErrorCode.INVALID else "it failed"
    assert problem.message == wanted  # a log's tail is not for callers


def test_a_failure_without_code_or_words_is_the_servers() -> None:
    problem = of_output(failed(ErrorCode.NONE, None), "prompt")
    assert (problem.status, problem.message) == (500, "the request failed")


def test_the_prompt_is_called_what_its_endpoint_calls_it() -> None:
    output = failed(ErrorCode.INVALID, "too long", "prompt_token_ids")
    assert of_output(output, "messages").param == "messages"
    assert of_output(failed(ErrorCode.INVALID, "x", "guided"), "messages").param == "guided"
    assert of_output(failed(ErrorCode.INVALID, "x"), "messages").param is None
