"""Frames and steps for hypothesis, small and of every shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.wire import oracle

u64 = st.integers(0, oracle.U64)
u32 = st.integers(0, (1 << 32) - 1)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
f32 = st.floats(width=32, allow_nan=True)


@st.composite
def frames(draw: st.DrawFn, kind: int) -> oracle.Frame:
    """Return a valid frame of a kind; values of columns are anything their type holds."""
    shape = oracle.SHAPES[kind]
    rows = draw(st.integers(0, 6))
    counts = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    ks = draw(st.lists(st.integers(-1, 3), min_size=rows, max_size=rows))
    lengths = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    letters = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    beside = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    n = {
        "rows": rows,
        "tokens": sum(counts),
        "entries": sum(c * (k + 1) for c, k in zip(counts, ks, strict=True)),
        "lp_tokens": sum(c for c, k in zip(counts, ks, strict=True) if k >= 0),
        "error_bytes": sum(lengths),
        "text_bytes": sum(letters),
        "extras_bytes": sum(beside),
    }
    fixed = {"counts": counts, "lp_k": ks, "error_len": lengths, "text_len": letters}
    fixed["extras_len"] = beside
    columns = {}
    for column in shape.columns:
        dtype = np.dtype(column.dtype)
        size = n[column.per]
        if column.name in fixed:
            columns[column.name] = np.array(fixed[column.name], dtype)
        elif column.default is not None and draw(st.booleans()):
            columns[column.name] = np.full(size, column.default, dtype)
        else:
            raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
            columns[column.name] = np.frombuffer(raw, dtype)
    header = {}
    for name in shape.header:
        limit = shape.limits.get(name, oracle.U64)
        header[name] = n[name] if name in ("rows", "tokens") else draw(st.integers(0, limit))
    if kind == 1 and rows and draw(st.booleans()):  # one that continues the frame before
        columns |= {name: columns[name][:0] for name in ("handles", "position")}
    return oracle.Frame(shape, header, columns)


@dataclass(frozen=True)
class Step:
    """What a worker hands to publish(), row by row."""

    handles: list[int]
    rows: list[list[int]]
    status: list[int]
    drained: list[int]
    logprobs: list[tuple[int, list[list[tuple[int, float]]], list[int]]]
    extras: list[bytes]


def handles(dp: int, slots: int) -> st.SearchStrategy[int]:
    """Return handles of few slots and generations, so that they meet again."""
    return st.builds(
        lambda slot, generation: dp << 51 | slot << 35 | generation,
        st.integers(0, slots - 1),
        st.sampled_from([1, 2, 3, (1 << 35) - 1]),
    )


@st.composite
def steps(draw: st.DrawFn, dp: int, slots: int, vocab_size: int) -> Step:
    """Return a step in which anything may be wrong that harms only its own row."""
    good = st.integers(0, vocab_size - 1)
    token = st.one_of(good, good, st.sampled_from([-9, -1, vocab_size, 1 << 31, 1 << 40]))
    number = st.one_of(i32, i32, st.sampled_from([1 << 31, -(1 << 31) - 1]))
    rows = draw(st.lists(st.lists(token, max_size=3), max_size=5))
    logprobs = []
    for row in rows:
        k = draw(st.integers(-1, 2))
        pairs = st.lists(st.tuples(number, f32), min_size=k + 1, max_size=k + 1)
        logprobs.append((k, [draw(pairs) for _ in row], [draw(number) for _ in row if k >= 0]))
    n = len(rows)
    return Step(
        draw(st.lists(handles(dp, slots), min_size=n, max_size=n)),
        rows,
        draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 200]), min_size=n, max_size=n)),
        draw(st.lists(handles(dp, slots), max_size=3)),
        logprobs,
        draw(st.lists(st.binary(max_size=3), min_size=n, max_size=n)),
    )


def whole(frame: oracle.Frame) -> oracle.Frame:
    """Give a frame that continues rows of its own."""
    if frame.continues:
        named = np.arange(frame.header["rows"], dtype="<i8")
        frame.columns.update(handles=named << 35 | 1, position=named.astype("<u4"))
    return frame
