"""Callers: rows of one request by `async for` and by `for`, and whole frames of many."""

from collections.abc import Iterator

from typing_extensions import assert_type

import tokenpipe as tp

PARAMS = tp.SamplingParams(
    max_tokens=64,
    stop=["\n\n"],
    stop_token_ids=[2],
    logprobs=3,
    output_kind=tp.RequestOutputKind.DELTA,
)


def read(out: tp.RequestOutput) -> list[int]:
    """Read all that an output may hold."""
    assert_type(out.token_ids, list[int])
    assert_type(out.text, str)
    assert_type(out.finish_reason, tp.FinishReason | None)
    assert_type(out.stop_reason, int | str | None)
    if out.logprobs is not None:
        assert_type(out.logprobs[0].logprobs, tuple[float | None, ...])
    if out.usage is not None:
        assert_type(out.usage.completion_tokens, int)
    if out.pooled is not None:
        assert_type(float(out.pooled.sum()), float)
    return out.token_ids


async def ask(endpoint: str, prompt: list[int]) -> list[int]:
    """Return the tokens of one request."""
    async with tp.AsyncClient(endpoint, name="front") as client:
        assert_type(client, tp.AsyncClient)
        ids: list[int] = []
        async for out in client.generate(prompt, PARAMS, "r1"):
            assert_type(out, tp.RequestOutput)
            ids += read(out)
        assert_type(client.abort("r1"), int)
        assert_type(client.lost, tp.TokenpipeError | None)
        return ids


def ask_and_wait(endpoint: str) -> Iterator[int]:
    """Yield the tokens of one request."""
    with tp.Client(endpoint) as client:
        assert_type(client, tp.Client)
        for out in client.generate(range(1, 5), PARAMS, extra=b"lora-7"):
            assert_type(out, tp.RequestOutput)
            yield from read(out)


def columns(endpoint: str) -> None:
    """Read frames of all requests."""
    with tp.Client(endpoint) as client:
        keys = {client.submit([1, 2], PARAMS)}
        assert_type(keys, set[int])
        for frame in client.frames(timeout_s=1.0):
            assert_type(frame, tp.OutputFrame)
            assert_type(frame.rows, int)
            keys -= set(frame.keys.tolist())


async def wrong(front: tp.AsyncClient, client: tp.Client, out: tp.RequestOutput) -> None:
    """What a checker must refuse."""
    front.generate("a prompt")  # type: ignore[arg-type]
    front.generate([1], {"max_tokens": 3})  # type: ignore[arg-type]
    for _ in front.generate([1]):  # type: ignore[union-attr]
        pass
    async for _ in client.generate([1]):  # type: ignore[attr-defined]
        pass
    with front:  # type: ignore[attr-defined]
        pass
    client.submit([1], extra="text")  # type: ignore[arg-type]
    client.abort(7)  # type: ignore[arg-type]
    tp.SamplingParams(max_tokens="3")  # type: ignore[arg-type]
    tp.SamplingParams(stop=[3])  # type: ignore[list-item]
    tp.SamplingParams(temprature=0.5)  # type: ignore[call-arg]
    PARAMS.seed = 3  # type: ignore[misc]
    print(out.tokens)  # type: ignore[attr-defined]
