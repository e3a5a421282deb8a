"""Generate with OpenVINO GenAI alone, one prompt after another. Input and output are JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
import openvino as ov
import openvino_genai as genai

from examples.smollm2.weights import find_gguf

from .adapter import EXACT


def main() -> None:
    """Read `[prompts, tokens]` from stdin, and write the output ids of each prompt to stdout."""
    prompts, tokens = json.load(sys.stdin)
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    pipe = genai.ContinuousBatchingPipeline(str(find_gguf()), scheduler, "CPU", EXACT)
    outputs = []
    for which, prompt in enumerate(prompts):
        config = genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True)
        handle = pipe.add_request(which, ov.Tensor(np.array([prompt], np.int64)), config)
        ids: list[int] = []
        while pipe.has_non_finished_requests():
            pipe.step()
            while handle.can_read():
                ids += next(iter(handle.read().values())).generated_ids
        outputs.append(ids)
    json.dump(outputs, sys.stdout)


if __name__ == "__main__":
    main()
