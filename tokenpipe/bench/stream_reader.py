"""Give every request an async consumer of its own, as an API server would, and check each delta."""

from __future__ import annotations

import asyncio
import time

from tokenpipe.client import AsyncClient, AsyncStream
from tokenpipe.types import RequestOutput, TokenLogprobs

from .client_results import ClientResults, PlannedRequest
from .column_reader import PROMPT_TOKENS


class StreamReader:
    """Give every request a task of its own, started on time.

    Where no request that runs says anything for `patience_s` they are not waited for: the report
    then has fewer ends than requests.
    """

    def __init__(self, client: AsyncClient, me: ClientResults, patience_s: float = 60.0) -> None:
        self._client = client
        self._me = me
        self._patience_s = patience_s
        self._live = 0
        self._heard = 0.0

    async def run(self) -> None:
        """Do all of the work."""
        begin = time.monotonic()
        pending = {
            asyncio.create_task(self._request(work, begin, index))
            for index, work in enumerate(self._me.work)
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

    async def _request(self, work: PlannedRequest, begin: float, index: int) -> None:
        me = self._me
        delay_s = begin + work.at_s - time.monotonic()
        if delay_s > 0:
            await asyncio.sleep(delay_s)  # a request is due at its time of arrival
        self._live += 1
        self._heard = time.monotonic()
        name = f"{index}"
        stream = self._client.generate([0] * PROMPT_TOKENS, me.params(work), request_id=name)
        assert isinstance(stream, AsyncStream)  # one sample
        kept: list[RequestOutput] = []
        received, leaving, reason = 0, work.cancel_at >= 0, ""
        while not reason:
            if leaving and received >= work.cancel_at:
                leaving = False
                me.cancelled += 1
                if index % 2:  # both ways: to walk away, and to ask for the end and wait for it
                    await stream.aclose()
                    reason = "left"
                    break
                self._client.abort(name)
            out = await anext(stream)
            kept.append(out)
            me.tally.add(len(out.token_ids))
            received = out.offset + len(out.token_ids)
            me.item_tokens[len(out.token_ids)] += 1
            me.last = self._heard = time.monotonic()
            me.first = me.first or me.last
            if out.finish_reason is not None:
                reason = str(out.finish_reason)
        self._live -= 1
        cpu = time.thread_time()
        check(me, stream.key, kept)
        error = kept[-1].error if kept else None
        me.ended(stream.key, reason, received, work.output_tokens, error)
        me.verify_s += time.thread_time() - cpu


def check(me: ClientResults, key: int, outputs: list[RequestOutput]) -> None:
    """Check the deltas of one request, which ends with them.

    Deltas that follow one another are checked as one: the checker works on columns.
    """
    me.checker.add(key)
    at = 0
    run: list[int] = []
    scores: list[TokenLogprobs] = []
    for out in outputs:
        if out.offset != at + len(run):
            me.checker.stream(key, at, run)
            me.checker.stream_scores(run, scores or None)
            at, run, scores = out.offset, [], []
        run += out.token_ids
        scores += out.logprobs or []
    me.checker.stream(key, at, run)
    me.checker.stream_scores(run, scores or None)
    if me.text is not None:
        ids = [token for out in outputs for token in out.token_ids]
        me.text.stream(key, ids, "".join(out.text for out in outputs))
