"""Fuzz the pure half of csrc/: `python -m tests.csrc.fuzzing --minutes 10`, or `make fuzz`.

Each file fuzz/fuzz_*.c is a target with libFuzzer's entry. fuzz/driver.c runs it where only gcc is
there: it changes the inputs of the corpus, and keeps those that reach new code.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.csrc.build import CSRC, FLAGS, clean_environment, compiler

FOLDER = Path(__file__).parent / "fuzz"
CORPUS = FOLDER / "corpus"
# The sources of csrc/ that each target needs.
TARGETS = {
    "fuzz_frames": ("wire",),
    "fuzz_text": ("wire", "text"),
    "fuzz_table": ("wire", "text", "table"),
    "fuzz_inbox": ("wire", "stream"),
}


def build_target(folder: Path, name: str) -> Path:
    """Compile a target with the driver, and return the program."""
    sources = [CSRC / "buffer.c", FOLDER / f"{name}.c"]
    sources += [path for room in TARGETS[name] for path in sorted((CSRC / room).glob("*.c"))]
    driver, program = folder / f"{name}-driver.o", folder / name
    common = [compiler(), *FLAGS, "-I", str(CSRC)]
    run = {"check": True, "env": clean_environment()}
    subprocess.run([*common, "-c", str(FOLDER / "driver.c"), "-o", str(driver)], **run)  # type: ignore[call-overload]
    counted = [*common, "-fsanitize-coverage=trace-pc", *map(str, sources), str(driver)]
    subprocess.run([*counted, "-o", str(program)], **run)  # type: ignore[call-overload]
    return program


def corpus_of(name: str) -> list[str]:
    """Return the files with which a target begins."""
    if name == "fuzz_frames":
        vectors = Path(__file__).parents[1] / "wire" / "vectors"
        return sorted(str(p) for p in vectors.glob("*/*.bin") if p.stat().st_size <= 4096)
    return sorted(str(path) for path in (CORPUS / name).glob("*.bin"))


def fuzz(program: Path, seed: int, inputs: int, seconds: int, keep: str = "-") -> str:
    """Run a target and return what it says. `inputs` 0: until the seconds are over."""
    command = [str(program), str(seed), str(inputs), str(seconds), keep, *corpus_of(program.name)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=program.parent, env=clean_environment()
    )
    failed = program.parent / "failed-input"
    if done.returncode != 0:
        data = failed.read_bytes().hex() if failed.exists() else "none"
        raise AssertionError(f"{program.name}: {done.stderr}\nits input: {data}")
    return done.stdout


def main() -> int:
    """Fuzz each target for its share of the time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="write the inputs that reach new code")
    options = parser.parse_args()
    seconds = max(1, int(options.minutes * 60 / len(TARGETS)))
    with tempfile.TemporaryDirectory() as folder:
        for name in TARGETS:
            keep = "-"
            if options.keep:
                keep = str((Path(options.keep) / name).resolve())
                Path(keep).mkdir(parents=True, exist_ok=True)
            program = build_target(Path(folder), name)
            print(f"{name}: {fuzz(program, options.seed, 0, seconds, keep)}", end="", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
