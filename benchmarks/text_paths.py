"""Four ways to make text of tokens: two of tokenpipe's, and two that engines in Python have."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tokenpipe import _core
from tokenpipe.postprocess import Vocabulary, text_options
from tokenpipe.types import make_handle
from tokenpipe.wire import OutputFrame

LANE = (1, 2, 3, 4)
Report = dict[str, Any]


class ProcessorTable:
    """The processor's own path: a table with a request in each slot."""

    def __init__(self, vocabulary: Vocabulary, batch: int, stop: tuple[str, ...] = ()) -> None:
        self.table = _core.Table(
            0, [0], batch, vocabulary.size, [], 1 << 20, 1 << 40, vocabulary.table
        )
        self.table.open_client(0)
        self.packer = _core.StepPacker(0, 0, batch)
        self.options = text_options(stop=stop)
        self.handles = np.zeros(batch, np.int64)
        self.bind(1)

    def bind(self, generation: int) -> None:
        """Bind a new request in each slot."""
        self.handles = np.array([make_handle(0, s, generation) for s in range(len(self.handles))])
        for slot, handle in enumerate(self.handles.tolist()):
            self.table.bind(handle, slot, 0, 1 << 30, 0, True, (), (), False, self.options)

    def drop(self) -> None:
        """Drop all requests."""
        for handle in self.handles.tolist():
            self.table.drop(handle)

    def frames(self, tokens: np.ndarray[Any, Any], first: int = 1) -> list[bytes]:
        """Return the StepFrames of tokens i32[steps, batch], as a worker sends them."""
        made = []
        for step, row in enumerate(tokens, first):
            made.append(self.packer.pack(*LANE, step, 1, self.handles, np.ascontiguousarray(row)))
            self.packer.commit()
        return made

    def step(self, frame: bytes) -> bytes:
        """Apply a StepFrame and return the OutputFrame."""
        self.table.feed(0, 0, frame)
        packed = self.table.flush(0, LANE, 1 << 24, False)
        assert packed is not None
        return packed[0]


def ours(vocabulary: Vocabulary, tokens: np.ndarray[Any, Any], strings: bool) -> Report:
    """Run the processor's path. The StepFrames are made before the clock starts."""
    table = ProcessorTable(vocabulary, tokens.shape[1])
    frames = table.frames(tokens)
    kept: list[Any] = []
    start = time.process_time()
    for frame in frames:
        out = table.step(frame)
        kept.append(OutputFrame.unpack(out).texts if strings else out)
    spent = time.process_time() - start
    texts = kept if strings else [OutputFrame.unpack(out).texts for out in kept]
    return {"cpu_s": spent, "texts": ["".join(column) for column in zip(*texts, strict=True)]}


def decode_stream(tokenizer: Tokenizer, tokens: np.ndarray[Any, Any]) -> Report:
    """Run one DecodeStream for each sequence."""
    streams = [DecodeStream(skip_special_tokens=True) for _ in range(tokens.shape[1])]
    rows = [row.tolist() for row in tokens]
    deltas: list[list[str | None]] = []
    start = time.process_time()
    for row in rows:
        deltas.append(
            [stream.step(tokenizer, token) for stream, token in zip(streams, row, strict=True)]
        )
    spent = time.process_time() - start
    texts = ["".join(filter(None, column)) for column in zip(*deltas, strict=True)]
    return {"cpu_s": spent, "texts": texts}


def two_windows(tokenizer: Tokenizer, tokens: np.ndarray[Any, Any]) -> Report:
    """Decode two windows of all sequences at once: ids since the last text, and ids before it."""
    batch = tokens.shape[1]
    ids: list[list[int]] = [[] for _ in range(batch)]
    before, shown = [0] * batch, [0] * batch  # where the two windows begin
    texts = [""] * batch
    rows = [row.tolist() for row in tokens]
    start = time.process_time()
    for row in rows:
        for sequence, token in zip(ids, row, strict=True):
            sequence.append(token)
        old = tokenizer.decode_batch([s[b:e] for s, b, e in zip(ids, before, shown, strict=True)])
        new = tokenizer.decode_batch([s[b:] for s, b in zip(ids, before, strict=True)])
        for i, (was, now) in enumerate(zip(old, new, strict=True)):
            if len(now) > len(was) and not now.endswith("\ufffd"):
                texts[i] += now[len(was) :]
                before[i], shown[i] = shown[i], len(ids[i])
    spent = time.process_time() - start
    return {"cpu_s": spent, "texts": texts}
