"""An engine: a Pipeline's events matched one by one, and commands for its workers."""

from collections.abc import Callable

from typing_extensions import assert_never, assert_type

import tokenpipe as tp


class Engine:
    """Serves one DP rank; `free` are its slots."""

    def __init__(self, pipe: tp.Pipeline) -> None:
        self.pipe = pipe
        self.lane = pipe.step_lane(dp_rank=0)
        self.free = list(range(pipe.topology.slots_per_rank))
        self.waiting: dict[int, tp.Request] = {}
        self.lost: list[str] = []
        self.frees: list[int] = []

    def take(self, event: tp.Event) -> None:
        """Act on one event; a checker says where a kind of event is forgotten."""
        match event:
            case tp.Submitted(request):
                assert_type(request, tp.Request)
                self.waiting[request.internal_id] = request
            case tp.AbortRequested(request):
                with self.pipe.commands(dp_rank=0) as cmd:
                    cmd.abort(request)
            case tp.Rescheduled(request, handle, reason):
                assert_type(reason, tp.RescheduleReason)
                assert_type(event.output_token_ids, list[int])
                self.waiting[request.internal_id] = request
                self.frees.append(handle)
            case tp.PrefillDone(request, handle, ids):
                assert_type(ids, list[int])
                self.frees.append(handle)
            case tp.Finished():
                assert_type(event.finish_reason, tp.FinishReason)
                assert_type(event.stop_reason, int | str | None)
                self.frees.append(event.handle)
            case tp.Aborted(_, handle):
                assert_type(handle, int | None)
                self.frees += [] if handle is None else [handle]
            case tp.Released(_, handle):
                dp_rank, slot, generation = tp.split_handle(handle)
                assert_type((dp_rank, slot, generation), tuple[int, int, int])
                self.free.append(slot)
            case tp.RankLost() | tp.ProcessorLost() | tp.ClientLost():
                self.lost.append(event.reason)
            case tp.RankUp() | tp.ProcessorUp() | tp.ProcessorRestarted() | tp.Mismatch():
                pass
            case _:
                assert_never(event)

    def bind(self) -> tuple[tp.StepBind, ...]:
        """Give free slots to those who wait."""
        binds: list[tp.StepBind] = []
        with self.pipe.commands(dp_rank=0) as cmd:
            while self.free and self.waiting:
                request = self.waiting.pop(next(iter(self.waiting)))
                handle = cmd.bind(request, slot=self.free.pop())
                assert_type(handle, int)
                binds.append(cmd.step_bind(handle))
        return tuple(binds)

    def serve(self, wanted: Callable[[], bool]) -> None:
        """Serve while it is wanted."""
        step = 0
        while wanted() and self.pipe.wait(timeout_s=0.05):
            for event in self.pipe.poll():
                self.take(event)
            step += 1
            self.lane.send(tp.StepPlan(step, self.bind(), tuple(self.frees)))
            self.frees.clear()


class Named(tp.Pipeline):
    """A subclass is itself in a with block."""

    name = "mine"


def main() -> None:
    """Run until nobody waits."""
    card = tp.ModelCard(request_fields=("guided_json",), max_model_len=4096)
    with Named(tp.Topology(), model_card=card) as pipe:
        assert_type(pipe, Named)
        engine = Engine(pipe)
        engine.serve(lambda: bool(engine.waiting))
        assert_type(pipe.counters(), dict[str, dict[str, int]])
        assert_type(pipe.finish(timeout_s=1.0), list[tp.Event])


def wrong(pipe: tp.Pipeline, request: tp.Request, event: tp.Finished) -> None:
    """What a checker must refuse."""
    with pipe.commands(dp_rank="0") as cmd:  # type: ignore[arg-type]
        cmd.bind(request, slot="1")  # type: ignore[arg-type]
        cmd.bind(request.external_id, slot=1)  # type: ignore[arg-type]
        cmd.preempt("request")  # type: ignore[arg-type]
    pipe.reject(request)  # type: ignore[call-arg]
    pipe.wait("soon")  # type: ignore[arg-type]
    pipe.poll(1)  # type: ignore[call-arg]
    event.handle = 3  # type: ignore[misc]
    print(event.slot)  # type: ignore[attr-defined]
    request.params.max_tokens = 5  # type: ignore[misc]
    pipe.step_lane().send(request)  # type: ignore[arg-type]
    tp.Released(request, 1)  # type: ignore[call-arg]
    tp.split_handle("1")  # type: ignore[arg-type]
