"""A lane's own messages: written, read, and refused field by field."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.errors import FrameError
from tokenpipe.transport.lane_messages import (
    _FIELDS,
    MAX_MESSAGE_BYTES,
    VERSION,
    LaneMessage,
    foreign_version,
    pack,
    unpack,
)

u64 = st.integers(0, (1 << 64) - 1)
VALUES = {int: u64, str: st.text(max_size=20), bool: st.booleans()}


@given(st.data(), st.sampled_from(sorted(_FIELDS)), u64, u64, u64)
def test_every_type_there_and_back(
    data: st.DataObject, name: str, instance: int, source: int, target: int
) -> None:
    fields: dict[str, Any] = {
        field: data.draw(VALUES[wanted]) for field, wanted in _FIELDS[name].items()
    }
    raw = pack(instance, source, target, name, **fields)
    assert unpack(raw) == LaneMessage(instance, source, target, name, fields)
    assert foreign_version(raw) is None


def test_unknown_fields_are_skipped_and_an_unknown_type_has_none() -> None:
    assert unpack(pack(1, 2, 3, "ack", applied=4, later=[5])).fields == {"applied": 4}
    assert unpack(pack(1, 2, 3, "later", x=1)) == LaneMessage(1, 2, 3, "later", {})


def test_a_later_version_may_have_more_integers_in_its_header() -> None:
    raw = msgpack.packb([0, VERSION, [1, 2, 3, 0, 9], {"type": "who"}])
    assert unpack(raw) == LaneMessage(1, 2, 3, "who", {})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"type": "ack"}, "ack: applied is not int"),
        ({"type": "ack", "applied": True}, "ack: applied is not int"),
        ({"type": "ack", "applied": -1}, "ack: applied is not int"),
        ({"type": "ack", "applied": 1.0}, "ack: applied is not int"),
        ({"type": "refuse", "code": b"x", "detail": ""}, "refuse: code is not str"),
        ({"type": "resend", "first": 1}, "resend: last is not int"),
        ({"type": 3}, "no map with a type"),
        ({}, "no map with a type"),
        (["ack"], "no map with a type"),
    ],
)
def test_a_wrong_field_is_named(body: Any, says: str) -> None:
    with pytest.raises(FrameError, match=f"^lane message.*{says}"):
        unpack(msgpack.packb([0, VERSION, [1, 2, 3, 0], body]))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x94\x00",
        msgpack.packb({}),
        msgpack.packb([0, VERSION, [1, 2], {"type": "who"}]),
        msgpack.packb([1, VERSION, [1, 2, 3, 0], {"type": "who"}]),
        msgpack.packb([0, VERSION + 1, [1, 2, 3, 0], {"type": "who"}]),
        msgpack.packb([0, VERSION, [1, 2, 3, 0], {"type": "who"}]) + b"\0",
        b"\x91" * 1000,
        pack(1, 2, 3, "refuse", code="x", detail="y" * MAX_MESSAGE_BYTES),
    ],
)
def test_what_is_no_lane_message_is_a_frame_error(raw: bytes) -> None:
    with pytest.raises(FrameError, match=r"^lane message"):
        unpack(raw)


@given(st.binary(max_size=60))
def test_noise_is_a_frame_error_or_a_message(raw: bytes) -> None:
    try:
        unpack(raw)
    except FrameError:
        foreign_version(raw)


def test_another_version_is_told_from_noise() -> None:
    other = msgpack.packb([0, VERSION + 1, [1, 2, 3, 0], {"type": "hello"}])
    assert foreign_version(other) == VERSION + 1
    for raw in (b"", b"\x94", b"\x94\x01\x02\x03", b"\x93\x00\x02\x03", b"\x94\x00\xcc\xff"):
        assert foreign_version(raw) is None
