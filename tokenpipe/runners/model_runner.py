"""Run a model's steps and publish what they sampled, without holding up the next one.

Step N is published right after step N+1 has been launched, in the same thread: another thread
would wait for the GIL. Which TP rank sends is the publisher's business.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn, Protocol

from tokenpipe.errors import (
    ConfigError,
    FrameTooLarge,
    LaneError,
    LaneLost,
    RowError,
    RowsFailed,
    RunnerFailed,
    TokenpipeError,
    afresh,
)
from tokenpipe.wire import StepBind, StepPlan

from .batch import DecodeBatch, RunnerBatch
from .devices import FACTS, Device, DeviceCalls, DeviceFacts, PaddleCalls
from .framework import load_paddle
from .in_flight import InFlightStep, RankPublishes
from .model import Model, Sampled
from .step_launcher import StepLauncher
from .warm_up import warm_up

DONE = object()  # what a step that needs nothing more comes to
IDLE_WAIT_S = 0.1  # a worker with nothing to publish polls at least every 100 ms


class PlanLane(Protocol):
    """The worker's end of a StepLane."""

    @property
    def ended(self) -> bool:
        """Whether there will be no more plans."""
        ...

    def recv(self, timeout_s: float = 0.0) -> list[StepPlan]:
        """Return the plans that came; waits for the first."""


class ModelRunner:
    """What the runners of all platforms have in common; use one of them, or `runner_for`.

    Args:
        model: see `Model`. Make it after `select_device`, so that its weights lie there.
        publisher: this rank's `Publisher`.
        device_id: which of the platform's devices; the cpu has number 0 alone.
        depth: steps that stay in flight while the next is launched. None is 1 where launches are
            asynchronous and 0 (publish before the next forward) where they are not.
        calls: the calls into the framework; for tests.

    Raises `ConfigError` where Paddle or the device is not there. All methods belong to one thread.
    """

    platform: ClassVar[str]

    def __init__(
        self,
        model: Model,
        publisher: RankPublishes,
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
        self.stopped = False  # set it to end `run`
        self._pub = publisher
        self._at_once = not (self.depth or self.facts().asynchronous)
        self._batch = RunnerBatch(model.free)
        self._launcher = StepLauncher(paddle, model, self.device)
        self._launched: deque[InFlightStep] = deque()
        self._drained: list[int] = []  # handles that no step in flight has
        self._failed: RunnerFailed | None = None
        # What decodes next where that is what decoded last, by a model that samples itself, and
        # nothing else is to be done before: such a step is `_go_on`, whatever else makes it None.
        self._going: DecodeBatch | None = None

    @classmethod
    def facts(cls) -> DeviceFacts:
        """Return what is known of this kind of device."""
        return FACTS[cls.platform]

    @classmethod
    def select_device(cls, device_id: int = 0) -> str:
        """Make a device Paddle's current one and return its name; ConfigError if it is not there.

        Unlike `paddle.set_device` it looks first whether there is one, which on some builds
        without a driver is the difference between an error and the end of the process.
        """
        return Device(cls.facts(), device_id, PaddleCalls(load_paddle(cls.platform))).name

    @property
    def working(self) -> bool:
        """Whether `step` has anything to run or to publish."""
        return bool(self._launched or self._drained or self._batch.due)

    def change(self, binds: Iterable[StepBind] = (), frees: Iterable[int] = ()) -> None:
        """Take requests into slots and let others go, from the next step on.

        Each handle in `frees` is called drained with the last step that may have a row of it.
        Raises `SlotBusy` for a slot that still runs; nothing was changed then.
        """
        gone = self._batch.change(binds, frees)
        self._going = None
        (self._launched[-1].drained if self._launched else self._drained).extend(gone)

    def step(self) -> bool:
        """Launch one step of the batch, then publish the one `depth` steps before it.

        Returns False where nothing runs; then everything is published, drained handles too. What
        the lane raises (`LaneFull`, `LaneLost`) leaves the step to be published by the next call.
        Raises `RunnerFailed` once the model or the device failed; the rank was reported then.
        """
        tried = None
        if self._going is not None:
            tried = self._go_on(self._going)
            if tried is DONE:
                return True
            self._going = None
        self._publish_down_to(self.depth)
        if not self._batch.due:
            self.flush()
            return False
        if self._drained and self.depth:
            self._publish_drained()  # no step in flight to ride on: they wait for no forward
        self._launch(tried)
        self._publish_down_to(self.depth)
        if self._at_once and not self._launcher.feeds_back:
            self._going = self._batch.steady()
        return True

    def flush(self) -> None:
        """Publish all that is in flight, and handles that are to be called drained."""
        self._publish_down_to(0)
        if self._drained:
            self._publish_drained()

    def idle(self) -> None:
        """Publish what there is and poll the lane; at least every 100 ms while nothing runs."""
        self.flush()
        self._pub.poll()

    def run(self, lane: PlanLane, *, lockstep: bool = False) -> None:
        """Work on plans until the engine ends the lane or somebody sets `stopped`.

        A plan changes the batch. With `lockstep` each plan also is one step, as TP ranks whose
        rows are compared need it; otherwise steps run by themselves while there is something to
        run. Where the processor died it drops its batch and waits for the next one. Raises
        `LaneLost` where the engine died.
        """
        while not (lane.ended or self.stopped):
            working = not lockstep and self.working
            plans = lane.recv(0.0 if working else IDLE_WAIT_S)
            for plan in plans:
                if plan.reset:
                    self.forget()
                self.change(plan.binds, plan.frees)
                if lockstep:
                    self._unless_lost(self.step)
            if not lockstep and self.working:
                self._unless_lost(self.step)
            elif not plans:
                self._unless_lost(self.idle)

    def forget(self) -> None:
        """Drop the batch and all that is in flight: after `LaneLost` nobody waits for it."""
        self._going = None
        self._batch.forget()
        self._launcher.forget()
        self._launched.clear()
        self._drained.clear()

    def warm_up(self, rows: int = 1, tokens: int = 1, steps: int = 2) -> float:
        """Run a prefill and `steps` decode steps of made-up rows; returns the seconds they took.

        Nothing of it is published or numbered. Raises `TokenpipeError` where a request is bound.
        """
        if self.working or len(self._batch):
            raise TokenpipeError("warm_up: the batch must be empty")
        began = time.monotonic()
        warm_up(self._launcher, self.model, self.device, rows, tokens, steps)
        return time.monotonic() - began

    # --- launching ---

    def _launch(self, tried: Any = None) -> None:
        try:
            launched = self._launcher.launch(self.steps + 1, self._batch, tried)
        except Exception as error:
            raise self._give_up(error) from error
        self.steps += 1
        launched.drained, self._drained = self._drained, []
        self._launched.append(launched)

    def _go_on(self, decode_batch: DecodeBatch) -> Any:
        """Decode, and publish out of the model's own buffer, what most steps on a CPU are.

        The rows of the step before, one id each, nothing in flight: that needs no copy and no
        `InFlightStep`. A forward has just emptied the caches, so each bytecode and each call
        costs as much as the packing of many rows. Returns DONE, or what the decode gave or raised,
        for `_launch` to go on from.
        """
        try:
            part = self.model.decode(decode_batch.rows, None, None)
        except RowsFailed as error:
            return error
        except Exception as error:
            raise self._give_up(error) from error
        if type(part) is not Sampled:
            return part
        tokens, counts, logprobs, annexes = part
        if counts is not None or logprobs is not None or annexes:
            return part
        try:
            self._pub.publish(self.steps + 1, decode_batch.handles, tokens)
        except RowError:  # no ids [rows] on the host: the long way copies, or says what is wrong
            return part
        except LaneError as error:
            self._going = None
            self._launch(part)  # now it is copied, and kept to be published by the next call
            self._refuse(error)
        except Exception as error:
            raise self._give_up(error) from error
        self.steps += 1
        decode_batch.taken += 1
        if decode_batch.taken >= decode_batch.lasts:
            self._going = None
        return DONE

    # --- publishing ---

    def _unless_lost(self, act: Callable[[], object]) -> None:
        try:
            act()
        except LaneLost:  # the next life of the processor knows none of our handles
            self.forget()

    def _publish_down_to(self, depth: int) -> None:
        if self._failed is not None:
            raise afresh(self._failed)
        while len(self._launched) > depth:
            self._publish(self._launched[0])
            self._launched.popleft()

    def _publish(self, launched: InFlightStep) -> None:
        try:
            launched.publish(self._pub)
        except LaneError as error:
            self._refuse(error)
        except Exception as error:
            raise self._give_up(error) from error
        if not launched.counted:
            counts = launched.arrive().counted()
            for row, count in zip(launched.rows, counts.tolist(), strict=True):
                row.produced += count
            if any(row.left <= 0 for row in launched.rows):
                self._batch.leave()

    def _refuse(self, error: LaneError) -> NoReturn:
        if isinstance(error, FrameTooLarge):  # however often it is tried
            raise self._give_up(error) from error
        raise error

    def _publish_drained(self) -> None:
        self._pub.publish(self.steps + 1, [], [], drained=self._drained)
        self.steps += 1
        self._drained = []

    def _give_up(self, error: BaseException) -> RunnerFailed:
        """Report the rank; its bindings are rescheduled from what was published."""
        what = f"step {self.steps + 1} on {self.device.name}: {type(error).__name__}: {error}"
        self._failed = RunnerFailed(what)
        self._going = None
        self._launched.clear()
        self._pub.fail(what)
        return self._failed
