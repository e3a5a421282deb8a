"""A whole pipeline that one thread drives step by step: real processors, real sockets.

The engine, its workers' publishers and columnar clients live in this thread; what would block on
another of them is done in a thread of its own while this one serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tokenpipe import (
    Client,
    Event,
    FinishReason,
    OutputFrame,
    Pipeline,
    Publisher,
    RankUp,
    Request,
    SamplingParams,
    Submitted,
    Topology,
)
from tokenpipe.types import FINISH_CODES

T = TypeVar("T")
E = TypeVar("E")
PATIENCE_S = 30.0  # until something that must happen is a failure


@dataclass
class Got:
    """What a client got of one request, applied by offset."""

    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    error: str = ""
    repeats: bool = False  # whether rows may come again
    early: list[tuple[int, list[int], FinishReason | None, str]] = field(default_factory=list)

    def take(self, offset: int, tokens: list[int], reason: FinishReason | None, error: str) -> None:
        """Apply a row, or keep it until what lies before it has come."""
        if offset == 0xFFFFFFFF:
            offset = len(self.tokens)
        if offset > len(self.tokens):
            self.early.append((offset, tokens, reason, error))
            return
        if self.repeats:  # of what was not acknowledged when a processor died
            known = len(self.tokens) - offset
            assert tokens[:known] == self.tokens[offset:][: len(tokens)]
            offset, tokens = offset + known, tokens[known:]
        assert offset == len(self.tokens), "a repeat"
        assert self.reason is None, "a row after the end"
        self.tokens += tokens
        self.reason, self.error = reason, error
        waiting, self.early = self.early, []
        for row in waiting:
            self.take(*row)


class Rig:
    """One instance with `clients` columnar clients and a publisher for each rank."""

    def __init__(
        self, base: Path, *, ranks: int = 1, clients: int = 1, workers: bool = True, **topology: Any
    ) -> None:
        given: dict[str, Any] = {
            "runtime_dir": base,
            "data_parallel_size": ranks,
            "slots_per_rank": 8,
        }
        given = {**given, "clients": max(clients, 8), **topology}
        self.pipe = Pipeline(Topology(**given))
        self.events: list[Event] = []
        self.requests: dict[int, Request] = {}
        self.got: dict[int, Got] = {}
        self.pubs: list[Publisher] = []
        self.clients: list[Client] = []
        self.reading = set(range(clients))  # clients that `turn` reads
        self.steps = 0
        try:
            for dp in range(ranks if workers else 0):
                self.open_worker(dp)
            for index in range(clients):
                self.clients.append(
                    self.beside(partial(Client, self.pipe.endpoint, name=f"c{index}"))
                )
        except BaseException:
            self.pipe.close(0.0)
            raise

    def open_worker(self, dp: int) -> None:
        """Open the publisher of a rank and wait until the rank is up."""
        before = len(self.of(RankUp))
        self.pubs.append(self.beside(lambda: Publisher(self.pipe.endpoint, dp)))
        self.until(lambda: len(self.of(RankUp)) > before)

    # --- time -----------------------------------------------------------------------------------

    def turn(self) -> None:
        """Let everybody do what is due."""
        for pub in self.pubs:
            pub.poll()
        self.pipe.wait(0.005)
        for event in self.pipe.poll():
            self.events.append(event)
            if isinstance(event, Submitted):
                self.requests[event.request.internal_id] = event.request
        for index, _ in enumerate(self.clients):
            if index in self.reading:
                self.read(index)

    def read(self, index: int) -> None:
        """Read what is there for a client."""
        for frame in self.clients[index].frames(timeout_s=0.0):
            self.apply(frame)

    def apply(self, frame: OutputFrame) -> None:
        """BindingTable the rows of a frame."""
        at = 0
        for i, key in enumerate(frame.keys.tolist()):
            count = int(frame.counts[i])
            tokens = frame.tokens[at : at + count].tolist()
            at += count
            reason = FINISH_CODES[int(frame.finish[i])]
            self.got[key].take(int(frame.offsets[i]), tokens, reason, frame.errors[i])

    def until(self, fact: Callable[[], object]) -> None:
        """Take turns until the fact holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not fact():
            assert time.monotonic() < deadline, self.events[-20:]
            self.turn()

    def start(self, work: Callable[[], object]) -> threading.Thread:
        """Return a thread that does `work` while others take turns."""
        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def beside(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, done in a thread of its own while this one serves."""
        done: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(work())
            except BaseException as error:
                failed.append(error)

        thread = self.start(run)
        while thread.is_alive():
            self.turn()
        if failed:
            raise failed[0]
        return done[0]

    # --- the engine, its workers, its clients ---------------------------------------------------

    def submit(self, client: int = 0, tokens: int = 100, **more: Any) -> int:
        """Submit a request and wait until the engine has it; returns its key."""
        (key,) = self.submit_many(1, client, tokens, **more)
        return key

    def submit_many(self, n: int, client: int = 0, tokens: int = 100, **more: Any) -> list[int]:
        """Submit requests and wait until the engine has them; returns their keys."""
        params = SamplingParams(max_tokens=tokens)
        keys = [self.clients[client].submit([1, 2], params, **more) for _ in range(n)]
        self.got.update({key: Got() for key in keys})
        self.until(lambda: all(key in self.requests for key in keys))
        return keys

    def bind(self, key: int, slot: int, dp: int = 0) -> int:
        """Bind a submitted request; returns its handle."""
        with self.pipe.commands(dp) as cmd:
            return cmd.bind(self.requests[key], slot)

    def preempt(self, handle: int, dp: int = 0) -> None:
        with self.pipe.commands(dp) as cmd:
            cmd.preempt(handle)

    def abort(self, *keys: int) -> None:
        with self.pipe.commands(0) as cmd:
            for key in keys:
                cmd.abort(self.requests[key])

    def publish(
        self,
        rows: Sequence[tuple[int, Sequence[int]]] = (),
        drained: Sequence[int] = (),
        dp: int = 0,
        **more: Any,
    ) -> None:
        """Publish a step: (handle, tokens) each, and who is drained."""
        self.steps += 1
        self.pubs[dp].publish(
            self.steps,
            [handle for handle, _ in rows],
            [token for _, tokens in rows for token in tokens],
            counts=[len(tokens) for _, tokens in rows],
            drained=list(drained) or None,
            **more,
        )

    def settle(self, dp: int = 0) -> None:
        """Wait until the processor of a rank has done all that it was told.

        A request is bound to the last slot and aborted: commands are done in order.
        """
        key = self.submit()
        handle = self.bind(key, self.pipe.topology.slots_per_rank - 1, dp)
        with self.pipe.commands(dp) as cmd:
            cmd.abort(handle)
        self.until(lambda: self.told_of(handle))
        self.publish([], [handle], dp=dp)
        self.until(lambda: "Released" in self.told_of(handle) and self.ended(key))

    # --- what happened --------------------------------------------------------------------------

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def told_of(self, handle: int) -> list[str]:
        """Return the names of a handle's events, in order."""
        return [type(e).__name__ for e in self.events if getattr(e, "handle", None) == handle]

    def was_told(self, handle: int, name: str) -> bool:
        """Whether an event of that name was of this handle."""
        return name in self.told_of(handle)

    def ended(self, *keys: int) -> bool:
        """Whether the clients of these requests have their last rows."""
        return all(self.got[key].reason is not None for key in keys)

    def outcome_of(self, handle: int) -> bool:
        """Whether a handle has its outcome."""
        return bool(self.told_of(handle))

    def close(self) -> None:
        """Close clients, workers, pipeline, in this order."""
        clients, self.clients, self.reading = self.clients, [], set()
        for client in clients:
            self.beside(client.close)
        pubs, self.pubs = self.pubs, []
        for pub in pubs:
            self.beside(pub.close)
        self.pipe.close()


@contextmanager
def rig(base: Path, **options: Any) -> Iterator[Rig]:
    """Open a rig; close it gently unless the test failed."""
    made = Rig(base, **options)
    try:
        yield made
    except BaseException:
        for client in made.clients:
            client._lanes.close(0.0)
        for pub in made.pubs:
            pub.close(0.0)
        made.pipe.close(0.0)
        raise
    made.close()
