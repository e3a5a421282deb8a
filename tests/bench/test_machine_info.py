"""A figure's machine is described by values that JSON can hold."""

import json
import os
import platform

from tokenpipe.bench.machine_info import describe_machine


def test_names_the_cpu_the_cores_and_the_python() -> None:
    found = describe_machine()
    assert json.loads(json.dumps(found)) == found
    assert found["cpu"] and found["kernel"] == os.uname().release
    assert found["python"] == platform.python_version()


def test_counts_only_the_cores_that_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert describe_machine()["cores"] == 1
    finally:
        os.sched_setaffinity(0, allowed)
