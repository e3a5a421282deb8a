"""The fields of a request that an API server wrote."""

from __future__ import annotations

from typing import Any

import pytest

from tokenpipe.types import Request, SamplingParams


def test_request_fields_are_the_json_object_in_extra() -> None:
    def fields(extra: bytes) -> dict[str, Any]:
        return Request(1, "", 0, (1,), SamplingParams(), extra=extra).request_fields

    assert fields(b"") == {}
    assert fields('{"priority": 3, "größe": [null]}'.encode()) == {"priority": 3, "größe": [None]}
    for raw in (b"[1]", b"\xff", b"{"):
        with pytest.raises(ValueError):
            fields(raw)
