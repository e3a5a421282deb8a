"""An engine whose prompts say what it does: the first id of a prompt names the end it comes to."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tests.postprocess.vocab import real
from tokenpipe import PromptLogprobs, RowExtras, RowStatus, StepBind
from tokenpipe.worker import RankPlace, StepRows

LETTERS = [real("gpt2_style").words[bytes([b])] for b in b"abcdefghijklmnopqrstuvwxyz"]
(EOS_ID,) = real("gpt2_style").tokenizer.encode("<|endoftext|>").ids
ENDS = ("eos", "stop id", "stop string", "length", "abort", "error")
LAST = 10  # index of the token that ends it
ROW = 3  # tokens of a row
CACHED, REASONING = 2, 4


class Scripted:
    """Spell the alphabet, three letters a row, until the end that a prompt wants."""

    def __init__(self, place: RankPlace) -> None:
        self.rows: dict[int, tuple[str, int]] = {}
        self.prompts: dict[int, PromptLogprobs | None] = {}

    def admit(self, binding: StepBind) -> None:
        self.rows[binding.handle] = ENDS[binding.prompt_token_ids[0]], binding.output_tokens
        self.prompts[binding.handle] = None
        if (k := binding.params.prompt_logprobs) is not None:
            ids = np.array([[t, *range(k)] for t in binding.prompt_token_ids[1:]])
            values = np.full(ids.shape, -1.5, np.float32)
            values[0, 0] = -np.inf
            self.prompts[binding.handle] = PromptLogprobs(1, ids, values, np.full(len(ids), 4))

    def free(self, handle: int) -> None:
        del self.rows[handle], self.prompts[handle]

    def step(self) -> StepRows | None:
        time.sleep(0.001)
        handles: list[int] = []
        tokens: list[int] = []
        counts: list[int] = []
        status: list[int] = []
        extras: dict[int, RowExtras] = {}
        for handle, (end, at) in self.rows.items():
            if end in ("abort", "error") and at >= 3 * ROW:
                row: list[Any] = []
            else:
                row = [self.token(end, i) for i in range(at, at + ROW)]
            if not row and end == "abort":
                continue  # until it is aborted
            if at == 0:
                extras[len(handles)] = RowExtras(
                    self.prompts[handle], cached_tokens=CACHED, reasoning_tokens=REASONING
                )
            handles.append(handle)
            tokens += row
            counts.append(len(row))
            status.append(RowStatus.OK if row else RowStatus.ERROR)
            self.rows[handle] = end, at + len(row)
        if not handles:
            return None
        return StepRows(
            np.array(handles), np.array(tokens, np.int32), np.array(counts), None,
            np.array(status, np.uint8), extras,
        )  # fmt: skip

    def token(self, end: str, at: int) -> int:
        return EOS_ID if end == "eos" and at == LAST else LETTERS[at % 26]
