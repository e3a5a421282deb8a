"""C calls Python code, and that code calls C again: nothing is held across, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.frames import Row, output_frame
from tests.processor import rig
from tests.processor.rig import LANE, Rig
from tokenpipe import _core
from tokenpipe._core import Inbox, SendWindow, Stream, Table, Text, Vocab
from tokenpipe.errors import FrameError
from tokenpipe.postprocess import text_options
from tokenpipe.types import make_handle
from tokenpipe.wire import pack_control

HANDLE = make_handle(0, 0, 1)
unraisable = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Decoder:
    """A decoder that calls a function for each token."""

    def __init__(self, at_step: Callable[[int], object]) -> None:
        self.at_step = at_step

    def step(self, token: int) -> str:
        self.at_step(token)
        return str(token)

    def end(self) -> str:
        return ""

    def copy(self) -> Decoder:
        return self


def vocab_of(at_step: Callable[[int], object]) -> Vocab:
    return Vocab((b"", b""), b"", False, 0, foreign=lambda skip, spaces: Decoder(at_step))


def text_fields() -> dict[str, Any]:
    return {"text": True, **text_options()._asdict()}


@pytest.mark.case("F18")
@unraisable
def test_a_decoder_cannot_change_the_table_that_calls_it() -> None:
    refused: list[str] = []

    def change(token: int) -> None:
        table: Table = made.processor._table
        for call in (
            lambda: table.drop(handle),
            lambda: table.feed(0, 0, frames[0]),
            lambda: table.flush(0, LANE, 1 << 20, False),
            lambda: table.close_client(0),
        ):
            with pytest.raises(RuntimeError, match="table runs"):
                call()
            refused.append("call")

    made = Rig(vocab=vocab_of(change), vocab_size=9, eos_token_ids=())
    handle = made.bind(1, **text_fields())
    frames = [made.frame([rig.Row(handle, [1, 2])]), made.frame([rig.Row(handle, [3])])]
    made.processor.feed(0, 0, frames[0], made.now)
    made.processor.feed(0, 0, frames[1], made.now)
    assert (made.stream(1).text, len(refused)) == (b"123", 12)


@pytest.mark.case("F18")
def test_a_decoder_cannot_clear_the_list_that_is_fed() -> None:
    frames: list[bytes] = []
    made = Rig(vocab=vocab_of(lambda token: frames.clear()), vocab_size=9, eos_token_ids=())
    handle = made.bind(1, **text_fields())
    frames += [made.frame([rig.Row(handle, [1, 2])]) for _ in range(3)]
    made.processor._table.feed_run(0, frames, 0)
    gc.collect()
    assert made.stream(1).text == b"12"


@pytest.mark.case("F18")
def test_a_text_is_not_read_while_it_is_read() -> None:
    def again(token: int) -> None:
        with pytest.raises(RuntimeError, match="text runs"):
            text.feed([1])

    text = Text(vocab_of(again), text_options())
    assert text.feed([1, 2])[0] == "12"


@pytest.mark.case("F20")
@unraisable
def test_an_interrupt_of_a_decoder_reaches_the_caller() -> None:
    def interrupt(token: int) -> None:
        if token == 3:
            raise KeyboardInterrupt

    made = Rig(vocab=vocab_of(interrupt), vocab_size=9, eos_token_ids=())
    bad, good = made.bind(1, **text_fields()), made.bind(2, slot=1, **text_fields())
    with pytest.raises(KeyboardInterrupt):
        made.feed(rig.Row(bad, [1, 3]), rig.Row(good, [4]))
    assert made.stream(2).text == b"4"
    made.feed(rig.Row(good, [5]))
    assert made.stream(2).text == b"45"
    text = Text(vocab_of(interrupt), text_options())
    with pytest.raises(KeyboardInterrupt):
        text.feed([3])


class Finalized:
    """Garbage that calls a function when it is collected."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.itself: Finalized | None = self  # so that only the collector frees it

    def __del__(self) -> None:
        self.call()


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Collect garbage whenever an object is made, as happens in a large process at any time."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


@pytest.mark.case("F18")
@pytest.mark.usefixtures("eager_collector")
@pytest.mark.parametrize("taken", ["take", "feed"])
def test_a_finalizer_drops_the_stream_that_is_taken(taken: str) -> None:
    for _ in range(100):
        inbox = Inbox(1 << 20)
        stream = Stream(inbox, 1, "r")
        entries = [([7, 8], [-1.0, -2.0], 1)] * 50
        inbox.feed(output_frame(Row(1, 0, [7] * 50, logprobs=entries)))
        Finalized(stream.drop)
        if taken == "take":
            item = stream.take()
            assert item is None or item.token_ids == [7] * 50
        else:
            inbox.feed(output_frame(Row(1, 50, [9]), Row(1, 60, [9])))


class Slotted(Stream):
    __slots__ = ("thing",)
    thing: object


@pytest.mark.case("F18")
def test_a_subclass_with_slots_is_not_found_while_it_is_freed() -> None:
    inbox = Inbox(1 << 20)
    found: list[object] = []
    stream = Slotted(inbox, 1, "r")
    row = output_frame(Row(1, 9, [1]))
    thing = Finalized(lambda: found.extend([inbox.streams(), inbox.find(1), inbox.feed(row)]))
    thing.itself = None
    stream.thing = thing
    del thing
    del stream
    gc.collect()
    assert found == [[], None, None]


@pytest.mark.case("F18")
def test_a_frame_that_is_put_cannot_send_another_one() -> None:
    errors: list[str] = []

    def put(frame: bytes) -> bool:
        with pytest.raises(RuntimeError, match="is being sent"):
            window.send(frame)
        errors.append("refused")
        return True

    window = SendWindow(1 << 20, 5, 6, put)
    window.receiver = 7
    for seq in (1, 2):
        window.send(pack_control((5, 6, 7, seq), []))
    assert (window.next_seq, len(window), len(errors)) == (3, 2, 2)


@pytest.mark.case("F18")
def test_a_reader_of_extras_may_close_what_awaits_it() -> None:
    async def main() -> None:
        class Reader:
            def take(self, *_: object) -> None:
                waits[0].close()

            def usage(self, *_: object) -> tuple[int, int | None]:
                return 0, None

        inbox = Inbox(1 << 20, asyncio.get_running_loop(), None, lambda prompt, keep: Reader())
        stream = Stream(inbox, 1, "r")
        inbox.feed(output_frame(Row(1, 0, [1], extras=b"x")))
        waits: list[Any] = [stream.__anext__()]
        del stream
        with pytest.raises(StopIteration):
            waits[0].send(None)

    asyncio.run(main())


@pytest.mark.case("F20")
def test_a_wake_within_a_task_wakes_all() -> None:
    async def main() -> None:
        inbox = Inbox(1 << 20, asyncio.get_running_loop())
        streams = [Stream(inbox, key, "r") for key in (1, 2)]

        async def read(stream: Stream) -> list[int]:
            return [token async for out in stream for token in out.token_ids]

        tasks = [asyncio.create_task(read(stream)) for stream in streams]
        await asyncio.sleep(0)
        inbox.feed(output_frame(Row(1, 0, [1], finish=1), Row(2, 0, [2], finish=1)))
        inbox.wake(True)  # in this task
        assert await asyncio.wait_for(asyncio.gather(*tasks), 20) == [[1], [2]]

    asyncio.run(main())


def empty_table() -> Table:
    table = Table(0, [0], 4, 1000, [], 1 << 20, 1 << 20, None)
    table.open_client(0)
    return table


@pytest.mark.case("F20")
def test_numbers_that_do_not_fit_are_refused() -> None:
    table = empty_table()
    for wrong in (-1, (1 << 32) + 3):
        with pytest.raises(OverflowError):
            table.bind(HANDLE, 1, 0, wrong, 0, False, (), (), False, None)
        with pytest.raises(OverflowError):
            Table(0, [0], wrong, 1000, [], 1 << 20, 1 << 20, None)
        with pytest.raises(OverflowError):
            Stream(Inbox(1), 1, "r", 0, wrong)
    for wrong in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            SendWindow(wrong)
        with pytest.raises(OverflowError):
            table.flush(0, LANE, wrong, False)


@pytest.mark.case("F20")
@pytest.mark.parametrize("generations", [(1, 1), (1, 2)])
def test_a_frame_that_continues_two_rows_of_a_slot_is_refused(generations: tuple[int, int]) -> None:
    made = Rig()
    handles = [make_handle(0, 0, generation) for generation in generations]
    made.processor.feed(0, 0, made.frame([rig.Row(handle, [5]) for handle in handles]), made.now)
    header = (*LANE[:3], LANE[3] + 1, 0, 0, 2, 2, 2, 1)
    frame = _core.pack_step(header, {3: b"\6\0\0\0\7\0\0\0"})
    with pytest.raises(FrameError, match="does not continue"):
        made.processor.feed(0, 0, frame, made.now)


@pytest.mark.case("F19")
def test_a_flush_without_memory_loses_nothing() -> None:
    nothing = pytest.importorskip("_testcapi")
    failed = 0
    for n in range(200):
        table = empty_table()
        table.bind(HANDLE, 9, 0, 100, 0, False, (), (), False, None)
        table.feed(0, 0, Rig().frame([rig.Row(HANDLE, [4, 5, 6])]))
        table.finish(HANDLE, _core.FINISH_ABORT, _core.STATE_LINGERING)
        table.hold(HANDLE)
        nothing.set_nomemory(n, n + 1)
        try:
            packed = table.flush(0, LANE, 1 << 20, False)
        except MemoryError:
            packed = None
        finally:
            nothing.remove_mem_hooks()
        if packed is not None:
            break
        failed += 1
        assert table.dirty_clients() == [0] and table.urgent(0)
        packed = table.flush(0, LANE, 1 << 20, False)
        assert packed is not None
        client = rig.Client()
        client.apply(packed[0])
        assert (client.streams[9].tokens, client.streams[9].finish) == ([4, 5, 6], 3)
        assert packed[1] == [(_core.EVENT_SENT, HANDLE, 0, 0, 0)]
        assert table.flush(0, LANE, 1 << 20, False) is None
    assert failed >= 2
