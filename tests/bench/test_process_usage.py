"""CPU time and memory are those that the kernel counts."""

import os
import subprocess
import sys
import time

import pytest

from tokenpipe.bench.process_usage import UsageMeter, cpu_s, pin, rss_mb


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_this_process_has_the_same_cpu_time_by_its_pid() -> None:
    burn(0.02)
    mine, by_pid, after = cpu_s(), cpu_s(os.getpid()), cpu_s()
    assert mine <= by_pid <= after


def test_counts_all_threads_of_another_process() -> None:
    code = (
        "import sys, threading, zlib\n"
        "data = b'x' * (1 << 24)\n"
        "threads = [threading.Thread(target=zlib.crc32, args=(data,)) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "import time; print(time.process_time(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = float(child.stdout.readline())
        assert cpu_s(child.pid) == pytest.approx(said, abs=0.05)
        assert rss_mb(child.pid) > 16
        child.communicate()
    with pytest.raises(ProcessLookupError):
        cpu_s(child.pid)
    with pytest.raises(ProcessLookupError):
        rss_mb(child.pid)


def test_a_meter_counts_from_its_start() -> None:
    meter = UsageMeter.start()
    burn(0.01)
    spent = meter.spent()
    assert 0.01 <= spent["cpu_s"] <= spent["wall_s"] + 0.5
    assert spent["rss_mb"] == pytest.approx(rss_mb(), rel=0.1)


def test_pin_takes_one_of_the_allowed_cpus() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        pin(len(allowed) + 1)
        assert len(os.sched_getaffinity(0)) == 1 and os.sched_getaffinity(0) <= allowed
    finally:
        os.sched_setaffinity(0, allowed)
