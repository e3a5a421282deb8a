"""What rows carry beside their tokens, from publish to RequestOutput, all between being real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.case_rig import rig
from tests.pipeline.test_pipeline import pick, serve_until
from tests.pipeline.test_text_params import Asking, Served
from tests.processor import beside
from tokenpipe import (
    AbortRequested,
    Client,
    ExtrasReader,
    Finished,
    FinishReason,
    OutputExtras,
    Pipeline,
    PromptLogprobs,
    Released,
    Request,
    RequestOutput,
    RequestOutputKind,
    Rescheduled,
    RowError,
    RowExtras,
    RowStatus,
    SamplingParams,
    StepLogprobs,
    Submitted,
    Topology,
    Usage,
)

PROMPT = list(range(5))


@pytest.fixture(params=["process", "inline"])
def served(request: pytest.FixtureRequest, runtime_dir: Path) -> Iterator[Served]:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": request.param})
    with Pipeline(topology) as pipe:
        served = Served(pipe)
        yield served
        served.close()


def ask(served: Served, **params: object) -> tuple[Asking, Request]:
    given = SamplingParams(**{"max_tokens": 100, **params})  # type: ignore[arg-type]
    asking = Asking(served.pipe.endpoint, given, PROMPT)
    return asking, served.until(Submitted).request


def publish(
    served: Served, handle: int, tokens: list[int], extras: RowExtras | None = None
) -> None:
    served.step += 1
    by_row = {} if extras is None else {0: extras}
    served.pub.publish(served.step, [handle], tokens, counts=[len(tokens)], extras=by_row)


def preempt(served: Served, handle: int) -> Rescheduled:
    with served.pipe.commands() as cmd:
        cmd.preempt(handle)
    served.step += 1
    served.pub.publish(served.step, [], [], drained=[handle])
    rescheduled = served.until(Rescheduled)
    assert isinstance(rescheduled, Rescheduled)
    return rescheduled


def let_go(served: Served, *handles: int) -> None:
    """Drain handles that have their outcome, and wait until they are released."""
    served.step += 1
    served.pub.publish(served.step, [], [], drained=list(handles))
    serve_until(served.pipe, lambda s: len(pick(s, Released)) == len(handles), served.pub)


def whole(outputs: list[RequestOutput], kind: RequestOutputKind) -> RequestOutput:
    """Return everything as one output: the last one, or the deltas put together."""
    if kind != RequestOutputKind.DELTA:
        return outputs[-1]
    extras = OutputExtras([], None, [], [], [], [])
    made = RequestOutput("", 0, 0, [], extras=extras)
    for out in outputs:
        n = len(out.token_ids)
        assert out.offset == len(made.token_ids)
        made.token_ids += out.token_ids
        extras.prompt_logprobs += out.prompt_logprobs or []  # type: ignore[operator]
        extras.sampling_masks += out.sampling_masks or [None] * n  # type: ignore[operator]
        extras.draft_token_ids += out.draft_token_ids or [None] * n  # type: ignore[operator]
        extras.draft_logprobs += out.draft_logprobs or [None] * n  # type: ignore[operator]
        extras.custom += out.custom or []  # type: ignore[operator]
    return made


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_all_that_a_row_may_carry(served: Served, kind: RequestOutputKind) -> None:
    """A chunked prefill, rows of several tokens, a preemption, a stop in the middle of a row."""
    asking, request = ask(served, stop_token_ids=(99,), output_kind=kind)
    handle = served.bind(request, 0)
    publish(served, handle, [], beside.row_extras([], b"chunk 1", prompt=2, at=1))
    publish(served, handle, [], beside.row_extras([], b"chunk 2", prompt=2, at=3))
    publish(served, handle, [10, 11], beside.row_extras([10, 11], b"row 1"))
    publish(served, handle, [12])
    publish(served, handle, [], RowExtras(custom=b"forgotten: its binding ends before a token"))
    assert preempt(served, handle).output_token_ids == [10, 11, 12]
    handle = served.bind(request, 1)
    publish(served, handle, [13], beside.row_extras([13], b"row 2", prompt=4, at=1))
    row = beside.row_extras([14, 99, 15])
    publish(served, handle, [14, 99, 15], RowExtras(
        sampling_masks=row.sampling_masks,
        draft_token_ids=row.draft_token_ids,
        draft_logprobs=row.draft_logprobs,
        reasoning_tokens=4,
    ))  # fmt: skip
    finished = served.until(Finished)
    assert (finished.finish_reason, finished.stop_reason) == (FinishReason.STOP, 99)
    served.join(asking)
    last = asking.outputs[-1]
    assert last.finish_reason == FinishReason.STOP
    assert last.usage == Usage(len(PROMPT), 6, 0, reasoning_tokens=4)
    got = whole(asking.outputs, kind)
    tokens = [10, 11, 12, 13, 14, 99]
    assert got.token_ids == tokens and got.extras is not None
    beside.check(got.extras, tokens, [True, True, False, True, True, True])
    assert got.prompt_logprobs == beside.prompt_of(5)
    custom = [(0, b"chunk 1"), (0, b"chunk 2"), (0, b"row 1"), (3, b"row 2")]
    assert got.custom == custom
    let_go(served, handle)


def test_a_request_that_makes_no_tokens_is_finished_by_its_worker(served: Served) -> None:
    asking, request = ask(served)
    handle = served.bind(request, 0)
    pooled = np.arange(12, dtype=np.float32).reshape(3, 4)
    pooled[1, 1] = np.nan
    served.step += 1
    served.pub.publish(
        served.step,
        [handle],
        [],
        counts=[0],
        status=[RowStatus.FINISHED],
        extras={0: RowExtras(pooled=pooled)},
    )
    finished = served.until(Finished)
    assert (finished.finish_reason, finished.output_tokens) == (FinishReason.STOP, 0)
    served.join(asking)
    (output,) = asking.outputs
    assert output.finish_reason == FinishReason.STOP and output.token_ids == []
    assert output.usage == Usage(len(PROMPT), 0)
    assert output.pooled is not None and output.pooled.tobytes() == pooled.tobytes()
    assert output.pooled.shape == (3, 4)
    let_go(served, handle)


def test_extras_larger_than_a_frame_come_in_pieces(served: Served) -> None:
    asking, request = ask(served, max_tokens=2)
    handle = served.bind(request, 0)
    mask = np.random.default_rng(5).integers(0, 1 << 31, 3_000_000)  # 12 MB
    publish(served, handle, [7], RowExtras(sampling_masks=[mask], custom=b"x"))
    publish(served, handle, [8], RowExtras(draft_token_ids=[9]))
    served.until(Finished)
    served.join(asking)
    got = whole(asking.outputs, RequestOutputKind.DELTA)
    assert got.token_ids == [7, 8] and got.draft_token_ids == [None, 9]
    assert got.sampling_masks is not None and got.sampling_masks[0] is not None
    assert np.array_equal(got.sampling_masks[0], mask) and got.sampling_masks[1] is None
    let_go(served, handle)


@pytest.mark.case("F07")
def test_prompt_logprobs_larger_than_a_frame_come_in_several(runtime_dir: Path) -> None:
    """Two prompts of 5,000 ids with the top 20: 1.8 MB in a step. A frame may have 1 MiB."""
    n, k = 5_000, 20
    bounds = {"max_frame_bytes": 1 << 20}
    with Pipeline(Topology(runtime_dir=runtime_dir, bounds=bounds)) as pipe:
        served = Served(pipe)
        params = SamplingParams(max_tokens=2, prompt_logprobs=k)
        asking = Asking(pipe.endpoint, params, [5] * (n + 1))
        request = served.until(Submitted).request
        other = Asking(pipe.endpoint, params, [5] * (n + 1))
        beside_it = served.until(Submitted).request
        handle, neighbour = served.bind(request, 0), served.bind(beside_it, 1)
        ids = np.arange(n * (k + 1), dtype=np.int32).reshape(n, k + 1)
        values = -(ids % 1000).astype(np.float32)
        scores = PromptLogprobs(1, ids, values, np.arange(1, n + 1, dtype=np.int32))
        extras = {
            0: RowExtras(prompt_logprobs=scores, custom=b"x"),
            1: RowExtras(prompt_logprobs=scores, custom=b"y"),
        }
        served.pub.publish(1, [handle, neighbour], [7, 8], extras=extras)
        served.pub.publish(2, [handle, neighbour], [9, 10], drained=[handle, neighbour])
        serve_until(pipe, lambda s: len(pick(s, Released)) == 2, served.pub)
        for asked, tokens in ((asking, [7, 9]), (other, [8, 10])):
            served.join(asked)
            assert [t for out in asked.outputs for t in out.token_ids] == tokens
            got = [entry for out in asked.outputs for entry in out.prompt_logprobs or ()]
            assert len(got) == n + 1
        served.close()


def test_what_no_lane_carries_is_refused_and_the_step_can_be_published_again(
    served: Served,
) -> None:
    asking, request = ask(served, max_tokens=1)
    handle = served.bind(request, 0)
    with pytest.raises(RowError, match=r"extras: there is no row 1 of 1"):
        served.pub.publish(1, [handle], [7], extras={1: RowExtras(custom=b"x")})
    with pytest.raises(RowError, match=r"extras\[0\]: draft_token_ids: 2 entries"):
        publish(served, handle, [7], RowExtras(draft_token_ids=[1, 2]))
    publish(served, handle, [7], RowExtras(custom=b"x"))
    served.until(Finished)
    served.join(asking)
    assert [out.custom for out in asking.outputs] == [[(0, b"x")]]
    let_go(served, handle)


@pytest.mark.case("B50")
def test_bytes_that_are_no_extras_end_their_request_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, request = ask(served)
    first = served.bind(request, 0)
    good, request = ask(served, max_tokens=2)
    second = served.bind(request, 1)
    lengths, extras = np.array([4, 6], np.uint32), b"junk\x07\x01\0\0\0x"
    columns = "tokenpipe.worker.publisher.extras_columns"
    with monkeypatch.context() as patch:  # a writer in another language
        patch.setattr(columns, lambda *given: (lengths, extras))
        served.step += 1
        served.pub.publish(served.step, [first, second], [5, 6], extras={0: RowExtras()})
    asked = served.until(AbortRequested)
    assert isinstance(asked, AbortRequested)
    with served.pipe.commands() as cmd:
        cmd.abort(asked.request)
    publish(served, second, [7])
    served.until(Finished)
    served.join(bad)
    served.join(good)
    assert bad.outputs[-1].finish_reason == FinishReason.ERROR
    assert (bad.outputs[-1].error or "").startswith("extras: ")
    assert good.outputs[-1].finish_reason == FinishReason.LENGTH
    assert whole(good.outputs, RequestOutputKind.DELTA).custom == [(0, b"x")]
    let_go(served, first, second)


def test_frames_have_them_too(runtime_dir: Path) -> None:
    with rig(runtime_dir) as r:
        key = r.submit(tokens=3)
        handle = r.bind(key, 0)
        r.reading.clear()
        r.publish([(handle, ())], extras={0: RowExtras(custom=b"before")})
        r.publish([(handle, (10, 11))], extras={0: beside.row_extras([10, 11])})
        r.publish([(handle, (12,))], extras={0: RowExtras(reasoning_tokens=2)})
        r.until(lambda: r.outcome_of(handle))
        reader, tokens, found = ExtrasReader(), 0, []
        while not r.ended(key):
            for frame in r.clients[0].frames(timeout_s=1.0):
                r.apply(frame)
                (extras,), (count,) = frame.extras, frame.counts.tolist()
                found.append(reader.take(extras, tokens, tokens + count, bool(frame.finish[0])))
                tokens += count
        taken = [extras for extras in found if extras is not None]
        assert [custom for one in taken for custom in one.custom or []] == [(0, b"before")]
        drafts = [draft for one in taken for draft in one.draft_token_ids or []]
        assert drafts[:2] == [beside.draft_of(10), beside.draft_of(11)]
        assert reader.usage(3) == (0, 2)
        r.publish(drained=[handle])


VOCABULARY = 131_072


@pytest.mark.case("B64")
def test_a_whole_vocabulary_of_logprobs_passes_with_default_bounds(served: Served) -> None:
    rng = np.random.default_rng(3)
    asking, request = ask(served, max_tokens=6, logprobs=VOCABULARY)
    handle = served.bind(request, 0)
    sent = []
    for token in range(6):
        ids = np.concatenate([[token], rng.permutation(VOCABULARY)])
        values = rng.standard_normal(VOCABULARY + 1, np.float32)
        sent.append((ids, values))
        scores = StepLogprobs(ids[None], values[None], np.array([token + 1]))
        served.step += 1
        served.pub.publish(served.step, [handle], [token], logprobs=scores)
        served.pipe.wait(0.0)  # else inline would park what came before its bind
    served.until(Finished)
    served.join(asking)
    found = [entry for out in asking.outputs for entry in out.logprobs or ()]
    assert [t for out in asking.outputs for t in out.token_ids] == list(range(6))
    assert asking.outputs[-1].finish_reason == FinishReason.LENGTH
    assert [entry.rank for entry in found] == [1, 2, 3, 4, 5, 6]
    for entry, (ids, values) in zip(found, sent, strict=True):
        assert entry.token_ids == tuple(ids.tolist())
        assert np.array_equal(np.array(entry.logprobs, np.float32), values)
    let_go(served, handle)


SLOTS, TOKENS, TOP, STEPS = 256, 8, 20, 4


@pytest.mark.case("B64")
def test_a_full_batch_of_long_rows_with_logprobs_passes_with_default_bounds(
    served: Served,
) -> None:
    """256 slots, 8 tokens a row, the sampled and 20 more logprobs for each of them."""
    rng = np.random.default_rng(4)
    outputs: dict[str, list[RequestOutput]] = {}
    params = SamplingParams(max_tokens=TOKENS * STEPS, logprobs=TOP)

    def run() -> None:
        with Client(served.pipe.endpoint) as client:
            streams = [client.generate([1], params, request_id=f"{i}") for i in range(SLOTS)]
            for i, stream in enumerate(streams):
                outputs[f"{i}"] = list(stream)

    asking = threading.Thread(target=run)
    asking.start()
    seen = serve_until(served.pipe, lambda s: len(pick(s, Submitted)) == SLOTS, served.pub)
    with served.pipe.commands() as cmd:
        handles = {
            event.request.external_id: cmd.bind(event.request, slot)
            for slot, event in enumerate(pick(seen, Submitted))
        }
    order = np.array([handles[f"{i}"] for i in range(SLOTS)])
    shape = (STEPS, SLOTS, TOKENS)
    tokens = rng.integers(0, VOCABULARY, shape)
    ids = rng.integers(0, VOCABULARY, (*shape, TOP + 1))
    ids[..., 0] = tokens
    values = rng.standard_normal((*shape, TOP + 1), np.float32)
    ranks = rng.integers(1, VOCABULARY, shape)
    for step in range(STEPS):
        scores = StepLogprobs(
            ids[step].reshape(-1, TOP + 1), values[step].reshape(-1, TOP + 1), ranks[step].ravel()
        )
        served.pub.publish(
            step + 1, order, tokens[step].ravel(), counts=np.full(SLOTS, TOKENS), logprobs=scores
        )
    while asking.is_alive():
        served.pipe.wait(0.02)
        served.pipe.poll()
        served.pub.poll()
    assert len(outputs) == SLOTS
    for i in range(SLOTS):
        outs = outputs[f"{i}"]
        assert outs[-1].finish_reason == FinishReason.LENGTH, outs[-1].error
        assert [t for out in outs for t in out.token_ids] == tokens[:, i].ravel().tolist()
        entries = [entry for out in outs for entry in out.logprobs or ()]
        assert np.array_equal([e.token_ids for e in entries], ids[:, i].reshape(-1, TOP + 1))
        found = np.array([e.logprobs for e in entries], np.float32)
        assert np.array_equal(found, values[:, i].reshape(-1, TOP + 1))
        assert [e.rank for e in entries] == ranks[:, i].ravel().tolist()
    served.step = STEPS
    let_go(served, *order.tolist())
