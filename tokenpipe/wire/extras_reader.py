"""Read the extras of one request as they come, and lay them beside its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tokenpipe.errors import FrameError
from tokenpipe.types import OutputExtras, TokenLogprobs

from .extras_codec import (
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
    records,
)

MOST_PROMPT_TOKENS = 1 << 24


@dataclass(slots=True)
class _Row:
    """What came with tokens offset to offset + count - 1; `skip` entries are not theirs."""

    offset: int
    count: int
    skip: int
    parts: dict[int, Any]
    told: bool = False  # what is not per token was given


class ExtrasReader:
    """Take the bytes of a request's extras in order, give back what belongs to its tokens.

    For readers of whole frames, row by row: `take(extras, offset, offset + count, finished)`, with
    the row's part of `OutputFrame.extras`.

    Args:
        prompt_tokens: how many tokens the prompt has; None: any number.
        keep: give everything from the first token on each time, as cumulative outputs do.
    """

    def __init__(self, prompt_tokens: int | None = None, keep: bool = False) -> None:
        self._prompt_tokens = MOST_PROMPT_TOKENS if prompt_tokens is None else prompt_tokens
        self._keep = keep
        self._data = b""  # the beginning of what is not there to its end
        self._rows: list[_Row] = []  # of tokens that were not asked for; all of them with `keep`
        self._end = 0  # where the last row ends
        self._prompt: list[TokenLogprobs | None] = []
        self._prompt_has = 0
        self._pooled: Any = None
        self._custom: list[tuple[int, bytes]] = []
        self._reasoning: int | None = None
        self._cached: int | None = None

    def take(self, data: bytes, begin: int, end: int, last: bool = False) -> OutputExtras | None:
        """Take more bytes; return what belongs to output tokens begin to end - 1, None if nothing.

        What came beside no token belongs to the next one, or to the `last` output. FrameError
        where the bytes are no extras.
        """
        if data:
            self._read(self._data + data)
        extras = OutputExtras()
        some = False
        left = []
        for row in self._rows:
            if row.offset < end or last:
                self._tell(row)
                some |= _lay(row, extras, begin, end)
            if self._keep or (row.offset + max(row.count, 1) > end and not last):
                left.append(row)
        self._rows = left
        some |= self._whole(extras)
        return extras if some else None

    def usage(self, output_tokens: int, cached: int = 0) -> tuple[int, int | None]:
        """Return what a request's usage has beside its tokens: (cached, reasoning or None).

        `output_tokens` is how many it has; `cached` counts where no extras say it.
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
            self._rows.append(_Row(offset, count, skip, parts))
            self._end = offset + count
            at = body + size
        self._data = data[at:]

    def _tell(self, row: _Row) -> None:
        """Take what belongs to a row as a whole, once."""
        if row.told:
            return
        row.told = True
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
        """Take what is new of a prompt's logprobs: a prefill that is run again repeats them."""
        end = position + len(scores.ranks)
        if end > self._prompt_tokens:
            raise FrameError(f"prompt_logprobs: {end} of {self._prompt_tokens} prompt tokens")
        if end <= self._prompt_has:
            return
        fresh = _token_logprobs(scores)
        self._prompt += [None] * (position - self._prompt_has)
        self._prompt += fresh[max(0, self._prompt_has - position) :]
        self._prompt_has = end

    def _whole(self, extras: OutputExtras) -> bool:
        """Put what is not per token into the extras; False where there is none."""
        extras.prompt_logprobs = list(self._prompt) or None
        extras.pooled = self._pooled
        extras.custom = list(self._custom) or None
        if not self._keep:
            self._prompt, self._pooled, self._custom = [], None, []
        return bool(extras.prompt_logprobs or extras.custom) or extras.pooled is not None


def _lay(row: _Row, extras: OutputExtras, begin: int, end: int) -> bool:
    """Put what a row says of each token beside the tokens begin to end - 1."""
    first, until = max(begin, row.offset), min(end, row.offset + row.count)
    if until <= first:
        return False
    laid = False
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
        laid = True
    return laid


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
