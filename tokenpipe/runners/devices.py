"""The kinds of devices, and the copy of a step's results to the host.

What differs between kinds is in FACTS and nowhere else. A `HostCopy` is started, its event is
recorded behind it on the same stream, and it is read only when that event is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpipe.errors import ConfigError

Array = NDArray[Any]
_DLPACK_CPU = 1


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One kind of device. There is one `cpu`, without a number."""

    platform: str  # its name in the topology and in Paddle
    count: Callable[[Any], int]  # how many devices this Paddle finds; safe if there is none
    asynchronous: bool  # launches and copies return before they are done
    pinned: bool  # only copies to page-locked memory are asynchronous

    def name(self, index: int) -> str:
        """Return the device's name for `paddle.set_device`."""
        return f"{self.platform}:{index}" if self.asynchronous else self.platform


def _customs(platform: str) -> Callable[[Any], int]:
    def count(paddle: Any) -> int:
        if platform not in (paddle.device.get_all_custom_device_type() or ()):
            return 0
        named = paddle.device.get_available_custom_device() or ()
        return sum(name.split(":")[0] == platform for name in named)

    return count


FACTS = {
    facts.platform: facts
    for facts in (
        DeviceFacts("cpu", lambda paddle: 1, asynchronous=False, pinned=False),
        DeviceFacts(
            "gpu", lambda paddle: int(paddle.device.cuda.device_count()), True, pinned=True
        ),
        DeviceFacts(
            "xpu", lambda paddle: int(paddle.device.xpu.device_count()), True, pinned=False
        ),
        DeviceFacts("metax_gpu", _customs("metax_gpu"), True, pinned=False),
    )
}


class DeviceCalls(Protocol):
    """The calls into the framework. A test replaces them to check their order."""

    def count(self, facts: DeviceFacts) -> int: ...
    def set_device(self, name: str) -> None: ...
    def on_host(self, tensor: Any) -> bool: ...
    def to_host(self, tensor: Any, pinned: bool) -> Any: ...
    def record(self) -> Any: ...
    def wait(self, event: Any) -> None: ...
    def read(self, host: Any) -> Array: ...


class PaddleCalls:
    """The calls into PaddlePaddle."""

    def __init__(self, paddle: Any) -> None:
        self._paddle = paddle
        self._host = paddle.CPUPlace()

    def count(self, facts: DeviceFacts) -> int:
        """Return how many devices there are. This uses none of them."""
        return facts.count(self._paddle)

    def set_device(self, name: str) -> None:
        """Make a device the current one."""
        self._paddle.set_device(name)

    def on_host(self, tensor: Any) -> bool:
        """Whether a tensor's values can be read without a copy off a device."""
        return int(tensor.__dlpack_device__()[0]) == _DLPACK_CPU

    def to_host(self, tensor: Any, pinned: bool) -> Any:
        """Start a copy on the current stream. Read the result after a later event is done."""
        if pinned:
            return tensor.pin_memory(blocking=False)
        return tensor.to(self._host, blocking=False)

    def record(self) -> Any:
        """Return an event that is done after all present work of the current stream."""
        event = self._paddle.device.Event()
        event.record()
        return event

    def wait(self, event: Any) -> None:
        """Wait for an event."""
        event.synchronize()

    def read(self, host: Any) -> Array:
        """Return the values of a host tensor. For a few hundred ids, numpy() is the fastest way."""
        values: Array = host.numpy()
        return values


class HostCopy:
    """The copy of one step's results to the host."""

    def __init__(self, calls: DeviceCalls, facts: DeviceFacts, tensors: Sequence[Any]) -> None:
        """Start to copy `tensors`. Those that are on the host already are copied at once.

        So a model may fill its buffers again as soon as its next step begins.
        """
        self._calls = calls
        self._event = None
        self._hosts: list[Any] = []
        # They are kept until the event is done, so that no other tensor gets their memory.
        self._sources: list[Any] = []
        for tensor in tensors:
            if isinstance(tensor, np.ndarray):
                self._hosts.append(tensor.copy())
            elif calls.on_host(tensor):
                self._hosts.append(np.array(calls.read(tensor)))
            else:
                self._hosts.append(calls.to_host(tensor, facts.pinned))
                self._sources.append(tensor)
        if self._sources:
            self._event = calls.record()

    @property
    def was_on_host(self) -> bool:
        """Whether all tensors were on the host already."""
        return self._event is None

    def wait(self) -> list[Array]:
        """Return the values, in order. Waits until they are on the host."""
        if self._event is not None:
            self._calls.wait(self._event)
            self._sources.clear()
        return [
            host if isinstance(host, np.ndarray) else self._calls.read(host) for host in self._hosts
        ]


class Device:
    """One device of a kind. It is searched before it is used."""

    def __init__(self, facts: DeviceFacts, index: int, calls: DeviceCalls) -> None:
        """Find the device and make it the current one. ConfigError if it does not exist."""
        there = calls.count(facts)  # first: without a device, set_device may end the process
        if not 0 <= index < there:
            raise ConfigError(
                f"there is no device {facts.name(index)}: Paddle sees {there} of them"
            )
        self.facts = facts
        self.name = facts.name(index)
        self._calls = calls
        calls.set_device(self.name)

    def copy_off(self, tensors: Sequence[Any]) -> HostCopy:
        """Start to copy results to the host."""
        return HostCopy(self._calls, self.facts, tensors)
