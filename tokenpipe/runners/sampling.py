"""Sample on the device: greedy, temperature, min-p, top-k, top-p, and logprobs where asked for.

The order is vLLM's: temperature, min-p, top-k, top-p. Logprobs are those of the model, before any
of it. What is not asked for by any row of a batch is not computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenpipe.types import SamplingParams
from tokenpipe.worker import StepLogprobs

from . import rng
from .model import I64, Row, Sampled

_ANY = SamplingParams()  # limits nothing: what a greedy row asks of the draw that it ignores
_NOTHING = -1e30  # log of no chance at all, and a number where -inf - -inf would be none


class _Wishes:
    """What the rows of a batch ask for, as arrays; made when the batch changes."""

    def __init__(self, rows: list[Row]) -> None:
        params = [row.params for row in rows]
        self.greedy = np.array([p.temperature <= 0 or p.top_k == 1 for p in params])
        self.drawn = not self.greedy.all()
        drawn = [_ANY if cold else p for p, cold in zip(params, self.greedy, strict=True)]
        self.temperature = np.array([p.temperature for p in drawn], np.float32)[:, None]
        self.min_p = np.array([p.min_p for p in drawn], np.float32)[:, None]
        self.top_p = np.array([p.top_p for p in drawn], np.float32)[:, None]
        self.top_k = np.array([max(p.top_k, 0) for p in drawn], np.int64)[:, None]
        self.seeds = rng.seeds(rows)
        self.prompts = np.array([len(row.prompt_token_ids) for row in rows], np.int64)
        self.logprobs = np.array(
            [-1 if p.logprobs is None else p.logprobs for p in params], np.int32
        )
        self.most_logprobs = int(self.logprobs.max(initial=-1))


class Sampler:
    """Samples the next token of each row of a batch; keeps what it knows of an unchanged one."""

    def __init__(self, paddle: Any) -> None:
        self._paddle = paddle
        self._rows: list[Row] | None = None
        self._wishes = _Wishes([])
        self._tensors: dict[str, Any] = {}

    def sample(self, logits: Any, rows: list[Row], lengths: I64) -> Sampled:
        """Return tokens int64 [rows] and logprobs, all on the device.

        Args:
            logits: float [rows, vocabulary], on the device.
            rows: pass the same list while the same rows run.
            lengths: int64 [rows], tokens of each sequence so far.

        A row whose logits have no finite maximum gets the token -1, which ends its request with
        an error. A row without `params.logprobs` has k -1.
        """
        p = self._paddle
        if rows is not self._rows:
            self._rows, self._wishes, self._tensors = rows, _Wishes(rows), {}
        wishes = self._wishes
        logits = logits if logits.dtype == p.float32 else logits.astype("float32")
        peak = logits.max(axis=-1, keepdim=True)
        tokens = p.argmax(logits, axis=-1)
        if wishes.drawn:
            numbers = p.to_tensor(rng.uniforms(wishes.seeds, lengths - wishes.prompts))
            drawn = self._draw((logits - peak) / self._of("temperature"), numbers)
            tokens = p.where(self._of("greedy"), tokens, drawn)
        logprobs = None
        if wishes.most_logprobs >= 0:
            logprobs = self._logprobs(logits, peak, tokens)
        good = p.isfinite(peak).squeeze(-1)
        return Sampled(p.where(good, tokens, p.full_like(tokens, -1)), None, logprobs)

    def _of(self, name: str) -> Any:
        """Return one of the wishes on the device."""
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = self._paddle.to_tensor(getattr(self._wishes, name))
        return tensor

    def _draw(self, x: Any, numbers: Any) -> Any:
        """Return one draw per row of x [rows, vocabulary]: log chances, the highest of a row 0."""
        p, wishes = self._paddle, self._wishes
        vocabulary = x.shape[-1]
        if (wishes.min_p > 0).any():
            x = p.where(x < p.log(self._of("min_p")), p.full_like(x, _NOTHING), x)
        limited = (wishes.top_k > 0) & (wishes.top_k < vocabulary)
        nuclear = wishes.top_p < 1
        if limited.any() or nuclear.any():
            x = self._cut(x, limited, nuclear)
        chances = p.exp(x)
        chances = p.where(x <= _NOTHING / 2, p.zeros_like(chances), chances)
        heap = chances.cumsum(axis=-1)
        under = heap <= numbers.unsqueeze(-1) * heap[:, -1:]
        return under.astype("int64").sum(axis=-1).clip(max=vocabulary - 1)

    def _cut(self, x: Any, limited: Any, nuclear: Any) -> Any:
        """Keep the top k and then the top p of each row that wants it."""
        p, wishes = self._paddle, self._wishes
        vocabulary = x.shape[-1]
        # The whole vocabulary is sorted only for a row that has a top p and no top k.
        most = vocabulary if (nuclear & ~limited).any() else int(wishes.top_k[limited].max())
        best, _ = p.topk(x, most, axis=-1)
        allowed = np.where(limited, wishes.top_k, most)
        inside = p.arange(most).unsqueeze(0) < p.to_tensor(allowed)
        if nuclear.any():
            chances = p.where(inside, p.exp(best), p.zeros_like(best))
            before = chances.cumsum(axis=-1) - chances
            inside = inside & (before < self._of("top_p") * chances.sum(axis=-1, keepdim=True))
            first = p.arange(most).unsqueeze(0) == 0  # a top p of 0 is the best token
            inside = inside | first
        floor = p.where(inside, best, p.full_like(best, 1.0)).min(axis=-1, keepdim=True)
        kept = (x >= floor) | p.to_tensor(~(limited | nuclear))
        return p.where(kept, x, p.full_like(x, _NOTHING))

    def _logprobs(self, logits: Any, peak: Any, tokens: Any) -> StepLogprobs:
        p, most = self._paddle, self._wishes.most_logprobs
        # log_softmax over a large vocabulary is slow on CPU; this needs its sum alone.
        total = peak + p.log(p.exp(logits - peak).sum(axis=-1, keepdim=True))
        at = tokens.unsqueeze(-1)
        values = p.take_along_axis(logits, at, axis=-1)
        ranks = (logits > values).astype("int64").sum(axis=-1) + 1
        ids = at
        if most:
            best, best_ids = p.topk(logits, min(most, logits.shape[-1]), axis=-1)
            values, ids = p.concat([values, best], axis=-1), p.concat([at, best_ids], axis=-1)
        return StepLogprobs(ids, values - total, ranks, self._wishes.logprobs)
