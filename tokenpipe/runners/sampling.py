"""Sample on the device: greedy, or temperature, min-p, top-k and top-p in the order of vLLM.

Logprobs are computed from the model's logits, before all four. Only values that some row of the
batch asks for are computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenpipe.types import SamplingParams
from tokenpipe.worker import StepLogprobs

from . import rng
from .model import I64, Row, Sampled

_ANY = SamplingParams()  # for a greedy row, whose draw is not used
_NOTHING = -1e30  # log of the probability 0. With -inf, differences could be NaN


class _BatchParams:
    """The parameters of the rows of a batch, as arrays. They are made when the batch changes."""

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
    """Sample the next token of each row of a batch. Keeps the parameters of an unchanged batch."""

    def __init__(self, paddle: Any) -> None:
        self._paddle = paddle
        self._rows: list[Row] | None = None
        self._params = _BatchParams([])
        self._tensors: dict[str, Any] = {}

    def sample(self, logits: Any, rows: list[Row], lengths: I64) -> Sampled:
        """Return tokens int64 [rows] and logprobs, all on the device.

        Args:
            logits: float [rows, vocabulary], on the device.
            rows: the same list object while the same rows run.
            lengths: int64 [rows], tokens of each sequence so far.

        A row whose logits have no finite maximum gets the token -1, which ends its request with
        an error. A row without `params.logprobs` has k -1.
        """
        p = self._paddle
        if rows is not self._rows:
            self._rows, self._params, self._tensors = rows, _BatchParams(rows), {}
        params = self._params
        logits = logits if logits.dtype == p.float32 else logits.astype("float32")
        peak = logits.max(axis=-1, keepdim=True)
        tokens = p.argmax(logits, axis=-1)
        if params.drawn:
            numbers = p.to_tensor(rng.uniforms(params.seeds, lengths - params.prompts))
            drawn = self._draw((logits - peak) / self._of("temperature"), numbers)
            tokens = p.where(self._of("greedy"), tokens, drawn)
        logprobs = None
        if params.most_logprobs >= 0:
            logprobs = self._logprobs(logits, peak, tokens)
        good = p.isfinite(peak).squeeze(-1)
        return Sampled(p.where(good, tokens, p.full_like(tokens, -1)), None, logprobs)

    def _of(self, name: str) -> Any:
        """Return a parameter of all rows, on the device."""
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = self._paddle.to_tensor(getattr(self._params, name))
        return tensor

    def _draw(self, x: Any, numbers: Any) -> Any:
        """Return one draw for each row of x [rows, vocabulary].

        x has log probabilities without their constant: the highest of a row is 0.
        """
        p, params = self._paddle, self._params
        vocabulary = x.shape[-1]
        if (params.min_p > 0).any():
            x = p.where(x < p.log(self._of("min_p")), p.full_like(x, _NOTHING), x)
        limited = (params.top_k > 0) & (params.top_k < vocabulary)
        nuclear = params.top_p < 1
        if limited.any() or nuclear.any():
            x = self._cut(x, limited, nuclear)
        weights = p.exp(x)
        weights = p.where(x <= _NOTHING / 2, p.zeros_like(weights), weights)
        heap = weights.cumsum(axis=-1)
        under = heap <= numbers.unsqueeze(-1) * heap[:, -1:]
        return under.astype("int64").sum(axis=-1).clip(max=vocabulary - 1)

    def _cut(self, x: Any, limited: Any, nuclear: Any) -> Any:
        """Keep the top k, and then the top p, of each row that asks for it."""
        p, params = self._paddle, self._params
        vocabulary = x.shape[-1]
        # Only a row with a top p and without a top k needs the whole vocabulary sorted.
        most = vocabulary if (nuclear & ~limited).any() else int(params.top_k[limited].max())
        best, _ = p.topk(x, most, axis=-1)
        allowed = np.where(limited, params.top_k, most)
        inside = p.arange(most).unsqueeze(0) < p.to_tensor(allowed)
        if nuclear.any():
            weights = p.where(inside, p.exp(best), p.zeros_like(best))
            before = weights.cumsum(axis=-1) - weights
            inside = inside & (before < self._of("top_p") * weights.sum(axis=-1, keepdim=True))
            first = p.arange(most).unsqueeze(0) == 0  # a top p of 0 is the best token
            inside = inside | first
        floor = p.where(inside, best, p.full_like(best, 1.0)).min(axis=-1, keepdim=True)
        kept = (x >= floor) | p.to_tensor(~(limited | nuclear))
        return p.where(kept, x, p.full_like(x, _NOTHING))

    def _logprobs(self, logits: Any, peak: Any, tokens: Any) -> StepLogprobs:
        p, most = self._paddle, self._params.most_logprobs
        # On a CPU log_softmax of a large vocabulary is slow. Only its sum is needed here.
        total = peak + p.log(p.exp(logits - peak).sum(axis=-1, keepdim=True))
        at = tokens.unsqueeze(-1)
        values = p.take_along_axis(logits, at, axis=-1)
        ranks = (logits > values).astype("int64").sum(axis=-1) + 1
        ids = at
        if most:
            best, best_ids = p.topk(logits, min(most, logits.shape[-1]), axis=-1)
            values, ids = p.concat([values, best], axis=-1), p.concat([at, best_ids], axis=-1)
        return StepLogprobs(ids, values - total, ranks, self._params.logprobs)
