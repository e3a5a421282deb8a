"""Requests get keys that nobody else has, one for each sample, and a prompt that is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpipe.client.requests import KEY_COUNTER_BITS, RequestKeys, expand
from tokenpipe.client.sizes import SizeLimits
from tokenpipe.errors import ConfigError, FieldError
from tokenpipe.types import SamplingParams

ONE = SamplingParams()


def submits(prompt: Any, params: SamplingParams = ONE, vocab_size: int | None = None) -> Any:
    limits = SizeLimits(vocab_size=vocab_size)
    return expand(RequestKeys(5), prompt, params, "r", b"x", limits)


def test_keys_are_of_this_client_life_and_never_repeat() -> None:
    request_keys = RequestKeys(0xABCD_1234_5678)
    keys = [key for count in (2, 1, 3) for key in request_keys.take(count)]
    assert keys == [(0x1234_5678 << KEY_COUNTER_BITS) + i for i in range(1, 7)]


def test_a_client_that_has_given_out_all_its_keys_says_so_and_gives_none_twice() -> None:
    request_keys = RequestKeys(1)
    request_keys.take((1 << KEY_COUNTER_BITS) - 3)
    with pytest.raises(ConfigError, match="used up its request keys"):
        request_keys.take(3)
    assert request_keys.take(2)[-1] == (2 << KEY_COUNTER_BITS) - 1
    with pytest.raises(ConfigError):
        request_keys.take(1)


def test_one_sample_is_the_request_itself() -> None:
    params = SamplingParams(seed=7)
    (submit,) = submits([1, 2], params)
    assert submit.params is params and submit.extra == b"x" and submit.external_id == "r"
    assert (submit.prompt_token_ids, submit.parent, submit.sample_index) == ((1, 2), 0, 0)


def test_n_samples_are_requests_of_their_own() -> None:
    made = submits([1], SamplingParams(n=3, seed=7))
    assert [submit.parent for submit in made] == [0, made[0].key, made[0].key]
    assert [submit.sample_index for submit in made] == [0, 1, 2]
    assert [submit.params.seed for submit in made] == [7, 8, 9]
    assert {submit.params.n for submit in made} == {1}
    assert {(submit.external_id, submit.extra) for submit in made} == {("r", b"x")}
    assert {submit.params.seed for submit in submits([1], SamplingParams(n=2))} == {None}


def test_a_request_without_a_name_is_named_by_its_key() -> None:
    request_keys = RequestKeys(1)
    names = [expand(request_keys, [1], ONE, None, b"")[0].external_id for _ in range(2)]
    assert names == ["req-0000000100000001", "req-0000000100000002"]
    assert expand(request_keys, [1], ONE, "", b"")[0].external_id == ""


@pytest.mark.parametrize("prompt", [[-1], [1 << 31], ["a"], [1.5], [1 << 40], 7])
def test_a_wrong_prompt_is_a_field_error_and_takes_no_key(prompt: Any) -> None:
    request_keys = RequestKeys(0)
    with pytest.raises(FieldError) as caught:
        expand(request_keys, prompt, ONE, None, b"")
    assert caught.value.field == "prompt_token_ids"
    assert request_keys.take(1)[0] == 1


def test_the_vocabulary_bounds_a_prompt() -> None:
    with pytest.raises(FieldError, match=r"^prompt_token_ids: 100 is outside of vocab_size 100$"):
        submits([1, 100, 2], vocab_size=100)
    with pytest.raises(FieldError, match=r"-1 is not a token id"):
        submits([99, -1], vocab_size=100)
    assert submits(iter([0, 99]), vocab_size=100)[0].prompt_token_ids == (0, 99)
    assert submits([], vocab_size=100)[0].prompt_token_ids == ()
    largest = (1 << 31) - 1
    assert submits([largest])[0].prompt_token_ids == (largest,)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_a_prompt_may_be_an_array(kind: Any) -> None:
    ids = submits(np.array([3, 4], kind))[0].prompt_token_ids
    assert ids == (3, 4) and {type(token) for token in ids} == {int}


@pytest.mark.case("F40")
@pytest.mark.parametrize("given", [b"abcd", bytearray(4), "abcd"])
def test_bytes_and_text_are_no_token_ids(given: Any) -> None:
    with pytest.raises(FieldError, match=rf"^prompt_token_ids: .*{type(given).__name__} was given"):
        expand(RequestKeys(1), given, SamplingParams(), None, b"")
