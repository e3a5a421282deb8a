"""Writes tests/wire/vectors: frames as bytes, and beside each what it means or why it is refused.

Run from the repository's root after a deliberate change of the format: `python -m
tests.wire.make_vectors`. Made by the twin (oracle.py) and msgpack alone, never by csrc/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from tests.wire import oracle

VECTORS = Path(__file__).parent / "vectors"
LANE = (0x1122334455667788, (1 << 64) - 1, 3, 4)


def handle(dp: int, slot: int, generation: int) -> int:
    return dp << 51 | slot << 35 | generation


def frame(kind: int, header: Sequence[int], **given: Sequence[Any]) -> oracle.Frame:
    """Return a frame of these columns, the others default."""
    shape = oracle.SHAPES[kind]
    rows = len(given.get("handles", given.get("keys", ())))
    columns = {}
    for column in shape.columns:
        n = rows if column.per == "rows" and column.default is not None else 0
        values = given.get(column.name, [column.default] * n)
        columns[column.name] = np.array(values, column.dtype)
    tokens = len(columns["tokens"])
    names = {"rows": rows, "tokens": tokens}
    rest = iter((*LANE, *header))
    filled = {name: names[name] if name in names else next(rest) for name in shape.header}
    return oracle.Frame(shape, filled, columns)


def valid() -> Iterator[tuple[str, bytes]]:
    """Yield (what it shows, bytes)."""
    yield "a step without rows", oracle.write(frame(1, (0, 0, 1, 99)))
    two = [handle(5, 0, 1), handle(5, 1, 7)]
    plain = frame(1, (5, 0, 2, 99), handles=two, tokens=[11, 12])
    yield "plain decode, the first step of both handles", oracle.write(plain)
    later = frame(1, (5, 0, 3, 99), handles=two, tokens=[13, 14], position=[1, 70000])
    yield "plain decode, a later step", oracle.write(later)
    yield "the same rows once more, unnamed: it continues the frame before it", continuing(later)
    yield (
        "only a drained row",
        oracle.write(
            frame(1, (5, 1, 4, 99), handles=two[:1], counts=[0], status=[1], position=[2])
        ),
    )
    mixed = frame(
        1,
        (5, 0, 5, 99),
        handles=[*two, handle(5, 2, 1), handle(5, 0, 1)],
        counts=[3, 0, 1, 0],
        tokens=[1, 2, 3, 4],
        status=[0, 4, 2, 1],
        position=[2, 2, 0, 5],
    )
    yield "several tokens a row, a bad one, a recovery stop, a drained handle", oracle.write(mixed)
    logprobs = frame(
        1,
        (5, 0, 6, 99),
        handles=two,
        counts=[2, 1],
        tokens=[1, 2, 3],
        lp_k=[1, -1],
        lp_ids=[1, 8, 2, 2],
        lp_values=[-0.5, float("-inf"), float("nan"), -1.5],
        lp_ranks=[2, 1],
    )
    yield "logprobs on one row of two", oracle.write(logprobs)
    top0 = frame(1, (5, 0, 7, 99), handles=two[:1], tokens=[9], lp_k=[0], lp_ids=[9],
                 lp_values=[-0.25], lp_ranks=[1])  # fmt: skip
    yield "logprobs of the sampled token alone (k = 0)", oracle.write(top0)
    many = [handle(0, i, 1) for i in range(33)]
    yield (
        "columns longer than 255 and than 65535 bytes",
        oracle.write(
            frame(1, (0, 0, 8, 99), handles=many, counts=[512] * 33, tokens=[7] * 33 * 512)
        ),
    )
    yield (
        "the largest header integers",
        oracle.write(frame(1, (4095, (1 << 32) - 1, (1 << 64) - 1, (1 << 64) - 1))),
    )
    yield (
        "extras on two rows of three, one of them without a token",
        oracle.write(
            frame(
                1,
                (5, 0, 9, 99),
                handles=[*two, handle(5, 2, 1)],
                counts=[1, 0, 2],
                tokens=[1, 2, 3],
                status=[0, 5, 0],
                position=[6, 0, 3],
                extras_len=[5, 14, 0],
                extras=[7, 0, 0, 0, 0, 2, 9, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 63],
            )
        ),
    )
    yield (
        "a row that the worker refused, with the field to blame and the reason",
        oracle.write(
            frame(
                1,
                (5, 0, 10, 99),
                handles=two,
                counts=[0, 1],
                tokens=[1],
                status=[6, 0],
                extras_len=[14, 0],
                extras=[9, 9, 0, 0, 0, 4, *b"seed", *b"no !"],
            )
        ),
    )
    value = msgpack.unpackb(oracle.write(plain), strict_map_key=False)
    value[2] += [5, 6]
    value[3] = {200: b"later", **value[3], 0: b"", 2: b""}
    yield "unknown header fields and columns, and an empty column", msgpack.packb(value)
    raw = oracle.write(plain)
    wide = b"\x94\x01\xcf" + bytes(7) + b"\x01" + b"\xdc\x00" + bytes([raw[3] & 15]) + raw[4:]
    yield "forms that are not the shortest", wide
    yield "a flush of nothing", oracle.write(frame(2, (0, 0, 0)))
    keys = [7, 8, (1 << 64) - 1]
    yield (
        "one token for each of three requests",
        oracle.write(frame(2, (1, 2, 99), keys=keys, tokens=[1, 2, 3], offsets=[0, 5, 1 << 31])),
    )
    yield (
        "merged rows, every kind of end",
        oracle.write(
            frame(
                2,
                (1, 2, 99),
                keys=[1, 2, 3, 4, 5],
                counts=[3, 1, 0, 0, 2],
                tokens=[1, 2, 3, 4, 5, 6],
                offsets=[0, 9, 4, 0, 2],
                finish=[1, 2, 3, 4, 0],
                stop_reason=[3, -1, -1, -1, -1],
                lp_k=[0, -1, -1, -1, -1],
                lp_ids=[1, 2, 3],
                lp_values=[-1, -2, -3],
                lp_ranks=[1, 1, 4],
                error_len=[0, 0, 0, 9, 0],
                error_code=[0, 0, 0, 4, 0],
                error=list("zu spät!".encode()),
            )
        ),
    )
    yield (
        "a refused request and an error that blames no field",
        oracle.write(
            frame(
                2,
                (1, 2, 99),
                keys=[1, 2],
                counts=[0, 0],
                tokens=[],
                offsets=[0, 9],
                finish=[4, 4],
                error_len=[13, 1],
                error_code=[1, 6],
                error_field=[4, 0],
                error=list("zu spät!seed".encode() + b"!"),
            )
        ),
    )
    yield (
        "text: with tokens, without any, and where a stop string ended it",
        oracle.write(
            frame(
                2,
                (1, 2, 99),
                keys=[1, 2, 3, 4],
                counts=[2, 0, 1, 1],
                tokens=[1, 2, 3, 4],
                offsets=[0, 7, 8, 3],
                finish=[0, 0, 1, 0],
                text_len=[6, 3, 0, 0],
                text=list("über €".encode()[:6] + "€".encode()),
                text_offset=[0, 30, 0, 0],
                stop_string=[-1, -1, 1, -1],
            )
        ),
    )
    wrap = [*(3).to_bytes(4, "little"), 1, *[0] * 7, 10, 0, 0, 0]
    yield (
        "wrapped extras with their token, and a part of others ahead of their token",
        oracle.write(
            frame(
                2,
                (1, 2, 99),
                keys=[1, 2, 3],
                counts=[1, 0, 1],
                tokens=[1, 2],
                offsets=[3, 4, 0],
                extras_len=[26, 3, 0],
                extras=[*wrap, 4, 4, 0, 0, 0, 8, 0, 0, 0, 99, 1, 2, 3],
                extras_offset=[40, 1 << 33, 0],
            )
        ),
    )


def continuing(before: oracle.Frame) -> bytes:
    """Return the frame behind a plain one of two rows that has two tokens for the first."""
    header = {**before.header, "seq": before.header["seq"] + 1, "step": 4, "tokens": 3}
    given = {"counts": [2, 1], "tokens": [15, 16, 17], "handles": [], "position": []}
    columns = {
        c.name: np.array(given.get(c.name, before.columns[c.name]), c.dtype)
        for c in oracle.STEP.columns
    }
    return oracle.write(oracle.Frame(oracle.STEP, header, columns))


def changed(raw: bytes, header: dict[int, Any] | None = None, **columns: bytes | None) -> bytes:
    """Return a step's bytes with header elements or columns (`c1=...`) replaced."""
    value = msgpack.unpackb(raw, strict_map_key=False)
    for i, element in (header or {}).items():
        value[2][i] = element
    for name, data in columns.items():
        value[3][int(name[1:])] = data
        if data is None:
            del value[3][int(name[1:])]
    packed: bytes = msgpack.packb(value)
    return packed


def invalid() -> Iterator[tuple[str, bytes]]:
    """Yield (why it is refused, bytes); the first byte's frame kind is StepFrame throughout."""
    good = oracle.write(
        frame(1, (5, 0, 2, 99), handles=[handle(5, 0, 1)], counts=[2], tokens=[11, 12])
    )
    lp = oracle.write(
        frame(
            1,
            (5, 0, 2, 99),
            handles=[handle(5, 0, 1)],
            tokens=[9],
            lp_k=[1],
            lp_ids=[9, 8],
            lp_values=[-1, -2],
            lp_ranks=[1],
        )
    )
    yield "nothing at all", b""
    yield "ends inside the header", good[:20]
    yield "ends inside a column", good[:-1]
    yield "bytes after the frame", good + b"\xc0"
    yield "an array of five", b"\x95" + good[1:] + b"\xc0"
    yield "a map outside", b"\x82" + good[1:]
    yield "kind 9", good[:1] + b"\x09" + good[2:]
    yield "version 2", good[:2] + b"\x02" + good[3:]
    yield "version as a float", good[:2] + b"\xca\x3f\x80\x00\x00" + good[3:]
    value = msgpack.unpackb(good, strict_map_key=False)
    yield "a header of nine", msgpack.packb([1, 1, value[2][:9], value[3]])
    yield "a header of 33", msgpack.packb([1, 1, value[2] + [0] * 23, value[3]])
    yield "a negative header element", changed(good, {3: -1})
    yield "a header element that is no integer", changed(good, {6: "6"})
    yield (
        "an unknown header element that is no integer",
        msgpack.packb([1, 1, [*value[2], "x"], value[3]]),
    )
    yield "dp 4096", changed(good, {4: 4096})
    yield "tp 2^32", changed(good, {5: 1 << 32})
    yield "more rows than there may be", changed(good, {7: (1 << 20) + 1})
    yield "rows 2^61: times eight it is 0 in 64 bits", changed(good, {7: 1 << 61})
    yield "more tokens than there may be", changed(good, {8: (1 << 24) + 1})
    yield "positions, but no handles", changed(good, c1=None, c5=bytes(4))
    yield "half a handle", changed(good, c1=b"1234")
    yield "handles of two rows", changed(good, c1=bytes(16))
    yield "counts of one byte a row", changed(good, c2=b"\x02")
    yield "counts that sum to less", changed(good, c2=b"\x01\x00")
    yield "counts absent, so all 1, and two tokens", changed(good, c2=None)
    yield "tokens absent", changed(good, c3=None)
    yield "a status too many", changed(good, c4=b"\0\0")
    yield "positions of eight bytes", changed(good, c5=bytes(8))
    yield "a column that is a string", changed(good, c4="\0")  # type: ignore[arg-type]
    body = good.index(b"\x83\x01\xc4")
    yield "a column twice", good[:body] + b"\x84" + good[body + 1 :] + b"\x02\xc4\x02\x02\x00"
    yield "logprob ids without k", changed(lp, c6=None)
    yield "k = -2", changed(lp, c6=b"\xfe\xff\xff\xff")
    yield "k = 2^31 - 1 and two ids", changed(lp, c6=b"\xff\xff\xff\x7f")
    yield "fewer logprob values than ids", changed(lp, c8=bytes(4))
    yield "no rank", changed(lp, c9=None)
    yield "extras and no lengths", changed(good, c11=b"123")
    yield "extras that are shorter than their lengths", changed(good, c10=b"\4\0\0\0", c11=b"123")
    yield "extras lengths of two bytes", changed(good, c10=b"\3\0", c11=b"123")
    yield (
        "extras of 256 MiB and a byte",
        changed(good, c10=((1 << 28) + 1).to_bytes(4, "little"), c11=b"123"),
    )
    yield "a body that is an array", msgpack.packb([1, 1, value[2], [[1, b""]]])
    yield "a map of 2^32-1 columns", good[:body] + b"\xdf\xff\xff\xff\xff"
    yield "a bin of 2 GiB", changed(good)[:-10] + b"\xc6\x7f\xff\xff\xff"
    yield "a pickle", b"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02e."


def meaning(raw: bytes, before: bytes = b"") -> dict[str, Any]:
    """Return header and columns as JSON can say them; `before` is the frame that stands before."""
    read = oracle.read(raw, raw[1])
    if read.continues:
        read = oracle.follow(oracle.read(before, 1), read)

    def plain(array: np.ndarray) -> list[Any]:
        return [repr(v) if isinstance(v, float) else v for v in array.tolist()]

    columns = {name: plain(array) for name, array in read.columns.items()}
    return {"kind": read.shape.kind, "header": read.header, "columns": columns}


def store(folder: Path, number: int, raw: bytes, about: dict[str, Any]) -> None:
    """Write one pair of files."""
    (folder / f"{number:03}.bin").write_bytes(raw)
    text = json.dumps(about, ensure_ascii=False)
    (folder / f"{number:03}.json").write_text(text + "\n")


def main() -> None:
    """Write all vectors anew."""
    for folder in (VECTORS / "valid", VECTORS / "invalid"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    before = b""
    for number, (shows, raw) in enumerate(valid(), 1):
        store(VECTORS / "valid", number, raw, {"shows": shows, **meaning(raw, before)})
        before = raw
    for number, (why, raw) in enumerate(invalid(), 1):
        try:
            oracle.read(raw, 1)
        except oracle.Refused:
            store(VECTORS / "invalid", number, raw, {"refused": why, "kind": 1})
        else:
            raise SystemExit(f"the twin reads what it should refuse: {why}")


if __name__ == "__main__":
    main()
