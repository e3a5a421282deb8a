"""Keep the engine's table: which request sits in which slot under which handle. No I/O.

A request enters with its submit and leaves with its outcome. A handle enters with its bind and
leaves when it is released. This table turns the handles in processors' reports into requests, so
an engine sees only handles that it got from `bind`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenpipe.errors import SlotBusy, TokenpipeError
from tokenpipe.types import MAX_GENERATION, Request, make_handle, split_handle
from tokenpipe.wire import RankClosed, RankOpened


@dataclass(slots=True)
class Entry:
    """One live request. `output_token_ids` and `text` come from its last binding."""

    request: Request
    handle: int | None = None
    output_token_ids: tuple[int, ...] = ()
    text: tuple[int, bytes] = (0, b"")  # (bytes that its client has, bytes that were held back)
    extras_offset: int = 0  # bytes of extras that its client has
    abort_requested: bool = False  # its client cancelled it, and the engine was told once
    deaths: int = 0  # how often a worker of its rank died while it was bound


@dataclass(slots=True)
class Binding:
    """One handle. It is `open` until its outcome and stays in the table until its release."""

    entry: Entry
    incarnation: int = 0  # of the rank at the bind; 0 if the rank was down
    open: bool = True
    aborting: bool = False


class BindingTable:
    """Requests by key, bindings by handle, the latest generation by slot."""

    def __init__(self, data_parallel_size: int, slots: int, first_generation: int = 1) -> None:
        """Make empty tables for `data_parallel_size` ranks of `slots` slots."""
        self.slots = slots
        self.requests: dict[int, Entry] = {}
        self.bindings: dict[int, Binding] = {}
        self.incarnations = [0] * data_parallel_size  # of each rank, 0 while it is down
        self._opened: set[int] = set()  # all incarnations so far
        self._generations = [[first_generation - 1] * slots for _ in range(data_parallel_size)]

    # --- requests ---

    def add(self, request: Request) -> bool:
        """Add a submitted request. Return False where its key exists already."""
        if request.internal_id in self.requests:
            return False
        self.requests[request.internal_id] = Entry(request)
        return True

    def entry(self, request: Request) -> Entry | None:
        """Return the entry of a live request, None after its outcome."""
        return self.requests.get(request.internal_id)

    def end(self, entry: Entry) -> None:
        """Remove a request after its final outcome."""
        self.requests.pop(entry.request.internal_id, None)

    def of_client(self, client: int) -> list[Entry]:
        """Return the live requests of a client."""
        return [e for e in self.requests.values() if e.request.client == client]

    # --- ranks ---

    def rank_changes(self, report: RankOpened | RankClosed) -> bool:
        """Note a report on a rank. Return False for a repeated one, which changes nothing."""
        now = self.incarnations[report.dp]
        if isinstance(report, RankClosed):
            changes = report.incarnation == now != 0
            self.incarnations[report.dp] = 0 if changes else now
        elif changes := report.incarnation not in self._opened:
            self._opened.add(report.incarnation)
            self.incarnations[report.dp] = report.incarnation
        return changes

    # --- bindings ---

    def bind(self, request: Request, dp_rank: int, slot: int) -> tuple[int, Entry]:
        """Bind a live, unbound request to a slot; return the new handle and the entry.

        Raises `SlotBusy` if the slot's binding has no outcome and is not being aborted, and
        `TokenpipeError` for a request that is unknown, ended or bound.
        """
        if not 0 <= dp_rank < len(self._generations):
            raise TokenpipeError(f"bind: there is no dp rank {dp_rank}")
        if not 0 <= slot < self.slots:
            raise TokenpipeError(
                f"bind: dp rank {dp_rank} has slots 0..{self.slots - 1}, not {slot}"
            )
        entry = self.requests.get(request.internal_id)
        if entry is None:
            raise TokenpipeError(f"bind: request {request.external_id!r} is unknown or has ended")
        if entry.handle is not None:
            where = split_handle(entry.handle)
            raise TokenpipeError(
                f"bind: request {request.external_id!r} is bound to dp {where[0]} slot {where[1]}"
            )
        generation = self._generations[dp_rank][slot]
        holder = self.bindings.get(make_handle(dp_rank, slot, generation)) if generation else None
        if holder is not None and holder.open and not holder.aborting:
            raise SlotBusy(
                f"bind: dp {dp_rank} slot {slot} runs request "
                f"{holder.entry.request.external_id!r}, which has no outcome yet"
            )
        if generation == MAX_GENERATION:
            raise TokenpipeError(f"bind: dp {dp_rank} slot {slot} has no generation left")
        self._generations[dp_rank][slot] = generation + 1
        handle = make_handle(dp_rank, slot, generation + 1)
        entry.handle = handle
        self.bindings[handle] = Binding(entry, self.incarnations[dp_rank])
        return handle, entry

    def find(self, what: Request | int) -> Binding | None:
        """Return the open binding of a request or handle, None if there is none.

        Raises `TokenpipeError` for a number that cannot be a handle.
        """
        if isinstance(what, Request):
            entry = self.requests.get(what.internal_id)
            if entry is None or entry.handle is None:
                return None
            what = entry.handle
        elif what <= 0:
            raise TokenpipeError(f"{what} is not a handle")
        binding = self.bindings.get(what)
        return binding if binding is not None and binding.open else None

    def close(
        self, handle: int, *, output_token_ids: Sequence[int] | None = None
    ) -> Binding | None:
        """Note a binding's outcome. With ids the request lives on, otherwise it has ended.

        Return None if the handle is unknown or has its outcome already: the report is late.
        """
        binding = self.bindings.get(handle)
        if binding is None or not binding.open:
            return None
        binding.open = False
        entry = binding.entry
        entry.handle = None
        if output_token_ids is None:
            self.end(entry)
        else:
            entry.output_token_ids = tuple(output_token_ids)
        return binding

    def died(self, handle: int) -> bool:
        """Return whether a rank's loss, reported for this handle, ended a binding that ran there.

        A processor reports the loss before it reports that the rank is closed. The same report for
        a bind that came too late follows after that. Such a request did not run.
        """
        binding = self.bindings.get(handle)
        present = self.incarnations[split_handle(handle)[0]]
        return binding is not None and binding.incarnation == present != 0

    def release(self, handle: int) -> Entry | None:
        """Remove a handle. Return its entry, None if the handle is unknown."""
        binding = self.bindings.pop(handle, None)
        return None if binding is None else binding.entry

    def handles_of(self, dp_ranks: Sequence[int]) -> Iterator[tuple[int, Binding]]:
        """Yield the handles of these DP ranks that are not released."""
        wanted = set(dp_ranks)
        for handle, binding in list(self.bindings.items()):
            if split_handle(handle)[0] in wanted:
                yield handle, binding

    def floors(self, dp_rank: int) -> tuple[int, ...]:
        """Return the latest generation of each slot. A new processor takes all of them for dead."""
        return tuple(self._generations[dp_rank])
