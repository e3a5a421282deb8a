"""A signal's handler raises inside publish(): what went out is known, and goes out once."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.worker.far import Far
from tokenpipe.errors import RowError
from tokenpipe.types import make_handle

HANDLES = np.array([make_handle(0, slot, 1) for slot in range(3)], np.int64)
STEPS = 1500


class Tick(Exception):
    """Not one that publish() documents."""


class Alarm:
    """Raises Tick once, some time after `within` is called, unless `off` comes before."""

    def __init__(self) -> None:
        self.on = False
        self.before = signal.signal(signal.SIGALRM, self.ring)

    def ring(self, *_: object) -> None:
        if self.on:
            self.on = False
            raise Tick

    def within(self, seconds: float) -> None:
        self.on = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def off(self) -> None:
        self.on = False
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    one = Alarm()
    yield one
    one.off()
    signal.signal(signal.SIGALRM, one.before)


@pytest.fixture
def far(runtime_dir: Path) -> Iterator[Far]:
    one = Far(runtime_dir)
    yield one
    one.close()


@pytest.mark.parametrize("way", ["plain", "counts", "logprobs"])
def test_no_token_is_lost_or_doubled(far: Far, alarm: Alarm, way: str) -> None:
    chance = random.Random(way)
    out = behind = 0  # interrupted before and behind the sending
    with far.publisher() as pub:
        for step in range(1, STEPS + 1):
            tokens = np.arange(3) + 3 * step
            logprobs = (tokens[:, None], np.zeros((3, 1), np.float32), np.ones(3, np.int32))
            while pub.last_step != step:
                try:
                    if out + behind < STEPS // 2:
                        alarm.within(chance.uniform(1e-6, 6e-5))
                    if way == "counts":  # packed, then sent in one call
                        pub.publish(step, HANDLES, tokens, [1, 1, 1])
                    else:
                        pub.publish(
                            step, HANDLES, tokens, logprobs=logprobs if way == "logprobs" else None
                        )
                    alarm.off()
                    assert pub.last_step == step
                except Tick:
                    if pub.last_step == step:
                        behind += 1
                        with pytest.raises(RowError, match=f"step {step}, which was taken"):
                            pub.publish(step, HANDLES, tokens)
                    else:
                        out += 1
                        assert pub.last_step == (step - 1 or None)
            if step % 16 == 0:
                far.turn()
        far.until(lambda: not pub.unacknowledged, pub.poll)
        assert far.beside(pub.close) == 0
    steps = far.steps()
    assert [one.step for one in steps] == list(range(1, STEPS + 1))
    for n, one in enumerate(steps):
        assert one.tokens.tolist() == [3 * one.step, 3 * one.step + 1, 3 * one.step + 2]
        assert one.positions.tolist() == [n] * 3
    assert out + behind > 0
