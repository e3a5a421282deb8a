"""Serve requests whose output is their own prompt: engine, worker and client in one file."""

import asyncio
import threading

import tokenpipe as tp


def work(endpoint: str) -> None:  # in real life a process of its own, with a model
    lane = tp.StepLane.worker(endpoint, dp_rank=0)
    running: dict[int, list[int]] = {}  # handle to tokens still to say
    with tp.Publisher(endpoint, dp_rank=0) as pub:
        for step in range(1, 1 << 40):
            gone: list[int] = []
            for plan in lane.recv(timeout_s=0.0 if running else 0.05):
                running |= {b.handle: list(b.prompt_token_ids) * 8 for b in plan.binds}
                gone += [handle for handle in plan.frees if running.pop(handle, True)]
            if lane.ended:
                return
            batch = [handle for handle, tokens in running.items() if tokens]
            pub.publish(step, batch, [running[h].pop(0) for h in batch], drained=gone)


async def ask(endpoint: str, prompt: list[int]) -> list[int]:
    async with tp.AsyncClient(endpoint) as client:
        params = tp.SamplingParams(max_tokens=10)
        return [t async for out in client.generate(prompt, params) for t in out.token_ids]


with tp.Pipeline(tp.Topology(processors={"mode": "inline"})) as pipe:
    threading.Thread(target=work, args=(pipe.endpoint,), daemon=True).start()
    answers: list[list[int]] = []
    client = threading.Thread(
        target=lambda: answers.append(asyncio.run(ask(pipe.endpoint, [7, 8])))
    )
    client.start()
    free, waiting = set[int](), list[tp.Request]()
    while client.is_alive() and pipe.wait(timeout_s=0.05):
        frees = []
        for event in pipe.poll():
            match event:
                case tp.RankUp():
                    free = set(range(pipe.topology.slots_per_rank))
                case tp.Submitted(request):
                    waiting.append(request)
                case tp.Finished(_, handle):
                    frees.append(handle)  # the worker answers with a drained row
        binds = []
        with pipe.step(dp_rank=0) as commands:
            while free and waiting:
                request = waiting.pop(0)
                handle = commands.bind(request, slot=free.pop())
                binds.append(tp.StepBind(handle, request.internal_id, 0, request.prompt_token_ids))
        if binds or frees:
            pipe.step_lane(dp_rank=0).send(tp.StepPlan(1, binds, tuple(frees)))
    print(answers)
