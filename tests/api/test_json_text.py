"""JSON is written in UTF-8."""

from __future__ import annotations

import json

import pytest

from tokenpipe.api.json_text import json_bytes, json_text, quoted


@pytest.mark.case("F30")
def test_text_is_not_escaped_to_ascii() -> None:
    value = {"text": '日本 "é" \n'}
    assert json_text(value) == '{"text": "日本 \\"é\\" \\n"}'
    assert json_bytes(value) == json_text(value).encode()
    assert json.loads(quoted('日 " \x01 \\')) == '日 " \x01 \\'
    lines = "a\u2028b\u2029c\x85d"
    assert quoted(lines).splitlines() == [quoted(lines)] and json.loads(quoted(lines)) == lines
    assert json.loads(json_bytes(["\ud800"])) == ["?"]
