"""Measure what text costs, for 256 sequences with one token a row.

The vocabulary has 131,072 byte-level words. tokenpipe's side is the processor's own path: it reads
StepFrames and makes OutputFrames with text columns, parsing, matching and packing included. It is
measured with Python strings made of the text, and without. Beside it stand two ways of engines in
Python: one `DecodeStream` for each sequence, and a batched decode of two windows for each sequence.
All get the same tokens, by turns, in one process. The exit status is 1 if a text is wrong.

The second table is of tokenpipe alone: what a token costs at each length of output, including the
growth of buffers. The processor's table has had requests before, as it has after its first
milliseconds. A last column has what a request costs once: its bind, with the state, the buffers and
the automaton of its stop strings, and its drop.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.postprocess.huggingface import vocabulary_of

from .text_lengths import LENGTHS, by_length
from .text_paths import decode_stream, ours, two_windows
from .vocabularies import TEXT, encode, tekken, words_of

BATCH = 256
STOPS = ("</answer>", "\n\nHuman:", "<|im_end|>", "END-OF-LIST")
Report = dict[str, Any]
Array = np.ndarray[Any, Any]


def corpus_of(tokenizer: Tokenizer) -> tuple[Array, Array]:
    """Return token ids i32[n] of a long text, and where each sequence begins in it, i64[BATCH]."""
    topics = "".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    corpus = np.array(encode(words_of(tokenizer), TEXT * 20 + topics[:200_000]), np.int32)
    starts = np.arange(BATCH) * (len(corpus) // BATCH)
    for i, start in enumerate(starts.tolist()):  # not inside a character, where the rivals wait
        while tokenizer.decode(corpus[start : start + 4].tolist()).startswith("\ufffd"):
            start += 1
        starts[i] = start
    return corpus, starts


def compare(tokenizer: Tokenizer, tokens: Array, repeat: int) -> tuple[Report, dict[str, int]]:
    """Run all ways by turns; return tokens per CPU second and the number of wrong texts of each."""
    vocabulary = vocabulary_of(tokenizer)
    whole = [tokenizer.decode(column.tolist()) for column in tokens.T]
    ways: dict[str, Callable[[], Report]] = {
        "text columns": lambda: ours(vocabulary, tokens, strings=False),
        "Python str of each row": lambda: ours(vocabulary, tokens, strings=True),
        "DecodeStream.step": lambda: decode_stream(tokenizer, tokens),
        "decode_batch of two windows": lambda: two_windows(tokenizer, tokens),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    wrong: dict[str, int] = {}
    for _ in range(repeat):
        for name, run in ways.items():
            report = run()
            spent[name].append(report["cpu_s"])
            # A rival may keep a last token that ends inside a character. That is not wrong.
            wrong[name] = sum(
                not w.removesuffix("\ufffd").startswith(t) or len(w) > len(t) + 8
                for w, t in zip(whole, report["texts"], strict=True)
            )
    return {name: tokens.size / statistics.median(times) for name, times in spent.items()}, wrong


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="tokens of each sequence")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each way")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    tokenizer = tekken()
    corpus, starts = corpus_of(tokenizer)
    tokens = corpus[(np.arange(args.steps)[:, None] + starts) % len(corpus)]
    rates, wrong = compare(tokenizer, tokens, args.repeat)
    lengths = {
        name: by_length(vocabulary_of(tokenizer), corpus, starts, stop)
        for name, stop in {"no stops": (), "4 stops": STOPS}.items()
    }
    report = {"rates": rates, "wrong": wrong, "lengths": lengths, "machine": describe_machine()}
    if args.json is not None:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    console = Console()
    console.print(rates_table(rates, wrong))
    console.print(lengths_table(lengths))
    raise SystemExit(1 if any(wrong.values()) else 0)


def rates_table(rates: Report, wrong: dict[str, int]) -> Table:
    """Return each way's rate, and how many times as fast tokenpipe's two ways are."""
    table = Table("side", "M tokens/CPU-s", "ns a token", "text columns are", "str are", "wrong")
    for name, rate in rates.items():
        ratios = [rates["text columns"] / rate, rates["Python str of each row"] / rate]
        shown = [f"{ratio:.1f} x" if ratio > 1 else "" for ratio in ratios]
        table.add_row(name, f"{rate / 1e6:.2f}", f"{1e9 / rate:.0f}", *shown, str(wrong[name]))
    return table


def lengths_table(lengths: dict[str, Report]) -> Table:
    """Return ns a token by length of output, and what a request costs once."""
    table = Table("ns a token up to", *(f"{length:,}" for length in LENGTHS), "us a request, once")
    for name, figures in lengths.items():
        shown = [f"{figures[str(length)]:.0f}" for length in LENGTHS]
        table.add_row(name, *shown, f"{figures['set_up_us']:.1f}")
    return table


if __name__ == "__main__":
    main()
