"""Prove a model runner on the hardware that is there: `python -m tokenpipe.runners.selfcheck gpu`.

Runs a model whose tokens are known through the platform's runner, packs every step as a worker
does, and checks what comes out. Needs no engine and no processor. Exit status 1 if anything is
wrong, 2 if the device or the framework is not there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Any

import numpy as np

from tokenpipe._core import StepPacker
from tokenpipe.errors import ConfigError
from tokenpipe.types import RowStatus, SamplingParams, make_handle
from tokenpipe.wire import StepBind, StepFrame
from tokenpipe.worker import annex_columns, as_array, logprob_columns

from .devices import FACTS
from .framework import load_paddle
from .model_runner import ModelRunner
from .platforms import runner_for
from .probe import ProbeModel

GREEDY = SamplingParams(temperature=0.0, max_tokens=1 << 30)
ROWS = 32
TOKENS = 40


class Packed:
    """Takes steps as a Publisher does, packs them, and keeps what the frames say."""

    def __init__(self) -> None:
        self.packer = StepPacker(0, 0, ROWS, 1 << 30)
        self.tokens: defaultdict[int, list[int]] = defaultdict(list)
        self.logprobs: defaultdict[int, list[tuple[int, float, int]]] = defaultdict(list)
        self.bad: list[int] = []
        self.drained: list[int] = []
        self.failure = ""
        self.publish_s: list[float] = []

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        annexes: Any = None,
    ) -> None:
        """Pack a step and read it again."""
        began = time.perf_counter()
        extras_len, packed = annex_columns(annexes or {}, len(handles), counts)
        raw = self.packer.pack(
            1, 2, 3, step, step, 0,
            as_array(handles, np.int64), as_array(tokens, np.int32), counts, status,
            None if drained is None else as_array(drained, np.int64),
            *logprob_columns(logprobs, len(handles)),
            extras_len=extras_len, extras=packed,
        )  # fmt: skip
        self.packer.commit()
        self.publish_s.append(time.perf_counter() - began)
        frame = StepFrame.unpack(raw)
        token, lp = 0, 0
        for row, handle in enumerate(frame.handles.tolist()):
            count = int(frame.counts[row])
            self.tokens[handle] += frame.tokens[token : token + count].tolist()
            token += count
            if frame.status[row] == RowStatus.DRAINED:
                self.drained.append(handle)
            elif frame.status[row] != RowStatus.OK:
                self.bad.append(handle)
            if frame.lp_k[row] >= 0:
                width = int(frame.lp_k[row]) + 1
                value = float(frame.lp_values[lp])
                self.logprobs[handle].append((width, value, int(frame.lp_ids[lp])))
                lp += width * count

    def poll(self) -> None:
        """Nothing waits here."""

    def fail(self, error: str | BaseException) -> None:
        """Keep why the rank failed."""
        self.failure = str(error)


class Checks:
    """The checks of one device."""

    def __init__(self, kind: type[ModelRunner], device_id: int) -> None:
        self.kind = kind
        self.device_id = device_id
        self.device = kind.select_device(device_id)

    def runner(self, depth: int, model: ProbeModel | None = None) -> tuple[ModelRunner, Packed]:
        """Return a runner over a fresh model, warmed up, and where its steps go."""
        pub = Packed()
        model = model or ProbeModel(platform=self.kind.platform)
        runner = self.kind(model, pub, device_id=self.device_id, depth=depth)
        runner.warm_up(rows=4, tokens=3)
        return runner, pub

    def copies(self) -> str:
        """A copy off the device is what was on it, however many are under way."""
        runner, _ = self.runner(1)
        paddle = load_paddle(self.kind.platform)
        base = paddle.arange(256, dtype="int64")
        copies = [runner.device.copy_off([base * k, base.astype("float32") - k]) for k in range(64)]
        for k, copy in enumerate(copies):
            ids, values = copy.wait()
            require((ids == np.arange(256) * k).all(), f"copy {k} of 64 is wrong")
            require((values == np.arange(256, dtype=np.float32) - k).all(), f"copy {k} is wrong")
        return "64 copies in flight arrived whole"

    def streams(self) -> str:
        """Tokens are right at each depth, with requests that come, go and return elsewhere."""
        for depth in (0, 1, 3):
            streams = play(*self.runner(depth))
            for prompt, got in streams.items():
                wanted = ProbeModel(platform=self.kind.platform).expected(prompt, len(got))
                require(got == wanted, f"depth {depth}, prompt {prompt}: {got} is not {wanted}")
        return f"{ROWS} streams at depths 0, 1 and 3, each preempted and resumed elsewhere"

    def sampling(self) -> str:
        """A seeded request draws the same tokens alone and in company, at every depth."""
        params = SamplingParams(temperature=1.5, top_p=0.9, top_k=6, seed=7, max_tokens=TOKENS)
        seen: set[tuple[int, ...]] = set()
        for depth, company in ((0, 0), (1, 0), (1, 5), (3, 11)):
            runner, pub = self.runner(depth)
            binds = [
                StepBind(make_handle(0, s, 1), s + 1, 0, (s + 3,), max_tokens=TOKENS, params=p)
                for s, p in enumerate([params] + [SamplingParams(max_tokens=TOKENS)] * company)
            ]
            runner.change(binds)
            while runner.step():
                pass
            seen.add(tuple(pub.tokens[binds[0].handle]))
        require(
            len(seen) == 1 and len(next(iter(seen))) == TOKENS, f"{len(seen)} different streams"
        )
        return "a seeded request is the same alone, in company and at every depth"

    def logprobs(self) -> str:
        """Logprobs are those that numpy computes from the same logits."""
        runner, pub = self.runner(1)
        handle = make_handle(0, 0, 1)
        params = SamplingParams(temperature=0.0, logprobs=3, max_tokens=8)
        runner.change([StepBind(handle, 1, 0, (5, 6), max_tokens=8, params=params)])
        while runner.step():
            pass
        model = ProbeModel(platform=self.kind.platform)
        for token, (width, value, first) in zip(
            pub.tokens[handle], pub.logprobs[handle], strict=True
        ):
            logits = 4.0 - np.minimum(np.abs(np.arange(model.vocabulary) - token), 8.0)
            wanted = 4.0 - np.log(np.exp(logits).sum())
            require((width, first) == (4, token), "logprobs of the wrong token")
            require(abs(value - wanted) < 1e-3, f"{value} is not {wanted}")
        return "logprobs agree with numpy's within 1e-3"

    def broken(self) -> str:
        """A row without a finite logit ends by itself."""
        runner, pub = self.runner(1, BrokenModel(platform=self.kind.platform))
        handles = [make_handle(0, slot, 1) for slot in range(3)]
        runner.change(
            [
                StepBind(h, i, 0, (i + 1,), max_tokens=4, params=GREEDY)
                for i, h in enumerate(handles)
            ]
        )
        while runner.step():
            pass
        require(set(pub.bad) == {handles[1]}, f"bad rows of {pub.bad}")
        whole = len(pub.tokens[handles[0]]) == len(pub.tokens[handles[2]]) == 4
        require(whole, "the other rows did not go on")
        return "one row of NaN is one row's error"

    def speed(self) -> str:
        """What a step costs the forward's thread; figures, not a check."""
        runner, pub = self.runner(1)
        handles = [make_handle(0, slot, 1) for slot in range(ROWS)]
        runner.change(
            [StepBind(h, i, 0, (i,), max_tokens=2000, params=GREEDY) for i, h in enumerate(handles)]
        )
        took = []
        for _ in range(1000):
            began = time.perf_counter()
            runner.step()
            took.append(time.perf_counter() - began)
        return f"{ROWS} rows: step {_p50(took):.0f} µs, of which packing {_p50(pub.publish_s):.0f}"


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
    """Raise AssertionError where a fact does not hold, also under -O."""
    if not fact:
        raise AssertionError(otherwise)


def play(runner: ModelRunner, pub: Packed) -> dict[tuple[int, ...], list[int]]:
    """Run ROWS requests in waves, each preempted once and resumed in another slot."""
    prompts = [(slot, slot + 1) for slot in range(ROWS)]
    handles = [make_handle(0, slot, 1) for slot in range(ROWS)]
    for wave in range(0, ROWS, 8):
        runner.change(
            StepBind(h, h, 0, p, max_tokens=TOKENS, params=GREEDY)
            for h, p in zip(handles[wave : wave + 8], prompts[wave : wave + 8], strict=True)
        )
        for _ in range(3):
            runner.step()
    runner.change(frees=handles)
    runner.step()
    streams = {prompt: pub.tokens[h] for prompt, h in zip(prompts, handles, strict=True)}
    require(sorted(pub.drained) == sorted(handles), "a freed handle was not called drained once")
    again = [make_handle(0, ROWS - 1 - slot, 2) for slot in range(ROWS)]
    runner.change(
        StepBind(h, h, len(streams[p]), p, tuple(streams[p]), max_tokens=TOKENS, params=GREEDY)
        for h, p in zip(again, prompts, strict=True)
    )
    while runner.step():
        pass
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
