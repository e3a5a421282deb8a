"""A recorded fake of the device calls, and a runner in a worker's loop without an engine.

The fake computes nothing: tensors lie on the CPU, and it plays a device whose copies arrive only
when an event behind them has been waited for. Reading one earlier is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenpipe import RowExtras
from tokenpipe.errors import LaneError, RowError
from tokenpipe.runners import Row, runner_for
from tokenpipe.runners.devices import DeviceFacts
from tokenpipe.runners.probe import ProbeModel
from tokenpipe.types import RowStatus, SamplingParams, make_handle
from tokenpipe.wire import StepBind, StepPlan
from tokenpipe.worker import WorkerLoop

GREEDY = SamplingParams(temperature=0.0, max_tokens=1 << 30)
PLATFORMS = ("cpu", "gpu", "xpu", "metax_gpu")


@dataclass
class FakeHost:
    """A buffer on the host that a copy is filling."""

    source: Any
    pinned: bool
    arrived: bool = False


@dataclass
class FakeCalls:
    """The device calls, written down in order; `fail` names one that raises from now on."""

    log: list[str] = field(default_factory=list)
    devices: int = 8
    fail: str = ""
    under_way: list[FakeHost] = field(default_factory=list)
    hosts: list[FakeHost] = field(default_factory=list)

    def _note(self, call: str) -> None:
        self.log.append(call)
        if self.fail == call:
            raise OSError(f"(External) CUDA error(719), {call} failed")

    def count(self, facts: DeviceFacts) -> int:
        self._note("count")
        return self.devices if facts.asynchronous else 1

    def set_device(self, name: str) -> None:
        self._note(f"set_device {name}")

    def on_host(self, tensor: Any) -> bool:
        return False

    def to_host(self, tensor: Any, pinned: bool) -> FakeHost:
        self._note("copy")
        host = FakeHost(tensor, pinned)
        self.under_way.append(host)
        self.hosts.append(host)
        return host

    def record(self) -> list[FakeHost]:
        self._note("record")
        behind, self.under_way = self.under_way, []
        return behind

    def wait(self, event: list[FakeHost]) -> None:
        self._note("wait")
        for host in event:
            host.arrived = True

    def read(self, host: FakeHost) -> Any:
        self._note("read")
        assert host.arrived, "a buffer was read while its copy was under way"
        return host.source.numpy()


class FakeCpu(FakeCalls):
    """The same for a device without copies."""

    def on_host(self, tensor: Any) -> bool:
        return True

    def read(self, host: Any) -> Any:
        self._note("read")
        return host.numpy()


@dataclass
class Published:
    """One publish call."""

    step: int
    rows: list[tuple[int, list[int]]]
    status: list[int] | None
    logprobs: Any
    drained: list[int]


class Pub:
    """Keeps what is published; `refuse` is raised by the next publish instead."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.steps: list[Published] = []
        self.failed: list[str] = []
        self.polls = 0
        self.refuse: LaneError | None = None

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
        extras: Mapping[int, RowExtras] | None = None,
    ) -> None:
        self.log.append(f"publish {step}")
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error
        if len(np.shape(tokens)) != 1:  # as the packer does
            raise RowError(f"tokens: shape {np.shape(tokens)}, needs one dimension, [n]")
        handles = [int(handle) for handle in handles]
        sizes = [1] * len(handles) if counts is None else [int(count) for count in counts]
        assert sum(sizes) == len(tokens) and len(sizes) == len(handles)
        split = np.split(np.asarray(tokens), np.cumsum(sizes)[:-1]) if handles else []
        rows = [(h, part.tolist()) for h, part in zip(handles, split, strict=True)]
        marks = None if status is None else [int(mark) for mark in status]
        gone = [] if drained is None else [int(handle) for handle in drained]
        self.steps.append(Published(step, rows, marks, logprobs, gone))

    def poll(self) -> None:
        self.polls += 1

    poll_within_s = 0.1

    def wait(self, timeout_s: float) -> None:
        self.log.append("wait for room")

    def fail(self, error: str | BaseException) -> None:
        self.failed.append(str(error))

    @property
    def tokens(self) -> dict[int, list[int]]:
        """Return the tokens of each handle."""
        got: defaultdict[int, list[int]] = defaultdict(list)
        for step in self.steps:
            for handle, tokens in step.rows:
                got[handle] += tokens
        return dict(got)

    @property
    def drained(self) -> list[int]:
        """Return the handles called drained, in order."""
        return [handle for step in self.steps for handle in step.drained]

    @property
    def errors(self) -> list[int]:
        """Return the handles with an error row."""
        return [
            handle
            for step in self.steps
            for (handle, _), mark in zip(step.rows, step.status or [], strict=False)
            if mark == RowStatus.ERROR
        ]


class LoggedModel(ProbeModel):
    """The probe, saying when a step is launched."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log
        self.forwards = 0

    def prefill(self, rows: Sequence[Row]) -> Any:
        self._say(rows, fresh=True)
        return super().prefill(rows)

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
        self._say(rows, fresh=False)
        return super().decode(rows, last, lengths)

    def _say(self, rows: Sequence[Row], fresh: bool) -> None:
        self.forwards += 1
        self.log.append(f"{'prefill' if fresh else 'decode'} {len(rows)}")


class Plans:
    """The step lane of a rig; a test adds the plans."""

    ended = False

    def __init__(self) -> None:
        self._plans: list[StepPlan] = []

    def add(self, binds: Iterable[StepBind], frees: Iterable[int], reset: bool) -> None:
        self._plans.append(StepPlan(0, tuple(binds), tuple(frees), reset=reset))

    def recv(self, timeout_s: float) -> list[StepPlan]:
        plans, self._plans = self._plans, []
        return plans


class Rig:
    """A runner of a platform over the fake, in a worker's loop; one log of all that happens."""

    def __init__(
        self,
        platform: str,
        model: Any,
        depth: int | None = None,
        calls: Any = None,
        pub: Any = None,
    ) -> None:
        self.calls = calls or fake_calls(platform)
        self.log: list[str] = getattr(self.calls, "log", [])
        self.model = model
        self.pub = pub or Pub(self.log)
        self.runner = runner_for(platform)(model, depth=depth, calls=self.calls)
        self.plans = Plans()
        self.loop = WorkerLoop(self.plans, self.pub, self.runner)
        self.log.clear()

    @classmethod
    def of(
        cls,
        platform: str,
        depth: int | None = None,
        make: Callable[[list[str]], Any] | None = None,
    ) -> Rig:
        """Return a rig with a model that says in the rig's log when it runs."""
        calls = fake_calls(platform)
        return cls(platform, (make or LoggedModel)(calls.log), depth, calls)

    def change(
        self, binds: Iterable[StepBind] = (), frees: Iterable[int] = (), reset: bool = False
    ) -> None:
        """Add a plan, which the next step applies."""
        self.plans.add(binds, frees, reset)

    def step(self, steps: int = 1) -> None:
        """Run turns of the loop: a step each, where there is something to run."""
        for _ in range(steps):
            self.loop.turn()

    def finish(self) -> None:
        """Step until nothing runs."""
        for _ in range(1000):
            self.loop.turn()
            if self.loop.idle:
                return
        raise AssertionError("the runner does not come to an end")


def fake_calls(platform: str) -> FakeCalls:
    return FakeCpu() if platform == "cpu" else FakeCalls()


def handle(slot: int, generation: int = 1) -> int:
    return make_handle(0, slot, generation)


def bind(
    slot: int,
    prompt: tuple[int, ...] = (),
    tokens: int = 1000,
    generation: int = 1,
    output: tuple[int, ...] = (),
    params: SamplingParams | None = None,
) -> StepBind:
    """Return a bind of a greedy request that ends after `tokens` tokens."""
    return StepBind(
        handle(slot, generation),
        slot + 1,
        len(output),
        prompt or (slot + 1,),
        output,
        tokens,
        params=params or GREEDY,
    )
