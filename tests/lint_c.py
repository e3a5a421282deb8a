"""Check the C sources: `python -m tests.lint_c`, part of `make check`.

Three checks: every file in csrc/ compiles without a warning; every C file, also those of the
tests, is laid out as clang-format lays it out (`make format` does that); and nothing is held across
a call into Python (tests/lint_holds.py).
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy

from tests import lint_holds

ROOT = Path(__file__).parent.parent
CSRC = ROOT / "csrc"
# The build itself is less strict: it must also work with compilers that do not exist yet.
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror"]
FLAGS += ["-c", "-o", "/dev/null"]


def files() -> list[str]:
    """Return all C sources and headers of the project."""
    found = [path for room in (CSRC, ROOT / "tests" / "csrc") for path in room.rglob("*.[ch]")]
    return [str(path) for path in sorted(found)]


def clang_format(*options: str) -> bool:
    """Run clang-format over all files and return whether it succeeded."""
    program = Path(sysconfig.get_path("scripts")) / "clang-format"
    return subprocess.run([str(program), *options, *files()], check=False).returncode == 0


def count_warned() -> int:
    """Compile each file of csrc/ and return how many have warnings or errors."""
    include = [f"-I{CSRC}", f"-I{sysconfig.get_path('include')}", f"-I{numpy.get_include()}"]
    failed = 0
    for source in sorted(CSRC.rglob("*.c")):
        done = subprocess.run(["gcc", *FLAGS, *include, str(source)], check=False)
        failed += done.returncode != 0
    return failed


def main(arguments: list[str]) -> int:
    """Return 0 where all is well. With `--format`, lay the files out instead of checking them."""
    if arguments == ["--format"]:
        return int(not clang_format("-i"))
    warned, laid_out = count_warned(), clang_format("--dry-run", "--Werror")
    print(f"csrc: {warned} file(s) with warnings" if warned else "csrc: no warnings")
    if not laid_out:
        print("C sources: not as clang-format lays them out; `make format` repairs it")
    return int(warned > 0 or not laid_out or lint_holds.main() > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
