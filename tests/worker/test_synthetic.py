"""The synthetic engine: one prompt and seed, the same tokens, however it is interrupted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpipe.api.endpoints import DEFAULT_CHAT_TOKENS
from tokenpipe.errors import ConfigError
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams
from tokenpipe.wire import StepBind
from tokenpipe.worker import RankPlace, SyntheticEngine


def make(**options: Any) -> SyntheticEngine:
    topology = Topology(vocab_size=100, eos_token_ids=(0, 7))
    return SyntheticEngine(RankPlace(topology, 0, 0), **{"rate": 0.0, **options})


def bind(handle: int, offset: int = 0, prompt: tuple[int, ...] = (1, 2), **params: Any) -> StepBind:
    given = SamplingParams(**{"seed": 1, "max_tokens": 100, **params})
    return StepBind(handle, handle, offset, prompt, (0,) * offset, 100, params=given)


def tokens(engine: SyntheticEngine, handle: int, steps: int) -> list[int]:
    found: list[int] = []
    for _ in range(steps):
        rows = engine.step()
        assert rows is not None
        per_row = len(rows.tokens) // len(rows.handles)
        at = rows.handles.tolist().index(handle) * per_row
        found += rows.tokens[at : at + per_row].tolist()
    return found


@pytest.mark.parametrize("k", [1, 3])
def test_tokens_follow_from_prompt_seed_and_offset(k: int) -> None:
    alone = make()
    alone.admit(bind(1))
    expected = tokens(alone, 1, 30)
    assert len(set(expected)) > 10 and not {0, 7} & set(expected) and max(expected) < 100
    engine = make(tokens_per_row=k)
    engine.admit(bind(1))
    begun = tokens(engine, 1, 2)
    engine.admit(bind(2, prompt=(9,)))
    begun += tokens(engine, 1, 2)
    engine.free(1)
    assert engine.step() is not None
    engine.admit(bind(3, offset=len(begun)))  # goes on elsewhere
    assert begun + tokens(engine, 3, 30)[: 30 - len(begun)] == expected
    for handle in (2, 3):
        engine.free(handle)
    assert engine.step() is None


def test_requests_without_a_seed_differ() -> None:
    engine = make()
    engine.admit(bind(1, seed=None))
    engine.admit(bind(2, seed=None))
    rows = [engine.step() for _ in range(8)]
    assert any(row.tokens[0] != row.tokens[1] for row in rows if row is not None)


def test_logprobs_only_for_those_who_asked() -> None:
    engine = make(tokens_per_row=2)
    for handle, k in ((1, None), (2, 0), (3, 2)):
        engine.admit(bind(handle, logprobs=k))
    rows = engine.step()
    assert rows is not None and rows.logprobs is not None
    ids, values, ranks, k = rows.logprobs
    assert k.tolist() == [-1, 0, 2] and len(ids) == len(values) == 2 * 1 + 2 * 3
    assert len(ranks) == 4 and values[:2].tolist() == [-0.5, -0.5]
    assert ids[:2].tolist() == rows.tokens[2:4].tolist()
    assert [ids[2], ids[5]] == rows.tokens[4:6].tolist() and values.dtype == np.float32


def test_rate_is_kept_and_a_pause_is_not_made_up_for() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    engine = make(rate=10.0, clock=lambda: now[0], sleep=sleep)
    engine.admit(bind(1))
    for _ in range(10):
        engine.step()
    assert now[0] == pytest.approx(1.0)
    now[0] += 100.0
    engine.step()
    engine.step()
    assert now[0] == pytest.approx(101.1, abs=0.11)


def test_a_chat_that_says_no_length_takes_seconds() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    engine = SyntheticEngine(RankPlace(Topology(), 0, 0), clock=lambda: now[0], sleep=sleep)
    engine.admit(bind(1))
    for _ in range(DEFAULT_CHAT_TOKENS):
        engine.step()
    assert now[0] < 2.0  # its own: nothing slept


@pytest.mark.parametrize(
    "options", [{"rate": -1.0}, {"tokens_per_row": 0}], ids=["rate", "tokens_per_row"]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="rate must be >= 0"):
        make(**options)
    with pytest.raises(ConfigError, match="every token"):
        SyntheticEngine(RankPlace(Topology(vocab_size=2, eos_token_ids=(0, 1)), 0, 0))
