"""Read the extras of one request as they come, and assign them to its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tokenpipe.errors import FrameError
from tokenpipe.types import OutputExtras, TokenLogprobs

from .extras_format import (
    CACHED,
    CUSTOM,
    DRAFT_LOGPROBS,
    DRAFTS,
    MASKS,
    POOLED,
    PROMPT_LOGPROBS,
    REASONING,
    WRAP,
    Scores,
)
from .extras_parser import records

MOST_PROMPT_TOKENS = 1 << 24


@dataclass(slots=True)
class _Wrapped:
    """The extras of the output tokens `offset` to `offset + count - 1`."""

    offset: int
    count: int
    skip: int  # entries before those of the first token
    parts: dict[int, Any]  # values by kind of record
    noted: bool = False  # the parts that are not per token were taken


class ExtrasReader:
    """Takes the bytes of one request's extras in order and returns the extras of its tokens.

    A reader of whole frames calls `take(extras, offset, offset + count, finished)` for each row,
    with the row's part of `OutputFrame.extras`.

    Args:
        prompt_tokens: number of the prompt's tokens; None for any number.
        keep: return the extras of all tokens each time, as cumulative outputs do.
    """

    def __init__(self, prompt_tokens: int | None = None, keep: bool = False) -> None:
        self._prompt_tokens = MOST_PROMPT_TOKENS if prompt_tokens is None else prompt_tokens
        self._keep = keep
        self._data = b""  # the beginning of an incomplete wrap
        self._rows: list[_Wrapped] = []  # of tokens that were not returned; all with `keep`
        self._end = 0  # the first output token after the last row
        self._prompt: list[TokenLogprobs | None] = []
        self._prompt_has = 0
        self._pooled: Any = None
        self._custom: list[tuple[int, bytes]] = []
        self._reasoning: int | None = None
        self._cached: int | None = None

    def take(self, data: bytes, begin: int, end: int, last: bool = False) -> OutputExtras | None:
        """Take more bytes. Return the extras of the output tokens begin to end - 1, None for none.

        Extras that came without a token belong to the next token, or to the `last` output. Raises
        FrameError if the bytes are malformed.
        """
        if data:
            self._read(self._data + data)
        extras = OutputExtras()
        some = False
        left = []
        for row in self._rows:
            if row.offset < end or last:
                self._note(row)
                some |= _assign(row, extras, begin, end)
            if self._keep or (row.offset + max(row.count, 1) > end and not last):
                left.append(row)
        self._rows = left
        some |= self._add_noted(extras)
        return extras if some else None

    def usage(self, output_tokens: int, cached: int = 0) -> tuple[int, int | None]:
        """Return the (cached, reasoning) tokens of a request's usage; reasoning may be None.

        `output_tokens` is the number of its output tokens, the most that reasoning can be.
        `cached` counts if no extras have a number of cached tokens.
        """
        known = cached if self._cached is None else min(self._cached, self._prompt_tokens)
        reasoning = self._reasoning
        return known, None if reasoning is None else min(reasoning, output_tokens)

    def _read(self, data: bytes) -> None:
        at = 0
        while len(data) - at >= WRAP.size:
            offset, count, skip, size = WRAP.unpack_from(data, at)
            body = at + WRAP.size
            if offset < self._end:
                raise FrameError(f"extras of token {offset} behind those of {self._end - 1}")
            if size > len(data) - body:
                break
            parts = dict(records(data[body : body + size], 0, size))
            self._rows.append(_Wrapped(offset, count, skip, parts))
            self._end = offset + count
            at = body + size
        self._data = data[at:]

    def _note(self, row: _Wrapped) -> None:
        """Take the parts of a row that are not per token, once."""
        if row.noted:
            return
        row.noted = True
        if (found := row.parts.get(PROMPT_LOGPROBS)) is not None:
            self._add_prompt(*found)
        if (pooled := row.parts.get(POOLED)) is not None:
            self._pooled = pooled
        if (custom := row.parts.get(CUSTOM)) is not None:
            self._custom.append((row.offset, custom))
        if (reasoning := row.parts.get(REASONING)) is not None:
            self._reasoning = reasoning
        if (cached := row.parts.get(CACHED)) is not None:
            self._cached = cached

    def _add_prompt(self, position: int, scores: Scores) -> None:
        """Take the new logprobs of a prompt. A prefill that runs again repeats the old ones."""
        end = position + len(scores.ranks)
        if end > self._prompt_tokens:
            raise FrameError(f"prompt_logprobs: {end} of {self._prompt_tokens} prompt tokens")
        if end <= self._prompt_has:
            return
        fresh = _token_logprobs(scores)
        self._prompt += [None] * (position - self._prompt_has)
        self._prompt += fresh[max(0, self._prompt_has - position) :]
        self._prompt_has = end

    def _add_noted(self, extras: OutputExtras) -> bool:
        """Set the parts that are not per token. Return whether there is one."""
        extras.prompt_logprobs = list(self._prompt) or None
        extras.pooled = self._pooled
        extras.custom = list(self._custom) or None
        if not self._keep:
            self._prompt, self._pooled, self._custom = [], None, []
        return bool(extras.prompt_logprobs or extras.custom) or extras.pooled is not None


def _assign(row: _Wrapped, extras: OutputExtras, begin: int, end: int) -> bool:
    """Set a row's entries at the tokens begin to end - 1. Return whether there is one."""
    first, until = max(begin, row.offset), min(end, row.offset + row.count)
    if until <= first:
        return False
    some = False
    for kind, name, read in PER_TOKEN:
        entries = row.parts.get(kind)
        if entries is None:
            continue
        values = read(entries, row.skip + first - row.offset, row.skip + until - row.offset)
        if not values:
            continue
        column = getattr(extras, name)
        if column is None:
            column = [None] * (end - begin)
            setattr(extras, name, column)
        column[first - begin : first - begin + len(values)] = values
        some = True
    return some


def _some_masks(masks: list[Any], start: int, stop: int) -> list[Any]:
    return masks[start:stop]


def _some_drafts(drafts: NDArray[Any], start: int, stop: int) -> list[int | None]:
    return [None if token < 0 else token for token in drafts[start:stop].tolist()]


def _some_scores(scores: Scores, start: int, stop: int) -> list[TokenLogprobs | None]:
    ids, values, ranks = scores
    return _token_logprobs(Scores(ids[start:stop], values[start:stop], ranks[start:stop]))


def _token_logprobs(scores: Scores) -> list[TokenLogprobs | None]:
    return [
        TokenLogprobs(
            tuple(ids), tuple(None if value != value else value for value in values), rank
        )
        for ids, values, rank in zip(*(array.tolist() for array in scores), strict=True)
    ]


PER_TOKEN = (
    (MASKS, "sampling_masks", _some_masks),
    (DRAFTS, "draft_token_ids", _some_drafts),
    (DRAFT_LOGPROBS, "draft_logprobs", _some_scores),
)
