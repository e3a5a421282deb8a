"""Collect an engine's commands and send them together."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from tokenpipe.errors import TokenpipeError
from tokenpipe.instance import close_at_exit
from tokenpipe.types import Request, split_handle
from tokenpipe.wire import Abort, Bind, Preempt, StepBind

from .bindings import BindingTable, Entry
from .text_params import text_fields

if TYPE_CHECKING:
    from tokenpipe.wire import Message


class Outlet(Protocol):
    """The part of the pipeline that StepCommands uses."""

    def dispatch(self, dp_rank: int, messages: Sequence[Message]) -> None:
        """Send messages to the processor that owns a DP rank."""

    def incarnation(self, dp_rank: int) -> int:
        """Return the rank's incarnation, 0 while it is down."""

    def end_unbound(self, entry: Entry) -> None:
        """Give an unbound request its final output and its Aborted event."""


class StepCommands:
    """The commands of one engine step. The end of the `with` block sends them.

    A block that raises still sends the commands before the error, because their handles exist.
    """

    def __init__(
        self, table: BindingTable, outlet: Outlet, dp_rank: int, text: bool = False
    ) -> None:
        """Begin the commands for a DP rank. `text`: the topology has a tokenizer."""
        self._table = table
        self._outlet = outlet
        self._dp_rank = dp_rank
        self._text = text
        self._messages: dict[int, list[Message]] = {}

    def bind(
        self,
        request: Request,
        slot: int,
        *,
        output_token_ids: Sequence[int] | None = None,
        prefill: bool = False,
        cached_tokens: int = 0,
    ) -> int:
        """Bind a request to a slot of this DP rank; return the handle.

        `output_token_ids` are the tokens that the request has already; with None they are those
        of its last binding. With `prefill` the binding ends with a `PrefillDone` event after its
        first row with tokens. `cached_tokens` is the number of prompt tokens that were in a cache,
        for the request's usage. Raises `SlotBusy` or `TokenpipeError`.
        """
        handle, entry = self._table.bind(request, self._dp_rank, slot)
        if output_token_ids is not None:
            entry.output_token_ids = tuple(output_token_ids)
        params = request.params
        self._add(
            self._dp_rank,
            Bind(
                handle=handle,
                rank_incarnation=self._outlet.incarnation(self._dp_rank),
                key=request.internal_id,
                client=request.client,
                max_tokens=params.max_tokens,
                min_tokens=params.min_tokens,
                ignore_eos=params.ignore_eos,
                stop_token_ids=params.stop_token_ids,
                output_token_ids=entry.output_token_ids,
                prefill=prefill,
                stream_interval=params.stream_interval,
                stream_interval_ms=params.stream_interval_ms,
                cached_tokens=cached_tokens,
                extras_offset=entry.extras_offset,
                **(text_fields(request) if self._text and params.detokenize else {}),
            ),
        )
        return handle

    def step_bind(self, handle: int) -> StepBind:
        """Return the `StepBind` of a bound handle: its request and the output so far.

        Raises `TokenpipeError` for a handle that is not bound or has its outcome.
        """
        binding = self._table.find(handle)
        if binding is None:
            raise TokenpipeError(f"step_bind: {handle} is not bound, or has its outcome")
        request, ids = binding.entry.request, binding.entry.output_token_ids
        return StepBind(
            handle=handle,
            key=request.internal_id,
            output_tokens=len(ids),
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=ids,
            max_tokens=request.params.max_tokens,
            extra=request.extra,
            params=request.params,
        )

    def preempt(self, what: Request | int) -> None:
        """Take a bound request (or handle) out of its slot.

        The event `Rescheduled` follows after the worker's drained row. The call does nothing if
        the outcome has come. Raises `TokenpipeError` for a number that cannot be a handle.
        """
        binding = self._table.find(what)
        if binding is not None and binding.entry.handle is not None:
            handle = binding.entry.handle
            self._add(split_handle(handle)[0], Preempt(handle))

    def abort(self, what: Request | int) -> None:
        """Abort a request (or handle), bound or not. Idempotent.

        Its client gets the final output at once. The event `Aborted` follows, then `Released`
        after the worker's drained row.
        """
        binding = self._table.find(what)
        if binding is not None:
            handle = binding.entry.handle
            if handle is not None and not binding.aborting:
                binding.aborting = True
                self._add(split_handle(handle)[0], Abort(handle))
            return
        if isinstance(what, Request):
            entry = self._table.entry(what)
            if entry is not None and entry.handle is None:
                self._outlet.end_unbound(entry)

    def _add(self, dp_rank: int, message: Message) -> None:
        self._messages.setdefault(dp_rank, []).append(message)

    def send(self) -> None:
        """Send the collected commands. The `with` block calls this."""
        collected, self._messages = self._messages, {}
        for dp_rank, messages in collected.items():
            self._outlet.dispatch(dp_rank, messages)

    def __enter__(self) -> StepCommands:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send the commands."""
        close_at_exit(self.send, error)
