"""The reference engine's approach: pickled row objects with small numpy arrays.

A step is a list of objects, one for each slot, and each has its tokens in a numpy array. The
processor makes an output object with a completion and times for each row, and pickles the lists.
This code does less than the reference engine: it has no logprobs, no metrics registry, no locks.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .protocols import Bound, Columns, Delta, columns_of

LABEL = "zmq_pickle_rows"


@dataclass
class StepRow:
    """The tokens of one slot in one step."""

    batch_id: int
    tokens: NDArray[np.int32] | None = None
    logprobs: Any = None
    prompt_logprobs: Any = None
    accept_tokens: NDArray[np.int32] | None = None
    accept_num: NDArray[np.int32] | None = None
    pooler_output: NDArray[np.float32] | None = None
    sampling_mask: Any = None
    decoder_state: str = "target"


@dataclass
class CompletionOutput:
    """The tokens of one output."""

    index: int
    send_idx: int
    token_ids: list[int]
    text: str | None = None
    logprob: float | None = None
    top_logprobs: Any = None


@dataclass
class RequestMetrics:
    """The times of a request."""

    arrival_time: float
    inference_start_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None


@dataclass
class RequestOutput:
    """The output of one row, for its client."""

    request_id: int
    outputs: CompletionOutput
    metrics: RequestMetrics
    finished: bool = False
    error_code: int = 200
    error_msg: str | None = None


@dataclass
class _Task:
    key: int
    client: int
    max_tokens: int
    eos: set[int]
    arrival_time: float
    first_token_time: float | None = None
    output_token_ids: list[int] = field(default_factory=list)


class Send:
    """Build one object for each row and pickle the list."""

    def message(self, step: int, slots: NDArray[np.int64], tokens: NDArray[np.int32]) -> bytes:
        """Return the step as bytes."""
        rows = [
            StepRow(batch_id=slot, tokens=tokens[index : index + 1].copy())
            for index, slot in enumerate(slots.tolist())
        ]
        return pickle.dumps(rows, protocol=pickle.HIGHEST_PROTOCOL)


class Process:
    """Read the rows, and make one output object for each."""

    def __init__(self, requests: list[Bound]) -> None:
        now = time.time()
        self._tasks: dict[int, _Task] = {
            r.slot: _Task(r.key, r.client, r.max_tokens, {r.eos}, now) for r in requests
        }

    def messages(self, message: bytes) -> list[tuple[int, bytes]]:
        """Return each client's outputs as bytes."""
        results: dict[int, list[RequestOutput]] = {}
        now = time.time()
        for row in pickle.loads(message):
            task = self._tasks.get(row.batch_id)
            if task is None:
                continue
            token_ids = row.tokens.tolist()
            if token_ids[-1] < 0:
                continue  # markers: preempted, recovery stop, empty slot
            if task.first_token_time is None:
                task.first_token_time = now
            result = RequestOutput(
                request_id=task.key,
                outputs=CompletionOutput(
                    index=0, send_idx=len(task.output_token_ids), token_ids=[]
                ),
                metrics=RequestMetrics(
                    arrival_time=task.arrival_time,
                    first_token_time=task.first_token_time,
                    last_token_time=now,
                ),
            )
            for token_id in token_ids:
                task.output_token_ids.append(token_id)
                result.outputs.token_ids.append(token_id)
                if token_id in task.eos or len(task.output_token_ids) >= task.max_tokens:
                    result.finished = True
                    del self._tasks[row.batch_id]
                    break
            results.setdefault(task.client, []).append(result)
        return [
            (client, pickle.dumps(outputs, protocol=pickle.HIGHEST_PROTOCOL))
            for client, outputs in results.items()
        ]


class Receive:
    """Unpickle the outputs."""

    def deltas(self, message: bytes) -> list[Delta]:
        """Return one delta a row."""
        return [
            (out.request_id, out.outputs.send_idx, out.outputs.token_ids, out.finished)
            for out in pickle.loads(message)
        ]

    def columns(self, message: bytes) -> Columns:
        """Return the rows as columns."""
        return columns_of(self.deltas(message))
