"""A large step is cut into parts that have all of it, in order."""

from __future__ import annotations

import numpy as np
import pytest

from tokenpipe.extras import RowExtras
from tokenpipe.types import RowStatus
from tokenpipe.worker.step_parts import HEAD_BYTES, StepParts

NONE = (None, None, None, None)


@pytest.mark.case("F07")
def test_extras_of_tokens_go_with_their_tokens() -> None:
    n = 1000
    extras = RowExtras(
        sampling_masks=[np.array([i], np.int32) for i in range(n)],
        draft_token_ids=list(range(n)),
        draft_logprobs=(np.zeros((n, 1), np.int32), np.zeros((n, 1), np.float32), np.ones(n, int)),
        reasoning_tokens=5,
    )
    cut = StepParts([9], list(range(n)), [n], None, None, NONE, {0: extras})
    parts = list(cut.cut(4096))
    assert len(parts) > 5
    assert np.concatenate([part[1] for part in parts]).tolist() == list(range(n))
    assert all(len(part[10]) + 4 * len(part[1]) <= 4096 - HEAD_BYTES for part in parts)
    assert sum(len(part[10]) for part in parts) > n * (4 + 4 + 4 + 12)


@pytest.mark.case("F07")
def test_a_row_that_ends_keeps_its_status_at_its_end() -> None:
    status = [RowStatus.OK, RowStatus.DRAINED]
    cut = StepParts([1, 2], list(range(3000)), [1000, 2000], status, [1], NONE, None)
    parts = list(cut.cut(4096))
    rows = [row for p in parts for row in zip(p[0].tolist(), p[2].tolist(), p[3], strict=True)]
    assert [handle for handle, _, _ in rows] == sorted(handle for handle, _, _ in rows)
    assert sum(count for _, count, _ in rows) == 3000
    assert [s for _, _, s in rows] == [RowStatus.OK] * (len(rows) - 1) + [RowStatus.DRAINED]
    assert [p[4].tolist() if p[4] is not None else [] for p in parts][-1] == [1]


@pytest.mark.case("F07")
def test_a_drained_row_that_fits_no_frame_is_an_error_and_drained() -> None:
    extras = {0: RowExtras(custom=bytes(5000))}
    cut = StepParts([1], [7], None, [RowStatus.DRAINED], None, NONE, extras)
    (part,) = cut.cut(4096)
    assert part[0].tolist() == [1, 1] and part[2].tolist() == [0, 0]
    assert part[3].tolist() == [RowStatus.ERROR, RowStatus.DRAINED]


@pytest.mark.case("F07")
def test_very_many_drained_handles_go_in_several() -> None:
    parts = list(StepParts([], [], None, None, list(range(1, 501)), NONE, None).cut(4096))
    assert len(parts) > 5
    assert [h for part in parts for h in part[4].tolist()] == list(range(1, 501))
