"""Carry the tokens of transformers' continuous batching through tokenpipe.

transformers 5.24 sends the whole token list with each new token. Here a step is one frame. The
hooks are private methods, so the version is pinned. They are set on the batch processor before its
thread starts, and they publish in that thread.
"""

from __future__ import annotations

from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from examples.front import Front
from tokenpipe import Pipeline, Publisher, Request, RowStatus, Topology


class TransformersEngine:
    """A model of transformers behind a Pipeline.

    Args:
        model: a causal language model, on the device where it is to run.
        num_blocks: blocks of its KV cache; with few of them the engine preempts.
        page_size: tokens of a block.
        max_batch_tokens: tokens of a step. A longer prompt is prefilled in chunks. None is the
            default of transformers.
        topology: more keys of the topology.

    It serves greedy requests only: transformers samples with one configuration for all requests.
    """

    def __init__(
        self,
        model: Any,
        num_blocks: int,
        page_size: int = 16,
        max_batch_tokens: int | None = None,
        **topology: Any,
    ) -> None:
        eos = model.generation_config.eos_token_id
        eos_ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
        self._eos = [token for token in eos_ids if token >= 0]
        keys = {"vocab_size": model.config.vocab_size, "eos_token_ids": self._eos}
        self.pipe = Pipeline(Topology(**{**keys, **topology}))
        self.pub = Publisher(self.pipe.endpoint)
        self.front = Front(self.pipe, self._refuse, self._add, self._cancel)
        self.manager = model.init_continuous_batching(
            GenerationConfig(do_sample=False, eos_token_id=self._eos or -1),
            ContinuousBatchingConfig(
                num_blocks=num_blocks,
                page_size=page_size,
                max_batch_tokens=max_batch_tokens,
                use_async_batching=False,
                allow_block_sharing=False,
            ),
        )
        self.preemptions = 0
        self.steps = 0
        self._batch: list[tuple[Any, int]] = []  # (state, token) of the present step
        self.processor = self.manager.batch_processor = self.manager._create_batch_processor()
        self._hook(self.processor, "prepare_next_batch", before=self._poll)
        self._hook(self.processor, "update_batch", after=self._publish)
        self._hook(self.processor, "_handle_request_error", after=self._failed)
        self._hook(self.processor.inputs_and_outputs, "prepare_batch_update", after=self._take)
        self._hook(self.processor.scheduler, "clear_cancelled_requests", after=self._cancelled)
        self._hook(self.processor.offloading_manager, "offload_requests", before=self._count)
        self.manager.start()

    def turn(self, timeout_s: float = 0.05) -> None:
        """Serve for one turn. Call it in a loop, in the thread that made this object."""
        self.front.turn(timeout_s)
        if not self.manager.is_running():  # its thread is gone, so this thread may use the lane
            self.front.refuse_all("the engine has failed")
            self.pub.poll()

    def close(self) -> None:
        """End the generation thread, then the lane, then the pipeline."""
        self.manager.stop(block=True, hard_stop=True)
        self.pub.close()
        self.pipe.close()

    def __enter__(self) -> TransformersEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- in the thread of the engine ---

    def _refuse(self, request: Request) -> str | None:
        if not self.manager.is_running():
            return "the engine has failed"
        return "this engine is greedy" if request.params.temperature > 0 else None

    def _add(self, handle: int, request: Request) -> None:
        self.manager.add_request(
            list(request.prompt_token_ids),
            request_id=str(handle),
            max_new_tokens=request.params.max_tokens,
            eos_token_id=-1 if request.params.ignore_eos or not self._eos else self._eos,
        )

    def _cancel(self, handle: int) -> None:
        self.manager.cancel_request(str(handle))  # does nothing if it ended by itself

    # --- in the generation thread ---

    def _hook(self, owner: Any, name: str, before: Any = None, after: Any = None) -> None:
        original = getattr(owner, name)

        def hooked(*args: Any) -> Any:
            if before is not None:
                before()
            result = original(*args)
            if after is not None:
                after(result, *args)
            return result

        setattr(owner, name, hooked)

    def _poll(self) -> None:
        self.pub.poll()  # the loop runs at least every 100 ms

    def _take(self, result: Any) -> None:
        batch, tokens, _ = result
        states = [future.state for future in batch if future.has_new_token]
        self._batch = list(zip(states, tokens, strict=False))

    def _publish(self, _: None) -> None:
        batch, self._batch = self._batch, []
        ended = [int(s.request_id) for s, _ in batch if s.request_id not in self._live()]
        if batch:
            self._send([int(state.request_id) for state, _ in batch], [t for _, t in batch], ended)

    def _live(self) -> set[str]:
        scheduler = self.processor.scheduler
        return {*scheduler.active_requests, *scheduler.waiting_requests}

    def _failed(self, _: None, error: Exception, state: Any) -> None:
        handle = int(state.request_id)
        self._send([handle], [], [handle], counts=[0], status=[RowStatus.ERROR])

    def _cancelled(self, states: list[Any]) -> None:
        if states:
            self._send([], [], [int(state.request_id) for state in states])

    def _count(self) -> None:
        self.preemptions += bool(self.processor.scheduler.starved_requests)

    def _send(self, handles: list[int], tokens: list[int], drained: list[int], **rest: Any) -> None:
        self.steps += 1
        self.pub.publish(self.steps, handles, tokens, drained=drained or None, **rest)
