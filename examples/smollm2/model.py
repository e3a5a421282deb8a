"""A small Llama on PaddlePaddle for a tokenpipe runner, with a KV cache for each slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from tokenpipe import Row, RowsFailed

from .weights import Weights

I64 = NDArray[np.int64]
Tensor = Any


class SmolLM2:
    """The model over `slots` rows of at most `room` tokens each.

    `max_model_len` says so to API servers: they refuse a request that does not fit.
    """

    def __init__(self, weights: Weights, slots: int, room: int) -> None:
        paddle.set_grad_enabled(False)
        shape = self.shape = weights.settings
        self.room = self.max_model_len = room
        self.groups = shape["heads"] // shape["kv_heads"]
        self.embedding = _lent(weights["token_embd.weight"])
        self.norm = _lent(weights["output_norm.weight"])
        self.layers = [
            {name: _lent(weights[f"blk.{layer}.{name}.weight"]) for name in _LAYER}
            for layer in range(shape["layers"])
        ]
        cache = [slots, shape["kv_heads"], room, shape["head"]]
        self.keys = [paddle.zeros(cache) for _ in self.layers]
        self.values = [paddle.zeros(cache) for _ in self.layers]
        half = shape["head"] // 2
        angles = np.outer(
            np.arange(room), shape["rope_base"] ** (-np.arange(half, dtype=np.float64) / half)
        )
        self.cos = paddle.to_tensor(np.cos(angles).astype(np.float32))
        self.sin = paddle.to_tensor(np.sin(angles).astype(np.float32))

    def tokens_of(self, row: Row) -> Sequence[int]:
        """Return the tokens that a new row has at its prefill."""
        return (*row.prompt_token_ids, *row.output_token_ids)

    def prefill(self, rows: Sequence[Row]) -> Tensor:
        """Run each row's tokens at once and fill its slot; logits [rows, vocabulary]."""
        full = [row.handle for row in rows if row.length > self.room]
        if full:
            raise RowsFailed(full, f"more than {self.room} tokens")
        last = []
        for row in rows:
            tokens = self.tokens_of(row)
            slots = paddle.full([len(tokens)], row.slot, "int64")
            positions = paddle.arange(len(tokens), dtype="int64")
            ids = paddle.to_tensor(np.array(tokens, np.int64))
            last.append(self._run(ids, slots, positions, prefill=row.slot)[-1:])
        return self._logits(paddle.concat(last))

    def decode(self, rows: Sequence[Row], last: Tensor, lengths: I64 | None) -> Tensor:
        """Run one token of each row; logits [rows, vocabulary]."""
        assert lengths is not None
        full = [row.handle for row, n in zip(rows, lengths, strict=True) if n > self.room]
        if full:
            raise RowsFailed(full, f"more than {self.room} tokens")
        slots = paddle.to_tensor(np.array([row.slot for row in rows], np.int64))
        return self._logits(self._run(last, slots, paddle.to_tensor(lengths - 1)))

    def free(self, row: Row) -> None:
        """Do nothing: the next row of the slot overwrites the cache."""

    def _run(
        self, ids: Tensor, slots: Tensor, positions: Tensor, prefill: int | None = None
    ) -> Tensor:
        """Return the hidden state of n tokens, each at its slot and position."""
        n, shape = ids.shape[0], self.shape
        x = paddle.nn.functional.embedding(ids, self.embedding)
        cos = paddle.index_select(self.cos, positions).unsqueeze(1)
        sin = paddle.index_select(self.sin, positions).unsqueeze(1)
        reach = int(positions.max().item()) + 1
        unseen = paddle.arange(reach).unsqueeze(0) > positions.unsqueeze(1)
        mask = paddle.where(unseen, paddle.full([1], -1e30), paddle.zeros([1])).reshape(
            [n, 1, 1, reach]
        )
        for layer, w in enumerate(self.layers):
            h = self._normed(x, w["attn_norm"])
            q = _turned((h @ w["attn_q"]).reshape([n, -1, shape["head"]]), cos, sin)
            k = _turned((h @ w["attn_k"]).reshape([n, -1, shape["head"]]), cos, sin)
            v = (h @ w["attn_v"]).reshape([n, -1, shape["head"]])
            keys, values = self.keys[layer], self.values[layer]
            keys[slots, :, positions] = k
            values[slots, :, positions] = v
            if prefill is not None:  # one row: its tokens share keys and values
                seen_k, seen_v = keys[prefill : prefill + 1], values[prefill : prefill + 1]
            else:
                seen_k = paddle.index_select(keys[:, :, :reach], slots)
                seen_v = paddle.index_select(values[:, :, :reach], slots)
            seen_k, seen_v = seen_k[:, :, :reach], seen_v[:, :, :reach]
            x = x + self._attended(q, seen_k, seen_v, mask) @ w["attn_output"]
            h = self._normed(x, w["ffn_norm"])
            gate = paddle.nn.functional.silu(h @ w["ffn_gate"])
            x = x + (gate * (h @ w["ffn_up"])) @ w["ffn_down"]
        return x

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return [n, hidden]: q [n, heads, head] over k and v [n or 1, kv_heads, reach, head]."""
        n, _, head = q.shape
        q = q.reshape([n, self.shape["kv_heads"], self.groups, head])
        scores = paddle.matmul(q, k, transpose_y=True) * head**-0.5 + mask
        weights = paddle.nn.functional.softmax(scores, axis=-1)
        return paddle.matmul(weights, v).reshape([n, -1])

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        mean = (x * x).mean(axis=-1, keepdim=True)
        return x * paddle.rsqrt(mean + self.shape["epsilon"]) * weight

    def _logits(self, x: Tensor) -> Tensor:
        return paddle.matmul(self._normed(x, self.norm), self.embedding, transpose_y=True)


_LAYER = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


def _lent(values: Any) -> Tensor:
    """Return a tensor over a mapped array, without a copy."""
    return paddle.utils.dlpack.from_dlpack(values)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [n, heads, head] by its positions: each first half of a head with its second half."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return paddle.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)
