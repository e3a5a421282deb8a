"""Make and check directories that nobody else can look into."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from tokenpipe.errors import ConfigError


def default_base() -> Path:
    """Return where instances live unless told: $XDG_RUNTIME_DIR, else one per user in /tmp."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and os.path.isdir(given) and os.access(given, os.W_OK):
        base = Path(given) / "tokenpipe"
    else:
        base = Path(tempfile.gettempdir()) / f"tokenpipe-{os.geteuid()}"
    make_private(base, exist_ok=True)
    return base


def resolved(base: Path) -> Path:
    """Return where `base` is or would be; makes nothing. Raises ConfigError."""
    try:
        return Path(os.path.realpath(base))
    except ValueError as error:  # a NUL, or what is no text of this file system
        raise ConfigError(f"runtime directory {str(base)!r}: {error}") from None


def check_base(base: Path) -> Path:
    """Return a given base, resolved and made where missing. Raises ConfigError."""
    resolved(base)  # a name that no directory can have
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = base.resolve(strict=True)
        there = base.stat()
    except OSError as error:
        raise ConfigError(f"runtime directory {base}: {error.strerror}") from None
    if there.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not there.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"runtime directory {base} can be written by others (mode {_mode(there)}): "
            "anybody could put something else in our place"
        )
    return base


def make_private(path: Path, *, exist_ok: bool) -> None:
    """Make a 0700 directory, whatever the umask, or check that an existing one is such."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not exist_ok:
            raise
    except OSError as error:
        raise ConfigError(f"runtime directory {path}: {error.strerror}") from None
    else:
        os.chmod(path, 0o700)  # a umask may have taken our own bits
    check_private(path)


def check_private(path: Path) -> None:
    """Raise ConfigError unless `path` is a real directory of ours that only we can enter."""
    try:
        there = os.lstat(path)
    except OSError as error:
        raise ConfigError(f"runtime directory {path}: {error.strerror}") from None
    if stat.S_ISLNK(there.st_mode):
        raise ConfigError(f"runtime directory {path} is a symbolic link")
    if not stat.S_ISDIR(there.st_mode):
        raise ConfigError(f"runtime directory {path} is not a directory")
    if there.st_uid != os.geteuid():
        raise ConfigError(
            f"runtime directory {path} belongs to user {there.st_uid}, not to {os.geteuid()}"
        )
    if there.st_mode & 0o077:
        raise ConfigError(f"runtime directory {path} is open to others (mode {_mode(there)})")


def _mode(there: os.stat_result) -> str:
    return f"{stat.S_IMODE(there.st_mode):04o}"
