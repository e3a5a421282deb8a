"""A processor with a worker's pen and a client's eyes, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenpipe import _core
from tokenpipe.processor import Processor
from tokenpipe.types import RowStatus, make_handle, split_handle
from tokenpipe.wire import (
    Bind,
    HandleReleased,
    LaneHeader,
    Message,
    OpenClient,
    OutputFrame,
    RankOpened,
)

LANE = LaneHeader(1, 2, 3, 1)
VOCAB = 1000
EOS = (2, 66)  # the second shares a bit of the stop mask with the first


@dataclass
class Row:
    """One row as a worker writes it; its position is filled in unless given."""

    handle: int
    tokens: Sequence[int] = ()
    status: int = RowStatus.OK
    position: int | None = None
    k: int = -1  # logprobs of a token are made up from it, see logprob_of
    extras: bytes = b""


def logprob_of(token: int, k: int) -> tuple[list[int], list[float], int]:
    """Return the ids, values and rank that a token's logprobs have in these tests."""
    return (
        [token, *range(token + 1, token + 1 + k)],
        [-float(token) - i / 8 for i in range(k + 1)],
        token % 7,
    )


@dataclass
class Stream:
    """What a client got of one request."""

    tokens: list[int] = field(default_factory=list)
    ks: list[int] = field(default_factory=list)
    finish: int = 0
    stop_reason: int = -1
    stop_string: int = -1
    error: str = ""
    error_code: int = 0
    error_field: str = ""
    text: bytes = b""
    extras: bytes = b""


class Client:
    """Apply OutputFrames and check that they fit: offsets, logprobs, nothing after an end."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.begins: dict[int, int] = {}  # tokens a request had before this client looked

    def apply(self, frame: bytes) -> None:
        f = OutputFrame.unpack(frame)
        token = entry = scored = letter = 0
        extras = f.extras
        for i in range(f.rows):
            key, n, k = int(f.keys[i]), int(f.counts[i]), int(f.lp_k[i])
            stream = self.streams.setdefault(key, Stream())
            assert not stream.finish, "a row after the end"
            assert int(f.offsets[i]) == self.begins.get(key, 0) + len(stream.tokens)
            tokens = f.tokens[token : token + n].tolist()
            token += n
            for t in tokens if k >= 0 else ():
                ids, values, rank = logprob_of(t, k)
                assert f.lp_ids[entry : entry + k + 1].tolist() == ids
                assert f.lp_values[entry : entry + k + 1].tolist() == values
                assert f.lp_ranks[scored] == rank
                entry += k + 1
                scored += 1
            stream.tokens += tokens
            stream.ks += [k] * n
            stream.finish = int(f.finish[i])
            stream.stop_reason = int(f.stop_reason[i])
            stream.error = f.errors[i]
            stream.error_code = int(f.error_code[i])
            stream.error_field = f.error_fields[i]
            stream.stop_string = int(f.stop_string[i])
            size = int(f.text_len[i])
            if size:
                assert int(f.text_offset[i]) == len(stream.text)
                stream.text += f.text_bytes[letter : letter + size]
                stream.text.decode()  # whole characters
            letter += size
            if extras[i]:
                assert int(f.extras_offset[i]) == len(stream.extras)
                stream.extras += extras[i]
        assert letter == len(f.text_bytes)
        assert (token, entry, scored) == (f.tokens_total, len(f.lp_ids), len(f.lp_ranks))


class Rig:
    """One processor of `ranks` ranks; workers count positions as the real publisher does."""

    def __init__(
        self,
        ranks: int = 1,
        tp_size: int = 1,
        clients: int = 2,
        begun: bool = True,
        **options: object,
    ) -> None:
        """Open clients and ranks, unless not `begun`: then the processor may load a state."""
        settings = {
            "index": 0,
            "ranks": range(ranks),
            "tp_size": tp_size,
            "tp_policy": "leader",
            "slots": 4,
            "vocab_size": VOCAB,
            "eos_token_ids": EOS,
            "drained_timeout_s": 10.0,
            "park_timeout_s": 5.0,
            "park_bytes": 1 << 16,
            "merge_bytes": 1 << 20,
        }
        self.processor = Processor(**(settings | options))  # type: ignore[arg-type]
        self.now = 100.0
        self.clients = {c: Client() for c in range(clients)}
        self.incarnations = {dp: 70 + dp for dp in range(ranks)}
        self.reported: list[Message] = []
        self.positions: dict[int, int] = {}
        self.generations: dict[tuple[int, int], int] = {}
        self.steps = [0] * ranks
        if not begun:
            return
        for client in self.clients:
            self.command(OpenClient(client, 500 + client))
        for dp in range(ranks):
            self.processor.rank_up(dp, self.incarnations[dp], self.now)
        assert self.reports() == [RankOpened(dp, i) for dp, i in self.incarnations.items()]

    def command(self, message: Message) -> None:
        self.processor.command(message, self.now)

    def new_handle(self, slot: int = 0, dp: int = 0) -> int:
        generation = self.generations.get((dp, slot), 0) + 1
        self.generations[dp, slot] = generation
        return make_handle(dp, slot, generation)

    def bind(
        self, key: int, slot: int = 0, dp: int = 0, handle: int | None = None, **fields: object
    ) -> int:
        """Bind a request; returns its handle."""
        handle = self.new_handle(slot, dp) if handle is None else handle
        dp = split_handle(handle)[0]
        base = {"client": 0, "max_tokens": 100, "rank_incarnation": self.incarnations.get(dp, 9)}
        self.command(Bind(handle=handle, key=key, **(base | fields)))  # type: ignore[arg-type]
        return handle

    def frame(
        self, rows: Sequence[Row], dp: int = 0, tp: int = 0, step: int | None = None
    ) -> bytes:
        """Pack a step; positions count on, whatever becomes of the rows."""
        if step is None:
            self.steps[dp] += 1
            step = self.steps[dp]
        positions = []
        for row in rows:
            have = self.positions.get(row.handle, 0)
            positions.append(have if row.position is None else row.position)
            if row.position is None:
                self.positions[row.handle] = have + len(row.tokens)
        tokens = [t for row in rows for t in row.tokens]
        scored = [logprob_of(t, row.k) for row in rows if row.k >= 0 for t in row.tokens]
        columns: dict[int, np.ndarray[Any, Any]] = {
            1: np.array([row.handle for row in rows], np.int64),
            2: np.array([len(row.tokens) for row in rows], np.uint16),
            3: np.array(tokens, np.int64).astype(np.int32),
            4: np.array([row.status for row in rows], np.uint8),
            5: np.array(positions, np.uint32),
            6: np.array([row.k for row in rows], np.int32),
            7: np.array([i for ids, _, _ in scored for i in ids], np.int32),
            8: np.array([v for _, values, _ in scored for v in values], np.float32),
            9: np.array([rank for _, _, rank in scored], np.int32),
            10: np.array([len(row.extras) for row in rows], np.uint32),
            11: np.frombuffer(b"".join(row.extras for row in rows), np.uint8),
        }
        header = (*LANE, dp, tp, step, len(rows), len(tokens), int(self.now * 1e9) + step)
        return _core.pack_step(header, {c: a for c, a in columns.items() if a.size})

    def feed(self, *rows: Row, dp: int = 0, step: int | None = None) -> None:
        """Pack a step and feed it."""
        self.processor.feed(dp, 0, self.frame(rows, dp, 0, step), self.now)

    def drain(self, handle: int) -> None:
        """Feed the worker's word that no more rows come."""
        self.feed(Row(handle, (), RowStatus.DRAINED), dp=split_handle(handle)[0])

    def flush(self, **options: object) -> None:
        """Flush every client until nothing is unsent."""
        for client in self.processor.dirty_clients():
            while (frame := self.processor.flush(client, LANE, **options)) is not None:  # type: ignore[arg-type]
                self.clients[client].apply(frame)

    def reports(self) -> list[Message]:
        """Return the reports that came since the last call."""
        new = self.processor.reports()
        self.reported += new
        return new

    def ended(self) -> list[Message]:
        """Flush, and return the new reports without the releases."""
        self.flush()
        return [r for r in self.reports() if not isinstance(r, HandleReleased)]

    def pass_time(self, seconds: float, alive: bool = True) -> None:
        """Let time go by in small steps, in which every rank shows life unless not `alive`."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for dp in self.incarnations if alive else ():
                self.processor.seen(dp, self.now)
            if self.processor.next_deadline <= self.now:
                self.processor.tick(self.now)

    def stream(self, key: int, client: int = 0) -> Stream:
        """Return what a client got of a request, everything flushed."""
        self.flush()
        return self.clients[client].streams.get(key, Stream())
