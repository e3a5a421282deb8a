"""A reader sees all of a file or the one before."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tokenpipe.instance.atomic_write import part_of, remove_whole, write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_whole(path, "first and longer")
    before = path.stat().st_ino
    with open(path) as reader:
        write_whole(path, "second")
        assert reader.read() == "first and longer"
    assert path.read_text() == "second" and path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_remove_takes_both(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_whole(path, "old")
    part_of(path).symlink_to("/dev/full")
    with pytest.raises(OSError) as caught:
        write_whole(path, "new")
    assert caught.value.errno == errno.ENOSPC and path.read_text() == "old"
    remove_whole(path)
    assert not list(tmp_path.iterdir())
    remove_whole(path)  # nothing is there
