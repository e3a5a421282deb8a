"""Compare the engine's output with a plain loop: `python -m examples.smollm2.proof`.

In the first run the engine gets the plain ids and not its own, so each argmax can be compared by
itself. If one differs, the best two logits of the plain loop must be close, because a batch adds up
in another order than a single row. In the second run the engine uses its own ids, and the texts are
printed side by side. The cache is so small that requests are preempted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import warnings
from pathlib import Path

from tokenpipe import AsyncClient, SamplingParams

from .chat import EngineThread
from .engine import Options
from .model import SmolLM2
from .plain import Plain, generate
from .prompts import QUESTIONS
from .tokenizer import Chat
from .weights import Weights, unpack

CLOSE = 1e-3


async def ask(endpoint: str, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Submit all prompts at once and return the greedy output of each."""
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)

    async def one(client: AsyncClient, prompt: list[int]) -> list[int]:
        ids: list[int] = []
        async for output in client.generate(prompt, params):
            assert output.error is None, output.error
            assert output.offset == len(ids)
            ids += output.token_ids
        return ids

    async with AsyncClient(endpoint) as client:
        return await asyncio.gather(*(one(client, prompt) for prompt in prompts))


def serve(options: Options, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], int]:
    """Return the engine's outputs and the number of preemptions."""
    engine = EngineThread(options)
    try:
        outputs = asyncio.run(ask(engine.wait_up(), prompts, tokens))
        return outputs, engine.counts["preempted"]
    finally:
        engine.end()


def compare(prompts: list[list[int]], plain: list[Plain], got: list[list[int]]) -> int:
    """Print each argmax that differs; return how many differ although the logits are not close."""
    wrong = differ = 0
    for which, (one, ids) in enumerate(zip(plain, got, strict=True)):
        assert len(ids) == len(one.ids), f"prompt {which}: {len(ids)} tokens of {len(one.ids)}"
        for at, (token, expected) in enumerate(zip(ids, one.ids, strict=True)):
            if token != expected:
                differ += 1
                wrong += one.gaps[at] >= CLOSE
                gap = f"gap {one.gaps[at]:.2e}"
                print(f"  prompt {which}, token {at}: {token} is not {expected}, {gap}")
    total = sum(len(ids) for ids in got)
    print(f"  {differ} of {total} differ, {wrong} of them with a gap of {CLOSE} or more")
    return wrong


def main() -> int:
    """Return 1 if an argmax differs that must not differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=len(QUESTIONS))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--kv-tokens", type=int, default=320)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    chat, folder = Chat(), unpack()
    questions = QUESTIONS[: args.prompts]
    prompts = [chat.prompt([{"role": "user", "content": text}]) for text in questions]
    model = SmolLM2(Weights(folder), 1, 256)
    plain = [generate(model, prompt, args.tokens) for prompt in prompts]
    with tempfile.TemporaryDirectory() as scratch:
        known = Path(scratch) / "plain.json"
        pairs = [[prompt, one.ids] for prompt, one in zip(prompts, plain, strict=True)]
        known.write_text(json.dumps(pairs))
        options = Options(
            dp=args.dp,
            slots=args.slots,
            kv_tokens=args.kv_tokens,
            room=256,
            text=False,
            weights=folder,
        )
        forced = Options(**{**vars(options), "forced": known})
        got, preempted = serve(forced, prompts, args.tokens)
    print(f"Plain ids fed back: {len(prompts)} prompts, {preempted} preemptions")
    wrong = compare(prompts, plain, got)
    free, preempted = serve(options, prompts, args.tokens)
    print(f"Free: {preempted} preemptions")
    for question, one, ids in zip(questions, plain, free, strict=True):
        same = "the same" if ids == one.ids else "not the same"
        print(f"> {question}\n  plain     {chat.text(one.ids)!r}")
        print(f"  tokenpipe {chat.text(ids)!r} ({same})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
