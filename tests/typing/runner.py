"""A model for the library's runner, and who runs it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import tokenpipe as tp
from tokenpipe.worker import Executor, RankPlace, StepRows, WorkerLoop


class Logits:
    """A model that returns logits."""

    def prefill(self, rows: Sequence[tp.Row]) -> NDArray[np.float32]:
        """Run the prompts."""
        for row in rows:
            assert_type(row.prompt_token_ids, tuple[int, ...])
            assert_type(row.params, tp.SamplingParams)
            row.state = row.length
        return np.zeros((len(rows), 8), np.float32)

    def decode(
        self, rows: Sequence[tp.Row], last: Any, lengths: NDArray[np.int64] | None
    ) -> NDArray[np.float32]:
        """Run one step."""
        if lengths is not None and (lengths > 32).any():
            raise tp.RowsFailed([rows[0].handle], "out of cache")
        return np.zeros((len(rows), 8), np.float32)

    def free(self, row: tp.Row) -> None:
        """Forget a row."""


class Samples(tp.Model):
    """A model that says it is one, and samples itself."""

    def prefill(self, rows: Sequence[tp.Row]) -> tp.Sampled:
        """Run the prompts."""
        return self.decode(rows, None, None)

    def decode(self, rows: Sequence[tp.Row], last: Any, lengths: Any) -> tp.Sampled:
        """Run one step."""
        extras = {0: tp.RowExtras(reasoning_tokens=1)}
        return tp.Sampled(np.ones(len(rows), np.int32), extras=extras)

    def free(self, row: tp.Row) -> None:
        """Forget a row."""


def work(endpoint: str, platform: str) -> None:
    """Run the rank until its engine ends."""
    lane = tp.StepLane.worker(endpoint)
    with tp.Publisher(endpoint) as pub:
        tp.CPUModelRunner.select_device()
        WorkerLoop(lane, pub, tp.CPUModelRunner(Logits())).run()
        runner = tp.runner_for(platform)(Samples(), depth=1)
        assert_type(runner, tp.ModelRunner)
        assert_type(runner.step(), StepRows | None)
        executor: Executor = runner
        WorkerLoop(lane, pub, executor, lockstep=True).run()


def make(place: RankPlace) -> Executor:
    """Make what `serve --engine` runs: a runner as it is."""
    return tp.runner_for(place.topology.platform)(Logits())


class NoFree:
    """No model: it never forgets a row."""

    def prefill(self, rows: Sequence[tp.Row]) -> Any:
        """Run the prompts."""

    def decode(self, rows: Sequence[tp.Row], last: Any, lengths: Any) -> Any:
        """Run one step."""


class WrongRows(Logits):
    """No model: its prefill takes other rows."""

    def prefill(self, rows: int) -> NDArray[np.float32]:  # type: ignore[override]
        """Run the prompts."""
        return np.zeros((rows, 8), np.float32)


def wrong(pub: tp.Publisher, row: tp.Row) -> None:
    """What a checker must refuse."""
    tp.CPUModelRunner(NoFree())  # type: ignore[arg-type]
    tp.CPUModelRunner(WrongRows())  # type: ignore[arg-type]
    tp.CPUModelRunner(Logits(), depth="1")  # type: ignore[arg-type]
    tp.CPUModelRunner(Logits()).step(2)  # type: ignore[call-arg]
    tp.CPUModelRunner(Logits()).admit(row)  # type: ignore[arg-type]
    WorkerLoop(pub, pub, tp.CPUModelRunner(Logits()))  # type: ignore[arg-type]
    tp.Sampled([1], extras=[tp.RowExtras()])  # type: ignore[arg-type]
    tp.RowsFailed("all", 3)  # type: ignore[arg-type]
