"""Run a model on PaddlePaddle: an executor that launches a step ahead.

It launches each step before it returns the rows of the previous step.

With depth 1, the rows of step N are returned right after step N+1 was launched. One thread does
both, because another thread would wait for the GIL.
"""

from __future__ import annotations

import time
from collections import deque
from typing import ClassVar

from tokenpipe.errors import ConfigError, RowsFailed, RunnerFailed, TokenpipeError, afresh
from tokenpipe.wire import StepBind
from tokenpipe.worker import StepRows

from .batch import DecodeBatch, RunnerBatch
from .devices import FACTS, Device, DeviceCalls, DeviceFacts, PaddleCalls
from .framework import load_paddle
from .in_flight import InFlightStep
from .model import Model, Sampled
from .step_launcher import StepLauncher
from .warm_up import warm_up


class ModelRunner:
    """The common code of all runners. Use the runner of a platform, or `runner_for`.

    A runner is an `Executor`: a `WorkerLoop` runs it, and so does `serve --engine`.

    Args:
        model: see `Model`. Make it after `select_device`, so that its weights are on the device.
        device_id: number of the device. The cpu has only number 0.
        depth: how many steps stay in flight while the next one is launched. The default
            (None) means 1 if launches are asynchronous, otherwise 0. With 0, a step's rows are
            returned before the next forward pass.
        calls: the calls into the framework, for tests.

    Raises `ConfigError` if Paddle or the device does not exist. Call all methods in one thread.
    """

    platform: ClassVar[str]

    def __init__(
        self,
        model: Model,
        *,
        device_id: int = 0,
        depth: int | None = None,
        calls: DeviceCalls | None = None,
    ) -> None:
        if depth is not None and depth < 0:
            raise ConfigError(f"depth must be at least 0, not {depth}")
        paddle = load_paddle(self.platform)
        self.device = Device(self.facts(), device_id, calls or PaddleCalls(paddle))
        self.depth = int(self.facts().asynchronous) if depth is None else depth
        self.model = model
        self.steps = 0  # the number of the newest step
        self.request_fields: tuple[str, ...] = tuple(getattr(model, "request_fields", ()))
        self.max_model_len: int | None = getattr(model, "max_model_len", None)
        self._at_once = not (self.depth or self.facts().asynchronous)
        self._batch = RunnerBatch(model.free)
        self._launcher = StepLauncher(paddle, model, self.device)
        self._launched: deque[InFlightStep] = deque()
        self._failed: RunnerFailed | None = None
        # The batch that decodes next, if the model samples itself and the rows are those of the
        # step before. Any change sets it to None.
        self._steady: DecodeBatch | None = None
        self._steady_rows = StepRows((), ())

    @classmethod
    def facts(cls) -> DeviceFacts:
        """Return the facts of this kind of device."""
        return FACTS[cls.platform]

    @classmethod
    def select_device(cls, device_id: int = 0) -> str:
        """Make a device Paddle's current one, and return its name. ConfigError if there is none.

        This first counts the devices. On some builds without a driver, `paddle.set_device` alone
        would end the process.
        """
        return Device(cls.facts(), device_id, PaddleCalls(load_paddle(cls.platform))).name

    def admit(self, binding: StepBind) -> None:
        """Run a request in its slot, from the next step on.

        Raises `SlotBusy` if the slot still has another request. A subclass may extend this, to
        refuse a request with `RequestRefused`.
        """
        self._steady = None
        self._batch.admit(binding)

    def free(self, handle: int) -> bool:
        """Forget a request. Returns True if a step in flight may have a row of it.

        The newest of these steps then names the handle as drained, so the drained row does not wait
        for another forward pass.
        """
        self._steady = None
        self._batch.free(handle)
        if self._launched:
            self._launched[-1].drained.append(handle)
        return bool(self._launched)

    def step(self) -> StepRows | None:
        """Launch a step, and return the rows of the step that was launched `depth` steps before.

        Returns None if nothing runs and no step is in flight. Raises `RunnerFailed` after the model
        or the device failed.
        """
        # Most steps on a CPU: the rows are those of the step before, the model returns one token
        # for each in its own buffer, and nothing is in flight. So no copy and no `InFlightStep` is
        # needed. Behind a forward pass the caches are cold: a bytecode or a call here takes as long
        # as the packing of many rows.
        batch = self._steady
        if batch is None:
            return self._step(None)
        try:
            part = self.model.decode(batch.rows, None, None)
        except RowsFailed as error:
            part = error
        except Exception as error:
            raise self._give_up(error) from error
        if type(part) is Sampled:
            tokens, counts, logprobs, extras = part
            if counts is None and logprobs is None and not extras:
                rows = self._steady_rows
                rows.tokens = tokens
                self.steps += 1
                batch.taken += 1
                if batch.taken >= batch.lasts:
                    self._steady = None
                return rows
        self._steady = None
        return self._step(part)

    def warm_up(self, rows: int = 1, tokens: int = 1, steps: int = 2) -> float:
        """Run a prefill and `steps` decode steps of made-up rows. Returns the seconds they took.

        Their tokens are thrown away. Raises `TokenpipeError` if a request is bound.
        """
        if self._launched or len(self._batch):
            raise TokenpipeError("warm_up: the batch must be empty")
        began = time.monotonic()
        warm_up(self._launcher, self.model, self.device, rows, tokens, steps)
        return time.monotonic() - began

    def _step(self, tried: object) -> StepRows | None:
        """Run a step that is not steady.

        `tried` is the result, or the RowsFailed, of a decode that `step` has already called.
        """
        if self._failed is not None:
            raise afresh(self._failed)
        launched = self._batch.due
        if launched:
            self._launch(tried)
        if not self._launched:
            return None
        if launched and len(self._launched) <= self.depth:
            return StepRows((), ())
        return self._arrived(self._launched.popleft())

    def _launch(self, tried: object) -> None:
        try:
            step = self._launcher.launch(self._batch, tried)
        except Exception as error:
            raise self._give_up(error) from error
        self.steps += 1
        self._launched.append(step)
        if self._at_once and step.in_place and not self._launcher.feeds_back:
            self._steady = self._batch.steady()
            if self._steady is not None:
                self._steady_rows = StepRows(self._steady.handles, (), plain=True)

    def _arrived(self, step: InFlightStep) -> StepRows:
        try:
            rows = step.arrive()
        except Exception as error:
            raise self._give_up(error) from error
        if not step.counted and step.credit(rows.counts):
            self._batch.look()
        return rows

    def _give_up(self, error: BaseException) -> RunnerFailed:
        what = f"step {self.steps + 1} on {self.device.name}: {type(error).__name__}: {error}"
        self._failed = RunnerFailed(what)
        self._steady = None
        self._launched.clear()
        return self._failed
