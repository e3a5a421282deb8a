"""Ask what text costs: 256 sequences, one token a row, a byte-level vocabulary of 131,072 entries.

Ours is the processor's own path, StepFrame in and OutputFrame with text columns out (parsing,
matching and packing included), with and without Python strings made of it. Beside it two ways of
engines in Python: a `DecodeStream` per sequence, and a batched decode of two windows per sequence.
All see the same tokens, in one process by turns; the exit status is 1 where a text is wrong.

The second table is of one side, ours: what a token costs from one length of output to the next, the
growing of buffers included. There a table is one that has had requests before, as a processor's is
but in its first milliseconds; what a request costs once, its bind (state, buffers, the automaton of
its stop strings) and its drop, is a figure of its own and in no token's.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tokenpipe import _core
from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.postprocess import Vocabulary, wish_for
from tokenpipe.postprocess.huggingface import vocabulary_of
from tokenpipe.types import make_handle
from tokenpipe.wire import OutputFrame

from .vocabularies import TEXT, encode, tekken, words_of

BATCH = 256
LANE = (1, 2, 3, 4)
LENGTHS = (10, 100, 1_000, 10_000, 60_000)
ROUNDS = 40  # of new requests, for the figures of their first tokens
CHUNK = 10  # frames made at once: few, so that they are in cache; divides all lengths
STOPS = ("</answer>", "\n\nHuman:", "<|im_end|>", "END-OF-LIST")
Report = dict[str, Any]
Side = Callable[[np.ndarray[Any, Any]], list[str]]


class Ours:
    """A table with every sequence bound; `rows` is one step's tokens."""

    def __init__(self, vocabulary: Vocabulary, batch: int, stop: tuple[str, ...] = ()) -> None:
        self.table = _core.Table(
            0, [0], batch, vocabulary.size, [], 1 << 20, 1 << 40, vocabulary.table
        )
        self.table.open_client(0)
        self.packer = _core.StepPacker(0, 0, batch)
        self.wish = wish_for(stop=stop)
        self.handles = np.zeros(batch, np.int64)
        self.bind(1)

    def bind(self, generation: int) -> None:
        """Bind a new request in every slot."""
        self.handles = np.array([make_handle(0, s, generation) for s in range(len(self.handles))])
        for slot, handle in enumerate(self.handles.tolist()):
            self.table.bind(handle, slot, 0, 1 << 30, 0, True, (), (), False, self.wish)

    def drop(self) -> None:
        """Drop every request."""
        for handle in self.handles.tolist():
            self.table.drop(handle)

    def frames(self, tokens: np.ndarray[Any, Any], first: int = 1) -> list[bytes]:
        """Return the StepFrames of tokens [steps, batch], as a worker sends them."""
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
    """Run the processor's path; the frames are made before the clock starts."""
    side = Ours(vocabulary, tokens.shape[1])
    frames = side.frames(tokens)
    kept: list[Any] = []
    start = time.process_time()
    for frame in frames:
        out = side.step(frame)
        kept.append(OutputFrame.unpack(out).texts if strings else out)
    spent = time.process_time() - start
    texts = kept if strings else [OutputFrame.unpack(out).texts for out in kept]
    return {"cpu_s": spent, "texts": ["".join(column) for column in zip(*texts, strict=True)]}


def decode_stream(tokenizer: Tokenizer, tokens: np.ndarray[Any, Any]) -> Report:
    """Run one DecodeStream per sequence."""
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
    """Decode, for all sequences at once, the ids since the last text and those before them."""
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


def stretches(
    side: Ours, tokens: Callable[[int, int], np.ndarray[Any, Any]], first: int, lengths: list[int]
) -> dict[int, float]:
    """Feed tokens up to the last of these lengths; return ns a token from each to the next.

    `tokens(a, b)` are those of steps a to b, `first` is the step that the frames begin with.
    """
    figures: dict[int, float] = {}
    for begin, end in pairwise([0, *lengths]):
        spent = 0
        for at in range(begin, end, CHUNK):
            frames = side.frames(tokens(at, at + CHUNK), first + at)
            start = time.process_time_ns()
            for frame in frames:
                side.step(frame)
            spent += time.process_time_ns() - start
        figures[end] = spent / ((end - begin) * BATCH)
    return figures


def flat(
    vocabulary: Vocabulary,
    corpus: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    stop: tuple[str, ...],
) -> Report:
    """Return ns a token up to each length of output, and us a request for its bind and drop."""
    side = Ours(vocabulary, BATCH, stop)
    early = [length for length in LENGTHS if length <= 100]
    rounds: list[dict[int, float]] = []
    set_up: list[float] = []
    step = 1
    for turn in range(ROUNDS + 1):
        start = time.process_time_ns()
        side.drop()
        side.bind(turn + 2)
        set_up.append((time.process_time_ns() - start) / BATCH / 1000)
        lengths = early if turn < ROUNDS else list(LENGTHS)

        def tokens(begin: int, end: int, turn: int = turn) -> np.ndarray[Any, Any]:
            steps = np.arange(begin, end)[:, None] + turn * 37
            batch: np.ndarray[Any, Any] = corpus[(steps + starts) % len(corpus)]
            return batch

        rounds.append(stretches(side, tokens, step, lengths))
        step += lengths[-1]
    figures = {str(length): found for length, found in rounds[-1].items()}
    for length in early:
        figures[str(length)] = statistics.median(figure[length] for figure in rounds)
    return {"set_up_us": statistics.median(set_up), **figures}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()
    tokenizer = tekken()
    vocabulary = vocabulary_of(tokenizer)
    topics = "".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    text = TEXT * 20 + topics[:200_000]
    corpus = np.array(encode(words_of(tokenizer), text), np.int32)
    starts = np.arange(BATCH) * (len(corpus) // BATCH)
    for i, start in enumerate(starts.tolist()):  # not inside of a character, where rivals wait
        while tokenizer.decode(corpus[start : start + 4].tolist()).startswith("\ufffd"):
            start += 1
        starts[i] = start
    tokens = corpus[(np.arange(args.steps)[:, None] + starts) % len(corpus)]
    whole = [tokenizer.decode(column.tolist()) for column in tokens.T]
    sides: dict[str, Callable[[], Report]] = {
        "text columns": lambda: ours(vocabulary, tokens, strings=False),
        "Python str of each row": lambda: ours(vocabulary, tokens, strings=True),
        "DecodeStream.step": lambda: decode_stream(tokenizer, tokens),
        "decode_batch of two windows": lambda: two_windows(tokenizer, tokens),
    }
    spent: dict[str, list[float]] = {name: [] for name in sides}
    wrong: dict[str, int] = {}
    for _ in range(args.repeat):
        for name, run in sides.items():
            report = run()
            spent[name].append(report["cpu_s"])
            # A rival keeps a last token that ends inside a character: that is no mistake.
            wrong[name] = sum(
                not w.removesuffix("\ufffd").startswith(t) or len(w) > len(t) + 8
                for w, t in zip(whole, report["texts"], strict=True)
            )
    rates = {name: tokens.size / statistics.median(times) for name, times in spent.items()}
    lengths = {
        name: flat(vocabulary, corpus, starts, stop)
        for name, stop in {"no stops": (), "4 stops": STOPS}.items()
    }
    report = {"rates": rates, "wrong": wrong, "lengths": lengths, "machine": describe_machine()}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(report, out, indent=1)
    table = Table("side", "M tokens/CPU-s", "ns a token", "text columns are", "str are", "wrong")
    for name, rate in rates.items():
        ratios = [rates["text columns"] / rate, rates["Python str of each row"] / rate]
        shown = [f"{ratio:.1f} x" if ratio > 1 else "" for ratio in ratios]
        table.add_row(name, f"{rate / 1e6:.2f}", f"{1e9 / rate:.0f}", *shown, str(wrong[name]))
    console = Console()
    console.print(table)
    table = Table("ns a token up to", *(f"{length:,}" for length in LENGTHS), "us a request, once")
    for name, figures in lengths.items():
        shown = [f"{figures[str(length)]:.0f}" for length in LENGTHS]
        table.add_row(name, *shown, f"{figures['set_up_us']:.1f}")
    console.print(table)
    raise SystemExit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
