"""Feed the ids of a plain run, not the sampled ids, so each argmax can be compared by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from tokenpipe import Row

from .model import I64, SmolLM2
from .weights import Weights


class Forced(SmolLM2):
    """The model on given ids. `plain` is a file: a JSON list of [prompt ids, output ids]."""

    def __init__(self, weights: Weights, slots: int, room: int, plain: Path) -> None:
        super().__init__(weights, slots, room)
        self._plain = {tuple(prompt): ids for prompt, ids in json.loads(plain.read_text())}

    def tokens_of(self, row: Row) -> Sequence[int]:
        """Return the prompt and as many plain ids as the request has output tokens."""
        return (*row.prompt_token_ids, *self._ids(row)[: len(row.output_token_ids)])

    def decode(self, rows: Sequence[Row], last: Any, lengths: I64 | None) -> Any:
        """Run the plain id in place of the sampled id."""
        assert lengths is not None
        fed = [
            self._ids(row)[length - len(row.prompt_token_ids) - 1]
            for row, length in zip(rows, lengths.tolist(), strict=True)
        ]
        return super().decode(rows, paddle.to_tensor(np.array(fed, np.int64)), lengths)

    def _ids(self, row: Row) -> list[int]:
        ids: list[int] = self._plain.get(row.prompt_token_ids) or [0] * 64  # rows of the warm-up
        return ids
