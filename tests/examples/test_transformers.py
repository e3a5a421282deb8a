"""transformers' continuous batching through tokenpipe, where both of them are installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.asking import Crowd, serve
from tokenpipe import FinishReason, SamplingParams

torch = pytest.importorskip("torch", reason="torch is not installed: make examples")
pytest.importorskip("transformers", reason="transformers is not installed: make examples")
pytestmark = pytest.mark.filterwarnings("ignore")

PROMPTS = [[i + 1, i + 2, i + 3] for i in range(8)]
PARAMS = SamplingParams(temperature=0.0, max_tokens=40)


@pytest.fixture(scope="module")
def model() -> Any:
    """Give a tiny Llama with random weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        torch.set_num_threads(1)  # tiny tensors: more would wait for one another
        config = LlamaConfig(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=None,
        )
        model = LlamaForCausalLM(config).eval()
        model.set_attn_implementation("sdpa")
        return model


@pytest.fixture
def engine(model: Any, runtime_dir: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Give an engine with as many cache blocks as the test asks for; none of its slots may leak."""
    from examples.transformers.adapter import TransformersEngine

    blocks = getattr(request, "param", 12)
    options: dict[str, Any] = {"page_size": 8, "slots_per_rank": 16, "runtime_dir": runtime_dir}
    with TransformersEngine(model, blocks, max_batch_tokens=24, **options) as engine:
        yield engine
        serve(engine.turn, lambda: not engine.front.bound)
        assert len(engine.front.free) == 16
        assert set(engine.front.released) <= {
            "drained"
        }  # each by a word of its worker's, none late


def alone(model: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Return what the model says of itself to prompts of one length, greedy, without any engine."""
    ids = torch.tensor(prompts)
    with torch.no_grad():
        for _ in range(tokens):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=-1)
    got: list[list[int]] = ids[:, len(prompts[0]) :].tolist()
    return got


@pytest.fixture(scope="module")
def own(model: Any) -> list[list[int]]:
    return alone(model, PROMPTS, 60)


@pytest.mark.parametrize("engine", [12, 200], indirect=True)
def test_streams_are_the_models_own_with_few_blocks_and_with_many(
    engine: Any, own: list[list[int]]
) -> None:
    crowd = Crowd(engine.pipe.endpoint, PROMPTS, PARAMS, pause_s=0.02)
    serve(engine.turn, lambda: not crowd.is_alive())
    assert crowd.tokens == [tokens[:40] for tokens in own]
    assert {outputs[-1].finish_reason for outputs in crowd.outputs} == {FinishReason.LENGTH}
    few = engine.processor.cache.num_blocks < 100
    assert bool(engine.preemptions) == few


@pytest.mark.parametrize("engine", [200], indirect=True)
def test_prompts_in_pieces_have_no_token_before_their_end(engine: Any, model: Any) -> None:
    """A step of 24 tokens has rows of prompts that are not through beside rows with a token."""
    prompts = [[(7 * i + j) % 500 + 1 for j in range(50)] for i in range(6)]
    crowd = Crowd(engine.pipe.endpoint, prompts, PARAMS, pause_s=0.01)
    serve(engine.turn, lambda: not crowd.is_alive())
    assert crowd.tokens == alone(model, prompts, 40)


@pytest.mark.parametrize(("engine", "longer"), [(12, 60), (200, 450)], indirect=["engine"])
def test_those_who_leave_free_their_slots(engine: Any, own: list[list[int]], longer: int) -> None:
    long = SamplingParams(temperature=0.0, max_tokens=60)
    crowd = Crowd(engine.pipe.endpoint, PROMPTS, long, 0.01, leave=[1, 3, 5], longer=longer)
    serve(engine.turn, lambda: not crowd.is_alive() and not engine.front.bound)
    for which, tokens in enumerate(crowd.tokens):
        assert tokens == own[which][: len(tokens)]
        assert which in (1, 3, 5) or len(tokens) == 60
    assert not engine.processor.has_pending_requests()
    assert bool(engine.preemptions) == (longer == 60)
    assert engine.steps < 450  # nobody made the tokens that nobody wanted any more


def test_a_forward_that_raises_ends_every_open_stream(
    engine: Any, own: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    forwards = 0
    original = engine.processor._generation_step

    def fails(model: Any) -> None:
        nonlocal forwards
        forwards += 1
        if forwards > 10:
            raise RuntimeError("the device is gone")
        original(model)

    monkeypatch.setattr(engine.processor, "_generation_step", fails)
    crowd = Crowd(engine.pipe.endpoint, PROMPTS, SamplingParams(temperature=0.0, max_tokens=400))
    serve(engine.turn, lambda: not crowd.is_alive())
    for which, outputs in enumerate(crowd.outputs):
        assert outputs[-1].finish_reason == FinishReason.ERROR and outputs[-1].error
        tokens = crowd.tokens[which]
        assert tokens == own[which][: len(tokens)]
    late = Crowd(engine.pipe.endpoint, [[1]], PARAMS)
    serve(engine.turn, lambda: not late.is_alive())
    assert late.outputs[0][-1].finish_reason == FinishReason.ERROR


def test_what_the_engine_cannot_do_is_refused(engine: Any) -> None:
    crowd = Crowd(engine.pipe.endpoint, [[1]], SamplingParams(temperature=1.0))
    serve(engine.turn, lambda: not crowd.is_alive())
    assert crowd.outputs[0][-1].error == "this engine is greedy"
