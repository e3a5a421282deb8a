"""Prove a model runner on the hardware that is there: `python -m tokenpipe.runners.selfcheck gpu`.

Runs a model whose tokens are known through the platform's runner, packs every step as a worker
does, and checks what comes out. Needs no engine and no processor. Exit status 1 if anything is
wrong, 2 if the device or the framework is not there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Any

import numpy as np

from tokenpipe.errors import ConfigError
from tokenpipe.types import SamplingParams, make_handle
from tokenpipe.wire import StepBind

from .checked_runner import SLOTS, CheckedRunner
from .devices import FACTS
from .framework import load_paddle
from .model_runner import ModelRunner
from .platforms import runner_for
from .probe import ProbeModel

GREEDY = SamplingParams(temperature=0.0, max_tokens=1 << 30)
TOKENS = 40


class Checks:
    """The checks of one device."""

    def __init__(self, kind: type[ModelRunner], device_id: int) -> None:
        self.kind = kind
        self.device_id = device_id
        self.device = kind.select_device(device_id)

    def runner(self, depth: int, model: ProbeModel | None = None) -> CheckedRunner:
        """Return a runner over a fresh model, warmed up."""
        model = model or ProbeModel(platform=self.kind.platform)
        runner = self.kind(model, device_id=self.device_id, depth=depth)
        runner.warm_up(rows=4, tokens=3)
        return CheckedRunner(runner)

    def copies(self) -> str:
        """A copy off the device is what was on it, however many are under way."""
        device = self.runner(1).runner.device
        paddle = load_paddle(self.kind.platform)
        base = paddle.arange(256, dtype="int64")
        copies = [device.copy_off([base * k, base.astype("float32") - k]) for k in range(64)]
        for k, copy in enumerate(copies):
            ids, values = copy.wait()
            require((ids == np.arange(256) * k).all(), f"copy {k} of 64 is wrong")
            require((values == np.arange(256, dtype=np.float32) - k).all(), f"copy {k} is wrong")
        return "64 copies in flight arrived whole"

    def streams(self) -> str:
        """Tokens are right at each depth, with requests that come, go and return elsewhere."""
        for depth in (0, 1, 3):
            streams = play(self.runner(depth))
            for prompt, got in streams.items():
                wanted = ProbeModel(platform=self.kind.platform).expected(prompt, len(got))
                require(got == wanted, f"depth {depth}, prompt {prompt}: {got} is not {wanted}")
        return f"{SLOTS} streams at depths 0, 1 and 3, each preempted and resumed elsewhere"

    def sampling(self) -> str:
        """A seeded request draws the same tokens alone and in company, at every depth."""
        params = SamplingParams(temperature=1.5, top_p=0.9, top_k=6, seed=7, max_tokens=TOKENS)
        seen: set[tuple[int, ...]] = set()
        for depth, company in ((0, 0), (1, 0), (1, 5), (3, 11)):
            runner = self.runner(depth)
            binds = [
                StepBind(make_handle(0, s, 1), s + 1, 0, (s + 3,), max_tokens=TOKENS, params=p)
                for s, p in enumerate([params] + [SamplingParams(max_tokens=TOKENS)] * company)
            ]
            runner.change(binds)
            runner.finish()
            seen.add(tuple(runner.pub.tokens[binds[0].handle]))
        require(
            len(seen) == 1 and len(next(iter(seen))) == TOKENS, f"{len(seen)} different streams"
        )
        return "a seeded request is the same alone, in company and at every depth"

    def logprobs(self) -> str:
        """Logprobs are those that numpy computes from the same logits."""
        runner = self.runner(1)
        handle = make_handle(0, 0, 1)
        params = SamplingParams(temperature=0.0, logprobs=3, max_tokens=8)
        runner.change([StepBind(handle, 1, 0, (5, 6), max_tokens=8, params=params)])
        runner.finish()
        model = ProbeModel(platform=self.kind.platform)
        tokens, logprobs = runner.pub.tokens[handle], runner.pub.logprobs[handle]
        for token, (width, value, first) in zip(tokens, logprobs, strict=True):
            logits = 4.0 - np.minimum(np.abs(np.arange(model.vocabulary) - token), 8.0)
            wanted = 4.0 - np.log(np.exp(logits).sum())
            require((width, first) == (4, token), "logprobs of the wrong token")
            require(abs(value - wanted) < 1e-3, f"{value} is not {wanted}")
        return "logprobs agree with numpy's within 1e-3"

    def broken(self) -> str:
        """A row without a finite logit ends by itself."""
        runner = self.runner(1, BrokenModel(platform=self.kind.platform))
        pub = runner.pub
        handles = [make_handle(0, slot, 1) for slot in range(3)]
        runner.change(
            StepBind(h, i, 0, (i + 1,), max_tokens=4, params=GREEDY) for i, h in enumerate(handles)
        )
        runner.finish()
        require(set(pub.bad) == {handles[1]}, f"bad rows of {pub.bad}")
        whole = len(pub.tokens[handles[0]]) == len(pub.tokens[handles[2]]) == 4
        require(whole, "the other rows did not go on")
        return "one row of NaN is one row's error"

    def speed(self) -> str:
        """What a step costs the forward's thread; figures, not a check."""
        runner = self.runner(1)
        handles = [make_handle(0, slot, 1) for slot in range(SLOTS)]
        runner.change(
            StepBind(h, i, 0, (i,), max_tokens=2000, params=GREEDY) for i, h in enumerate(handles)
        )
        took = []
        for _ in range(1000):
            began = time.perf_counter()
            runner.step()
            took.append(time.perf_counter() - began)
        packing = _p50(runner.pub.publish_s)
        return f"{SLOTS} rows: step {_p50(took):.0f} µs, of which packing {packing:.0f}"


class BrokenModel(ProbeModel):
    """Row 1 of every batch is NaN."""

    def prefill(self, rows: Sequence[Any]) -> Any:
        """Break row 1 of the prefill."""
        return self._broken(super().prefill(rows))

    def decode(self, rows: Sequence[Any], last: Any, lengths: Any) -> Any:
        """Break row 1 of the step."""
        return self._broken(super().decode(rows, last, lengths))

    def _broken(self, logits: Any) -> Any:
        factors = np.ones((logits.shape[0], 1), np.float32)
        factors[1:2] = np.nan
        return logits * load_paddle("cpu").to_tensor(factors)


def require(fact: object, otherwise: str) -> None:
    """Raise AssertionError if a fact does not hold, also under -O."""
    if not fact:
        raise AssertionError(otherwise)


def play(runner: CheckedRunner) -> dict[tuple[int, ...], list[int]]:
    """Run SLOTS requests in waves, each preempted once and resumed in another slot."""
    pub = runner.pub
    prompts = [(slot, slot + 1) for slot in range(SLOTS)]
    handles = [make_handle(0, slot, 1) for slot in range(SLOTS)]
    for wave in range(0, SLOTS, 8):
        runner.change(
            StepBind(h, h, 0, p, max_tokens=TOKENS, params=GREEDY)
            for h, p in zip(handles[wave : wave + 8], prompts[wave : wave + 8], strict=True)
        )
        for _ in range(3):
            runner.step()
    runner.change(frees=handles)
    runner.finish()
    streams = {prompt: pub.tokens[h] for prompt, h in zip(prompts, handles, strict=True)}
    require(sorted(pub.drained) == sorted(handles), "a freed handle was not called drained once")
    again = [make_handle(0, SLOTS - 1 - slot, 2) for slot in range(SLOTS)]
    runner.change(
        StepBind(h, h, len(streams[p]), p, tuple(streams[p]), max_tokens=TOKENS, params=GREEDY)
        for h, p in zip(again, prompts, strict=True)
    )
    runner.finish()
    whole: dict[tuple[int, ...], list[int]] = {}
    whole |= {p: streams[p] + pub.tokens[h] for p, h in zip(prompts, again, strict=True)}
    require(all(len(stream) == TOKENS for stream in whole.values()), "a stream has another length")
    return whole


def _p50(seconds: list[float]) -> float:
    return quantiles(seconds, n=2)[0] * 1e6


def main(argv: Sequence[str]) -> int:
    """Run all checks of a platform; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.runners.selfcheck")
    parser.add_argument("platform", choices=list(FACTS))
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    args = parser.parse_args(argv)
    try:
        checks = Checks(runner_for(args.platform), args.device)
    except ConfigError as error:
        print(f"not there: {error}")
        return 2
    print(f"{checks.device}, PaddlePaddle {load_paddle(args.platform).__version__}")
    wrong = 0
    order: list[Callable[[], str]] = [
        checks.copies, checks.streams, checks.sampling, checks.logprobs, checks.broken,
        checks.speed,
    ]  # fmt: skip
    for check in order:
        try:
            print(f"ok      {check.__name__}: {check()}")
        except Exception as error:
            wrong += 1
            print(f"FAILED  {check.__name__}: {type(error).__name__}: {error}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
