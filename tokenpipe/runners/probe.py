"""A model with known tokens, for the self-check of the runners and for their tests.

A token follows from the one before it and from its position, so a token that was fed back wrongly,
or at a wrong place, changes all that come after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .framework import load_paddle
from .model import I64, Row


class ProbeModel:
    """Compute on the current device. The logit of the right token is the highest."""

    def __init__(self, vocabulary: int = 512, platform: str = "cpu") -> None:
        self._paddle = load_paddle(platform)
        self.vocabulary = vocabulary
        self.ids = self._paddle.arange(vocabulary, dtype="int64")
        self.slots: dict[int, int] = {}  # slot to the handle that it belongs to

    def expected(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Return the first `tokens` right tokens after a prompt."""
        out, last, length = list[int](), prompt[-1], len(prompt)
        for _ in range(tokens):
            last = (31 * last + 17 * length + 7) % self.vocabulary
            out.append(last)
            length += 1
        return out

    def prefill(self, rows: Sequence[Row]) -> Any:
        """Return logits [rows, vocabulary]."""
        for row in rows:
            if row.slot in self.slots:
                raise RuntimeError(f"slot {row.slot} still holds {self.slots[row.slot]}")
            self.slots[row.slot] = row.handle
        last = [(*row.prompt_token_ids, *row.output_token_ids)[-1] for row in rows]
        lengths = [row.length for row in rows]
        tensor = self._paddle.to_tensor
        return self._logits(tensor(last, dtype="int64"), tensor(lengths, dtype="int64"))

    def decode(self, rows: Sequence[Row], last: Any, lengths: I64 | None) -> Any:
        """Return logits [rows, vocabulary]."""
        for row in rows:
            if self.slots.get(row.slot) != row.handle:
                raise RuntimeError(f"slot {row.slot} does not hold {row.handle}")
        return self._logits(last, self._paddle.to_tensor(lengths))

    def free(self, row: Row) -> None:
        """Empty a slot."""
        if self.slots.pop(row.slot, None) != row.handle:
            raise RuntimeError(f"slot {row.slot} did not hold {row.handle}")

    def _logits(self, last: Any, lengths: Any) -> Any:
        wanted = (31 * last + 17 * lengths + 7) % self.vocabulary
        near = (self.ids.unsqueeze(0) - wanted.unsqueeze(-1)).abs().astype("float32")
        return 4.0 - near.clip(max=8.0)
