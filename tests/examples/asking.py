"""A client in a thread of its own, so that a test can serve its engine meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tokenpipe import AsyncClient, RequestOutput, SamplingParams


class Crowd(threading.Thread):
    """Asks all prompts at once, or `pause_s` after one another; gives `leave` up after a token.

    `longer` is how many tokens those ask for who leave, else as many as `params` say.
    """

    def __init__(
        self,
        endpoint: str,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        pause_s: float = 0.0,
        leave: Sequence[int] = (),
        longer: int | None = None,
    ) -> None:
        super().__init__(name="crowd")
        self._endpoint, self._prompts, self._params = endpoint, prompts, params
        self._pause_s, self._leave = pause_s, leave
        self._leaver = replace(params, max_tokens=longer or params.max_tokens)
        self.outputs: list[list[RequestOutput]] = [[] for _ in prompts]
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as error:
            self.error = error

    async def _all(self) -> None:
        async with AsyncClient(self._endpoint) as client:
            await asyncio.gather(*(self._one(client, i) for i in range(len(self._prompts))))

    async def _one(self, client: AsyncClient, which: int) -> None:
        await asyncio.sleep(which * self._pause_s)
        params = self._leaver if which in self._leave else self._params
        stream = client.generate(list(self._prompts[which]), params)
        async for output in stream:
            self.outputs[which].append(output)
            if which in self._leave:
                await stream.aclose()
                return

    @property
    def tokens(self) -> list[list[int]]:
        return [[token for out in outputs for token in out.token_ids] for outputs in self.outputs]


def serve(turn: Callable[[], object], until: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Serve until the fact holds; fails at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline, "it does not come"
        turn()
