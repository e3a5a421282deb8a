"""Answer each request with its own prompt: engine, worker and client in one file."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count, cycle, islice

import tokenpipe as tp


def work(endpoint: str) -> None:  # in production a process of its own, with a model
    lane = tp.StepLane.worker(endpoint, dp_rank=0)
    running: dict[int, Iterator[int]] = {}  # handle to the tokens that are left
    with tp.Publisher(endpoint, dp_rank=0) as pub:
        for step in count(1):  # counts forward passes, not plans
            drained: list[int] = []
            for plan in lane.recv(timeout_s=0.0 if running else 0.05):
                if plan.reset:  # the rank was lost: all handles are dead
                    running.clear()
                for b in plan.binds:  # continues after the tokens that it already has
                    running[b.handle] = islice(cycle(b.prompt_token_ids), b.output_tokens, None)
                for handle in plan.frees:
                    running.pop(handle, None)
                    drained.append(handle)  # once each, even if unknown: this releases the slot
            if lane.ended:
                return
            pub.publish(step, list(running), [next(t) for t in running.values()], drained=drained)


def serve(pipe: tp.Pipeline, wanted: Callable[[], bool]) -> None:
    lane, plans, up = pipe.step_lane(dp_rank=0), count(1), False
    free, waiting = list(range(pipe.topology.slots_per_rank)), dict[int, tp.Request]()
    while wanted() and pipe.wait(timeout_s=0.05):
        frees, aborts, binds = list[int](), list[tp.Request](), list[tp.StepBind]()
        for event in pipe.poll():
            match event:
                case tp.RankUp() | tp.RankLost():
                    up = isinstance(event, tp.RankUp)
                case tp.Submitted(request):
                    waiting[request.internal_id] = request
                case tp.AbortRequested(request):
                    waiting.pop(request.internal_id, None)
                    aborts.append(request)  # Aborted comes even if it is not bound
                case tp.Rescheduled(request, handle):  # preempted, or its worker died
                    waiting[request.internal_id] = request  # the next bind continues it
                    frees.append(handle)
                case tp.Finished(_, handle) | tp.Aborted(_, int(handle)):
                    frees.append(handle)  # then the drained row brings Released
                case tp.Released(_, handle):
                    free.append(tp.split_handle(handle)[1])
        with pipe.commands(dp_rank=0) as cmd:
            for request in aborts:
                cmd.abort(request)
            while up and free and waiting:
                request = waiting.pop(next(iter(waiting)))
                binds.append(cmd.step_bind(cmd.bind(request, slot=free.pop())))
        if binds or frees:
            lane.send(tp.StepPlan(next(plans), tuple(binds), tuple(frees)))


async def ask(endpoint: str, prompt: list[int], max_tokens: int = 10) -> list[int]:
    async with tp.AsyncClient(endpoint) as client:
        params = tp.SamplingParams(max_tokens=max_tokens)
        return [t async for out in client.generate(prompt, params) for t in out.token_ids]


if __name__ == "__main__":
    with tp.Pipeline(tp.Topology(processors={"mode": "inline"})) as pipe:
        threading.Thread(target=work, args=(pipe.endpoint,), daemon=True).start()
        client = threading.Thread(target=lambda: print(asyncio.run(ask(pipe.endpoint, [7, 8]))))
        client.start()
        serve(pipe, client.is_alive)
