"""Cut a step whose frame is too large into parts, each of which fits a frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenpipe.extras import PromptLogprobs, RowExtras
from tokenpipe.types import RowStatus
from tokenpipe.wire import pack_extras

from .arrays import as_array

HEAD_BYTES = 512  # the header of a frame, and the heads of its columns
ROW_BYTES = 64  # of all columns for a row without tokens, and the heads of its extras


@dataclass(slots=True)
class _Piece:
    """A row, or the tokens `first` to `last` of it, `last` not included."""

    row: int
    first: int
    last: int
    status: int
    extras: RowExtras | None


@dataclass(slots=True)
class WaitingParts:
    """The parts of a step that are not sent yet."""

    step: int
    waiting: deque[tuple[Any, ...]]
    before: int | None  # the newest step that was sent before
    sent: bool = False  # whether a part was sent


class StepParts:
    """The rows of a step, as arrays that were checked before."""

    def __init__(
        self,
        handles: Any,
        tokens: Any,
        counts: Any,
        status: Any,
        drained: Any,
        logprobs: tuple[Any, Any, Any, Any],
        extras: Mapping[int, RowExtras] | None,
    ) -> None:
        """Copy the arrays: the caller may fill them again before the last part is sent."""
        self._handles = np.array(handles, np.int64)
        rows = len(self._handles)
        self._tokens = np.array(as_array(tokens, np.int32), np.int64)
        self._counts = _or_all(counts, rows, 1)
        self._status = _or_all(status, rows, RowStatus.OK)
        self._drained = [] if drained is None else np.array(as_array(drained, np.int64)).tolist()
        k, ids, values, ranks = logprobs
        self._k = _or_all(k, rows, -1)
        self._ids, self._ranks = (_or_all(given, 0, 0) for given in (ids, ranks))
        self._values = np.zeros(0, np.float32) if values is None else np.array(values, np.float32)
        self._extras = dict(extras or {})
        scored = np.where(self._k >= 0, self._counts, 0)
        self._first_token = _starts(self._counts)
        self._first_entry = _starts(scored * (self._k + 1))
        self._first_rank = _starts(scored)

    def cut(self, limit: int) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of each part for the packer: handles, tokens, counts, ..., extras.

        A row that fits no frame, not even with one token, becomes an error row that says so.
        """
        room = limit - HEAD_BYTES
        part: list[_Piece] = []
        size = 0
        for piece in self._pieces(room):
            more = self._size(piece)
            if part and size + more > room:
                yield self._columns(part)
                part, size = [], 0
            part.append(piece)
            size += more
        drained = self._drained
        while len(drained) * ROW_BYTES > room - size:
            now = max((room - size) // ROW_BYTES, 0)
            if part or now:
                yield self._columns(part, drained[:now])
            drained, part, size = drained[now:], [], 0
        yield self._columns(part, drained)

    def _pieces(self, room: int) -> Iterator[_Piece]:
        for row, (count, status) in enumerate(
            zip(self._counts.tolist(), self._status.tolist(), strict=True)
        ):
            yield from self._fit(_Piece(row, 0, count, status, self._extras.get(row)), room)

    def _fit(self, piece: _Piece, room: int) -> Iterator[_Piece]:
        size = self._size(piece)
        tokens = piece.last - piece.first
        scores = None if piece.extras is None else piece.extras.prompt_logprobs
        if size <= room:
            yield piece
        elif scores is not None and (most := _most_scores(scores, room)) > 0:
            for part in _cut_prompt(scores, most):
                at = piece.first
                yield _Piece(piece.row, at, at, RowStatus.OK, RowExtras(prompt_logprobs=part))
            assert piece.extras is not None
            rest = replace(piece.extras, prompt_logprobs=None)
            yield from self._fit(replace(piece, extras=rest), room)
        elif tokens > 1:
            middle = piece.first + tokens // 2
            head, tail = _cut_extras(piece.extras, tokens // 2)
            first = _Piece(piece.row, piece.first, middle, RowStatus.OK, head)
            yield from self._fit(first, room)
            yield from self._fit(_Piece(piece.row, middle, piece.last, piece.status, tail), room)
        else:
            why = f"the results of a step take {size} bytes; a frame has at most {room} for a row"
            at = piece.first
            error = RowExtras(error=f"{why} (max_frame_bytes)")
            yield _Piece(piece.row, at, at, RowStatus.ERROR, error)
            if piece.status == RowStatus.DRAINED:
                yield _Piece(piece.row, at, at, RowStatus.DRAINED, None)

    def _size(self, piece: _Piece) -> int:
        n, k = piece.last - piece.first, int(self._k[piece.row])
        size = ROW_BYTES + 4 * n + (n * (4 + 8 * (1 + k)) if k >= 0 else 0)
        return size + (len(pack_extras(piece.extras, n)) if piece.extras else 0)

    def _columns(self, pieces: list[_Piece], drained: list[int] | None = None) -> tuple[Any, ...]:
        tokens, entries, ranks, packed = [], [], [], []
        for piece in pieces:
            first, last, k = piece.first, piece.last, int(self._k[piece.row])
            at = self._first_token[piece.row]
            tokens.append(np.arange(at + first, at + last))
            if k >= 0:
                at = self._first_entry[piece.row]
                entries.append(np.arange(at + first * (k + 1), at + last * (k + 1)))
                at = self._first_rank[piece.row]
                ranks.append(np.arange(at + first, at + last))
            packed.append(pack_extras(piece.extras, last - first) if piece.extras else b"")
        rows = np.array([piece.row for piece in pieces], np.int64)
        return (
            self._handles[rows],
            self._tokens[_joined(tokens)],
            np.array([piece.last - piece.first for piece in pieces], np.int32),
            np.array([piece.status for piece in pieces], np.uint8),
            np.array(drained, np.int64) if drained else None,
            self._k[rows] if entries else None,
            self._ids[_joined(entries)] if entries else None,
            self._values[_joined(entries)] if entries else None,
            self._ranks[_joined(ranks)] if entries else None,
            np.array([len(part) for part in packed], np.uint32) if any(packed) else None,
            b"".join(packed) if any(packed) else None,
        )


def _or_all(given: Any, rows: int, default: int) -> Any:
    if given is None:
        return np.full(rows, default, np.int64)
    return np.array(as_array(given, np.int32), np.int64)


def _starts(sizes: Any) -> Any:
    return np.concatenate(([0], np.cumsum(sizes)))


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _most_scores(scores: PromptLogprobs, room: int) -> int:
    """Return how many tokens of the prompt fit a row."""
    return (room - 2 * ROW_BYTES) // (4 + 8 * int(np.shape(scores.token_ids)[1]))


def _cut_prompt(scores: PromptLogprobs, most: int) -> Iterator[PromptLogprobs]:
    position, *given = scores
    ids, values, ranks = (np.asarray(as_array(array, np.int32)) for array in given)
    for at in range(0, len(ids), most):
        part = slice(at, at + most)
        yield PromptLogprobs(position + at, ids[part], values[part], np.ravel(ranks)[part])


def _cut_extras(extras: RowExtras | None, n: int) -> tuple[RowExtras | None, RowExtras | None]:
    """Return the extras of a row's first n tokens, and the others, with all that is of the row."""
    if extras is None:
        return None, None
    lists = (extras.sampling_masks, extras.draft_token_ids)
    masks, drafts = [(None, None) if x is None else (x[:n], x[n:]) for x in lists]
    scores: tuple[Any, Any] = (None, None)
    if extras.draft_logprobs is not None:
        arrays = [np.asarray(as_array(x, np.int32)) for x in extras.draft_logprobs]
        scores = tuple(x[:n] for x in arrays), tuple(x[n:] for x in arrays)
    names = ("sampling_masks", "draft_token_ids", "draft_logprobs")
    head = RowExtras(**dict(zip(names, (masks[0], drafts[0], scores[0]), strict=True)))
    return head, replace(extras, **dict(zip(names, (masks[1], drafts[1], scores[1]), strict=True)))
