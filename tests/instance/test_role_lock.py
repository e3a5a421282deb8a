"""A role has one living holder, and everybody can see whether it has one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transport.child import child, line
from tokenpipe.errors import ConfigError, LaneBusy, LaneLost
from tokenpipe.instance import Instance
from tokenpipe.instance import role_lock as claim

HOLD = """
import sys
from tokenpipe.instance import Instance
claim = Instance.attach(sys.argv[1]).claim("worker", "0.0", "the first")
print("held", flush=True)
sys.stdin.readline()
claim.release()
print("free", flush=True)
sys.stdin.readline()
"""


def test_a_role_of_another_process_is_refused_by_name_until_it_is_free(base: Path) -> None:
    owner = Instance.create(base, None, {})
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
        assert owner.alive("worker", "0.0")
        with pytest.raises(
            LaneBusy, match=rf"worker0\.0 is held by process {other.pid} .the first"
        ):
            owner.claim("worker", "0.0")
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()
        assert line(other) == "free"
        assert not owner.alive("worker", "0.0")
        mine = owner.claim("worker", "0.0")
        mine.release()
    owner.close()


def test_a_killed_holder_holds_nothing(base: Path) -> None:
    owner = Instance.create(base, None, {})
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
    assert not owner.alive("worker", "0.0")
    owner.claim("worker", "0.0").release()
    owner.close()


def test_this_process_is_refused_too_and_looking_does_not_let_go(base: Path) -> None:
    owner = Instance.create(base, None, {})
    guest = Instance.attach(owner.directory)
    mine = owner.claim("client", "3", "api")
    with pytest.raises(LaneBusy, match=r"held by this process .api"):
        guest.claim("client", "3")
    for _ in range(3):  # closing any descriptor of the file would drop the lock
        assert guest.alive("client", "3")
    probe = "import sys; from tokenpipe.instance import Instance\n"
    probe += "print(Instance.attach(sys.argv[1]).alive('client', '3'))"
    with child(probe, owner.directory) as other:
        assert line(other) == "True"
    mine.release()
    mine.release()
    assert not guest.alive("client", "3")
    owner.close()


def test_a_fork_does_not_hold_and_cannot_release(base: Path) -> None:
    owner = Instance.create(base, None, {})
    mine = owner.claim("worker", "0.0")
    pid = os.fork()
    if pid == 0:
        mine.release()
        alive = claim.holder(mine.path) == os.getppid()
        os._exit(0 if alive else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert owner.alive("worker", "0.0")
    mine.release()
    owner.close()


def test_a_lock_file_that_was_replaced_is_not_a_claim(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that closes removes the file between our opening and our locking."""
    owner = Instance.create(base, None, {})
    path = owner.directory / "worker0.0.lock"
    at = claim._is_at

    def removed_once(files: set[tuple[int, int]], where: Path) -> bool:
        monkeypatch.setattr(claim, "_is_at", at)
        where.unlink()
        return at(files, where)

    monkeypatch.setattr(claim, "_is_at", removed_once)
    mine = owner.claim("worker", "0.0")
    assert path.exists() and os.path.samestat(os.fstat(mine._fds[-1]), path.stat())
    mine.release()
    owner.close()


def test_roles_have_plain_names_and_need_an_instance(base: Path) -> None:
    owner = Instance.create(base, None, {})
    for role, rank in (("Worker", "0"), ("worker", "../0"), ("", "0"), ("a", "/")):
        with pytest.raises(ConfigError):
            owner.claim(role, rank)
    owner.close()
    with pytest.raises(LaneLost, match="gone"):
        owner.claim("worker", "0.0")


def test_what_a_holder_said_of_itself_can_be_read(base: Path) -> None:
    owner = Instance.create(base, None, {})
    assert owner.note("worker", "0.0") == ""
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
        assert owner.note("worker", "0.0") == "the first"
    mine = owner.claim("client", "0", "api")
    assert owner.note("client", "0") == "api"
    with child(HOLD.replace('"worker", "0.0"', '"client", "0"'), owner.directory) as refused:
        assert refused.wait() != 0  # reading the note did not let go of the lock
    mine.release()
    owner.close()
