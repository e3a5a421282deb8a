"""What is drawn has the chances that the parameters say, and only those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runners.rig import handle
from tokenpipe.runners.model import Row
from tokenpipe.runners.sampling import Sampler
from tokenpipe.types import SamplingParams

VOCABULARY = 40
DRAWS = 4000
rng = np.random.default_rng(5)
LOGITS = rng.normal(0, 2, VOCABULARY).astype(np.float32)


def row(params: SamplingParams, key: int = 1, prompt: int = 3) -> Row:
    return Row(handle(0), key, (0,) * prompt, (), params, 1000)


def reference(params: SamplingParams) -> Any:
    """Return the chances of all tokens, as vLLM's order has it."""
    x = LOGITS.astype(np.float64) / params.temperature
    p = np.exp(x - x.max())
    p[p < params.min_p * p.max()] = 0
    if params.top_k > 0:
        p[p < np.sort(p)[::-1][min(params.top_k, VOCABULARY) - 1]] = 0
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= params.top_p]] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 2.5},
        {"top_k": 5},
        {"top_k": 1000},
        {"top_p": 0.7},
        {"min_p": 0.1},
        {"min_p": 1.0},
        {"top_k": 7, "top_p": 0.8, "temperature": 1.7},
        {"top_k": 9, "top_p": 0.9, "min_p": 0.02, "temperature": 0.9},
    ],
    ids=str,
)
def test_chances_are_those_of_the_parameters(paddle: Any, wish: dict[str, Any]) -> None:
    params = SamplingParams(**wish)
    rows = [row(params, key) for key in range(DRAWS)]
    logits = paddle.to_tensor(np.tile(LOGITS, (DRAWS, 1)))
    drawn = Sampler(paddle).sample(logits, rows, np.full(DRAWS, 3)).tokens.numpy()
    chances = reference(params)
    counts = np.bincount(drawn, minlength=VOCABULARY)
    assert not counts[chances == 0].any(), "a token that the parameters forbid"
    expected = chances * DRAWS
    likely = expected >= 5
    chi2 = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    freedom = max(int(likely.sum()) - 1, 1)
    assert chi2 < freedom + 6 * np.sqrt(2 * freedom)  # fixed seeds: the same at every run


def test_rows_of_one_batch_are_each_by_themselves(paddle: Any) -> None:
    wishes: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"top_k": 1, "temperature": 5.0},
        {"top_p": 0.5, "seed": 3},
        {"top_k": 4, "seed": -9},
        {"min_p": 0.2, "seed": 2**64 - 1},
        {"temperature": 2.0},
        {"temperature": 0.0, "top_p": 0.1, "min_p": 0.9},
    ]
    rows = [row(SamplingParams(**wish), key) for key, wish in enumerate(wishes)]
    logits = paddle.to_tensor(rng.normal(0, 2, (len(rows), VOCABULARY)).astype(np.float32))
    lengths = np.array([3, 4, 5, 6, 7, 8, 9])
    together = Sampler(paddle).sample(logits, rows, lengths).tokens.numpy()
    for i, one in enumerate(rows):
        alone = Sampler(paddle).sample(logits[i : i + 1], [one], lengths[i : i + 1])
        assert alone.tokens.numpy().tolist() == [together[i]]
    best = logits.numpy().argmax(axis=-1)
    assert (together[[0, 1, 6]] == best[[0, 1, 6]]).all()


def test_what_is_known_of_a_batch_is_kept_while_it_is_the_same(paddle: Any) -> None:
    sampler = Sampler(paddle)
    logits = paddle.to_tensor(np.tile(LOGITS, (2, 1)))
    hot = [row(SamplingParams(temperature=9.0), key) for key in (1, 2)]
    many = {tuple(sampler.sample(logits, hot, np.full(2, n)).tokens.tolist()) for n in range(3, 20)}
    assert len(many) > 10  # each offset draws anew
    cold = [row(SamplingParams(temperature=0.0)) for _ in range(2)]
    assert sampler.sample(logits, cold, np.full(2, 3)).tokens.tolist() == [int(LOGITS.argmax())] * 2


def test_a_row_without_a_finite_maximum_harms_no_other(paddle: Any) -> None:
    logits = np.tile(LOGITS, (4, 1))
    logits[1, 7] = np.nan
    logits[2, 7] = np.inf
    logits[3] = -np.inf
    params = SamplingParams(temperature=1.0, top_p=0.9, logprobs=2)
    rows = [row(params, key) for key in range(4)]
    sampled = Sampler(paddle).sample(paddle.to_tensor(logits), rows, np.full(4, 3))
    tokens = sampled.tokens.numpy()
    alone = Sampler(paddle).sample(paddle.to_tensor(logits[:1]), rows[:1], np.full(1, 3))
    assert tokens[0] == alone.tokens.numpy()[0] and tokens[1:].tolist() == [-1, -1, -1]
    assert sampled.logprobs is not None
    assert (np.asarray(sampled.logprobs.token_ids) >= 0).all()


@pytest.mark.case("B66")
def test_logprobs_are_the_models_own_and_as_many_as_asked_for(paddle: Any) -> None:
    wishes = [None, 0, 3, 1]
    rows = [
        row(SamplingParams(temperature=3.0, top_k=4, logprobs=k), key)
        for key, k in enumerate(wishes)
    ]
    logits = rng.normal(0, 3, (4, VOCABULARY)).astype(np.float32)
    sampled = Sampler(paddle).sample(paddle.to_tensor(logits), rows, np.full(4, 3))
    assert sampled.logprobs is not None
    ids, values, ranks, k = sampled.logprobs
    assert k.tolist() == [-1, 0, 3, 1] and tuple(ids.shape) == (4, 4)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(axis=-1, keepdims=True))
    for i, token in enumerate(sampled.tokens.tolist()):
        assert ids[i].tolist() == [token, *np.argsort(-exact[i])[:3].tolist()]
        assert np.allclose(values[i].numpy(), exact[i][ids[i].numpy()], atol=1e-5)
        assert int(ranks[i].item()) == 1 + int((exact[i] > exact[i][token]).sum())


def test_half_precision_is_sampled_as_float32(paddle: Any) -> None:
    rows = [row(SamplingParams(temperature=1.0))]
    half = paddle.to_tensor(LOGITS[None]).astype("bfloat16")
    as_half = Sampler(paddle).sample(half, rows, np.full(1, 3)).tokens.tolist()
    assert (
        as_half
        == Sampler(paddle).sample(half.astype("float32"), rows, np.full(1, 3)).tokens.tolist()
    )
