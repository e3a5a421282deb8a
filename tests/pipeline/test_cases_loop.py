"""An event loop that has to catch up does so in slices, and loses nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tokenpipe import AsyncClient, Finished, RequestOutput, SamplingParams
from tokenpipe.client import AsyncStream

from .case_rig import PATIENCE_S, rig


class Reader:
    """A client in a loop of its own, which stands still until it is let go."""

    def __init__(self, endpoint: str, streams: int, tokens: int) -> None:
        self.endpoint = endpoint
        self.tokens = tokens
        self.go = threading.Event()
        self.outputs: dict[str, list[RequestOutput]] = {str(i): [] for i in range(streams)}
        self.came = 0
        self.most_between_turns = 0

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        async with AsyncClient(self.endpoint) as client:
            params = SamplingParams(max_tokens=self.tokens)
            streams = {i: client.generate([1], params, request_id=i) for i in self.outputs}
            tasks = [
                asyncio.create_task(self._collect(name, stream))
                for name, stream in streams.items()
                if isinstance(stream, AsyncStream)
            ]
            self.go.wait(PATIENCE_S)  # blocks the loop on purpose
            while not all(task.done() for task in tasks):
                before = self.came
                await asyncio.sleep(0)
                self.most_between_turns = max(self.most_between_turns, self.came - before)

    async def _collect(self, name: str, stream: AsyncStream) -> None:
        async for out in stream:
            self.outputs[name].append(out)
            self.came += len(out.token_ids)


@pytest.mark.case("B24")
@pytest.mark.parametrize(("streams", "tokens", "a_row"), [(64, 2500, 1), (1, 60_000, 20)])
def test_a_backlog_is_taken_in_slices_with_the_loop_free_in_between(
    runtime_dir: Path, streams: int, tokens: int, a_row: int
) -> None:
    with rig(runtime_dir, clients=0, slots_per_rank=streams) as r:
        reader = Reader(r.pipe.endpoint, streams, tokens)
        reading = r.start(reader.run)
        r.until(lambda: len(r.requests) == streams)
        names = [request.external_id for request in r.requests.values()]
        handles = [r.bind(key, slot) for slot, key in enumerate(r.requests)]
        for first in range(0, tokens, a_row):
            r.publish([(h, [*range(first, first + a_row)]) for h in handles])
            if first % 16 == 0:
                r.turn()
        r.until(lambda: len(r.of(Finished)) == streams)
        r.publish([], handles)
        reader.go.set()
        r.until(lambda: not reading.is_alive())
        for name in names:
            got = [token for out in reader.outputs[name] for token in out.token_ids]
            assert got == list(range(tokens))
        # Somebody else had a turn after each slice, however much had piled up.
        assert reader.most_between_turns < streams * tokens / 10
