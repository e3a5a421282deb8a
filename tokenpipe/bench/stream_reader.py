"""Give each request an async consumer, as an API server does, and check each output."""

from __future__ import annotations

import asyncio
import time

from tokenpipe.client import AsyncClient, AsyncStream
from tokenpipe.types import RequestOutput, TokenLogprobs

from .client_results import ClientResults, PlannedRequest
from .column_reader import PROMPT_TOKENS


class StreamReader:
    """Give each request a task, which submits it on time and reads its stream.

    Where no stream brings an output for `patience_s`, the reader stops. The report then has fewer
    ends than requests.
    """

    def __init__(
        self, client: AsyncClient, results: ClientResults, patience_s: float = 60.0
    ) -> None:
        self._client = client
        self._results = results
        self._patience_s = patience_s
        self._live = 0
        self._heard = 0.0

    async def run(self) -> None:
        """Submit and read until all requests have ended."""
        begin = time.monotonic()
        pending = {
            asyncio.create_task(self._request(request, begin, index))
            for index, request in enumerate(self._results.requests)
        }
        while pending:
            done, pending = await asyncio.wait(pending, timeout=1.0)
            for task in done:
                task.result()
            if self._live and time.monotonic() - self._heard > self._patience_s:
                for task in pending:
                    task.cancel()
                await asyncio.wait(pending)
                return

    async def _request(self, request: PlannedRequest, begin: float, index: int) -> None:
        results = self._results
        delay_s = begin + request.at_s - time.monotonic()
        if delay_s > 0:
            await asyncio.sleep(delay_s)  # the request arrives at its planned time
        self._live += 1
        self._heard = time.monotonic()
        params = results.params(request)
        stream = self._client.generate([0] * PROMPT_TOKENS, params, request_id=str(index))
        assert isinstance(stream, AsyncStream)  # as one sample has
        outputs: list[RequestOutput] = []
        reason = await self._read(stream, request, index, outputs)
        self._live -= 1
        cpu = time.thread_time()
        check_outputs(results, stream.key, outputs)
        received = outputs[-1].offset + len(outputs[-1].token_ids) if outputs else 0
        error = outputs[-1].error if outputs else None
        code = outputs[-1].error_code if outputs else None
        results.ended(stream.key, reason, received, request.output_tokens, error, code)
        results.verify_s += time.thread_time() - cpu

    async def _read(
        self,
        stream: AsyncStream,
        request: PlannedRequest,
        index: int,
        outputs: list[RequestOutput],
    ) -> str:
        """Read a stream into `outputs`; return why it ended, "closed" if this task closed it."""
        results = self._results
        received, to_cancel = 0, request.cancel_at >= 0
        while True:
            if to_cancel and received >= request.cancel_at:
                to_cancel = False
                results.cancelled += 1
                # Half of the consumers close the stream, half ask for an abort and read its end.
                if index % 2:
                    await stream.aclose()
                    return "closed"
                self._client.abort(str(index))
            output = await anext(stream)
            outputs.append(output)
            results.token_counter.add(len(output.token_ids))
            received = output.offset + len(output.token_ids)
            results.item_tokens[len(output.token_ids)] += 1
            self._heard = time.monotonic()
            results.received(self._heard)
            if output.finish_reason is not None:
                return str(output.finish_reason)


def check_outputs(results: ClientResults, key: int, outputs: list[RequestOutput]) -> None:
    """Check all outputs of one request.

    Outputs that follow one another are checked as one, because the checker works on columns.
    """
    results.checker.add(key)
    at = 0
    token_ids: list[int] = []
    scores: list[TokenLogprobs] = []
    for output in outputs:
        if output.offset != at + len(token_ids):
            results.checker.stream(key, at, token_ids)
            results.checker.stream_scores(token_ids, scores or None)
            at, token_ids, scores = output.offset, [], []
        token_ids += output.token_ids
        scores += output.logprobs or []
    results.checker.stream(key, at, token_ids)
    results.checker.stream_scores(token_ids, scores or None)
    if results.text is not None:
        every = [token for output in outputs for token in output.token_ids]
        results.text.stream(key, every, "".join(output.text for output in outputs))
