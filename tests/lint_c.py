"""Compile csrc/ for its warnings only: `python -m tests.lint_c`, part of `make check`."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import numpy

CSRC = Path(__file__).parent.parent / "csrc"
# As strict as the code is meant to be; the build itself stays lenient with compilers to come.
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-c", "-o", "/dev/null"]


def main() -> int:
    """Return 1 where a file does not compile without a warning."""
    include = [f"-I{CSRC}", f"-I{sysconfig.get_path('include')}", f"-I{numpy.get_include()}"]
    failed = 0
    for source in sorted(CSRC.glob("*/*.c")):
        done = subprocess.run(["gcc", *FLAGS, *include, str(source)], check=False)
        failed += done.returncode != 0
    print(f"csrc: {failed} file(s) with warnings" if failed else "csrc: no warnings")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
