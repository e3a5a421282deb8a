"""Tensors of another framework come in by DLPack: here those of a CPU torch, where it is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runners.rig import LoggedModel, Rig, bind, handle
from tests.worker.far import Far
from tokenpipe.runners import Row, Sampled
from tokenpipe.runners.devices import PaddleCalls

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.usefixtures("paddle")


class TorchModel(LoggedModel):
    """The probe's logits as torch tensors."""

    def prefill(self, rows: Sequence[Row]) -> Any:
        return torch.from_numpy(super().prefill(rows).numpy())

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
        return torch.from_numpy(super().decode(rows, last, lengths).numpy())


@pytest.mark.parametrize("depth", [0, 1])
def test_logits_of_torch(paddle: Any, depth: int) -> None:
    model = TorchModel([])
    rig = Rig("cpu", model, depth, PaddleCalls(paddle))
    rig.change([bind(s, tokens=9) for s in range(3)])
    rig.finish()
    assert rig.pub.tokens == {handle(s): model.expected((s + 1,), 9) for s in range(3)}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_tokens_of_torch(paddle: Any, dtype: str) -> None:
    class Own(TorchModel):
        def prefill(self, rows: Sequence[Row]) -> Any:
            tokens = np.array([[row.slot, row.slot + 1] for row in rows], dtype)
            return Sampled(torch.from_numpy(tokens), torch.tensor([2] * len(rows)))

        def free(self, row: Row) -> None: ...

    rig = Rig("cpu", Own([]), calls=PaddleCalls(paddle))
    rig.change([bind(s, tokens=2) for s in range(3)])
    rig.step()
    assert rig.pub.tokens == {handle(s): [s, s + 1] for s in range(3)}


def test_its_ids_are_read_where_they_lie(paddle: Any, runtime_dir: Path) -> None:
    class Own(TorchModel):
        def prefill(self, rows: Sequence[Row]) -> Any:
            return Sampled(torch.tensor([row.slot for row in rows]))

        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
            self.forwards += 1
            made = torch.arange(len(rows) * 2, dtype=(torch.int32, torch.int64)[self.forwards % 2])
            return Sampled(made[::2] if self.forwards > 4 else made[: len(rows)])

        def free(self, row: Row) -> None: ...

    far = Far(runtime_dir)
    with far.publisher() as pub:
        rig = Rig("cpu", Own([]), calls=PaddleCalls(paddle), pub=pub)
        rig.change([bind(slot) for slot in range(3)])
        rig.step(7)
        far.until(lambda: not pub.unacknowledged, pub.poll)
        assert far.beside(pub.close) == 0
    got = [step.tokens.tolist() for step in far.steps()]
    assert got == [[0, 1, 2]] * 5 + [[0, 2, 4]] * 2
    far.close()
