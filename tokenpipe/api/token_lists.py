"""Check the fields that may have a million entries. The first wrong entry is the answer.

Pydantic would check such a list once for each type that it may have, and keep an error for each
wrong entry.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticCustomError

Prompts = list[str] | list[Sequence[int]]

MAX_STOP_IDS = 1 << 16
PROMPT_IS = (
    "must be a text, a list of token ids (integers from 0 to 2147483647), or a list of either"
)
STOP_IDS_ARE = f"must be a list of at most {MAX_STOP_IDS} token ids (integers from 0 to 2147483647)"


def prompts_of(value: Any) -> Prompts:
    """Return the value of `prompt` as a list of texts, or of lists of ids."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _wrong(PROMPT_IS)
    if not value:
        raise _wrong("must not be empty")
    if type(value[0]) is int:
        return [_ids(value, PROMPT_IS)]
    if all(type(prompt) is str for prompt in value):
        return list(value)
    if not all(type(prompt) is list for prompt in value):
        raise _wrong(PROMPT_IS)
    if not all(value):
        raise _wrong("a list of token ids must not be empty")
    return [_ids(prompt, PROMPT_IS) for prompt in value]


def stop_ids_of(value: Any) -> Sequence[int]:
    """Return the value of `stop_token_ids`."""
    if not isinstance(value, list) or len(value) > MAX_STOP_IDS:
        raise _wrong(STOP_IDS_ARE)
    return _ids(value, STOP_IDS_ARE)


def _ids(value: list[Any], what: str) -> Sequence[int]:
    try:
        ids = array("i", value)
    except (OverflowError, TypeError):
        raise _wrong(what) from None
    if ids and min(ids) < 0:
        raise _wrong(what)
    return ids


def _wrong(what: str) -> PydanticCustomError:
    return PydanticCustomError("token_list", what)
