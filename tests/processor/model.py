"""What must come out, in plain Python: one request, one scheduler, one worker rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.processor import beside, text_model
from tests.processor.rig import EOS, Row
from tokenpipe.types import RowStatus

STOP, LENGTH, ABORT, ERROR = 1, 2, 3, 4


@dataclass
class Request:
    """A request whose every token follows from its key: a worker may begin at any offset."""

    key: int
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: tuple[int, ...]
    k: int
    text: bool = False
    stop: tuple[str, ...] = ()
    interval: int = 1
    with_extras: bool = False  # every row of it carries extras
    extras_offset: int = 0  # as the scheduler knows it
    aborted: bool = False
    output: tuple[int, ...] = ()  # as the scheduler knows it
    failed_at: set[int] = field(default_factory=set)  # offsets at which a bad row was written
    outcome: int = 0

    def token(self, offset: int) -> int:
        """Return the token at an offset; ends are frequent enough to matter."""
        return ((self.key + 1) * 2654435761 + (offset + 1) * 40503) // 8 % 70

    def expected(self) -> tuple[list[int], int, int]:
        """Return ids, finish code and stop reason of an undisturbed run."""
        if self.text:
            ids, _, finish, reason, _ = self.expected_text()
            return ids, finish, reason
        return expected(
            [self.token(i) for i in range(self.max_tokens)],
            self.max_tokens,
            self.min_tokens,
            self.ignore_eos,
            self.stop_token_ids,
        )

    def expected_text(self, count: int | None = None) -> text_model.Outcome:
        """Return all that is made of it, or of its first `count` tokens where it goes on then."""
        tokens = [self.token(i) for i in range(self.max_tokens if count is None else count)]
        ends = (*self.stop_token_ids, *(() if self.ignore_eos else EOS))
        return text_model.expected(tokens, self.max_tokens, self.min_tokens, ends, self.stop)


def expected(
    tokens: Sequence[int],
    max_tokens: int,
    min_tokens: int = 0,
    ignore_eos: bool = False,
    stop_token_ids: Sequence[int] = (),
    eos: Sequence[int] = EOS,
) -> tuple[list[int], int, int]:
    """Return ids, finish code (0: goes on) and stop reason of a request with these tokens."""
    ends = {*stop_token_ids, *(() if ignore_eos else eos)}
    for i, token in enumerate(tokens):
        if i + 1 >= min_tokens and token in ends:
            return list(tokens[: i + 1]), STOP, token
        if i + 1 == max_tokens:
            return list(tokens[: i + 1]), LENGTH, -1
    return list(tokens), 0, -1


@dataclass
class Running:
    """A binding as the worker sees it."""

    request: Request
    base: int
    done: int = 0  # tokens since bind


class Worker:
    """A worker rank: it runs what it was given until it is told to let go."""

    def __init__(self) -> None:
        self.running: dict[int, Running] = {}
        self.frees: list[int] = []

    def rows(self, handle: int, n: int, again: int = 0, drained: bool = False) -> Row:
        """Compute n more tokens; `again` of those before are told once more."""
        r = self.running[handle]
        again = min(again, r.done)
        first = r.done - again
        tokens = [r.request.token(r.base + first + i) for i in range(again + n)]
        r.done += n
        if drained:
            del self.running[handle]
        status = RowStatus.DRAINED if drained else RowStatus.OK
        extras = b""
        if r.request.with_extras:  # the first row of a binding brings its prompt's logprobs
            extras = beside.packed(tokens, prompt=0 if first else 3, at=1)
        return Row(handle, tokens, status, position=first, k=r.request.k, extras=extras)

    def bad_row(self, handle: int, kind: int) -> Row:
        """Write a row that ends its request with an error."""
        r = self.running[handle]
        r.request.failed_at.add(r.base + r.done)
        tokens = ([-1], [], [], [], [])[kind]
        return Row(handle, tokens, (0, 2, 3, 4, 99)[kind], position=r.done, k=-1)

    def let_go(self) -> list[Row]:
        """Answer each free with a drained row."""
        rows = []
        for handle in self.frees:
            r = self.running.pop(handle, None)
            rows.append(Row(handle, (), RowStatus.DRAINED, position=r.done if r else 0))
        self.frees.clear()
        return rows
