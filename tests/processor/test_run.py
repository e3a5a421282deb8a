"""Frames that are taken together do what they do one by one, whatever they hold."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.postprocess.vocab import real
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.processor.codes import EventKind, State
from tokenpipe.types import ErrorCode, make_handle

SLOTS, VOCAB, EOS = 4, 1000, 2
LOOKS_LIKE_EOS = EOS + 64  # shares its bit of the stop mask
NOT_BOUND, FOREIGN = make_handle(0, 3, 9), make_handle(1, 0, 1)
HANDLES = [make_handle(0, slot, 1) for slot in range(SLOTS)]
WISH = (True, False, False, (), (), False)  # of a request with text


class Table:
    """A table, what it said, and what its two clients got."""

    def __init__(self, *, merge_bytes: int = 1 << 40, vocab: _core.Vocab | None = None) -> None:
        self.table = _core.Table(0, [0], SLOTS, VOCAB, [EOS], 1 << 20, merge_bytes, vocab)
        self.said: list[tuple[int, ...]] = []
        self.got: list[tuple[bytes, object]] = []
        for client in (0, 1):
            self.table.open_client(client)
        for slot, handle in enumerate(HANDLES):
            # The third one ends soon, and the last one's client and stop token are its own.
            limit, stops = (12 if slot == 2 else 1 << 20), ((7,) if slot == 3 else ())
            text = WISH if vocab is not None and slot == 1 else None
            self.table.bind(handle, slot, slot // 3, limit, 3, False, stops, (), False, text)

    def one_by_one(self, frames: list[bytes]) -> None:
        """Feed each frame by itself."""
        for frame in frames:
            try:
                self.said += self.table.feed(0, 0, frame) or ()
            except FrameError as error:
                self.said.append((-1, len(str(error))))

    def together(self, frames: list[bytes]) -> None:
        """Feed them as a processor does: what stops a run is fed by itself."""
        at = 0
        while at < len(frames):
            at, events = self.table.feed_run(0, frames, at)
            self.said += events or ()
            if at < len(frames) and not events:
                self.one_by_one([frames[at]])
                at += 1

    def flush(self) -> None:
        """Take what the clients are to get."""
        for client in (0, 1):
            while (packed := self.table.flush(client, (1, 2, 3, 4), 200, False)) is not None:
                self.got.append(packed)

    def act(self, what: str) -> None:
        """Do what a command would, where it still applies."""
        states = dict(self.table.bindings(0))
        if what == "preempt" and states.get(HANDLES[0]) == State.RUNNING:
            self.table.set_state(HANDLES[0], State.PREEMPTING)
        elif what == "linger" and states.get(HANDLES[1]) == State.RUNNING:
            self.table.set_state(HANDLES[1], State.LINGERING)
        elif what == "drop" and HANDLES[1] in states:
            self.table.drop(HANDLES[1])
        elif what == "shed":
            self.said += self.table.shed(1, ErrorCode.SLOW, "too slow") or ()
        elif what == "close":
            self.said += self.table.close_client(1) or ()
        elif what == "restart":
            self.table.restart_steps(0)


ACTS = ["preempt", "linger", "drop", "shed", "close", "restart"]


class Pen:
    """Write frames as a worker might, well or badly."""

    def __init__(self) -> None:
        self.seq = self.step = 0
        self.rows = 0

    def named(self, handles: list[int], positions: list[int], tokens: list[int]) -> bytes:
        """A frame that says whose rows it has."""
        self.rows = len(handles)
        names = np.array(handles, np.int64).tobytes()
        return self._frame({1: names, 5: np.array(positions, np.uint32).tobytes()}, tokens)

    def going_on(self, tokens: list[int], odd: str = "") -> bytes:
        """A frame of the same rows, with something about it that is not plain."""
        more: dict[int, bytes] = {}
        if odd == "counts":
            counts = np.ones(self.rows, np.uint16)
            counts[0] += 1
            counts[-1] -= 1
            more = {2: counts.tobytes()}
        elif odd == "status":
            more = {4: bytes([1, *[0] * (self.rows - 1)])}
        elif odd == "extras":
            more = {
                10: np.full(self.rows, 6, np.uint32).tobytes(),
                11: b"\x07\1\0\0\0x" * self.rows,
            }
        elif odd == "logprobs":
            some = np.zeros(self.rows, np.int32).tobytes()
            more = {6: some, 7: some, 8: some, 9: some}
        self.seq += odd == "jump"
        self.step -= odd == "again"
        return self._frame(more, tokens)

    def _frame(self, columns: dict[int, bytes], tokens: list[int]) -> bytes:
        self.seq += 1
        self.step += 1
        header = (1, 2, 3, self.seq, 0, 0, self.step, self.rows, len(tokens), self.step)
        ids = np.array(tokens, np.int32).tobytes()
        return _core.pack_step(header, columns | {3: ids})


ODD = ["counts", "status", "extras", "logprobs", "jump", "again"]
TOKENS = [*range(10, 60)] * 9 + [LOOKS_LIKE_EOS] * 6 + [EOS, 7, VOCAB, -1]
ROWS = [[0, 1, 3]] * 5 + [[0, 1, 2, 3]] * 2 + [[3, 0], [2], [1, 0, 1], [0, 0]]


def drawn(seed: int) -> list[list[bytes] | str]:
    """Return what workers send, in pieces that are read together, and what happens in between.

    Chances are set by hand, so that most runs are long and each is broken in another way.
    """
    chance, pen = Random(seed), Pen()
    plan: list[list[bytes] | str] = []
    due = dict.fromkeys([*HANDLES, NOT_BOUND, FOREIGN], 0)
    for _ in range(chance.randint(1, 4)):
        handles = [HANDLES[slot] for slot in chance.choice(ROWS)]
        handles += chance.choice([[]] * 6 + [[NOT_BOUND], [FOREIGN], [0]])
        off = chance.choice([0] * 8 + [1, -1, -3])
        places = [max(0, due.get(handle, 0) + off) for handle in handles]
        frames = [pen.named(handles, places, chance.choices(TOKENS, k=len(handles)))]
        for _ in range(chance.randint(0, 40)):
            odd = chance.choice([""] * 30 + ODD)
            frames.append(pen.going_on(chance.choices(TOKENS, k=len(handles)), odd))
        for handle in handles:
            due[handle] = due.get(handle, 0) + len(frames)
        cut = chance.randint(0, len(frames))
        plan += [frames[:cut], chance.choice(["", *ACTS]), frames[cut:]]
    return plan


def vocabulary() -> _core.Vocab:
    """Return a vocabulary for the requests that want text."""
    return real("gpt2_style").vocabulary.table


@given(st.integers(0, 1 << 32), st.booleans(), st.booleans())
def test_as_if_they_came_one_by_one(seed: int, text: bool, flushed: bool) -> None:
    vocab = vocabulary() if text else None
    one, many = Table(vocab=vocab), Table(vocab=vocab)
    for piece in drawn(seed):
        if isinstance(piece, str):
            one.act(piece)
            many.act(piece)
            continue
        one.one_by_one(piece)
        many.together(piece)
        assert one.said == many.said
        if flushed:
            one.flush()
            many.flush()
            assert one.got == many.got
    one.flush()
    many.flush()
    assert one.got == many.got
    assert one.table.counters() == many.table.counters()
    assert one.table.bindings(0) == many.table.bindings(0)


def test_a_run_ends_with_the_frame_in_which_a_client_has_too_much() -> None:
    pen, side = Pen(), Table(merge_bytes=1000)
    frames = [pen.named(HANDLES[:2], [0, 0], [9, 9])]
    frames += [pen.going_on([10 + at, 60 + at]) for at in range(300)]
    at, events = side.table.feed_run(0, frames, 0)
    assert events is not None
    assert [(kind, client) for kind, client, *_ in events] == [(EventKind.CROWDED, 0)]
    assert 100 < at < 301


@pytest.mark.parametrize("text", [False, True])
def test_a_long_run_brings_every_token(text: bool) -> None:
    pen, side = Pen(), Table(vocab=vocabulary() if text else None)
    frames = [pen.named(HANDLES[:2], [0, 0], [9, 9])]
    frames += [pen.going_on([10 + at % 50, 60 + at % 50]) for at in range(500)]
    assert side.table.feed_run(0, frames, 0) == (501, None)
    assert side.table.output(HANDLES[0]) == (9, *(10 + at % 50 for at in range(500)))
    assert side.table.output(HANDLES[1]) == (9, *(60 + at % 50 for at in range(500)))
    assert side.table.counters()["tokens"] == 1002
