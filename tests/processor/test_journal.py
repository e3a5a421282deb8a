"""A journal outlives its writer: what was written is there, and a torn end is not."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from tokenpipe.errors import FrameError
from tokenpipe.processor.journal import LEAST_LOG, Journal
from tokenpipe.processor.records import Batch, Past

Fds = list[int]


@pytest.fixture
def fds() -> Iterator[Fds]:
    made = [os.memfd_create("journal") for _ in range(2)]
    yield made
    for fd in made:
        os.close(fd)


def written(fds: Fds) -> Journal:
    journal = Journal(fds)
    journal.begin(b"image")
    for n in range(3):
        journal.add([b"one", bytes(n)])
        journal.add([b"two"])
        journal.write(n / 2)
    return journal


BATCHES = [Batch(n / 2, b"one" + bytes(n) + b"two") for n in range(3)]


def test_what_was_written_is_read_by_the_next(fds: Fds) -> None:
    assert Journal(fds).read() is None
    journal = written(fds)
    journal.write(9.0)  # nothing is new
    assert Journal(fds).read() == Past(b"image", BATCHES)
    journal.add([b"dropped"])  # the image holds its effect
    journal.begin(b"later")
    assert Journal(fds).read() == Past(b"later", [])
    assert sorted(os.fstat(fd).st_size for fd in fds)[0] == 0  # the old file is free
    journal.clear()
    assert Journal(fds).read() is None


def test_the_next_begins_behind_the_last(fds: Fds) -> None:
    for life in range(5):
        journal = Journal(fds)
        past = journal.read()
        assert past == (Past(b"life %d" % (life - 1), [Batch(1.0, b"x")]) if life else None)
        journal.begin(b"life %d" % life)
        journal.add([b"x"])
        journal.write(1.0)


def test_a_write_that_is_torn_at_any_byte_is_as_if_it_had_not_begun(fds: Fds) -> None:
    written(fds)
    fd = max(fds, key=lambda fd: os.fstat(fd).st_size)
    whole = os.pread(fd, 1 << 20, 0)
    seen = set()
    for size in range(len(whole), -1, -1):
        os.ftruncate(fd, size)
        past = Journal(fds).read()
        if past is None:
            assert size < len(whole) - sum(12 + len(batch.records) for batch in BATCHES)
        else:
            assert past == Past(b"image", BATCHES[: len(past.batches)])
        seen.add(-1 if past is None else len(past.batches))
    assert seen == {-1, 0, 1, 2, 3}


def test_an_image_that_is_torn_leaves_the_one_before_it(fds: Fds) -> None:
    written(fds)
    old = max(fds, key=lambda fd: os.fstat(fd).st_size)
    before = os.pread(old, 1 << 20, 0)
    journal = Journal(fds)
    journal.read()
    journal.begin(b"the next image")
    (new,) = set(fds) - {old}
    os.pwrite(old, before, 0)  # a kill before the old file was cleared
    for size in range(os.fstat(new).st_size, -1, -1):
        whole = size == os.fstat(new).st_size
        os.ftruncate(new, size)
        past = Journal(fds).read()
        assert past == (Past(b"the next image", []) if whole and size else Past(b"image", BATCHES))


def test_foreign_bytes_are_refused(fds: Fds) -> None:
    os.pwrite(fds[0], bytes(100), 0)
    with pytest.raises(FrameError, match="other bytes"):
        Journal(fds).read()


def test_a_long_log_asks_for_an_image_and_a_large_image_for_a_longer_log(fds: Fds) -> None:
    journal = Journal(fds)
    for image in (b"", bytes(2 * LEAST_LOG)):
        journal.begin(image)
        log = 0
        while not journal.long:
            journal.add([bytes(1 << 18)])
            journal.write(0.0)
            log += 1 << 18
        assert max(len(image), LEAST_LOG) < log + (1 << 18) <= max(len(image), LEAST_LOG) * 1.3


@pytest.mark.parametrize("in_image", [False, True])
def test_without_memory_the_journal_is_empty_until_it_can_begin_again(
    fds: Fds, in_image: bool
) -> None:
    journal = written(fds)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, hard))
    try:
        if in_image:
            journal.begin(bytes(512))
        else:
            journal.add([bytes(512)])
            journal.write(3.0)
        assert journal.broken and "large" in journal.error and not journal.long
        assert Journal(fds).read() is None  # half a journal would be an old state
        journal.add([b"more"])
        journal.write(4.0)
        assert Journal(fds).read() is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.begin(b"again")
    journal.add([b"more"])
    journal.write(5.0)
    assert not journal.broken
    assert Journal(fds).read() == Past(b"again", [Batch(5.0, b"more")])
