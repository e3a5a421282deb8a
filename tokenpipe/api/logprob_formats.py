"""Write the logprobs of a choice in the format of one endpoint, in small parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tokenpipe.types import TokenLogprobs

from .json_text import json_text
from .token_names import Label, NamedToken, TokenNames

ENTRIES_AT_ONCE = 32  # of a list; 32 tokens with 20 alternatives each take about a millisecond
LOWEST = -9999.0
"""Stands for a log probability of minus infinity, which JSON cannot express."""


def completion_logprobs(
    entries: list[TokenLogprobs], names: TokenNames, last: bool
) -> Iterator[str]:
    """Yield four lists that have an entry for each token. `last`: no token follows."""
    named: list[NamedToken] = []

    def each_name() -> Iterator[str]:
        for token in names.take([entry.token_ids[0] for entry in entries], last):
            named.append(token)
            yield token.name

    def top(entry: TokenLogprobs, own: NamedToken) -> dict[str, float | None]:
        found = {name: finite(value) for name, _, value in names.of_top(entry, own)}
        own_name = names.own_name(entry.token_ids[0], own)
        if entry.token_ids[0] not in entry.token_ids[1:]:
            found[own_name] = finite(entry.logprobs[0])
        return found

    yield '{"tokens": '
    yield from json_list(each_name())
    yield ', "token_logprobs": '
    yield from json_list(finite(entry.logprobs[0]) for entry in entries)
    yield ', "top_logprobs": '
    yield from json_list(map(top, entries, named))
    yield ', "text_offset": '
    yield from json_list((token.offset for token in named), 4096)
    yield "}"


def chat_logprobs(entries: list[TokenLogprobs], names: TokenNames, last: bool) -> Iterator[str]:
    """Yield a list that has an entry for each token, with its alternatives."""
    taken = names.take([entry.token_ids[0] for entry in entries], last)
    yield '{"content": '
    yield from json_list(
        {
            **_token(own.name, own.raw, entry.logprobs[0]),
            "top_logprobs": [_token(*one) for one in names.of_top(entry, own)],
        }
        for entry, own in zip(entries, taken, strict=True)
    )
    yield "}"


def _token(name: str, raw: bytes, logprob: float | None) -> dict[str, Any]:
    return {"token": name, "logprob": finite(logprob), "bytes": list(raw)}


def prompt_logprobs(entry: TokenLogprobs | None, label: Label) -> dict[str, Any] | None:
    """Return the logprobs of a prompt token as vLLM writes them: by id, its own id first."""
    if entry is None:
        return None
    own = entry.token_ids[0]
    by_id: dict[str, Any] = {}
    for nth, (token, value) in enumerate(zip(entry.token_ids, entry.logprobs, strict=True)):
        rank = entry.rank if token == own else nth
        made = {"logprob": finite(value), "rank": rank, "decoded_token": label(token)[0]}
        by_id.setdefault(str(token), made)
    return by_id


def json_list(entries: Iterable[Any], at_once: int = ENTRIES_AT_ONCE) -> Iterator[str]:
    """Yield a JSON list of any size in parts of a few entries, which are made when they are due."""
    left = iter(entries)
    comma = "["
    while some := list(islice(left, at_once)):
        yield comma + json_text(some)[1:-1]
        comma = ", "
    yield "]" if comma == ", " else "[]"


def finite(value: float | None) -> float | None:
    """Return a log probability that JSON can express: null for NaN, `LOWEST` for -infinity."""
    if value is None or math.isnan(value):
        return None
    return max(value, LOWEST) if value < 0 else min(value, 0.0) if math.isinf(value) else value
