"""Which devices there are, as each kind of Paddle says it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tokenpipe.runners.devices import FACTS, Device, HostCopy, PaddleCalls
from tokenpipe.topology import Topology


def paddle_with(gpus: int = 0, xpus: int = 0, customs: dict[str, int] | None = None) -> Any:
    """Return what the checks ask of the module paddle."""
    named = [f"{kind}:{i}" for kind, n in (customs or {}).items() for i in range(n)]
    return SimpleNamespace(
        device=SimpleNamespace(
            cuda=SimpleNamespace(device_count=lambda: gpus),
            xpu=SimpleNamespace(device_count=lambda: xpus),
            get_all_custom_device_type=lambda: list(customs) if customs else None,
            get_available_custom_device=lambda: named or None,
        )
    )


def test_each_platform_of_the_topology_has_its_facts() -> None:
    platforms = Topology.model_fields["platform"].annotation
    assert set(FACTS) == set(platforms.__args__)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("platform", "paddle", "count"),
    [
        ("cpu", paddle_with(), 1),
        ("gpu", paddle_with(gpus=4), 4),
        ("gpu", paddle_with(xpus=4), 0),
        ("xpu", paddle_with(xpus=2), 2),
        ("metax_gpu", paddle_with(customs={"metax_gpu": 3}), 3),
        ("metax_gpu", paddle_with(customs={"npu": 3}), 0),
        ("metax_gpu", paddle_with(gpus=1), 0),
    ],
)
def test_devices_are_counted_without_touching_one(platform: str, paddle: Any, count: int) -> None:
    assert FACTS[platform].count(paddle) == count


def test_names() -> None:
    named = [FACTS[p].name(i) for p, i in (("cpu", 0), ("gpu", 1), ("xpu", 2), ("metax_gpu", 3))]
    assert named == ["cpu", "gpu:1", "xpu:2", "metax_gpu:3"]


def test_real_copies_on_the_cpu(paddle: Any) -> None:
    calls = PaddleCalls(paddle)
    device = Device(FACTS["cpu"], 0, calls)
    ids = paddle.arange(5)
    own = np.arange(3)
    copy = device.copy_off([ids, own, paddle.to_tensor([1.5])])
    ids += 100
    own += 100  # after the step: what was sampled stays what it was
    first, second, third = copy.wait()
    assert first.tolist() == [0, 1, 2, 3, 4]
    assert second.tolist() == [0, 1, 2] and third.tolist() == [1.5]


def test_real_tensor_calls_for_a_device_with_copies(paddle: Any) -> None:
    facts = FACTS["xpu"]
    calls = PaddleCalls(paddle)

    class Recorded(PaddleCalls):
        def on_host(self, tensor: Any) -> bool:
            return False

        def record(self) -> Any:  # a CPU build has no events
            return "event"

        def wait(self, event: Any) -> None:
            assert event == "event"

    assert calls.on_host(paddle.ones([1]))
    copy = HostCopy(Recorded(paddle), facts, [paddle.arange(4)])
    assert copy.wait()[0].tolist() == [0, 1, 2, 3]
