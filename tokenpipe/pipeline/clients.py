"""Serve all clients: turn their messages into events and send them final rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tokenpipe.events import AbortRequested, ClientLost, Event, Submitted
from tokenpipe.instance import Instance
from tokenpipe.topology import Topology
from tokenpipe.transport import Peer, Waiter
from tokenpipe.types import ErrorCode, Request
from tokenpipe.wire import Cancel, CloseClient, Message, OpenClient, Submit

from .bindings import BindingTable
from .client_link import ClientLink
from .final_rows import FinalRow
from .outcomes import Outcomes

SHUTTING_DOWN = "the engine is shutting down"
NO_TOKENIZER = "stop strings need text, and the topology has no tokenizer"


class Clients:
    """The lanes to all clients, and the requests that come from them."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        me: Peer,
        waiter: Waiter,
        table: BindingTable,
        outcomes: Outcomes,
        clock: Callable[[], float],
    ) -> None:
        """Open no lane yet."""
        self.shutting_down = False
        self._instance = instance
        self._topology = topology
        self._me = me
        self._waiter = waiter
        self._table = table
        self._outcomes = outcomes
        self._clock = clock
        self._links: list[ClientLink] = []

    def open(self) -> None:
        """Bind the submit lane of each client index."""
        for index in range(self._topology.clients):
            self._links.append(
                ClientLink(
                    self._instance, self._topology, index, self._me, self._waiter, self._clock
                )
            )

    @property
    def next_deadline(self) -> float:
        """The time at which `serve` is due next if no message comes."""
        return min((link.next_deadline for link in self._links), default=float("inf"))

    def present(self) -> list[Message]:
        """Return the commands that announce the present clients to a new processor."""
        return [OpenClient(link.index, link.client) for link in self._links if link.client]

    @property
    def problems(self) -> dict[str, str]:
        """The clients that run and do not answer, with what is wrong."""
        return {f"client {link.index}": said for link in self._links if (said := link.problem())}

    def serve(self) -> Iterator[Event | OpenClient | CloseClient]:
        """Read all clients. Yield events for the engine and commands for all processors."""
        for link in self._links:
            for incarnation, reason in link.client_changes():
                if incarnation:
                    yield OpenClient(link.index, incarnation)
                else:
                    yield CloseClient(link.index)
                    yield from self._lost(link.index, reason)
            for message in link.read():
                match message:
                    case Submit():
                        yield from self._submitted(link, message)
                    case Cancel():
                        yield from self._cancelled(link, message.key)
                    case _:
                        link.bad_messages += 1

    def send(self, rows: Iterable[FinalRow]) -> None:
        """Send final rows, and the rows that earlier calls could not send."""
        for row in rows:
            self._links[row.client].add(row)
        for link in self._links:
            link.flush()

    def close(self, end: float) -> None:
        """Close all lanes by the time `end`."""
        for link in self._links:
            link.close(max(0.0, min(1.0, end - self._clock())))

    def _submitted(self, link: ClientLink, message: Submit) -> Iterator[Event]:
        request = Request(
            internal_id=message.key,
            external_id=message.external_id,
            client=link.index,
            prompt_token_ids=message.prompt_token_ids,
            params=message.params,
            parent=message.parent or None,
            sample_index=message.sample_index,
            extra=message.extra,
        )
        if not self._table.add(request):
            link.bad_messages += 1
        elif message.params.stop and self._topology.tokenizer is None:
            self._reject(message.key, ErrorCode.INVALID, NO_TOKENIZER)
        elif self.shutting_down:
            self._reject(message.key, ErrorCode.UNAVAILABLE, SHUTTING_DOWN)
        else:
            yield Submitted(request)

    def _reject(self, key: int, code: ErrorCode, error: str) -> None:
        self._outcomes.reject(self._table.requests[key], code, error)

    def _cancelled(self, link: ClientLink, key: int) -> Iterator[Event]:
        entry = self._table.requests.get(key)
        if entry is None or entry.request.client != link.index or entry.abort_requested:
            return
        entry.abort_requested = True
        yield AbortRequested(entry.request)

    def _lost(self, client: int, reason: str) -> Iterator[Event]:
        yield ClientLost(client, self._instance.note("client", str(client)), reason)
        for entry in self._table.of_client(client):
            if not entry.abort_requested:
                entry.abort_requested = True
                yield AbortRequested(entry.request)
