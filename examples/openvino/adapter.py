"""Carry the tokens of OpenVINO GenAI's continuous batching through tokenpipe.

`step()` holds the GIL, in a prefill for seconds, so the engine runs in a worker process of its own:
`python -m tokenpipe serve --engine examples.openvino.adapter:OpenVINOEngine`.
The engine preempts by itself. A preempted request has steps without a token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from examples.smollm2.weights import find_gguf
from tokenpipe import RowStatus, StepBind
from tokenpipe.worker import RankPlace, StepRows

# Without this, results depend on the other requests of the batch. A server does not need it.
EXACT = {
    "KV_CACHE_PRECISION": "f32",
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


class OpenVINOEngine:
    """One rank: a ContinuousBatchingPipeline.

    Args:
        place: where in the topology this runs.
        model: an OpenVINO model directory or a GGUF file; None is SmolLM2 from its wheel.
        blocks: KV cache blocks; with few of them the engine preempts. 0 is a cache of 1 GB.
        report: a file for tests: the preemptions so far, and the requests that OpenVINO has.
    """

    def __init__(
        self,
        place: RankPlace,
        model: str | None = None,
        blocks: int = 0,
        report: str | None = None,
    ) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_seqs = place.topology.slots_per_rank
        scheduler.enable_prefix_caching = False
        if blocks:
            scheduler.num_kv_blocks = blocks
        else:
            scheduler.cache_size = 1  # GB
        path = model or str(find_gguf())
        self._pipe = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", EXACT)
        self._open: dict[int, Any] = {}  # handle to OpenVINO's handle, until the end or the free
        self._spoke: set[int] = set()
        self._report = Path(report) if report else None
        self.preempted = 0

    def admit(self, binding: StepBind) -> None:
        """Give a request to OpenVINO. A request that ran before continues after its output."""
        ids = [*binding.prompt_token_ids, *binding.output_token_ids]
        params, left = binding.params, binding.max_tokens - len(binding.output_token_ids)
        config = genai.GenerationConfig(
            max_new_tokens=left, ignore_eos=params.ignore_eos, do_sample=params.temperature > 0
        )
        if config.do_sample:
            config.temperature, config.top_p = params.temperature, params.top_p
            config.rng_seed = params.seed or 0
            if params.top_k > 0:
                config.top_k = params.top_k
        tensor = ov.Tensor(np.array([ids], np.int64))
        self._open[binding.handle] = self._pipe.add_request(binding.handle, tensor, config)

    def step(self) -> StepRows | None:
        """Run one step and return its rows; None if no request is open."""
        if not self._open:
            return None
        self._pipe.step()
        handles: list[int] = []
        tokens: list[int] = []
        counts: list[int] = []
        status: list[int] = []
        for handle, generation in list(self._open.items()):
            new: list[int] = []
            while generation.can_read():
                for part in generation.read().values():  # an ignored request has none
                    new += part.generated_ids
            state = generation.get_status()
            if state != genai.GenerationStatus.RUNNING:
                del self._open[handle]
            elif not new and handle in self._spoke:
                self.preempted += 1
            refused = state == genai.GenerationStatus.IGNORED  # no room for it in the cache
            if new or refused:
                self._spoke.add(handle)
                handles.append(handle)
                tokens += new
                counts.append(len(new))
                status.append(RowStatus.ERROR if refused else RowStatus.OK)
        if self._report is not None:
            there = self._pipe.get_metrics().requests
            self._report.write_text(json.dumps([self.preempted, there]))
        return StepRows(handles, tokens, counts, status=status)

    def free(self, handle: int) -> None:
        """Cancel a request, in whatever state it is."""
        self._spoke.discard(handle)
        generation = self._open.pop(handle, None)
        if generation is not None:
            generation.cancel()
