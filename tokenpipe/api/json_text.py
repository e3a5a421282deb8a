"""JSON as the API writes it: in UTF-8, without escapes for characters that are not ASCII."""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import Any

_encoder = json.JSONEncoder(ensure_ascii=False)


def quoted(text: str) -> str:
    """Return the JSON of a text."""
    return _in_one_line(encode_basestring(text))


def json_text(value: Any) -> str:
    """Return the JSON of a value."""
    return _in_one_line(_encoder.encode(value))


def json_bytes(value: Any) -> bytes:
    """Return the JSON of a value in UTF-8. Half of a surrogate pair becomes a question mark."""
    return json_text(value).encode(errors="replace")


def _in_one_line(made: str) -> str:
    """Escape the characters at which some readers of an event stream end a line."""
    if made.isascii():
        return made
    made = made.replace("\x85", "\\u0085")
    return made.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
