"""The code of docs/migrating.md runs: an engine's pickled rows and its publish say the same."""

from __future__ import annotations

import asyncio
import pickle
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tokenpipe as tp
from tests.pipeline.case_rig import rig
from tokenpipe import FinishReason, Released

PAGE = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text()
CODE: dict[str, Any] = {"pickle": pickle, "np": np, "tp": tp}
for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
    exec(block, CODE)


@dataclass
class Row:
    batch_id: int
    tokens: np.ndarray
    extra: bytes = b""


@dataclass
class Task:
    request_id: str
    max_tokens: int
    eos: frozenset[int] = frozenset()
    output: list[int] = field(default_factory=list)


class Queue:
    """What both ends of the old path's socket are here."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.messages.append(message)

    def recv(self) -> bytes:
        return self.messages.pop(0)


def test_both_paths_give_the_same_of_the_same_rows(runtime_dir: Path) -> None:
    compared: dict[str, Any] = {}
    old: dict[str, list[int]] = {"a": [1, 2, 3], "b": [11, 99]}

    async def shadow() -> None:
        async with tp.AsyncClient(r.pipe.endpoint, name="shadow") as client:
            params = tp.SamplingParams(max_tokens=3)
            pairs = [CODE["compare"](client, name, [5], params, old[name]) for name in old]
            compared.update(zip(old, await asyncio.gather(*pairs), strict=True))

    with rig(runtime_dir, eos_token_ids=[99]) as r:
        thread = threading.Thread(target=lambda: asyncio.run(shadow()))
        thread.start()
        r.until(lambda: len(r.requests) == 2)
        slots = {"a": 4, "b": 6}
        handles = {
            slots[q.external_id]: r.bind(key, slots[q.external_id]) for key, q in r.requests.items()
        }
        tasks = {slot: Task(name, 3, frozenset([99])) for name, slot in slots.items()}
        got: list[tuple[str, list[int], bytes, bool]] = []
        steps = [
            [
                Row(4, np.array([1], np.int32), b"note"),
                Row(6, np.array([11], np.int32)),
                Row(7, np.array([-1])),
            ],
            [Row(4, np.array([2, 3, 4], np.int32)), Row(6, np.array([99, 8], np.int32))],
            [],
        ]
        queue = Queue()
        for step, rows in enumerate(steps, 1):
            drained = [handles.pop(slot) for slot in slots.values()] if not rows else []
            CODE["send_step"](queue, rows)
            CODE["receive_step"](queue, tasks, lambda *output: got.append(output))
            CODE["publish_step"](r.pubs[0], step, rows, handles, drained)
        r.until(lambda: len(r.of(Released)) == 2 and not thread.is_alive())
    assert got == [
        ("a", [1], b"note", False), ("b", [11], b"", False),
        ("a", [2, 3], b"", True), ("b", [99], b"", True),
    ]  # fmt: skip
    assert compared == {
        "a": (True, FinishReason.LENGTH, None),
        "b": (True, FinishReason.STOP, None),
    }
    assert {event.reason for event in r.of(Released)} == {"drained"}
