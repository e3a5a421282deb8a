"""Control frames: every message there and back, and everything that is refused by name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import u64
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.types import RequestOutputKind, SamplingParams
from tokenpipe.wire import (
    Bind,
    Cancel,
    LaneHeader,
    Message,
    StepBind,
    StepPlan,
    Submit,
    pack_control,
    unpack_control,
)
from tokenpipe.wire.fields import Blob, Flag, Int, Ints, Numbers, OneOf, Real, Strings, Utf8
from tokenpipe.wire.messages import TAGS
from tokenpipe.wire.schema import ArraySpec, MapSpec

HEADER = LaneHeader(1, 2, 3, 4)


def values(spec: Any) -> st.SearchStrategy[Any]:
    """Return what a field of this spec may hold."""
    match spec:
        case Int():
            some = st.integers(spec.low, spec.high)
            return st.one_of(some, st.none()) if spec.optional else some
        case Real():
            return st.floats(allow_nan=False, allow_infinity=False)
        case Flag():
            return st.booleans()
        case Utf8():
            return st.text(max_size=20)
        case Blob():
            return st.binary(max_size=20)
        case Ints():
            high = (1 << 31) - 1 if spec.typecode == "i" else (1 << 63) - 1
            return st.lists(st.integers(0, high), max_size=8).map(tuple)
        case Strings():
            return st.lists(st.text(min_size=1, max_size=9), max_size=3).map(tuple)
        case Numbers():
            return st.dictionaries(st.text(max_size=5), u64, max_size=3)
        case ArraySpec():
            return st.lists(messages(spec.entry.cls), max_size=3).map(tuple)
        case MapSpec():
            return st.builds(
                lambda low, more, **rest: SamplingParams(
                    min_tokens=low, max_tokens=low + more, **rest
                ),
                low=st.integers(0, 100),
                more=st.integers(1, 1000),
                temperature=st.floats(0, 1e300),
                seed=values(Int(-(1 << 63), (1 << 64) - 1, optional=True)),
                logprobs=st.one_of(st.none(), st.integers(0, 20)),
                prompt_logprobs=st.one_of(st.none(), st.integers(0, 20)),
                stop_token_ids=values(Ints("i", 9)),
                ignore_eos=st.booleans(),
                stop=values(Strings(9, 9)),
                include_stop_str_in_output=st.booleans(),
                skip_special_tokens=st.booleans(),
                spaces_between_special_tokens=st.booleans(),
                stream_interval=st.integers(1, 100),
                stream_interval_ms=st.integers(0, 100),
                output_kind=st.sampled_from(RequestOutputKind),
            )
    if isinstance(spec, OneOf):
        return st.sampled_from(list(spec.members))
    raise TypeError(spec)


def messages(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Return messages of a class, from its declaration."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{f.name: values(get_args(hints[f.name])[1]) for f in fields(cls)})


lane_headers = st.builds(LaneHeader, u64, u64, u64, u64)
any_message = st.one_of(*(messages(cls) for cls in TAGS.values()))


@given(lane_headers, st.lists(any_message, max_size=4))
@pytest.mark.case("B61")
def test_arrives_as_it_was_sent(header: LaneHeader, sent: list[Message]) -> None:
    assert unpack_control(pack_control(header, sent)) == (header, sent)


@given(any_message, st.data())
@pytest.mark.case("B73")
def test_damaged_bytes_are_a_frame_error_or_a_message(
    message: Message, data: st.DataObject
) -> None:
    raw = bytearray(pack_control(HEADER, [message]))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        unpack_control(bytes(raw))


def frame_of(body: Any, header: Any = (1, 2, 3, 4), kind: int = 3, version: int = 1) -> bytes:
    raw: bytes = msgpack.packb([kind, version, header, body])
    return raw


def test_unknown_messages_are_skipped_and_counted() -> None:
    raw = frame_of([[9999, {"x": 1}], [33, {"key": 5}], [77, {}]])
    counters: dict[str, int] = {}
    assert unpack_control(raw, counters)[1] == [Cancel(5)]
    assert counters == {"unknown_messages": 2}
    assert unpack_control(raw)[1] == [Cancel(5)]


def test_unknown_fields_are_skipped_and_absent_ones_take_their_default() -> None:
    raw = frame_of([[33, {"key": 5, "later": [1, {"a": 2}]}]])
    assert unpack_control(raw)[1] == [Cancel(5)]
    needed = {f.name for f in fields(Bind) if f.default is MISSING and f.default_factory is MISSING}
    raw = frame_of([[1, dict.fromkeys(needed, 7)]])
    assert unpack_control(raw)[1] == [Bind(7, 7, 7, 7, 7)]


BIND = {"handle": 1, "rank_incarnation": 2, "key": 3, "client": 4, "max_tokens": 5}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "the body is no array"),
        ([1], r"message 0: expected \[tag, map\]"),
        ([[1]], r"message 0: expected \[tag, map\]"),
        ([[True, {}]], r"message 0: expected \[tag, map\]"),
        ([[33, {"key": 1}], [33, {}]], r"message 1: Cancel.key: absent"),
        ([[33, {"key": True}]], r"Cancel.key: .* got bool True"),
        ([[33, {"key": -1}]], r"Cancel.key: expected an integer in 0\.\."),
        ([[33, {"key": 1.0}]], r"Cancel.key: .* got float"),
        ([[1, BIND | {"handle": 0}]], r"Bind.handle: expected an integer in 1\.\."),
        ([[1, BIND | {"handle": 1 << 63}]], r"Bind.handle"),
        ([[1, BIND | {"ignore_eos": 1}]], r"Bind.ignore_eos: expected true or false"),
        ([[1, BIND | {"stop_token_ids": [1, 2]}]], r"Bind.stop_token_ids: expected a bin"),
        ([[1, BIND | {"stop_token_ids": b"12345"}]], r"got 5 bytes"),
        ([[1, BIND | {"output_token_ids": b"\xff" * 4}]], r"output_token_ids: .* integers >= 0"),
        ([[16, {"handle": 1, "finish": 5, "stop_reason": -1, "output_tokens": 0}]], "finish"),
        ([[24, {"id": 1, "values": {"a": "b"}}]], r"Counters.values: expected a map of names"),
        ([[32, {"key": 1, "external_id": "x" * 4097}]], r"external_id: .* at most 4096 bytes"),
        ([[48, {"number": 1, "binds": {}}]], r"StepPlan.binds: expected an array"),
        ([[48, {"number": 1, "binds": [{"handle": 1}]}]], r"StepPlan.binds: StepBind.key: absent"),
        ([[48, {"number": 1, "extra": "text"}]], r"StepPlan.extra: expected bytes"),
        ([[48, {"number": 1, "extra": [[[[[[[[1]]]]]]]]}]], "too many|nested"),
    ],
)
def test_refuses_by_index_and_field(body: Any, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        unpack_control(frame_of(body))


@pytest.mark.parametrize(
    "params", [{"max_tokens": 0}, {"temperature": float("nan")}, {"min_tokens": 99}, {"n": "1"}]
)
def test_refuses_sampling_params_that_the_vocabulary_refuses(params: dict[str, Any]) -> None:
    submit = {"key": 1, "external_id": "r", "prompt_token_ids": b"", "params": params}
    with pytest.raises(FrameError, match=r"message 0: Submit.params"):
        unpack_control(frame_of([[32, submit]]))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80\x04\x95\x10.",  # how a pickle begins
        frame_of([], kind=0),
        frame_of([], version=2),
        frame_of([], header=(1, 2, 3)),
        frame_of([], header=(1, 2, 3, -4)),
        frame_of([], header=(1, 2, 3, 4, "x")),
        frame_of([], header=tuple(range(33))),
        frame_of([]) + b"\0",
        frame_of([])[:-1] + b"\xdd\xff\xff\xff\xff",
        frame_of([])[:-1] + b"\xc6\x7f\xff\xff\xff",
        frame_of([])[:-1] + b"\xc1",
        frame_of([msgpack.ExtType(1, b"x")]),
        frame_of([])[:-1] + b"\x91" * 100_000,
        frame_of([[33, {5: 5}]]),
        frame_of([])[:-1] + b"\x91\x92\x21\x81\xa1\xff\x01",  # a name that is not UTF-8
    ],
)
@pytest.mark.case("B73")
def test_refuses_what_is_no_control_frame(raw: bytes) -> None:
    with pytest.raises(FrameError):
        unpack_control(raw)


def test_does_not_send_what_would_be_refused() -> None:
    params = SamplingParams()
    refused: list[tuple[Message, str]] = [
        (Cancel(-1), r"Cancel.key: expected an integer"),
        (Submit(1, "x" * 5000, (), params), r"Submit.external_id"),
        (Submit(1, "x", (-1,), params), r"Submit.prompt_token_ids: expected integers >= 0"),
        (Submit(1, "x", (1 << 31,), params), r"Submit.prompt_token_ids"),
        (Submit(1, "x", ("a",), params), r"Submit.prompt_token_ids"),  # type: ignore[arg-type]
        (Submit(1, "\ud800", (), params), r"Submit.external_id"),
        (StepPlan(1, (StepBind(0, 1, 0),)), r"StepPlan.binds: StepBind.handle"),
    ]
    for message, says in refused:
        with pytest.raises(ValueError, match=says):
            pack_control(HEADER, [message])


def test_check_value_bounds_depth() -> None:
    _core.check_value(msgpack.packb([[1, {"a": [2.5, None, True, "x", b"y", -3]}]]), 4)
    with pytest.raises(FrameError):
        _core.check_value(msgpack.packb([[1, {"a": [2]}]]), 3)
