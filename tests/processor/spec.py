"""A processor's rules as a specification: small, without bytes, with states that can be compared.

A `World` is the state of one processor with two DP ranks of two slots, of its workers, of a client
and of a scheduler with two requests. An `Action` is one thing that can happen. `act` returns the
next world, and the reports that the processor must make. All tokens of a request are known, so a
count says which tokens there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

RANKS, SLOTS, REQUESTS, MAX_TOKENS = 2, 2, 2, 2


class Handle(NamedTuple):
    """One binding of a request to a slot."""

    dp: int
    slot: int
    generation: int


class Phase(Enum):
    """The states of a binding, as docs/design.md draws them."""

    PARKED = auto()
    RUNNING = auto()
    PREEMPTING = auto()
    ENDED = auto()  # it has its outcome and waits for its drained row


class Report(NamedTuple):
    """A report of the processor about a handle."""

    what: str  # finished, aborted, rescheduled or released
    handle: Handle
    why: str = ""
    tokens: int = 0  # the request's output so far


class Given(NamedTuple):
    """A handle that the scheduler gave to a request."""

    request: int
    life: int  # the incarnation of the rank that the scheduler knew
    bound: bool = False  # the bind has reached the processor


class Pen(NamedTuple):
    """A handle as its worker sees it."""

    base: int  # tokens of the request at the bind
    written: int = 0
    over: bool = False  # the drained row is written


class Bound(NamedTuple):
    """A handle as the processor sees it."""

    phase: Phase = Phase.PARKED
    base: int = 0
    total: int = 0  # tokens of the request; while parked, tokens of the handle
    drained: bool = False
    lost: bool = False  # its parked rows were dropped
    fault: str = ""  # of a parked row: error, or gap
    awaited: bool = False  # bound soon after a gap: its first row has a deadline


class Request(NamedTuple):
    """A request as the scheduler and the client see it."""

    have: int = 0  # tokens, as the newest report says
    handle: Handle | None = None
    over: bool = False
    made: int = 0  # tokens for the client
    end: str = ""  # the end for the client
    seen: int = 0  # tokens that the client has
    seen_end: str = ""


class Row(NamedTuple):
    """A row of one token, or of none."""

    handle: Handle
    position: int
    tokens: int = 1
    status: str = "ok"  # or drained, or error
    again: bool = False  # its frame was fed before


class Rank(NamedTuple):
    """A DP rank."""

    life: int = 0
    gap: bool = False  # frames were lost a short time ago
    newest: Row | None = None  # in its newest frame
    floors: tuple[int, ...] = (0,) * SLOTS  # generations up to these are bound or dead
    used: tuple[int, ...] = (0,) * SLOTS  # generations that the scheduler gave


class World(NamedTuple):
    """Everything. Equal worlds go on alike."""

    requests: tuple[Request, ...] = (Request(),) * REQUESTS
    ranks: tuple[Rank, ...] = (Rank(),) * RANKS
    given: tuple[tuple[Handle, Given], ...] = ()
    pens: tuple[tuple[Handle, Pen], ...] = ()
    bound: tuple[tuple[Handle, Bound], ...] = ()
    held: tuple[tuple[Handle, tuple[Report, ...]], ...] = ()  # until the client has all tokens
    client: bool = True  # it is there


class Action(NamedTuple):
    """One thing that happens."""

    what: str
    handle: Handle | None = None
    request: int = 0
    dp: int = 0


def actions(world: World, binds: int, deaths: int) -> Iterator[Action]:
    """Yield all that can happen next, with at most `binds` binds and `deaths` deaths in all."""
    given, pens = dict(world.given), dict(world.pens)
    if len(given) < binds:
        for r, request in enumerate(world.requests):
            if request.handle is None and not request.over:
                for dp, slot in _places(world):
                    yield Action("give", Handle(dp, slot, world.ranks[dp].used[slot] + 1), r)
    unsent: set[int] = set()  # ranks whose next command is a bind
    for handle, about in world.given:
        if about.bound:
            yield Action("preempt", handle)  # for some handles it comes too late
            yield Action("abort", handle)
        elif handle.dp not in unsent:
            unsent.add(handle.dp)
            yield Action("bind", handle, about.request)
    for handle, pen in pens.items():
        if not pen.over:
            yield Action("drain", handle)
            yield Action("fail", handle)
            if pen.written:
                yield Action("repeat a row", handle)
            if pen.base + pen.written < MAX_TOKENS:
                yield Action("row", handle)
                yield Action("lose a row", handle)
    for dp, rank in enumerate(world.ranks):
        if rank.newest is not None:
            yield Action("repeat a frame", dp=dp)
        if any(rank.used):
            yield Action("gap", dp=dp)
            if sum(r.life for r in world.ranks) < deaths:
                yield Action("die", dp=dp)
    if world.client:
        yield Action("flush")
        yield Action("leave")
    yield Action("wait")


def _places(world: World) -> Iterator[tuple[int, int]]:
    """Yield the slots to choose from. Slots that were never used are alike, and so are ranks."""
    for dp, rank in enumerate(world.ranks):
        for slot in range(SLOTS):
            yield dp, slot
            if not rank.used[slot]:
                break
        if not any(rank.used):
            break
